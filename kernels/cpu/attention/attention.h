/*
 * attention.h -- what the two halves of attention share.
 *
 * The score matrix is worked on by strips: some queries of one head against all the
 * keys they may see. The products of a strip are those of bf16_dot.h, or elsewhere
 * oneDNN primitives for one thread, run inside the parallel loop (80 to 90% of the rate
 * of a large product from head size 64 on); what is between them is the row kernels
 * below. Long strips are worked on some keys at a time, so that their scores stay in the
 * cache: forward keeps the running maximum and sum of each row (Milakov and Gimelshein;
 * FlashAttention). Where each query has keys of its own (key_begin, key_end), parts of a strip
 * that none of its rows sees are passed over. Scores are fp32; the operands of products are fp32, or bf16 where the tensors
 * are bf16 and the processor is fast at it.
 *
 * Strips and the order of sums follow from shapes and limits alone, so results do not depend
 * on the number of threads.
 */
#ifndef KERNELS_CPU_ATTENTION_ATTENTION_H
#define KERNELS_CPU_ATTENTION_ATTENTION_H

#include "kernels/cpu/gemm/gemm.h"

#define ZT_STRIP 128 /* queries, at most */

/* Strips begin at a key whose number is a multiple of this, where panels do, too. */
#define ZT_STRIP_ALIGN 192

/* Keys that are worked on together by oneDNN's products, where keys are limited. */
#define ZT_LIMITED_KEYS 128

/* Rows of scores hold a whole number of vectors, so that no loop has a tail. */
#define ZT_ROW_LANES 16
static inline int64_t zt_attention_lanes(int64_t n)
{
    return (n + ZT_ROW_LANES - 1) / ZT_ROW_LANES * ZT_ROW_LANES;
}

/*
 * One row of scores; columns [lo, hi) are visible. `s` and `dp` have room for n rounded
 * up to lanes, and so have bias and keep (each may be NULL). Results replace the row as
 * n values of fp32, or of bf16 from the row's first byte on; invisible ones are 0.
 */
struct zt_score_row {
    float *s, *dp;
    float scale;       /* of s, before anything else */
    const float *bias; /* added to it; or NULL */
    const float *keep; /* dropout: 0 or 1 / (1 - p) for each column */
    int64_t n, lo, hi;
    bool to_bf16;
};

struct zt_row_kernels {
    /*
     * s = exp(x - max) keep, where x = scale s + bias and max the largest of *max and all
     * x: it becomes *max. *sum becomes *sum * correction + the sum of exp(x - max), where
     * the returned correction is exp(old max - new). Rows and *max of -inf: all sums 0.
     */
    float (*softmax)(const struct zt_score_row *r, float *max, float *sum);
    /* p = exp(scale s + bias - lse); dp = p (dp keep - delta); s = p keep */
    void (*grad)(const struct zt_score_row *r, float lse, float delta);
    /* keep[0, n) of Philox elements first...; writes n rounded up to lanes */
    void (*keep)(float *keep, int64_t n, struct zt_philox rng, uint64_t first, float p);
    /* dst = factor src, plus `plus` unless NULL: n values, in place or apart */
    void (*scale)(float *dst, const float *src, float factor, const float *plus,
                  int64_t n);
};

/* The widest form that this processor runs. */
const struct zt_row_kernels *zt_row_kernels(void);

/* A strip of one head of sequence b: queries [row, row + rows) against keys [lo, lo + keys). */
struct zt_strip {
    int64_t row, rows, lo, keys, b;
};

/* What a call works on, with everything that does not change from strip to strip. */
struct zt_attention_task {
    const struct zt_attention_args *a;
    const struct zt_row_kernels *rows;
    int64_t batch, heads, kv_heads, tq, tk, dim, strips;
    zt_dtype operand; /* of the products */
    bool widen;       /* the tensors are converted to it first */
    bool dot;         /* products are those of bf16_dot.h */
    bool limited;     /* queries have a key_begin or key_end */
    int64_t rows_of;  /* queries of a strip; at most ZT_STRIP */
    int64_t keys_of;  /* keys of a strip that are worked on together */
    int64_t ld;       /* floats in a scratch row of scores: of keys_of or tk keys */
};

zt_err zt_attention_init(struct zt_attention_task *t, const struct zt_attention_args *a,
                         struct zt_fault *fault) ZT_MUST_CHECK;
/* By shapes alone: of sequence 0, without its limits. */
struct zt_strip zt_attention_strip(const struct zt_attention_task *t, int64_t index);

/* The strip as sequence b has it; products of bf16_dot.h begin and end with what is seen. */
struct zt_strip zt_attention_strip_of(const struct zt_attention_task *t,
                                      const struct zt_strip *s, int64_t b);

/* Keys [at, at + t->keys_of) of a strip, or what is left of them; at < s->keys. */
struct zt_strip zt_attention_keys(const struct zt_attention_task *t,
                                  const struct zt_strip *s, int64_t at);

/* The columns that any of rows [row, row + rows) of the strip sees; *lo == *hi: none. */
void zt_attention_seen(const struct zt_attention_task *t, const struct zt_strip *s,
                       int64_t row, int64_t rows, int64_t *lo, int64_t *hi);

/* Whether these keys of a strip have to be looked at. */
bool zt_attention_is_seen(const struct zt_attention_task *t, const struct zt_strip *part);

/* Columns of a row of scores that are filled: whole vectors, and tiles of pairs. */
int64_t zt_attention_row(const struct zt_strip *s);

/* The columns of a strip that query `row` sees, counted from the strip's first key. */
void zt_attention_visible(const struct zt_attention_task *t, const struct zt_strip *s,
                          int64_t row, int64_t *lo, int64_t *hi);

/* Fills bias (with the mask in it) and keep of a row in buffers of t->ld floats each. */
void zt_attention_row_extras(const struct zt_attention_task *t, const struct zt_strip *s,
                             int64_t b, int64_t h, int64_t row, float *bias, float *keep,
                             struct zt_score_row *r);

/* Rows [at, at + n) of head h of sequence b: as they are, or widened into `buf`. */
struct zt_attention_operand {
    const void *data;
    int64_t ld;
};
struct zt_attention_operand zt_attention_operand(const struct zt_attention_task *t,
                                                 const struct zt_view *v, int64_t b,
                                                 int64_t h, int64_t at, int64_t n,
                                                 float *buf);
/* The ld that zt_attention_operand will give. */
int64_t zt_attention_operand_ld(const struct zt_attention_task *t,
                                const struct zt_view *v);

/* Address of element (b, t, h, 0). */
void *zt_attention_at(const struct zt_view *v, int64_t b, int64_t t, int64_t h);

/* dst row (dim values of the view's type) = or += scale * src. tmp: dim floats. */
void zt_attention_store(const struct zt_attention_task *t, const struct zt_view *v,
                        int64_t b, int64_t row, int64_t h, const float *src, float scale,
                        bool accumulate, float *tmp);

/*
 * c (m, n) = or += alpha a b for one thread, c in fp32. lda, ldb, ldc: elements from one
 * stored row to the next; ta, tb: the operand is stored transposed. *pad becomes at
 * least the scratch that running the plan needs.
 */
struct zt_strip_product {
    int64_t m, n, k, lda, ldb, ldc;
    bool ta, tb, accumulate;
    float alpha;
};
zt_err zt_attention_plan(struct zt_device *dev, const struct zt_attention_task *t,
                         const struct zt_strip_product *p,
                         const struct zt_gemm_plan **out, size_t *pad,
                         struct zt_fault *fault) ZT_MUST_CHECK;

#endif
