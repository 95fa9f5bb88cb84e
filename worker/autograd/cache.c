/*
 * cache.c -- keys and values of earlier passes, kept for generation.
 *
 * The n-th self-attention of a pass finds the n-th entry. Entries are made by the first
 * pass that gets there; what is forgotten later is their contents only. Each row counts its
 * own tokens, so rows of texts of different lengths stand side by side.
 *
 * Of a source the cross-attention has entries of their own, in which rows that are written
 * from one source (beams) share what is kept of it.
 */
#include <stdlib.h>
#include <string.h>

#include "worker/autograd/tape.h"

/* ---- the whole ---- */

static zt_err out_of_memory(struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_NOMEM, "no host memory for the cache");
}

/* `n` numbers in memory that uploads read. */
static zt_err alloc_uploaded(struct zt_step *s, int64_t n, int32_t **out,
                             struct zt_fault *fault)
{
    void *p = NULL;
    zt_err rc =
        s->cfg.backend->host_alloc(s->cfg.device, (size_t)n * sizeof(**out), &p, fault);

    *out = p;
    return rc;
}

static void free_uploaded(struct zt_step *s, int32_t *p, int64_t n)
{
    if (p)
        s->cfg.backend->host_free(s->cfg.device, p, (size_t)n * sizeof(*p));
}

bool zt_plugin_has_cache(const struct zt_plugin *p, bool reads_source)
{
    return p->flags & ZT_PLUGIN_CACHED &&
           (!reads_source || p->flags & ZT_PLUGIN_CACHED_SOURCE);
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
    s->cache.lengths = calloc((size_t)B, sizeof(*s->cache.lengths));
    rc = s->cache.lengths ? alloc_uploaded(s, B, &s->cache.uploaded, fault)
                          : out_of_memory(fault);
    if (rc)
        zt_step_cache_close(s);
    return rc;
}

zt_err zt_step_cache_add_sources(struct zt_step *s, int64_t num, int64_t rows_each,
                                 int64_t max_source, struct zt_fault *fault)
{
    struct zt_cache *c = &s->cache;

    if (!c->open || c->rows_each || c->texts.num)
        return zt_fault_set(fault, ZT_E_ARG, "sources are for a cache that is new");
    if (!zt_plugin_has_cache(s->cfg.model->plugin, true))
        return zt_fault_set(fault, ZT_E_ARG,
                            "sources in the cache of a plugin that does not say "
                            "ZT_PLUGIN_CACHED_SOURCE");
    if (num <= 0 || rows_each <= 0 || num > c->B / rows_each || max_source <= 0 ||
        max_source > INT32_MAX / 2)
        return zt_fault_set(
            fault, ZT_E_ARG, "%lld sources of %lld tokens for %lld rows each, of %lld",
            (long long)num, (long long)max_source, (long long)rows_each, (long long)c->B);
    c->source_lengths = calloc((size_t)num, sizeof(*c->source_lengths));
    if (!c->source_lengths)
        return out_of_memory(fault);
    c->rows_each = rows_each;
    c->num_sources = num;
    c->max_source = max_source;
    return alloc_uploaded(s, c->B, &c->uploaded_sources, fault);
}

void zt_step_cache_reset(struct zt_step *s)
{
    struct zt_cache *c = &s->cache;

    if (!c->open)
        return;
    memset(c->lengths, 0, (size_t)c->B * sizeof(*c->lengths));
    if (c->source_lengths)
        memset(c->source_lengths, 0, (size_t)c->num_sources * sizeof(*c->source_lengths));
}

void zt_step_cache_forget(struct zt_step *s, int64_t row)
{
    s->cache.lengths[row] = 0;
}

static void free_entries(struct zt_step *s, struct zt_cache_entries *e)
{
    for (int i = 0; i < e->num; i++) {
        zt_pool_free(s->cfg.pool, e->at[i].k);
        zt_pool_free(s->cfg.pool, e->at[i].v);
    }
    free(e->at);
}

void zt_step_cache_close(struct zt_step *s)
{
    struct zt_cache *c = &s->cache;

    free_entries(s, &c->texts);
    free_entries(s, &c->sources);
    free(c->lengths);
    free(c->source_lengths);
    free_uploaded(s, c->uploaded, c->B);
    free_uploaded(s, c->uploaded_sources, c->B);
    free_uploaded(s, c->relative, c->B * c->max_tokens);
    *c = (struct zt_cache){.open = false};
}

static size_t entry_bytes(const struct zt_step *s, int64_t rows, int64_t tokens,
                          int64_t heads, int64_t width)
{
    return (size_t)(rows * tokens * heads * width) * zt_dtype_bytes(s->cfg.compute_dtype);
}

static size_t entries_bytes(const struct zt_step *s, const struct zt_cache_entries *e,
                            int64_t rows, int64_t tokens)
{
    size_t sum = 0;

    for (int i = 0; i < e->num; i++)
        sum += 2 * entry_bytes(s, rows, tokens, e->at[i].heads, e->at[i].width);
    return sum;
}

size_t zt_step_cache_bytes(const struct zt_step *s)
{
    const struct zt_cache *c = &s->cache;

    return entries_bytes(s, &c->texts, c->B, c->max_tokens) +
           entries_bytes(s, &c->sources, c->num_sources, c->max_source);
}

/* The first `count` of `tokens` keys and values of one row are those of another one. */
static zt_err copy_row(struct zt_step *s, const struct zt_cache_entries *all,
                       int64_t tokens, int64_t count, int64_t from, int64_t to,
                       struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && from != to && count && i < 2 * all->num; i++) {
        const struct zt_cache_entry *e = &all->at[i / 2];
        size_t row = entry_bytes(s, 1, tokens, e->heads, e->width);
        char *memory = i % 2 ? e->v : e->k;

        rc = s->cfg.backend->copy(s->cfg.device, NULL, memory + (size_t)to * row,
                                  memory + (size_t)from * row,
                                  entry_bytes(s, 1, count, e->heads, e->width), fault);
    }
    return rc;
}

/* The source of the row is needed once, by the first of those that are written from it. */
static zt_err copy_source(struct zt_step *s, int64_t from_row, int64_t to_row,
                          struct zt_fault *fault)
{
    struct zt_cache *c = &s->cache;
    int64_t from = from_row / c->rows_each, to = to_row / c->rows_each;
    zt_err rc;

    if (from >= c->num_sources || to >= c->num_sources || to_row % c->rows_each)
        return ZT_OK;
    rc =
        copy_row(s, &c->sources, c->max_source, c->source_lengths[from], from, to, fault);
    c->source_lengths[to] = c->source_lengths[from];
    return rc;
}

zt_err zt_step_cache_copy(struct zt_step *s, int64_t from, int64_t to,
                          struct zt_fault *fault)
{
    struct zt_cache *c = &s->cache;
    zt_err rc;

    if (from < 0 || to < 0 || from >= c->B || to >= c->B)
        return zt_fault_set(fault, ZT_E_ARG, "cache: row %lld to %lld of %lld",
                            (long long)from, (long long)to, (long long)c->B);
    rc = copy_row(s, &c->texts, c->max_tokens, c->lengths[from], from, to, fault);
    if (!rc && c->rows_each)
        rc = copy_source(s, from, to, fault);
    c->lengths[to] = c->lengths[from];
    return rc;
}

/* ---- in a pass ---- */

/* The source of a row of the pass. */
static int64_t source_of(const struct zt_step *s, int64_t row)
{
    return (s->pass.cache_row + row) / s->cache.rows_each;
}

void zt_cache_begin(struct zt_step *s)
{
    struct zt_cache *c = &s->cache;

    c->texts.next = c->sources.next = 0;
    c->relative_is_uploading = false;
    if (!zt_cache_is_used(s))
        return;
    memcpy(c->uploaded, c->lengths + s->pass.cache_row,
           (size_t)s->pass.B * sizeof(*c->uploaded));
    if (!c->rows_each)
        return;
    if (s->pass.S) /* of one row */
        c->source_lengths[source_of(s, 0)] = (int32_t)s->pass.S;
    for (int64_t b = 0; b < s->pass.B; b++)
        c->uploaded_sources[b] = c->source_lengths[source_of(s, b)];
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

static struct zt_tensor *upload_lengths(struct zt_step *s, const int32_t *lengths)
{
    struct zt_tensor *t = zt_value_new(s, ZT_I32, 1, &s->pass.B);

    if (!t)
        return NULL;
    zt_value_upload(s, t, lengths);
    return s->fault.code ? NULL : t;
}

struct zt_tensor *zt_cache_lengths(struct zt_step *s)
{
    return upload_lengths(s, s->cache.uploaded);
}

struct zt_tensor *zt_cache_source_lengths(struct zt_step *s)
{
    return upload_lengths(s, s->cache.uploaded_sources);
}

/* An entry of `rows` with room for `tokens` each, for what k is like. */
static struct zt_cache_entry *add_entry(struct zt_step *s, struct zt_cache_entries *all,
                                        int64_t rows, int64_t tokens,
                                        const struct zt_tensor *k)
{
    struct zt_cache_entry *e,
        made = {.heads = k->view.shape[2], .width = k->view.shape[3]};
    size_t bytes = entry_bytes(s, rows, tokens, made.heads, made.width);

    e = realloc(all->at, (size_t)(all->num + 1) * sizeof(*e));
    if (!e)
        return zt_step_fail(s, ZT_E_NOMEM, "no host memory for the cache");
    all->at = e;
    if (!zt_step_check(s, zt_pool_alloc(s->cfg.pool, bytes, &made.k, &s->fault)))
        return NULL;
    if (!zt_step_check(s, zt_pool_alloc(s->cfg.pool, bytes, &made.v, &s->fault))) {
        zt_pool_free(s->cfg.pool, made.k);
        return NULL;
    }
    e += all->num++;
    *e = made;
    return e;
}

/* The entry of the call that is next, which is made where it is the first one. */
static struct zt_cache_entry *next_entry(struct zt_step *s, struct zt_cache_entries *all,
                                         int64_t rows, int64_t tokens,
                                         const struct zt_tensor *k)
{
    const int64_t *d = k->view.shape;
    struct zt_cache_entry *e;

    e = all->next < all->num ? &all->at[all->next] : add_entry(s, all, rows, tokens, k);
    all->next++;
    if (e && (e->heads != d[2] || e->width != d[3]))
        return zt_step_fail(s, ZT_E_PLUGIN,
                            "keys %s, but earlier passes had %lld heads of %lld here",
                            ZT_SHAPE_TEXT(k), (long long)e->heads, (long long)e->width);
    return e;
}

struct zt_cache_entry *zt_cache_next(struct zt_step *s, const struct zt_tensor *k)
{
    struct zt_cache *c = &s->cache;
    const int64_t *d = k->view.shape;

    if (d[0] != s->pass.B || d[1] != s->pass.T)
        return zt_step_fail(
            s, ZT_E_UNSUPPORTED,
            "keys %s: cached self-attention takes the pass's %lld rows of "
            "%lld tokens",
            ZT_SHAPE_TEXT(k), (long long)s->pass.B, (long long)s->pass.T);
    return next_entry(s, &c->texts, c->B, c->max_tokens, k);
}

/* ---- sources ---- */

bool zt_cache_has_sources(const struct zt_step *s)
{
    return s->cache.rows_each > 0;
}

/* Copy t (1, S, K, D) to where `memory` has the source of the pass. */
static void store_source(struct zt_step *s, const struct zt_cache_entry *e, void *memory,
                         const struct zt_tensor *t)
{
    const struct zt_cache *c = &s->cache;
    size_t before = entry_bytes(s, source_of(s, 0), c->max_source, e->heads, e->width);
    struct zt_axpby_args a = {.x = zt_data(t), .alpha = 1};

    a.y = zt_view_of((char *)memory + before, s->cfg.compute_dtype, 4, a.x.shape);
    zt_step_check(s, s->k->axpby(s->cfg.device, NULL, &a, &s->fault));
}

struct zt_cache_entry *zt_cache_source(struct zt_step *s, const struct zt_tensor *k,
                                       const struct zt_tensor *v)
{
    struct zt_cache *c = &s->cache;
    struct zt_cache_entry *e;

    if (!k) {
        if (c->sources.next < c->sources.num)
            return &c->sources.at[c->sources.next++];
        return zt_step_fail(s, ZT_E_PLUGIN, "no pass before had keys of a source here");
    }
    if (k->view.ndim != 4 || k->view.shape[0] != 1 || k->view.shape[1] != s->pass.S ||
        v->view.ndim != 4 ||
        memcmp(k->view.shape, v->view.shape, 4 * sizeof(int64_t)) != 0)
        return zt_step_fail(
            s, ZT_E_ARG,
            "keys %s and values %s, but (1, %lld, heads, width) is wanted "
            "in a pass that reads a source",
            ZT_SHAPE_TEXT(k), ZT_SHAPE_TEXT(v), (long long)s->pass.S);
    e = next_entry(s, &c->sources, c->num_sources, c->max_source, k);
    if (!e)
        return NULL;
    store_source(s, e, e->k, k);
    store_source(s, e, e->v, v);
    return s->fault.code ? NULL : e;
}

int32_t *zt_cache_relative_ids(struct zt_step *s)
{
    struct zt_cache *c = &s->cache;
    zt_err rc = ZT_OK;

    if (!c->relative)
        rc = alloc_uploaded(s, c->B * c->max_tokens, &c->relative, &s->fault);
    if (!rc && c->relative_is_uploading)
        rc = s->cfg.backend->sync(s->cfg.device, NULL, &s->fault);
    c->relative_is_uploading = true;
    return zt_step_check(s, rc) ? c->relative : NULL;
}

/* ---- texts ---- */

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
