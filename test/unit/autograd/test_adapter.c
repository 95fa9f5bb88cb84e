/*
 * Low-rank pairs beside weights of both orientations: gradients against central differences
 * of a reference in double, what is frozen, how parameters are found to be linear, and what is
 * dropped before a pair.
 */
#include "test/unit/autograd/fixture.h"

#include "worker/autograd/adapter.h"

enum { ROWS = 5, IN = 6, MID = 7, OUT = 4, RANK = 3 };

static struct {
    zt_block *block, *embed;
    zt_param *w1, *b1, *w2, *table; /* (IN, MID), (MID), (OUT, MID), (9, IN) */
    bool adapted;
    float x[ROWS * IN], target[ROWS * OUT];
} net;

#define SCALE 0.75f

static zt_err net_build(zt_model *m, void **self)
{
    struct zt_param *weights[2];
    struct zt_adapter_spec spec = {.rank = RANK, .scale = SCALE};

    (void)self;
    net.embed = zt_model_block(m, "embed");
    net.table =
        zt_block_param(net.embed, "table.weight", ZT_SHAPE(9, IN), ZT_NORMAL(0, 0.5f), 0);
    net.block = zt_model_block(m, "net");
    net.w1 =
        zt_block_param(net.block, "one.weight", ZT_SHAPE(IN, MID), ZT_NORMAL(0, 0.5f), 0);
    net.b1 = zt_block_param(net.block, "one.bias", ZT_SHAPE(MID), ZT_ONES(), 0);
    net.w2 = zt_block_param(net.block, "two.weight", ZT_SHAPE(OUT, MID),
                            ZT_NORMAL(0, 0.5f), 0);
    if (!net.adapted || zt_model_status(m))
        return zt_model_status(m);
    weights[0] = net.w1;
    weights[1] = net.w2;
    net.w1->uses = ZT_USED_LINEAR | ZT_USED_IN_OUT;
    net.w2->uses = ZT_USED_LINEAR;
    if (zt_model_adapt(m, weights, 2, &spec, NULL))
        return zt_model_status(m);
    zt_model_freeze_base(m);
    return zt_model_status(m);
}

static void net_embed(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    (void)ctx;
    out[0] = zt_embedding(s, in[0], zt_weight(s, net.table));
}

static void net_layers(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    zt_tensor *x = zt_constant(s, ZT_F32, ZT_SHAPE(1, ROWS, IN), net.x);
    zt_tensor *t = zt_constant(s, ZT_F32, ZT_SHAPE(1, ROWS, OUT), net.target);

    (void)ctx;
    (void)in;
    x = zt_linear(s, x, zt_weight(s, net.w1), zt_weight(s, net.b1),
                  ZT_W_IN_OUT | ZT_GELU_ERF);
    x = zt_linear(s, x, zt_weight(s, net.w2), NULL, 0);
    out[0] = zt_squared_error(s, x, t);
}

static zt_tensor *net_forward(zt_step *s, void *self, const zt_batch *b)
{
    zt_tensor *x = zt_batch_field(s, b, ZT_TOKENS);

    (void)self;
    zt_block_call(s, net.embed, net_embed, NULL, &x, 1, &x, 1);
    zt_block_call(s, net.block, net_layers, NULL, &x, 1, &x, 1);
    return x;
}

static const struct zt_plugin net_plugin = {
    .abi = ZT_ABI, .name = "net", .build = net_build, .forward = net_forward};

/* ---- the reference ---- */

/* A's and B's of both layers, as their block holds them. */
struct pairs {
    double a1[RANK * IN], b1[MID * RANK], a2[RANK * MID], b2[OUT * RANK];
};

/* y (out) += W x + SCALE B A x; at(W, o, i) */
static void layer(const float *w, int64_t o_step, int64_t i_step, const double *a,
                  const double *b, const double *x, int in, int out, double *y)
{
    double low[RANK] = {0};

    for (int k = 0; k < RANK; k++)
        for (int i = 0; i < in; i++)
            low[k] += a[k * in + i] * x[i];
    for (int o = 0; o < out; o++) {
        for (int i = 0; i < in; i++)
            y[o] += (double)w[o * o_step + i * i_step] * x[i];
        for (int k = 0; k < RANK; k++)
            y[o] += (double)SCALE * b[o * RANK + k] * low[k];
    }
}

static double ref_loss(const struct rig *r, const struct pairs *p)
{
    const float *base = r->weights[net.block->index];
    const float *w1 = base + net.w1->offset_elems, *w2 = base + net.w2->offset_elems;
    double sum = 0;

    for (int n = 0; n < ROWS; n++) {
        double x[IN], h[MID], y[OUT] = {0};

        for (int i = 0; i < IN; i++)
            x[i] = (double)net.x[n * IN + i];
        for (int i = 0; i < MID; i++)
            h[i] = (double)base[net.b1->offset_elems + i];
        layer(w1, 1, MID, p->a1, p->b1, x, IN, MID, h);
        for (int i = 0; i < MID; i++)
            h[i] *= 0.5 * (1 + erf(h[i] / sqrt(2)));
        layer(w2, MID, 1, p->a2, p->b2, h, MID, OUT, y);
        for (int i = 0; i < OUT; i++)
            sum += pow(y[i] - (double)net.target[n * OUT + i], 2);
    }
    return sum;
}

/* ---- tests ---- */

static void fill(float *x, int64_t n, int seed)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)sin(1.7 * (double)i + seed) * 0.6f;
}

static void open_net(struct rig *r, bool adapted, struct zt_step_config more)
{
    net.adapted = adapted;
    fill(net.x, ROWS * IN, 1);
    fill(net.target, ROWS * OUT, 2);
    rig_open(r, "cpu", ZT_F32, &net_plugin, more);
    for (int i = 0; i < r->model->num_blocks; i++)
        fill(r->weights[i], r->model->blocks[i]->padded_elems, 3 + i);
}

/* The loss; gradients are in the rig. */
static double run(struct rig *r, zt_mode mode)
{
    static const int32_t ids[ROWS] = {1, 2, 3, 4, 5};
    struct zt_pass pass = {.mode = mode, .B = 1, .T = ROWS, .fields = {ids, ids}};
    struct zt_fault fault = {ZT_OK, ""};
    zt_tensor *loss = NULL;
    double value;

    expect_ok(zt_step_forward(r->step, &pass, &loss, &fault), &fault);
    value = (double)*(const float *)zt_tensor_view(loss)->data;
    if (mode == ZT_MODE_TRAIN)
        expect_ok(zt_step_backward(r->step, loss, 1, &fault), &fault);
    zt_step_end(r->step);
    return value;
}

/* Gradients of one factor against central differences of the reference. */
static void check_factor(const struct rig *r, struct pairs *p, double *values,
                         const struct zt_param *factor)
{
    const float *grad = r->grads[factor->block->index] + factor->offset_elems;

    for (int64_t i = 0; i < factor->numel; i++) {
        double was = values[i], up, down, want;

        values[i] = was + 1e-4;
        up = ref_loss(r, p);
        values[i] = was - 1e-4;
        down = ref_loss(r, p);
        values[i] = was;
        want = (up - down) / 2e-4;
        if (!(fabs(want - (double)grad[i]) <= 1e-4 * (1 + fabs(want))))
            fail_msg("%s[%lld]: %g, not %g", factor->name, (long long)i, (double)grad[i],
                     want);
    }
}

static void read_factor(const struct rig *r, const struct zt_param *p, double *out)
{
    const float *w = (const float *)r->weights[p->block->index] + p->offset_elems;

    for (int64_t i = 0; i < p->numel; i++)
        out[i] = (double)w[i];
}

static void check_gradients(struct zt_step_config more)
{
    const struct zt_adapter *one, *two;
    struct pairs p;
    struct rig r;
    double loss;

    open_net(&r, true, more);
    one = net.w1->adapter;
    two = net.w2->adapter;
    read_factor(&r, one->a, p.a1);
    read_factor(&r, one->b, p.b1);
    read_factor(&r, two->a, p.a2);
    read_factor(&r, two->b, p.b2);
    loss = run(&r, ZT_MODE_TRAIN);
    assert_true(fabs(loss - ref_loss(&r, &p)) <= 1e-5 * loss);
    check_factor(&r, &p, p.a1, one->a);
    check_factor(&r, &p, p.b1, one->b);
    check_factor(&r, &p, p.a2, two->a);
    check_factor(&r, &p, p.b2, two->b);
    rig_close(&r);
}

static void test_factors_of_both_layouts_have_their_gradients(void **state)
{
    (void)state;
    check_gradients((struct zt_step_config){.recompute = false});
}

static void test_they_have_them_where_blocks_are_recomputed(void **state)
{
    (void)state;
    check_gradients((struct zt_step_config){.recompute = true});
}

static void test_pairs_are_in_a_block_of_their_own_and_the_rest_is_frozen(void **state)
{
    const struct zt_block *pairs;
    struct rig r;

    (void)state;
    open_net(&r, true, (struct zt_step_config){.recompute = false});
    assert_int_equal(r.model->num_blocks, 3);
    pairs = r.model->blocks[2];
    assert_string_equal(pairs->name, "net.adapters");
    assert_int_equal(pairs->num_params, 4);
    assert_string_equal(pairs->params[0]->name, "one.lora_A.weight");
    assert_int_equal(pairs->params[0]->shape[0], RANK);
    assert_int_equal(pairs->params[0]->shape[1], IN);
    assert_int_equal(pairs->params[1]->shape[0], MID);
    assert_int_equal(pairs->params[1]->init.kind, ZT_INIT_ZEROS);
    assert_int_equal(net.block->num_shared, 4);
    assert_true(net.block->frozen && net.embed->frozen && !pairs->frozen);
    assert_true(net.b1->is_base && !pairs->params[0]->is_base);
    rig_close(&r);
}

static void test_a_pass_tells_which_parameters_are_those_of_linear_ops(void **state)
{
    struct rig r;

    (void)state;
    open_net(&r, false, (struct zt_step_config){.note_uses = true});
    run(&r, ZT_MODE_EVAL);
    assert_true(zt_param_is_linear(net.w1) && zt_param_is_linear(net.w2));
    assert_true(net.w1->uses & ZT_USED_IN_OUT);
    assert_false(net.w2->uses & ZT_USED_IN_OUT);
    assert_false(zt_param_is_linear(net.table));
    assert_false(zt_param_is_linear(net.b1));
    rig_close(&r);
}

/* ---- dropout ---- */

/* What an adapted linear op reads: a table (2, IN), which is as long as the batch has rows; embedded
 * tokens (2, 3, IN); the same as (6, IN). */
static enum operand { TABLE, TOKENS, FLAT } operand;
static float drop_p;

static struct {
    zt_block *block;
    zt_param *table, *proj; /* (9, IN), (OUT, IN) */
} drop;

static zt_err drop_build(zt_model *m, void **self)
{
    struct zt_adapter_spec spec = {.rank = RANK, .scale = SCALE, .dropout = drop_p};

    (void)self;
    drop.block = zt_model_block(m, "net");
    drop.table =
        zt_block_param(drop.block, "table.weight", ZT_SHAPE(9, IN), ZT_NORMAL(0, 1), 0);
    drop.proj =
        zt_block_param(drop.block, "proj.weight", ZT_SHAPE(OUT, IN), ZT_NORMAL(0, 1), 0);
    if (zt_model_status(m))
        return zt_model_status(m);
    drop.proj->uses = ZT_USED_LINEAR;
    if (zt_model_adapt(m, &drop.proj, 1, &spec, NULL))
        return zt_model_status(m);
    zt_model_freeze_base(m);
    return zt_model_status(m);
}

static void drop_layer(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    static const float zeros[6 * OUT];
    zt_tensor *x = zt_weight(s, drop.table), *y;

    (void)ctx;
    x = operand == TABLE ? zt_slice(s, x, 0, 4, 2) : zt_embedding(s, in[0], x);
    if (operand == FLAT)
        x = zt_reshape(s, x, ZT_SHAPE(6, IN));
    y = zt_linear(s, x, zt_weight(s, drop.proj), NULL, 0);
    y = zt_reshape(s, y, ZT_SHAPE(-1, OUT));
    out[0] = zt_squared_error(
        s, y, zt_constant(s, ZT_F32, ZT_SHAPE(zt_tensor_dim(y, 0), OUT), zeros));
}

static zt_tensor *drop_forward(zt_step *s, void *self, const zt_batch *b)
{
    zt_tensor *x = zt_batch_field(s, b, ZT_TOKENS);

    (void)self;
    zt_block_call(s, drop.block, drop_layer, NULL, &x, 1, &x, 1);
    return x;
}

static void open_drop(struct rig *r, enum operand what, float p)
{
    static const struct zt_plugin plugin = {
        .abi = ZT_ABI, .name = "drop", .build = drop_build, .forward = drop_forward};

    operand = what;
    drop_p = p;
    rig_open(r, "cpu", ZT_F32, &plugin, (struct zt_step_config){.seed = 3});
    for (int i = 0; i < r->model->num_blocks; i++)
        fill(r->weights[i], r->model->blocks[i]->padded_elems, 3 + i);
}

/* The loss of two equal rows that are rows row0 and row0 + 1 of the global batch. */
static zt_err drop_pass(struct rig *r, zt_mode mode, int64_t row0, float *loss,
                        struct zt_fault *fault)
{
    static const int32_t ids[6] = {1, 2, 3, 1, 2, 3};
    struct zt_pass pass = {
        .mode = mode, .B = 2, .T = 3, .fields = {ids, ids}, .row0 = row0};
    zt_tensor *t = NULL;
    zt_err rc = zt_step_forward(r->step, &pass, &t, fault);

    if (!rc)
        *loss = *(const float *)zt_tensor_view(t)->data;
    zt_step_end(r->step);
    return rc;
}

static void test_of_what_all_rows_share_every_rank_drops_the_same(void **state)
{
    (void)state;
    for (int what = TABLE; what <= TOKENS; what++) {
        struct zt_fault fault = {ZT_OK, ""};
        float first, other, whole;
        struct rig r;

        open_drop(&r, (enum operand)what, 0.5f);
        expect_ok(drop_pass(&r, ZT_MODE_TRAIN, 0, &first, &fault), &fault);
        expect_ok(drop_pass(&r, ZT_MODE_TRAIN, 6, &other, &fault), &fault);
        expect_ok(drop_pass(&r, ZT_MODE_EVAL, 0, &whole, &fault), &fault);
        assert_true((first == other) == (what == TABLE));
        assert_true(first != whole); /* something is dropped */
        rig_close(&r);
    }
}

static void test_without_dropout_any_shape_is_taken(void **state)
{
    struct zt_fault fault = {ZT_OK, ""};
    float flat, rows;
    struct rig r;

    (void)state;
    open_drop(&r, FLAT, 0);
    expect_ok(drop_pass(&r, ZT_MODE_TRAIN, 0, &flat, &fault), &fault);
    operand = TOKENS;
    expect_ok(drop_pass(&r, ZT_MODE_TRAIN, 0, &rows, &fault), &fault);
    assert_true(flat == rows);
    rig_close(&r);
}

static void test_what_is_not_by_rows_cannot_be_dropped_in_training_alone(void **state)
{
    struct zt_fault fault = {ZT_OK, ""};
    float loss;
    struct rig r;

    (void)state;
    open_drop(&r, FLAT, 0.5f);
    expect_ok(drop_pass(&r, ZT_MODE_EVAL, 0, &loss, &fault), &fault);
    assert_int_equal(drop_pass(&r, ZT_MODE_TRAIN, 0, &loss, &fault), ZT_E_ARG);
    assert_non_null(strstr(fault.text, "proj.lora_A.weight cannot be trained with "
                                       "--lora_dropout 0.5, but with 0: "));
    assert_non_null(
        strstr(fault.text, "dropout: x (6, 6) does not begin with the 2 rows"));
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_factors_of_both_layouts_have_their_gradients),
        cmocka_unit_test(test_they_have_them_where_blocks_are_recomputed),
        cmocka_unit_test(test_pairs_are_in_a_block_of_their_own_and_the_rest_is_frozen),
        cmocka_unit_test(test_a_pass_tells_which_parameters_are_those_of_linear_ops),
        cmocka_unit_test(test_of_what_all_rows_share_every_rank_drops_the_same),
        cmocka_unit_test(test_without_dropout_any_shape_is_taken),
        cmocka_unit_test(test_what_is_not_by_rows_cannot_be_dropped_in_training_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
