/*
 * encoder.h -- what the plugins of encoders share: tasks with their fields, heads and losses,
 * activations by name, and parameters by name.
 *
 * Comments give shapes: B rows, T tokens, D width, L labels.
 */
#ifndef MODELS_ENCODER_H
#define MODELS_ENCODER_H

#include "settings.h"

#define ENCODER_DROPOUT                                                                  \
    {                                                                                    \
        .name = "dropout", .kind = ZT_OPT_FLOAT, .value = "P", .def = "0.1",             \
        .max = 0.99,                                                                     \
        .help = "of embeddings, attention, residual branches and the classifier; "       \
                "without it what the config.json of weights says"                        \
    }

struct encoder_linear {
    zt_param *w, *b; /* weight and bias of a linear map or a norm; b NULL: it has none */
};

/* Sizes that do not go together are an error of the config.json or of the options. */
static inline zt_err encoder_check_sizes(zt_model *m, int64_t width, int64_t heads,
                                         int64_t pad, int64_t vocab)
{
    if (width % heads)
        return zt_model_fail(m,
                             "hidden_size %lld is not a multiple of num_attention_heads "
                             "%lld",
                             (long long)width, (long long)heads);
    if (pad < 0 || pad >= vocab)
        return zt_model_fail(m, "pad_token_id %lld is not below vocab_size %lld",
                             (long long)pad, (long long)vocab);
    return zt_model_status(m);
}

/* ---- activations ---- */

struct encoder_activation {
    const char *name;
    unsigned flag; /* of zt_linear(); 0: it has none */
    zt_tensor *(*apply)(zt_step *s, zt_tensor *x);
};

static const struct encoder_activation encoder_activations[] = {
    {"gelu", ZT_GELU_ERF, zt_gelu_erf},
    {"gelu_new", ZT_GELU_TANH, zt_gelu},
    {"gelu_pytorch_tanh", ZT_GELU_TANH, zt_gelu},
    {"relu", 0, zt_relu},
    {"tanh", 0, zt_tanh},
};

/* The first one where no other has the name. */
static inline const struct encoder_activation *encoder_activation_named(const char *name)
{
    size_t i = sizeof(encoder_activations) / sizeof(encoder_activations[0]);

    while (--i > 0 && strcmp(encoder_activations[i].name, name) != 0)
        ;
    return &encoder_activations[i];
}

/* The one that `key` of config.json names; another one is refused by its name. */
static inline const struct encoder_activation *imported_activation(zt_model *m,
                                                                   const char *key,
                                                                   const char *def)
{
    const char *name = zt_model_config_string(m, key, def);

    zt_model_config_must(m, key,
                         "[\"gelu\", \"gelu_new\", \"gelu_pytorch_tanh\", \"relu\", "
                         "\"tanh\"]");
    return encoder_activation_named(name);
}

/* ---- parameters ---- */

static inline struct encoder_linear encoder_norm(zt_block *b, const char *name,
                                                 int64_t width, unsigned flags)
{
    char w[128], bias[128];

    snprintf(w, sizeof(w), "%s.weight", name);
    snprintf(bias, sizeof(bias), "%s.bias", name);
    flags |= ZT_NO_DECAY;
    return (struct encoder_linear){
        zt_block_param(b, w, ZT_SHAPE(width), ZT_ONES(), flags),
        zt_block_param(b, bias, ZT_SHAPE(width), ZT_ZEROS(), flags)};
}

static inline struct encoder_linear encoder_dense(zt_block *b, const char *name,
                                                  int64_t in, int64_t out,
                                                  double deviation, unsigned flags)
{
    char w[128], bias[128];

    snprintf(w, sizeof(w), "%s.weight", name);
    snprintf(bias, sizeof(bias), "%s.bias", name);
    return (struct encoder_linear){
        zt_block_param(b, w, ZT_SHAPE(out, in), ZT_NORMAL(0, (float)deviation), flags),
        zt_block_param(b, bias, ZT_SHAPE(out), ZT_ZEROS(), flags | ZT_NO_DECAY)};
}

/* ---- tasks ---- */

#define ENCODER_TASKS                                                                    \
    (ZT_CAN(ZT_TASK_MASKED_LM) | ZT_CAN(ZT_TASK_CLASSIFY) | ZT_CAN(ZT_TASK_REGRESS) |    \
     ZT_CAN(ZT_TASK_TAG))

static inline bool is_per_row(zt_task task)
{
    return task == ZT_TASK_CLASSIFY || task == ZT_TASK_REGRESS;
}

/* 1 of a number, else as many as the data or id2label say, or 2. */
static inline int64_t encoder_labels(const zt_model *m)
{
    int64_t labels = zt_model_num_labels(m);

    return zt_model_task(m) == ZT_TASK_REGRESS ? 1 : labels ? labels : 2;
}

/* What is to be learnt, and what its loss is a sum over. `packed`: rows may hold several
 * samples. */
static inline void encoder_fields(zt_model *m, int64_t pad, bool packed)
{
    bool regress = zt_model_task(m) == ZT_TASK_REGRESS;

    zt_model_field(m, ZT_BATCH_FIELD(.name = ZT_TOKENS, .dtype = ZT_I32,
                                     .shape = {ZT_DIM_B, ZT_DIM_T}, .required = true,
                                     .pad = (double)pad));
    zt_model_field(m, ZT_BATCH_FIELD(.name = ZT_TOKEN_TYPES, .dtype = ZT_I32,
                                     .shape = {ZT_DIM_B, ZT_DIM_T}));
    zt_model_field(m, ZT_BATCH_FIELD(.name = ZT_LENGTHS, .dtype = ZT_I32,
                                     .shape = {ZT_DIM_B}, .required = true));
    if (packed) {
        zt_model_packed_fields(m);
        zt_model_field(m, ZT_BATCH_FIELD(.name = ZT_SEGMENT_END, .dtype = ZT_I32,
                                         .shape = {ZT_DIM_B, ZT_DIM_T}));
    }
    if (is_per_row(zt_model_task(m))) {
        zt_model_field(m, ZT_BATCH_FIELD(.name = ZT_LABELS, .shape = {ZT_DIM_B},
                                         .dtype = regress ? ZT_F32 : ZT_I32,
                                         .required = true, .label = true,
                                         .pad = regress ? 0 : ZT_IGNORE_TARGET));
        zt_model_set_loss_divisor(m, ZT_DIVISOR_ROWS, NULL);
    } else {
        zt_model_field(m, ZT_BATCH_FIELD(.name = ZT_TARGETS, .dtype = ZT_I32,
                                         .shape = {ZT_DIM_B, ZT_DIM_T}, .required = true,
                                         .label = true, .pad = ZT_IGNORE_TARGET));
    }
}

/* The head that config.json is of goes with the task. */
static inline void check_problem_type(zt_model *m)
{
    if (zt_model_task(m) == ZT_TASK_CLASSIFY)
        zt_model_config_must(m, "problem_type", "[\"single_label_classification\"]");
    else if (zt_model_task(m) == ZT_TASK_REGRESS)
        zt_model_config_must(m, "problem_type", "[\"regression\"]");
    else
        (void)zt_model_config_string(m, "problem_type", NULL);
}

/* The class of transformers that has the task's head: of "Bert" BertForMaskedLM, ... */
static inline void export_task(zt_model *m, const char *family)
{
    zt_task task = zt_model_task(m);

    zt_model_export(m, "architectures", "[\"%sFor%s\"]", family,
                    task == ZT_TASK_MASKED_LM ? "MaskedLM"
                    : task == ZT_TASK_TAG     ? "TokenClassification"
                                              : "SequenceClassification");
    if (task == ZT_TASK_REGRESS)
        zt_model_export(m, "problem_type", "\"regression\"");
    else if (task == ZT_TASK_CLASSIFY)
        zt_model_export(m, "problem_type", "\"single_label_classification\"");
}

/* ---- forward ---- */

static inline zt_tensor *apply(zt_step *s, zt_tensor *x, struct encoder_linear p,
                               unsigned flags)
{
    return zt_linear(s, x, zt_weight(s, p.w), p.b ? zt_weight(s, p.b) : NULL, flags);
}

/* act(W x + b) */
static inline zt_tensor *activate(zt_step *s, zt_tensor *x, struct encoder_linear p,
                                  const struct encoder_activation *act)
{
    x = apply(s, x, p, act->flag);
    return act->flag ? x : act->apply(s, x);
}

static inline zt_tensor *apply_norm(zt_step *s, zt_tensor *x, struct encoder_linear p,
                                    double eps)
{
    return zt_layernorm(s, x, zt_weight(s, p.w), zt_weight(s, p.b), (float)eps);
}

/* LayerNorm(x + y) */
static inline zt_tensor *add_norm(zt_step *s, zt_tensor *x, zt_tensor *y,
                                  struct encoder_linear p, double eps)
{
    return zt_add_layernorm(s, x, y, zt_weight(s, p.w), zt_weight(s, p.b), (float)eps,
                            &x);
}

/* x (B, T, D) with the row of `table` (types, D) for each token's type; without types all are
 * of type 0. */
static inline zt_tensor *add_types(zt_step *s, zt_tensor *x, zt_tensor *types,
                                   zt_param *table_of_types)
{
    zt_tensor *table = zt_weight(s, table_of_types);

    if (types)
        return zt_add(s, x, zt_embedding(s, types, table));
    table = zt_reshape(s, zt_slice(s, table, 0, 0, 1), ZT_SHAPE(zt_tensor_dim(x, -1)));
    return zt_add(s, x, table);
}

/* ---- heads ---- */

struct encoder_head {
    zt_task task;
    zt_block *block;
    struct encoder_linear transform, transform_norm, lm_head; /* of masked tokens */
    struct encoder_linear pooler, classifier;                 /* of the other tasks */
    const struct encoder_activation *activation, *pooler_activation;
    double pooler_drop, drop; /* of what pooler and classifier read */
    double eps;
};

/*
 * The head of masked tokens, from `width` to the `embedding` width of `word`, which is the
 * output matrix where they are tied: a folder may hold either name of its bias then.
 */
static inline void encoder_lm_head(zt_model *m, struct encoder_head *h, zt_param *word,
                                   int64_t width, int64_t embedding, int64_t vocab,
                                   bool tied, double deviation)
{
    zt_block *b = h->block;

    h->transform = encoder_dense(b, "cls.predictions.transform.dense", width, embedding,
                                 deviation, ZT_EXTRA);
    h->transform_norm =
        encoder_norm(b, "cls.predictions.transform.LayerNorm", embedding, ZT_EXTRA);
    if (!tied) {
        h->lm_head = encoder_dense(b, "cls.predictions.decoder", embedding, vocab,
                                   deviation, ZT_EXTRA);
        zt_model_ignore_weights(m, "cls.predictions.bias"); /* nothing reads it there */
        return;
    }
    h->lm_head.w = word;
    zt_block_share(b, word);
    zt_param_twin(m, word, "cls.predictions.decoder.weight");
    h->lm_head.b = zt_block_param(b, "cls.predictions.bias", ZT_SHAPE(vocab), ZT_ZEROS(),
                                  ZT_EXTRA | ZT_NO_DECAY);
    zt_param_twin(m, h->lm_head.b, "cls.predictions.decoder.bias");
}

/* in: x (B, T, D), targets (B, T) or NULL -> out: summed loss, or logits (B, T, V) */
static inline void encoder_lm_forward(zt_step *s, void *ctx, zt_tensor **in,
                                      zt_tensor **out)
{
    const struct encoder_head *h = ctx;
    zt_tensor *x = activate(s, in[0], h->transform, h->activation);

    x = apply_norm(s, x, h->transform_norm, h->eps);
    x = apply(s, x, h->lm_head, ZT_OUTPUT_HEAD);
    out[0] = in[1] ? zt_cross_entropy(s, x, in[1]) : x;
}

/* x (..., D) -> (..., L) */
static inline zt_tensor *classify(zt_step *s, const struct encoder_head *h, zt_tensor *x)
{
    x = apply(s, zt_dropout(s, x, (float)h->drop), h->classifier, ZT_OUTPUT_HEAD);
    zt_step_result(s, ZT_LOGITS, x);
    return x;
}

/* in: x (B, T, D), targets (B, T) or NULL -> out: summed loss, or logits (B, T, L) */
static inline void encoder_tag_forward(zt_step *s, void *ctx, zt_tensor **in,
                                       zt_tensor **out)
{
    zt_tensor *x = classify(s, ctx, in[0]);

    out[0] = in[1] ? zt_cross_entropy(s, x, in[1]) : x;
}

/* Sum of squared errors of rows that hold data: others have no tokens. */
static inline zt_tensor *regression_loss(zt_step *s, zt_tensor *x, zt_tensor *labels,
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
static inline void encoder_pooled_forward(zt_step *s, void *ctx, zt_tensor **in,
                                          zt_tensor **out)
{
    const struct encoder_head *h = ctx;
    int64_t B = zt_tensor_dim(in[0], 0), T = zt_tensor_dim(in[0], 1);
    zt_tensor *x =
        zt_reshape(s, zt_slice(s, in[0], 1, 0, 1), ZT_SHAPE(B, zt_tensor_dim(in[0], 2)));

    x = zt_dropout(s, x, (float)h->pooler_drop);
    x = classify(s, h, activate(s, x, h->pooler, h->pooler_activation));
    if (!in[1])
        out[0] = x;
    else if (h->task == ZT_TASK_REGRESS)
        out[0] = regression_loss(s, x, in[1], in[2], T);
    else
        out[0] = zt_cross_entropy(s, x, in[1]);
}

/* x (B, T, D), the last layer's -> what `forward` returns of this batch */
static inline zt_tensor *encoder_result(zt_step *s, struct encoder_head *h, zt_tensor *x,
                                        const zt_batch *b)
{
    bool per_row = is_per_row(h->task);
    zt_tensor *labels = zt_batch_field(s, b, per_row ? ZT_LABELS : ZT_TARGETS);
    zt_block_fn fn = per_row                  ? encoder_pooled_forward
                     : h->task == ZT_TASK_TAG ? encoder_tag_forward
                                              : encoder_lm_forward;

    zt_block_call(
        s, h->block, fn, h,
        (zt_tensor *[]){x, labels, per_row ? zt_batch_field(s, b, ZT_LENGTHS) : NULL},
        per_row ? 3 : 2, &x, 1);
    return x;
}

#endif
