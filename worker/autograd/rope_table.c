/*
 * rope_table.c -- tables of cos and sin for rotary embedding, made once and kept.
 *
 * A table covers the positions a pass can have; a longer pass replaces it by a longer
 * one. Tables live in the pool, over the end of a step.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/autograd/tape.h"

static void close_table(struct zt_step *s, struct zt_rope_table *t)
{
    zt_pool_free(s->cfg.pool, t->cos);
    zt_pool_free(s->cfg.pool, t->sin);
    free(t->inv_freq);
    free(t);
}

void zt_rope_tables_close(struct zt_step *s)
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

struct zt_rope_table *zt_rope_table(struct zt_step *s, const struct zt_rope *rope,
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
