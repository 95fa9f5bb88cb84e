/*
 * file_tier.c -- state in files; pieces pass through buffers in host memory.
 *
 *      FREE --prefetch--> READING --acquire--> LENT --commit--> WRITING --> FREE
 *       | \                 ^                  ^  \               | \
 *       |  \                 \--------------------------prefetch-/   |
 *       |   \--------------------acquire------/    \--commit, only read--> FREE
 *
 * A buffer that is free still holds its piece until another takes it: acquired again, it is
 * not read. Where it is known how many pieces there are (zt_tier_config.num_pieces), what was
 * written is put off until then, too: FREE and dirty. So what buffers have room for never moves.
 * Where pieces are used in order, those give way that are used the latest.
 *
 * With one buffer a piece is read, worked on and written in turn. With pipeline_read there
 * is one more, for the piece that comes next; with pipeline_write one more, for the piece
 * before, so that reads, update and writes of three pieces run side by side. Where the longest
 * piece is long (zt_tier_config.buffer_bytes) their memory is cut into many buffers: as many
 * pieces are read ahead, or wait to be written, while the drive is behind. Which buffer a piece
 * takes follows from the order of the calls and never from how fast the drive is: so all that a
 * run reads and writes is the same each time. Where kernels do not reach host memory, each
 * buffer has one in device memory beside it; where they do, buffers lie side by side in one piece of
 * memory, and a run of pieces is lent at once, in a run of buffers. Where there is a buffer for every
 * piece the store is resident: a piece is where it would be if that memory were the file, whichever
 * buffer it takes, so any run of pieces lies side by side.
 *
 * Of every ZT_TIER_ALIGN bytes a checksum is kept in host memory from when they are
 * written, and compared when they are read (aio.h).
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "worker/offload/file_buffers.h"

#define MAX_BUFFERS 16 /* as long as the longest piece would be */

static size_t num_sums(const struct zt_tier_config *cfg)
{
    return cfg->swap->verify ? cfg->bytes / ZT_TIER_ALIGN : 0;
}

/* ---- open and close ---- */

static void file_close(void *store)
{
    struct zt_file_store *s = store;

    if (!s)
        return;
    zt_file_close_buffers(s);
    zt_aio_files_close(&s->files);
    free(s->buffers);
    free(s->sums);
    free(s);
}

/* A file begins as zero. */
static zt_err open_sums(struct zt_file_store *s, struct zt_fault *fault)
{
    static const char zeros[ZT_TIER_ALIGN];
    uint64_t of_zeros = zt_aio_sum(zeros);
    size_t n = num_sums(&s->cfg);

    if (!n)
        return ZT_OK;
    s->sums = malloc(n * sizeof(*s->sums));
    if (!s->sums)
        return zt_fault_set(fault, ZT_E_NOMEM, "file tier: no host memory");
    for (size_t i = 0; i < n; i++)
        s->sums[i] = of_zeros;
    return ZT_OK;
}

static int wanted_buffers(const struct zt_tier_config *cfg, size_t piece_bytes)
{
    const struct zt_swap *w = cfg->swap;
    size_t each = cfg->buffer_bytes < cfg->bytes ? cfg->buffer_bytes : cfg->bytes;
    int n = 1 + w->pipeline_read + w->pipeline_write, many;

    n = n > w->buffers ? n : w->buffers;
    n = n < MAX_BUFFERS ? n : MAX_BUFFERS;
    if (each <= piece_bytes)
        return n;
    many = (int)((size_t)n * each / piece_bytes);
    if (cfg->num_pieces && many > cfg->num_pieces)
        many = cfg->num_pieces;
    return many > n ? many : n;
}

static zt_err file_open(const struct zt_tier_config *cfg, void **store,
                        struct zt_fault *fault)
{
    struct zt_file_store *s = calloc(1, sizeof(*s));
    zt_err rc = ZT_OK;

    if (!s)
        return zt_fault_set(fault, ZT_E_NOMEM, "file tier: no host memory");
    s->cfg = *cfg;
    s->piece_bytes = cfg->piece_bytes < cfg->bytes ? cfg->piece_bytes : cfg->bytes;
    s->num_buffers = wanted_buffers(cfg, s->piece_bytes);
    s->resident = cfg->direct && cfg->num_pieces && s->num_buffers >= cfg->num_pieces &&
                  s->num_buffers >= zt_file_pieces(s, cfg->bytes);
    s->buffers = calloc((size_t)s->num_buffers, sizeof(*s->buffers));
    if (!s->buffers) {
        s->num_buffers = 0;
        rc = zt_fault_set(fault, ZT_E_NOMEM, "file tier: no host memory");
    }
    if (!rc && !cfg->planning)
        rc = zt_aio_files_open(cfg->swap->aio, cfg->swap->dirs, cfg->bytes,
                               "state of this rank",
                               "make room, name more folders, on other drives, or "
                               "offload a smaller ratio",
                               &s->files, fault);
    if (!rc && !cfg->planning)
        rc = open_sums(s, fault);
    if (rc) {
        file_close(s);
        return rc;
    }
    *store = s;
    return ZT_OK;
}

static size_t file_piece_bytes(const void *store)
{
    const struct zt_file_store *s = store;

    return s->piece_bytes;
}

/* ---- the tier ---- */

static zt_err file_prefetch(void *store, size_t offset, size_t bytes, bool *begun,
                            struct zt_fault *fault)
{
    struct zt_file_store *s = store;
    struct zt_file_buffer *b = NULL;
    zt_err rc;

    *begun = false;
    if (!s->cfg.swap->pipeline_read)
        return ZT_OK;
    for (int i = 0; i < s->num_buffers; i++) {
        const struct zt_file_buffer *o = &s->buffers[i];

        *begun = zt_file_overlaps(o, offset, bytes) && zt_file_is_piece(o, offset, bytes);
        if (*begun ||
            (zt_file_overlaps(o, offset, bytes) && (o->state != FREE || o->dirty)))
            return ZT_OK; /* it is here, or acquire sorts it out */
    }
    rc = zt_file_take_spare_buffer(s, offset, &b, fault);
    if (rc || !b)
        return rc;
    zt_file_set_piece(s, b, offset, bytes);
    zt_file_start(s, b, false);
    *begun = true;
    return ZT_OK;
}

static zt_err read_piece(struct zt_file_store *s, struct zt_file_buffer *b,
                         struct zt_fault *fault)
{
    zt_file_start(s, b, false);
    return zt_file_settle(s, b, fault);
}

static zt_err too_many(const struct zt_file_store *s, struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_LIMIT,
                        "file tier: more than %d pieces of a region are acquired",
                        s->num_buffers);
}

static zt_err acquire_piece(struct zt_file_store *s, size_t offset, size_t bytes,
                            zt_access access, void **data, struct zt_fault *fault)
{
    struct zt_file_buffer *b;
    zt_err rc = zt_file_clear_overlaps(s, offset, bytes, access, NULL, &b, fault);
    bool here = b, ahead;

    if (!rc && !b)
        rc = zt_file_take_buffer(s, &b, fault);
    ahead = zt_file_puts_off(s) && (!here || access == ZT_WRITE);
    if (!rc && !b && (b = zt_file_find(s, READING))) /* read ahead for nothing */
        rc = zt_file_settle(s, b, fault);
    if (!rc && !b)
        rc = too_many(s, fault);
    if (rc)
        return rc;
    if (b->state == WRITING) {
        b->read_too = true;
        *data = b->device;
        return ZT_OK;
    }
    if (b->state == LENT) {
        b->readers++;
        *data = b->device;
        return ZT_OK;
    }
    if (!here)
        zt_file_set_piece(s, b, offset, bytes);
    if (!here && (access & ZT_READ))
        rc = read_piece(s, b, fault);
    if (!rc && (access & ZT_READ) && b->device != b->data)
        rc =
            s->cfg.backend->upload(s->cfg.device, NULL, b->device, b->data, bytes, fault);
    if (rc)
        return rc;
    b->state = LENT;
    b->access = access;
    *data = b->device;
    if (ahead)
        zt_file_write_ahead(s, 1);
    return ZT_OK;
}

/* ---- runs of pieces ---- */

static bool file_is_resident(const void *store)
{
    const struct zt_file_store *s = store;

    return s->resident;
}

/* Whether a run can be lent, and a piece besides. However those that are lent lie among the others: so
 * that depends on what is acquired alone. */
static bool file_lends(const void *store, size_t bytes)
{
    const struct zt_file_store *s = store;
    int n = zt_file_pieces(s, bytes), left = s->num_buffers - s->num_lent;

    return s->cfg.direct && left > n &&
           (s->resident || left > (s->num_loans + 1) * (n - 1));
}

/* The buffers that have all of a run, side by side; NULL: none do. */
static struct zt_file_buffer *find_here(const struct zt_file_store *s, size_t offset,
                                        size_t bytes)
{
    int n = zt_file_pieces(s, bytes), same = 0;

    for (int i = 0; i < s->num_buffers; i++) {
        struct zt_file_buffer *b = &s->buffers[i];
        size_t at = (size_t)same * s->piece_bytes;
        bool holds = b->state == FREE ? b->holds : b->state != LENT && !b->read_too;

        if (holds && zt_file_is_piece(b, offset + at, zt_file_run_piece(s, bytes, same)))
            same++;
        else /* no piece is in two places of a run */
            same = holds && zt_file_is_piece(b, offset, zt_file_run_piece(s, bytes, 0));
        if (same == n)
            return b - (n - 1);
    }
    return NULL;
}

/* Nothing moves to or from these buffers any more, and what changed in them is written, unless it
 * `stays`. */
static zt_err settle_run(struct zt_file_store *s, struct zt_file_buffer *first, int n,
                         bool stays, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int i = 0; i < n; i++)
        if (!stays && first[i].dirty)
            zt_file_start(s, &first[i], true);
    for (int i = 0; !rc && i < n; i++)
        if (first[i].state != FREE)
            rc = zt_file_settle(s, &first[i], fault);
    return rc;
}

/* Buffers for a run that is not here. */
static zt_err take_run(struct zt_file_store *s, size_t offset, size_t bytes,
                       zt_access access, struct zt_file_buffer **out,
                       struct zt_fault *fault)
{
    int n = zt_file_pieces(s, bytes);
    struct zt_file_buffer *first = NULL;
    zt_err rc;

    for (int most = CLEAN; most <= READ_AHEAD && !first; most++)
        first = zt_file_find_run(s, n, (enum zt_give_up)most);
    if (!first)
        return too_many(s, fault);
    rc = settle_run(s, first, n, false, fault);
    if (!rc)
        rc = zt_file_take(s, first + n - 1, fault);
    for (int i = 0; !rc && i < n; i++) {
        zt_file_set_piece(s, &first[i], offset + (size_t)i * s->piece_bytes,
                          zt_file_run_piece(s, bytes, i));
        if (access & ZT_READ)
            zt_file_start(s, &first[i], false);
    }
    *out = first;
    return rc ? rc : settle_run(s, first, n, true, fault);
}

static zt_err acquire_run(struct zt_file_store *s, size_t offset, size_t bytes,
                          zt_access access, void **data, struct zt_fault *fault)
{
    int n = zt_file_pieces(s, bytes);
    struct zt_file_buffer *first = find_here(s, offset, bytes), *whole;
    bool here = first;
    zt_err rc = zt_file_clear_overlaps(s, offset, bytes, access, first, &whole, fault);

    if (!rc)
        rc = here ? settle_run(s, first, n, true, fault)
                  : take_run(s, offset, bytes, access, &first, fault);
    if (rc)
        return rc;
    for (int i = 0; i < n; i++) {
        first[i].state = LENT;
        first[i].access = access;
    }
    *data = first->device;
    if (zt_file_puts_off(s) && (!here || access == ZT_WRITE))
        zt_file_write_ahead(s, n);
    return ZT_OK;
}

/* The same where each piece has its place; most of them are there. */
static zt_err acquire_places(struct zt_file_store *s, size_t offset, size_t bytes,
                             zt_access access, void **data, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < zt_file_pieces(s, bytes); i++) {
        void *piece;

        rc = acquire_piece(s, offset + (size_t)i * s->piece_bytes,
                           zt_file_run_piece(s, bytes, i), access, &piece, fault);
    }
    if (!rc)
        *data = s->slab + offset;
    return rc;
}

static zt_err file_acquire(void *store, size_t offset, size_t bytes, zt_access access,
                           void **data, struct zt_fault *fault)
{
    struct zt_file_store *s = store;
    zt_err rc;

    assert(bytes <= s->cfg.bytes - offset);
    assert(bytes <= s->piece_bytes || s->resident || file_lends(s, bytes));
    if (access & ZT_READ)
        s->used_at = offset;
    if (bytes <= s->piece_bytes)
        rc = acquire_piece(s, offset, bytes, access, data, fault);
    else
        rc = (s->resident ? acquire_places : acquire_run)(s, offset, bytes, access, data,
                                                          fault);
    if (!rc) {
        s->num_lent += zt_file_pieces(s, bytes);
        s->num_loans++;
    }
    return rc;
}

/* The device has done what was queued: the buffer in host memory can be used. */
static zt_err bring_back(struct zt_file_store *s, struct zt_file_buffer *b, bool written,
                         struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (b->device == b->data)
        return ZT_OK;
    if (written)
        rc = s->cfg.backend->download(s->cfg.device, NULL, b->data, b->device, b->bytes,
                                      fault);
    return rc ? rc : s->cfg.backend->sync(s->cfg.device, NULL, fault);
}

static zt_err commit_buffer(struct zt_file_store *s, struct zt_file_buffer *b,
                            bool written, struct zt_fault *fault)
{
    zt_err rc;

    assert(b->state == LENT || (b->read_too && !written));
    if (b->read_too || b->readers) {
        b->readers -= !b->read_too;
        b->read_too = false;
        return bring_back(s, b, false, fault);
    }
    rc = bring_back(s, b, written, fault);
    b->state = FREE;
    b->holds = !rc && b->access != ZT_READ_LAST && (!(b->access & ZT_WRITE) || written);
    b->dirty = b->holds && (b->dirty || written);
    if (rc || !written || zt_file_puts_off(s))
        return rc;
    zt_file_start(s, b, true);
    return s->cfg.swap->pipeline_write ? ZT_OK : zt_file_settle(s, b, fault);
}

/* The buffer that was lent with this piece. */
static struct zt_file_buffer *find_lent(const struct zt_file_store *s, const char *data,
                                        size_t offset, size_t bytes)
{
    struct zt_file_buffer *b = s->buffers;

    while (b < s->buffers + s->num_buffers &&
           !(b->device == data && (b->state == LENT || b->read_too) &&
             zt_file_is_piece(b, offset, bytes)))
        b++;
    assert(b < s->buffers + s->num_buffers);
    return b;
}

static zt_err file_commit(void *store, void *data, size_t offset, size_t bytes,
                          bool written, struct zt_fault *fault)
{
    struct zt_file_store *s = store;
    int n = zt_file_pieces(s, bytes);
    zt_err rc = ZT_OK;

    for (int i = 0; i < n; i++) {
        size_t at = (size_t)i * s->piece_bytes;
        struct zt_file_buffer *b = find_lent(s, (const char *)data + at, offset + at,
                                             zt_file_run_piece(s, bytes, i));
        zt_err failed = commit_buffer(s, b, written, rc ? NULL : fault);

        rc = rc ? rc : failed;
    }
    s->num_lent -= n;
    s->num_loans--;
    return rc;
}

static void file_measure(const void *store, size_t *bytes)
{
    const struct zt_file_store *s = store;
    size_t buffers = (size_t)s->num_buffers * s->piece_bytes;

    bytes[ZT_PLACE_FILE] += s->cfg.bytes;
    bytes[s->cfg.staged ? ZT_PLACE_PINNED : ZT_PLACE_HOST] += buffers;
    bytes[ZT_PLACE_HOST] += num_sums(&s->cfg) * sizeof(*s->sums);
    bytes[ZT_PLACE_DEVICE] += s->cfg.staged ? buffers : 0;
}

const struct zt_tier zt_file_tier = {
    .name = "file",
    .open = file_open,
    .close = file_close,
    .piece_bytes = file_piece_bytes,
    .is_resident = file_is_resident,
    .lends = file_lends,
    .prefetch = file_prefetch,
    .acquire = file_acquire,
    .commit = file_commit,
    .measure = file_measure,
};
