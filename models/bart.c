/*
 * bart.c -- BART (Lewis et al. 2019), BlenderBot and BlenderBot-small (Roller et al. 2020) as a
 * zlaunch plugin.
 *
 *     encoder   x = norm(scale shared[source] + positions)
 *               for each layer:  x = norm(x + attention(x, x));  x = norm(x + fc2 gelu(fc1 x))
 *     decoder   the same with causal attention, and x = norm(x + attention(x, memory)) behind it
 *     logits    x shared^T + final_logits_bias
 *
 * BlenderBot has the norms before each part, x += part(norm x), and one more at the end of
 * encoder and decoder in place of the one behind the embedding. BlenderBot-small is as BART, but
 * its decoder adds positions behind that norm. BART's table of positions begins with two rows
 * that no position has.
 *
 * Comments give shapes: B rows, S source tokens, T tokens, D width, V vocabulary.
 */
#include <math.h>

#include "seq2seq.h"

enum bart_kind { BART, BLENDERBOT, SMALL };

static const struct {
    const char *model_type, *class;
    int64_t pad, bos, eos, start;
    int offset; /* the table's row of position 0 */
    bool
        norms_first; /* before each part; a norm ends the stack, none follows the embedding */
} kinds[] = {
    [BART] = {"bart", "BartForConditionalGeneration", 1, 0, 2, 2, 2, false},
    [BLENDERBOT] = {"blenderbot", "BlenderbotForConditionalGeneration", 0, 1, 2, 1, 0,
                    true},
    [SMALL] = {"blenderbot-small", "BlenderbotSmallForConditionalGeneration", 0, 1, 2, 1,
               0, false},
};

struct bart_attention {
    struct seq2seq_linear norm, q, k, v, out;
};

struct bart_layer {
    const struct bart *net;
    zt_block *block;
    int64_t heads;
    struct bart_attention self, cross; /* cross: of the decoder */
    struct seq2seq_linear norm, fc1, fc2;
};

/* Encoder or decoder. */
struct stack {
    const struct bart *net;
    bool decodes;
    int64_t heads, inner;
    int num_layers;
    zt_block *begin, *end; /* end: of the encoder that norms first; else NULL */
    zt_param *positions;
    struct seq2seq_linear norm; /* behind the embedding, or at the end */
    struct bart_layer *layers;  /* (num_layers) */
};

struct bart {
    enum bart_kind kind;
    int64_t vocab, width, positions, pad, bos, eos, start;
    bool scaled;
    float drop, attn_drop, act_drop, deviation;
    zt_block *head;
    zt_param *shared, *logits_bias;
    struct stack encoder, decoder;
};

/* ---- sizes ---- */

static const struct zt_option options[] = {
    {.name = "model",
     .kind = ZT_OPT_CHOICE,
     .value = "SIZE",
     .def = "bart-base",
     .choices = "bart-base|bart-large|blenderbot-90m|blenderbot-400m|blenderbot-1b|"
                "blenderbot-3b",
     .help = "a published size; the options below change single numbers of it"},
    INT("d_model", 1, 1 << 20, "width of the model; a multiple of the attention heads"),
    INT("encoder_layers", 1, 1000, "layers of the encoder"),
    INT("decoder_layers", 1, 1000, "layers of the decoder"),
    INT("encoder_attention_heads", 1, 1024, "attention heads of the encoder"),
    INT("decoder_attention_heads", 1, 1024, "attention heads of the decoder"),
    INT("encoder_ffn_dim", 1, 1 << 22, "width of the encoder's feed-forward part"),
    INT("decoder_ffn_dim", 1, 1 << 22, "width of the decoder's feed-forward part"),
    INT("max_position_embeddings", 1, 1 << 24, "longest source, and longest target"),
    INT("vocab_size", 1, 1 << 30,
        "rows of the embedding; what the data need, else the size's"),
    DROPOUT,
    {.name = NULL},
};

struct bart_size {
    const char *name;
    int64_t width, encoder_layers, decoder_layers, heads, inner, positions, vocab;
    enum bart_kind kind;
    bool scaled;
};

static const struct bart_size sizes[] = {
    {"bart-base", 768, 6, 6, 12, 3072, 1024, 50265, BART, false},
    {"bart-large", 1024, 12, 12, 16, 4096, 1024, 50265, BART, false},
    {"blenderbot-90m", 512, 8, 8, 16, 2048, 512, 54944, SMALL, true},
    {"blenderbot-400m", 1280, 2, 12, 32, 5120, 128, 8008, BLENDERBOT, true},
    {"blenderbot-1b", 2560, 2, 12, 32, 10240, 128, 8008, BLENDERBOT, true},
    {"blenderbot-3b", 2560, 2, 24, 32, 10240, 128, 8008, BLENDERBOT, true},
};

/* What transformers takes for keys that a config.json leaves out. */
static const struct bart_size absent[] = {
    [BART] = {"bart", 1024, 12, 12, 16, 4096, 1024, 50265, BART, false},
    [BLENDERBOT] = {"blenderbot", 2560, 2, 24, 32, 10240, 128, 8008, BLENDERBOT, false},
    [SMALL] = {"blenderbot-small", 512, 8, 8, 16, 2048, 512, 50265, SMALL, false},
};

/* Of the imported weights, else of the size. */
static enum bart_kind find_kind(zt_model *m, const struct bart_size *p)
{
    const char *type = zt_model_config_string(m, "model_type", kinds[p->kind].model_type);

    for (int k = BART; k <= SMALL; k++)
        if (strcmp(kinds[k].model_type, type) == 0)
            return (enum bart_kind)k;
    zt_model_fail(
        m,
        "model_type %s of config.json; bart, blenderbot and blenderbot-small are "
        "built",
        type);
    return p->kind;
}

/* config.json is of a kind that is built, and nothing of it is passed over. */
static void check_config(zt_model *m, const struct bart *net)
{
    static const char *const ignored[] = {
        "num_hidden_layers", /* encoder_layers once more */
        "classif_dropout",
        "classifier_dropout",
        "init_std",
        "do_blenderbot_90_layernorm", /* what BlenderBot-small is */
        "layernorm_variant",          /* what each of the three is */
        "force_bos_token_to_be_generated",
        "extra_layer_norm",
        "save_step", /* of how DistilBART was trained */
        NULL};
    const char *const first = kinds[net->kind].norms_first ? "[true]" : "[false]";
    char classes[160];

    snprintf(classes, sizeof(classes), "[\"%s\", \"%.*sModel\"]", kinds[net->kind].class,
             (int)(strlen(kinds[net->kind].class) - strlen("ForConditionalGeneration")),
             kinds[net->kind].class);
    zt_model_config_must(m, "architectures.0", classes);
    zt_model_config_must(m, "activation_function", "[\"gelu\"]");
    zt_model_config_must(m, "encoder_layerdrop", "[0.0, 0]");
    zt_model_config_must(m, "decoder_layerdrop", "[0.0, 0]");
    zt_model_config_must(m, "normalize_before", first);
    zt_model_config_must(m, "add_final_layer_norm", first);
    zt_model_config_must(m, "normalize_embedding",
                         kinds[net->kind].norms_first ? "[false]" : "[true]");
    zt_model_config_must(m, "add_bias_logits", "[false]");
    zt_model_config_must(m, "static_position_embeddings", "[false]");
    zt_model_config_must(m, "extra_pos_embeddings",
                         kinds[net->kind].offset ? "[2]" : "[0]");
    zt_model_config_must(m, "is_encoder_decoder", "[true]");
    zt_model_config_must(m, "tie_word_embeddings", "[true]");
    zt_model_config_end(m, ignored);
}

static void check_heads(zt_model *m, const struct bart *net, const char *name,
                        int64_t heads)
{
    if (net->width % heads)
        zt_model_fail(m, "d_model %lld is not a multiple of %s %lld",
                      (long long)net->width, name, (long long)heads);
}

/* A size that was asked for has to be that of the weights. */
static void check_size(zt_model *m, const struct bart *net, const struct bart_size *p)
{
    if (zt_model_has_config(m) && zt_args_given(zt_model_args(m), "model") &&
        (net->kind != p->kind || net->width != p->width ||
         net->decoder.num_layers != p->decoder_layers))
        zt_model_fail(m,
                      "--model %s is %s with %lld decoder layers of width %lld, but the "
                      "config.json of the weights says %s, %d of %lld; leave --model out",
                      p->name, kinds[p->kind].model_type, (long long)p->decoder_layers,
                      (long long)p->width, kinds[net->kind].model_type,
                      net->decoder.num_layers, (long long)net->width);
}

static void read_tokens(zt_model *m, struct bart *net)
{
    net->pad = zt_model_config_int(m, "pad_token_id", kinds[net->kind].pad);
    net->bos = zt_model_config_int(m, "bos_token_id", kinds[net->kind].bos);
    net->eos = zt_model_config_int(m, "eos_token_id", kinds[net->kind].eos);
    net->start =
        zt_model_config_int(m, "decoder_start_token_id",
                            zt_model_has_config(m) ? kinds[net->kind].start
                            : kinds[net->kind].start == kinds[net->kind].eos ? net->eos
                                                                             : net->bos);
}

static zt_err read_sizes(zt_model *m, struct bart *net)
{
    const char *name = zt_args_string(zt_model_args(m), "model");
    int64_t vocab = zt_model_data_vocab(m);
    const struct bart_size *p = sizes, *base;

    while (strcmp(p->name, name) != 0)
        p++; /* the option's choices are the sizes */
    net->kind = find_kind(m, p);
    base = zt_model_has_config(m) ? &absent[net->kind] : p;
    net->width = pick(m, "d_model", base->width);
    net->encoder.num_layers = (int)pick(m, "encoder_layers", base->encoder_layers);
    net->decoder.num_layers = (int)pick(m, "decoder_layers", base->decoder_layers);
    net->encoder.heads = pick(m, "encoder_attention_heads", base->heads);
    net->decoder.heads = pick(m, "decoder_attention_heads", base->heads);
    net->encoder.inner = pick(m, "encoder_ffn_dim", base->inner);
    net->decoder.inner = pick(m, "decoder_ffn_dim", base->inner);
    net->positions = pick(m, "max_position_embeddings", base->positions);
    net->vocab =
        pick(m, "vocab_size", vocab && !zt_model_has_config(m) ? vocab : base->vocab);
    net->scaled = imported_flag(m, "scale_embedding", base->scaled);
    net->drop = (float)pick_dropout(m, "dropout", dropout_left_out(m));
    net->attn_drop = (float)pick_dropout(m, "attention_dropout", 0);
    net->act_drop = (float)pick_dropout(m, "activation_dropout", 0);
    net->deviation = (float)imported_real(m, "init_std", 0.02, 0, 1);
    read_tokens(m, net);
    check_config(m, net);
    check_size(m, net, p);
    check_start(m, net->start, net->vocab);
    if (zt_model_status(m))
        return zt_model_status(m);
    check_heads(m, net, "encoder_attention_heads", net->encoder.heads);
    check_heads(m, net, "decoder_attention_heads", net->decoder.heads);
    return zt_model_status(m);
}

/* ---- parameters ---- */

static struct seq2seq_linear norm(zt_block *b, const char *prefix, const char *name,
                                  int64_t width)
{
    char w[64], bias[64];

    snprintf(w, sizeof(w), "%s.weight", name);
    snprintf(bias, sizeof(bias), "%s.bias", name);
    return (struct seq2seq_linear){declare(b, prefix, w, width, 0, ZT_ONES()),
                                   declare(b, prefix, bias, width, 0, ZT_ZEROS())};
}

static struct seq2seq_linear dense(zt_block *b, const char *prefix, const char *name,
                                   int64_t out, int64_t in, const struct bart *net)
{
    char w[64], bias[64];

    snprintf(w, sizeof(w), "%s.weight", name);
    snprintf(bias, sizeof(bias), "%s.bias", name);
    return (struct seq2seq_linear){
        declare(b, prefix, w, out, in, ZT_NORMAL(0, net->deviation)),
        declare(b, prefix, bias, out, 0, ZT_ZEROS())};
}

static struct bart_attention declare_attention(zt_block *b, const char *layer,
                                               const char *name, const struct bart *net)
{
    int64_t D = net->width;
    char prefix[96], its_norm[64];

    snprintf(prefix, sizeof(prefix), "%s%s.", layer, name);
    snprintf(its_norm, sizeof(its_norm), "%s_layer_norm", name);
    return (struct bart_attention){
        .norm = norm(b, layer, its_norm, D),
        .q = dense(b, prefix, "q_proj", D, D, net),
        .k = dense(b, prefix, "k_proj", D, D, net),
        .v = dense(b, prefix, "v_proj", D, D, net),
        .out = dense(b, prefix, "out_proj", D, D, net),
    };
}

static void build_layer(zt_model *m, const struct bart *net, struct stack *st, int i)
{
    struct bart_layer *l = &st->layers[i];
    int64_t D = net->width;
    char name[48], layer[64];

    snprintf(name, sizeof(name), "%s.layers.%d", st->decodes ? "decoder" : "encoder", i);
    snprintf(layer, sizeof(layer), "model.%s.", name);
    l->net = net;
    l->heads = st->heads;
    l->block = zt_model_block(m, name);
    l->self = declare_attention(l->block, layer, "self_attn", net);
    if (st->decodes)
        l->cross = declare_attention(l->block, layer, "encoder_attn", net);
    l->fc1 = dense(l->block, layer, "fc1", st->inner, D, net);
    l->fc2 = dense(l->block, layer, "fc2", D, st->inner, net);
    l->norm = norm(l->block, layer, "final_layer_norm", D);
}

static void build_stack(zt_model *m, struct bart *net, struct stack *st)
{
    const char *prefix = st->decodes ? "model.decoder." : "model.encoder.";
    bool first = kinds[net->kind].norms_first;

    st->net = net;
    st->begin = zt_model_block(m, st->decodes ? "target" : "source");
    if (st->decodes)
        zt_block_share(st->begin, net->shared);
    else
        net->shared = declare(st->begin, "", "model.shared.weight", net->vocab,
                              net->width, ZT_NORMAL(0, net->deviation));
    st->positions = declare(st->begin, prefix, "embed_positions.weight",
                            net->positions + kinds[net->kind].offset, net->width,
                            ZT_NORMAL(0, net->deviation));
    if (!first)
        st->norm = norm(st->begin, prefix, "layernorm_embedding", net->width);
    for (int i = 0; i < st->num_layers; i++)
        build_layer(m, net, st, i);
    if (st->decodes)
        net->head = zt_model_block(m, "head");
    else if (first)
        st->end = zt_model_block(m, "memory");
    if (first)
        st->norm =
            norm(st->decodes ? net->head : st->end, prefix, "layer_norm", net->width);
}

/* What `transformers` needs in config.json to open our weights. */
static void export_config(zt_model *m, const struct bart *net)
{
    EXPORT_SETTINGS(m, {"vocab_size", net->vocab}, {"d_model", net->width},
                    {"encoder_layers", net->encoder.num_layers},
                    {"decoder_layers", net->decoder.num_layers},
                    {"encoder_attention_heads", net->encoder.heads},
                    {"decoder_attention_heads", net->decoder.heads},
                    {"encoder_ffn_dim", net->encoder.inner},
                    {"decoder_ffn_dim", net->decoder.inner},
                    {"max_position_embeddings", net->positions});
    zt_model_export(m, "scale_embedding", net->scaled ? "true" : "false");
    export_float(m, "dropout", net->drop);
    export_float(m, "attention_dropout", net->attn_drop);
    export_float(m, "activation_dropout", net->act_drop);
    export_float(m, "init_std", net->deviation);
    zt_model_export(m, "activation_function", "\"gelu\"");
    zt_model_export(m, "model_type", "\"%s\"", kinds[net->kind].model_type);
    zt_model_export(m, "architectures", "[\"%s\"]", kinds[net->kind].class);
    if (zt_model_has_config(m) && !zt_model_config_has(m, "forced_eos_token_id"))
        zt_model_export(m, "forced_eos_token_id", "%lld", (long long)net->eos);
    else
        zt_model_export(m, "forced_eos_token_id", "null");
    export_tokens(m, net->pad, net->bos, net->eos, net->start);
}

static zt_err build(zt_model *m, void **self)
{
    struct bart read = {.kind = BART}, *net;
    zt_err rc = read_sizes(m, &read);
    size_t layers = (size_t)read.encoder.num_layers + (size_t)read.decoder.num_layers;

    if (rc)
        return rc;
    net = calloc(1, sizeof(*net) + layers * sizeof(struct bart_layer));
    if (!net)
        return zt_model_fail(m, "no memory for %zu layers", layers);
    *net = read;
    net->decoder.decodes = true;
    net->encoder.layers = (struct bart_layer *)(net + 1); /* one piece of memory */
    net->decoder.layers = net->encoder.layers + net->encoder.num_layers;
    *self = net;

    build_stack(m, net, &net->encoder);
    build_stack(m, net, &net->decoder);
    zt_block_share(net->head, net->shared);
    /* zeros in every published model: a constant of the files, which nobody trains */
    net->logits_bias =
        zt_block_param(net->head, "final_logits_bias", ZT_SHAPE(1, net->vocab),
                       ZT_ZEROS(), ZT_NO_DECAY | ZT_FROZEN | ZT_EXTRA);
    zt_param_twin(m, net->shared, "model.encoder.embed_tokens.weight");
    zt_param_twin(m, net->shared, "model.decoder.embed_tokens.weight");
    zt_param_twin(m, net->shared, "lm_head.weight");
    zt_model_ignore_weights(m, "*encoder.version"); /* of fairseq's conversion */
    zt_model_ignore_weights(m, "*decoder.version");
    zt_model_pair_fields(m, (int32_t)net->start);
    zt_model_set_hidden_size(m, net->width);
    zt_model_set_max_tokens(m, net->positions);
    zt_model_set_vocab(m, net->vocab);
    export_config(m, net);
    return zt_model_status(m);
}

/* ---- forward ---- */

static zt_tensor *apply_norm(zt_step *s, zt_tensor *x, struct seq2seq_linear p)
{
    return zt_layernorm(s, x, zt_weight(s, p.w), zt_weight(s, p.b), 1e-5f);
}

static zt_tensor *apply(zt_step *s, zt_tensor *x, struct seq2seq_linear p, unsigned flags)
{
    return zt_linear(s, x, zt_weight(s, p.w), zt_weight(s, p.b), flags);
}

/* in: tokens (B, T) -> out: x (B, T, D) */
static void begin_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct stack *st = ctx;
    const struct bart *net = st->net;
    /* the decoder of BlenderBot-small norms first, and then its scale would change nothing */
    bool norm_alone = st->decodes && net->kind == SMALL;
    zt_tensor *x = zt_embedding(s, in[0], zt_weight(s, net->shared));
    zt_tensor *at = zt_positions(s, zt_tensor_dim(in[0], 1)); /* (T) */
    zt_tensor *table = zt_slice(s, zt_weight(s, st->positions), 0,
                                kinds[net->kind].offset, net->positions);

    if (norm_alone)
        x = apply_norm(s, x, st->norm);
    else if (net->scaled)
        x = zt_scale(s, x, sqrtf((float)net->width));
    x = zt_add(s, x, zt_embedding(s, at, table));
    if (!norm_alone && !kinds[net->kind].norms_first)
        x = apply_norm(s, x, st->norm);
    out[0] = zt_dropout(s, x, net->drop);
}

/* out(attention(q(h), k, v)), k and v of `from` (B, S, D): h itself, or memory, which is NULL
 * where the passes before have read it */
static zt_tensor *attend(zt_step *s, const struct bart_layer *l,
                         const struct bart_attention *a, zt_tensor *h, zt_tensor *from,
                         bool cross, struct zt_attention how)
{
    zt_tensor *q, *k = NULL, *v = NULL;

    if (from) {
        k = as_heads(s, apply(s, from, a->k, 0), l->heads);
        v = as_heads(s, apply(s, from, a->v, 0), l->heads);
    }
    q = as_heads(s, apply(s, h, a->q, 0), l->heads);
    how.dropout = l->net->attn_drop;
    h = cross ? zt_cross_attention(s, q, k, v, &how) : zt_attention(s, q, k, v, &how);
    return zt_dropout(s, apply(s, from_heads(s, h), a->out, 0), l->net->drop);
}

static zt_tensor *feed(zt_step *s, const struct bart_layer *l, zt_tensor *h)
{
    h = zt_dropout(s, apply(s, h, l->fc1, ZT_GELU_ERF), l->net->act_drop);
    return zt_dropout(s, apply(s, h, l->fc2, 0), l->net->drop);
}

/*
 * The end of a part: *x and the result `y` of the part become the next part's. norms_first: *x
 * += y, and the norm `next` of it is returned; else *x = norm(x + y) by the part's own norm.
 */
static zt_tensor *join(zt_step *s, const struct bart *net, zt_tensor **x, zt_tensor *y,
                       struct seq2seq_linear own, struct seq2seq_linear next)
{
    struct seq2seq_linear p = kinds[net->kind].norms_first ? next : own;
    zt_tensor *sum = NULL, *h;

    h = zt_add_layernorm(s, *x, y, zt_weight(s, p.w), zt_weight(s, p.b), 1e-5f, &sum);
    *x = kinds[net->kind].norms_first ? sum : h;
    return h;
}

/* in: x (B, S, D), mask (B, 1, 1, S); of a decoder: x (B, T, D), mask, memory (B, S, D)
 * -> out: x */
static void layer_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct bart_layer *l = ctx;
    const struct bart *net = l->net;
    bool first = kinds[net->kind].norms_first, decodes = l->cross.q.w != NULL;
    zt_tensor *x = in[0], *h = first ? apply_norm(s, x, l->self.norm) : x;
    struct zt_attention how = ZT_ATTENTION(.causal = decodes);

    how.mask = decodes ? NULL : in[1];
    h = attend(s, l, &l->self, h, h, false, how);
    h = join(s, net, &x, h, l->self.norm, decodes ? l->cross.norm : l->norm);
    if (decodes) {
        h = attend(s, l, &l->cross, h, in[2], true, ZT_ATTENTION(.mask = in[1]));
        h = join(s, net, &x, h, l->cross.norm, l->norm);
    }
    h = feed(s, l, h);
    out[0] = first ? zt_add(s, x, h) : apply_norm(s, zt_add(s, x, h), l->norm);
}

/* in: x (B, S, D) -> out: its norm */
static void end_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct stack *st = ctx;

    out[0] = apply_norm(s, in[0], st->norm);
}

/* in: x (B, T, D), targets (B, T) or NULL -> out: summed loss, or logits (B, R, V) */
static void head_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct bart *net = ctx;
    zt_tensor *bias = zt_reshape(s, zt_weight(s, net->logits_bias), ZT_SHAPE(net->vocab));
    zt_tensor *x = in[0];

    if (kinds[net->kind].norms_first)
        x = apply_norm(s, x, net->decoder.norm);
    out[0] = zt_lm_head_bias(s, x, zt_weight(s, net->shared), bias, in[1]);
}

/* source (B, S), mask (B, 1, 1, S) -> memory (B, S, D) */
static zt_tensor *encode(zt_step *s, struct bart *net, zt_tensor *source, zt_tensor *mask)
{
    struct stack *st = &net->encoder;
    zt_tensor *io[2] = {source, mask};

    zt_block_call(s, st->begin, begin_forward, st, io, 1, io, 1);
    for (int i = 0; i < st->num_layers; i++)
        zt_block_call(s, st->layers[i].block, layer_forward, &st->layers[i], io, 2, io,
                      1);
    if (st->end)
        zt_block_call(s, st->end, end_forward, st, io, 1, io, 1);
    return io[0];
}

static zt_tensor *forward(zt_step *s, void *self, const zt_batch *b)
{
    struct bart *net = self;
    struct stack *st = &net->decoder;
    zt_tensor *source = zt_batch_field(s, b, ZT_SOURCE);
    zt_tensor *io[3] = {zt_batch_field(s, b, ZT_TOKENS), NULL, NULL};

    if (source) { /* else the passes before have read it */
        io[1] = zt_length_bias(s, zt_batch_field(s, b, ZT_SOURCE_LENGTHS), 1,
                               zt_tensor_dim(source, 1));
        io[2] = encode(s, net, source, io[1]);
    }
    zt_block_call(s, st->begin, begin_forward, st, io, 1, io, 1);
    for (int i = 0; i < st->num_layers; i++)
        zt_block_call(s, st->layers[i].block, layer_forward, &st->layers[i], io, 3, io,
                      1);
    io[1] = zt_batch_field(s, b, ZT_TARGETS);
    zt_block_call(s, net->head, head_forward, net, io, 2, io, 1);
    return io[0];
}

ZT_PLUGIN(.name = "bart",
          .summary = "BART and BlenderBot: encoder-decoders, learned positions",
          .options = options, .build = build, .forward = forward,
          .flags = ZT_PLUGIN_CACHED | ZT_PLUGIN_CACHED_SOURCE,
          .tasks = ZT_CAN(ZT_TASK_SEQ2SEQ));
