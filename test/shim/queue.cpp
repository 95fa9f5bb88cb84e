/*
 * queue.cpp -- the device: one thread that runs queued work, in an unexpected order.
 *
 * Work n of a stream may run once every stream it depends on has done as much as had been
 * queued there when the dependency was made. Dependencies point to work queued earlier,
 * so some stream can always go on, or waits for another process.
 *
 *      a host thread waits -> goal -> the device picks a piece, runs it without the lock
 *                          <- reached; memory is closed before anybody is told
 *
 * Without a goal the device sleeps. Two things it does unasked, as a real one would: what
 * has started and waited for peers goes on, and a call for which a peer has been waiting
 * for GRACE_MS is run with all it needs, or two processes whose hosts wait for different
 * things would stand still.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "queue.h"

static const double GRACE_MS = 20;

struct goal {
    shim_point at;
    bool patient, known, any, drawn; /* known: any and drawn have been set */
    bool over;
};

static std::vector<goal *> &goals = *new std::vector<goal *>;
std::vector<CUstream_st *> &shim_streams =
    *new std::vector<CUstream_st *>{new CUstream_st()};
static CUstream_st *draining; /* goes on while it can, of an undrawn order */
static uint64_t queued;
static pthread_t owner;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
static std::atomic<int> wake_fd{-1};
static bool has_device, busy;
static const shim_work *running;
/* read by a handler of faults, so nothing may allocate it late */
static thread_local bool on_device __attribute__((tls_model("initial-exec")));

static void start_device(void);

shim_locked::shim_locked()
{
    pthread_mutex_lock(&lock);
}

shim_locked::~shim_locked()
{
    pthread_mutex_unlock(&lock);
}

const shim_work *shim_running(void)
{
    return on_device ? running : NULL;
}

bool shim_on_device(void)
{
    return on_device;
}

/* ---------------------------------------------------------------- queueing */
bool shim_is_done(shim_point p)
{
    return !p.stream || p.stream->num_done >= p.upto;
}

bool shim_is_owner(void)
{
    return pthread_equal(owner, pthread_self());
}

static void add_point(std::vector<shim_point> *after, CUstream_st *s)
{
    if (s->num_done < s->num_queued)
        after->push_back({s, s->num_queued});
}

void shim_push(CUstream_st *s, shim_work work, std::vector<shim_point> after)
{
    bool watched = work.call != NULL;

    if (on_device)
        shim_die("the work of a stream calls the runtime");
    if (s == shim_streams[0]) {
        for (CUstream_st *other : shim_streams)
            if (other->with_null)
                add_point(&after, other);
    } else if (s->with_null) {
        add_point(&after, shim_streams[0]);
    }
    s->queue.push_back({std::move(work), std::move(after), queued++, false, 0});
    s->num_queued++;
    owner = pthread_self();
    if (watched) { /* a peer may knock before this process waits for anything */
        if (!has_device)
            start_device();
        shim_wake();
    }
}

/* ---------------------------------------------------------------- what may run */
static bool can_run(const CUstream_st *s)
{
    if (s->queue.empty() || s->blocked)
        return false;
    for (const shim_point &p : s->queue.front().after)
        if (!shim_is_done(p))
            return false;
    return true;
}

/* How far each stream must come before a goal is reached. */
typedef std::map<CUstream_st *, uint64_t> needs;

static void need(needs *n, shim_point at)
{
    uint64_t &upto = (*n)[at.stream];
    uint64_t before = std::max(upto, at.stream->num_done);

    if (at.upto <= before)
        return;
    upto = at.upto;
    for (uint64_t i = before; i < at.upto; i++)
        for (const shim_point &p : at.stream->queue[i - at.stream->num_done].after)
            if (!shim_is_done(p))
                need(n, p);
}

static std::vector<CUstream_st *> ready_of(shim_point at)
{
    std::vector<CUstream_st *> ready;
    needs n;

    need(&n, at);
    for (const auto &[s, upto] : n)
        if (s->num_done < upto && can_run(s))
            ready.push_back(s);
    return ready;
}

static std::vector<CUstream_st *> all_ready(void)
{
    std::vector<CUstream_st *> ready;

    for (CUstream_st *s : shim_streams)
        if (can_run(s))
            ready.push_back(s);
    return ready;
}

static CUstream_st *last_queued(const std::vector<CUstream_st *> &from)
{
    CUstream_st *best = NULL;

    for (CUstream_st *s : from)
        if (!best || s->queue.back().order > best->queue.back().order)
            best = s;
    return best;
}

/* ---------------------------------------------------------------- whose turn it is */
static CUstream_st *pick(goal *g)
{
    std::vector<CUstream_st *> ready;
    uint64_t order = shim_seed();

    if (!g->known) {
        g->drawn = order > 1;
        g->any = order != 1 && (order == 0 || !(shim_random() & 1));
        g->known = true;
    }
    ready = g->any ? all_ready() : ready_of(g->at);
    if (ready.empty())
        return NULL;
    if (g->drawn)
        return ready[shim_random() % ready.size()];
    if (!g->any || std::find(ready.begin(), ready.end(), draining) == ready.end())
        draining = last_queued(ready);
    return draining;
}

static double now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec * 1e-6;
}

/* Nobody asked for it, but it has started, or a peer needs it. */
static CUstream_st *pick_unasked(void)
{
    double now = now_ms();

    for (CUstream_st *s : shim_streams)
        if (can_run(s) && s->queue.front().started)
            return s;
    for (CUstream_st *s : shim_streams)
        for (size_t i = 0; i < s->queue.size(); i++) {
            const shim_queued_work &p = s->queue[i];
            CUstream_st *best;

            if (p.started || p.peer_waits_since_ms == 0 ||
                now - p.peer_waits_since_ms < GRACE_MS)
                continue;
            best = last_queued(ready_of({s, s->num_done + i + 1}));
            if (best)
                return best;
        }
    return NULL;
}

static CUstream_st *pick_any_goal(void)
{
    for (goal *g : goals) {
        CUstream_st *s = pick(g);

        if (s)
            return s;
    }
    return NULL;
}

/* ---------------------------------------------------------------- running */
static void run_one(CUstream_st *s)
{
    shim_queued_work &p = s->queue.front(); /* stays in place while others are queued */
    bool done = true;

    busy = true;
    running = &p.work;
    p.started = p.work.call != NULL;
    pthread_mutex_unlock(&lock);
    if (p.work.run)
        p.work.run();
    else if (p.work.call)
        done = p.work.call->go_on();
    pthread_mutex_lock(&lock);
    if (p.work.run || p.work.call)
        shim_memory_check();
    running = NULL;
    busy = false;
    s->blocked = !done;
    if (!done)
        return;
    s->queue.pop_front();
    s->num_done++;
}

/* Ends the goals that are reached; those who wait find memory closed. */
static void settle(bool stuck)
{
    auto ended = [stuck](goal *g) {
        g->over = shim_is_done(g->at) || (stuck && !g->patient);
        return g->over;
    };
    size_t before = goals.size();

    goals.erase(std::remove_if(goals.begin(), goals.end(), ended), goals.end());
    if (goals.size() < before)
        draining = NULL;
    if (goals.empty())
        shim_memory_close();
    pthread_cond_broadcast(&told);
}

/* Until peers or the host do something. */
static void sleep_on(void)
{
    std::vector<struct pollfd> fds = {{wake_fd, POLLIN, 0}};
    std::vector<shim_queued_work *>
        watched; /* by fd, from fds[1] on; NULL: it has started */
    double wait = -1, now = now_ms();
    uint64_t drain;
    int n;

    for (CUstream_st *s : shim_streams)
        for (shim_queued_work &p : s->queue) {
            if (!p.work.call)
                continue;
            if (p.peer_waits_since_ms > 0 && !p.started) {
                double left = std::max(p.peer_waits_since_ms + GRACE_MS - now, 0.0);

                if (left > 0)
                    wait = wait < 0 ? left : std::min(wait, left);
            } else {
                p.work.call->waits_for(&fds);
                watched.resize(fds.size() - 1, p.started ? NULL : &p);
            }
        }
    pthread_mutex_unlock(&lock);
    n = poll(fds.data(), fds.size(), wait < 0 ? -1 : (int)wait + 1);
    if (n > 0 && fds[0].revents & POLLIN && read(wake_fd, &drain, sizeof(drain)) < 0 &&
        errno != EAGAIN)
        shim_die("the device cannot be woken");
    pthread_mutex_lock(&lock);
    for (size_t i = 1; n > 0 && i < fds.size(); i++)
        if (fds[i].revents && watched[i - 1])
            watched[i - 1]->peer_waits_since_ms = now_ms();
    for (CUstream_st *s : shim_streams)
        s->blocked = false;
}

static bool any_blocked(void)
{
    for (CUstream_st *s : shim_streams)
        if (s->blocked)
            return true;
    return false;
}

static void device_main(void)
{
    on_device = true;
    shim_faults_on_device();
    pthread_mutex_lock(&lock);
    for (;;) {
        CUstream_st *s;

        settle(false);
        s = pick_any_goal();
        if (!s && !goals.empty() && !any_blocked())
            shim_die("streams wait for each other");
        if (!s)
            s = pick_unasked();
        if (s) {
            shim_memory_open();
            run_one(s);
        } else {
            settle(true);
            sleep_on();
        }
    }
}

/* ---------------------------------------------------------------- the thread */
void shim_wake(void)
{
    const uint64_t one = 1;

    if (wake_fd >= 0 && write(wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
        shim_die("the device cannot be woken");
}

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
    while (busy)
        pthread_cond_wait(&told, &lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

/* A child has the memory and the queues, and a device of its own when it asks. */
static void in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&told, NULL);
    if (wake_fd >= 0)
        close(wake_fd);
    wake_fd = -1;
    has_device = false;
    goals.clear();
    shim_memory_close();
}

static void start_device(void)
{
    static bool once;

    if (!once)
        pthread_atfork(before_fork, after_fork, in_child);
    once = true;
    wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd < 0)
        shim_die("no descriptor to wake the device with");
    shim_new_thread(device_main);
    has_device = true;
}

bool shim_run_until(shim_point p, bool patient)
{
    goal g = {p, patient, false, false, false, false};

    if (shim_is_done(p))
        return true;
    if (on_device)
        shim_die("the work of a stream waits for a stream");
    if (!has_device)
        start_device();
    goals.push_back(&g);
    shim_wake();
    while (!g.over)
        pthread_cond_wait(&told, &lock);
    return shim_is_done(p);
}

void shim_finish_all(void)
{
    /* the one queued to last first, here as well */
    for (;;) {
        std::vector<CUstream_st *> some;
        CUstream_st *s;

        for (CUstream_st *one : shim_streams)
            if (!one->queue.empty())
                some.push_back(one);
        s = last_queued(some);
        if (!s)
            return;
        shim_run_until({s, s->num_queued}, true);
    }
}
