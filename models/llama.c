/*
 * llama.c -- Llama 1 to 3.2, Mistral, Qwen2, Qwen2.5, Qwen3 and Gemma as one zlaunch
 * plugin.
 *
 *     x = embed_tokens[token]
 *     for each layer:  x += o_proj(attention(rope(q, k), v)), q, k, v from norm(x)
 *                      x += down_proj(silu(gate_proj(n)) * up_proj(n)), n = norm(x)
 *     logits = lm_head(norm(x)); the head may be the embedding itself (tied)
 *
 * Several query heads share a key head. The kinds differ in biases (Qwen2: on q, k and
 * v), in which layers see a window of the last tokens only (Mistral: all; Qwen: upper
 * ones may), in norms of each head of q and k before rope (Qwen3), and Gemma norms by
 * (1 + w), has gelu for silu, and multiplies the embedding by sqrt(D).
 * Options, config.json and parameters have the names of Hugging Face; matrices are
 * (out, in). Comments give shapes: B rows, T tokens, D width, H query heads, K key heads,
 * h width of a head, F width of the feed-forward part, V vocabulary.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <zlaunch/plugin.h>

#include "llama_config.h"

struct llama_linear {
    zt_param *w, *b; /* b: NULL without a bias */
};

struct llama_layer {
    const struct llama *net;
    zt_block *block;
    int64_t window;                              /* tokens that are seen; 0: all */
    zt_param *norm_1, *norm_2, *q_norm, *k_norm; /* the last two: NULL without them */
    struct llama_linear q, k, v, o, gate, up, down;
};

struct llama {
    struct config c;
    float inv_freq[MAX_HEAD_DIM / 2]; /* of rope; the first head_dim / 2 count */
    zt_block *embed, *head;
    zt_param *embed_tokens, *norm, *lm_head; /* tied: lm_head is embed_tokens */
    struct llama_layer layers[];             /* (num_layers) */
};

/* ---- parameters ---- */

static zt_param *matrix(const struct llama *net, zt_block *b, const char *name,
                        int64_t out, int64_t in)
{
    struct zt_init init = ZT_NORMAL(0, (float)net->c.deviation);

    return zt_block_param(b, name, ZT_SHAPE(out, in), init, 0);
}

/* Factors of a norm: as initial values they change nothing. */
static zt_param *factors(const struct llama *net, zt_block *b, const char *name,
                         int64_t n)
{
    return zt_block_param(b, name, ZT_SHAPE(n), net->c.gemma ? ZT_ZEROS() : ZT_ONES(),
                          ZT_NO_DECAY);
}

static zt_param *norm(struct llama_layer *l, int i, const char *part, int64_t n)
{
    char name[128];

    snprintf(name, sizeof(name), "model.layers.%d.%s.weight", i, part);
    return factors(l->net, l->block, name, n);
}

static struct llama_linear linear(struct llama_layer *l, int i, const char *part,
                                  int64_t in, int64_t out, bool bias)
{
    struct llama_linear made = {NULL, NULL};
    char name[128];

    snprintf(name, sizeof(name), "model.layers.%d.%s.weight", i, part);
    made.w = matrix(l->net, l->block, name, out, in);
    snprintf(name, sizeof(name), "model.layers.%d.%s.bias", i, part);
    if (bias)
        made.b = zt_block_param(l->block, name, ZT_SHAPE(out), ZT_ZEROS(), ZT_NO_DECAY);
    return made;
}

/* So that one product can make q, k and v. */
static void adjoin(struct llama_linear q, struct llama_linear k, struct llama_linear v)
{
    zt_block_adjoin((zt_param *[]){q.w, k.w, v.w}, 3);
    if (q.b)
        zt_block_adjoin((zt_param *[]){q.b, k.b, v.b}, 3);
}

static void build_layer(zt_model *m, struct llama *net, int i)
{
    const struct config *c = &net->c;
    struct llama_layer *l = &net->layers[i];
    int64_t D = c->width, F = c->inner, Hh = c->heads * c->head_dim;
    int64_t Kh = c->kv_heads * c->head_dim;
    char name[32];

    snprintf(name, sizeof(name), "layers.%d", i);
    l->net = net;
    l->block = zt_model_block(m, name);
    l->window = i >= c->window_from ? c->window : 0;
    l->norm_1 = norm(l, i, "input_layernorm", D);
    l->q = linear(l, i, "self_attn.q_proj", D, Hh, c->qkv_bias);
    l->k = linear(l, i, "self_attn.k_proj", D, Kh, c->qkv_bias);
    l->v = linear(l, i, "self_attn.v_proj", D, Kh, c->qkv_bias);
    adjoin(l->q, l->k, l->v);
    l->o = linear(l, i, "self_attn.o_proj", Hh, D, c->o_bias);
    if (c->head_norms) {
        l->q_norm = norm(l, i, "self_attn.q_norm", c->head_dim);
        l->k_norm = norm(l, i, "self_attn.k_norm", c->head_dim);
    }
    l->norm_2 = norm(l, i, "post_attention_layernorm", D);
    l->gate = linear(l, i, "mlp.gate_proj", D, F, c->mlp_bias);
    l->up = linear(l, i, "mlp.up_proj", D, F, c->mlp_bias);
    l->down = linear(l, i, "mlp.down_proj", F, D, c->mlp_bias);
}

/* Low frequencies are divided by the factor, high ones stay, those between do in part. */
static void make_frequencies(struct llama *net)
{
    const struct scaling *how = &net->c.scaling;

    zt_rope_frequencies(net->inv_freq, (int)net->c.head_dim, net->c.theta);
    for (int i = 0; how->type != NOT && i < net->c.head_dim / 2; i++) {
        double turns = (double)how->original * (double)net->inv_freq[i] / (2 * M_PI);
        double keep = (turns - how->low) / (how->high - how->low);

        keep = how->type == LINEAR ? 0 : fmin(fmax(keep, 0), 1);
        net->inv_freq[i] *= (float)((1 - keep) / how->factor + keep);
    }
}

static zt_err build(zt_model *m, void **self)
{
    struct config c = {0};
    zt_err rc = read_config(m, &c);
    struct llama *net;

    if (rc)
        return rc;
    net = calloc(1, sizeof(*net) + (size_t)c.num_layers * sizeof(net->layers[0]));
    if (!net)
        return zt_model_fail(m, "no memory for %lld layers", (long long)c.num_layers);
    net->c = c;
    *self = net;
    make_frequencies(net);

    net->embed = zt_model_block(m, "embed");
    net->embed_tokens =
        matrix(net, net->embed, "model.embed_tokens.weight", c.vocab, c.width);
    for (int i = 0; i < c.num_layers; i++)
        build_layer(m, net, i);
    net->head = zt_model_block(m, "head");
    net->norm = factors(net, net->head, "model.norm.weight", c.width);
    if (c.tied) {
        net->lm_head = net->embed_tokens;
        zt_block_share(net->head, net->lm_head);
        zt_param_twin(m, net->lm_head, "lm_head.weight");
    } else {
        net->lm_head = matrix(net, net->head, "lm_head.weight", c.vocab, c.width);
    }
    zt_model_ignore_weights(m, "*.rotary_emb.inv_freq"); /* older files hold them */
    zt_model_language_fields(m);
    zt_model_packed_fields(m);
    zt_model_set_hidden_size(m, c.width);
    zt_model_set_max_tokens(m, c.positions);
    zt_model_set_vocab(m, c.vocab);
    export_config(m, &c);
    return zt_model_status(m);
}

/* ---- forward ---- */

static zt_tensor *apply_norm(zt_step *s, const struct llama *net, zt_tensor *x,
                             zt_param *w)
{
    return zt_rmsnorm(s, x, zt_weight(s, w), (float)net->c.eps,
                      net->c.gemma ? ZT_RMS_ADD_ONE : 0);
}

static zt_tensor *apply(zt_step *s, zt_tensor *x, struct llama_linear l)
{
    return zt_linear(s, x, zt_weight(s, l.w), l.b ? zt_weight(s, l.b) : NULL, 0);
}

/* q, k and v in one product, but where they are normed next, for which they had to be copied
 * out of its result. */
static void apply_three(zt_step *s, zt_tensor *x, const struct llama_layer *l,
                        zt_tensor *qkv[3])
{
    if (l->q_norm) {
        qkv[0] = apply(s, x, l->q);
        qkv[1] = apply(s, x, l->k);
        qkv[2] = apply(s, x, l->v);
        return;
    }
    zt_linears(s, x, (zt_param *[]){l->q.w, l->k.w, l->v.w},
               (zt_param *[]){l->q.b, l->k.b, l->v.b}, 3, qkv);
}

/* x rounded to the type of activations. */
static float rounded(const zt_step *s, double x)
{
    int bits = zt_compute_dtype(s) == ZT_BF16  ? 8
               : zt_compute_dtype(s) == ZT_F16 ? 11
                                               : 24;
    int exponent;
    double fraction = frexp(x, &exponent);

    return (float)ldexp(rint(ldexp(fraction, bits)), exponent - bits);
}

/* in: tokens (B, T) -> out: x (B, T, D) */
static void embed_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct llama *net = ctx;

    out[0] = zt_embedding(s, in[0], zt_weight(s, net->embed_tokens));
    if (net->c.gemma)
        out[0] = zt_scale(s, out[0], rounded(s, sqrt((double)net->c.width)));
}

/* x (B, T, D) -> (B, T, D). Positions of tokens and where their samples begin: (B, T), or NULL
 * where a row is one sample. */
static zt_tensor *attend(zt_step *s, const struct llama_layer *l, zt_tensor *x,
                         zt_tensor *positions, zt_tensor *begin)
{
    const struct llama *net = l->net;
    const struct config *c = &net->c;
    int64_t B = zt_tensor_dim(x, 0), T = zt_tensor_dim(x, 1);
    int64_t H = c->heads, K = c->kv_heads, h = c->head_dim;
    struct zt_rope rope = ZT_ROPE(.inv_freq = net->inv_freq, .rotary_dims = (int)h);
    struct zt_attention how =
        ZT_ATTENTION(.causal = true, .window = l->window, .dropout = (float)c->dropout,
                     .key_begin = begin);
    zt_tensor *qkv[3], *q, *k, *v;

    apply_three(s, x, l, qkv);
    q = zt_reshape(s, qkv[0], ZT_SHAPE(B, T, H, h));
    k = zt_reshape(s, qkv[1], ZT_SHAPE(B, T, K, h));
    v = zt_reshape(s, qkv[2], ZT_SHAPE(B, T, K, h));
    if (l->q_norm) { /* over h, the same factors for every head */
        q = apply_norm(s, net, q, l->q_norm);
        k = apply_norm(s, net, k, l->k_norm);
    }
    positions = positions ? positions : zt_positions(s, T); /* (T) */
    q = zt_rope_apply(s, q, positions, &rope);
    k = zt_rope_apply(s, k, positions, &rope);
    x = zt_attention(s, q, k, v, &how);
    return apply(s, zt_reshape(s, x, ZT_SHAPE(B, T, H * h)), l->o);
}

/* gate, up (B, T, F) -> (B, T, F) */
static zt_tensor *gated(zt_step *s, const struct llama *net, zt_tensor *gate,
                        zt_tensor *up)
{
    return net->c.gemma ? zt_mul(s, zt_gelu(s, gate), up) : zt_swiglu(s, gate, up);
}

/* in: x (B, T, D), positions and begins of samples as attend() has them -> x (B, T, D) */
static void layer_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct llama_layer *l = ctx;
    const struct llama *net = l->net;
    zt_tensor *x = in[0], *n;

    n = attend(s, l, apply_norm(s, net, x, l->norm_1), in[1], in[2]);
    n = zt_add_rmsnorm(s, x, n, zt_weight(s, l->norm_2), (float)net->c.eps,
                       net->c.gemma ? ZT_RMS_ADD_ONE : 0, &x);
    n = gated(s, net, apply(s, n, l->gate), apply(s, n, l->up));
    out[0] = zt_add(s, x, apply(s, n, l->down));
}

/* in: x (B, T, D), targets (B, T) or NULL -> out: summed loss, or logits (B, R, V) */
static void head_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct llama *net = ctx;
    zt_tensor *x = apply_norm(s, net, in[0], net->norm);

    out[0] = zt_lm_head(s, x, zt_weight(s, net->lm_head), in[1]);
}

static zt_tensor *forward(zt_step *s, void *self, const zt_batch *b)
{
    struct llama *net = self;
    struct llama_layer *l = net->layers;
    zt_tensor *x = zt_batch_field(s, b, ZT_TOKENS);

    zt_block_call(s, net->embed, embed_forward, net, &x, 1, &x, 1);
    for (int i = 0; i < net->c.num_layers; i++)
        zt_block_call(s, l[i].block, layer_forward, &l[i],
                      (zt_tensor *[]){x, zt_batch_field(s, b, ZT_POSITIONS),
                                      zt_batch_field(s, b, ZT_SEGMENT_BEGIN)},
                      3, &x, 1);
    zt_block_call(s, net->head, head_forward, net,
                  (zt_tensor *[]){x, zt_batch_field(s, b, ZT_TARGETS)}, 2, &x, 1);
    return x;
}

ZT_PLUGIN(.name = "llama",
          .summary = "Llama, Mistral, Qwen2, Qwen3, Gemma: rope, grouped queries",
          .options = options, .build = build, .forward = forward,
          .flags = ZT_PLUGIN_CACHED);
