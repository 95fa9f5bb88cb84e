/*
 * bert.c -- BERT (Devlin et al. 2018) as a zlaunch plugin: masked language model, classes or
 * numbers of texts and of pairs of texts, classes of words.
 *
 *     x = LayerNorm(word[token] + position[i] + type[s])
 *     for each layer:  x = LayerNorm(x + dense(attention(x)))      padding is hidden
 *                      x = LayerNorm(x + dense(gelu(dense(x))))
 *     masked_lm:          logits = LayerNorm(gelu(dense(x))) word^T + bias
 *     classify, regress:  logits = classifier(tanh(pooler(x of the first token)))
 *     tag:                logits = classifier(x)
 *
 * Names, shapes and initial values are Hugging Face's; matrices are (out, in).
 * Comments give shapes: B rows, T tokens, D width, H heads, L labels, V vocabulary.
 */
#include "bert_config.h"

struct bert_layer {
    const struct bert *net;
    zt_block *block;
    struct encoder_linear query, key, value, attn_out, attn_norm, inner, out, out_norm;
};

struct bert {
    struct bert_config c;
    zt_block *embed;
    zt_param *word, *position, *type;
    struct encoder_linear embed_norm;
    struct encoder_head head;
    struct bert_layer layers[]; /* (num_layers) */
};

/* ---- parameters ---- */

static zt_param *matrix(const struct bert *net, zt_block *b, const char *name,
                        int64_t rows, int64_t columns, unsigned flags)
{
    return zt_block_param(b, name, ZT_SHAPE(rows, columns),
                          ZT_NORMAL(0, (float)net->c.deviation), flags);
}

static struct encoder_linear norm(const struct bert *net, zt_block *b, const char *name,
                                  unsigned flags)
{
    return encoder_norm(b, name, net->c.width, flags);
}

static struct encoder_linear dense(const struct bert *net, zt_block *b, const char *name,
                                   int64_t in, int64_t out, unsigned flags)
{
    return encoder_dense(b, name, in, out, net->c.deviation, flags);
}

static struct encoder_linear layer_norm(const struct bert_layer *l, int i,
                                        const char *part)
{
    char name[96];

    snprintf(name, sizeof(name), "bert.encoder.layer.%d.%s", i, part);
    return norm(l->net, l->block, name, 0);
}

static struct encoder_linear layer_dense(const struct bert_layer *l, int i,
                                         const char *part, int64_t in, int64_t out)
{
    char name[96];

    snprintf(name, sizeof(name), "bert.encoder.layer.%d.%s", i, part);
    return dense(l->net, l->block, name, in, out, 0);
}

static void build_layer(zt_model *m, struct bert *net, int i)
{
    struct bert_layer *l = &net->layers[i];
    int64_t D = net->c.width, F = net->c.inner;
    char name[32];

    snprintf(name, sizeof(name), "layer.%d", i);
    l->net = net;
    l->block = zt_model_block(m, name);
    l->query = layer_dense(l, i, "attention.self.query", D, D);
    l->key = layer_dense(l, i, "attention.self.key", D, D);
    l->value = layer_dense(l, i, "attention.self.value", D, D);
    l->attn_out = layer_dense(l, i, "attention.output.dense", D, D);
    l->attn_norm = layer_norm(l, i, "attention.output.LayerNorm");
    l->inner = layer_dense(l, i, "intermediate.dense", D, F);
    l->out = layer_dense(l, i, "output.dense", F, D);
    l->out_norm = layer_norm(l, i, "output.LayerNorm");
}

static void build_lm_head(zt_model *m, struct bert *net)
{
    encoder_lm_head(m, &net->head, net->word, net->c.width, net->c.width, net->c.vocab,
                    net->c.tied, net->c.deviation);
    zt_model_ignore_weights(m, "cls.seq_relationship.*");
    zt_model_ignore_weights(m, "*pooler.dense.*");
    zt_model_ignore_weights(m, "classifier.*");
}

static void build_classifier(zt_model *m, struct bert *net)
{
    int64_t D = net->c.width;

    if (net->c.task == ZT_TASK_TAG)
        zt_model_ignore_weights(m, "*pooler.dense.*");
    else
        net->head.pooler =
            dense(net, net->head.block, "bert.pooler.dense", D, D, ZT_EXTRA);
    net->head.classifier =
        dense(net, net->head.block, "classifier", D, net->c.labels, ZT_EXTRA);
    zt_model_ignore_weights(m, "cls.*");
}

static zt_err build(zt_model *m, void **self)
{
    struct bert_config c = {.task = ZT_TASK_MASKED_LM};
    zt_err rc = read_config(m, &c);
    struct bert *net;

    if (rc)
        return rc;
    net = calloc(1, sizeof(*net) + (size_t)c.num_layers * sizeof(net->layers[0]));
    if (!net)
        return zt_model_fail(m, "no memory for %lld layers", (long long)c.num_layers);
    net->c = c;
    *self = net;

    net->embed = zt_model_block(m, "embed");
    net->word = matrix(net, net->embed, "bert.embeddings.word_embeddings.weight", c.vocab,
                       c.width, 0);
    net->position = matrix(net, net->embed, "bert.embeddings.position_embeddings.weight",
                           c.positions, c.width, 0);
    net->type = matrix(net, net->embed, "bert.embeddings.token_type_embeddings.weight",
                       c.types, c.width, 0);
    net->embed_norm = norm(net, net->embed, "bert.embeddings.LayerNorm", 0);
    for (int i = 0; i < c.num_layers; i++)
        build_layer(m, net, i);
    net->head =
        (struct encoder_head){.task = c.task,
                              .block = zt_model_block(m, "head"),
                              .activation = c.activation,
                              .pooler_activation = encoder_activation_named("tanh"),
                              .drop = c.head_drop,
                              .eps = c.eps};
    if (c.task == ZT_TASK_MASKED_LM)
        build_lm_head(m, net);
    else
        build_classifier(m, net);
    zt_model_ignore_weights(m, "*embeddings.position_ids"); /* 0, 1, ... in older files */

    encoder_fields(m, c.pad, true);
    zt_model_set_hidden_size(m, c.width);
    zt_model_set_max_tokens(m, c.positions);
    zt_model_set_vocab(m, c.vocab);
    export_config(m, &c);
    return zt_model_status(m);
}

/* ---- forward ---- */

/* in: tokens (B, T), types (B, T) or NULL, positions (B, T) or NULL -> out: x (B, T, D) */
static void embed_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct bert *net = ctx;
    zt_tensor *positions = in[2] ? in[2] : zt_positions(s, zt_tensor_dim(in[0], 1));
    zt_tensor *x = zt_embedding(s, in[0], zt_weight(s, net->word));

    x = add_types(s, x, in[1], net->type);
    x = zt_add(s, x, zt_embedding(s, positions, zt_weight(s, net->position)));
    x = apply_norm(s, x, net->embed_norm, net->c.eps);
    out[0] = zt_dropout(s, x, (float)net->c.drop);
}

/* in: x (B, T, D), lengths (B), begins and ends of samples that share rows (B, T) or NULL ->
 * out: x (B, T, D) */
static void layer_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct bert_layer *l = ctx;
    const struct bert *net = l->net;
    int64_t B = zt_tensor_dim(in[0], 0), T = zt_tensor_dim(in[0], 1);
    int64_t H = net->c.heads, D = net->c.width;
    struct zt_attention how =
        ZT_ATTENTION(.bias = in[2]
                                 ? NULL
                                 : zt_length_bias(s, in[1], T, T), /* padding is hidden */
                     .dropout = (float)net->c.attn_drop, .key_begin = in[2],
                     .key_end = in[3]);
    zt_tensor *x = in[0], *h;
    zt_tensor *q = zt_reshape(s, apply(s, x, l->query, 0), ZT_SHAPE(B, T, H, D / H));
    zt_tensor *k = zt_reshape(s, apply(s, x, l->key, 0), ZT_SHAPE(B, T, H, D / H));
    zt_tensor *v = zt_reshape(s, apply(s, x, l->value, 0), ZT_SHAPE(B, T, H, D / H));

    h = zt_reshape(s, zt_attention(s, q, k, v, &how), ZT_SHAPE(B, T, D));
    h = zt_dropout(s, apply(s, h, l->attn_out, 0), (float)net->c.drop);
    x = add_norm(s, x, h, l->attn_norm, net->c.eps);
    h = apply(s, activate(s, x, l->inner, net->c.activation), l->out, 0);
    h = zt_dropout(s, h, (float)net->c.drop);
    out[0] = add_norm(s, x, h, l->out_norm, net->c.eps);
}

static zt_tensor *forward(zt_step *s, void *self, const zt_batch *b)
{
    struct bert *net = self;
    struct bert_layer *l = net->layers;
    zt_tensor *lengths = zt_batch_field(s, b, ZT_LENGTHS), *x;
    zt_tensor *begin = zt_batch_field(s, b, ZT_SEGMENT_BEGIN);
    zt_tensor *end = zt_batch_field(s, b, ZT_SEGMENT_END);

    x = zt_batch_field(s, b, ZT_TOKENS);
    zt_block_call(s, net->embed, embed_forward, net,
                  (zt_tensor *[]){x, zt_batch_field(s, b, ZT_TOKEN_TYPES),
                                  zt_batch_field(s, b, ZT_POSITIONS)},
                  3, &x, 1);
    for (int i = 0; i < net->c.num_layers; i++)
        zt_block_call(s, l[i].block, layer_forward, &l[i],
                      (zt_tensor *[]){x, lengths, begin, end}, 4, &x, 1);
    return encoder_result(s, &net->head, x, b);
}

ZT_PLUGIN(.name = "bert", .summary = "BERT: encoder, for masked tokens, classes and tags",
          .options = options, .build = build, .forward = forward, .tasks = ENCODER_TASKS);
