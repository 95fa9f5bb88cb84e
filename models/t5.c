/*
 * t5.c -- T5 1.0 and 1.1 (Raffel et al. 2020) as a zlaunch plugin.
 *
 *     encoder   x = shared[source];  for each layer:  x += o(attention(norm x, norm x))
 *                                                     x += wo(f(norm x))
 *     decoder   x = shared[tokens];  for each layer:  x += o(causal attention(norm x, norm x))
 *                                                     x += o(attention(norm x, memory))
 *                                                     x += wo(f(norm x))
 *     logits    norm(x) head^T,      1.0: head is shared, and norm(x) is scaled by 1/sqrt(D)
 *
 *     f         1.0: relu(wi x)      1.1: gelu(wi_0 x) * wi_1 x
 *
 * memory is the norm of the encoder's x. Norms are RMS norms, no map has a bias. Scores are
 * not scaled. In self-attention they get a learnt bias by the bucket of (key - query) and the
 * head: one table for the encoder, one for the decoder, used by all layers.
 *
 * Comments give shapes: B rows, S source tokens, T tokens, D width, H heads, V vocabulary.
 */
#include <math.h>

#include "seq2seq.h"

struct t5_attention {
    zt_param *norm, *q, *k, *v, *o;
};

struct t5_layer {
    const struct t5 *net;
    zt_block *block;
    struct t5_attention self, cross;   /* cross: of the decoder */
    zt_param *norm, *up, *gate, *down; /* gate: of 1.1, wi_0; up is wi_1 then, else wi */
};

struct t5 {
    int64_t vocab, width, head_dim, inner, heads, buckets, max_distance, pad, eos, start;
    int num_layers, num_decoder_layers;
    bool gated, tied, scaled;
    float dropout, eps, factor;
    zt_block *source, *memory, *target, *head;
    zt_param *shared, *encoder_bias, *decoder_bias, *encoder_norm, *decoder_norm,
        *lm_head;
    struct t5_layer *encoder, *decoder;
};

/* ---- sizes ---- */

static const struct zt_option options[] = {
    {.name = "model",
     .kind = ZT_OPT_CHOICE,
     .value = "SIZE",
     .def = "t5-small",
     .choices = "t5-small|t5-base|t5-large|t5-3b|t5-11b|t5-v1_1-small|t5-v1_1-base|"
                "t5-v1_1-large|t5-v1_1-xl|t5-v1_1-xxl",
     .help = "a published size; the options below change single numbers of it"},
    INT("d_model", 1, 1 << 20, "width of the model"),
    INT("d_kv", 1, 1024, "width of a head"),
    INT("d_ff", 1, 1 << 22, "width of the feed-forward part"),
    INT("num_layers", 1, 1000, "layers of the encoder"),
    INT("num_decoder_layers", 1, 1000, "layers of the decoder; num_layers if not given"),
    INT("num_heads", 1, 1024, "attention heads"),
    INT("relative_attention_num_buckets", 4, 1024, "of distances between two tokens"),
    INT("relative_attention_max_distance", 4, 1 << 24,
        "those from here on share a bucket"),
    INT("vocab_size", 1, 1 << 30,
        "rows of the embedding; what the data need, else 32128"),
    DROPOUT,
    {.name = NULL},
};

static const struct t5_size {
    const char *name;
    int64_t width, head_dim, inner, layers, heads;
    bool v1_1;
} sizes[] = {
    {"t5-small", 512, 64, 2048, 6, 8, false},
    {"t5-base", 768, 64, 3072, 12, 12, false},
    {"t5-large", 1024, 64, 4096, 24, 16, false},
    {"t5-3b", 1024, 128, 16384, 24, 32, false},
    {"t5-11b", 1024, 128, 65536, 24, 128, false},
    {"t5-v1_1-small", 512, 64, 1024, 8, 6, true},
    {"t5-v1_1-base", 768, 64, 2048, 12, 12, true},
    {"t5-v1_1-large", 1024, 64, 2816, 24, 16, true},
    {"t5-v1_1-xl", 2048, 64, 5120, 24, 32, true},
    {"t5-v1_1-xxl", 4096, 64, 10240, 24, 64, true},
};

/* What transformers takes for keys that a config.json leaves out. */
static const struct t5_size absent = {"t5", 512, 64, 2048, 6, 8, false};

/* config.json is T5's, of a kind that is built, and nothing of it is passed over. */
static void check_config(zt_model *m, bool gated)
{
    static const char *const ignored[] = {
        "n_positions",        /* positions are relative: no length is too long */
        "classifier_dropout", /* of other heads */
        "initializer_factor", /* the weights are there */
        NULL};

    zt_model_config_must(m, "architectures.0",
                         "[\"T5ForConditionalGeneration\", \"T5Model\", "
                         "\"T5WithLMHeadModel\"]");
    zt_model_config_must(m, "is_encoder_decoder", "[true]");
    /* feed_forward_proj once more, over which transformers takes them */
    zt_model_config_must(m, "dense_act_fn", gated ? "[\"gelu_new\"]" : "[\"relu\"]");
    zt_model_config_must(m, "is_gated_act", gated ? "[true]" : "[false]");
    zt_model_config_end(m, ignored);
}

/* relu or gated-gelu, as 1.0 and 1.1 have it. */
static bool read_gated(zt_model *m, bool def)
{
    const char *proj =
        zt_model_config_string(m, "feed_forward_proj", def ? "gated-gelu" : "relu");

    if (strcmp(proj, "relu") != 0 && strcmp(proj, "gated-gelu") != 0)
        zt_model_fail(m,
                      "feed_forward_proj %s of config.json; relu (T5 1.0) and gated-gelu "
                      "(T5 1.1) are built",
                      proj);
    return strcmp(proj, "gated-gelu") == 0;
}

/* A size that was asked for has to be that of the weights. */
static void check_size(zt_model *m, const struct t5 *net, const struct t5_size *p)
{
    if (zt_model_has_config(m) && zt_args_given(zt_model_args(m), "model") &&
        (net->num_layers != p->layers || net->width != p->width || net->gated != p->v1_1))
        zt_model_fail(m,
                      "--model %s has %lld layers of width %lld, but the config.json of "
                      "the weights says %d of %lld, %s; leave --model out",
                      p->name, (long long)p->layers, (long long)p->width, net->num_layers,
                      (long long)net->width, net->gated ? "gated" : "not gated");
}

static zt_err read_sizes(zt_model *m, struct t5 *net)
{
    const char *name = zt_args_string(zt_model_args(m), "model");
    const struct t5_size *p = sizes, *base;
    int64_t vocab = zt_model_data_vocab(m);

    while (strcmp(p->name, name) != 0)
        p++; /* the option's choices are the sizes */
    base = zt_model_has_config(m) ? &absent : p;
    /* first: what is wrong with the settings of another model is of no use */
    zt_model_config_must(m, "model_type", "[\"t5\"]");
    net->width = pick(m, "d_model", base->width);
    net->head_dim = pick(m, "d_kv", base->head_dim);
    net->inner = pick(m, "d_ff", base->inner);
    net->heads = pick(m, "num_heads", base->heads);
    net->num_layers = (int)pick(m, "num_layers", base->layers);
    net->num_decoder_layers = (int)pick(m, "num_decoder_layers", net->num_layers);
    net->buckets = pick(m, "relative_attention_num_buckets", 32);
    net->max_distance = pick(m, "relative_attention_max_distance", 128);
    net->vocab = pick(m, "vocab_size", vocab && !zt_model_has_config(m) ? vocab : 32128);
    net->gated = read_gated(m, base->v1_1);
    net->tied = imported_flag(m, "tie_word_embeddings", !base->v1_1);
    /* null: they are not */
    net->scaled =
        imported_flag(m, "scale_decoder_outputs",
                      net->tied && !zt_model_config_has(m, "scale_decoder_outputs"));
    net->dropout = (float)pick_dropout(m, "dropout_rate", dropout_left_out(m));
    net->eps = (float)imported_real(m, "layer_norm_epsilon", 1e-6, 1e-12, 1);
    net->factor = (float)imported_real(m, "initializer_factor", 1, 0, 1e6);
    net->pad = zt_model_config_int(m, "pad_token_id", 0);
    net->eos = zt_model_config_int(m, "eos_token_id", 1);
    net->start = zt_model_config_int(m, "decoder_start_token_id", net->pad);
    check_config(m, net->gated);
    check_size(m, net, p);
    check_start(m, net->start, net->vocab);
    if (zt_model_status(m))
        return zt_model_status(m);
    if (net->buckets % 4)
        return zt_model_fail(m,
                             "relative_attention_num_buckets %lld is not a multiple of 4",
                             (long long)net->buckets);
    if (net->max_distance <= net->buckets / 2)
        return zt_model_fail(m,
                             "relative_attention_max_distance %lld is not above half of "
                             "relative_attention_num_buckets %lld",
                             (long long)net->max_distance, (long long)net->buckets);
    return zt_model_status(m);
}

/* ---- parameters ---- */

static zt_param *norm(zt_block *b, const char *prefix, const char *name,
                      const struct t5 *net)
{
    return declare(b, prefix, name, net->width, 0,
                   ((struct zt_init){ZT_INIT_CONSTANT, net->factor, 0}));
}

static zt_param *dense(zt_block *b, const char *prefix, const char *name, int64_t out,
                       int64_t in, double deviation, const struct t5 *net)
{
    return declare(b, prefix, name, out, in,
                   ZT_NORMAL(0, (float)((double)net->factor * deviation)));
}

/* Scores of distances (buckets, heads) of the encoder or the decoder. They are biases, so they do not decay. */
static zt_param *distances(zt_block *b, const char *side, const struct t5 *net)
{
    char name[96];

    snprintf(name, sizeof(name),
             "%s.block.0.layer.0.SelfAttention.relative_attention_bias.weight", side);
    return zt_block_param(
        b, name, ZT_SHAPE(net->buckets, net->heads),
        ZT_NORMAL(0, (float)((double)net->factor / sqrt((double)net->width))),
        ZT_NO_DECAY);
}

/* `name`: "layer.0.SelfAttention" */
static struct t5_attention declare_attention(zt_block *b, const char *layer, int part,
                                             const char *name, const struct t5 *net)
{
    double D = (double)net->width, d = (double)net->head_dim;
    int64_t inner = net->heads * net->head_dim;
    char prefix[96], at[64];

    snprintf(at, sizeof(at), "%slayer.%d.", layer, part);
    snprintf(prefix, sizeof(prefix), "%s%s.", at, name);
    return (struct t5_attention){
        .norm = norm(b, at, "layer_norm.weight", net),
        .q = dense(b, prefix, "q.weight", inner, net->width, 1 / sqrt(D * d), net),
        .k = dense(b, prefix, "k.weight", inner, net->width, 1 / sqrt(D), net),
        .v = dense(b, prefix, "v.weight", inner, net->width, 1 / sqrt(D), net),
        .o = dense(b, prefix, "o.weight", net->width, inner,
                   1 / sqrt((double)net->heads * d), net),
    };
}

static void build_layer(zt_model *m, struct t5 *net, struct t5_layer *l, bool decoder,
                        int i)
{
    double D = (double)net->width, F = (double)net->inner;
    int64_t wide = net->inner;
    char name[48], layer[48], at[64], prefix[96];

    snprintf(name, sizeof(name), "%s.block.%d", decoder ? "decoder" : "encoder", i);
    snprintf(layer, sizeof(layer), "%s.", name);
    l->net = net;
    l->block = zt_model_block(m, name);
    l->self = declare_attention(l->block, layer, 0, "SelfAttention", net);
    if (decoder)
        l->cross = declare_attention(l->block, layer, 1, "EncDecAttention", net);
    snprintf(at, sizeof(at), "%slayer.%d.", layer, decoder ? 2 : 1);
    snprintf(prefix, sizeof(prefix), "%sDenseReluDense.", at);
    l->norm = norm(l->block, at, "layer_norm.weight", net);
    if (net->gated)
        l->gate =
            dense(l->block, prefix, "wi_0.weight", wide, net->width, 1 / sqrt(D), net);
    l->up = dense(l->block, prefix, net->gated ? "wi_1.weight" : "wi.weight", wide,
                  net->width, 1 / sqrt(D), net);
    l->down = dense(l->block, prefix, "wo.weight", net->width, wide, 1 / sqrt(F), net);
}

static void build_ends(zt_model *m, struct t5 *net)
{
    net->source = zt_model_block(m, "source");
    net->shared = dense(net->source, "", "shared.weight", net->vocab, net->width, 1, net);
    net->encoder_bias = distances(net->source, "encoder", net);
    net->memory = zt_model_block(m, "memory");
    net->encoder_norm = norm(net->memory, "", "encoder.final_layer_norm.weight", net);
    net->target = zt_model_block(m, "target");
    zt_block_share(net->target, net->shared);
    net->decoder_bias = distances(net->target, "decoder", net);
    net->head = zt_model_block(m, "head");
    net->decoder_norm = norm(net->head, "", "decoder.final_layer_norm.weight", net);
    zt_param_twin(m, net->shared, "encoder.embed_tokens.weight");
    zt_param_twin(m, net->shared, "decoder.embed_tokens.weight");
    if (net->tied) {
        net->lm_head = net->shared;
        zt_block_share(net->head, net->shared);
        zt_param_twin(m, net->shared, "lm_head.weight");
    } else {
        net->lm_head =
            dense(net->head, "", "lm_head.weight", net->vocab, net->width, 1, net);
    }
    /* in older files, and never used */
    zt_model_ignore_weights(
        m, "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight");
}

/* What `transformers` needs in config.json to open our weights. */
static void export_config(zt_model *m, const struct t5 *net)
{
    EXPORT_SETTINGS(
        m, {"vocab_size", net->vocab}, {"d_model", net->width}, {"d_kv", net->head_dim},
        {"d_ff", net->inner}, {"num_layers", net->num_layers},
        {"num_decoder_layers", net->num_decoder_layers}, {"num_heads", net->heads},
        {"relative_attention_num_buckets", net->buckets},
        {"relative_attention_max_distance", net->max_distance});
    zt_model_export(m, "feed_forward_proj", net->gated ? "\"gated-gelu\"" : "\"relu\"");
    zt_model_export(m, "tie_word_embeddings", net->tied ? "true" : "false");
    zt_model_export(m, "scale_decoder_outputs", net->scaled ? "true" : "false");
    export_float(m, "dropout_rate", net->dropout);
    export_float(m, "layer_norm_epsilon", net->eps);
    export_float(m, "initializer_factor", net->factor);
    zt_model_export(m, "model_type", "\"t5\"");
    zt_model_export(m, "architectures", "[\"T5ForConditionalGeneration\"]");
    zt_model_export_imported(m, "n_positions");
    export_tokens(m, net->pad, -1, net->eos, net->start);
}

static zt_err build(zt_model *m, void **self)
{
    struct t5 read = {0}, *net;
    zt_err rc = read_sizes(m, &read);
    size_t layers = (size_t)read.num_layers + (size_t)read.num_decoder_layers;

    if (rc)
        return rc;
    net = calloc(1, sizeof(*net) + layers * sizeof(*net->encoder));
    if (!net)
        return zt_model_fail(m, "no memory for %zu layers", layers);
    *net = read;
    net->encoder = (struct t5_layer *)(net + 1); /* one piece of memory */
    net->decoder = net->encoder + net->num_layers;
    *self = net;

    build_ends(m, net);
    for (int i = 0; i < net->num_layers; i++)
        build_layer(m, net, &net->encoder[i], false, i);
    for (int i = 0; i < net->num_decoder_layers; i++)
        build_layer(m, net, &net->decoder[i], true, i);
    zt_model_pair_fields(m, (int32_t)net->start);
    zt_model_set_hidden_size(m, net->width);
    zt_model_set_vocab(m, net->vocab);
    export_config(m, net);
    return zt_model_status(m);
}

/* ---- relative positions ---- */

/* The bucket of key - query: half of them for single steps, the other half for ranges that
 * grow by one factor; in an encoder one half of each for keys on either side. */
static int32_t bucket_of(const struct t5 *net, int64_t distance, bool decoder)
{
    int64_t n = net->buckets, base = 0, exact, far;

    if (decoder) {
        distance = distance < 0 ? -distance : 0;
    } else {
        n /= 2;
        base = distance > 0 ? n : 0;
        distance = distance < 0 ? -distance : distance;
    }
    exact = n / 2;
    if (distance < exact)
        return (int32_t)(base + distance);
    /* in fp32, as transformers computes it: it decides at the borders of buckets */
    far = exact + (int64_t)(logf((float)distance / (float)exact) /
                            (float)log((double)net->max_distance / (double)exact) *
                            (float)(n - exact));
    return (int32_t)(base + (far < n - 1 ? far : n - 1));
}

static int32_t encoder_bucket(const void *net, int64_t distance)
{
    return bucket_of(net, distance, false);
}

static int32_t decoder_bucket(const void *net, int64_t distance)
{
    return bucket_of(net, distance, true);
}

/* ids (N, T, K), table (buckets, H) -> (N, H, T, K) */
static zt_tensor *bias_of(zt_step *s, zt_tensor *ids, zt_param *table)
{
    zt_tensor *bias = zt_embedding(s, ids, zt_weight(s, table)); /* (N, T, K, H) */

    bias = zt_transpose(s, zt_transpose(s, bias, 1, 3), 2, 3);
    return zt_contiguous(s, bias);
}

/* (1, S, S) */
static zt_tensor *encoder_ids(zt_step *s, const struct t5 *net, int64_t S)
{
    int32_t *ids = malloc((size_t)(S * S + 2 * S) * sizeof(*ids)), *by_distance;
    zt_tensor *t;

    if (!ids)
        return NULL; /* which ends the pass */
    by_distance = ids + S * S;
    for (int64_t i = 0; i < 2 * S; i++)
        by_distance[i] = encoder_bucket(net, i - (S - 1));
    for (int64_t i = 0; i < S; i++)
        for (int64_t j = 0; j < S; j++)
            ids[i * S + j] = by_distance[j - i + S - 1];
    t = zt_constant(s, ZT_I32, ZT_SHAPE(1, S, S), ids);
    free(ids);
    return t;
}

/* ---- forward ---- */

static zt_tensor *apply(zt_step *s, zt_tensor *x, zt_param *w, unsigned flags)
{
    return zt_linear(s, x, zt_weight(s, w), NULL, flags);
}

/* *x (B, T, D), the norm of it -> *x + o(attention to h, or to memory), and the norm of that
 * by `next`. */
static zt_tensor *attend(zt_step *s, const struct t5 *net, const struct t5_attention *a,
                         zt_tensor **x, zt_tensor *h, zt_tensor *keys_of, bool cross,
                         struct zt_attention how, zt_param *next)
{
    zt_tensor *q, *k = NULL, *v = NULL;

    if (keys_of) { /* else the memory has been read */
        k = as_heads(s, apply(s, keys_of, a->k, 0), net->heads);
        v = as_heads(s, apply(s, keys_of, a->v, 0), net->heads);
    }
    q = as_heads(s, apply(s, h, a->q, 0), net->heads);
    how.scale = 1;
    how.dropout = net->dropout;
    h = from_heads(s, cross ? zt_cross_attention(s, q, k, v, &how)
                            : zt_attention(s, q, k, v, &how));
    h = zt_dropout(s, apply(s, h, a->o, 0), net->dropout);
    return zt_add_rmsnorm(s, *x, h, zt_weight(s, next), net->eps, 0, x);
}

/* x + wo(f(h)), h the norm of x */
static zt_tensor *feed(zt_step *s, const struct t5_layer *l, zt_tensor *x, zt_tensor *h)
{
    const struct t5 *net = l->net;

    if (net->gated)
        h = zt_mul(s, apply(s, h, l->gate, ZT_GELU_TANH), apply(s, h, l->up, 0));
    else
        h = zt_relu(s, apply(s, h, l->up, 0));
    h = apply(s, zt_dropout(s, h, net->dropout), l->down, 0);
    return zt_add(s, x, zt_dropout(s, h, net->dropout));
}

static zt_tensor *first_norm(zt_step *s, const struct t5_layer *l, zt_tensor *x)
{
    return zt_rmsnorm(s, x, zt_weight(s, l->self.norm), l->net->eps, 0);
}

/* in: source (B, S) -> out: x (B, S, D), bias (1, H, S, S) */
static void source_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct t5 *net = ctx;
    int64_t S = zt_tensor_dim(in[0], 1);
    zt_tensor *x = zt_embedding(s, in[0], zt_weight(s, net->shared));

    out[0] = zt_dropout(s, x, net->dropout);
    out[1] = bias_of(s, encoder_ids(s, net, S), net->encoder_bias);
}

/* in: x (B, S, D), bias, mask (B, 1, 1, S) -> out: x */
static void encoder_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct t5_layer *l = ctx;
    zt_tensor *x = in[0], *h = first_norm(s, l, x);

    h = attend(s, l->net, &l->self, &x, h, h, false,
               ZT_ATTENTION(.bias = in[1], .mask = in[2]), l->norm);
    out[0] = feed(s, l, x, h);
}

static void memory_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct t5 *net = ctx;
    zt_tensor *x = zt_rmsnorm(s, in[0], zt_weight(s, net->encoder_norm), net->eps, 0);

    out[0] = zt_dropout(s, x, net->dropout);
}

/* in: tokens (B, T) -> out: x (B, T, D), bias (1, H, T, T), or of cached keys */
static void target_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct t5 *net = ctx;
    int64_t T = zt_tensor_dim(in[0], 1);
    zt_tensor *x = zt_embedding(s, in[0], zt_weight(s, net->shared));

    out[0] = zt_dropout(s, x, net->dropout);
    out[1] =
        bias_of(s, zt_relative_positions(s, T, decoder_bucket, net), net->decoder_bias);
}

/* in: x (B, T, D), bias, memory (B, S, D), mask (B, 1, 1, S) -> out: x; without memory where
 * the passes before have read it */
static void decoder_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct t5_layer *l = ctx;
    const struct t5 *net = l->net;
    zt_tensor *x = in[0], *h = first_norm(s, l, x);

    h = attend(s, net, &l->self, &x, h, h, false,
               ZT_ATTENTION(.causal = true, .bias = in[1]), l->cross.norm);
    h = attend(s, net, &l->cross, &x, h, in[2], true, ZT_ATTENTION(.mask = in[3]),
               l->norm);
    out[0] = feed(s, l, x, h);
}

/* in: x (B, T, D), targets (B, T) or NULL -> out: summed loss, or logits (B, R, V) */
static void head_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct t5 *net = ctx;
    zt_tensor *x = zt_rmsnorm(s, in[0], zt_weight(s, net->decoder_norm), net->eps, 0);

    x = zt_dropout(s, x, net->dropout);
    if (net->scaled)
        x = zt_scale(s, x, (float)(1 / sqrt((double)net->width)));
    out[0] = zt_lm_head(s, x, zt_weight(s, net->lm_head), in[1]);
}

/* source (B, S), mask (B, 1, 1, S) -> memory (B, S, D) */
static zt_tensor *encode(zt_step *s, struct t5 *net, zt_tensor *source, zt_tensor *mask)
{
    zt_tensor *io[3] = {source};

    zt_block_call(s, net->source, source_forward, net, io, 1, io, 2);
    io[2] = mask;
    for (int i = 0; i < net->num_layers; i++)
        zt_block_call(s, net->encoder[i].block, encoder_forward, &net->encoder[i], io, 3,
                      io, 1);
    zt_block_call(s, net->memory, memory_forward, net, io, 1, io, 1);
    return io[0];
}

static zt_tensor *forward(zt_step *s, void *self, const zt_batch *b)
{
    struct t5 *net = self;
    zt_tensor *source = zt_batch_field(s, b, ZT_SOURCE), *memory = NULL, *mask = NULL;
    zt_tensor *io[4] = {zt_batch_field(s, b, ZT_TOKENS)};

    if (source) {
        mask = zt_length_bias(s, zt_batch_field(s, b, ZT_SOURCE_LENGTHS), 1,
                              zt_tensor_dim(source, 1));
        memory = encode(s, net, source, mask);
    }
    zt_block_call(s, net->target, target_forward, net, io, 1, io, 2);
    io[2] = memory;
    io[3] = mask;
    for (int i = 0; i < net->num_decoder_layers; i++)
        zt_block_call(s, net->decoder[i].block, decoder_forward, &net->decoder[i], io, 4,
                      io, 1);
    io[1] = zt_batch_field(s, b, ZT_TARGETS);
    zt_block_call(s, net->head, head_forward, net, io, 2, io, 1);
    return io[0];
}

ZT_PLUGIN(.name = "t5", .summary = "T5 1.0 and 1.1: encoder-decoder, relative positions",
          .options = options, .build = build, .forward = forward,
          .flags = ZT_PLUGIN_CACHED | ZT_PLUGIN_CACHED_SOURCE,
          .tasks = ZT_CAN(ZT_TASK_SEQ2SEQ));
