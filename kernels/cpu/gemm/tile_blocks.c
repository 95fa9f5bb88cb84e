/*
 * tile_blocks.c -- products in bf16 by matrix tiles, in blocks that threads take one at a
 * time. Sums are fp32 throughout, and rounded once.
 *
 * A block of c is computed by one thread. For every PART_DEPTH of k it packs its columns of
 * b, which then stay in the L2 cache, and rows of a pass by, a strip at a time.
 *
 * In place, as gradients of weights are, c is walked through once for every part of k: rows of a stay,
 * whose packing from columns costs more, and columns of b pass by, which all threads have packed
 * together before. A c that caches do not hold is summed a strip at a time beside them, and leaves
 * past the caches: rows of a tile would each wait for a line from memory.
 *
 * Where blocks begin may depend on the number of threads: they begin at multiples of 16, so
 * no bit of c does (amx_tiles.inc).
 */
#include <string.h>

#include "kernels/cpu/gemm/bf16_dot.h"
#include "kernels/cpu/gemm/call.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/integers.h"

#define PART_DEPTH      ((int64_t)1024)
#define MOST_COLS       ((int64_t)8 * ZT_DOT_B_WIDTH) /* of a block: 1 MiB of packed b */
#define STRIP_ROWS      ((int64_t)128)                /* most_rows of tiles */
#define MOST_ROWS       (8 * STRIP_ROWS)              /* of a block whose k is in parts */
#define STAY_ROWS       (3 * STRIP_ROWS)   /* of a block in place, whose a stays */
#define STAY_WORDS      ((int64_t)1 << 17) /* of b beside them: 512 KiB */
#define SHARE_COLS      ((int64_t)64 * ZT_DOT_B_WIDTH) /* of b that is packed for all: 8 MiB */
#define SUM_COLS        (8 * ZT_DOT_B_WIDTH) /* of a strip in place: 256 KiB of sums */
#define FEW_COLS        (2 * ZT_DOT_B_WIDTH)
#define LEAST           16                 /* rows and columns that are worth it */
#define STREAM          ((int64_t)4 << 20) /* bytes of c that no cache has until they are read */
#define STREAM_IN_PLACE ((int64_t)1 << 20) /* the update is the next to read them */

struct tile_job {
    const struct zt_gemm_call *k;
    bool in_place;      /* sums are made in c */
    bool shared;        /* b is packed for all blocks of a part */
    bool stream;        /* c is written past the caches */
    int64_t rows, cols; /* of a block, but for the last ones */
    int64_t row_blocks, col_blocks;
    int64_t from, depth;    /* of k */
    int64_t col, part_cols; /* of c */
    uint32_t *shared_b;
    char *scratch;
    size_t b_bytes, a_bytes, sum_bytes, bytes; /* of a thread */
};

/* What one thread is at. */
struct tile_block {
    const struct tile_job *job;
    int64_t item, row, rows, col, cols;
    uint32_t *b, *a;
    float *sums; /* (strip or block, cols), sum_cols(cols) from row to row */
    float *bias; /* or NULL */
};

bool zt_gemm_is_tiled(const struct zt_gemm_call *k)
{
    bool plain = k->epilogue == ZT_EPI_NONE && !k->bias;
    bool by_rows = k->c.stride[2] == 1 && (!k->pre.data || k->pre.stride[2] == 1);

    return zt_dot_is_supported() && (zt_cpu_features() & ZT_CPU_AMX_BF16) &&
           k->a.dtype == ZT_BF16 && (plain || by_rows) &&
           zt_min(k->c.rows, k->c.cols) >= LEAST;
}

/* ---- how the work is cut ---- */

/* `n` in parts as even as multiples of `unit` allow. */
static int64_t even_part(int64_t n, int64_t parts, int64_t unit)
{
    return zt_num_parts(zt_num_parts(n, parts), unit) * unit;
}

/*
 * Blocks as large as can be, because what they pack is used the more often, and several for
 * each thread, because threads are not equally fast.
 */
static void cut(struct tile_job *job)
{
    const struct zt_gemm_mat *c = &job->k->c;
    int64_t threads = zt_num_threads(),
            wanted = threads > 1 ? (job->in_place ? 2 : 4) * threads : 1;
    int64_t row_parts = 1, col_parts = 1;

    if (job->in_place) {
        row_parts = zt_num_parts(c->rows, STAY_ROWS);
    } else {
        col_parts = zt_num_parts(c->cols, MOST_COLS);
        if (job->k->a.cols > PART_DEPTH)
            row_parts = zt_num_parts(c->rows, MOST_ROWS);
    }
    while (c->batch * row_parts * col_parts < wanted) {
        if (!job->in_place && c->rows / row_parts >= 4 * STRIP_ROWS)
            row_parts++;
        else if (job->part_cols / col_parts >= 4 * ZT_DOT_B_WIDTH)
            col_parts++;
        else if (c->batch * row_parts * col_parts >= threads)
            break;
        else if (c->rows / row_parts >= 64)
            row_parts++;
        else
            break;
    }
    job->rows = even_part(c->rows, row_parts, 16);
    job->cols = even_part(job->part_cols, col_parts, ZT_DOT_B_WIDTH);
    job->row_blocks = zt_num_parts(c->rows, job->rows);
    job->col_blocks = zt_num_parts(job->part_cols, job->cols);
}

/*
 * Columns of a pass: of b beside rows of a that stay, where long rows of c are written faster, if
 * they go there and not to sums beside both. The last part of k has as many as the others.
 */
static int64_t pass_cols(const struct tile_job *job)
{
    int64_t pairs = zt_dot_pairs(zt_min(job->k->a.cols, PART_DEPTH)), cols;

    if (!job->in_place)
        return job->cols;
    cols = zt_max(STAY_WORDS / pairs / ZT_DOT_B_WIDTH, 1) * ZT_DOT_B_WIDTH;
    return zt_min(job->stream ? zt_min(cols, SUM_COLS) : cols, job->cols);
}

/* From one row of sums to the next: rows of 512 would lie in two sets of the L1 cache. */
static int64_t sum_cols(int64_t cols)
{
    return cols + 16;
}

/* Bytes of scratch, rounded up to whole lines. */
static size_t lines(int64_t elements, size_t bytes)
{
    return ((size_t)elements * bytes + 63) / 64 * 64;
}

static size_t packed_bytes(int64_t depth, int64_t n, int64_t width)
{
    return lines((int64_t)zt_dot_words(depth, n, width), sizeof(uint32_t));
}

static int64_t bytes_of(const struct zt_gemm_mat *m)
{
    return m->batch * m->rows * m->cols * (int64_t)zt_dtype_bytes(m->dtype);
}

static void size_scratch(struct tile_job *job)
{
    int64_t depth = zt_min(job->k->a.cols, PART_DEPTH), left = zt_dot_form()->left_rows;
    int64_t a_rows = zt_min(job->in_place ? STAY_ROWS : STRIP_ROWS, job->rows);
    int64_t cols = pass_cols(job), b_cols = job->shared ? 0 : cols;
    bool one_part = depth == job->k->a.cols;
    bool strips = job->in_place || one_part;
    int64_t sum_rows = strips ? zt_min(STRIP_ROWS, job->rows) : job->rows;

    if (job->in_place && !job->stream)
        sum_rows = 0;
    job->b_bytes = packed_bytes(depth, b_cols, ZT_DOT_B_WIDTH);
    job->a_bytes = packed_bytes(depth, a_rows, left);
    job->sum_bytes =
        lines((sum_rows + 1) * sum_cols(cols), sizeof(float)); /* and the bias */
    job->bytes = job->b_bytes + job->a_bytes + job->sum_bytes;
}

/* ---- packing ---- */

static void pack_b(const struct zt_gemm_mat *b, int64_t item, int64_t from, int64_t depth,
                   int64_t col, int64_t cols, uint32_t *to)
{
    const uint16_t *src = (const uint16_t *)(void *)zt_gemm_element(b, item, from, col);

    if (b->stride[2] == 1)
        zt_dot_pack(to, src, b->stride[1], depth, cols);
    else
        zt_dot_pack_transposed(to, src, b->stride[2], depth, cols);
}

static void pack_shared_b(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct tile_job *job = ctx;
    int64_t col = begin * ZT_DOT_B_WIDTH,
            to = zt_min(end * ZT_DOT_B_WIDTH, job->part_cols);

    (void)thread;
    pack_b(&job->k->b, 0, job->from, job->depth, job->col + col, to - col,
           job->shared_b + col * zt_dot_pairs(job->depth));
}

/*
 * Rows of a strip, packed: tiles of rows that are far apart come late from the L2 cache. Not
 * for few columns, though, to which they are brought once or twice.
 */
static void pack_a(const struct tile_block *x, int64_t row, int64_t rows, int64_t from,
                   int64_t depth)
{
    const struct zt_gemm_mat *a = &x->job->k->a;
    const uint16_t *src =
        (const uint16_t *)(void *)zt_gemm_element(a, x->item, row, from);

    if (a->stride[2] == 1)
        zt_dot_pack_left_rows(x->a, src, a->stride[1], depth, rows);
    else
        zt_dot_pack_left(x->a, src, a->stride[2], depth, rows);
}

static struct zt_dot_left left_of(const struct tile_block *x, int64_t row, int64_t rows,
                                  int64_t from, int64_t depth)
{
    const struct zt_gemm_mat *a = &x->job->k->a;

    if (x->job->in_place)
        return zt_dot_left(x->a, depth, row - x->row, 0);
    if (a->stride[2] == 1 && depth % 2 == 0 && x->cols <= FEW_COLS)
        return zt_dot_left_in_place(
            (const uint16_t *)(void *)zt_gemm_element(a, x->item, row, from),
            a->stride[1]);
    pack_a(x, row, rows, from, depth);
    return zt_dot_left(x->a, depth, 0, 0);
}

/* ---- a block ---- */

/* sums (rows, cols) = or += [from, from + depth) of the product. */
static void multiply(const struct tile_block *x, int64_t row, int64_t rows, int64_t from,
                     int64_t depth, float *sums, int64_t ld)
{
    const struct zt_gemm_call *k = x->job->k;
    int64_t pairs = zt_dot_pairs(depth);
    struct zt_dot d = {.m = rows,
                       .pairs = (depth + 1) / 2,
                       .a = left_of(x, row, rows, from, depth),
                       .b_panel = pairs * ZT_DOT_B_WIDTH,
                       .ldc = ld,
                       .alpha = k->alpha,
                       .accumulate = from > 0 || (x->job->in_place && k->accumulate)};

    for (int64_t j = 0; j < x->cols; j += ZT_DOT_B_WIDTH) {
        d.n = zt_min(ZT_DOT_B_WIDTH, x->cols - j);
        d.b = x->b + j * pairs;
        d.c = sums + j;
        zt_dot_product(&d);
    }
}

ZT_SIMD static void add_row(float *sums, const float *bias, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sums[i] += bias[i];
}

/* The sums of rows, ld from one to the next, become c. */
static void finish(const struct tile_block *x, int64_t row, int64_t rows, float *sums,
                   int64_t ld)
{
    const struct zt_gemm_call *k = x->job->k;
    struct zt_gemm_pass pass = {.k = k,
                                .from = {.data = (char *)sums,
                                         .dtype = ZT_F32,
                                         .batch = 1,
                                         .rows = rows,
                                         .cols = x->cols,
                                         .stride = {0, ld, 1}},
                                .row = row,
                                .col = x->col};

    for (int64_t i = 0; i < rows; i++, sums += ld) {
        char *c = zt_gemm_element(&k->c, x->item, row + i, x->col);

        if (x->bias)
            add_row(sums, x->bias, x->cols);
        if (k->epilogue != ZT_EPI_NONE || k->accumulate)
            zt_gemm_pass_row(&pass, x->item, row + i, x->col, x->cols);
        else if (x->job->stream)
            zt_stream_row(c, k->c.dtype, sums, x->cols);
        else
            zt_store_row(c, k->c.dtype, 1, sums, x->cols);
    }
}

/* c = or += a part of the product, of a strip. */
static void run_strip_in_place(const struct tile_block *x, int64_t row, int64_t rows,
                               int64_t from, int64_t depth)
{
    const struct zt_gemm_call *k = x->job->k;
    float *c = (float *)(void *)zt_gemm_element(&k->c, x->item, row, x->col);
    int64_t ldc = k->c.stride[1], ld = sum_cols(x->cols);

    if (!x->job->stream) {
        multiply(x, row, rows, from, depth, c, ldc);
        return;
    }
    if (from > 0 || k->accumulate)
        for (int64_t i = 0; i < rows; i++)
            memcpy(x->sums + i * ld, c + i * ldc, (size_t)x->cols * sizeof(float));
    multiply(x, row, rows, from, depth, x->sums, ld);
    for (int64_t i = 0; i < rows; i++)
        zt_stream_row(c + i * ldc, ZT_F32, x->sums + i * ld, x->cols);
}

static void run_strip(const struct tile_block *x, int64_t row, int64_t rows, int64_t from,
                      int64_t depth)
{
    const struct zt_gemm_call *k = x->job->k;
    int64_t ld = sum_cols(x->cols);
    float *sums = x->sums;

    if (x->job->in_place) {
        run_strip_in_place(x, row, rows, from, depth);
        return;
    }
    if (k->a.cols > PART_DEPTH)
        sums += (row - x->row) * ld;
    multiply(x, row, rows, from, depth, sums, ld);
    if (from + depth == k->a.cols)
        finish(x, row, rows, sums, ld);
}

/* [from, from + depth) of k. */
static void run_part(const struct tile_block *x, int64_t from, int64_t depth)
{
    const struct tile_job *job = x->job;
    int64_t cols = pass_cols(job);
    struct tile_block y = *x;

    if (job->in_place)
        pack_a(x, x->row, x->rows, from, depth);
    for (int64_t j = 0; j < x->cols; j += y.cols) {
        y.col = x->col + j;
        y.cols = zt_min(cols, x->cols - j);
        if (job->shared)
            y.b = job->shared_b + (y.col - job->col) * zt_dot_pairs(depth);
        else
            pack_b(&job->k->b, x->item, from, depth, y.col, y.cols, y.b);
        for (int64_t i = 0; i < x->rows; i += STRIP_ROWS)
            run_strip(&y, x->row + i, zt_min(STRIP_ROWS, x->rows - i), from, depth);
    }
}

static void run_task(int64_t task, int thread, void *ctx)
{
    const struct tile_job *job = ctx;
    const struct zt_gemm_call *k = job->k;
    char *scratch = job->scratch + (size_t)thread * job->bytes;
    struct tile_block x = {.job = job,
                           .item = task / job->col_blocks / job->row_blocks,
                           .row = task / job->col_blocks % job->row_blocks * job->rows,
                           .col = job->col + task % job->col_blocks * job->cols,
                           .b = (uint32_t *)(void *)scratch,
                           .a = (uint32_t *)(void *)(scratch + job->b_bytes),
                           .sums =
                               (float *)(void *)(scratch + job->b_bytes + job->a_bytes)};

    x.rows = zt_min(job->rows, k->c.rows - x.row);
    x.cols = zt_min(job->cols, job->col + job->part_cols - x.col);
    if (k->bias) {
        const char *bias = k->bias;

        x.bias = x.sums + job->sum_bytes / sizeof(float) - job->cols;
        bias += x.col * k->bias_stride * (int64_t)zt_dtype_bytes(k->bias_dtype);
        zt_load_row(x.bias, bias, k->bias_dtype, k->bias_stride, x.cols);
    }
    zt_dot_begin();
    for (int64_t from = job->from, end = from + job->depth; from < end;
         from += PART_DEPTH)
        run_part(&x, from, zt_min(PART_DEPTH, end - from));
    zt_dot_end();
    if (job->stream)
        zt_store_fence();
}

/* ---- a call ---- */

static void run_blocks(struct tile_job *job)
{
    job->col_blocks = zt_num_parts(job->part_cols, job->cols);
    zt_parallel_tasks(job->k->c.batch * job->row_blocks * job->col_blocks, run_task, job);
}

/* Parts of k, of as many columns as there is room for packed b: of each all threads pack b. */
static void run_shared(const struct tile_job *whole)
{
    int64_t cols = whole->k->c.cols, depth = whole->k->a.cols;
    struct tile_job job = *whole;

    for (job.col = 0; job.col < cols; job.col += whole->part_cols) {
        job.part_cols = zt_min(whole->part_cols, cols - job.col);
        for (job.from = 0; job.from < depth; job.from += PART_DEPTH) {
            job.depth = zt_min(PART_DEPTH, depth - job.from);
            zt_parallel_for(zt_num_parts(job.part_cols, ZT_DOT_B_WIDTH), 1, pack_shared_b,
                            &job);
            run_blocks(&job);
        }
    }
}

zt_err zt_gemm_tiled(struct zt_device *dev, const struct zt_gemm_call *in,
                     struct zt_fault *fault)
{
    struct zt_gemm_call k = *in;
    struct tile_job job = {.k = &k};
    bool plain = k.epilogue == ZT_EPI_NONE;
    size_t shared = 0;
    void *scratch;
    zt_err rc;

    zt_gemm_write_rows(&k);
    job.depth = k.a.cols;
    job.part_cols = k.c.cols;
    job.in_place = k.c.dtype == ZT_F32 && plain && !k.bias;
    job.shared = job.in_place && k.c.batch == 1 && k.c.rows > STAY_ROWS;
    job.stream = job.in_place ? bytes_of(&k.c) >= STREAM_IN_PLACE
                              : plain && !k.accumulate && bytes_of(&k.c) >= STREAM;
    if (job.shared) {
        job.part_cols = zt_min(k.c.cols, SHARE_COLS);
        shared =
            packed_bytes(zt_min(k.a.cols, PART_DEPTH), job.part_cols, ZT_DOT_B_WIDTH);
    }
    cut(&job);
    size_scratch(&job);
    rc = zt_cpu_scratch(dev, ZT_SCRATCH_GEMM,
                        shared + job.bytes * (size_t)zt_num_threads(), &scratch, fault);
    if (rc != ZT_OK)
        return rc;
    job.scratch = (char *)scratch + shared;
    job.shared_b = scratch;
    if (job.shared)
        run_shared(&job);
    else
        run_blocks(&job);
    return ZT_OK;
}
