/*
 * fields.c -- a small encoder that uses what gpt2 does not: fields of its own, constants,
 * a mask, divisors, results, parameters that are extra, frozen or held.
 *
 *     x = wte[token] + sines[position]              sines: a constant
 *     x += attention(norm x), padding hidden        by the field lengths
 *     x += adapter(x)                               extra; with --adapter
 *     logits = norm(x) wte^T                        a result of evaluation
 *
 * Every token sees the whole row, so the loss says how well targets can be copied from the
 * next position. B rows, T tokens, D width, one head.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlaunch/plugin.h>

#define EPS   1e-5f
#define WIDTH 32

struct fields {
    int64_t vocab;
    const char *freeze, *hold;
    zt_block *embed, *layer, *head;
    zt_param *wte, *ln, *qkv, *out, *adapter, *head_ln;
    zt_param *held; /* put back after every step */
    float *values;  /* what it is put back to */
};

static const struct zt_option options[] = {
    {.name = "divisor",
     .kind = ZT_OPT_CHOICE,
     .value = "WHAT",
     .def = "targets",
     .choices = "targets|rows|lengths",
     .help = "what the loss is divided by"},
    {.name = "adapter",
     .kind = ZT_OPT_CHOICE,
     .value = "HOW",
     .def = "none",
     .choices = "none|extra|required",
     .help = "a matrix over the body; extra: weights need not have it"},
    {.name = "need", .kind = ZT_OPT_STRING, .value = "FIELD", .help = "require a field"},
    {.name = "freeze", .kind = ZT_OPT_STRING, .value = "NAME", .help = "ZT_FROZEN"},
    {.name = "hold",
     .kind = ZT_OPT_STRING,
     .value = "NAME",
     .help = "train a parameter, and put it back after every step"},
    {.name = NULL},
};

/* ---- declarations ---- */

static zt_param *declare(struct fields *net, zt_block *b, const char *name, int64_t rows,
                         int64_t columns, unsigned flags)
{
    zt_param *p;

    if (net->freeze && strcmp(name, net->freeze) == 0)
        flags |= ZT_FROZEN;
    if (columns)
        p = zt_block_param(b, name, ZT_SHAPE(rows, columns), ZT_NORMAL(0, 0.1f), flags);
    else
        p = zt_block_param(b, name, ZT_SHAPE(rows), ZT_ONES(), flags | ZT_NO_DECAY);
    if (net->hold && strcmp(name, net->hold) == 0)
        net->held = p;
    return p;
}

static void declare_fields(zt_model *m)
{
    const char *need = zt_args_string(zt_model_args(m), "need");
    const char *divisor = zt_args_string(zt_model_args(m), "divisor");

    zt_model_language_fields(m);
    zt_model_field(m, ZT_BATCH_FIELD(.name = "lengths", .dtype = ZT_I32,
                                     .shape = {ZT_DIM_B}, .required = true));
    zt_model_field(m, ZT_BATCH_FIELD(.name = "images", .dtype = ZT_U8,
                                     .shape = {ZT_DIM_B, 3, 8, 8}));
    if (need)
        zt_model_field(m, ZT_BATCH_FIELD(.name = need, .dtype = ZT_F32,
                                         .shape = {ZT_DIM_B, 4}, .required = true));
    if (strcmp(divisor, "rows") == 0)
        zt_model_set_loss_divisor(m, ZT_DIVISOR_ROWS, NULL);
    else if (strcmp(divisor, "lengths") == 0)
        zt_model_set_loss_divisor(m, ZT_DIVISOR_FIELD_SUM, "lengths");
}

static zt_err build(zt_model *m, void **self)
{
    const zt_args *args = zt_model_args(m);
    const char *adapter = zt_args_string(args, "adapter");
    struct fields *net = calloc(1, sizeof(*net));

    if (!net)
        return zt_model_fail(m, "no memory");
    *self = net;
    net->vocab = zt_model_data_vocab(m) ? zt_model_data_vocab(m) : 257;
    net->freeze = zt_args_string(args, "freeze");
    net->hold = zt_args_string(args, "hold");
    net->embed = zt_model_block(m, "embed");
    net->wte = declare(net, net->embed, "wte", net->vocab, WIDTH, 0);
    net->layer = zt_model_block(m, "layer");
    net->ln = declare(net, net->layer, "ln", WIDTH, 0, 0);
    net->qkv = declare(net, net->layer, "qkv", 3 * WIDTH, WIDTH, 0);
    net->out = declare(net, net->layer, "out", WIDTH, WIDTH, 0);
    if (strcmp(adapter, "none") != 0)
        net->adapter = declare(net, net->layer, "adapter", WIDTH, WIDTH,
                               strcmp(adapter, "extra") ? 0 : ZT_EXTRA);
    net->head = zt_model_block(m, "head");
    net->head_ln = declare(net, net->head, "head_ln", WIDTH, 0, 0);
    zt_block_share(net->head, net->wte);
    declare_fields(m);
    zt_model_set_hidden_size(m, WIDTH);
    zt_model_set_vocab(m, net->vocab);
    return zt_model_status(m);
}

static void release(void *self)
{
    struct fields *net = self;

    if (net)
        free(net->values);
    free(net);
}

/* ---- weights ---- */

static zt_err setup(zt_weights *w, void *self)
{
    struct fields *net = self;
    int64_t n = net->held ? zt_param_numel(net->held) : 0;

    if (!net->held)
        return ZT_OK;
    net->values = calloc((size_t)n, sizeof(*net->values));
    if (!net->values)
        return ZT_E_NOMEM;
    zt_weights_read(w, net->held, 0, n, net->values);
    return ZT_OK;
}

static zt_err after_step(zt_weights *w, void *self, int64_t step)
{
    struct fields *net = self;

    (void)step;
    if (net->held)
        zt_weights_write(w, net->held, 0, zt_param_numel(net->held), net->values);
    return ZT_OK;
}

/* ---- forward ---- */

/* The positions of Vaswani et al. 2017, (T, D) of the compute dtype. */
static zt_tensor *sines(zt_step *s, int64_t T)
{
    float *values = malloc((size_t)(T * WIDTH) * sizeof(*values));
    zt_tensor *t;

    if (!values)
        return NULL;
    for (int64_t i = 0; i < T * WIDTH; i++) {
        double angle =
            (double)(i / WIDTH) * pow(1e4, -(double)(i % WIDTH / 2 * 2) / WIDTH);

        values[i] = (float)(0.1 * (i % 2 ? cos(angle) : sin(angle)));
    }
    t = zt_constant(s, zt_compute_dtype(s), ZT_SHAPE(T, WIDTH), values);
    free(values);
    return t;
}

/* in: tokens (B, T) -> out: x (B, T, D) */
static void embed_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    struct fields *net = ctx;

    out[0] = zt_add(s, zt_embedding(s, in[0], zt_weight(s, net->wte)),
                    sines(s, zt_tensor_dim(in[0], 1)));
}

/* in: x (B, T, D), lengths (B) -> out: x (B, T, D) */
static void layer_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    struct fields *net = ctx;
    int64_t B = zt_tensor_dim(in[0], 0), T = zt_tensor_dim(in[0], 1);
    struct zt_attention how = ZT_ATTENTION(.bias = zt_length_bias(s, in[1], T, T));
    zt_tensor *h = zt_rmsnorm(s, in[0], zt_weight(s, net->ln), EPS, 0), *x;

    h = zt_linear(s, h, zt_weight(s, net->qkv), NULL, 0);
    h = zt_reshape(s, h, ZT_SHAPE(B, T, 3, WIDTH));
    h = zt_attention(s, zt_slice(s, h, 2, 0, 1), zt_slice(s, h, 2, 1, 1),
                     zt_slice(s, h, 2, 2, 1), &how);
    h = zt_reshape(s, h, ZT_SHAPE(B, T, WIDTH));
    x = zt_add(s, in[0], zt_linear(s, h, zt_weight(s, net->out), NULL, 0));
    if (net->adapter)
        x = zt_add(s, x, zt_linear(s, x, zt_weight(s, net->adapter), NULL, 0));
    out[0] = x;
}

/* in: x (B, T, D), targets (B, T) or NULL -> out: the summed loss, or logits */
static void head_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    struct fields *net = ctx;
    zt_tensor *x = zt_rmsnorm(s, in[0], zt_weight(s, net->head_ln), EPS, 0);

    x = zt_linear(s, x, zt_weight(s, net->wte), NULL, 0);
    zt_step_result(s, "logits", x);
    out[0] = in[1] ? zt_cross_entropy(s, x, in[1]) : x;
}

static zt_tensor *forward(zt_step *s, void *self, const zt_batch *b)
{
    struct fields *net = self;
    zt_tensor *x = zt_batch_field(s, b, ZT_TOKENS);

    if (zt_batch_field(s, b, "images"))
        return NULL; /* no data have them */
    zt_block_call(s, net->embed, embed_forward, net, &x, 1, &x, 1);
    zt_block_call(s, net->layer, layer_forward, net,
                  (zt_tensor *[]){x, zt_batch_field(s, b, "lengths")}, 2, &x, 1);
    zt_block_call(s, net->head, head_forward, net,
                  (zt_tensor *[]){x, zt_batch_field(s, b, ZT_TARGETS)}, 2, &x, 1);
    return x;
}

ZT_PLUGIN(.name = "fields", .summary = "fields, constants, masks and flags, for tests",
          .options = options, .build = build, .forward = forward, .release = release,
          .setup = setup, .after_step = after_step);
