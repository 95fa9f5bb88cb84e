/* Products by matrix tiles: the instructions against their model, and both against sums
 * in double. Where the processor has no tiles, the model stands in for them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "test/unit/kernels/ref.h"

#include "common/half.h"
#include "kernels/cpu/features.h"
#include "kernels/cpu/gemm/amx_tiles.h"

struct problem {
    int64_t m, n, k;
    uint16_t *a, *b;   /* (m, k) and (k, n) by rows */
    uint32_t *panels;  /* b, packed */
    float *before, *c; /* (m, n) */
};

static uint64_t state = 88172645463325252u;

static uint32_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}

static float draw_normalish(void)
{
    return (float)((int32_t)draw() * 0x1p-31 + (int32_t)draw() * 0x1p-31);
}

static void make(struct problem *p, int64_t m, int64_t n, int64_t k, bool tiny)
{
    *p = (struct problem){.m = m, .n = n, .k = k};
    p->a = calloc((size_t)(m * k), sizeof(*p->a));
    p->b = calloc((size_t)(k * n), sizeof(*p->b));
    p->panels = calloc(zt_dot_words(k, n, ZT_DOT_B_WIDTH), sizeof(*p->panels));
    p->before = calloc((size_t)(m * n), sizeof(*p->before));
    p->c = calloc((size_t)(m * n), sizeof(*p->c));
    assert_non_null(p->a && p->b && p->panels && p->before && p->c ? p->c : NULL);
    for (int64_t i = 0; i < m * k; i++)
        p->a[i] = zt_bf16_of_float(draw_normalish() * (tiny ? 0x1p-70f : 1));
    for (int64_t i = 0; i < k * n; i++)
        p->b[i] = zt_bf16_of_float(draw_normalish() * (tiny ? 0x1p-57f : 1));
    if (tiny) /* denormal operands among them */
        for (int64_t i = 0; i < k * n; i += 7)
            p->b[i] = (uint16_t)(draw() & 0x807f);
    for (int64_t i = 0; i < m * n; i++)
        p->before[i] = draw_normalish();
    zt_dot_pack(p->panels, p->b, n, k, n);
}

static void drop(struct problem *p)
{
    free(p->a);
    free(p->b);
    free(p->panels);
    free(p->before);
    free(p->c);
}

static void multiply(struct problem *p, const struct zt_tile_kernels *t, float alpha,
                     bool accumulate)
{
    struct zt_dot d = {.m = p->m,
                       .n = p->n,
                       .pairs = p->k / 2,
                       .a = zt_dot_left_in_place(p->a, p->k),
                       .b = p->panels,
                       .b_panel = zt_dot_pairs(p->k) * ZT_DOT_B_WIDTH,
                       .c = p->c,
                       .ldc = p->n,
                       .alpha = alpha,
                       .accumulate = accumulate};

    memcpy(p->c, p->before, (size_t)(p->m * p->n) * sizeof(float));
    t->begin();
    t->product(&d);
    t->end();
}

static const int64_t sizes[][3] = {
    {1, 1, 2},     {16, 16, 32}, {32, 32, 64},  {17, 33, 34},  {15, 31, 30},
    {40, 100, 66}, {96, 64, 64}, {33, 16, 128}, {64, 129, 32},
};

static void test_the_model_is_right(void **s)
{
    (void)s;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int mode = 0; mode < 4; mode++) {
            float alpha = mode & 1 ? 0.3f : 1;
            struct problem p;

            make(&p, sizes[i][0], sizes[i][1], sizes[i][2], false);
            multiply(&p, zt_tile_emulation(), alpha, mode & 2);
            for (int64_t r = 0; r < p.m; r++)
                for (int64_t c = 0; c < p.n; c++) {
                    double sum = 0, size = 0;
                    double old = mode & 2 ? p.before[r * p.n + c] : 0;

                    for (int64_t k = 0; k < p.k; k++) {
                        double x = (double)zt_float_of_bf16(p.a[r * p.k + k]) *
                                   zt_float_of_bf16(p.b[k * p.n + c]);
                        sum += x;
                        size += fabs(x);
                    }
                    assert_true(fabs(p.c[r * p.n + c] - (old + alpha * sum)) <=
                                1e-6 * (1 + size + fabs(old)));
                }
            drop(&p);
        }
}

static void test_instructions_and_model_give_the_same_bits(void **s)
{
    (void)s;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int mode = 0; mode < 8; mode++) {
            size_t bytes = (size_t)(sizes[i][0] * sizes[i][1]) * sizeof(float);
            float alpha = mode & 1 ? 0.3f : 1, *model = malloc(bytes);
            struct problem p;

            assert_non_null(model);
            make(&p, sizes[i][0], sizes[i][1], sizes[i][2], mode & 4);
            multiply(&p, zt_tile_emulation(), alpha, mode & 2);
            memcpy(model, p.c, bytes);
            multiply(&p, zt_tile_kernels(), alpha, mode & 2);
            assert_memory_equal(model, p.c, bytes);
            free(model);
            drop(&p);
        }
}

/* Blocks of 16 rows or columns one by one give what the whole product gives. */
static void test_bits_do_not_depend_on_where_blocks_begin(void **s)
{
    struct problem p;
    float *whole;

    (void)s;
    make(&p, 84, 64, 96, false);
    whole = malloc((size_t)(p.m * p.n) * sizeof(float));
    assert_non_null(whole);
    for (int mode = 0; mode < 4; mode++) {
        float alpha = mode & 1 ? 0.3f : 1;
        struct zt_dot d = {.n = p.n,
                           .pairs = p.k / 2,
                           .b = p.panels,
                           .b_panel = zt_dot_pairs(p.k) * ZT_DOT_B_WIDTH,
                           .ldc = p.n,
                           .alpha = alpha,
                           .accumulate = mode & 2};

        multiply(&p, zt_tile_kernels(), alpha, mode & 2);
        memcpy(whole, p.c, (size_t)(p.m * p.n) * sizeof(float));
        memcpy(p.c, p.before, (size_t)(p.m * p.n) * sizeof(float));
        zt_tile_kernels()->begin();
        for (int64_t row = 0; row < p.m; row += 48) {
            d.m = p.m - row < 48 ? p.m - row : 48;
            d.a = zt_dot_left_in_place(p.a + row * p.k, p.k);
            d.c = p.c + row * p.n;
            zt_tile_kernels()->product(&d);
        }
        zt_tile_kernels()->end();
        assert_memory_equal(whole, p.c, (size_t)(p.m * p.n) * sizeof(float));
    }
    free(whole);
    drop(&p);
}

/* Panels are padded for tiles whatever the processor; without AVX-512 nobody packs. */
static int use_tiles(void **s)
{
    unsigned f = zt_cpu_features();

    (void)s;
    zt_cpu_set_features(f | ZT_CPU_AMX_BF16);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_model_is_right),
        cmocka_unit_test(test_instructions_and_model_give_the_same_bits),
        cmocka_unit_test(test_bits_do_not_depend_on_where_blocks_begin),
    };

    if (!(zt_cpu_features() & ZT_CPU_AVX512))
        return 77;
    return cmocka_run_group_tests(tests, use_tiles, NULL);
}
