/*
 * constant.c -- host values as tensors, uploaded once and kept over passes.
 *
 * A constant is found again by its type, its shape and its values. The ones that a pass
 * did not ask for are let go of at its end, and all of them, and tables of rope, before a
 * pass of another mode or of other sizes: its own would be made beside those of the pass before, and its values
 * put between them. So what is kept follows from the pass at hand, and the plan, which runs
 * each kind of pass at its largest, sees the memory of the run.
 */
#include <stdlib.h>
#include <string.h>

#include "common/half.h"
#include "worker/autograd/tape.h"

struct zt_constant {
    struct zt_constant *next;
    struct zt_view view; /* of pool memory */
    uint32_t *words;     /* what the caller passed, 4 bytes an element */
    bool used;           /* by this pass */
};

/* ---- keeping ---- */

static void free_constant(struct zt_step *s, struct zt_constant *c)
{
    zt_pool_free(s->cfg.pool, c->view.data);
    free(c->words);
    free(c);
}

static void drop(struct zt_step *s, bool unused_only)
{
    struct zt_constant **at = &s->constants;

    while (*at) {
        struct zt_constant *c = *at;

        if (unused_only && c->used) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        free_constant(s, c);
    }
}

static bool is_same_size(struct zt_extent a, struct zt_extent b)
{
    return a.B == b.B && a.T == b.T && a.S == b.S;
}

void zt_constants_begin(struct zt_step *s)
{
    struct zt_extent size = {s->pass.B, s->pass.T, s->pass.S};

    bool same_mode = s->pass.mode == s->constants_mode;
    bool same = same_mode && is_same_size(size, s->constants_size);

    if (!same)
        drop(s, false);
    if (!same && !(same_mode && s->pass.mode == ZT_MODE_GENERATE))
        zt_rope_tables_drop(s);
    s->constants_mode = s->pass.mode;
    s->constants_size = size;
    for (struct zt_constant *c = s->constants; c; c = c->next)
        c->used = false;
}

void zt_constants_end(struct zt_step *s)
{
    drop(s, true);
}

void zt_constants_close(struct zt_step *s)
{
    drop(s, false);
}

/* ---- making ---- */

static bool is_equal(const struct zt_constant *c, const struct zt_view *v,
                     const void *values)
{
    if (c->view.dtype != v->dtype || c->view.ndim != v->ndim)
        return false;
    for (int i = 0; i < v->ndim; i++)
        if (c->view.shape[i] != v->shape[i])
            return false;
    return memcmp(c->words, values, (size_t)zt_view_numel(v) * sizeof(*c->words)) == 0;
}

/* The bits of an fp32 as bf16 or fp16. */
static uint16_t round_to(zt_dtype dtype, uint32_t word)
{
    float x;

    memcpy(&x, &word, sizeof(x));
    return dtype == ZT_BF16 ? zt_bf16_of_float(x) : zt_f16_of_float(x);
}

/* The caller's values in the type of the constant, to the device. */
static zt_err upload(struct zt_step *s, const struct zt_constant *c)
{
    const struct zt_backend *be = s->cfg.backend;
    int64_t n = zt_view_numel(&c->view);
    const void *from = c->words;
    uint16_t *rounded = NULL;
    zt_err rc;

    if (c->view.dtype == ZT_BF16 || c->view.dtype == ZT_F16) {
        from = rounded = malloc((size_t)n * sizeof(*rounded));
        if (!rounded)
            return zt_fault_set(&s->fault, ZT_E_NOMEM, "no host memory");
        for (int64_t i = 0; i < n; i++)
            rounded[i] = round_to(c->view.dtype, c->words[i]);
    }
    rc = be->upload(s->cfg.device, NULL, c->view.data, from,
                    (size_t)n * zt_dtype_bytes(c->view.dtype), &s->fault);
    if (!rc)
        rc = be->sync(s->cfg.device, NULL, &s->fault);
    free(rounded);
    return rc;
}

static struct zt_constant *make(struct zt_step *s, const struct zt_view *v,
                                const void *values)
{
    size_t n = (size_t)zt_view_numel(v);
    struct zt_constant *c = calloc(1, sizeof(*c));
    zt_err rc;

    if (c)
        c->words = malloc(n * sizeof(*c->words));
    if (!c || !c->words) {
        free(c);
        return zt_step_fail(s, ZT_E_NOMEM, "no host memory");
    }
    memcpy(c->words, values, n * sizeof(*c->words));
    c->view = *v;
    rc = zt_pool_alloc(s->cfg.pool, n * zt_dtype_bytes(v->dtype), &c->view.data,
                       &s->fault);
    if (!rc)
        rc = upload(s, c);
    if (!zt_step_check(s, rc)) {
        free_constant(s, c);
        return NULL;
    }
    c->next = s->constants;
    s->constants = c;
    return c;
}

static bool check(struct zt_step *s, zt_dtype dtype, int ndim, const int64_t *shape,
                  const void *values)
{
    int64_t n = 1;

    if (dtype != ZT_I32 && dtype != ZT_F32 && dtype != s->cfg.compute_dtype)
        return zt_step_fail(s, ZT_E_ARG, "of %s: i32, f32 and the run's %s are possible",
                            zt_dtype_name(dtype), zt_dtype_name(s->cfg.compute_dtype));
    if (!values || ndim < 0 || ndim > ZT_MAX_NDIM)
        return zt_step_fail(s, ZT_E_ARG, "%d axes%s", ndim,
                            values ? "" : ", and no values");
    for (int i = 0; i < ndim; i++) {
        if (shape[i] <= 0 || shape[i] > (INT64_MAX >> 8) / n)
            return zt_step_fail(s, ZT_E_ARG, "axis %d is %lld", i, (long long)shape[i]);
        n *= shape[i];
    }
    return true;
}

zt_tensor *zt_constant(zt_step *s, zt_dtype dtype, int ndim, const int64_t *shape,
                       const void *values)
{
    struct zt_constant *c = s->constants;
    struct zt_view v;

    if (!zt_op_start(s, "constant", NULL, 0) || !check(s, dtype, ndim, shape, values))
        return NULL;
    v = zt_view_of(NULL, dtype, ndim, shape);
    while (c && !is_equal(c, &v, values))
        c = c->next;
    if (!c)
        c = make(s, &v, values);
    if (!c)
        return NULL;
    c->used = true;
    return zt_value_borrow(s, &c->view);
}
