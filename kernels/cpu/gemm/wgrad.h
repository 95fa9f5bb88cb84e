/*
 * wgrad.h -- gradients of weights in bf16, for processors with vdpbf16ps or tiles.
 *
 *      c (m, n) = or += alpha a^T b      a (k, m), b (k, n) bf16 by rows, c fp32 by rows
 *
 * Both operands run over k by rows here, which suits the instruction: pairs of rows are
 * interleaved and that is all the packing there is (tiles want a transposed, too). oneDNN
 * takes up to 1.5 times as long on a Zen 5, and on tiles up to twice as long (2.6) or a
 * fifth longer (3.7); products of other layouts are faster there.
 *
 * b is packed first, by all threads; then tasks of some rows of c pack theirs of a. Sums
 * run over k in blocks of a fixed size, however rows and columns are dealt out, so they
 * do not depend on the number of threads.
 */
#ifndef KERNELS_CPU_GEMM_WGRAD_H
#define KERNELS_CPU_GEMM_WGRAD_H

#include "kernels/cpu/device.h"

struct zt_wgrad {
    int64_t m, n, k;
    const uint16_t *a, *b;
    float *c;
    int64_t lda, ldb, ldc; /* elements from row to row */
    float alpha;
    bool accumulate;
};

/* Whether this processor and these sizes gain by it. Reads no memory. */
bool zt_wgrad_is_faster(const struct zt_wgrad *p);

/* Where it pays only. ZT_E_NOMEM. */
zt_err zt_wgrad_run(struct zt_device *dev, const struct zt_wgrad *p,
                    struct zt_fault *fault) ZT_MUST_CHECK;

#endif
