/* comm.c -- opening, closing and running calls, for every engine. */
#include "worker/comm/private.h"

#include "common/message/event.h"
#include "common/trace/trace.h"
#include "common/trace/waits.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void zt_comm_drain(struct zt_comm *c)
{
    if (c->family->progress)
        zt_progress_drain(c->family->progress);
}

/* ---------------------------------------------------------------- open, close */
struct zt_comm *zt_comm_new(int rank, int world, const struct zt_comm *parent)
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

void zt_comm_free(struct zt_comm *c)
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
    c = zt_comm_new(cfg->rank, cfg->world, NULL);
    if (!c)
        return zt_fault_set(fault, ZT_E_NOMEM, "comm: out of memory");
    rc = zt_comm_engine_find(cfg, &c->engine, fault);
    if (!rc) {
        c->ops = &c->engine->ops;
        rc = c->engine->open(cfg, &c->self, fault);
    }
    if (rc) {
        zt_comm_free(c);
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
        zt_comm_drain(c);
    } else {
        assert(c->family->num_members == 1); /* groups go first */
        zt_progress_close(c->family->progress);
    }
    c->ops->close(c->self);
    zt_comm_free(c);
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
    return c->engine ? c->engine->name : c->device_engine->name;
}

bool zt_comm_can_share(const struct zt_comm *c)
{
    if (!c->engine)
        return false;
    return c->engine->shares ? c->engine->shares(c->self) : c->engine->can_share;
}

struct zt_comm *zt_comm_host(struct zt_comm *c)
{
    return c->device_engine ? c->device_engine->host(c->self) : c;
}

void zt_comm_abort(struct zt_comm *c, int rank)
{
    c->ops->abort(c->self, rank);
}

bool zt_comm_failed(const struct zt_comm *c, struct zt_fault *fault)
{
    return c->ops->failed(c->self, fault);
}

/* ---------------------------------------------------------------- running a call */
zt_err zt_comm_dead_error(const struct zt_comm *c, struct zt_fault *fault)
{
    if (fault)
        *fault = c->dead_fault;
    return c->dead;
}

static void mark_dead(struct zt_comm *c, zt_err rc)
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
            mark_dead(c, p->dead);
        }
    return c->dead;
}

zt_err zt_comm_run_now(struct zt_comm *c, const struct zt_comm_call *call)
{
    zt_err rc = is_dead(c);

    if (rc)
        return rc;
    zt_trace_begin_with("comm", zt_comm_op_name(call->op), "elements",
                        (int64_t)call->count);
    zt_event_collective(call->op, true);
    zt_wait_begin();
    rc = c->engine ? c->engine->run(c->self, call, &c->dead_fault)
                   : c->device_engine->queue(c->self, call, &c->dead_fault);
    zt_wait_end(ZT_WAIT_RANKS);
    zt_event_collective(call->op, false);
    zt_trace_end();
    if (rc)
        mark_dead(c, rc);
    return rc;
}

static void run_queued(struct zt_comm *c, const struct zt_comm_call *call,
                       uint64_t number)
{
    if (zt_comm_run_now(c, call) && !atomic_load(&c->dead_from))
        atomic_store(&c->dead_from, number);
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return x < y + b_bytes && y < x + a_bytes;
}

/* send and recv do not overlap, or only as comm.h allows. */
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
    if (call->count && check_overlap(c, call, fault))
        return ZT_E_ARG;
    return c->ops->check ? c->ops->check(c->self, call, fault) : ZT_OK;
}

/* On a device: the call is queued. */
static zt_err queue_now(struct zt_comm *c, struct zt_comm_call *call,
                        struct zt_fault *fault)
{
    call->number = ++c->family->issued;
    return zt_comm_run_now(c, call) ? zt_comm_dead_error(c, fault) : ZT_OK;
}

/* Make the device's main stream wait for that call. */
static zt_err await_now(struct zt_comm *c, uint64_t number, struct zt_fault *fault)
{
    zt_err rc = is_dead(c);

    if (!rc) {
        rc = c->device_engine->await(c->self, number, &c->dead_fault);
        if (rc)
            mark_dead(c, rc);
    }
    return rc ? zt_comm_dead_error(c, fault) : ZT_OK;
}

static zt_err run_blocking(struct zt_comm *c, struct zt_comm_call *call,
                           struct zt_fault *fault)
{
    zt_err rc = check_call(c, call, fault);

    if (rc)
        return rc;
    if (c->device_engine) {
        rc = queue_now(c, call, fault);
        return rc ? rc : await_now(c, call->number, fault);
    }
    zt_comm_drain(c);
    return zt_comm_run_now(c, call) ? zt_comm_dead_error(c, fault) : ZT_OK;
}

static zt_err start(struct zt_comm *c, struct zt_comm_call *call, zt_comm_handle *out,
                    struct zt_fault *fault)
{
    struct zt_comm_family *f = c->family;
    zt_err rc = check_call(c, call, fault);

    if (!rc && c->device_engine) {
        rc = queue_now(c, call, fault);
        if (!rc)
            *out = call->number;
        return rc;
    }
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
    if (c->device_engine)
        return await_now(c, handle, fault);
    zt_wait_begin();
    zt_progress_wait(c->family->progress, handle);
    zt_wait_end(ZT_WAIT_RANKS);
    dead_from = atomic_load(&c->dead_from);
    return dead_from && handle >= dead_from ? zt_comm_dead_error(c, fault) : ZT_OK;
}

zt_err zt_comm_finish_alloc(struct zt_comm *c, zt_err rc, struct zt_fault *fault)
{
    if (rc && fault)
        *fault = c->dead_fault;
    if (rc && rc != ZT_E_NOMEM)
        mark_dead(c, rc);
    return rc;
}

static zt_err alloc(struct zt_comm *c, size_t bytes, bool shared, void **out,
                    struct zt_fault *fault)
{
    zt_err rc;

    if (shared && !zt_comm_can_share(c))
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "comm: ranks of engine %s have no memory in common",
                            zt_comm_engine_name(c));
    zt_comm_drain(c);
    if (is_dead(c))
        return zt_comm_dead_error(c, fault);
    rc = c->engine ? c->engine->alloc(c->self, bytes, shared, out, &c->dead_fault)
                   : c->device_engine->alloc(c->self, bytes, out, &c->dead_fault);
    return zt_comm_finish_alloc(c, rc, fault);
}

zt_err zt_comm_alloc(struct zt_comm *c, size_t bytes, void **out, struct zt_fault *fault)
{
    return alloc(c, bytes, false, out, fault);
}

zt_err zt_comm_alloc_shared(struct zt_comm *c, size_t bytes, void **out,
                            struct zt_fault *fault)
{
    return alloc(c, bytes, true, out, fault);
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
