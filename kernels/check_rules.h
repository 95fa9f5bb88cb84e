/*
 * check_rules.h -- rules on the operands of kernels, as backend.h documents them.
 *
 * A check is a list of rules. The first broken rule sets the error; the rules after it
 * find `rc` set and do nothing.
 */
#ifndef KERNELS_CHECK_RULES_H
#define KERNELS_CHECK_RULES_H

#include <stdio.h>

#include "kernels/check.h"

struct check {
    const char *op;
    struct zt_fault *fault;
    zt_err rc;
};

#define VIEW_TEXT 160 /* room for "(d, d, d, d, d, d) bf16" with 19 digits each */

/* "(8, 768) f32" */
static inline const char *format_view(const struct zt_view *v, char *text)
{
    int n = snprintf(text, VIEW_TEXT, "(");

    for (int i = 0; i < v->ndim && i < ZT_MAX_NDIM; i++)
        n += snprintf(text + n, VIEW_TEXT - (size_t)n, "%s%lld", i ? ", " : "",
                      (long long)v->shape[i]);
    snprintf(text + n, VIEW_TEXT - (size_t)n, ") %s", zt_dtype_name(v->dtype));
    return text;
}

static inline void fail_operand(struct check *c, const char *name,
                                const struct zt_view *v, const char *want)
{
    char shown[VIEW_TEXT];

    if (!c->rc)
        c->rc = zt_fault_set(c->fault, ZT_E_ARG, "%s: %s %s: want %s", c->op, name,
                             format_view(v, shown), want);
}

static inline void fail_mismatch(struct check *c, const char *name1,
                                 const struct zt_view *v1, const char *name2,
                                 const struct zt_view *v2)
{
    char shown1[VIEW_TEXT], shown2[VIEW_TEXT];

    if (!c->rc)
        c->rc = zt_fault_set(c->fault, ZT_E_ARG, "%s: %s %s but %s %s", c->op, name1,
                             format_view(v1, shown1), name2, format_view(v2, shown2));
}

/* A rule on scalar values; `what` is the text of the error. */
static inline void check_rule(struct check *c, bool holds, const char *what)
{
    if (!c->rc && !holds)
        c->rc = zt_fault_set(c->fault, ZT_E_ARG, "%s: %s", c->op, what);
}

static inline bool is_present(const struct zt_view *v)
{
    return v->data != NULL;
}

static inline bool is_fp8(zt_dtype dtype)
{
    return dtype == ZT_F8E4M3 || dtype == ZT_F8E5M2;
}

static inline bool is_float(zt_dtype dtype)
{
    return dtype == ZT_F32 || dtype == ZT_BF16 || dtype == ZT_F16;
}

/* Every operand is checked here first: it is there, and its axes are sane. */
static inline void check_present(struct check *c, const char *name,
                                 const struct zt_view *v)
{
    if (!c->rc && (v->ndim < 0 || v->ndim > ZT_MAX_NDIM))
        c->rc =
            zt_fault_set(c->fault, ZT_E_ARG, "%s: %s has %d axes", c->op, name, v->ndim);
    for (int i = 0; !c->rc && i < v->ndim; i++)
        if (v->shape[i] < 0)
            fail_operand(c, name, v, "no negative axis");
    if (!c->rc && !is_present(v) && zt_view_numel(v) > 0)
        c->rc = zt_fault_set(c->fault, ZT_E_ARG, "%s: %s is missing", c->op, name);
}

static inline void check_dtype(struct check *c, const char *name, const struct zt_view *v,
                               zt_dtype dtype)
{
    char want[32];

    snprintf(want, sizeof(want), "type %s", zt_dtype_name(dtype));
    if (!c->rc && v->dtype != dtype)
        fail_operand(c, name, v, want);
}

static inline void check_float(struct check *c, const char *name, const struct zt_view *v)
{
    if (!c->rc && !is_float(v->dtype))
        fail_operand(c, name, v, "f32, bf16 or f16");
}

static inline void check_ndim(struct check *c, const char *name, const struct zt_view *v,
                              int ndim)
{
    char want[32];

    snprintf(want, sizeof(want), "%d axes", ndim);
    if (!c->rc && v->ndim != ndim)
        fail_operand(c, name, v, want);
}

static inline void check_contiguous(struct check *c, const char *name,
                                    const struct zt_view *v)
{
    if (!c->rc && !zt_view_is_contiguous(v))
        fail_operand(c, name, v, "contiguous memory");
}

/* The last axis is contiguous. */
static inline void check_unit_stride(struct check *c, const char *name,
                                     const struct zt_view *v)
{
    if (!c->rc && v->ndim > 0 && v->shape[v->ndim - 1] > 1 && v->stride[v->ndim - 1] != 1)
        fail_operand(c, name, v, "stride 1 on its last axis");
}

static inline bool same_shape(const struct zt_view *a, const struct zt_view *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i])
            return false;
    return true;
}

/* v is present, of a float type, contiguous, and has the shape of x. */
static inline void check_like(struct check *c, const char *xname, const struct zt_view *x,
                              const char *name, const struct zt_view *v)
{
    check_present(c, name, v);
    check_float(c, name, v);
    if (!c->rc && !same_shape(x, v))
        fail_mismatch(c, xname, x, name, v);
    check_contiguous(c, name, v);
}

/* v is present, contiguous, with one axis as long as axis `axis` of x. */
static inline void check_vector(struct check *c, const char *xname,
                                const struct zt_view *x, int axis, const char *name,
                                const struct zt_view *v)
{
    check_present(c, name, v);
    check_contiguous(c, name, v);
    if (!c->rc && (v->ndim != 1 || v->shape[0] != x->shape[axis]))
        fail_mismatch(c, xname, x, name, v);
}

/* v (B, T) is contiguous: an entry for each token of x (B, T, ...). */
static inline void check_of_tokens(struct check *c, const char *xname,
                                   const struct zt_view *x, const char *name,
                                   const struct zt_view *v)
{
    check_present(c, name, v);
    check_dtype(c, name, v, ZT_I32);
    check_contiguous(c, name, v);
    if (!c->rc &&
        (v->ndim != 2 || v->shape[0] != x->shape[0] || v->shape[1] != x->shape[1]))
        fail_mismatch(c, xname, x, name, v);
}

static inline void check_f32_vector(struct check *c, const char *xname,
                                    const struct zt_view *x, int axis, const char *name,
                                    const struct zt_view *v)
{
    check_vector(c, xname, x, axis, name, v);
    check_dtype(c, name, v, ZT_F32);
}

static inline void check_scalar(struct check *c, const char *name,
                                const struct zt_view *v)
{
    check_present(c, name, v);
    check_dtype(c, name, v, ZT_F32);
    if (!c->rc && zt_view_numel(v) != 1)
        fail_operand(c, name, v, "one element");
}

/* x (N, C) of a float type, contiguous */
static inline void check_matrix(struct check *c, const char *name,
                                const struct zt_view *x)
{
    check_present(c, name, x);
    check_ndim(c, name, x, 2);
    check_float(c, name, x);
    check_contiguous(c, name, x);
}

/* Any shape, of a float type, contiguous. */
static inline void check_flat(struct check *c, const char *name, const struct zt_view *x)
{
    check_present(c, name, x);
    check_float(c, name, x);
    check_contiguous(c, name, x);
}

static inline void check_unary(struct check *c, zt_unary kind)
{
    check_rule(c, (unsigned)kind <= ZT_U_TANH, "unknown function");
}

#endif
