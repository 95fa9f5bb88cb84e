/*
 * check_rules.h -- rules on the operands of kernels, as the comments above their
 * arguments in backend.h say them.
 *
 * A check is a list of rules. The first broken one writes its sentence; the rules after
 * it see `rc` set and pass.
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

#define SHOWN 160 /* room for "(d, d, d, d, d, d) bf16" with 19 digits each */

/* "(8, 768) f32" */
static inline const char *show(const struct zt_view *v, char *text)
{
    int n = snprintf(text, SHOWN, "(");

    for (int i = 0; i < v->ndim && i < ZT_MAX_NDIM; i++)
        n += snprintf(text + n, SHOWN - (size_t)n, "%s%lld", i ? ", " : "",
                      (long long)v->shape[i]);
    snprintf(text + n, SHOWN - (size_t)n, ") %s", zt_dtype_name(v->dtype));
    return text;
}

static inline void fail(struct check *c, const char *name, const struct zt_view *v,
                        const char *want)
{
    char shown[SHOWN];

    if (!c->rc)
        c->rc = zt_fault_set(c->fault, ZT_E_ARG, "%s: %s %s: want %s", c->op, name,
                             show(v, shown), want);
}

static inline void differ(struct check *c, const char *name1, const struct zt_view *v1,
                          const char *name2, const struct zt_view *v2)
{
    char shown1[SHOWN], shown2[SHOWN];

    if (!c->rc)
        c->rc = zt_fault_set(c->fault, ZT_E_ARG, "%s: %s %s but %s %s", c->op, name1,
                             show(v1, shown1), name2, show(v2, shown2));
}

/* A rule on plain values; `what` is the whole sentence. */
static inline void rule(struct check *c, bool holds, const char *what)
{
    if (!c->rc && !holds)
        c->rc = zt_fault_set(c->fault, ZT_E_ARG, "%s: %s", c->op, what);
}

static inline bool given(const struct zt_view *v)
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

/* There, with sane axes. Every operand passes here before anything else is read. */
static inline void present(struct check *c, const char *name, const struct zt_view *v)
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

static inline void dtype_is(struct check *c, const char *name, const struct zt_view *v,
                            zt_dtype dtype)
{
    char want[32];

    snprintf(want, sizeof(want), "type %s", zt_dtype_name(dtype));
    if (!c->rc && v->dtype != dtype)
        fail(c, name, v, want);
}

static inline void floats(struct check *c, const char *name, const struct zt_view *v)
{
    if (!c->rc && !is_float(v->dtype))
        fail(c, name, v, "f32, bf16 or f16");
}

static inline void axes(struct check *c, const char *name, const struct zt_view *v,
                        int ndim)
{
    char want[32];

    snprintf(want, sizeof(want), "%d axes", ndim);
    if (!c->rc && v->ndim != ndim)
        fail(c, name, v, want);
}

static inline void dense(struct check *c, const char *name, const struct zt_view *v)
{
    if (!c->rc && !zt_view_is_contiguous(v))
        fail(c, name, v, "contiguous memory");
}

/* Neighbours on the last axis are neighbours in memory. */
static inline void unit_last(struct check *c, const char *name, const struct zt_view *v)
{
    if (!c->rc && v->ndim > 0 && v->shape[v->ndim - 1] > 1 && v->stride[v->ndim - 1] != 1)
        fail(c, name, v, "stride 1 on its last axis");
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

/* v present, floats, dense, shaped as x */
static inline void like(struct check *c, const char *xname, const struct zt_view *x,
                        const char *name, const struct zt_view *v)
{
    present(c, name, v);
    floats(c, name, v);
    if (!c->rc && !same_shape(x, v))
        differ(c, xname, x, name, v);
    dense(c, name, v);
}

/* v present, dense, one axis, as long as axis `axis` of x */
static inline void along(struct check *c, const char *xname, const struct zt_view *x,
                         int axis, const char *name, const struct zt_view *v)
{
    present(c, name, v);
    dense(c, name, v);
    if (!c->rc && (v->ndim != 1 || v->shape[0] != x->shape[axis]))
        differ(c, xname, x, name, v);
}

static inline void f32_along(struct check *c, const char *xname, const struct zt_view *x,
                             int axis, const char *name, const struct zt_view *v)
{
    along(c, xname, x, axis, name, v);
    dtype_is(c, name, v, ZT_F32);
}

static inline void scalar(struct check *c, const char *name, const struct zt_view *v)
{
    present(c, name, v);
    dtype_is(c, name, v, ZT_F32);
    if (!c->rc && zt_view_numel(v) != 1)
        fail(c, name, v, "one element");
}

/* x (N, C) floats, dense */
static inline void matrix(struct check *c, const char *name, const struct zt_view *x)
{
    present(c, name, x);
    axes(c, name, x, 2);
    floats(c, name, x);
    dense(c, name, x);
}

/* any shape, floats, dense */
static inline void flat(struct check *c, const char *name, const struct zt_view *x)
{
    present(c, name, x);
    floats(c, name, x);
    dense(c, name, x);
}

static inline void unary_known(struct check *c, zt_unary kind)
{
    rule(c, (unsigned)kind <= ZT_U_TANH, "unknown function");
}

#endif
