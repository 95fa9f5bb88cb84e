/*
 * Attention by cuDNN on a device, beside a reference in double and beside the own
 * kernels. backends/cudnn.so lies beside this program, so that opening a device loads it.
 */
#include "test/unit/cuda/sdpa_test.h"

#define ROUNDING 5 /* errors of the type: probabilities and dS are rounded, too */

static struct zt_device *dev;
static struct zt_cuda_sdpa *library;

static int open_device(void **)
{
    struct zt_fault fault = {};

    if (zt_cuda_backend.open(0, 1, &dev, &fault) != ZT_OK) {
        fprintf(stderr, "%s\n", fault.text);
        return -1;
    }
    library = dev->sdpa;
    return library ? 0 : -1;
}

static int close_device(void **)
{
    zt_cuda_backend.close(dev);
    return 0;
}

static void by_library(bool yes)
{
    dev->sdpa = yes ? library : NULL;
}

/* Right by the library alone, and with either half by the own kernels. */
static void check_shape(const struct sdpa_shape &s)
{
    struct sdpa_case c = sdpa_setup(s);
    struct sdpa_reference r = sdpa_reference_of(c);

    for (int i = 0; i < 3; i++) {
        by_library(i != 1);
        sdpa_forward(dev, c);
        by_library(i != 2);
        sdpa_backward(dev, c);
        sdpa_expect(c, r, ROUNDING);
    }
    by_library(true);
    sdpa_teardown(&c);
}

static void test_every_kind_of_head_matches_the_reference(void **)
{
    for (zt_dtype dtype : {ZT_BF16, ZT_F16})
        for (int64_t dim : {64, 128})
            for (int i = 0; i < 8; i++) {
                struct sdpa_shape s = {2, 256, 256, 4, 4, dim, true, true, dtype};

                s.causal = i & 1;
                s.packed = i & 2;
                s.kv_heads = i & 4 ? 2 : 4;
                check_shape(s);
            }
}

static void test_odd_lengths_match_the_reference(void **)
{
    for (int64_t t : {1, 17, 63, 65, 200, 333})
        for (int i = 0; i < 4; i++) {
            struct sdpa_shape s = {2, t, t, 4, 2, 64, true, true, ZT_BF16};

            s.causal = i & 1;
            s.dim = i & 2 ? 128 : 64;
            check_shape(s);
        }
}

static void test_other_heads_and_other_keys_match_the_reference(void **)
{
    for (int64_t dim : {8, 40, 80, 96, 256}) /* by cuDNN or not: both must be right */
        check_shape({1, 130, 130, 2, 1, dim, true, true, ZT_BF16});
    check_shape({2, 100, 300, 4, 2, 64, false, false, ZT_BF16});
    check_shape({2, 300, 100, 4, 2, 128, false, false, ZT_F16});
}

/* dQ is added up in fp32 by all blocks of keys, in whatever order. */
static void test_sums_in_any_order_match_the_reference(void **)
{
    for (int64_t t : {256, 333})
        for (int64_t kv_heads : {4, 2}) {
            struct sdpa_case c =
                sdpa_setup({2, t, t, 4, kv_heads, 64, true, true, ZT_BF16});
            struct sdpa_reference r = sdpa_reference_of(c);

            c.a.any_order = true;
            sdpa_forward(dev, c);
            sdpa_backward(dev, c);
            sdpa_expect(c, r, ROUNDING);
            sdpa_teardown(&c);
        }
}

static void test_twice_gives_the_same_bits(void **)
{
    for (int64_t t : {1024, 1000})
        for (int64_t kv_heads : {12, 4}) {
            struct sdpa_case c =
                sdpa_setup({8, t, t, 12, kv_heads, 64, true, true, ZT_BF16});
            std::vector<char> first;

            for (int i = 0; i < 4; i++) {
                sdpa_forward(dev, c);
                sdpa_backward(dev, c);
                if (i == 0)
                    first = sdpa_bits(c);
                assert_true(first == sdpa_bits(c));
            }
            sdpa_teardown(&c);
        }
}

static std::vector<double> doubles(const struct zt_view &v)
{
    std::vector<double> x((size_t)zt_view_numel(&v));

    for (size_t i = 0; i < x.size(); i++)
        x[i] = (double)sdpa_get(&v, (int64_t)i);
    return x;
}

/* Too much for a reference in double; the own kernels add in fp32. */
static void test_a_problem_in_parts_is_that_of_the_own_kernels(void **)
{
    const struct sdpa_shape most = {24, 1024, 1024, 12, 12, 64, true, false, ZT_BF16};
    const struct sdpa_shape heads = {1, 8192, 8192, 8, 4, 64, true, false, ZT_F16};

    for (const struct sdpa_shape &s : {most, heads}) {
        struct sdpa_case c = sdpa_setup(s); /* dS is 576 MiB, and 1 GiB */
        struct sdpa_reference r;
        std::vector<char> own;

        by_library(false);
        sdpa_forward(dev, c);
        sdpa_backward(dev, c);
        own = sdpa_bits(c);
        r = {doubles(c.a.fwd.out), doubles(c.a.fwd.lse), doubles(c.a.dq), doubles(c.a.dk),
             doubles(c.a.dv)};
        by_library(true);
        sdpa_forward(dev, c);
        sdpa_backward(dev, c);
        assert_false(own == sdpa_bits(c)); /* or nobody asked the library */
        sdpa_expect(c, r, ROUNDING);
        sdpa_teardown(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_of_head_matches_the_reference),
        cmocka_unit_test(test_odd_lengths_match_the_reference),
        cmocka_unit_test(test_other_heads_and_other_keys_match_the_reference),
        cmocka_unit_test(test_sums_in_any_order_match_the_reference),
        cmocka_unit_test(test_twice_gives_the_same_bits),
        cmocka_unit_test(test_a_problem_in_parts_is_that_of_the_own_kernels),
    };

    return cmocka_run_group_tests(tests, open_device, close_device);
}
