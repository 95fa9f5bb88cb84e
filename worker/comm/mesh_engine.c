/*
 * mesh_engine.c -- collectives between ranks that exchange messages, over MPI or TCP.
 *
 * A wire carries bytes and computes nothing: every sum is zt_fold_ranks() in rank order,
 * so results are those of shm to the bit. Each call begins with a header from every rank
 * to every rank (mesh.h). A short message rides along, and that was all. Long ones go
 * from and to the buffers themselves in pieces, two turns in flight:
 *
 *   all_gather, all_to_all   piece k of everything goes straight to its place; an
 *                            all_gather over nodes in two steps (mesh_nodes.c)
 *   broadcast                down the chain root, root + 1, ...: a rank passes piece k on
 *                            while piece k+1 comes in
 *   reduce_scatter           piece k of my slice comes from all ranks into the stage and
 *                            is summed from there
 *   all_reduce               a window is cut into a slice per rank; slices are summed as
 *                            above, and the results go to all
 *   all_to_all in place      through the stage
 *
 * The stage has a constant size, whatever the call. A piece is no longer than an int can
 * count.
 */
#include "worker/comm/mesh_engine_private.h"

#include "worker/comm/fold.h"
#include "worker/comm/small.h"
#include "worker/comm/tcp_wire.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define STAGE_BYTES                                                                      \
    ((size_t)4 << 20)                   /* both turns together, of a world of 64 or less \
                                         */
#define STAGE_MIN    ((size_t)32 << 10) /* a piece in it */
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

static struct zt_fold fold_of(const struct zt_comm_call *call, size_t bytes)
{
    return (struct zt_fold){call->dtype, call->reduce, call->scale,
                            bytes >= STREAM_BYTES};
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
    struct zt_fold how = fold_of(call, bytes);
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
            zt_fold_ranks(&how, &out, 1, s->src, s->world,
                          n / zt_dtype_bytes(call->dtype));
    }
    return rc;
}

/* Window k of an all_reduce: elements [at, at + n). */
struct window {
    size_t at, n, elem;
};

static struct window window_of(const struct mesh_engine *s,
                               const struct zt_comm_call *call, size_t k)
{
    struct window w = {.elem = zt_dtype_bytes(call->dtype)};
    size_t per = s->piece_bytes / w.elem * (size_t)s->world;

    w.at = k * per;
    w.n = least(call->count - w.at, per);
    return w;
}

/* Where rank r's slice of the window begins, and its bytes; maybe none. */
static size_t window_slice(const struct mesh_engine *s, struct window w, int r,
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
    struct window w = window_of(s, call, k);
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

static void fold_window(struct mesh_engine *s, const struct zt_comm_call *call, size_t k)
{
    struct window w = window_of(s, call, k);
    struct zt_fold how = fold_of(call, call->count * w.elem);
    size_t at, bytes = window_slice(s, w, s->rank, &at);
    void *out = (char *)call->recv + at;

    for (int r = 0; r < s->world; r++)
        s->src[r] = stage_of(s, k, r);
    s->src[s->rank] = (const char *)call->send + at;
    zt_fold_ranks(&how, &out, 1, s->src, s->world, bytes / w.elem);
}

/* The summed slice goes to all, theirs come in. */
static void post_results(struct mesh_engine *s, const struct zt_comm_call *call, size_t k)
{
    struct window w = window_of(s, call, k);
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
        fold_window(s, call, k);
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
    return s->node_ranks ? zt_mesh_gather_nodes(s, call, bytes, fault)
                         : move(s, call, bytes, fault);
}

/* ---------------------------------------------------------------- the engine */
typedef zt_err (*run_fn)(struct mesh_engine *s, const struct zt_comm_call *call,
                         size_t bytes, struct zt_fault *fault);

static const run_fn long_ways[ZT_COMM_NUM_OP] = {
    [ZT_COMM_ALL_REDUCE] = all_reduce, [ZT_COMM_REDUCE_SCATTER] = reduce_scatter,
    [ZT_COMM_ALL_GATHER] = all_gather, [ZT_COMM_ALL_TO_ALL] = all_to_all,
    [ZT_COMM_BROADCAST] = broadcast,
};

static zt_err engine_run(void *self, const struct zt_comm_call *call,
                         struct zt_fault *fault)
{
    struct mesh_engine *s = self;
    bool each = call->op == ZT_COMM_REDUCE_SCATTER || call->op == ZT_COMM_ALL_TO_ALL;
    size_t elem =
        call->op == ZT_COMM_SUM_F64 ? sizeof(double) : zt_dtype_bytes(call->dtype);
    size_t bytes = call->op == ZT_COMM_BARRIER ? 0 : call->count * elem;
    struct zt_mesh_small small = {call->send, bytes, each ? bytes : 0};
    bool is_small = bytes <= ZT_MESH_SMALL_BYTES;
    bool sends = call->op != ZT_COMM_BROADCAST || s->rank == call->root;
    zt_err rc = zt_mesh_begin(s->mesh, call, 0, is_small && sends ? &small : NULL, fault);

    if (rc)
        return rc;
    if (!is_small && long_ways[call->op])
        return long_ways[call->op](s, call, bytes, fault);
    for (int r = 0; r < s->world; r++) /* everything came along with the headers */
        s->src[r] = zt_mesh_payload(s->mesh, r);
    zt_comm_take_small(call, s->rank, s->world, s->src, bytes);
    return ZT_OK;
}

/* NULL: no memory. */
static struct region *map_region(size_t bytes)
{
    struct region *r = malloc(sizeof(*r));

    if (!r)
        return NULL;
    r->bytes = bytes ? bytes : 1;
    r->at =
        mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r->at != MAP_FAILED)
        return r;
    free(r);
    return NULL;
}

static void unmap_region(struct region *r)
{
    if (r)
        munmap(r->at, r->bytes);
    free(r);
}

static zt_err engine_alloc(void *self, size_t bytes, bool shared, void **out,
                           struct zt_fault *fault)
{
    struct mesh_engine *s = self;
    struct zt_comm_call call = {
        .op = ZT_COMM_ALLOC, .dtype = ZT_U8, .count = bytes, .root = shared};
    struct region *r;
    zt_err rc;

    if (shared)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "comm: ranks that talk by %s have no memory in common",
                            s->mesh->wire->name);
    r = map_region(bytes);
    rc = zt_mesh_begin(s->mesh, &call, r ? 0 : ZT_MESH_NO_MEMORY, NULL, fault);
    for (int i = 0; !rc && i < s->world; i++)
        if (zt_mesh_header(s->mesh, i)->flags & ZT_MESH_NO_MEMORY)
            rc = zt_fault_set(fault, ZT_E_NOMEM,
                              "comm: rank %d has no memory for %zu bytes",
                              s->mesh->member[i], bytes);
    if (rc) {
        unmap_region(r);
        return rc;
    }
    r->next = s->regions;
    s->regions = r;
    *out = r->at;
    return ZT_OK;
}

static void engine_close(void *self)
{
    struct mesh_engine *s = self;
    struct region *next;

    if (!s)
        return;
    zt_mesh_close(s->mesh);
    for (struct region *r = s->regions; r; r = next) {
        next = r->next;
        unmap_region(r);
    }
    free(s->stage);
    free(s->src);
    free(s);
}

/* All but the mesh; NULL: no memory. */
static struct mesh_engine *new_engine(int rank, int world)
{
    struct mesh_engine *s = calloc(1, sizeof(*s));
    size_t per = STAGE_BYTES / 2 / (size_t)world / 4096 * 4096;

    if (!s)
        return NULL;
    s->rank = rank;
    s->world = world;
    s->piece_bytes = per > STAGE_MIN ? per : STAGE_MIN;
    s->src = calloc((size_t)world, sizeof(*s->src));
    s->stage = aligned_alloc(4096, 2 * (size_t)world * s->piece_bytes);
    if (s->src && s->stage)
        return s;
    engine_close(s);
    return NULL;
}

/* Two levels only where all ranks know of the same, and there are several nodes. */
static zt_err agree_on_nodes(struct mesh_engine *s, int node_ranks,
                             struct zt_fault *fault)
{
    int32_t mine = node_ranks, *all = calloc((size_t)s->world, sizeof(*all));
    struct zt_comm_call call = {
        .op = ZT_COMM_ALL_GATHER, .dtype = ZT_I32, .count = 1, .scale = 1, .send = &mine};
    bool same = mine > 1 && s->world > mine && s->world % mine == 0;
    zt_err rc;

    if (!all)
        return zt_fault_set(fault, ZT_E_NOMEM, "comm: out of memory");
    call.recv = all;
    rc = engine_run(s, &call, fault);
    for (int r = 0; r < s->world; r++)
        same = same && all[r] == mine;
    s->node_ranks = !rc && same ? mine : 0;
    free(all);
    return rc;
}

static zt_err engine_open(const struct zt_comm_config *cfg, const struct zt_wire *wire,
                          void **self, struct zt_fault *fault)
{
    struct mesh_engine *s = new_engine(cfg->rank, cfg->world);
    zt_err rc;

    if (!s)
        return zt_fault_set(fault, ZT_E_NOMEM, "comm: out of memory");
    rc = zt_mesh_open(cfg, wire, &s->mesh, fault);
    if (!rc)
        rc = agree_on_nodes(s, cfg->node_ranks, fault);
    if (rc) {
        engine_close(s);
        return rc;
    }
    *self = s;
    return ZT_OK;
}

static zt_err engine_split(void *self, const int *members, int num_members, int my_index,
                           int group_id, void **group_self, struct zt_fault *fault)
{
    struct mesh_engine *s = self, *g = new_engine(my_index, num_members);
    struct zt_mesh *mesh = NULL;
    zt_err rc = zt_mesh_split(s->mesh, members, num_members, my_index, !g, &mesh, fault);

    (void)group_id; /* groups of a split have no rank in common, and need no number */
    if (rc) {
        engine_close(g);
        return rc;
    }
    g->mesh = mesh;
    *group_self = g;
    return ZT_OK;
}

static void engine_abort(void *self, int rank)
{
    struct mesh_engine *s = self;

    zt_mesh_abort(s->mesh, rank);
}

static bool engine_failed(const void *self, struct zt_fault *fault)
{
    const struct mesh_engine *s = self;

    return zt_mesh_failed(s->mesh, fault);
}

static zt_err mpi_open(const struct zt_comm_config *cfg, void **self,
                       struct zt_fault *fault)
{
    const struct zt_wire *wire = NULL;
    zt_err rc = zt_wire_load(&wire, fault);

    return rc ? rc : engine_open(cfg, wire, self, fault);
}

static zt_err tcp_open(const struct zt_comm_config *cfg, void **self,
                       struct zt_fault *fault)
{
    const struct zt_wire *wire = NULL;
    zt_err rc = zt_tcp_wire(cfg, &wire, fault);

    return rc ? rc : engine_open(cfg, wire, self, fault);
}

const struct zt_comm_engine zt_comm_mpi = {
    .abi = ZT_COMM_ENGINE_ABI,
    .name = "mpi",
    .can_share = false,
    .open = mpi_open,
    .close = engine_close,
    .alloc = engine_alloc,
    .run = engine_run,
    .split = engine_split,
    .abort = engine_abort,
    .failed = engine_failed,
};

const struct zt_comm_engine zt_comm_tcp = {
    .abi = ZT_COMM_ENGINE_ABI,
    .name = "tcp",
    .can_share = false,
    .open = tcp_open,
    .close = engine_close,
    .alloc = engine_alloc,
    .run = engine_run,
    .split = engine_split,
    .abort = engine_abort,
    .failed = engine_failed,
};
