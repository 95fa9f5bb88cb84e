/* Generation with cached keys and values gives what a pass over the whole text gives. */
#include "test/unit/autograd/nets.h"

enum { ROWS = 2, TEXT = 13 };

/* Logits of the last position of every row, after a pass of `count` tokens each. */
static void last_logits(struct rig *r, zt_mode mode, const int32_t *ids, int64_t count,
                        bool last_only, float out[ROWS][VOCAB])
{
    struct zt_pass pass = {
        .mode = mode, .B = ROWS, .T = count, .fields = {ids}, .last_only = last_only};
    struct zt_fault fault = {ZT_OK, ""};
    const struct zt_view *v;
    zt_tensor *t = NULL;

    expect_ok(zt_step_forward(r->step, &pass, &t, &fault), &fault);
    v = zt_tensor_view(t);
    assert_int_equal(v->ndim, 3);
    assert_int_equal(v->shape[0], ROWS);
    assert_int_equal(v->shape[1], last_only ? 1 : count);
    assert_int_equal(v->shape[2], VOCAB);
    for (int64_t b = 0; b < ROWS; b++)
        for (int64_t i = 0; i < VOCAB; i++)
            out[b][i] =
                (float)get(v->data, v->dtype,
                           b * v->stride[0] + (v->shape[1] - 1) * v->stride[1] + i);
    zt_step_end(r->step);
}

/* Columns [from, from + count) of every row's text. */
static void cut(const int32_t *text, int64_t from, int64_t count, int32_t *out)
{
    for (int64_t b = 0; b < ROWS; b++)
        for (int64_t i = 0; i < count; i++)
            out[b * count + i] = text[b * TEXT + from + i];
}

static void same_logits(float a[ROWS][VOCAB], float b[ROWS][VOCAB], float limit)
{
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t v = 0; v < VOCAB; v++)
            if (!(fabsf(a[i][v] - b[i][v]) <= limit))
                fail_msg("row %d, id %d: %g with the cache, %g without", (int)i, (int)v,
                         (double)a[i][v], (double)b[i][v]);
}

/* A prompt of `prompt` tokens, then token by token, against passes over all so far. */
static void follow(struct rig *r, const int32_t *text, int64_t prompt, float limit)
{
    float cached[ROWS][VOCAB], whole[ROWS][VOCAB];
    int32_t ids[ROWS * TEXT];

    for (int64_t n = prompt; n <= TEXT; n++) {
        int64_t count = n == prompt ? prompt : 1;

        cut(text, n - count, count, ids);
        last_logits(r, ZT_MODE_GENERATE, ids, count, true, cached);
        cut(text, 0, n, ids);
        last_logits(r, ZT_MODE_EVAL, ids, n, n % 2, whole);
        same_logits(cached, whole, limit);
    }
}

static void compare(bool rope, zt_dtype dtype, float limit)
{
    struct zt_fault fault = {ZT_OK, ""};
    int32_t text[ROWS * TEXT], unused[ROWS * TEXT];
    struct rig r;

    gpt.dropout = 0.5f; /* must not act */
    gpt.rope = rope;
    gpt.frozen_layer = false;
    make_batch(text, unused, ROWS * TEXT);
    rig_open(&r, "cpu", dtype, &gpt_plugin, (struct zt_step_config){.seed = 1});
    rig_init_weights(&r, 0.4);
    expect_ok(zt_step_cache_open(r.step, ROWS, TEXT, &fault), &fault);
    follow(&r, text, 5, limit);
    zt_step_cache_reset(r.step);
    follow(&r, text, 1, limit);
    zt_step_cache_close(r.step);
    rig_close(&r);
}

static void test_cached_generation_equals_passes_over_the_whole_text(void **state)
{
    (void)state;
    compare(false, ZT_F32, 1e-4f);
    compare(true, ZT_F32, 1e-4f);
    compare(true, ZT_BF16, 0.15f);
}

static void test_a_mask_hides_cached_keys_as_it_does_others(void **state)
{
    (void)state;
    gpt.slopes = true;
    compare(true, ZT_F32, 1e-4f);
    gpt.slopes = false;
}

static void test_cache_refuses_more_than_it_holds(void **state)
{
    int32_t ids[ROWS * TEXT] = {0};
    struct zt_pass pass = {.mode = ZT_MODE_GENERATE, .B = ROWS, .T = 5, .fields = {ids}};
    struct zt_fault fault = {ZT_OK, ""};
    zt_tensor *t = NULL;
    struct rig r;

    (void)state;
    rig_open(&r, "meta", ZT_F32, &gpt_plugin, (struct zt_step_config){.seed = 1});
    expect_ok(zt_step_cache_open(r.step, ROWS, 8, &fault), &fault);
    expect_ok(zt_step_forward(r.step, &pass, &t, &fault), &fault);
    zt_step_end(r.step);
    assert_int_equal(zt_step_forward(r.step, &pass, &t, &fault), ZT_E_LIMIT);
    assert_non_null(strstr(fault.text, "5 tokens behind 5 cached ones"));
    pass.B = ROWS + 1;
    pass.T = 1;
    assert_int_equal(zt_step_forward(r.step, &pass, &t, &fault), ZT_E_ARG);
    pass.B = ROWS;
    expect_ok(zt_step_forward(r.step, &pass, &t, &fault), &fault);
    zt_step_end(r.step);
    assert_int_equal(zt_step_cache_open(r.step, 1, 1, &fault), ZT_E_ARG);
    rig_close(&r); /* closes the cache, too */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cached_generation_equals_passes_over_the_whole_text),
        cmocka_unit_test(test_a_mask_hides_cached_keys_as_it_does_others),
        cmocka_unit_test(test_cache_refuses_more_than_it_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
