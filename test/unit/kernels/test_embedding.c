#include "test/unit/kernels/ref.h"

static void check_lookup(struct zt_device *dev, zt_dtype table_type, zt_dtype y_type,
                         int64_t cols)
{
    struct arr table = arr_2(table_type, 50, cols, -2, 2),
               ids = arr_1(ZT_I32, 300, 0, 50), y = arr_2(y_type, 300, cols, 0, 1);
    struct zt_embedding_args a = {ids.v, table.v, y.v};

    REF_RUN(dev, embedding, &a);
    for (int64_t r = 0; r < 300; r++)
        for (int64_t c = 0; c < cols; c++)
            ref_close("y", &y.v, r * cols + c, table.d[(int64_t)ids.d[r] * cols + c], 0);
    arr_free(&table);
    arr_free(&ids);
    arr_free(&y);
}

static void test_lookup_gives_the_rows(void **state)
{
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            check_lookup(dev, ref_floats[i], ref_floats[j], 17);
            check_lookup(dev, ref_floats[i], ref_floats[j], 1030);
        }
    zt_cpu_backend.close(dev);
}

static void test_backward_adds_rows_of_one_id_in_order(void **state)
{
    (void)state;
    for (int d = 0; d < 3; d++)
        for (int threads = 1; threads <= 3; threads++) {
            struct zt_device *dev = ref_open(threads);
            int64_t cols = 333;
            struct arr dy = arr_2(ref_floats[d], 400, cols, -1, 1),
                       ids = arr_1(ZT_I32, 400, 0, 7),
                       table = arr_2(ZT_F32, 9, cols, -1, 1), want = arr_copy(&table);
            struct zt_embedding_bwd_args a = {ids.v, dy.v, table.v};
            float *w = want.v.data;

            for (int64_t r = 0; r < 400; r++)
                for (int64_t c = 0; c < cols; c++)
                    w[(int64_t)ids.d[r] * cols + c] += (float)dy.d[r * cols + c];
            REF_RUN(dev, embedding_bwd, &a);
            assert_memory_equal(table.v.data, w, arr_bytes(&table));
            arr_free(&dy);
            arr_free(&ids);
            arr_free(&table);
            arr_free(&want);
            zt_cpu_backend.close(dev);
        }
}

static void test_ids_outside_the_table_are_named_and_nothing_is_written(void **state)
{
    struct zt_device *dev = ref_open(1);
    struct arr table = arr_2(ZT_F32, 5, 4, 0, 1), ids = arr_1(ZT_I32, 3, 0, 5),
               y = arr_2(ZT_F32, 3, 4, 7, 8), before = arr_copy(&y);
    struct zt_embedding_args a = {ids.v, table.v, y.v};

    (void)state;
    ref_put(&ids, 2, 5);
    REF_REFUSES(dev, embedding, &a, "embedding: id 5 at position 2 is outside [0, 5)");
    ref_put(&ids, 2, -1);
    REF_REFUSES(dev, embedding, &a, "embedding: id -1 at position 2 is outside [0, 5)");
    assert_memory_equal(y.v.data, before.v.data, arr_bytes(&y));
    struct zt_embedding_bwd_args b = {ids.v, y.v, table.v};
    REF_REFUSES(dev, embedding_bwd, &b,
                "embedding_bwd: id -1 at position 2 is outside [0, 5)");
    arr_free(&table);
    arr_free(&ids);
    arr_free(&y);
    arr_free(&before);
    zt_cpu_backend.close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lookup_gives_the_rows),
        cmocka_unit_test(test_backward_adds_rows_of_one_id_in_order),
        cmocka_unit_test(test_ids_outside_the_table_are_named_and_nothing_is_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
