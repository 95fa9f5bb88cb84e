/* Products of few rows: against sums in double, and each row as it is by itself. */
#include "kernels/cpu/features.h"
#include "test/unit/kernels/ref.h"

struct problem {
    struct arr a, b, c, bias;
    struct zt_gemm_args g;
};

/* b is (K, N) as it lies in memory, or with `transposed` (N, K). */
static struct problem problem_of(zt_dtype t, int64_t m, int64_t n, int64_t k,
                                 bool transposed)
{
    struct problem p = {.a = arr_2(t, m, k, -1, 1),
                        .b = transposed ? arr_2(t, n, k, -1, 1) : arr_2(t, k, n, -1, 1),
                        .c = arr_2(t, m, n, -1, 1),
                        .bias = arr_1(t, n, -1, 1)};

    p.g = (struct zt_gemm_args){.a = p.a.v,
                                .b = transposed ? zt_view_transposed(&p.b.v) : p.b.v,
                                .c = p.c.v,
                                .bias = p.bias.v,
                                .alpha = 1,
                                .rows_alone = true};
    return p;
}

static void free_problem(struct problem *p)
{
    arr_free(&p->a);
    arr_free(&p->b);
    arr_free(&p->c);
    arr_free(&p->bias);
}

static void check_values(const struct problem *p, bool transposed)
{
    int64_t M = p->c.v.shape[0], N = p->c.v.shape[1], K = p->a.v.shape[1];

    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            double want = p->bias.d[n];

            for (int64_t k = 0; k < K; k++)
                want += p->a.d[m * K + k] * p->b.d[transposed ? n * K + k : k * N + n];
            ref_close("c", &p->c.v, m * N + n, want, 2e-5);
        }
}

static const int64_t sizes[][2] = {{1, 1}, {5, 3}, {33, 64}, {2100, 37}, {70, 259}};

static void test_values_are_the_reference(void **state)
{
    static const int64_t rows[] = {1, 2, 3, 7, 8, 13};
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
            for (int t = 0; t < 6; t++) {
                struct problem p = problem_of(ref_floats[t / 2], rows[i], sizes[s][0],
                                              sizes[s][1], t % 2);

                REF_RUN(dev, gemm, &p.g);
                check_values(&p, t % 2);
                free_problem(&p);
            }
    zt_cpu_backend.close(dev);
}

/* Also with other threads, and with other columns beside them. */
static void same_alone(zt_dtype t, bool transposed)
{
    struct problem p = problem_of(t, 11, 1100, 70, transposed);
    size_t width = zt_dtype_bytes(t), row = 1100 * width;
    struct zt_device *two = ref_open(2);
    char *whole = malloc(11 * row);

    assert_non_null(whole);
    p.g.epilogue = ZT_EPI_GELU_TANH;
    REF_RUN(two, gemm, &p.g);
    zt_cpu_backend.close(two);
    memcpy(whole, p.c.v.data, 11 * row);
    for (int64_t m = 0; m < 11; m++) {
        struct zt_device *one = ref_open(1);
        struct zt_gemm_args g = p.g;

        g.a.shape[0] = g.c.shape[0] = 1;
        g.c.shape[1] = g.b.shape[1] = g.bias.shape[0] = 1100 - m;
        g.a.data = (char *)p.a.v.data + (size_t)m * 70 * width;
        memset(p.c.v.data, 0x55, 11 * row);
        REF_RUN(one, gemm, &g);
        assert_memory_equal(p.c.v.data, whole + (size_t)m * row,
                            (size_t)(1100 - m) * width);
        zt_cpu_backend.close(one);
    }
    free(whole);
    free_problem(&p);
}

static void test_a_row_has_the_bits_that_it_has_alone(void **state)
{
    (void)state;
    for (int t = 0; t < 6; t++)
        same_alone(ref_floats[t / 2], t % 2);
}

/* The forms of the loops that this processor runs, and the portable one. */
static void test_bits_are_the_same_with_all_instructions(void **state)
{
    const unsigned all = zt_cpu_features();
    const unsigned less[] = {all & ~(unsigned)ZT_CPU_AVX512, 0};
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int t = 0; t < 6; t++)
        for (int64_t m = 1; m <= 15; m += 7) {
            struct problem p = problem_of(ref_floats[t / 2], m, 77, 83, t % 2);
            size_t bytes = (size_t)(m * 77) * zt_dtype_bytes(ref_floats[t / 2]);
            char *want = malloc(bytes);

            assert_non_null(want);
            REF_RUN(dev, gemm, &p.g);
            memcpy(want, p.c.v.data, bytes);
            for (size_t i = 0; i < sizeof(less) / sizeof(*less); i++) {
                memset(p.c.v.data, 0x55, bytes);
                zt_cpu_set_features(less[i]);
                REF_RUN(dev, gemm, &p.g);
                zt_cpu_set_features(all);
                assert_memory_equal(p.c.v.data, want, bytes);
            }
            free(want);
            free_problem(&p);
        }
    zt_cpu_backend.close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_the_reference),
        cmocka_unit_test(test_a_row_has_the_bits_that_it_has_alone),
        cmocka_unit_test(test_bits_are_the_same_with_all_instructions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
