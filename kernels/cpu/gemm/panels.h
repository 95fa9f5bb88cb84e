/*
 * panels.h -- products of operands that the caller has packed, in fp32 with AVX2 or AVX-512,
 * and of bf16 with vdpbf16ps.
 *
 * A packed operand is a row of panels, each of some lines of k side by side: rows of a left
 * operand, columns of a right one. What lies past the last line does not count:
 *
 *      panel 0             panel 1             ...
 *      k x lines           k x lines
 *
 * An element of c is one chain of fused multiply-adds in order of k, whatever its place and
 * the width of panels: its bits are those of all instructions.
 *
 * Threads: any number at once, each with its own c.
 */
#ifndef KERNELS_CPU_GEMM_PANELS_H
#define KERNELS_CPU_GEMM_PANELS_H

#include <stdint.h>

#define ZT_PANEL_PAD 16 /* floats behind packed rows, which packing may write to */

/* Rows of a matrix, `ld` bytes apart, of columns of `each` bytes. at NULL: none. */
struct zt_panel_rows {
    char *at;
    int64_t ld, each;
};

/* c (m, n) = from + alpha a b of packed a, b. `from` is c itself, or n values for each row
 * (ld_from 0). Memory of `written`, as large as c, comes into the cache meanwhile: rows are short
 * and far from each other, no processor guesses what comes next, and stores would wait for it. */
struct zt_panel_product {
    int64_t m, n, k;
    const float *a, *b, *from;
    float *c;
    int64_t lda, ld_from, ldc; /* lda: 0, but for rows that are not packed: bytes */
    float alpha;
    struct zt_panel_rows written[2];
};

/*
 * Columns that are packed while others are multiplied, a piece of 16 values at a time: n lines
 * of k values, as pack_cols takes them. `next` is the piece that follows, of `num` of a panel.
 */
struct zt_panel_ahead {
    const float *src;
    float *dst;
    int64_t line, step, k, n;
    int64_t panel, panels, next, num;
};

struct zt_panel_kernels {
    int64_t rows, cols; /* lines of a panel of a left operand, and of a right one */
    int64_t together;   /* columns that are packed together */
    /*
     * Packs n lines of k values: `line` and `step` are the distances, in floats, of two
     * lines and of two values of a line. One of them is 1. dst of columns begins at a
     * multiple of 64 bytes.
     */
    void (*pack_rows)(float *dst, const float *src, int64_t line, int64_t step, int64_t k,
                      int64_t n);
    void (*pack_cols)(float *dst, const float *src, int64_t line, int64_t step, int64_t k,
                      int64_t n);
    void (*multiply)(const struct zt_panel_product *p);
    /*
     * The same of a few panels of columns; pieces of `w` are packed meanwhile, as many as it
     * lasts for. a may be rows of k values, lda bytes apart, of any alignment: m is a multiple
     * of `rows` then.
     * begin_ahead is called before, with all of w set but its last line; end_ahead packs what
     * is left.
     */
    void (*begin_ahead)(struct zt_panel_ahead *w);
    void (*multiply_and_pack)(const struct zt_panel_product *p, struct zt_panel_ahead *w);
    void (*end_ahead)(struct zt_panel_ahead *w);
};

/* By the best instructions in use; NULL: there are none for it. */
const struct zt_panel_kernels *zt_panel_kernels(void);

/*
 * The same of operands in bf16, c in fp32: values of k are words of two that follow each other.
 * Of operands whose k do not follow each other `step` is that of two values of k, in elements.
 */
const struct zt_panel_kernels *zt_panel_kernels_of_pairs(void);

#endif
