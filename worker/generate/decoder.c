#include "worker/generate/decoder.h"

#include <stdlib.h>
#include <string.h>

#include "common/half.h"

/* What a row's text is written from, as rows of training have it. */
struct decoder_source {
    int32_t *ids;
    int64_t n;
};

struct zt_decoder {
    struct zt_engine *e;
    struct zt_generation g;
    bool cached;
    int tokens_field;
    struct zt_context *contexts;    /* (rows) */
    struct decoder_source *sources; /* (rows), of a model that reads one; else NULL */
    int source_field, lengths_field;
    int32_t *tokens;     /* of a pass, in memory that uploads read */
    int64_t most_tokens; /* that `tokens` holds */
    void *wide;          /* logits of a pass as the device has them */
    size_t wide_bytes;
};

/* ---- a pass ---- */

/* The last row of each text, (B, R, V) on the device, to (B, V) fp32 on the host. */
static zt_err read_logits(struct zt_decoder *d, const struct zt_view *v, float *logits,
                          struct zt_fault *fault)
{
    const struct zt_engine *e = d->e;
    int64_t V = e->model->vocab;
    size_t width = zt_dtype_bytes(v->dtype), bytes = (size_t)V * width;
    int64_t n = v->shape[0] * V;
    char *wide = d->wide; /* NULL where all is fp32 */
    zt_err rc = ZT_OK;

    for (int64_t b = 0; !rc && b < v->shape[0]; b++) {
        int64_t at = b * v->stride[0] + (v->shape[1] - 1) * v->stride[1];

        rc = e->backend->download(
            e->device, NULL,
            v->dtype == ZT_F32 ? (char *)(logits + b * V) : wide + (size_t)b * bytes,
            (const char *)v->data + (size_t)at * width, bytes, fault);
    }
    if (!rc)
        rc = e->backend->sync(e->device, NULL, fault);
    for (int64_t i = 0; !rc && wide && v->dtype != ZT_F32 && i < n; i++) {
        uint16_t h;

        memcpy(&h, wide + 2 * i, sizeof(h));
        logits[i] = v->dtype == ZT_BF16 ? zt_float_of_bf16(h) : zt_float_of_f16(h);
    }
    return rc;
}

/* The source of a row; before any text begins, of one token. `length` is the field. */
static void set_source(const struct zt_decoder *d, int64_t row, int32_t *length,
                       struct zt_pass *pass)
{
    static const int32_t none[1];
    const struct decoder_source *s = &d->sources[row];

    *length = s->ids ? (int32_t)s->n : 1;
    pass->S = *length;
    pass->fields[d->source_field] = s->ids ? s->ids : none;
    if (d->lengths_field >= 0)
        pass->fields[d->lengths_field] = length;
}

/* Of models that read a source: whether a pass does, or has it from an earlier one. */
enum source_pass { UNREAD, READ };

/* d->tokens (B, T) behind what rows [row, row + B) have; logits (B, V), NULL: for the
 * gathers alone. */
static zt_err run_pass(struct zt_decoder *d, int64_t row, int64_t B, int64_t T,
                       enum source_pass source, float *logits, struct zt_fault *fault)
{
    struct zt_engine *e = d->e;
    struct zt_pass pass = {.mode = ZT_MODE_GENERATE,
                           .B = B,
                           .T = T,
                           .last_only = true,
                           .cache_row = row,
                           .uncached = !logits};
    zt_tensor *out = NULL;
    int32_t length;
    zt_err rc;

    pass.fields[d->tokens_field] = d->tokens;
    if (d->sources && source == UNREAD)
        set_source(d, row, &length, &pass);
    zt_zero_pass_begin(e->zero, pass.mode, 0);
    rc = zt_step_forward(e->step, &pass, &out, fault);
    if (!rc && logits)
        rc = read_logits(d, zt_tensor_view(out), logits, fault);
    else if (!rc)
        rc = e->backend->sync(e->device, NULL, fault);
    zt_step_end(e->step);
    return rc ? rc : zt_zero_pass_end(e->zero, fault);
}

/* ---- opening ---- */

static bool gathers(const struct zt_engine *e)
{
    return e->run->world > 1 && e->run->zero.stage == 3;
}

/*
 * A pass whose result nobody reads: what stays in the pool from pass to pass is made by it,
 * and lies there as it was planned, whatever the texts are.
 */
static zt_err warm_up(struct zt_decoder *d, struct zt_fault *fault)
{
    int64_t T = d->cached ? 1 : d->g.tokens;
    float *unused = calloc((size_t)d->e->model->vocab, sizeof(*unused));
    zt_err rc;

    if (!unused)
        return zt_fault_set(fault, ZT_E_NOMEM, "generation: no host memory");
    memset(d->tokens, 0, (size_t)T * sizeof(*d->tokens));
    rc = run_pass(d, 0, 1, T, UNREAD, unused, fault);
    zt_step_cache_reset(d->e->step);
    free(unused);
    return rc;
}

static zt_err alloc(struct zt_decoder *d, struct zt_fault *fault)
{
    struct zt_engine *e = d->e;
    void *p = NULL;
    zt_err rc;

    d->most_tokens = d->g.tokens > d->g.rows ? d->g.tokens : d->g.rows;
    d->wide_bytes = e->run->compute_dtype == ZT_F32
                        ? 0
                        : (size_t)(d->g.rows * e->model->vocab) * sizeof(uint16_t);
    d->contexts = calloc((size_t)d->g.rows, sizeof(*d->contexts));
    if (e->source_size)
        d->sources = calloc((size_t)d->g.rows, sizeof(*d->sources));
    if (!d->contexts || (e->source_size && !d->sources))
        return zt_fault_set(fault, ZT_E_NOMEM, "generation: no host memory");
    rc = e->backend->host_alloc(e->device, (size_t)d->most_tokens * sizeof(*d->tokens),
                                &p, fault);
    d->tokens = p;
    if (!rc && d->wide_bytes)
        rc = e->backend->host_alloc(e->device, d->wide_bytes, &d->wide, fault);
    return rc;
}

zt_err zt_decoder_open(struct zt_engine *e, const struct zt_generation *g,
                       struct zt_decoder **out, struct zt_fault *fault)
{
    struct zt_decoder *d = calloc(1, sizeof(*d));
    zt_err rc;

    if (!d)
        return zt_fault_set(fault, ZT_E_NOMEM, "generation: no host memory");
    d->e = e;
    d->g = *g;
    d->cached = zt_plugin_has_cache(e->plugin, e->source_size > 0);
    d->source_field = zt_batch_find(&e->model->layout, ZT_SOURCE);
    d->lengths_field = zt_batch_find(&e->model->layout, ZT_SOURCE_LENGTHS);
    d->tokens_field = zt_batch_find(&e->model->layout, ZT_TOKENS);
    rc = alloc(d, fault);
    if (!rc && d->cached)
        rc = zt_step_cache_open(e->step, g->cache_rows, g->tokens, fault);
    if (!rc && d->cached && d->sources)
        rc = zt_step_cache_add_sources(e->step, g->num_sources, g->source_rows,
                                       g->source_tokens, fault);
    if (!rc)
        rc = warm_up(d, fault);
    if (rc) {
        zt_decoder_close(d);
        return rc;
    }
    *out = d;
    return ZT_OK;
}

void zt_decoder_close(struct zt_decoder *d)
{
    if (!d)
        return;
    zt_step_cache_close(d->e->step);
    if (d->tokens)
        d->e->backend->host_free(d->e->device, d->tokens,
                                 (size_t)d->most_tokens * sizeof(*d->tokens));
    if (d->wide)
        d->e->backend->host_free(d->e->device, d->wide, d->wide_bytes);
    for (int64_t i = 0; d->sources && i < d->g.rows; i++)
        free(d->sources[i].ids);
    free(d->sources);
    free(d->contexts);
    free(d);
}

/* ---- rows ---- */

void zt_decoder_begin(struct zt_decoder *d, int64_t row, int64_t n)
{
    zt_context_begin(&d->contexts[row], d->g.tokens, d->cached, n);
    if (d->cached)
        zt_step_cache_forget(d->e->step, row);
}

zt_err zt_decoder_set_source(struct zt_decoder *d, int64_t row, const int32_t *ids,
                             int64_t n, struct zt_fault *fault)
{
    int64_t most = d->e->source_size;
    int32_t *own = malloc((size_t)(n + 1) * sizeof(*own));

    if (!own)
        return zt_fault_set(fault, ZT_E_NOMEM, "generation: no host memory");
    memcpy(own, ids, (size_t)n * sizeof(*own));
    if (n > most) { /* its last token ends it */
        own[most - 1] = own[n - 1];
        n = most;
    }
    free(d->sources[row].ids);
    d->sources[row].ids = own;
    d->sources[row].n = n;
    return ZT_OK;
}

zt_err zt_decoder_move(struct zt_decoder *d, int64_t from, int64_t to,
                       struct zt_fault *fault)
{
    d->contexts[to] = d->contexts[from];
    if (d->sources) {
        struct decoder_source s = d->sources[to];

        d->sources[to] = d->sources[from];
        d->sources[from] = s;
    }
    return d->cached ? zt_step_cache_copy(d->e->step, from, to, fault) : ZT_OK;
}

/*
 * Rows that nobody becomes any more are written first; where every row that is left is
 * somebody's, they change places in a circle, which the spare row opens.
 */
static zt_err copy_in_order(struct zt_decoder *d, int64_t first, int32_t *from, int64_t n,
                            struct zt_fault *fault)
{
    struct zt_step *s = d->e->step;
    int64_t spare = d->g.rows - first; /* behind all texts, counted from `first` */
    zt_err rc = ZT_OK;

    for (;;) {
        int64_t free_row = -1, any = -1;

        for (int64_t i = 0; i < n; i++) {
            bool needed = false;

            if (from[i] == i)
                continue;
            any = i;
            for (int64_t k = 0; k < n; k++)
                needed |= from[k] == i;
            if (!needed)
                free_row = i;
        }
        if (any < 0)
            return ZT_OK;
        if (free_row >= 0) {
            rc = zt_step_cache_copy(s, first + from[free_row], first + free_row, fault);
            from[free_row] = (int32_t)free_row;
        } else {
            rc = zt_step_cache_copy(s, first + any, first + spare, fault);
            for (int64_t k = 0; k < n; k++)
                from[k] = from[k] == any ? (int32_t)spare : from[k];
        }
        if (rc)
            return rc;
    }
}

zt_err zt_decoder_reorder(struct zt_decoder *d, int64_t first, const int32_t *from,
                          int64_t n, struct zt_fault *fault)
{
    int32_t *left = malloc((size_t)n * sizeof(*left));
    struct zt_context *were = malloc((size_t)n * sizeof(*were));
    zt_err rc = ZT_OK;

    if (!left || !were) {
        rc = zt_fault_set(fault, ZT_E_NOMEM, "generation: no host memory");
        goto out;
    }
    memcpy(left, from, (size_t)n * sizeof(*left));
    memcpy(were, d->contexts + first, (size_t)n * sizeof(*were));
    for (int64_t i = 0; i < n; i++)
        d->contexts[first + i] = were[from[i]];
    if (d->cached)
        rc = copy_in_order(d, first, left, n, fault);
out:
    free(left);
    free(were);
    return rc;
}

/* ---- a step ---- */

/* What the next pass of a row is fed: its tokens from `from` on. */
struct feed {
    int64_t from;
    bool alone, again; /* alone: in a pass of its own; again: as the row before it */
    enum source_pass source;
};

/* Passes of a step: ranks make equally many of both kinds, those with a source first. */
struct passes {
    int32_t of[2]; /* by enum source_pass */
};

static bool same_source(const struct zt_decoder *d, int64_t a, int64_t b)
{
    const struct decoder_source *s = d->sources;

    return !s || (s[a].n == s[b].n &&
                  memcmp(s[a].ids, s[b].ids, (size_t)s[a].n * sizeof(*s[a].ids)) == 0);
}

static bool same_text(const struct zt_decoder_text *a, const struct zt_decoder_text *b)
{
    return a->n == b->n && memcmp(a->ids, b->ids, (size_t)a->n * sizeof(*a->ids)) == 0;
}

/* Returns the passes that these rows take. */
static struct passes plan_passes(struct zt_decoder *d,
                                 const struct zt_decoder_text *texts, int64_t num,
                                 struct feed *feeds)
{
    struct passes passes = {.of = {0}};

    for (int64_t i = 0; i < num; i++) {
        struct feed *f = &feeds[i], *before = i ? f - 1 : NULL;
        bool fresh = d->contexts[i].fed == d->contexts[i].start, restart;

        f->from = zt_context_next(&d->contexts[i], texts[i].n, &restart);
        if (restart && d->cached)
            zt_step_cache_forget(d->e->step, i);
        f->alone = !d->cached || fresh || restart || texts[i].n - f->from != 1;
        f->source = d->sources && (!d->cached || fresh || restart) ? UNREAD : READ;
        f->again = f->alone && (fresh || restart) && before && before->alone &&
                   before->from == f->from && same_text(&texts[i], &texts[i - 1]) &&
                   same_source(d, i, i - 1);
        if (f->again)
            continue;
        /* neighbours that are not alone share one */
        passes.of[f->source] += f->alone || !before || before->alone;
    }
    return passes;
}

static zt_err read_alone(struct zt_decoder *d, const struct zt_decoder_text *t,
                         int64_t row, const struct feed *f, float *logits,
                         struct zt_fault *fault)
{
    memcpy(d->tokens, t->ids + f->from, (size_t)(t->n - f->from) * sizeof(*t->ids));
    return run_pass(d, row, 1, t->n - f->from, f->source, logits, fault);
}

static zt_err repeat_row(struct zt_decoder *d, int64_t row, float *logits,
                         struct zt_fault *fault)
{
    int64_t V = d->e->model->vocab;

    memcpy(logits, logits - V, (size_t)V * sizeof(*logits));
    return d->cached ? zt_step_cache_copy(d->e->step, row - 1, row, fault) : ZT_OK;
}

/* Those of one kind. */
static zt_err run_rows(struct zt_decoder *d, const struct zt_decoder_text *texts,
                       int64_t num, const struct feed *feeds, enum source_pass kind,
                       float *logits, struct zt_fault *fault)
{
    int64_t V = d->e->model->vocab, count;
    zt_err rc = ZT_OK;

    for (int64_t i = 0; !rc && i < num; i += count) {
        float *to = logits + i * V;

        count = 1;
        if (feeds[i].source != kind)
            continue;
        if (feeds[i].again) {
            rc = repeat_row(d, i, to, fault);
        } else if (feeds[i].alone) {
            rc = read_alone(d, &texts[i], i, &feeds[i], to, fault);
        } else {
            while (i + count < num && !feeds[i + count].alone)
                count++;
            for (int64_t k = 0; k < count; k++)
                d->tokens[k] = texts[i + k].ids[texts[i + k].n - 1];
            rc = run_pass(d, i, count, 1, kind, to, fault);
        }
    }
    return rc;
}

/* The most passes of each kind that any rank makes in this step. */
static zt_err agree_on_passes(struct zt_decoder *d, const struct passes *mine,
                              struct passes *most, struct zt_fault *fault)
{
    *most = *mine;
    if (d->e->run->world == 1)
        return ZT_OK;
    return zt_all_reduce(d->e->comm, mine->of, most->of, 2, ZT_I32, ZT_MAX, 1, fault);
}

zt_err zt_decoder_step(struct zt_decoder *d, const struct zt_decoder_text *texts,
                       int64_t num, float *logits, bool *more, struct zt_fault *fault)
{
    struct feed *feeds = calloc((size_t)num + 1, sizeof(*feeds));
    struct passes mine, most;
    zt_err rc;

    if (!feeds)
        return zt_fault_set(fault, ZT_E_NOMEM, "generation: no host memory");
    mine = plan_passes(d, texts, num, feeds);
    rc = agree_on_passes(d, &mine, &most, fault);
    for (enum source_pass kind = UNREAD; !rc && kind <= READ; kind++) {
        rc = run_rows(d, texts, num, feeds, kind, logits, fault);
        for (; !rc && gathers(d->e) && mine.of[kind] < most.of[kind]; mine.of[kind]++) {
            d->tokens[0] = 0;
            rc = run_pass(d, 0, 1, 1, kind, NULL, fault);
        }
    }
    *more = most.of[UNREAD] + most.of[READ] > 0;
    free(feeds);
    return rc;
}
