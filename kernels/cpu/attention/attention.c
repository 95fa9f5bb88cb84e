#include "kernels/cpu/attention/attention.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "kernels/check.h"
#include "kernels/cpu/attention/bf16_dot.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm/bf16_dot.h"
#include "kernels/cpu/parallel.h"
#include "kernels/integers.h"

/* ---- shared with backward ---- */

zt_err zt_attention_init(struct zt_attention_task *t, const struct zt_attention_args *a,
                         struct zt_fault *fault)
{
    const struct zt_view *operand[] = {&a->q, &a->k, &a->v};
    bool fast = a->q.dtype == ZT_BF16 && (zt_cpu_features() & ZT_CPU_FAST_BF16);

    *t = (struct zt_attention_task){.a = a,
                                    .rows = zt_row_kernels(),
                                    .batch = a->q.shape[0],
                                    .heads = a->q.shape[2],
                                    .kv_heads = a->k.shape[2],
                                    .tq = a->q.shape[1],
                                    .tk = a->k.shape[1],
                                    .dim = a->q.shape[3],
                                    .operand = fast ? ZT_BF16 : ZT_F32,
                                    .limited = a->key_begin.data || a->key_end.data,
                                    .widen = a->q.dtype != ZT_F32 && !fast};
    t->dot = zt_dot_attention_is_supported(t);
    t->rows_of = t->dot ? zt_dot_form()->strip_rows : ZT_STRIP;
    t->keys_of = t->dot       ? zt_dot_form()->strip_keys
                 : t->limited ? ZT_LIMITED_KEYS
                              : zt_max(1, t->tk);
    t->strips = (t->tq + t->rows_of - 1) / t->rows_of;
    /* not a power of two: rows would fall into the same sets of the caches */
    t->ld = (zt_min(t->tk, t->keys_of) + 31) / 32 * 32 + ZT_ROW_LANES;
    for (int i = 0; i < 3; i++)
        if (operand[i]->shape[1] > 1 && operand[i]->stride[1] < t->dim)
            return zt_fault_set(
                fault, ZT_E_ARG,
                "attention: the positions of q, k and v must not overlap");
    return ZT_OK;
}

/* Keys that query `row` sees: [*lo, *hi), empty ones included. */
static void visible_keys(const struct zt_attention_task *t, int64_t row, int64_t *lo,
                         int64_t *hi)
{
    int64_t diagonal = row + t->tk - t->tq;

    *hi = t->a->causal ? zt_max(0, zt_min(t->tk, diagonal + 1)) : t->tk;
    *lo = t->a->window ? zt_min(*hi, zt_max(0, diagonal - t->a->window + 1)) : 0;
}

/* Those of them that lie between the query's key_begin and key_end. */
static void limit_keys(const struct zt_attention_task *t, int64_t b, int64_t row,
                       int64_t *lo, int64_t *hi)
{
    const int32_t *begin = t->a->key_begin.data, *end = t->a->key_end.data;

    if (begin)
        *lo = zt_max(*lo, begin[b * t->tq + row]);
    if (end)
        *hi = zt_max(0, zt_min(*hi, end[b * t->tq + row]));
    *lo = zt_min(*lo, *hi);
}

struct zt_strip zt_attention_strip(const struct zt_attention_task *t, int64_t index)
{
    struct zt_strip s = {.row = index * t->rows_of};
    int64_t hi, unused;

    s.rows = zt_min(t->rows_of, t->tq - s.row);
    visible_keys(t, s.row, &s.lo, &unused);
    visible_keys(t, s.row + s.rows - 1, &unused, &hi);
    s.lo = s.lo / ZT_STRIP_ALIGN * ZT_STRIP_ALIGN;
    s.keys = zt_max(0, hi - s.lo);
    return s;
}

struct zt_strip zt_attention_keys(const struct zt_attention_task *t,
                                  const struct zt_strip *s, int64_t at)
{
    return (struct zt_strip){s->row, s->rows, s->lo + at,
                             zt_min(t->keys_of, s->keys - at), s->b};
}

void zt_attention_visible(const struct zt_attention_task *t, const struct zt_strip *s,
                          int64_t row, int64_t *lo, int64_t *hi)
{
    visible_keys(t, row, lo, hi);
    if (t->limited)
        limit_keys(t, s->b, row, lo, hi);
    *lo = zt_min(s->keys, zt_max(0, *lo - s->lo));
    *hi = zt_max(*lo, zt_min(s->keys, *hi - s->lo));
}

void zt_attention_seen(const struct zt_attention_task *t, const struct zt_strip *s,
                       int64_t row, int64_t rows, int64_t *lo, int64_t *hi)
{
    int64_t first, end;

    if (!t->limited) { /* both ends rise from row to row */
        zt_attention_visible(t, s, s->row + row, lo, &end);
        zt_attention_visible(t, s, s->row + row + rows - 1, &first, hi);
        return;
    }
    *lo = s->keys;
    *hi = 0;
    for (int64_t i = row; i < row + rows; i++) {
        zt_attention_visible(t, s, s->row + i, &first, &end);
        if (first < end) {
            *lo = zt_min(*lo, first);
            *hi = zt_max(*hi, end);
        }
    }
    *lo = zt_min(*lo, *hi);
}

bool zt_attention_is_seen(const struct zt_attention_task *t, const struct zt_strip *part)
{
    int64_t lo, hi;

    if (!t->limited)
        return true;
    zt_attention_seen(t, part, 0, part->rows, &lo, &hi);
    return lo < hi;
}

struct zt_strip zt_attention_strip_of(const struct zt_attention_task *t,
                                      const struct zt_strip *s, int64_t b)
{
    struct zt_strip mine = *s;
    int64_t lo, hi;

    mine.b = b;
    if (!t->limited || !t->dot) /* oneDNN's products are planned for all of it */
        return mine;
    zt_attention_seen(t, &mine, 0, mine.rows, &lo, &hi);
    lo = lo / ZT_STRIP_ALIGN * ZT_STRIP_ALIGN;
    mine.lo += lo;
    mine.keys = hi - lo;
    return mine;
}

int64_t zt_attention_row(const struct zt_strip *s)
{
    return (s->keys + 31) / 32 * 32;
}

void *zt_attention_at(const struct zt_view *v, int64_t b, int64_t t, int64_t h)
{
    int64_t at = b * v->stride[0] + t * v->stride[1] + h * v->stride[2];

    return (char *)v->data + at * (int64_t)zt_dtype_bytes(v->dtype);
}

/* Of a bias or mask (1|B, 1|H, Tq, Tk): what query `row` adds from the strip's first key on. */
static const void *addends(const struct zt_view *v, const struct zt_strip *s, int64_t b,
                           int64_t h, int64_t row)
{
    const char *from =
        zt_attention_at(v, v->shape[0] == 1 ? 0 : b, v->shape[1] == 1 ? 0 : h, row);

    return from + s->lo * (int64_t)zt_dtype_bytes(v->dtype);
}

void zt_attention_row_extras(const struct zt_attention_task *t, const struct zt_strip *s,
                             int64_t b, int64_t h, int64_t row, float *bias, float *keep,
                             struct zt_score_row *r)
{
    const struct zt_attention_args *a = t->a;

    if (a->bias.data) {
        zt_load_row(bias, addends(&a->bias, s, b, h, row), a->bias.dtype, 1, s->keys);
        r->bias = bias;
    }
    if (a->mask.data) { /* fp32 */
        const float *mask = addends(&a->mask, s, b, h, row);

        if (r->bias)
            t->rows->scale(bias, bias, 1, mask, s->keys);
        else
            zt_load_row(bias, mask, ZT_F32, 1, s->keys);
        r->bias = bias;
    }
    if (a->dropout > 0) {
        int64_t first = ((b * t->heads + h) * t->tq + row) * t->tk + s->lo;

        t->rows->keep(keep, s->keys, a->rng, (uint64_t)first, a->dropout);
        r->keep = keep;
    }
}

int64_t zt_attention_operand_ld(const struct zt_attention_task *t,
                                const struct zt_view *v)
{
    return t->widen ? t->dim : v->stride[1];
}

struct zt_attention_operand zt_attention_operand(const struct zt_attention_task *t,
                                                 const struct zt_view *v, int64_t b,
                                                 int64_t h, int64_t at, int64_t n,
                                                 float *buf)
{
    if (!t->widen)
        return (struct zt_attention_operand){zt_attention_at(v, b, at, h), v->stride[1]};
    for (int64_t i = 0; i < n; i++)
        zt_load_row(buf + i * t->dim, zt_attention_at(v, b, at + i, h), v->dtype, 1,
                    t->dim);
    return (struct zt_attention_operand){buf, t->dim};
}

void zt_attention_store(const struct zt_attention_task *t, const struct zt_view *v,
                        int64_t b, int64_t row, int64_t h, const float *src, float scale,
                        bool accumulate, float *tmp)
{
    void *dst = zt_attention_at(v, b, row, h);

    if (accumulate)
        zt_load_row(tmp, dst, v->dtype, 1, t->dim);
    t->rows->scale(tmp, src, scale, accumulate ? tmp : NULL, t->dim);
    zt_store_row(dst, v->dtype, 1, tmp, t->dim);
}

zt_err zt_attention_plan(struct zt_device *dev, const struct zt_attention_task *t,
                         const struct zt_strip_product *p,
                         const struct zt_gemm_plan **out, size_t *pad,
                         struct zt_fault *fault)
{
    struct zt_gemm_problem g = {.batch = 1,
                                .m = p->m,
                                .n = p->n,
                                .k = p->k,
                                .ab = t->operand,
                                .c = ZT_F32,
                                .alpha = p->alpha,
                                .accumulate = p->accumulate,
                                .as = {0, p->ta ? 1 : p->lda, p->ta ? p->lda : 1},
                                .bs = {0, p->tb ? 1 : p->ldb, p->tb ? p->ldb : 1},
                                .cs = {0, p->ldc, 1}};
    zt_err rc = zt_gemm_plan(dev, &g, true, out, fault);

    if (rc == ZT_OK && zt_gemm_plan_scratch(*out) > *pad)
        *pad = zt_gemm_plan_scratch(*out);
    return rc;
}

/* ---- forward ---- */

/* Products of the last keys of a strip, and of those before them, keys_of at a time. */
struct forward_plans {
    struct zt_strip strip;
    struct {
        const struct zt_gemm_plan *scores, *values;
    } of[2];
};

enum { PART_WHOLE, PART_LAST };

struct forward {
    struct zt_attention_task t;
    struct forward_plans *plans; /* (strips) */
    int64_t per_task, tasks;     /* strips of one head, tasks of it */
    uintptr_t scratch;           /* of thread 0 */
    size_t each;                 /* bytes of scratch of a thread */
    size_t pad;
    atomic_int failed; /* a zt_err */
};

/* One thread's scratch. */
struct forward_scratch {
    float *scores, *bias, *keep, *out, *tmp, *q, *kv;
    uint32_t *keys, *values, *rows; /* packed: of a head, of a strip */
    void *pad;
};

/* Lays the pieces out from `base`; returns their size. */
static size_t place(const struct forward *f, uintptr_t base, struct forward_scratch *s)
{
    const struct zt_attention_task *t = &f->t;
    int64_t rows = zt_min(t->rows_of, t->tq);
    int64_t widened = t->widen ? t->dim : 0;
    float **const part[] = {&s->scores, &s->bias, &s->keep, &s->out,
                            &s->tmp,    &s->q,    &s->kv};
    const int64_t floats[] = {rows * t->ld, t->ld,          t->ld,          rows * t->dim,
                              t->dim,       rows * widened, t->tk * widened};
    size_t at = 0;

    for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); i++) {
        *part[i] = (float *)(base + at);
        at += ((size_t)floats[i] * sizeof(float) + 63) / 64 * 64;
    }
    s->keys = (uint32_t *)(base + at);
    at += t->dot ? zt_dot_transposed_words(t) * sizeof(uint32_t) : 0;
    s->values = (uint32_t *)(base + at);
    at += t->dot ? zt_dot_row_major_words(t) * sizeof(uint32_t) : 0;
    s->rows = (uint32_t *)(base + at);
    at += t->dot ? zt_dot_left_words(t) * sizeof(uint32_t) : 0;
    s->pad = (void *)(base + at);
    return (at + f->pad + 4095) / 4096 * 4096;
}

/* What is known of a strip's rows after some of their keys. */
struct running {
    float max[ZT_STRIP], sum[ZT_STRIP];
};

static void start_rows(struct running *now, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++) {
        now->max[i] = -INFINITY;
        now->sum[i] = 0;
    }
}

/* Scores of the strip's rows become exponentials, and s->out follows the new maxima. */
static void softmax_rows(const struct forward *f, const struct zt_strip *st, int64_t b,
                         int64_t h, const struct forward_scratch *s, struct running *now)
{
    const struct zt_attention_task *t = &f->t;

    for (int64_t i = 0; i < st->rows; i++) {
        struct zt_score_row r = {.s = s->scores + i * t->ld,
                                 .scale = t->a->scale,
                                 .n = zt_attention_row(st),
                                 .to_bf16 = t->operand == ZT_BF16};
        float *out = s->out + i * t->dim, correction;

        zt_attention_visible(t, st, st->row + i, &r.lo, &r.hi);
        zt_attention_row_extras(t, st, b, h, st->row + i, s->bias, s->keep, &r);
        correction = t->rows->softmax(&r, &now->max[i], &now->sum[i]);
        if (correction != 1)
            t->rows->scale(out, out, correction, NULL, t->dim);
    }
}

/* s->out over the sums is the result. */
static void finish_rows(const struct forward *f, const struct zt_strip *st, int64_t b,
                        int64_t h, const struct forward_scratch *s,
                        const struct running *now)
{
    const struct zt_attention_task *t = &f->t;
    const struct zt_view *lse = &t->a->lse;

    for (int64_t i = 0; i < st->rows; i++) {
        float sum = now->sum[i];

        zt_attention_store(t, &t->a->out, b, st->row + i, h, s->out + i * t->dim,
                           sum == 0 ? 0 : 1 / sum, false, s->tmp);
        if (lse->data) {
            float *to = lse->data;
            to[(b * t->heads + h) * t->tq + st->row + i] =
                sum == 0 ? -INFINITY : now->max[i] + logf(sum);
        }
    }
}

/* Which head of which sequence. */
struct forward_place {
    int64_t b, h, kv;
};

/* What `part` of a strip adds to s->out. */
static zt_err planned_part(const struct forward *f, const struct forward_plans *p,
                           int which, const struct zt_strip *part,
                           const struct forward_place *w, const struct forward_scratch *s,
                           struct running *now)
{
    const struct zt_attention_task *t = &f->t;
    struct zt_attention_operand q, k, v;
    zt_err rc;

    q = zt_attention_operand(t, &t->a->q, w->b, w->h, part->row, part->rows, s->q);
    k = zt_attention_operand(t, &t->a->k, w->b, w->kv, part->lo, part->keys, s->kv);
    rc = zt_gemm_run(p->of[which].scores, q.data, k.data, NULL, s->scores, s->pad, NULL);
    if (rc != ZT_OK)
        return rc;
    softmax_rows(f, part, w->b, w->h, s, now);
    v = zt_attention_operand(t, &t->a->v, w->b, w->kv, part->lo, part->keys, s->kv);
    return zt_gemm_run(p->of[which].values, s->scores, v.data, NULL, s->out, s->pad,
                       NULL);
}

/* s->out of a strip, but for the scale of each row. */
static zt_err planned_strip(const struct forward *f, const struct forward_plans *p,
                            const struct zt_strip *st, const struct forward_place *w,
                            const struct forward_scratch *s, struct running *now)
{
    const struct zt_attention_task *t = &f->t;
    zt_err rc = ZT_OK;

    for (int64_t at = 0; at < st->keys && rc == ZT_OK; at += t->keys_of) {
        struct zt_strip part = zt_attention_keys(t, st, at);
        int which = at + part.keys < st->keys ? PART_WHOLE : PART_LAST;

        if (zt_attention_is_seen(t, &part))
            rc = planned_part(f, p, which, &part, w, s, now);
    }
    return rc;
}

static void dot_strip(const struct forward *f, const struct zt_strip *st,
                      const struct forward_place *w, const struct forward_scratch *s,
                      const struct zt_dot_keys *keys, struct running *now)
{
    const struct zt_attention_task *t = &f->t;
    struct zt_attention_operand q =
        zt_attention_operand(t, &t->a->q, w->b, w->h, st->row, st->rows, NULL);
    struct zt_dot_left left = zt_dot_left_rows(t, st, &q, s->rows);

    for (int64_t at = 0; at < st->keys; at += t->keys_of) {
        struct zt_strip part = zt_attention_keys(t, st, at);

        if (!zt_attention_is_seen(t, &part))
            continue;
        zt_dot_scores(t, &part, &left, keys, s->scores);
        softmax_rows(f, &part, w->b, w->h, s, now);
        zt_dot_values(t, &part, s->scores, keys, s->out);
    }
}

/* Packs the keys and values that strips [first, last] of a head see. */
static struct zt_dot_keys pack_keys(const struct forward *f, int64_t first, int64_t last,
                                    const struct forward_place *w,
                                    const struct forward_scratch *s)
{
    const struct zt_attention_task *t = &f->t;
    int64_t from = t->tk, to = 0;
    struct zt_dot_keys k;

    for (int64_t i = first; i <= last; i++) {
        struct zt_strip st = zt_attention_strip_of(t, &f->plans[i].strip, w->b);

        if (st.keys == 0)
            continue;
        from = zt_min(from, st.lo);
        to = zt_max(to, st.lo + st.keys);
    }
    k = (struct zt_dot_keys){.from = zt_min(from, to), .keys = zt_max(0, to - from)};
    k.transposed = s->keys;
    zt_dot_pack_keys(t, &k, &t->a->k, w->b, w->kv);
    k.transposed = NULL;
    k.row_major = s->values;
    zt_dot_pack_keys(t, &k, &t->a->v, w->b, w->kv);
    k.transposed = s->keys;
    return k;
}

static void forward_task(int64_t task, int thread, void *ctx)
{
    struct forward *f = ctx;
    const struct zt_attention_task *t = &f->t;
    int64_t head = task / f->tasks;
    /* causal: the longest first */
    int64_t last = t->strips - 1 - task % f->tasks * f->per_task;
    int64_t first = zt_max(0, last + 1 - f->per_task);
    struct forward_place w = {.b = head / t->heads, .h = head % t->heads};
    struct forward_scratch s;
    struct zt_dot_keys keys = {.from = 0};
    struct running now;
    struct zt_strip st;
    zt_err rc = ZT_OK;

    w.kv = w.h / (t->heads / t->kv_heads);
    place(f, f->scratch + (size_t)thread * f->each, &s);
    if (t->dot) {
        zt_dot_begin();
        keys = pack_keys(f, first, last, &w, &s);
    }
    for (int64_t i = last; i >= first && rc == ZT_OK; i--) {
        const struct forward_plans *p = &f->plans[i];

        st = zt_attention_strip_of(t, &p->strip, w.b);
        start_rows(&now, st.rows);
        memset(s.out, 0, (size_t)(st.rows * t->dim) * sizeof(float));
        if (t->dot)
            dot_strip(f, &st, &w, &s, &keys, &now);
        else
            rc = planned_strip(f, p, &st, &w, &s, &now);
        if (rc == ZT_OK)
            finish_rows(f, &st, w.b, w.h, &s, &now);
    }
    if (t->dot)
        zt_dot_end();
    if (rc != ZT_OK)
        atomic_store(&f->failed, (int)rc);
}

/* The products of `keys` keys of a strip. */
static zt_err part_plans(struct zt_device *dev, struct forward *f,
                         struct forward_plans *p, int which, int64_t keys,
                         struct zt_fault *fault)
{
    const struct zt_attention_task *t = &f->t;
    struct zt_strip_product scores = {
        .m = p->strip.rows,
        .n = keys,
        .k = t->dim,
        .lda = zt_attention_operand_ld(t, &t->a->q),
        .ldb = zt_attention_operand_ld(t, &t->a->k),
        .ldc = t->ld,
        .tb = true,
        .alpha = 1,
    };
    struct zt_strip_product values = {
        .m = p->strip.rows,
        .n = t->dim,
        .k = keys,
        .lda = t->operand == ZT_BF16 ? 2 * t->ld : t->ld,
        .ldb = zt_attention_operand_ld(t, &t->a->v),
        .ldc = t->dim,
        .accumulate = t->limited,
        .alpha = 1,
    };
    zt_err rc = zt_attention_plan(dev, t, &scores, &p->of[which].scores, &f->pad, fault);

    return rc ? rc
              : zt_attention_plan(dev, t, &values, &p->of[which].values, &f->pad, fault);
}

static zt_err forward_plans(struct zt_device *dev, struct forward *f,
                            struct zt_fault *fault)
{
    const struct zt_attention_task *t = &f->t;
    zt_err rc = ZT_OK;

    for (int64_t i = 0; i < t->strips && rc == ZT_OK; i++) {
        struct forward_plans *p = &f->plans[i];
        int64_t keys;

        *p = (struct forward_plans){.strip = zt_attention_strip(t, i)};
        keys = p->strip.keys;
        if (keys == 0 || t->dot)
            continue;
        if (keys > t->keys_of)
            rc = part_plans(dev, f, p, PART_WHOLE, t->keys_of, fault);
        if (rc == ZT_OK)
            rc = part_plans(dev, f, p, PART_LAST, (keys - 1) % t->keys_of + 1, fault);
    }
    return rc;
}

/*
 * Tasks as large as keep all threads busy: each packs its keys once, for all its strips. No bit
 * follows from where they begin.
 */
static void cut_heads(struct forward *f)
{
    const struct zt_attention_task *t = &f->t;
    int64_t wanted = zt_num_parts(4 * (int64_t)zt_num_threads(), t->batch * t->heads);

    f->per_task = t->dot ? zt_max(1, t->strips / wanted) : 1;
    f->tasks = zt_num_parts(t->strips, f->per_task);
}

zt_err zt_cpu_attention(struct zt_device *dev, struct zt_stream *s,
                        const struct zt_attention_args *a, struct zt_fault *fault)
{
    struct forward f = {.pad = 0};
    struct forward_scratch unused;
    void *mem;
    zt_err rc = zt_check_attention(a, fault);

    (void)s;
    if (rc == ZT_OK)
        rc = zt_attention_init(&f.t, a, fault);
    if (rc != ZT_OK)
        return rc;
    if (f.t.batch * f.t.heads * f.t.tq * f.t.dim == 0)
        return ZT_OK;
    zt_gemm_trim(dev);
    rc = zt_cpu_scratch(dev, ZT_SCRATCH_ATTENTION_PLANS,
                        (size_t)f.t.strips * sizeof(*f.plans), &mem, fault);
    if (rc != ZT_OK)
        return rc;
    f.plans = mem;
    rc = forward_plans(dev, &f, fault);
    if (rc != ZT_OK)
        return rc;
    f.each = place(&f, 0, &unused);
    cut_heads(&f);
    rc = zt_cpu_scratch(dev, ZT_SCRATCH_ATTENTION, f.each * (size_t)zt_num_threads(),
                        &mem, fault);
    if (rc != ZT_OK)
        return rc;
    f.scratch = (uintptr_t)mem;
    zt_parallel_tasks(f.t.batch * f.t.heads * f.tasks, forward_task, &f);
    if (f.failed)
        return zt_fault_set(fault, (zt_err)f.failed, "attention: a product failed");
    return ZT_OK;
}
