/*
 * bench_comm.c -- collectives between ranks of this machine, beside what its memory
 * allows for the same bytes.
 *
 *      bench_comm [--world N] [--largest MiB] [--rounds N] [--kib N] [--lines] [--fresh]
 *                 [--overlap]
 *
 * A row is one collective on one vector, in place. GB/s is bytes of the whole vector of a
 * rank over the time of one call, of back-to-back calls until all ranks are done; the
 * best of `rounds` short batches, or of fewer where they take long. Columns:
 *      shm     the engine; vectors lie in zt_comm_alloc() memory (heap) or malloc's
 *      limit   the loops of comm_limit.h: the same bytes read and written, no waiting
 *      share   shm / limit
 *      synced  the fastest of these loops between two bare barriers: each rank writes a
 *              word and waits for the others'. Who works in place cannot do without
 *      memcpy  each rank copies its share (bytes / ranks) between private buffers
 *      wrong   elements of a last result that differ from the exact sum
 * Ways take turns in every round, so that a busy machine hits all of them. --lines prints
 * `collective bytes shm limit memcpy wrong synced` of fp32 in the heap, for
 * bench/run_comm. --kib: of vectors of that size alone.
 * --fresh: before every call each rank writes what it gives anew, as the work between two
 * collectives does, and calls are timed one by one, between barriers. Without it nothing
 * changes between calls: up to a few hundred KiB each core then finds its peers' bytes in
 * its own caches, and the limit's loops, which do not wait, never take a byte from another core.
 * --overlap: what an asynchronous reduce_scatter costs a compute loop beside it.
 */
#include "bench/comm_limit.h"
#include "worker/comm/comm.h"
#include "worker/comm/shm/abort.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_WORLD 64
#define BATCH_S   0.002 /* the calls of a batch take about this long: less than the */
#define CELL_S    1.0   /* kernel's time slice, so that some batch is undisturbed */

typedef enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, NUM_KIND } kind;
static const char *const kind_names[] = {"all_reduce", "reduce_scatter", "all_gather"};

/* PLAIN to STREAM are the limit's: by loops, copies by memcpy, past the caches. */
typedef enum way { ENGINE, PLAIN, LIBC, STREAM, SYNCED, MEMCPY, NUM_WAY } way;

struct options {
    int world, rounds;
    size_t largest;
    size_t only_kib; /* one size alone; 0: all */
    bool lines, fresh, overlap;
};

struct rank {
    const struct options *opt;
    struct zt_comm *c;
    int rank, world;
    char *all[MAX_WORLD]; /* the vectors of all ranks, in one shared piece */
    char *own, *to;       /* private, as long */
    struct word *words;   /* (world) shared: of bare barriers */
    uint32_t phase;
    way fastest; /* of the limit's, for SYNCED */
};

/* The barriers a rank arrived at, in lines of its own. */
struct word {
    _Atomic uint32_t phase __attribute__((aligned(128)));
};

/* One row: a collective on a vector of `count` elements at `buf`. */
struct task {
    kind what;
    char *buf;
    size_t count, piece; /* elements; of one rank */
    zt_dtype dtype;
};

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static double now_s(void)
{
    return (double)now_ns() * 1e-9;
}

static void must(zt_err rc, const struct zt_fault *fault)
{
    if (!rc)
        return;
    fprintf(stderr, "bench_comm: %s\n", fault->text);
    exit(1);
}

/* The largest of all ranks' values. */
static double largest_of(struct rank *k, double x)
{
    float v = (float)x;
    struct zt_fault fault;

    must(zt_all_reduce(k->c, &v, &v, 1, ZT_F32, ZT_MAX, 1.0f, &fault), &fault);
    return (double)v;
}

/* ---------------------------------------------------------------- values */
/* Every rank puts small whole numbers, so that any sum is exact. */
static float value(int rank, size_t i)
{
    return (float)((int)(i % 13) - 6 + rank);
}

static void fill(char *buf, size_t count, zt_dtype dtype, int rank)
{
    for (size_t i = 0; i < count; i++) {
        float x = value(rank, i);
        uint32_t u;

        memcpy(&u, &x, sizeof(u));
        if (dtype == ZT_F32)
            memcpy(buf + i * 4, &u, 4);
        else
            ((uint16_t *)buf)[i] = (uint16_t)(u >> 16);
    }
}

static float expected(const struct rank *k, const struct task *t, size_t i)
{
    float sum = 0;

    if (t->what == ALL_GATHER)
        return value((int)(i / t->piece), i % t->piece);
    for (int r = 0; r < k->world; r++)
        sum += value(r, t->what == REDUCE_SCATTER ? i + (size_t)k->rank * t->piece : i);
    return sum;
}

static size_t count_wrong(const struct rank *k, const struct task *t)
{
    size_t elem = zt_dtype_bytes(t->dtype), wrong = 0;
    size_t mine = (size_t)k->rank * t->piece * elem;
    const char *at = t->buf + (t->what == REDUCE_SCATTER ? mine : 0);
    size_t n = t->what == REDUCE_SCATTER ? t->piece : t->count;

    for (size_t i = 0; i < n; i++) {
        uint32_t u = 0;
        float got;

        if (t->dtype == ZT_F32)
            memcpy(&u, at + i * 4, 4);
        else
            u = (uint32_t)((const uint16_t *)at)[i] << 16;
        memcpy(&got, &u, sizeof(got));
        wrong += expected(k, t, i) != got;
    }
    return wrong;
}

/* ---------------------------------------------------------------- the ways */
static void engine_once(struct rank *k, const struct task *t, float scale)
{
    char *mine = t->buf + (size_t)k->rank * t->piece * zt_dtype_bytes(t->dtype);
    struct zt_fault fault;
    zt_err rc;

    if (t->what == ALL_REDUCE)
        rc = zt_all_reduce(k->c, t->buf, t->buf, t->count, t->dtype, ZT_SUM, scale,
                           &fault);
    else if (t->what == REDUCE_SCATTER)
        rc = zt_reduce_scatter(k->c, t->buf, mine, t->piece, t->dtype, scale, &fault);
    else
        rc = zt_all_gather(k->c, mine, t->buf, t->piece, t->dtype, &fault);
    must(rc, &fault);
}

static bool is_at(const struct word *w, uint32_t phase)
{
    return (int32_t)(atomic_load_explicit(&w->phase, memory_order_acquire) - phase) >= 0;
}

static void bare_barrier(struct rank *k)
{
    k->phase++;
    atomic_store_explicit(&k->words[k->rank].phase, k->phase, memory_order_release);
    for (int r = 0; r < k->world; r++)
        for (unsigned i = 1; !is_at(&k->words[r], k->phase); i++) {
            limit_pause();
            if (i % 1024 == 0) /* more ranks than cores */
                sched_yield();
        }
}

/* The bytes of the collective, in all ranks' vectors. */
static void limit_once(struct rank *k, const struct task *t, way w)
{
    limit_how how = w == STREAM ? LIMIT_STREAM : w == LIBC ? LIMIT_MEMCPY : LIMIT_LOOP;
    size_t piece = t->piece * zt_dtype_bytes(t->dtype) / sizeof(float);
    size_t mine = (size_t)k->rank * piece;
    float *src[MAX_WORLD], *dst[MAX_WORLD];

    for (int r = 0; r < k->world; r++)
        src[r] = dst[r] = (float *)k->all[r] + mine;
    if (t->what == ALL_REDUCE) {
        limit_sum(dst, k->world, src, k->world, piece, how == LIMIT_STREAM);
    } else if (t->what == REDUCE_SCATTER) {
        limit_sum(dst + k->rank, 1, src, k->world, piece, how == LIMIT_STREAM);
    } else {
        for (int i = 1; i < k->world; i++) {
            size_t r = (size_t)((k->rank + i) % k->world);

            limit_put((float *)k->all[k->rank] + r * piece,
                      (float *)k->all[r] + r * piece, piece, how);
        }
    }
}

static void once(struct rank *k, const struct task *t, way w)
{
    if (w == ENGINE)
        engine_once(k, t, 0.5f);
    else if (w == MEMCPY)
        memcpy(k->to, k->own, t->piece * zt_dtype_bytes(t->dtype));
    else if (w != SYNCED)
        limit_once(k, t, w);
    else {
        bare_barrier(k);
        limit_once(k, t, k->fastest);
        bare_barrier(k);
    }
}

/* Write what this rank gives, where the way takes it from. */
static void renew(struct rank *k, const struct task *t, way w, int turn)
{
    size_t n = t->count * zt_dtype_bytes(t->dtype) / sizeof(float), first = 0;
    char *from = w == ENGINE ? t->buf : w == MEMCPY ? k->own : k->all[k->rank];

    if (t->what == ALL_GATHER) {
        n /= (size_t)k->world;
        first = w == MEMCPY ? 0 : (size_t)k->rank * n;
    }
    for (size_t i = 0; i < n; i++)
        ((float *)from)[first + i] = (float)turn;
}

/* What two looks at the clock say apart from the time between them. */
static int64_t clock_ns(void)
{
    int64_t least = INT64_MAX;

    for (int i = 0; i < 100; i++) {
        int64_t from = now_ns(), ns = now_ns() - from;

        least = ns < least ? ns : least;
    }
    return least;
}

/* Seconds of one of `reps` runs on values that were just written: the slowest rank's sum. */
static double batch_fresh(struct rank *k, const struct task *t, way w, int reps)
{
    struct zt_fault fault;
    int64_t spent = -reps * clock_ns();

    for (int i = 0; i < reps; i++) {
        renew(k, t, w, i);
        must(zt_barrier(k->c, &fault), &fault);
        spent -= now_ns();
        once(k, t, w);
        spent += now_ns();
        must(zt_barrier(k->c, &fault), &fault); /* nobody writes what peers still read */
    }
    must(zt_all_reduce(k->c, &spent, &spent, 1, ZT_I64, ZT_MAX, 1.0f, &fault), &fault);
    return (double)spent * 1e-9 / reps;
}

/* Seconds of one of `reps` runs, from the first rank's start to the last one's end. */
static double batch(struct rank *k, const struct task *t, way w, int reps)
{
    struct zt_fault fault;
    int64_t span[2];

    if (k->opt->fresh)
        return batch_fresh(k, t, w, reps);
    once(k, t, w); /* the caches hold what this way leaves there, not the one before */
    for (int i = 0; i < 2; i++) /* after the first all are awake */
        must(zt_barrier(k->c, &fault), &fault);
    span[0] = -now_ns();
    for (int i = 0; i < reps; i++)
        once(k, t, w);
    span[1] = now_ns();
    must(zt_all_reduce(k->c, span, span, 2, ZT_I64, ZT_MAX, 1.0f, &fault), &fault);
    return (double)(span[0] + span[1]) * 1e-9 / reps;
}

/* ---------------------------------------------------------------- rows */
static void measure(struct rank *k, const struct task *t, double *best)
{
    int reps[NUM_WAY];
    double spent = 0;

    k->fastest = PLAIN;
    for (int w = 0; w < NUM_WAY; w++) {
        double one = batch(k, t, (way)w, 2);

        best[w] = batch(k, t, (way)w, 2);
        one = one < best[w] ? one : best[w];
        reps[w] = one < BATCH_S / 2000 ? 2000 : one > BATCH_S ? 1 : (int)(BATCH_S / one);
    }
    for (int i = 0; i < k->opt->rounds && (i < 5 || spent < CELL_S); i++)
        for (int w = 0; w < NUM_WAY; w++) {
            double s = batch(k, t, (way)w, reps[w]);

            best[w] = s < best[w] ? s : best[w];
            spent += s * reps[w]; /* the same on all ranks */
            if (w >= PLAIN && w <= STREAM && best[w] < best[k->fastest])
                k->fastest = (way)w;
        }
}

static size_t check(struct rank *k, const struct task *t)
{
    size_t piece = t->piece, elem = zt_dtype_bytes(t->dtype);
    struct zt_fault fault;

    if (t->what == ALL_GATHER)
        fill(t->buf + (size_t)k->rank * piece * elem, piece, t->dtype, k->rank);
    else
        fill(t->buf, t->count, t->dtype, k->rank);
    must(zt_barrier(k->c, &fault), &fault);
    engine_once(k, t, 1.0f);
    return (size_t)largest_of(k, (double)count_wrong(k, t));
}

static void row(struct rank *k, kind what, bool heap, size_t bytes, zt_dtype dtype)
{
    size_t elem = zt_dtype_bytes(dtype), world = (size_t)k->world;
    struct task t = {.what = what,
                     .buf = heap ? k->all[k->rank] : k->own,
                     .piece = bytes / elem / world,
                     .dtype = dtype};
    double best[NUM_WAY], gb, limit;
    size_t wrong;

    t.count = t.piece * world;
    gb = (double)(t.count * elem) * 1e-9;
    memset(t.buf, 0, t.count * elem);
    measure(k, &t, best);
    wrong = check(k, &t);
    if (k->rank)
        return;
    limit = best[k->fastest];
    if (k->opt->lines)
        printf("%s %zu %.3f %.3f %.3f %zu %.3f\n", kind_names[what], bytes,
               gb / best[ENGINE], gb / limit, gb / best[MEMCPY], wrong,
               gb / best[SYNCED]);
    else if (dtype == ZT_F32) /* the loops of the limit are of fp32 */
        printf("%-15s %-6s %-5s %10zu %9.1f %8.2f %8.2f %5.0f%% %8.2f %8.2f %6zu\n",
               kind_names[what], heap ? "heap" : "malloc", zt_dtype_name(dtype), bytes,
               best[ENGINE] * 1e6, gb / best[ENGINE], gb / limit,
               100 * limit / best[ENGINE], gb / best[SYNCED], gb / best[MEMCPY], wrong);
    else
        printf("%-15s %-6s %-5s %10zu %9.1f %8.2f %8s %6s %8s %8.2f %6zu\n",
               kind_names[what], heap ? "heap" : "malloc", zt_dtype_name(dtype), bytes,
               best[ENGINE] * 1e6, gb / best[ENGINE], "-", "-", "-", gb / best[MEMCPY],
               wrong);
    fflush(stdout);
}

static void table(struct rank *k)
{
    static const size_t kib[] = {64, 256, 1024, 4096, 25600, 102400, 262144};

    if (!k->rank && !k->opt->lines)
        printf("%d ranks\n%-15s %-6s %-5s %10s %9s %8s %8s %6s %8s %8s %6s\n", k->world,
               "collective", "memory", "type", "bytes", "us", "shm", "limit", "share",
               "synced", "memcpy", "wrong");
    for (size_t i = 0; i < sizeof(kib) / sizeof(kib[0]); i++)
        for (int what = 0; what < NUM_KIND; what++) {
            size_t bytes = kib[i] << 10;

            if (bytes > k->opt->largest)
                return;
            if (k->opt->only_kib && k->opt->only_kib != kib[i])
                continue;
            row(k, (kind)what, true, bytes, ZT_F32);
            if (k->opt->lines)
                continue;
            row(k, (kind)what, true, bytes, ZT_BF16);
            row(k, (kind)what, false, bytes, ZT_F32);
        }
}

/* ---------------------------------------------------------------- beside work */
#define OVERLAP_BYTES ((size_t)25 << 20)
#define WORK_S        0.05

static double cpu_s(int who)
{
    struct rusage u;

    getrusage(who, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* Work that no memory slows down. */
static void work(long turns)
{
    volatile double result;
    double x = 2;

    for (long i = 0; i < turns; i++)
        x = x * 0.999999 + 1e-6;
    result = x;
    (void)result;
}

/*
 * One loop of work, with `num` reduce_scatters in flight beside it: the time of all, and
 * what threads other than this one used.
 */
static void overlap_once(struct rank *k, long turns, int num, double *wall, double *cpu)
{
    size_t piece = OVERLAP_BYTES / 4 / (size_t)k->world;
    char *buf = k->all[k->rank], *mine = buf + (size_t)k->rank * piece * 4;
    zt_comm_handle h = 0;
    struct zt_fault fault;
    double from, used;

    must(zt_barrier(k->c, &fault), &fault);
    from = now_s();
    used = cpu_s(RUSAGE_SELF) - cpu_s(RUSAGE_THREAD);
    for (int i = 0; i < num; i++)
        must(zt_reduce_scatter_start(k->c, buf, mine, piece, ZT_F32, 1.0f, &h, &fault),
             &fault);
    work(turns);
    must(zt_comm_wait(k->c, h, &fault), &fault);
    *cpu = largest_of(k, cpu_s(RUSAGE_SELF) - cpu_s(RUSAGE_THREAD) - used);
    *wall = largest_of(k, now_s() - from);
}

static void overlap(struct rank *k)
{
    double alone = 1e9, with = 1e9, cpu = 1e9, call = 1e9, x, y;
    struct task t = {.what = REDUCE_SCATTER,
                     .buf = k->all[k->rank],
                     .piece = OVERLAP_BYTES / 4 / (size_t)k->world,
                     .dtype = ZT_F32};
    long turns = 1000000;
    double from = now_s();

    work(turns);
    turns = (long)((double)turns * WORK_S / (now_s() - from));
    for (int i = 0; i < k->opt->rounds * 4; i++) {
        x = batch(k, &t, ENGINE, 3);
        call = x < call ? x : call;
        overlap_once(k, turns, 0, &x, &y);
        alone = x < alone ? x : alone;
        overlap_once(k, turns, 4, &x, &y);
        with = x < with ? x : with;
        cpu = y < cpu ? y : cpu;
    }
    if (!k->rank)
        printf(
            "work of %.1f ms with 4 reduce_scatters of 25 MiB beside it: %.1f ms more, "
            "%.1f ms of cpu in the progress thread; the calls alone: %.1f ms\n",
            alone * 1e3, (with - alone) * 1e3, cpu * 1e3, 4 * call * 1e3);
}

/* ---------------------------------------------------------------- processes */
/* A rank stays on one core, as MPI and gloo do in bench/run_comm. */
static void pin(int rank)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET((unsigned)rank % (unsigned)(cores > 0 ? cores : 1), &one);
    if (sched_setaffinity(0, sizeof(one), &one))
        perror("bench_comm: cannot pin a rank, going on without");
}

static void run_rank(const struct options *opt, int rank, int fd)
{
    struct zt_comm_config cfg = {.engine = "shm",
                                 .rank = rank,
                                 .world = opt->world,
                                 .shm_fd = fd,
                                 .timeout_s = 60};
    struct rank *k = calloc(1, sizeof(*k));
    struct zt_fault fault;
    size_t stride = opt->largest + 4096;
    void *shared, *words;

    pin(rank);
    k->opt = opt;
    k->rank = rank;
    k->world = opt->world;
    must(zt_comm_open(&cfg, &k->c, &fault), &fault);
    must(zt_comm_alloc_shared(k->c, stride * (size_t)opt->world, &shared, &fault),
         &fault);
    must(zt_comm_alloc_shared(k->c, sizeof(*k->words) * (size_t)opt->world, &words,
                              &fault),
         &fault);
    k->words = words;
    for (int r = 0; r < opt->world; r++)
        k->all[r] = (char *)shared + (size_t)r * stride;
    k->own = malloc(stride);
    k->to = malloc(stride);
    memset(k->own, 1, stride);
    memset(k->to, 1, stride);
    memset(shared, 0, stride * (size_t)opt->world); /* map all of it */
    if (opt->overlap)
        overlap(k);
    else
        table(k);
    zt_comm_close(k->c);
    free(k->own);
    free(k->to);
    free(k);
    exit(0);
}

/* The number after argument *i. */
static int number(int argc, char **argv, int *i)
{
    return *i + 1 < argc ? atoi(argv[++*i]) : 0;
}

int main(int argc, char **argv)
{
    struct options opt = {.world = 2, .rounds = 50, .largest = (size_t)256 << 20};
    int fd = memfd_create("bench_comm", MFD_CLOEXEC), bad = fd < 0, status;
    pid_t pid[MAX_WORLD];

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--world"))
            opt.world = number(argc, argv, &i);
        else if (!strcmp(argv[i], "--rounds"))
            opt.rounds = number(argc, argv, &i);
        else if (!strcmp(argv[i], "--largest"))
            opt.largest = (size_t)number(argc, argv, &i) << 20;
        else if (!strcmp(argv[i], "--kib"))
            opt.only_kib = (size_t)number(argc, argv, &i);
        else if (!strcmp(argv[i], "--lines"))
            opt.lines = true;
        else if (!strcmp(argv[i], "--fresh"))
            opt.fresh = true;
        else if (!strcmp(argv[i], "--overlap"))
            opt.overlap = true;
        else
            bad = 1;
    }
    if (opt.overlap && opt.largest < OVERLAP_BYTES)
        opt.largest = OVERLAP_BYTES;
    if (bad || opt.world < 1 || opt.world > MAX_WORLD || opt.largest < 1u << 20) {
        fprintf(stderr, "usage: bench_comm [--world 1..64] [--largest MiB] [--rounds N] "
                        "[--kib N] [--lines] [--fresh] [--overlap]\n");
        return 2;
    }
    for (int r = 0; r < opt.world; r++) {
        pid[r] = fork();
        if (!pid[r])
            run_rank(&opt, r, fd);
    }
    for (pid_t ended; (ended = wait(&status)) > 0;)
        for (int r = 0; status && r < opt.world; r++)
            if (pid[r] == ended) {
                zt_comm_abort_fd(fd, r); /* or the others would wait for it */
                bad = 1;
            }
    return bad;
}
