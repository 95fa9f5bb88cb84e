/*
 * ranks.h -- processes that meet on one memfd, and what they should find in a buffer.
 *
 * A rank checks with CHECK(), which ends it with a sentence and exit code 1; the test
 * then asserts on how the ranks ended. The oracle rounds by arithmetic in double.
 */
#ifndef TEST_UNIT_COMM_RANKS_H
#define TEST_UNIT_COMM_RANKS_H

#include "worker/comm/comm.h"
#include "worker/comm/reduce.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define UNUSED    __attribute__((unused))
#define MAX_RANKS 8
#ifndef HANG_LIMIT
#define HANG_LIMIT 120 /* seconds until a rank that hangs is killed by SIGALRM */
#endif

#define CHECK(what)                                                                      \
    do {                                                                                 \
        if (!(what)) {                                                                   \
            fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, my_rank, #what); \
            _exit(1);                                                                    \
        }                                                                                \
    } while (0)

/* A call that must succeed, or the rank ends with its fault. */
#define DO(call)                                                                         \
    do {                                                                                 \
        if (call) {                                                                      \
            fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, my_rank,         \
                    fault.text);                                                         \
            _exit(1);                                                                    \
        }                                                                                \
    } while (0)

static int my_rank UNUSED;
static struct zt_fault fault UNUSED;

struct group {
    const char *engine;
    int world, fd;
    double timeout_s;
    const struct zt_comm_bootstrap *bootstrap; /* of engine tcp */
    int node_ranks;
    pid_t pid[MAX_RANKS];
};

typedef void (*rank_fn)(struct zt_comm *c);

static struct zt_comm_config UNUSED rank_config(const struct group *g, int rank)
{
    return (struct zt_comm_config){.engine = g->engine ? g->engine : "shm",
                                   .rank = rank,
                                   .world = g->world,
                                   .shm_fd = g->fd,
                                   .bootstrap = g->bootstrap,
                                   .node_ranks = g->node_ranks,
                                   .timeout_s = g->timeout_s > 0 ? g->timeout_s : 60};
}

static void UNUSED make_fd(struct group *g)
{
    g->fd = memfd_create("test", MFD_CLOEXEC);
    assert_true(g->fd >= 0);
}

/* Seconds; on a machine that is only imitated, all that the test may take. */
static unsigned hang_limit(void)
{
    const char *all = getenv("ZT_TEST_TIMEOUT");

    return all && atoi(all) > HANG_LIMIT ? (unsigned)atoi(all) : HANG_LIMIT;
}

/* Start rank `rank`; fn(NULL) when the communicator is its own business. */
static void UNUSED start_rank(struct group *g, int rank, bool open, rank_fn fn)
{
    struct zt_comm *c = NULL;

    fflush(NULL);
    g->pid[rank] = fork();
    assert_true(g->pid[rank] >= 0);
    if (g->pid[rank])
        return;
    alarm(hang_limit());
    my_rank = rank;
    if (open) {
        struct zt_comm_config cfg = rank_config(g, rank);

        DO(zt_comm_open(&cfg, &c, &fault));
    }
    fn(c);
    zt_comm_close(c);
    exit(0);
}

/* The wait status of rank `rank`, which must end. */
static int UNUSED end_of_rank(struct group *g, int rank)
{
    int status;

    assert_int_equal(waitpid(g->pid[rank], &status, 0), g->pid[rank]);
    return status;
}

static void UNUSED assert_ranks_end_well(struct group *g)
{
    int status[MAX_RANKS];

    for (int r = 0; r < g->world; r++)
        status[r] = end_of_rank(g, r);
    close(g->fd);
    for (int r = 0; r < g->world; r++)
        assert_int_equal(status[r], 0);
}

/* The whole story: `world` ranks run fn on a communicator and end well. */
static void UNUSED run_ranks(int world, rank_fn fn)
{
    struct group g = {.world = world};

    make_fd(&g);
    for (int r = 0; r < world; r++)
        start_rank(&g, r, true, fn);
    assert_ranks_end_well(&g);
}

/* ---------------------------------------------------------------- values */
/* A number that depends on everything, well mixed. */
static uint64_t UNUSED mix(uint64_t seed, uint64_t rank, uint64_t i)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u ^ rank * 0xbf58476d1ce4e5b9u ^ i;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The float of `bits` exponent and `frac` fraction bits nearest to x, as its code. */
static uint32_t UNUSED encode(double x, int bits, int frac)
{
    int bias = (1 << (bits - 1)) - 1, e;
    uint32_t sign = signbit(x) ? 1u << (bits + frac) : 0;
    uint32_t inf = ((1u << bits) - 1) << frac, code;

    x = fabs(x);
    if (isnan(x))
        return inf | 1u << (frac - 1);
    if (x == 0 || isinf(x))
        return sign | (x == 0 ? 0 : inf);
    frexp(x, &e);
    e = e - 1 < 1 - bias ? 1 - bias : e - 1; /* x = 1..2 * 2^e, or subnormal */
    /* ties to even, exact in double; a carry moves on to the exponent by itself */
    code = ((uint32_t)(e + bias - 1) << frac) + (uint32_t)rint(ldexp(x, frac - e));
    return sign | (code < inf ? code : inf);
}

static double UNUSED decode(uint32_t code, int bits, int frac)
{
    int bias = (1 << (bits - 1)) - 1, e = (int)(code >> frac & ((1u << bits) - 1));
    uint32_t f = code & ((1u << frac) - 1);
    double x;

    if (e == (1 << bits) - 1)
        x = f ? NAN : INFINITY;
    else if (e)
        x = ldexp((double)(f + (1u << frac)), e - bias - frac);
    else
        x = ldexp((double)f, 1 - bias - frac);
    return code >> (bits + frac) & 1 ? -x : x;
}

static void UNUSED put_value(void *buf, size_t i, zt_dtype dtype, double x)
{
    switch (dtype) {
    case ZT_F32:
        ((float *)buf)[i] = (float)x;
        break;
    case ZT_BF16:
        ((uint16_t *)buf)[i] = (uint16_t)encode(x, 8, 7);
        break;
    case ZT_F16:
        ((uint16_t *)buf)[i] = (uint16_t)encode(x, 5, 10);
        break;
    case ZT_I32:
        ((int32_t *)buf)[i] = (int32_t)x;
        break;
    case ZT_I64:
        ((int64_t *)buf)[i] = (int64_t)x;
        break;
    default:
        ((uint8_t *)buf)[i] = (uint8_t)(int)x;
        break;
    }
}

static double UNUSED get_value(const void *buf, size_t i, zt_dtype dtype)
{
    switch (dtype) {
    case ZT_F32:
        return (double)((const float *)buf)[i];
    case ZT_BF16:
        return decode(((const uint16_t *)buf)[i], 8, 7);
    case ZT_F16:
        return decode(((const uint16_t *)buf)[i], 5, 10);
    case ZT_I32:
        return (double)((const int32_t *)buf)[i];
    case ZT_I64:
        return (double)((const int64_t *)buf)[i];
    default:
        return (double)((const uint8_t *)buf)[i];
    }
}

/* What rank `rank` sends: fractions for floats, small whole numbers for integers. */
static void UNUSED fill(void *buf, size_t count, zt_dtype dtype, uint64_t seed, int rank)
{
    for (size_t i = 0; i < count; i++) {
        int64_t v = (int64_t)(mix(seed, (uint64_t)rank, i) % 60001);

        put_value(buf, i, dtype,
                  dtype <= ZT_F16 ? (double)(v - 30000) / 1777.0 : (double)(v % 60));
    }
}

/* Sum or maximum of what the ranks send, in rank order in fp32, scaled, rounded once. */
static void UNUSED expect_reduction(void *out, size_t count, zt_dtype dtype,
                                    uint64_t seed, int world, zt_reduce_op op,
                                    float scale)
{
    char *one = malloc(count * 8 + 8);
    float *acc = calloc(count + 1, sizeof(*acc));

    for (int r = 0; r < world; r++) {
        fill(one, count, dtype, seed, r);
        for (size_t i = 0; i < count; i++) {
            float x = (float)get_value(one, i, dtype);

            if (!r)
                acc[i] = x;
            else if (op == ZT_MAX)
                acc[i] = x > acc[i] ? x : acc[i];
            else
                acc[i] = acc[i] + x;
        }
    }
    for (size_t i = 0; i < count; i++)
        put_value(out, i, dtype, (double)(acc[i] * scale));
    free(acc);
    free(one);
}

#endif
