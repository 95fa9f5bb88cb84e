/* Whole models: ties, recomputation, hooks, dropout over splits, two-input graphs. */
#include "test/unit/autograd/nets.h"

static void gpt_default(void)
{
    gpt.dropout = 0;
    gpt.rope = gpt.frozen_layer = gpt.apart = gpt.skip = gpt.halves = false;
}

static double grad_dot(const struct rig *r, float *const *other)
{
    double sum = 0;

    for (int i = 0; i < r->model->num_blocks; i++)
        for (int64_t j = 0; r->grads[i] && j < r->model->blocks[i]->padded_elems; j++)
            sum += (double)r->grads[i][j] * (double)other[i][j];
    return sum;
}

/* weights += by * direction */
static void move_weights(struct rig *r, float *const *direction, double by)
{
    for (int i = 0; i < r->model->num_blocks; i++)
        for (int64_t j = 0; r->grads[i] && j < r->model->blocks[i]->padded_elems; j++)
            ((float *)r->weights[i])[j] += (float)(by * (double)direction[i][j]);
}

static void copy_grads(const struct rig *r, float **to)
{
    for (int i = 0; i < r->model->num_blocks; i++) {
        size_t bytes = (size_t)r->model->blocks[i]->padded_elems * sizeof(float);

        to[i] = bytes ? malloc(bytes) : NULL;
        if (bytes)
            memcpy(to[i], r->grads[i], bytes);
    }
}

static void free_grads(const struct rig *r, float **g)
{
    for (int i = 0; i < r->model->num_blocks; i++)
        free(g[i]);
}

/* ---- the gradient of a whole model ---- */

static void whole_model(bool rope, float dropout)
{
    int32_t tokens[3 * 9], targets[3 * 9];
    struct zt_pass pass = {.B = 3, .T = 9, .fields = {tokens, targets}};
    float *g[64];
    double norm, up, down, h;
    struct rig r;

    gpt_default();
    gpt.rope = rope;
    gpt.dropout = dropout;
    rig_open(&r, "cpu", ZT_F32, &gpt_plugin, (struct zt_step_config){.seed = 3});
    rig_init_weights(&r, 0.3);
    make_batch(tokens, targets, 27);
    train_pass(&r, pass);
    copy_grads(&r, g);
    norm = sqrt(grad_dot(&r, g));
    h = 2e-3 / norm; /* along the gradient the loss rises by its norm */
    move_weights(&r, g, h);
    up = (double)train_pass(&r, pass);
    move_weights(&r, g, -2 * h);
    down = (double)train_pass(&r, pass);
    /* d(loss) was 0.25 */
    if (fabs(0.25 * (up - down) / (2 * h) / (norm * norm) - 1) > 1e-2)
        fail_msg("slope %g, but the gradient's square is %g",
                 0.25 * (up - down) / (2 * h), norm * norm);
    free_grads(&r, g);
    rig_close(&r);
}

static void test_gradient_of_a_tied_gpt_is_its_slope(void **state)
{
    (void)state;
    whole_model(false, 0);
    whole_model(true, 0);
}

static void test_gradient_under_dropout_is_the_slope_of_the_same_masks(void **state)
{
    (void)state;
    whole_model(false, 0.25f);
}

/* ---- frozen parameters ---- */

/* One at a time: the others get the gradients that they had, it gets none. */
static void test_a_frozen_parameter_leaves_the_other_gradients_alone(void **state)
{
    int32_t tokens[2 * 7], targets[2 * 7];
    struct zt_pass pass = {.B = 2, .T = 7, .fields = {tokens, targets}};
    float *g[64];
    struct rig r;

    (void)state;
    gpt_default();
    rig_open(&r, "cpu", ZT_F32, &gpt_plugin, (struct zt_step_config){.seed = 3});
    rig_init_weights(&r, 0.3);
    make_batch(tokens, targets, 14);
    train_pass(&r, pass);
    copy_grads(&r, g);
    for (int i = 0; i < r.model->num_params; i++) {
        struct zt_param *frozen = r.model->params[i];

        rig_clear_grads(&r);
        frozen->flags |= ZT_FROZEN;
        train_pass(&r, pass);
        frozen->flags &= ~(unsigned)ZT_FROZEN;
        for (int k = 0; k < r.model->num_params; k++) {
            const struct zt_param *p = r.model->params[k];
            const float *now = p->block->grads + p->offset_elems;

            if (p != frozen)
                assert_memory_equal(now, g[p->block->index] + p->offset_elems,
                                    (size_t)p->numel * sizeof(float));
            for (int64_t j = 0; p == frozen && j < p->numel; j++)
                assert_true(now[j] == 0);
        }
    }
    free_grads(&r, g);
    rig_close(&r);
}

/* ---- recomputation ---- */

struct way {
    bool recompute, apart, host; /* inputs of blocks wait in host memory */
    size_t peak, host_peak;      /* as they came out */
};

#define HOST_BYTES ((size_t)1 << 20)

/* A pass whose inputs of blocks may wait on the host; nothing of it stays there. */
static float pass_of(struct rig *r, struct way *way, zt_dtype dtype, struct zt_pass pass)
{
    struct zt_step_config cfg = {.seed = 3, .recompute = way->recompute};
    void *base = aligned_alloc(ZT_POOL_ALIGN, HOST_BYTES);
    struct zt_fault fault = {ZT_OK, ""};
    float loss;

    assert_non_null(base);
    if (way->host)
        expect_ok(zt_pool_open(base, HOST_BYTES, &cfg.host_pool, &fault), &fault);
    rig_open(r, "cpu", dtype, &gpt_plugin, cfg);
    rig_init_weights(r, 0.2);
    loss = train_pass(r, pass);
    way->peak = zt_pool_peak(r->pool);
    if (way->host) {
        way->host_peak = zt_pool_peak(cfg.host_pool);
        assert_int_equal(zt_pool_used(cfg.host_pool), 0);
    }
    zt_pool_close(cfg.host_pool);
    free(base);
    return loss;
}

/* Two ways to the same loss and the same gradients, bit by bit. */
static void compare_nets(zt_dtype dtype, bool rope, bool skip, struct way way[2])
{
    int32_t tokens[2 * 11], targets[2 * 11];
    struct zt_pass pass = {
        .B = 2, .T = 11, .fields = {tokens, targets}, .step = 5, .row0 = 6};
    float loss[2], *g[64];
    struct rig r;

    gpt_default();
    gpt.rope = rope;
    gpt.skip = skip;
    gpt.dropout = 0.1f;
    make_batch(tokens, targets, 22);
    for (int k = 0; k < 2; k++) {
        gpt.apart = way[k].apart;
        loss[k] = pass_of(&r, &way[k], dtype, pass);
        if (k == 0) {
            copy_grads(&r, g);
        } else {
            for (int i = 0; i < r.model->num_blocks; i++)
                assert_memory_equal(g[i], r.grads[i],
                                    (size_t)r.model->blocks[i]->padded_elems * 4);
            free_grads(&r, g);
        }
        rig_close(&r);
    }
    assert_true(loss[0] == loss[1]);
}

static void compare(zt_dtype dtype, bool rope, struct way way[2])
{
    compare_nets(dtype, rope, false, way);
}

static void compare_recompute(zt_dtype dtype, bool rope)
{
    struct way way[2] = {{.recompute = false}, {.recompute = true}};

    compare(dtype, rope, way);
    if (!(way[1].peak < way[0].peak))
        fail_msg("recomputing needs %zu bytes, keeping %zu", way[1].peak, way[0].peak);
}

static void test_recomputation_gives_the_same_bits_in_less_memory(void **state)
{
    (void)state;
    compare_recompute(ZT_F32, false);
    compare_recompute(ZT_F32, true);
    compare_recompute(ZT_BF16, false);
}

/* The inputs of layers wait on the host: bits are the same, also where what has left is read
 * again outside of any block, in forward and in backward. */
static void test_inputs_on_the_host_give_the_same_bits(void **state)
{
    const size_t input = 2 * 11 * WIDTH * sizeof(float);

    (void)state;
    for (int i = 0; i < 8; i++) {
        struct way way[2] = {{.recompute = true}, {.recompute = true, .host = true}};

        compare_nets(i & 1 ? ZT_BF16 : ZT_F32, i & 2, i & 4, way);
        /* all at once, but for the one that is read again and stays */
        assert_true(way[1].host_peak >=
                    (i & 4 ? LAYERS - 1 : LAYERS) * input / (i & 1 ? 2 : 1));
    }
}

/* ---- a sum and its norm ---- */

static void test_norm_of_a_sum_is_two_calls_in_bits_and_memory(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct way way[2] = {{.recompute = i & 1, .apart = true}, {.recompute = i & 1}};

        compare(i & 2 ? ZT_BF16 : ZT_F32, false, way);
        assert_int_equal(way[1].peak, way[0].peak);
    }
}

/* ---- dropout over splits ---- */

static void split_a_batch(bool into_halves)
{
    int32_t tokens[4 * 8], targets[4 * 8];
    struct zt_pass pass = {
        .B = 4, .T = 8, .fields = {tokens, targets}, .step = 9, .row0 = 12};
    float whole, halves, same_rows, *g[64];
    double far = 0, size;
    struct rig r;

    gpt_default();
    gpt.dropout = 0.3f;
    gpt.halves = into_halves;
    make_batch(tokens, targets, 32);
    rig_open(&r, "cpu", ZT_F32, &gpt_plugin, (struct zt_step_config){.seed = 11});
    rig_init_weights(&r, 0.3);
    whole = train_pass(&r, pass);
    copy_grads(&r, g);
    size = grad_dot(&r, g);
    rig_clear_grads(&r);
    pass.B = 2;
    halves = train_pass(&r, pass);
    pass.row0 = 14;
    pass.fields[0] = tokens + 16;
    pass.fields[1] = targets + 16;
    halves += train_pass(&r, pass);
    for (int i = 0; i < r.model->num_blocks; i++)
        for (int64_t j = 0; j < r.model->blocks[i]->padded_elems; j++)
            far += pow((double)(g[i][j] - r.grads[i][j]), 2);
    assert_true(fabsf(whole - halves) < 1e-5f * whole);
    assert_true(far < 1e-10 * size);
    /* and the masks do matter: the rows of another place give another loss */
    pass.row0 = 12;
    same_rows = train_pass(&r, pass);
    pass.row0 = 14;
    assert_true(fabsf(same_rows - train_pass(&r, pass)) > 1e-3f);
    free_grads(&r, g);
    rig_close(&r);
}

static void test_dropout_does_not_depend_on_the_split_of_a_batch(void **state)
{
    (void)state;
    split_a_batch(false);
    split_a_batch(true);
}

/* Mask of one dropout of ones: element i kept? */
static void test_dropout_zeroes_its_share_and_scales_the_rest(void **state)
{
    static float ones[64 * 64], zeros[64 * 64];
    const int64_t shape[2] = {64, 64};
    struct zt_fault fault = {ZT_OK, ""};
    zt_tensor *x, *y, *loss;
    const float *got, *grad;
    int kept = 0;
    struct rig r;

    (void)state;
    for (int i = 0; i < 64 * 64; i++)
        ones[i] = 1;
    rig_open(&r, "cpu", ZT_F32, NULL, (struct zt_step_config){.seed = 2});
    expect_ok(zt_step_begin_bare(r.step, ZT_MODE_TRAIN, &fault), &fault);
    x = zt_step_leaf(r.step, zt_view_of(ones, ZT_F32, 2, shape), true);
    y = zt_dropout(r.step, x, 0.25f);
    loss = zt_squared_error(
        r.step, y, zt_step_leaf(r.step, zt_view_of(zeros, ZT_F32, 2, shape), false));
    expect_step_ok(r.step);
    expect_ok(zt_step_backward(r.step, loss, 1, &fault), &fault);
    got = zt_tensor_view(y)->data;
    grad = zt_step_leaf_grad(x)->data;
    for (int i = 0; i < 64 * 64; i++) {
        float m = got[i];

        assert_true(m == 0 || fabsf(m - 4.0f / 3) < 1e-6f);
        assert_true(fabsf(grad[i] - 2 * m * m) < 1e-5f); /* d (m x)^2 at x = 1 */
        kept += m != 0;
    }
    assert_in_range(kept, 64 * 64 * 72 / 100, 64 * 64 * 78 / 100);
    zt_step_end(r.step);
    expect_ok(zt_step_begin_bare(r.step, ZT_MODE_EVAL, &fault), &fault);
    x = zt_step_leaf(r.step, zt_view_of(ones, ZT_F32, 2, shape), true);
    assert_ptr_equal(zt_dropout(r.step, x, 0.25f), x);
    zt_step_end(r.step);
    rig_close(&r);
}

/* ---- hooks ---- */

struct journal {
    char text[4096];
};

static zt_err on_enter(void *ctx, struct zt_block *b, bool backward, struct zt_fault *f)
{
    struct journal *j = ctx;

    (void)f;
    snprintf(j->text + strlen(j->text), sizeof(j->text) - strlen(j->text), "%c%s ",
             backward ? '<' : '>', b->name);
    return ZT_OK;
}

static zt_err on_leave(void *ctx, struct zt_block *b, bool backward, struct zt_fault *f)
{
    struct journal *j = ctx;

    (void)f;
    (void)b;
    (void)backward;
    snprintf(j->text + strlen(j->text), sizeof(j->text) - strlen(j->text), ". ");
    return ZT_OK;
}

static zt_err on_ready(void *ctx, struct zt_block *b, struct zt_fault *f)
{
    struct journal *j = ctx;

    (void)f;
    snprintf(j->text + strlen(j->text), sizeof(j->text) - strlen(j->text), "!%s ",
             b->name);
    return ZT_OK;
}

static void journal_of(const struct zt_plugin *plugin, bool recompute, struct journal *j)
{
    int32_t tokens[6], targets[6];
    struct zt_pass pass = {.B = 2, .T = 3, .fields = {tokens, targets}};
    struct zt_step_config cfg = {.recompute = recompute,
                                 .hooks = {j, on_enter, on_leave, on_ready}};
    struct rig r;

    *j = (struct journal){""};
    make_batch(tokens, targets, 6);
    rig_open(&r, "cpu", ZT_F32, plugin, cfg);
    rig_init_weights(&r, 0.1);
    train_pass(&r, pass);
    rig_close(&r);
}

static void test_hooks_frame_every_call_and_report_each_block_once(void **state)
{
    struct journal plain, again;

    (void)state;
    gpt_default();
    journal_of(&gpt_plugin, false, &plain);
    assert_string_equal(plain.text, ">embed . >h.0 . >h.1 . >h.2 . >head . "
                                    "<head . !head <h.2 . !h.2 <h.1 . !h.1 <h.0 . !h.0 "
                                    "<embed . !embed ");
    journal_of(&gpt_plugin, true, &again);
    assert_string_equal(again.text, plain.text);
}

static void test_frozen_blocks_pass_gradients_on_but_have_none(void **state)
{
    struct journal j;

    (void)state;
    gpt_default();
    gpt.frozen_layer = true;
    journal_of(&gpt_plugin, false, &j);
    gpt_default();
    assert_string_equal(j.text, ">embed . >h.0 . >h.1 . >h.2 . >head . "
                                "<head . !head <h.2 . !h.2 <h.1 . <h.0 . !h.0 "
                                "<embed . !embed ");
}

/* ---- blocks called twice, never, and tied to one another ---- */

static struct {
    zt_block *first, *twice, *unused, *dead, *last;
    zt_param *emb, *w, *idle, *lost, *norm;
} odd;

static zt_err odd_build(zt_model *m, void **self)
{
    (void)self;
    odd.first = zt_model_block(m, "first");
    odd.emb = zt_block_param(odd.first, "emb", ZT_SHAPE(VOCAB, 8), ZT_ONES(), 0);
    odd.twice = zt_model_block(m, "twice");
    odd.w = zt_block_param(odd.twice, "w", ZT_SHAPE(8, 8), ZT_ONES(), 0);
    odd.unused = zt_model_block(m, "unused");
    odd.idle = zt_block_param(odd.unused, "idle", ZT_SHAPE(3), ZT_ONES(), 0);
    odd.dead = zt_model_block(m, "dead"); /* called, but its result goes nowhere */
    odd.lost = zt_block_param(odd.dead, "lost", ZT_SHAPE(8, 8), ZT_ONES(), 0);
    odd.last = zt_model_block(m, "last");
    odd.norm = zt_block_param(odd.last, "norm", ZT_SHAPE(8), ZT_ONES(), 0);
    zt_block_share(odd.last, odd.emb);
    zt_block_share(odd.last, odd.w);
    return zt_model_status(m);
}

static void odd_first(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    (void)ctx;
    out[0] = zt_embedding(s, in[0], zt_weight(s, odd.emb));
}

static void odd_linear(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    out[0] = zt_gelu(s, zt_linear(s, in[0], zt_weight(s, ctx), NULL, 0));
}

static void odd_last(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    zt_tensor *x = zt_rmsnorm(s, in[0], zt_weight(s, odd.norm), 1e-5f, 0);

    (void)ctx;
    x = zt_linear(s, x, zt_weight(s, odd.w), NULL, ZT_W_IN_OUT);
    out[0] = zt_lm_head(s, x, zt_weight(s, odd.emb), in[1]);
}

static zt_tensor *odd_forward(zt_step *s, void *self, const zt_batch *b)
{
    zt_tensor *in[2] = {zt_batch_field(s, b, ZT_TOKENS), NULL}, *x = NULL, *lost = NULL;

    (void)self;
    zt_block_call(s, odd.first, odd_first, NULL, in, 1, &x, 1);
    zt_block_call(s, odd.dead, odd_linear, odd.lost, &x, 1, &lost, 1);
    zt_block_call(s, odd.twice, odd_linear, odd.w, &x, 1, &x, 1);
    x = zt_scale(s, x, 0.5f); /* an op outside any block */
    zt_block_call(s, odd.twice, odd_linear, odd.w, &x, 1, &x, 1);
    in[0] = x;
    in[1] = zt_batch_field(s, b, ZT_TARGETS);
    zt_block_call(s, odd.last, odd_last, NULL, in, 2, &x, 1);
    return zt_scale(s, x, 2);
}

static const struct zt_plugin odd_plugin = {.abi = ZT_ABI,
                                            .struct_bytes = sizeof(struct zt_plugin),
                                            .name = "odd",
                                            .build = odd_build,
                                            .forward = odd_forward};

static void test_blocks_called_twice_are_ready_after_both(void **state)
{
    const char *want = ">first . >dead . >twice . >twice . >last . "
                       "<last . !last <twice . <twice . !twice !dead <first . !first "
                       "!unused ";
    struct journal j;

    (void)state;
    journal_of(&odd_plugin, false, &j);
    assert_string_equal(j.text, want);
    journal_of(&odd_plugin, true, &j);
    assert_string_equal(j.text, want);
}

static void test_gradients_of_ties_and_repeated_blocks_are_the_slope(void **state)
{
    int32_t tokens[6], targets[6];
    struct zt_pass pass = {.B = 2, .T = 3, .fields = {tokens, targets}};
    float *g[64];
    struct rig r;

    (void)state;
    make_batch(tokens, targets, 6);
    for (int recompute = 0; recompute < 2; recompute++) {
        double norm, up, down, h;

        rig_open(&r, "cpu", ZT_F32, &odd_plugin,
                 (struct zt_step_config){.recompute = recompute});
        rig_init_weights(&r, 0.7);
        train_pass(&r, pass);
        copy_grads(&r, g);
        norm = sqrt(grad_dot(&r, g));
        h = 1e-3 / norm;
        move_weights(&r, g, h);
        up = (double)train_pass(&r, pass);
        move_weights(&r, g, -2 * h);
        down = (double)train_pass(&r, pass);
        assert_true(fabs(0.25 * (up - down) / (2 * h) / (norm * norm) - 1) < 1e-2);
        for (int64_t i = 0; i < odd.lost->numel; i++)
            assert_true(g[odd.dead->index][i] == 0);
        free_grads(&r, g);
        rig_close(&r);
    }
}

/* ---- encoder and decoder: two inputs into one block ---- */

static struct {
    zt_block *enc, *dec;
    zt_param *emb, *w, *q, *kv, *head;
} pair;

static zt_err pair_build(zt_model *m, void **self)
{
    (void)self;
    pair.enc = zt_model_block(m, "encoder");
    pair.emb = zt_block_param(pair.enc, "emb", ZT_SHAPE(VOCAB, 12), ZT_ONES(), 0);
    pair.w = zt_block_param(pair.enc, "w", ZT_SHAPE(12, 12), ZT_ONES(), 0);
    pair.dec = zt_model_block(m, "decoder");
    pair.q = zt_block_param(pair.dec, "q", ZT_SHAPE(12, 12), ZT_ONES(), 0);
    pair.kv = zt_block_param(pair.dec, "kv", ZT_SHAPE(24, 12), ZT_ONES(), 0);
    pair.head = zt_block_param(pair.dec, "head", ZT_SHAPE(VOCAB, 12), ZT_ONES(), 0);
    return zt_model_status(m);
}

/* tokens -> memory (B, T, 12), and the embedding of the first tokens (B, 2, 12) */
static void pair_encode(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    zt_tensor *x = zt_embedding(s, in[0], zt_weight(s, pair.emb));

    (void)ctx;
    out[0] = zt_tanh(s, zt_linear(s, x, zt_weight(s, pair.w), NULL, 0));
    out[1] = zt_slice(s, x, 1, 0, 2);
}

static void pair_decode(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    int64_t B = zt_tensor_dim(in[0], 0), T = zt_tensor_dim(in[0], 1);
    struct zt_attention how = ZT_ATTENTION(.scale = 0);
    zt_tensor *q = zt_linear(s, in[1], zt_weight(s, pair.q), NULL, 0), *kv, *x;

    (void)ctx;
    q = zt_reshape(s, q, ZT_SHAPE(B, 2, 3, 4));
    kv = zt_linear(s, in[0], zt_weight(s, pair.kv), NULL, 0);
    kv = zt_reshape(s, kv, ZT_SHAPE(B, T, 6, 4));
    x = zt_attention(s, q, zt_slice(s, kv, 2, 0, 3), zt_slice(s, kv, 2, 3, 3), &how);
    x = zt_add(s, zt_reshape(s, x, ZT_SHAPE(B, 2, 12)), in[1]);
    out[0] = zt_linear(s, x, zt_weight(s, pair.head), NULL, 0);
}

/* Two rounds of decoding over one memory: its gradient comes from both. */
static zt_tensor *pair_forward(zt_step *s, void *self, const zt_batch *b)
{
    zt_tensor *in[2] = {zt_batch_field(s, b, ZT_TOKENS), NULL}, *made[2] = {NULL};
    zt_tensor *logits = NULL, *zero;

    (void)self;
    zt_block_call(s, pair.enc, pair_encode, NULL, in, 1, made, 2);
    zt_block_call(s, pair.dec, pair_decode, NULL, made, 2, &logits, 1);
    zero = logits;
    zt_block_call(s, pair.dec, pair_decode, NULL, made, 2, &logits, 1);
    return zt_squared_error(s, zt_scale(s, zero, -1.5f), logits);
}

static const struct zt_plugin pair_plugin = {.abi = ZT_ABI,
                                             .struct_bytes = sizeof(struct zt_plugin),
                                             .name = "pair",
                                             .build = pair_build,
                                             .forward = pair_forward};

static void test_encoder_and_decoder_with_several_inputs_and_outputs(void **state)
{
    int32_t tokens[10], targets[10];
    struct zt_pass pass = {.B = 2, .T = 5, .fields = {tokens, targets}};
    float *g[2][64];
    struct rig r;

    (void)state;
    make_batch(tokens, targets, 10);
    for (int recompute = 0; recompute < 2; recompute++) {
        double norm, up, down, h;

        rig_open(&r, "cpu", ZT_F32, &pair_plugin,
                 (struct zt_step_config){.recompute = recompute});
        rig_init_weights(&r, 0.5);
        train_pass(&r, pass);
        copy_grads(&r, g[recompute]);
        norm = sqrt(grad_dot(&r, g[recompute]));
        h = 1e-3 / norm;
        move_weights(&r, g[recompute], h);
        up = (double)train_pass(&r, pass);
        move_weights(&r, g[recompute], -2 * h);
        down = (double)train_pass(&r, pass);
        assert_true(fabs(0.25 * (up - down) / (2 * h) / (norm * norm) - 1) < 1e-2);
        if (recompute)
            for (int i = 0; i < r.model->num_blocks; i++)
                assert_memory_equal(g[0][i], g[1][i],
                                    (size_t)r.model->blocks[i]->padded_elems * 4);
        if (recompute) {
            free_grads(&r, g[0]);
            free_grads(&r, g[1]);
        }
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradient_of_a_tied_gpt_is_its_slope),
        cmocka_unit_test(test_a_frozen_parameter_leaves_the_other_gradients_alone),
        cmocka_unit_test(test_gradient_under_dropout_is_the_slope_of_the_same_masks),
        cmocka_unit_test(test_recomputation_gives_the_same_bits_in_less_memory),
        cmocka_unit_test(test_inputs_on_the_host_give_the_same_bits),
        cmocka_unit_test(test_norm_of_a_sum_is_two_calls_in_bits_and_memory),
        cmocka_unit_test(test_dropout_does_not_depend_on_the_split_of_a_batch),
        cmocka_unit_test(test_dropout_zeroes_its_share_and_scales_the_rest),
        cmocka_unit_test(test_hooks_frame_every_call_and_report_each_block_once),
        cmocka_unit_test(test_frozen_blocks_pass_gradients_on_but_have_none),
        cmocka_unit_test(test_blocks_called_twice_are_ready_after_both),
        cmocka_unit_test(test_gradients_of_ties_and_repeated_blocks_are_the_slope),
        cmocka_unit_test(test_encoder_and_decoder_with_several_inputs_and_outputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
