/* elementwise.c -- functions of single elements, sums and products of two. */
#include "worker/autograd/tape.h"

static bool check_floats(struct zt_step *s, const struct zt_tensor *x)
{
    if (x->view.dtype > ZT_F16)
        zt_step_fail(s, ZT_E_ARG, "x is %s", zt_dtype_name(x->view.dtype));
    return !s->fault.code;
}

/* ---- functions of one value ---- */

static void unary_backward(struct zt_step *s, struct zt_node *n)
{
    struct zt_unary_bwd_args a = {.kind = *(zt_unary *)n->attr};
    struct zt_grad_sink dx;

    if (!zt_grad_sink_open(s, &dx, n->in[0], ZT_SINK_SAME))
        return;
    a.dy = zt_grad_of(n->out);
    a.x = zt_data(n->saved[0]);
    a.dx = dx.view;
    a.accumulate = dx.accumulate;
    zt_step_check(s, s->k->unary_bwd(s->cfg.device, NULL, &a, &s->fault));
    zt_grad_sink_close(s, &dx);
}

static zt_tensor *unary(struct zt_step *s, const struct zt_op *op, zt_unary kind,
                        struct zt_tensor *x)
{
    struct zt_unary_args a = {.kind = kind};
    struct zt_tensor *y;

    if (!ZT_OP_START(s, op->name, x) || !check_floats(s, x))
        return NULL;
    x = zt_dense(s, x);
    y = x ? zt_value_new(s, x->view.dtype, x->view.ndim, x->view.shape) : NULL;
    if (!y)
        return NULL;
    a.x = zt_data(x);
    a.y = zt_data(y);
    zt_step_check(s, s->k->unary(s->cfg.device, NULL, &a, &s->fault));
    return zt_record(s, op, y, &x, 1, &x, 1, &kind, sizeof(kind));
}

zt_tensor *zt_gelu(zt_step *s, zt_tensor *x)
{
    static const struct zt_op op = {"gelu", unary_backward};

    return unary(s, &op, ZT_U_GELU_TANH, x);
}

zt_tensor *zt_gelu_erf(zt_step *s, zt_tensor *x)
{
    static const struct zt_op op = {"gelu_erf", unary_backward};

    return unary(s, &op, ZT_U_GELU_ERF, x);
}

zt_tensor *zt_silu(zt_step *s, zt_tensor *x)
{
    static const struct zt_op op = {"silu", unary_backward};

    return unary(s, &op, ZT_U_SILU, x);
}

zt_tensor *zt_relu(zt_step *s, zt_tensor *x)
{
    static const struct zt_op op = {"relu", unary_backward};

    return unary(s, &op, ZT_U_RELU, x);
}

zt_tensor *zt_tanh(zt_step *s, zt_tensor *x)
{
    static const struct zt_op op = {"tanh", unary_backward};

    return unary(s, &op, ZT_U_TANH, x);
}

/* ---- gated ---- */

enum { GATE, UP };

static void swiglu_backward(struct zt_step *s, struct zt_node *n)
{
    struct zt_glu_bwd_args a = {.kind = ZT_U_SILU};
    bool split = zt_grad_split(s, n->in, 2);
    struct zt_grad_sink dgate, dup;

    a.gate = zt_data(n->saved[GATE]);
    a.up = zt_data(n->saved[UP]);
    a.dy = zt_view_of(zt_grad_of(n->out).data, a.gate.dtype, 2, a.gate.shape);
    zt_grad_sink_open(s, &dgate, n->in[GATE], ZT_SINK_SAME);
    if (!split && n->in[GATE]->store == n->in[UP]->store)
        zt_grad_sink_open_apart(s, &dup, n->in[UP]);
    else
        zt_grad_sink_open(s, &dup, n->in[UP], ZT_SINK_SAME);
    a.dgate = dgate.view;
    a.dup = dup.view;
    a.accumulate_gate = dgate.accumulate && !split;
    a.accumulate_up = dup.accumulate && !split;
    if (!s->fault.code)
        zt_step_check(s, s->k->glu_bwd(s->cfg.device, NULL, &a, &s->fault));
    zt_grad_sink_close(s, &dgate);
    zt_grad_sink_close(s, &dup);
}

static const struct zt_op op_swiglu = {"swiglu", swiglu_backward};

static bool same_shape(const struct zt_view *a, const struct zt_view *b)
{
    bool same = a->ndim == b->ndim && a->dtype == b->dtype;

    for (int i = 0; same && i < a->ndim; i++)
        same = a->shape[i] == b->shape[i];
    return same;
}

zt_tensor *zt_swiglu(zt_step *s, zt_tensor *gate, zt_tensor *up)
{
    struct zt_glu_args a = {.kind = ZT_U_SILU};
    struct zt_tensor *in[2], *y;

    if (!ZT_OP_START(s, "swiglu", gate, up) || !check_floats(s, gate))
        return NULL;
    if (gate->view.ndim < 1 || !same_shape(&gate->view, &up->view))
        return zt_step_fail(s, ZT_E_ARG, "gate %s %s but up %s %s", ZT_SHAPE_TEXT(gate),
                            zt_dtype_name(gate->view.dtype), ZT_SHAPE_TEXT(up),
                            zt_dtype_name(up->view.dtype));
    y = zt_value_new(s, gate->view.dtype, gate->view.ndim, gate->view.shape);
    gate = zt_unit_last(s, gate);
    up = zt_unit_last(s, up);
    in[GATE] = gate ? zt_rows_strided(s, gate) : NULL;
    in[UP] = up ? zt_rows_strided(s, up) : NULL;
    if (s->fault.code)
        return NULL;
    a.gate = zt_data(in[GATE]);
    a.up = zt_data(in[UP]);
    a.y = zt_view_of(zt_data(y).data, a.gate.dtype, 2, a.gate.shape);
    zt_step_check(s, s->k->glu(s->cfg.device, NULL, &a, &s->fault));
    zt_note_activation(s, y,
                       (struct zt_activation){.gate = in[GATE],
                                              .up = in[UP],
                                              .backward = ZT_EPI_SWIGLU_BWD});
    return zt_record(s, &op_swiglu, y, in, 2, in, 2, NULL, 0);
}

/* ---- softmax ---- */

static void softmax_backward(struct zt_step *s, struct zt_node *n)
{
    struct zt_softmax_bwd_args a = {.y = zt_data(n->saved[0])};
    struct zt_grad_sink dx;

    if (!zt_grad_sink_open(s, &dx, n->in[0], ZT_SINK_SAME))
        return;
    a.y = zt_view_of(a.y.data, a.y.dtype, 2, dx.view.shape);
    a.dy = zt_view_of(zt_grad_of(n->out).data, a.y.dtype, 2, dx.view.shape);
    a.dx = dx.view;
    a.accumulate = dx.accumulate;
    zt_step_check(s, s->k->softmax_bwd(s->cfg.device, NULL, &a, &s->fault));
    zt_grad_sink_close(s, &dx);
}

static const struct zt_op op_softmax = {"softmax", softmax_backward};

zt_tensor *zt_softmax(zt_step *s, zt_tensor *x)
{
    struct zt_softmax_args a;
    struct zt_tensor *y;

    if (!ZT_OP_START(s, "softmax", x) || !check_floats(s, x))
        return NULL;
    if (x->view.ndim < 1)
        return zt_step_fail(s, ZT_E_ARG, "of a single number");
    y = zt_value_new(s, x->view.dtype, x->view.ndim, x->view.shape);
    x = zt_rows(s, x);
    if (s->fault.code)
        return NULL;
    a.x = zt_data(x);
    a.y = zt_view_of(zt_data(y).data, a.x.dtype, 2, a.x.shape);
    zt_step_check(s, s->k->softmax(s->cfg.device, NULL, &a, &s->fault));
    return zt_record(s, &op_softmax, y, &x, 1, &y, 1, NULL, 0);
}

/* ---- two operands; b may be repeated over a's leading axes ---- */

/* d(operand of a's shape) += dy * other, other shaped as b or as a */
static void add_product(struct zt_step *s, struct zt_tensor *to, struct zt_view dy,
                        struct zt_view other)
{
    struct zt_binary_args a = {.kind = ZT_B_MUL, .a = dy, .b = other};
    struct zt_grad_sink d;

    if (!zt_grad_sink_open(s, &d, to, ZT_SINK_SAME))
        return;
    a.y = zt_view_of(d.view.data, d.view.dtype, dy.ndim, dy.shape);
    a.accumulate = d.accumulate;
    zt_step_check(s, s->k->binary(s->cfg.device, NULL, &a, &s->fault));
    zt_grad_sink_close(s, &d);
}

/* d(b) += sum over the repetitions of dy, or of dy * z */
static void add_repeated(struct zt_step *s, struct zt_tensor *to, struct zt_view dy,
                         const struct zt_view *z)
{
    int64_t columns = zt_view_numel(&to->view);
    const int64_t shape[2] = {zt_view_numel(&dy) / columns, columns};
    struct zt_colsum_args a = {.x = zt_view_of(dy.data, dy.dtype, 2, shape)};
    struct zt_grad_sink d;

    if (!zt_grad_sink_open(s, &d, to, ZT_SINK_ANY))
        return;
    if (z)
        a.z = zt_view_of(z->data, z->dtype, 2, shape);
    a.y = zt_view_of(d.view.data, d.view.dtype, 1, &columns);
    a.accumulate = d.accumulate;
    zt_step_check(s, s->k->colsum(s->cfg.device, NULL, &a, &s->fault));
    zt_grad_sink_close(s, &d);
}

static bool is_repeated(const struct zt_node *n)
{
    return zt_view_numel(&n->in[1]->view) != zt_view_numel(&n->in[0]->view);
}

static void add_backward(struct zt_step *s, struct zt_node *n)
{
    if (is_repeated(n))
        add_repeated(s, n->in[1], zt_grad_of(n->out), NULL);
    else
        zt_grad_pass(s, n->out, n->in[1]);
    zt_grad_pass(s, n->out, n->in[0]);
}

static void mul_backward(struct zt_step *s, struct zt_node *n)
{
    struct zt_view a = zt_data(n->saved[0]), b = zt_data(n->saved[1]);
    struct zt_view dy = zt_grad_of(n->out);

    add_product(s, n->in[0], dy, b);
    if (is_repeated(n))
        add_repeated(s, n->in[1], dy, &a);
    else
        add_product(s, n->in[1], dy, zt_view_of(a.data, a.dtype, dy.ndim, dy.shape));
}

static const struct zt_op op_add = {"add", add_backward};
static const struct zt_op op_mul = {"mul", mul_backward};

static bool check_binary(struct zt_step *s, const struct zt_tensor *a,
                         const struct zt_tensor *b)
{
    int skip = a->view.ndim - b->view.ndim;
    bool ok = skip >= 0;

    for (int i = 0; ok && i < b->view.ndim; i++)
        ok = a->view.shape[skip + i] == b->view.shape[i];
    if (!ok)
        zt_step_fail(s, ZT_E_ARG, "a %s but b %s, which is neither that nor its end",
                     ZT_SHAPE_TEXT(a), ZT_SHAPE_TEXT(b));
    else if (a->view.dtype != b->view.dtype || a->view.dtype > ZT_F16)
        zt_step_fail(s, ZT_E_ARG, "a is %s but b is %s", zt_dtype_name(a->view.dtype),
                     zt_dtype_name(b->view.dtype));
    return !s->fault.code;
}

/* The result, recorded, without values; operands become dense. */
static struct zt_tensor *unfilled(struct zt_step *s, const struct zt_op *op,
                                  struct zt_tensor *in[2], int num_saved)
{
    struct zt_tensor *y;

    if (!check_binary(s, in[0], in[1]))
        return NULL;
    in[0] = zt_dense(s, in[0]);
    in[1] = in[0] ? zt_dense(s, in[1]) : NULL;
    y = in[1] ? zt_value_new(s, in[0]->view.dtype, in[0]->view.ndim, in[0]->view.shape)
              : NULL;
    return y ? zt_record(s, op, y, in, 2, in, num_saved, NULL, 0) : NULL;
}

static zt_tensor *binary(struct zt_step *s, const struct zt_op *op, zt_binary kind,
                         struct zt_tensor *a, struct zt_tensor *b)
{
    struct zt_binary_args args = {.kind = kind};
    struct zt_tensor *in[2] = {a, b}, *y;

    if (!ZT_OP_START(s, op->name, a, b))
        return NULL;
    y = unfilled(s, op, in, kind == ZT_B_MUL ? 2 : 0);
    if (!y)
        return NULL;
    args.a = zt_data(in[0]);
    args.b = zt_data(in[1]);
    args.y = zt_data(y);
    return zt_step_check(s, s->k->binary(s->cfg.device, NULL, &args, &s->fault)) ? y
                                                                                 : NULL;
}

zt_tensor *zt_add(zt_step *s, zt_tensor *a, zt_tensor *b)
{
    return binary(s, &op_add, ZT_B_ADD, a, b);
}

struct zt_tensor *zt_add_unfilled(struct zt_step *s, struct zt_tensor *terms[2])
{
    if (!same_shape(&terms[0]->view, &terms[1]->view))
        return zt_step_fail(s, ZT_E_ARG, "x %s %s but y %s %s", ZT_SHAPE_TEXT(terms[0]),
                            zt_dtype_name(terms[0]->view.dtype), ZT_SHAPE_TEXT(terms[1]),
                            zt_dtype_name(terms[1]->view.dtype));
    return unfilled(s, &op_add, terms, 0);
}

zt_tensor *zt_mul(zt_step *s, zt_tensor *a, zt_tensor *b)
{
    return binary(s, &op_mul, ZT_B_MUL, a, b);
}

/* ---- scale ---- */

static void scale_backward(struct zt_step *s, struct zt_node *n)
{
    struct zt_axpby_args a = {.x = zt_grad_of(n->out), .alpha = *(float *)n->attr};
    struct zt_grad_sink dx;

    if (!zt_grad_sink_open(s, &dx, n->in[0], ZT_SINK_ANY))
        return;
    a.y = dx.view;
    a.beta = dx.accumulate ? 1 : 0;
    zt_step_check(s, s->k->axpby(s->cfg.device, NULL, &a, &s->fault));
    zt_grad_sink_close(s, &dx);
}

static const struct zt_op op_scale = {"scale", scale_backward};

zt_tensor *zt_scale(zt_step *s, zt_tensor *x, float factor)
{
    struct zt_axpby_args a = {.alpha = factor};
    struct zt_tensor *y;

    if (!ZT_OP_START(s, "scale", x) || !check_floats(s, x))
        return NULL;
    y = zt_value_new(s, x->view.dtype, x->view.ndim, x->view.shape);
    if (!y)
        return NULL;
    a.x = zt_data(x);
    a.y = zt_data(y);
    zt_step_check(s, s->k->axpby(s->cfg.device, NULL, &a, &s->fault));
    return zt_record(s, &op_scale, y, &x, 1, NULL, 0, &factor, sizeof(factor));
}

/* ---- cast ---- */

static void cast_backward(struct zt_step *s, struct zt_node *n)
{
    struct zt_axpby_args a = {.x = zt_grad_of(n->out), .alpha = 1};
    struct zt_grad_sink dx;

    if (!zt_grad_sink_open(s, &dx, n->in[0], ZT_SINK_ANY))
        return;
    a.y = dx.view;
    a.beta = dx.accumulate ? 1 : 0;
    zt_step_check(s, s->k->axpby(s->cfg.device, NULL, &a, &s->fault));
    zt_grad_sink_close(s, &dx);
}

static const struct zt_op op_cast = {"cast", cast_backward};

zt_tensor *zt_cast(zt_step *s, zt_tensor *x, zt_dtype dtype)
{
    struct zt_axpby_args a = {.alpha = 1};
    struct zt_tensor *y;

    if (!ZT_OP_START(s, "cast", x) || !check_floats(s, x))
        return NULL;
    if (dtype > ZT_F16)
        return zt_step_fail(s, ZT_E_ARG, "to %s; f32, bf16 and f16 are possible",
                            zt_dtype_name(dtype));
    if (x->view.dtype == dtype)
        return x;
    y = zt_value_new(s, dtype, x->view.ndim, x->view.shape);
    if (!y)
        return NULL;
    a.x = zt_data(x);
    a.y = zt_data(y);
    zt_step_check(s, s->k->axpby(s->cfg.device, NULL, &a, &s->fault));
    return zt_record(s, &op_cast, y, &x, 1, NULL, 0, NULL, 0);
}

/* ---- dropout ---- */

struct drop {
    struct zt_philox rng;
    float p;
};

static void dropout_backward(struct zt_step *s, struct zt_node *n)
{
    const struct drop *d = n->attr;
    struct zt_dropout_args a = {.p = d->p, .rng = d->rng};
    struct zt_grad_sink dx;

    if (!zt_grad_sink_open(s, &dx, n->in[0], ZT_SINK_SAME))
        return;
    a.x = zt_grad_of(n->out);
    a.y = dx.view;
    a.accumulate = dx.accumulate;
    zt_step_check(s, s->k->dropout(s->cfg.device, NULL, &a, &s->fault));
    zt_grad_sink_close(s, &dx);
}

static const struct zt_op op_dropout = {"dropout", dropout_backward};

/* shared: x has no rows of the batch. */
static zt_tensor *apply_dropout(zt_step *s, zt_tensor *x, float p, bool shared)
{
    struct zt_dropout_args a = {.p = p};
    struct zt_tensor *y;
    struct drop d = {.p = p};
    int64_t per_row = 1;

    if (!ZT_OP_START(s, "dropout", x) || !check_floats(s, x))
        return NULL;
    if (!(p >= 0 && p < 1))
        return zt_step_fail(s, ZT_E_ARG, "p = %g is not in [0, 1)", (double)p);
    if (!shared && !s->bare && (x->view.ndim < 1 || x->view.shape[0] != s->pass.B))
        return zt_step_fail(
            s, ZT_E_ARG,
            "x %s does not begin with the %lld rows of the batch, by which "
            "random numbers are the same on any number of ranks; of what "
            "all rows share it is zt_dropout_shared()",
            ZT_SHAPE_TEXT(x), (long long)s->pass.B);
    if (p == 0 || !zt_is_training(s))
        return x;
    x = zt_dense(s, x);
    y = x ? zt_value_new(s, x->view.dtype, x->view.ndim, x->view.shape) : NULL;
    if (!y)
        return NULL;
    if (x->view.ndim)
        per_row = zt_view_numel(&x->view) / x->view.shape[0];
    d.rng = zt_next_random(s, shared ? 0 : per_row);
    a.rng = d.rng;
    a.x = zt_data(x);
    a.y = zt_data(y);
    zt_step_check(s, s->k->dropout(s->cfg.device, NULL, &a, &s->fault));
    return zt_record(s, &op_dropout, y, &x, 1, NULL, 0, &d, sizeof(d));
}

zt_tensor *zt_dropout(zt_step *s, zt_tensor *x, float p)
{
    return apply_dropout(s, x, p, false);
}

zt_tensor *zt_dropout_shared(zt_step *s, zt_tensor *x, float p)
{
    return apply_dropout(s, x, p, true);
}
