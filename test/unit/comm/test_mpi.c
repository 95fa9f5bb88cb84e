/* Collectives by messages give what a sum in rank order by hand gives. */
#include "test/unit/comm/cases.h"
#include "test/unit/comm/mpi_ranks.h"

/* One after the other in one process: what is left of one does not disturb the next. */
static void open_again(struct zt_comm *none)
{
    struct zt_comm_config cfg = mpi_config(0);

    (void)none;
    for (int i = 0; i < 5; i++) {
        struct zt_comm *c;

        DO(zt_comm_open(&cfg, &c, &fault));
        CHECK(!strcmp(zt_comm_engine_name(c), "mpi"));
        check_sum(c, 10000, 0, 1);
        zt_comm_close(c);
    }
}

static void automatic(struct zt_comm *none)
{
    struct zt_comm_config cfg = mpi_config(0);
    struct zt_comm *c;

    (void)none;
    cfg.engine = "auto";
    DO(zt_comm_open(&cfg, &c, &fault));
    CHECK(!strcmp(zt_comm_engine_name(c), "mpi"));
    check_sum(c, 10, 0, 1);
    zt_comm_close(c);
}

const struct scenario scenarios[] = {
    {"reduce", reduce_everywhere, true, 0},
    {"scatter", scatter_everywhere, true, 0},
    {"gather", gather_everywhere, true, 0},
    {"exchange", exchange_everywhere, true, 0},
    {"broadcast", broadcast_everywhere, true, 0},
    {"doubles", sum_doubles, true, 0},
    {"memory", memory_is_zeroed, true, 0},
    {"fly", fly, true, 0},
    {"split", split_up, true, 0},
    {"again", open_again, false, 0},
    {"auto", automatic, false, 0},
    {0},
};

static void test_all_reduce_is_the_rank_order_sum(void **state)
{
    (void)state;
    run_fine(2, "reduce");
    run_fine(3, "reduce");
    run_fine(4, "reduce");
}

static void test_reduce_scatter_gives_each_rank_its_slice_of_the_sum(void **state)
{
    (void)state;
    run_fine(2, "scatter");
    run_fine(3, "scatter");
}

static void test_all_gather_puts_rank_r_at_place_r(void **state)
{
    (void)state;
    run_fine(2, "gather");
    run_fine(4, "gather");
}

/* As if the ranks were on several nodes: pieces go between these first, then inside. */
static void test_all_gather_over_nodes_gives_the_same(void **state)
{
    (void)state;
    setenv("TEST_NODE_RANKS", "2", 1);
    run_fine(4, "gather");
    run_fine(6, "gather");
    setenv("TEST_NODE_RANKS", "3", 1);
    run_fine(6, "gather");
    run_fine(4, "gather"); /* does not divide: in one step */
    unsetenv("TEST_NODE_RANKS");
}

static void test_all_to_all_is_a_transpose(void **state)
{
    (void)state;
    run_fine(2, "exchange");
    run_fine(3, "exchange");
}

static void test_broadcast_gives_the_roots_bytes_to_all(void **state)
{
    (void)state;
    run_fine(2, "broadcast");
    run_fine(3, "broadcast");
}

static void test_sum_f64_adds_in_rank_order(void **state)
{
    (void)state;
    run_fine(4, "doubles");
}

static void test_memory_is_private_zeroed_and_may_be_refused(void **state)
{
    (void)state;
    run_fine(2, "memory");
}

static void test_started_calls_complete_beside_blocking_ones(void **state)
{
    (void)state;
    run_fine(3, "fly");
}

static void test_groups_work_beside_the_whole(void **state)
{
    (void)state;
    run_fine(4, "split");
}

static void test_a_process_can_open_one_after_the_other(void **state)
{
    (void)state;
    run_fine(3, "again");
}

static void test_auto_finds_mpi_under_its_launcher(void **state)
{
    (void)state;
    run_fine(2, "auto");
}

static void test_a_world_of_one_works_like_any_other(void **state)
{
    (void)state;
    run_fine(1, "reduce");
    run_fine(1, "exchange");
    run_fine(1, "broadcast");
}

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
    cmocka_unit_test(test_a_process_can_open_one_after_the_other),
    cmocka_unit_test(test_auto_finds_mpi_under_its_launcher),
    cmocka_unit_test(test_a_world_of_one_works_like_any_other),
};

MPI_MAIN(tests)
