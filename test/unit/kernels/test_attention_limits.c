/*
 * Attention where each query has keys of its own: samples that share a row see themselves alone,
 * to the bits, whatever their neighbours hold.
 */
#include "test/unit/kernels/attention_problem.h"

/* ---- against the whole matrix ---- */

static void test_samples_that_share_rows_match_the_reference(void **state)
{
    static const struct {
        int64_t length, sample, dim;
    } sizes[] = {{1, 1, 16}, {33, 4, 5}, {130, 50, 16}, {260, 40, 64}};

    (void)state;
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 4; i++)
            for (int kind = 0; kind < 4; kind++)
                check(&(struct shape){.batch = 2,
                                      .tq = sizes[i].length,
                                      .tk = sizes[i].length,
                                      .heads = 2,
                                      .kv_heads = 1 + i % 2,
                                      .dim = sizes[i].dim,
                                      .limits = kind < 2 ? BEGINS : SEGMENTS,
                                      .sample = sizes[i].sample,
                                      .causal = kind < 3,
                                      .window = kind == 1 ? 7 : 0,
                                      .packed = i % 2 == 0,
                                      .accumulate = i == 3,
                                      .dtype = types[t]});
}

/* Many strips and parts of strips, of which some are seen by nobody. */
static void test_long_rows_of_short_samples_match_the_reference(void **state)
{
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int kind = 0; kind < 2; kind++)
            check(&(struct shape){.batch = 1,
                                  .tq = 700,
                                  .tk = 700,
                                  .heads = 1,
                                  .kv_heads = 1,
                                  .dim = 16,
                                  .limits = SEGMENTS,
                                  .sample = kind ? 90 : 500,
                                  .causal = kind,
                                  .packed = true,
                                  .dtype = types[t]});
}

/* Longer than what bf16 products of either form work on at a time. */
static void test_rows_of_many_parts_match_the_reference(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++)
        check(&(struct shape){.batch = 1,
                              .tq = 1300,
                              .tk = 1300,
                              .heads = 1,
                              .kv_heads = 1,
                              .dim = 4,
                              .limits = SEGMENTS,
                              .sample = kind ? 90 : 1200,
                              .causal = kind,
                              .dtype = ZT_BF16});
}

static void test_limits_in_any_order_match_the_reference(void **state)
{
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 4; i++)
            check(&(struct shape){.batch = 3,
                                  .tq = i & 1 ? 140 : 67,
                                  .tk = i & 2 ? 67 : 301,
                                  .heads = 2,
                                  .kv_heads = 1,
                                  .dim = i & 1 ? 8 : 34,
                                  .limits = ANYTHING,
                                  .sample = 60,
                                  .causal = i == 2,
                                  .accumulate = i == 1,
                                  .dtype = types[t]});
}

static void test_limits_go_with_bias_and_dropout(void **state)
{
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 4; i++)
            check(&(struct shape){.batch = 3,
                                  .tq = 150,
                                  .tk = 150,
                                  .heads = 2,
                                  .kv_heads = 1,
                                  .dim = 8,
                                  .limits = i & 1 ? SEGMENTS : ANYTHING,
                                  .sample = 25,
                                  .causal = i % 3 == 0,
                                  .bias_batch = i & 1 ? 3 : 1,
                                  .bias_heads = i & 2 ? 2 : 1,
                                  .dropout = i == 3 ? 0.3f : 0,
                                  .accumulate = i == 2,
                                  .dtype = types[t]});
}

/* ---- a sample and its neighbours ---- */

/* A problem of three samples in a row, of which the second one is [from, to). */
static void three_samples(struct problem *p, zt_dtype dtype, int64_t from, int64_t to)
{
    struct shape s = {.batch = 2,
                      .tq = 400,
                      .tk = 400,
                      .heads = 2,
                      .kv_heads = 1,
                      .dim = 16,
                      .limits = SEGMENTS,
                      .sample = 1,
                      .causal = true,
                      .dtype = dtype};

    setup(p, &s);
    for (int64_t i = 0; i < s.batch * s.tq; i++) {
        int64_t at = i % s.tq;

        ((int32_t *)p->a.fwd.key_begin.data)[i] = (int32_t)(at < from ? 0
                                                            : at < to ? from
                                                                      : to);
        ((int32_t *)p->a.fwd.key_end.data)[i] = (int32_t)(at < from ? from
                                                          : at < to ? to
                                                                    : s.tq);
    }
}

/* Rows [from, to) of sequence b of two tensors have the same bits. */
static void expect_same_rows(const struct zt_view *x, const struct zt_view *y, int64_t b,
                             int64_t from, int64_t to)
{
    size_t bytes = (size_t)(x->shape[2] * x->shape[3]) * zt_dtype_bytes(x->dtype);

    for (int64_t i = from; i < to; i++)
        assert_memory_equal((const char *)x->data + (size_t)(b * x->shape[1] + i) * bytes,
                            (const char *)y->data + (size_t)(b * x->shape[1] + i) * bytes,
                            bytes);
}

static void test_neighbours_do_not_change_a_bit_of_a_sample(void **state)
{
    enum { FROM = 90, TO = 251 };

    (void)state;
    for (int t = 0; t < 3; t++) {
        struct problem p, other;
        uint64_t start = seed;

        three_samples(&p, types[t], FROM, TO);
        seed = start;
        three_samples(&other, types[t], FROM, TO);
        /* the other two have other values */
        for (int n = 0; n < 3; n++) {
            const struct zt_view *v = n == 0   ? &other.a.fwd.q
                                      : n == 1 ? &other.a.fwd.k
                                               : &other.a.fwd.v;
            int64_t width = v->shape[2] * v->shape[3];

            for (int64_t i = 0; i < zt_view_numel(v); i++) {
                int64_t at = i / width % v->shape[1];
                float x = 3 * uniform();

                if (at < FROM || at >= TO)
                    zt_store_row((char *)v->data + (size_t)i * zt_dtype_bytes(v->dtype),
                                 v->dtype, 1, &x, 1);
            }
        }
        run(&p);
        run(&other);
        for (int64_t b = 0; b < 2; b++) {
            expect_same_rows(&p.a.fwd.out, &other.a.fwd.out, b, FROM, TO);
            expect_same_rows(&p.a.dq, &other.a.dq, b, FROM, TO);
            expect_same_rows(&p.a.dk, &other.a.dk, b, FROM, TO);
            expect_same_rows(&p.a.dv, &other.a.dv, b, FROM, TO);
        }
        teardown(&p);
        teardown(&other);
    }
}

static void test_a_query_without_keys_gives_and_takes_nothing(void **state)
{
    struct problem p;
    float *out, *dq;

    (void)state;
    three_samples(&p, ZT_F32, 90, 251);
    ((int32_t *)p.a.fwd.key_end.data)[100] = 90; /* nothing lies in [90, 90) */
    run(&p);
    out = p.a.fwd.out.data;
    dq = p.a.dq.data;
    for (int64_t x = 0; x < 2 * 16; x++) {
        assert_true(out[100 * 2 * 16 + x] == 0 && dq[100 * 2 * 16 + x] == 0);
        assert_true(out[101 * 2 * 16 + x] != 0);
    }
    assert_true(((float *)p.a.fwd.lse.data)[100] == -INFINITY);
    teardown(&p);
}

static void test_limits_of_another_shape_are_refused(void **state)
{
    struct zt_fault fault = {0};
    struct problem p;

    (void)state;
    three_samples(&p, ZT_F32, 90, 251);
    p.a.fwd.key_end.shape[1] = 399;
    assert_int_equal(zt_cpu_attention(dev, NULL, &p.a.fwd, &fault), ZT_E_ARG);
    assert_non_null(strstr(fault.text, "key_end (2, 399) i32"));
    p.a.fwd.key_end.shape[1] = 400;
    p.a.fwd.key_begin.dtype = ZT_F32;
    assert_int_equal(zt_cpu_attention_bwd(dev, NULL, &p.a, &fault), ZT_E_ARG);
    assert_non_null(strstr(fault.text, "key_begin (2, 400) f32"));
    teardown(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples_that_share_rows_match_the_reference),
        cmocka_unit_test(test_long_rows_of_short_samples_match_the_reference),
        cmocka_unit_test(test_rows_of_many_parts_match_the_reference),
        cmocka_unit_test(test_limits_in_any_order_match_the_reference),
        cmocka_unit_test(test_limits_go_with_bias_and_dropout),
        cmocka_unit_test(test_neighbours_do_not_change_a_bit_of_a_sample),
        cmocka_unit_test(test_a_query_without_keys_gives_and_takes_nothing),
        cmocka_unit_test(test_limits_of_another_shape_are_refused),
    };

    return RUN_WITH_AND_WITHOUT_TILES(tests);
}
