/*
 * Products by matrix tiles, or their emulation, that are larger than caches: what is stored past
 * them is all there, and nothing beside it is touched.
 */
#include "test/unit/kernels/gemm_large.h"

#include "kernels/cpu/features.h"

static unsigned features; /* of this processor */

static int open_with_tiles(void **state)
{
    features = zt_cpu_features();
    zt_cpu_set_features(features | ZT_CPU_AMX_BF16 | ZT_CPU_FAST_BF16);
    return open_device(state);
}

static int close_with_tiles(void **state)
{
    zt_cpu_set_features(features);
    return close_device(state);
}

/* c = or += a b from columns of a, as of weights' gradients; every element is fp32. */
static void check_gradient(int64_t m, int64_t n, int64_t k, enum layout layout,
                           bool accumulate)
{
    check_large(make(ZT_BF16, 0, m, k, COLS), make(ZT_BF16, 0, k, n, ROWS),
                make(ZT_F32, 0, m, n, layout), accumulate);
}

static void test_gradients_larger_than_caches(void **state)
{
    (void)state;
    check_gradient(520, 530, 10, ROWS, false);
    check_gradient(520, 530, 10, ROWS_PADDED, true); /* rows begin anywhere in a line */
    check_gradient(18, 14600, 1030, ROWS_PADDED, false); /* parts of k and of columns */
    check_gradient(2100, 130, 33, COLS, true);           /* the transposed product */
}

static void test_results_in_bf16_larger_than_caches(void **state)
{
    (void)state;
    check_large(make(ZT_BF16, 0, 700, 9, ROWS), make(ZT_BF16, 0, 9, 3011, COLS),
                make(ZT_BF16, 0, 700, 3011, ROWS_PADDED), false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_larger_than_caches),
        cmocka_unit_test(test_results_in_bf16_larger_than_caches),
    };

    if (!(zt_cpu_features() & ZT_CPU_AVX512_BF16)) /* nothing packs for tiles */
        return 77;
    return cmocka_run_group_tests(tests, open_with_tiles, close_with_tiles);
}
