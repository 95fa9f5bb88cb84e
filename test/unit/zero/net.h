/*
 * net.h -- a small language model that has everything that is awkward under ZeRO.
 *
 *     x = wte[token] + wpe[position]     wpe is frozen, in a block that is not
 *     x += a(x); x += frozen(x)          a owns a matrix that c uses, too
 *     x += twice(x)                      called again further down
 *     x += b(x)                          b has a parameter that takes no part
 *     x += silu(x)                       a block without parameters
 *     x += c(x); x += twice(x)
 *     logits = norm(x) wte^T             tied
 *     idle                               never called
 *
 * net_order changes which blocks run in which order. Everything is static: each test
 * program has its own.
 */
#ifndef TEST_ZERO_NET_H
#define TEST_ZERO_NET_H

#include <stdlib.h>

#include <zlaunch/plugin.h>

#define NET_VOCAB 300
#define NET_D     32
#define NET_INNER 128
#define NET_T     8

struct net {
    zt_block *embed, *a, *frozen, *twice, *b, *plain, *c, *head, *idle;
    zt_param *wte, *wpe, *up, *a_bias, *a_down, *frozen_ln, *frozen_w, *twice_w, *b_ln,
        *b_w, *c_down, *head_ln;
};

typedef enum net_order { NET_ALL, NET_WITHOUT_B, NET_SWAPPED } net_order;

/* Of the next forward pass. */
static net_order net_now;
/* The plugin's hooks do this, when set. */
static zt_err (*net_setup)(zt_weights *w, struct net *net);
static zt_err (*net_after_step)(zt_weights *w, struct net *net, int64_t step);

static zt_err net_build(zt_model *m, void **self)
{
    struct net *n = calloc(1, sizeof(*n));
    const struct zt_init w = ZT_NORMAL(0, 0.1f);

    if (!n)
        return zt_model_fail(m, "no memory");
    *self = n;
    n->embed = zt_model_block(m, "embed");
    n->wte = zt_block_param(n->embed, "wte", ZT_SHAPE(NET_VOCAB, NET_D), w, 0);
    n->wpe = zt_block_param(n->embed, "wpe", ZT_SHAPE(NET_T, NET_D), w, ZT_FROZEN);
    n->a = zt_model_block(m, "a");
    n->up = zt_block_param(n->a, "a.up", ZT_SHAPE(NET_INNER, NET_D), w, 0);
    n->a_bias = zt_block_param(n->a, "a.bias", ZT_SHAPE(NET_INNER),
                               ZT_UNIFORM(-0.1f, 0.1f), ZT_NO_DECAY);
    n->a_down = zt_block_param(n->a, "a.down", ZT_SHAPE(NET_D, NET_INNER), w, 0);
    n->frozen = zt_model_block(m, "frozen");
    n->frozen_ln = zt_block_param(n->frozen, "frozen.ln", ZT_SHAPE(NET_D), ZT_ONES(),
                                  ZT_NO_DECAY | ZT_FROZEN);
    n->frozen_w =
        zt_block_param(n->frozen, "frozen.w", ZT_SHAPE(NET_D, NET_D), w, ZT_FROZEN);
    n->twice = zt_model_block(m, "twice");
    n->twice_w = zt_block_param(n->twice, "twice.w", ZT_SHAPE(NET_D, NET_D), w, 0);
    n->b = zt_model_block(m, "b");
    n->b_ln = zt_block_param(n->b, "b.ln", ZT_SHAPE(NET_D), ZT_ONES(), ZT_NO_DECAY);
    n->b_w = zt_block_param(n->b, "b.w", ZT_SHAPE(NET_D, NET_D), w, 0);
    zt_block_param(n->b, "b.unused", ZT_SHAPE(3, 7), w, 0);
    n->plain = zt_model_block(m, "plain");
    n->c = zt_model_block(m, "c");
    n->c_down = zt_block_param(n->c, "c.down", ZT_SHAPE(NET_D, NET_INNER), w, 0);
    zt_block_share(n->c, n->up);
    n->head = zt_model_block(m, "head");
    n->head_ln =
        zt_block_param(n->head, "head.ln", ZT_SHAPE(NET_D), ZT_ONES(), ZT_NO_DECAY);
    zt_block_share(n->head, n->wte);
    n->idle = zt_model_block(m, "idle");
    zt_block_param(n->idle, "idle.w", ZT_SHAPE(50, 11), w, 0);
    zt_model_set_hidden_size(m, NET_D);
    zt_model_set_max_tokens(m, NET_T);
    zt_model_set_vocab(m, NET_VOCAB);
    return zt_model_status(m);
}

static void embed_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct net *n = ctx;
    zt_tensor *at = zt_positions(s, zt_tensor_dim(in[0], 1));

    out[0] = zt_add(s, zt_embedding(s, in[0], zt_weight(s, n->wte)),
                    zt_embedding(s, at, zt_weight(s, n->wpe)));
}

static zt_tensor *mlp(zt_step *s, zt_tensor *x, zt_param *up, zt_tensor *bias,
                      zt_param *down)
{
    zt_tensor *h = zt_linear(s, x, zt_weight(s, up), bias, ZT_GELU_TANH);

    return zt_add(s, x, zt_linear(s, h, zt_weight(s, down), NULL, 0));
}

static void a_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct net *n = ctx;

    out[0] = mlp(s, in[0], n->up, zt_weight(s, n->a_bias), n->a_down);
}

static void c_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct net *n = ctx;

    out[0] = mlp(s, in[0], n->up, NULL, n->c_down);
}

static zt_tensor *add_tanh(zt_step *s, zt_tensor *x, zt_param *ln, zt_param *w)
{
    zt_tensor *h = ln ? zt_rmsnorm(s, x, zt_weight(s, ln), 1e-5f, 0) : x;

    return zt_add(s, x, zt_tanh(s, zt_linear(s, h, zt_weight(s, w), NULL, 0)));
}

static void frozen_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct net *n = ctx;

    out[0] = add_tanh(s, in[0], n->frozen_ln, n->frozen_w);
}

static void twice_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct net *n = ctx;

    out[0] = add_tanh(s, in[0], NULL, n->twice_w);
}

static void b_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct net *n = ctx;

    out[0] = add_tanh(s, in[0], n->b_ln, n->b_w);
}

static void plain_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    (void)ctx;
    out[0] = zt_add(s, in[0], zt_silu(s, in[0]));
}

/* in: x (B, T, D), targets (B, T) -> out: summed loss */
static void head_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct net *n = ctx;
    zt_tensor *x = zt_rmsnorm(s, in[0], zt_weight(s, n->head_ln), 1e-5f, 0);

    out[0] = zt_lm_head(s, x, zt_weight(s, n->wte), in[1]);
}

static zt_tensor *net_forward(zt_step *s, void *self, const zt_batch *batch)
{
    struct net *n = self;
    bool swapped = net_now == NET_SWAPPED;
    zt_tensor *x = zt_batch_field(s, batch, ZT_TOKENS);

    zt_block_call(s, n->embed, embed_forward, n, &x, 1, &x, 1);
    zt_block_call(s, swapped ? n->c : n->a, swapped ? c_forward : a_forward, n, &x, 1, &x,
                  1);
    zt_block_call(s, n->frozen, frozen_forward, n, &x, 1, &x, 1);
    zt_block_call(s, n->twice, twice_forward, n, &x, 1, &x, 1);
    if (net_now != NET_WITHOUT_B)
        zt_block_call(s, n->b, b_forward, n, &x, 1, &x, 1);
    zt_block_call(s, n->plain, plain_forward, n, &x, 1, &x, 1);
    zt_block_call(s, swapped ? n->a : n->c, swapped ? a_forward : c_forward, n, &x, 1, &x,
                  1);
    zt_block_call(s, n->twice, twice_forward, n, &x, 1, &x, 1);
    zt_block_call(s, n->head, head_forward, n,
                  (zt_tensor *[]){x, zt_batch_field(s, batch, ZT_TARGETS)}, 2, &x, 1);
    return x;
}

static zt_err run_setup(zt_weights *w, void *self)
{
    return net_setup ? net_setup(w, self) : ZT_OK;
}

static zt_err run_after_step(zt_weights *w, void *self, int64_t step)
{
    return net_after_step ? net_after_step(w, self, step) : ZT_OK;
}

static const struct zt_plugin net_plugin = {.abi = ZT_ABI,
                                            .struct_bytes = sizeof(net_plugin),
                                            .name = "net",
                                            .build = net_build,
                                            .forward = net_forward,
                                            .setup = run_setup,
                                            .after_step = run_after_step};

#endif
