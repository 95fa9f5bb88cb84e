/*
 * panel_blocks.c -- products of operands packed into panels (panels.h), in fp32 and of bf16.
 *
 * oneDNN packs for each block of c that a thread takes, and how fast that is depends on how
 * operands are stored: of two products of one size one takes half as long again as the other
 * (Zen 3, oneDNN 2.6). Here threads take columns, and pack those that they take next while they
 * multiply others (panel_columns.c). In fp32, where columns are few for the number of threads, all
 * threads pack columns of b once; then tasks of some rows of c pack theirs of a and multiply them
 * by all of these columns. Where more columns follow and a fits a cache, all of it is packed
 * before the first ones. All layouts are about as fast as oneDNN's best, or faster.
 *
 * Sums run over k in blocks that follow from k alone, each added to c when it is done. So do
 * the bits, wherever a task begins.
 */
#include <string.h>

#include "kernels/convert.h"
#include "kernels/cpu/gemm/panel_pass.h"
#include "kernels/cpu/parallel.h"
#include "kernels/integers.h"

#define MOST_K     ((int64_t)1024)    /* of a sum in registers */
#define B_FLOATS   ((int64_t)1 << 20) /* of b packed at a time */
#define ROWS_AHEAD 6                  /* that an activation is about to write */
#define K_UNIT     16                 /* that blocks of k are multiples of */
#define PAIRS_DEPTH                                                                      \
    ((int64_t)512) /* of a gradient of weights in bf16: bits are those of wgrad.c */

static void pack_b(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct zt_panel_pass *s = ctx;
    const struct zt_gemm_mat *b = &s->k->b;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t col = i * s->by->together;

        s->by->pack_cols(
            s->b + s->depth * col, zt_panel_element(b, s->item, s->from, s->col + col),
            b->stride[2], b->stride[1], s->depth, zt_min(s->by->together, s->cols - col));
    }
}

void zt_panel_find_strip(const struct zt_panel_pass *s, int64_t strip, int64_t *row,
                         int64_t *rows)
{
    int64_t panels = zt_num_parts(s->k->c.rows, s->by->rows);

    *row = panels * strip / s->strips * s->by->rows;
    *rows = zt_min(panels * (strip + 1) / s->strips * s->by->rows, s->k->c.rows) - *row;
}

void zt_panel_pack_strip(const struct zt_panel_pass *s, int64_t strip, float *to)
{
    const struct zt_gemm_mat *a = &s->k->a;
    int64_t row, rows;

    zt_panel_find_strip(s, strip, &row, &rows);
    s->by->pack_rows(to, zt_panel_element(a, s->item, row, s->from * s->word),
                     a->stride[1], a->stride[2], s->depth, rows);
}

static void pack_a(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct zt_panel_pass *s = ctx;

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        zt_panel_pack_strip(s, i, s->a + i * s->a_floats);
}

void zt_panel_finish(const struct zt_panel_pass *s, int64_t row, int64_t rows,
                     int64_t col, int64_t cols)
{
    struct zt_gemm_pass pass = {.k = s->k, .from = *s->to};

    for (int64_t i = row; i < row + rows; i++) {
        if (s->k->pre.data && i + ROWS_AHEAD < row + rows)
            zt_panel_fetch_row(s, &s->k->c, i + ROWS_AHEAD, col, cols);
        zt_gemm_pass_row(&pass, s->item, i, s->col + col, cols);
    }
}

struct zt_panel_product zt_panel_product_of(const struct zt_panel_pass *s, const float *a,
                                            const float *b, int64_t row, int64_t rows,
                                            int64_t col, int64_t cols)
{
    int64_t ld = s->to->stride[1];
    float *c = (float *)(void *)zt_gemm_element(s->to, s->item, row, s->col + col);
    bool begins = s->from == 0 && !s->k->accumulate;
    struct zt_panel_product p = {.m = rows,
                                 .n = cols,
                                 .k = s->depth,
                                 .a = a,
                                 .b = b,
                                 .from = begins ? s->start + s->col + col : c,
                                 .c = c,
                                 .ld_from = begins ? 0 : ld,
                                 .ldc = ld,
                                 .alpha = s->k->alpha};

    p.written[0] = zt_panel_rows_of(s->to, s->item, row, s->col + col);
    if (zt_panel_ends(s) && s->to != &s->k->c)
        p.written[1] = zt_panel_rows_of(&s->k->c, s->item, row, s->col + col);
    return p;
}

static void run_task(int64_t task, int thread, void *ctx)
{
    const struct zt_panel_pass *s = ctx;
    int64_t whole = (s->strips - s->last) * s->groups, over = task - whole;
    int64_t strip = over < 0 ? task / s->groups : s->strips - s->last + over / s->smalls;
    int64_t group = over < 0 ? s->group : s->small;
    int64_t col = over < 0 ? task % s->groups * group : over % s->smalls * group;
    int64_t end = zt_min(col + group, s->cols), row, rows;
    bool ends = zt_panel_ends(s);
    int64_t step = ends ? ZT_GEMM_PASS_COLS / s->by->cols * s->by->cols : group;
    float *packed = s->a + (s->keeps_rows ? strip : thread) * s->a_floats;

    if (!s->keeps_rows)
        zt_panel_pack_strip(s, strip, packed);
    zt_panel_find_strip(s, strip, &row, &rows);
    for (; col < end; col += step) {
        struct zt_panel_product p = zt_panel_product_of(
            s, packed, s->b + s->depth * col, row, rows, col, zt_min(step, end - col));

        s->by->multiply(&p);
        if (ends)
            zt_panel_finish(s, row, rows, col, zt_min(step, end - col));
    }
}

/* *groups are about as many groups of columns as are wanted; returns how wide they are. */
static int64_t group_columns(const struct zt_panel_pass *s, int64_t wanted,
                             int64_t *groups)
{
    int64_t most = zt_num_parts(s->cols, s->by->together);
    int64_t group = zt_num_parts(most, zt_min(wanted, most)) * s->by->together;

    *groups = zt_num_parts(s->cols, group);
    return group;
}

int64_t zt_panel_count_strips(const struct zt_panel_pass *s)
{
    int64_t threads = zt_num_threads();
    int64_t panels = zt_num_parts(s->k->c.rows, s->by->rows),
            fit = zt_num_parts(panels, ZT_PANEL_MOST);

    return zt_min(zt_num_parts(fit, threads) * threads,
                  zt_num_parts(panels, ZT_PANEL_MOST / 2));
}

/*
 * Tasks of a strip, for all columns if that leaves several for every thread.
 * The last ones are small, so that threads end at about the same time.
 */
static void deal_out(struct zt_panel_pass *s)
{
    int64_t threads = zt_num_threads(),
            wanted = threads > 1 ? ZT_PANEL_TASKS * threads : 1;

    s->last = threads > 1 ? zt_min(threads, s->strips) : 0;
    s->group = group_columns(s, zt_num_parts(wanted, s->strips), &s->groups);
    s->small = group_columns(s, ZT_PANEL_TASKS * s->groups, &s->smalls);
}

int64_t zt_panel_even_part(int64_t n, int64_t most, int64_t unit)
{
    return zt_num_parts(zt_num_parts(n, zt_num_parts(n, most)), unit) * unit;
}

/* ---- the whole ---- */

/* All of an item of the batch. */
static void run_item(struct zt_panel_pass *s, bool by_columns, int64_t columns,
                     int64_t depth)
{
    const struct zt_gemm_call *k = s->k;

    if (by_columns) {
        zt_panel_run_columns(s, depth);
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
    struct zt_panel_pass s = {.k = &k,
                              .by = pairs ? zt_panel_kernels_of_pairs()
                                          : zt_panel_kernels(),
                              .to = k.pre.data ? &k.pre : &k.c,
                              .word = pairs ? 2 : 1,
                              .words = zt_num_parts(k.a.cols, pairs ? 2 : 1),
                              .whole = k.a.cols / (pairs ? 2 : 1)};
    int64_t depth, columns, a_floats, b_floats, sums, together = s.by->together;
    float *start;
    void *mem;
    zt_err rc;

    zt_gemm_write_rows(&k);
    depth = pairs && k.a.stride[2] != 1 ? PAIRS_DEPTH
                                        : zt_panel_even_part(s.whole, MOST_K, K_UNIT);
    columns =
        zt_panel_even_part(k.c.cols, B_FLOATS / depth / together * together, together);
    by_columns = pairs || zt_panel_goes_by_columns(&s);
    b_floats = depth * (by_columns ? 2 * zt_num_threads() * together : columns);
    s.strips = zt_panel_count_strips(&s);
    s.keeps_rows =
        depth >= k.a.cols && columns < k.c.cols && k.c.rows * depth <= ZT_PANEL_A_FLOATS;
    s.a_floats = depth * ZT_PANEL_MOST * s.by->rows + ZT_PANEL_PAD;
    a_floats = by_columns ? zt_panel_column_rows(&s, depth)
                          : (s.keeps_rows ? s.strips : zt_num_threads()) * s.a_floats;
    if (pairs && k.c.dtype == ZT_BF16)
        s.sum_rows = zt_min(depth, s.whole) < s.words /* several blocks of k */
                         ? k.c.rows
                         : zt_min(k.c.rows, ZT_PANEL_MOST * s.by->rows);
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
