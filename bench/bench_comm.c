/*
 * bench_comm.c -- collectives between ranks of this machine, beside its own copy rate.
 *
 *      bench_comm [ranks] [largest MiB]        default: 2 ranks, 256 MiB
 *
 * A row is one collective on one message size: `heap` works in place in shared memory,
 * `malloc` takes the staged way. GB/s is the algorithm bandwidth at p50: bytes of the
 * whole vector (all_gather, reduce_scatter: W pieces) over the time. `copy` is what the
 * same ranks reach together, each copying its share of that vector with memcpy between
 * private buffers, in the same run. p50 and p99 are of rank 0, in microseconds. `wrong`
 * counts elements of the last result that differ from the exact sum.
 */
#include "worker/comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_REPS 2000

typedef enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, COPY, NUM_KIND } kind;
static const char *const kind_names[] = {"all_reduce", "reduce_scatter", "all_gather",
                                         "copy"};

struct rank {
    struct zt_comm *c;
    int rank, world;
    char *shared;   /* in the heap, largest + a page */
    char *own, *to; /* private, the same size */
    double us[MAX_REPS];
};

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void must(zt_err rc, const struct zt_fault *fault)
{
    if (!rc)
        return;
    fprintf(stderr, "bench_comm: %s\n", fault->text);
    exit(1);
}

static int by_time(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

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

static size_t count_wrong(const struct rank *k, kind what, const char *buf, size_t count,
                          zt_dtype dtype)
{
    size_t wrong = 0, piece = count / (size_t)k->world;
    size_t n = what == REDUCE_SCATTER ? piece : count;

    for (size_t i = 0; i < n; i++) {
        float want = 0, got = 0;
        uint32_t u = 0;

        if (what == ALL_GATHER)
            want = value((int)(i / piece), i % piece);
        else
            for (int r = 0; r < k->world; r++)
                want +=
                    value(r, what == REDUCE_SCATTER ? i + (size_t)k->rank * piece : i);
        if (dtype == ZT_F32)
            memcpy(&u, buf + i * 4, 4);
        else
            u = (uint32_t)((const uint16_t *)buf)[i] << 16;
        memcpy(&got, &u, sizeof(got));
        wrong += want != got;
    }
    return wrong;
}

/* One call on a vector of `count` elements, in place. */
static void call(struct rank *k, kind what, char *buf, size_t count, zt_dtype dtype,
                 float scale)
{
    size_t piece = count / (size_t)k->world, elem = zt_dtype_bytes(dtype);
    char *mine = buf + (size_t)k->rank * piece * elem;
    struct zt_fault fault;

    switch (what) {
    case ALL_REDUCE:
        must(zt_all_reduce(k->c, buf, buf, count, dtype, ZT_SUM, scale, &fault), &fault);
        break;
    case REDUCE_SCATTER:
        must(zt_reduce_scatter(k->c, buf, mine, piece, dtype, scale, &fault), &fault);
        break;
    case ALL_GATHER:
        must(zt_all_gather(k->c, mine, buf, piece, dtype, &fault), &fault);
        break;
    default:
        memcpy(k->to, buf, piece * elem);
        must(zt_barrier(k->c, &fault), &fault);
        break;
    }
}

static void row(struct rank *k, kind what, const char *place, size_t bytes,
                zt_dtype dtype)
{
    size_t elem = zt_dtype_bytes(dtype), world = (size_t)k->world;
    size_t count = bytes / elem / world * world, wrong = 0, piece = count / world;
    char *buf = *place == 'h' ? k->shared : k->own;
    int reps = (int)((512u << 20) / bytes);
    struct zt_fault fault;

    reps = reps < 5 ? 5 : reps > MAX_REPS ? MAX_REPS : reps;
    fill(buf, count, dtype, k->rank);
    for (int i = -2; i < reps; i++) { /* two to warm up */
        double from;

        must(zt_barrier(k->c, &fault), &fault);
        from = now_us();
        call(k, what, buf, count, dtype, 0.5f);
        if (i >= 0)
            k->us[i] = now_us() - from;
    }
    if (what != COPY) {
        char *at = buf + (what == REDUCE_SCATTER ? (size_t)k->rank * piece * elem : 0);

        if (what == ALL_GATHER)
            fill(buf + (size_t)k->rank * piece * elem, piece, dtype, k->rank);
        else
            fill(buf, count, dtype, k->rank);
        must(zt_barrier(k->c, &fault), &fault);
        call(k, what, buf, count, dtype, 1.0f);
        wrong = count_wrong(k, what, at, count, dtype);
    }
    if (k->rank)
        return;
    qsort(k->us, (size_t)reps, sizeof(k->us[0]), by_time);
    printf("%-15s %-6s %-5s %10zu %9.1f %9.1f %8.2f %6zu\n", kind_names[what], place,
           zt_dtype_name(dtype), bytes, k->us[reps / 2], k->us[(size_t)reps * 99 / 100],
           (double)(count * elem) / k->us[reps / 2] * 1e-3, wrong);
    fflush(stdout);
}

static void run_rank(int rank, int world, int fd, size_t largest)
{
    struct zt_comm_config cfg = {.engine = "shm",
                                 .rank = rank,
                                 .world = world,
                                 .shm_fd = fd,
                                 .timeout_s = 60};
    struct rank *k = calloc(1, sizeof(*k));
    struct zt_fault fault;
    void *shared;

    k->rank = rank;
    k->world = world;
    must(zt_comm_open(&cfg, &k->c, &fault), &fault);
    must(zt_comm_alloc(k->c, largest, &shared, &fault), &fault);
    k->shared = shared;
    k->own = malloc(largest);
    k->to = malloc(largest);
    memset(k->own, 1, largest);
    memset(k->to, 1, largest);
    if (!rank)
        printf("%d ranks\n%-15s %-6s %-5s %10s %9s %9s %8s %6s\n", world, "collective",
               "memory", "type", "bytes", "p50_us", "p99_us", "GB/s", "wrong");
    for (size_t bytes = 64u << 10; bytes <= largest; bytes *= 8) {
        row(k, COPY, "malloc", bytes, ZT_F32);
        for (int what = 0; what < COPY; what++) {
            row(k, (kind)what, "heap", bytes, ZT_F32);
            row(k, (kind)what, "heap", bytes, ZT_BF16);
            row(k, (kind)what, "malloc", bytes, ZT_F32);
        }
        if (bytes < largest && bytes * 8 > largest)
            bytes = largest / 8;
    }
    zt_comm_close(k->c);
    free(k->own);
    free(k->to);
    free(k);
    exit(0);
}

int main(int argc, char **argv)
{
    int world = argc > 1 ? atoi(argv[1]) : 2, bad = 0, status;
    size_t largest = (size_t)(argc > 2 ? atoi(argv[2]) : 256) << 20;
    int fd = memfd_create("bench_comm", MFD_CLOEXEC);

    if (world < 1 || world > 64 || largest < 1u << 20 || fd < 0) {
        fprintf(stderr, "usage: bench_comm [ranks, 1..64] [largest MiB]\n");
        return 2;
    }
    for (int r = 0; r < world; r++)
        if (!fork())
            run_rank(r, world, fd, largest);
    while (wait(&status) > 0)
        bad |= status;
    return bad ? 1 : 0;
}
