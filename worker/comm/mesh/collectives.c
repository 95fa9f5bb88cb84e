/*
 * collectives.c -- collectives whose messages are too long to travel with the headers.
 *
 * Messages go from and to the callers' buffers in pieces, with two steps in flight:
 *
 *   all_gather, all_to_all   piece k of every rank goes straight to its place; for an
 *                            all_gather over nodes see hierarchical.c
 *   broadcast                along the chain root, root + 1, ...: a rank passes piece k
 *                            on while it receives piece k+1
 *   reduce_scatter           piece k of this rank's slice comes from all ranks into the
 *                            staging buffer and is summed there
 *   all_reduce               a window is cut into a slice per rank; slices are summed as
 *                            above, and the results are sent to all
 *   all_to_all in place      through the staging buffer
 *
 * A piece is no longer than an int can count.
 */
#include "worker/comm/mesh/engine_private.h"

#include "worker/comm/reduce.h"

#include <assert.h>

#define CHAIN_BYTES  ((size_t)1 << 20)
#define STREAM_BYTES ((size_t)16 << 20) /* see shm.c */
#define LINE_BYTES   64u

/* ---------------------------------------------------------------- small things */
static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t turns_of(size_t total, size_t per)
{
    return (total + per - 1) / per;
}

static char *stage_of(const struct mesh_engine *s, size_t turn, int rank)
{
    return s->stage + ((turn & 1) * (size_t)s->world + (size_t)rank) * s->piece_bytes;
}

/* The i-th other rank, from each rank's own point of view. */
static int peer(const struct mesh_engine *s, int i)
{
    return (s->rank + i) % s->world;
}

/* Elements [*lo, *hi) of `count` are the rank's; every element is one rank's. */
static void slice_of(int rank, int world, size_t count, size_t elem, size_t *lo,
                     size_t *hi)
{
    size_t step = LINE_BYTES / elem;
    size_t each = turns_of(turns_of(count, step), (size_t)world) * step;

    *lo = least(each * (size_t)rank, count);
    *hi = least(each * ((size_t)rank + 1), count);
}

static struct zt_rank_reduction reduction_of(const struct zt_comm_call *call,
                                             size_t bytes)
{
    return (struct zt_rank_reduction){.dtype = call->dtype,
                                      .op = call->reduce,
                                      .scale = call->scale,
                                      .stream = bytes >= STREAM_BYTES};
}

/* ---------------------------------------------------------------- sums */
/* My slice of every rank comes into the stage, theirs leave; `at` is within a slice. */
static void post_slices(struct mesh_engine *s, const struct zt_comm_call *call,
                        size_t turn, size_t slice_bytes, size_t at, size_t bytes)
{
    for (int i = 1; i < s->world; i++)
        zt_mesh_recv(s->mesh, BATCH_IN(turn), stage_of(s, turn, peer(s, i)), bytes,
                     peer(s, i));
    for (int i = 1; i < s->world; i++)
        zt_mesh_send(s->mesh, BATCH_IN(turn),
                     (const char *)call->send + (size_t)peer(s, i) * slice_bytes + at,
                     bytes, peer(s, i));
}

/*
 * In place (recv is slice 0, or ours) piece k is written when all of turn k has left,
 * and turn k+1 reads behind it.
 */
static zt_err reduce_scatter(struct mesh_engine *s, const struct zt_comm_call *call,
                             size_t bytes, struct zt_fault *fault)
{
    struct zt_rank_reduction how = reduction_of(call, bytes);
    size_t per = s->piece_bytes, turns = turns_of(bytes, per);
    zt_err rc = ZT_OK;

    post_slices(s, call, 0, bytes, 0, least(bytes, per));
    for (size_t k = 0; !rc && k < turns; k++) {
        size_t at = k * per, n = least(bytes - at, per);
        void *out = (char *)call->recv + at;

        if (k + 1 < turns)
            post_slices(s, call, k + 1, bytes, at + per, least(bytes - at - per, per));
        rc = zt_mesh_wait(s->mesh, BATCH_IN(k), fault);
        for (int r = 0; r < s->world; r++)
            s->src[r] = stage_of(s, k, r);
        s->src[s->rank] = (const char *)call->send + (size_t)s->rank * bytes + at;
        if (!rc)
            zt_reduce_ranks(&how, &out, 1, s->src, s->world,
                            n / zt_dtype_bytes(call->dtype));
    }
    return rc;
}

/* Window k of an all_reduce: elements [at, at + n). */
struct all_reduce_window {
    size_t at, n, elem;
};

static struct all_reduce_window window_of(const struct mesh_engine *s,
                                          const struct zt_comm_call *call, size_t k)
{
    struct all_reduce_window w = {.elem = zt_dtype_bytes(call->dtype)};
    size_t per = s->piece_bytes / w.elem * (size_t)s->world;

    w.at = k * per;
    w.n = least(call->count - w.at, per);
    return w;
}

/* Where rank r's slice of the window begins, and its bytes; maybe none. */
static size_t window_slice(const struct mesh_engine *s, struct all_reduce_window w, int r,
                           size_t *at_bytes)
{
    size_t lo, hi;

    slice_of(r, s->world, w.n, w.elem, &lo, &hi);
    *at_bytes = (w.at + lo) * w.elem;
    return (hi - lo) * w.elem;
}

/* My slice comes in from all, theirs leave. */
static void post_window(struct mesh_engine *s, const struct zt_comm_call *call, size_t k)
{
    struct all_reduce_window w = window_of(s, call, k);
    size_t at, mine = window_slice(s, w, s->rank, &at);

    for (int i = 1; mine && i < s->world; i++)
        zt_mesh_recv(s->mesh, BATCH_IN(k), stage_of(s, k, peer(s, i)), mine, peer(s, i));
    for (int i = 1; i < s->world; i++) {
        size_t bytes = window_slice(s, w, peer(s, i), &at);

        if (bytes)
            zt_mesh_send(s->mesh, BATCH_IN(k), (const char *)call->send + at, bytes,
                         peer(s, i));
    }
}

static void reduce_window(struct mesh_engine *s, const struct zt_comm_call *call,
                          size_t k)
{
    struct all_reduce_window w = window_of(s, call, k);
    struct zt_rank_reduction how = reduction_of(call, call->count * w.elem);
    size_t at, bytes = window_slice(s, w, s->rank, &at);
    void *out = (char *)call->recv + at;

    for (int r = 0; r < s->world; r++)
        s->src[r] = stage_of(s, k, r);
    s->src[s->rank] = (const char *)call->send + at;
    zt_reduce_ranks(&how, &out, 1, s->src, s->world, bytes / w.elem);
}

/* The summed slice goes to all, theirs come in. */
static void post_results(struct mesh_engine *s, const struct zt_comm_call *call, size_t k)
{
    struct all_reduce_window w = window_of(s, call, k);
    size_t at, bytes;

    for (int i = 1; i < s->world; i++) {
        bytes = window_slice(s, w, peer(s, i), &at);
        if (bytes)
            zt_mesh_recv(s->mesh, BATCH_OUT(k), (char *)call->recv + at, bytes,
                         peer(s, i));
    }
    bytes = window_slice(s, w, s->rank, &at);
    for (int i = 1; bytes && i < s->world; i++)
        zt_mesh_send(s->mesh, BATCH_OUT(k), (const char *)call->recv + at, bytes,
                     peer(s, i));
}

/* The results of window k travel while the slices of window k+1 do. */
static zt_err all_reduce(struct mesh_engine *s, const struct zt_comm_call *call,
                         size_t bytes, struct zt_fault *fault)
{
    size_t turns = turns_of(bytes, s->piece_bytes * (size_t)s->world);
    zt_err rc = ZT_OK;

    post_window(s, call, 0);
    for (size_t k = 0; !rc && k < turns; k++) {
        if (k + 1 < turns)
            post_window(s, call, k + 1);
        rc = zt_mesh_wait(s->mesh, BATCH_IN(k), fault);
        if (rc)
            break;
        reduce_window(s, call, k);
        if (k > 0)
            rc = zt_mesh_wait(s->mesh, BATCH_OUT(k - 1), fault);
        if (!rc)
            post_results(s, call, k);
    }
    return rc ? rc : zt_mesh_wait(s->mesh, BATCH_OUT(turns - 1), fault);
}

/* ---------------------------------------------------------------- moves */
/* all_gather sends one piece to all, all_to_all one to each. */
static void post_moves(struct mesh_engine *s, const struct zt_comm_call *call,
                       size_t turn, size_t bytes, size_t at, size_t n)
{
    size_t stride = call->op == ZT_COMM_ALL_TO_ALL ? bytes : 0;

    for (int i = 1; i < s->world; i++)
        zt_mesh_recv(s->mesh, BATCH_IN(turn),
                     (char *)call->recv + (size_t)peer(s, i) * bytes + at, n, peer(s, i));
    for (int i = 1; i < s->world; i++)
        zt_mesh_send(s->mesh, BATCH_IN(turn),
                     (const char *)call->send + (size_t)peer(s, i) * stride + at, n,
                     peer(s, i));
}

static zt_err move(struct mesh_engine *s, const struct zt_comm_call *call, size_t bytes,
                   struct zt_fault *fault)
{
    size_t per = call->op == ZT_COMM_ALL_TO_ALL ? s->piece_bytes : ZT_MESH_MOVE_BYTES;
    size_t turns = turns_of(bytes, per), mine = (size_t)s->rank * bytes;
    bool stream = bytes >= STREAM_BYTES;
    zt_err rc = ZT_OK;

    post_moves(s, call, 0, bytes, 0, least(bytes, per));
    zt_comm_copy((char *)call->recv + mine,
                 (const char *)call->send + (call->op == ZT_COMM_ALL_TO_ALL ? mine : 0),
                 bytes, stream);
    for (size_t k = 0; !rc && k < turns; k++) {
        size_t next = (k + 1) * per;

        if (k + 1 < turns)
            post_moves(s, call, k + 1, bytes, next, least(bytes - next, per));
        rc = zt_mesh_wait(s->mesh, BATCH_IN(k), fault);
    }
    return rc;
}

/* send == recv: what comes in waits in the stage until what it replaces has left. */
static zt_err exchange_in_place(struct mesh_engine *s, const struct zt_comm_call *call,
                                size_t bytes, struct zt_fault *fault)
{
    size_t per = s->piece_bytes, turns = turns_of(bytes, per);
    zt_err rc = ZT_OK;

    post_slices(s, call, 0, bytes, 0, least(bytes, per));
    for (size_t k = 0; !rc && k < turns; k++) {
        size_t at = k * per;

        if (k + 1 < turns)
            post_slices(s, call, k + 1, bytes, at + per, least(bytes - at - per, per));
        rc = zt_mesh_wait(s->mesh, BATCH_IN(k), fault);
        for (int i = 1; !rc && i < s->world; i++)
            zt_comm_copy((char *)call->recv + (size_t)peer(s, i) * bytes + at,
                         stage_of(s, k, peer(s, i)), least(bytes - at, per), false);
    }
    return rc;
}

/* One rank may work in place and another not: both ways send pieces of one size. */
static zt_err all_to_all(struct mesh_engine *s, const struct zt_comm_call *call,
                         size_t bytes, struct zt_fault *fault)
{
    return call->send == call->recv ? exchange_in_place(s, call, bytes, fault)
                                    : move(s, call, bytes, fault);
}

/* Piece k from the rank before me, if I am not the first. */
static void post_link(struct mesh_engine *s, const struct zt_comm_call *call,
                      size_t bytes, size_t k)
{
    size_t at = k * CHAIN_BYTES;

    if (s->rank != call->root && at < bytes)
        zt_mesh_recv(s->mesh, BATCH_IN(k), (char *)call->recv + at,
                     least(bytes - at, CHAIN_BYTES), peer(s, s->world - 1));
}

static zt_err broadcast(struct mesh_engine *s, const struct zt_comm_call *call,
                        size_t bytes, struct zt_fault *fault)
{
    size_t turns = turns_of(bytes, CHAIN_BYTES);
    bool is_last = peer(s, 1) == call->root;
    zt_err rc = ZT_OK;

    post_link(s, call, bytes, 0);
    for (size_t k = 0; !rc && k < turns; k++) {
        size_t at = k * CHAIN_BYTES;

        post_link(s, call, bytes, k + 1);
        rc = zt_mesh_wait(s->mesh, BATCH_IN(k), fault); /* piece k here, k-2 passed on */
        if (!rc && !is_last)
            zt_mesh_send(s->mesh, BATCH_IN(k), (const char *)call->recv + at,
                         least(bytes - at, CHAIN_BYTES), peer(s, 1));
    }
    for (int b = 0; !rc && b < 2; b++)
        rc = zt_mesh_wait(s->mesh, BATCH_IN(b), fault);
    return rc;
}

static zt_err all_gather(struct mesh_engine *s, const struct zt_comm_call *call,
                         size_t bytes, struct zt_fault *fault)
{
    return s->node_ranks ? zt_mesh_hierarchical_gather(s, call, bytes, fault)
                         : move(s, call, bytes, fault);
}

/* ---------------------------------------------------------------- the whole */
typedef zt_err (*run_fn)(struct mesh_engine *s, const struct zt_comm_call *call,
                         size_t bytes, struct zt_fault *fault);

static const run_fn long_messages[ZT_COMM_NUM_OP] = {
    [ZT_COMM_ALL_REDUCE] = all_reduce, [ZT_COMM_REDUCE_SCATTER] = reduce_scatter,
    [ZT_COMM_ALL_GATHER] = all_gather, [ZT_COMM_ALL_TO_ALL] = all_to_all,
    [ZT_COMM_BROADCAST] = broadcast,
};

zt_err zt_mesh_run_long(struct mesh_engine *s, const struct zt_comm_call *call,
                        size_t bytes, struct zt_fault *fault)
{
    assert(long_messages[call->op]);
    return long_messages[call->op](s, call, bytes, fault);
}
