/*
 * nets.h -- small models for the tests of the tape: a GPT with everything in it, and an
 * encoder-decoder.
 */
#ifndef TEST_AUTOGRAD_NETS_H
#define TEST_AUTOGRAD_NETS_H

#include "test/unit/autograd/fixture.h"

enum { VOCAB = 37, WIDTH = 24, HEADS = 3, INNER = 40, LAYERS = 3, MOST = 16 };

static struct {
    float dropout;
    bool rope; /* instead of learned positions */
    bool frozen_layer;
    bool apart;  /* a sum and its norm are two calls */
    bool halves; /* attention sees the half of a row that a token is in */
    bool slopes; /* a mask that hides keys the more, the farther they are (ALiBi) */
    bool skip; /* what comes out of the embedding is a factor of what each layer makes */
    float inv_freq[WIDTH / HEADS / 2];
    zt_block *embed, *layers[LAYERS], *head;
    zt_param *wte, *wpe, *ln_f;
    struct {
        zt_param *ln_1, *ln_1b, *qkv, *qkv_b, *proj, *ln_2, *fc, *fc_b, *out;
    } p[LAYERS];
} gpt;

static zt_param *gpt_param(zt_block *b, const char *name, int layer, int64_t rows,
                           int64_t columns)
{
    char full[64];
    unsigned frozen = gpt.frozen_layer && layer == 1 ? ZT_FROZEN : 0;

    snprintf(full, sizeof(full), "%d.%s", layer, name);
    if (!columns)
        return zt_block_param(b, full, ZT_SHAPE(rows), ZT_ONES(), frozen);
    return zt_block_param(b, full, ZT_SHAPE(rows, columns), ZT_NORMAL(0, 0.1f), frozen);
}

static zt_err gpt_build(zt_model *m, void **self)
{
    (void)self;
    gpt.embed = zt_model_block(m, "embed");
    gpt.wte = gpt_param(gpt.embed, "wte", -1, VOCAB, WIDTH);
    gpt.wpe = gpt_param(gpt.embed, "wpe", -1, MOST, WIDTH);
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        zt_block *b;

        snprintf(name, sizeof(name), "h.%d", i);
        b = gpt.layers[i] = zt_model_block(m, name);
        gpt.p[i].ln_1 = gpt_param(b, "ln_1", i, WIDTH, 0);
        gpt.p[i].ln_1b = gpt_param(b, "ln_1b", i, WIDTH, 0);
        gpt.p[i].qkv = gpt_param(b, "qkv", i, WIDTH, 3 * WIDTH);
        gpt.p[i].qkv_b = gpt_param(b, "qkv_b", i, 3 * WIDTH, 0);
        gpt.p[i].proj = gpt_param(b, "proj", i, WIDTH, WIDTH);
        gpt.p[i].ln_2 = gpt_param(b, "ln_2", i, WIDTH, 0);
        gpt.p[i].fc = gpt_param(b, "fc", i, INNER, WIDTH);
        gpt.p[i].fc_b = gpt_param(b, "fc_b", i, INNER, 0);
        gpt.p[i].out = gpt_param(b, "out", i, WIDTH, INNER);
    }
    gpt.head = zt_model_block(m, "head");
    gpt.ln_f = gpt_param(gpt.head, "ln_f", -1, WIDTH, 0);
    zt_block_share(gpt.head, gpt.wte);
    zt_model_set_vocab(m, VOCAB);
    zt_rope_frequencies(gpt.inv_freq, WIDTH / HEADS, 10000);
    return zt_model_status(m);
}

static void gpt_embed(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    zt_tensor *x = zt_embedding(s, in[0], zt_weight(s, gpt.wte));

    (void)ctx;
    if (!gpt.rope)
        x = zt_add(s, x,
                   zt_embedding(s, zt_positions(s, zt_tensor_dim(in[0], 1)),
                                zt_weight(s, gpt.wpe)));
    out[0] = zt_dropout(s, x, gpt.dropout);
}

/* *x += h; the norm of that, of either kind */
static zt_tensor *gpt_add_norm(zt_step *s, zt_tensor **x, zt_tensor *h, int i)
{
    zt_tensor *w = zt_weight(s, gpt.p[i].ln_2);

    if (!gpt.apart && i % 2)
        return zt_add_layernorm(s, *x, h, w, NULL, 1e-5f, x);
    if (!gpt.apart)
        return zt_add_rmsnorm(s, *x, h, w, 1e-5f, 0, x);
    *x = zt_add(s, *x, h);
    return i % 2 ? zt_layernorm(s, *x, w, NULL, 1e-5f) : zt_rmsnorm(s, *x, w, 1e-5f, 0);
}

static int32_t gpt_distance(const void *ctx, int64_t distance)
{
    (void)ctx;
    return distance > 0 ? 0 : (int32_t)-distance;
}

/* (1 or B, 1, T, keys) */
static zt_tensor *gpt_slopes(zt_step *s, int64_t T)
{
    zt_tensor *ids = zt_relative_positions(s, T, gpt_distance, NULL);
    float by_distance[MOST];

    for (int i = 0; i < MOST; i++)
        by_distance[i] = -0.5f * (float)i;
    ids =
        zt_reshape(s, ids, ZT_SHAPE(zt_tensor_dim(ids, 0), 1, T, zt_tensor_dim(ids, 2)));
    ids = zt_embedding(s, ids, zt_constant(s, ZT_F32, ZT_SHAPE(MOST, 1), by_distance));
    return zt_reshape(s, ids, ZT_SHAPE(zt_tensor_dim(ids, 0), 1, T, -1));
}

static void gpt_layer(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    int i = (int)(intptr_t)ctx;
    int64_t B = zt_tensor_dim(in[0], 0), T = zt_tensor_dim(in[0], 1);
    int64_t n = gpt.halves ? 2 : 1;
    struct zt_attention how = ZT_ATTENTION(.causal = true, .dropout = gpt.dropout);
    struct zt_rope rope = ZT_ROPE(.inv_freq = gpt.inv_freq, .rotary_dims = WIDTH / HEADS);
    zt_tensor *x = in[0], *h, *q, *k, *v;

    how.mask = gpt.slopes ? gpt_slopes(s, T) : NULL;
    h = zt_layernorm(s, x, zt_weight(s, gpt.p[i].ln_1), zt_weight(s, gpt.p[i].ln_1b),
                     1e-5f);
    h = zt_linear(s, h, zt_weight(s, gpt.p[i].qkv), zt_weight(s, gpt.p[i].qkv_b),
                  ZT_W_IN_OUT);
    h = zt_reshape(s, h, ZT_SHAPE(B * n, T / n, 3 * HEADS, WIDTH / HEADS));
    q = zt_slice(s, h, 2, 0, HEADS);
    k = zt_slice(s, h, 2, HEADS, HEADS);
    v = zt_slice(s, h, 2, 2 * HEADS, HEADS);
    if (gpt.rope) {
        q = zt_rope_apply(s, q, zt_positions(s, T), &rope);
        k = zt_rope_apply(s, k, zt_positions(s, T), &rope);
    }
    h = zt_reshape(s, zt_attention(s, q, k, v, &how), ZT_SHAPE(B, T, WIDTH));
    h = zt_linear(s, h, zt_weight(s, gpt.p[i].proj), NULL, 0);
    h = gpt_add_norm(s, &x, zt_dropout(s, h, gpt.dropout), i);
    h = zt_linear(s, h, zt_weight(s, gpt.p[i].fc), zt_weight(s, gpt.p[i].fc_b),
                  ZT_GELU_TANH);
    h = zt_linear(s, h, zt_weight(s, gpt.p[i].out), NULL, 0);
    out[0] = zt_add(s, x, zt_dropout(s, h, gpt.dropout));
}

static void gpt_head(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    zt_tensor *x = zt_rmsnorm(s, in[0], zt_weight(s, gpt.ln_f), 1e-5f, 0);

    (void)ctx;
    out[0] = zt_lm_head(s, x, zt_weight(s, gpt.wte), in[1]);
}

static zt_tensor *gpt_forward(zt_step *s, void *self, const zt_batch *b)
{
    zt_tensor *in[2] = {zt_batch_field(s, b, ZT_TOKENS), NULL}, *x = NULL, *first;

    (void)self;
    zt_block_call(s, gpt.embed, gpt_embed, NULL, in, 1, &x, 1);
    first = x;
    for (int i = 0; i < LAYERS; i++) {
        zt_block_call(s, gpt.layers[i], gpt_layer, (void *)(intptr_t)i, &x, 1, &x, 1);
        if (gpt.skip)
            x = zt_mul(s, x, first);
    }
    in[0] = x;
    in[1] = zt_batch_field(s, b, ZT_TARGETS);
    zt_block_call(s, gpt.head, gpt_head, NULL, in, 2, &x, 1);
    return x;
}

static void gpt_release(void *self)
{
    (void)self;
}

static const struct zt_plugin gpt_plugin = {.abi = ZT_ABI,
                                            .struct_bytes = sizeof(struct zt_plugin),
                                            .flags = ZT_PLUGIN_CACHED,
                                            .name = "gpt",
                                            .build = gpt_build,
                                            .forward = gpt_forward,
                                            .release = gpt_release};

/* Ids for B rows of T tokens, and what follows them. */
__attribute__((unused)) static void make_batch(int32_t *tokens, int32_t *targets,
                                               int64_t n)
{
    rand_state = 7;
    for (int64_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)rnd_int(0, VOCAB - 1);
        targets[i] = i % 7 == 5 ? ZT_IGNORE_TARGET : (int32_t)rnd_int(0, VOCAB - 1);
    }
}

/* One training pass; the loss, on cpu. Gradients are added to the rig's. */
__attribute__((unused)) static float train_pass(struct rig *r, struct zt_pass pass)
{
    struct zt_fault fault = {ZT_OK, ""};
    zt_tensor *loss = NULL;
    float value = 0;

    pass.mode = ZT_MODE_TRAIN;
    expect_ok(zt_step_forward(r->step, &pass, &loss, &fault), &fault);
    expect_ok(zt_step_backward(r->step, loss, 0.25f, &fault), &fault);
    expect_ok(r->be->download(r->dev, NULL, &value, zt_tensor_view(loss)->data,
                              sizeof(value), &fault),
              &fault);
    zt_step_end(r->step);
    assert_int_equal(zt_step_status(r->step, NULL), ZT_OK);
    return value;
}

#endif
