/* reader.c -- ranges of tensors, verified. */
#include "worker/checkpoint/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/half.h"
#include "worker/checkpoint/disk/read_ahead.h"
#include "worker/checkpoint/reader_private.h"
#include "worker/checkpoint/checksummed_json.h"

#define F32_ELEMS 65536 /* converted at a time */

const struct zt_ckpt_manifest *zt_ckpt_manifest(const struct zt_ckpt *c)
{
    return &c->manifest;
}

const char *zt_ckpt_dir(const struct zt_ckpt *c)
{
    return c->dir;
}

static zt_err read_all(int fd, const char *name, void *out, size_t n, int64_t at,
                       struct zt_fault *fault)
{
    char *to = out;

    while (n > 0) {
        ssize_t got = pread(fd, to, n, (off_t)at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return zt_fault_set(fault, got ? ZT_E_SYSTEM : ZT_E_FORMAT, "%s: %s", name,
                                got ? strerror(errno) : "it ends too early");
        to += got;
        at += got;
        n -= (size_t)got;
    }
    return ZT_OK;
}

static zt_err make_room(struct zt_ckpt *c, size_t bytes, struct zt_fault *fault)
{
    uint8_t *buf;

    c->part = NULL;
    if (bytes <= c->buf_bytes)
        return ZT_OK;
    buf = realloc(c->buf, bytes);
    if (!buf)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", c->dir);
    c->buf = buf;
    c->buf_bytes = bytes;
    return ZT_OK;
}

/* Its header says the same as the index, or a reader of safetensors sees other tensors. */
static zt_err check_header(struct zt_ckpt *c, int i, const char *name,
                           struct zt_fault *fault)
{
    const struct zt_ckpt_shard *s = &c->manifest.shards[i];
    size_t n = (size_t)s->header_bytes;
    char tensor[512], *head = malloc(n ? n : 1);
    zt_err rc = head ? read_all(c->fds[i], name, head, n, 0, fault)
                     : zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", c->dir);

    if (!rc && zt_hash_bytes(head, n) != s->header_hash)
        rc = zt_fault_set(fault, ZT_E_FORMAT,
                          "%s: damaged: the checksum of its header does not match; %s "
                          "and others are in it",
                          name, zt_ckpt_first_tensor(c, i, tensor, sizeof(tensor)));
    free(head);
    return rc;
}

static zt_err open_shard(struct zt_ckpt *c, int i, struct zt_fault *fault)
{
    char name[PATH_MAX];
    zt_err rc;

    if (c->fds[i] >= 0)
        return ZT_OK;
    snprintf(name, sizeof(name), "%s/%s", c->dir, c->manifest.shards[i].file);
    c->fds[i] = open(name, O_RDONLY | O_CLOEXEC);
    if (c->fds[i] < 0)
        return zt_fault_set(fault, ZT_E_NOINPUT, "%s: %s", name, strerror(errno));
    rc = check_header(c, i, name, fault);
    if (rc) {
        close(c->fds[i]);
        c->fds[i] = -1;
    }
    return rc;
}

static size_t elem_bytes(const struct zt_ckpt *c, const struct zt_ckpt_part *p)
{
    return zt_dtype_bytes(c->manifest.kinds[p->kind].dtype);
}

/* Bytes of a shard: where they were read ahead, or read into `out` now. */
static zt_err read_bytes(struct zt_ckpt *c, int shard, const char *name, int64_t at,
                         void *out, size_t n, const void **data, struct zt_fault *fault)
{
    int error = 0;

    *data = c->ahead ? zt_read_ahead_take(c->ahead, c->fds[shard], at, n, &error) : NULL;
    if (*data)
        return ZT_OK;
    if (error)
        return zt_fault_set(fault, error > 0 ? ZT_E_SYSTEM : ZT_E_FORMAT, "%s: %s", name,
                            error > 0 ? strerror(error) : "it ends too early");
    *data = out;
    return read_all(c->fds[shard], name, out, n, at, fault);
}

/* One piece of a part, verified: read into `out`, or where *data says. */
static zt_err read_piece(struct zt_ckpt *c, const struct zt_ckpt_part *p, int64_t piece,
                         void *out, size_t n, const void **data, struct zt_fault *fault)
{
    const struct zt_ckpt_manifest *m = &c->manifest;
    const struct zt_ckpt_shard *s = &m->shards[p->shard];
    int64_t per = s->piece_bytes / (int64_t)elem_bytes(c, p);
    int64_t at = p->at + piece * s->piece_bytes;
    char name[PATH_MAX];
    uint64_t want = 0;
    zt_err rc;

    snprintf(name, sizeof(name), "%s/%s", c->dir, s->file);
    if (c->is_planning)
        return zt_read_ahead_expect(c->ahead, c->fds[p->shard], at, n)
                   ? ZT_OK
                   : zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", c->dir);
    rc = read_bytes(c, p->shard, name, at, out, n, data, fault);
    if (rc)
        return rc;
    (void)zt_hash_parse(p->hashes + piece * ZT_HASH_TEXT, &want); /* it was parsed */
    if (zt_hash_bytes(*data, n) == want)
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_FORMAT,
                        "%s: damaged: %s of %s: the checksum of the piece from element "
                        "%lld on does not match; use another checkpoint",
                        name, m->kinds[p->kind].name, m->params[p->param].name,
                        (long long)(p->first + piece * per));
}

/* The last piece is this one: it is read, unless it was before. */
static zt_err have_piece(struct zt_ckpt *c, const struct zt_ckpt_part *p, int64_t piece,
                         size_t bytes, struct zt_fault *fault)
{
    const void *data = NULL;
    zt_err rc;

    if (c->part == p && c->piece == piece)
        return ZT_OK;
    rc =
        make_room(c, bytes, fault); /* what was read ahead before may be gone with this */
    if (!rc)
        rc = read_piece(c, p, piece, c->buf, bytes, &data, fault);
    if (rc)
        return rc;
    c->part = p;
    c->piece = piece;
    c->data = data;
    return ZT_OK;
}

/* Byte `at` of a part and those behind it, as far as its piece goes. */
static zt_err find_bytes(struct zt_ckpt *c, const struct zt_ckpt_part *p, int64_t at,
                         const uint8_t **data, int64_t *bytes, struct zt_fault *fault)
{
    int64_t step = c->manifest.shards[p->shard].piece_bytes;
    int64_t all = p->elems * (int64_t)elem_bytes(c, p);
    int64_t piece = at / step, begin = piece * step;
    int64_t n = all - begin < step ? all - begin : step;
    zt_err rc = open_shard(c, p->shard, fault);

    if (!rc)
        rc = have_piece(c, p, piece, (size_t)n, fault);
    if (rc)
        return rc;
    *data = c->data + (c->is_planning ? 0 : at - begin);
    *bytes = begin + n - at;
    return ZT_OK;
}

/* Bytes [at, at + n) of a part. */
static zt_err read_part(struct zt_ckpt *c, const struct zt_ckpt_part *p, int64_t at,
                        int64_t n, uint8_t *out, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    while (!rc && n > 0) {
        const uint8_t *data = NULL;
        int64_t k = 0;

        rc = find_bytes(c, p, at, &data, &k, fault);
        k = k < n ? k : n;
        if (!rc && !c->is_planning)
            memcpy(out, data, (size_t)k);
        at += k;
        n -= k;
        out += k;
    }
    return rc;
}

static zt_err check_range(const struct zt_ckpt *c, int kind, int param, int64_t first,
                          int64_t n, struct zt_fault *fault)
{
    const struct zt_ckpt_manifest *m = &c->manifest;

    if (kind < 0 || kind >= m->num_kinds || param < 0 || param >= m->num_params ||
        !(m->params[param].kinds >> kind & 1))
        return zt_fault_set(fault, ZT_E_ARG, "%s: there is no such state", c->dir);
    if (first < 0 || n < 0 || first > m->params[param].numel ||
        n > m->params[param].numel - first)
        return zt_fault_set(fault, ZT_E_ARG, "%s: %s has %lld elements", c->dir,
                            m->params[param].name, (long long)m->params[param].numel);
    return ZT_OK;
}

/* The part that begins with, or has, this element. */
static zt_err find_part(const struct zt_ckpt *c, int kind, int param, int64_t first,
                        const struct zt_ckpt_part **out, struct zt_fault *fault)
{
    const struct zt_ckpt_manifest *m = &c->manifest;

    *out = zt_ckpt_find_part(m, kind, param, first);
    return *out ? ZT_OK
                : zt_fault_set(fault, ZT_E_FORMAT,
                               "%s: incomplete: %s of %s is missing from element %lld on",
                               c->dir, m->kinds[kind].name, m->params[param].name,
                               (long long)first);
}

zt_err zt_ckpt_read(struct zt_ckpt *c, int kind, int param, int64_t first, int64_t n,
                    void *out, struct zt_fault *fault)
{
    uint8_t *to = out;
    zt_err rc = check_range(c, kind, param, first, n, fault);

    while (!rc && n > 0) {
        const struct zt_ckpt_part *p = NULL;
        int64_t width, k;

        rc = find_part(c, kind, param, first, &p, fault);
        if (rc)
            return rc;
        width = (int64_t)elem_bytes(c, p);
        k = p->first + p->elems - first < n ? p->first + p->elems - first : n;
        rc = read_part(c, p, (first - p->first) * width, k * width, to, fault);
        first += k;
        n -= k;
        to += k * width;
    }
    return rc;
}

zt_err zt_ckpt_view(struct zt_ckpt *c, int kind, int param, int64_t first, int64_t n,
                    const void **data, int64_t *elems, struct zt_fault *fault)
{
    const struct zt_ckpt_part *p = NULL;
    const uint8_t *there = NULL;
    int64_t width, bytes = 0;
    zt_err rc = check_range(c, kind, param, first, n, fault);

    if (!rc)
        rc = find_part(c, kind, param, first, &p, fault);
    if (rc)
        return rc;
    width = (int64_t)elem_bytes(c, p);
    rc = find_bytes(c, p, (first - p->first) * width, &there, &bytes, fault);
    if (rc)
        return rc;
    *data = there;
    *elems = bytes / width < n ? bytes / width : n;
    return ZT_OK;
}

static void widen(zt_dtype dtype, const uint16_t *from, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = dtype == ZT_F16 ? zt_float_of_f16(from[i]) : zt_float_of_bf16(from[i]);
}

zt_err zt_ckpt_read_f32(struct zt_ckpt *c, int kind, int param, int64_t first, int64_t n,
                        float *out, struct zt_fault *fault)
{
    zt_err rc = check_range(c, kind, param, first, n, fault);
    zt_dtype dtype = rc ? ZT_F32 : c->manifest.kinds[kind].dtype;
    uint16_t *narrow;

    if (rc)
        return rc;
    if (dtype == ZT_F32)
        return zt_ckpt_read(c, kind, param, first, n, out, fault);
    if (dtype != ZT_BF16 && dtype != ZT_F16)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED, "%s: %s are %s: no fractions",
                            c->dir, c->manifest.kinds[kind].name, zt_dtype_name(dtype));
    narrow = calloc(F32_ELEMS, sizeof(*narrow));
    if (!narrow)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", c->dir);
    for (int64_t done = 0, k; !rc && done < n; done += k) {
        k = n - done < F32_ELEMS ? n - done : F32_ELEMS;
        rc = zt_ckpt_read(c, kind, param, first + done, k, narrow, fault);
        if (!rc && !c->is_planning)
            widen(dtype, narrow, k, out + done);
    }
    free(narrow);
    return rc;
}

zt_err zt_ckpt_plan_reads(struct zt_ckpt *c, bool shared, struct zt_fault *fault)
{
    c->part = NULL;
    c->ahead = zt_read_ahead_open(shared);
    c->is_planning = c->ahead != NULL;
    return c->ahead ? ZT_OK
                    : zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", c->dir);
}

zt_err zt_ckpt_begin_reads(struct zt_ckpt *c, struct zt_fault *fault)
{
    c->part = NULL;
    c->is_planning = false;
    return zt_read_ahead_start(c->ahead)
               ? ZT_OK
               : zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory or thread to read ahead",
                              c->dir);
}

size_t zt_ckpt_read_ahead_bytes(size_t bytes)
{
    return zt_read_ahead_bytes(bytes < ZT_READ_AHEAD_BLOCK ? bytes : ZT_READ_AHEAD_BLOCK);
}

int zt_ckpt_value_kind(const struct zt_ckpt *c, int param)
{
    static const char *const order[] = {"master", "weights"};

    for (int i = 0; i < 2; i++) {
        int k = zt_ckpt_find_kind(&c->manifest, order[i]);

        if (k >= 0 && (c->manifest.params[param].kinds >> k & 1))
            return k;
    }
    return -1;
}

zt_err zt_ckpt_verify(struct zt_ckpt *c, struct zt_fault *fault)
{
    const struct zt_ckpt_manifest *m = &c->manifest;
    uint8_t *piece = malloc(ZT_CKPT_MAX_PIECE);
    zt_err rc = ZT_OK;

    if (!piece)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", c->dir);
    for (int i = 0; !rc && i < m->num_shards; i++)
        rc = open_shard(c, i, fault);
    for (int64_t i = 0; !rc && i < m->num_parts; i++) {
        const struct zt_ckpt_part *p = &m->parts[i];
        int64_t all = p->elems * (int64_t)elem_bytes(c, p);
        int64_t step = m->shards[p->shard].piece_bytes;

        for (int64_t at = 0; !rc && at < all; at += step)
            rc = read_part(c, p, at, all - at < step ? all - at : step, piece, fault);
    }
    free(piece);
    return rc ? rc : zt_ckpt_check_files(c, "others", fault);
}
