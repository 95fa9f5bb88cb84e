/* check.c -- the rules of all kernels but products (check_products.c). */
#include "kernels/check_rules.h"

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
