/*
 * op_rope.c -- rotary embedding; tables of cos and sin are made once and kept.
 *
 * A table covers the positions a pass can have; a longer pass replaces it by a longer
 * one. Tables live in the pool, over the end of a step.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/autograd/tape.h"

void zt_rope_frequencies(float *inv_freq, int rotary_dims, double base)
{
    for (int i = 0; i < rotary_dims / 2; i++)
        inv_freq[i] = (float)pow(base, -2.0 * i / rotary_dims);
}

/* ---- tables ---- */

static void close_table(struct zt_step *s, struct zt_rope_table *t)
{
    zt_pool_free(s->cfg.pool, t->cos);
    zt_pool_free(s->cfg.pool, t->sin);
    free(t->inv_freq);
    free(t);
}

void zt_ropes_close(struct zt_step *s)
{
    struct zt_rope_table *next;

    for (struct zt_rope_table *t = s->ropes; t; t = next) {
        next = t->next;
        close_table(s, t);
    }
    s->ropes = NULL;
}

/* Fill t->cos or t->sin from fn. The angle is taken in double: it can be large. */
static zt_err upload_table(struct zt_step *s, const struct zt_rope_table *t, void *dst,
                           double (*fn)(double))
{
    int half = t->rotary_dims / 2;
    size_t bytes = (size_t)t->positions * (size_t)half * sizeof(float);
    float *host = malloc(bytes);
    zt_err rc;

    if (!host)
        return zt_fault_set(&s->fault, ZT_E_NOMEM, "no host memory for its table");
    for (int64_t p = 0; p < t->positions; p++)
        for (int i = 0; i < half; i++)
            host[p * half + i] =
                (float)(fn((double)p * (double)t->inv_freq[i]) * (double)t->magnitude);
    rc = s->cfg.backend->upload(s->cfg.device, NULL, dst, host, bytes, &s->fault);
    if (!rc)
        rc = s->cfg.backend->sync(s->cfg.device, NULL, &s->fault);
    free(host);
    return rc;
}

static struct zt_rope_table *add_table(struct zt_step *s, const struct zt_rope *rope,
                                       float magnitude)
{
    size_t bytes = (size_t)rope->rotary_dims / 2 * sizeof(float);
    struct zt_rope_table *t = calloc(1, sizeof(*t));
    float *copy = malloc(bytes);

    if (!t || !copy) {
        free(t);
        free(copy);
        return zt_step_fail(s, ZT_E_NOMEM, "no host memory for its table");
    }
    memcpy(copy, rope->inv_freq, bytes);
    t->inv_freq = copy;
    t->rotary_dims = rope->rotary_dims;
    t->magnitude = magnitude;
    t->next = s->ropes;
    s->ropes = t;
    return t;
}

/* Nodes know the table, not its memory, so it may grow in the middle of a pass. */
static bool grow_table(struct zt_step *s, struct zt_rope_table *t, int64_t positions)
{
    size_t bytes = (size_t)positions * (size_t)t->rotary_dims / 2 * sizeof(float);
    zt_err rc;

    zt_pool_free(s->cfg.pool, t->cos);
    zt_pool_free(s->cfg.pool, t->sin);
    t->cos = t->sin = NULL;
    t->positions = 0;
    rc = zt_pool_alloc(s->cfg.pool, bytes, &t->cos, &s->fault);
    if (!rc)
        rc = zt_pool_alloc(s->cfg.pool, bytes, &t->sin, &s->fault);
    if (!zt_step_check(s, rc))
        return false;
    t->positions = positions;
    rc = upload_table(s, t, t->cos, cos);
    if (!rc)
        rc = upload_table(s, t, t->sin, sin);
    return zt_step_check(s, rc);
}

/* Positions that this pass can have: those before the end of the text so far. */
static int64_t positions_needed(const struct zt_step *s, const struct zt_tensor *x)
{
    int64_t most = x->view.shape[1];

    if (s->pass.T > most)
        most = s->pass.T;
    if (s->pass.mode == ZT_MODE_GENERATE && s->cache.open && s->cache.max_tokens > most)
        most = s->cache.max_tokens;
    return most;
}

static struct zt_rope_table *find_table(struct zt_step *s, const struct zt_rope *rope,
                                        int64_t positions)
{
    float magnitude = rope->magnitude != 0 ? rope->magnitude : 1;
    struct zt_rope_table *t = s->ropes;

    while (t && (t->rotary_dims != rope->rotary_dims || t->magnitude != magnitude ||
                 memcmp(t->inv_freq, rope->inv_freq,
                        (size_t)rope->rotary_dims / 2 * sizeof(float)) != 0))
        t = t->next;
    if (!t)
        t = add_table(s, rope, magnitude);
    if (!t || (t->positions < positions && !grow_table(s, t, positions)))
        return NULL;
    return t;
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
    struct zt_sink dx;

    if (!zt_sink_open(s, &dx, n->in[0], ZT_SINK_SAME))
        return;
    a.x = zt_grad_of(n->out);
    a.y = dx.view;
    a.positions = zt_data(n->saved[0]);
    a.accumulate = dx.accumulate;
    set_tables(&a, r->table);
    zt_step_check(s, s->k->rope(s->cfg.device, NULL, &a, &s->fault));
    zt_sink_close(s, &dx);
}

static const struct zt_op op_rope = {"rope", rope_backward};

static bool check_rope(struct zt_step *s, const struct zt_tensor *x,
                       const struct zt_tensor *positions, const struct zt_rope *rope)
{
    const struct zt_view *v = &x->view;

    if (v->ndim != 4 || v->dtype > ZT_F16)
        zt_step_fail(s, ZT_E_ARG, "x %s %s, but (B, T, H, D) of floats is wanted",
                     ZT_SHAPE_TEXT(x), zt_dtype_name(v->dtype));
    else if (positions->view.ndim != 1 || positions->view.dtype != ZT_I32 ||
             positions->view.shape[0] != v->shape[1])
        zt_step_fail(s, ZT_E_ARG, "x %s but positions %s %s", ZT_SHAPE_TEXT(x),
                     ZT_SHAPE_TEXT(positions), zt_dtype_name(positions->view.dtype));
    else if (rope->rotary_dims <= 0 || rope->rotary_dims % 2 || !rope->inv_freq ||
             rope->rotary_dims > v->shape[3])
        zt_step_fail(s, ZT_E_ARG, "%d of the %lld dimensions rotate", rope->rotary_dims,
                     (long long)v->shape[3]);
    return !s->fault.code;
}

zt_tensor *zt_rope_apply(zt_step *s, zt_tensor *x, zt_tensor *positions,
                         const struct zt_rope *rope)
{
    struct rotation r;
    struct zt_rope_args a;
    struct zt_tensor *y;

    if (!ZT_OP_START(s, "rope", x, positions) || !check_rope(s, x, positions, rope))
        return NULL;
    r.interleaved = rope->interleaved;
    r.table = find_table(s, rope, positions_needed(s, x));
    x = r.table ? zt_unit_last(s, x) : NULL;
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
