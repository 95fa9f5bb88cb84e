/*
 * conv.c -- a language model without attention: causal dilated convolutions, as in
 * ByteNet (Kalchbrenner et al. 2016). docs/PLUGINS.md goes through it.
 *
 *     x = wte[token]
 *     for i = 0, 1, ...:  h = norm(x)
 *                         x += down_i(gelu(now_i h[t] + past_i h[t - 2^i]))
 *     logits = norm(x) wte^T
 *
 * A token sees earlier ones by where they stand, not through attention: so there is no
 * ZT_PLUGIN_CACHED, and generation feeds the whole context each time.
 * Comments give shapes: B rows, T tokens, D width, F inner width, V vocabulary.
 */
#include <stdio.h>
#include <stdlib.h>

#include <zlaunch/plugin.h>

#define MAX_LAYERS 16
#define EPS        1e-5f

struct layer {
    const struct conv *net;
    int64_t dilation;
    zt_block *block;
    zt_param *norm, *now, *past, *down;
};

struct conv {
    int64_t vocab, width, inner;
    int num_layers;
    zt_block *embed, *head;
    zt_param *wte, *norm;
    struct layer layers[MAX_LAYERS];
};

static const struct zt_option options[] = {
    {.name = "n_layer",
     .kind = ZT_OPT_INT,
     .value = "N",
     .def = "5",
     .min = 1,
     .max = MAX_LAYERS,
     .help = "layers; N of them see 2^N tokens"},
    {.name = "n_embd",
     .kind = ZT_OPT_INT,
     .value = "N",
     .def = "64",
     .min = 1,
     .max = 1 << 16,
     .help = "width of the model"},
    {.name = NULL},
};

static void build_layer(zt_model *m, struct conv *net, int i)
{
    struct layer *l = &net->layers[i];
    int64_t D = net->width, F = net->inner;
    char name[4][32];
    static const char *const kinds[4] = {"norm", "now", "past", "down"};

    for (int k = 0; k < 4; k++)
        snprintf(name[k], sizeof(name[k]), "layers.%d.%s", i, kinds[k]);
    *l = (struct layer){.net = net, .dilation = (int64_t)1 << i};
    l->block = zt_model_block(m, name[0]);
    l->norm = zt_block_param(l->block, name[0], ZT_SHAPE(D), ZT_ONES(), ZT_NO_DECAY);
    l->now = zt_block_param(l->block, name[1], ZT_SHAPE(F, D), ZT_NORMAL(0, 0.1f), 0);
    l->past = zt_block_param(l->block, name[2], ZT_SHAPE(F, D), ZT_NORMAL(0, 0.1f), 0);
    l->down = zt_block_param(l->block, name[3], ZT_SHAPE(D, F), ZT_NORMAL(0, 0.05f), 0);
}

static zt_err build(zt_model *m, void **self)
{
    const zt_args *args = zt_model_args(m);
    struct conv *net = calloc(1, sizeof(*net));

    if (!net)
        return zt_model_fail(m, "no memory");
    *self = net;
    net->vocab = zt_model_data_vocab(m) ? zt_model_data_vocab(m) : 257;
    net->width = zt_args_int(args, "n_embd");
    net->inner = 2 * net->width;
    net->num_layers = (int)zt_args_int(args, "n_layer");

    net->embed = zt_model_block(m, "embed");
    net->wte = zt_block_param(net->embed, "wte", ZT_SHAPE(net->vocab, net->width),
                              ZT_NORMAL(0, 0.1f), 0);
    for (int i = 0; i < net->num_layers; i++)
        build_layer(m, net, i);
    net->head = zt_model_block(m, "head");
    net->norm =
        zt_block_param(net->head, "norm", ZT_SHAPE(net->width), ZT_ONES(), ZT_NO_DECAY);
    zt_block_share(net->head, net->wte);

    zt_model_language_fields(m);
    zt_model_set_hidden_size(m, net->width);
    zt_model_set_vocab(m, net->vocab);
    return zt_model_status(m);
}

/* in: tokens (B, T) -> out: x (B, T, D) */
static void embed_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct conv *net = ctx;

    out[0] = zt_embedding(s, in[0], zt_weight(s, net->wte));
}

/* x (B, T, D) as it was `by` tokens earlier: zeros, then the first T - by tokens. */
static zt_tensor *earlier(zt_step *s, zt_tensor *x, int64_t by)
{
    int64_t B = zt_tensor_dim(x, 0), T = zt_tensor_dim(x, 1), D = zt_tensor_dim(x, 2);
    int64_t pad = by < T ? by : T;
    float *zeros = calloc((size_t)(B * pad * D) + 1, sizeof(*zeros));
    zt_tensor *parts[2] = {NULL, NULL};

    if (zeros)
        parts[0] = zt_constant(s, zt_compute_dtype(s), ZT_SHAPE(B, pad, D), zeros);
    free(zeros);
    if (pad == T)
        return parts[0];
    parts[1] = zt_slice(s, x, 1, 0, T - pad);
    return zt_concat(s, 1, parts, 2);
}

/* in: x (B, T, D) -> out: x (B, T, D) */
static void layer_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct layer *l = ctx;
    zt_tensor *h = zt_rmsnorm(s, in[0], zt_weight(s, l->norm), EPS, 0);
    zt_tensor *past = earlier(s, h, l->dilation);

    h = zt_add(s, zt_linear(s, h, zt_weight(s, l->now), NULL, 0),
               zt_linear(s, past, zt_weight(s, l->past), NULL, 0)); /* (B, T, F) */
    h = zt_linear(s, zt_gelu(s, h), zt_weight(s, l->down), NULL, 0);
    out[0] = zt_add(s, in[0], h);
}

/* in: x (B, T, D), targets (B, T) or NULL -> out: summed loss, or logits (B, R, V) */
static void head_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct conv *net = ctx;
    zt_tensor *x = zt_rmsnorm(s, in[0], zt_weight(s, net->norm), EPS, 0);

    out[0] = zt_lm_head(s, x, zt_weight(s, net->wte), in[1]);
}

static zt_tensor *forward(zt_step *s, void *self, const zt_batch *b)
{
    struct conv *net = self;
    zt_tensor *x = zt_batch_field(s, b, ZT_TOKENS);

    zt_block_call(s, net->embed, embed_forward, net, &x, 1, &x, 1);
    for (int i = 0; i < net->num_layers; i++)
        zt_block_call(s, net->layers[i].block, layer_forward, &net->layers[i], &x, 1, &x,
                      1);
    zt_block_call(s, net->head, head_forward, net,
                  (zt_tensor *[]){x, zt_batch_field(s, b, ZT_TARGETS)}, 2, &x, 1);
    return x;
}

ZT_PLUGIN(.name = "conv", .summary = "causal dilated convolutions", .options = options,
          .build = build, .forward = forward);
