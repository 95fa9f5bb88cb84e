/* gemm_large.h -- what tests of products that are too large to check whole share. */
#ifndef TEST_UNIT_KERNELS_GEMM_LARGE_H
#define TEST_UNIT_KERNELS_GEMM_LARGE_H

#include "test/unit/kernels/gemm_matrix.h"

#include "kernels/cpu/parallel.h"

/* Of a large product: some elements against sums in double, and bits on more threads. */
static void check_large(struct matrix a, struct matrix b, struct matrix c,
                        bool accumulate)
{
    struct zt_gemm_args g = args_of(&a, &b, &c);
    int64_t m = c.view.shape[0], n = c.view.shape[1], k = a.view.shape[1];
    double tol =
        2 * (c.view.dtype == ZT_BF16) * rounding(ZT_BF16) + 1e-6 * sqrt((double)k);
    void *before = malloc(c.bytes), *first = malloc(c.bytes);
    struct zt_view old = c.view;

    assert_true(before && first);
    memcpy(before, c.mem, c.bytes);
    old.data = before;
    g.accumulate = accumulate;
    g.alpha = 0.75f;
    for (int threads = 1; threads <= 3; threads++) {
        zt_set_num_threads(threads);
        memcpy(c.mem, before, c.bytes);
        assert_int_equal(zt_cpu_gemm(dev, NULL, &g, NULL), ZT_OK);
        if (threads == 1)
            memcpy(first, c.mem, c.bytes);
        assert_memory_equal(first, c.mem, c.bytes);
    }
    zt_set_num_threads(2);
    expect_gaps_untouched(&c, before);
    for (int i = 0; i < 60; i++) {
        int64_t row = i < 4 ? (i & 1) * (m - 1) : draw() % m;
        int64_t col = i < 4 ? (i >> 1) * (n - 1) : draw() % n;
        double sum = 0;

        for (int64_t j = 0; j < k; j++)
            sum += get(&g.a, 0, row, j) * get(&g.b, 0, j, col);
        sum = sum * 0.75 + (accumulate ? get(&old, 0, row, col) : 0);
        near(get(&g.c, 0, row, col), sum, tol, "c");
    }
    ref_free(a.mem);
    ref_free(b.mem);
    ref_free(c.mem);
    free(before);
    free(first);
}

#endif
