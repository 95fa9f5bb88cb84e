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
#include <stdio.h>
#include <stdlib.h>

#include <zlaunch/plugin.h>

#include "bert_config.h"

struct bert_linear {
    zt_param *w, *b; /* weight and bias of a linear map or a norm */
};

struct bert_layer {
    const struct bert *net;
    zt_block *block;
    struct bert_linear query, key, value, attn_out, attn_norm, inner, out, out_norm;
};

struct bert {
    struct bert_config c;
    zt_block *embed, *head;
    zt_param *word, *position, *type;
    struct bert_linear embed_norm;
    struct bert_linear pooler, classifier; /* of the other tasks than masked_lm */
    struct bert_linear transform, transform_norm, lm_head; /* of masked_lm */
    struct bert_layer layers[];                            /* (num_layers) */
};

/* ---- parameters ---- */

static zt_param *matrix(const struct bert *net, zt_block *b, const char *name,
                        int64_t rows, int64_t columns, unsigned flags)
{
    return zt_block_param(b, name, ZT_SHAPE(rows, columns),
                          ZT_NORMAL(0, (float)net->c.deviation), flags);
}

static struct bert_linear norm(const struct bert *net, zt_block *b, const char *name,
                               unsigned flags)
{
    char w[128], bias[128];

    snprintf(w, sizeof(w), "%s.weight", name);
    snprintf(bias, sizeof(bias), "%s.bias", name);
    flags |= ZT_NO_DECAY;
    return (struct bert_linear){
        zt_block_param(b, w, ZT_SHAPE(net->c.width), ZT_ONES(), flags),
        zt_block_param(b, bias, ZT_SHAPE(net->c.width), ZT_ZEROS(), flags)};
}

static struct bert_linear dense(const struct bert *net, zt_block *b, const char *name,
                                int64_t in, int64_t out, unsigned flags)
{
    char w[128], bias[128];

    snprintf(w, sizeof(w), "%s.weight", name);
    snprintf(bias, sizeof(bias), "%s.bias", name);
    return (struct bert_linear){
        matrix(net, b, w, out, in, flags),
        zt_block_param(b, bias, ZT_SHAPE(out), ZT_ZEROS(), flags | ZT_NO_DECAY)};
}

static struct bert_linear layer_norm(const struct bert_layer *l, int i, const char *part)
{
    char name[96];

    snprintf(name, sizeof(name), "bert.encoder.layer.%d.%s", i, part);
    return norm(l->net, l->block, name, 0);
}

static struct bert_linear layer_dense(const struct bert_layer *l, int i, const char *part,
                                      int64_t in, int64_t out)
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

/* The output head is the embedding where they are tied, and a folder may hold either name of
 * its bias. */
static void build_lm_head(zt_model *m, struct bert *net)
{
    int64_t D = net->c.width, V = net->c.vocab;

    net->transform =
        dense(net, net->head, "cls.predictions.transform.dense", D, D, ZT_EXTRA);
    net->transform_norm =
        norm(net, net->head, "cls.predictions.transform.LayerNorm", ZT_EXTRA);
    if (net->c.tied) {
        net->lm_head.w = net->word;
        zt_block_share(net->head, net->word);
        zt_param_twin(m, net->word, "cls.predictions.decoder.weight");
        net->lm_head.b = zt_block_param(net->head, "cls.predictions.bias", ZT_SHAPE(V),
                                        ZT_ZEROS(), ZT_EXTRA | ZT_NO_DECAY);
        zt_param_twin(m, net->lm_head.b, "cls.predictions.decoder.bias");
    } else {
        net->lm_head = dense(net, net->head, "cls.predictions.decoder", D, V, ZT_EXTRA);
        zt_model_ignore_weights(m, "cls.predictions.bias"); /* nothing reads it there */
    }
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
        net->pooler = dense(net, net->head, "bert.pooler.dense", D, D, ZT_EXTRA);
    net->classifier = dense(net, net->head, "classifier", D, net->c.labels, ZT_EXTRA);
    zt_model_ignore_weights(m, "cls.*");
}

/* What is to be learnt, and what its loss is a sum over. */
static void declare_fields(zt_model *m, const struct bert *net)
{
    bool per_row = net->c.task == ZT_TASK_CLASSIFY || net->c.task == ZT_TASK_REGRESS;

    zt_model_field(m, ZT_BATCH_FIELD(.name = ZT_TOKENS, .dtype = ZT_I32,
                                     .shape = {ZT_DIM_B, ZT_DIM_T}, .required = true,
                                     .pad = (double)net->c.pad));
    zt_model_field(m, ZT_BATCH_FIELD(.name = ZT_TOKEN_TYPES, .dtype = ZT_I32,
                                     .shape = {ZT_DIM_B, ZT_DIM_T}));
    zt_model_field(m, ZT_BATCH_FIELD(.name = ZT_LENGTHS, .dtype = ZT_I32,
                                     .shape = {ZT_DIM_B}, .required = true));
    zt_model_packed_fields(m);
    zt_model_field(m, ZT_BATCH_FIELD(.name = ZT_SEGMENT_END, .dtype = ZT_I32,
                                     .shape = {ZT_DIM_B, ZT_DIM_T}));
    if (per_row) {
        zt_model_field(
            m,
            ZT_BATCH_FIELD(.name = ZT_LABELS, .shape = {ZT_DIM_B},
                           .dtype = net->c.task == ZT_TASK_REGRESS ? ZT_F32 : ZT_I32,
                           .required = true, .label = true,
                           .pad = net->c.task == ZT_TASK_REGRESS ? 0 : ZT_IGNORE_TARGET));
        zt_model_set_loss_divisor(m, ZT_DIVISOR_ROWS, NULL);
    } else {
        zt_model_field(m, ZT_BATCH_FIELD(.name = ZT_TARGETS, .dtype = ZT_I32,
                                         .shape = {ZT_DIM_B, ZT_DIM_T}, .required = true,
                                         .label = true, .pad = ZT_IGNORE_TARGET));
    }
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
    net->head = zt_model_block(m, "head");
    if (c.task == ZT_TASK_MASKED_LM)
        build_lm_head(m, net);
    else
        build_classifier(m, net);
    zt_model_ignore_weights(m, "*embeddings.position_ids"); /* 0, 1, ... in older files */

    declare_fields(m, net);
    zt_model_set_hidden_size(m, c.width);
    zt_model_set_max_tokens(m, c.positions);
    zt_model_set_vocab(m, c.vocab);
    export_config(m, &c);
    return zt_model_status(m);
}

/* ---- forward ---- */

static zt_tensor *apply(zt_step *s, zt_tensor *x, struct bert_linear p, unsigned flags)
{
    return zt_linear(s, x, zt_weight(s, p.w), zt_weight(s, p.b), flags);
}

/* LayerNorm(x + y) */
static zt_tensor *add_norm(zt_step *s, const struct bert *net, zt_tensor *x, zt_tensor *y,
                           struct bert_linear p)
{
    return zt_add_layernorm(s, x, y, zt_weight(s, p.w), zt_weight(s, p.b),
                            (float)net->c.eps, &x);
}

/* act(W x + b) */
static zt_tensor *activate(zt_step *s, const struct bert *net, zt_tensor *x,
                           struct bert_linear p)
{
    x = apply(s, x, p, net->c.activation);
    return net->c.activation ? x : zt_relu(s, x);
}

/* Of the type of each token; without types all are of type 0. */
static zt_tensor *add_types(zt_step *s, const struct bert *net, zt_tensor *x,
                            zt_tensor *types)
{
    zt_tensor *table = zt_weight(s, net->type);

    if (types)
        return zt_add(s, x, zt_embedding(s, types, table));
    table = zt_reshape(s, zt_slice(s, table, 0, 0, 1), ZT_SHAPE(net->c.width));
    return zt_add(s, x, table);
}

/* in: tokens (B, T), types (B, T) or NULL, positions (B, T) or NULL -> out: x (B, T, D) */
static void embed_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct bert *net = ctx;
    zt_tensor *positions = in[2] ? in[2] : zt_positions(s, zt_tensor_dim(in[0], 1));
    zt_tensor *x = zt_embedding(s, in[0], zt_weight(s, net->word));

    x = add_types(s, net, x, in[1]);
    x = zt_add(s, x, zt_embedding(s, positions, zt_weight(s, net->position)));
    x = zt_layernorm(s, x, zt_weight(s, net->embed_norm.w),
                     zt_weight(s, net->embed_norm.b), (float)net->c.eps);
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
    x = add_norm(s, net, x, h, l->attn_norm);
    h = apply(s, activate(s, net, x, l->inner), l->out, 0);
    h = zt_dropout(s, h, (float)net->c.drop);
    out[0] = add_norm(s, net, x, h, l->out_norm);
}

/* in: x (B, T, D), targets (B, T) or NULL -> out: summed loss, or logits (B, T, V) */
static void lm_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct bert *net = ctx;
    zt_tensor *x = activate(s, net, in[0], net->transform);

    x = zt_layernorm(s, x, zt_weight(s, net->transform_norm.w),
                     zt_weight(s, net->transform_norm.b), (float)net->c.eps);
    x = apply(s, x, net->lm_head, ZT_OUTPUT_HEAD);
    out[0] = in[1] ? zt_cross_entropy(s, x, in[1]) : x;
}

/* x (B, T, D) -> (B, T, L) */
static zt_tensor *classify(zt_step *s, const struct bert *net, zt_tensor *x)
{
    x = zt_dropout(s, x, (float)net->c.head_drop);
    x = apply(s, x, net->classifier, ZT_OUTPUT_HEAD);
    zt_step_result(s, ZT_LOGITS, x);
    return x;
}

/* in: x (B, T, D), targets (B, T) or NULL -> out: summed loss, or logits (B, T, L) */
static void tag_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    zt_tensor *x = classify(s, ctx, in[0]);

    out[0] = in[1] ? zt_cross_entropy(s, x, in[1]) : x;
}

/* Sum of squared errors of rows that hold data: others have no tokens. */
static zt_tensor *regression_loss(zt_step *s, zt_tensor *x, zt_tensor *labels,
                                  zt_tensor *lengths, int64_t T)
{
    int64_t B = zt_tensor_dim(x, 0);
    float *values = calloc((size_t)T + 1, sizeof(*values));
    zt_tensor *holds = NULL;

    for (int64_t i = 1; values && i <= T; i++)
        values[i] = 1;
    if (values) /* 0 of no tokens, else 1: (B) */
        holds =
            zt_embedding(s, lengths, zt_constant(s, ZT_F32, ZT_SHAPE(T + 1, 1), values));
    free(values);
    x = zt_cast(s, x, ZT_F32);
    x = zt_mul(s, zt_reshape(s, x, ZT_SHAPE(B)), zt_reshape(s, holds, ZT_SHAPE(B)));
    return zt_squared_error(s, x, labels);
}

/* in: x (B, T, D), labels (B) or NULL, lengths (B) -> out: summed loss, or logits (B, L) */
static void pooled_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct bert *net = ctx;
    int64_t B = zt_tensor_dim(in[0], 0), T = zt_tensor_dim(in[0], 1);
    zt_tensor *x = zt_reshape(s, zt_slice(s, in[0], 1, 0, 1), ZT_SHAPE(B, net->c.width));

    x = classify(s, net, zt_tanh(s, apply(s, x, net->pooler, 0)));
    if (!in[1])
        out[0] = x;
    else if (net->c.task == ZT_TASK_REGRESS)
        out[0] = regression_loss(s, x, in[1], in[2], T);
    else
        out[0] = zt_cross_entropy(s, x, in[1]);
}

static zt_tensor *forward(zt_step *s, void *self, const zt_batch *b)
{
    struct bert *net = self;
    struct bert_layer *l = net->layers;
    zt_task task = net->c.task;
    zt_tensor *lengths = zt_batch_field(s, b, ZT_LENGTHS), *labels, *x;
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
    if (task == ZT_TASK_MASKED_LM || task == ZT_TASK_TAG) {
        labels = zt_batch_field(s, b, ZT_TARGETS);
        zt_block_call(s, net->head, task == ZT_TASK_TAG ? tag_forward : lm_forward, net,
                      (zt_tensor *[]){x, labels}, 2, &x, 1);
    } else {
        labels = zt_batch_field(s, b, ZT_LABELS);
        zt_block_call(s, net->head, pooled_forward, net,
                      (zt_tensor *[]){x, labels, lengths}, 3, &x, 1);
    }
    return x;
}

ZT_PLUGIN(.name = "bert", .summary = "BERT: encoder, for masked tokens, classes and tags",
          .options = options, .build = build, .forward = forward,
          .tasks = ZT_CAN(ZT_TASK_MASKED_LM) | ZT_CAN(ZT_TASK_CLASSIFY) |
                   ZT_CAN(ZT_TASK_REGRESS) | ZT_CAN(ZT_TASK_TAG));
