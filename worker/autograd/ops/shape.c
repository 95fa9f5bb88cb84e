/*
 * shape.c -- views, and the copies that make a view unnecessary.
 *
 * A view shares its base's gradient, so only the copies leave nodes.
 */
#include <string.h>

#include "worker/autograd/tape.h"

/* ---- views ---- */

/*
 * Strides of `shape` over t's memory, when there are such. Axes of t that lie one behind
 * the other are runs; each run must be cut by `shape` without a remainder.
 */
static bool view_strides(const struct zt_view *v, int ndim, const int64_t *shape,
                         int64_t *stride)
{
    int64_t run = 1, cut = 1, step;
    int to = ndim - 1;

    for (int i = v->ndim - 1; i >= 0; i--) {
        bool run_ends;

        if (run == 1)
            step = v->stride[i]; /* the innermost axis of a run */
        run *= v->shape[i];
        run_ends = i == 0 ||
                   (v->shape[i - 1] != 1 && run != 1 && v->stride[i - 1] != run * step);
        if (!run_ends)
            continue;
        while (to >= 0 && (cut < run || shape[to] == 1)) {
            stride[to] = cut * step;
            cut *= shape[to--];
        }
        if (cut != run)
            return false;
        run = cut = 1;
    }
    for (; to >= 0; to--)
        stride[to] = 1;
    return true;
}

static struct zt_tensor *view_as(struct zt_step *s, struct zt_tensor *t, int ndim,
                                 const int64_t *shape)
{
    struct zt_view all = zt_view_of(NULL, t->view.dtype, ndim, shape);

    if (t->view.ndim > 0 && !zt_view_is_contiguous(&t->view) &&
        !view_strides(&t->view, ndim, shape, all.stride))
        return NULL;
    return zt_value_view(s, t, ndim, shape, all.stride, t->offset_elems);
}

/* ---- copies ---- */

static void copy_backward(struct zt_step *s, struct zt_node *n)
{
    zt_grad_pass(s, n->out, n->in[0]);
}

static const struct zt_op op_copy = {"contiguous", copy_backward};

static struct zt_tensor *copy(struct zt_step *s, struct zt_tensor *t)
{
    struct zt_tensor *y = zt_value_new(s, t->view.dtype, t->view.ndim, t->view.shape);
    struct zt_axpby_args a = {.x = zt_data(t), .alpha = 1};

    if (!y)
        return NULL;
    a.y = zt_data(y);
    zt_step_check(s, s->k->axpby(s->cfg.device, NULL, &a, &s->fault));
    return zt_record(s, &op_copy, y, &t, 1, NULL, 0, NULL, 0);
}

struct zt_tensor *zt_dense(struct zt_step *s, struct zt_tensor *t)
{
    return zt_view_is_contiguous(&t->view) ? t : copy(s, t);
}

struct zt_tensor *zt_rows_strided(struct zt_step *s, struct zt_tensor *t)
{
    const struct zt_view *v = &t->view;
    int64_t columns = v->ndim ? v->shape[v->ndim - 1] : 1;
    const int64_t shape[2] = {zt_view_numel(v) / columns, columns};
    struct zt_tensor *m;

    if (v->ndim == 2)
        return t;
    m = view_as(s, t, 2, shape);
    if (m || s->fault.code)
        return m;
    t = copy(s, t);
    return t ? view_as(s, t, 2, shape) : NULL;
}

struct zt_tensor *zt_rows(struct zt_step *s, struct zt_tensor *t)
{
    t = zt_dense(s, t);
    return t ? zt_rows_strided(s, t) : NULL;
}

struct zt_tensor *zt_unit_last(struct zt_step *s, struct zt_tensor *t)
{
    const struct zt_view *v = &t->view;
    int last = v->ndim - 1;

    return last < 0 || v->shape[last] == 1 || v->stride[last] == 1 ? t : copy(s, t);
}

static bool is_matrix_friendly(const struct zt_view *v)
{
    int n = v->ndim;

    return v->shape[n - 1] == 1 || v->shape[n - 2] == 1 || v->stride[n - 1] == 1 ||
           v->stride[n - 2] == 1;
}

struct zt_tensor *zt_matrices(struct zt_step *s, struct zt_tensor *t)
{
    const int64_t *d = t->view.shape;
    int n = t->view.ndim;
    int64_t shape[3] = {1, d[n - 2], d[n - 1]};
    struct zt_tensor *m;

    if (!is_matrix_friendly(&t->view))
        t = copy(s, t);
    if (!t || n <= 3)
        return t;
    for (int i = 0; i < n - 2; i++)
        shape[0] *= d[i];
    m = view_as(s, t, 3, shape);
    if (m || s->fault.code)
        return m;
    t = copy(s, t);
    return t ? view_as(s, t, 3, shape) : NULL;
}

/* ---- the public ops ---- */

/* Replace a -1 by what is left of `numel`; false: it does not come out even. */
static bool resolve_shape(int64_t numel, int ndim, int64_t *shape)
{
    int64_t known = 1;
    int open = -1;

    for (int i = 0; i < ndim; i++) {
        if (shape[i] == -1 && open < 0)
            open = i;
        else if (shape[i] <= 0 || known > numel / shape[i])
            return false;
        else
            known *= shape[i];
    }
    if (open < 0)
        return known == numel;
    shape[open] = numel / known;
    return numel % known == 0;
}

zt_tensor *zt_reshape(zt_step *s, zt_tensor *x, int ndim, const int64_t *shape)
{
    struct zt_tensor want = {.view.ndim = ndim}, *y;
    int64_t to[ZT_MAX_NDIM];

    if (!ZT_OP_START(s, "reshape", x))
        return NULL;
    if (ndim < 0 || ndim > ZT_MAX_NDIM)
        return zt_step_fail(s, ZT_E_ARG, "%d axes, but %d is the most", ndim,
                            ZT_MAX_NDIM);
    for (int i = 0; i < ndim; i++)
        want.view.shape[i] = to[i] = shape[i];
    if (!resolve_shape(zt_view_numel(&x->view), ndim, to))
        return zt_step_fail(s, ZT_E_ARG, "x %s cannot become %s", ZT_SHAPE_TEXT(x),
                            ZT_SHAPE_TEXT(&want));
    y = view_as(s, x, ndim, to);
    if (y || s->fault.code)
        return y;
    x = copy(s, x);
    return x ? view_as(s, x, ndim, to) : NULL;
}

zt_tensor *zt_transpose(zt_step *s, zt_tensor *x, int axis_a, int axis_b)
{
    struct zt_view v;
    int a = axis_a, b = axis_b;

    if (!ZT_OP_START(s, "transpose", x))
        return NULL;
    v = x->view;
    a += a < 0 ? v.ndim : 0;
    b += b < 0 ? v.ndim : 0;
    if (a < 0 || a >= v.ndim || b < 0 || b >= v.ndim)
        return zt_step_fail(s, ZT_E_ARG, "axes %d and %d of x %s", axis_a, axis_b,
                            ZT_SHAPE_TEXT(x));
    v.shape[a] = x->view.shape[b];
    v.shape[b] = x->view.shape[a];
    v.stride[a] = x->view.stride[b];
    v.stride[b] = x->view.stride[a];
    return zt_value_view(s, x, v.ndim, v.shape, v.stride, x->offset_elems);
}

zt_tensor *zt_slice(zt_step *s, zt_tensor *x, int axis, int64_t from, int64_t count)
{
    struct zt_view v;
    int at = axis;

    if (!ZT_OP_START(s, "slice", x))
        return NULL;
    v = x->view;
    at += at < 0 ? v.ndim : 0;
    if (at < 0 || at >= v.ndim || from < 0 || count <= 0 || from > v.shape[at] ||
        count > v.shape[at] - from)
        return zt_step_fail(s, ZT_E_ARG, "%lld from %lld on along axis %d of x %s",
                            (long long)count, (long long)from, axis, ZT_SHAPE_TEXT(x));
    v.shape[at] = count;
    return zt_value_view(s, x, v.ndim, v.shape, v.stride,
                         x->offset_elems + from * v.stride[at]);
}

zt_tensor *zt_contiguous(zt_step *s, zt_tensor *x)
{
    return ZT_OP_START(s, "contiguous", x) ? zt_dense(s, x) : NULL;
}

/* ---- concat ---- */

/* The part of y's view that operand number `i` fills, starting at `from`. */
static struct zt_view part(struct zt_view y, int axis, int64_t from, int64_t count)
{
    y.shape[axis] = count;
    y.data = (char *)y.data + (size_t)(from * y.stride[axis]) * zt_dtype_bytes(y.dtype);
    return y;
}

static void concat_backward(struct zt_step *s, struct zt_node *n)
{
    struct zt_view dy = zt_grad_of(n->out);
    int axis = *(int *)n->attr;
    int64_t from = 0;

    for (int i = 0; i < n->num_in; i++) {
        struct zt_grad_sink dx;
        int64_t count = n->in[i]->view.shape[axis];

        if (zt_grad_sink_open(s, &dx, n->in[i], ZT_SINK_ANY)) {
            struct zt_axpby_args a = {.x = part(dy, axis, from, count),
                                      .y = dx.view,
                                      .alpha = 1,
                                      .beta = dx.accumulate ? 1 : 0};
            zt_step_check(s, s->k->axpby(s->cfg.device, NULL, &a, &s->fault));
            zt_grad_sink_close(s, &dx);
        }
        from += count;
    }
}

static const struct zt_op op_concat = {"concat", concat_backward};

/* Shapes alike but for `axis`; the sum of that one, 0 after a failure. */
static int64_t concat_length(struct zt_step *s, int axis, zt_tensor **xs, int count)
{
    int64_t total = 0;

    for (int i = 0; i < count; i++) {
        const struct zt_view *a = &xs[0]->view, *b = &xs[i]->view;
        bool ok = a->ndim == b->ndim && a->dtype == b->dtype;

        for (int d = 0; ok && d < a->ndim; d++)
            ok = d == axis || a->shape[d] == b->shape[d];
        if (!ok) {
            zt_step_fail(s, ZT_E_ARG, "along axis %d: %s %s but %s %s", axis,
                         ZT_SHAPE_TEXT(xs[0]), zt_dtype_name(a->dtype),
                         ZT_SHAPE_TEXT(xs[i]), zt_dtype_name(b->dtype));
            return 0;
        }
        total += b->shape[axis];
    }
    return total;
}

zt_tensor *zt_concat(zt_step *s, int axis, zt_tensor **xs, int count)
{
    int64_t shape[ZT_MAX_NDIM], from = 0;
    struct zt_tensor *y;
    int at = axis;

    if (!zt_op_start(s, "concat", xs, count))
        return NULL;
    if (count <= 0)
        return zt_step_fail(s, ZT_E_ARG, "nothing to join");
    at += at < 0 ? xs[0]->view.ndim : 0;
    if (at < 0 || at >= xs[0]->view.ndim)
        return zt_step_fail(s, ZT_E_ARG, "axis %d of %s", axis, ZT_SHAPE_TEXT(xs[0]));
    memcpy(shape, xs[0]->view.shape, sizeof(shape));
    shape[at] = concat_length(s, at, xs, count);
    if (!shape[at])
        return NULL;
    y = zt_value_new(s, xs[0]->view.dtype, xs[0]->view.ndim, shape);
    for (int i = 0; y && i < count; i++) {
        struct zt_axpby_args a = {.x = zt_data(xs[i]), .alpha = 1};

        a.y = part(zt_data(y), at, from, xs[i]->view.shape[at]);
        from += xs[i]->view.shape[at];
        if (!zt_step_check(s, s->k->axpby(s->cfg.device, NULL, &a, &s->fault)))
            return NULL;
    }
    return y ? zt_record(s, &op_concat, y, xs, count, NULL, 0, &at, sizeof(at)) : NULL;
}
