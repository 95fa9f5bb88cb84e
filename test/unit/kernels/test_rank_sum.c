#include "test/unit/kernels/ref.h"

/* Rank after rank in fp32, scaled, rounded once: to the bit, not nearly. */
static void check_sum(struct zt_device *dev, zt_dtype dtype, int64_t ranks, int64_t n,
                      int64_t distance, float scale, bool in_place)
{
    struct arr x = arr_2(dtype, ranks, distance, -1, 1), y = arr_1(dtype, n, 5, 6);
    struct arr want = arr_1(dtype, n, 0, 0);
    struct zt_rank_sum_args a = {x.v, y.v, scale};
    size_t width = zt_dtype_bytes(dtype);

    a.x.shape[1] = n;
    if (in_place)
        a.y.data = (char *)x.v.data + (size_t)((ranks - 1) * distance) * width;
    for (int64_t i = 0; i < n; i++) {
        float sum = (float)x.d[i];

        for (int64_t r = 1; r < ranks; r++)
            sum += (float)x.d[r * distance + i];
        ref_put(&want, i, (double)(sum * scale));
    }
    REF_RUN(dev, rank_sum, &a);
    assert_memory_equal(a.y.data, want.v.data, (size_t)n * width);
    for (int64_t i = 0; ranks > 1 && i < distance; i++) /* the others are as they were */
        assert_true(ref_get(&x.v, i) == x.d[i]);
    arr_free(&x);
    arr_free(&y);
    arr_free(&want);
}

static void test_ranks_are_added_in_order(void **state)
{
    static const int64_t sizes[] = {1, 7, 1024, 4100, 50001};
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 5; i++)
            for (int64_t ranks = 1; ranks <= 5; ranks += 2) {
                check_sum(dev, ref_floats[d], ranks, sizes[i], sizes[i], 1.0f, false);
                check_sum(dev, ref_floats[d], ranks, sizes[i], sizes[i] + 3, 0.3f, true);
            }
    zt_cpu_backend.close(dev);
}

/* A sum whose order shows: 1e8 + 1 - 1e8 is 0 in this order, 1 in another. */
static void test_order_is_that_of_ranks(void **state)
{
    struct zt_device *dev = ref_open(1);
    struct arr x = arr_2(ZT_F32, 3, 1, 0, 0), y = arr_1(ZT_F32, 1, 9, 10);
    struct zt_rank_sum_args a = {x.v, y.v, 1};

    (void)state;
    ref_put(&x, 0, 1e8);
    ref_put(&x, 1, 1);
    ref_put(&x, 2, -1e8);
    REF_RUN(dev, rank_sum, &a);
    assert_true(ref_get(&y.v, 0) == 0);
    arr_free(&x);
    arr_free(&y);
    zt_cpu_backend.close(dev);
}

static void test_what_does_not_fit_is_refused(void **state)
{
    struct zt_device *dev = ref_open(1);
    struct arr x = arr_2(ZT_F32, 2, 4, 0, 1), y = arr_1(ZT_F32, 4, 0, 1);
    struct zt_rank_sum_args a = {x.v, y.v, 1};

    (void)state;
    a.y.shape[0] = 3;
    REF_REFUSES(dev, rank_sum, &a, "rank_sum: x (2, 4) f32 but y (3) f32");
    a.y = y.v;
    a.y.dtype = ZT_BF16;
    REF_REFUSES(dev, rank_sum, &a, "rank_sum: y (4) bf16: want type f32");
    a.y = y.v;
    a.x.stride[0] = 2;
    REF_REFUSES(dev, rank_sum, &a,
                "rank_sum: x (2, 4) f32: want a row or more, one behind the other");
    arr_free(&x);
    arr_free(&y);
    zt_cpu_backend.close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_are_added_in_order),
        cmocka_unit_test(test_order_is_that_of_ranks),
        cmocka_unit_test(test_what_does_not_fit_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
