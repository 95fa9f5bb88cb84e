#include "worker/offload/file_buffers.h"

#include <assert.h>

static bool is_direct(const struct zt_file_store *s)
{
    return s->cfg.direct || s->cfg.planning;
}

/* ---- their memory ---- */

/* A plan takes addresses alone, of the device that has them to give. */
static zt_err take_host(struct zt_file_store *s, size_t bytes, char **out,
                        struct zt_fault *fault)
{
    const struct zt_tier_config *cfg = &s->cfg;
    void *p = NULL;
    zt_err rc = cfg->planning ? cfg->memory.alloc(cfg->memory.ctx, bytes, &p, fault)
                              : cfg->backend->host_alloc(cfg->device, bytes, &p, fault);

    *out = p;
    return rc;
}

static void give_host(struct zt_file_store *s, void *p, size_t bytes)
{
    if (p && s->cfg.planning)
        s->cfg.memory.free(s->cfg.memory.ctx, p, bytes);
    else if (p)
        s->cfg.backend->host_free(s->cfg.device, p, bytes);
}

static size_t slab_bytes(const struct zt_file_store *s)
{
    return (size_t)s->num_buffers * s->piece_bytes;
}

static void close_buffer(struct zt_file_store *s, struct zt_file_buffer *b)
{
    if (b->state == READING || b->state == WRITING) {
        zt_err rc = zt_file_settle(s, b, NULL);

        (void)rc; /* the state goes with it */
    }
    if (b->device && b->device != b->data)
        s->cfg.memory.free(s->cfg.memory.ctx, b->device, s->piece_bytes);
    if (!s->slab)
        give_host(s, b->data, s->piece_bytes);
}

void zt_file_close_buffers(struct zt_file_store *s)
{
    for (int i = 0; i < s->num_buffers; i++)
        close_buffer(s, &s->buffers[i]);
    give_host(s, s->slab, slab_bytes(s));
}

/* All of them at once, side by side; where the store is resident a piece says where its buffer is. */
static zt_err open_slab(struct zt_file_store *s, struct zt_fault *fault)
{
    zt_err rc = s->slab ? ZT_OK : take_host(s, slab_bytes(s), &s->slab, fault);

    for (int i = 0; !rc && !s->resident && i < s->num_buffers; i++)
        s->buffers[i].data = s->buffers[i].device = s->slab + (size_t)i * s->piece_bytes;
    return rc;
}

static zt_err open_buffer(struct zt_file_store *s, struct zt_file_buffer *b,
                          struct zt_fault *fault)
{
    void *p = NULL;
    zt_err rc;

    if (is_direct(s))
        return open_slab(s, fault);
    rc = take_host(s, s->piece_bytes, &b->data, fault);
    if (!rc)
        rc = s->cfg.memory.alloc(s->cfg.memory.ctx, s->piece_bytes, &p, fault);
    b->device = p;
    return rc;
}

/* ---- what moves ---- */

int zt_file_pieces(const struct zt_file_store *s, size_t bytes)
{
    return (int)((bytes + s->piece_bytes - 1) / s->piece_bytes);
}

size_t zt_file_run_piece(const struct zt_file_store *s, size_t bytes, int i)
{
    size_t at = (size_t)i * s->piece_bytes;

    return bytes - at < s->piece_bytes ? bytes - at : s->piece_bytes;
}

bool zt_file_puts_off(const struct zt_file_store *s)
{
    return s->cfg.swap->pipeline_write && s->cfg.num_pieces &&
           (s->cfg.in_order || s->num_buffers >= s->cfg.num_pieces);
}

void zt_file_start(struct zt_file_store *s, struct zt_file_buffer *b, bool write)
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
static zt_err settle_write(struct zt_file_store *s, struct zt_file_buffer *b,
                           struct zt_fault *fault)
{
    bool moves = b->follows && !s->cfg.planning;

    b->follows = false;
    return moves ? zt_aio_wait(s->cfg.swap->aio, &b->jobs[!b->job], fault) : ZT_OK;
}

zt_err zt_file_settle(struct zt_file_store *s, struct zt_file_buffer *b,
                      struct zt_fault *fault)
{
    zt_err rc = settle_write(s, b, fault), failed = ZT_OK;

    if (!s->cfg.planning)
        failed = zt_aio_wait(s->cfg.swap->aio, &b->jobs[b->job], rc ? NULL : fault);
    rc = rc ? rc : failed;
    b->state = FREE;
    b->holds = !rc;
    return rc;
}

bool zt_file_overlaps(const struct zt_file_buffer *b, size_t offset, size_t bytes)
{
    return (b->state != FREE || b->holds) && b->offset < offset + bytes &&
           offset < b->offset + b->bytes;
}

/* Whether any of these bytes were written from a buffer that another piece is read to. */
static bool was_written(const struct zt_file_buffer *b, size_t offset, size_t bytes)
{
    const struct zt_aio_job *write = &b->jobs[!b->job];

    return b->follows && write->offset < offset + bytes &&
           offset < write->offset + write->bytes;
}

bool zt_file_is_piece(const struct zt_file_buffer *b, size_t offset, size_t bytes)
{
    return b->offset == offset && b->bytes == bytes;
}

/* Whether the buffer's piece is a part of these bytes. */
static bool is_within(const struct zt_file_buffer *b, size_t offset, size_t bytes)
{
    return b->offset >= offset && b->offset + b->bytes <= offset + bytes;
}

bool zt_file_is_readable(const struct zt_file_buffer *b, zt_access access)
{
    return b->state == WRITING && !(access & ZT_WRITE) && !b->read_too;
}

bool zt_file_is_shared(const struct zt_file_buffer *b, zt_access access)
{
    return b->state == LENT && !((b->access | access) & ZT_WRITE);
}

void zt_file_set_piece(const struct zt_file_store *s, struct zt_file_buffer *b,
                       size_t offset, size_t bytes)
{
    b->holds = b->dirty = false;
    b->offset = offset;
    b->bytes = bytes;
    if (s->resident)
        b->data = b->device = s->slab + offset;
}

struct zt_file_buffer *zt_file_find(struct zt_file_store *s, int state)
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
static size_t distance(const struct zt_file_store *s, size_t offset)
{
    size_t n = s->cfg.bytes;

    return (offset + n - s->used_at - 1) % n;
}

/* Whether a write has ended, as far as it can be told without time: later ones have begun. */
static bool is_written(const struct zt_file_store *s, const struct zt_file_buffer *b)
{
    uint64_t later = s->num_writes - 1 - b->write;

    return b->state == WRITING && !b->read_too && later > 0 &&
           later >= (uint64_t)s->num_buffers / 4;
}

/* Whether a buffer's piece is used later than another's, where pieces are used in order; else
 * none is, and the buffer that was used the longest ago is the first that is looked at. */
static bool is_later(const struct zt_file_store *s, const struct zt_file_buffer *b,
                     const struct zt_file_buffer *than)
{
    return !than ||
           (s->cfg.in_order && distance(s, b->offset) > distance(s, than->offset));
}

/* A buffer that is free, or soon: one that holds nothing, or what is used the latest again. */
static struct zt_file_buffer *find_free(struct zt_file_store *s)
{
    struct zt_file_buffer *best = NULL;

    for (int i = 0; i < s->num_buffers; i++) {
        struct zt_file_buffer *b = &s->buffers[(s->turn + i) % s->num_buffers];

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
static struct zt_file_buffer *find_spare(struct zt_file_store *s)
{
    struct zt_file_buffer *ready = find_free(s), *best = NULL;

    if (!s->cfg.in_order || (ready && ready->state == FREE && !ready->holds))
        return ready;
    for (int i = 0; i < s->num_buffers; i++) {
        struct zt_file_buffer *b = &s->buffers[(s->turn + i) % s->num_buffers];

        if (b->state == WRITING && !b->read_too && is_later(s, b, best))
            best = b;
    }
    if (!best || (ready && distance(s, best->offset) <=
                               distance(s, ready->offset) + s->piece_bytes))
        return ready;
    return best;
}

/* How much later the soonest used of the pieces in these buffers is used, 1 at least; 0: one of them
 * cannot be taken. */
static size_t run_distance(const struct zt_file_store *s,
                           const struct zt_file_buffer *first, int n,
                           enum zt_give_up most)
{
    size_t soonest = SIZE_MAX;

    for (const struct zt_file_buffer *b = first; b < first + n; b++) {
        size_t d = s->cfg.in_order ? distance(s, b->offset) + 1 : 1;

        if (b->state == LENT || b->read_too ||
            (b->state == READING && most < READ_AHEAD) || (b->dirty && most < DIRTY))
            return 0;
        if ((b->state != FREE || b->holds) && d < soonest)
            soonest = d;
    }
    return soonest;
}

struct zt_file_buffer *zt_file_find_run(const struct zt_file_store *s, int n,
                                        enum zt_give_up most)
{
    int best = -1;
    size_t latest = 0;

    for (int i = 0; i < s->num_buffers; i++) {
        int k = (s->turn + i) % s->num_buffers;
        size_t d = k + n <= s->num_buffers ? run_distance(s, &s->buffers[k], n, most) : 0;

        if (d > latest) {
            best = k;
            latest = d;
        }
    }
    return best < 0 ? NULL : &s->buffers[best];
}

zt_err zt_file_take(struct zt_file_store *s, struct zt_file_buffer *b,
                    struct zt_fault *fault)
{
    s->turn = (int)(b - s->buffers + 1) % s->num_buffers;
    return b->data ? ZT_OK : open_buffer(s, b, fault);
}

zt_err zt_file_take_buffer(struct zt_file_store *s, struct zt_file_buffer **out,
                           struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    assert(s->buffers); /* or the analyzer takes their addresses for NULL */
    *out = zt_file_puts_off(s) ? zt_file_find_run(s, 1, CLEAN) : find_free(s);
    if (!*out && zt_file_puts_off(s))
        *out = zt_file_find_run(s, 1, DIRTY);
    if (!*out)
        *out = zt_file_find(s, WRITING);
    if (*out && (*out)->dirty)
        zt_file_start(s, *out, true);
    if (*out && (*out)->state == WRITING)
        rc = zt_file_settle(s, *out, fault);
    return *out && !rc ? zt_file_take(s, *out, fault) : rc;
}

zt_err zt_file_take_spare_buffer(struct zt_file_store *s, size_t offset,
                                 struct zt_file_buffer **out, struct zt_fault *fault)
{
    struct zt_file_buffer *b =
        zt_file_puts_off(s) ? zt_file_find_run(s, 1, DIRTY) : find_spare(s);
    bool holds = b && (b->holds || b->state == WRITING);

    if (holds && s->cfg.in_order && distance(s, b->offset) <= distance(s, offset))
        b = NULL;
    *out = b;
    if (b && b->dirty)
        zt_file_start(s, b, true);
    return b ? zt_file_take(s, b, fault) : ZT_OK;
}

void zt_file_write_ahead(struct zt_file_store *s, int n)
{
    bool enough = s->num_buffers >= s->cfg.num_pieces;
    struct zt_file_buffer *first =
        enough || zt_file_find_run(s, n, CLEAN) ? NULL : zt_file_find_run(s, n, DIRTY);

    for (int i = 0; first && i < n; i++)
        if (first[i].dirty)
            zt_file_start(s, &first[i], true);
}

/* What a reader has of changes that are not in the file yet, for another piece of these bytes. */
static zt_err write_lent(struct zt_file_store *s, struct zt_file_buffer *b,
                         struct zt_fault *fault)
{
    zt_err rc;

    zt_file_start(s, b, true);
    rc = zt_file_settle(s, b, fault);
    b->state = LENT;
    return rc;
}

zt_err zt_file_clear_overlaps(struct zt_file_store *s, size_t offset, size_t bytes,
                              zt_access access, const struct zt_file_buffer *run,
                              struct zt_file_buffer **here, struct zt_fault *fault)
{
    const struct zt_file_buffer *end = run ? run + zt_file_pieces(s, bytes) : NULL;
    zt_err rc = ZT_OK;

    *here = NULL;
    for (int i = 0; !rc && i < s->num_buffers; i++) {
        struct zt_file_buffer *b = &s->buffers[i];

        if (b >= run && b < end)
            continue;
        if (was_written(b, offset, bytes))
            rc = settle_write(s, b, fault); /* an error of it, before what it left */
        if (rc || !zt_file_overlaps(b, offset, bytes))
            continue;
        assert(b->state != LENT || !((b->access | access) & ZT_WRITE));
        assert(!b->read_too || !(access & ZT_WRITE));
        if (b->state == FREE && b->dirty && !zt_file_is_piece(b, offset, bytes) &&
            !(access == ZT_WRITE && is_within(b, offset, bytes)))
            zt_file_start(s, b, true);
        if (b->state == READING ||
            (b->state == WRITING && !zt_file_is_readable(b, access)))
            rc = zt_file_settle(s, b, fault);
        if (b->state == LENT && b->dirty && !zt_file_is_piece(b, offset, bytes))
            rc = write_lent(s, b, fault);
        if (!rc && zt_file_is_piece(b, offset, bytes) &&
            (b->state == FREE || zt_file_is_readable(b, access) ||
             zt_file_is_shared(b, access)))
            *here = b;
        if (access & ZT_WRITE)
            b->holds = b->dirty = false;
    }
    return rc;
}
