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
 * buffer has one in device memory beside it.
 *
 * Of every ZT_TIER_ALIGN bytes a checksum is kept in host memory from when they are
 * written, and compared when they are read (aio.h).
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "worker/offload/tier.h"

#define MAX_BUFFERS 16 /* as long as the longest piece would be */

struct file_buffer {
    char *data;   /* host memory */
    char *device; /* what is lent: device memory, or the same */
    enum { FREE, READING, LENT, WRITING } state;
    bool read_too;        /* WRITING: and lent to a reader meanwhile */
    bool holds;           /* FREE: the piece's bytes are still there */
    bool dirty;           /* FREE, LENT: and were not written since they changed */
    size_t offset, bytes; /* of the piece */
    zt_access access;
    struct zt_aio_job jobs[2]; /* READING, WRITING: jobs[job] */
    int job;
    bool follows;   /* READING: the other job, a write of the piece before, comes first */
    uint64_t write; /* WRITING: its number among the writes of the store */
};

struct file_store {
    struct zt_tier_config cfg;
    struct zt_aio_files files;
    uint64_t *sums; /* of every ZT_TIER_ALIGN bytes; NULL: they are not compared */
    size_t piece_bytes;
    struct file_buffer *buffers;
    int num_buffers;
    int turn; /* the buffer that is looked at first */
    size_t
        used_at; /* offset of the piece that was read last: those behind it come next */
    uint64_t num_writes;
};

static size_t num_sums(const struct zt_tier_config *cfg)
{
    return cfg->swap->verify ? cfg->bytes / ZT_TIER_ALIGN : 0;
}

static bool is_direct(const struct file_store *s)
{
    return s->cfg.direct || s->cfg.planning;
}

/* ---- open and close ---- */

static zt_err settle(struct file_store *s, struct file_buffer *b, struct zt_fault *fault);

static void close_buffer(struct file_store *s, struct file_buffer *b)
{
    if (b->state == READING || b->state == WRITING) {
        zt_err rc = settle(s, b, NULL);

        (void)rc; /* the state goes with it */
    }
    if (b->device && b->device != b->data)
        s->cfg.memory.free(s->cfg.memory.ctx, b->device, s->piece_bytes);
    if (b->data && s->cfg.planning)
        s->cfg.memory.free(s->cfg.memory.ctx, b->data, s->piece_bytes);
    else if (b->data)
        s->cfg.backend->host_free(s->cfg.device, b->data, s->piece_bytes);
}

static void file_close(void *store)
{
    struct file_store *s = store;

    if (!s)
        return;
    for (int i = 0; i < s->num_buffers; i++)
        close_buffer(s, &s->buffers[i]);
    zt_aio_files_close(&s->files);
    free(s->buffers);
    free(s->sums);
    free(s);
}

static zt_err open_buffer(struct file_store *s, struct file_buffer *b,
                          struct zt_fault *fault)
{
    const struct zt_tier_config *cfg = &s->cfg;
    void *p = NULL;
    zt_err rc = cfg->planning
                    ? cfg->memory.alloc(cfg->memory.ctx, s->piece_bytes, &p, fault)
                    : cfg->backend->host_alloc(cfg->device, s->piece_bytes, &p, fault);

    b->data = b->device = p;
    if (rc || is_direct(s))
        return rc;
    p = NULL;
    rc = cfg->memory.alloc(cfg->memory.ctx, s->piece_bytes, &p, fault);
    b->device = p;
    return rc;
}

/* A file begins as zero. */
static zt_err open_sums(struct file_store *s, struct zt_fault *fault)
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
    struct file_store *s = calloc(1, sizeof(*s));
    zt_err rc = ZT_OK;

    if (!s)
        return zt_fault_set(fault, ZT_E_NOMEM, "file tier: no host memory");
    s->cfg = *cfg;
    s->piece_bytes = cfg->piece_bytes < cfg->bytes ? cfg->piece_bytes : cfg->bytes;
    s->num_buffers = wanted_buffers(cfg, s->piece_bytes);
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
    const struct file_store *s = store;

    return s->piece_bytes;
}

/* ---- buffers ---- */

/* Whether a piece that was committed stays in its buffer, and is written when another takes that:
 * where pieces are used in order the buffers of those used last are taken, else they have to be
 * enough for all. */
static bool is_put_off(const struct file_store *s)
{
    return s->cfg.swap->pipeline_write && s->cfg.num_pieces &&
           (s->cfg.in_order || s->num_buffers >= s->cfg.num_pieces);
}

/* What is read to a buffer that is written comes after that. */
static void start(struct file_store *s, struct file_buffer *b, bool write)
{
    struct zt_swap_traffic *planned = s->cfg.planning ? s->cfg.swap->planned : NULL;

    b->follows = b->state == WRITING;
    if (b->follows)
        b->job = !b->job;
    b->state = write ? WRITING : READING;
    b->dirty = false;
    b->write = write ? s->num_writes++ : 0;
    if (planned) {
        *(write ? &planned->written : &planned->read) += (double)b->bytes;
        *(write ? &planned->writes : &planned->reads) += 1;
        if ((double)s->piece_bytes > planned->longest)
            planned->longest = (double)s->piece_bytes;
    }
    if (!s->cfg.planning)
        zt_aio_start(s->cfg.swap->aio, &b->jobs[b->job], &s->files, write, b->data,
                     b->offset, b->bytes, s->sums);
}

/* Wait for the write of the piece that the buffer had before. */
static zt_err settle_write(struct file_store *s, struct file_buffer *b,
                           struct zt_fault *fault)
{
    bool moves = b->follows && !s->cfg.planning;

    b->follows = false;
    return moves ? zt_aio_wait(s->cfg.swap->aio, &b->jobs[!b->job], fault) : ZT_OK;
}

/* Wait for what moves; the buffer is free then, and what was read stands in it. */
static zt_err settle(struct file_store *s, struct file_buffer *b, struct zt_fault *fault)
{
    zt_err rc = settle_write(s, b, fault), failed = ZT_OK;

    if (!s->cfg.planning)
        failed = zt_aio_wait(s->cfg.swap->aio, &b->jobs[b->job], rc ? NULL : fault);
    rc = rc ? rc : failed;
    b->state = FREE;
    b->holds = !rc;
    return rc;
}

static bool overlaps(const struct file_buffer *b, size_t offset, size_t bytes)
{
    return (b->state != FREE || b->holds) && b->offset < offset + bytes &&
           offset < b->offset + b->bytes;
}

/* Whether any of these bytes were written from a buffer that another piece is read to. */
static bool was_written(const struct file_buffer *b, size_t offset, size_t bytes)
{
    const struct zt_aio_job *write = &b->jobs[!b->job];

    return b->follows && write->offset < offset + bytes &&
           offset < write->offset + write->bytes;
}

static bool is_piece(const struct file_buffer *b, size_t offset, size_t bytes)
{
    return b->offset == offset && b->bytes == bytes;
}

/* Whether it may be lent while it is written. */
static bool is_readable(const struct file_buffer *b, zt_access access)
{
    return b->state == WRITING && !(access & ZT_WRITE) && !b->read_too;
}

/* The buffer is to be of this piece. */
static void set_piece(struct file_buffer *b, size_t offset, size_t bytes)
{
    b->holds = b->dirty = false;
    b->offset = offset;
    b->bytes = bytes;
}

/* The buffer in this state that was used the longest ago. */
static struct file_buffer *find(struct file_store *s, int state)
{
    for (int i = 0; i < s->num_buffers; i++) {
        int k = (s->turn + i) % s->num_buffers;

        if ((int)s->buffers[k].state == state && !s->buffers[k].read_too) {
            s->turn = (k + 1) % s->num_buffers;
            return &s->buffers[k];
        }
    }
    return NULL;
}

/* How far off it is that a piece is used, where that happens in order: bytes from the piece
 * behind the one that was used last. */
static size_t distance(const struct file_store *s, size_t offset)
{
    size_t n = s->cfg.bytes;

    return (offset + n - s->used_at - 1) % n;
}

/* Whether a write has ended, as far as it can be told without time: later ones have begun. */
static bool is_written(const struct file_store *s, const struct file_buffer *b)
{
    uint64_t later = s->num_writes - 1 - b->write;

    return b->state == WRITING && !b->read_too && later > 0 &&
           later >= (uint64_t)s->num_buffers / 4;
}

/* Whether a buffer's piece is used later than another's, where pieces are used in order; else
 * none is, and the buffer that was used the longest ago is the first that is looked at. */
static bool is_later(const struct file_store *s, const struct file_buffer *b,
                     const struct file_buffer *than)
{
    return !than ||
           (s->cfg.in_order && distance(s, b->offset) > distance(s, than->offset));
}

/* A buffer that is free, or soon: one that holds nothing, or what is used the latest again. */
static struct file_buffer *find_free(struct file_store *s)
{
    struct file_buffer *best = NULL;

    for (int i = 0; i < s->num_buffers; i++) {
        struct file_buffer *b = &s->buffers[(s->turn + i) % s->num_buffers];

        if (b->state == FREE && !b->holds)
            return b;
        if ((b->state == FREE || is_written(s, b)) && is_later(s, b, best))
            best = b;
    }
    return best;
}

/* The same for a piece that is read ahead, whose read can wait for a write that has just begun:
 * a piece that is used a good deal later than that of a free buffer goes first, or what is used
 * soon would have to be read again. */
static struct file_buffer *find_spare(struct file_store *s)
{
    struct file_buffer *ready = find_free(s), *best = NULL;

    if (!s->cfg.in_order || (ready && ready->state == FREE && !ready->holds))
        return ready;
    for (int i = 0; i < s->num_buffers; i++) {
        struct file_buffer *b = &s->buffers[(s->turn + i) % s->num_buffers];

        if (b->state == WRITING && !b->read_too && is_later(s, b, best))
            best = b;
    }
    if (!best || (ready && distance(s, best->offset) <=
                               distance(s, ready->offset) + s->piece_bytes))
        return ready;
    return best;
}

/* Of pieces whose writes are put off: a buffer of nothing, or that of what is used the latest; one
 * that has to be written first only if `dirty_too`. */
static struct file_buffer *find_latest(struct file_store *s, bool dirty_too)
{
    struct file_buffer *best = NULL;

    for (int i = 0; i < s->num_buffers; i++) {
        struct file_buffer *b = &s->buffers[(s->turn + i) % s->num_buffers];
        bool movable = b->state == FREE || (b->state == WRITING && !b->read_too);

        if (b->state == FREE && !b->holds)
            return b;
        if (movable && (dirty_too || !b->dirty) && is_later(s, b, best))
            best = b;
    }
    return best;
}

/* It has memory from when it is first taken on, so not while weights are loaded. */
static zt_err take(struct file_store *s, struct file_buffer *b, struct zt_fault *fault)
{
    s->turn = (int)(b - s->buffers + 1) % s->num_buffers;
    return b->data ? ZT_OK : open_buffer(s, b, fault);
}

/* A buffer for a piece that is used now, once its write has ended. */
static zt_err take_buffer(struct file_store *s, struct file_buffer **out,
                          struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    *out = is_put_off(s) ? find_latest(s, false) : find_free(s);
    if (!*out && is_put_off(s))
        *out = find_latest(s, true);
    if (!*out)
        *out = find(s, WRITING);
    if (*out && (*out)->dirty)
        start(s, *out, true);
    if (*out && (*out)->state == WRITING)
        rc = settle(s, *out, fault);
    return *out && !rc ? take(s, *out, fault) : rc;
}

/* A buffer for a piece that is used later, to which one may still be written from; NULL: none, but
 * for those of pieces that are used before it. */
static zt_err take_spare_buffer(struct file_store *s, size_t offset,
                                struct file_buffer **out, struct zt_fault *fault)
{
    struct file_buffer *b = is_put_off(s) ? find_latest(s, true) : find_spare(s);
    bool holds = b && (b->holds || b->state == WRITING);

    if (holds && s->cfg.in_order && distance(s, b->offset) <= distance(s, offset))
        b = NULL;
    *out = b;
    if (b && b->dirty)
        start(s, b, true);
    return b ? take(s, b, fault) : ZT_OK;
}

/* The buffer that is taken next is written meanwhile, where none is ready; none is taken where
 * every piece has its own. */
static void write_ahead(struct file_store *s)
{
    bool enough = s->num_buffers >= s->cfg.num_pieces;
    struct file_buffer *b = enough || find_latest(s, false) ? NULL : find_latest(s, true);

    if (b)
        start(s, b, true);
}

/* ---- the tier ---- */

static zt_err file_prefetch(void *store, size_t offset, size_t bytes, bool *begun,
                            struct zt_fault *fault)
{
    struct file_store *s = store;
    struct file_buffer *b = NULL;
    zt_err rc;

    *begun = false;
    if (!s->cfg.swap->pipeline_read)
        return ZT_OK;
    for (int i = 0; i < s->num_buffers; i++) {
        const struct file_buffer *o = &s->buffers[i];

        *begun = overlaps(o, offset, bytes) && is_piece(o, offset, bytes);
        if (*begun || (overlaps(o, offset, bytes) && (o->state != FREE || o->dirty)))
            return ZT_OK; /* it is here, or acquire sorts it out */
    }
    rc = take_spare_buffer(s, offset, &b, fault);
    if (rc || !b)
        return rc;
    set_piece(b, offset, bytes);
    start(s, b, false);
    *begun = true;
    return ZT_OK;
}

/* Nothing of these bytes is on the move any more, and no buffer holds what changes; *here:
 * one that has the piece. */
static zt_err clear_overlaps(struct file_store *s, size_t offset, size_t bytes,
                             zt_access access, struct file_buffer **here,
                             struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    *here = NULL;
    for (int i = 0; !rc && i < s->num_buffers; i++) {
        struct file_buffer *b = &s->buffers[i];

        if (was_written(b, offset, bytes))
            rc = settle_write(s, b, fault); /* an error of it, before what it left */
        if (rc || !overlaps(b, offset, bytes))
            continue;
        assert(b->state != LENT || !((b->access | access) & ZT_WRITE));
        assert(!b->read_too || !(access & ZT_WRITE));
        if (b->state == FREE && b->dirty && !is_piece(b, offset, bytes))
            start(s, b, true);
        if (b->state == READING || (b->state == WRITING && !is_readable(b, access)))
            rc = settle(s, b, fault);
        if (!rc && is_piece(b, offset, bytes) &&
            (b->state == FREE || is_readable(b, access)))
            *here = b;
        if (access & ZT_WRITE)
            b->holds = false;
    }
    return rc;
}

static zt_err read_piece(struct file_store *s, struct file_buffer *b,
                         struct zt_fault *fault)
{
    start(s, b, false);
    return settle(s, b, fault);
}

static zt_err file_acquire(void *store, size_t offset, size_t bytes, zt_access access,
                           void **data, struct zt_fault *fault)
{
    struct file_store *s = store;
    struct file_buffer *b;
    zt_err rc = clear_overlaps(s, offset, bytes, access, &b, fault);
    bool here = b, ahead;

    assert(bytes <= s->piece_bytes && bytes <= s->cfg.bytes - offset);
    if (access & ZT_READ)
        s->used_at = offset;
    if (!rc && !b)
        rc = take_buffer(s, &b, fault);
    ahead = is_put_off(s) && (!here || access == ZT_WRITE);
    if (!rc && !b && (b = find(s, READING))) /* read ahead for nothing */
        rc = settle(s, b, fault);
    if (!rc && !b)
        rc = zt_fault_set(fault, ZT_E_LIMIT,
                          "file tier: more than %d pieces of a region are acquired",
                          s->num_buffers);
    if (rc)
        return rc;
    if (b->state == WRITING) {
        b->read_too = true;
        *data = b->device;
        return ZT_OK;
    }
    if (!here)
        set_piece(b, offset, bytes);
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
        write_ahead(s);
    return ZT_OK;
}

/* The device has done what was queued: the buffer in host memory can be used. */
static zt_err bring_back(struct file_store *s, struct file_buffer *b, bool written,
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

static zt_err file_commit(void *store, void *data, size_t offset, size_t bytes,
                          bool written, struct zt_fault *fault)
{
    struct file_store *s = store;
    struct file_buffer *b = s->buffers;
    zt_err rc;

    while (b < s->buffers + s->num_buffers && b->device != data)
        b++;
    assert(b < s->buffers + s->num_buffers && is_piece(b, offset, bytes) &&
           (b->state == LENT || (b->read_too && !written)));
    if (b->read_too) {
        b->read_too = false;
        return bring_back(s, b, false, fault);
    }
    rc = bring_back(s, b, written, fault);
    b->state = FREE;
    b->holds = !rc && b->access != ZT_READ_LAST && (!(b->access & ZT_WRITE) || written);
    b->dirty = b->holds && (b->dirty || written);
    if (rc || !written || is_put_off(s))
        return rc;
    start(s, b, true);
    return s->cfg.swap->pipeline_write ? ZT_OK : settle(s, b, fault);
}

static void file_measure(const void *store, size_t *bytes)
{
    const struct file_store *s = store;
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
    .prefetch = file_prefetch,
    .acquire = file_acquire,
    .commit = file_commit,
    .measure = file_measure,
};
