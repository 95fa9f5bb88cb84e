/* check.c -- argument checks of all kernels but products (check_products.c). */
#include "kernels/check_rules.h"

/* ---- norms ---- */

/* add and sum go together, and are like x. */
static void check_norm_sum(struct check *c, const struct zt_view *x,
                           const struct zt_view *add, const struct zt_view *sum)
{
    if (!is_present(add)) {
        check_rule(c, !is_present(sum), "sum without add");
        return;
    }
    check_like(c, "x", x, "add", add);
    check_dtype(c, "add", add, x->dtype);
    check_like(c, "x", x, "sum", sum);
    check_dtype(c, "sum", sum, x->dtype);
}

zt_err zt_check_layernorm(const struct zt_layernorm_args *a, struct zt_fault *fault)
{
    struct check c = {"layernorm", fault, ZT_OK};

    check_matrix(&c, "x", &a->x);
    check_vector(&c, "x", &a->x, 1, "w", &a->w);
    check_float(&c, "w", &a->w);
    if (is_present(&a->b)) {
        check_vector(&c, "x", &a->x, 1, "b", &a->b);
        check_float(&c, "b", &a->b);
    }
    check_like(&c, "x", &a->x, "y", &a->y);
    check_f32_vector(&c, "x", &a->x, 0, "mean", &a->mean);
    check_f32_vector(&c, "x", &a->x, 0, "rstd", &a->rstd);
    check_norm_sum(&c, &a->x, &a->add, &a->sum);
    return c.rc;
}

zt_err zt_check_layernorm_bwd(const struct zt_layernorm_bwd_args *a,
                              struct zt_fault *fault)
{
    struct check c = {"layernorm_bwd", fault, ZT_OK};

    check_matrix(&c, "x", &a->x);
    check_like(&c, "x", &a->x, "dy", &a->dy);
    check_vector(&c, "x", &a->x, 1, "w", &a->w);
    check_float(&c, "w", &a->w);
    check_f32_vector(&c, "x", &a->x, 0, "mean", &a->mean);
    check_f32_vector(&c, "x", &a->x, 0, "rstd", &a->rstd);
    if (is_present(&a->dx))
        check_like(&c, "x", &a->x, "dx", &a->dx);
    if (is_present(&a->dw))
        check_f32_vector(&c, "x", &a->x, 1, "dw", &a->dw);
    if (is_present(&a->db))
        check_f32_vector(&c, "x", &a->x, 1, "db", &a->db);
    return c.rc;
}

zt_err zt_check_rmsnorm(const struct zt_rmsnorm_args *a, struct zt_fault *fault)
{
    struct check c = {"rmsnorm", fault, ZT_OK};

    check_matrix(&c, "x", &a->x);
    check_vector(&c, "x", &a->x, 1, "w", &a->w);
    check_float(&c, "w", &a->w);
    check_like(&c, "x", &a->x, "y", &a->y);
    check_f32_vector(&c, "x", &a->x, 0, "rstd", &a->rstd);
    check_norm_sum(&c, &a->x, &a->add, &a->sum);
    return c.rc;
}

zt_err zt_check_rmsnorm_bwd(const struct zt_rmsnorm_bwd_args *a, struct zt_fault *fault)
{
    struct check c = {"rmsnorm_bwd", fault, ZT_OK};

    check_matrix(&c, "x", &a->x);
    check_like(&c, "x", &a->x, "dy", &a->dy);
    check_vector(&c, "x", &a->x, 1, "w", &a->w);
    check_float(&c, "w", &a->w);
    check_f32_vector(&c, "x", &a->x, 0, "rstd", &a->rstd);
    if (is_present(&a->dx))
        check_like(&c, "x", &a->x, "dx", &a->dx);
    if (is_present(&a->dw))
        check_f32_vector(&c, "x", &a->x, 1, "dw", &a->dw);
    return c.rc;
}

/* ---- lookups and positions ---- */

zt_err zt_check_embedding(const struct zt_embedding_args *a, struct zt_fault *fault)
{
    struct check c = {"embedding", fault, ZT_OK};

    check_matrix(&c, "table", &a->table);
    check_matrix(&c, "y", &a->y);
    check_vector(&c, "y", &a->y, 0, "ids", &a->ids);
    check_dtype(&c, "ids", &a->ids, ZT_I32);
    if (!c.rc && a->table.shape[1] != a->y.shape[1])
        fail_mismatch(&c, "table", &a->table, "y", &a->y);
    return c.rc;
}

zt_err zt_check_embedding_bwd(const struct zt_embedding_bwd_args *a,
                              struct zt_fault *fault)
{
    struct check c = {"embedding_bwd", fault, ZT_OK};

    check_matrix(&c, "dtable", &a->dtable);
    check_dtype(&c, "dtable", &a->dtable, ZT_F32);
    check_matrix(&c, "dy", &a->dy);
    check_vector(&c, "dy", &a->dy, 0, "ids", &a->ids);
    check_dtype(&c, "ids", &a->ids, ZT_I32);
    if (!c.rc && a->dtable.shape[1] != a->dy.shape[1])
        fail_mismatch(&c, "dtable", &a->dtable, "dy", &a->dy);
    return c.rc;
}

zt_err zt_check_rope(const struct zt_rope_args *a, struct zt_fault *fault)
{
    struct check c = {"rope", fault, ZT_OK};
    const struct zt_view *x = &a->x, *y = &a->y;

    check_present(&c, "x", x);
    check_float(&c, "x", x);
    check_ndim(&c, "x", x, 4);
    check_unit_stride(&c, "x", x);
    check_present(&c, "y", y);
    check_float(&c, "y", y);
    check_unit_stride(&c, "y", y);
    if (!c.rc && !same_shape(x, y))
        fail_mismatch(&c, "x", x, "y", y);
    if (a->positions.ndim == 2)
        check_of_tokens(&c, "x", x, "positions", &a->positions);
    else
        check_vector(&c, "x", x, 1, "positions", &a->positions);
    check_dtype(&c, "positions", &a->positions, ZT_I32);
    check_rule(&c, a->rotary_dims >= 0 && a->rotary_dims % 2 == 0,
               "rotary_dims must be even and not negative");
    if (!c.rc && a->rotary_dims > x->shape[3])
        fail_operand(&c, "x", x, "a last axis of at least rotary_dims");
    check_present(&c, "cos", &a->cos);
    check_dtype(&c, "cos", &a->cos, ZT_F32);
    check_ndim(&c, "cos", &a->cos, 2);
    check_contiguous(&c, "cos", &a->cos);
    if (!c.rc && a->cos.shape[1] != a->rotary_dims / 2)
        fail_operand(&c, "cos", &a->cos, "a last axis of rotary_dims / 2");
    check_like(&c, "cos", &a->cos, "sin", &a->sin);
    check_dtype(&c, "sin", &a->sin, ZT_F32);
    return c.rc;
}

/* ---- elementwise ---- */

zt_err zt_check_unary(const struct zt_unary_args *a, struct zt_fault *fault)
{
    struct check c = {"unary", fault, ZT_OK};

    check_unary(&c, a->kind);
    check_flat(&c, "x", &a->x);
    check_like(&c, "x", &a->x, "y", &a->y);
    return c.rc;
}

zt_err zt_check_unary_bwd(const struct zt_unary_bwd_args *a, struct zt_fault *fault)
{
    struct check c = {"unary_bwd", fault, ZT_OK};

    check_unary(&c, a->kind);
    check_flat(&c, "x", &a->x);
    check_like(&c, "x", &a->x, "dy", &a->dy);
    check_like(&c, "x", &a->x, "dx", &a->dx);
    return c.rc;
}

/* (N, F) with any row stride */
static void check_rows_like(struct check *c, const char *xname, const struct zt_view *x,
                            const char *name, const struct zt_view *v)
{
    check_present(c, name, v);
    check_float(c, name, v);
    check_ndim(c, name, v, 2);
    check_unit_stride(c, name, v);
    if (!c->rc && !same_shape(x, v))
        fail_mismatch(c, xname, x, name, v);
}

zt_err zt_check_glu(const struct zt_glu_args *a, struct zt_fault *fault)
{
    struct check c = {"glu", fault, ZT_OK};

    check_unary(&c, a->kind);
    check_rows_like(&c, "gate", &a->gate, "gate", &a->gate);
    check_rows_like(&c, "gate", &a->gate, "up", &a->up);
    check_rows_like(&c, "gate", &a->gate, "y", &a->y);
    return c.rc;
}

zt_err zt_check_glu_bwd(const struct zt_glu_bwd_args *a, struct zt_fault *fault)
{
    struct check c = {"glu_bwd", fault, ZT_OK};

    check_unary(&c, a->kind);
    check_rows_like(&c, "gate", &a->gate, "gate", &a->gate);
    check_rows_like(&c, "gate", &a->gate, "up", &a->up);
    check_rows_like(&c, "gate", &a->gate, "dy", &a->dy);
    if (is_present(&a->dgate))
        check_rows_like(&c, "gate", &a->gate, "dgate", &a->dgate);
    if (is_present(&a->dup))
        check_rows_like(&c, "gate", &a->gate, "dup", &a->dup);
    return c.rc;
}

zt_err zt_check_softmax(const struct zt_softmax_args *a, struct zt_fault *fault)
{
    struct check c = {"softmax", fault, ZT_OK};

    check_matrix(&c, "x", &a->x);
    check_like(&c, "x", &a->x, "y", &a->y);
    return c.rc;
}

zt_err zt_check_softmax_bwd(const struct zt_softmax_bwd_args *a, struct zt_fault *fault)
{
    struct check c = {"softmax_bwd", fault, ZT_OK};

    check_matrix(&c, "y", &a->y);
    check_like(&c, "y", &a->y, "dy", &a->dy);
    check_like(&c, "y", &a->y, "dx", &a->dx);
    return c.rc;
}

zt_err zt_check_binary(const struct zt_binary_args *a, struct zt_fault *fault)
{
    struct check c = {"binary", fault, ZT_OK};
    int skip = a->a.ndim - a->b.ndim;

    check_rule(&c, (unsigned)a->kind <= ZT_B_MUL, "unknown operation");
    check_flat(&c, "a", &a->a);
    check_flat(&c, "b", &a->b);
    if (!c.rc && skip < 0)
        fail_mismatch(&c, "a", &a->a, "b", &a->b);
    for (int i = 0; !c.rc && i < a->b.ndim; i++)
        if (a->a.shape[skip + i] != a->b.shape[i])
            fail_mismatch(&c, "a", &a->a, "b", &a->b);
    check_like(&c, "a", &a->a, "y", &a->y);
    return c.rc;
}

zt_err zt_check_colsum(const struct zt_colsum_args *a, struct zt_fault *fault)
{
    struct check c = {"colsum", fault, ZT_OK};

    check_matrix(&c, "x", &a->x);
    if (is_present(&a->z))
        check_like(&c, "x", &a->x, "z", &a->z);
    check_vector(&c, "x", &a->x, 1, "y", &a->y);
    check_float(&c, "y", &a->y);
    return c.rc;
}

zt_err zt_check_axpby(const struct zt_axpby_args *a, struct zt_fault *fault)
{
    struct check c = {"axpby", fault, ZT_OK};

    check_present(&c, "x", &a->x);
    check_float(&c, "x", &a->x);
    check_present(&c, "y", &a->y);
    check_float(&c, "y", &a->y);
    if (!c.rc && !same_shape(&a->x, &a->y))
        fail_mismatch(&c, "x", &a->x, "y", &a->y);
    return c.rc;
}

zt_err zt_check_fill(const struct zt_fill_args *a, struct zt_fault *fault)
{
    struct check c = {"fill", fault, ZT_OK};

    check_present(&c, "y", &a->y);
    check_rule(&c, (unsigned)a->y.dtype < ZT_NUM_DTYPE, "unknown type");
    check_contiguous(&c, "y", &a->y);
    return c.rc;
}

zt_err zt_check_dropout(const struct zt_dropout_args *a, struct zt_fault *fault)
{
    struct check c = {"dropout", fault, ZT_OK};

    check_flat(&c, "x", &a->x);
    check_like(&c, "x", &a->x, "y", &a->y);
    check_rule(&c, a->p >= 0 && a->p < 1, "p must be in [0, 1)");
    return c.rc;
}

zt_err zt_check_random(const struct zt_random_args *a, struct zt_fault *fault)
{
    struct check c = {"random", fault, ZT_OK};

    check_flat(&c, "y", &a->y);
    return c.rc;
}

/* ---- losses ---- */

/* x (N, C) of a float type, rows do not overlap */
static void check_spaced_rows(struct check *c, const char *name, const struct zt_view *x)
{
    check_present(c, name, x);
    check_ndim(c, name, x, 2);
    check_float(c, name, x);
    check_unit_stride(c, name, x);
    if (!c->rc && x->shape[0] > 1 && x->stride[0] < x->shape[1])
        fail_operand(c, name, x, "rows that do not overlap");
}

static void check_gradient_of_logits(struct check *c, const struct zt_view *logits,
                                     const struct zt_view *dlogits)
{
    check_spaced_rows(c, "dlogits", dlogits);
    if (!c->rc && !same_shape(logits, dlogits))
        fail_mismatch(c, "logits", logits, "dlogits", dlogits);
}

zt_err zt_check_cross_entropy(const struct zt_cross_entropy_args *a,
                              struct zt_fault *fault)
{
    struct check c = {"cross_entropy", fault, ZT_OK};

    check_spaced_rows(&c, "logits", &a->logits);
    check_vector(&c, "logits", &a->logits, 0, "targets", &a->targets);
    check_dtype(&c, "targets", &a->targets, ZT_I32);
    check_f32_vector(&c, "logits", &a->logits, 0, "lse", &a->lse);
    check_scalar(&c, "loss", &a->loss);
    if (is_present(&a->dlogits))
        check_gradient_of_logits(&c, &a->logits, &a->dlogits);
    check_rule(&c, a->smoothing >= 0 && a->smoothing < 1, "smoothing must be in [0, 1)");
    return c.rc;
}

zt_err zt_check_cross_entropy_bwd(const struct zt_cross_entropy_bwd_args *a,
                                  struct zt_fault *fault)
{
    struct check c = {"cross_entropy_bwd", fault, ZT_OK};

    check_spaced_rows(&c, "logits", &a->logits);
    check_vector(&c, "logits", &a->logits, 0, "targets", &a->targets);
    check_dtype(&c, "targets", &a->targets, ZT_I32);
    check_f32_vector(&c, "logits", &a->logits, 0, "lse", &a->lse);
    check_scalar(&c, "dloss", &a->dloss);
    check_gradient_of_logits(&c, &a->logits, &a->dlogits);
    check_rule(&c, a->smoothing >= 0 && a->smoothing < 1, "smoothing must be in [0, 1)");
    return c.rc;
}

zt_err zt_check_squared_error(const struct zt_squared_error_args *a,
                              struct zt_fault *fault)
{
    struct check c = {"squared_error", fault, ZT_OK};

    check_flat(&c, "x", &a->x);
    check_like(&c, "x", &a->x, "y", &a->y);
    check_scalar(&c, "loss", &a->loss);
    return c.rc;
}

zt_err zt_check_squared_error_bwd(const struct zt_squared_error_bwd_args *a,
                                  struct zt_fault *fault)
{
    struct check c = {"squared_error_bwd", fault, ZT_OK};

    check_flat(&c, "x", &a->x);
    check_like(&c, "x", &a->x, "y", &a->y);
    check_scalar(&c, "dloss", &a->dloss);
    if (is_present(&a->dx))
        check_like(&c, "x", &a->x, "dx", &a->dx);
    if (is_present(&a->dy))
        check_like(&c, "x", &a->x, "dy", &a->dy);
    return c.rc;
}

/* ---- over ranks ---- */

zt_err zt_check_rank_sum(const struct zt_rank_sum_args *a, struct zt_fault *fault)
{
    struct check c = {"rank_sum", fault, ZT_OK};
    const struct zt_view *x = &a->x;

    check_present(&c, "x", x);
    check_ndim(&c, "x", x, 2);
    check_float(&c, "x", x);
    check_unit_stride(&c, "x", x);
    if (!c.rc && (x->shape[0] < 1 || (x->shape[0] > 1 && x->stride[0] < x->shape[1])))
        fail_operand(&c, "x", x, "a row or more, one behind the other");
    check_vector(&c, "x", x, 1, "y", &a->y);
    check_dtype(&c, "y", &a->y, x->dtype);
    return c.rc;
}

/* ---- optimizer ---- */

zt_err zt_check_sumsq(const struct zt_sumsq_args *a, struct zt_fault *fault)
{
    struct check c = {"sumsq", fault, ZT_OK};

    check_flat(&c, "x", &a->x);
    check_dtype(&c, "x", &a->x, ZT_F32);
    check_rule(&c, a->sums != NULL, "sums is missing");
    check_rule(&c, a->first >= 0, "first is negative");
    return c.rc;
}

zt_err zt_check_adamw(const struct zt_adamw_args *a, struct zt_fault *fault)
{
    struct check c = {"adamw", fault, ZT_OK};
    const struct zt_view *master = &a->master;

    bool split = master->dtype == ZT_REST16;

    check_present(&c, "master", master);
    check_contiguous(&c, "master", master);
    if (!split)
        check_dtype(&c, "master", master, ZT_F32);
    check_ndim(&c, "master", master, 1);
    check_f32_vector(&c, "master", master, 0, "m", &a->m);
    check_f32_vector(&c, "master", master, 0, "v", &a->v);
    check_f32_vector(&c, "master", master, 0, "grad", &a->grad);
    if (is_present(&a->param))
        check_like(&c, "master", master, "param", &a->param);
    check_rule(&c, !a->stochastic || (is_present(&a->param) && a->param.dtype == ZT_BF16),
               "stochastic rounding is to bf16");
    check_rule(&c,
               !split ||
                   (is_present(&a->param) && a->param.dtype == ZT_BF16 && !a->stochastic),
               "a split master needs its half in bf16, rounded to nearest");
    check_rule(&c, a->grad_scale != NULL, "grad_scale is missing");
    return c.rc;
}
