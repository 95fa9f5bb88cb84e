/*
 * stream.cpp -- queues, what they wait for, and the scheduler that picks among them.
 *
 * Work n of a stream may run once every stream it depends on has done as much as had been
 * queued there when the dependency was made. Dependencies point to work queued earlier,
 * so some stream can always go on.
 */
#include <time.h>

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "shim.h"

struct point {
    struct CUstream_st *stream;
    uint64_t upto; /* that many pieces of its work are done */
};

struct piece {
    shim_work work;
    std::vector<point> after;
    uint64_t order; /* of queueing, over all streams */
};

struct CUstream_st {
    std::deque<piece> queue;
    uint64_t num_queued = 0, num_done = 0;
    bool with_null = false; /* keeps the order of the NULL stream */
    bool destroyed = false;
};

struct CUevent_st {
    point recorded = {NULL, 0};
    std::shared_ptr<double> ms = std::make_shared<double>(-1.0);
    bool timing = true, destroyed = false;
};

/* never freed: a handle that is used after its end is recognised */
static std::vector<std::unique_ptr<CUstream_st>> streams;
static std::vector<std::unique_ptr<CUevent_st>> events;
static CUstream_st null_stream;
static uint64_t queued;
static const shim_work *running;

/* ---------------------------------------------------------------- random numbers */
static uint64_t seed, state;
static bool seeded;

void shim_set_seed(uint64_t s)
{
    seed = state = s;
    seeded = true;
}

static uint64_t seed_of_run(void)
{
    if (!seeded)
        shim_set_seed((uint64_t)shim_option("SHIM_SEED", 0));
    return seed;
}

uint64_t shim_random(void)
{
    uint64_t z;

    seed_of_run();
    z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* ---------------------------------------------------------------- handles */
static CUstream_st *stream_of(cudaStream_t s)
{
    if (!s)
        return &null_stream;
    for (const auto &known : streams)
        if (known.get() == s)
            return s->destroyed ? NULL : s;
    return NULL;
}

static CUevent_st *event_of(cudaEvent_t e)
{
    for (const auto &known : events)
        if (known.get() == e)
            return e->destroyed ? NULL : e;
    return NULL;
}

/* ---------------------------------------------------------------- queueing */
static bool is_done(point p)
{
    return !p.stream || p.stream->num_done >= p.upto;
}

static void add_point(std::vector<point> *after, CUstream_st *s)
{
    if (s->num_done < s->num_queued)
        after->push_back({s, s->num_queued});
}

static void push(CUstream_st *s, shim_work work, std::vector<point> after)
{
    if (running)
        shim_die("the work of a stream calls the runtime");
    if (s == &null_stream) {
        for (const auto &other : streams)
            if (other->with_null)
                add_point(&after, other.get());
    } else if (s->with_null) {
        add_point(&after, &null_stream);
    }
    s->queue.push_back({std::move(work), std::move(after), queued++});
    s->num_queued++;
}

cudaError_t shim_enqueue(cudaStream_t stream, shim_work work)
{
    CUstream_st *s = stream_of(stream);

    if (!s)
        return shim_error(cudaErrorInvalidResourceHandle);
    push(s, std::move(work), {});
    return cudaSuccess;
}

const shim_work *shim_running(void)
{
    return running;
}

/* ---------------------------------------------------------------- running */
static bool can_run(const CUstream_st *s)
{
    if (s->queue.empty())
        return false;
    for (const point &p : s->queue.front().after)
        if (!is_done(p))
            return false;
    return true;
}

static void run_one(CUstream_st *s)
{
    piece p = std::move(s->queue.front());

    s->queue.pop_front();
    running = &p.work;
    if (p.work.run) {
        p.work.run();
        shim_memory_check();
    }
    running = NULL;
    s->num_done++;
}

static std::vector<CUstream_st *> all_streams(void)
{
    std::vector<CUstream_st *> all = {&null_stream};

    for (const auto &s : streams)
        all.push_back(s.get());
    return all;
}

/* How far each stream must come before `goal` is reached. */
typedef std::map<CUstream_st *, uint64_t> needs;

static void need(needs *n, point goal)
{
    uint64_t &upto = (*n)[goal.stream];
    uint64_t before = upto > goal.stream->num_done ? upto : goal.stream->num_done;

    if (goal.upto <= before)
        return;
    upto = goal.upto;
    for (uint64_t i = before; i < goal.upto; i++)
        for (const point &p : goal.stream->queue[i - goal.stream->num_done].after)
            if (!is_done(p))
                need(n, p);
}

static CUstream_st *last_queued(const std::vector<CUstream_st *> &from)
{
    CUstream_st *best = NULL;

    for (CUstream_st *s : from)
        if (!best || s->queue.back().order > best->queue.back().order)
            best = s;
    return best;
}

/* Runs what `goal` needs and nothing else. */
static void run_needed(point goal, bool drawn)
{
    while (!is_done(goal)) {
        std::vector<CUstream_st *> ready;
        needs n;

        need(&n, goal);
        for (const auto &[s, upto] : n)
            if (s->num_done < upto && can_run(s))
                ready.push_back(s);
        if (ready.empty())
            shim_die("streams wait for each other");
        run_one(drawn ? ready[shim_random() % ready.size()] : last_queued(ready));
    }
}

/* Runs whatever can run until `goal` is reached. */
static void run_any(point goal, bool drawn)
{
    while (!is_done(goal)) {
        std::vector<CUstream_st *> ready;
        CUstream_st *s;

        for (CUstream_st *one : all_streams())
            if (can_run(one))
                ready.push_back(one);
        if (ready.empty())
            shim_die("streams wait for each other");
        s = drawn ? ready[shim_random() % ready.size()] : last_queued(ready);
        do
            run_one(s);
        while (!drawn && can_run(s) && !is_done(goal));
    }
}

static void reach(point goal)
{
    uint64_t order = seed_of_run();

    if (is_done(goal))
        return;
    shim_memory_open();
    if (order == 0)
        run_any(goal, false);
    else if (order == 1 || shim_random() & 1)
        run_needed(goal, order != 1);
    else
        run_any(goal, true);
    shim_memory_close();
}

void shim_finish_all(void)
{
    /* the one queued to last first, here as well */
    for (;;) {
        std::vector<CUstream_st *> busy;
        CUstream_st *s;

        for (CUstream_st *one : all_streams())
            if (!one->queue.empty())
                busy.push_back(one);
        if (busy.empty())
            return;
        s = last_queued(busy);
        reach({s, s->num_queued});
    }
}

/* ---------------------------------------------------------------- streams */
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags)
{
    if (!out || flags & ~(unsigned)cudaStreamNonBlocking)
        return shim_error(cudaErrorInvalidValue);
    streams.push_back(std::make_unique<CUstream_st>());
    *out = streams.back().get();
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
    CUstream_st *s = stream_of(stream);

    if (!s || s == &null_stream)
        return shim_error(cudaErrorInvalidResourceHandle);
    s->destroyed = true;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    CUstream_st *s = stream_of(stream);

    if (!s)
        return shim_error(cudaErrorInvalidResourceHandle);
    reach({s, s->num_queued});
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    shim_finish_all();
    return cudaSuccess;
}

/* Asking moves things on, so that a loop that asks comes to its end. */
static cudaError_t query(point p)
{
    if (is_done(p))
        return cudaSuccess;
    reach({p.stream, p.stream->num_done + 1});
    return is_done(p) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
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
    if (!out)
        return shim_error(cudaErrorInvalidValue);
    events.push_back(std::make_unique<CUevent_st>());
    *out = events.back().get();
    (*out)->timing = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    CUevent_st *e = event_of(event);

    if (!e)
        return shim_error(cudaErrorInvalidResourceHandle);
    e->destroyed = true;
    return cudaSuccess;
}

static double now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec * 1e-6;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    CUevent_st *e = event_of(event);
    CUstream_st *s = stream_of(stream);
    std::shared_ptr<double> ms = std::make_shared<double>(-1.0);

    if (!e || !s)
        return shim_error(cudaErrorInvalidResourceHandle);
    push(s, {NULL, "an event", [ms] { *ms = now_ms(); }}, {});
    e->ms = ms;
    e->recorded = {s, s->num_queued};
    return cudaSuccess;
}

/* On what the event stands for now; later records do not count. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int)
{
    CUevent_st *e = event_of(event);
    CUstream_st *s = stream_of(stream);

    if (!e || !s)
        return shim_error(cudaErrorInvalidResourceHandle);
    if (!is_done(e->recorded))
        push(s, {NULL, "a wait", nullptr}, {e->recorded});
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    CUevent_st *e = event_of(event);

    if (!e)
        return shim_error(cudaErrorInvalidResourceHandle);
    reach(e->recorded);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    CUevent_st *e = event_of(event);

    return e ? query(e->recorded) : shim_error(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    CUevent_st *a = event_of(start), *b = event_of(end);

    if (!a || !b || !a->timing || !b->timing || !a->recorded.stream ||
        !b->recorded.stream)
        return shim_error(cudaErrorInvalidResourceHandle);
    if (!is_done(a->recorded) || !is_done(b->recorded))
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
    return shim_enqueue(config->stream,
                        {kernel, NULL, [g, b, thread] { shim_run_grid(g, b, thread); }});
}
