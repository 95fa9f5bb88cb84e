/*
 * cache.c -- keys and values of earlier passes, kept for generation.
 *
 * The n-th self-attention of a pass finds the n-th entry. Entries are made by the first
 * pass that gets there; a reset forgets their contents only.
 */
#include <stdlib.h>

#include "worker/autograd/tape.h"

zt_err zt_step_cache_open(struct zt_step *s, int64_t B, int64_t max_tokens,
                          struct zt_fault *fault)
{
    if (s->cache.open)
        return zt_fault_set(fault, ZT_E_ARG, "a cache is open already");
    if (!s->cfg.model || !(s->cfg.model->plugin->flags & ZT_PLUGIN_CACHED))
        return zt_fault_set(fault, ZT_E_ARG,
                            "a cache for a plugin that does not say ZT_PLUGIN_CACHED");
    if (B <= 0 || max_tokens <= 0)
        return zt_fault_set(fault, ZT_E_ARG, "a cache of %lld rows of %lld tokens",
                            (long long)B, (long long)max_tokens);
    s->cache = (struct zt_cache){.open = true, .B = B, .max_tokens = max_tokens};
    return ZT_OK;
}

void zt_step_cache_reset(struct zt_step *s)
{
    s->cache.len = 0;
}

void zt_step_cache_close(struct zt_step *s)
{
    for (int i = 0; i < s->cache.num_entries; i++) {
        zt_pool_free(s->cfg.pool, s->cache.entries[i].k);
        zt_pool_free(s->cfg.pool, s->cache.entries[i].v);
    }
    free(s->cache.entries);
    s->cache = (struct zt_cache){.open = false};
}

void zt_cache_advance(struct zt_step *s)
{
    if (s->cache.open && s->pass.mode == ZT_MODE_GENERATE)
        s->cache.len += s->pass.T;
}

static struct zt_cache_entry *add_entry(struct zt_step *s, int64_t heads, int64_t width)
{
    struct zt_cache *c = &s->cache;
    size_t bytes = (size_t)(c->B * c->max_tokens * heads * width) *
                   zt_dtype_bytes(s->cfg.compute_dtype);
    struct zt_cache_entry *e, made = {.heads = heads, .width = width};

    e = realloc(c->entries, (size_t)(c->num_entries + 1) * sizeof(*e));
    if (!e)
        return zt_step_fail(s, ZT_E_NOMEM, "no host memory for the cache");
    c->entries = e;
    if (!zt_step_check(s, zt_pool_alloc(s->cfg.pool, bytes, &made.k, &s->fault)))
        return NULL;
    if (!zt_step_check(s, zt_pool_alloc(s->cfg.pool, bytes, &made.v, &s->fault))) {
        zt_pool_free(s->cfg.pool, made.k);
        return NULL;
    }
    e += c->num_entries++;
    *e = made;
    return e;
}

/* Copy t (B, T, K, D) behind what `memory` holds; a handle on all of it. */
static struct zt_tensor *append(struct zt_step *s, void *memory, struct zt_tensor *t)
{
    const struct zt_cache *c = &s->cache;
    const int64_t *d = t->view.shape;
    const int64_t whole[4] = {c->B, c->max_tokens, d[2], d[3]};
    struct zt_view all = zt_view_of(memory, t->view.dtype, 4, whole);
    struct zt_axpby_args a = {.x = zt_data(t), .y = all, .alpha = 1};

    a.y.shape[1] = d[1];
    a.y.data =
        (char *)memory + (size_t)(c->len * all.stride[1]) * zt_dtype_bytes(all.dtype);
    if (!zt_step_check(s, s->k->axpby(s->cfg.device, NULL, &a, &s->fault)))
        return NULL;
    all.shape[1] = c->len + d[1];
    return zt_value_borrow(s, &all);
}

void zt_cache_extend(struct zt_step *s, struct zt_tensor **k, struct zt_tensor **v)
{
    struct zt_cache *c = &s->cache;
    const int64_t *d = (*k)->view.shape;
    struct zt_cache_entry *e;

    if (d[0] != c->B || d[1] != s->pass.T) {
        zt_step_fail(s, ZT_E_UNSUPPORTED,
                     "keys %s: cached self-attention takes the pass's %lld rows of %lld "
                     "tokens",
                     ZT_SHAPE_TEXT(*k), (long long)c->B, (long long)s->pass.T);
        return;
    }
    e = c->next < c->num_entries ? &c->entries[c->next] : add_entry(s, d[2], d[3]);
    c->next++;
    if (!e)
        return;
    if (e->heads != d[2] || e->width != d[3]) {
        zt_step_fail(s, ZT_E_PLUGIN,
                     "keys %s, but earlier passes had %lld heads of %lld here",
                     ZT_SHAPE_TEXT(*k), (long long)e->heads, (long long)e->width);
        return;
    }
    *k = append(s, e->k, *k);
    *v = append(s, e->v, *v);
}
