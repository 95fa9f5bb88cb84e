/*
 * panel_pass.h -- a pass of a product of packed panels, for the two files that run them:
 * panel_blocks.c, which deals out blocks of c, and panel_columns.c, where threads take columns.
 *
 * Threads: what takes a const pass may run on any of them, each with rows or columns of its own.
 */
#ifndef KERNELS_CPU_GEMM_PANEL_PASS_H
#define KERNELS_CPU_GEMM_PANEL_PASS_H

#include "kernels/cpu/gemm/call.h"
#include "kernels/cpu/gemm/panels.h"

/* Panels of a in a task: at most 256 KiB, of the L2 cache. */
#define ZT_PANEL_MOST ((int64_t)8)
/* Floats of all rows of a, where they stay packed. */
#define ZT_PANEL_A_FLOATS ((int64_t)1 << 20)
/* For each thread, which are not equally fast. */
#define ZT_PANEL_TASKS 4

/* One pass: k of [from, from + depth), columns [col, col + cols). */
struct zt_panel_pass {
    const struct zt_gemm_call *k;
    const struct zt_panel_kernels *by;
    const struct zt_gemm_mat *to; /* where sums go: c, or what its activation is of */
    int64_t item, from, depth, col, cols;
    int64_t strips, last;                 /* of rows; those that are cut small */
    int64_t group, groups, small, smalls; /* columns of a task, tasks of a strip */
    const float *start;                   /* of every row of sums: the bias, or zeros */
    float *b, *a;                         /* a: of thread 0, or of strip 0 */
    int64_t a_floats;                     /* of a thread, or of a strip */
    bool keeps_rows;                      /* a is packed once, for all columns */
    /* values of k multiplied together, how many such k has, and how many of them are whole */
    int64_t word, words, whole;
    /* of bf16, whose sums are no elements of c: those of a thread, and how many rows of them */
    float *sums;
    int64_t sum_rows;
};

static inline const float *zt_panel_element(const struct zt_gemm_mat *m, int64_t item,
                                            int64_t row, int64_t col)
{
    return (const float *)(void *)zt_gemm_element(m, item, row, col);
}

/* Whether the pass is the last one, and an activation or rounding follows it. */
static inline bool zt_panel_ends(const struct zt_panel_pass *s)
{
    return s->from + s->depth == s->words && (s->k->epilogue != ZT_EPI_NONE || s->sums);
}

/* Rows from an element of m on. */
static inline struct zt_panel_rows zt_panel_rows_of(const struct zt_gemm_mat *m,
                                                    int64_t item, int64_t row,
                                                    int64_t col)
{
    int64_t each = (int64_t)zt_dtype_bytes(m->dtype);

    return (struct zt_panel_rows){zt_gemm_element(m, item, row, col), m->stride[1] * each,
                                  each};
}

/* Part of a row of m that is written soon, into the cache. Rows of c are short here and far
 * from each other: no processor guesses what comes next. */
static inline void zt_panel_fetch_row(const struct zt_panel_pass *s,
                                      const struct zt_gemm_mat *m, int64_t row,
                                      int64_t col, int64_t cols)
{
    const char *to = zt_gemm_element(m, s->item, row, s->col + col);

    for (int64_t j = 0; j < cols * (int64_t)zt_dtype_bytes(m->dtype); j += 64)
        __builtin_prefetch(to + j, 1);
}

/* `n` in as few parts as fit, about equally large: multiples of `unit`. */
int64_t zt_panel_even_part(int64_t n, int64_t most, int64_t unit);

/* Of rows: as many as fit in a task, at most. */
int64_t zt_panel_count_strips(const struct zt_panel_pass *s);

/* Rows [*row, *row + *rows) of c are a strip. */
void zt_panel_find_strip(const struct zt_panel_pass *s, int64_t strip, int64_t *row,
                         int64_t *rows);
void zt_panel_pack_strip(const struct zt_panel_pass *s, int64_t strip, float *to);

/* Of rows, packed in a, and some columns, packed in b. */
struct zt_panel_product zt_panel_product_of(const struct zt_panel_pass *s, const float *a,
                                            const float *b, int64_t row, int64_t rows,
                                            int64_t col, int64_t cols);

/* What follows the sums of some rows and columns: the activation. */
void zt_panel_finish(const struct zt_panel_pass *s, int64_t row, int64_t rows,
                     int64_t col, int64_t cols);

/* ---- by columns (panel_columns.c) ---- */

/* Whether a product in fp32 does: columns are enough for the threads, and not fewer than rows if
 * these are packed. */
bool zt_panel_goes_by_columns(const struct zt_panel_pass *s);

/* Floats of packed rows; depth: words of k in a block. */
int64_t zt_panel_column_rows(const struct zt_panel_pass *s, int64_t depth);

/* All of an item of the batch. */
void zt_panel_run_columns(const struct zt_panel_pass *whole, int64_t depth);

/*
 * In how many parts rows are cut, each a task with columns that it packs: so that equally fast
 * threads end soonest. 1 where panels of columns are TASKS for each thread, or more.
 */
int64_t zt_panel_row_parts(int64_t panels, int64_t rows, int64_t strips, int64_t threads);

#endif
