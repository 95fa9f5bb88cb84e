/*
 * Values that are not activations: constants and how long they are kept, biases from masks
 * and lengths, results that an evaluation pass hands out.
 */
#include "fixture.h"

static void begin(struct rig *r, zt_mode mode)
{
    struct zt_fault fault = {ZT_OK, ""};

    expect_ok(zt_step_begin_bare(r->step, mode, &fault), &fault);
}

static void open_bare(struct rig *r, const char *backend, zt_dtype dtype)
{
    rig_open(r, backend, dtype, NULL, (struct zt_step_config){.seed = 0});
}

static const int32_t words[6] = {3, -1, 4, 1, -5, 9};
static const float reals[6] = {0.5f, 1.25f, -2, 3, 1e5f, 0};

/* ---- constants ---- */

static void expect_values(const zt_tensor *t, zt_dtype dtype)
{
    const struct zt_view *v = zt_tensor_view(t);

    assert_int_equal(v->dtype, dtype);
    assert_int_equal(v->ndim, 2);
    assert_int_equal(v->shape[0], 2);
    assert_int_equal(v->shape[1], 3);
    for (int64_t i = 0; i < 6; i++) {
        double want = dtype == ZT_I32 ? words[i] : (double)reals[i];

        if (dtype == ZT_BF16)
            want = (double)from_bf16(to_bf16((float)want));
        assert_true(get(v->data, dtype, i) == want);
    }
}

static void test_constants_have_the_callers_values(void **state)
{
    struct rig r;

    (void)state;
    open_bare(&r, "cpu", ZT_BF16);
    begin(&r, ZT_MODE_TRAIN);
    expect_values(zt_constant(r.step, ZT_I32, ZT_SHAPE(2, 3), words), ZT_I32);
    expect_values(zt_constant(r.step, ZT_F32, ZT_SHAPE(2, 3), reals), ZT_F32);
    expect_values(zt_constant(r.step, ZT_BF16, ZT_SHAPE(2, 3), reals), ZT_BF16);
    expect_step_ok(r.step);
    zt_step_end(r.step);
    rig_close(&r);
}

static const void *where(struct rig *r, const float *values, int64_t n)
{
    return zt_tensor_view(zt_constant(r->step, ZT_F32, 1, &n, values))->data;
}

static void test_a_constant_is_uploaded_once(void **state)
{
    float copy[6];
    const void *first;
    size_t used;
    struct rig r;

    (void)state;
    open_bare(&r, "cpu", ZT_F32);
    begin(&r, ZT_MODE_TRAIN);
    first = where(&r, reals, 6);
    used = zt_pool_used(r.pool);
    memcpy(copy, reals, sizeof(copy)); /* values count, not where they are */
    assert_ptr_equal(where(&r, copy, 6), first);
    assert_int_equal(zt_pool_used(r.pool), used);
    zt_step_end(r.step);
    assert_int_equal(zt_pool_used(r.pool), used);
    begin(&r, ZT_MODE_TRAIN);
    assert_ptr_equal(where(&r, reals, 6), first);
    assert_ptr_not_equal(where(&r, reals, 5), first);
    copy[5] = 7;
    assert_ptr_not_equal(where(&r, copy, 6), first);
    zt_step_end(r.step);
    rig_close(&r);
}

static void test_constants_go_when_a_pass_does_without_them(void **state)
{
    size_t one;
    struct rig r;

    (void)state;
    open_bare(&r, "meta", ZT_F32);
    begin(&r, ZT_MODE_TRAIN);
    where(&r, reals, 6);
    one = zt_pool_used(r.pool);
    zt_step_end(r.step);
    for (int i = 0; i < 50; i++) { /* another in every pass */
        float changing[6] = {(float)i};

        begin(&r, ZT_MODE_TRAIN);
        where(&r, changing, 6);
        assert_true(zt_pool_used(r.pool) <= 2 * one);
        zt_step_end(r.step);
        assert_int_equal(zt_pool_used(r.pool), one);
    }
    begin(&r, ZT_MODE_EVAL); /* those of training are not in its way */
    assert_int_equal(zt_pool_used(r.pool), 0);
    where(&r, reals, 6);
    zt_step_end(r.step);
    begin(&r, ZT_MODE_EVAL);
    zt_step_end(r.step);
    assert_int_equal(zt_pool_used(r.pool), 0);
    rig_close(&r);
}

static void expect_failure(struct rig *r, zt_err code, const char *text)
{
    struct zt_fault fault = {ZT_OK, ""};

    assert_int_equal(zt_step_status(r->step, &fault), code);
    assert_string_equal(fault.text, text);
    zt_step_end(r->step);
    begin(r, ZT_MODE_EVAL);
}

static void test_what_is_no_constant(void **state)
{
    struct rig r;

    (void)state;
    open_bare(&r, "cpu", ZT_BF16);
    begin(&r, ZT_MODE_EVAL);
    assert_null(zt_constant(r.step, ZT_F16, ZT_SHAPE(2, 3), reals));
    expect_failure(&r, ZT_E_ARG,
                   "constant: of f16: i32, f32 and the run's bf16 are possible");
    assert_null(zt_constant(r.step, ZT_F32, ZT_SHAPE(2, 0), reals));
    expect_failure(&r, ZT_E_ARG, "constant: axis 1 is 0");
    assert_null(zt_constant(r.step, ZT_F32, ZT_SHAPE(2), NULL));
    expect_failure(&r, ZT_E_ARG, "constant: 1 axes, and no values");
    zt_step_end(r.step);
    rig_close(&r);
}

static void test_a_pool_without_room_for_a_constant(void **state)
{
    struct zt_fault fault = {ZT_OK, ""};
    int64_t n = (int64_t)POOL_BYTES / 2;
    float *large = calloc((size_t)n, sizeof(*large));
    struct rig r;

    (void)state;
    assert_non_null(large);
    open_bare(&r, "cpu", ZT_F32);
    begin(&r, ZT_MODE_TRAIN);
    assert_null(zt_constant(r.step, ZT_F32, 1, &n, large));
    assert_int_equal(zt_step_status(r.step, &fault), ZT_E_NOMEM);
    zt_step_end(r.step);
    rig_close(&r);
    free(large);
}

/* ---- masks ---- */

#define ROWS  3
#define KEYS  5
#define HEADS 2
#define WIDTH 4

static const int32_t lengths[ROWS] = {5, 2, 0};
static const int32_t mask[ROWS * KEYS] = {1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0};

static zt_tensor *leaf(struct rig *r, const void *p, zt_dtype dtype, int ndim,
                       const int64_t *shape)
{
    return zt_step_leaf(r->step, zt_view_of((void *)p, dtype, ndim, shape),
                        dtype != ZT_I32);
}

static void expect_bias(const zt_tensor *t, int64_t queries)
{
    const struct zt_view *v = zt_tensor_view(t);
    const int64_t want[4] = {ROWS, 1, queries, KEYS};

    assert_int_equal(v->ndim, 4);
    assert_memory_equal(v->shape, want, sizeof(want));
    for (int64_t b = 0; b < ROWS; b++)
        for (int64_t i = 0; i < queries; i++)
            for (int64_t j = 0; j < KEYS; j++) {
                float x =
                    ((const float *)
                         v->data)[b * v->stride[0] + i * v->stride[2] + j * v->stride[3]];

                if (j < lengths[b] ? x != 0 : x != -1e30f)
                    fail_msg("bias of row %d, key %d is %g", (int)b, (int)j, (double)x);
            }
}

static void test_masks_and_lengths_hide_padding(void **state)
{
    struct rig r;

    (void)state;
    open_bare(&r, "cpu", ZT_BF16);
    begin(&r, ZT_MODE_EVAL);
    expect_bias(zt_padding_bias(r.step, leaf(&r, mask, ZT_I32, ZT_SHAPE(ROWS, KEYS)), 7),
                7);
    expect_bias(
        zt_length_bias(r.step, leaf(&r, lengths, ZT_I32, ZT_SHAPE(ROWS)), 7, KEYS), 7);
    assert_null(zt_padding_bias(r.step, leaf(&r, lengths, ZT_I32, ZT_SHAPE(ROWS)), 7));
    expect_failure(&r, ZT_E_ARG, "padding_bias: mask (3) i32, but (B, T) i32 is wanted");
    assert_null(
        zt_length_bias(r.step, leaf(&r, mask, ZT_I32, ZT_SHAPE(ROWS, KEYS)), 7, KEYS));
    expect_failure(&r, ZT_E_ARG,
                   "length_bias: lengths (3, 5) i32, but (B) i32 is wanted");
    assert_null(
        zt_length_bias(r.step, leaf(&r, lengths, ZT_I32, ZT_SHAPE(ROWS)), 0, KEYS));
    expect_failure(&r, ZT_E_ARG, "length_bias: 0 queries of 5 keys");
    zt_step_end(r.step);
    rig_close(&r);
}

/* Values and gradients of attention with this bias; `out`
 * is (4, B, T, H, D). */
static void attend(struct rig *r, const float *qkv, zt_tensor *bias, float *out)
{
    const size_t n = ROWS * KEYS * HEADS * WIDTH;
    struct zt_attention how = ZT_ATTENTION(.causal = false, .bias = bias);
    struct zt_fault fault = {ZT_OK, ""};
    zt_tensor *in[3], *y, *loss;

    for (int i = 0; i < 3; i++)
        in[i] = leaf(r, qkv + (size_t)i * n, ZT_F32, ZT_SHAPE(ROWS, KEYS, HEADS, WIDTH));
    y = zt_attention(r->step, in[0], in[1], in[2], &how);
    loss = zt_squared_error(r->step, y, zt_scale(r->step, in[0], 0.5f));
    expect_step_ok(r->step);
    memcpy(out, zt_tensor_view(y)->data, n * sizeof(*out));
    expect_ok(zt_step_backward(r->step, loss, 1, &fault), &fault);
    for (int i = 0; i < 3; i++)
        memcpy(out + (size_t)(i + 1) * n, zt_step_leaf_grad(in[i])->data,
               n * sizeof(*out));
}

/* A bias that all queries share is read in place, and means what a full one means. */
static void test_attention_reads_a_shared_row_as_if_it_were_copied(void **state)
{
    enum { N = ROWS * KEYS * HEADS * WIDTH };
    static float qkv[3 * N], shared[4 * N], full[4 * N];
    zt_tensor *bias;
    struct rig r;

    (void)state;
    for (int i = 0; i < 3 * N; i++)
        qkv[i] = (float)rnd();
    open_bare(&r, "cpu", ZT_F32);
    begin(&r, ZT_MODE_TRAIN);
    bias = zt_length_bias(r.step, leaf(&r, lengths, ZT_I32, ZT_SHAPE(ROWS)), KEYS, KEYS);
    attend(&r, qkv, bias, shared);
    zt_step_end(r.step);
    begin(&r, ZT_MODE_TRAIN);
    bias = zt_padding_bias(r.step, leaf(&r, mask, ZT_I32, ZT_SHAPE(ROWS, KEYS)), KEYS);
    attend(&r, qkv, zt_contiguous(r.step, bias), full);
    zt_step_end(r.step);
    assert_memory_equal(shared, full, sizeof(full));
    for (int i = 0; i < 4 * N; i++)
        assert_true(isfinite(shared[i]));
    for (int j = 2; j < KEYS; j++) /* gradients of hidden keys and values of row 1 */
        for (int i = 0; i < HEADS * WIDTH; i++) {
            assert_true(shared[2 * N + (KEYS + j) * HEADS * WIDTH + i] == 0);
            assert_true(shared[3 * N + (KEYS + j) * HEADS * WIDTH + i] == 0);
        }
    rig_close(&r);
}

/* ---- results ---- */

static zt_block *block;
static zt_param *weight;
static const char *name; /* of the result */

static zt_err build(zt_model *m, void **self)
{
    (void)self;
    block = zt_model_block(m, "b");
    weight = zt_block_param(block, "w", ZT_SHAPE(4, 3), ZT_ONES(), 0);
    return zt_model_status(m);
}

static void run_block(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    zt_tensor *x = zt_embedding(s, in[0], zt_weight(s, weight)); /* (B, T, 3) */

    (void)ctx;
    zt_step_result(s, name, zt_transpose(s, x, 0, 1));
    if (strcmp(name, "twice") == 0)
        zt_step_result(s, name, x);
    if (strcmp(name, "weight") == 0)
        zt_step_result(s, "w", zt_weight(s, weight));
    out[0] = zt_cross_entropy(s, x, in[1]);
}

static zt_tensor *forward(zt_step *s, void *self, const zt_batch *b)
{
    zt_tensor *in[2] = {zt_batch_field(s, b, ZT_TOKENS),
                        zt_batch_field(s, b, ZT_TARGETS)};
    zt_tensor *out = NULL;

    (void)self;
    zt_block_call(s, block, run_block, NULL, in, 2, &out, 1);
    return out;
}

static const struct zt_plugin plugin = {.abi = ZT_ABI,
                                        .struct_bytes = sizeof(struct zt_plugin),
                                        .name = "results",
                                        .build = build,
                                        .forward = forward};

static void test_evaluation_keeps_results_to_the_end_of_the_pass(void **state)
{
    static const int32_t ids[6] = {0, 1, 2, 3, 2, 1}, targets[6] = {0, 1, 2, 0, 1, 2};
    struct zt_pass pass = {
        .mode = ZT_MODE_EVAL, .B = 2, .T = 3, .fields = {ids, targets}};
    struct zt_fault fault = {ZT_OK, ""};
    const struct zt_view *v;
    zt_tensor *loss;
    struct rig r;

    (void)state;
    name = "predictions";
    rig_open(&r, "cpu", ZT_F32, &plugin, (struct zt_step_config){.seed = 0});
    for (int i = 0; i < 12; i++)
        ((float *)r.weights[0])[i] = (float)i;
    expect_ok(zt_step_forward(r.step, &pass, &loss, &fault), &fault);
    assert_null(zt_step_find_result(r.step, "logits"));
    v = zt_tensor_view(zt_step_find_result(r.step, "predictions"));
    assert_int_equal(v->shape[0], 3);
    assert_int_equal(v->shape[1], 2);
    assert_true(zt_view_is_contiguous(v));
    for (int64_t i = 0; i < 18; i++) {
        int64_t t = i / 6, b = i / 3 % 2;

        assert_true(get(v->data, ZT_F32, i) == (double)(ids[b * 3 + t] * 3 + i % 3));
    }
    zt_step_end(r.step);
    assert_null(zt_step_find_result(r.step, "predictions"));
    assert_int_equal(zt_pool_used(r.pool), 0);
    pass.mode = ZT_MODE_TRAIN; /* dropped, and not even looked at */
    expect_ok(zt_step_forward(r.step, &pass, &loss, &fault), &fault);
    assert_null(zt_step_find_result(r.step, "predictions"));
    zt_step_end(r.step);
    rig_close(&r);
}

static void test_what_is_no_result(void **state)
{
    static const struct {
        const char *name, *text;
    } cases[] = {
        {"", "block b: result: ?: it has no name"},
        {"twice", "block b: result: twice: there is one of this name already"},
        {"weight", "block b: result: w: a weight is no result"},
    };
    static const int32_t ids[1] = {0};
    struct zt_pass pass = {.mode = ZT_MODE_EVAL, .B = 1, .T = 1, .fields = {ids, ids}};
    struct zt_fault fault = {ZT_OK, ""};
    zt_tensor *loss;
    struct rig r;

    (void)state;
    rig_open(&r, "cpu", ZT_F32, &plugin, (struct zt_step_config){.seed = 0});
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        name = cases[i].name;
        assert_int_equal(zt_step_forward(r.step, &pass, &loss, &fault), ZT_E_PLUGIN);
        assert_string_equal(fault.text, cases[i].text);
        zt_step_end(r.step);
    }
    rig_close(&r);
}

/* ---- constants of passes of other sizes ---- */

static struct zt_pool *pool;
static size_t held; /* when the forward begins: the fields, and what was kept */

static zt_tensor *forward_with_constant(zt_step *s, void *self, const zt_batch *b)
{
    held = zt_pool_used(pool);
    if (!zt_constant(s, ZT_F32, ZT_SHAPE(6), reals))
        return NULL;
    return forward(s, self, b);
}

static const struct zt_plugin constant_plugin = {.abi = ZT_ABI,
                                                 .struct_bytes = sizeof(struct zt_plugin),
                                                 .name = "constant",
                                                 .build = build,
                                                 .forward = forward_with_constant};

static void test_constants_are_not_in_the_way_of_other_sizes(void **state)
{
    static const struct {
        int64_t B, T, S;
    } sizes[] = {{2, 3, 4}, {1, 3, 4}, {1, 2, 4}, {1, 2, 3}, {2, 3, 4}};
    static const int32_t ids[6] = {0, 1, 2, 3, 2, 1}, targets[6] = {0, 1, 2, 0, 1, 2};
    struct zt_fault fault = {ZT_OK, ""};
    zt_tensor *loss;
    struct rig r;

    (void)state;
    name = "predictions";
    rig_open(&r, "cpu", ZT_F32, &constant_plugin, (struct zt_step_config){.seed = 0});
    pool = r.pool;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        for (size_t again = 0; again < 2; again++) {
            struct zt_pass pass = {.mode = ZT_MODE_EVAL,
                                   .B = sizes[i].B,
                                   .T = sizes[i].T,
                                   .S = sizes[i].S,
                                   .fields = {ids, targets}};

            expect_ok(zt_step_forward(r.step, &pass, &loss, &fault), &fault);
            assert_int_equal(held, (2 + again) * ZT_POOL_ALIGN);
            zt_step_end(r.step);
        }
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constants_have_the_callers_values),
        cmocka_unit_test(test_a_constant_is_uploaded_once),
        cmocka_unit_test(test_constants_go_when_a_pass_does_without_them),
        cmocka_unit_test(test_what_is_no_constant),
        cmocka_unit_test(test_a_pool_without_room_for_a_constant),
        cmocka_unit_test(test_masks_and_lengths_hide_padding),
        cmocka_unit_test(test_attention_reads_a_shared_row_as_if_it_were_copied),
        cmocka_unit_test(test_evaluation_keeps_results_to_the_end_of_the_pass),
        cmocka_unit_test(test_what_is_no_result),
        cmocka_unit_test(test_constants_are_not_in_the_way_of_other_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
