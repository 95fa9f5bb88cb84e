#include "kernels/cpu/parallel.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

#ifdef ZT_PARALLEL_PTHREADS
#include <dlfcn.h>
#else
#include <omp.h>
#endif

static int num_threads = 1;

/* One parallel region: `body` runs on every thread of the team. */
typedef void (*team_fn)(int thread, int team, void *ctx);

/*
 * For a thread of the pool: a handler on it would write its frame to where the stack pointer
 * is, and in kernels that oneDNN has written that is among their data; the first thread has
 * zt_signal_stack_open() for it. Faults are the thread's own and come all the same.
 */
static void block_signals(void)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP};
    static _Thread_local bool are_blocked;
    sigset_t set;

    if (are_blocked)
        return;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
        sigdelset(&set, faults[i]);
    are_blocked = pthread_sigmask(SIG_BLOCK, &set, NULL) == 0;
}

static int clamp_threads(int n)
{
    return n < 1 ? 1 : n > ZT_MAX_THREADS ? ZT_MAX_THREADS : n;
}

int zt_num_threads(void)
{
    return num_threads;
}

#ifdef ZT_PARALLEL_PTHREADS

/* The pool: workers wait for a generation newer than the one they finished. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t start, done;
    pthread_t thread[ZT_MAX_THREADS];
    int workers, running;
    uint64_t generation;
    bool quit;
    team_fn fn;
    void *ctx;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .start = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER};

static _Thread_local bool inside;

/* oneDNN brings its own OpenMP, which would start a team under every thread of ours */
static void keep_openmp_serial(void)
{
    void (*set)(int) = NULL;

    *(void **)&set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (set)
        set(1);
}

struct worker_start {
    int thread;
    uint64_t generation;
};
static struct worker_start starts[ZT_MAX_THREADS];

static void *worker_main(void *arg)
{
    const struct worker_start *w = arg;
    uint64_t seen = w->generation;

    inside = true;
    block_signals();
    keep_openmp_serial();
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (pool.generation == seen && !pool.quit)
            pthread_cond_wait(&pool.start, &pool.lock);
        if (pool.quit)
            break;
        seen = pool.generation;
        pthread_mutex_unlock(&pool.lock);
        pool.fn(w->thread, pool.workers + 1, pool.ctx);
        pthread_mutex_lock(&pool.lock);
        if (--pool.running == 0)
            pthread_cond_signal(&pool.done);
    }
    pthread_mutex_unlock(&pool.lock);
    return NULL;
}

static void stop_workers(void)
{
    pthread_mutex_lock(&pool.lock);
    pool.quit = true;
    pthread_cond_broadcast(&pool.start);
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; i < pool.workers; i++)
        pthread_join(pool.thread[i], NULL);
    pool.workers = 0;
    pool.quit = false;
}

void zt_set_num_threads(int n)
{
    n = clamp_threads(n);
    keep_openmp_serial();
    stop_workers();
    while (pool.workers < n - 1) {
        starts[pool.workers] = (struct worker_start){pool.workers + 1, pool.generation};
        if (pthread_create(&pool.thread[pool.workers], NULL, worker_main,
                           &starts[pool.workers]) != 0)
            break;
        pool.workers++;
    }
    num_threads = pool.workers + 1;
}

__attribute__((destructor)) static void stop_at_exit(void)
{
    stop_workers();
}

bool zt_in_parallel(void)
{
    return inside;
}

static void run_team(team_fn fn, void *ctx)
{
    pthread_mutex_lock(&pool.lock);
    pool.fn = fn;
    pool.ctx = ctx;
    pool.running = pool.workers;
    pool.generation++;
    pthread_cond_broadcast(&pool.start);
    pthread_mutex_unlock(&pool.lock);
    inside = true;
    fn(0, pool.workers + 1, ctx);
    inside = false;
    pthread_mutex_lock(&pool.lock);
    while (pool.running > 0)
        pthread_cond_wait(&pool.done, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

#else

void zt_set_num_threads(int n)
{
    num_threads = clamp_threads(n);
    omp_set_dynamic(0);
    omp_set_num_threads(1); /* of those who do not say how many: oneDNN */
}

bool zt_in_parallel(void)
{
    return omp_in_parallel();
}

static void run_team(team_fn fn, void *ctx)
{
    /* a smaller team than asked for still covers every part: parts follow its size */
#pragma omp parallel num_threads(num_threads)
    {
        if (omp_get_thread_num())
            block_signals();
        fn(omp_get_thread_num(), omp_get_num_threads(), ctx);
    }
}

#endif

struct range_job {
    int64_t n, grain;
    zt_range_fn fn;
    void *ctx;
};

static void run_range(int thread, int team, void *arg)
{
    const struct range_job *job = arg;
    int64_t units = job->n / job->grain + (job->n % job->grain != 0);
    int64_t begin = units * thread / team * job->grain;
    int64_t end = units * (thread + 1) / team * job->grain;

    if (end > job->n)
        end = job->n;
    if (begin < end)
        job->fn(begin, end, thread, job->ctx);
}

void zt_parallel_for(int64_t n, int64_t grain, zt_range_fn fn, void *ctx)
{
    struct range_job job = {n, grain < 1 ? 1 : grain, fn, ctx};

    if (n <= 0)
        return;
    if (n <= job.grain || num_threads == 1 || zt_in_parallel()) {
        fn(0, n, 0, ctx);
        return;
    }
    run_team(run_range, &job);
}

struct task_job {
    int64_t n;
    zt_task_fn fn;
    void *ctx;
    atomic_int_fast64_t next;
};

static void run_tasks(int thread, int team, void *arg)
{
    struct task_job *job = arg;
    int64_t i;

    (void)team;
    while ((i = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed)) < job->n)
        job->fn(i, thread, job->ctx);
}

void zt_parallel_tasks(int64_t n, zt_task_fn fn, void *ctx)
{
    struct task_job job = {n, fn, ctx, 0};

    if (n == 1 || num_threads == 1 || zt_in_parallel()) {
        for (int64_t i = 0; i < n; i++)
            fn(i, 0, ctx);
        return;
    }
    if (n > 1)
        run_team(run_tasks, &job);
}
