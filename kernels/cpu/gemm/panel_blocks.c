/*
 * panel_blocks.c -- products in fp32, of operands packed into panels (panels.h).
 *
 * oneDNN packs for each block of c that a thread takes, and how fast that is depends on how
 * operands are stored: of two products of one size one takes half as long again as the other
 * (Zen 3, oneDNN 2.6). Here all threads pack columns of b once; then tasks of some rows of c
 * pack theirs of a and multiply them by all of these columns. Where more columns follow and a
 * fits a cache, all of it is packed before the first ones; of few rows, too, and then tasks
 * pack columns. All layouts are about as fast as oneDNN's best, or faster.
 *
 * Sums run over k in blocks that follow from k alone, each added to c when it is done. So do
 * the bits, wherever a task begins.
 */
#include <string.h>

#include "kernels/cpu/gemm/call.h"
#include "kernels/cpu/gemm/panels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/integers.h"

#define MOST_K     ((int64_t)1024)    /* of a sum in registers */
#define B_FLOATS   ((int64_t)1 << 20) /* of b packed at a time */
#define A_FLOATS   ((int64_t)1 << 20) /* of all rows of a, where they stay packed */
#define MOST       ((int64_t)8) /* panels of a in a task: at most 256 KiB, of the L2 cache */
#define TASKS      4            /* for each thread, which are not equally fast */
#define ROWS_AHEAD 6            /* that an activation is about to write */
#define K_UNIT     16           /* that blocks of k are multiples of */
#define FEW        512          /* rows */

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
    s->by->pack_rows(to, element(a, s->item, row, s->from), a->stride[1], a->stride[2],
                     s->depth, rows);
}

static void pack_a(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct panel_pass *s = ctx;

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        pack_strip(s, i, s->a + i * s->a_floats);
}

/* Rows of c are short here and far from each other: no processor guesses what comes next. */
static void fetch_row(const struct panel_pass *s, int64_t row, int64_t col, int64_t cols)
{
    const float *c = element(&s->k->c, s->item, row, s->col + col);

    for (int64_t j = 0; j < cols; j += 16)
        __builtin_prefetch(c + j, 1);
}

/* What follows the sums of some rows and columns: the activation. */
static void finish(const struct panel_pass *s, int64_t row, int64_t rows, int64_t col,
                   int64_t cols)
{
    struct zt_gemm_pass pass = {.k = s->k, .from = *s->to};

    for (int64_t i = row; i < row + rows; i++) {
        if (s->k->pre.data && i + ROWS_AHEAD < row + rows)
            fetch_row(s, i + ROWS_AHEAD, col, cols);
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
    return s->from + s->depth == s->k->a.cols && s->k->epilogue != ZT_EPI_NONE;
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

/* ---- few rows ---- */

/*
 * All of them are packed once. A task packs some columns, and multiplies by them while they are
 * in its cache: packed once by all threads, they would go out to memory and come back, and
 * threads would wait for each other between. Wherever there are columns enough for all threads:
 * bits are the same in both ways.
 */
static bool are_few_rows(const struct panel_pass *s)
{
    const struct zt_gemm_call *k = s->k;

    return k->c.rows < FEW && k->c.rows <= k->c.cols &&
           zt_num_parts(k->c.cols, s->by->together) >= TASKS * zt_num_threads();
}

static void run_columns(int64_t task, int thread, void *ctx)
{
    const struct panel_pass *s = ctx;
    const struct zt_gemm_mat *b = &s->k->b;
    int64_t col = task * s->by->together, cols = zt_min(s->by->together, s->cols - col);
    int64_t then =
        col + zt_num_threads() * s->by->together; /* where this thread may go on */
    float *packed = s->b + thread * s->depth * s->by->together;
    struct zt_panel_fetch next = {.line = b->stride[2],
                                  .step = b->stride[1],
                                  .k = s->depth,
                                  .n = zt_min(s->by->together, s->cols - then),
                                  .parts = zt_num_parts(s->k->c.rows, s->by->rows)};

    if (then < s->cols)
        next.at = element(b, s->item, s->from, then);
    s->by->pack_cols(packed, element(b, s->item, s->from, col), b->stride[2],
                     b->stride[1], s->depth, cols);
    for (int64_t strip = 0, row, rows; strip < s->strips; strip++) {
        struct zt_panel_product p;

        find_strip(s, strip, &row, &rows);
        next.part = row / s->by->rows;
        p = product_of(s, s->a + strip * s->a_floats, packed, row, rows, col, cols);
        s->by->multiply_few_cols(&p, &next);
        if (ends_it(s))
            finish(s, row, rows, col, cols);
    }
}

static void run_few_rows(struct panel_pass *s, int64_t depth)
{
    s->col = 0;
    s->cols = s->k->c.cols;
    for (s->from = 0; s->from < s->k->a.cols; s->from += depth) {
        s->depth = zt_min(depth, s->k->a.cols - s->from);
        zt_parallel_for(s->strips, 1, pack_a, s);
        zt_parallel_tasks(zt_num_parts(s->cols, s->by->together), run_columns, s);
    }
}

/* ---- the whole ---- */

/* All of an item of the batch. */
static void run_item(struct panel_pass *s, int64_t columns, int64_t depth)
{
    const struct zt_gemm_call *k = s->k;

    if (are_few_rows(s)) {
        run_few_rows(s, depth);
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
    struct panel_pass s = {
        .k = &k, .by = zt_panel_kernels(), .to = k.pre.data ? &k.pre : &k.c};
    int64_t depth, columns, a_floats, b_floats, together = s.by->together;
    bool few;
    float *start;
    void *mem;
    zt_err rc;

    zt_gemm_write_rows(&k);
    depth = even_part(k.a.cols, MOST_K, K_UNIT);
    columns = even_part(k.c.cols, B_FLOATS / depth / together * together, together);
    few = are_few_rows(&s);
    b_floats = depth * (few ? zt_num_threads() * together : columns);
    s.strips = count_strips(&s);
    s.keeps_rows =
        depth >= k.a.cols && columns < k.c.cols && k.c.rows * depth <= A_FLOATS;
    s.a_floats = depth * MOST * s.by->rows + ZT_PANEL_PAD;
    a_floats = (few || s.keeps_rows ? s.strips : zt_num_threads()) * s.a_floats;
    rc = zt_cpu_scratch(dev, ZT_SCRATCH_GEMM_PAD,
                        (size_t)(b_floats + a_floats + k.c.cols) * sizeof(float), &mem,
                        fault);
    if (rc != ZT_OK)
        return rc;
    s.b = mem;
    s.a = s.b + b_floats;
    s.start = start = s.a + a_floats;
    if (k.bias)
        zt_load_row(start, k.bias, k.bias_dtype, k.bias_stride, k.c.cols);
    else
        memset(start, 0, (size_t)k.c.cols * sizeof(*start));
    for (s.item = 0; s.item < k.c.batch; s.item++)
        run_item(&s, columns, depth);
    return ZT_OK;
}
