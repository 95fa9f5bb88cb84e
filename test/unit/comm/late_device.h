/*
 * late_device.h -- a device whose streams run late: the cpu backend, but what is queued
 * runs when the host waits for a stream, as far as that needs it and no further. So work
 * that no event orders is seen not to have happened, and a wait of the host is counted.
 */
#ifndef TEST_UNIT_COMM_LATE_DEVICE_H
#define TEST_UNIT_COMM_LATE_DEVICE_H

#include "kernels/backend.h"
#include "kernels/cpu/cpu.h"

#include "test/unit/comm/ranks.h"

#include <stdatomic.h>

#define LATE_OPS 16384u /* queued at once on a stream */

typedef void (*late_fn)(void *arg);

struct late_op {
    late_fn fn; /* may be NULL */
    void *arg;  /* freed after it ran */
};

struct zt_stream {
    struct late_op op[LATE_OPS];
    uint64_t queued;
    _Atomic uint64_t done;
};

/* Written by the thread that queues, read by one that asks. */
struct zt_stream_event {
    struct zt_stream *_Atomic stream; /* NULL: never recorded */
    _Atomic uint64_t at;
};

static struct zt_stream late_main;
static struct zt_device *late_dev;
static int late_waits;          /* of the host, for a stream */
static size_t late_fails_above; /* an alloc of more has no memory */
static struct zt_kernels late_kernels;

static struct zt_stream UNUSED *late_stream(struct zt_stream *s)
{
    return s ? s : &late_main;
}

/* Room for arguments that travel with the work. */
static void UNUSED *late_queue(struct zt_stream *s, late_fn fn, const void *arg,
                               size_t bytes)
{
    void *copy = malloc(bytes);

    memcpy(copy, arg, bytes);
    s = late_stream(s);
    CHECK(s->queued - atomic_load(&s->done) < LATE_OPS);
    s->op[s->queued++ % LATE_OPS] = (struct late_op){fn, copy};
    return copy;
}

static void UNUSED late_run_to(struct zt_stream *s, uint64_t at)
{
    while (atomic_load(&s->done) < at) {
        struct late_op *op = &s->op[atomic_load(&s->done) % LATE_OPS];

        op->fn(op->arg);
        free(op->arg);
        atomic_fetch_add(&s->done, 1);
    }
}

/* ---------------------------------------------------------------- events */
static zt_err UNUSED late_event_open(struct zt_device *dev, struct zt_stream_event **out,
                                     struct zt_fault *f)
{
    (void)dev, (void)f;
    *out = calloc(1, sizeof(**out));
    return ZT_OK;
}

static void UNUSED late_event_close(struct zt_device *dev, struct zt_stream_event *e)
{
    (void)dev;
    free(e);
}

static zt_err UNUSED late_event_record(struct zt_device *dev, struct zt_stream_event *e,
                                       struct zt_stream *s, struct zt_fault *f)
{
    (void)dev, (void)f;
    atomic_store(&e->at, late_stream(s)->queued);
    atomic_store(&e->stream, late_stream(s));
    return ZT_OK;
}

struct late_point {
    struct zt_stream *stream;
    uint64_t at;
};

static void UNUSED late_reach(void *arg)
{
    const struct late_point *p = arg;

    late_run_to(p->stream, p->at);
}

static zt_err UNUSED late_event_wait(struct zt_device *dev, struct zt_stream_event *e,
                                     struct zt_stream *s, struct zt_fault *f)
{
    struct late_point p = {atomic_load(&e->stream), atomic_load(&e->at)};

    (void)dev, (void)f;
    if (p.stream)
        late_queue(s, late_reach, &p, sizeof(p));
    return ZT_OK;
}

static zt_err UNUSED late_event_passed(struct zt_device *dev, struct zt_stream_event *e,
                                       bool *out, struct zt_fault *f)
{
    struct zt_stream *s = atomic_load(&e->stream);

    (void)dev, (void)f;
    *out = !s || atomic_load(&s->done) >= atomic_load(&e->at);
    return ZT_OK;
}

/* ---------------------------------------------------------------- streams */
static zt_err UNUSED late_stream_open(struct zt_device *dev, struct zt_stream **out,
                                      struct zt_fault *f)
{
    (void)dev, (void)f;
    *out = calloc(1, sizeof(**out));
    return ZT_OK;
}

static zt_err UNUSED late_sync(struct zt_device *dev, struct zt_stream *s,
                               struct zt_fault *f)
{
    (void)dev, (void)f;
    late_waits++;
    s = late_stream(s);
    late_run_to(s, s->queued);
    return ZT_OK;
}

static void UNUSED late_stream_close(struct zt_device *dev, struct zt_stream *s)
{
    (void)dev;
    if (!s)
        return;
    late_run_to(s, s->queued);
    free(s);
}

static void UNUSED *late_native(struct zt_device *dev, struct zt_stream *s)
{
    (void)dev;
    return late_stream(s);
}

struct late_copy {
    void *dst;
    const void *src;
    size_t bytes;
};

static void UNUSED late_move(void *arg)
{
    const struct late_copy *c = arg;

    memmove(c->dst, c->src, c->bytes);
}

static zt_err UNUSED late_copy(struct zt_device *dev, struct zt_stream *s, void *dst,
                               const void *src, size_t bytes, struct zt_fault *f)
{
    struct late_copy c = {dst, src, bytes};

    (void)dev, (void)f;
    late_queue(s, late_move, &c, sizeof(c));
    return ZT_OK;
}

static zt_err UNUSED late_alloc(struct zt_device *dev, size_t bytes, void **out,
                                struct zt_fault *f)
{
    if (late_fails_above && bytes > late_fails_above)
        return zt_fault_set(f, ZT_E_NOMEM, "the device has no %zu bytes", bytes);
    return zt_cpu_backend.alloc(dev, bytes, out, f);
}

/* ---------------------------------------------------------------- kernels */
#define LATE_KERNEL(name, args)                                                          \
    static void UNUSED late_run_##name(void *arg)                                        \
    {                                                                                    \
        struct zt_fault f;                                                               \
                                                                                         \
        CHECK(!zt_cpu_backend.kernels->name(late_dev, NULL, arg, &f));                   \
    }                                                                                    \
    static zt_err UNUSED late_##name(struct zt_device *dev, struct zt_stream *s,         \
                                     const args *a, struct zt_fault *f)                  \
    {                                                                                    \
        (void)dev, (void)f;                                                              \
        late_queue(s, late_run_##name, a, sizeof(*a));                                   \
        return ZT_OK;                                                                    \
    }
LATE_KERNEL(rank_sum, struct zt_rank_sum_args)
LATE_KERNEL(axpby, struct zt_axpby_args)

/* The device of this process; it stays. */
static const struct zt_backend UNUSED *late_open(void)
{
    static struct zt_backend be;

    if (late_dev)
        return &be;
    be = zt_cpu_backend;
    late_kernels = *be.kernels;
    late_kernels.rank_sum = late_rank_sum;
    late_kernels.axpby = late_axpby;
    be.kernels = &late_kernels;
    be.name = "late";
    be.unified = false;
    be.alloc = late_alloc;
    be.copy = be.upload = be.download = late_copy;
    be.sync = late_sync;
    be.stream_open = late_stream_open;
    be.stream_close = late_stream_close;
    be.stream_native = late_native;
    be.event_open = late_event_open;
    be.event_close = late_event_close;
    be.event_record = late_event_record;
    be.event_wait = late_event_wait;
    be.event_passed = late_event_passed;
    DO(be.open(0, 1, &late_dev, &fault));
    return &be;
}

#endif
