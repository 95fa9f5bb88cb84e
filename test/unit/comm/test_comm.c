/* The front: a world of one, arguments, engines by name, handles. */
#include "test/unit/comm/ranks.h"

static struct zt_comm *open_engine(const char *engine)
{
    struct zt_comm_config cfg = {.engine = engine, .world = 1, .shm_fd = -1};
    struct zt_comm *c = NULL;

    assert_int_equal(zt_comm_open(&cfg, &c, &fault), ZT_OK);
    return c;
}

static void test_auto_is_solo_for_a_world_of_one(void **state)
{
    struct zt_comm *c = open_engine("auto");

    (void)state;
    assert_string_equal(zt_comm_engine_name(c), "solo");
    assert_int_equal(zt_comm_rank(c), 0);
    assert_int_equal(zt_comm_world(c), 1);
    zt_comm_close(c);
    zt_comm_close(NULL);
}

static void test_auto_finds_a_way_for_any_number_of_ranks(void **state)
{
    struct zt_comm_config cfg = {.engine = "auto", .world = 256, .shm_fd = 3};

    (void)state;
    assert_int_equal(zt_comm_missing(&cfg), ZT_COMM_NEEDS_NOTHING); /* shm */
    cfg.world = 257;
    assert_int_equal(zt_comm_missing(&cfg), ZT_COMM_NEEDS_BOOTSTRAP); /* tcp */
    cfg.shm_fd = -1;
    assert_int_equal(zt_comm_missing(&cfg), ZT_COMM_NEEDS_BOOTSTRAP);
    cfg.world = 256;
    assert_int_equal(zt_comm_missing(&cfg), ZT_COMM_NEEDS_EITHER);
}

static void assert_open_fails(const char *engine, int rank, int world, zt_err code,
                              const char *part)
{
    struct zt_comm_config cfg = {
        .engine = engine, .rank = rank, .world = world, .shm_fd = -1, .timeout_s = 1};
    struct zt_comm *c = NULL;

    assert_int_equal(zt_comm_open(&cfg, &c, &fault), code);
    assert_null(c);
    assert_non_null(strstr(fault.text, part));
}

static void test_open_refuses_what_it_cannot_be(void **state)
{
    (void)state;
    assert_open_fails("rccl", 0, 1, ZT_E_UNSUPPORTED, "'rccl'");
    assert_open_fails("so", 0, 1, ZT_E_UNSUPPORTED, "'so'");
    assert_open_fails("auto", 0, 2, ZT_E_UNSUPPORTED, "2 ranks with no way between them");
    assert_open_fails("solo", 1, 2, ZT_E_ARG, "world of 1");
    assert_open_fails("solo", 1, 1, ZT_E_ARG, "rank 1 of a world of 1");
    assert_open_fails("solo", 0, 0, ZT_E_ARG, "world of 0");
    assert_open_fails("shm", 0, 2, ZT_E_SYSTEM, "descriptor -1");
    assert_open_fails("shm", 0, 1000, ZT_E_UNSUPPORTED, "at most");
    assert_open_fails("faulty", 0, 1, ZT_E_ARG, "faulty:<call>:<engine>");
    assert_open_fails("faulty:0:solo", 0, 1, ZT_E_ARG, "faulty:<call>:<engine>");
    assert_open_fails("faulty:2:nope", 0, 1, ZT_E_UNSUPPORTED, "'nope'");
}

/* Every collective of one rank is a copy, or a scaled, rounded copy. */
static void one_rank(struct zt_comm *c)
{
    static float x[6000], y[6000], want[6000];
    static uint16_t h[6000], wh[6000];
    double v[2] = {0.1, 7};
    void *p;

    fill(x, 6000, ZT_F32, 1, 0);
    expect_reduction(want, 6000, ZT_F32, 1, 1, ZT_SUM, 0.3f);
    assert_int_equal(zt_all_reduce(c, x, y, 6000, ZT_F32, ZT_SUM, 0.3f, &fault), 0);
    assert_memory_equal(y, want, sizeof(y));
    assert_int_equal(zt_reduce_scatter(c, x, y, 6000, ZT_F32, 0.3f, &fault), 0);
    assert_memory_equal(y, want, sizeof(y));
    for (int d = ZT_BF16; d <= ZT_F16; d++) {
        fill(h, 6000, (zt_dtype)d, 1, 0);
        expect_reduction(wh, 6000, (zt_dtype)d, 1, 1, ZT_SUM, 0.3f);
        assert_int_equal(zt_all_reduce(c, h, h, 6000, (zt_dtype)d, ZT_SUM, 0.3f, &fault),
                         0);
        assert_memory_equal(h, wh, sizeof(h));
    }
    assert_int_equal(zt_all_gather(c, x, y, 6000, ZT_F32, &fault), 0);
    assert_memory_equal(y, x, sizeof(y));
    memset(y, 0, sizeof(y));
    assert_int_equal(zt_all_to_all(c, x, y, 6000, ZT_F32, &fault), 0);
    assert_memory_equal(y, x, sizeof(y));
    assert_int_equal(zt_broadcast(c, y, 6000, ZT_F32, 0, &fault), 0);
    assert_memory_equal(y, x, sizeof(y));
    assert_int_equal(zt_barrier(c, &fault), 0);
    assert_int_equal(zt_sum_f64(c, v, 2, &fault), 0);
    assert_true(v[0] == 0.1 && v[1] == 7);
    assert_int_equal(zt_comm_alloc(c, 5000, &p, &fault), 0);
    assert_int_equal((uintptr_t)p % 4096, 0);
    for (int i = 0; i < 5000; i++)
        assert_int_equal(((char *)p)[i], 0);
}

static void test_solo_scales_and_rounds(void **state)
{
    struct zt_comm *c = open_engine("solo");

    (void)state;
    one_rank(c);
    zt_comm_close(c);
}

static void test_shm_of_one_rank_is_solo(void **state)
{
    struct group g = {.world = 1};
    struct zt_comm_config cfg;
    struct zt_comm *c, *again;

    (void)state;
    make_fd(&g);
    cfg = rank_config(&g, 0);
    assert_int_equal(zt_comm_open(&cfg, &c, &fault), ZT_OK);
    one_rank(c);
    zt_comm_close(c);
    assert_int_equal(zt_comm_open(&cfg, &again, &fault), ZT_E_ARG); /* memory is fresh */
    close(g.fd);
}

static void test_broken_rules_are_named_and_break_nothing(void **state)
{
    struct zt_comm *c = open_engine("solo");
    float x[8] = {0}, y[8];
    zt_comm_handle h = 99;

    (void)state;
    assert_int_equal(zt_all_reduce(c, x, x + 1, 4, ZT_F32, ZT_SUM, 1, &fault), ZT_E_ARG);
    assert_string_equal(fault.text, "comm: all_reduce: send and recv overlap");
    assert_int_equal(zt_all_gather(c, x + 1, x, 4, ZT_F32, &fault), ZT_E_ARG);
    assert_int_equal(zt_all_to_all(c, x + 1, x, 4, ZT_F32, &fault), ZT_E_ARG);
    assert_int_equal(zt_reduce_scatter(c, x + 1, x, 4, ZT_F32, 1, &fault), ZT_E_ARG);
    assert_int_equal(zt_all_reduce(c, NULL, y, 4, ZT_F32, ZT_SUM, 1, &fault), ZT_E_ARG);
    assert_int_equal(zt_all_reduce(c, x, y, 4, ZT_NUM_DTYPE, ZT_SUM, 1, &fault),
                     ZT_E_ARG);
    assert_int_equal(zt_all_reduce(c, x, y, 4, ZT_F32, (zt_reduce_op)9, 1, &fault),
                     ZT_E_ARG);
    assert_int_equal(zt_all_reduce(c, x, y, 4, ZT_I32, ZT_SUM, 0.5f, &fault), ZT_E_ARG);
    assert_int_equal(zt_all_reduce(c, x, y, SIZE_MAX / 4, ZT_F32, ZT_SUM, 1, &fault),
                     ZT_E_ARG);
    assert_int_equal(zt_broadcast(c, x, 4, ZT_F32, 1, &fault), ZT_E_ARG);
    assert_int_equal(zt_sum_f64(c, NULL, 1, &fault), ZT_E_ARG);
    assert_int_equal(zt_all_gather_start(c, NULL, y, 4, ZT_F32, &h, &fault), ZT_E_ARG);
    assert_int_equal(h, 99);
    assert_int_equal(zt_comm_wait(c, 1, &fault), ZT_E_ARG);
    assert_int_equal(zt_all_reduce(c, NULL, NULL, 0, ZT_F32, ZT_SUM, 1, &fault), ZT_OK);
    zt_comm_close(c);
}

static void test_handles_complete_in_order(void **state)
{
    struct zt_comm *c = open_engine("solo");
    static float x[200][64];
    zt_comm_handle h[200];

    (void)state;
    for (int i = 0; i < 200; i++) {
        x[i][63] = (float)i;
        assert_int_equal(
            zt_all_reduce_start(c, x[i], x[i], 64, ZT_F32, ZT_SUM, 2, &h[i], &fault), 0);
    }
    assert_int_equal(zt_comm_wait(c, h[150], &fault), 0);
    for (int i = 0; i <= 150; i++)
        assert_true(x[i][63] == (float)(2 * i));
    assert_int_equal(zt_barrier(c, &fault), 0); /* after all of them */
    for (int i = 0; i < 200; i++)
        assert_true(x[i][63] == (float)(2 * i));
    zt_comm_close(c);
}

static void test_an_aborted_communicator_stays_dead(void **state)
{
    struct zt_comm *c = open_engine("solo");
    float x[4] = {0};
    zt_comm_handle h;

    (void)state;
    zt_comm_abort(c, 0);
    assert_int_equal(zt_barrier(c, &fault), ZT_E_PEER);
    assert_non_null(strstr(fault.text, "rank 0 has failed"));
    assert_int_equal(zt_all_gather_start(c, x, x, 4, ZT_F32, &h, NULL), ZT_OK);
    assert_int_equal(zt_comm_wait(c, h, &fault), ZT_E_PEER);
    zt_comm_close(c);
}

static void test_the_nth_call_fails_and_later_ones_repeat_it(void **state)
{
    (void)state;
    for (int nth = 1; nth <= 4; nth++) {
        char engine[32], want[ZT_FAULT_TEXT] = "";
        float x[4] = {0};
        struct zt_comm *c;

        snprintf(engine, sizeof(engine), "faulty:%d:solo", nth);
        c = open_engine(engine);
        for (int i = 1; i <= 5; i++) {
            zt_comm_handle h;
            zt_err rc;

            assert_int_equal(zt_reduce_scatter_start(c, x, x, 4, ZT_F32, 1, &h, &fault),
                             0);
            rc = zt_comm_wait(c, h, &fault);
            assert_int_equal(rc, i < nth ? ZT_OK : ZT_E_PEER);
            if (i == nth)
                memcpy(want, fault.text, sizeof(want));
            if (i >= nth)
                assert_string_equal(fault.text, want);
        }
        zt_comm_close(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto_is_solo_for_a_world_of_one),
        cmocka_unit_test(test_auto_finds_a_way_for_any_number_of_ranks),
        cmocka_unit_test(test_open_refuses_what_it_cannot_be),
        cmocka_unit_test(test_solo_scales_and_rounds),
        cmocka_unit_test(test_shm_of_one_rank_is_solo),
        cmocka_unit_test(test_broken_rules_are_named_and_break_nothing),
        cmocka_unit_test(test_handles_complete_in_order),
        cmocka_unit_test(test_an_aborted_communicator_stays_dead),
        cmocka_unit_test(test_the_nth_call_fails_and_later_ones_repeat_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
