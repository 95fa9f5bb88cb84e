/*
 * dot.h -- bf16 products of operands that the caller has packed, with vdpbf16ps.
 *
 * The instruction adds products of pairs, so operands are words of two bf16 that follow
 * each other along k. A packed operand is a row of panels; word (i, j) of panel p holds
 * elements (2i, p width + j) and (2i + 1, p width + j) of a (k, n) matrix:
 *
 *      panel 0                panel 1                 ...
 *      ceil(k / 2) x width    ceil(k / 2) x width
 *
 * What lies past k or n is zero in it. Every element of c is one sum over k in rising
 * order of pairs, wherever blocks of rows and columns begin.
 *
 * Threads: any number at once, each with its own c.
 */
#ifndef KERNELS_CPU_GEMM_DOT_H
#define KERNELS_CPU_GEMM_DOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZT_DOT_B_WIDTH 64 /* of a panel of the right operand */
#define ZT_DOT_A_WIDTH 48 /* of the left one, where it has to be packed */

/* Whether the processor has vdpbf16ps, and nothing better: no matrix tiles. */
bool zt_dot_is_supported(void);

/* Words that packing (k, n) into panels of `width` takes. */
size_t zt_dot_words(int64_t k, int64_t n, int64_t width);

/* Packs (k, n) stored by rows of ld elements. width: a multiple of 16. */
void zt_dot_pack(uint32_t *panels, int64_t width, const uint16_t *src, int64_t ld,
                 int64_t k, int64_t n);

/* The same of a matrix stored by columns: (n, k) with ld elements from row to row. */
void zt_dot_pack_transposed(uint32_t *panels, int64_t width, const uint16_t *src,
                            int64_t ld, int64_t k, int64_t n);

/*
 * c (m, n) = or += alpha a b. Word i of row r of a is at a[r a_row + i a_pair]: 1 and
 * ZT_DOT_A_WIDTH within one packed panel; ld / 2 and 1 in a matrix stored by rows, where
 * k must be even or followed by a readable element that is finite. Words need no
 * alignment beyond an element's.
 */
struct zt_dot {
    int64_t m, n, pairs; /* pairs: ceil(k / 2) */
    const void *a;
    int64_t a_row, a_pair; /* bytes */
    const uint32_t *b;     /* panels of ZT_DOT_B_WIDTH */
    int64_t b_panel;       /* words from one panel to the next */
    float *c;
    int64_t ldc;
    float alpha;
    bool accumulate;
};
void zt_dot_product(const struct zt_dot *p);

#endif
