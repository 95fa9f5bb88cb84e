/*
 * deberta.c -- DeBERTa v2 and v3 (He et al. 2020, 2021) as a zlaunch plugin: masked language
 * model, classes or numbers of texts and of pairs of texts, classes of words.
 *
 *     x = LayerNorm(word[token])                v2 may add word[i] by position and by type
 *     for each layer:  x = LayerNorm(x + dense(attention(x)))      padding is hidden
 *                      x = LayerNorm(x + dense(gelu(dense(x))))
 *     masked_lm:          logits = LayerNorm(gelu(dense(x))) word^T + bias
 *     classify, regress:  logits = classifier(gelu(pooler(x of the first token)))
 *     tag:                logits = classifier(x)
 *
 * Attention is disentangled: a table of relative positions, one row for each bucket of
 * distances, has keys and queries of its own, and the score of query i and key j is
 *
 *     (q_i k_j + q_i kr[d] + k_j qr[d]) / sqrt(3 h),      d = bucket(i - j)
 *
 * with kr and qr the projections of the table by the maps of keys and queries (share_att_key) or
 * by others. Of the table the rows that the distances of a batch meet are computed, no more.
 * The large sizes of v2 add a convolution of the embeddings to the first layer.
 *
 * Names, shapes and initial values are Hugging Face's; matrices are (out, in).
 * Comments give shapes: B rows, T tokens, D width, H heads, h their width, R rows of the table
 * of relative positions that distances of T tokens meet, L labels, V vocabulary.
 */
#include <math.h>

#include "deberta_config.h"

struct deberta_layer {
    const struct deberta *net;
    zt_block *block;
    struct encoder_linear query, key, value, attn_out, attn_norm, inner, out, out_norm;
    struct encoder_linear relative_key,
        relative_query;                    /* those of key and query if shared */
    struct encoder_linear conv, conv_norm; /* of the first layer, or none */
};

struct deberta {
    struct deberta_config c;
    zt_block *embed;
    zt_param *word, *position, *type, *relative; /* NULL: it has none */
    struct encoder_linear embed_proj, embed_norm, relative_norm;
    struct encoder_head head;
    struct deberta_layer layers[]; /* (num_layers) */
};

/* ---- parameters ---- */

static zt_param *matrix(const struct deberta *net, zt_block *b, const char *name,
                        int64_t rows, int64_t columns)
{
    return zt_block_param(b, name, ZT_SHAPE(rows, columns),
                          ZT_NORMAL(0, (float)net->c.deviation), 0);
}

static struct encoder_linear norm(const struct deberta *net, zt_block *b,
                                  const char *name)
{
    return encoder_norm(b, name, net->c.width, 0);
}

static struct encoder_linear dense(const struct deberta *net, zt_block *b,
                                   const char *name, int64_t in, int64_t out,
                                   unsigned flags)
{
    return encoder_dense(b, name, in, out, net->c.deviation, flags);
}

static struct encoder_linear layer_norm(const struct deberta_layer *l, int i,
                                        const char *part)
{
    char name[96];

    snprintf(name, sizeof(name), "deberta.encoder.layer.%d.%s", i, part);
    return norm(l->net, l->block, name);
}

static struct encoder_linear layer_dense(const struct deberta_layer *l, int i,
                                         const char *part, int64_t in, int64_t out)
{
    char name[96];

    snprintf(name, sizeof(name), "deberta.encoder.layer.%d.%s", i, part);
    return dense(l->net, l->block, name, in, out, 0);
}

/* The maps of the table of relative positions to keys and queries. */
static void build_relative(struct deberta_layer *l, int i)
{
    const struct deberta_config *c = &l->net->c;
    int64_t D = c->width;

    l->relative_key = l->key;
    l->relative_query = l->query;
    if (c->share_key || !c->relative)
        return;
    if (c->by_query)
        l->relative_key = layer_dense(l, i, "attention.self.pos_key_proj", D, D);
    if (c->by_key)
        l->relative_query = layer_dense(l, i, "attention.self.pos_query_proj", D, D);
}

static void build_conv(const struct deberta *net, struct deberta_layer *l)
{
    int64_t D = net->c.width;

    l->conv.w = zt_block_param(l->block, "deberta.encoder.conv.conv.weight",
                               ZT_SHAPE(D, D, net->c.conv_kernel),
                               ZT_NORMAL(0, (float)net->c.deviation), 0);
    l->conv.b = zt_block_param(l->block, "deberta.encoder.conv.conv.bias", ZT_SHAPE(D),
                               ZT_ZEROS(), ZT_NO_DECAY);
    l->conv_norm = norm(net, l->block, "deberta.encoder.conv.LayerNorm");
}

static void build_layer(zt_model *m, struct deberta *net, int i)
{
    struct deberta_layer *l = &net->layers[i];
    int64_t D = net->c.width, F = net->c.inner;
    char name[32];

    snprintf(name, sizeof(name), "layer.%d", i);
    l->net = net;
    l->block = zt_model_block(m, name);
    l->query = layer_dense(l, i, "attention.self.query_proj", D, D);
    l->key = layer_dense(l, i, "attention.self.key_proj", D, D);
    l->value = layer_dense(l, i, "attention.self.value_proj", D, D);
    build_relative(l, i);
    l->attn_out = layer_dense(l, i, "attention.output.dense", D, D);
    l->attn_norm = layer_norm(l, i, "attention.output.LayerNorm");
    l->inner = layer_dense(l, i, "intermediate.dense", D, F);
    l->out = layer_dense(l, i, "output.dense", F, D);
    l->out_norm = layer_norm(l, i, "output.LayerNorm");
    if (i == 0 && net->c.conv_kernel)
        build_conv(net, l);
}

static void build_embeddings(zt_model *m, struct deberta *net)
{
    const struct deberta_config *c = &net->c;
    int64_t E = c->embedding, D = c->width;
    zt_block *b = net->embed = zt_model_block(m, "embed");

    net->word = matrix(net, b, "deberta.embeddings.word_embeddings.weight", c->vocab, E);
    if (c->absolute)
        net->position = matrix(net, b, "deberta.embeddings.position_embeddings.weight",
                               c->positions, E);
    else
        zt_model_ignore_weights(m, "*embeddings.position_embeddings.weight");
    if (c->types)
        net->type = matrix(net, b, "deberta.embeddings.token_type_embeddings.weight",
                           c->types, E);
    if (E != D)
        net->embed_proj.w = matrix(net, b, "deberta.embeddings.embed_proj.weight", D, E);
    net->embed_norm = norm(net, b, "deberta.embeddings.LayerNorm");
    if (c->relative)
        net->relative = matrix(net, b, "deberta.encoder.rel_embeddings.weight",
                               2 * (c->buckets ? c->buckets : c->max_distance), D);
    if (c->norm_relative)
        net->relative_norm = norm(net, b, "deberta.encoder.LayerNorm");
    zt_model_ignore_weights(m, "*embeddings.position_ids"); /* 0, 1, ... in older files */
}

/* The one that transformers calls legacy, which is BERT's. */
static void build_legacy_head(zt_model *m, struct deberta *net)
{
    const struct deberta_config *c = &net->c;

    encoder_lm_head(m, &net->head, net->word, c->width, c->embedding, c->vocab, c->tied,
                    c->deviation);
    zt_model_ignore_weights(m, "lm_predictions.*");
}

/* The head of the published weights: always over the embedding. */
static void build_lm_head(zt_model *m, struct deberta *net)
{
    int64_t D = net->c.width;

    net->head.transform =
        dense(net, net->head.block, "lm_predictions.lm_head.dense", D, D, ZT_EXTRA);
    net->head.transform_norm =
        encoder_norm(net->head.block, "lm_predictions.lm_head.LayerNorm", D, ZT_EXTRA);
    net->head.lm_head.w = net->word;
    zt_block_share(net->head.block, net->word);
    net->head.lm_head.b =
        zt_block_param(net->head.block, "lm_predictions.lm_head.bias",
                       ZT_SHAPE(net->c.vocab), ZT_ZEROS(), ZT_EXTRA | ZT_NO_DECAY);
    zt_model_ignore_weights(m, "cls.*");
}

static void build_head(zt_model *m, struct deberta *net)
{
    int64_t D = net->c.width;

    net->head = (struct encoder_head){.task = net->c.task,
                                      .block = zt_model_block(m, "head"),
                                      .activation = net->c.activation,
                                      .pooler_activation = net->c.pooler_activation,
                                      .pooler_drop = net->c.pooler_drop,
                                      .drop = net->c.head_drop,
                                      .eps = net->c.eps};
    zt_model_ignore_weights(m, "mask_predictions.*"); /* of the training of v3 */
    if (net->c.task == ZT_TASK_MASKED_LM) {
        (net->c.legacy ? build_legacy_head : build_lm_head)(m, net);
        zt_model_ignore_weights(m, "pooler.dense.*");
        zt_model_ignore_weights(m, "classifier.*");
        return;
    }
    if (net->c.task == ZT_TASK_TAG)
        zt_model_ignore_weights(m, "pooler.dense.*");
    else
        net->head.pooler = dense(net, net->head.block, "pooler.dense", D, D, ZT_EXTRA);
    net->head.classifier =
        dense(net, net->head.block, "classifier", D, net->c.labels, ZT_EXTRA);
    zt_model_ignore_weights(m, "cls.*");
    zt_model_ignore_weights(m, "lm_predictions.*");
}

static zt_err build(zt_model *m, void **self)
{
    struct deberta_config c = {.task = ZT_TASK_MASKED_LM};
    int64_t block = zt_model_block_size(m);
    zt_err rc = read_config(m, &c);
    struct deberta *net;

    if (rc)
        return rc;
    net = calloc(1, sizeof(*net) + (size_t)c.num_layers * sizeof(net->layers[0]));
    if (!net)
        return zt_model_fail(m, "no memory for %lld layers", (long long)c.num_layers);
    net->c = c;
    *self = net;

    build_embeddings(m, net);
    for (int i = 0; i < c.num_layers; i++)
        build_layer(m, net, i);
    build_head(m, net);

    encoder_fields(m, c.pad, !c.conv_kernel); /* it would see across samples of a row */
    zt_model_set_hidden_size(m, c.width);
    /* without absolute positions no text is too long: distances far off share a bucket */
    zt_model_set_max_tokens(m, c.absolute || block < c.positions ? c.positions : block);
    zt_model_set_vocab(m, c.vocab);
    export_config(m, &c);
    return zt_model_status(m);
}

/* ---- relative positions ---- */

/*
 * The row of the table for query - key: distances up to half of the buckets have one each,
 * those above share the other half, in ranges that grow by one factor. In fp32, as
 * transformers computes it: it decides at the borders of buckets.
 */
static int64_t row_of(const struct deberta_config *c, int64_t distance)
{
    int64_t span = c->buckets ? c->buckets : c->max_distance, mid = c->buckets / 2;
    int64_t far = distance < 0 ? -distance : distance, row = distance;

    if (c->buckets && far > mid) {
        float of_range = logf((float)far / (float)mid) /
                         logf((float)((double)(c->max_distance - 1) / (double)mid));

        far = (int64_t)(ceilf(of_range * (float)(mid - 1)) + (float)mid);
        row = distance < 0 ? -far : far;
    }
    row += span;
    return row < 0 ? 0 : row < 2 * span ? row : 2 * span - 1;
}

/* The rows that distances of T tokens meet: the first, and how many. */
static int64_t first_row(const struct deberta_config *c, int64_t T)
{
    return row_of(c, 1 - T);
}

static int64_t num_rows(const struct deberta_config *c, int64_t T)
{
    return row_of(c, T - 1) - first_row(c, T) + 1;
}

/* x (N, T, H, h) or (R, H, h), viewed as (H, N * T or R, h): a matrix for each head. */
static zt_tensor *by_head(zt_step *s, const struct deberta *net, zt_tensor *x)
{
    int64_t H = net->c.heads;

    x = zt_reshape(s, x, ZT_SHAPE(-1, H, net->c.width / H));
    return zt_transpose(s, x, 0, 1);
}

/* What x (B, T, H, h) gives with each row of the table, of which `rows` (R, D) are the
 * projections: (H, B, T, R). */
static zt_tensor *by_distance(zt_step *s, const struct deberta *net, zt_tensor *x,
                              zt_tensor *rows)
{
    int64_t B = zt_tensor_dim(x, 0), T = zt_tensor_dim(x, 1);
    int64_t R = zt_tensor_dim(rows, 0);

    rows = zt_transpose(s, by_head(s, net, rows), 1, 2);
    x = zt_matmul(s, by_head(s, net, x), rows);
    return zt_reshape(s, x, ZT_SHAPE(net->c.heads, B, T, R));
}

/* q and k (B, T, H, h), table (R, D) -> what positions add to scores, (B, H, T, T) */
static zt_tensor *relative_bias(zt_step *s, const struct deberta_layer *l, zt_tensor *q,
                                zt_tensor *k, zt_tensor *table, float scale)
{
    const struct deberta *net = l->net;
    const struct deberta_config *c = &net->c;
    int64_t T = zt_tensor_dim(q, 1);
    int32_t *row = malloc((size_t)(2 * T) * sizeof(*row));
    zt_tensor *by_query = NULL, *by_key = NULL, *bias;

    if (!row)
        return NULL; /* which ends the pass */
    for (int64_t i = 0; i < 2 * T - 1; i++)
        row[i] = (int32_t)(row_of(c, i - (T - 1)) - first_row(c, T));
    table = zt_dropout_shared(s, table, (float)c->drop);
    if (c->by_query)
        by_query = by_distance(s, net, q, apply(s, table, l->relative_key, 0));
    if (c->by_key)
        by_key = by_distance(s, net, k, apply(s, table, l->relative_query, 0));
    bias = zt_distance_bias(s, by_query, by_key, row, 2 * T - 1, scale);
    free(row);
    return bias;
}

/* ---- forward ---- */

/* 1 for tokens, 0 for padding: (B, T, D) */
static zt_tensor *mask_of(zt_step *s, zt_tensor *lengths, int64_t T, int64_t D)
{
    int64_t B = zt_tensor_dim(lengths, 0);
    float one = 1, *ones = malloc((size_t)D * sizeof(*ones));
    zt_tensor *mask = zt_length_bias(s, lengths, 1, T), *row;

    for (int64_t i = 0; ones && i < D; i++)
        ones[i] = 1;
    row = ones ? zt_constant(s, zt_compute_dtype(s), ZT_SHAPE(D, 1), ones) : NULL;
    free(ones);
    mask = zt_reshape(s, mask, ZT_SHAPE(B, T, 1)); /* 0, and far below it */
    mask = zt_relu(s, zt_add(s, mask, zt_constant(s, ZT_F32, ZT_SHAPE(1), &one)));
    return zt_linear(s, zt_cast(s, mask, zt_compute_dtype(s)), row, NULL, 0);
}

/* in: tokens (B, T), types (B, T) or NULL, positions (B, T) or NULL, lengths (B) -> out:
 * x (B, T, D), and with relative attention rows of the table of positions (R, D) */
static void embed_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct deberta *net = ctx;
    const struct deberta_config *c = &net->c;
    int64_t T = zt_tensor_dim(in[0], 1);
    zt_tensor *lengths = in[3], *positions = in[2] ? in[2] : zt_positions(s, T);
    zt_tensor *x = zt_embedding(s, in[0], zt_weight(s, net->word)), *rows;

    if (net->position)
        x = zt_add(s, x, zt_embedding(s, positions, zt_weight(s, net->position)));
    if (net->type)
        x = add_types(s, x, in[1], net->type);
    if (net->embed_proj.w)
        x = apply(s, x, net->embed_proj, 0);
    x = apply_norm(s, x, net->embed_norm, c->eps);
    if (c->conv_kernel) /* which would see padding */
        x = zt_mul(s, x, mask_of(s, lengths, T, c->width));
    out[0] = zt_dropout(s, x, (float)c->drop);
    if (!c->relative)
        return;
    rows = zt_slice(s, zt_weight(s, net->relative), 0, first_row(c, T), num_rows(c, T));
    out[1] = c->norm_relative ? apply_norm(s, rows, net->relative_norm, c->eps)
                              : zt_scale(s, rows, 1);
}

/*
 * A convolution along tokens, with zeros beyond both ends: x (B, T, D) -> (B, T, D). The
 * neighbours of a token become one long row, and the weights (D, D, kernel) a matrix in the
 * same order.
 */
static zt_tensor *convolve(zt_step *s, const struct deberta_layer *l, zt_tensor *x)
{
    int64_t B = zt_tensor_dim(x, 0), T = zt_tensor_dim(x, 1), D = zt_tensor_dim(x, 2);
    int64_t kernel = l->net->c.conv_kernel, beyond = (kernel - 1) / 2;
    float *zeros = calloc((size_t)(B * beyond * D) + 1, sizeof(*zeros));
    zt_tensor *pieces[255], *pad, *w = zt_weight(s, l->conv.w);

    if (!zeros)
        return NULL; /* which ends the pass */
    if (beyond) {
        pad = zt_constant(s, zt_compute_dtype(s), ZT_SHAPE(B, beyond, D), zeros);
        x = zt_concat(s, 1, (zt_tensor *[]){pad, x, pad}, 3);
    }
    free(zeros);
    for (int64_t i = 0; i < kernel; i++)
        pieces[i] = zt_slice(s, x, 1, i, T);
    x = zt_concat(s, 2, pieces, (int)kernel); /* (B, T, kernel * D) */
    w = zt_reshape(s, zt_contiguous(s, zt_transpose(s, w, 1, 2)),
                   ZT_SHAPE(D, kernel * D));
    return zt_linear(s, x, w, zt_weight(s, l->conv.b), 0);
}

/* What the first layer returns, x, with the convolution of what it read. */
static zt_tensor *add_conv(zt_step *s, const struct deberta_layer *l, zt_tensor *read,
                           zt_tensor *x)
{
    const struct deberta_config *c = &l->net->c;
    zt_tensor *h = zt_dropout(s, convolve(s, l, read), (float)c->drop);

    return add_norm(s, x, c->conv_activation->apply(s, h), l->conv_norm, c->eps);
}

/* x (B, T, D) -> (B, T, D): what attention adds; in[1] ... as of layer_forward */
static zt_tensor *attend(zt_step *s, const struct deberta_layer *l, zt_tensor **in)
{
    const struct deberta_config *c = &l->net->c;
    zt_tensor *x = in[0], *lengths = in[2], *begin = in[3], *end = in[4];
    int64_t B = zt_tensor_dim(x, 0), T = zt_tensor_dim(x, 1), H = c->heads, D = c->width;
    float scale = 1 / sqrtf((float)(D / H * (1 + c->by_query + c->by_key)));
    struct zt_attention how =
        ZT_ATTENTION(.mask =
                         begin ? NULL
                               : zt_length_bias(s, lengths, 1, T), /* padding is hidden */
                     .dropout = (float)c->attn_drop, .scale = scale, .key_begin = begin,
                     .key_end = end);
    zt_tensor *q = zt_reshape(s, apply(s, x, l->query, 0), ZT_SHAPE(B, T, H, D / H));
    zt_tensor *k = zt_reshape(s, apply(s, x, l->key, 0), ZT_SHAPE(B, T, H, D / H));
    zt_tensor *v = zt_reshape(s, apply(s, x, l->value, 0), ZT_SHAPE(B, T, H, D / H));

    if (c->relative)
        how.bias = relative_bias(s, l, q, k, in[1], scale);
    x = zt_reshape(s, zt_attention(s, q, k, v, &how), ZT_SHAPE(B, T, D));
    return zt_dropout(s, apply(s, x, l->attn_out, 0), (float)c->drop);
}

/* in: x (B, T, D), rows of the table (R, D) or NULL, lengths (B), begins and ends of samples
 * that share rows (B, T) or NULL -> out: x (B, T, D) */
static void layer_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct deberta_layer *l = ctx;
    const struct deberta_config *c = &l->net->c;
    zt_tensor *read = in[0], *h = attend(s, l, in);
    zt_tensor *x = add_norm(s, read, h, l->attn_norm, c->eps);

    h = apply(s, activate(s, x, l->inner, c->activation), l->out, 0);
    h = zt_dropout(s, h, (float)c->drop);
    x = add_norm(s, x, h, l->out_norm, c->eps);
    out[0] = l->conv.w ? add_conv(s, l, read, x) : x;
}

static zt_tensor *forward(zt_step *s, void *self, const zt_batch *b)
{
    struct deberta *net = self;
    struct deberta_layer *l = net->layers;
    zt_tensor *lengths = zt_batch_field(s, b, ZT_LENGTHS);
    zt_tensor *begin = NULL, *end = NULL, *positions = NULL, *x[2] = {NULL};

    if (!net->c.conv_kernel) {
        begin = zt_batch_field(s, b, ZT_SEGMENT_BEGIN);
        end = zt_batch_field(s, b, ZT_SEGMENT_END);
        positions = zt_batch_field(s, b, ZT_POSITIONS);
    }
    zt_block_call(s, net->embed, embed_forward, net,
                  (zt_tensor *[]){zt_batch_field(s, b, ZT_TOKENS),
                                  zt_batch_field(s, b, ZT_TOKEN_TYPES), positions,
                                  lengths},
                  4, x, net->c.relative ? 2 : 1);
    for (int i = 0; i < net->c.num_layers; i++)
        zt_block_call(s, l[i].block, layer_forward, &l[i],
                      (zt_tensor *[]){x[0], x[1], lengths, begin, end}, 5, x, 1);
    return encoder_result(s, &net->head, x[0], b);
}

ZT_PLUGIN(.name = "deberta",
          .summary = "DeBERTa v2 and v3: encoder, for masked tokens, classes and tags",
          .options = options, .build = build, .forward = forward, .tasks = ENCODER_TASKS);
