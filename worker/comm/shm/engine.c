/*
 * engine.c -- collectives between the ranks of one node, through memory they share.
 *
 * Every call begins with a barrier at which the ranks compare what they want. Then one of
 * three ways, chosen by all alike from what all published:
 *
 *   small   messages are in the small areas when the barrier opens: every rank takes its
 *           parts from there. One barrier in all: the two areas alternate, and nobody
 *           writes one again before everybody has arrived at the call in between.
 *   direct  buffers lie in the heap: ranks read, or write, each other's in place. One
 *           barrier more, so that no buffer changes hands early.
 *   staged  pieces go through the slots, two turns in flight: while a rank puts in piece
 *           k+1 it takes piece k; a barrier a piece.
 *
 * A sum is cut by position and never by rank: whoever computes an element reads it from
 * all ranks in rank order (reduce.h), so all three give the same bits.
 */
#include "worker/comm/engine.h"
#include "worker/comm/reduce.h"
#include "worker/comm/shm/group.h"
#include "worker/comm/small_message.h"

#include <stdlib.h>
#include <string.h>

/*
 * Results from here on are written past the caches: they would not stay there anyway, and
 * a line that is only written is not read first. Measured with 32 MiB of last-level cache
 * for two cores: sums that were streamed from 4 MiB on took twice as long, copies two
 * thirds. Sums in place are not streamed: their lines are in the caches, having been
 * read.
 */
#define STREAM_SUM  ((size_t)16 << 20)
#define STREAM_COPY ((size_t)4 << 20)
#define LINE_BYTES  64u

struct shm_engine {
    struct zt_shm_group group;
    const void *src[ZT_SHM_MAX_WORLD];
    void *dst[ZT_SHM_MAX_WORLD];
};

/* What a call moves: a rank's `send` is send_pieces of piece_bytes, `recv` likewise. */
struct shape {
    size_t piece_bytes, send_pieces, recv_pieces;
};

static struct shape shape_of(const struct zt_comm_call *call, int world)
{
    struct shape s = {0, 1, 1};

    if (call->op == ZT_COMM_BARRIER)
        return s;
    s.piece_bytes = call->op == ZT_COMM_SUM_F64
                        ? call->count * sizeof(double)
                        : call->count * zt_dtype_bytes(call->dtype);
    if (call->op == ZT_COMM_REDUCE_SCATTER || call->op == ZT_COMM_ALL_TO_ALL)
        s.send_pieces = (size_t)world;
    if (call->op == ZT_COMM_ALL_GATHER || call->op == ZT_COMM_ALL_TO_ALL)
        s.recv_pieces = (size_t)world;
    return s;
}

static struct zt_rank_reduction reduction_of(const struct zt_comm_call *call, bool stream)
{
    return (struct zt_rank_reduction){
        .dtype = call->dtype, .op = call->reduce, .scale = call->scale, .stream = stream};
}

/* Every second call works from the end on, since vectors are often those of the call before. */
static bool goes_backward(const struct zt_shm_group *g)
{
    return g->seq & 1;
}

static void copy_direct(const struct zt_shm_group *g, void *dst, const void *src,
                        size_t bytes, bool stream)
{
    if (stream)
        zt_comm_copy(dst, src, bytes, true);
    else
        zt_comm_copy_span(dst, src, bytes, goes_backward(g));
}

/* ---------------------------------------------------------------- small */
/* All messages are in the small areas: take what belongs here. */
static void take_small(struct shm_engine *s, const struct zt_comm_call *call,
                       struct shape shape)
{
    const struct zt_shm_group *g = &s->group;
    size_t mine = shape.send_pieces > 1 ? (size_t)g->rank * shape.piece_bytes : 0;

    for (int r = 0; r < g->world; r++)
        s->src[r] = zt_shm_group_small(g, r, g->seq) + mine;
    zt_comm_finish_small(call, g->rank, g->world, s->src, shape.piece_bytes);
}

/* ---------------------------------------------------------------- direct */
static char *peer_send(const struct shm_engine *s, int rank)
{
    return zt_heap_at(&s->group.heap, zt_shm_group_header(&s->group, rank)->send_off);
}

static char *peer_recv(const struct shm_engine *s, int rank)
{
    return zt_heap_at(&s->group.heap, zt_shm_group_header(&s->group, rank)->recv_off);
}

/*
 * Elements [*lo, *hi) of `count` are the rank's. S1 slices of all ranks cover every
 * element once; S2 a border is a multiple of a cache line, so no two ranks write one.
 */
static void slice_of(int rank, int world, size_t count, size_t elem, size_t *lo,
                     size_t *hi)
{
    size_t step = LINE_BYTES / elem, steps = (count + step - 1) / step;
    size_t each = steps / (size_t)world, more = steps % (size_t)world;
    size_t r = (size_t)rank;

    *lo = (r * each + (r < more ? r : more)) * step;
    *hi = *lo + (each + (r < more)) * step;
    *lo = *lo < count ? *lo : count;
    *hi = *hi < count ? *hi : count;
}

/* My slice of everybody's buffer, summed into everybody's buffer. */
static void direct_all_reduce(struct shm_engine *s, const struct zt_comm_call *call,
                              struct shape shape)
{
    const struct zt_shm_group *g = &s->group;
    struct zt_rank_reduction how = reduction_of(call, shape.piece_bytes >= STREAM_SUM);
    size_t elem = zt_dtype_bytes(call->dtype), lo, hi;

    how.backward = goes_backward(g);
    slice_of(g->rank, g->world, call->count, elem, &lo, &hi);
    for (int r = 0; r < g->world; r++) {
        s->src[r] = peer_send(s, r) + lo * elem;
        s->dst[r] = peer_recv(s, r) + lo * elem;
        how.stream = how.stream && s->dst[r] != s->src[r];
    }
    zt_reduce_ranks(&how, s->dst, g->world, s->src, g->world, hi - lo);
}

static void direct_reduce_scatter(struct shm_engine *s, const struct zt_comm_call *call,
                                  struct shape shape)
{
    const struct zt_shm_group *g = &s->group;
    struct zt_rank_reduction how = reduction_of(call, shape.piece_bytes >= STREAM_SUM);
    void *out = call->recv;

    how.backward = goes_backward(g);
    for (int r = 0; r < g->world; r++)
        s->src[r] = peer_send(s, r) + (size_t)g->rank * shape.piece_bytes;
    how.stream = how.stream && out != s->src[g->rank];
    zt_reduce_ranks(&how, &out, 1, s->src, g->world, call->count);
}

/* Read what is mine out of the others' send buffers; each starts at another peer. */
static void direct_pull(struct shm_engine *s, const struct zt_comm_call *call,
                        struct shape shape)
{
    const struct zt_shm_group *g = &s->group;
    size_t bytes = shape.piece_bytes, mine = (size_t)g->rank * bytes;
    bool stream = bytes * shape.recv_pieces >= STREAM_COPY;

    if (call->op == ZT_COMM_BROADCAST) {
        if (g->rank != call->root)
            copy_direct(g, call->recv, peer_send(s, call->root), bytes, stream);
        return;
    }
    for (int i = 0; i < g->world; i++) {
        int r = (g->rank + i) % g->world;
        char *to = (char *)call->recv + (size_t)r * bytes;
        const char *from = r == g->rank ? call->send : peer_send(s, r);

        copy_direct(g, to, from + (shape.send_pieces > 1 ? mine : 0), bytes, stream);
    }
}

/* Write what is mine into the others' recv buffers. */
static void direct_push(struct shm_engine *s, const struct zt_comm_call *call,
                        struct shape shape)
{
    const struct zt_shm_group *g = &s->group;
    size_t bytes = shape.piece_bytes, mine = (size_t)g->rank * bytes;
    bool stream = bytes * shape.recv_pieces >= STREAM_COPY;
    bool gather = call->op != ZT_COMM_BROADCAST;

    if (!gather && g->rank != call->root)
        return;
    for (int i = 0; i < g->world; i++) {
        int r = (g->rank + i) % g->world;
        const char *from = call->send;
        char *to = r == g->rank ? call->recv : peer_recv(s, r);

        if (!gather && r == g->rank)
            continue;
        if (shape.send_pieces > 1)
            from += (size_t)r * bytes;
        copy_direct(g, to + (gather ? mine : 0), from, bytes, stream);
    }
}

typedef void (*direct_fn)(struct shm_engine *s, const struct zt_comm_call *call,
                          struct shape shape);

/* The direct copy that the published offsets allow, the same on all ranks; or NULL. */
static direct_fn direct_way(const struct shm_engine *s, const struct zt_comm_call *call)
{
    bool sends = true, recvs = true, staged = false;

    for (int r = 0; r < s->group.world; r++) {
        const struct zt_shm_header *h = zt_shm_group_header(&s->group, r);
        bool gives = call->op != ZT_COMM_BROADCAST || r == call->root;
        bool takes = call->op != ZT_COMM_BROADCAST || r != call->root;

        sends = sends && (!gives || h->send_off != ZT_HEAP_OUTSIDE);
        recvs = recvs && (!takes || h->recv_off != ZT_HEAP_OUTSIDE);
        staged = staged || h->flags & ZT_SHM_STAGED;
    }
    if (staged)
        return NULL;
    if (call->op == ZT_COMM_ALL_REDUCE)
        return sends && recvs ? direct_all_reduce : NULL;
    if (call->op == ZT_COMM_REDUCE_SCATTER)
        return sends ? direct_reduce_scatter : NULL;
    return sends ? direct_pull : recvs ? direct_push : NULL;
}

/* ---------------------------------------------------------------- staged */
/*
 * Turn k puts in piece k, sums piece k-1 and takes piece k-2. Slots alternate by piece,
 * so what is written in a turn was last read two barriers ago.
 */
static zt_err staged_all_reduce(struct shm_engine *s, const struct zt_comm_call *call,
                                struct shape shape, struct zt_fault *fault)
{
    struct zt_shm_group *g = &s->group;
    struct zt_rank_reduction how = reduction_of(call, false);
    size_t elem = zt_dtype_bytes(call->dtype), per = ZT_SHM_SLOT_BYTES / elem;
    size_t turns = (call->count + per - 1) / per, lo, hi;
    bool stream = shape.piece_bytes >= STREAM_SUM;
    zt_err rc = ZT_OK;

    for (size_t k = 0; !rc && k < turns + 2; k++) {
        if (k < turns) {
            size_t at = k * per, n = call->count - at < per ? call->count - at : per;

            zt_comm_copy(zt_shm_group_slot(g, g->rank, k),
                         (const char *)call->send + at * elem, n * elem, false);
        }
        if (k >= 1 && k - 1 < turns) {
            size_t at = (k - 1) * per,
                   n = call->count - at < per ? call->count - at : per;

            slice_of(g->rank, g->world, n, elem, &lo, &hi);
            for (int r = 0; r < g->world; r++)
                s->src[r] = zt_shm_group_slot(g, r, k - 1) + lo * elem;
            s->dst[0] = zt_shm_group_result(g, g->rank, k - 1) + lo * elem;
            zt_reduce_ranks(&how, s->dst, 1, s->src, g->world, hi - lo);
        }
        if (k >= 2) {
            size_t at = (k - 2) * per,
                   n = call->count - at < per ? call->count - at : per;

            for (int r = 0; r < g->world; r++) {
                slice_of(r, g->world, n, elem, &lo, &hi);
                zt_comm_copy((char *)call->recv + (at + lo) * elem,
                             zt_shm_group_result(g, r, k - 2) + lo * elem,
                             (hi - lo) * elem, stream);
            }
        }
        if (k < turns + 1)
            rc = zt_shm_group_barrier(g, fault);
    }
    return rc;
}

/* Piece k (`n` elements from `at`) of all my messages, side by side, into my slot. */
static void put_piece(struct shm_engine *s, const struct zt_comm_call *call,
                      struct shape shape, size_t k, size_t at_bytes, size_t bytes)
{
    const struct zt_shm_group *g = &s->group;
    char *slot = zt_shm_group_slot(g, g->rank, k);

    if (call->op == ZT_COMM_BROADCAST && g->rank != call->root)
        return;
    for (size_t p = 0; p < shape.send_pieces; p++)
        zt_comm_copy(slot + p * bytes,
                     (const char *)call->send + p * shape.piece_bytes + at_bytes, bytes,
                     false);
}

static void take_piece(struct shm_engine *s, const struct zt_comm_call *call,
                       struct shape shape, size_t k, size_t at_bytes, size_t bytes)
{
    const struct zt_shm_group *g = &s->group;
    size_t mine = shape.send_pieces > 1 ? (size_t)g->rank * bytes : 0;
    bool stream = shape.piece_bytes * shape.recv_pieces >= STREAM_SUM;
    struct zt_rank_reduction how = reduction_of(call, stream);
    void *out = (char *)call->recv + at_bytes;

    for (int r = 0; r < g->world; r++)
        s->src[r] = zt_shm_group_slot(g, r, k) + mine;
    if (call->op == ZT_COMM_REDUCE_SCATTER) {
        zt_reduce_ranks(&how, &out, 1, s->src, g->world,
                        bytes / zt_dtype_bytes(call->dtype));
    } else if (call->op == ZT_COMM_BROADCAST) {
        if (g->rank != call->root)
            zt_comm_copy(out, s->src[call->root], bytes, stream);
    } else {
        for (int i = 0; i < g->world; i++) {
            int r = (g->rank + i) % g->world;

            zt_comm_copy((char *)out + (size_t)r * shape.piece_bytes, s->src[r], bytes,
                         stream);
        }
    }
}

/* All but all_reduce: turn k puts in piece k and takes piece k-1. */
static zt_err staged_pieces(struct shm_engine *s, const struct zt_comm_call *call,
                            struct shape shape, struct zt_fault *fault)
{
    size_t per = ZT_SHM_SLOT_BYTES / shape.send_pieces / LINE_BYTES * LINE_BYTES;
    size_t turns = (shape.piece_bytes + per - 1) / per;
    zt_err rc = ZT_OK;

    for (size_t k = 0; !rc && k < turns + 1; k++) {
        size_t at = k * per, left = k < turns ? shape.piece_bytes - at : 0;

        if (k < turns)
            put_piece(s, call, shape, k, at, left < per ? left : per);
        if (k >= 1) {
            left = shape.piece_bytes - (at - per);
            take_piece(s, call, shape, k - 1, at - per, left < per ? left : per);
        }
        if (k < turns)
            rc = zt_shm_group_barrier(&s->group, fault);
    }
    return rc;
}

/* ---------------------------------------------------------------- the engine */
/* Can peers work in place although send and recv share memory here? */
static bool overlap_is_staged(const struct shm_engine *s, const struct zt_comm_call *call,
                              struct shape shape)
{
    const char *a = call->send, *b = call->recv;

    switch (call->op) {
    case ZT_COMM_REDUCE_SCATTER: /* only the slice that no peer reads may be written */
        return b < a + shape.piece_bytes * shape.send_pieces &&
               a < b + shape.piece_bytes &&
               b != a + (size_t)s->group.rank * shape.piece_bytes;
    case ZT_COMM_ALL_TO_ALL:
        return a == b;
    default:
        return false;
    }
}

static zt_err shm_run(void *self, const struct zt_comm_call *call, struct zt_fault *fault)
{
    struct shm_engine *s = self;
    struct zt_shm_group *g = &s->group;
    struct shape shape = shape_of(call, g->world);
    struct zt_shm_header mine = {0};
    size_t send_bytes = shape.piece_bytes * shape.send_pieces;
    bool small = send_bytes <= ZT_SHM_SMALL_BYTES;
    direct_fn direct;
    zt_err rc;

    mine.send_off = zt_heap_off(&g->heap, call->send, send_bytes);
    mine.recv_off =
        zt_heap_off(&g->heap, call->recv, shape.piece_bytes * shape.recv_pieces);
    if (overlap_is_staged(s, call, shape))
        mine.flags = ZT_SHM_STAGED;
    if (small && (call->op != ZT_COMM_BROADCAST || g->rank == call->root))
        zt_comm_copy(zt_shm_group_small(g, g->rank, g->seq + 1), call->send, send_bytes,
                     false);
    rc = zt_shm_group_begin(g, call, &mine, fault);
    if (rc)
        return rc;
    if (small) {
        take_small(s, call, shape);
        return ZT_OK;
    }
    direct = direct_way(s, call);
    if (direct) {
        direct(s, call, shape);
        return zt_shm_group_barrier(g, fault);
    }
    if (call->op == ZT_COMM_ALL_REDUCE)
        return staged_all_reduce(s, call, shape, fault);
    return staged_pieces(s, call, shape, fault);
}

static zt_err shm_alloc(void *self, size_t bytes, bool shared, void **out,
                        struct zt_fault *fault)
{
    struct shm_engine *s = self;
    struct zt_shm_group *g = &s->group;
    size_t world = (size_t)g->world, rank = (size_t)g->rank;
    /* `root` tells the two kinds apart when headers are compared */
    struct zt_comm_call call = {
        .op = ZT_COMM_ALLOC, .dtype = ZT_U8, .count = bytes, .root = shared};
    struct zt_shm_piece piece = {.leader = 0};
    struct zt_heap_region region;
    size_t pages;
    zt_err rc;

    if (!zt_heap_reserve(&g->heap)) /* not ZT_E_NOMEM: the others do not know */
        return zt_fault_set(fault, ZT_E_SYSTEM, "comm: out of memory");
    bytes = bytes < SIZE_MAX / 2 / world ? bytes : SIZE_MAX / 2 / world;
    pages = zt_shm_page_up(bytes ? bytes : 1) / ZT_SHM_PAGE;
    if (shared) { /* each gives its part of the one piece memory */
        piece.bytes = pages * ZT_SHM_PAGE;
        piece.from = pages * rank / world * ZT_SHM_PAGE;
        piece.to = pages * (rank + 1) / world * ZT_SHM_PAGE;
    } else {
        piece.bytes = pages * ZT_SHM_PAGE * world;
        piece.from = pages * ZT_SHM_PAGE * rank;
        piece.to = piece.from + pages * ZT_SHM_PAGE;
    }
    rc = zt_shm_group_alloc(g, &call, &piece, &region, fault);
    if (rc)
        return rc;
    zt_heap_add(&g->heap, region);
    *out = region.at + (shared ? 0 : piece.from);
    return ZT_OK;
}

static zt_err shm_split(void *self, const int *members, int num_members, int my_index,
                        int group_id, void **group_self, struct zt_fault *fault)
{
    struct shm_engine *s = self, *child = calloc(1, sizeof(*child));
    zt_err rc;

    (void)group_id;
    if (!child) /* not ZT_E_NOMEM: the others do not know */
        return zt_fault_set(fault, ZT_E_SYSTEM, "comm: out of memory");
    rc = zt_shm_group_split(&s->group, members, num_members, my_index, &child->group,
                            fault);
    if (rc) {
        free(child);
        return rc;
    }
    *group_self = child;
    return ZT_OK;
}

static zt_err shm_open(const struct zt_comm_config *cfg, void **self,
                       struct zt_fault *fault)
{
    struct shm_engine *s = calloc(1, sizeof(*s));
    zt_err rc;

    if (!s)
        return zt_fault_set(fault, ZT_E_NOMEM, "comm: out of memory");
    rc = zt_shm_group_join(&s->group, cfg, fault);
    if (rc) {
        free(s);
        return rc;
    }
    *self = s;
    return ZT_OK;
}

static void shm_close(void *self)
{
    struct shm_engine *s = self;

    if (!s)
        return;
    zt_shm_group_leave(&s->group);
    free(s);
}

static void shm_abort(void *self, int rank)
{
    struct shm_engine *s = self;

    zt_shm_group_abort(&s->group, rank);
}

static bool shm_failed(const void *self, struct zt_fault *fault)
{
    const struct shm_engine *s = self;

    return zt_shm_group_failed(&s->group, fault);
}

static bool shm_is_default(const struct zt_comm_config *cfg)
{
    return cfg->shm_fd >= 0 && cfg->world <= ZT_SHM_MAX_WORLD;
}

const struct zt_comm_engine zt_comm_shm = {
    .ops = {.close = shm_close,
            .split = shm_split,
            .abort = shm_abort,
            .failed = shm_failed},
    .name = "shm",
    .can_share = true,
    .needs = ZT_COMM_NEEDS_SHM_FD,
    .is_default = shm_is_default,
    .open = shm_open,
    .alloc = shm_alloc,
    .run = shm_run,
};
