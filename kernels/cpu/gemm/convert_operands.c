/* Products in fp32 of operands that are made fp32 first, piece by piece. */
#include "kernels/convert.h"
#include "kernels/cpu/gemm/call.h"
#include "kernels/cpu/parallel.h"
#include "kernels/integers.h"

#define PIECE_M 1024
#define PIECE_N 2048
#define PIECE_K 2048

struct widen {
    struct zt_gemm_mat from;
    int64_t batch, row, col, cols;
    float *to;
    bool tf32;
};

/* To 10 bits of fraction, to nearest even; infinities and NaNs stay. */
static void round_to_tf32(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = zt_float_bits(x[i]);

        if ((u & 0x7f800000u) != 0x7f800000u)
            x[i] = zt_float_of_bits((u + 0xfffu + (u >> 13 & 1u)) & ~0x1fffu);
    }
}

static void widen_rows(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct widen *w = ctx;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        zt_load_row(w->to + i * w->cols,
                    zt_gemm_element(&w->from, w->batch, w->row + i, w->col),
                    w->from.dtype, w->from.stride[2], w->cols);
        if (w->tf32)
            round_to_tf32(w->to + i * w->cols, w->cols);
    }
}

/* Copies a piece into `to`, keeping which of its axes is the contiguous one. */
static struct zt_gemm_mat widen(const struct zt_gemm_mat *from, bool tf32, int64_t batch,
                                int64_t row, int64_t rows, int64_t col, int64_t cols,
                                float *to)
{
    bool flip = from->stride[2] != 1;
    struct widen w = {.from = flip ? zt_gemm_transposed(*from) : *from,
                      .batch = batch,
                      .row = flip ? col : row,
                      .col = flip ? row : col,
                      .cols = flip ? rows : cols,
                      .to = to,
                      .tf32 = tf32};
    int64_t n = flip ? cols : rows;
    struct zt_gemm_mat out = {.data = (char *)to,
                              .dtype = ZT_F32,
                              .batch = 1,
                              .rows = n,
                              .cols = w.cols,
                              .stride = {0, w.cols, 1}};

    zt_parallel_for(n, 16, widen_rows, &w);
    return flip ? zt_gemm_transposed(out) : out;
}

struct finish {
    struct zt_gemm_pass pass;
    int64_t batch, row, col, cols;
};

/* The sums of a piece of c, in fp32, become c; one rounding. */
static void finish_rows(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct finish *f = ctx;

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        zt_gemm_pass_row(&f->pass, f->batch, f->row + i, f->col, f->cols);
}

struct pieces {
    float *a, *b, *c;
};

/*
 * One piece of c: rows and cols from (row, col), over the whole of K. *b is the widened
 * piece of b that the rows below will find again.
 */
static zt_err widened_piece(struct zt_device *dev, const struct zt_gemm_call *k,
                            int64_t batch, int64_t row, int64_t col,
                            const struct pieces *buf, struct zt_gemm_mat *b,
                            struct zt_fault *fault)
{
    int64_t rows = zt_min(PIECE_M, k->c.rows - row);
    int64_t cols = zt_min(PIECE_N, k->c.cols - col);
    struct zt_gemm_mat sums = {.data = (char *)buf->c,
                               .dtype = ZT_F32,
                               .batch = 1,
                               .rows = rows,
                               .cols = cols,
                               .stride = {0, cols, 1}};
    struct finish f = {.pass = {k, sums, row, col, k->bias != NULL},
                       .batch = batch,
                       .row = row,
                       .col = col,
                       .cols = cols};

    for (int64_t at = 0; at < k->a.cols; at += PIECE_K) {
        int64_t depth = zt_min(PIECE_K, k->a.cols - at);
        struct zt_gemm_call part = {.c = sums, .alpha = k->alpha, .accumulate = at > 0};

        part.a = widen(&k->a, k->tf32, batch, row, rows, at, depth, buf->a);
        if (row == 0 || k->a.cols > PIECE_K) /* else it is still there */
            *b = widen(&k->b, k->tf32, batch, at, depth, col, cols, buf->b);
        part.b = *b;
        zt_err rc = zt_gemm_suits_panels(&part)
                        ? zt_gemm_by_panels(dev, &part, fault)
                        : zt_gemm_by_onednn(dev, &part, false, fault);
        if (rc != ZT_OK)
            return rc;
    }
    zt_parallel_for(rows, 1, finish_rows, &f);
    return ZT_OK;
}

zt_err zt_gemm_in_fp32(struct zt_device *dev, const struct zt_gemm_call *k,
                       struct zt_fault *fault)
{
    size_t m = (size_t)zt_min(PIECE_M, k->c.rows), n = (size_t)zt_min(PIECE_N, k->c.cols);
    size_t depth = (size_t)zt_min(PIECE_K, k->a.cols);
    struct pieces buf;
    struct zt_gemm_mat b = {0};
    void *mem;
    zt_err rc =
        zt_cpu_scratch(dev, ZT_SCRATCH_GEMM,
                       (m * depth + depth * n + m * n) * sizeof(float), &mem, fault);

    if (rc != ZT_OK)
        return rc;
    buf.a = mem;
    buf.b = buf.a + m * depth;
    buf.c = buf.b + depth * n;
    for (int64_t batch = 0; batch < k->c.batch; batch++)
        for (int64_t col = 0; col < k->c.cols; col += PIECE_N)
            for (int64_t row = 0; row < k->c.rows; row += PIECE_M) {
                rc = widened_piece(dev, k, batch, row, col, &buf, &b, fault);
                if (rc != ZT_OK)
                    return rc;
            }
    return ZT_OK;
}
