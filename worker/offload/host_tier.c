/*
 * host_tier.c -- state in host memory; pieces pass through buffers in device memory. Where
 * kernels work on host memory (`direct`) there are no buffers and nothing is copied.
 *
 * A store has NUM_BUFFERS of the longest piece: one for the piece at work and one for the
 * piece that comes next.
 *
 *      FREE --prefetch--> AHEAD --acquire--> LENT --commit--> FREE
 *         \------------------acquire---------->/
 *
 * Copies are queued on the main stream, so a buffer that is filled again after a commit
 * is filled after its bytes were copied back.
 */
#include <assert.h>
#include <stdlib.h>

#include "worker/offload/tier.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define FORBID(at, bytes) ASAN_POISON_MEMORY_REGION(at, bytes)
#define PERMIT(at, bytes) ASAN_UNPOISON_MEMORY_REGION(at, bytes)
#else
#define FORBID(at, bytes) ((void)(at), (void)(bytes))
#define PERMIT(at, bytes) ((void)(at), (void)(bytes))
#endif

#define NUM_BUFFERS 2

struct host_buffer {
    char *data; /* device memory */
    enum { FREE, AHEAD, LENT } state;
    size_t offset, bytes; /* of the piece that it holds */
    zt_access access;
};

struct host_store {
    struct zt_tier_config cfg;
    char *base; /* host memory */
    size_t piece_bytes;
    struct host_buffer buffers[NUM_BUFFERS];
};

/* Whether AddressSanitizer can watch the buffers: the host reaches device memory. */
static bool is_watched(const struct host_store *s)
{
    return s->cfg.backend->unified && !s->cfg.staged;
}

/* A plan takes addresses alone, of the device that has them to give. */
static zt_err take_base(const struct zt_tier_config *cfg, void **out,
                        struct zt_fault *fault)
{
    return cfg->planning ? cfg->memory.alloc(cfg->memory.ctx, cfg->bytes, out, fault)
                         : cfg->backend->host_alloc(cfg->device, cfg->bytes, out, fault);
}

static void give_base(const struct zt_tier_config *cfg, void *base)
{
    if (cfg->planning)
        cfg->memory.free(cfg->memory.ctx, base, cfg->bytes);
    else
        cfg->backend->host_free(cfg->device, base, cfg->bytes);
}

static void host_close(void *store)
{
    struct host_store *s = store;

    if (!s)
        return;
    for (int i = 0; i < NUM_BUFFERS; i++) {
        if (!s->buffers[i].data)
            continue;
        if (is_watched(s))
            PERMIT(s->buffers[i].data, s->piece_bytes);
        s->cfg.memory.free(s->cfg.memory.ctx, s->buffers[i].data, s->piece_bytes);
    }
    if (s->base)
        give_base(&s->cfg, s->base);
    free(s);
}

static zt_err host_open(const struct zt_tier_config *cfg, void **store,
                        struct zt_fault *fault)
{
    struct host_store *s = calloc(1, sizeof(*s));
    void *p = NULL;
    zt_err rc;

    if (!s)
        return zt_fault_set(fault, ZT_E_NOMEM, "host tier: no host memory");
    s->cfg = *cfg;
    s->piece_bytes = cfg->piece_bytes < cfg->bytes ? cfg->piece_bytes : cfg->bytes;
    rc = take_base(cfg, &p, fault);
    s->base = p;
    for (int i = 0; !rc && !cfg->direct && i < NUM_BUFFERS; i++) {
        p = NULL;
        rc = cfg->memory.alloc(cfg->memory.ctx, s->piece_bytes, &p, fault);
        s->buffers[i].data = p;
        if (!rc && is_watched(s))
            FORBID(p, s->piece_bytes);
    }
    if (rc) {
        host_close(s);
        return rc;
    }
    *store = s;
    return ZT_OK;
}

static size_t host_piece_bytes(const void *store)
{
    const struct host_store *s = store;

    return s->cfg.direct ? SIZE_MAX : s->piece_bytes;
}

static bool host_is_resident(const void *store)
{
    const struct host_store *s = store;

    return s->cfg.direct;
}

static bool host_lends(const void *store, size_t bytes)
{
    const struct host_store *s = store;

    (void)bytes;
    return s->cfg.direct;
}

static bool overlaps(const struct host_buffer *b, size_t offset, size_t bytes)
{
    return b->state != FREE && b->offset < offset + bytes &&
           offset < b->offset + b->bytes;
}

static void release(const struct host_store *s, struct host_buffer *b)
{
    b->state = FREE;
    if (is_watched(s))
        FORBID(b->data, s->piece_bytes);
}

/* A piece that is written has no other copy: one that is lent is a mistake of the caller,
 * one that was read ahead is dropped. */
static void check_overlaps(struct host_store *s, size_t offset, size_t bytes,
                           zt_access access)
{
    for (int i = 0; i < NUM_BUFFERS; i++) {
        struct host_buffer *b = &s->buffers[i];

        if (!overlaps(b, offset, bytes))
            continue;
        assert(b->state != LENT || !((b->access | access) & ZT_WRITE));
        if (b->state == AHEAD)
            release(s, b);
    }
}

/* A free buffer, or else one that was filled ahead and never acquired. */
static struct host_buffer *choose_buffer(struct host_store *s)
{
    struct host_buffer *ahead = NULL;

    for (int i = 0; i < NUM_BUFFERS; i++) {
        if (s->buffers[i].state == FREE)
            return &s->buffers[i];
        if (s->buffers[i].state == AHEAD)
            ahead = &s->buffers[i];
    }
    return ahead;
}

static zt_err fill(struct host_store *s, struct host_buffer *b, size_t offset,
                   size_t bytes, bool read, struct zt_fault *fault)
{
    b->offset = offset;
    b->bytes = bytes;
    if (is_watched(s))
        PERMIT(b->data, bytes);
    return read ? s->cfg.backend->upload(s->cfg.device, NULL, b->data, s->base + offset,
                                         bytes, fault)
                : ZT_OK;
}

static zt_err host_prefetch(void *store, size_t offset, size_t bytes, bool *begun,
                            struct zt_fault *fault)
{
    struct host_store *s = store;
    struct host_buffer *b = NULL;
    zt_err rc;

    *begun = s->cfg.direct;
    if (s->cfg.direct)
        return ZT_OK;
    for (int i = 0; i < NUM_BUFFERS; i++) {
        const struct host_buffer *o = &s->buffers[i];

        if (o->state == FREE)
            b = b ? b : &s->buffers[i];
        *begun = *begun || (overlaps(o, offset, bytes) && o->offset == offset);
        if (overlaps(o, offset, bytes))
            return ZT_OK;
    }
    if (!b) /* acquire will do it */
        return ZT_OK;
    rc = fill(s, b, offset, bytes, true, fault);
    if (!rc)
        b->state = AHEAD;
    *begun = !rc;
    return rc;
}

static zt_err host_acquire(void *store, size_t offset, size_t bytes, zt_access access,
                           void **data, struct zt_fault *fault)
{
    struct host_store *s = store;
    struct host_buffer *b = NULL;
    zt_err rc = ZT_OK;

    if (s->cfg.direct) {
        *data = s->base + offset;
        return ZT_OK;
    }
    assert(bytes <= s->piece_bytes && bytes <= s->cfg.bytes - offset);
    for (int i = 0; i < NUM_BUFFERS; i++)
        if (s->buffers[i].state == AHEAD && s->buffers[i].offset == offset &&
            s->buffers[i].bytes == bytes)
            b = &s->buffers[i];
    if (!b) {
        check_overlaps(s, offset, bytes, access);
        b = choose_buffer(s);
        if (!b)
            return zt_fault_set(fault, ZT_E_LIMIT,
                                "host tier: more than %d pieces of a region are acquired",
                                NUM_BUFFERS);
        rc = fill(s, b, offset, bytes, access & ZT_READ, fault);
    }
    if (rc)
        return rc;
    b->state = LENT;
    b->access = access;
    *data = b->data;
    return ZT_OK;
}

static zt_err host_commit(void *store, void *data, size_t offset, size_t bytes,
                          bool written, struct zt_fault *fault)
{
    struct host_store *s = store;
    struct host_buffer *b = s->buffers;
    zt_err rc = ZT_OK;

    if (s->cfg.direct)
        return ZT_OK;
    while (b < s->buffers + NUM_BUFFERS && b->data != data)
        b++;
    assert(b < s->buffers + NUM_BUFFERS && b->state == LENT && b->offset == offset &&
           b->bytes == bytes);
    if (written)
        rc = s->cfg.backend->download(s->cfg.device, NULL, s->base + offset, b->data,
                                      bytes, fault);
    release(s, b);
    return rc;
}

static void host_measure(const void *store, size_t *bytes)
{
    const struct host_store *s = store;

    bytes[s->cfg.staged ? ZT_PLACE_PINNED : ZT_PLACE_HOST] += s->cfg.bytes;
    bytes[ZT_PLACE_DEVICE] += s->cfg.direct ? 0 : NUM_BUFFERS * s->piece_bytes;
}

const struct zt_tier zt_host_tier = {
    .name = "host",
    .open = host_open,
    .close = host_close,
    .piece_bytes = host_piece_bytes,
    .is_resident = host_is_resident,
    .lends = host_lends,
    .prefetch = host_prefetch,
    .acquire = host_acquire,
    .commit = host_commit,
    .measure = host_measure,
};
