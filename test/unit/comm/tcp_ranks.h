/*
 * tcp_ranks.h -- ranks for engine tcp, which find each other through a page of shared
 * memory.
 */
#ifndef TEST_UNIT_COMM_TCP_RANKS_H
#define TEST_UNIT_COMM_TCP_RANKS_H

#include "test/unit/comm/ranks.h"

#include <stdatomic.h>

#define CARD_MAX 512

/* What the ranks share. */
struct shared {
    _Atomic int num;  /* came */
    _Atomic int flag; /* whatever a test makes of it */
    size_t bytes;
    char card[MAX_RANKS][CARD_MAX];
    int world;
};

static struct shared *shared UNUSED;

static zt_err UNUSED gather(void *ctx, const void *mine, size_t bytes, void *all,
                            struct zt_fault *f)
{
    struct shared *l = ctx;

    (void)f;
    CHECK(bytes <= CARD_MAX);
    memcpy(l->card[my_rank], mine, bytes);
    l->bytes = bytes;
    atomic_fetch_add(&l->num, 1);
    while (atomic_load(&l->num) < l->world)
        usleep(100);
    for (int r = 0; r < l->world; r++)
        memcpy((char *)all + (size_t)r * bytes, l->card[r], bytes);
    return ZT_OK;
}

static struct zt_comm_bootstrap bootstrap UNUSED = {.all_gather = gather,
                                                    .host = "127.0.0.1"};

/* Clear the shared page, and make a group of ranks that uses it. */
static struct group UNUSED tcp_group(int world)
{
    if (!shared)
        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    memset(shared, 0, sizeof(*shared));
    shared->world = world;
    bootstrap.ctx = shared;
    return (struct group){
        .engine = "tcp", .world = world, .fd = -1, .bootstrap = &bootstrap};
}

static void UNUSED await_flag(int value)
{
    while (atomic_load(&shared->flag) < value)
        usleep(1000);
}

/* `world` ranks run fn on a communicator and end well. */
static void UNUSED run_tcp(int world, rank_fn fn)
{
    struct group g = tcp_group(world);

    for (int r = 0; r < world; r++)
        start_rank(&g, r, true, fn);
    assert_ranks_end_well(&g);
}

#endif
