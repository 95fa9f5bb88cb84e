/*
 * What a pass takes: nothing from the system once it is warm, the same pool on meta as on
 * cpu, everything given back; and the work it counts.
 *
 * This program's own malloc family counts calls and hands them to the C library; not
 * under a sanitizer, which brings its own.
 */
#include "test/unit/autograd/nets.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTING 0
#else
#define COUNTING 1
#endif

#if COUNTING
/* volatile: compilers take it that malloc looks at nothing of ours */
static volatile int num_mallocs;
static volatile bool count_mallocs;

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t each);
void *__libc_realloc(void *p, size_t n);
void *malloc(size_t n);
void *calloc(size_t n, size_t each);
void *realloc(void *p, size_t n);

static void note(void)
{
    if (count_mallocs)
        __atomic_add_fetch(&num_mallocs, 1, __ATOMIC_RELAXED);
}

void *malloc(size_t n)
{
    note();
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t each)
{
    note();
    return __libc_calloc(n, each);
}

void *realloc(void *p, size_t n)
{
    note();
    return __libc_realloc(p, n);
}
#endif

static void default_gpt(bool rope)
{
    gpt.dropout = 0.1f;
    gpt.rope = rope;
    gpt.frozen_layer = false;
}

/* A training pass on any backend; nothing is read back. */
static void dry_pass(struct rig *r, struct zt_pass pass)
{
    struct zt_fault fault = {ZT_OK, ""};
    zt_tensor *out = NULL;

    expect_ok(zt_step_forward(r->step, &pass, &out, &fault), &fault);
    if (pass.mode == ZT_MODE_TRAIN)
        expect_ok(zt_step_backward(r->step, out, 1, &fault), &fault);
    zt_step_end(r->step);
}

static void steady(const char *backend, bool recompute)
{
    int32_t tokens[2 * 9], targets[2 * 9];
    struct zt_pass pass = {.B = 2, .T = 9, .fields = {tokens, targets}};
    struct rig r;

    default_gpt(true);
    make_batch(tokens, targets, 18);
    rig_open(&r, backend, ZT_F32, &gpt_plugin,
             (struct zt_step_config){.recompute = recompute});
    if (strcmp(backend, "cpu") == 0)
        rig_init_weights(&r, 0.1);
    for (int i = 0; i < 2; i++)
        dry_pass(&r, pass);
#if COUNTING
    num_mallocs = 0;
    count_mallocs = true;
#endif
    for (int i = 0; i < 3; i++) {
        pass.step++;
        dry_pass(&r, pass);
    }
#if COUNTING
    count_mallocs = false;
    assert_int_equal(num_mallocs, 0);
#endif
    rig_close(&r);
}

static void test_warm_steps_take_nothing_from_the_system(void **state)
{
    (void)state;
#if COUNTING
    void *volatile p; /* or the compiler sees through the pair */

    count_mallocs = true;
    p = malloc(100); /* the counter counts */
    free(p);
    p = calloc(100, 100);
    free(p);
    count_mallocs = false;
    assert_int_equal(num_mallocs, 2);
#endif
    steady("meta", false);
    steady("meta", true);
    steady("cpu", false);
    steady("cpu", true);
}

/* ---- meta is the plan of cpu ---- */

struct record {
    size_t peak, after;
    double flops;
};

static struct record run_on(const char *backend, zt_dtype dtype, bool recompute,
                            zt_mode mode, bool rope)
{
    int32_t tokens[3 * 8], targets[3 * 8];
    struct zt_pass pass = {.mode = mode, .B = 3, .T = 8, .fields = {tokens, targets}};
    struct record rec;
    struct rig r;

    default_gpt(rope);
    make_batch(tokens, targets, 24);
    rig_open(&r, backend, dtype, &gpt_plugin,
             (struct zt_step_config){.recompute = recompute});
    if (strcmp(backend, "cpu") == 0)
        rig_init_weights(&r, 0.1);
    dry_pass(&r, pass);
    zt_step_take_flops(r.step);
    dry_pass(&r, pass);
    rec.peak = zt_pool_peak(r.pool);
    rec.after = zt_pool_used(r.pool);
    rec.flops = zt_step_take_flops(r.step);
    rig_close(&r);
    return rec;
}

static void test_meta_predicts_the_peak_and_the_work_of_cpu(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++) {
        zt_dtype dtype = i & 1 ? ZT_BF16 : ZT_F32;
        zt_mode mode = i & 4 ? ZT_MODE_EVAL : ZT_MODE_TRAIN;
        struct record meta = run_on("meta", dtype, i & 2, mode, i & 8);
        struct record cpu = run_on("cpu", dtype, i & 2, mode, i & 8);

        assert_int_equal(meta.peak, cpu.peak);
        assert_true(meta.peak > 0);
        assert_true(meta.flops == cpu.flops);
        if (!(i & 8)) /* the tables of rope stay */
            assert_int_equal(cpu.after, 0);
    }
}

static void test_flops_are_those_of_the_formula_and_not_of_recomputing(void **state)
{
    double N = 3 * 8, C = WIDTH, D = WIDTH / HEADS, pairs = 8 * 9 / 2;
    double layer = 2 * N * (3 * C * C + C * C + 2 * C * INNER) +
                   2 * 2 * 3 * HEADS * pairs * D; /* scores and values */
    double forward = LAYERS * layer + 2 * N * C * VOCAB;

    (void)state;
    assert_true(run_on("meta", ZT_F32, false, ZT_MODE_EVAL, false).flops == forward);
    assert_true(run_on("meta", ZT_F32, false, ZT_MODE_TRAIN, false).flops == 3 * forward);
    assert_true(run_on("meta", ZT_F32, true, ZT_MODE_TRAIN, false).flops == 3 * forward);
}

/* ---- memory of single values ---- */

enum { ROWS = 64, WIDE = 1021 }; /* odd: rows of logits have room between them */

static zt_block *wide_block;
static zt_param *wide_w;

static zt_err wide_build(zt_model *m, void **self)
{
    (void)self;
    wide_block = zt_model_block(m, "wide");
    wide_w = zt_block_param(wide_block, "w", ZT_SHAPE(WIDE, 4), ZT_ONES(), 0);
    return zt_model_status(m);
}

static void wide_head(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    zt_tensor *table = zt_weight(s, wide_w);

    (void)ctx;
    out[0] = zt_lm_head(s, zt_embedding(s, in[0], table), table, in[1]);
}

static zt_tensor *wide_forward(zt_step *s, void *self, const zt_batch *b)
{
    zt_tensor *in[2] = {zt_batch_field(s, b, ZT_TOKENS),
                        zt_batch_field(s, b, ZT_TARGETS)};
    zt_tensor *loss = NULL;

    (void)self;
    zt_block_call(s, wide_block, wide_head, NULL, in, 2, &loss, 1);
    return loss;
}

static const struct zt_plugin wide_plugin = {.abi = ZT_ABI,
                                             .struct_bytes = sizeof(struct zt_plugin),
                                             .name = "wide",
                                             .build = wide_build,
                                             .forward = wide_forward};

static void test_cross_entropy_keeps_logits_once(void **state)
{
    static int32_t ids[ROWS];
    struct zt_pass pass = {.B = 1, .T = ROWS, .fields = {ids, ids}};
    size_t logits = (size_t)ROWS * WIDE * 4;
    struct rig r;

    (void)state;
    rig_open(&r, "meta", ZT_F32, &wide_plugin, (struct zt_step_config){.seed = 0});
    dry_pass(&r, pass);
    assert_in_range(zt_pool_peak(r.pool), logits, logits + logits / 8);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_warm_steps_take_nothing_from_the_system),
        cmocka_unit_test(test_meta_predicts_the_peak_and_the_work_of_cpu),
        cmocka_unit_test(test_flops_are_those_of_the_formula_and_not_of_recomputing),
        cmocka_unit_test(test_cross_entropy_keeps_logits_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
