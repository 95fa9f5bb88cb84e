/*
 * Each check is a list of rules read from the comment above the arguments. The first
 * broken one writes its sentence; the rules after it see `rc` set and pass.
 */
#include "kernels/check.h"

#include <stdio.h>

struct check {
    const char *op;
    struct zt_fault *fault;
    zt_err rc;
};

#define SHOWN 160 /* room for "(d, d, d, d, d, d) bf16" with 19 digits each */

/* "(8, 768) f32" */
static const char *show(const struct zt_view *v, char *text)
{
    int n = snprintf(text, SHOWN, "(");

    for (int i = 0; i < v->ndim && i < ZT_MAX_NDIM; i++)
        n += snprintf(text + n, SHOWN - (size_t)n, "%s%lld", i ? ", " : "",
                      (long long)v->shape[i]);
    snprintf(text + n, SHOWN - (size_t)n, ") %s", zt_dtype_name(v->dtype));
    return text;
}

static void fail(struct check *c, const char *name, const struct zt_view *v,
                 const char *want)
{
    char shown[SHOWN];

    if (!c->rc)
        c->rc = zt_fault_set(c->fault, ZT_E_ARG, "%s: %s %s: want %s", c->op, name,
                             show(v, shown), want);
}

static void differ(struct check *c, const char *name1, const struct zt_view *v1,
                   const char *name2, const struct zt_view *v2)
{
    char shown1[SHOWN], shown2[SHOWN];

    if (!c->rc)
        c->rc = zt_fault_set(c->fault, ZT_E_ARG, "%s: %s %s but %s %s", c->op, name1,
                             show(v1, shown1), name2, show(v2, shown2));
}

/* A rule on plain values; `what` is the whole sentence. */
static void rule(struct check *c, bool holds, const char *what)
{
    if (!c->rc && !holds)
        c->rc = zt_fault_set(c->fault, ZT_E_ARG, "%s: %s", c->op, what);
}

static bool given(const struct zt_view *v)
{
    return v->data != NULL;
}

static bool is_fp8(zt_dtype dtype)
{
    return dtype == ZT_F8E4M3 || dtype == ZT_F8E5M2;
}

static bool is_float(zt_dtype dtype)
{
    return dtype == ZT_F32 || dtype == ZT_BF16 || dtype == ZT_F16;
}

/* There, with sane axes. Every operand passes here before anything else is read. */
static void present(struct check *c, const char *name, const struct zt_view *v)
{
    if (!c->rc && (v->ndim < 0 || v->ndim > ZT_MAX_NDIM))
        c->rc =
            zt_fault_set(c->fault, ZT_E_ARG, "%s: %s has %d axes", c->op, name, v->ndim);
    for (int i = 0; !c->rc && i < v->ndim; i++)
        if (v->shape[i] < 0)
            fail(c, name, v, "no negative axis");
    if (!c->rc && !given(v) && zt_view_numel(v) > 0)
        c->rc = zt_fault_set(c->fault, ZT_E_ARG, "%s: %s is missing", c->op, name);
}

static void dtype_is(struct check *c, const char *name, const struct zt_view *v,
                     zt_dtype dtype)
{
    char want[32];

    snprintf(want, sizeof(want), "type %s", zt_dtype_name(dtype));
    if (!c->rc && v->dtype != dtype)
        fail(c, name, v, want);
}

static void floats(struct check *c, const char *name, const struct zt_view *v)
{
    if (!c->rc && !is_float(v->dtype))
        fail(c, name, v, "f32, bf16 or f16");
}

static void axes(struct check *c, const char *name, const struct zt_view *v, int ndim)
{
    char want[32];

    snprintf(want, sizeof(want), "%d axes", ndim);
    if (!c->rc && v->ndim != ndim)
        fail(c, name, v, want);
}

static void dense(struct check *c, const char *name, const struct zt_view *v)
{
    if (!c->rc && !zt_view_is_contiguous(v))
        fail(c, name, v, "contiguous memory");
}

/* Neighbours on the last axis are neighbours in memory. */
static void unit_last(struct check *c, const char *name, const struct zt_view *v)
{
    if (!c->rc && v->ndim > 0 && v->shape[v->ndim - 1] > 1 && v->stride[v->ndim - 1] != 1)
        fail(c, name, v, "stride 1 on its last axis");
}

static bool same_shape(const struct zt_view *a, const struct zt_view *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i])
            return false;
    return true;
}

/* v present, floats, dense, shaped as x */
static void like(struct check *c, const char *xname, const struct zt_view *x,
                 const char *name, const struct zt_view *v)
{
    present(c, name, v);
    floats(c, name, v);
    if (!c->rc && !same_shape(x, v))
        differ(c, xname, x, name, v);
    dense(c, name, v);
}

/* v present, dense, one axis, as long as axis `axis` of x */
static void along(struct check *c, const char *xname, const struct zt_view *x, int axis,
                  const char *name, const struct zt_view *v)
{
    present(c, name, v);
    dense(c, name, v);
    if (!c->rc && (v->ndim != 1 || v->shape[0] != x->shape[axis]))
        differ(c, xname, x, name, v);
}

static void f32_along(struct check *c, const char *xname, const struct zt_view *x,
                      int axis, const char *name, const struct zt_view *v)
{
    along(c, xname, x, axis, name, v);
    dtype_is(c, name, v, ZT_F32);
}

static void scalar(struct check *c, const char *name, const struct zt_view *v)
{
    present(c, name, v);
    dtype_is(c, name, v, ZT_F32);
    if (!c->rc && zt_view_numel(v) != 1)
        fail(c, name, v, "one element");
}

/* x (N, C) floats, dense */
static void matrix(struct check *c, const char *name, const struct zt_view *x)
{
    present(c, name, x);
    axes(c, name, x, 2);
    floats(c, name, x);
    dense(c, name, x);
}

/* any shape, floats, dense */
static void flat(struct check *c, const char *name, const struct zt_view *x)
{
    present(c, name, x);
    floats(c, name, x);
    dense(c, name, x);
}

static void unary_known(struct check *c, zt_unary kind)
{
    rule(c, (unsigned)kind <= ZT_U_TANH, "unknown function");
}

/* ---- products ---- */

/* 2 or 3 axes; of the last two one has stride 1, or no more than one element */
static void gemm_operand(struct check *c, const char *name, const struct zt_view *v)
{
    int64_t rows, cols, row_stride, col_stride;

    present(c, name, v);
    if (!is_fp8(v->dtype))
        floats(c, name, v);
    if (c->rc)
        return;
    if (v->ndim != 2 && v->ndim != 3) {
        fail(c, name, v, "2 or 3 axes");
        return;
    }
    rows = v->shape[v->ndim - 2];
    cols = v->shape[v->ndim - 1];
    row_stride = v->stride[v->ndim - 2];
    col_stride = v->stride[v->ndim - 1];
    if (rows == 0 || cols == 0) /* dense strides of nothing may be 0 */
        return;
    if ((rows > 1 && row_stride < 1) || (cols > 1 && col_stride < 1) ||
        (v->ndim == 3 && v->shape[0] > 1 && v->stride[0] < 0))
        fail(c, name, v, "strides that go forward");
    if (rows > 1 && cols > 1 && row_stride != 1 && col_stride != 1)
        fail(c, name, v, "stride 1 on one of its last two axes");
}

/* Lines of neighbours along axis k begin on 16-byte boundaries. */
static void lines_of_16(struct check *c, const char *name, const struct zt_view *v, int k)
{
    int64_t bytes = (int64_t)zt_dtype_bytes(v->dtype);

    if (!c->rc &&
        (v->stride[k] != 1 || v->stride[1 - k] * bytes % 16 || (uintptr_t)v->data % 16))
        fail(c, name, v, "lines of neighbours that begin at multiples of 16 bytes");
}

/* `k` is the axis K. */
static void fp8_operand(struct check *c, const char *name, const struct zt_view *v, int k)
{
    if (!c->rc && (v->ndim != 2 || v->shape[0] % 16 || v->shape[1] % 16))
        fail(c, name, v, "2 axes that 16 divides");
    lines_of_16(c, name, v, k);
}

static void gemm_scales(struct check *c, const struct zt_gemm_args *a)
{
    const struct zt_view *pre = &a->pre;

    if (!is_fp8(a->a.dtype)) {
        rule(c, !a->a_scale && !a->b_scale, "scales are for fp8 operands");
        return;
    }
    fp8_operand(c, "a", &a->a, 1);
    fp8_operand(c, "b", &a->b, 0);
    rule(c, a->a.dtype != ZT_F8E5M2 || a->b.dtype != ZT_F8E5M2,
         "of two fp8 operands one must be e4m3");
    rule(c, a->a_scale && a->b_scale, "fp8 operands without their scales");
    lines_of_16(c, "c", &a->c, a->c.stride[1] == 1);
    if (given(pre) && a->epilogue != ZT_EPI_NONE)
        lines_of_16(c, "pre", pre, pre->stride[1] == 1);
}

static int64_t gemm_batch(const struct zt_view *v)
{
    return v->ndim == 3 ? v->shape[0] : 1;
}

zt_err zt_check_gemm(const struct zt_gemm_args *a, struct zt_fault *fault)
{
    struct check c = {"gemm", fault, ZT_OK};
    const struct zt_view *va = &a->a, *vb = &a->b, *vc = &a->c;

    gemm_operand(&c, "a", va);
    gemm_operand(&c, "b", vb);
    gemm_operand(&c, "c", vc);
    if (c.rc)
        return c.rc;
    int n = va->ndim;
    bool fp8 = is_fp8(va->dtype) && is_fp8(vb->dtype);
    if (vb->ndim != n || va->shape[n - 1] != vb->shape[n - 2] ||
        (va->dtype != vb->dtype && !fp8))
        differ(&c, "a", va, "b", vb);
    else if (vc->ndim != n || va->shape[n - 2] != vc->shape[n - 2] ||
             (gemm_batch(va) != gemm_batch(vc) && gemm_batch(va) != 1) ||
             (vc->dtype != va->dtype && vc->dtype != ZT_F32 && !fp8))
        differ(&c, "a", va, "c", vc);
    else if (vb->shape[n - 1] != vc->shape[n - 1] ||
             (gemm_batch(vb) != gemm_batch(vc) && gemm_batch(vb) != 1))
        differ(&c, "b", vb, "c", vc);
    floats(&c, "c", vc);
    rule(&c, gemm_batch(vc) <= 1 || vc->stride[0] > 0, "c's batch axis must not repeat");
    rule(&c, (unsigned)a->epilogue <= ZT_EPI_GELU_ERF, "unknown epilogue");
    rule(&c, !a->accumulate || (!given(&a->bias) && a->epilogue == ZT_EPI_NONE),
         "accumulate goes with neither bias nor epilogue");
    if (given(&a->bias)) {
        floats(&c, "bias", &a->bias);
        if (!c.rc && (a->bias.ndim != 1 || a->bias.shape[0] != vc->shape[n - 1]))
            differ(&c, "c", vc, "bias", &a->bias);
    }
    if (given(&a->pre) && a->epilogue != ZT_EPI_NONE) {
        gemm_operand(&c, "pre", &a->pre);
        if (!c.rc && (!same_shape(vc, &a->pre) || vc->dtype != a->pre.dtype))
            differ(&c, "c", vc, "pre", &a->pre);
    }
    gemm_scales(&c, a);
    return c.rc;
}

/* An fp8 matrix of `rows` x `cols`, dense, of the type `type`. */
static void codes(struct check *c, const char *name, const struct zt_view *v,
                  int64_t rows, int64_t cols, zt_dtype type)
{
    present(c, name, v);
    if (!c->rc && (!is_fp8(v->dtype) || v->dtype != type))
        fail(c, name, v, "one type of fp8");
    axes(c, name, v, 2);
    if (!c->rc && (v->shape[0] != rows || v->shape[1] != cols))
        fail(c, name, v, "the shape of x, or of its transpose");
    dense(c, name, v);
}

zt_err zt_check_quantize(const struct zt_quantize_args *a, struct zt_fault *fault)
{
    struct check c = {"quantize", fault, ZT_OK};
    const struct zt_view *x = &a->x;
    zt_dtype type = given(&a->y) ? a->y.dtype : a->yt.dtype;

    present(&c, "x", x);
    floats(&c, "x", x);
    axes(&c, "x", x, 2);
    if (c.rc)
        return c.rc;
    if (given(&a->y))
        codes(&c, "y", &a->y, x->shape[0], x->shape[1], type);
    if (given(&a->yt))
        codes(&c, "yt", &a->yt, x->shape[1], x->shape[0], type);
    rule(&c, given(&a->y) || given(&a->yt) || zt_view_numel(x) == 0,
         "neither y nor yt is given");
    rule(&c, a->scale != NULL, "scale is missing");
    return c.rc;
}

/* ---- norms ---- */

/* What is normalised may be x + add, kept in sum. */
static void norm_sum(struct check *c, const struct zt_view *x, const struct zt_view *add,
                     const struct zt_view *sum)
{
    if (!given(add)) {
        rule(c, !given(sum), "sum without add");
        return;
    }
    like(c, "x", x, "add", add);
    dtype_is(c, "add", add, x->dtype);
    like(c, "x", x, "sum", sum);
    dtype_is(c, "sum", sum, x->dtype);
}

zt_err zt_check_layernorm(const struct zt_layernorm_args *a, struct zt_fault *fault)
{
    struct check c = {"layernorm", fault, ZT_OK};

    matrix(&c, "x", &a->x);
    along(&c, "x", &a->x, 1, "w", &a->w);
    floats(&c, "w", &a->w);
    if (given(&a->b)) {
        along(&c, "x", &a->x, 1, "b", &a->b);
        floats(&c, "b", &a->b);
    }
    like(&c, "x", &a->x, "y", &a->y);
    f32_along(&c, "x", &a->x, 0, "mean", &a->mean);
    f32_along(&c, "x", &a->x, 0, "rstd", &a->rstd);
    norm_sum(&c, &a->x, &a->add, &a->sum);
    return c.rc;
}

zt_err zt_check_layernorm_bwd(const struct zt_layernorm_bwd_args *a,
                              struct zt_fault *fault)
{
    struct check c = {"layernorm_bwd", fault, ZT_OK};

    matrix(&c, "x", &a->x);
    like(&c, "x", &a->x, "dy", &a->dy);
    along(&c, "x", &a->x, 1, "w", &a->w);
    floats(&c, "w", &a->w);
    f32_along(&c, "x", &a->x, 0, "mean", &a->mean);
    f32_along(&c, "x", &a->x, 0, "rstd", &a->rstd);
    if (given(&a->dx))
        like(&c, "x", &a->x, "dx", &a->dx);
    if (given(&a->dw))
        f32_along(&c, "x", &a->x, 1, "dw", &a->dw);
    if (given(&a->db))
        f32_along(&c, "x", &a->x, 1, "db", &a->db);
    return c.rc;
}

zt_err zt_check_rmsnorm(const struct zt_rmsnorm_args *a, struct zt_fault *fault)
{
    struct check c = {"rmsnorm", fault, ZT_OK};

    matrix(&c, "x", &a->x);
    along(&c, "x", &a->x, 1, "w", &a->w);
    floats(&c, "w", &a->w);
    like(&c, "x", &a->x, "y", &a->y);
    f32_along(&c, "x", &a->x, 0, "rstd", &a->rstd);
    norm_sum(&c, &a->x, &a->add, &a->sum);
    return c.rc;
}

zt_err zt_check_rmsnorm_bwd(const struct zt_rmsnorm_bwd_args *a, struct zt_fault *fault)
{
    struct check c = {"rmsnorm_bwd", fault, ZT_OK};

    matrix(&c, "x", &a->x);
    like(&c, "x", &a->x, "dy", &a->dy);
    along(&c, "x", &a->x, 1, "w", &a->w);
    floats(&c, "w", &a->w);
    f32_along(&c, "x", &a->x, 0, "rstd", &a->rstd);
    if (given(&a->dx))
        like(&c, "x", &a->x, "dx", &a->dx);
    if (given(&a->dw))
        f32_along(&c, "x", &a->x, 1, "dw", &a->dw);
    return c.rc;
}

/* ---- lookups and positions ---- */

zt_err zt_check_embedding(const struct zt_embedding_args *a, struct zt_fault *fault)
{
    struct check c = {"embedding", fault, ZT_OK};

    matrix(&c, "table", &a->table);
    matrix(&c, "y", &a->y);
    along(&c, "y", &a->y, 0, "ids", &a->ids);
    dtype_is(&c, "ids", &a->ids, ZT_I32);
    if (!c.rc && a->table.shape[1] != a->y.shape[1])
        differ(&c, "table", &a->table, "y", &a->y);
    return c.rc;
}

zt_err zt_check_embedding_bwd(const struct zt_embedding_bwd_args *a,
                              struct zt_fault *fault)
{
    struct check c = {"embedding_bwd", fault, ZT_OK};

    matrix(&c, "dtable", &a->dtable);
    dtype_is(&c, "dtable", &a->dtable, ZT_F32);
    matrix(&c, "dy", &a->dy);
    along(&c, "dy", &a->dy, 0, "ids", &a->ids);
    dtype_is(&c, "ids", &a->ids, ZT_I32);
    if (!c.rc && a->dtable.shape[1] != a->dy.shape[1])
        differ(&c, "dtable", &a->dtable, "dy", &a->dy);
    return c.rc;
}

zt_err zt_check_rope(const struct zt_rope_args *a, struct zt_fault *fault)
{
    struct check c = {"rope", fault, ZT_OK};
    const struct zt_view *x = &a->x, *y = &a->y;

    present(&c, "x", x);
    floats(&c, "x", x);
    axes(&c, "x", x, 4);
    unit_last(&c, "x", x);
    present(&c, "y", y);
    floats(&c, "y", y);
    unit_last(&c, "y", y);
    if (!c.rc && !same_shape(x, y))
        differ(&c, "x", x, "y", y);
    along(&c, "x", x, 1, "positions", &a->positions);
    dtype_is(&c, "positions", &a->positions, ZT_I32);
    rule(&c, a->rotary_dims >= 0 && a->rotary_dims % 2 == 0,
         "rotary_dims must be even and not negative");
    if (!c.rc && a->rotary_dims > x->shape[3])
        fail(&c, "x", x, "a last axis of at least rotary_dims");
    present(&c, "cos", &a->cos);
    dtype_is(&c, "cos", &a->cos, ZT_F32);
    axes(&c, "cos", &a->cos, 2);
    dense(&c, "cos", &a->cos);
    if (!c.rc && a->cos.shape[1] != a->rotary_dims / 2)
        fail(&c, "cos", &a->cos, "a last axis of rotary_dims / 2");
    like(&c, "cos", &a->cos, "sin", &a->sin);
    dtype_is(&c, "sin", &a->sin, ZT_F32);
    return c.rc;
}

/* ---- attention ---- */

static void strided4(struct check *c, const char *name, const struct zt_view *v)
{
    present(c, name, v);
    floats(c, name, v);
    axes(c, name, v, 4);
    unit_last(c, name, v);
}

static void strided4_like(struct check *c, const char *xname, const struct zt_view *x,
                          const char *name, const struct zt_view *v)
{
    strided4(c, name, v);
    if (!c->rc && (!same_shape(x, v) || x->dtype != v->dtype))
        differ(c, xname, x, name, v);
}

static void attention_bias(struct check *c, const char *name, const struct zt_view *v,
                           const struct zt_view *q, const struct zt_view *k)
{
    strided4(c, name, v);
    if (!c->rc && ((v->shape[0] != 1 && v->shape[0] != q->shape[0]) ||
                   (v->shape[1] != 1 && v->shape[1] != q->shape[2]) ||
                   v->shape[2] != q->shape[1] || v->shape[3] != k->shape[1]))
        differ(c, "q", q, name, v);
}

static void attention_rules(struct check *c, const struct zt_attention_args *a)
{
    const struct zt_view *q = &a->q, *k = &a->k, *lse = &a->lse;

    strided4(c, "q", q);
    strided4(c, "k", k);
    if (!c->rc &&
        (q->shape[0] != k->shape[0] || q->shape[3] != k->shape[3] ||
         q->dtype != k->dtype || k->shape[2] == 0 || q->shape[2] % k->shape[2] != 0))
        differ(c, "q", q, "k", k);
    strided4_like(c, "k", k, "v", &a->v);
    strided4_like(c, "q", q, "out", &a->out);
    if (given(lse)) {
        dtype_is(c, "lse", lse, ZT_F32);
        axes(c, "lse", lse, 3);
        dense(c, "lse", lse);
        if (!c->rc && (lse->shape[0] != q->shape[0] || lse->shape[1] != q->shape[2] ||
                       lse->shape[2] != q->shape[1]))
            differ(c, "q", q, "lse", lse);
    }
    if (given(&a->bias))
        attention_bias(c, "bias", &a->bias, q, k);
    rule(c, a->window >= 0, "window must not be negative");
    rule(c, a->dropout >= 0 && a->dropout < 1, "dropout must be in [0, 1)");
}

zt_err zt_check_attention(const struct zt_attention_args *a, struct zt_fault *fault)
{
    struct check c = {"attention", fault, ZT_OK};

    attention_rules(&c, a);
    return c.rc;
}

zt_err zt_check_attention_bwd(const struct zt_attention_bwd_args *a,
                              struct zt_fault *fault)
{
    struct check c = {"attention_bwd", fault, ZT_OK};

    attention_rules(&c, &a->fwd);
    present(&c, "lse", &a->fwd.lse);
    rule(&c, given(&a->fwd.lse), "lse is missing");
    strided4_like(&c, "q", &a->fwd.q, "dout", &a->dout);
    strided4(&c, "dq", &a->dq);
    if (!c.rc && !same_shape(&a->fwd.q, &a->dq))
        differ(&c, "q", &a->fwd.q, "dq", &a->dq);
    strided4(&c, "dk", &a->dk);
    if (!c.rc && !same_shape(&a->fwd.k, &a->dk))
        differ(&c, "k", &a->fwd.k, "dk", &a->dk);
    strided4(&c, "dv", &a->dv);
    if (!c.rc && !same_shape(&a->fwd.v, &a->dv))
        differ(&c, "v", &a->fwd.v, "dv", &a->dv);
    if (given(&a->dbias)) {
        attention_bias(&c, "dbias", &a->dbias, &a->fwd.q, &a->fwd.k);
        rule(&c, given(&a->fwd.bias), "dbias without a bias");
        if (!c.rc && !same_shape(&a->fwd.bias, &a->dbias))
            differ(&c, "bias", &a->fwd.bias, "dbias", &a->dbias);
    }
    return c.rc;
}

/* ---- elementwise ---- */

zt_err zt_check_unary(const struct zt_unary_args *a, struct zt_fault *fault)
{
    struct check c = {"unary", fault, ZT_OK};

    unary_known(&c, a->kind);
    flat(&c, "x", &a->x);
    like(&c, "x", &a->x, "y", &a->y);
    return c.rc;
}

zt_err zt_check_unary_bwd(const struct zt_unary_bwd_args *a, struct zt_fault *fault)
{
    struct check c = {"unary_bwd", fault, ZT_OK};

    unary_known(&c, a->kind);
    flat(&c, "x", &a->x);
    like(&c, "x", &a->x, "dy", &a->dy);
    like(&c, "x", &a->x, "dx", &a->dx);
    return c.rc;
}

/* (N, F), rows anywhere */
static void rows_like(struct check *c, const char *xname, const struct zt_view *x,
                      const char *name, const struct zt_view *v)
{
    present(c, name, v);
    floats(c, name, v);
    axes(c, name, v, 2);
    unit_last(c, name, v);
    if (!c->rc && !same_shape(x, v))
        differ(c, xname, x, name, v);
}

zt_err zt_check_glu(const struct zt_glu_args *a, struct zt_fault *fault)
{
    struct check c = {"glu", fault, ZT_OK};

    unary_known(&c, a->kind);
    rows_like(&c, "gate", &a->gate, "gate", &a->gate);
    rows_like(&c, "gate", &a->gate, "up", &a->up);
    rows_like(&c, "gate", &a->gate, "y", &a->y);
    return c.rc;
}

zt_err zt_check_glu_bwd(const struct zt_glu_bwd_args *a, struct zt_fault *fault)
{
    struct check c = {"glu_bwd", fault, ZT_OK};

    unary_known(&c, a->kind);
    rows_like(&c, "gate", &a->gate, "gate", &a->gate);
    rows_like(&c, "gate", &a->gate, "up", &a->up);
    rows_like(&c, "gate", &a->gate, "dy", &a->dy);
    if (given(&a->dgate))
        rows_like(&c, "gate", &a->gate, "dgate", &a->dgate);
    if (given(&a->dup))
        rows_like(&c, "gate", &a->gate, "dup", &a->dup);
    return c.rc;
}

zt_err zt_check_softmax(const struct zt_softmax_args *a, struct zt_fault *fault)
{
    struct check c = {"softmax", fault, ZT_OK};

    matrix(&c, "x", &a->x);
    like(&c, "x", &a->x, "y", &a->y);
    return c.rc;
}

zt_err zt_check_softmax_bwd(const struct zt_softmax_bwd_args *a, struct zt_fault *fault)
{
    struct check c = {"softmax_bwd", fault, ZT_OK};

    matrix(&c, "y", &a->y);
    like(&c, "y", &a->y, "dy", &a->dy);
    like(&c, "y", &a->y, "dx", &a->dx);
    return c.rc;
}

zt_err zt_check_binary(const struct zt_binary_args *a, struct zt_fault *fault)
{
    struct check c = {"binary", fault, ZT_OK};
    int skip = a->a.ndim - a->b.ndim;

    rule(&c, (unsigned)a->kind <= ZT_B_MUL, "unknown operation");
    flat(&c, "a", &a->a);
    flat(&c, "b", &a->b);
    if (!c.rc && skip < 0)
        differ(&c, "a", &a->a, "b", &a->b);
    for (int i = 0; !c.rc && i < a->b.ndim; i++)
        if (a->a.shape[skip + i] != a->b.shape[i])
            differ(&c, "a", &a->a, "b", &a->b);
    like(&c, "a", &a->a, "y", &a->y);
    return c.rc;
}

zt_err zt_check_colsum(const struct zt_colsum_args *a, struct zt_fault *fault)
{
    struct check c = {"colsum", fault, ZT_OK};

    matrix(&c, "x", &a->x);
    if (given(&a->z))
        like(&c, "x", &a->x, "z", &a->z);
    along(&c, "x", &a->x, 1, "y", &a->y);
    floats(&c, "y", &a->y);
    return c.rc;
}

zt_err zt_check_axpby(const struct zt_axpby_args *a, struct zt_fault *fault)
{
    struct check c = {"axpby", fault, ZT_OK};

    present(&c, "x", &a->x);
    floats(&c, "x", &a->x);
    present(&c, "y", &a->y);
    floats(&c, "y", &a->y);
    if (!c.rc && !same_shape(&a->x, &a->y))
        differ(&c, "x", &a->x, "y", &a->y);
    return c.rc;
}

zt_err zt_check_fill(const struct zt_fill_args *a, struct zt_fault *fault)
{
    struct check c = {"fill", fault, ZT_OK};

    present(&c, "y", &a->y);
    rule(&c, (unsigned)a->y.dtype < ZT_NUM_DTYPE, "unknown type");
    dense(&c, "y", &a->y);
    return c.rc;
}

zt_err zt_check_dropout(const struct zt_dropout_args *a, struct zt_fault *fault)
{
    struct check c = {"dropout", fault, ZT_OK};

    flat(&c, "x", &a->x);
    like(&c, "x", &a->x, "y", &a->y);
    rule(&c, a->p >= 0 && a->p < 1, "p must be in [0, 1)");
    return c.rc;
}

zt_err zt_check_random(const struct zt_random_args *a, struct zt_fault *fault)
{
    struct check c = {"random", fault, ZT_OK};

    flat(&c, "y", &a->y);
    return c.rc;
}

/* ---- losses ---- */

/* x (N, C) floats, rows one behind the other */
static void spaced_rows(struct check *c, const char *name, const struct zt_view *x)
{
    present(c, name, x);
    axes(c, name, x, 2);
    floats(c, name, x);
    unit_last(c, name, x);
    if (!c->rc && x->shape[0] > 1 && x->stride[0] < x->shape[1])
        fail(c, name, x, "rows that do not overlap");
}

zt_err zt_check_cross_entropy(const struct zt_cross_entropy_args *a,
                              struct zt_fault *fault)
{
    struct check c = {"cross_entropy", fault, ZT_OK};

    spaced_rows(&c, "logits", &a->logits);
    along(&c, "logits", &a->logits, 0, "targets", &a->targets);
    dtype_is(&c, "targets", &a->targets, ZT_I32);
    f32_along(&c, "logits", &a->logits, 0, "lse", &a->lse);
    scalar(&c, "loss", &a->loss);
    return c.rc;
}

zt_err zt_check_cross_entropy_bwd(const struct zt_cross_entropy_bwd_args *a,
                                  struct zt_fault *fault)
{
    struct check c = {"cross_entropy_bwd", fault, ZT_OK};

    spaced_rows(&c, "logits", &a->logits);
    along(&c, "logits", &a->logits, 0, "targets", &a->targets);
    dtype_is(&c, "targets", &a->targets, ZT_I32);
    f32_along(&c, "logits", &a->logits, 0, "lse", &a->lse);
    scalar(&c, "dloss", &a->dloss);
    spaced_rows(&c, "dlogits", &a->dlogits);
    if (!c.rc && !same_shape(&a->logits, &a->dlogits))
        differ(&c, "logits", &a->logits, "dlogits", &a->dlogits);
    return c.rc;
}

zt_err zt_check_squared_error(const struct zt_squared_error_args *a,
                              struct zt_fault *fault)
{
    struct check c = {"squared_error", fault, ZT_OK};

    flat(&c, "x", &a->x);
    like(&c, "x", &a->x, "y", &a->y);
    scalar(&c, "loss", &a->loss);
    return c.rc;
}

zt_err zt_check_squared_error_bwd(const struct zt_squared_error_bwd_args *a,
                                  struct zt_fault *fault)
{
    struct check c = {"squared_error_bwd", fault, ZT_OK};

    flat(&c, "x", &a->x);
    like(&c, "x", &a->x, "y", &a->y);
    scalar(&c, "dloss", &a->dloss);
    if (given(&a->dx))
        like(&c, "x", &a->x, "dx", &a->dx);
    if (given(&a->dy))
        like(&c, "x", &a->x, "dy", &a->dy);
    return c.rc;
}

/* ---- over ranks ---- */

zt_err zt_check_rank_sum(const struct zt_rank_sum_args *a, struct zt_fault *fault)
{
    struct check c = {"rank_sum", fault, ZT_OK};
    const struct zt_view *x = &a->x;

    present(&c, "x", x);
    axes(&c, "x", x, 2);
    floats(&c, "x", x);
    unit_last(&c, "x", x);
    if (!c.rc && (x->shape[0] < 1 || (x->shape[0] > 1 && x->stride[0] < x->shape[1])))
        fail(&c, "x", x, "a row or more, one behind the other");
    along(&c, "x", x, 1, "y", &a->y);
    dtype_is(&c, "y", &a->y, x->dtype);
    return c.rc;
}

/* ---- optimizer ---- */

zt_err zt_check_sumsq(const struct zt_sumsq_args *a, struct zt_fault *fault)
{
    struct check c = {"sumsq", fault, ZT_OK};

    flat(&c, "x", &a->x);
    dtype_is(&c, "x", &a->x, ZT_F32);
    rule(&c, a->sum != NULL, "sum is missing");
    return c.rc;
}

zt_err zt_check_adamw(const struct zt_adamw_args *a, struct zt_fault *fault)
{
    struct check c = {"adamw", fault, ZT_OK};
    const struct zt_view *master = &a->master;

    flat(&c, "master", master);
    dtype_is(&c, "master", master, ZT_F32);
    axes(&c, "master", master, 1);
    f32_along(&c, "master", master, 0, "m", &a->m);
    f32_along(&c, "master", master, 0, "v", &a->v);
    f32_along(&c, "master", master, 0, "grad", &a->grad);
    if (given(&a->param))
        like(&c, "master", master, "param", &a->param);
    rule(&c, !a->stochastic || (given(&a->param) && a->param.dtype == ZT_BF16),
         "stochastic rounding is to bf16");
    rule(&c, a->grad_scale != NULL, "grad_scale is missing");
    return c.rc;
}
