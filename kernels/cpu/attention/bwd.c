/*
 * Backward of attention: the probabilities come back from the scores and lse, then
 *
 *      dP = dO V^T    dS = P (dP - rowsum(dO O))    dV = P^T dO
 *      dQ = scale dS K    dK = scale dS^T Q         dbias = dS
 *
 * A task owns one key/value head of one sequence and sums dK and dV over its query heads
 * in order and over their strips in order. dbias, which other heads and sequences may
 * share, is a pass of its own over strips of it, unless the tasks have all that it is the
 * sum of: then they sum it beside, in the same order.
 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "kernels/check.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/bf16_dot.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm/bf16_dot.h"
#include "kernels/cpu/parallel.h"

/* Products of the last keys of a strip, and of those before them, keys_of at a time. */
struct part_plans {
    const struct zt_gemm_plan *scores, *dprobs, *dq, *dk, *dv;
};

enum { PART_WHOLE, PART_LAST };

#define DBIAS_MOST ((int64_t)1 << 20) /* floats of a head's dbias that a thread sums */

struct backward_plans {
    struct zt_strip strip;
    struct part_plans of[2];
};

/* Where dbias comes from. */
enum dbias_way {
    DBIAS_APART,   /* bias_task() */
    DBIAS_OF_HEAD, /* each head of each sequence has its own: from head_task() */
    DBIAS_OF_ALL,  /* the sequences share that of a head, and so they share a task */
};

struct backward {
    struct zt_attention_task t;
    const struct zt_attention_bwd_args *a;
    enum dbias_way way;
    struct backward_plans *plans; /* (strips) */
    uintptr_t scratch;            /* of thread 0 */
    size_t each, pad;
    atomic_int failed; /* a zt_err */
};

/* One thread's scratch. */
struct scratch {
    float *scores, *dprobs, *bias, *keep, *out, *tmp, *delta;
    float *q, *dout, *k, *v;         /* widened operands */
    float *dk, *dv;                  /* (keys, dim) sums */
    float *dbias, *old;              /* (rows of a strip, tk), of DBIAS_OF_ALL (tq, tk)
                                            sums; a row of dbias */
    struct zt_dot_keys keys, values; /* of the head */
    uint32_t *left, *q_rows, *dout_rows; /* packed: probabilities, rows of a strip */
    uint32_t *q_left, *dout_left;        /* the rows once more, as left operands */
    void *pad;
};

static size_t place(const struct backward *f, uintptr_t base, struct scratch *s)
{
    const struct zt_attention_task *t = &f->t;
    int64_t rows = t->tq < t->rows_of ? t->tq : t->rows_of;
    int64_t wide = t->widen ? t->dim : 0;
    const struct {
        float **at;
        int64_t floats;
    } part[] = {
        {&s->scores, rows * t->ld},
        {&s->dprobs, rows * t->ld},
        {&s->bias, t->ld},
        {&s->keep, t->ld},
        {&s->out, rows * t->dim},
        {&s->tmp, 2 * t->dim},
        {&s->delta, rows},
        {&s->q, rows * wide},
        {&s->dout, rows * wide},
        {&s->k, t->tk * wide},
        {&s->v, t->tk * wide},
        {&s->dk, t->tk * t->dim},
        {&s->dv, t->tk * t->dim},
        {&s->dbias, !f->a->dbias.data        ? 0
                    : f->way == DBIAS_OF_ALL ? t->tq * t->tk
                                             : rows * t->tk},
        {&s->old, f->a->dbias.data ? t->tk : 0},
    };
    size_t at = 0;

    for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
        *part[i].at = (float *)(base + at);
        at += ((size_t)part[i].floats * sizeof(float) + 63) / 64 * 64;
    }
    s->keys = s->values = (struct zt_dot_keys){.from = 0, .keys = t->tk};
    if (t->dot) {
        s->keys.transposed = (uint32_t *)(base + at);
        s->values.transposed = s->keys.transposed + zt_dot_transposed_words(t);
        s->keys.row_major = s->values.transposed + zt_dot_transposed_words(t);
        s->left = s->keys.row_major + zt_dot_row_major_words(t);
        s->q_rows = s->left + zt_dot_sums_words(t);
        s->dout_rows = s->q_rows + zt_dot_rows_words(t);
        s->q_left = s->dout_rows + zt_dot_rows_words(t);
        s->dout_left = s->q_left + zt_dot_left_words(t);
        at +=
            (2 * zt_dot_transposed_words(t) + zt_dot_row_major_words(t) +
             zt_dot_sums_words(t) + 2 * zt_dot_rows_words(t) + 2 * zt_dot_left_words(t)) *
            sizeof(uint32_t);
    }
    s->pad = (void *)(base + at);
    return (at + f->pad + 4095) / 4096 * 4096;
}

static float dot(const float *a, const float *b, int64_t n)
{
    float part[8] = {0}, sum = 0;
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++)
            part[l] += a[i + l] * b[i + l];
    for (; i < n; i++)
        part[i % 8] += a[i] * b[i];
    for (int l = 0; l < 8; l++)
        sum += part[l];
    return sum;
}

/* Which head of which sequence a strip belongs to. */
struct backward_place {
    int64_t b, h, kv;
};

struct strip_operands {
    struct zt_attention_operand q, k, v, dout;
    struct zt_dot_left q_left, dout_left; /* of the products of bf16_dot.h */
};

/* The queries of a strip; load_keys() adds the keys of a part of it. */
static struct strip_operands load(const struct backward *f, const struct zt_strip *st,
                                  const struct backward_place *w, const struct scratch *s)
{
    const struct zt_attention_task *t = &f->t;
    struct strip_operands op = {
        .q = zt_attention_operand(t, &t->a->q, w->b, w->h, st->row, st->rows, s->q),
        .dout =
            zt_attention_operand(t, &f->a->dout, w->b, w->h, st->row, st->rows, s->dout),
    };

    if (t->dot) {
        op.q_left = zt_dot_left_rows(t, st, &op.q, s->q_left);
        op.dout_left = zt_dot_left_rows(t, st, &op.dout, s->dout_left);
    }
    return op;
}

static void load_keys(const struct backward *f, const struct zt_strip *part,
                      const struct backward_place *w, const struct scratch *s,
                      struct strip_operands *op)
{
    const struct zt_attention_task *t = &f->t;

    op->k = zt_attention_operand(t, &t->a->k, w->b, w->kv, part->lo, part->keys, s->k);
    op->v = zt_attention_operand(t, &t->a->v, w->b, w->kv, part->lo, part->keys, s->v);
}

/* The products of a part of a strip. */
static const struct part_plans *plans_of(const struct backward_plans *p,
                                         const struct zt_strip *st,
                                         const struct zt_strip *part)
{
    bool is_last = part->lo + part->keys == st->lo + st->keys;

    return &p->of[is_last ? PART_LAST : PART_WHOLE];
}

/* The keys and values that strips of the head work on, where products want that. */
static void pack_head(const struct backward *f, const struct backward_place *w,
                      const struct scratch *s)
{
    if (!f->t.dot)
        return;
    zt_dot_pack_keys(&f->t, &s->keys, &f->t.a->k, w->b, w->kv);
    zt_dot_pack_keys(&f->t, &s->values, &f->t.a->v, w->b, w->kv);
}

/* scores = q k^T, dprobs = dout v^T */
static zt_err two_products(const struct backward *f, const struct part_plans *p,
                           const struct zt_strip *st, const struct strip_operands *op,
                           const struct scratch *s)
{
    const struct zt_attention_task *t = &f->t;
    zt_err rc;

    if (t->dot) {
        zt_dot_scores(t, st, &op->q_left, &s->keys, s->scores);
        zt_dot_scores(t, st, &op->dout_left, &s->values, s->dprobs);
        return ZT_OK;
    }
    rc = zt_gemm_run(p->scores, op->q.data, op->k.data, NULL, s->scores, s->pad, NULL);
    if (rc != ZT_OK)
        return rc;
    return zt_gemm_run(p->dprobs, op->dout.data, op->v.data, NULL, s->dprobs, s->pad,
                       NULL);
}

/* delta = rowsum(dO O) of the strip's rows */
static void row_deltas(const struct backward *f, const struct zt_strip *st,
                       const struct backward_place *w, const struct scratch *s)
{
    const struct zt_attention_task *t = &f->t;

    for (int64_t i = 0; i < st->rows; i++) {
        int64_t row = st->row + i;

        zt_load_row(s->tmp, zt_attention_at(&f->a->dout, w->b, row, w->h),
                    f->a->dout.dtype, 1, t->dim);
        zt_load_row(s->tmp + t->dim, zt_attention_at(&t->a->out, w->b, row, w->h),
                    t->a->out.dtype, 1, t->dim);
        s->delta[i] = dot(s->tmp, s->tmp + t->dim, t->dim);
    }
}

/*
 * s->scores becomes the kept probabilities and s->dprobs the gradient of the scores, but
 * for its scale: of some keys `st` of the strip, whose row_deltas are there.
 */
static zt_err score_gradients(const struct backward *f, const struct part_plans *p,
                              const struct zt_strip *st, const struct backward_place *w,
                              const struct strip_operands *op, const struct scratch *s,
                              bool to_bf16)
{
    const struct zt_attention_task *t = &f->t;
    const float *lse = t->a->lse.data;
    zt_err rc = two_products(f, p, st, op, s);

    if (rc != ZT_OK)
        return rc;
    for (int64_t i = 0; i < st->rows; i++) {
        int64_t row = st->row + i;
        struct zt_score_row r = {.s = s->scores + i * t->ld,
                                 .dp = s->dprobs + i * t->ld,
                                 .scale = t->a->scale,
                                 .n = zt_attention_row(st),
                                 .to_bf16 = to_bf16};
        float at = lse[(w->b * t->heads + w->h) * t->tq + row];

        if (at != -INFINITY) /* else the row sees nothing */
            zt_attention_visible(t, st, row, &r.lo, &r.hi);
        zt_attention_row_extras(t, st, w->b, w->h, row, s->bias, s->keep, &r);
        t->rows->grad(&r, at, s->delta[i]);
    }
    return ZT_OK;
}

/* s->out += dS k, dk += dS^T q, dv += P^T dout; the scale comes when they are stored */
static zt_err three_products(const struct backward *f, const struct part_plans *p,
                             const struct zt_strip *st, const struct strip_operands *op,
                             const struct scratch *s)
{
    const struct zt_attention_task *t = &f->t;
    int64_t at = st->lo * t->dim;
    zt_err rc;

    if (t->dot) {
        zt_dot_sums(t, st, s->scores, s->dout_rows, s->dv + at, s->left);
        zt_dot_sums(t, st, s->dprobs, s->q_rows, s->dk + at, s->left);
        zt_dot_values(t, st, s->dprobs, &s->keys, s->out);
        return ZT_OK;
    }
    rc = zt_gemm_run(p->dv, s->scores, op->dout.data, NULL, s->dv + at, s->pad, NULL);
    if (rc == ZT_OK)
        rc = zt_gemm_run(p->dk, s->dprobs, op->q.data, NULL, s->dk + at, s->pad, NULL);
    if (rc == ZT_OK)
        rc = zt_gemm_run(p->dq, s->dprobs, op->k.data, NULL, s->out, s->pad, NULL);
    return rc;
}

/* sums (rows, tk) += the gradient of some keys' scores. */
static void sum_dbias(const struct backward *f, const struct zt_strip *part,
                      const struct scratch *s, float *sums)
{
    const struct zt_attention_task *t = &f->t;

    for (int64_t i = 0; i < part->rows; i++)
        for (int64_t j = 0; j < part->keys; j++)
            sums[i * t->tk + part->lo + j] += s->dprobs[i * t->ld + j];
}

/* Rows [row, row + rows) of dbias = or += sums (rows, tk). */
static void store_dbias(const struct backward *f, int64_t b, int64_t h, int64_t row,
                        int64_t rows, float *sums, float *old)
{
    const struct zt_view *d = &f->a->dbias;
    int64_t tk = f->t.tk;

    for (int64_t i = 0; i < rows; i++, sums += tk) {
        void *to = (char *)d->data +
                   (b * d->stride[0] + h * d->stride[1] + (row + i) * d->stride[2]) *
                       (int64_t)zt_dtype_bytes(d->dtype);

        if (f->a->accumulate_bias) {
            zt_load_row(old, to, d->dtype, 1, tk);
            for (int64_t j = 0; j < tk; j++)
                sums[j] += old[j];
        }
        zt_store_row(to, d->dtype, 1, sums, tk);
    }
}

/* dq of one strip, and its share of dk and dv, and of dbias in `sums` unless NULL. */
static zt_err strip_backward(const struct backward *f, const struct backward_plans *p,
                             const struct backward_place *w, const struct scratch *s,
                             float *sums)
{
    const struct zt_attention_task *t = &f->t;
    const struct zt_strip mine = zt_attention_strip_of(t, &p->strip, w->b), *st = &mine;
    struct strip_operands op = load(f, st, w, s);
    zt_err rc = ZT_OK;

    memset(s->out, 0, (size_t)(st->rows * t->dim) * sizeof(float));
    row_deltas(f, st, w, s);
    if (t->dot) {
        zt_dot_pack_rows(t, st, &op.q, s->q_rows);
        zt_dot_pack_rows(t, st, &op.dout, s->dout_rows);
    }
    for (int64_t at = 0; at < st->keys && rc == ZT_OK; at += t->keys_of) {
        struct zt_strip part = zt_attention_keys(t, st, at);
        const struct part_plans *plans = plans_of(p, st, &part);

        if (!zt_attention_is_seen(t, &part))
            continue;
        load_keys(f, &part, w, s, &op);
        rc = score_gradients(f, plans, &part, w, &op, s, t->operand == ZT_BF16);
        if (rc == ZT_OK && sums)
            sum_dbias(f, &part, s, sums);
        if (rc == ZT_OK)
            rc = three_products(f, plans, &part, &op, s);
    }
    for (int64_t i = 0; rc == ZT_OK && i < st->rows; i++)
        zt_attention_store(t, &f->a->dq, w->b, st->row + i, w->h, s->out + i * t->dim,
                           t->a->scale, f->a->accumulate_q, s->tmp);
    return rc;
}

/* The strips of a query head. */
static zt_err strips_backward(const struct backward *f, const struct backward_place *w,
                              const struct scratch *s)
{
    const struct zt_attention_task *t = &f->t;
    zt_err rc = ZT_OK;

    for (int64_t i = 0; i < t->strips && rc == ZT_OK; i++) {
        const struct zt_strip *st = &f->plans[i].strip;
        float *sums = f->way == DBIAS_OF_ALL    ? s->dbias + st->row * t->tk
                      : f->way == DBIAS_OF_HEAD ? s->dbias
                                                : NULL;

        if (f->way == DBIAS_OF_HEAD)
            memset(sums, 0, (size_t)(st->rows * t->tk) * sizeof(float));
        rc = strip_backward(f, &f->plans[i], w, s, sums);
        if (rc == ZT_OK && f->way == DBIAS_OF_HEAD)
            store_dbias(f, w->b, w->h, st->row, st->rows, sums, s->old);
    }
    return rc;
}

/* All of one key/value head of a sequence. */
static zt_err head_backward(const struct backward *f, struct backward_place w,
                            const struct scratch *s)
{
    const struct zt_attention_task *t = &f->t;
    int64_t group = t->heads / t->kv_heads;
    zt_err rc = ZT_OK;

    memset(s->dk, 0, (size_t)(t->tk * t->dim) * sizeof(float));
    memset(s->dv, 0, (size_t)(t->tk * t->dim) * sizeof(float));
    pack_head(f, &w, s);
    for (w.h = w.kv * group; w.h < (w.kv + 1) * group && rc == ZT_OK; w.h++)
        rc = strips_backward(f, &w, s);
    for (int64_t j = 0; j < t->tk; j++) {
        zt_attention_store(t, &f->a->dk, w.b, j, w.kv, s->dk + j * t->dim, t->a->scale,
                           f->a->accumulate_k, s->tmp);
        zt_attention_store(t, &f->a->dv, w.b, j, w.kv, s->dv + j * t->dim, 1,
                           f->a->accumulate_v, s->tmp);
    }
    return rc;
}

static void head_task(int64_t task, int thread, void *ctx)
{
    struct backward *f = ctx;
    const struct zt_attention_task *t = &f->t;
    struct backward_place w = {.b = task / t->kv_heads, .kv = task % t->kv_heads};
    bool all = f->way == DBIAS_OF_ALL;
    int64_t end = all ? t->batch : w.b + 1;
    struct scratch s;
    zt_err rc = ZT_OK;

    place(f, f->scratch + (size_t)thread * f->each, &s);
    if (all)
        memset(s.dbias, 0, (size_t)(t->tq * t->tk) * sizeof(float));
    if (t->dot)
        zt_dot_begin();
    for (; w.b < end && rc == ZT_OK; w.b++)
        rc = head_backward(f, w, &s);
    if (t->dot)
        zt_dot_end();
    if (rc == ZT_OK && all)
        store_dbias(f, 0, w.kv, 0, t->tq, s.dbias, s.old);
    if (rc != ZT_OK)
        atomic_store(&f->failed, (int)rc);
}

/* s->dbias (rows, tk) += the gradient of a strip's scores. */
static zt_err add_dbias(const struct backward *f, const struct backward_plans *p,
                        const struct backward_place *w, const struct scratch *s)
{
    const struct zt_attention_task *t = &f->t;
    const struct zt_strip mine = zt_attention_strip_of(t, &p->strip, w->b), *st = &mine;
    struct strip_operands op = load(f, st, w, s);
    zt_err rc = ZT_OK;

    row_deltas(f, st, w, s);
    pack_head(f, w, s);
    for (int64_t at = 0; at < st->keys && rc == ZT_OK; at += t->keys_of) {
        struct zt_strip part = zt_attention_keys(t, st, at);

        if (!zt_attention_is_seen(t, &part))
            continue;
        load_keys(f, &part, w, s, &op);
        rc = score_gradients(f, plans_of(p, st, &part), &part, w, &op, s, false);
        if (rc == ZT_OK)
            sum_dbias(f, &part, s, s->dbias);
    }
    return rc;
}

/* One strip of dbias: the sum over the sequences and heads that share it, in order. */
static void bias_task(int64_t task, int thread, void *ctx)
{
    struct backward *f = ctx;
    const struct zt_attention_task *t = &f->t;
    const struct zt_view *d = &f->a->dbias;
    const struct backward_plans *p = &f->plans[task % t->strips];
    const struct zt_strip *st = &p->strip;
    int64_t bh = task / t->strips, bb = bh / d->shape[1], hh = bh % d->shape[1];
    int64_t b_end = d->shape[0] == 1 ? t->batch : bb + 1;
    int64_t h_end = d->shape[1] == 1 ? t->heads : hh + 1;
    struct scratch s;
    struct backward_place w;
    zt_err rc = ZT_OK;

    place(f, f->scratch + (size_t)thread * f->each, &s);
    memset(s.dbias, 0, (size_t)(st->rows * t->tk) * sizeof(float));
    if (t->dot)
        zt_dot_begin();
    for (w.b = bb; st->keys && w.b < b_end; w.b++)
        for (w.h = hh; w.h < h_end && rc == ZT_OK; w.h++) {
            w.kv = w.h / (t->heads / t->kv_heads);
            rc = add_dbias(f, p, &w, &s);
        }
    if (t->dot)
        zt_dot_end();
    if (rc != ZT_OK)
        atomic_store(&f->failed, (int)rc);
    store_dbias(f, bb, hh, st->row, st->rows, s.dbias, s.old);
}

/* Which way dbias goes; all have the same bits. Products in bf16 leave no fp32 gradients. */
static enum dbias_way dbias_way_of(const struct backward *f)
{
    const struct zt_attention_task *t = &f->t;
    const struct zt_view *d = &f->a->dbias;

    if (!d->data || t->operand == ZT_BF16 || d->shape[1] != t->heads)
        return DBIAS_APART;
    if (d->shape[0] == t->batch)
        return DBIAS_OF_HEAD;
    return t->heads == t->kv_heads && t->heads % zt_num_threads() == 0 &&
                   t->tq * t->tk <= DBIAS_MOST
               ? DBIAS_OF_ALL
               : DBIAS_APART;
}

/* ---- plans ---- */

/* The products of `n` keys of a strip of m rows. */
static zt_err part_plans(struct zt_device *dev, struct backward *f, int64_t m, int64_t n,
                         struct part_plans *p, struct zt_fault *fault)
{
    const struct zt_attention_task *t = &f->t;
    const struct zt_attention_args *a = t->a;
    int64_t d = t->dim;
    int64_t ldq = zt_attention_operand_ld(t, &a->q);
    int64_t ldk = zt_attention_operand_ld(t, &a->k);
    int64_t ldv = zt_attention_operand_ld(t, &a->v);
    int64_t ldo = zt_attention_operand_ld(t, &f->a->dout);
    int64_t ldp = t->operand == ZT_BF16 ? 2 * t->ld : t->ld;
    const struct {
        const struct zt_gemm_plan **out;
        struct zt_strip_product product;
    } all[] = {
        {&p->scores, {m, n, d, ldq, ldk, t->ld, false, true, false, 1}},
        {&p->dprobs, {m, n, d, ldo, ldv, t->ld, false, true, false, 1}},
        {&p->dq, {m, d, n, ldp, ldk, d, false, false, t->limited, 1}},
        {&p->dk, {n, d, m, ldp, ldq, d, true, false, true, 1}},
        {&p->dv, {n, d, m, ldp, ldo, d, true, false, true, 1}},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        zt_err rc =
            zt_attention_plan(dev, t, &all[i].product, all[i].out, &f->pad, fault);
        if (rc != ZT_OK)
            return rc;
    }
    return ZT_OK;
}

static zt_err strip_plans(struct zt_device *dev, struct backward *f,
                          struct backward_plans *p, struct zt_fault *fault)
{
    int64_t rows = p->strip.rows, keys = p->strip.keys, each = f->t.keys_of;
    zt_err rc = ZT_OK;

    if (keys == 0 || f->t.dot)
        return ZT_OK;
    if (keys > each)
        rc = part_plans(dev, f, rows, each, &p->of[PART_WHOLE], fault);
    if (rc == ZT_OK)
        rc = part_plans(dev, f, rows, (keys - 1) % each + 1, &p->of[PART_LAST], fault);
    return rc;
}

static zt_err prepare(struct zt_device *dev, struct backward *f, struct zt_fault *fault)
{
    struct scratch unused;
    void *mem;
    zt_err rc = zt_cpu_scratch(dev, ZT_SCRATCH_ATTENTION_PLANS,
                               (size_t)f->t.strips * sizeof(*f->plans), &mem, fault);

    if (rc != ZT_OK)
        return rc;
    f->plans = mem;
    zt_gemm_trim(dev);
    for (int64_t i = 0; i < f->t.strips; i++) {
        f->plans[i] = (struct backward_plans){.strip = zt_attention_strip(&f->t, i)};
        rc = strip_plans(dev, f, &f->plans[i], fault);
        if (rc != ZT_OK)
            return rc;
    }
    f->each = place(f, 0, &unused);
    rc = zt_cpu_scratch(dev, ZT_SCRATCH_ATTENTION, f->each * (size_t)zt_num_threads(),
                        &mem, fault);
    f->scratch = (uintptr_t)mem;
    return rc;
}

zt_err zt_cpu_attention_bwd(struct zt_device *dev, struct zt_stream *s,
                            const struct zt_attention_bwd_args *a, struct zt_fault *fault)
{
    struct backward f = {.a = a};
    zt_err rc = zt_check_attention_bwd(a, fault);

    (void)s;
    if (rc == ZT_OK)
        rc = zt_attention_init(&f.t, &a->fwd, fault);
    if (rc == ZT_OK && f.t.tq > 1 && a->dout.stride[1] < f.t.dim)
        rc = zt_fault_set(fault, ZT_E_ARG, "attention: the positions of dout overlap");
    if (rc != ZT_OK || f.t.batch * f.t.kv_heads * f.t.dim == 0)
        return rc;
    f.way = dbias_way_of(&f);
    rc = prepare(dev, &f, fault);
    if (rc != ZT_OK)
        return rc;
    zt_parallel_tasks((f.way == DBIAS_OF_ALL ? 1 : f.t.batch) * f.t.kv_heads, head_task,
                      &f);
    if (a->dbias.data && f.way == DBIAS_APART)
        zt_parallel_tasks(a->dbias.shape[0] * a->dbias.shape[1] * f.t.strips, bias_task,
                          &f);
    if (f.failed)
        return zt_fault_set(fault, (zt_err)f.failed, "attention: a product failed");
    return ZT_OK;
}
