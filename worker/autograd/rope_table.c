/*
 * rope_table.c -- tables of cos and sin for rotary embedding, made once and kept.
 *
 * A table covers the positions a pass can have; a longer pass replaces it by a longer
 * one. Tables live in the pool, over the end of a step, until a pass of another mode or size
 * (constant.c): a table that grew in the middle of one pass would lie in the way of the next,
 * where the plan has none. Passes that generate keep theirs, as the cache.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/autograd/tape.h"

static void drop_table(struct zt_step *s, struct zt_rope_table *t)
{
    zt_pool_free(s->cfg.pool, t->cos);
    zt_pool_free(s->cfg.pool, t->sin);
    t->cos = t->sin = NULL;
    t->positions = 0;
}

void zt_rope_tables_drop(struct zt_step *s)
{
    for (struct zt_rope_table *t = s->ropes; t; t = t->next)
        drop_table(s, t);
}

void zt_rope_tables_close(struct zt_step *s)
{
    struct zt_rope_table *next;

    for (struct zt_rope_table *t = s->ropes; t; t = next) {
        next = t->next;
        drop_table(s, t);
        free(t->host);
        free(t->inv_freq);
        free(t);
    }
    s->ropes = NULL;
}

/* The angle is taken in double: it can be large. */
static bool fill_host(struct zt_rope_table *t, int64_t positions)
{
    int half = t->rotary_dims / 2;
    int64_t n = positions * half;
    float *host;

    if (positions <= t->host_positions)
        return true;
    host = malloc(2 * (size_t)n * sizeof(*host));
    if (!host)
        return false;
    for (int64_t p = 0; p < positions; p++)
        for (int i = 0; i < half; i++) {
            double angle = (double)p * (double)t->inv_freq[i];

            host[p * half + i] = (float)(cos(angle) * (double)t->magnitude);
            host[n + p * half + i] = (float)(sin(angle) * (double)t->magnitude);
        }
    free(t->host);
    t->host = host;
    t->host_positions = positions;
    return true;
}

static zt_err upload(struct zt_step *s, struct zt_rope_table *t)
{
    const struct zt_backend *be = s->cfg.backend;
    int64_t half = t->rotary_dims / 2;
    size_t bytes = (size_t)(t->positions * half) * sizeof(float);
    const float *sines = t->host + t->host_positions * half;
    zt_err rc = be->upload(s->cfg.device, NULL, t->cos, t->host, bytes, &s->fault);

    if (!rc)
        rc = be->upload(s->cfg.device, NULL, t->sin, sines, bytes, &s->fault);
    return rc ? rc : be->sync(s->cfg.device, NULL, &s->fault);
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

    drop_table(s, t);
    if (!fill_host(t, positions))
        return zt_step_fail(s, ZT_E_NOMEM, "no host memory for its table");
    rc = zt_pool_alloc(s->cfg.pool, bytes, &t->cos, &s->fault);
    if (!rc)
        rc = zt_pool_alloc(s->cfg.pool, bytes, &t->sin, &s->fault);
    if (!rc) {
        t->positions = positions;
        rc = upload(s, t);
    }
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
