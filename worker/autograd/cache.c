/*
 * cache.c -- keys and values of earlier passes, kept for generation.
 *
 * The n-th self-attention of a pass finds the n-th entry. Entries are made by the first
 * pass that gets there; what is forgotten later is their contents only. Each row counts its
 * own tokens, so rows of texts of different lengths stand side by side.
 */
#include <stdlib.h>
#include <string.h>

#include "worker/autograd/tape.h"

/* ---- the whole ---- */

static zt_err alloc_lengths(struct zt_step *s, struct zt_fault *fault)
{
    struct zt_cache *c = &s->cache;
    void *p = NULL;
    zt_err rc;

    c->lengths = calloc((size_t)c->B, sizeof(*c->lengths));
    if (!c->lengths)
        return zt_fault_set(fault, ZT_E_NOMEM, "no host memory for the cache");
    rc = s->cfg.backend->host_alloc(s->cfg.device, (size_t)c->B * sizeof(*c->uploaded),
                                    &p, fault);
    c->uploaded = p;
    return rc;
}

zt_err zt_step_cache_open(struct zt_step *s, int64_t B, int64_t max_tokens,
                          struct zt_fault *fault)
{
    zt_err rc;

    if (s->cache.open)
        return zt_fault_set(fault, ZT_E_ARG, "a cache is open already");
    if (!s->cfg.model || !(s->cfg.model->plugin->flags & ZT_PLUGIN_CACHED))
        return zt_fault_set(fault, ZT_E_ARG,
                            "a cache for a plugin that does not say ZT_PLUGIN_CACHED");
    if (B <= 0 || max_tokens <= 0 || max_tokens > INT32_MAX / 2)
        return zt_fault_set(fault, ZT_E_ARG, "a cache of %lld rows of %lld tokens",
                            (long long)B, (long long)max_tokens);
    s->cache = (struct zt_cache){.open = true, .B = B, .max_tokens = max_tokens};
    rc = alloc_lengths(s, fault);
    if (rc)
        zt_step_cache_close(s);
    return rc;
}

void zt_step_cache_reset(struct zt_step *s)
{
    if (s->cache.open)
        memset(s->cache.lengths, 0, (size_t)s->cache.B * sizeof(*s->cache.lengths));
}

void zt_step_cache_forget(struct zt_step *s, int64_t row)
{
    s->cache.lengths[row] = 0;
}

void zt_step_cache_close(struct zt_step *s)
{
    for (int i = 0; i < s->cache.num_entries; i++) {
        zt_pool_free(s->cfg.pool, s->cache.entries[i].k);
        zt_pool_free(s->cfg.pool, s->cache.entries[i].v);
    }
    free(s->cache.entries);
    free(s->cache.lengths);
    if (s->cache.uploaded)
        s->cfg.backend->host_free(s->cfg.device, s->cache.uploaded,
                                  (size_t)s->cache.B * sizeof(*s->cache.uploaded));
    s->cache = (struct zt_cache){.open = false};
}

static size_t entry_bytes(const struct zt_step *s, int64_t rows, int64_t tokens,
                          int64_t heads, int64_t width)
{
    return (size_t)(rows * tokens * heads * width) * zt_dtype_bytes(s->cfg.compute_dtype);
}

size_t zt_step_cache_bytes(const struct zt_step *s)
{
    const struct zt_cache *c = &s->cache;
    size_t sum = 0;

    for (int i = 0; i < c->num_entries; i++)
        sum += 2 * entry_bytes(s, c->B, c->max_tokens, c->entries[i].heads,
                               c->entries[i].width);
    return sum;
}

zt_err zt_step_cache_copy(struct zt_step *s, int64_t from, int64_t to,
                          struct zt_fault *fault)
{
    struct zt_cache *c = &s->cache;
    zt_err rc = ZT_OK;

    if (from < 0 || to < 0 || from >= c->B || to >= c->B)
        return zt_fault_set(fault, ZT_E_ARG, "cache: row %lld to %lld of %lld",
                            (long long)from, (long long)to, (long long)c->B);
    for (int i = 0; from != to && c->lengths[from] && i < 2 * c->num_entries; i++) {
        const struct zt_cache_entry *e = &c->entries[i / 2];
        size_t row = entry_bytes(s, 1, c->max_tokens, e->heads, e->width);
        char *memory = i % 2 ? e->v : e->k;

        rc = s->cfg.backend->copy(
            s->cfg.device, NULL, memory + (size_t)to * row, memory + (size_t)from * row,
            entry_bytes(s, 1, c->lengths[from], e->heads, e->width), fault);
        if (rc)
            return rc;
    }
    c->lengths[to] = c->lengths[from];
    return rc;
}

/* ---- in a pass ---- */

void zt_cache_begin(struct zt_step *s)
{
    s->cache.next = 0;
    if (zt_cache_is_used(s))
        memcpy(s->cache.uploaded, s->cache.lengths + s->pass.cache_row,
               (size_t)s->pass.B * sizeof(*s->cache.uploaded));
}

bool zt_cache_is_used(const struct zt_step *s)
{
    return s->cache.open && s->pass.mode == ZT_MODE_GENERATE && !s->pass.uncached;
}

int64_t zt_cache_length(const struct zt_step *s, int64_t row)
{
    return s->cache.lengths[s->pass.cache_row + row];
}

int64_t zt_cache_longest(const struct zt_step *s)
{
    int64_t most = 0;

    for (int64_t b = 0; b < s->pass.B; b++)
        if (zt_cache_length(s, b) > most)
            most = zt_cache_length(s, b);
    return most;
}

void zt_cache_advance(struct zt_step *s)
{
    for (int64_t b = 0; zt_cache_is_used(s) && b < s->pass.B; b++)
        s->cache.lengths[s->pass.cache_row + b] += (int32_t)s->pass.T;
}

struct zt_tensor *zt_cache_lengths(struct zt_step *s)
{
    struct zt_tensor *t = zt_value_new(s, ZT_I32, 1, &s->pass.B);

    if (!t)
        return NULL;
    zt_value_upload(s, t, s->cache.uploaded);
    return s->fault.code ? NULL : t;
}

static struct zt_cache_entry *add_entry(struct zt_step *s, int64_t heads, int64_t width)
{
    struct zt_cache *c = &s->cache;
    size_t bytes = entry_bytes(s, c->B, c->max_tokens, heads, width);
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

struct zt_cache_entry *zt_cache_next(struct zt_step *s, const struct zt_tensor *k)
{
    struct zt_cache *c = &s->cache;
    const int64_t *d = k->view.shape;
    struct zt_cache_entry *e;

    if (d[0] != s->pass.B || d[1] != s->pass.T)
        return zt_step_fail(
            s, ZT_E_UNSUPPORTED,
            "keys %s: cached self-attention takes the pass's %lld rows of "
            "%lld tokens",
            ZT_SHAPE_TEXT(k), (long long)s->pass.B, (long long)s->pass.T);
    e = c->next < c->num_entries ? &c->entries[c->next] : add_entry(s, d[2], d[3]);
    c->next++;
    if (e && (e->heads != d[2] || e->width != d[3]))
        return zt_step_fail(s, ZT_E_PLUGIN,
                            "keys %s, but earlier passes had %lld heads of %lld here",
                            ZT_SHAPE_TEXT(k), (long long)e->heads, (long long)e->width);
    return e;
}

struct zt_view zt_cache_rows(const struct zt_step *s, const struct zt_cache_entry *e,
                             void *memory)
{
    const int64_t shape[4] = {s->pass.B, s->cache.max_tokens, e->heads, e->width};
    size_t before =
        entry_bytes(s, s->pass.cache_row, s->cache.max_tokens, e->heads, e->width);

    return zt_view_of((char *)memory + before, s->cfg.compute_dtype, 4, shape);
}

/* Copy t (B, T, K, D) behind what `memory` holds; a handle on all of it. */
static struct zt_tensor *append(struct zt_step *s, const struct zt_cache_entry *e,
                                void *memory, struct zt_tensor *t)
{
    struct zt_view all = zt_cache_rows(s, e, memory);
    struct zt_axpby_args a = {.x = zt_data(t), .y = all, .alpha = 1};
    int64_t length = zt_cache_length(s, 0);

    a.y.shape[1] = s->pass.T;
    a.y.data =
        (char *)all.data + (size_t)(length * all.stride[1]) * zt_dtype_bytes(all.dtype);
    if (!zt_step_check(s, s->k->axpby(s->cfg.device, NULL, &a, &s->fault)))
        return NULL;
    all.shape[1] = length + s->pass.T;
    return zt_value_borrow(s, &all);
}

void zt_cache_extend(struct zt_step *s, struct zt_tensor **k, struct zt_tensor **v)
{
    struct zt_cache_entry *e = zt_cache_next(s, *k);

    if (!e)
        return;
    *k = append(s, e, e->k, *k);
    *v = append(s, e, e->v, *v);
}
