/*
 * panel_blocks.c -- products of operands packed into panels (panels.h), in fp32 and of bf16.
 *
 * oneDNN packs for each block of c that a thread takes, and how fast that is depends on how
 * operands are stored: of two products of one size one takes half as long again as the other
 * (Zen 3, oneDNN 2.6). Here threads take columns, and pack those that they take next while they
 * multiply others. Where columns are few for the number of threads, all threads pack columns of b
 * once; then tasks of some rows of c pack theirs of a and multiply them by all of these columns.
 * Where more columns follow and a fits a cache, all of it is packed before the first ones. All
 * layouts are about as fast as oneDNN's best, or faster.
 *
 * Sums run over k in blocks that follow from k alone, each added to c when it is done. So do
 * the bits, wherever a task begins.
 */
#include <stdatomic.h>
#include <string.h>

#include "kernels/cpu/elementwise/activation.h"
#include "kernels/cpu/gemm/call.h"
#include "kernels/cpu/gemm/panels.h"
#include "kernels/convert.h"
#include "kernels/cpu/parallel.h"
#include "kernels/integers.h"

#define MOST_K     ((int64_t)1024)    /* of a sum in registers */
#define B_FLOATS   ((int64_t)1 << 20) /* of b packed at a time */
#define A_FLOATS   ((int64_t)1 << 20) /* of all rows of a, where they stay packed */
#define MOST       ((int64_t)8) /* panels of a in a task: at most 256 KiB, of the L2 cache */
#define TASKS      4            /* for each thread, which are not equally fast */
#define ROWS_AHEAD 6            /* that an activation is about to write */
#define K_UNIT     16           /* that blocks of k are multiples of */
#define PAIRS_DEPTH                                                                      \
    ((int64_t)512) /* of a gradient of weights in bf16: bits are those of wgrad.c */

/* One pass: k of [from, from + depth), columns [col, col + cols). */
struct panel_pass {
    const struct zt_gemm_call *k;
    const struct zt_panel_kernels *by;
    const struct zt_gemm_mat *to; /* where sums go: c, or what its activation is of */
    int64_t item, from, depth, col, cols;
    int64_t strips, last;                 /* of rows; those that are cut small */
    int64_t group, groups, small, smalls; /* columns of a task, tasks of a strip */
    const float *start;                   /* of every row of sums: the bias, or zeros */
    float *b, *a;                         /* a: of thread 0, or of strip 0 */
    int64_t a_floats;                     /* of a thread, or of a strip */
    bool keeps_rows;                      /* a is packed once, for all columns */
    int64_t word,
        words; /* values of k that are multiplied together, and how many words it has */
    /* of bf16, whose sums are no elements of c: those of a thread, and how many rows of them */
    float *sums;
    int64_t sum_rows;
};

static const float *element(const struct zt_gemm_mat *m, int64_t item, int64_t row,
                            int64_t col)
{
    return (const float *)(void *)zt_gemm_element(m, item, row, col);
}

static void pack_b(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct panel_pass *s = ctx;
    const struct zt_gemm_mat *b = &s->k->b;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t col = i * s->by->together;

        s->by->pack_cols(s->b + s->depth * col,
                         element(b, s->item, s->from, s->col + col), b->stride[2],
                         b->stride[1], s->depth, zt_min(s->by->together, s->cols - col));
    }
}

/* Rows [*row, *row + *rows) of c are a strip. */
static void find_strip(const struct panel_pass *s, int64_t strip, int64_t *row,
                       int64_t *rows)
{
    int64_t panels = zt_num_parts(s->k->c.rows, s->by->rows);

    *row = panels * strip / s->strips * s->by->rows;
    *rows = zt_min(panels * (strip + 1) / s->strips * s->by->rows, s->k->c.rows) - *row;
}

static void pack_strip(const struct panel_pass *s, int64_t strip, float *to)
{
    const struct zt_gemm_mat *a = &s->k->a;
    int64_t row, rows;

    find_strip(s, strip, &row, &rows);
    s->by->pack_rows(to, element(a, s->item, row, s->from * s->word), a->stride[1],
                     a->stride[2], s->depth, rows);
}

static void pack_a(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct panel_pass *s = ctx;

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        pack_strip(s, i, s->a + i * s->a_floats);
}

/* Rows of c are short here and far from each other: no processor guesses what comes next. */
static void fetch_row(const struct panel_pass *s, const struct zt_gemm_mat *m,
                      int64_t row, int64_t col, int64_t cols)
{
    const char *to = zt_gemm_element(m, s->item, row, s->col + col);

    for (int64_t j = 0; j < cols * (int64_t)zt_dtype_bytes(m->dtype); j += 64)
        __builtin_prefetch(to + j, 1);
}

/* What follows the sums of some rows and columns: the activation. */
static void finish(const struct panel_pass *s, int64_t row, int64_t rows, int64_t col,
                   int64_t cols)
{
    struct zt_gemm_pass pass = {.k = s->k, .from = *s->to};

    for (int64_t i = row; i < row + rows; i++) {
        if (s->k->pre.data && i + ROWS_AHEAD < row + rows)
            fetch_row(s, &s->k->c, i + ROWS_AHEAD, col, cols);
        zt_gemm_pass_row(&pass, s->item, i, s->col + col, cols);
    }
}

/* Of rows, packed in a, and some columns, packed in b. */
static struct zt_panel_product product_of(const struct panel_pass *s, const float *a,
                                          const float *b, int64_t row, int64_t rows,
                                          int64_t col, int64_t cols)
{
    int64_t ld = s->to->stride[1];
    float *c = (float *)(void *)zt_gemm_element(s->to, s->item, row, s->col + col);
    bool begins = s->from == 0 && !s->k->accumulate;

    return (struct zt_panel_product){.m = rows,
                                     .n = cols,
                                     .k = s->depth,
                                     .a = a,
                                     .b = b,
                                     .from = begins ? s->start + s->col + col : c,
                                     .c = c,
                                     .ld_from = begins ? 0 : ld,
                                     .ldc = ld,
                                     .alpha = s->k->alpha};
}

/* Whether the pass is the last one, and an activation follows it. */
static bool ends_it(const struct panel_pass *s)
{
    return s->from + s->depth == s->words && (s->k->epilogue != ZT_EPI_NONE || s->sums);
}

static void run_task(int64_t task, int thread, void *ctx)
{
    const struct panel_pass *s = ctx;
    int64_t whole = (s->strips - s->last) * s->groups, over = task - whole;
    int64_t strip = over < 0 ? task / s->groups : s->strips - s->last + over / s->smalls;
    int64_t group = over < 0 ? s->group : s->small;
    int64_t col = over < 0 ? task % s->groups * group : over % s->smalls * group;
    int64_t end = zt_min(col + group, s->cols), row, rows;
    bool ends = ends_it(s);
    int64_t step = ends ? ZT_GEMM_PASS_COLS / s->by->cols * s->by->cols : group;
    float *packed = s->a + (s->keeps_rows ? strip : thread) * s->a_floats;

    if (!s->keeps_rows)
        pack_strip(s, strip, packed);
    find_strip(s, strip, &row, &rows);
    for (; col < end; col += step) {
        struct zt_panel_product p = product_of(s, packed, s->b + s->depth * col, row,
                                               rows, col, zt_min(step, end - col));

        s->by->multiply(&p);
        if (ends)
            finish(s, row, rows, col, zt_min(step, end - col));
    }
}

/* *groups are about as many groups of columns as are wanted; returns how wide they are. */
static int64_t group_columns(const struct panel_pass *s, int64_t wanted, int64_t *groups)
{
    int64_t most = zt_num_parts(s->cols, s->by->together);
    int64_t group = zt_num_parts(most, zt_min(wanted, most)) * s->by->together;

    *groups = zt_num_parts(s->cols, group);
    return group;
}

/* Of rows: as many as fit in a task, at most. */
static int64_t count_strips(const struct panel_pass *s)
{
    int64_t threads = zt_num_threads();
    int64_t panels = zt_num_parts(s->k->c.rows, s->by->rows),
            fit = zt_num_parts(panels, MOST);

    return zt_min(zt_num_parts(fit, threads) * threads, zt_num_parts(panels, MOST / 2));
}

/*
 * Tasks of a strip, for all columns if that leaves several for every thread.
 * The last ones are small, so that threads end at about the same time.
 */
static void deal_out(struct panel_pass *s)
{
    int64_t threads = zt_num_threads(), wanted = threads > 1 ? TASKS * threads : 1;

    s->last = threads > 1 ? zt_min(threads, s->strips) : 0;
    s->group = group_columns(s, zt_num_parts(wanted, s->strips), &s->groups);
    s->small = group_columns(s, TASKS * s->groups, &s->smalls);
}

/* `n` in as few parts as fit, about equally large: multiples of `unit`. */
static int64_t even_part(int64_t n, int64_t most, int64_t unit)
{
    return zt_num_parts(zt_num_parts(n, zt_num_parts(n, most)), unit) * unit;
}

/* ---- sums of bf16 ---- */

/* Where those of rows [row, ...) are; a row of them has as many as a thread takes columns. */
static float *sums_of(const struct panel_pass *s, int64_t row, int64_t cols)
{
    return s->sums + (s->sum_rows < s->k->c.rows ? 0 : row) * cols;
}

/* The product p goes there. */
static void take_sums(const struct panel_pass *s, struct zt_panel_product *p, int64_t row)
{
    p->c = sums_of(s, row, p->n);
    p->ldc = p->n;
    if (p->ld_from) {
        p->from = p->c;
        p->ld_from = p->ldc;
    }
}

static void copy_rows(const struct panel_pass *s, const struct zt_gemm_mat *to,
                      int64_t row, int64_t rows, int64_t col, int64_t cols,
                      const uint16_t *from)
{
    for (int64_t i = 0; i < rows; i++)
        memcpy(zt_gemm_element(to, s->item, row + i, col), from + i * cols,
               (size_t)cols * sizeof(*from));
}

/* Sums of rows, ZT_GEMM_PASS_COLS at most, become c. */
static void round_some(const struct panel_pass *s, int64_t row, int64_t rows, int64_t col,
                       int64_t cols)
{
    const struct zt_gemm_call *k = s->k;
    float x[ZT_GEMM_PASS_COLS], y[ZT_GEMM_PASS_COLS];
    uint16_t half[ZT_GEMM_PASS_COLS];
    int64_t n = rows * cols;

    zt_bf16_of_floats(half, sums_of(s, row, cols), n);
    if (k->epilogue != ZT_EPI_NONE) {
        if (k->pre.data)
            copy_rows(s, &k->pre, row, rows, col, cols, half);
        zt_floats_of_bf16(x, half, n); /* what is stored is what the activation sees */
        zt_tile_activate(k->epilogue == ZT_EPI_GELU_TANH ? ZT_U_GELU_TANH : ZT_U_GELU_ERF,
                         y, x, n);
        zt_bf16_of_floats(half, y, n);
    }
    copy_rows(s, &k->c, row, rows, col, cols, half);
}

static void round_sums(const struct panel_pass *s, int64_t row, int64_t rows, int64_t col,
                       int64_t cols)
{
    int64_t each = ZT_GEMM_PASS_COLS / cols, end = row + rows;
    struct panel_pass at = *s;

    for (int64_t i = row; i < end; i += each) {
        for (int64_t j = i + each; j < zt_min(i + 2 * each, end); j++) {
            fetch_row(s, &s->k->c, j, col, cols);
            if (s->k->pre.data)
                fetch_row(s, &s->k->pre, j, col, cols);
        }
        if (s->sum_rows < s->k->c.rows)
            at.sums = s->sums + (i - row) * cols;
        round_some(&at, i, zt_min(each, end - i), col, cols);
    }
}

/* ---- by columns ---- */

/*
 * A thread takes some columns at a time, and multiplies all rows by them: all k, a block after
 * the other, while sums are in its cache. It packs a block of k of its columns while it
 * multiplies by the one before. Packing is a matter of loads and stores, which wait for memory a
 * tenth of the time if nothing else is done, and cost nothing beside a product. Rows whose k follow
 * each other stay where they are; of others so many are packed as a cache has room for, if they
 * are not more than columns. Threads wait for each other only there. Bits are those of the other
 * way.
 */
#define MOST_BLOCKS 4 /* of k of rows that are packed */

static bool goes_by_columns(const struct panel_pass *s)
{
    const struct zt_gemm_call *k = s->k;

    return zt_num_parts(k->c.cols, s->by->cols) >= TASKS * zt_num_threads() &&
           (k->a.stride[2] == 1 || k->c.rows <= k->c.cols);
}

/* Columns that a thread takes at a time: as many as are packed together, or a panel of the last
 * ones, so that threads end at about the same time. None are left: *cols is 0. */
static void find_columns(const struct panel_pass *s, int64_t task, int64_t *col,
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
    const struct panel_pass *pass;
    int64_t depth; /* of a block */
    bool in_place; /* rows are not packed */
    atomic_int_fast64_t next;
};

/* A block of k of some columns: what a thread multiplies by, or packs. */
struct column_step {
    int64_t col, cols, from, depth;
};

/* The step that follows; false: there is none. */
static bool go_on(struct column_job *job, struct column_step *at)
{
    const struct panel_pass *s = job->pass;
    int64_t end = s->from + s->depth;

    at->from += job->depth;
    if (at->cols == 0 || at->from >= end) {
        at->from = s->from;
        find_columns(s, atomic_fetch_add(&job->next, 1), &at->col, &at->cols);
    }
    at->depth = zt_min(job->depth, end - at->from);
    return at->cols > 0;
}

static struct zt_panel_ahead ahead_of(const struct panel_pass *s,
                                      const struct column_step *at, float *to)
{
    const struct zt_gemm_mat *b = &s->k->b;
    bool along = b->stride[1] == 1;
    struct zt_panel_ahead w = {.src = element(b, s->item, at->from * s->word, at->col),
                               .dst = to,
                               .line = along ? b->stride[2] / s->word : 1,
                               .step = b->stride[1],
                               .k = at->depth,
                               .n = at->cols};

    s->by->begin_ahead(&w);
    return w;
}

/* The pass of one block of k. */
static struct panel_pass block_of(const struct column_job *job, int64_t from)
{
    struct panel_pass s = *job->pass;

    s.depth = zt_min(job->depth, s.from + s.depth - from);
    s.from = from;
    return s;
}

/* Where a strip of a block of k is packed. */
static float *packed_rows(const struct column_job *job, int64_t from, int64_t strip)
{
    const struct panel_pass *s = job->pass;
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
        struct panel_pass s = block_of(job, from);

        pack_strip(&s, i % strips, packed_rows(job, from, i % strips));
    }
}

/* Rows of a strip where they are, and those that are no whole panel, which `spare` is for. */
static void multiply_in_place(const struct panel_pass *s, struct zt_panel_product p,
                              int64_t row, float *spare, struct zt_panel_ahead *then)
{
    const struct zt_gemm_mat *a = &s->k->a;
    int64_t over = p.m % s->by->rows;

    p.m -= over;
    p.a = element(a, s->item, row, s->from * s->word);
    p.lda = a->stride[1] / s->word;
    s->by->multiply_and_pack(&p, then);
    if (over == 0)
        return;
    s->by->pack_rows(spare, p.a + p.m * p.lda, p.lda, 1, s->depth, over);
    p.a = spare;
    p.from += p.m * p.ld_from;
    p.c += p.m * p.ldc;
    p.m = over;
    s->by->multiply(&p);
}

static void multiply_packed(const struct panel_pass *s, struct zt_panel_product p,
                            const float *a, struct zt_panel_ahead *then)
{
    p.a = a;
    s->by->multiply_and_pack(&p, then);
}

static void multiply_step(const struct column_job *job, const struct column_step *at,
                          const float *b, int64_t slot, struct zt_panel_ahead *then)
{
    struct panel_pass s = block_of(job, at->from);
    float *spare = s.a + slot * s.a_floats;

    if (s.sums)
        s.sums += slot * s.sum_rows * s.by->together;

    for (int64_t strip = 0, row, rows; strip < s.strips; strip++) {
        struct zt_panel_product p;

        find_strip(&s, strip, &row, &rows);
        p = product_of(&s, NULL, b, row, rows, at->col, at->cols);
        if (s.sums)
            take_sums(&s, &p, row);
        if (job->in_place)
            multiply_in_place(&s, p, row, spare, then);
        else
            multiply_packed(&s, p, packed_rows(job, at->from, strip), then);
        if (ends_it(&s))
            (s.sums ? round_sums : finish)(&s, row, rows, at->col, at->cols);
    }
}

/* What one thread does, with the columns and rows that it has packed in two places and one. */
static void run_columns(int64_t begin, int64_t end, int thread, void *ctx)
{
    struct column_job *job = ctx;
    const struct panel_pass *s = job->pass;
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
static void size_rows(const struct panel_pass *s, int64_t depth, int64_t *rows,
                      int64_t *deep)
{
    *rows = s->k->c.rows;
    *deep = s->words;
    if (s->k->a.stride[2] == 1)
        return;
    *deep = even_part(*deep, MOST_BLOCKS * depth, depth);
    *rows = even_part(*rows, zt_max(A_FLOATS / *deep, s->by->rows), s->by->rows);
}

/* Floats of packed rows. */
static int64_t size_a(const struct panel_pass *s, int64_t depth)
{
    struct zt_gemm_call part = *s->k;
    struct panel_pass pass = *s;
    int64_t rows, deep;

    if (s->k->a.stride[2] == 1)
        return zt_num_threads() * s->a_floats;
    size_rows(s, depth, &rows, &deep);
    part.c.rows = zt_min(rows, part.c.rows);
    pass.k = &part;
    return count_strips(&pass) * zt_num_parts(deep, depth) * s->a_floats;
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

static void run_by_columns(const struct panel_pass *whole, int64_t depth)
{
    struct zt_gemm_call k;
    struct panel_pass s = *whole;
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
        s.strips = count_strips(&s);
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

/* ---- the whole ---- */

/* All of an item of the batch. */
static void run_item(struct panel_pass *s, bool by_columns, int64_t columns,
                     int64_t depth)
{
    const struct zt_gemm_call *k = s->k;

    if (by_columns) {
        run_by_columns(s, depth);
        return;
    }
    for (s->col = 0; s->col < k->c.cols; s->col += columns)
        for (s->from = 0; s->from < k->a.cols; s->from += depth) {
            s->cols = zt_min(columns, k->c.cols - s->col);
            s->depth = zt_min(depth, k->a.cols - s->from);
            deal_out(s);
            if (s->keeps_rows && s->col == 0)
                zt_parallel_for(s->strips, 1, pack_a, s);
            zt_parallel_for(zt_num_parts(s->cols, s->by->together), 1, pack_b, s);
            zt_parallel_tasks((s->strips - s->last) * s->groups + s->last * s->smalls,
                              run_task, s);
        }
}

zt_err zt_gemm_by_panels(struct zt_device *dev, const struct zt_gemm_call *in,
                         struct zt_fault *fault)
{
    struct zt_gemm_call k = *in;
    bool pairs = k.a.dtype == ZT_BF16, by_columns;
    struct panel_pass s = {.k = &k,
                           .by = pairs ? zt_panel_kernels_of_pairs() : zt_panel_kernels(),
                           .to = k.pre.data ? &k.pre : &k.c,
                           .word = pairs ? 2 : 1,
                           .words = k.a.cols / (pairs ? 2 : 1)};
    int64_t depth, columns, a_floats, b_floats, sums, together = s.by->together;
    float *start;
    void *mem;
    zt_err rc;

    zt_gemm_write_rows(&k);
    depth =
        pairs && k.a.stride[2] != 1 ? PAIRS_DEPTH : even_part(s.words, MOST_K, K_UNIT);
    columns = even_part(k.c.cols, B_FLOATS / depth / together * together, together);
    by_columns = pairs || goes_by_columns(&s);
    b_floats = depth * (by_columns ? 2 * zt_num_threads() * together : columns);
    s.strips = count_strips(&s);
    s.keeps_rows =
        depth >= k.a.cols && columns < k.c.cols && k.c.rows * depth <= A_FLOATS;
    s.a_floats = depth * MOST * s.by->rows + ZT_PANEL_PAD;
    a_floats = by_columns ? size_a(&s, depth)
                          : (s.keeps_rows ? s.strips : zt_num_threads()) * s.a_floats;
    if (pairs && k.c.dtype == ZT_BF16)
        s.sum_rows = depth < s.words ? k.c.rows : zt_min(k.c.rows, MOST * s.by->rows);
    sums = zt_num_threads() * s.sum_rows * together;
    rc = zt_cpu_scratch(dev, ZT_SCRATCH_GEMM_PAD,
                        (size_t)(b_floats + sums + a_floats + k.c.cols) * sizeof(float),
                        &mem, fault);
    if (rc != ZT_OK)
        return rc;
    s.b = mem;
    s.sums = sums ? s.b + b_floats : NULL;
    s.a = s.b + b_floats + sums;
    s.start = start = s.a + a_floats;
    if (k.bias)
        zt_load_row(start, k.bias, k.bias_dtype, k.bias_stride, k.c.cols);
    else
        memset(start, 0, (size_t)k.c.cols * sizeof(*start));
    for (s.item = 0; s.item < k.c.batch; s.item++)
        run_item(&s, by_columns, columns, depth);
    return ZT_OK;
}
