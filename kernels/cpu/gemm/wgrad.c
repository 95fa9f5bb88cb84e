#include "kernels/cpu/gemm/wgrad.h"

#include "kernels/cpu/gemm/bf16_dot.h"
#include "kernels/cpu/parallel.h"
#include "kernels/integers.h"

#define BLOCK_K 1024                   /* of a sum in registers */
#define LEAST_N (4 * ZT_DOT_B_WIDTH)   /* columns of one, when there are few tasks */
#define B_WORDS ((int64_t)1 << 21)     /* of packed b at a time: 8 MiB */
#define A_ROWS  128                    /* at most, of a task: a's stay in the L2 cache */
#define A_WORDS (BLOCK_K / 2 * A_ROWS) /* of packed a: 256 KiB a thread */
#define MOST_K  (8 * (int64_t)BLOCK_K) /* of one pass over c */

/* One pass: k of [from, from + depth), columns [col, col + cols). */
struct wgrad_pass {
    const struct zt_wgrad *p;
    int64_t from, depth, col, cols;
    int64_t panels;                   /* of b */
    int64_t strip, group, num_groups; /* rows and columns of a task; tasks to a strip */
    uint32_t *b;                      /* blocks of k, in each the panels */
    uint32_t *a;                      /* of thread 0 */
};

bool zt_wgrad_is_faster(const struct zt_wgrad *p)
{
    return zt_dot_is_supported() && p->m >= 32 && p->n >= 32 && p->k >= 16;
}

static uint32_t *b_block(const struct wgrad_pass *s, int64_t k)
{
    return s->b + k / 2 * s->panels * ZT_DOT_B_WIDTH;
}

static void pack_b(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct wgrad_pass *s = ctx;
    const struct zt_wgrad *p = s->p;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t k = i / s->panels * BLOCK_K, col = i % s->panels * ZT_DOT_B_WIDTH;
        int64_t depth = zt_min(BLOCK_K, s->depth - k);

        zt_dot_pack(b_block(s, k) + zt_dot_pairs(depth) * col,
                    p->b + (s->from + k) * p->ldb + s->col + col, p->ldb, depth,
                    zt_min(ZT_DOT_B_WIDTH, s->cols - col));
    }
}

/* Adds a block of k to rows [row, row + rows) of the task's columns. */
static void add_block(const struct wgrad_pass *s, const uint32_t *a, int64_t k,
                      int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    const struct zt_wgrad *p = s->p;
    int64_t depth = zt_min(BLOCK_K, s->depth - k), pairs = zt_dot_pairs(depth);
    const struct zt_dot_form *form = zt_dot_form();
    int64_t fit = form->add_words / pairs / ZT_DOT_B_WIDTH * ZT_DOT_B_WIDTH;
    int64_t together = zt_max(fit, ZT_DOT_B_WIDTH);
    struct zt_dot d = {.pairs = pairs,
                       .b_panel = pairs * ZT_DOT_B_WIDTH,
                       .ldc = p->ldc,
                       .alpha = p->alpha,
                       .accumulate = p->accumulate || s->from + k > 0};

    for (int64_t j = col; j < col + cols; j += together)
        for (int64_t i = 0; i < rows; i += form->add_rows) {
            int64_t within = i % form->left_rows;

            d.m = zt_min(form->add_rows, rows - i);
            d.n = zt_min(together, col + cols - j);
            d.a = zt_dot_left(a, depth, i - within, 0);
            d.a.data = (const char *)d.a.data + within * d.a.row;
            d.b = b_block(s, k) + j * pairs;
            d.c = p->c + (row + i) * p->ldc + s->col + j;
            zt_dot_product(&d);
        }
}

static void strip_task(int64_t task, int thread, void *ctx)
{
    const struct wgrad_pass *s = ctx;
    const struct zt_wgrad *p = s->p;
    uint32_t *a = s->a + thread * (int64_t)A_WORDS;
    int64_t row = task / s->num_groups * s->strip, rows = zt_min(s->strip, p->m - row);
    int64_t col = task % s->num_groups * s->group, cols = zt_min(s->group, s->cols - col);

    zt_dot_begin();
    for (int64_t k = 0; k < s->depth; k += BLOCK_K) {
        zt_dot_pack_left(a, p->a + (s->from + k) * p->lda + row, p->lda,
                         zt_min(BLOCK_K, s->depth - k), rows);
        add_block(s, a, k, row, rows, col, cols);
    }
    zt_dot_end();
}

/* Tasks as large as can be, with several for every thread. */
static void deal_out(struct wgrad_pass *s)
{
    int64_t wanted = zt_num_threads() > 1 ? 4 * zt_num_threads() : 1;
    int64_t step = zt_dot_form()->left_rows;

    s->strip = A_ROWS / step * step;
    s->group = s->panels * ZT_DOT_B_WIDTH;
    while (zt_num_parts(s->p->m, s->strip) * zt_num_parts(s->cols, s->group) < wanted) {
        if (s->group > LEAST_N)
            s->group = zt_num_parts(s->group / 2, ZT_DOT_B_WIDTH) * ZT_DOT_B_WIDTH;
        else if (s->strip > step)
            s->strip = step;
        else
            break;
    }
    s->num_groups = zt_num_parts(s->cols, s->group);
}

zt_err zt_wgrad_run(struct zt_device *dev, const struct zt_wgrad *p,
                    struct zt_fault *fault)
{
    int64_t depth = zt_min(p->k, MOST_K);
    int64_t fit = B_WORDS / zt_dot_pairs(depth) / ZT_DOT_B_WIDTH * ZT_DOT_B_WIDTH;
    int64_t columns = zt_min(p->n, fit);
    size_t b_words = zt_dot_words(depth, columns, ZT_DOT_B_WIDTH);
    size_t a_words = (size_t)zt_num_threads() * A_WORDS;
    struct wgrad_pass s = {.p = p};
    void *mem;
    zt_err rc = zt_cpu_scratch(dev, ZT_SCRATCH_GEMM,
                               (a_words + b_words) * sizeof(uint32_t), &mem, fault);

    if (rc != ZT_OK)
        return rc;
    s.a = mem;
    s.b = s.a + a_words;
    for (s.col = 0; s.col < p->n; s.col += columns)
        for (s.from = 0; s.from < p->k; s.from += depth) {
            s.cols = zt_min(columns, p->n - s.col);
            s.depth = zt_min(depth, p->k - s.from);
            s.panels = zt_num_parts(s.cols, ZT_DOT_B_WIDTH);
            deal_out(&s);
            zt_parallel_for(zt_num_parts(s.depth, BLOCK_K) * s.panels, 1, pack_b, &s);
            zt_parallel_tasks(zt_num_parts(p->m, s.strip) * s.num_groups, strip_task, &s);
        }
    return ZT_OK;
}
