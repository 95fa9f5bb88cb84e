/*
 * call.h -- a call of the product kernel once its arguments are checked, and the ways it
 * goes: by matrix tiles, straight through oneDNN, or by pieces that are made fp32 first.
 * For the files of the cpu backend's products.
 */
#ifndef KERNELS_CPU_GEMM_CALL_H
#define KERNELS_CPU_GEMM_CALL_H

#include "kernels/cpu/gemm/gemm.h"

/* A matrix, or a stack of them: (batch, rows, cols). */
struct zt_gemm_mat {
    char *data;
    zt_dtype dtype;
    int64_t batch, rows, cols;
    int64_t stride[3];
};

/* What is left of a call once its arguments are checked. */
struct zt_gemm_call {
    struct zt_gemm_mat a, b, c, pre; /* pre.data NULL: absent */
    const void *bias;                /* NULL: absent */
    zt_dtype bias_dtype;
    int64_t bias_stride;
    float alpha;
    bool accumulate, tf32; /* tf32: and it makes a difference */
    bool rows_alone;
    zt_epilogue epilogue;
};

static inline struct zt_gemm_mat zt_gemm_transposed(struct zt_gemm_mat m)
{
    int64_t t = m.rows;

    m.rows = m.cols;
    m.cols = t;
    t = m.stride[1];
    m.stride[1] = m.stride[2];
    m.stride[2] = t;
    return m;
}

static inline char *zt_gemm_element(const struct zt_gemm_mat *m, int64_t batch,
                                    int64_t row, int64_t col)
{
    int64_t at = batch * m->stride[0] + row * m->stride[1] + col * m->stride[2];

    return m->data + at * (int64_t)zt_dtype_bytes(m->dtype);
}

/* Kernels write rows: a c that is stored by columns is the transposed product. */
static inline void zt_gemm_write_rows(struct zt_gemm_call *k)
{
    struct zt_gemm_mat a = k->a;

    if (k->c.stride[2] == 1)
        return;
    k->a = zt_gemm_transposed(k->b);
    k->b = zt_gemm_transposed(a);
    k->c = zt_gemm_transposed(k->c);
}

/* k.alpha * a b into, or onto, c; bias only if asked and as oneDNN takes it. */
zt_err zt_gemm_by_onednn(struct zt_device *dev, const struct zt_gemm_call *in,
                         bool with_bias, struct zt_fault *fault) ZT_MUST_CHECK;

/* The whole call in fp32, for operands of any type; each element is rounded once. */
zt_err zt_gemm_in_fp32(struct zt_device *dev, const struct zt_gemm_call *k,
                       struct zt_fault *fault) ZT_MUST_CHECK;

/* ---- the pass over rows after a product: bias, pre, activation ---- */

#define ZT_GEMM_PASS_COLS 512

struct zt_gemm_pass {
    const struct zt_gemm_call *k;
    struct zt_gemm_mat from; /* the product; data NULL: zeros */
    int64_t row, col;        /* where in c its first element belongs */
    bool add_bias;
};

/* n <= ZT_GEMM_PASS_COLS elements of a row of c, which is written, not added to. */
void zt_gemm_pass_piece(const struct zt_gemm_pass *p, int64_t batch, int64_t row,
                        int64_t col, int64_t n);

/* Any number of them, into c or, where the call accumulates, onto it. */
void zt_gemm_pass_row(const struct zt_gemm_pass *p, int64_t batch, int64_t row,
                      int64_t col, int64_t n);

/* c from a product alone, `from` as large as c: with the call's bias and epilogue. */
void zt_gemm_finish_rows(const struct zt_gemm_call *k, const struct zt_gemm_mat *from);

/* ---- rows that do not depend on the others (rows_alone.c) ---- */

bool zt_gemm_takes_rows_alone(const struct zt_gemm_call *k);
zt_err zt_gemm_rows_alone(struct zt_device *dev, const struct zt_gemm_call *k,
                          struct zt_fault *fault) ZT_MUST_CHECK;

/* ---- products by matrix tiles (tile_blocks.c) ---- */

/* Whether there are tiles, or their emulation is asked for, and it suits them. */
bool zt_gemm_is_tiled(const struct zt_gemm_call *k);

/* The whole call; each element is rounded once. */
zt_err zt_gemm_tiled(struct zt_device *dev, const struct zt_gemm_call *in,
                     struct zt_fault *fault) ZT_MUST_CHECK;

/* ---- products of packed panels, in fp32 and of bf16 (panel_blocks.c) ---- */

/* Whether the processor gains by it, and the call suits and is of a shape that does. */
bool zt_gemm_suits_panels(const struct zt_gemm_call *k);

/* The whole call. */
zt_err zt_gemm_by_panels(struct zt_device *dev, const struct zt_gemm_call *in,
                         struct zt_fault *fault) ZT_MUST_CHECK;

#endif
