/* A rank killed at any moment is named to all others, whatever they wait in. */
#define HANG_LIMIT 20 /* of a round */

#include "test/unit/comm/ranks.h"
#include "worker/comm/shm/abort.h"

#include <signal.h>
#include <time.h>

#define ROUNDS 50
#define COUNT  400000u /* long enough to be met in the middle */

static int ready[2];
static int victim; /* of this round */

/* What a rank is doing all the time until it fails. */
struct load {
    struct zt_comm *c, *group;
    float *heap, *plain;
};

static zt_err blocking(const struct load *l, uint64_t i)
{
    float *buf = i & 1 ? l->heap : l->plain;
    size_t n = mix(1, 2, i) % COUNT / 4;
    double v = 1;
    zt_err rc = zt_all_reduce(l->c, buf, buf, n, ZT_F32, ZT_MAX, 1.0f, &fault);

    if (!rc)
        rc = zt_reduce_scatter(l->c, l->heap, l->plain, n, ZT_F32, 0.0f, &fault);
    if (!rc)
        rc = zt_all_gather(l->c, l->plain, l->heap, n, ZT_F32, &fault);
    if (!rc)
        rc = zt_broadcast(l->c, buf, n, ZT_F32, (int)(i % 4), &fault);
    return rc ? rc : zt_sum_f64(l->c, &v, 1, &fault);
}

static zt_err started(const struct load *l, uint64_t i)
{
    size_t n = mix(3, 4, i) % COUNT / 4;
    zt_comm_handle h[3];
    zt_err rc;

    DO(zt_reduce_scatter_start(l->c, l->heap, l->plain, n, ZT_F32, 0.0f, &h[0], &fault));
    DO(zt_all_gather_start(l->c, l->plain, l->heap, n, ZT_F32, &h[1], &fault));
    DO(zt_broadcast_start(l->c, l->plain, n, ZT_F32, (int)(i % 4), &h[2], &fault));
    rc = zt_comm_wait(l->c, h[0], &fault);
    return rc ? rc : zt_comm_wait(l->c, h[2], &fault);
}

static zt_err in_groups(const struct load *l, uint64_t i)
{
    size_t n = mix(5, 6, i) % COUNT / 4;
    zt_comm_handle h[2];
    zt_err rc =
        zt_all_reduce(l->group, l->heap, l->heap, n, ZT_F32, ZT_MAX, 1.0f, &fault);

    if (rc)
        return rc;
    DO(zt_all_gather_start(l->group, l->plain, l->heap, n, ZT_F32, &h[0], &fault));
    DO(zt_broadcast_start(l->c, l->plain, n, ZT_F32, (int)(i % 4), &h[1], &fault));
    rc = zt_comm_wait(l->group, h[0], &fault);
    return rc ? rc : zt_comm_wait(l->c, h[1], &fault);
}

/* Memory, groups: things that come and go. */
static zt_err growing(const struct load *l, uint64_t i)
{
    struct zt_comm *group;
    zt_err rc = zt_comm_split(l->c, my_rank % 2, &group, &fault);
    void *p;

    if (rc)
        return rc;
    rc = zt_comm_alloc(group, 5000 * (i % 3), &p, &fault);
    if (!rc)
        rc = zt_barrier(l->c, &fault);
    zt_comm_close(group);
    return rc;
}

typedef zt_err (*work_fn)(const struct load *l, uint64_t i);
static const work_fn works[] = {blocking, started, in_groups, growing};
#define NUM_WORKS (sizeof(works) / sizeof(works[0]))
static work_fn work; /* of this round */

static void work_until_told(struct zt_comm *c)
{
    struct load l = {.c = c, .plain = calloc(COUNT, sizeof(float))};
    char want[64];
    zt_err rc = ZT_OK;
    void *p;

    CHECK(l.plain);
    DO(zt_comm_alloc(c, COUNT * sizeof(float), &p, &fault));
    l.heap = p;
    DO(zt_comm_split(c, my_rank % 2, &l.group, &fault));
    CHECK(write(ready[1], "x", 1) == 1);
    for (uint64_t i = 0; !rc; i++)
        rc = work(&l, i);
    snprintf(want, sizeof(want), "rank %d has failed", victim);
    if (rc != ZT_E_PEER || !strstr(fault.text, want)) {
        fprintf(stderr, "rank %d: wanted '%s', got %s\n", my_rank, want, fault.text);
        _exit(1);
    }
    free(l.plain);
    zt_comm_close(l.group);
}

static void one_round(uint64_t round)
{
    struct group g = {.world = 4, .timeout_s = 100};
    struct timespec moment = {.tv_nsec = (long)(mix(7, 8, round) % 8000000)};
    char b;

    victim = (int)(mix(9, 10, round) % 4);
    work = works[round % NUM_WORKS];
    make_fd(&g);
    for (int r = 0; r < g.world; r++)
        start_rank(&g, r, true, work_until_told);
    for (int r = 0; r < g.world; r++)
        assert_int_equal(read(ready[0], &b, 1), 1);
    nanosleep(&moment, NULL); /* any moment is as good as any other */
    kill(g.pid[victim], SIGKILL);
    assert_true(WIFSIGNALED(end_of_rank(&g, victim)));
    zt_comm_abort_fd(g.fd, victim); /* as the daemon does */
    for (int r = 0; r < g.world; r++)
        if (r != victim)
            assert_int_equal(end_of_rank(&g, r), 0);
    close(g.fd);
}

static void test_a_rank_killed_at_any_moment_is_named_to_all(void **state)
{
    (void)state;
    assert_int_equal(pipe(ready), 0);
    for (uint64_t round = 0; round < ROUNDS; round++)
        one_round(round);
    close(ready[0]);
    close(ready[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_rank_killed_at_any_moment_is_named_to_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
