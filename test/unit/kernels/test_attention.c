/* Attention and its gradients against sums in float64 that hold the whole matrix. */
#include "test/unit/kernels/attention_problem.h"

/* ---- tests ---- */

static void test_full_and_causal_match_the_reference(void **state)
{
    static const int64_t lengths[] = {1, 3, 17, 65, 130};

    (void)state;
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 5; i++)
            for (int causal = 0; causal < 2; causal++)
                check(&(struct shape){.batch = 2,
                                      .tq = lengths[i],
                                      .tk = lengths[i],
                                      .heads = 2,
                                      .kv_heads = 2,
                                      .dim = i % 2 ? 5 : 16,
                                      .causal = causal,
                                      .packed = i % 2 == 0,
                                      .accumulate = i == 3,
                                      .dtype = types[t]});
}

static void test_query_groups_share_keys(void **state)
{
    (void)state;
    for (int t = 0; t < 3; t++)
        check(&(struct shape){.batch = 2,
                              .tq = 33,
                              .tk = 33,
                              .heads = 6,
                              .kv_heads = 2,
                              .dim = 8,
                              .causal = true,
                              .packed = true,
                              .dtype = types[t]});
}

static void test_sliding_window_matches_the_reference(void **state)
{
    static const int64_t windows[] = {1, 5, 64, 1000};

    (void)state;
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 4; i++)
            check(&(struct shape){.batch = 1,
                                  .tq = 300,
                                  .tk = 300,
                                  .heads = 1,
                                  .kv_heads = 1,
                                  .dim = 4,
                                  .causal = i != 2,
                                  .window = windows[i],
                                  .dtype = types[t]});
}

static void test_wide_heads_and_many_strips_match_the_reference(void **state)
{
    (void)state;
    for (int t = 0; t < 3; t++)
        check(&(struct shape){.batch = 1,
                              .tq = 431,
                              .tk = 431,
                              .heads = 2,
                              .kv_heads = 1,
                              .dim = 80,
                              .causal = true,
                              .window = t == 1 ? 50 : 0,
                              .packed = true,
                              .dtype = types[t]});
}

static void test_cross_attention_of_other_lengths(void **state)
{
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int causal = 0; causal < 2; causal++) {
            struct shape s = {.batch = 2,
                              .tq = 7,
                              .tk = 150,
                              .heads = 2,
                              .kv_heads = 1,
                              .dim = 12,
                              .causal = causal,
                              .dtype = types[t]};
            check(&s);
            s.tq = 1;
            check(&s);
            s.tq = 140; /* more queries than keys: the first ones see nothing */
            s.tk = 9;
            check(&s);
        }
}

static void test_bias_is_added_and_its_gradient_sums_over_what_shares_it(void **state)
{
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 4; i++)
            check(&(struct shape){.batch = 3,
                                  .tq = 20,
                                  .tk = 35,
                                  .heads = 2,
                                  .kv_heads = 1,
                                  .dim = 8,
                                  .causal = i % 2,
                                  .bias_batch = i & 1 ? 3 : 1,
                                  .bias_heads = i & 2 ? 2 : 1,
                                  .accumulate = i == 2,
                                  .dtype = types[t]});
}

static void test_a_mask_is_added_to_the_bias_and_has_no_gradient(void **state)
{
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 8; i++)
            check(&(struct shape){.batch = 3,
                                  .tq = 20 + 120 * (i == 5),
                                  .tk = 35,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .dim = 8,
                                  .causal = i == 3,
                                  .bias_batch = i & 4 ? 0 : 1,
                                  .bias_heads = i & 4 ? 0 : 4,
                                  .mask_batch = i & 1 ? 3 : 1,
                                  .mask_heads = i & 2 ? 4 : 1,
                                  .accumulate = i == 2,
                                  .dtype = types[t]});
}

/* As padding is hidden: one row for all queries of a sequence, read in place. */
static void test_a_mask_of_one_row_for_all_queries_hides_keys(void **state)
{
    struct shape s = {.batch = 2,
                      .tq = 70,
                      .tk = 33,
                      .heads = 2,
                      .kv_heads = 2,
                      .dim = 8,
                      .bias_batch = 1,
                      .bias_heads = 2,
                      .mask_batch = 2,
                      .mask_heads = 1};
    struct problem p;
    float *mask, *dv;

    (void)state;
    setup(&p, &s);
    mask = p.a.fwd.mask.data;
    p.a.fwd.mask.stride[0] = s.tk;
    p.a.fwd.mask.stride[2] = 0;
    for (int64_t b = 0; b < 2; b++)
        for (int64_t j = 0; j < s.tk; j++)
            mask[b * s.tk + j] = j < 20 + 5 * b ? 0 : -1e30f;
    REF_RUN(dev, attention, &p.a.fwd);
    REF_RUN(dev, attention_bwd, &p.a);
    dv = p.a.dv.data;
    for (int64_t b = 0; b < 2; b++)
        for (int64_t j = 0; j < s.tk; j++)
            for (int64_t x = 0; x < s.heads * s.dim; x++)
                assert_true((dv[(b * s.tk + j) * s.heads * s.dim + x] != 0) ==
                            (j < 20 + 5 * b));
    teardown(&p);
}

static void test_dropout_follows_the_counter(void **state)
{
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 2; i++)
            check(&(struct shape){.batch = 2,
                                  .tq = i ? 131 : 70,
                                  .tk = i ? 29 : 70,
                                  .heads = 2,
                                  .kv_heads = 2,
                                  .dim = 8,
                                  .causal = i == 0,
                                  .window = i ? 0 : 40,
                                  .dropout = 0.3f,
                                  .dtype = types[t]});
}

static void test_a_bias_of_minus_infinity_hides_a_key(void **state)
{
    struct shape s = {.batch = 1,
                      .tq = 5,
                      .tk = 20,
                      .heads = 1,
                      .kv_heads = 1,
                      .dim = 4,
                      .bias_batch = 1,
                      .bias_heads = 1,
                      .dtype = ZT_F32};
    struct problem p;
    float *bias, *out, *dq, *dv;

    (void)state;
    setup(&p, &s);
    bias = p.a.fwd.bias.data;
    for (int64_t j = 0; j < s.tk; j++)
        bias[2 * s.tk + j] = -INFINITY; /* row 2 sees nothing */
    for (int64_t i = 0; i < s.tq; i++)
        bias[i * s.tk + 6] = -INFINITY; /* nobody sees key 6 */
    run(&p);
    out = p.a.fwd.out.data;
    dq = p.a.dq.data;
    dv = p.a.dv.data;
    for (int64_t x = 0; x < s.dim; x++) {
        assert_true(out[2 * s.dim + x] == 0);
        assert_true(dq[2 * s.dim + x] == 0);
        assert_true(dv[6 * s.dim + x] == 0);
        assert_true(isfinite(out[x]) && out[x] != 0);
    }
    teardown(&p);
}

static void test_nan_is_not_hidden(void **state)
{
    struct shape s = {
        .batch = 1, .tq = 20, .tk = 20, .heads = 1, .kv_heads = 1, .dim = 4};
    struct problem p;

    (void)state;
    setup(&p, &s);
    for (int64_t x = 0; x < s.dim; x++)
        ((float *)p.a.fwd.q.data)[3 * s.dim + x] = NAN;
    assert_int_equal(zt_cpu_attention(dev, NULL, &p.a.fwd, NULL), ZT_OK);
    assert_true(isnan(((float *)p.a.fwd.out.data)[3 * s.dim]));
    assert_false(isnan(((float *)p.a.fwd.out.data)[4 * s.dim]));
    teardown(&p);
}

static void test_threads_do_not_change_the_bits(void **state)
{
    struct shape s = {.batch = 2,
                      .tq = 200,
                      .tk = 200,
                      .heads = 2,
                      .kv_heads = 1,
                      .dim = 16,
                      .causal = true,
                      .bias_batch = 1,
                      .bias_heads = 1,
                      .dropout = 0.1f,
                      .packed = true,
                      .sample = 60};

    (void)state;
    for (int t = 0; t < 6; t++) {
        struct zt_device *two = dev;
        struct problem p, q;
        uint64_t start = seed;

        s.dtype = types[t % 3];
        s.limits = t < 3 ? ALL_KEYS : SEGMENTS;
        setup(&p, &s);
        run(&p);
        seed = start;
        setup(&q, &s);
        assert_int_equal(zt_cpu_backend.open(0, 1, &dev, NULL), ZT_OK);
        run(&q);
        zt_cpu_backend.close(dev);
        dev = two;
        for (int i = 0; i < p.num; i++)
            assert_memory_equal(p.mem[i], q.mem[i], p.bytes[i]);
        teardown(&p);
        teardown(&q);
        assert_int_equal(zt_cpu_backend.open(0, 2, &dev, NULL), ZT_OK);
        zt_cpu_backend.close(two);
    }
}

static void test_overlapping_positions_are_refused(void **state)
{
    struct shape s = {.batch = 1, .tq = 4, .tk = 4, .heads = 1, .kv_heads = 1, .dim = 4};
    struct problem p;

    (void)state;
    setup(&p, &s);
    p.a.fwd.k.stride[1] = 0;
    assert_int_equal(zt_cpu_attention(dev, NULL, &p.a.fwd, NULL), ZT_E_ARG);
    assert_int_equal(zt_cpu_attention_bwd(dev, NULL, &p.a, NULL), ZT_E_ARG);
    teardown(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_and_causal_match_the_reference),
        cmocka_unit_test(test_query_groups_share_keys),
        cmocka_unit_test(test_sliding_window_matches_the_reference),
        cmocka_unit_test(test_wide_heads_and_many_strips_match_the_reference),
        cmocka_unit_test(test_cross_attention_of_other_lengths),
        cmocka_unit_test(test_bias_is_added_and_its_gradient_sums_over_what_shares_it),
        cmocka_unit_test(test_a_mask_is_added_to_the_bias_and_has_no_gradient),
        cmocka_unit_test(test_a_mask_of_one_row_for_all_queries_hides_keys),
        cmocka_unit_test(test_dropout_follows_the_counter),
        cmocka_unit_test(test_a_bias_of_minus_infinity_hides_a_key),
        cmocka_unit_test(test_nan_is_not_hidden),
        cmocka_unit_test(test_threads_do_not_change_the_bits),
        cmocka_unit_test(test_overlapping_positions_are_refused),
    };

    return RUN_WITH_AND_WITHOUT_TILES(tests);
}
