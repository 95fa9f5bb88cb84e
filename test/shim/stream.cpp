/*
 * stream.cpp -- streams, events and launches: all of them only queue (queue.cpp runs).
 */
#include <atomic>
#include <time.h>

#include <memory>

#include "queue.h"

struct CUevent_st {
    shim_point recorded = {NULL, 0};
    std::shared_ptr<double> ms = std::make_shared<double>(-1.0);
    bool timing = true, destroyed = false;
};

/* never freed: a handle that is used after its end is recognised */
static std::vector<CUevent_st *> &events = *new std::vector<CUevent_st *>;

/* ---------------------------------------------------------------- handles */
static CUstream_st *stream_of(cudaStream_t s)
{
    if (!s)
        return shim_streams[0];
    for (CUstream_st *known : shim_streams)
        if (known == s)
            return s->destroyed ? NULL : s;
    return NULL;
}

static CUevent_st *event_of(cudaEvent_t e)
{
    for (CUevent_st *known : events)
        if (known == e)
            return e->destroyed ? NULL : e;
    return NULL;
}

/* ---------------------------------------------------------------- queueing */
cudaError_t shim_enqueue(cudaStream_t stream, shim_work work)
{
    shim_locked hold;
    CUstream_st *s = stream_of(stream);

    if (!s)
        return shim_error(cudaErrorInvalidResourceHandle);
    shim_push(s, std::move(work), {});
    return cudaSuccess;
}

static std::atomic<uint64_t> num_launches;

uint64_t shim_num_launches(void)
{
    return num_launches;
}

cudaError_t shim_enqueue_launch(cudaStream_t stream, shim_work work)
{
    static const bool only_counted = shim_option("SHIM_COUNT_ONLY", 0);

    num_launches++;
    if (only_counted)
        return cudaSuccess;
    work.run = [run = std::move(work.run)] {
        run();
        shim_take_time(1);
    };
    return shim_enqueue(stream, std::move(work));
}

cudaError_t shim_enqueue_call(const std::vector<cudaStream_t> &streams, shim_work work,
                              shim_point *last)
{
    shim_locked hold;
    std::vector<shim_point> after;
    CUstream_st *first = stream_of(streams[0]);

    if (!shim_is_done(*last))
        after.push_back(*last);
    for (cudaStream_t stream : streams) {
        CUstream_st *s = stream_of(stream);

        if (!s)
            return shim_error(cudaErrorInvalidResourceHandle);
        if (s != first && s->num_done < s->num_queued)
            after.push_back({s, s->num_queued});
    }
    shim_push(first, std::move(work), std::move(after));
    *last = {first, first->num_queued};
    for (cudaStream_t stream : streams)
        if (stream_of(stream) != first)
            shim_push(stream_of(stream), {NULL, "a wait", nullptr}, {*last});
    return cudaSuccess;
}

void shim_wait_for(shim_point p)
{
    shim_locked hold;

    shim_run_until(p, true);
}

/* ---------------------------------------------------------------- streams */
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags)
{
    shim_locked hold;

    if (!out || flags & ~(unsigned)cudaStreamNonBlocking)
        return shim_error(cudaErrorInvalidValue);
    shim_streams.push_back(new CUstream_st());
    *out = shim_streams.back();
    (*out)->with_null = !(flags & cudaStreamNonBlocking);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned int flags, int)
{
    return cudaStreamCreateWithFlags(out, flags);
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return cudaStreamCreateWithFlags(out, cudaStreamDefault);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

/* What is queued still runs, later. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    shim_locked hold;
    CUstream_st *s = stream_of(stream);

    if (!s || s == shim_streams[0])
        return shim_error(cudaErrorInvalidResourceHandle);
    s->destroyed = true;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    shim_locked hold;
    CUstream_st *s = stream_of(stream);

    if (!s)
        return shim_error(cudaErrorInvalidResourceHandle);
    shim_run_until({s, s->num_queued}, true);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    shim_locked hold;

    shim_finish_all();
    return cudaSuccess;
}

/*
 * Asking moves things on, so that a loop that asks comes to its end; but only where the
 * thread asks that queued, or a watchdog would decide what runs when.
 */
static cudaError_t query(shim_point p)
{
    if (shim_is_done(p))
        return cudaSuccess;
    if (shim_is_owner())
        shim_run_until({p.stream, p.stream->num_done + 1}, false);
    return shim_is_done(p) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    shim_locked hold;
    CUstream_st *s = stream_of(stream);

    return s ? query({s, s->num_queued}) : shim_error(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *ctx)
{
    return shim_enqueue(stream, {NULL, "a host function", [fn, ctx] { fn(ctx); }});
}

/* ---------------------------------------------------------------- events */
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags)
{
    shim_locked hold;

    if (!out)
        return shim_error(cudaErrorInvalidValue);
    events.push_back(new CUevent_st());
    *out = events.back();
    (*out)->timing = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    shim_locked hold;
    CUevent_st *e = event_of(event);

    if (!e)
        return shim_error(cudaErrorInvalidResourceHandle);
    e->destroyed = true;
    return cudaSuccess;
}

static double planted_ms; /* of the device's thread */

void shim_take_time(double ms)
{
    planted_ms += ms;
}

static double now_ms(void)
{
    static const bool planted = shim_option("SHIM_TIMES", 0);
    struct timespec ts;

    if (planted)
        return planted_ms;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec * 1e-6;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    shim_locked hold;
    CUevent_st *e = event_of(event);
    CUstream_st *s = stream_of(stream);
    std::shared_ptr<double> ms = std::make_shared<double>(-1.0);

    if (!e || !s)
        return shim_error(cudaErrorInvalidResourceHandle);
    shim_push(s, {NULL, "an event", [ms] { *ms = now_ms(); }}, {});
    e->ms = ms;
    e->recorded = {s, s->num_queued};
    return cudaSuccess;
}

static int64_t num_waits; /* of the process */

/* On what the event stands for now; later records do not count. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int)
{
    shim_locked hold;
    CUevent_st *e = event_of(event);
    CUstream_st *s = stream_of(stream);

    if (!e || !s)
        return shim_error(cudaErrorInvalidResourceHandle);
    if (++num_waits == shim_option("SHIM_DROP_WAIT", 0))
        return cudaSuccess;
    if (!shim_is_done(e->recorded))
        shim_push(s, {NULL, "a wait", nullptr}, {e->recorded});
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    shim_locked hold;
    CUevent_st *e = event_of(event);

    if (!e)
        return shim_error(cudaErrorInvalidResourceHandle);
    shim_run_until(e->recorded, true);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    shim_locked hold;
    CUevent_st *e = event_of(event);

    return e ? query(e->recorded) : shim_error(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    shim_locked hold;
    CUevent_st *a = event_of(start), *b = event_of(end);

    if (!a || !b || !a->timing || !b->timing || !a->recorded.stream ||
        !b->recorded.stream)
        return shim_error(cudaErrorInvalidResourceHandle);
    if (!shim_is_done(a->recorded) || !shim_is_done(b->recorded))
        return shim_error(cudaErrorNotReady);
    *ms = (float)(*b->ms - *a->ms);
    return cudaSuccess;
}

/* ---------------------------------------------------------------- launches */
cudaError_t shim_launch(const cudaLaunchConfig_t *config, const void *kernel,
                        std::function<void()> thread)
{
    dim3 g = config->gridDim, b = config->blockDim;
    bool good = g.x && g.y && g.z && g.x <= 0x7fffffffu && g.y <= 65535 && g.z <= 65535 &&
                b.x && b.y && b.z && b.x <= 1024 && b.y <= 1024 && b.z <= 64 &&
                (uint64_t)b.x * b.y * b.z <= 1024 && config->dynamicSmemBytes == 0;

    if (!kernel)
        return shim_error(cudaErrorInvalidDeviceFunction);
    if (!good)
        return shim_error(cudaErrorInvalidConfiguration);
    return shim_enqueue_launch(
        config->stream, {kernel, NULL, [g, b, thread] { shim_run_grid(g, b, thread); }});
}
