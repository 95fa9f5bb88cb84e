/*
 * thread_blocks.c -- products by oneDNN, in blocks that threads take one at a time.
 *
 * Left to itself oneDNN deals a product out to the threads that there are: it may give
 * parts of one sum to several of them, and cut sums where that suits their number, so
 * the last bits would depend on it. Here the shape alone says where blocks of c begin,
 * and one thread computes a block over the whole of k.
 */
#include <stdatomic.h>
#include <string.h>

#include "kernels/cpu/gemm/call.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/integers.h"

/*
 * oneDNN packs the columns of b that a block needs, and the rows of a where a is stored
 * by columns, so blocks pack the same ones again. Large blocks cost little: a product is
 * cut into as many of those as its work is worth. Smaller ones are for products that do
 * not have a few large ones. Lines of the operand that is not packed are cut first.
 */
#define FEWEST_BLOCKS 4                  /* of a product that is worth cutting */
#define BLOCK_WORK    ((int64_t)1 << 27) /* multiply-adds: some 1 ms */
#define LEAST_WORK    ((int64_t)1 << 20) /* some 10 us */
#define LARGE_ROWS    512                /* where b is stored by rows */
#define LARGE_ROWS_T  1024               /* by columns: packing it costs more */
#define LARGE_COLS    384
#define LEAST_ROWS    64
#define LEAST_COLS    128
#define LINES         64 /* blocks begin at multiples of it */

/* Blocks of c: `items` products of a batch, or a part of one of them. */
struct cut {
    int64_t items, rows, cols;      /* of a block, but for the last ones */
    int64_t row_blocks, col_blocks; /* of one product */
    int64_t item_blocks;            /* of the batch */
};

/* The larger half of *n in LINES; false: that is less than `down_to`, or all of it. */
static bool halve(int64_t *n, int64_t down_to)
{
    int64_t half = zt_num_parts(zt_num_parts(*n, 2), LINES) * LINES;

    if (half < down_to || half >= *n)
        return false;
    *n = half;
    return true;
}

/* One more cut in the order of their cost; false: there are enough. */
static bool cut_again(struct cut *cut, const struct zt_gemm_call *k)
{
    int64_t blocks = k->c.batch * zt_num_parts(k->c.rows, cut->rows) *
                     zt_num_parts(k->c.cols, cut->cols);
    int64_t work = cut->rows * cut->cols * k->a.cols;
    int64_t large = k->b.stride[2] == 1 ? LARGE_ROWS : LARGE_ROWS_T;

    if (blocks < FEWEST_BLOCKS ? work < 2 * LEAST_WORK : work < 2 * BLOCK_WORK)
        return false;
    if (k->a.stride[2] != 1 && halve(&cut->rows, large))
        return true;
    if (halve(&cut->cols, LARGE_COLS) || halve(&cut->rows, large))
        return true;
    return blocks < FEWEST_BLOCKS &&
           (halve(&cut->cols, LEAST_COLS) || halve(&cut->rows, LEAST_ROWS));
}

/* Depends on shape and layout alone. */
static struct cut cut_of(const struct zt_gemm_call *k)
{
    struct cut cut = {.items = 1, .rows = k->c.rows, .cols = k->c.cols};
    int64_t work = cut.rows * cut.cols * k->a.cols;

    if (work < LEAST_WORK)
        cut.items = zt_min(k->c.batch, zt_num_parts(LEAST_WORK, work));
    else
        while (cut_again(&cut, k))
            ;
    cut.row_blocks = zt_num_parts(k->c.rows, cut.rows);
    cut.col_blocks = zt_num_parts(k->c.cols, cut.cols);
    cut.item_blocks = zt_num_parts(k->c.batch, cut.items);
    return cut;
}

/*
 * Rows of b that are a multiple of 2048 bytes apart fall into one or two sets of the L1,
 * and oneDNN packs an fp32 b in narrow strips, so that a line is gone before its second
 * half is needed: products lose two fifths of their speed. The same with columns of an a
 * that is stored by columns, as in gradients of weights: a long k loses half. A block's
 * columns of b and rows of a are copied first, whole lines at a time.
 */
#define SET_BYTES  2048
#define COPY_PAD   16                 /* floats between rows of the copy */
#define COPY_MOST  ((int64_t)1 << 20) /* floats of one */
#define COPY_LEAST 64                 /* of k that are worth it, and uses of each */

/* Whether lines of k, `stride` floats apart, are worth a copy for `uses` of each. */
static bool is_worth_a_copy(const struct zt_gemm_call *k, int64_t stride, int64_t uses)
{
    return k->a.dtype == ZT_F32 && stride * (int64_t)sizeof(float) % SET_BYTES == 0 &&
           k->a.cols >= COPY_LEAST && uses >= COPY_LEAST;
}

/* Of `length` lines side by side in a block, those that fit into a copy. */
static int64_t lines_of_copy(const struct zt_gemm_call *k, int64_t length)
{
    return zt_min(COPY_MOST / k->a.cols / LINES * LINES, length);
}

/* Columns of a block that is copied; 0: b is taken where it is. */
static int64_t columns_to_copy(const struct zt_gemm_call *k, const struct cut *cut)
{
    if (k->b.stride[2] != 1 || cut->items > 1 ||
        !is_worth_a_copy(k, k->b.stride[1], k->c.rows))
        return 0;
    return lines_of_copy(k, cut->cols);
}

/* The same of rows of an a that is stored by columns. */
static int64_t rows_to_copy(const struct zt_gemm_call *k, const struct cut *cut)
{
    if (k->a.stride[1] != 1 || cut->items > 1 ||
        !is_worth_a_copy(k, k->a.stride[2], k->c.cols))
        return 0;
    return lines_of_copy(k, cut->rows);
}

/* Rows of `cols` floats; memcpy of so little takes its time to begin. */
ZT_SIMD static void copy_columns(float *dst, int64_t ld, const float *src, int64_t src_ld,
                                 int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            dst[i * ld + j] = src[i * src_ld + j];
}

/* *m becomes the copy in `to` of its first `length` columns or rows; k is its axis `axis`. */
static void take_copy(struct zt_gemm_mat *m, int axis, int64_t k, int64_t length,
                      int64_t ld, float *to)
{
    copy_columns(to, ld, (const float *)(void *)m->data, m->stride[axis], k, length);
    m->data = (char *)to;
    m->stride[axis] = ld;
}

/*
 * oneDNN packs all of k at a time. A long one is cut into parts, which are added in fp32
 * in a buffer of the block's size, and rounded once.
 */
#define PART_DEPTH ((int64_t)512)

static bool is_long(const struct zt_gemm_call *k, const struct cut *cut)
{
    return k->a.dtype == ZT_BF16 && k->c.dtype == ZT_BF16 && !k->accumulate && !k->bias &&
           cut->items == 1 && k->a.cols >= 16 * PART_DEPTH;
}

struct job {
    const struct zt_gemm_call *k;
    const char *bias; /* or NULL */
    struct cut cut;
    int64_t depth; /* of a part of k */
    /* last of its rows or items, of its columns, of its parts of k */
    const struct zt_gemm_plan *plan[2][2][2];
    char *scratch;
    size_t scratch_bytes; /* of a thread: of the plans, copies, sums of parts */
    size_t plan_bytes;
    /* 0: a, b is taken where it is; there is one part */
    size_t a_floats, b_floats, sum_floats;
    atomic_int failed; /* a zt_err */
};

/* Whole, or what is left in the last block. */
static int64_t length(int64_t total, int64_t each, bool last)
{
    return last ? total - (zt_num_parts(total, each) - 1) * each : each;
}

/* Plans of the whole blocks and of the shorter ones at the ends; one may be all of them. */
static zt_err make_plans(struct zt_device *dev, struct job *job, struct zt_fault *fault)
{
    const struct zt_gemm_call *k = job->k;
    const struct cut *cut = &job->cut;
    struct zt_gemm_problem p = {.k = k->a.cols,
                                .ab = k->a.dtype,
                                .c = k->c.dtype,
                                .bias = job->bias ? k->bias_dtype : ZT_F32,
                                .alpha = k->alpha,
                                .accumulate = k->accumulate,
                                .has_bias = job->bias != NULL};

    memcpy(p.as, k->a.stride, sizeof(p.as));
    memcpy(p.bs, k->b.stride, sizeof(p.bs));
    memcpy(p.cs, k->c.stride, sizeof(p.cs));
    if (job->a_floats)
        p.as[2] = cut->rows + COPY_PAD;
    if (job->b_floats)
        p.bs[1] = cut->cols + COPY_PAD;
    if (job->sum_floats) {
        p.c = ZT_F32;
        p.cs[1] = cut->cols;
        p.accumulate = true;
    }
    for (int i = 0; i < 8; i++) {
        bool last = i / 4, last_col = i / 2 % 2, last_part = i % 2;
        const struct zt_gemm_plan **plan = &job->plan[last][last_col][last_part];
        zt_err rc;

        p.batch = length(k->c.batch, cut->items, last);
        p.m = length(k->c.rows, cut->rows, last);
        p.n = length(k->c.cols, cut->cols, last_col);
        p.k = length(k->a.cols, job->depth, last_part);
        rc = zt_gemm_plan(dev, &p, false, plan, fault);
        if (rc != ZT_OK)
            return rc;
        size_t bytes = zt_gemm_plan_scratch(*plan);
        if (bytes > job->plan_bytes)
            job->plan_bytes = bytes;
    }
    return ZT_OK;
}

/* The product of a block, part by part: a, b are where its rows, columns are, c where it
 * goes. */
static zt_err multiply(const struct job *job, int64_t item, int64_t row, int64_t col,
                       const struct zt_gemm_mat *a, const struct zt_gemm_mat *b, char *c,
                       char *scratch)
{
    const struct zt_gemm_call *k = job->k;
    const struct cut *cut = &job->cut;
    bool last_col = col == cut->col_blocks - 1;
    bool last =
        cut->items > 1 ? item == cut->item_blocks - 1 : row == cut->row_blocks - 1;
    int64_t num_parts = zt_num_parts(k->a.cols, job->depth);
    const char *bias = job->bias;
    zt_err rc = ZT_OK;

    if (bias)
        bias += col * cut->cols * (int64_t)zt_dtype_bytes(k->bias_dtype);
    for (int64_t i = 0; rc == ZT_OK && i < num_parts; i++)
        rc =
            zt_gemm_run(job->plan[last][last_col][i == num_parts - 1],
                        zt_gemm_element(a, 0, 0, i * job->depth),
                        zt_gemm_element(b, 0, i * job->depth, 0), bias, c, scratch, NULL);
    return rc;
}

static void run_block(int64_t task, int thread, void *ctx)
{
    struct job *job = ctx;
    const struct zt_gemm_call *k = job->k;
    const struct cut *cut = &job->cut;
    int64_t col = task % cut->col_blocks, row = task / cut->col_blocks % cut->row_blocks;
    int64_t item = task / cut->col_blocks / cut->row_blocks;
    int64_t cols = length(k->c.cols, cut->cols, col == cut->col_blocks - 1);
    int64_t rows = length(k->c.rows, cut->rows, row == cut->row_blocks - 1);
    char *scratch = job->scratch + (size_t)thread * job->scratch_bytes;
    char *c = zt_gemm_element(&k->c, item * cut->items, row * cut->rows, col * cut->cols);
    float *copy = (float *)(void *)(scratch + job->plan_bytes);
    struct zt_gemm_mat a = k->a, b = k->b;
    zt_err rc;

    a.data = zt_gemm_element(&a, item * cut->items, row * cut->rows, 0);
    b.data = zt_gemm_element(&b, item * cut->items, 0, col * cut->cols);
    if (job->a_floats)
        take_copy(&a, 2, k->a.cols, rows, cut->rows + COPY_PAD, copy);
    copy += job->a_floats;
    if (job->b_floats)
        take_copy(&b, 1, k->a.cols, cols, cut->cols + COPY_PAD, copy);
    copy += job->b_floats;
    if (job->sum_floats) {
        float *sums = copy;

        memset(sums, 0, job->sum_floats * sizeof(*sums));
        rc = multiply(job, item, row, col, &a, &b, (char *)sums, scratch);
        for (int64_t i = 0; rc == ZT_OK && i < rows; i++)
            zt_store_row(c + 2 * i * k->c.stride[1], k->c.dtype, 1, sums + i * cut->cols,
                         cols);
    } else {
        rc = multiply(job, item, row, col, &a, &b, c, scratch);
    }
    if (rc != ZT_OK)
        atomic_store(&job->failed, (int)rc);
}

/* How the work is done, all but the plans: depends on the product alone. */
static void plan_job(struct job *job)
{
    const struct zt_gemm_call *k = job->k;
    struct cut *cut = &job->cut;
    int64_t copied;

    *cut = cut_of(k);
    job->depth = k->a.cols;
    copied = rows_to_copy(k, cut);
    if (copied) {
        cut->rows = copied;
        cut->row_blocks = zt_num_parts(k->c.rows, copied);
        job->a_floats = (size_t)(k->a.cols * (copied + COPY_PAD));
    }
    copied = columns_to_copy(k, cut);
    if (copied) {
        cut->cols = copied;
        cut->col_blocks = zt_num_parts(k->c.cols, copied);
        job->b_floats = (size_t)(k->a.cols * (copied + COPY_PAD));
    }
    if (is_long(k, cut)) {
        job->depth = PART_DEPTH;
        job->sum_floats = (size_t)(cut->rows * cut->cols);
    }
}

zt_err zt_gemm_by_onednn(struct zt_device *dev, const struct zt_gemm_call *in,
                         bool with_bias, struct zt_fault *fault)
{
    struct zt_gemm_call k = *in;
    struct job job = {.k = &k, .bias = with_bias ? k.bias : NULL};
    void *scratch;
    zt_err rc;

    zt_gemm_write_rows(&k);
    plan_job(&job);
    rc = make_plans(dev, &job, fault);
    job.scratch_bytes =
        job.plan_bytes + (job.a_floats + job.b_floats + job.sum_floats) * sizeof(float);
    job.scratch_bytes = (job.scratch_bytes + 63) / 64 * 64;
    if (rc == ZT_OK)
        rc =
            zt_cpu_scratch(dev, ZT_SCRATCH_GEMM_PAD,
                           job.scratch_bytes * (size_t)zt_num_threads(), &scratch, fault);
    if (rc != ZT_OK)
        return rc;
    job.scratch = scratch;
    zt_parallel_tasks(job.cut.item_blocks * job.cut.row_blocks * job.cut.col_blocks,
                      run_block, &job);
    if (job.failed)
        return zt_fault_set(fault, (zt_err)job.failed,
                            "oneDNN: a product of (%lld, %lld) (%lld, %lld) failed",
                            (long long)k.c.rows, (long long)k.a.cols, (long long)k.a.cols,
                            (long long)k.c.cols);
    return ZT_OK;
}
