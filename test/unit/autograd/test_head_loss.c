/* The head of a language model makes the gradient of its logits beside the loss: the bits are
 * those of two passes, whatever becomes of the loss. An odd number of words is multiplied padded. */
#include "test/unit/autograd/fixture.h"
#include "worker/autograd/tape.h"

enum { ROWS = 6, WORDS = 37, PADDED = 64, WIDTH = 8 };

static enum { AS_IS, HALVED, ADDED, LEFT_OUT, READ } use;
static zt_block *block;
static zt_param *table, *behind;
static int64_t product_align;

static zt_err build(zt_model *m, void **self)
{
    (void)self;
    block = zt_model_block(m, "head");
    table = zt_block_param(block, "w", ZT_SHAPE(WORDS, WIDTH), ZT_ONES(), 0);
    behind = zt_block_param(block, "rest", ZT_SHAPE(PADDED, WIDTH), ZT_ONES(), 0);
    zt_model_language_fields(m);
    return zt_model_status(m);
}

static void head(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    zt_tensor *w = zt_weight(s, table), *x = zt_embedding(s, in[0], w), *loss;

    (void)ctx;
    if (use == READ) /* the plugin's own logits stay as they are for whoever reads them */
        loss = zt_linear(s, x, w, NULL, ZT_OUTPUT_HEAD);
    else
        loss = zt_lm_head(s, x, w, in[1]);
    out[0] = use == HALVED     ? zt_scale(s, loss, 0.5f)
             : use == ADDED    ? zt_add(s, loss, zt_lm_head(s, x, w, in[1]))
             : use == LEFT_OUT ? zt_squared_error(s, x, zt_scale(s, x, 0.5f))
             : use == READ     ? zt_add(s, zt_cross_entropy(s, loss, in[1]),
                                        zt_squared_error(s, loss, zt_scale(s, loss, 2)))
                               : loss;
}

static zt_tensor *forward(zt_step *s, void *self, const zt_batch *b)
{
    zt_tensor *in[2] = {zt_batch_field(s, b, ZT_TOKENS),
                        zt_batch_field(s, b, ZT_TARGETS)};
    zt_tensor *loss = NULL;

    (void)self;
    zt_block_call(s, block, head, NULL, in, 2, &loss, 1);
    return loss;
}

static const struct zt_plugin plugin = {.abi = ZT_ABI,
                                        .struct_bytes = sizeof(struct zt_plugin),
                                        .name = "head",
                                        .build = build,
                                        .forward = forward};

/* ---- kernels that are counted ---- */

static int num_backward, num_padded, num_unpadded, num_rows_of_words;
static const struct zt_kernels *counted;

static zt_err count_backward(struct zt_device *dev, struct zt_stream *s,
                             const struct zt_cross_entropy_bwd_args *a,
                             struct zt_fault *fault)
{
    num_backward++;
    return counted->cross_entropy_bwd(dev, s, a, fault);
}

/* A product whose columns, or what is summed, are the padded words. */
static zt_err count_product(struct zt_device *dev, struct zt_stream *s,
                            const struct zt_gemm_args *a, struct zt_fault *fault)
{
    for (int64_t n = PADDED; n; n = n == PADDED ? WORDS : 0)
        if (a->c.shape[1] == n || a->a.shape[1] == n)
            *(n == PADDED ? &num_padded : &num_unpadded) += 1;
    num_rows_of_words += a->c.shape[0] == WORDS;
    return counted->gemm(dev, s, a, fault);
}

struct result {
    float grads[WORDS * WIDTH], rest[PADDED * WIDTH], loss;
    double flops;
    int num_backward;
};

/* told: the pass says what backward starts from. */
static struct result run(zt_dtype dtype, float told, float dloss)
{
    int32_t tokens[ROWS], targets[ROWS];
    struct zt_pass pass = {.B = 1, .T = ROWS, .fields = {tokens, targets}, .dloss = told};
    struct zt_fault fault = {ZT_OK, ""};
    struct zt_kernels kernels;
    struct result out;
    zt_tensor *loss = NULL;
    struct rig r;

    for (int i = 0; i < ROWS; i++) {
        tokens[i] = (i * 7) % WORDS;
        targets[i] = i == 2 ? ZT_IGNORE_TARGET : (i * 11) % WORDS;
    }
    rig_open(&r, "cpu", dtype, &plugin,
             (struct zt_step_config){.product_align = product_align});
    rig_init_weights(&r, 1);
    rig_clear_grads(&r);
    counted = r.step->k;
    kernels = *counted;
    kernels.cross_entropy_bwd = count_backward;
    kernels.gemm = count_product;
    r.step->k = &kernels;
    num_backward = num_padded = num_unpadded = num_rows_of_words = 0;
    expect_ok(zt_step_forward(r.step, &pass, &loss, &fault), &fault);
    out.loss = *(float *)zt_tensor_view(loss)->data;
    expect_ok(zt_step_backward(r.step, loss, dloss, &fault), &fault);
    zt_step_end(r.step);
    out.num_backward = num_backward;
    out.flops = zt_step_take_flops(r.step);
    memcpy(out.grads, r.grads[block->index] + table->offset_elems, sizeof(out.grads));
    memcpy(out.rest, r.grads[block->index] + behind->offset_elems, sizeof(out.rest));
    r.step->k = counted;
    rig_close(&r);
    return out;
}

static void check(zt_dtype dtype, float told, float dloss, int passes)
{
    struct result two = run(dtype, 0, dloss), one = run(dtype, told, dloss);

    assert_memory_equal(&two.loss, &one.loss, sizeof(two.loss));
    assert_memory_equal(two.grads, one.grads, sizeof(two.grads));
    assert_int_equal(one.num_backward, passes);
}

static void test_a_loss_that_is_returned_costs_one_pass(void **state)
{
    (void)state;
    use = AS_IS;
    check(ZT_F32, 0.37f, 0.37f, 0);
    check(ZT_BF16, 0.37f, 0.37f, 0);
}

static void test_a_loss_that_is_multiplied_or_added_has_its_gradient(void **state)
{
    (void)state;
    use = HALVED;
    check(ZT_F32, 0.37f, 0.37f, 1);
    check(ZT_BF16, 0.37f, 0.37f, 1);
    use = ADDED;
    check(ZT_F32, 0.37f, 0.37f, 2);
}

static void test_another_start_than_was_told_is_made_up_for(void **state)
{
    (void)state;
    use = AS_IS;
    check(ZT_F32, 2, 0.5f, 1);
}

static void test_a_loss_that_is_left_out_has_no_gradient(void **state)
{
    (void)state;
    use = LEFT_OUT;
    check(ZT_F32, 0.37f, 0.37f, 0);
}

static void test_logits_of_a_plugin_stay_logits(void **state)
{
    (void)state;
    use = READ;
    check(ZT_F32, 0.37f, 0.37f, 1);
}

/* An odd vocabulary, as a device wants it: forward and the gradient of x are padded by weights
 * that lie behind, which have no gradient from it; nothing else is another number. */
static void test_padded_products_are_those_of_the_words(void **state)
{
    static const zt_dtype types[] = {ZT_F32, ZT_BF16};

    (void)state;
    use = AS_IS;
    for (int i = 0; i < 4; i++) {
        float told = i / 2 ? 0.37f : 0; /* with the loss, or in backward */
        struct result want, got;

        product_align = 0;
        want = run(types[i % 2], told, 0.37f);
        assert_int_equal(num_padded, 0);
        assert_int_equal(num_unpadded, 2);
        product_align = PADDED;
        got = run(types[i % 2], told, 0.37f);
        product_align = 0;
        assert_int_equal(num_padded, 2);
        assert_int_equal(num_unpadded, 0);
        assert_int_equal(num_rows_of_words, 1); /* the gradient of w */
        assert_true(fabsf(got.loss - want.loss) <= 1e-5f * want.loss);
        assert_true(got.flops == want.flops);
        for (int k = 0; k < WORDS * WIDTH; k++)
            assert_true(fabsf(got.grads[k] - want.grads[k]) <=
                        (i % 2 ? 2e-2f : 1e-5f) * (fabsf(want.grads[k]) + 0.01f));
        for (int k = 0; k < PADDED * WIDTH; k++)
            assert_true(got.rest[k] == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_loss_that_is_returned_costs_one_pass),
        cmocka_unit_test(test_a_loss_that_is_multiplied_or_added_has_its_gradient),
        cmocka_unit_test(test_another_start_than_was_told_is_made_up_for),
        cmocka_unit_test(test_a_loss_that_is_left_out_has_no_gradient),
        cmocka_unit_test(test_logits_of_a_plugin_stay_logits),
        cmocka_unit_test(test_padded_products_are_those_of_the_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
