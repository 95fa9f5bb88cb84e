/*
 * gpt2.c -- GPT-2 (Radford et al. 2019) as a zlaunch plugin; the example to copy, with
 * settings.h.
 *
 *     x = wte[token] + wpe[position]
 *     for each layer:  x += c_proj(attention(ln_1 x))
 *                      x += mlp.c_proj(gelu(mlp.c_fc(ln_2 x)))
 *     logits = ln_f(x) wte^T
 *
 * A plugin declares blocks and parameters (build) and writes the forward pass. Names,
 * shapes and initial values are Hugging Face's; its matrices are (in, out).
 * Comments give shapes: B rows, T tokens, D width, H heads, V vocabulary.
 */
#include <math.h>

#include "settings.h"

struct weight_and_bias {
    zt_param *w, *b; /* weight and bias of a linear map or a norm */
};

struct gpt2_layer {
    const struct gpt2 *net;
    zt_block *block;
    struct weight_and_bias ln_1, attn, attn_proj, ln_2, fc, fc_proj;
};

struct gpt2 {
    int64_t vocab, positions, width, inner, heads;
    int num_layers;
    float embed_drop, attn_drop, drop; /* of embeddings, attention, residual branches */
    float eps;
    zt_block *embed, *head;
    zt_param *wte, *wpe;
    struct weight_and_bias ln_f;
    struct gpt2_layer layers[]; /* (num_layers) */
};

/* ---- sizes ---- */

static const struct zt_option options[] = {
    {.name = "model",
     .kind = ZT_OPT_CHOICE,
     .value = "SIZE",
     .def = "gpt2",
     .choices = "gpt2|gpt2-medium|gpt2-large|gpt2-xl",
     .help = "a published size; the options below change single numbers of it"},
    INT("n_layer", 1, 1000, "transformer layers"),
    INT("n_head", 1, 1024, "attention heads; divides n_embd"),
    INT("n_embd", 1, 1 << 20, "width of the model"),
    INT("n_inner", 1, 1 << 22, "width of the feed-forward part; 4 * n_embd if not given"),
    INT("n_positions", 1, 1 << 24, "longest sequence; 1024, or block_size if longer"),
    INT("vocab_size", 1, 1 << 30,
        "rows of the embedding; what the data need, else 50257"),
    {.name = "dropout",
     .kind = ZT_OPT_FLOAT,
     .value = "P",
     .def = "0",
     .max = 0.99,
     .help = "of embeddings, attention and residual branches, in place of what "
             "config.json says"},
    {.name = NULL},
};

static const struct {
    const char *name;
    int64_t layers, heads, width;
} presets[] = {
    {"gpt2", 12, 12, 768},
    {"gpt2-medium", 24, 16, 1024},
    {"gpt2-large", 36, 20, 1280},
    {"gpt2-xl", 48, 25, 1600},
};

/* config.json is GPT-2's, of the kind that is built, and nothing of it is passed over. */
static void check_config(zt_model *m)
{
    static const char *const ignored[] = {
        "n_ctx",                   /* n_positions once more */
        "output_past",             /* of generation */
        "reorder_and_upcast_attn", /* scores are fp32 here in any case */
        NULL};

    zt_model_config_must(m, "architectures.0", "[\"GPT2LMHeadModel\", \"GPT2Model\"]");
    zt_model_config_must(m, "activation_function",
                         "[\"gelu_new\", \"gelu_pytorch_tanh\"]");
    zt_model_config_must(m, "scale_attn_weights", "[true]");
    zt_model_config_must(m, "scale_attn_by_inverse_layer_idx", "[false]");
    zt_model_config_must(m, "add_cross_attention", "[false]");
    zt_model_config_must(m, "tie_word_embeddings", "[true]");
    zt_model_config_end(m, ignored);
}

static zt_err read_sizes(zt_model *m, struct gpt2 *net)
{
    const char *size = zt_args_string(zt_model_args(m), "model");
    int64_t vocab = zt_model_data_vocab(m), block = zt_model_block_size(m);
    double left_out = dropout_left_out(m);
    size_t p = 0;

    while (strcmp(presets[p].name, size) != 0)
        p++; /* the option's choices are the presets */
    /* first: what is wrong with the settings of another model is of no use */
    zt_model_config_must(m, "model_type", "[\"gpt2\"]");
    net->num_layers = (int)pick(m, "n_layer", presets[p].layers);
    net->heads = pick(m, "n_head", presets[p].heads);
    net->width = pick(m, "n_embd", presets[p].width);
    net->inner = pick(m, "n_inner", 4 * net->width);
    net->positions = pick(m, "n_positions", block > 1024 ? block : 1024);
    net->vocab = pick(m, "vocab_size", vocab ? vocab : 50257);
    net->embed_drop = (float)pick_dropout(m, "embd_pdrop", left_out);
    net->attn_drop = (float)pick_dropout(m, "attn_pdrop", left_out);
    net->drop = (float)pick_dropout(m, "resid_pdrop", left_out);
    net->eps = (float)imported_real(m, "layer_norm_epsilon", 1e-5, 1e-12, 1);
    check_config(m);
    check_model_size(m, size, presets[p].layers, presets[p].width, net->num_layers,
                     net->width);
    if (zt_model_status(m))
        return zt_model_status(m);
    if (net->width % net->heads)
        return zt_model_fail(m, "n_embd %lld is not a multiple of n_head %lld",
                             (long long)net->width, (long long)net->heads);
    return zt_model_status(m);
}

/* ---- parameters ---- */

static zt_param *declare(zt_block *b, const char *layer, const char *name,
                         const char *kind, int64_t rows, int64_t columns,
                         struct zt_init init)
{
    char full[128];

    snprintf(full, sizeof(full), "transformer.%s%s%s", layer, name, kind);
    if (!columns) /* norms and biases take no weight decay */
        return zt_block_param(b, full, ZT_SHAPE(rows), init, ZT_NO_DECAY);
    return zt_block_param(b, full, ZT_SHAPE(rows, columns), init, 0);
}

static struct weight_and_bias norm(zt_block *b, const char *layer, const char *name,
                                   int64_t width)
{
    return (struct weight_and_bias){
        declare(b, layer, name, ".weight", width, 0, ZT_ONES()),
        declare(b, layer, name, ".bias", width, 0, ZT_ZEROS())};
}

static struct weight_and_bias dense(zt_block *b, const char *layer, const char *name,
                                    int64_t in, int64_t out, float deviation)
{
    struct zt_init init = ZT_NORMAL(0, deviation);

    return (struct weight_and_bias){declare(b, layer, name, ".weight", in, out, init),
                                    declare(b, layer, name, ".bias", out, 0, ZT_ZEROS())};
}

static void build_layer(zt_model *m, struct gpt2 *net, int i)
{
    struct gpt2_layer *l = &net->layers[i];
    int64_t D = net->width, F = net->inner;
    /* what ends in the residual stream starts smaller: 2 * num_layers of them add up */
    float residual = 0.02f / sqrtf(2.0f * (float)net->num_layers);
    char name[32], prefix[32];

    snprintf(name, sizeof(name), "h.%d", i);
    snprintf(prefix, sizeof(prefix), "h.%d.", i);
    l->net = net;
    l->block = zt_model_block(m, name);
    l->ln_1 = norm(l->block, prefix, "ln_1", D);
    l->attn = dense(l->block, prefix, "attn.c_attn", D, 3 * D, 0.02f);
    l->attn_proj = dense(l->block, prefix, "attn.c_proj", D, D, residual);
    l->ln_2 = norm(l->block, prefix, "ln_2", D);
    l->fc = dense(l->block, prefix, "mlp.c_fc", D, F, 0.02f);
    l->fc_proj = dense(l->block, prefix, "mlp.c_proj", F, D, residual);
}

/* A config.json that leaves a token out means GPT-2's own, one that says null means none. */
static void export_token(zt_model *m, const struct gpt2 *net, const char *key,
                         const char *of_new)
{
    bool of_gpt2 = !zt_model_config_has(m, key) && net->vocab > 50256;

    zt_model_export(m, key, "%s",
                    !zt_model_has_config(m) ? of_new
                    : of_gpt2               ? "50256"
                                            : "null");
    zt_model_export_imported(m, key);
}

/* What `transformers` needs in config.json to open our weights. */
static void export_config(zt_model *m, const struct gpt2 *net)
{
    char last[24];

    EXPORT_SETTINGS(m, {"vocab_size", net->vocab}, {"n_positions", net->positions},
                    {"n_embd", net->width}, {"n_inner", net->inner},
                    {"n_layer", net->num_layers}, {"n_head", net->heads});
    snprintf(last, sizeof(last), "%lld", (long long)net->vocab - 1);
    export_token(m, net, "bos_token_id", last);
    /* of another vocabulary the data say it, or nobody does */
    export_token(m, net, "eos_token_id", net->vocab == 50257 ? "50256" : "null");
    export_float(m, "resid_pdrop", net->drop);
    export_float(m, "embd_pdrop", net->embed_drop);
    export_float(m, "attn_pdrop", net->attn_drop);
    zt_model_export(m, "model_type", "\"gpt2\"");
    zt_model_export(m, "architectures", "[\"GPT2LMHeadModel\"]");
    zt_model_export(m, "activation_function", "\"gelu_new\"");
    export_float(m, "layer_norm_epsilon", net->eps);
}

static zt_err build(zt_model *m, void **self)
{
    struct zt_init init = ZT_NORMAL(0, 0.02f);
    struct gpt2 sizes = {0}, *net;
    zt_err rc = read_sizes(m, &sizes);
    int64_t D = sizes.width;

    if (rc)
        return rc;
    net = calloc(1, sizeof(*net) + (size_t)sizes.num_layers * sizeof(net->layers[0]));
    if (!net)
        return zt_model_fail(m, "no memory for %d layers", sizes.num_layers);
    *net = sizes;
    *self = net;

    net->embed = zt_model_block(m, "embed");
    net->wte = declare(net->embed, "", "wte", ".weight", net->vocab, D, init);
    net->wpe = declare(net->embed, "", "wpe", ".weight", net->positions, D, init);
    for (int i = 0; i < net->num_layers; i++)
        build_layer(m, net, i);
    net->head = zt_model_block(m, "head");
    net->ln_f = norm(net->head, "", "ln_f", net->width);
    zt_block_share(net->head, net->wte); /* the output head is the embedding, tied */
    zt_param_twin(m, net->wte, "lm_head.weight");
    zt_model_ignore_weights(m, "*h.*.attn.bias"); /* causal masks in older files */
    zt_model_ignore_weights(m, "*h.*.attn.masked_bias");

    zt_model_language_fields(m);
    zt_model_packed_fields(m);
    zt_model_set_hidden_size(m, net->width);
    zt_model_set_max_tokens(m, net->positions);
    zt_model_set_vocab(m, net->vocab);
    export_config(m, net);
    return zt_model_status(m);
}

/* ---- forward ---- */

static zt_tensor *apply_norm(zt_step *s, zt_tensor *x, struct weight_and_bias p,
                             float eps)
{
    return zt_layernorm(s, x, zt_weight(s, p.w), zt_weight(s, p.b), eps);
}

static zt_tensor *apply(zt_step *s, zt_tensor *x, struct weight_and_bias p,
                        unsigned flags)
{
    return zt_linear(s, x, zt_weight(s, p.w), zt_weight(s, p.b), ZT_W_IN_OUT | flags);
}

/* in: tokens (B, T), positions (B, T) or NULL -> out: x (B, T, D) */
static void embed_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct gpt2 *net = ctx;
    zt_tensor *positions = in[1] ? in[1] : zt_positions(s, zt_tensor_dim(in[0], 1));
    zt_tensor *x = zt_embedding(s, in[0], zt_weight(s, net->wte));

    x = zt_add(s, x, zt_embedding(s, positions, zt_weight(s, net->wpe)));
    out[0] = zt_dropout(s, x, net->embed_drop);
}

/* in: x (B, T, D), where samples begin (B, T) or NULL -> out: x (B, T, D) */
static void layer_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct gpt2_layer *l = ctx;
    const struct gpt2 *net = l->net;
    int64_t B = zt_tensor_dim(in[0], 0), T = zt_tensor_dim(in[0], 1);
    int64_t H = net->heads, D = net->width;
    struct zt_attention how =
        ZT_ATTENTION(.causal = true, .dropout = net->attn_drop, .key_begin = in[1]);
    zt_tensor *x = in[0], *h, *q, *k, *v;

    h = apply(s, apply_norm(s, x, l->ln_1, net->eps), l->attn, 0);
    h = zt_reshape(s, h, ZT_SHAPE(B, T, 3 * H, D / H)); /* heads of q, of k, of v */
    q = zt_slice(s, h, 2, 0, H);
    k = zt_slice(s, h, 2, H, H);
    v = zt_slice(s, h, 2, 2 * H, H);
    h = zt_reshape(s, zt_attention(s, q, k, v, &how), ZT_SHAPE(B, T, D));
    h = apply(s, h, l->attn_proj, 0);
    h = zt_dropout(s, h, net->drop);

    h = zt_add_layernorm(s, x, h, zt_weight(s, l->ln_2.w), zt_weight(s, l->ln_2.b),
                         net->eps, &x); /* x += h, and its norm */
    h = apply(s, h, l->fc, ZT_GELU_TANH);
    h = apply(s, h, l->fc_proj, 0);
    out[0] = zt_add(s, x, zt_dropout(s, h, net->drop));
}

/* in: x (B, T, D), targets (B, T) or NULL -> out: summed loss, or logits (B, R, V) */
static void head_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct gpt2 *net = ctx;
    zt_tensor *x = apply_norm(s, in[0], net->ln_f, net->eps);

    out[0] = zt_lm_head(s, x, zt_weight(s, net->wte), in[1]);
}

static zt_tensor *forward(zt_step *s, void *self, const zt_batch *b)
{
    struct gpt2 *net = self;
    struct gpt2_layer *l = net->layers;
    zt_tensor *segments = zt_batch_field(s, b, ZT_SEGMENT_BEGIN), *x;

    zt_block_call(s, net->embed, embed_forward, net,
                  (zt_tensor *[]){zt_batch_field(s, b, ZT_TOKENS),
                                  zt_batch_field(s, b, ZT_POSITIONS)},
                  2, &x, 1);
    for (int i = 0; i < net->num_layers; i++)
        zt_block_call(s, l[i].block, layer_forward, &l[i], (zt_tensor *[]){x, segments},
                      2, &x, 1);
    zt_block_call(s, net->head, head_forward, net,
                  (zt_tensor *[]){x, zt_batch_field(s, b, ZT_TARGETS)}, 2, &x, 1);
    return x;
}

ZT_PLUGIN(.name = "gpt2", .summary = "GPT-2: decoder-only transformer, learned positions",
          .options = options, .build = build, .forward = forward,
          .flags = ZT_PLUGIN_CACHED);
