/*
 * bf16_dot.h -- bf16 products of operands that the caller has packed, with vdpbf16ps or with
 * matrix tiles.
 *
 * The instructions add products of pairs, so operands are words of two bf16 that follow
 * each other along k. A packed right operand is a row of panels; word (i, j) of panel p
 * holds elements (2i, p width + j) and (2i + 1, p width + j) of a (k, n) matrix:
 *
 *      panel 0                 panel 1                 ...
 *      zt_dot_pairs(k) x width
 *
 * For tiles a panel of ZT_DOT_B_WIDTH is tile after tile of (16 pairs, 16 columns), those of
 * the same pairs beside each other: 16 pairs of a panel begin where they do without.
 *
 * What lies past k or n is zero in it. Every element of c is one sum over k whose order
 * follows from its place in c and from k, wherever blocks of rows and columns begin.
 *
 * Threads: any number at once, each with its own c.
 */
#ifndef KERNELS_CPU_GEMM_BF16_DOT_H
#define KERNELS_CPU_GEMM_BF16_DOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZT_DOT_B_WIDTH 64 /* of a panel of the right operand */

/* Whether the processor has one of the two instructions, and gains by it. */
bool zt_dot_is_supported(void);

/* How the instruction at hand wants its work cut. */
struct zt_dot_form {
    int64_t left_rows; /* of a packed left operand: c is cut at multiples of it */
    int64_t most_rows; /* of one in a product */
    int64_t rows;      /* of c that are computed together: for cuts within a strip */
    int64_t pairs;     /* a sum may begin and end at multiples of it */
    /* rows of c that a weight gradient is added to together, left_rows or a part of it that
     * a.row leads to, and words of b beside them: a few cache lines of a row that is pages
     * from the next would cost more than they take to compute */
    int64_t add_rows, add_words;
    bool pack_rows; /* a left operand stored by rows is worth packing */
    /* queries and keys of attention whose scores are held at a time */
    int64_t strip_rows, strip_keys;
};
const struct zt_dot_form *zt_dot_form(void);

/*
 * Around the packing and products of a task, on the thread that runs it. Nothing else
 * that uses tiles (oneDNN) may be called in between.
 */
void zt_dot_begin(void);
void zt_dot_end(void);

/* ceil(k / 2), rounded up to zt_dot_form()->pairs. */
int64_t zt_dot_pairs(int64_t k);

/* Words that packing (k, n) into panels of `width` takes. */
size_t zt_dot_words(int64_t k, int64_t n, int64_t width);

/* Packs (k, n) stored by rows of ld elements into panels of ZT_DOT_B_WIDTH. */
void zt_dot_pack(uint32_t *panels, const uint16_t *src, int64_t ld, int64_t k, int64_t n);

/* The same of a matrix stored by columns: (n, k) with ld elements from row to row. */
void zt_dot_pack_transposed(uint32_t *panels, const uint16_t *src, int64_t ld, int64_t k,
                            int64_t n);

/*
 * Packs a left operand that is stored transposed: (k, m) by rows of ld elements. `words`
 * has room for zt_dot_words(k, m, zt_dot_form()->left_rows). zt_dot_left is where row
 * `row`, a multiple of left_rows, and pair `pair` of it begin.
 */
void zt_dot_pack_left(uint32_t *words, const uint16_t *src, int64_t ld, int64_t k,
                      int64_t m);

/* The same of one that is stored by rows, (m, k) with ld elements from one to the next;
 * for tiles alone. */
void zt_dot_pack_left_rows(uint32_t *words, const uint16_t *src, int64_t ld, int64_t k,
                           int64_t m);

/*
 * Bytes from one row, pair, 16 rows (from a multiple of it) and 16 pairs to the next. whole:
 * tiles of 16 rows and 16 pairs can be read past its end, where pairs are zero.
 */
struct zt_dot_left {
    const void *data;
    int64_t row, pair, rows16, pairs16;
    bool whole;
};
struct zt_dot_left zt_dot_left(const uint32_t *words, int64_t k, int64_t row,
                               int64_t pair);

/* (m, k) stored by rows of ld elements, k even, as it is. */
static inline struct zt_dot_left zt_dot_left_in_place(const uint16_t *a, int64_t ld)
{
    return (struct zt_dot_left){a, 2 * ld, 4, 32 * ld, 64, false};
}

/*
 * c (m, n) = or += alpha a b. a is what one of the two functions above gives; of a packed
 * one no more than most_rows rows. Words need no alignment beyond an element's. Of b all
 * zt_dot_pairs(2 pairs) are read.
 */
struct zt_dot {
    int64_t m, n, pairs; /* pairs: ceil(k / 2) */
    struct zt_dot_left a;
    const uint32_t *b; /* panels of ZT_DOT_B_WIDTH */
    int64_t b_panel;   /* words from one panel to the next */
    float *c;
    int64_t ldc;
    float alpha;
    bool accumulate;
};
void zt_dot_product(const struct zt_dot *p);

#endif
