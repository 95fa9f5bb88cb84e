#include "worker/comm/comm.h"

#include "worker/comm/engine.h"
#include "worker/comm/fold.h"
#include "worker/comm/progress.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct zt_comm_engine *const engines[] = {
    &zt_comm_solo,
    &zt_comm_shm,
    &zt_comm_faulty,
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
    struct zt_progress *progress; /* NULL until the first start */
    uint64_t issued;              /* asynchronous calls so far */
    zt_err dead;                  /* of the call that broke the communicator */
    _Atomic uint64_t dead_from; /* first asynchronous call that got no result; 0: none */
    struct zt_fault dead_fault;
};

/* ---------------------------------------------------------------- names */
static const char *const op_names[ZT_COMM_NUM_OP] = {
    [ZT_COMM_OPEN] = "open",
    [ZT_COMM_ALLOC] = "alloc",
    [ZT_COMM_ALL_REDUCE] = "all_reduce",
    [ZT_COMM_REDUCE_SCATTER] = "reduce_scatter",
    [ZT_COMM_ALL_GATHER] = "all_gather",
    [ZT_COMM_ALL_TO_ALL] = "all_to_all",
    [ZT_COMM_BROADCAST] = "broadcast",
    [ZT_COMM_BARRIER] = "barrier",
    [ZT_COMM_SUM_F64] = "sum_f64",
};

const char *zt_comm_op_name(zt_comm_op op)
{
    return (unsigned)op < ZT_COMM_NUM_OP ? op_names[op] : "unknown call";
}

void zt_comm_call_text(const struct zt_comm_call *call, char *out, size_t out_bytes)
{
    const char *name = zt_comm_op_name(call->op);
    int n;

    if (call->op == ZT_COMM_OPEN || call->op == ZT_COMM_BARRIER) {
        snprintf(out, out_bytes, "%s", name);
        return;
    }
    if (call->op == ZT_COMM_ALLOC || (unsigned)call->dtype >= ZT_NUM_DTYPE) {
        snprintf(out, out_bytes, "%s of %zu bytes", name, call->count);
        return;
    }
    if (call->op == ZT_COMM_SUM_F64) {
        snprintf(out, out_bytes, "%s of %zu bytes (%zu f64)", name, call->count * 8,
                 call->count);
        return;
    }
    n = snprintf(out, out_bytes, "%s of %zu bytes (%zu %s)", name,
                 call->count * zt_dtype_bytes(call->dtype), call->count,
                 zt_dtype_name(call->dtype));
    if (n < 0 || (size_t)n >= out_bytes)
        return;
    if (call->op == ZT_COMM_BROADCAST)
        snprintf(out + n, out_bytes - (size_t)n, " from rank %d", call->root);
    else if (call->op == ZT_COMM_ALL_REDUCE || call->op == ZT_COMM_REDUCE_SCATTER)
        snprintf(out + n, out_bytes - (size_t)n, " %s times %g",
                 call->reduce == ZT_MAX ? "max" : "sum", (double)call->scale);
}

/* ---------------------------------------------------------------- open, close */
zt_err zt_comm_engine_find(const struct zt_comm_config *cfg,
                           const struct zt_comm_engine **out, struct zt_fault *fault)
{
    const char *name = cfg->engine;
    size_t len;

    if (!strcmp(name, "auto")) {
        if (cfg->world > 1 && cfg->shm_fd < 0)
            return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                                "comm: %d ranks without shared memory between them need "
                                "an engine that is not built in",
                                cfg->world);
        name = cfg->world == 1 ? "solo" : "shm";
    }
    len = strcspn(name, ":");
    for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++) {
        if (strlen(engines[i]->name) != len || strncmp(engines[i]->name, name, len) != 0)
            continue;
        *out = engines[i];
        return ZT_OK;
    }
    return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                        "comm: no engine '%s'; there are auto, solo and shm", name);
}

zt_err zt_comm_open(const struct zt_comm_config *cfg, struct zt_comm **out,
                    struct zt_fault *fault)
{
    struct zt_comm *c;
    zt_err rc;

    if (cfg->world < 1 || cfg->rank < 0 || cfg->rank >= cfg->world)
        return zt_fault_set(fault, ZT_E_ARG, "comm: rank %d of a world of %d", cfg->rank,
                            cfg->world);
    c = calloc(1, sizeof(*c));
    if (!c)
        return zt_fault_set(fault, ZT_E_NOMEM, "comm: out of memory");
    c->rank = cfg->rank;
    c->world = cfg->world;
    rc = zt_comm_engine_find(cfg, &c->engine, fault);
    if (!rc)
        rc = c->engine->open(cfg, &c->self, fault);
    if (rc) {
        free(c);
        return rc;
    }
    *out = c;
    return ZT_OK;
}

void zt_comm_close(struct zt_comm *c)
{
    if (!c)
        return;
    zt_progress_close(c->progress);
    c->engine->close(c->self);
    free(c);
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

/* On the thread whose turn it is. */
static zt_err run_now(struct zt_comm *c, const struct zt_comm_call *call)
{
    zt_err rc;

    if (c->dead)
        return c->dead;
    rc = c->engine->run(c->self, call, &c->dead_fault);
    if (rc)
        die(c, rc);
    return rc;
}

static void run_queued(void *ctx, const struct zt_comm_call *call, uint64_t number)
{
    struct zt_comm *c = ctx;

    if (run_now(c, call) && !atomic_load(&c->dead_from))
        atomic_store(&c->dead_from, number);
}

static void drain(struct zt_comm *c)
{
    if (c->progress)
        zt_progress_drain(c->progress);
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

static zt_err start(struct zt_comm *c, const struct zt_comm_call *call,
                    zt_comm_handle *out, struct zt_fault *fault)
{
    zt_err rc = check_call(c, call, fault);

    if (!rc && !c->progress)
        rc = zt_progress_open(run_queued, c, &c->progress, fault);
    if (rc)
        return rc;
    c->issued = zt_progress_push(c->progress, call);
    *out = c->issued;
    return ZT_OK;
}

zt_err zt_comm_wait(struct zt_comm *c, zt_comm_handle handle, struct zt_fault *fault)
{
    uint64_t dead_from;

    if (!handle)
        return ZT_OK;
    if (handle > c->issued)
        return zt_fault_set(fault, ZT_E_ARG, "comm: wait for call %llu of %llu",
                            (unsigned long long)handle, (unsigned long long)c->issued);
    zt_progress_wait(c->progress, handle);
    dead_from = atomic_load(&c->dead_from);
    return dead_from && handle >= dead_from ? dead_error(c, fault) : ZT_OK;
}

static zt_err take_memory(struct zt_comm *c, size_t bytes, bool shared, void **out,
                          struct zt_fault *fault)
{
    zt_err rc;

    drain(c);
    if (c->dead)
        return dead_error(c, fault);
    rc = c->engine->alloc(c->self, bytes, shared, out, &c->dead_fault);
    if (rc && fault)
        *fault = c->dead_fault;
    if (rc == ZT_E_PEER) /* a heap that is full breaks nothing */
        die(c, rc);
    return rc;
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
