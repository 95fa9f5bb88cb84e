/* What a person reads when a forward pass is wrong, and that a step survives it. */
#include "test/unit/autograd/nets.h"

/* ---- single ops ---- */

static float memory[4096];
static int32_t numbers[64];

static zt_tensor *floats(zt_step *s, int ndim, const int64_t *shape)
{
    return zt_step_leaf(s, zt_view_of(memory, ZT_F32, ndim, shape), true);
}

static zt_tensor *ids(zt_step *s, int ndim, const int64_t *shape)
{
    return zt_step_leaf(s, zt_view_of(numbers, ZT_I32, ndim, shape), false);
}

#define F(...) floats(s, ZT_SHAPE(__VA_ARGS__))
#define I(...) ids(s, ZT_SHAPE(__VA_ARGS__))

static zt_tensor *bad_op(zt_step *s, int which)
{
    const struct zt_attention window = ZT_ATTENTION(.window = 3);
    const struct zt_attention wild = ZT_ATTENTION(.dropout = 1);
    struct zt_attention biased = ZT_ATTENTION(.scale = 0);
    struct zt_rope rope = ZT_ROPE(.inv_freq = memory, .rotary_dims = 3);
    zt_tensor *sum;

    switch (which) {
    case 0:
        return zt_linear(s, F(2, 8, 768), F(512, 700), NULL, 0);
    case 1:
        return zt_linear(s, F(2, 3), F(3, 4), F(3), ZT_W_IN_OUT);
    case 2:
        return zt_linear(s, I(2, 3), F(3, 4), NULL, ZT_W_IN_OUT);
    case 3:
        return zt_matmul(s, F(2, 3, 4), F(3, 4, 5));
    case 4:
        return zt_embedding(s, F(4), F(5, 6));
    case 5:
        return zt_layernorm(s, F(2, 5), F(4), NULL, 1e-5f);
    case 6:
        return zt_layernorm(s, F(2, 5), F(5), F(6), 1e-5f);
    case 7:
        return zt_rope_apply(s, F(1, 2, 3, 4), zt_positions(s, 2), &rope);
    case 8:
        return zt_attention(s, F(1, 2, 4, 5), F(1, 2, 3, 5), F(1, 2, 3, 5), &window);
    case 9:
        return zt_attention(s, F(1, 2, 3, 5), F(1, 2, 3, 5), F(1, 2, 3, 5), &window);
    case 10:
        return zt_attention(s, F(1, 2, 3, 5), F(1, 2, 3, 5), F(1, 2, 3, 5), &wild);
    case 11:
        biased.bias = F(1, 3, 2, 9);
        return zt_attention(s, F(1, 2, 3, 5), F(1, 2, 3, 5), F(1, 2, 3, 5), &biased);
    case 12:
        return zt_add(s, F(2, 3), F(2));
    case 13:
        return zt_swiglu(s, F(2, 3), F(2, 4));
    case 14:
        return zt_dropout(s, F(2), 1.5f);
    case 15:
        return zt_reshape(s, F(2, 3), ZT_SHAPE(4, -1));
    case 16:
        return zt_transpose(s, F(2, 3), 0, 2);
    case 17:
        return zt_slice(s, F(2, 3), 1, 2, 2);
    case 18:
        return zt_concat(s, 0, (zt_tensor *[]){F(2, 3), F(2, 4)}, 2);
    case 19:
        return zt_cross_entropy(s, F(4, 5), I(3));
    case 20:
        return zt_squared_error(s, F(4), F(5));
    case 21:
        return zt_lm_head(s, F(4, 5), F(6, 5), NULL);
    case 22:
        return zt_gelu(s, NULL);
    case 23:
        return zt_tensor_dim(F(2, 3), 2) ? NULL : F(1);
    case 24:
        return zt_add_layernorm(s, F(2, 5), F(5), F(5), NULL, 1e-5f, &sum);
    case 25:
        return zt_add_rmsnorm(s, F(2, 5), F(2, 5), F(4), 1e-5f, 0, &sum);
    case 26:
        return zt_add_rmsnorm(s, F(2, 5), NULL, F(5), 1e-5f, 0, &sum);
    case 27:
        biased.key_begin = I(1, 3);
        return zt_attention(s, F(1, 2, 3, 5), F(1, 2, 3, 5), F(1, 2, 3, 5), &biased);
    case 28:
        biased.key_end = F(1, 2);
        return zt_attention(s, F(1, 2, 3, 5), F(1, 2, 3, 5), F(1, 2, 3, 5), &biased);
    case 29:
        rope.rotary_dims = 4;
        return zt_rope_apply(s, F(3, 2, 3, 4), I(2, 2), &rope);
    case 30:
        return zt_cross_entropy(s, F(3, 2, 5), I(2, 3));
    default:
        return zt_softmax(s, I(3));
    }
}

static const char *const sentences[] = {
    "linear: x (2, 8, 768) but w (512, 700), as (out, in)",
    "linear: w (3, 4) but bias (3)",
    "linear: x is i32 but w is f32",
    "matmul: a (2, 3, 4) but b (3, 4, 5)",
    "embedding: ids (4) f32 and table (5, 6) f32",
    "layernorm: x (2, 5) but w (4)",
    "layernorm: x (2, 5) but b (6)",
    "rope: 3 of the 4 dimensions rotate",
    "attention: q (1, 2, 4, 5), k (1, 2, 3, 5), v (1, 2, 3, 5)",
    "attention: a window of 3 needs causal attention",
    "attention: dropout 1 is not in [0, 1)",
    "attention: bias (1, 3, 2, 9) f32, but (1 or 1, 1 or 3, 2, 2) is wanted",
    "add: a (2, 3) but b (2), which is neither that nor its end",
    "swiglu: gate (2, 3) f32 but up (2, 4) f32",
    "dropout: p = 1.5 is not in [0, 1)",
    "reshape: x (2, 3) cannot become (4, -1)",
    "transpose: axes 0 and 2 of x (2, 3)",
    "slice: 2 from 2 on along axis 1 of x (2, 3)",
    "concat: along axis 0: (2, 3) f32 but (2, 4) f32",
    "cross_entropy: logits (4, 5) f32 but targets (3) i32",
    "squared_error: x (4) f32 but y (5) f32",
    "lm_head: x (4, 5), but (B, T, C) is wanted",
    "gelu: operand 1 is NULL",
    "zt_tensor_dim: no axis 2 in (2, 3)",
    "add_layernorm: x (2, 5) f32 but y (5) f32",
    "add_rmsnorm: x (2, 5) but w (4)",
    "add_rmsnorm: operand 2 is NULL",
    "attention: key_begin (1, 3) i32, but (1, 2) i32 is wanted",
    "attention: key_end (1, 2) f32, but (1, 2) i32 is wanted",
    "rope: x (3, 2, 3, 4) but positions (2, 2) i32",
    "cross_entropy: logits (3, 2, 5) f32 but targets (2, 3) i32",
    "softmax: x is i32",
};

static void test_ops_name_themselves_and_the_shapes(void **state)
{
    struct zt_fault fault = {ZT_OK, ""};
    struct rig r;

    (void)state;
    rig_open(&r, "meta", ZT_F32, NULL, (struct zt_step_config){.seed = 0});
    for (int i = 0; i < (int)(sizeof(sentences) / sizeof(*sentences)); i++) {
        expect_ok(zt_step_begin_bare(r.step, ZT_MODE_TRAIN, &fault), &fault);
        assert_null(bad_op(r.step, i));
        assert_int_equal(zt_step_status(r.step, &fault), ZT_E_ARG);
        assert_string_equal(fault.text, sentences[i]);
        zt_step_end(r.step);
    }
    rig_close(&r);
}

static void test_the_first_failure_stays_until_the_step_ends(void **state)
{
    struct zt_fault fault = {ZT_OK, ""};
    struct rig r;
    zt_step *s;

    (void)state;
    rig_open(&r, "meta", ZT_F32, NULL, (struct zt_step_config){.seed = 0});
    s = r.step;
    expect_ok(zt_step_begin_bare(s, ZT_MODE_TRAIN, &fault), &fault);
    assert_null(zt_add(s, F(2, 3), F(2)));
    assert_null(F(1));
    assert_null(bad_op(s, 0));
    assert_int_equal(zt_step_status(s, &fault), ZT_E_ARG);
    assert_string_equal(fault.text, sentences[12]);
    zt_step_end(s);
    expect_ok(zt_step_begin_bare(s, ZT_MODE_TRAIN, &fault), &fault);
    assert_non_null(zt_add(s, F(2, 3), F(3)));
    expect_step_ok(s);
    zt_step_end(s);
    rig_close(&r);
}

/* ---- options of other headers ---- */

static void expect_bad_size(zt_step *s, const char *text)
{
    struct zt_fault fault = {ZT_OK, ""};

    assert_int_equal(zt_step_status(s, &fault), ZT_E_PLUGIN);
    assert_string_equal(fault.text, text);
    zt_step_end(s);
}

static void test_options_of_a_size_that_no_header_has(void **state)
{
    static const struct {
        uint32_t bytes;
        const char *attention, *rope;
    } cases[] = {
        {0, "attention: its options have 0 bytes: make them with ZT_ATTENTION()",
         "rope: its options have 0 bytes: make them with ZT_ROPE()"},
        {7, "attention: its options have 7 bytes: make them with ZT_ATTENTION()",
         "rope: its options have 7 bytes: make them with ZT_ROPE()"},
        {3000000000u,
         "attention: its options have 3000000000 bytes: make them with ZT_ATTENTION()",
         "rope: its options have 3000000000 bytes: make them with ZT_ROPE()"},
    };
    struct zt_fault fault = {ZT_OK, ""};
    struct rig r;
    zt_step *s;

    (void)state;
    rig_open(&r, "meta", ZT_F32, NULL, (struct zt_step_config){.seed = 0});
    s = r.step;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct zt_attention how = {.struct_bytes = cases[i].bytes};
        struct zt_rope rope = {.struct_bytes = cases[i].bytes, .rotary_dims = 4};

        expect_ok(zt_step_begin_bare(s, ZT_MODE_TRAIN, &fault), &fault);
        assert_null(zt_attention(s, F(1, 2, 3, 5), F(1, 2, 3, 5), F(1, 2, 3, 5), &how));
        expect_bad_size(s, cases[i].attention);
        expect_ok(zt_step_begin_bare(s, ZT_MODE_TRAIN, &fault), &fault);
        assert_null(zt_rope_apply(s, F(1, 2, 3, 4), zt_positions(s, 2), &rope));
        expect_bad_size(s, cases[i].rope);
    }
    rig_close(&r);
}

static void test_options_of_an_older_header_end_where_they_say(void **state)
{
    struct zt_attention how = ZT_ATTENTION(.causal = true, .window = -5);
    struct zt_rope rope = ZT_ROPE(.inv_freq = memory, .rotary_dims = 4, .magnitude = 9);
    struct zt_fault fault = {ZT_OK, ""};
    struct rig r;
    zt_step *s;

    (void)state;
    rig_open(&r, "meta", ZT_F32, NULL, (struct zt_step_config){.seed = 0});
    s = r.step;
    how.bias = (zt_tensor *)memory; /* what lies behind them is nobody's option */
    how.struct_bytes = offsetof(struct zt_attention, window);
    rope.struct_bytes = offsetof(struct zt_rope, interleaved);
    expect_ok(zt_step_begin_bare(s, ZT_MODE_TRAIN, &fault), &fault);
    assert_non_null(zt_attention(s, F(1, 2, 3, 5), F(1, 2, 3, 5), F(1, 2, 3, 5), &how));
    assert_non_null(zt_rope_apply(s, F(1, 2, 3, 4), zt_positions(s, 2), &rope));
    expect_step_ok(s);
    zt_step_end(s);
    rig_close(&r);
}

/* ---- blocks ---- */

static int scene;
static zt_block *one, *two;
static zt_param *w1, *w2;

static zt_err stage_build(zt_model *m, void **self)
{
    (void)self;
    one = zt_model_block(m, "h.3");
    w1 = zt_block_param(one, "w1", ZT_SHAPE(5, 4), ZT_ONES(), 0);
    two = zt_model_block(m, "other");
    w2 = zt_block_param(two, "w2", ZT_SHAPE(5, 4), ZT_ONES(), 0);
    zt_model_language_fields(m);
    zt_model_field(m, ZT_BATCH_FIELD(.name = "images", .dtype = ZT_U8,
                                     .shape = {ZT_DIM_B, 4})); /* absent */
    return zt_model_status(m);
}

static void stage_block(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    zt_tensor *x = zt_embedding(s, in[0], zt_weight(s, w1));

    if (scene == 0)
        out[0] = zt_linear(s, x, zt_weight(s, w1), NULL, ZT_W_IN_OUT);
    else if (scene == 1)
        zt_block_call(s, two, stage_block, ctx, in, 1, out, 1);
    else if (scene == 2)
        out[0] = zt_add(s, x, zt_weight(s, w2));
    else if (scene == 3)
        out[0] = zt_weight(s, w1);
    else if (scene == 9)
        out[0] = zt_dropout(s, zt_reshape(s, x, ZT_SHAPE(3, 4)), 0);
    else if (scene != 4)
        out[0] = x;
}

static zt_tensor *stage_forward(zt_step *s, void *self, const zt_batch *b)
{
    zt_tensor *in = zt_batch_field(s, b, ZT_TOKENS), *out = NULL;

    (void)self;
    if (scene == 5)
        return zt_embedding(s, in, zt_weight(s, w1));
    if (scene == 6)
        return NULL;
    if (scene == 8)
        zt_block_call(s, one, stage_block, NULL, &in, ZT_MAX_BLOCK_IO + 1, &out, 1);
    if (scene == 10)
        return zt_step_leaf(s, zt_view_of(memory, ZT_F32, 1, (int64_t[]){1}), false);
    if (zt_batch_field(s, b, "images"))
        return NULL;
    zt_block_call(s, one, stage_block, NULL, &in, 1, &out, 1);
    return out;
}

static const struct zt_plugin stage_plugin = {.abi = ZT_ABI,
                                              .struct_bytes = sizeof(struct zt_plugin),
                                              .name = "stage",
                                              .build = stage_build,
                                              .forward = stage_forward};

static void test_blocks_are_named_in_what_goes_wrong(void **state)
{
    static const char *const want[] = {
        "block h.3: linear: x (1, 3, 4) but w (5, 4), as (in, out)",
        "block h.3: block other is called inside another block; blocks do not nest",
        "block h.3: weight: w2 belongs to block other, which this one neither is nor "
        "shares it with",
        "block h.3: output 0 is the weight w1 itself; weights are only reachable inside "
        "a "
        "block",
        "block h.3: its function left output 0 empty",
        "weight: w1 belongs to block h.3, and is only reachable inside a block call",
        "plugin stage: forward returned NULL",
        "plugin stage: with labels in the batch forward must return the summed loss, a "
        "scalar f32; it returned f32 (1, 3, 4)",
        "block h.3: 9 inputs and 1 outputs, but 8 is the most",
        "block h.3: dropout: x (3, 4) does not begin with the 1 rows of the batch, by "
        "which "
        "random numbers are the same on any number of ranks; of what all rows share it "
        "is "
        "zt_dropout_shared()",
        "plugin stage: the loss that forward returned depends on no parameter that is "
        "trained (those of ZT_FROZEN are not): nothing would be learnt",
    };
    static int32_t tokens[3];
    struct zt_pass pass = {.B = 1, .T = 3, .fields = {tokens, tokens}};
    struct rig r;

    (void)state;
    rig_open(&r, "meta", ZT_F32, &stage_plugin, (struct zt_step_config){.seed = 0});
    for (scene = 0; scene < (int)(sizeof(want) / sizeof(*want)); scene++) {
        struct zt_fault fault = {ZT_OK, ""};
        zt_tensor *out = NULL;

        assert_int_not_equal(zt_step_forward(r.step, &pass, &out, &fault), ZT_OK);
        assert_null(out);
        assert_string_equal(fault.text, want[scene]);
        zt_step_end(r.step);
        assert_int_equal(zt_pool_used(r.pool), 0);
    }
    rig_close(&r);
}

/* ---- tensors that are kept where they should not be ---- */

enum { KEPT_INSIDE, KEPT_WEIGHT, KEPT_MASK, KEPT_PASS, OTHER_AGAIN, NUM_KEPT };

static struct {
    int how, turn;
    zt_tensor *kept;
} keeper;

/* in: tokens (B, T) or x (B, T, D) -> out: x */
static void keeper_block(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    zt_tensor *x = ctx == one ? zt_embedding(s, in[0], zt_weight(s, w1)) : in[0];
    int64_t T = zt_tensor_dim(x, 1);
    struct zt_attention hidden = ZT_ATTENTION(.mask = keeper.kept);

    if (ctx == one && keeper.how == KEPT_INSIDE)
        keeper.kept = zt_scale(s, x, 2);
    else if (ctx == one && keeper.how == KEPT_WEIGHT)
        keeper.kept = zt_weight(s, w1);
    else if (ctx == one && keeper.how == KEPT_MASK)
        keeper.kept = zt_reshape(s, zt_contiguous(s, zt_slice(s, x, 2, 0, 1)),
                                 ZT_SHAPE(1, 1, 1, T));
    else if (ctx == one && keeper.how == OTHER_AGAIN && keeper.turn++)
        x = zt_tanh(s, x);
    else if (ctx == two && keeper.how == KEPT_MASK)
        x = zt_reshape(s, x, ZT_SHAPE(1, T, 1, 4));
    if (ctx == two && keeper.how == KEPT_MASK)
        x = zt_attention(s, x, x, x, &hidden);
    else if (ctx == two && keeper.kept)
        x = keeper.how == KEPT_WEIGHT ? zt_scale(s, keeper.kept, 2)
                                      : zt_add(s, x, keeper.kept);
    out[0] = x;
}

static zt_tensor *keeper_forward(zt_step *s, void *self, const zt_batch *b)
{
    static const float numbers_of[4] = {1, 2, 3, 4};
    zt_tensor *x = zt_batch_field(s, b, ZT_TOKENS);

    (void)self;
    if (keeper.how == KEPT_PASS && !keeper.kept)
        keeper.kept = zt_constant(s, ZT_F32, ZT_SHAPE(4), numbers_of);
    zt_block_call(s, one, keeper_block, one, &x, 1, &x, 1);
    zt_block_call(s, two, keeper_block, two, &x, 1, &x, 1);
    return zt_cross_entropy(s, x, zt_batch_field(s, b, ZT_TARGETS));
}

static zt_err keeper_pass(struct rig *r, struct zt_fault *fault)
{
    static int32_t tokens[3];
    struct zt_pass pass = {.B = 1, .T = 3, .fields = {tokens, tokens}};
    zt_tensor *loss = NULL;
    zt_err rc = zt_step_forward(r->step, &pass, &loss, fault);

    if (!rc)
        rc = zt_step_backward(r->step, loss, 1, fault);
    zt_step_end(r->step);
    return rc;
}

static void test_tensors_that_were_kept_are_not_read_where_they_are_not(void **state)
{
    static const char *const want[NUM_KEPT] = {
        [KEPT_INSIDE] =
            "block other: add: operand 2 is there no more: what a block makes ",
        [KEPT_WEIGHT] = "block other: scale: operand 1 is a weight of another block; ",
        [KEPT_MASK] =
            "block other: attention: mask is there no more: what a block makes ",
        [KEPT_PASS] =
            "block other: add: operand 2 is of an earlier pass; a plugin keeps ",
        [OTHER_AGAIN] =
            "block h.3: its function did something else when it was computed ",
    };
    struct zt_plugin plugin = stage_plugin;
    struct rig r;

    (void)state;
    plugin.forward = keeper_forward;
    for (keeper.how = 0; keeper.how < NUM_KEPT; keeper.how++) {
        struct zt_fault fault = {ZT_OK, ""};
        zt_err rc;

        keeper.kept = NULL;
        rig_open(&r, "meta", ZT_F32, &plugin,
                 (struct zt_step_config){.recompute = keeper.how == OTHER_AGAIN});
        rc = keeper_pass(&r, &fault);
        if (keeper.how == KEPT_PASS) {
            expect_ok(rc, &fault);
            rc = keeper_pass(&r, &fault);
        }
        assert_int_not_equal(rc, ZT_OK);
        if (strncmp(fault.text, want[keeper.how], strlen(want[keeper.how])) != 0)
            fail_msg("\"%s\" does not begin with \"%s\"", fault.text, want[keeper.how]);
        rig_close(&r);
    }
}

static void test_passes_that_make_no_sense_are_refused(void **state)
{
    static int32_t tokens[3];
    struct zt_pass pass = {.B = 1, .T = 3, .fields = {tokens}};
    struct zt_fault fault = {ZT_OK, ""};
    zt_tensor *out = NULL;
    struct rig r;

    (void)state;
    scene = 99;
    rig_open(&r, "meta", ZT_F32, &stage_plugin, (struct zt_step_config){.seed = 0});
    assert_int_equal(zt_step_forward(r.step, &pass, &out, &fault), ZT_E_ARG);
    assert_string_equal(fault.text, "a training pass needs the field targets");
    pass.mode = ZT_MODE_EVAL;
    expect_ok(zt_step_forward(r.step, &pass, &out, &fault), &fault);
    assert_int_equal(zt_tensor_ndim(out), 3);
    assert_int_equal(zt_step_backward(r.step, out, 1, &fault), ZT_E_ARG);
    assert_int_equal(zt_step_forward(r.step, &pass, &out, &fault), ZT_E_ARG);
    assert_string_equal(fault.text, "the pass before has not been ended");
    zt_step_end(r.step);
    rig_close(&r);
}

static zt_err optional_build(zt_model *m, void **self)
{
    (void)self;
    one = zt_model_block(m, "h.3");
    w1 = zt_block_param(one, "w1", ZT_SHAPE(5, 4), ZT_ONES(), 0);
    zt_model_field(m, ZT_BATCH_FIELD(.name = ZT_TOKENS, .dtype = ZT_I32, .required = true,
                                     .shape = {ZT_DIM_B, ZT_DIM_T}));
    zt_model_field(m, ZT_BATCH_FIELD(.name = ZT_LABELS, .dtype = ZT_I32, .label = true,
                                     .shape = {ZT_DIM_B}));
    zt_model_field(m, ZT_BATCH_FIELD(.name = "images", .dtype = ZT_U8,
                                     .shape = {ZT_DIM_B, 4})); /* absent */
    zt_model_packed_fields(m);
    zt_model_set_loss_divisor(m, ZT_DIVISOR_ROWS, NULL);
    return zt_model_status(m);
}

/* A model whose label and images a batch may lack, and whose forward asks for nothing. */
static void open_optional(struct rig *r)
{
    static struct zt_plugin plugin;

    scene = 99;
    plugin = stage_plugin;
    plugin.build = optional_build;
    rig_open(r, "meta", ZT_F32, &plugin, (struct zt_step_config){.seed = 0});
}

static void test_rows_that_samples_share_are_not_taken_for_one_sample(void **state)
{
    static int32_t tokens[3];
    struct zt_pass pass = {.mode = ZT_MODE_EVAL,
                           .B = 1,
                           .T = 3,
                           .fields = {tokens, [3] = tokens, [4] = tokens}};
    struct zt_fault fault = {ZT_OK, ""};
    zt_tensor *out = NULL;
    struct rig r;

    (void)state;
    open_optional(&r);
    assert_int_equal(zt_step_forward(r.step, &pass, &out, &fault), ZT_E_PLUGIN);
    assert_non_null(strstr(fault.text, "forward does not take the field segment_begin"));
    zt_step_end(r.step);
    rig_close(&r);
}

static void test_a_batch_without_labels_that_are_not_required_has_none(void **state)
{
    static int32_t tokens[3];
    struct zt_pass pass = {.mode = ZT_MODE_EVAL, .B = 1, .T = 3, .fields = {tokens}};
    struct zt_fault fault = {ZT_OK, ""};
    zt_tensor *out = NULL;
    struct rig r;

    (void)state;
    open_optional(&r);
    expect_ok(zt_step_forward(r.step, &pass, &out, &fault), &fault);
    assert_int_equal(zt_tensor_ndim(out), 3);
    zt_step_end(r.step);
    pass.fields[1] = tokens;
    assert_int_equal(zt_step_forward(r.step, &pass, &out, &fault), ZT_E_PLUGIN);
    zt_step_end(r.step);
    pass.mode = ZT_MODE_TRAIN;
    pass.fields[1] = NULL;
    assert_int_equal(zt_step_forward(r.step, &pass, &out, &fault), ZT_E_PLUGIN);
    zt_step_end(r.step);
    rig_close(&r);
}

/* ---- out of memory, at every allocation ---- */

static void test_a_pool_too_small_fails_cleanly_at_every_point(void **state)
{
    static int32_t tokens[16], targets[16];
    struct zt_pass pass = {
        .mode = ZT_MODE_TRAIN, .B = 2, .T = 8, .fields = {tokens, targets}};
    struct zt_step_config cfg = {.seed = 1};
    struct zt_fault fault = {ZT_OK, ""};
    size_t needed;
    int refused = 0;
    struct rig r;

    (void)state;
    gpt.dropout = 0.1f;
    gpt.rope = gpt.frozen_layer = false;
    make_batch(tokens, targets, 16);
    rig_open(&r, "cpu", ZT_F32, &gpt_plugin, cfg);
    rig_init_weights(&r, 0.1);
    train_pass(&r, pass);
    needed = zt_pool_peak(r.pool);
    zt_step_close(r.step);
    zt_pool_close(r.pool);
    for (size_t bytes = 64; bytes < needed + 1024; bytes += 1024) {
        zt_tensor *loss = NULL;
        zt_err rc;

        expect_ok(zt_pool_open(r.base, bytes, &r.pool, &fault), &fault);
        cfg = (struct zt_step_config){.backend = r.be,
                                      .device = r.dev,
                                      .pool = r.pool,
                                      .model = r.model,
                                      .recompute = bytes / 1024 % 2};
        expect_ok(zt_step_open(&cfg, &r.step, &fault), &fault);
        rc = zt_step_forward(r.step, &pass, &loss, &fault);
        if (!rc)
            rc = zt_step_backward(r.step, loss, 1, &fault);
        if (rc) {
            assert_int_equal(rc, ZT_E_NOMEM);
            refused++;
        }
        zt_step_end(r.step);
        assert_int_equal(zt_pool_used(r.pool), 0);
        zt_step_close(r.step);
        zt_pool_close(r.pool);
    }
    assert_true(refused > 20);
    expect_ok(zt_pool_open(r.base, POOL_BYTES, &r.pool, &fault), &fault);
    cfg.pool = r.pool;
    expect_ok(zt_step_open(&cfg, &r.step, &fault), &fault);
    rig_close(&r);
}

/* ---- hooks that fail ---- */

static int fail_at;

static zt_err failing(void *ctx, struct zt_block *b, bool backward, struct zt_fault *f)
{
    (void)ctx;
    (void)backward;
    return --fail_at ? ZT_OK : zt_fault_set(f, ZT_E_PEER, "no gather of %s", b->name);
}

static zt_err failing_ready(void *ctx, struct zt_block *b, struct zt_fault *f)
{
    return failing(ctx, b, true, f);
}

static void test_a_failing_hook_stops_the_step(void **state)
{
    static int32_t tokens[6], targets[6];
    struct zt_pass pass = {.B = 2, .T = 3, .fields = {tokens, targets}};
    struct zt_step_config cfg = {.hooks = {NULL, failing, failing, failing_ready}};
    bool done = false;
    struct rig r;
    int n = 0;

    (void)state;
    gpt.rope = gpt.frozen_layer = false;
    rig_open(&r, "meta", ZT_F32, &gpt_plugin, cfg);
    while (!done) {
        struct zt_fault fault = {ZT_OK, ""};
        zt_tensor *loss = NULL;
        zt_err rc;

        fail_at = ++n;
        rc = zt_step_forward(r.step, &pass, &loss, &fault);
        if (!rc)
            rc = zt_step_backward(r.step, loss, 1, &fault);
        done = !rc;
        if (rc) {
            assert_int_equal(rc, ZT_E_PEER);
            assert_non_null(strstr(fault.text, "no gather of "));
        }
        zt_step_end(r.step);
        assert_int_equal(zt_pool_used(r.pool), 0);
    }
    /* five blocks entered and left, twice, and reported */
    assert_int_equal(n, 5 * 5 + 1);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops_name_themselves_and_the_shapes),
        cmocka_unit_test(test_options_of_a_size_that_no_header_has),
        cmocka_unit_test(test_options_of_an_older_header_end_where_they_say),
        cmocka_unit_test(test_the_first_failure_stays_until_the_step_ends),
        cmocka_unit_test(test_blocks_are_named_in_what_goes_wrong),
        cmocka_unit_test(test_tensors_that_were_kept_are_not_read_where_they_are_not),
        cmocka_unit_test(test_passes_that_make_no_sense_are_refused),
        cmocka_unit_test(test_rows_that_samples_share_are_not_taken_for_one_sample),
        cmocka_unit_test(test_a_batch_without_labels_that_are_not_required_has_none),
        cmocka_unit_test(test_a_pool_too_small_fails_cleanly_at_every_point),
        cmocka_unit_test(test_a_failing_hook_stops_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
