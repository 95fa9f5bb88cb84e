/*
 * attention.c -- softmax(q k^T + ...) v.
 *
 * q, k and v are often slices of one packed tensor; their gradients then are slices of
 * one packed gradient, written once each.
 */
#include <math.h>

#include "worker/autograd/abi.h"
#include "worker/autograd/tape.h"

enum { Q, K, V, BIAS, OUT, LSE, KEY_BEGIN, KEY_END, MASK, NUM_SAVED };

/* Keys that query i sees; `begin` and `end` have the limits of its row, or are NULL. */
static int64_t visible_keys(const struct zt_attention_args *a, int64_t i,
                            const int32_t *begin, const int32_t *end)
{
    int64_t Tq = a->q.shape[1], Tk = a->k.shape[1];
    int64_t last = a->causal ? i + Tk - Tq + 1 : Tk; /* one past it */
    int64_t first = a->window ? i + Tk - Tq - a->window + 1 : 0;

    last = last > Tk ? Tk : last;
    first = first < 0 ? 0 : first;
    last = end && end[i] < last ? end[i] : last;
    first = begin && begin[i] > first ? begin[i] : first;
    return last > first ? last - first : 0;
}

/*
 * Scores that are computed: pairs of a query and a key it sees, of one head of all rows. The
 * limits of keys are counted where the host can read them, else it is as if there were none.
 */
static double visible_pairs(const struct zt_step *s, const struct zt_attention_args *a)
{
    int64_t B = a->q.shape[0], Tq = a->q.shape[1], pairs = 0;
    const int32_t *begin = a->key_begin.data, *end = a->key_end.data;
    bool limited =
        (begin || end) && s->cfg.backend->unified && s->cfg.backend->runs_on_processor;

    for (int64_t b = 0; b < (limited ? B : 1); b++)
        for (int64_t i = 0; i < Tq; i++)
            pairs += visible_keys(a, i, limited && begin ? begin + b * Tq : NULL,
                                  limited && end ? end + b * Tq : NULL);
    return (double)(limited ? pairs : pairs * B);
}

/* Two products forward, four backward (repeating the scores does not count). */
static void count_flops(struct zt_step *s, const struct zt_attention_args *a,
                        int num_products)
{
    double per_product =
        2 * visible_pairs(s, a) * (double)a->q.shape[2] * (double)a->q.shape[3];

    if (!s->recomputing)
        s->flops += num_products * per_product;
}

/* One sink each for q, k, v and bias; no two of them write to the same memory. */
static void open_sinks(struct zt_step *s, struct zt_node *n, bool split,
                       struct zt_grad_sink d[4])
{
    for (int i = Q; i <= BIAS; i++) {
        bool apart = false, wanted;

        for (int j = Q; j < i && n->in[i] && !split; j++)
            apart |= n->in[j] && n->in[j]->store == n->in[i]->store;
        wanted = apart ? zt_grad_sink_open_apart(s, &d[i], n->in[i])
                       : zt_grad_sink_open(s, &d[i], n->in[i], ZT_SINK_SAME);
        if (!wanted && i != BIAS) /* the kernel writes all three */
            zt_grad_sink_open_discarded(s, &d[i], n->saved[i]);
    }
}

static void attention_backward(struct zt_step *s, struct zt_node *n)
{
    struct zt_attention_bwd_args a = {.fwd = *(struct zt_attention_args *)n->attr,
                                      .any_order = s->cfg.any_order};
    struct zt_grad_sink d[4];
    bool split = zt_grad_split(s, n->in, 3);

    a.fwd.q = zt_data(n->saved[Q]);
    a.fwd.k = zt_data(n->saved[K]);
    a.fwd.v = zt_data(n->saved[V]);
    a.fwd.out = zt_data(n->saved[OUT]);
    a.fwd.lse = zt_data(n->saved[LSE]);
    if (n->saved[BIAS])
        a.fwd.bias = zt_data(n->saved[BIAS]);
    if (n->saved[KEY_BEGIN])
        a.fwd.key_begin = zt_data(n->saved[KEY_BEGIN]);
    if (n->saved[KEY_END])
        a.fwd.key_end = zt_data(n->saved[KEY_END]);
    if (n->saved[MASK])
        a.fwd.mask = zt_data(n->saved[MASK]);
    a.dout = zt_grad_of(n->out);
    open_sinks(s, n, split, d);
    a.dq = d[Q].view;
    a.dk = d[K].view;
    a.dv = d[V].view;
    a.dbias = d[BIAS].view;
    a.accumulate_q = d[Q].accumulate && !split;
    a.accumulate_k = d[K].accumulate && !split;
    a.accumulate_v = d[V].accumulate && !split;
    a.accumulate_bias = d[BIAS].accumulate;
    if (!s->fault.code) {
        count_flops(s, &a.fwd, 4);
        zt_step_check(s, s->k->attention_bwd(s->cfg.device, NULL, &a, &s->fault));
    }
    for (int i = 0; i < 4; i++)
        zt_grad_sink_close(s, &d[i]);
}

static const struct zt_op op_attention = {"attention", attention_backward};

static bool check_bias(struct zt_step *s, const char *name, const struct zt_tensor *bias,
                       zt_dtype most, const struct zt_view *q, int64_t Tk)
{
    const int64_t *d = bias->view.shape;

    if (bias->view.ndim != 4 || (d[0] != 1 && d[0] != q->shape[0]) ||
        (d[1] != 1 && d[1] != q->shape[2]) || d[2] != q->shape[1] || d[3] != Tk ||
        bias->view.dtype > most)
        zt_step_fail(s, ZT_E_ARG,
                     "%s %s %s, but %s(1 or %lld, 1 or %lld, %lld, %lld) is wanted", name,
                     ZT_SHAPE_TEXT(bias), zt_dtype_name(bias->view.dtype),
                     most == ZT_F32 ? "fp32 " : "", (long long)q->shape[0],
                     (long long)q->shape[2], (long long)q->shape[1], (long long)Tk);
    return !s->fault.code;
}

/* `limit` is NULL, or has a number for each query. */
static bool check_limit(struct zt_step *s, const char *name,
                        const struct zt_tensor *limit, const struct zt_view *q)
{
    if (limit &&
        (limit->view.ndim != 2 || limit->view.dtype != ZT_I32 ||
         limit->view.shape[0] != q->shape[0] || limit->view.shape[1] != q->shape[1]))
        zt_step_fail(s, ZT_E_ARG, "%s %s %s, but (%lld, %lld) i32 is wanted", name,
                     ZT_SHAPE_TEXT(limit), zt_dtype_name(limit->view.dtype),
                     (long long)q->shape[0], (long long)q->shape[1]);
    return !s->fault.code;
}

static bool check_attention(struct zt_step *s, const struct zt_tensor *q,
                            const struct zt_tensor *k, const struct zt_tensor *v,
                            const struct zt_attention *opt)
{
    const struct zt_view *a = &q->view, *b = &k->view, *c = &v->view;
    bool ok = a->ndim == 4 && b->ndim == 4 && c->ndim == 4 &&
              a->shape[0] == b->shape[0] && a->shape[3] == b->shape[3] &&
              a->shape[2] % b->shape[2] == 0;

    for (int i = 0; ok && i < 4; i++)
        ok = b->shape[i] == c->shape[i];
    if (!ok)
        zt_step_fail(s, ZT_E_ARG, "q %s, k %s, v %s", ZT_SHAPE_TEXT(q), ZT_SHAPE_TEXT(k),
                     ZT_SHAPE_TEXT(v));
    else if (a->dtype != b->dtype || a->dtype != c->dtype || a->dtype > ZT_F16)
        zt_step_fail(s, ZT_E_ARG, "q is %s, k %s, v %s", zt_dtype_name(a->dtype),
                     zt_dtype_name(b->dtype), zt_dtype_name(c->dtype));
    else if (opt->window < 0 || (opt->window > 0 && !opt->causal))
        zt_step_fail(s, ZT_E_ARG, "a window of %lld %s", (long long)opt->window,
                     opt->causal ? "tokens" : "needs causal attention");
    else if (!(opt->dropout >= 0 && opt->dropout < 1))
        zt_step_fail(s, ZT_E_ARG, "dropout %g is not in [0, 1)", (double)opt->dropout);
    return check_limit(s, "key_begin", opt->key_begin, a) &&
           check_limit(s, "key_end", opt->key_end, a) && !s->fault.code;
}

/* Whether keys and values of earlier tokens come first: the pass generates text from them. */
static bool reads_cache(struct zt_step *s, const struct zt_tensor *q,
                        const struct zt_tensor *k, const struct zt_attention *opt)
{
    if (!zt_cache_is_used(s) || !opt->causal)
        return false;
    if (q->view.shape[1] != k->view.shape[1])
        zt_step_fail(s, ZT_E_UNSUPPORTED,
                     "q %s but k %s: with ZT_PLUGIN_CACHED causal attention has as many "
                     "queries as keys, else it would not see the cached ones",
                     ZT_SHAPE_TEXT(q), ZT_SHAPE_TEXT(k));
    if (opt->key_begin || opt->key_end)
        zt_step_fail(s, ZT_E_UNSUPPORTED,
                     "key_begin and key_end number the keys of this pass, and there are "
                     "cached ones before them: leave both out while text is generated");
    return !s->fault.code;
}

/* Of `rows` rows those that a row of the batch has become: windows of it, as one does. */
static int64_t rows_of_each(struct zt_step *s, int64_t rows)
{
    int64_t B = s->bare ? rows : s->pass.B;

    if (rows % B)
        zt_step_fail(
            s, ZT_E_ARG,
            "dropout in %lld rows, of a batch of %lld: it wants as many for each",
            (long long)rows, (long long)B);
    return rows / B;
}

static struct zt_attention_args arguments(struct zt_step *s, const struct zt_tensor *q,
                                          const struct zt_tensor *k,
                                          const struct zt_tensor *v,
                                          const struct zt_attention *opt)
{
    struct zt_attention_args a = {.q = zt_data(q), .k = zt_data(k), .v = zt_data(v)};

    a.causal = opt->causal;
    a.window = opt->window;
    a.scale = opt->scale != 0 ? opt->scale : 1 / sqrtf((float)a.q.shape[3]);
    if (opt->dropout > 0 && zt_is_training(s)) {
        a.dropout = opt->dropout;
        a.rng = zt_next_random(s, rows_of_each(s, a.q.shape[0]) * a.q.shape[2] *
                                      a.q.shape[1] * a.k.shape[1]);
    }
    return a;
}

/* Rows of a bias may be one and the same, unless they want a gradient each. */
static struct zt_tensor *dense_bias(struct zt_step *s, struct zt_tensor *bias)
{
    return bias->store->requires_grad ? zt_dense(s, bias) : zt_unit_last(s, bias);
}

/* One row of a mask is that of all queries. */
static struct zt_tensor *mask_of_queries(struct zt_step *s, struct zt_tensor *mask,
                                         int64_t Tq)
{
    struct zt_view v;

    mask = zt_unit_last(s, mask);
    if (!mask || mask->view.ndim != 4 || mask->view.shape[2] != 1)
        return mask;
    v = mask->view;
    v.shape[2] = Tq;
    v.stride[2] = 0;
    return zt_value_view(s, mask, 4, v.shape, v.stride, 0);
}

/* The caller's options as this version has them. */
static bool take_options(struct zt_step *s, const struct zt_attention *from,
                         struct zt_attention *to)
{
    uint32_t bytes = from ? from->struct_bytes : 0;

    if (!zt_abi_take(to, sizeof(*to), from, bytes,
                     ZT_ABI_THROUGH(struct zt_attention, dropout))) {
        zt_step_fail(s, ZT_E_PLUGIN,
                     "its options have %u bytes: make them with ZT_ATTENTION()", bytes);
        return false;
    }
    return (!to->bias || zt_operand_is_there(s, "bias", to->bias)) &&
           (!to->mask || zt_operand_is_there(s, "mask", to->mask)) &&
           (!to->key_begin || zt_operand_is_there(s, "key_begin", to->key_begin)) &&
           (!to->key_end || zt_operand_is_there(s, "key_end", to->key_end));
}

zt_tensor *zt_attention(zt_step *s, zt_tensor *q, zt_tensor *k, zt_tensor *v,
                        const struct zt_attention *options)
{
    struct zt_tensor *in[4], *saved[NUM_SAVED] = {NULL};
    struct zt_attention taken = {0}, *opt = &taken;
    struct zt_attention_args a;

    if (!ZT_OP_START(s, "attention", q, k, v) || !take_options(s, options, opt) ||
        !check_attention(s, q, k, v, opt))
        return NULL;
    in[Q] = zt_unit_last(s, q);
    in[K] = zt_unit_last(s, k);
    in[V] = zt_unit_last(s, v);
    if (!s->fault.code && reads_cache(s, q, k, opt)) {
        if (s->pass.T == 1)
            return zt_attention_decode(s, in[Q], in[K], in[V], opt);
        zt_cache_extend(s, &in[K], &in[V]);
    }
    if (!s->fault.code && opt->bias)
        check_bias(s, "bias", opt->bias, ZT_F16, &q->view, in[K]->view.shape[1]);
    if (!s->fault.code && opt->mask)
        saved[MASK] = mask_of_queries(s, opt->mask, q->view.shape[1]);
    if (saved[MASK])
        check_bias(s, "mask", saved[MASK], ZT_F32, &q->view, in[K]->view.shape[1]);
    if (s->fault.code)
        return NULL;
    in[BIAS] = opt->bias ? dense_bias(s, opt->bias) : NULL;
    for (int i = Q; i <= BIAS; i++)
        saved[i] = in[i];
    saved[KEY_BEGIN] = opt->key_begin ? zt_dense(s, opt->key_begin) : NULL;
    saved[KEY_END] = opt->key_end ? zt_dense(s, opt->key_end) : NULL;
    saved[OUT] = zt_value_new(s, q->view.dtype, 4, q->view.shape);
    if (zt_requires_grad(s, in, 4))
        saved[LSE] = zt_value_new(
            s, ZT_F32, 3,
            (int64_t[]){q->view.shape[0], q->view.shape[2], q->view.shape[1]});
    if (s->fault.code)
        return NULL;
    a = arguments(s, in[Q], in[K], in[V], opt);
    if (s->fault.code)
        return NULL;
    a.out = zt_data(saved[OUT]);
    if (saved[LSE])
        a.lse = zt_data(saved[LSE]);
    if (in[BIAS])
        a.bias = zt_data(in[BIAS]);
    if (saved[KEY_BEGIN])
        a.key_begin = zt_data(saved[KEY_BEGIN]);
    if (saved[KEY_END])
        a.key_end = zt_data(saved[KEY_END]);
    if (saved[MASK])
        a.mask = zt_data(saved[MASK]);
    count_flops(s, &a, 2);
    zt_step_check(s, s->k->attention(s->cfg.device, NULL, &a, &s->fault));
    return zt_record(s, &op_attention, saved[OUT], in, 4, saved, NUM_SAVED, &a,
                     sizeof(a));
}
