/*
 * bf16_dot.h -- the products of a strip with vdpbf16ps or AMX tiles
 * (kernels/cpu/gemm/bf16_dot.h).
 *
 * They follow the mask by groups of rows, where one product for the whole strip computes
 * what nobody sees: half of it when there is one strip. Keys are packed once for all
 * strips of a task: a head, or a part of it where there are few heads.
 *
 * With tiles everything is packed, once, in whole tiles with zeros at the ends, so that the loop
 * over pairs is loads and multiplications alone, whatever the head size. In long rows there are 1.05
 * (forward) to 1.13 (backward) loads for each multiplication, and 1.10 to 1.19 where the head size is
 * an odd number of tiles; the instructions of the emulation were counted. That packed rows of q and
 * dout are read faster has been measured for products alone (tile_blocks.c), not yet here.
 */
#ifndef KERNELS_CPU_ATTENTION_BF16_DOT_H
#define KERNELS_CPU_ATTENTION_BF16_DOT_H

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/gemm/bf16_dot.h"

/* Whether these products take this problem: t->operand and t->dim are set. */
bool zt_dot_attention_is_supported(const struct zt_attention_task *t);

/*
 * Rows [from, from + keys) of k or v of one head, packed both ways as asked for. `from`
 * is a multiple of ZT_STRIP_ALIGN.
 */
struct zt_dot_keys {
    int64_t from, keys;
    uint32_t *transposed; /* (dim, keys), for scores; or NULL */
    uint32_t *row_major;  /* (keys, dim), for sums over keys; or NULL */
};

/* Words of `transposed` and of `row_major` for up to tk keys. */
size_t zt_dot_transposed_words(const struct zt_attention_task *t);
size_t zt_dot_row_major_words(const struct zt_attention_task *t);
void zt_dot_pack_keys(const struct zt_attention_task *t, const struct zt_dot_keys *k,
                      const struct zt_view *v, int64_t b, int64_t h);

/*
 * A strip's rows of q or dout for zt_dot_scores, of all its parts: where they are, or packed into
 * zt_dot_left_words() for tiles, which read rows that are far apart more slowly and again for
 * every 32 keys.
 */
size_t zt_dot_left_words(const struct zt_attention_task *t);
struct zt_dot_left zt_dot_left_rows(const struct zt_attention_task *t,
                                    const struct zt_strip *s,
                                    const struct zt_attention_operand *rows,
                                    uint32_t *words);

/* scores (rows, t->ld) = left k^T where they are seen */
void zt_dot_scores(const struct zt_attention_task *t, const struct zt_strip *s,
                   const struct zt_dot_left *left, const struct zt_dot_keys *k,
                   float *scores);

/* out (rows, dim) += probs k; probs: bf16 in rows of t->ld floats, 0 if not seen */
void zt_dot_values(const struct zt_attention_task *t, const struct zt_strip *s,
                   const float *probs, const struct zt_dot_keys *k, float *out);

/*
 * sums (keys of the strip, dim) += probs^T right. `buf` holds zt_dot_sums_words(). right
 * are rows of q or dout, packed by zt_dot_pack_rows.
 */
size_t zt_dot_sums_words(const struct zt_attention_task *t);
void zt_dot_sums(const struct zt_attention_task *t, const struct zt_strip *s,
                 const float *probs, const uint32_t *right, float *sums, uint32_t *buf);

/* Words of a strip's packed rows. */
size_t zt_dot_rows_words(const struct zt_attention_task *t);
void zt_dot_pack_rows(const struct zt_attention_task *t, const struct zt_strip *s,
                      const struct zt_attention_operand *rows, uint32_t *words);

#endif
