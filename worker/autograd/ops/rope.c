/* rope.c -- rotary embedding. */
#include <math.h>

#include "worker/autograd/abi.h"
#include "worker/autograd/tape.h"

void zt_rope_frequencies(float *inv_freq, int rotary_dims, double base)
{
    for (int i = 0; i < rotary_dims / 2; i++)
        inv_freq[i] = (float)pow(base, -2.0 * i / rotary_dims);
}

/* Positions that this pass can have: those before the end of the text so far. */
static int64_t positions_needed(const struct zt_step *s, const struct zt_tensor *x)
{
    int64_t most = x->view.shape[1];

    if (s->pass.T > most)
        most = s->pass.T;
    if (zt_cache_is_used(s) && s->cache.max_tokens > most)
        most = s->cache.max_tokens;
    return most;
}

/* Rows of cos and sin as the kernel takes them. */
static void set_tables(struct zt_rope_args *a, const struct zt_rope_table *t)
{
    const int64_t shape[2] = {t->positions, t->rotary_dims / 2};

    a->rotary_dims = t->rotary_dims;
    a->cos = zt_view_of(t->cos, ZT_F32, 2, shape);
    a->sin = zt_view_of(t->sin, ZT_F32, 2, shape);
}

/* ---- the op ---- */

struct rotation {
    const struct zt_rope_table *table;
    bool interleaved;
};

static void rope_backward(struct zt_step *s, struct zt_node *n)
{
    const struct rotation *r = n->attr;
    struct zt_rope_args a = {.interleaved = r->interleaved, .inverse = true};
    struct zt_grad_sink dx;

    if (!zt_grad_sink_open(s, &dx, n->in[0], ZT_SINK_SAME))
        return;
    a.x = zt_grad_of(n->out);
    a.y = dx.view;
    a.positions = zt_data(n->saved[0]);
    a.accumulate = dx.accumulate;
    set_tables(&a, r->table);
    zt_step_check(s, s->k->rope(s->cfg.device, NULL, &a, &s->fault));
    zt_grad_sink_close(s, &dx);
}

static const struct zt_op op_rope = {"rope", rope_backward};

/* One for each token, or for each place in a row. */
static bool are_of(const struct zt_view *positions, const struct zt_view *x)
{
    if (positions->ndim == 1)
        return positions->shape[0] == x->shape[1];
    return positions->ndim == 2 && positions->shape[0] == x->shape[0] &&
           positions->shape[1] == x->shape[1];
}

static bool check_rope(struct zt_step *s, const struct zt_tensor *x,
                       const struct zt_tensor *positions, const struct zt_rope *rope)
{
    const struct zt_view *v = &x->view;

    if (v->ndim != 4 || v->dtype > ZT_F16)
        zt_step_fail(s, ZT_E_ARG, "x %s %s, but (B, T, H, D) of floats is wanted",
                     ZT_SHAPE_TEXT(x), zt_dtype_name(v->dtype));
    else if (positions->view.dtype != ZT_I32 || !are_of(&positions->view, v))
        zt_step_fail(s, ZT_E_ARG, "x %s but positions %s %s", ZT_SHAPE_TEXT(x),
                     ZT_SHAPE_TEXT(positions), zt_dtype_name(positions->view.dtype));
    else if (rope->rotary_dims <= 0 || rope->rotary_dims % 2 || !rope->inv_freq ||
             rope->rotary_dims > v->shape[3])
        zt_step_fail(s, ZT_E_ARG, "%d of the %lld dimensions rotate", rope->rotary_dims,
                     (long long)v->shape[3]);
    return !s->fault.code;
}

/* The caller's options as this version has them. */
static bool take_options(struct zt_step *s, const struct zt_rope *from,
                         struct zt_rope *to)
{
    uint32_t bytes = from ? from->struct_bytes : 0;

    if (!zt_abi_take(to, sizeof(*to), from, bytes,
                     ZT_ABI_THROUGH(struct zt_rope, inv_freq)))
        zt_step_fail(s, ZT_E_PLUGIN,
                     "its options have %u bytes: make them with ZT_ROPE()", bytes);
    return !s->fault.code;
}

zt_tensor *zt_rope_apply(zt_step *s, zt_tensor *x, zt_tensor *positions,
                         const struct zt_rope *options)
{
    struct zt_rope taken = {0}, *rope = &taken;
    struct rotation r;
    struct zt_rope_args a;
    struct zt_tensor *y;

    if (!ZT_OP_START(s, "rope", x, positions) || !take_options(s, options, rope) ||
        !check_rope(s, x, positions, rope))
        return NULL;
    r.interleaved = rope->interleaved;
    r.table = zt_rope_table(s, rope, positions_needed(s, x));
    positions = r.table ? zt_dense(s, positions) : NULL;
    x = positions ? zt_unit_last(s, x) : NULL;
    y = x ? zt_value_new(s, x->view.dtype, 4, x->view.shape) : NULL;
    if (!y)
        return NULL;
    a = (struct zt_rope_args){.x = zt_data(x),
                              .y = zt_data(y),
                              .positions = zt_data(positions),
                              .interleaved = r.interleaved};
    set_tables(&a, r.table);
    zt_step_check(s, s->k->rope(s->cfg.device, NULL, &a, &s->fault));
    return zt_record(s, &op_rope, y, &x, 1, &positions, 1, &r, sizeof(r));
}
