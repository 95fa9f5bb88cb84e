/*
 * bench_network.c -- collectives of two ranks over TCP between two network namespaces.
 *
 *      bench_network ADDRESS NETNS0 NETNS1 [SECONDS]
 *
 * Rank r is in namespace NETNSr (a file, as /run/netns/NAME), ADDRESS is that of rank 0. Needs root. A line
 * is `collective bytes GB/s`: bytes of the vector of a rank that cross the network one way
 * (broadcast: all; all_gather, reduce_scatter: half, and as many the other way at the same
 * time; all_reduce: all, both ways) over the time of a call, of back-to-back calls for
 * SECONDS (1). bench/run_network puts iperf3 beside it.
 */
#include "worker/comm/comm.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CARD_MAX 512
#define LARGEST  ((size_t)64 << 20)

/* What the ranks share to find each other. */
struct cards {
    _Atomic int num;
    char card[2][CARD_MAX];
};

struct meeting {
    struct cards *cards;
    int rank;
};

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(zt_err rc, const struct zt_fault *fault)
{
    if (!rc)
        return;
    fprintf(stderr, "bench_network: %s\n", fault->text);
    exit(1);
}

static zt_err exchange(void *ctx, const void *mine, size_t bytes, void *all,
                       struct zt_fault *fault)
{
    struct meeting *m = ctx;

    if (bytes > CARD_MAX)
        return zt_fault_set(fault, ZT_E_LIMIT, "a card of %zu bytes", bytes);
    memcpy(m->cards->card[m->rank], mine, bytes);
    atomic_fetch_add(&m->cards->num, 1);
    while (atomic_load(&m->cards->num) < 2)
        usleep(100);
    for (size_t r = 0; r < 2; r++)
        memcpy((char *)all + r * bytes, m->cards->card[r], bytes);
    return ZT_OK;
}

typedef enum kind { BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, NUM_KIND } kind;
static const char *const names[] = {"broadcast", "all_gather", "reduce_scatter",
                                    "all_reduce"};

static void once(struct zt_comm *c, kind what, float *buf, size_t count)
{
    size_t piece = count / 2;
    float *mine = buf + (size_t)zt_comm_rank(c) * piece;
    struct zt_fault fault;
    zt_err rc;

    if (what == BROADCAST)
        rc = zt_broadcast(c, buf, count, ZT_F32, 0, &fault);
    else if (what == ALL_GATHER)
        rc = zt_all_gather(c, mine, buf, piece, ZT_F32, &fault);
    else if (what == REDUCE_SCATTER)
        rc = zt_reduce_scatter(c, buf, mine, piece, ZT_F32, 0.5f, &fault);
    else
        rc = zt_all_reduce(c, buf, buf, count, ZT_F32, ZT_SUM, 0.5f, &fault);
    must(rc, &fault);
}

/* Seconds of a call: of as many as take `seconds`, until both ranks are done. */
static double time_calls(struct zt_comm *c, kind what, float *buf, size_t count,
                         double seconds)
{
    double begin = now_s(), went_on = 1, took;
    struct zt_fault fault;
    int num = 0;

    while (went_on > 0) {
        for (int i = 0; i < 8; i++)
            once(c, what, buf, count);
        num += 8;
        went_on = zt_comm_rank(c) == 0 && now_s() - begin < seconds;
        must(zt_sum_f64(c, &went_on, 1, &fault), &fault);
    }
    took = now_s() - begin;
    return took / num;
}

static void run_rank(int rank, const char *host, const char *netns, struct cards *cards,
                     double seconds)
{
    struct meeting meeting = {cards, rank};
    struct zt_comm_bootstrap bootstrap = {
        .all_gather = exchange, .ctx = &meeting, .host = host};
    struct zt_comm_config cfg = {.engine = "tcp",
                                 .rank = rank,
                                 .world = 2,
                                 .shm_fd = -1,
                                 .bootstrap = &bootstrap,
                                 .timeout_s = 60};
    float *buf = calloc(LARGEST, 1);
    int fd = open(netns, O_RDONLY | O_CLOEXEC);
    struct zt_fault fault;
    struct zt_comm *c;

    if (!buf || fd < 0 || setns(fd, CLONE_NEWNET)) {
        perror(netns);
        exit(1);
    }
    must(zt_comm_open(&cfg, &c, &fault), &fault);
    for (size_t bytes = (size_t)64 << 10; bytes <= LARGEST; bytes *= 4)
        for (int what = 0; what < NUM_KIND; what++) {
            size_t count = bytes / sizeof(float);
            size_t way = what == ALL_GATHER || what == REDUCE_SCATTER ? bytes / 2 : bytes;
            double s;

            once(c, (kind)what, buf, count);
            s = time_calls(c, (kind)what, buf, count, seconds);
            if (!rank)
                printf("%s %zu %.4f\n", names[what], bytes, (double)way / s * 1e-9);
            fflush(stdout);
        }
    zt_comm_close(c);
    free(buf);
    exit(0);
}

int main(int argc, char **argv)
{
    struct cards *cards = mmap(NULL, sizeof(*cards), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double seconds = argc > 4 ? atof(argv[4]) : 1;
    int bad = 0, status;

    if (argc < 4 || cards == MAP_FAILED || !(seconds > 0)) {
        fprintf(stderr, "usage: bench_network ADDRESS NETNS0 NETNS1 [SECONDS]\n");
        return 2;
    }
    for (int r = 0; r < 2; r++)
        if (!fork())
            run_rank(r, argv[1], argv[2 + r], cards, seconds);
    while (wait(&status) > 0)
        bad |= status != 0;
    return bad;
}
