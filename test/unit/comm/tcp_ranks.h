/*
 * tcp_ranks.h -- ranks that know nothing of each other but a page of memory, through
 * which they meet for engine tcp.
 */
#ifndef TEST_UNIT_COMM_TCP_RANKS_H
#define TEST_UNIT_COMM_TCP_RANKS_H

#include "test/unit/comm/ranks.h"

#include <stdatomic.h>

#define CARD_MAX 512

/* What the ranks share. */
struct lobby {
    _Atomic int num;  /* came */
    _Atomic int flag; /* whatever a test makes of it */
    size_t bytes;
    char card[MAX_RANKS][CARD_MAX];
    int world;
};

static struct lobby *lobby UNUSED;

static zt_err UNUSED gather(void *ctx, const void *mine, size_t bytes, void *all,
                            struct zt_fault *f)
{
    struct lobby *l = ctx;

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

static struct zt_comm_meeting meeting UNUSED = {.gather = gather, .host = "127.0.0.1"};

/* A fresh lobby, and a group that meets in it. */
static struct group UNUSED tcp_group(int world)
{
    if (!lobby)
        lobby = mmap(NULL, sizeof(*lobby), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(lobby != MAP_FAILED);
    memset(lobby, 0, sizeof(*lobby));
    lobby->world = world;
    meeting.ctx = lobby;
    return (struct group){.engine = "tcp", .world = world, .fd = -1, .meeting = &meeting};
}

static void UNUSED await_flag(int value)
{
    while (atomic_load(&lobby->flag) < value)
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
