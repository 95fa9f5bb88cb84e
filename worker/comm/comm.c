#include "common/event.h"
#include "common/trace.h"
#include "worker/comm/comm.h"

#include "worker/comm/engine.h"
#include "worker/comm/fold.h"
#include "worker/comm/progress.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* What a communicator and its groups have in common: calls run one at a time. */
struct family {
    struct zt_progress *progress; /* NULL until the first start */
    uint64_t issued;              /* asynchronous calls so far */
    int num_members;              /* communicators that are open */
};

/*
 * `dead` and `dead_fault` belong to whoever runs calls: the caller's thread while nothing
 * is queued, else the progress thread. progress.h orders the two. A wait that does not
 * drain the queue may read them once it has seen `dead_from`, after which they stay.
 */
struct zt_comm {
    const struct zt_comm_engine *engine;
    void *self;
    int rank, world;
    const struct zt_comm *parent; /* of a group; NULL: it is the first of its family */
    struct family *family;
    zt_err dead;                /* of the call that broke the communicator */
    _Atomic uint64_t dead_from; /* first asynchronous call that got no result; 0: none */
    struct zt_fault dead_fault;
};

static void drain(struct zt_comm *c)
{
    if (c->family->progress)
        zt_progress_drain(c->family->progress);
}

/* ---------------------------------------------------------------- open, close */
/* A communicator without an engine yet: of a new family, or `parent`'s. */
static struct zt_comm *new_comm(int rank, int world, const struct zt_comm *parent)
{
    struct zt_comm *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->rank = rank;
    c->world = world;
    c->parent = parent;
    c->family = parent ? parent->family : calloc(1, sizeof(*c->family));
    if (!c->family) {
        free(c);
        return NULL;
    }
    c->family->num_members++;
    return c;
}

/* The engine's part is gone, or never was. */
static void free_comm(struct zt_comm *c)
{
    c->family->num_members--;
    if (!c->parent)
        free(c->family);
    free(c);
}

zt_err zt_comm_open(const struct zt_comm_config *cfg, struct zt_comm **out,
                    struct zt_fault *fault)
{
    struct zt_comm *c;
    zt_err rc;

    if (cfg->world < 1 || cfg->rank < 0 || cfg->rank >= cfg->world)
        return zt_fault_set(fault, ZT_E_ARG, "comm: rank %d of a world of %d", cfg->rank,
                            cfg->world);
    c = new_comm(cfg->rank, cfg->world, NULL);
    if (!c)
        return zt_fault_set(fault, ZT_E_NOMEM, "comm: out of memory");
    rc = zt_comm_engine_find(cfg, &c->engine, fault);
    if (!rc)
        rc = c->engine->open(cfg, &c->self, fault);
    if (rc) {
        free_comm(c);
        return rc;
    }
    *out = c;
    return ZT_OK;
}

void zt_comm_close(struct zt_comm *c)
{
    if (!c)
        return;
    if (c->parent) {
        drain(c);
    } else {
        assert(c->family->num_members == 1); /* groups go first */
        zt_progress_close(c->family->progress);
    }
    c->engine->close(c->self);
    free_comm(c);
}

int zt_comm_rank(const struct zt_comm *c)
{
    return c->rank;
}

int zt_comm_world(const struct zt_comm *c)
{
    return c->world;
}

const char *zt_comm_engine_name(const struct zt_comm *c)
{
    return c->engine->name;
}

bool zt_comm_can_share(const struct zt_comm *c)
{
    return c->engine->shares ? c->engine->shares(c->self) : c->engine->can_share;
}

void zt_comm_abort(struct zt_comm *c, int rank)
{
    c->engine->abort(c->self, rank);
}

/* ---------------------------------------------------------------- running a call */
/* The fault of the call that broke the communicator, for one that came after it. */
static zt_err dead_error(const struct zt_comm *c, struct zt_fault *fault)
{
    if (fault)
        *fault = c->dead_fault;
    return c->dead;
}

static void die(struct zt_comm *c, zt_err rc)
{
    c->dead = rc;
    c->dead_fault.code = rc;
}

/* Whether nothing runs any more: the communicator, or the one it is a group of, died. */
static zt_err is_dead(struct zt_comm *c)
{
    for (const struct zt_comm *p = c->parent; !c->dead && p; p = p->parent)
        if (p->dead) {
            c->dead_fault = p->dead_fault;
            die(c, p->dead);
        }
    return c->dead;
}

/* On the thread whose turn it is. */
static zt_err run_now(struct zt_comm *c, const struct zt_comm_call *call)
{
    zt_err rc = is_dead(c);

    if (rc)
        return rc;
    zt_trace_begin_with("comm", zt_comm_op_name(call->op), "elements",
                        (int64_t)call->count);
    zt_event_collective(call->op, true);
    rc = c->engine->run(c->self, call, &c->dead_fault);
    zt_event_collective(call->op, false);
    zt_trace_end();
    if (rc)
        die(c, rc);
    return rc;
}

static void run_queued(struct zt_comm *c, const struct zt_comm_call *call,
                       uint64_t number)
{
    if (run_now(c, call) && !atomic_load(&c->dead_from))
        atomic_store(&c->dead_from, number);
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return x < y + b_bytes && y < x + a_bytes;
}

/* Where may recv begin, given send? Apart from it, or as comm.h allows. */
static zt_err check_overlap(const struct zt_comm *c, const struct zt_comm_call *call,
                            struct zt_fault *fault)
{
    size_t bytes = call->count * zt_dtype_bytes(call->dtype);
    size_t all = bytes * (size_t)c->world, mine = bytes * (size_t)c->rank;
    const char *send = call->send, *recv = call->recv;
    bool fine;

    switch (call->op) {
    case ZT_COMM_REDUCE_SCATTER:
        fine = recv == send || recv == send + mine || !overlap(send, all, recv, bytes);
        break;
    case ZT_COMM_ALL_GATHER:
        fine = send == recv + mine || !overlap(send, bytes, recv, all);
        break;
    case ZT_COMM_ALL_TO_ALL:
        fine = send == recv || !overlap(send, all, recv, all);
        break;
    default:
        fine = send == recv || !overlap(send, bytes, recv, bytes);
        break;
    }
    if (fine)
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_ARG, "comm: %s: send and recv overlap",
                        zt_comm_op_name(call->op));
}

static zt_err check_call(const struct zt_comm *c, const struct zt_comm_call *call,
                         struct zt_fault *fault)
{
    const char *name = zt_comm_op_name(call->op);

    if ((unsigned)call->dtype >= ZT_NUM_DTYPE)
        return zt_fault_set(fault, ZT_E_ARG, "comm: %s: no dtype %d", name,
                            (int)call->dtype);
    if (call->reduce != ZT_SUM && call->reduce != ZT_MAX)
        return zt_fault_set(fault, ZT_E_ARG, "comm: %s: no reduction %d", name,
                            (int)call->reduce);
    if (call->dtype > ZT_F16 && call->scale != 1.0f)
        return zt_fault_set(fault, ZT_E_ARG, "comm: %s: %s cannot be scaled by %g", name,
                            zt_dtype_name(call->dtype), (double)call->scale);
    if (call->root < 0 || call->root >= c->world)
        return zt_fault_set(fault, ZT_E_ARG, "comm: %s: root %d of a world of %d", name,
                            call->root, c->world);
    if (call->count > SIZE_MAX / 64 / (size_t)c->world)
        return zt_fault_set(fault, ZT_E_ARG, "comm: %s: %zu elements", name, call->count);
    if (call->count && (!call->send || !call->recv))
        return zt_fault_set(fault, ZT_E_ARG, "comm: %s: no buffer", name);
    return call->count ? check_overlap(c, call, fault) : ZT_OK;
}

static zt_err run_blocking(struct zt_comm *c, const struct zt_comm_call *call,
                           struct zt_fault *fault)
{
    zt_err rc = check_call(c, call, fault);

    if (rc)
        return rc;
    drain(c);
    return run_now(c, call) ? dead_error(c, fault) : ZT_OK;
}

static zt_err start(struct zt_comm *c, struct zt_comm_call *call, zt_comm_handle *out,
                    struct zt_fault *fault)
{
    struct family *f = c->family;
    zt_err rc = check_call(c, call, fault);

    if (!rc && !f->progress)
        rc = zt_progress_open(run_queued, &f->progress, fault);
    if (rc)
        return rc;
    call->background = true;
    f->issued = zt_progress_push(f->progress, c, call);
    *out = f->issued;
    return ZT_OK;
}

zt_err zt_comm_wait(struct zt_comm *c, zt_comm_handle handle, struct zt_fault *fault)
{
    uint64_t dead_from;

    if (!handle)
        return ZT_OK;
    if (handle > c->family->issued)
        return zt_fault_set(fault, ZT_E_ARG, "comm: wait for call %llu of %llu",
                            (unsigned long long)handle,
                            (unsigned long long)c->family->issued);
    zt_progress_wait(c->family->progress, handle);
    dead_from = atomic_load(&c->dead_from);
    return dead_from && handle >= dead_from ? dead_error(c, fault) : ZT_OK;
}

/* Of a call for memory: that there is none breaks nothing. */
static zt_err outcome(struct zt_comm *c, zt_err rc, struct zt_fault *fault)
{
    if (rc && fault)
        *fault = c->dead_fault;
    if (rc && rc != ZT_E_NOMEM)
        die(c, rc);
    return rc;
}

static zt_err take_memory(struct zt_comm *c, size_t bytes, bool shared, void **out,
                          struct zt_fault *fault)
{
    zt_err rc;

    if (shared && !zt_comm_can_share(c))
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "comm: ranks of engine %s have no memory in common",
                            c->engine->name);
    drain(c);
    if (is_dead(c))
        return dead_error(c, fault);
    rc = c->engine->alloc(c->self, bytes, shared, out, &c->dead_fault);
    return outcome(c, rc, fault);
}

zt_err zt_comm_alloc(struct zt_comm *c, size_t bytes, void **out, struct zt_fault *fault)
{
    return take_memory(c, bytes, false, out, fault);
}

zt_err zt_comm_alloc_shared(struct zt_comm *c, size_t bytes, void **out,
                            struct zt_fault *fault)
{
    return take_memory(c, bytes, true, out, fault);
}

/* ---------------------------------------------------------------- the collectives */
static struct zt_comm_call reduction(zt_comm_op op, const void *send, void *recv,
                                     size_t count, zt_dtype dtype, zt_reduce_op reduce,
                                     float scale)
{
    return (struct zt_comm_call){.op = op,
                                 .dtype = dtype,
                                 .reduce = reduce,
                                 .scale = scale,
                                 .count = count,
                                 .send = send,
                                 .recv = recv};
}

static struct zt_comm_call movement(zt_comm_op op, const void *send, void *recv,
                                    size_t count, zt_dtype dtype)
{
    return reduction(op, send, recv, count, dtype, ZT_SUM, 1.0f);
}

zt_err zt_all_reduce(struct zt_comm *c, const void *send, void *recv, size_t count,
                     zt_dtype dtype, zt_reduce_op op, float scale, struct zt_fault *fault)
{
    struct zt_comm_call call =
        reduction(ZT_COMM_ALL_REDUCE, send, recv, count, dtype, op, scale);

    return run_blocking(c, &call, fault);
}

zt_err zt_reduce_scatter(struct zt_comm *c, const void *send, void *recv, size_t count,
                         zt_dtype dtype, float scale, struct zt_fault *fault)
{
    struct zt_comm_call call =
        reduction(ZT_COMM_REDUCE_SCATTER, send, recv, count, dtype, ZT_SUM, scale);

    return run_blocking(c, &call, fault);
}

zt_err zt_all_gather(struct zt_comm *c, const void *send, void *recv, size_t count,
                     zt_dtype dtype, struct zt_fault *fault)
{
    struct zt_comm_call call = movement(ZT_COMM_ALL_GATHER, send, recv, count, dtype);

    return run_blocking(c, &call, fault);
}

zt_err zt_all_to_all(struct zt_comm *c, const void *send, void *recv, size_t count,
                     zt_dtype dtype, struct zt_fault *fault)
{
    struct zt_comm_call call = movement(ZT_COMM_ALL_TO_ALL, send, recv, count, dtype);

    return run_blocking(c, &call, fault);
}

zt_err zt_broadcast(struct zt_comm *c, void *buf, size_t count, zt_dtype dtype, int root,
                    struct zt_fault *fault)
{
    struct zt_comm_call call = movement(ZT_COMM_BROADCAST, buf, buf, count, dtype);

    call.root = root;
    return run_blocking(c, &call, fault);
}

zt_err zt_barrier(struct zt_comm *c, struct zt_fault *fault)
{
    struct zt_comm_call call = movement(ZT_COMM_BARRIER, NULL, NULL, 0, ZT_U8);

    return run_blocking(c, &call, fault);
}

zt_err zt_sum_f64(struct zt_comm *c, double *values, int count, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (count < 0 || (count && !values))
        return zt_fault_set(fault, ZT_E_ARG, "comm: sum_f64 of %d values", count);
    for (int at = 0; !rc && at < count; at += ZT_COMM_F64_MAX) {
        int n = count - at < ZT_COMM_F64_MAX ? count - at : ZT_COMM_F64_MAX;
        struct zt_comm_call call =
            movement(ZT_COMM_SUM_F64, values + at, values + at, (size_t)n, ZT_U8);

        rc = run_blocking(c, &call, fault);
    }
    return rc;
}

zt_err zt_all_reduce_start(struct zt_comm *c, const void *send, void *recv, size_t count,
                           zt_dtype dtype, zt_reduce_op op, float scale,
                           zt_comm_handle *out, struct zt_fault *fault)
{
    struct zt_comm_call call =
        reduction(ZT_COMM_ALL_REDUCE, send, recv, count, dtype, op, scale);

    return start(c, &call, out, fault);
}

zt_err zt_reduce_scatter_start(struct zt_comm *c, const void *send, void *recv,
                               size_t count, zt_dtype dtype, float scale,
                               zt_comm_handle *out, struct zt_fault *fault)
{
    struct zt_comm_call call =
        reduction(ZT_COMM_REDUCE_SCATTER, send, recv, count, dtype, ZT_SUM, scale);

    return start(c, &call, out, fault);
}

zt_err zt_all_gather_start(struct zt_comm *c, const void *send, void *recv, size_t count,
                           zt_dtype dtype, zt_comm_handle *out, struct zt_fault *fault)
{
    struct zt_comm_call call = movement(ZT_COMM_ALL_GATHER, send, recv, count, dtype);

    return start(c, &call, out, fault);
}

zt_err zt_broadcast_start(struct zt_comm *c, void *buf, size_t count, zt_dtype dtype,
                          int root, zt_comm_handle *out, struct zt_fault *fault)
{
    struct zt_comm_call call = movement(ZT_COMM_BROADCAST, buf, buf, count, dtype);

    call.root = root;
    return start(c, &call, out, fault);
}

/* ---------------------------------------------------------------- groups */
/* What a split makes of the colors: this rank's group, and its place there. */
struct grouping {
    int *members; /* (num_members) ranks of the parent, in order */
    int num_members, my_index, group_id;
};

static void group_by_color(const int32_t *colors, int world, int rank, struct grouping *g)
{
    g->num_members = g->my_index = g->group_id = 0;
    for (int r = 0; r < world; r++) {
        if (colors[r] != colors[rank])
            continue;
        if (r == rank)
            g->my_index = g->num_members;
        g->members[g->num_members++] = r;
    }
    /* groups are numbered in the order of their first members */
    for (int r = 0; r < g->members[0]; r++) {
        int q = 0;

        while (colors[q] != colors[r])
            q++;
        g->group_id += q == r;
    }
}

/* Everybody's color, as a call like any other. */
static zt_err exchange_colors(struct zt_comm *c, int32_t color, int32_t *colors)
{
    struct zt_comm_call call = movement(ZT_COMM_ALL_GATHER, &color, colors, 1, ZT_I32);

    drain(c);
    return run_now(c, &call);
}

static zt_err split(struct zt_comm *c, const struct grouping *g, struct zt_comm **out,
                    struct zt_fault *fault)
{
    struct zt_comm *group = new_comm(g->my_index, g->num_members, c);
    zt_err rc;

    if (!group) /* not ZT_E_NOMEM: the others do not know */
        return outcome(
            c, zt_fault_set(&c->dead_fault, ZT_E_SYSTEM, "comm: out of memory"), fault);
    group->engine = c->engine;
    rc = c->engine->split(c->self, g->members, g->num_members, g->my_index, g->group_id,
                          &group->self, &c->dead_fault);
    if (rc) {
        free_comm(group);
        return outcome(c, rc, fault);
    }
    *out = group;
    return ZT_OK;
}

zt_err zt_comm_split(struct zt_comm *c, int color, struct zt_comm **out,
                     struct zt_fault *fault)
{
    size_t world = (size_t)c->world;
    int32_t *colors = calloc(world, sizeof(*colors));
    struct grouping g = {.members = calloc(world, sizeof(*g.members))};
    zt_err rc;

    if (!colors || !g.members) {
        rc = zt_fault_set(fault, ZT_E_SYSTEM, "comm: out of memory");
    } else if (exchange_colors(c, color, colors)) {
        rc = dead_error(c, fault);
    } else {
        group_by_color(colors, c->world, c->rank, &g);
        rc = split(c, &g, out, fault);
    }
    free(g.members);
    free(colors);
    return rc;
}
