/*
 * engine.c -- collectives on memory of a device: each is queued on the family's stream,
 * after what the main stream has been given so far, and followed by an event that the
 * main stream waits for when the caller does.
 *
 * Calls for the host (sums of doubles, barriers) go to the communicator of the host. NCCL
 * never compares what ranks ask for, and hangs where they differ; so before each of these
 * the ranks compare a hash of all that they asked for.
 *
 * Memory is the backend's: it counts there, and NCCL moves from any device memory. What
 * it would gain from memory of its own (ncclMemAlloc(), registered) it gains inside a
 * node alone, and nobody could say beforehand what fits.
 */
#include "worker/comm/nccl/engine.h"

#include <stdlib.h>
#include <xxhash.h>

#include "common/half.h"

static bool is_for_host(const struct zt_comm_call *call)
{
    return call->op == ZT_COMM_BARRIER || call->op == ZT_COMM_SUM_F64;
}

static bool sums_floats(const struct zt_comm_call *call)
{
    return (call->op == ZT_COMM_ALL_REDUCE || call->op == ZT_COMM_REDUCE_SCATTER) &&
           call->dtype <= ZT_F16;
}

static zt_err nccl_check(const void *self, const struct zt_comm_call *call,
                         struct zt_fault *fault)
{
    (void)self;
    if (sums_floats(call) && call->reduce != ZT_SUM)
        return zt_fault_set(fault, ZT_E_ARG,
                            "comm: %s: there is no maximum of %s in device memory",
                            zt_comm_op_name(call->op), zt_dtype_name(call->dtype));
    return ZT_OK;
}

/* ---------------------------------------------------------------- what was asked for */
static void record_issued(struct zt_nccl_group *s, const struct zt_comm_call *call)
{
    const uint64_t what[] = {
        (uint64_t)call->op,   (uint64_t)call->dtype, (uint64_t)call->reduce,
        (uint64_t)call->root, call->count,           zt_float_bits(call->scale),
    };

    s->num_issued++;
    s->hash = XXH3_64bits_withSeed(what, sizeof(what), s->hash);
    s->last = *call;
}

/* Has every rank asked for the same collectives since the beginning? */
static zt_err compare_issued(struct zt_nccl_group *s, struct zt_fault *fault)
{
    uint64_t mine[2] = {s->num_issued, s->hash};
    uint64_t *all = calloc((size_t)s->world, sizeof(mine));
    char last[128] = "none";
    zt_err rc;

    if (!all)
        return zt_fault_set(fault, ZT_E_SYSTEM, "comm: out of memory");
    rc = zt_all_gather(s->host, mine, all, 2, ZT_I64, fault);
    for (int r = 1; !rc && r < s->world; r++) {
        const uint64_t *a = all, *b = all + 2 * r;

        if (a[0] == b[0] && a[1] == b[1])
            continue;
        if (s->num_issued)
            zt_comm_call_text(&s->last, last, sizeof(last));
        rc = zt_fault_set(fault, ZT_E_PEER,
                          "comm: ranks asked for different collectives on the device: "
                          "rank %d for %llu so far, rank 0 for %llu%s; the last one of "
                          "rank %d was %s",
                          r, (unsigned long long)b[0], (unsigned long long)a[0],
                          a[0] == b[0] ? " others" : "", s->rank, last);
    }
    free(all);
    return rc;
}

static zt_err run_on_host(struct zt_nccl_group *s, const struct zt_comm_call *call,
                          struct zt_fault *fault)
{
    zt_err rc = compare_issued(s, fault);

    if (!rc)
        rc = call->op == ZT_COMM_BARRIER
                 ? zt_barrier(s->host, fault)
                 : zt_sum_f64(s->host, call->recv, (int)call->count, fault);
    return rc ? zt_nccl_break(s->family, fault) : ZT_OK;
}

/* ---------------------------------------------------------------- one collective */
/* A world of one: the slow, obvious meaning, as in solo.c. */
static zt_err queue_alone(struct zt_nccl_group *s, const struct zt_comm_call *call,
                          struct zt_fault *fault)
{
    struct zt_nccl_family *f = s->family;
    size_t bytes = call->count * zt_dtype_bytes(call->dtype);

    if (sums_floats(call))
        return zt_nccl_rank_sum(s, call, call->send, 1, call->count, call->recv,
                                call->count, fault);
    return f->be->copy(f->dev, f->stream, call->recv, call->send, bytes, fault);
}

/* In place: what is received stays in the staging memory until all of it was sent. */
static zt_err all_to_all_in_place(struct zt_nccl_group *s,
                                  const struct zt_comm_call *call, struct zt_fault *fault)
{
    struct zt_nccl_family *f = s->family;
    size_t slice = call->count * zt_dtype_bytes(call->dtype), n;
    size_t per = f->stage_bytes / (size_t)s->world;
    char *buf = call->recv;
    zt_err rc = ZT_OK;

    for (size_t at = 0; !rc && at < slice; at += n) {
        n = slice - at < per ? slice - at : per;
        rc = zt_nccl_begin(f, fault);
        if (!rc)
            rc = zt_nccl_end(
                s, "all_to_all",
                f->nccl->all_to_all(s->comm, f->native, buf + at, slice, f->stage, n, n),
                fault);
        for (int r = 0; !rc && r < s->world; r++)
            rc = f->be->copy(f->dev, f->stream, buf + (size_t)r * slice + at,
                             f->stage + (size_t)r * n, n, fault);
    }
    return rc;
}

static zt_err queue_collective(struct zt_nccl_group *s, const struct zt_comm_call *call,
                               struct zt_fault *fault)
{
    struct zt_nccl_family *f = s->family;
    size_t bytes = call->count * zt_dtype_bytes(call->dtype);
    zt_err rc;
    int e = 0;

    if (s->world == 1)
        return queue_alone(s, call, fault);
    if (call->op == ZT_COMM_ALL_REDUCE || call->op == ZT_COMM_REDUCE_SCATTER)
        return zt_nccl_reduce(s, call, fault);
    if (call->op == ZT_COMM_ALL_TO_ALL && call->send == call->recv)
        return all_to_all_in_place(s, call, fault);
    rc = zt_nccl_begin(f, fault);
    if (rc)
        return rc;
    if (call->op == ZT_COMM_ALL_GATHER)
        e = f->nccl->all_gather(s->comm, f->native, call->send, call->recv, bytes);
    else if (call->op == ZT_COMM_ALL_TO_ALL)
        e = f->nccl->all_to_all(s->comm, f->native, call->send, bytes, call->recv, bytes,
                                bytes);
    else
        e = f->nccl->broadcast(s->comm, f->native, call->recv, bytes, call->root);
    return zt_nccl_end(s, zt_comm_op_name(call->op), e, fault);
}

/* Record it for the watchdog, and for those who will wait. */
static zt_err record_queued(struct zt_nccl_family *f, const struct zt_comm_call *call,
                            struct zt_fault *fault)
{
    struct zt_nccl_slot *slot = &f->slot[call->number % ZT_NCCL_RING];
    zt_err rc = f->be->event_record(f->dev, slot->event, f->stream, fault);

    pthread_mutex_lock(&f->lock);
    slot->number = call->number;
    slot->queued_s = zt_nccl_now_s();
    slot->call = *call;
    f->queued = call->number;
    pthread_mutex_unlock(&f->lock);
    return rc;
}

static zt_err nccl_queue(void *self, const struct zt_comm_call *call,
                         struct zt_fault *fault)
{
    struct zt_nccl_group *s = self;
    struct zt_nccl_family *f = s->family;
    zt_err rc;

    if (zt_nccl_is_broken(f, fault))
        return fault->code;
    if (is_for_host(call))
        return run_on_host(s, call, fault);
    if (zt_comm_failed(s->host, fault))
        return zt_nccl_break(f, fault);
    record_issued(s, call);
    if (!call->count)
        return ZT_OK;
    rc = f->be->event_record(f->dev, f->main_reached, NULL, fault);
    if (!rc)
        rc = f->be->event_wait(f->dev, f->main_reached, f->stream, fault);
    if (!rc)
        rc = queue_collective(s, call, fault);
    if (!rc)
        rc = record_queued(f, call, fault);
    return rc ? zt_nccl_break(f, fault) : ZT_OK;
}

/*
 * The slot of an old call may hold a later one: on the same stream, so that waiting for
 * it waits for both. If it holds an earlier one, nothing was queued for this call.
 */
static zt_err nccl_await(void *self, uint64_t number, struct zt_fault *fault)
{
    const struct zt_nccl_group *s = self;
    struct zt_nccl_family *f = s->family;
    const struct zt_nccl_slot *slot = &f->slot[number % ZT_NCCL_RING];
    zt_err rc;

    if (slot->number < number) /* only this thread writes it */
        return ZT_OK;
    if (zt_nccl_is_broken(f, fault))
        return fault->code;
    if (zt_comm_failed(s->host, fault))
        return zt_nccl_break(f, fault);
    rc = f->be->event_wait(f->dev, slot->event, NULL, fault);
    return rc ? zt_nccl_break(f, fault) : ZT_OK;
}

/* ---------------------------------------------------------------- the engine */
static void nccl_abort(void *self, int rank)
{
    struct zt_nccl_group *s = self;

    zt_comm_abort(s->host, rank); /* knows what a rank of a group is called */
    sem_post(&s->family->wake);
}

static bool nccl_failed(const void *self, struct zt_fault *fault)
{
    const struct zt_nccl_group *s = self;

    return zt_nccl_is_broken(s->family, fault) || zt_comm_failed(s->host, fault);
}

static struct zt_comm *nccl_host(const void *self)
{
    const struct zt_nccl_group *s = self;

    return s->host;
}

const struct zt_comm_device_engine zt_comm_nccl = {
    .ops = {.close = zt_nccl_close,
            .split = zt_nccl_split,
            .abort = nccl_abort,
            .failed = nccl_failed,
            .check = nccl_check},
    .name = "nccl",
    .open = zt_nccl_open,
    .alloc = zt_nccl_alloc,
    .queue = nccl_queue,
    .await = nccl_await,
    .host = nccl_host,
};
