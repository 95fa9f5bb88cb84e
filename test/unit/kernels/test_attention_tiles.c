/*
 * Attention in bf16 by matrix tiles, or by their emulation where the processor has none: all that
 * attention has, of sizes that fill tiles and of sizes that do not, against sums in double.
 */
#include "test/unit/kernels/attention_problem.h"

#include "kernels/cpu/parallel.h"

/* Any of what attention has; the numbers go on where the last problem's ended. */
static struct shape any_shape(int64_t dim)
{
    int64_t group = 1 + number(3), kv_heads = 1 + number(2);
    struct shape s = {.batch = 1 + number(2),
                      .tq = 1 + number(200),
                      .kv_heads = kv_heads,
                      .heads = group * kv_heads,
                      .dim = dim,
                      .causal = number(2),
                      .window = number(3) ? 0 : 1 + number(90),
                      .dropout = number(3) ? 0 : 0.2f,
                      .packed = number(2),
                      .accumulate = number(2),
                      .dtype = ZT_BF16};

    s.tk = number(2) ? s.tq : 1 + number(500);
    s.packed = s.packed && s.tk == s.tq;
    if (number(3) == 0) {
        s.bias_batch = number(2) ? s.batch : 1;
        s.bias_heads = number(2) ? s.heads : 1;
    }
    if (number(4) == 0) {
        s.mask_batch = s.batch;
        s.mask_heads = 1;
    }
    if (number(4) == 0) {
        s.limits = ANYTHING;
        s.sample = 80;
    }
    return s;
}

static const int64_t dims[] = {8,  16, 24, 32, 40,  48,  56,  64,  72,
                               80, 96, 5,  33, 112, 128, 130, 250, 256};
#define NUM_DIMS ((int)(sizeof(dims) / sizeof(*dims)))

static void test_any_features_and_head_size_match_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * NUM_DIMS; i++) {
        struct shape s = any_shape(dims[i % NUM_DIMS]);

        check(&s);
    }
}

/* Several parts of keys in a strip, and the last part and strip of every length. */
static void test_long_rows_match_the_reference(void **state)
{
    static const int64_t lengths[] = {384, 385, 400, 415, 769, 1001};

    (void)state;
    for (int i = 0; i < 6; i++)
        check(&(struct shape){.batch = 1,
                              .tq = i % 2 ? lengths[i] : 140 + i,
                              .tk = lengths[i],
                              .heads = 1,
                              .kv_heads = 1,
                              .dim = i % 3 ? 40 : 16,
                              .causal = i % 2,
                              .dropout = i == 4 ? 0.1f : 0,
                              .packed = false,
                              .dtype = ZT_BF16});
}

/* Rows of columns of a matrix, which begin at any element. */
static void test_odd_head_sizes_in_columns_of_a_matrix(void **state)
{
    (void)state;
    for (int64_t dim = 1; dim < 36; dim += 2)
        check(&(struct shape){.batch = 1,
                              .tq = 50 + dim,
                              .tk = 50 + dim,
                              .heads = 2,
                              .kv_heads = 1,
                              .dim = dim,
                              .causal = dim % 4 == 1,
                              .packed = true,
                              .dtype = ZT_BF16});
}

static void test_one_to_three_threads_give_the_same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_DIMS; i += 2) {
        struct shape s = any_shape(dims[i]);
        uint64_t start = seed, end = seed;
        struct problem p[3];

        if (!in_sample())
            continue;
        for (int n = 0; n < 3; n++) {
            seed = start;
            zt_set_num_threads(n + 1);
            setup(&p[n], &s);
            end = seed;
            run(&p[n]);
            for (int j = 0; j < p[n].num; j++)
                assert_memory_equal(p[0].mem[j], p[n].mem[j], p[n].bytes[j]);
        }
        for (int n = 0; n < 3; n++)
            teardown(&p[n]);
        seed = end;
    }
    zt_set_num_threads(2);
}

/* Sequence b and heads of key/value head kv of v, as a tensor of one sequence. */
static struct zt_view part_of(const struct zt_view *v, int64_t b, int64_t kv,
                              int64_t kv_heads)
{
    int64_t heads = v->shape[2] / kv_heads;
    struct zt_view part = heads_of(*v, kv * heads, heads);

    part.data = (char *)part.data + b * v->stride[0] * (int64_t)zt_dtype_bytes(v->dtype);
    part.shape[0] = 1;
    return part;
}

/* What is in a view, densely, has the bits of what is in another. */
static void expect_same(const struct zt_view *x, const struct zt_view *y)
{
    for (int64_t b = 0; b < x->shape[0]; b++)
        for (int64_t t = 0; t < x->shape[1]; t++)
            for (int64_t h = 0; h < x->shape[2]; h++)
                for (int64_t i = 0; i < x->shape[3]; i++)
                    assert_true(get(x, b, t, h, i) == get(y, b, t, h, i));
}

static void test_other_heads_and_sequences_change_no_bit(void **state)
{
    static const int64_t sizes[] = {64, 80, 24, 33};

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct shape s = {.batch = 3,
                          .tq = 150 + i,
                          .tk = 150 + 100 * i,
                          .heads = 4,
                          .kv_heads = 2,
                          .dim = sizes[i],
                          .causal = i % 2,
                          .window = i == 3 ? 60 : 0,
                          .dtype = ZT_BF16};
        struct shape one = s;
        struct problem all, alone;

        if (!in_sample())
            continue;
        one.batch = one.kv_heads = 1;
        one.heads = 2;
        setup(&all, &s);
        run(&all);
        for (int64_t b = 0; b < s.batch; b++)
            for (int64_t kv = 0; kv < s.kv_heads; kv++) {
                const struct zt_attention_bwd_args *a = &all.a;
                struct zt_view out = part_of(&a->fwd.out, b, kv, s.kv_heads);
                struct zt_view dq = part_of(&a->dq, b, kv, s.kv_heads);
                struct zt_view dk = part_of(&a->dk, b, kv, s.kv_heads);
                struct zt_view dv = part_of(&a->dv, b, kv, s.kv_heads);

                setup(&alone, &one);
                alone.a.fwd.q = part_of(&a->fwd.q, b, kv, s.kv_heads);
                alone.a.fwd.k = part_of(&a->fwd.k, b, kv, s.kv_heads);
                alone.a.fwd.v = part_of(&a->fwd.v, b, kv, s.kv_heads);
                alone.a.dout = part_of(&a->dout, b, kv, s.kv_heads);
                run(&alone);
                expect_same(&out, &alone.a.fwd.out);
                expect_same(&dq, &alone.a.dq);
                expect_same(&dk, &alone.a.dk);
                expect_same(&dv, &alone.a.dv);
                teardown(&alone);
            }
        teardown(&all);
    }
}

/* Fresh numbers with every ZT_SEED. */
static int open_with_numbers(void **state)
{
    seed += 0x9e3779b97f4a7c15u * (uint64_t)number_of("ZT_SEED", 1);
    return open_with_tiles(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_features_and_head_size_match_the_reference),
        cmocka_unit_test(test_long_rows_match_the_reference),
        cmocka_unit_test(test_odd_head_sizes_in_columns_of_a_matrix),
        cmocka_unit_test(test_one_to_three_threads_give_the_same_bits),
        cmocka_unit_test(test_other_heads_and_sequences_change_no_bit),
    };

    if (!has_tiles_or_emulation()) {
        print_message("needs AVX-512 with bf16, which packs for tiles\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, open_with_numbers, close_with_tiles);
}
