/*
 * encdec.c -- a small encoder-decoder: what a decoder-only model never does to an engine.
 *
 *     memory = encoder(first half of the row)          every position sees every other
 *     x      = decoder(row, memory)                    causal, and looks at the memory
 *     logits = ln_f(x) wte^T
 *
 * The memory goes into every decoder block, so these take two tensors and its gradient is
 * a sum over blocks; the table of tokens belongs to one block and is used by three.
 * B rows, T tokens, S = T / 2 tokens of memory, D width, H heads.
 */
#include <stdio.h>
#include <stdlib.h>

#include <zlaunch/plugin.h>

#define MAX_LAYERS 16
#define EPS        1e-5f

struct attention {
    zt_param *ln_w, *ln_b, *q, *kv, *out;
};

struct ffn {
    zt_param *ln_w, *ln_b, *up, *up_b, *down;
};

struct layer {
    const struct encdec *net;
    zt_block *block;
    struct attention self, cross; /* cross: decoder only */
    struct ffn ffn;
};

struct encdec {
    int64_t vocab, positions, width, heads;
    int num_layers; /* of each half */
    float dropout;
    zt_block *source, *target, *memory, *head;
    zt_param *wte, *source_wpe, *target_wpe;
    zt_param *memory_w, *memory_b, *head_w, *head_b;
    struct layer encoder[MAX_LAYERS], decoder[MAX_LAYERS];
};

static const struct zt_option options[] = {
    {.name = "n_layer",
     .kind = ZT_OPT_INT,
     .value = "N",
     .def = "2",
     .min = 1,
     .max = MAX_LAYERS,
     .help = "blocks of the encoder, and of the decoder"},
    {.name = "n_head",
     .kind = ZT_OPT_INT,
     .value = "N",
     .def = "2",
     .min = 1,
     .max = 64,
     .help = "attention heads; divides n_embd"},
    {.name = "n_embd",
     .kind = ZT_OPT_INT,
     .value = "N",
     .def = "32",
     .min = 1,
     .max = 4096,
     .help = "width of the model"},
    {.name = "n_positions",
     .kind = ZT_OPT_INT,
     .value = "N",
     .def = "64",
     .min = 1,
     .max = 65536,
     .help = "longest sequence"},
    {.name = "dropout",
     .kind = ZT_OPT_FLOAT,
     .value = "P",
     .def = "0",
     .max = 0.99,
     .help = "of the residual branches"},
    {.name = NULL},
};

/* ---- parameters ---- */

static zt_param *vector(zt_block *b, const char *prefix, const char *name, int64_t n,
                        struct zt_init init)
{
    char full[96];

    snprintf(full, sizeof(full), "%s.%s", prefix, name);
    return zt_block_param(b, full, ZT_SHAPE(n), init, ZT_NO_DECAY);
}

static zt_param *matrix(zt_block *b, const char *prefix, const char *name, int64_t rows,
                        int64_t columns)
{
    char full[96];

    snprintf(full, sizeof(full), "%s.%s", prefix, name);
    return zt_block_param(b, full, ZT_SHAPE(rows, columns), ZT_NORMAL(0, 0.05f), 0);
}

static struct attention declare_attention(zt_block *b, const char *layer,
                                          const char *name, int64_t D)
{
    char prefix[64];

    snprintf(prefix, sizeof(prefix), "%s.%s", layer, name);
    return (struct attention){
        .ln_w = vector(b, prefix, "ln.weight", D, ZT_ONES()),
        .ln_b = vector(b, prefix, "ln.bias", D, ZT_ZEROS()),
        .q = matrix(b, prefix, "q.weight", D, D),
        .kv = matrix(b, prefix, "kv.weight", 2 * D, D),
        .out = matrix(b, prefix, "out.weight", D, D),
    };
}

static void declare_layer(zt_model *m, struct encdec *net, struct layer *l,
                          const char *kind, int i)
{
    int64_t D = net->width;
    char name[48];

    snprintf(name, sizeof(name), "%s.%d", kind, i);
    l->net = net;
    l->block = zt_model_block(m, name);
    l->self = declare_attention(l->block, name, "self", D);
    if (*kind == 'd')
        l->cross = declare_attention(l->block, name, "cross", D);
    l->ffn = (struct ffn){
        .ln_w = vector(l->block, name, "ffn.ln.weight", D, ZT_ONES()),
        .ln_b = vector(l->block, name, "ffn.ln.bias", D, ZT_ZEROS()),
        .up = matrix(l->block, name, "ffn.up.weight", 4 * D, D),
        .up_b = vector(l->block, name, "ffn.up.bias", 4 * D, ZT_ZEROS()),
        .down = matrix(l->block, name, "ffn.down.weight", D, 4 * D),
    };
}

static void declare_ends(zt_model *m, struct encdec *net)
{
    int64_t D = net->width;

    net->source = zt_model_block(m, "source");
    net->wte = matrix(net->source, "source", "wte.weight", net->vocab, D);
    net->source_wpe = matrix(net->source, "source", "wpe.weight", net->positions, D);
    net->memory = zt_model_block(m, "memory");
    net->memory_w = vector(net->memory, "memory", "ln.weight", D, ZT_ONES());
    net->memory_b = vector(net->memory, "memory", "ln.bias", D, ZT_ZEROS());
    net->target = zt_model_block(m, "target");
    net->target_wpe = matrix(net->target, "target", "wpe.weight", net->positions, D);
    zt_block_share(net->target, net->wte);
    net->head = zt_model_block(m, "head");
    net->head_w = vector(net->head, "head", "ln.weight", D, ZT_ONES());
    net->head_b = vector(net->head, "head", "ln.bias", D, ZT_ZEROS());
    zt_block_share(net->head, net->wte);
}

static zt_err build(zt_model *m, void **self)
{
    const zt_args *args = zt_model_args(m);
    struct encdec *net = calloc(1, sizeof(*net));

    if (!net)
        return zt_model_fail(m, "no memory");
    *self = net;
    net->vocab = zt_model_data_vocab(m) ? zt_model_data_vocab(m) : 257;
    net->positions = zt_args_int(args, "n_positions");
    net->width = zt_args_int(args, "n_embd");
    net->heads = zt_args_int(args, "n_head");
    net->num_layers = (int)zt_args_int(args, "n_layer");
    net->dropout = (float)zt_args_float(args, "dropout");
    if (net->width % net->heads)
        return zt_model_fail(m, "n_embd %lld is not a multiple of n_head %lld",
                             (long long)net->width, (long long)net->heads);
    declare_ends(m, net);
    for (int i = 0; i < net->num_layers; i++)
        declare_layer(m, net, &net->encoder[i], "encoder", i);
    for (int i = 0; i < net->num_layers; i++)
        declare_layer(m, net, &net->decoder[i], "decoder", i);
    zt_model_language_fields(m);
    zt_model_set_hidden_size(m, net->width);
    zt_model_set_max_tokens(m, net->positions);
    zt_model_set_vocab(m, net->vocab);
    return zt_model_status(m);
}

/* ---- forward ---- */

/* x += out(attention(q(ln x), kv(seen))), `seen` NULL: the normed x itself */
static zt_tensor *attend(zt_step *s, const struct encdec *net, zt_tensor *x,
                         const struct attention *a, zt_tensor *seen, bool causal)
{
    int64_t B = zt_tensor_dim(x, 0), T = zt_tensor_dim(x, 1), H = net->heads;
    int64_t D = net->width;
    struct zt_attention how = ZT_ATTENTION(.causal = causal);
    zt_tensor *h = zt_layernorm(s, x, zt_weight(s, a->ln_w), zt_weight(s, a->ln_b), EPS);
    zt_tensor *from = seen ? seen : h, *q, *kv;
    int64_t S = zt_tensor_dim(from, 1);

    q = zt_linear(s, h, zt_weight(s, a->q), NULL, 0);
    kv = zt_linear(s, from, zt_weight(s, a->kv), NULL, 0);
    q = zt_reshape(s, q, ZT_SHAPE(B, T, H, D / H));
    kv = zt_reshape(s, kv, ZT_SHAPE(B, S, 2 * H, D / H)); /* heads of k, of v */
    h = zt_attention(s, q, zt_slice(s, kv, 2, 0, H), zt_slice(s, kv, 2, H, H), &how);
    h = zt_linear(s, zt_reshape(s, h, ZT_SHAPE(B, T, D)), zt_weight(s, a->out), NULL, 0);
    return zt_add(s, x, zt_dropout(s, h, net->dropout));
}

static zt_tensor *feed(zt_step *s, const struct encdec *net, zt_tensor *x,
                       const struct ffn *f)
{
    zt_tensor *h = zt_layernorm(s, x, zt_weight(s, f->ln_w), zt_weight(s, f->ln_b), EPS);

    h = zt_linear(s, h, zt_weight(s, f->up), zt_weight(s, f->up_b), ZT_GELU_TANH);
    h = zt_linear(s, h, zt_weight(s, f->down), NULL, 0);
    return zt_add(s, x, zt_dropout(s, h, net->dropout));
}

/* tokens (B, T), table of positions -> (B, T, D) */
static zt_tensor *embed(zt_step *s, const struct encdec *net, zt_tensor *tokens,
                        zt_param *wpe)
{
    zt_tensor *at = zt_positions(s, zt_tensor_dim(tokens, 1));

    return zt_add(s, zt_embedding(s, tokens, zt_weight(s, net->wte)),
                  zt_embedding(s, at, zt_weight(s, wpe)));
}

/* in: tokens (B, T) -> out: the first half embedded (B, S, D) */
static void source_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct encdec *net = ctx;
    int64_t T = zt_tensor_dim(in[0], 1);
    zt_tensor *x = embed(s, net, in[0], net->source_wpe);

    out[0] = zt_contiguous(s, zt_slice(s, x, 1, 0, T > 1 ? T / 2 : 1));
}

static void encoder_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct layer *l = ctx;
    zt_tensor *x = attend(s, l->net, in[0], &l->self, NULL, false);

    out[0] = feed(s, l->net, x, &l->ffn);
}

static void memory_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct encdec *net = ctx;

    out[0] = zt_layernorm(s, in[0], zt_weight(s, net->memory_w),
                          zt_weight(s, net->memory_b), EPS);
}

/* in: tokens (B, T) -> out: x (B, T, D) */
static void target_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct encdec *net = ctx;

    out[0] = embed(s, net, in[0], net->target_wpe);
}

/* in: x (B, T, D), memory (B, S, D) -> out: x (B, T, D) */
static void decoder_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct layer *l = ctx;
    zt_tensor *x = attend(s, l->net, in[0], &l->self, NULL, true);

    x = attend(s, l->net, x, &l->cross, in[1], false);
    out[0] = feed(s, l->net, x, &l->ffn);
}

/* in: x (B, T, D), targets (B, T) or NULL -> out: summed loss, or logits */
static void head_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct encdec *net = ctx;
    zt_tensor *x =
        zt_layernorm(s, in[0], zt_weight(s, net->head_w), zt_weight(s, net->head_b), EPS);

    out[0] = zt_lm_head(s, x, zt_weight(s, net->wte), in[1]);
}

static zt_tensor *forward(zt_step *s, void *self, const zt_batch *b)
{
    struct encdec *net = self;
    zt_tensor *tokens = zt_batch_field(s, b, ZT_TOKENS);
    zt_tensor *memory = NULL, *io[2] = {0};

    zt_block_call(s, net->source, source_forward, net, &tokens, 1, &memory, 1);
    for (int i = 0; i < net->num_layers; i++)
        zt_block_call(s, net->encoder[i].block, encoder_forward, &net->encoder[i],
                      &memory, 1, &memory, 1);
    zt_block_call(s, net->memory, memory_forward, net, &memory, 1, &memory, 1);
    zt_block_call(s, net->target, target_forward, net, &tokens, 1, io, 1);
    io[1] = memory;
    for (int i = 0; i < net->num_layers; i++)
        zt_block_call(s, net->decoder[i].block, decoder_forward, &net->decoder[i], io, 2,
                      io, 1);
    io[1] = zt_batch_field(s, b, ZT_TARGETS);
    zt_block_call(s, net->head, head_forward, net, io, 2, io, 1);
    return io[0];
}

ZT_PLUGIN(.name = "encdec", .summary = "a small encoder-decoder, for tests",
          .options = options, .build = build, .forward = forward);
