#include "test/unit/kernels/ref.h"

#include "kernels/meta/meta.h"
#include "kernels/meta/work.h"

static const struct zt_kernels *meta = NULL;
static struct zt_device *dev;

static int open_meta(void **state)
{
    (void)state;
    meta = zt_meta_backend.kernels;
    return zt_meta_backend.open(0, 1, &dev, NULL);
}

static int close_meta(void **state)
{
    (void)state;
    zt_meta_backend.close(dev);
    zt_meta_backend.close(NULL);
    return 0;
}

static void test_regions_do_not_overlap_and_are_aligned(void **state)
{
    const size_t bytes[] = {1, 4096, 4097, (size_t)1 << 40, 12};
    uintptr_t end = 0;
    void *p;

    (void)state;
    for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
        assert_int_equal(zt_meta_backend.alloc(dev, bytes[i], &p, NULL), ZT_OK);
        assert_int_equal((uintptr_t)p % 4096, 0);
        assert_true((uintptr_t)p > end); /* not even adjacent */
        end = (uintptr_t)p + bytes[i];
        zt_meta_backend.free(dev, p, bytes[i]);
    }
    assert_int_equal(zt_meta_backend.alloc(dev, SIZE_MAX, &p, NULL), ZT_E_NOMEM);
    assert_int_equal(zt_meta_backend.alloc(dev, 0, &p, NULL), ZT_E_ARG);
}

/* Nothing is rounded up: what a plan asks for is what it is told. */
static void test_memory_counts_the_bytes_asked_for(void **state)
{
    struct zt_device_memory m;
    struct zt_device *own = NULL;
    void *p = NULL, *host = NULL;

    (void)state;
    assert_int_equal(zt_meta_backend.open(0, 1, &own, NULL), ZT_OK);
    assert_int_equal(zt_meta_backend.alloc(own, 4097, &p, NULL), ZT_OK);
    assert_int_equal(zt_meta_backend.host_alloc(own, 1000, &host, NULL), ZT_OK);
    memset(host, 1, 1000); /* the host's is memory */
    assert_int_equal(zt_meta_backend.upload(own, NULL, p, host, 1000, NULL), ZT_OK);
    assert_int_equal(zt_meta_backend.download(own, NULL, host, p, 1000, NULL), ZT_OK);
    assert_int_equal(zt_meta_backend.memory(own, &m, NULL), ZT_OK);
    assert_true(m.used == 4097 && m.peak == 4097);
    zt_meta_backend.host_free(own, host, 1000);
    zt_meta_backend.free(own, p, 4097);
    assert_int_equal(zt_meta_backend.alloc(own, 5, &p, NULL), ZT_OK);
    assert_int_equal(zt_meta_backend.memory(own, &m, NULL), ZT_OK);
    assert_true(m.used == 5 && m.peak == 4097);
    zt_meta_backend.close(own);
}

static struct zt_view fake(zt_dtype dtype, int ndim, const int64_t *shape)
{
    void *p = NULL;

    assert_int_equal(zt_meta_backend.alloc(dev, 4096, &p, NULL), ZT_OK);
    return zt_view_of(p, dtype, ndim, shape);
}

/* The addresses fault when touched, so passing is proof that nothing was. */
static void test_kernels_check_and_touch_nothing(void **state)
{
    struct zt_layernorm_args ln = {
        .x = fake(ZT_BF16, 2, (int64_t[]){8, 768}),
        .w = fake(ZT_BF16, 1, (int64_t[]){768}),
        .y = fake(ZT_BF16, 2, (int64_t[]){8, 768}),
        .mean = fake(ZT_F32, 1, (int64_t[]){8}),
        .rstd = fake(ZT_F32, 1, (int64_t[]){8}),
    };
    struct zt_gemm_args gemm = {.a = fake(ZT_BF16, 2, (int64_t[]){4, 6}),
                                .b = fake(ZT_BF16, 2, (int64_t[]){6, 5}),
                                .c = fake(ZT_F32, 2, (int64_t[]){4, 5}),
                                .alpha = 1};
    char host[16] = "kept";

    (void)state;
    assert_int_equal(meta->layernorm(dev, NULL, &ln, NULL), ZT_OK);
    assert_int_equal(meta->gemm(dev, NULL, &gemm, NULL), ZT_OK);
    assert_int_equal(
        zt_meta_backend.upload(dev, NULL, ln.x.data, host, sizeof(host), NULL), ZT_OK);
    assert_int_equal(
        zt_meta_backend.download(dev, NULL, host, ln.x.data, sizeof(host), NULL), ZT_OK);
    assert_string_equal(host, "kept");
    assert_int_equal(zt_meta_backend.sync(dev, NULL, NULL), ZT_OK);
}

static void test_work_is_counted_by_what_limits_it(void **state)
{
    struct zt_gemm_args gemm = {.a = fake(ZT_BF16, 3, (int64_t[]){2, 4, 6}),
                                .b = fake(ZT_BF16, 3, (int64_t[]){2, 6, 5}),
                                .c = fake(ZT_F32, 3, (int64_t[]){2, 4, 5}),
                                .alpha = 1};
    struct zt_attention_bwd_args at = {
        .fwd = {.q = fake(ZT_F32, 4, (int64_t[]){2, 3, 4, 8}),
                .k = fake(ZT_F32, 4, (int64_t[]){2, 5, 4, 8}),
                .causal = true}};
    struct zt_binary_args sum = {.a = fake(ZT_BF16, 2, (int64_t[]){8, 10}),
                                 .b = fake(ZT_BF16, 1, (int64_t[]){10}),
                                 .y = fake(ZT_BF16, 2, (int64_t[]){8, 10})};
    struct zt_device_work w;
    char host[16];

    (void)state;
    (void)zt_meta_take_work(dev);
    assert_int_equal(meta->gemm(dev, NULL, &gemm, NULL), ZT_OK);
    assert_int_equal(meta->binary(dev, NULL, &sum, NULL), ZT_OK);
    assert_int_equal(
        zt_meta_backend.upload(dev, NULL, sum.a.data, host, sizeof(host), NULL), ZT_OK);
    assert_int_equal(zt_meta_backend.copy(dev, NULL, sum.y.data, sum.a.data, 160, NULL),
                     ZT_OK);
    sum.b.shape[0] = 9; /* refused: no work */
    assert_int_equal(meta->binary(dev, NULL, &sum, NULL), ZT_E_ARG);
    w = zt_meta_take_work(dev);
    assert_true(w.of[ZT_WORK_PRODUCTS] == 2 * 2 * 4 * 5 * 6);
    assert_true(w.of[ZT_WORK_OPERANDS] == 2 * 2 * 4 * 6 + 2 * 2 * 6 * 5 + 4 * 2 * 4 * 5);
    assert_true(w.of[ZT_WORK_STREAMS] == 160 + 20 + 160 + 2 * 160);
    assert_true(w.of[ZT_WORK_TRANSFERS] == sizeof(host));
    assert_true(w.of[ZT_WORK_FUNCTIONS] == 0 && w.of[ZT_WORK_UPDATES] == 0);
    w = zt_meta_take_work(dev);
    assert_true(w.of[ZT_WORK_PRODUCTS] == 0 && w.of[ZT_WORK_STREAMS] == 0);

    /* queries see 3, 4 and 5 keys: two products of 8 for each of 2 x 4 heads */
    assert_true(zt_attention_flops(&at.fwd, false) == 2 * 2 * 8 * 12 * 8);
    assert_true(zt_attention_flops(&at.fwd, true) == 5 * 2 * 8 * 12 * 8);
    at.fwd.causal = false;
    assert_true(zt_attention_flops(&at.fwd, false) == 2 * 2 * 8 * 15 * 8);
}

#define SAYS(call, sentence)                                                             \
    do {                                                                                 \
        struct zt_fault fault = {0};                                                     \
        assert_int_equal(call, ZT_E_ARG);                                                \
        assert_string_equal(fault.text, sentence);                                       \
    } while (0)

static void test_broken_rules_have_their_sentence(void **state)
{
    struct zt_view x = fake(ZT_BF16, 2, (int64_t[]){8, 768});
    struct zt_view w = fake(ZT_F32, 1, (int64_t[]){512});
    struct zt_view i = fake(ZT_I32, 1, (int64_t[]){8});
    struct zt_layernorm_args ln = {.x = x, .w = w, .y = x};
    struct zt_unary_args un = {(zt_unary)9, x, x};
    struct zt_embedding_args em = {w, x, x};
    struct zt_gemm_args gm = {.a = x, .b = x, .c = x, .alpha = 1};
    struct zt_softmax_args sm = {x, x};
    struct zt_random_args ra = {.y = i};

    (void)state;
    SAYS(meta->layernorm(dev, NULL, &ln, &fault),
         "layernorm: x (8, 768) bf16 but w (512) f32");
    SAYS(meta->unary(dev, NULL, &un, &fault), "unary: unknown function");
    SAYS(meta->embedding(dev, NULL, &em, &fault),
         "embedding: y (8, 768) bf16 but ids (512) f32");
    SAYS(meta->gemm(dev, NULL, &gm, &fault), "gemm: a (8, 768) bf16 but b (8, 768) bf16");
    sm.y.stride[0] = 1000;
    SAYS(meta->softmax(dev, NULL, &sm, &fault),
         "softmax: y (8, 768) bf16: want contiguous memory");
    SAYS(meta->random(dev, NULL, &ra, &fault),
         "random: y (8) i32: want f32, bf16 or f16");
}

static void test_attention_rules(void **state)
{
    struct zt_attention_args a = {
        .q = fake(ZT_BF16, 4, (int64_t[]){2, 10, 12, 64}),
        .k = fake(ZT_BF16, 4, (int64_t[]){2, 16, 4, 64}),
        .v = fake(ZT_BF16, 4, (int64_t[]){2, 16, 4, 64}),
        .out = fake(ZT_BF16, 4, (int64_t[]){2, 10, 12, 64}),
        .lse = fake(ZT_F32, 3, (int64_t[]){2, 12, 10}),
        .bias = fake(ZT_F32, 4, (int64_t[]){1, 12, 10, 16}),
        .scale = 0.125f,
        .causal = true,
    };

    (void)state;
    assert_int_equal(meta->attention(dev, NULL, &a, NULL), ZT_OK);
    a.dropout = 1;
    SAYS(meta->attention(dev, NULL, &a, &fault), "attention: dropout must be in [0, 1)");
    a.k.shape[2] = 5;
    SAYS(meta->attention(dev, NULL, &a, &fault),
         "attention: q (2, 10, 12, 64) bf16 but k (2, 16, 5, 64) bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regions_do_not_overlap_and_are_aligned),
        cmocka_unit_test(test_memory_counts_the_bytes_asked_for),
        cmocka_unit_test(test_kernels_check_and_touch_nothing),
        cmocka_unit_test(test_work_is_counted_by_what_limits_it),
        cmocka_unit_test(test_broken_rules_have_their_sentence),
        cmocka_unit_test(test_attention_rules),
    };

    return cmocka_run_group_tests(tests, open_meta, close_meta);
}
