/*
 * ops.h -- the operations a forward pass is written in; each knows its own backward.
 *
 * Tensors are row-major. Activations have the run's compute dtype (fp32, bf16 or fp16);
 * inside an op every sum, mean, exponential and norm is fp32. Shapes below are written
 * (rows, columns); `...` is any number of leading axes.
 *
 * Errors:    an op that fails (shape, dtype, memory) returns NULL and the step remembers
 *            the first failure with the op's name and shapes; every op returns NULL when
 *            an input is NULL. So a forward pass needs no checks at all.
 * Ownership: results belong to the step. Those made inside a block die when its function
 *            returns, unless they are its outputs or its backward needs them.
 * Gradients: add up when a value is used several times.
 * Threads:   one.
 */
#ifndef ZLAUNCH_OPS_H
#define ZLAUNCH_OPS_H

#include <zlaunch/batch.h>
#include <zlaunch/model.h>
#include <zlaunch/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- values ---- */

ZT_API int zt_tensor_ndim(const zt_tensor *t);
ZT_API int64_t zt_tensor_dim(const zt_tensor *t,
                             int axis); /* axis < 0 counts from the end */
ZT_API zt_dtype zt_tensor_dtype(const zt_tensor *t);

/* The weight inside a block call. The block must own or share the parameter. */
ZT_API zt_tensor *zt_weight(zt_step *s, zt_param *param);

/*
 * Values that the host has, (shape) of dtype ZT_I32, ZT_F32 or the run's compute dtype:
 * `values` are int32_t for ZT_I32, else float, and are copied. They are uploaded when
 * they are first seen and kept from pass to pass as long as every pass asks for the same
 * and has the same B, T and S; what differs in each pass belongs into a field. The type of
 * activations: zt_compute_dtype().
 */
ZT_API zt_tensor *zt_constant(zt_step *s, zt_dtype dtype, int ndim, const int64_t *shape,
                              const void *values);
ZT_API zt_dtype zt_compute_dtype(const zt_step *s);

/*
 * Hand out a value beside the loss (logits, predictions) under a name, for metrics. An
 * evaluation pass keeps it until its end; in other passes this does nothing. A name is
 * used once in a pass.
 */
ZT_API void zt_step_result(zt_step *s, const char *name, zt_tensor *t);
/* Of ZT_TASK_CLASSIFY and _REGRESS (B, L), of ZT_TASK_TAG (B, T, L): what the worker takes
 * predictions and their metrics from. (since ABI 3.3) */
#define ZT_LOGITS "logits"

/* True while gradients are wanted; dropout acts only then. */
ZT_API bool zt_is_training(const zt_step *s);

/*
 * Positions 0..T-1 as (T) i32; with ZT_PLUGIN_CACHED they go on after the cached tokens
 * while text is generated. Several texts at once may be of different lengths: positions of
 * one token each are (B, 1) then, as zt_embedding() and zt_rope_apply() take them.
 */
ZT_API zt_tensor *zt_positions(zt_step *s, int64_t T);

/* ---- blocks ---- */

/*
 * Run fn(s, ctx, in, out) as one call of `block`. It may be run again during backward
 * (activation checkpointing), so `ctx` must stay valid for the step, and fn must depend
 * on ctx and `in` alone. Weights are only reachable inside. An input may be NULL
 * (absent); `in` and `out` may be the same array. false: the step has failed.
 */
typedef void (*zt_block_fn)(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out);
#define ZT_MAX_BLOCK_IO 8
ZT_API bool zt_block_call(zt_step *s, zt_block *block, zt_block_fn fn, void *ctx,
                          zt_tensor **in, int num_in, zt_tensor **out, int num_out);

/* ---- matrix products ---- */

/* w is (in, out) as GPT-2 stores it, instead of (out, in) */
#define ZT_W_IN_OUT 1u
/* gelu (tanh or erf form) of the result, fused where the backend can */
#define ZT_GELU_TANH 2u
#define ZT_GELU_ERF  4u
/* The result is logits: --fp8 leaves this product in bf16. zt_lm_head() sets it itself. */
#define ZT_OUTPUT_HEAD 8u

/* x (..., in), w (out, in), bias (out) or NULL -> (..., out) */
ZT_API zt_tensor *zt_linear(zt_step *s, zt_tensor *x, zt_tensor *w, zt_tensor *bias,
                            unsigned flags);
/*
 * Linear maps of one x: out[i] = zt_linear(s, x, w[i], bias[i], 0), num of them, at most
 * ZT_MAX_LINEARS. `bias` may be NULL, and so may its elements. Where the weights lie side by side
 * (zt_block_adjoin) and are trained alike, one product makes all results, and one each their
 * gradients; sums are then those of its shape. false: the step has failed. (since ABI 3.5)
 */
#define ZT_MAX_LINEARS 4
ZT_API bool zt_linears(zt_step *s, zt_tensor *x, zt_param *const *w,
                       zt_param *const *bias, int num, zt_tensor **out);
/* a (..., M, K), b (..., K, N), same leading axes -> (..., M, N) */
ZT_API zt_tensor *zt_matmul(zt_step *s, zt_tensor *a, zt_tensor *b);

/* ---- lookups, norms, positions ---- */

/* ids (...) i32 in [0, V), table (V, C) -> (..., C) */
ZT_API zt_tensor *zt_embedding(zt_step *s, zt_tensor *ids, zt_tensor *table);
/* Over the last axis. x (..., C), w (C), b (C) or NULL. Biased variance. */
ZT_API zt_tensor *zt_layernorm(zt_step *s, zt_tensor *x, zt_tensor *w, zt_tensor *b,
                               float eps);
/* x / sqrt(mean(x^2) + eps) * w; with ZT_RMS_ADD_ONE times (1 + w), as Gemma. */
#define ZT_RMS_ADD_ONE 1u
ZT_API zt_tensor *zt_rmsnorm(zt_step *s, zt_tensor *x, zt_tensor *w, float eps,
                             unsigned flags);
/*
 * The norm of *sum = zt_add(s, x, y), x and y of one shape, in one pass over memory: the
 * end of one residual branch and the beginning of the next. Values and gradients are
 * those of the two calls. `sum` may be &x or &y; *sum is NULL when the op fails.
 */
ZT_API zt_tensor *zt_add_layernorm(zt_step *s, zt_tensor *x, zt_tensor *y, zt_tensor *w,
                                   zt_tensor *b, float eps, zt_tensor **sum);
ZT_API zt_tensor *zt_add_rmsnorm(zt_step *s, zt_tensor *x, zt_tensor *y, zt_tensor *w,
                                 float eps, unsigned flags, zt_tensor **sum);

/*
 * Rotary embedding (Su et al. 2021). x (B, T, H, D); `positions` (T) or (B, T) i32, below the
 * longest row of the run.
 * inv_freq: host array of rotary_dims / 2 fp32 (see zt_rope_frequencies); the first
 * rotary_dims of D rotate. Half form (x_i, x_{i+d/2}), or adjacent pairs.
 */
struct zt_rope {
    uint32_t struct_bytes; /* sizeof(struct zt_rope); ZT_ROPE() fills it */
    int rotary_dims;
    const float *inv_freq;
    bool interleaved;
    float magnitude; /* cos and sin are multiplied by this; 0 means 1 */
};
#define ZT_ROPE(...)                                                                     \
    ((struct zt_rope){.struct_bytes = sizeof(struct zt_rope), __VA_ARGS__})
ZT_API zt_tensor *zt_rope_apply(zt_step *s, zt_tensor *x, zt_tensor *positions,
                                const struct zt_rope *rope);
/* base^(-2i/d), i = 0 .. d/2-1 */
ZT_API void zt_rope_frequencies(float *inv_freq, int rotary_dims, double base);

/* ---- attention ---- */

/*
 * softmax(q k^T * scale + bias + mask) v, never holding the T x T matrix of the whole
 * batch. q (B, Tq, H, D), k and v (B, Tk, K, D), H a multiple of K (grouped queries: head
 * i uses key head i*K/H) -> (B, Tq, H, D). Inputs may be slices (strided) of one packed
 * tensor. While text is generated by a plugin of ZT_PLUGIN_CACHED, causal attention of as
 * many queries as keys sees the cached keys and values of earlier tokens, too.
 */
struct zt_attention {
    uint32_t struct_bytes; /* sizeof(struct zt_attention); ZT_ATTENTION() fills it */
    float scale;           /* 0: 1/sqrt(D) */
    bool causal;           /* key j is visible to query i when j <= i + (Tk - Tq) */
    float dropout;         /* of the probabilities, while training; q has as many rows for
                            * each of the batch's */
    int64_t window;        /* with causal: and j > i + (Tk - Tq) - window; 0: no limit */
    /* NULL, or (1 or B, 1 or H, Tq, Tk), added to the scores; a learnt one gets a gradient,
     * summed in order over what shares it. */
    zt_tensor *bias;
    /*
     * NULL, or (B, Tq) i32: of a row's keys, query i sees key_begin[i] <= j < key_end[i] alone,
     * within what causal and window let it see. Samples that share a row have them from the
     * fields ZT_SEGMENT_BEGIN and ZT_SEGMENT_END. Keys that no query sees cost nothing.
     */
    zt_tensor *key_begin, *key_end; /* since 3.3 */
    /* NULL, or (1 or B, 1 or H, 1 or Tq, Tk) fp32, added beside the bias and without a
     * gradient: zt_length_bias(). A token that is written behind cached ones takes a bias or
     * a mask, not both. */
    zt_tensor *mask; /* since 3.3 */
};
#define ZT_ATTENTION(...)                                                                \
    ((struct zt_attention){.struct_bytes = sizeof(struct zt_attention), __VA_ARGS__})
ZT_API zt_tensor *zt_attention(zt_step *s, zt_tensor *q, zt_tensor *k, zt_tensor *v,
                               const struct zt_attention *opt);

/*
 * zt_attention() of the tokens of a text to its source, k and v (B, S, K, D), without a bias.
 * With ZT_PLUGIN_CACHED_SOURCE, while text is generated, k and v of a text's first pass are
 * kept, for the n-th call of a pass those of the n-th call; later k and v are NULL, and a mask
 * is not needed: a row sees all tokens of its source. (since ABI 3.4)
 */
ZT_API zt_tensor *zt_cross_attention(zt_step *s, zt_tensor *q, zt_tensor *k, zt_tensor *v,
                                     const struct zt_attention *opt);

/*
 * of(ctx, key - query) for the T queries of a pass and all keys of causal attention of a text,
 * as ids for the embedding of a bias: (1, T, T) i32, and with ZT_PLUGIN_CACHED, while text is
 * generated, (1, T, keys), or of one token (B, 1, at least the keys of every row). `of` is
 * called with distances above 0, too; such keys are not seen. (since ABI 3.4)
 */
ZT_API zt_tensor *zt_relative_positions(zt_step *s, int64_t T,
                                        int32_t (*of)(const void *ctx, int64_t distance),
                                        const void *ctx);

/*
 * Biases that hide padding from `queries` queries, (B, 1, queries, T) fp32: 0 for a key
 * that is seen, -1e30 for one that is not. A row without any key to see takes the mean of
 * all. They have no gradient.
 */
/* mask (B, T) i32: 1 for a key that is seen, 0 for one that is not */
ZT_API zt_tensor *zt_padding_bias(zt_step *s, zt_tensor *mask, int64_t queries);
/* lengths (B) i32 in [0, keys]: the first so many keys of a row are seen */
ZT_API zt_tensor *zt_length_bias(zt_step *s, zt_tensor *lengths, int64_t queries,
                                 int64_t keys);

/*
 * A bias for attention by the distance of query and key (disentangled attention, He et al.
 * 2020), with gradients to both operands:
 *
 *     bias[b][h][i][j] = scale * (by_query[h][b][i][u] + by_key[h][b][j][u])
 *
 * u = bucket[i - j + Tk - 1]. by_query (H, B, Tq, R): products of the queries and of R vectors,
 * one for each bucket of distances; by_key (H, B, Tk, R): of the keys. One of them may be NULL.
 * bucket: host array of num_distances = Tq + Tk - 1 numbers in [0, R), none less than the one
 * before it; copied. -> (B, H, Tq, Tk). (since ABI 3.4)
 */
ZT_API zt_tensor *zt_distance_bias(zt_step *s, zt_tensor *by_query, zt_tensor *by_key,
                                   const int32_t *bucket, int64_t num_distances,
                                   float scale);

/* ---- element by element ---- */

ZT_API zt_tensor *zt_gelu(zt_step *s, zt_tensor *x);     /* tanh form */
ZT_API zt_tensor *zt_gelu_erf(zt_step *s, zt_tensor *x); /* exact form */
ZT_API zt_tensor *zt_silu(zt_step *s, zt_tensor *x);
ZT_API zt_tensor *zt_relu(zt_step *s, zt_tensor *x);
ZT_API zt_tensor *zt_tanh(zt_step *s, zt_tensor *x);
ZT_API zt_tensor *zt_swiglu(zt_step *s, zt_tensor *gate,
                            zt_tensor *up);             /* silu(gate) * up */
ZT_API zt_tensor *zt_softmax(zt_step *s, zt_tensor *x); /* last axis */
/* b has a's shape, or a suffix of it (then it is broadcast over the leading axes). */
ZT_API zt_tensor *zt_add(zt_step *s, zt_tensor *a, zt_tensor *b);
ZT_API zt_tensor *zt_mul(zt_step *s, zt_tensor *a, zt_tensor *b);
ZT_API zt_tensor *zt_scale(zt_step *s, zt_tensor *x, float factor);
/* x as ZT_F32, ZT_BF16 or ZT_F16, rounded to nearest; x itself where it is that already: a
 * loss of few numbers is exact in fp32. (since ABI 3.3) */
ZT_API zt_tensor *zt_cast(zt_step *s, zt_tensor *x, zt_dtype dtype);
/*
 * Zero with probability p, else times 1/(1-p), while training. Philox, keyed by (seed,
 * step, block, call, element of the global batch): the same whatever the rank layout. x's
 * first axis is the batch, B; another is an error.
 */
ZT_API zt_tensor *zt_dropout(zt_step *s, zt_tensor *x, float p);
/* The same of an x that all rows of the global batch share, such as a table: every rank and
 * micro-batch of a step drops the same elements. (since ABI 3.4) */
ZT_API zt_tensor *zt_dropout_shared(zt_step *s, zt_tensor *x, float p);

/* ---- shapes: views, no copy unless said ---- */

ZT_API zt_tensor *zt_reshape(zt_step *s, zt_tensor *x, int ndim,
                             const int64_t *shape); /* one may be -1 */
ZT_API zt_tensor *zt_transpose(zt_step *s, zt_tensor *x, int axis_a, int axis_b);
ZT_API zt_tensor *zt_slice(zt_step *s, zt_tensor *x, int axis, int64_t from,
                           int64_t count);
ZT_API zt_tensor *zt_contiguous(zt_step *s, zt_tensor *x); /* a copy when x is strided */
ZT_API zt_tensor *zt_concat(zt_step *s, int axis, zt_tensor **xs, int count); /* copies */

/* ---- losses ---- */

/*
 * Sum over rows of -log softmax(logits)[target], targets of ZT_IGNORE_TARGET left out. With
 * --label_smoothing_factor E a row's loss is 1 - E of that and E of the mean over all V.
 * logits (..., V), targets (...) i32, or one of them as a list, (N, V) or (N) -> scalar fp32.
 * The sum is in row order. Backward writes the gradient over the logits when nothing else
 * uses them.
 */
ZT_API zt_tensor *zt_cross_entropy(zt_step *s, zt_tensor *logits, zt_tensor *targets);
/* Sum of (x - y)^2 -> scalar fp32. */
ZT_API zt_tensor *zt_squared_error(zt_step *s, zt_tensor *x, zt_tensor *y);

/*
 * What a language model returns: with targets in the batch, the summed loss of
 * x w^T; without, the logits (B, R, V) of the positions asked for (all, or the last).
 * x (B, T, C), w (V, C). Call it inside a block that owns or shares w. The gradient of the
 * logits is made beside the loss, for a loss that forward returns as it is; of one that it
 * multiplies first, that gradient is multiplied as well, with a rounding more.
 */
ZT_API zt_tensor *zt_lm_head(zt_step *s, zt_tensor *x, zt_tensor *w, zt_tensor *targets);
/* The same of x w^T + bias, bias (V) or NULL. (since ABI 3.3) */
ZT_API zt_tensor *zt_lm_head_bias(zt_step *s, zt_tensor *x, zt_tensor *w, zt_tensor *bias,
                                  zt_tensor *targets);

#ifdef __cplusplus
}
#endif
#endif
