/*
 * panel_columns.c -- products of packed panels by columns (panel_pass.h).
 *
 * A thread takes some columns at a time, and multiplies all rows by them: all k, a block after
 * the other, while sums are in its cache. It packs a block of k of its columns while it
 * multiplies by the one before. Packing is a matter of loads and stores, which wait for memory a
 * tenth of the time if nothing else is done, and cost nothing beside a product. Rows whose k follow
 * each other stay where they are; of others so many are packed as a cache has room for, if they
 * are not more than columns. Threads wait for each other only there. Bits are those of the other
 * way.
 *
 * Where columns are few for the threads, a task is a part of the rows as well. Each part packs
 * its columns again, and its sums are those of all rows: no bit depends on the number of parts.
 */
#include <stdatomic.h>

#include "common/half.h"
#include "kernels/cpu/elementwise/activation.h"
#include "kernels/cpu/gemm/panel_pass.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/integers.h"

#define MOST_BLOCKS 4  /* of k of rows that are packed */
#define PACK_ROWS   32 /* are multiplied in the time that their columns are packed in */

/* ---- sums of bf16 ---- */

/* Where those of rows [row, ...) are; a row of them has as many as a thread takes columns. */
static float *sums_of(const struct zt_panel_pass *s, int64_t row, int64_t cols)
{
    return s->sums + (s->sum_rows < s->k->c.rows ? 0 : row) * cols;
}

/* The product p goes there. */
static void take_sums(const struct zt_panel_pass *s, struct zt_panel_product *p,
                      int64_t row)
{
    p->c = sums_of(s, row, p->n);
    p->ldc = p->n;
    if (!zt_panel_ends(s))
        p->written[0].at = NULL; /* of sums alone, which are in the cache */
    if (p->ld_from) {
        p->from = p->c;
        p->ld_from = p->ldc;
    }
}

/* Rows of halves, `ld` apart, into the cache: they are short, and far from each other. */
static void fetch_rows(const uint16_t *at, int64_t ld, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++, at += ld) {
        for (int64_t j = 0; j < cols; j += 32)
            __builtin_prefetch(at + j, 1);
        __builtin_prefetch(at + cols - 1, 1);
    }
}

/* Rows that follow each other become rows of halves, `ld` apart. */
ZT_SIMD static void round_rows(uint16_t *restrict to, int64_t ld,
                               const float *restrict from, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++, to += ld, from += cols)
        for (int64_t j = 0; j < cols; j++)
            to[j] = zt_bf16_of_float(from[j]);
}

/* The same, and x is what they are. */
ZT_SIMD static void round_rows_as(uint16_t *restrict to, int64_t ld, float *restrict x,
                                  const float *restrict from, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++, to += ld, from += cols, x += cols)
        for (int64_t j = 0; j < cols; j++) {
            to[j] = zt_bf16_of_float(from[j]);
            x[j] = zt_float_of_bf16(to[j]);
        }
}

/* Where rows of c and of what its activation is of go; pre NULL: nowhere. */
struct rounded {
    uint16_t *c, *pre;
    int64_t ldc, ld_pre;
};

static struct rounded rounded_at(const struct zt_panel_pass *s, int64_t row, int64_t col)
{
    const struct zt_gemm_call *k = s->k;
    struct rounded r = {.c =
                            (uint16_t *)(void *)zt_gemm_element(&k->c, s->item, row, col),
                        .ldc = k->c.stride[1]};

    if (k->pre.data) {
        r.pre = (uint16_t *)(void *)zt_gemm_element(&k->pre, s->item, row, col);
        r.ld_pre = k->pre.stride[1];
    }
    return r;
}

/* Rows of sums, ZT_GEMM_PASS_COLS at most, become c. What is stored is what the activation sees. */
static void round_some(const struct zt_gemm_call *k, const struct rounded *to,
                       const float *sums, int64_t rows, int64_t cols)
{
    float x[ZT_GEMM_PASS_COLS];
    uint16_t half[ZT_GEMM_PASS_COLS];

    if (k->epilogue == ZT_EPI_NONE) {
        round_rows(to->c, to->ldc, sums, rows, cols);
        return;
    }
    round_rows_as(to->pre ? to->pre : half, to->pre ? to->ld_pre : cols, x, sums, rows,
                  cols);
    zt_tile_activate(k->epilogue == ZT_EPI_GELU_TANH ? ZT_U_GELU_TANH : ZT_U_GELU_ERF, x,
                     x, rows * cols);
    round_rows(to->c, to->ldc, x, rows, cols);
}

static void round_sums(const struct zt_panel_pass *s, int64_t row, int64_t rows,
                       int64_t col, int64_t cols)
{
    const float *sums = sums_of(s, row, cols);
    struct rounded to = rounded_at(s, row, col);
    int64_t each = ZT_GEMM_PASS_COLS / cols, n;

    for (; rows > 0; rows -= n, sums += n * cols) {
        int64_t next = zt_min(each, rows - each);

        n = zt_min(each, rows);
        fetch_rows(to.c + each * to.ldc, to.ldc, next, cols);
        if (to.pre)
            fetch_rows(to.pre + each * to.ld_pre, to.ld_pre, next, cols);
        round_some(s->k, &to, sums, n, cols);
        to.c += n * to.ldc;
        to.pre += to.pre ? n * to.ld_pre : 0;
    }
}

/* ---- columns and rows of a task ---- */

bool zt_panel_goes_by_columns(const struct zt_panel_pass *s)
{
    const struct zt_gemm_call *k = s->k;

    return zt_num_parts(k->c.cols, s->by->cols) >= ZT_PANEL_TASKS * zt_num_threads() &&
           (k->a.stride[2] == 1 || k->c.rows <= k->c.cols);
}

int64_t zt_panel_row_parts(int64_t panels, int64_t rows, int64_t strips, int64_t threads)
{
    int64_t most = zt_min(strips, zt_num_parts(ZT_PANEL_TASKS * threads, panels));
    int64_t best = 1, least = INT64_MAX;

    for (int64_t parts = 1; parts <= most; parts++) {
        int64_t longest = zt_num_parts(rows * zt_num_parts(strips, parts), strips);
        int64_t time = zt_num_parts(panels * parts, threads) * (longest + PACK_ROWS);

        if (time < least) {
            best = parts;
            least = time;
        }
    }
    return best;
}

/* Columns that a thread takes at a time: as many as are packed together, or a panel of the last
 * ones, so that threads end at about the same time. None are left: *cols is 0. */
static void find_columns(const struct zt_panel_pass *s, int64_t task, int64_t *col,
                         int64_t *cols)
{
    int64_t panels = zt_num_parts(s->cols, s->by->cols);
    int64_t each = s->by->together / s->by->cols;
    int64_t whole = zt_max(0, panels / each - zt_num_threads());
    bool is_whole = task < whole;
    int64_t first = is_whole ? task * each : whole * each + (task - whole);

    *col = zt_min(first * s->by->cols, s->cols);
    *cols = zt_min(is_whole ? s->by->together : s->by->cols, s->cols - *col);
}

/* Rows of a pass, and its k in blocks. */
struct column_job {
    const struct zt_panel_pass *pass;
    int64_t depth; /* of a block */
    bool in_place; /* rows are not packed */
    int64_t parts; /* of the rows */
    atomic_int_fast64_t next;
};

/* A block of k of some columns: what a thread multiplies by, or packs; strips [strip, end) of
 * rows are its task. */
struct column_step {
    int64_t col, cols, from, depth, strip, end;
};

/* The parts of the rows one after the other, so that the widest columns are first. */
static void find_task(const struct column_job *job, int64_t task, struct column_step *at)
{
    int64_t part = task % job->parts, strips = job->pass->strips;

    find_columns(job->pass, task / job->parts, &at->col, &at->cols);
    at->strip = strips * part / job->parts;
    at->end = strips * (part + 1) / job->parts;
}

/* The step that follows; false: there is none. */
static bool go_on(struct column_job *job, struct column_step *at)
{
    const struct zt_panel_pass *s = job->pass;
    int64_t end = s->from + s->depth;

    at->from += at->depth;
    if (at->cols == 0 || at->from >= end) {
        at->from = s->from;
        find_task(job, atomic_fetch_add(&job->next, 1), at);
    }
    at->depth = zt_min(job->depth, end - at->from);
    if (at->from < s->whole)
        at->depth = zt_min(at->depth, s->whole - at->from);
    return at->cols > 0;
}

/* The last value of each of some lines of an odd k, `line` values apart, beside a zero. */
static void pack_last(float *to, const void *from, int64_t line, int64_t n, int64_t width)
{
    const uint16_t *value = from;

    memset(to, 0, (size_t)zt_num_parts(n, width) * (size_t)width * sizeof(*to));
    for (int64_t i = 0; i < n; i++)
        to[i] = zt_float_of_bits(value[i * line]);
}

static struct zt_panel_ahead ahead_of(const struct zt_panel_pass *s,
                                      const struct column_step *at, float *to)
{
    const struct zt_gemm_mat *b = &s->k->b;
    bool along = b->stride[1] == 1;
    struct zt_panel_ahead w = {
        .src = zt_panel_element(b, s->item, at->from * s->word, at->col),
        .dst = to,
        .line = along ? b->stride[2] / s->word : 1,
        .step = b->stride[1],
        .k = at->depth,
        .n = at->cols};

    if (at->from == s->whole) {
        pack_last(to, w.src, b->stride[2], at->cols, s->by->cols);
        return (struct zt_panel_ahead){0};
    }
    s->by->begin_ahead(&w);
    return w;
}

/* The pass of one block of k. */
static struct zt_panel_pass block_of(const struct column_job *job, int64_t from)
{
    struct zt_panel_pass s = *job->pass;

    s.depth = zt_min(job->depth, s.from + s.depth - from);
    if (from < s.whole)
        s.depth = zt_min(s.depth, s.whole - from);
    s.from = from;
    return s;
}

/* Where a strip of a block of k is packed. */
static float *packed_rows(const struct column_job *job, int64_t from, int64_t strip)
{
    const struct zt_panel_pass *s = job->pass;
    int64_t block = (from - s->from) / job->depth;

    return s->a + (block * s->strips + strip) * s->a_floats;
}

static void pack_rows(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct column_job *job = ctx;
    int64_t strips = job->pass->strips;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t from = job->pass->from + i / strips * job->depth;
        struct zt_panel_pass s = block_of(job, from);

        zt_panel_pack_strip(&s, i % strips, packed_rows(job, from, i % strips));
    }
}

/* Fewer than a panel of rows of k words, lda bytes apart. */
static void pack_over(float *to, int64_t width, const char *from, int64_t lda, int64_t k,
                      int64_t rows)
{
    memset(to, 0, (size_t)(width * k) * sizeof(*to));
    for (int64_t i = 0; i < k; i++)
        for (int64_t r = 0; r < rows; r++)
            memcpy(to + i * width + r, from + r * lda + i * (int64_t)sizeof(*to),
                   sizeof(*to));
}

/* Rows of a strip where they are; those that are no whole panel, and what is left of an odd k, are
 * packed to `spare`. */
static void multiply_in_place(const struct zt_panel_pass *s, struct zt_panel_product p,
                              int64_t row, float *spare, struct zt_panel_ahead *then)
{
    const struct zt_gemm_mat *a = &s->k->a;
    int64_t over = p.m % s->by->rows;

    p.a = zt_panel_element(a, s->item, row, s->from * s->word);
    if (s->from == s->whole) {
        pack_last(spare, p.a, a->stride[1], p.m, s->by->rows);
        p.a = spare;
        s->by->multiply(&p);
        return;
    }
    p.m -= over;
    p.lda = a->stride[1] * (int64_t)zt_dtype_bytes(a->dtype);
    s->by->multiply_and_pack(&p, then);
    if (over == 0)
        return;
    pack_over(spare, s->by->rows, (const char *)p.a + p.m * p.lda, p.lda, s->depth, over);
    p.a = spare;
    p.from += p.m * p.ld_from;
    p.c += p.m * p.ldc;
    p.m = over;
    s->by->multiply(&p);
}

static void multiply_packed(const struct zt_panel_pass *s, struct zt_panel_product p,
                            const float *a, struct zt_panel_ahead *then)
{
    p.a = a;
    s->by->multiply_and_pack(&p, then);
}

static void multiply_step(const struct column_job *job, const struct column_step *at,
                          const float *b, int64_t slot, struct zt_panel_ahead *then)
{
    struct zt_panel_pass s = block_of(job, at->from);
    float *spare = s.a + slot * s.a_floats;

    if (s.sums)
        s.sums += slot * s.sum_rows * s.by->together;

    for (int64_t strip = at->strip, row, rows; strip < at->end; strip++) {
        struct zt_panel_product p;

        zt_panel_find_strip(&s, strip, &row, &rows);
        p = zt_panel_product_of(&s, NULL, b, row, rows, at->col, at->cols);
        if (s.sums)
            take_sums(&s, &p, row);
        if (job->in_place)
            multiply_in_place(&s, p, row, spare, then);
        else
            multiply_packed(&s, p, packed_rows(job, at->from, strip), then);
        if (zt_panel_ends(&s))
            (s.sums ? round_sums : zt_panel_finish)(&s, row, rows, at->col, at->cols);
    }
}

/* What one thread does, with the columns and rows that it has packed in two places and one. */
static void run_columns(int64_t begin, int64_t end, int thread, void *ctx)
{
    struct column_job *job = ctx;
    const struct zt_panel_pass *s = job->pass;
    int64_t floats = job->depth * s->by->together;

    (void)thread;
    for (int64_t slot = begin; slot < end; slot++) {
        float *b = s->b + 2 * slot * floats, *other = b + floats;
        struct column_step at = {0};
        struct zt_panel_ahead w = {0};
        bool more = go_on(job, &at);

        if (more) {
            w = ahead_of(s, &at, b);
            s->by->end_ahead(&w);
        }
        while (more) {
            struct column_step then = at;
            float *packed = b;

            more = go_on(job, &then);
            w = more ? ahead_of(s, &then, other) : (struct zt_panel_ahead){0};
            multiply_step(job, &at, packed, slot, &w);
            if (more)
                s->by->end_ahead(&w);
            b = other;
            other = packed;
            at = then;
        }
    }
}

/* Rows and k that are taken at a time: all that are in place. */
static void size_rows(const struct zt_panel_pass *s, int64_t depth, int64_t *rows,
                      int64_t *deep)
{
    *rows = s->k->c.rows;
    *deep = s->words;
    if (s->k->a.stride[2] == 1)
        return;
    *deep = zt_panel_even_part(*deep, MOST_BLOCKS * depth, depth);
    *rows = zt_panel_even_part(*rows, zt_max(ZT_PANEL_A_FLOATS / *deep, s->by->rows),
                               s->by->rows);
}

int64_t zt_panel_column_rows(const struct zt_panel_pass *s, int64_t depth)
{
    struct zt_gemm_call part = *s->k;
    struct zt_panel_pass pass = *s;
    int64_t rows, deep;

    if (s->k->a.stride[2] == 1)
        return zt_num_threads() * s->a_floats;
    size_rows(s, depth, &rows, &deep);
    part.c.rows = zt_min(rows, part.c.rows);
    pass.k = &part;
    return zt_panel_count_strips(&pass) * zt_num_parts(deep, depth) * s->a_floats;
}

/* Rows [row, row + rows) of a call. */
static void take_rows(struct zt_gemm_call *k, int64_t row, int64_t rows)
{
    struct zt_gemm_mat *all[] = {&k->a, &k->c, &k->pre};

    for (int i = 0; i < 3; i++) {
        if (all[i]->data)
            all[i]->data = zt_gemm_element(all[i], 0, row, 0);
        all[i]->rows = rows;
    }
}

void zt_panel_run_columns(const struct zt_panel_pass *whole, int64_t depth)
{
    struct zt_gemm_call k = *whole->k;
    struct zt_panel_pass s = *whole;
    struct column_job job = {
        .pass = &s, .depth = depth, .in_place = whole->k->a.stride[2] == 1};
    int64_t rows, deep;

    size_rows(whole, depth, &rows, &deep);
    s.k = &k;
    s.to = whole->k->pre.data ? &k.pre : &k.c;
    s.cols = whole->k->c.cols;
    for (int64_t row = 0; row < whole->k->c.rows; row += rows) {
        k = *whole->k;
        take_rows(&k, row, zt_min(rows, k.c.rows - row));
        s.strips = zt_panel_count_strips(&s);
        job.parts = zt_panel_row_parts(zt_num_parts(s.cols, s.by->cols), k.c.rows,
                                       s.strips, zt_num_threads());
        for (s.from = 0; s.from < s.words; s.from += deep) {
            s.depth = zt_min(deep, s.words - s.from);
            job.next = 0;
            if (!job.in_place)
                zt_parallel_for(s.strips * zt_num_parts(s.depth, depth), 1, pack_rows,
                                &job);
            zt_parallel_for(zt_num_threads(), 1, run_columns, &job);
        }
    }
}
