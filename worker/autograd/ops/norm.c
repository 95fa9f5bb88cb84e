/*
 * norm.c -- layer norm and RMS norm over the last axis, of a value or of a sum.
 *
 * A sum and its norm are two nodes, as zt_add() and a norm would leave them; only the
 * kernel that fills both is one. So backward and recomputation know nothing of it.
 */
#include "worker/autograd/tape.h"

enum { X, W, B };        /* operands */
enum { MEAN = 2, RSTD }; /* what is saved behind x and w */

static bool check_norm(struct zt_step *s, const struct zt_tensor *x,
                       const struct zt_tensor *w, const char *name)
{
    const struct zt_view *v = &x->view;

    if (v->dtype > ZT_F16)
        zt_step_fail(s, ZT_E_ARG, "x is %s", zt_dtype_name(v->dtype));
    else if (v->ndim < 1 || w->view.ndim != 1 ||
             w->view.shape[0] != v->shape[v->ndim - 1])
        zt_step_fail(s, ZT_E_ARG, "x %s but %s %s", ZT_SHAPE_TEXT(x), name,
                     ZT_SHAPE_TEXT(w));
    return !s->fault.code;
}

static struct zt_tensor *per_row(struct zt_step *s, const struct zt_tensor *rows)
{
    return zt_value_new(s, ZT_F32, 1, rows->view.shape);
}

/* terms: NULL, or what `x` is to be made of; then x is where the sum goes. */
static void set_rows(struct zt_view *x, struct zt_view *add, struct zt_view *sum,
                     struct zt_tensor *rows, struct zt_tensor *const *terms)
{
    *x = zt_data(rows);
    if (!terms)
        return;
    *sum = *x;
    x->data = zt_data(terms[0]).data;
    *add = zt_view_of(zt_data(terms[1]).data, x->dtype, 2, x->shape);
}

/* ---- layer norm ---- */

static void layernorm_backward(struct zt_step *s, struct zt_node *n)
{
    struct zt_layernorm_bwd_args a = {
        .x = zt_data(n->saved[X]),
        .w = zt_data(n->saved[W]),
        .mean = zt_data(n->saved[MEAN]),
        .rstd = zt_data(n->saved[RSTD]),
    };
    struct zt_grad_sink dx, dw, db;

    a.dy = zt_view_of(zt_grad_of(n->out).data, a.x.dtype, 2, a.x.shape);
    zt_grad_sink_open(s, &dx, n->in[X], ZT_SINK_SAME);
    zt_grad_sink_open(s, &dw, n->in[W], ZT_SINK_F32);
    zt_grad_sink_open(s, &db, n->in[B], ZT_SINK_F32);
    if (!s->fault.code) {
        a.dx = dx.view;
        a.dw = dw.view;
        a.accumulate_w = dw.accumulate;
        a.db = db.view;
        a.accumulate_b = db.accumulate;
        a.accumulate = dx.accumulate;
        zt_step_check(s, s->k->layernorm_bwd(s->cfg.device, NULL, &a, &s->fault));
    }
    zt_grad_sink_close(s, &dx);
    zt_grad_sink_close(s, &dw);
    zt_grad_sink_close(s, &db);
}

static const struct zt_op op_layernorm = {"layernorm", layernorm_backward};

static struct zt_tensor *layernorm(struct zt_step *s, struct zt_tensor *x,
                                   struct zt_tensor *const *terms, struct zt_tensor *w,
                                   struct zt_tensor *b, float eps)
{
    struct zt_layernorm_args a = {.eps = eps};
    struct zt_tensor *in[3], *saved[4], *y;

    if (!check_norm(s, x, w, "w") || (b && !check_norm(s, x, b, "b")))
        return NULL;
    y = zt_value_new(s, x->view.dtype, x->view.ndim, x->view.shape);
    in[X] = saved[X] = zt_rows(s, x);
    in[W] = saved[W] = zt_dense(s, w);
    in[B] = b ? zt_dense(s, b) : NULL;
    saved[MEAN] = s->fault.code ? NULL : per_row(s, in[X]);
    saved[RSTD] = s->fault.code ? NULL : per_row(s, in[X]);
    if (s->fault.code)
        return NULL;
    set_rows(&a.x, &a.add, &a.sum, in[X], terms);
    a.w = zt_data(in[W]);
    if (b)
        a.b = zt_data(in[B]);
    a.y = zt_view_of(zt_data(y).data, a.x.dtype, 2, a.x.shape);
    a.mean = zt_data(saved[MEAN]);
    a.rstd = zt_data(saved[RSTD]);
    zt_step_check(s, s->k->layernorm(s->cfg.device, NULL, &a, &s->fault));
    return zt_record(s, &op_layernorm, y, in, 3, saved, 4, NULL, 0);
}

zt_tensor *zt_layernorm(zt_step *s, zt_tensor *x, zt_tensor *w, zt_tensor *b, float eps)
{
    return ZT_OP_START(s, "layernorm", x, w) ? layernorm(s, x, NULL, w, b, eps) : NULL;
}

zt_tensor *zt_add_layernorm(zt_step *s, zt_tensor *x, zt_tensor *y, zt_tensor *w,
                            zt_tensor *b, float eps, zt_tensor **sum)
{
    struct zt_tensor *terms[2] = {x, y}, *total = NULL, *norm = NULL;

    if (ZT_OP_START(s, "add_layernorm", x, y, w))
        total = zt_add_unfilled(s, terms);
    if (total)
        norm = layernorm(s, total, terms, w, b, eps);
    *sum = norm ? total : NULL;
    return norm;
}

/* ---- RMS norm ---- */

static void rmsnorm_backward(struct zt_step *s, struct zt_node *n)
{
    struct zt_rmsnorm_bwd_args a = {
        .x = zt_data(n->saved[X]),
        .w = zt_data(n->saved[W]),
        .rstd = zt_data(n->saved[2]),
        .add_one = *(bool *)n->attr,
    };
    struct zt_grad_sink dx, dw;

    a.dy = zt_view_of(zt_grad_of(n->out).data, a.x.dtype, 2, a.x.shape);
    zt_grad_sink_open(s, &dx, n->in[X], ZT_SINK_SAME);
    zt_grad_sink_open(s, &dw, n->in[W], ZT_SINK_F32);
    if (!s->fault.code) {
        a.dx = dx.view;
        a.dw = dw.view;
        a.accumulate_w = dw.accumulate;
        a.accumulate = dx.accumulate;
        zt_step_check(s, s->k->rmsnorm_bwd(s->cfg.device, NULL, &a, &s->fault));
    }
    zt_grad_sink_close(s, &dx);
    zt_grad_sink_close(s, &dw);
}

static const struct zt_op op_rmsnorm = {"rmsnorm", rmsnorm_backward};

static struct zt_tensor *rmsnorm(struct zt_step *s, struct zt_tensor *x,
                                 struct zt_tensor *const *terms, struct zt_tensor *w,
                                 float eps, unsigned flags)
{
    bool add_one = flags & ZT_RMS_ADD_ONE;
    struct zt_rmsnorm_args a = {.eps = eps, .add_one = add_one};
    struct zt_tensor *in[2], *saved[3], *y;

    if (!check_norm(s, x, w, "w"))
        return NULL;
    if (flags & ~ZT_RMS_ADD_ONE)
        return zt_step_fail(s, ZT_E_ARG, "unknown flags 0x%x", flags);
    y = zt_value_new(s, x->view.dtype, x->view.ndim, x->view.shape);
    in[X] = saved[X] = zt_rows(s, x);
    in[W] = saved[W] = zt_dense(s, w);
    saved[2] = s->fault.code ? NULL : per_row(s, in[X]);
    if (s->fault.code)
        return NULL;
    set_rows(&a.x, &a.add, &a.sum, in[X], terms);
    a.w = zt_data(in[W]);
    a.y = zt_view_of(zt_data(y).data, a.x.dtype, 2, a.x.shape);
    a.rstd = zt_data(saved[2]);
    zt_step_check(s, s->k->rmsnorm(s->cfg.device, NULL, &a, &s->fault));
    return zt_record(s, &op_rmsnorm, y, in, 2, saved, 3, &add_one, sizeof(add_one));
}

zt_tensor *zt_rmsnorm(zt_step *s, zt_tensor *x, zt_tensor *w, float eps, unsigned flags)
{
    return ZT_OP_START(s, "rmsnorm", x, w) ? rmsnorm(s, x, NULL, w, eps, flags) : NULL;
}

zt_tensor *zt_add_rmsnorm(zt_step *s, zt_tensor *x, zt_tensor *y, zt_tensor *w, float eps,
                          unsigned flags, zt_tensor **sum)
{
    struct zt_tensor *terms[2] = {x, y}, *total = NULL, *norm = NULL;

    if (ZT_OP_START(s, "add_rmsnorm", x, y, w))
        total = zt_add_unfilled(s, terms);
    if (total)
        norm = rmsnorm(s, total, terms, w, eps, flags);
    *sum = norm ? total : NULL;
    return norm;
}
