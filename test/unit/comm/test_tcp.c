/* Collectives over TCP give what a sum in rank order by hand gives. */
#include "test/unit/comm/cases.h"
#include "test/unit/comm/tcp_ranks.h"

#include <netinet/in.h>
#include <sys/socket.h>

/* One after the other in one process: what is left of one does not disturb the next. */
static void open_again(struct zt_comm *none)
{
    struct group g = {.engine = "tcp", .world = shared->world, .fd = -1};
    struct zt_comm_config cfg = rank_config(&g, my_rank);

    (void)none;
    cfg.bootstrap = &bootstrap; /* the first is the last to need it */
    for (int i = 0; i < 5; i++) {
        struct zt_comm *c;

        DO(zt_comm_open(&cfg, &c, &fault));
        CHECK(!strcmp(zt_comm_engine_name(c), "tcp"));
        check_sum(c, 10000, 0, 1);
        zt_comm_close(c);
    }
}

/* A rank far ahead of another: all that it sends before it has to wait is kept. */
static void run_ahead(struct zt_comm *c)
{
    static float v[300000];

    for (int i = 0; i < 5; i++) {
        if (my_rank == 1) { /* 0 and 2 are in the call, and 2 has sent all it can */
            await_flag(2 * i + 2);
            usleep(20000);
        } else {
            atomic_fetch_add(&shared->flag, 1);
        }
        fill(v, 300000, ZT_F32, 5, my_rank);
        DO(zt_broadcast(c, v, 300000, ZT_F32, 2, &fault));
        check_sum(c, 3, 0, 1);
        check_sum(c, 300000, 0, 1);
    }
}

static void start_all(struct group *g, rank_fn fn)
{
    for (int r = 0; r < g->world; r++)
        start_rank(g, r, true, fn);
    assert_ranks_end_well(g);
}

/* ---------------------------------------------------------------- tests */
static void test_all_reduce_is_the_rank_order_sum(void **state)
{
    (void)state;
    for (int world = 1; world <= 4; world++)
        run_tcp(world, reduce_everywhere);
}

static void test_reduce_scatter_gives_each_rank_its_slice_of_the_sum(void **state)
{
    (void)state;
    for (int world = 1; world <= 4; world++)
        run_tcp(world, scatter_everywhere);
}

static void test_all_gather_puts_rank_r_at_place_r(void **state)
{
    (void)state;
    for (int world = 1; world <= 4; world++)
        run_tcp(world, gather_everywhere);
}

/* As if the ranks were on several nodes: pieces go between these first, then inside. */
static void test_all_gather_over_nodes_gives_the_same(void **state)
{
    struct group g = tcp_group(4);

    (void)state;
    g.node_ranks = 2;
    start_all(&g, gather_everywhere);
    g = tcp_group(6);
    g.node_ranks = 3;
    start_all(&g, gather_everywhere);
}

static void test_all_to_all_is_a_transpose(void **state)
{
    (void)state;
    for (int world = 1; world <= 4; world++)
        run_tcp(world, exchange_everywhere);
}

static void test_broadcast_gives_the_roots_bytes_to_all(void **state)
{
    (void)state;
    for (int world = 1; world <= 4; world++)
        run_tcp(world, broadcast_everywhere);
}

static void test_sum_f64_adds_in_rank_order(void **state)
{
    (void)state;
    run_tcp(4, sum_doubles);
}

static void test_memory_is_private_zeroed_and_may_be_refused(void **state)
{
    (void)state;
    run_tcp(2, memory_is_zeroed);
}

static void test_started_calls_complete_beside_blocking_ones(void **state)
{
    (void)state;
    run_tcp(3, fly);
}

static void test_groups_work_beside_the_whole(void **state)
{
    (void)state;
    run_tcp(4, split_up);
}

static void test_a_rank_may_come_late_to_every_call(void **state)
{
    (void)state;
    run_tcp(3, run_ahead);
}

static void test_a_process_can_open_one_after_the_other(void **state)
{
    struct group g = tcp_group(3);

    (void)state;
    for (int r = 0; r < 3; r++)
        start_rank(&g, r, false, open_again);
    assert_ranks_end_well(&g);
}

static void take_auto(struct zt_comm *c)
{
    CHECK(!strcmp(zt_comm_engine_name(c), "tcp"));
    check_sum(c, 10, 0, 1);
}

static void run_auto(void)
{
    struct group g = tcp_group(2);

    g.engine = "auto";
    start_all(&g, take_auto);
}

static void test_auto_takes_tcp_where_ranks_can_meet_and_mpi_is_not_there(void **state)
{
    (void)state;
    run_auto();
    setenv("PMI_RANK", "0", 1); /* by an MPI launcher, but MPI cannot be loaded */
    setenv("ZLAUNCH_MPI_BACKEND", "", 1);
    run_auto();
    unsetenv("PMI_RANK");
    unsetenv("ZLAUNCH_MPI_BACKEND");
}

static void test_ipv6_works_as_well(void **state)
{
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    bool there = fd >= 0 && !bind(fd, (void *)&a, sizeof(a));

    (void)state;
    close(fd);
    if (!there)
        skip();
    bootstrap.host = "::1";
    run_tcp(3, sum_doubles);
    bootstrap.host = "127.0.0.1";
}

/* Bound to every address, as between hosts. */
static void test_a_name_that_is_no_loopback_works(void **state)
{
    char name[256] = "";

    (void)state;
    assert_int_equal(gethostname(name, sizeof(name) - 1), 0);
    bootstrap.host = name;
    run_tcp(3, sum_doubles);
    bootstrap.host = "127.0.0.1";
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_reduce_is_the_rank_order_sum),
        cmocka_unit_test(test_reduce_scatter_gives_each_rank_its_slice_of_the_sum),
        cmocka_unit_test(test_all_gather_puts_rank_r_at_place_r),
        cmocka_unit_test(test_all_gather_over_nodes_gives_the_same),
        cmocka_unit_test(test_all_to_all_is_a_transpose),
        cmocka_unit_test(test_broadcast_gives_the_roots_bytes_to_all),
        cmocka_unit_test(test_sum_f64_adds_in_rank_order),
        cmocka_unit_test(test_memory_is_private_zeroed_and_may_be_refused),
        cmocka_unit_test(test_started_calls_complete_beside_blocking_ones),
        cmocka_unit_test(test_groups_work_beside_the_whole),
        cmocka_unit_test(test_a_rank_may_come_late_to_every_call),
        cmocka_unit_test(test_a_process_can_open_one_after_the_other),
        cmocka_unit_test(test_auto_takes_tcp_where_ranks_can_meet_and_mpi_is_not_there),
        cmocka_unit_test(test_ipv6_works_as_well),
        cmocka_unit_test(test_a_name_that_is_no_loopback_works),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
