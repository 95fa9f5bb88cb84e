/* Groups of ranks: their collectives, their memory, and the fate they share. */
#include "test/unit/comm/ranks.h"
#include "worker/comm/shm/abort.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define N 9001u /* through the small area in two halves, or in place */

static struct zt_comm *split(struct zt_comm *c, int color)
{
    struct zt_comm *group = NULL;

    DO(zt_comm_split(c, color, &group, &fault));
    return group;
}

static void check_peer(zt_err rc, const char *part)
{
    if (rc == ZT_E_PEER && strstr(fault.text, part))
        return;
    fprintf(stderr, "rank %d: wanted '%s', got %s: %s\n", my_rank, part, zt_err_name(rc),
            rc ? fault.text : "");
    _exit(1);
}

/* ---------------------------------------------------------------- what they compute */
/* All collectives of `count` elements in `send` and `recv` against the oracle. */
static void check_collectives(struct zt_comm *c, float *send, float *recv, size_t count,
                              uint64_t seed)
{
    int rank = zt_comm_rank(c), world = zt_comm_world(c);
    size_t w = (size_t)world, r = (size_t)rank;
    float *want = malloc(count * w * 4), *all = malloc(count * w * 4);
    double v = rank + 0.5;

    CHECK(want && all);
    fill(send, count * w, ZT_F32, seed, rank);
    expect_reduction(want, count * w, ZT_F32, seed, world, ZT_SUM, 0.5f);
    DO(zt_all_reduce(c, send, recv, count * w, ZT_F32, ZT_SUM, 0.5f, &fault));
    CHECK(!memcmp(recv, want, count * w * 4));
    DO(zt_reduce_scatter(c, send, recv, count, ZT_F32, 0.5f, &fault));
    CHECK(!memcmp(recv, want + r * count, count * 4));
    DO(zt_all_gather(c, send, recv, count, ZT_F32, &fault));
    for (size_t q = 0; q < w; q++) {
        fill(all, count * w, ZT_F32, seed, (int)q);
        CHECK(!memcmp(recv + q * count, all, count * 4));
        memcpy(want + q * count, all + r * count, count * 4);
    }
    DO(zt_all_to_all(c, send, recv, count, ZT_F32, &fault));
    CHECK(!memcmp(recv, want, count * w * 4));
    DO(zt_broadcast(c, send, count, ZT_F32, world - 1, &fault));
    CHECK(!memcmp(send, all, count * 4)); /* what the last rank sent */
    DO(zt_sum_f64(c, &v, 1, &fault));
    CHECK(v == world * world / 2.0);
    DO(zt_barrier(c, &fault));
    free(want);
    free(all);
}

/* In memory of the communicator above, of its own, and in private memory. */
static void check_group(struct zt_comm *c, struct zt_comm *group, uint64_t seed)
{
    size_t bytes = N * 4 * (size_t)zt_comm_world(c);
    void *above[2], *own[2];
    float *private = malloc(bytes);

    CHECK(private);
    for (int i = 0; i < 2; i++) {
        DO(zt_comm_alloc(c, bytes, &above[i], &fault));
        DO(zt_comm_alloc(group, bytes, &own[i], &fault));
    }
    for (size_t count = 1; count <= N; count += (N - 1) / 2) {
        check_collectives(group, above[0], above[1], count, seed);
        check_collectives(group, own[0], above[1], count, seed + 1);
        check_collectives(group, own[0], private, count, seed + 2);
        check_collectives(group, private, own[1], count, seed + 3);
        /* ranks of other groups cannot see it: still right */
        check_collectives(c, own[0], own[1], count / 2, 99);
    }
    free(private);
}

static void rows_and_columns(struct zt_comm *c)
{
    struct zt_comm *row = split(c, my_rank / 2), *column = split(c, -(my_rank % 2));

    CHECK(zt_comm_world(row) == 2 && zt_comm_rank(row) == my_rank % 2);
    CHECK(zt_comm_world(column) == 2 && zt_comm_rank(column) == my_rank / 2);
    CHECK(!strcmp(zt_comm_engine_name(row), zt_comm_engine_name(c)));
    CHECK(zt_comm_can_share(row));
    check_group(c, row, 10 + (uint64_t)(my_rank / 2));
    check_group(c, column, 20 + (uint64_t)(my_rank % 2));
    zt_comm_close(column);
    zt_comm_close(row);
}

static void test_rows_and_columns_of_a_world_of_4(void **state)
{
    struct group g = {.engine = "faulty:1000000:shm", .world = 4};

    (void)state;
    run_ranks(4, rows_and_columns);
    make_fd(&g);
    for (int r = 0; r < 4; r++)
        start_rank(&g, r, true, rows_and_columns);
    assert_ranks_end_well(&g);
}

static void uneven(struct zt_comm *c)
{
    struct zt_comm *group = split(c, my_rank == 1 ? 7 : -3);

    CHECK(zt_comm_world(group) == (my_rank == 1 ? 1 : 3));
    CHECK(zt_comm_rank(group) == (my_rank == 1 ? 0 : my_rank - (my_rank > 1)));
    check_group(c, group, (uint64_t)(my_rank == 1));
    zt_comm_close(group);
    group = split(c, 5); /* all of them */
    CHECK(zt_comm_world(group) == 4 && zt_comm_rank(group) == my_rank);
    check_group(c, group, 3);
    zt_comm_close(group);
}

static void test_groups_of_one_of_three_and_of_all(void **state)
{
    (void)state;
    run_ranks(4, uneven);
}

static void halves_of_halves(struct zt_comm *c)
{
    struct zt_comm *half = split(c, my_rank % 2), *one = split(half, my_rank);

    CHECK(zt_comm_world(half) == 2 && zt_comm_world(one) == 1);
    check_group(half, one, (uint64_t)my_rank);
    check_group(c, half, (uint64_t)(my_rank % 2));
    zt_comm_close(one);
    zt_comm_close(half);
}

static void test_a_group_can_be_split(void **state)
{
    (void)state;
    run_ranks(4, halves_of_halves);
}

static void common_piece(struct zt_comm *c)
{
    struct zt_comm *group = split(c, my_rank % 2);
    void *p;
    int *v;

    DO(zt_comm_alloc_shared(group, 2 * sizeof(int), &p, &fault));
    v = p;
    CHECK(v[0] == 0 && v[1] == 0);
    DO(zt_barrier(group, &fault));
    v[zt_comm_rank(group)] = my_rank + 1;
    DO(zt_barrier(group, &fault));
    CHECK(v[0] == my_rank % 2 + 1 && v[1] == my_rank % 2 + 3);
    zt_comm_close(group);
}

static void test_memory_in_common_is_the_groups_own(void **state)
{
    (void)state;
    run_ranks(4, common_piece);
}

static void one_of_one(struct zt_comm *c)
{
    struct zt_comm *group = split(c, 4);
    float x[8], y[8];

    check_collectives(group, x, y, 8, 1);
    zt_comm_close(group);
}

static void test_a_world_of_one_splits_into_itself(void **state)
{
    static const char *const engines[] = {"solo", "shm", "faulty:99:solo"};

    (void)state;
    for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++) {
        struct group g = {.engine = engines[i], .world = 1};

        make_fd(&g);
        start_rank(&g, 0, true, one_of_one);
        assert_ranks_end_well(&g);
    }
}

/* ---------------------------------------------------------------- in flight together */
static void fly_together(struct zt_comm *c)
{
    enum { NUM = 90, COUNT = 3000 };
    struct zt_comm *on[3] = {c, split(c, my_rank / 2), split(c, my_rank % 2)};
    static float want[COUNT];
    zt_comm_handle h[NUM];
    float *buf[NUM];
    void *p;

    for (int i = 0; i < NUM; i++) {
        DO(zt_comm_alloc(c, COUNT * 4, &p, &fault));
        buf[i] = p;
        fill(buf[i], COUNT, ZT_F32, (uint64_t)i, zt_comm_rank(on[i % 3]));
        if (i % 5 == 4)
            DO(zt_broadcast_start(on[i % 3], buf[i], COUNT, ZT_F32, 1, &h[i], &fault));
        else
            DO(zt_all_reduce_start(on[i % 3], buf[i], buf[i], COUNT, ZT_F32, ZT_SUM, 1.0f,
                                   &h[i], &fault));
        if (i % 40 == 20)
            DO(zt_barrier(on[(i + 1) % 3], &fault)); /* after all of them */
    }
    for (int i = NUM - 1; i >= 0; i--) {
        DO(zt_comm_wait(on[i % 3], h[i], &fault));
        if (i % 5 == 4)
            fill(want, COUNT, ZT_F32, (uint64_t)i, 1);
        else
            expect_reduction(want, COUNT, ZT_F32, (uint64_t)i, zt_comm_world(on[i % 3]),
                             ZT_SUM, 1.0f);
        CHECK(!memcmp(buf[i], want, sizeof(want)));
    }
    zt_comm_close(on[2]);
    zt_comm_close(on[1]);
}

static void test_started_calls_of_all_groups_run_in_the_order_issued(void **state)
{
    (void)state;
    run_ranks(4, fly_together);
}

/* ---------------------------------------------------------------- memory */
static size_t file_bytes(int fd)
{
    struct stat st;

    CHECK(!fstat(fd, &st));
    return (size_t)st.st_blocks * 512;
}

static struct group *world;

static void come_and_go(struct zt_comm *c)
{
    size_t before, with;
    void *p;

    DO(zt_barrier(c, &fault));
    before = file_bytes(world->fd);
    for (int i = 0; i < 3; i++) {
        struct zt_comm *group = split(c, my_rank % 2);

        DO(zt_comm_alloc(group, 5 << 20, &p, &fault));
        DO(zt_barrier(c, &fault));
        with = file_bytes(world->fd);
        CHECK(with >= before + (20u << 20));
        DO(zt_barrier(c, &fault));
        zt_comm_close(group);
        DO(zt_barrier(c, &fault));
        CHECK(file_bytes(world->fd) == before);
        DO(zt_barrier(c, &fault));
    }
}

static void test_closing_a_group_gives_its_memory_back(void **state)
{
    struct group g = {.world = 4};

    (void)state;
    make_fd(&g);
    world = &g;
    for (int r = 0; r < 4; r++)
        start_rank(&g, r, true, come_and_go);
    assert_ranks_end_well(&g);
}

static void one_lacks_memory(struct zt_comm *c)
{
    struct zt_comm *group = split(c, my_rank % 2), *none = c;
    struct rlimit few;
    size_t before;
    zt_err rc;
    void *p;

    DO(zt_barrier(c, &fault));
    before = file_bytes(world->fd);
    DO(zt_barrier(c, &fault));
    CHECK(!getrlimit(RLIMIT_FSIZE, &few));
    few.rlim_cur = before + (4u << 20);
    if (my_rank == 3)
        CHECK(!setrlimit(RLIMIT_FSIZE, &few));
    rc = zt_comm_alloc(group, 3 << 20, &p, &fault); /* of 1 and 3; 0 and 2 have it */
    CHECK(rc == (my_rank % 2 ? ZT_E_NOMEM : ZT_OK));
    CHECK(!rc || strstr(fault.text, "rank 3"));
    CHECK(zt_comm_split(c, my_rank % 2, &none, &fault) == ZT_E_NOMEM && none == c);
    CHECK(strstr(fault.text, "rank 3"));
    few.rlim_cur = few.rlim_max;
    CHECK(!setrlimit(RLIMIT_FSIZE, &few));
    check_group(c, group, 5); /* it broke nothing */
    zt_comm_close(group);
}

static void test_memory_that_one_lacks_is_refused_to_its_group(void **state)
{
    struct group g = {.world = 4};

    (void)state;
    make_fd(&g);
    world = &g;
    for (int r = 0; r < 4; r++)
        start_rank(&g, r, true, one_lacks_memory);
    assert_ranks_end_well(&g);
}

/* ---------------------------------------------------------------- the fate they share */
static int signal_pipe[2]; /* bytes from one rank to the others, or to the test */

static void await_bytes(int num)
{
    char b;

    for (int i = 0; i < num; i++)
        if (read(signal_pipe[0], &b, 1) != 1)
            abort();
}

static void send_bytes(int num)
{
    for (int i = 0; i < num; i++)
        CHECK(write(signal_pipe[1], "x", 1) == 1);
}

static int open_pipe(void **state)
{
    (void)state;
    return pipe(signal_pipe);
}

static int close_pipe(void **state)
{
    (void)state;
    return close(signal_pipe[0]) | close(signal_pipe[1]);
}

static void wait_in_group(struct zt_comm *c)
{
    struct zt_comm *group = split(c, my_rank % 2);

    if (my_rank % 2 == 0)
        DO(zt_barrier(group, &fault));
    send_bytes(1);
    if (my_rank == 3) {
        for (;;)
            pause();
    }
    if (my_rank == 2) /* waits for the world, the others in their groups */
        check_peer(zt_barrier(c, &fault), "on rank 2: rank 3 has failed");
    check_peer(zt_barrier(group, &fault), "rank 3 has failed");
    check_peer(zt_barrier(c, &fault), "rank 3 has failed");
    zt_comm_close(group);
}

static void test_a_killed_rank_is_named_to_all_groups(void **state)
{
    struct group g = {.world = 4};

    (void)state;
    make_fd(&g);
    for (int r = 0; r < 4; r++)
        start_rank(&g, r, true, wait_in_group);
    await_bytes(4);
    kill(g.pid[3], SIGKILL);
    assert_true(WIFSIGNALED(end_of_rank(&g, 3)));
    zt_comm_abort_fd(g.fd, 3);
    for (int r = 0; r < 3; r++)
        assert_int_equal(end_of_rank(&g, r), 0);
    close(g.fd);
}

static void abort_from_group(struct zt_comm *c)
{
    struct zt_comm *group = split(c, my_rank / 2);

    if (my_rank == 3)
        zt_comm_abort(group, 1); /* the world calls it rank 3 */
    check_peer(zt_barrier(my_rank == 0 ? c : group, &fault), "rank 3 has failed");
    zt_comm_close(group);
}

static void test_an_abort_in_a_group_reaches_the_world(void **state)
{
    (void)state;
    run_ranks(4, abort_from_group);
}

static void differ_in_group(struct zt_comm *c)
{
    struct zt_comm *group = split(c, my_rank % 2);
    float v[2] = {0};

    if (my_rank % 2)
        check_peer(my_rank == 3 ? zt_barrier(group, &fault)
                                : zt_broadcast(group, v, 2, ZT_F32, 0, &fault),
                   "rank 3 wants barrier, rank 1 broadcast of 8 bytes");
    else
        DO(zt_broadcast(group, v, 2, ZT_F32, 0, &fault));
    DO(zt_barrier(c, &fault)); /* these calls were the same */
    zt_comm_close(group);
}

static void test_a_difference_in_a_group_is_its_own_and_names_world_ranks(void **state)
{
    (void)state;
    run_ranks(4, differ_in_group);
}

static void leave_group(struct zt_comm *c)
{
    struct zt_comm *group = split(c, my_rank % 2);

    if (my_rank == 1)
        check_peer(zt_barrier(group, &fault), "rank 3 has closed its communicator");
    zt_comm_close(group);
    DO(zt_barrier(c, &fault));
}

static void test_a_member_that_left_is_named_at_once(void **state)
{
    (void)state;
    run_ranks(4, leave_group);
}

static void miss_group(struct zt_comm *c)
{
    struct zt_comm *group = split(c, my_rank % 2);

    if (my_rank == 1) {
        check_peer(zt_barrier(group, &fault), "on rank 1: rank 3 did not come within");
        send_bytes(3);
    } else {
        await_bytes(1);
        check_peer(zt_barrier(c, &fault), "because rank 3 did not come in time");
    }
    zt_comm_close(group);
}

static void test_a_missing_member_is_named_at_the_deadline(void **state)
{
    struct group g = {.world = 4, .timeout_s = 2};

    (void)state;
    make_fd(&g);
    for (int r = 0; r < 4; r++)
        start_rank(&g, r, true, miss_group);
    assert_ranks_end_well(&g);
}

static void die_with_world(struct zt_comm *c)
{
    struct zt_comm *group = split(c, my_rank % 2);
    float v = 0;

    /* the world dies of a difference; its groups have nobody to run with any more */
    check_peer(my_rank ? zt_barrier(c, &fault)
                       : zt_broadcast(c, &v, 1, ZT_F32, 0, &fault),
               "differs");
    check_peer(zt_barrier(group, &fault), "differs");
    zt_comm_close(group);
}

static void test_a_group_dies_with_its_world(void **state)
{
    (void)state;
    run_ranks(4, die_with_world);
}

static void fail_nth(struct zt_comm *none)
{
    struct zt_comm_config cfg = rank_config(world, my_rank);
    int nth = 1;
    zt_err rc;

    (void)none;
    do {
        struct zt_comm *c, *group = NULL;
        char engine[32];
        float v[2] = {0};
        void *p;

        snprintf(engine, sizeof(engine), "faulty:%d:shm", nth);
        cfg.engine = my_rank == 1 ? engine : "shm";
        cfg.shm_fd = world[nth].fd;
        DO(zt_comm_open(&cfg, &c, &fault));
        rc = zt_comm_split(c, my_rank / 2, &group, &fault);
        if (!rc)
            rc = zt_comm_alloc(group, 100, &p, &fault);
        if (!rc)
            rc = zt_all_reduce(group, v, v, 2, ZT_F32, ZT_SUM, 1.0f, &fault);
        if (!rc)
            rc = zt_barrier(c, &fault);
        if (rc)
            check_peer(rc, my_rank == 1 ? "rank 1 fails here on request"
                                        : "rank 1 has failed");
        zt_comm_close(group);
        zt_comm_close(c);
    } while (rc && ++nth < 8);
    CHECK(nth == 6); /* split: 2, alloc, all_reduce, barrier */
}

static void test_the_nth_call_can_fail_in_a_group(void **state)
{
    static struct group g[8] = {{.world = 4}};

    (void)state;
    for (int i = 1; i < 8; i++)
        make_fd(&g[i]);
    world = g;
    for (int r = 0; r < 4; r++)
        start_rank(&g[0], r, false, fail_nth);
    for (int r = 0; r < 4; r++)
        assert_int_equal(end_of_rank(&g[0], r), 0);
    for (int i = 1; i < 8; i++)
        close(g[i].fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_and_columns_of_a_world_of_4),
        cmocka_unit_test(test_groups_of_one_of_three_and_of_all),
        cmocka_unit_test(test_a_group_can_be_split),
        cmocka_unit_test(test_memory_in_common_is_the_groups_own),
        cmocka_unit_test(test_a_world_of_one_splits_into_itself),
        cmocka_unit_test(test_started_calls_of_all_groups_run_in_the_order_issued),
        cmocka_unit_test(test_closing_a_group_gives_its_memory_back),
        cmocka_unit_test(test_memory_that_one_lacks_is_refused_to_its_group),
        cmocka_unit_test(test_a_killed_rank_is_named_to_all_groups),
        cmocka_unit_test(test_an_abort_in_a_group_reaches_the_world),
        cmocka_unit_test(test_a_difference_in_a_group_is_its_own_and_names_world_ranks),
        cmocka_unit_test(test_a_member_that_left_is_named_at_once),
        cmocka_unit_test(test_a_missing_member_is_named_at_the_deadline),
        cmocka_unit_test(test_a_group_dies_with_its_world),
        cmocka_unit_test(test_the_nth_call_can_fail_in_a_group),
    };

    return cmocka_run_group_tests(tests, open_pipe, close_pipe);
}
