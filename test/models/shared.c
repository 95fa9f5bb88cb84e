/*
 * shared.c -- a model made of everything that makes blocks awkward to shard and gather.
 *
 *     x = wte[token] + wpe[position]          wpe is frozen in a block that is not
 *     x += a(x)                               owns a matrix that b and c use, too
 *     x += frozen(x); x += twice(x)           all frozen; called again further down
 *     x += b(x); x += silu(x); x += c(x)      silu: a block without parameters
 *     x += twice(x)
 *     logits = norm(x) wte^T                  tied
 *
 * With --unused a parameter of a block that runs, or a whole block, takes no part.
 * B rows, T tokens, D width.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlaunch/plugin.h>

#define EPS 1e-5f

/* The three users of one matrix. */
struct user {
    const struct shared *net;
    zt_block *block;
    zt_param *ln, *bias, *down;
};

struct shared {
    int64_t vocab, positions, width, inner;
    float dropout;
    zt_block *embed, *twice, *frozen, *plain, *head;
    zt_param *wte, *wpe, *up; /* up (inner, D): owned by users[0] */
    struct user users[3];
    zt_param *twice_ln, *twice_w, *frozen_ln, *frozen_w, *head_ln;
};

static const struct zt_option options[] = {
    {.name = "n_embd",
     .kind = ZT_OPT_INT,
     .value = "N",
     .def = "32",
     .min = 1,
     .max = 4096,
     .help = "width of the model"},
    {.name = "n_inner",
     .kind = ZT_OPT_INT,
     .value = "N",
     .def = "96",
     .min = 1,
     .max = 65536,
     .help = "rows of the matrix that is shared"},
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
    {.name = "unused",
     .kind = ZT_OPT_CHOICE,
     .value = "WHAT",
     .def = "both",
     .choices = "none|parameter|block|both",
     .help = "what is declared and never used"},
    {.name = NULL},
};

/* ---- parameters ---- */

static zt_param *vector(zt_block *b, const char *name, int64_t n, struct zt_init init)
{
    return zt_block_param(b, name, ZT_SHAPE(n), init, ZT_NO_DECAY);
}

static zt_param *matrix(zt_block *b, const char *name, int64_t rows, int64_t columns,
                        unsigned flags)
{
    return zt_block_param(b, name, ZT_SHAPE(rows, columns), ZT_NORMAL(0, 0.05f), flags);
}

static void declare_user(zt_model *m, struct shared *net, int i)
{
    static const char *const names[] = {"a", "b", "c"};
    struct user *u = &net->users[i];
    char full[32];

    u->net = net;
    u->block = zt_model_block(m, names[i]);
    snprintf(full, sizeof(full), "%s.ln", names[i]);
    u->ln = vector(u->block, full, net->width, ZT_ONES());
    if (i == 0)
        net->up = matrix(u->block, "a.up", net->inner, net->width, 0);
    else
        zt_block_share(u->block, net->up);
    snprintf(full, sizeof(full), "%s.bias", names[i]);
    u->bias = vector(u->block, full, net->inner, ZT_ZEROS());
    snprintf(full, sizeof(full), "%s.down", names[i]);
    u->down = matrix(u->block, full, net->width, net->inner, 0);
}

static void declare_unused(zt_model *m, const struct shared *net)
{
    const char *what = zt_args_string(zt_model_args(m), "unused");

    if (!strcmp(what, "parameter") || !strcmp(what, "both"))
        matrix(net->users[1].block, "b.unused", 3, net->width, 0);
    if (!strcmp(what, "block") || !strcmp(what, "both"))
        matrix(zt_model_block(m, "unused"), "unused.w", net->width, 5, 0);
}

static void declare(zt_model *m, struct shared *net)
{
    int64_t D = net->width;

    net->embed = zt_model_block(m, "embed");
    net->wte = matrix(net->embed, "embed.wte", net->vocab, D, 0);
    net->wpe = matrix(net->embed, "embed.wpe", net->positions, D, ZT_FROZEN);
    for (int i = 0; i < 3; i++)
        declare_user(m, net, i);
    net->frozen = zt_model_block(m, "frozen");
    net->frozen_ln = zt_block_param(net->frozen, "frozen.ln", ZT_SHAPE(D), ZT_ONES(),
                                    ZT_NO_DECAY | ZT_FROZEN);
    net->frozen_w = matrix(net->frozen, "frozen.w", D, D, ZT_FROZEN);
    net->plain = zt_model_block(m, "plain");
    net->twice = zt_model_block(m, "twice");
    net->twice_ln = vector(net->twice, "twice.ln", D, ZT_ONES());
    net->twice_w = matrix(net->twice, "twice.w", D, D, 0);
    net->head = zt_model_block(m, "head");
    net->head_ln = vector(net->head, "head.ln", D, ZT_ONES());
    zt_block_share(net->head, net->wte);
    declare_unused(m, net);
}

static zt_err build(zt_model *m, void **self)
{
    const zt_args *args = zt_model_args(m);
    struct shared *net = calloc(1, sizeof(*net));

    if (!net)
        return zt_model_fail(m, "no memory");
    *self = net;
    net->vocab = zt_model_data_vocab(m) ? zt_model_data_vocab(m) : 257;
    net->positions = zt_args_int(args, "n_positions");
    net->width = zt_args_int(args, "n_embd");
    net->inner = zt_args_int(args, "n_inner");
    net->dropout = (float)zt_args_float(args, "dropout");
    declare(m, net);
    zt_model_language_fields(m);
    zt_model_set_hidden_size(m, net->width);
    zt_model_set_max_tokens(m, net->positions);
    zt_model_set_vocab(m, net->vocab);
    return zt_model_status(m);
}

/* ---- forward ---- */

/* in: tokens (B, T) -> out: x (B, T, D) */
static void embed_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct shared *net = ctx;
    zt_tensor *at = zt_positions(s, zt_tensor_dim(in[0], 1));

    out[0] = zt_add(s, zt_embedding(s, in[0], zt_weight(s, net->wte)),
                    zt_embedding(s, at, zt_weight(s, net->wpe)));
}

/* in: x (B, T, D) -> out: x + down(gelu(up(norm x) + bias)) */
static void user_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct user *u = ctx;
    zt_tensor *h = zt_rmsnorm(s, in[0], zt_weight(s, u->ln), EPS, 0);

    h = zt_linear(s, h, zt_weight(s, u->net->up), zt_weight(s, u->bias), ZT_GELU_TANH);
    h = zt_linear(s, h, zt_weight(s, u->down), NULL, 0);
    out[0] = zt_add(s, in[0], zt_dropout(s, h, u->net->dropout));
}

/* in: x (B, T, D) -> out: x + tanh(norm(x) w) */
static zt_tensor *add_tanh(zt_step *s, zt_tensor *x, zt_param *ln, zt_param *w)
{
    zt_tensor *h = zt_rmsnorm(s, x, zt_weight(s, ln), EPS, 0);

    return zt_add(s, x, zt_tanh(s, zt_linear(s, h, zt_weight(s, w), NULL, 0)));
}

static void frozen_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct shared *net = ctx;

    out[0] = add_tanh(s, in[0], net->frozen_ln, net->frozen_w);
}

static void twice_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct shared *net = ctx;

    out[0] = add_tanh(s, in[0], net->twice_ln, net->twice_w);
}

static void plain_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    (void)ctx;
    out[0] = zt_add(s, in[0], zt_silu(s, in[0]));
}

/* in: x (B, T, D), targets (B, T) or NULL -> out: summed loss, or logits */
static void head_forward(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    const struct shared *net = ctx;
    zt_tensor *x = zt_rmsnorm(s, in[0], zt_weight(s, net->head_ln), EPS, 0);

    out[0] = zt_lm_head(s, x, zt_weight(s, net->wte), in[1]);
}

static zt_tensor *forward(zt_step *s, void *self, const zt_batch *b)
{
    struct shared *net = self;
    struct user *u = net->users;
    zt_tensor *x = zt_batch_field(s, b, ZT_TOKENS);

    zt_block_call(s, net->embed, embed_forward, net, &x, 1, &x, 1);
    zt_block_call(s, u[0].block, user_forward, &u[0], &x, 1, &x, 1);
    zt_block_call(s, net->frozen, frozen_forward, net, &x, 1, &x, 1);
    zt_block_call(s, net->twice, twice_forward, net, &x, 1, &x, 1);
    zt_block_call(s, u[1].block, user_forward, &u[1], &x, 1, &x, 1);
    zt_block_call(s, net->plain, plain_forward, net, &x, 1, &x, 1);
    zt_block_call(s, u[2].block, user_forward, &u[2], &x, 1, &x, 1);
    zt_block_call(s, net->twice, twice_forward, net, &x, 1, &x, 1);
    zt_block_call(s, net->head, head_forward, net,
                  (zt_tensor *[]){x, zt_batch_field(s, b, ZT_TARGETS)}, 2, &x, 1);
    return x;
}

ZT_PLUGIN(.name = "shared", .summary = "shared, frozen, unused and repeated, for tests",
          .options = options, .build = build, .forward = forward);
