/* The sum over ranks: exact conversions, the same bits on every instruction set. */
#include "test/unit/comm/ranks.h"
#include "common/half.h"

static void test_every_16_bit_float_widens_exactly(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float b = zt_float_of_bf16((uint16_t)h), f = zt_float_of_f16((uint16_t)h);
        double wb = decode(h, 8, 7), wf = decode(h, 5, 10);

        if (!(isnan(wb) ? isnan(b) : (double)b == wb && !signbit(b) == !signbit(wb)) ||
            !(isnan(wf) ? isnan(f) : (double)f == wf && !signbit(f) == !signbit(wf)))
            fail_msg("code %04x: bf16 %g, f16 %g", h, (double)b, (double)f);
    }
}

/* Around every 16-bit float: itself, the midpoint to the next, and a step to each side.
 */
static void test_narrowing_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        for (int kind = 0; kind < 2; kind++) {
            int bits = kind ? 5 : 8, frac = kind ? 10 : 7;
            double a = decode(h, bits, frac), b = decode((h + 1) & 0xffff, bits, frac);
            float mid = (float)((a + b) / 2);
            float near[4] = {(float)a, mid, nextafterf(mid, INFINITY),
                             nextafterf(mid, -INFINITY)};

            if (isnan(a) || isnan(mid))
                continue;
            for (int i = 0; i < 4; i++) {
                uint32_t got =
                    kind ? zt_f16_of_float(near[i]) : zt_bf16_of_float(near[i]);

                if (got != encode((double)near[i], bits, frac))
                    fail_msg("%a: %04x, not %04x", (double)near[i], got,
                             encode((double)near[i], bits, frac));
            }
        }
    }
}

static void test_nan_stays_nan_in_both_directions(void **state)
{
    (void)state;
    for (uint32_t u = 0x7f800001u; u < 0x7fffffffu; u += 4099) {
        float x = zt_float_of_bits(u), y = zt_float_of_bits(u | 0x80000000u);

        assert_true(isnan(zt_float_of_bf16(zt_bf16_of_float(x))));
        assert_true(isnan(zt_float_of_bf16(zt_bf16_of_float(y))));
        assert_true(isnan(zt_float_of_f16(zt_f16_of_float(x))));
        assert_true(isnan(zt_float_of_f16(zt_f16_of_float(y))));
    }
}

/* Any bits but NaN: infinities, subnormals, both zeros, the largest. */
static void wild(void *buf, size_t count, zt_dtype dtype, int rank)
{
    uint8_t *p = buf;

    for (size_t i = 0; i < count * zt_dtype_bytes(dtype); i++)
        p[i] = (uint8_t)mix(5, (uint64_t)rank, i);
    for (size_t i = 0; i < count && dtype <= ZT_F16; i++)
        if (isnan(get_value(buf, i, dtype)))
            put_value(buf, i, dtype, i % 2 ? 65504.0 : -0.0);
}

#define N 5003

/* Two sources and three take different loops. */
static void compare_levels(const struct zt_rank_reduction *how, int num_src, int best)
{
    static uint64_t src[3][N], out[3][N + 8];
    const void *srcs[3] = {src[0], src[1], src[2]};

    for (int r = 0; r < num_src; r++)
        wild(src[r], N, how->dtype, r);
    memset(out, 0, sizeof(out));
    for (int l = 0; l <= best; l++) {
        void *dst = out[l];

        zt_reduce_set_level(l);
        assert_int_equal(zt_reduce_level(), l);
        zt_reduce_ranks(how, &dst, 1, srcs, num_src, N);
        if (how->dtype <= ZT_F16) /* inf - inf: which NaN is not specified */
            for (size_t i = 0; i < N; i++)
                if (isnan(get_value(dst, i, how->dtype)))
                    put_value(dst, i, how->dtype, 0);
        assert_memory_equal(out[0], out[l], sizeof(out[0]));
    }
}

static void test_every_instruction_set_gives_the_same_bits(void **state)
{
    int best = zt_reduce_level();

    (void)state;
    for (int d = 0; d < ZT_NUM_DTYPE; d++)
        for (int op = ZT_SUM; op <= ZT_MAX; op++)
            for (int num_src = 1; num_src <= 3; num_src++) {
                struct zt_rank_reduction how = {(zt_dtype)d, (zt_reduce_op)op,
                                                d <= ZT_F16 ? 0.77f : 1, false, false};

                compare_levels(&how, num_src, best);
            }
    zt_reduce_set_level(best);
}

/* As in an all_reduce in place: every source becomes the result. */
static void fold_in_place(const struct zt_rank_reduction *how, int num)
{
    static uint64_t src[4][N], want[N];
    const void *srcs[4] = {src[0], src[1], src[2], src[3]};
    void *dsts[4] = {src[0], src[1], src[2], src[3]}, *apart = want;

    for (int r = 0; r < num; r++)
        fill(src[r], N, how->dtype, 3, r);
    zt_reduce_ranks(how, &apart, 1, srcs, num, N);
    zt_reduce_ranks(how, dsts, num, srcs, num, N);
    for (int r = 0; r < num; r++)
        assert_memory_equal(src[r], want, N * zt_dtype_bytes(how->dtype));
    for (int last = 1; last < num; last++) { /* or one of them, as in a reduce_scatter */
        for (int r = 0; r < num; r++)
            fill(src[r], N, how->dtype, 3, r);
        zt_reduce_ranks(how, &dsts[last], 1, srcs, num, N);
        assert_memory_equal(src[last], want, N * zt_dtype_bytes(how->dtype));
    }
}

static void test_results_may_take_the_place_of_sources(void **state)
{
    int best = zt_reduce_level();

    (void)state;
    for (int l = 0; l <= best; l++)
        for (int d = 0; d < ZT_NUM_DTYPE; d++)
            for (int num = 1; num <= 4; num++)
                for (int way = 0; way < 6; way++) {
                    struct zt_rank_reduction how = {
                        (zt_dtype)d, way & 1 ? ZT_MAX : ZT_SUM, d <= ZT_F16 ? 0.77f : 1,
                        way / 2 == 1, way / 2 == 2};

                    zt_reduce_set_level(l);
                    fold_in_place(&how, num);
                }
    zt_reduce_set_level(best);
}

static void test_cutting_streaming_and_direction_do_not_change_a_bit(void **state)
{
    static uint16_t src[2][N], whole[N], cut[2][N + 64];
    struct zt_rank_reduction how = {ZT_BF16, ZT_SUM, 0.3f, false, false};
    const void *srcs[2] = {src[0], src[1]};
    void *dst = whole;

    (void)state;
    fill(src[0], N, ZT_BF16, 1, 0);
    fill(src[1], N, ZT_BF16, 1, 1);
    zt_reduce_ranks(&how, &dst, 1, srcs, 2, N);
    how.stream = true;
    for (size_t step = 1; step < N; step = step * 3 + 1)
        for (size_t at = 0; at < N; at += step) {
            const void *from[2] = {src[0] + at, src[1] + at};
            void *to[2] = {cut[0] + at, cut[1] + 1 + at}; /* one of them never aligned */
            size_t n = N - at < step ? N - at : step;

            zt_reduce_ranks(&how, to, 2, from, 2, n);
            assert_memory_equal(cut[0] + at, whole + at, n * 2);
            assert_memory_equal(cut[1] + 1 + at, whole + at, n * 2);
        }
    how.stream = false;
    how.backward = true;
    for (size_t at = 0; at < N; at = at * 2 + 1)
        for (int num_dst = 1; num_dst <= 2; num_dst++) {
            const void *from[2] = {src[0] + at, src[1] + at};
            void *to[2] = {cut[0], cut[1]};

            memset(cut, 0, sizeof(cut));
            zt_reduce_ranks(&how, to, num_dst, from, 2, N - at);
            for (int d = 0; d < num_dst; d++) {
                assert_memory_equal(cut[d], whole + at, (N - at) * 2);
                assert_int_equal(cut[d][N - at], 0);
            }
        }
}

static void test_a_nan_of_any_rank_is_the_maximum(void **state)
{
    float a[3] = {NAN, 1, 2}, b[3] = {5, NAN, 1}, c[3] = {7, 8, 9}, out[3];
    const void *srcs[3] = {a, b, c};
    struct zt_rank_reduction how = {ZT_F32, ZT_MAX, 1, false, false};
    void *dst = out;

    (void)state;
    zt_reduce_ranks(&how, &dst, 1, srcs, 3, 3);
    assert_true(isnan(out[0]) && isnan(out[1]));
    assert_true(out[2] == 9);
}

static void test_integers_wrap_around(void **state)
{
    int32_t a = INT32_MAX, b = 2, sum;
    uint8_t x = 250, y = 9, small;
    const void *ints[2] = {&a, &b}, *bytes[2] = {&x, &y};
    struct zt_rank_reduction how = {ZT_I32, ZT_SUM, 1, false, false};
    void *dst = &sum;

    (void)state;
    zt_reduce_ranks(&how, &dst, 1, ints, 2, 1);
    assert_int_equal(sum, INT32_MIN + 1);
    how.dtype = ZT_U8;
    dst = &small;
    zt_reduce_ranks(&how, &dst, 1, bytes, 2, 1);
    assert_int_equal(small, 3);
}

static void test_copies_of_any_length_and_alignment_are_copies(void **state)
{
    static uint8_t from[3000], to[3000];

    (void)state;
    for (size_t i = 0; i < sizeof(from); i++)
        from[i] = (uint8_t)mix(3, 0, i);
    for (size_t n = 0; n < 600; n = n < 140 ? n + 1 : n + 61)
        for (size_t shift = 0; shift < 64; shift += 3) {
            memset(to, 0, sizeof(to));
            zt_comm_copy(to + shift, from + 7, n, true);
            assert_memory_equal(to + shift, from + 7, n);
            assert_int_equal(to[shift + n], 0);
        }
}

static void test_spans_of_any_length_and_direction_are_copies(void **state)
{
    static const size_t bytes[] = {0,    1,     63,    64,    127,   128,    300,
                                   4097, 16320, 16385, 40000, 65536, 262144, 300001};
    static uint8_t from[300100], to[300100];

    (void)state;
    for (size_t i = 0; i < sizeof(from); i++)
        from[i] = (uint8_t)mix(3, 0, i);
    for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++)
        for (size_t shift = 1; shift < 64; shift += 9)
            for (int backward = 0; backward < 2; backward++) {
                memset(to, 0, sizeof(to));
                zt_comm_copy_span(to + shift, from + 7, bytes[i], backward);
                assert_memory_equal(to + shift, from + 7, bytes[i]);
                assert_int_equal(to[shift + bytes[i]], 0);
                assert_int_equal(to[shift - 1], 0);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_16_bit_float_widens_exactly),
        cmocka_unit_test(test_narrowing_rounds_to_nearest_even),
        cmocka_unit_test(test_nan_stays_nan_in_both_directions),
        cmocka_unit_test(test_every_instruction_set_gives_the_same_bits),
        cmocka_unit_test(test_results_may_take_the_place_of_sources),
        cmocka_unit_test(test_cutting_streaming_and_direction_do_not_change_a_bit),
        cmocka_unit_test(test_a_nan_of_any_rank_is_the_maximum),
        cmocka_unit_test(test_integers_wrap_around),
        cmocka_unit_test(test_copies_of_any_length_and_alignment_are_copies),
        cmocka_unit_test(test_spans_of_any_length_and_direction_are_copies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
