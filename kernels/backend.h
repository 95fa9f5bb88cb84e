/*
 * backend.h -- ONE table of functions per kind of device, and the views they work on.
 *
 * A backend (cpu, meta, cuda) is a const struct zt_backend. It is built in and listed in
 * backends.c, or it is exported by a shared object that is loaded on first use. It knows
 * nothing of ranks, autograd, ZeRO or files: kernels read and write views of memory that
 * the caller owns.
 *
 * Order: work is queued on a stream and runs in stream order; the cpu backend runs it
 *        before the call returns. Views must stay valid until that work has completed.
 *        Only events order one stream after another.
 * Sums:  in fp32 (double where said), in an order that depends on shapes alone, never on
 *        the number of threads or on where a shard begins.
 * Meta:  every kernel checks its arguments and does nothing; memory has addresses that
 *        nobody may access. A run on meta allocates exactly what it would on a real device.
 */
#ifndef KERNELS_BACKEND_H
#define KERNELS_BACKEND_H

#include "common/fault.h"

#define ZT_BACKEND_ABI 9u
#define ZT_BACKEND_SYMBOL                                                                \
    "zt_loaded_backend" /* const struct zt_backend *, in an object */

struct zt_device;       /* of one backend; holds its main stream and scratch */
struct zt_stream;       /* NULL is the device's main stream */
struct zt_stream_event; /* a point in the work of a stream */

/* A strided view of memory that somebody else owns. Strides are in elements. */
struct zt_view {
    void *data; /* NULL: an optional operand that is absent */
    zt_dtype dtype;
    int ndim;
    int64_t shape[ZT_MAX_NDIM];
    int64_t stride[ZT_MAX_NDIM];
};

/* Row-major view of `data`. */
struct zt_view zt_view_of(void *data, zt_dtype dtype, int ndim, const int64_t *shape);
int64_t zt_view_numel(const struct zt_view *v);
bool zt_view_is_contiguous(const struct zt_view *v);
/* With the last two axes exchanged. */
struct zt_view zt_view_transposed(const struct zt_view *v);

/* Counter-based random numbers (Salmon et al. 2011): value i is a pure function. */
struct zt_philox {
    uint64_t seed;   /* key */
    uint64_t stream; /* which use: step, block, call mixed by the caller */
    uint64_t offset; /* counter of element 0 */
};

typedef enum zt_unary {
    ZT_U_GELU_TANH,
    ZT_U_GELU_ERF,
    ZT_U_SILU,
    ZT_U_RELU,
    ZT_U_TANH
} zt_unary;
typedef enum zt_binary { ZT_B_ADD, ZT_B_MUL } zt_binary;
typedef enum zt_epilogue {
    ZT_EPI_NONE,
    ZT_EPI_GELU_TANH,
    ZT_EPI_GELU_ERF,
    ZT_EPI_GELU_TANH_BWD,
    ZT_EPI_GELU_ERF_BWD,
    ZT_EPI_SWIGLU_BWD
} zt_epilogue;

/*
 * c = epilogue(alpha * a b + bias) or, with accumulate, c += alpha * a b.
 * a (M, K), b (K, N), c (M, N), or with one leading batch axis each; of the last two axes
 * one has stride 1 (a transpose is a view). a and b share a dtype; c is that dtype or
 * fp32. bias (N). With a GELU the value before it is stored in `pre` (as c), if given. With
 * the backward of a GELU c = alpha * a b times its slope at `pre`, which is read; pre and c
 * are contiguous, there is no bias. On cpu the product is rounded to c's type before.
 * With the backward of a SwiGLU (glu of ZT_U_SILU) the product is the gradient of its
 * result, which is not stored: c is the gradient of `up`, dgate that of `gate`, as glu_bwd
 * would leave them. gate, up and dgate are contiguous and as c; there is neither bias nor
 * pre, and alpha is 1.
 * a_sum (M), b_sum (N): = or += the sum over k of a, of b, in fp32, for 16-bit or fp32
 * operands without a batch: the gradient of a bias beside that of the weights. The operand
 * is contiguous, or its transpose is. The bits are those of colsum, or on cuda of cuBLASLt.
 * rows_alone: each row of c has the bits that it has in a product of that row alone, so
 * texts that are written together are those of each by itself; on cpu, for products without
 * a batch, fp8 and accumulation; elsewhere it asks for nothing.
 * as_added: without accumulate c gets the bits that adding to zeros gives; on cpu, where
 * oneDNN may sum in another order then; elsewhere they are the same.
 * tf32: fp32 operands may be rounded to TF32 (8 bits of exponent, 10 of fraction) before
 * they are multiplied, to nearest on cpu; sums stay fp32. Other operands: no difference.
 *
 * a and b may be fp8 instead (kernels/fp8.h), not both e5m2, as tensor cores take them:
 * without a batch; M, N and K are multiples of 16; K is the contiguous axis of both. Each
 * contiguous row or column of a, b, c and pre begins on a 16-byte boundary. c is then of
 * any float type, and alpha is multiplied by *a_scale * *b_scale.
 */
struct zt_gemm_args {
    struct zt_view a, b, c, bias, pre, a_sum, b_sum;
    struct zt_view gate, up, dgate; /* of ZT_EPI_SWIGLU_BWD alone */
    const float *a_scale, *b_scale; /* device memory, 1 float each; fp8 only */
    float alpha;
    bool accumulate, accumulate_sums, as_added, tf32, rows_alone;
    zt_epilogue epilogue;
};

static inline bool zt_is_gelu_bwd(zt_epilogue e)
{
    return e == ZT_EPI_GELU_TANH_BWD || e == ZT_EPI_GELU_ERF_BWD;
}

/*
 * x (N, C) -> y; w, b (C); mean, rstd (N) fp32 are kept for backward. b may be absent.
 * With add, the input is x + add rounded to their dtype, and this sum is stored in `sum`.
 * add and sum have the shape and dtype of x, and sum may be x or add. The bits equal
 * those of binary followed by layernorm without add.
 */
struct zt_layernorm_args {
    struct zt_view x, w, b, y, mean, rstd;
    float eps;
    struct zt_view add, sum; /* both, or neither */
};
/* dx, dw and db (C) fp32 = or +=, the last two may be absent */
struct zt_layernorm_bwd_args {
    struct zt_view dy, x, w, mean, rstd, dx, dw, db;
    bool accumulate, accumulate_w, accumulate_b;
};

/* y = x * rstd * (w or 1 + w); rstd (N) fp32; add and sum as in layernorm */
struct zt_rmsnorm_args {
    struct zt_view x, w, y, rstd;
    float eps;
    bool add_one;
    struct zt_view add, sum;
};
struct zt_rmsnorm_bwd_args {
    struct zt_view dy, x, w, rstd, dx, dw;
    bool add_one, accumulate, accumulate_w;
};

/* ids (N) i32, table (V, C), y (N, C). ids outside [0, V): ZT_E_ARG on cpu. */
struct zt_embedding_args {
    struct zt_view ids, table, y;
};
/* dtable (V, C) fp32 += rows of dy, rows of one id added in order of N */
struct zt_embedding_bwd_args {
    struct zt_view ids, dy, dtable;
};

/*
 * x, y (B, T, H, D) strided with unit last stride; positions (T) or (B, T) i32; cos, sin
 * (P, rotary_dims / 2) fp32 indexed by position. inverse rotates back (the gradient).
 * y may be x. With accumulate y += .
 */
struct zt_rope_args {
    struct zt_view x, y, positions, cos, sin;
    int rotary_dims;
    bool interleaved, inverse, accumulate;
};

/*
 * q, out (B, Tq, H, D); k, v (B, Tk, K, D); any strides with unit last one. lse (B, H,
 * Tq) fp32: log of the sum of exponentials, for backward; may be absent. bias (1|B, 1|H,
 * Tq, Tk) or absent; mask (1|B, 1|H, Tq, Tk) fp32 or absent: scale q k^T + (bias + mask) is
 * what softmax is taken of, and mask has no gradient. Query i sees key j when (!causal or j <=
 * i + Tk - Tq) and (window == 0 or j > i + Tk - Tq - window) and key_begin[b][i] <= j <
 * key_end[b][i]; these two are (B, Tq) i32, each of any values, in any order, or absent: no such
 * limit. Blocks of keys that no query near by sees are passed over. The output of a query that
 * sees no key is 0. dropout:
 * probability (b, h, i, j) is kept or zeroed by Philox element ((b*H + h)*Tq + i)*Tk + j,
 * times 1/(1-p).
 */
struct zt_attention_args {
    struct zt_view q, k, v, out, lse, bias, mask;
    float scale, dropout;
    bool causal;
    int64_t window;
    struct zt_philox rng;
    struct zt_view key_begin, key_end;
};
/* dq, dk, dv have the shapes of q, k, v and any strides (last one 1). dbias has the shape
 * of bias; absent: it is not computed. any_order: sums may be added as they come, in other
 * bits each time, where that is faster. */
struct zt_attention_bwd_args {
    struct zt_attention_args fwd; /* the forward's, with its out and lse */
    struct zt_view dout, dq, dk, dv, dbias;
    bool accumulate_q, accumulate_k, accumulate_v, accumulate_bias, any_order;
};

/*
 * What the distance of a query and a key adds to their score:
 *      y[b][h][i][j] = scale * (by_query[h][b][i][u] + by_key[h][b][j][u])
 * where u = bucket[i - j + Tk - 1]. by_query (H, B, Tq, R) and by_key (H, B, Tk, R), one of
 * which may be absent; y (B, H, Tq, Tk); bucket (Tq + Tk - 1) i32. All are contiguous.
 * bucket: numbers in [0, R) none of which is less than the one before it. Others are an error
 * on cpu; on cuda the caller has made sure.
 */
struct zt_distance_args {
    struct zt_view by_query, by_key, bucket, y;
    float scale;
};
/*
 * dby_query[h][b][i][u] = or += scale * (the sum of dy[b][h][i][j] in order of j),
 * dby_key[h][b][j][u] = or += scale * (the same in order of i): of the i and j whose bucket is
 * u; each may be absent. first (R + 1) i32: bucket u is at first[u] ... first[u + 1] - 1 of
 * bucket, from first[0] = 0 to first[R] = Tq + Tk - 1.
 */
struct zt_distance_bwd_args {
    struct zt_view dy, first, dby_query, dby_key;
    float scale;
    bool accumulate_query, accumulate_key;
};

/*
 * One query of each row against keys and values that earlier passes left, as text is written
 * token by token. q, out (B, 1, H, D); k, v (B, P, K, D): room for P keys, of which row b has
 * lengths[b] (B, i32); any strides with unit last one. k_new, v_new (B, 1, K, D): stored first,
 * as key lengths[b], which must then be below P; or both absent. bias (1|B, 1|H, 1, P') or
 * absent, for key j of row b its element j: P' is at least the keys of every row. With a
 * window the last so many keys are seen. The output of a row without keys is 0.
 *
 * Sums run over the keys of the row in an order that follows from D and their number alone:
 * the bits of a row depend neither on the other rows nor on the room.
 */
struct zt_attention_decode_args {
    struct zt_view q, k, v, k_new, v_new, lengths, bias, out;
    float scale;
    int64_t window; /* 0: no limit */
};

/* contiguous, same shape */
struct zt_unary_args {
    zt_unary kind;
    struct zt_view x, y;
};
/* dx = or += dy * f'(x) */
struct zt_unary_bwd_args {
    zt_unary kind;
    struct zt_view dy, x, dx;
    bool accumulate;
};

/* y = silu(gate) * up (or another activation); operands strided on rows: (N, F) each */
struct zt_glu_args {
    zt_unary kind;
    struct zt_view gate, up, y;
};
/* dgate and dup may be gate and up; either may be dy where it does not accumulate */
struct zt_glu_bwd_args {
    zt_unary kind;
    struct zt_view dy, gate, up, dgate, dup;
    bool accumulate_gate, accumulate_up;
};

/* rows (N, C), contiguous */
struct zt_softmax_args {
    struct zt_view x, y;
};
struct zt_softmax_bwd_args {
    struct zt_view dy, y, dx;
    bool accumulate;
};

/* y = a op b, or y += with accumulate. Contiguous; b's shape is a suffix of a's; y may
 * be a. */
struct zt_binary_args {
    zt_binary kind;
    struct zt_view a, b, y;
    bool accumulate;
};

/*
 * Sum over rows: x (N, C) contiguous, optionally times z (N, C), into y (C), y = or +=.
 * In fixed chunks of rows, chunks in order.
 */
struct zt_colsum_args {
    struct zt_view x, z, y;
    bool accumulate;
};

/* y = alpha * x + beta * y, with conversion; any strides, same shape; y may be x */
struct zt_axpby_args {
    struct zt_view x, y;
    float alpha, beta;
};

struct zt_fill_args {
    struct zt_view y; /* contiguous; any dtype */
    float value;
};

/* y = x * keep / (1-p) for element i of x by Philox counter offset + i; y may be x */
struct zt_dropout_args {
    struct zt_view x, y;
    float p;
    struct zt_philox rng;
    bool accumulate;
};

/* Element i of y (contiguous) from Philox counter offset + i. normal: mean a, deviation
 * b. */
struct zt_random_args {
    struct zt_view y;
    struct zt_philox rng;
    bool normal; /* else uniform in [a, b) */
    float a, b;
};

/*
 * logits (N, V) with unit last stride and any row stride; targets (N) i32; loss () fp32 = sum
 * in row order; lse (N) fp32 kept. A row's loss is lse - (1 - smoothing) logits[target] -
 * smoothing mean(logits), smoothing in [0, 1). With dlogits, which may be logits, their
 * gradient is written while a row is at hand, for a gradient of the loss of dloss: the bits
 * are those of cross_entropy_bwd. clear_between: what lies between the rows of dlogits is
 * set to 0.
 */
struct zt_cross_entropy_args {
    struct zt_view logits, targets, loss, lse;
    int32_t ignore;
    float smoothing;
    struct zt_view dlogits; /* absent: the loss alone */
    float dloss;
    bool clear_between;
};
/*
 * dlogits (N, V) as logits = (softmax(logits) - (1 - smoothing) onehot - smoothing / V) *
 * dloss, 0 in ignored rows. dlogits may be logits. Where made_for is not 0, logits are that
 * gradient already, for this much in place of dloss: they are multiplied by dloss / made_for.
 */
struct zt_cross_entropy_bwd_args {
    struct zt_view logits, targets, lse, dloss, dlogits;
    int32_t ignore;
    bool accumulate;
    float smoothing, made_for;
    bool clear_between; /* as above */
};

/* loss () fp32 = sum (x-y)^2, x and y contiguous, in fixed chunks */
struct zt_squared_error_args {
    struct zt_view x, y, loss;
};
/* dx +=/= 2 (x-y) dloss; dy the negative; each may be absent */
struct zt_squared_error_bwd_args {
    struct zt_view x, y, dloss, dx, dy;
    bool accumulate_x, accumulate_y;
};

/*
 * y (n) = scale * (x[0] + x[1] + ...) over the rows of x (W, n) with unit last stride.
 * This is the sum over ranks: in fp32, in row order, scaled, rounded once. x and y share
 * a dtype; y may be a row of x.
 */
struct zt_rank_sum_args {
    struct zt_view x, y;
    float scale;
};

/*
 * The sum of squares of x (n) fp32, in lanes: sums (ZT_NORM_LANES doubles, device memory), which
 * whoever reads them adds in order. Each chunk of ZT_NORM_CHUNK elements, counted from x, is
 * summed in double; chunk k is then added to lane (first + k) % ZT_NORM_LANES, chunks of a lane
 * in their order. With accumulate lanes go on from what they hold, else from 0. So several
 * calls on whole chunks of a long x, each with the number of chunks before it as `first`, give
 * the same bits as one call. An inf or NaN in x makes a lane non-finite.
 */
#define ZT_NORM_CHUNK 4096
#define ZT_NORM_LANES 256
struct zt_sumsq_args {
    struct zt_view x;
    double *sums;
    int64_t first; /* >= 0 */
    bool accumulate;
};

/*
 * Adam (Kingma & Ba 2015) and AdamW (Loshchilov & Hutter 2019) on a flat slice, one pass:
 *   g = grad * *grad_scale;  L2 mode: g += wd * p
 *   m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
 *   p -= lr_t * m / (sqrt(v) * vscale + eps), decoupled: first p -= lr * wd * p
 * with lr_t = lr / (1 - b1^t) and vscale = 1 / sqrt(1 - b2^t) (1 and 1 without bias
 * correction), computed in double by the caller. The rounded new weight goes to `param`
 * in its dtype when present. It is rounded to nearest, or with `stochastic` (bf16 only)
 * stochastically, element i by the Philox element i of rng (kernels/stochastic.h).
 * A master of ZT_REST16 is the rest of the numbers whose bf16 is `param` (kernels/split.h),
 * which is read as well; then `param` is rounded to nearest, ties away from zero.
 * Nothing happens when *skip != 0. All views have length n.
 */
struct zt_adamw_args {
    struct zt_view master;     /* fp32 or ZT_REST16 */
    struct zt_view m, v, grad; /* fp32 */
    struct zt_view param;      /* compute dtype, or absent */
    const float *grad_scale;   /* device memory, 1 float */
    const uint32_t *skip;      /* device memory, 1 word; NULL: never */
    float lr, lr_t, vscale, beta1, beta2, eps, weight_decay;
    bool decoupled, stochastic;
    struct zt_philox rng;
};

/*
 * Quantizes x (R, C), any strides, to fp8 with one scale per tensor: y (R, C) and its
 * transpose yt (C, R), contiguous and of one fp8 type; either may be absent. amax is the
 * largest finite |x|, and f = largest value of the type / amax (zt_f8_factor). Then
 * y = x f, rounded to nearest even, and *scale = 1 / f, so x is about y * *scale. Inf and
 * NaN in x become NaN in y.
 */
struct zt_quantize_args {
    struct zt_view x, y, yt;
    float *scale; /* device memory, 1 float */
};

#define ZT_KERNELS(X)                                                                    \
    X(gemm, struct zt_gemm_args)                                                         \
    X(layernorm, struct zt_layernorm_args)                                               \
    X(layernorm_bwd, struct zt_layernorm_bwd_args)                                       \
    X(rmsnorm, struct zt_rmsnorm_args)                                                   \
    X(rmsnorm_bwd, struct zt_rmsnorm_bwd_args)                                           \
    X(embedding, struct zt_embedding_args)                                               \
    X(embedding_bwd, struct zt_embedding_bwd_args)                                       \
    X(rope, struct zt_rope_args)                                                         \
    X(attention, struct zt_attention_args)                                               \
    X(attention_bwd, struct zt_attention_bwd_args)                                       \
    X(attention_decode, struct zt_attention_decode_args)                                 \
    X(distance, struct zt_distance_args)                                                 \
    X(distance_bwd, struct zt_distance_bwd_args)                                         \
    X(unary, struct zt_unary_args)                                                       \
    X(unary_bwd, struct zt_unary_bwd_args)                                               \
    X(glu, struct zt_glu_args)                                                           \
    X(glu_bwd, struct zt_glu_bwd_args)                                                   \
    X(softmax, struct zt_softmax_args)                                                   \
    X(softmax_bwd, struct zt_softmax_bwd_args)                                           \
    X(binary, struct zt_binary_args)                                                     \
    X(colsum, struct zt_colsum_args)                                                     \
    X(axpby, struct zt_axpby_args)                                                       \
    X(fill, struct zt_fill_args)                                                         \
    X(dropout, struct zt_dropout_args)                                                   \
    X(random, struct zt_random_args)                                                     \
    X(cross_entropy, struct zt_cross_entropy_args)                                       \
    X(cross_entropy_bwd, struct zt_cross_entropy_bwd_args)                               \
    X(squared_error, struct zt_squared_error_args)                                       \
    X(squared_error_bwd, struct zt_squared_error_bwd_args)                               \
    X(quantize, struct zt_quantize_args)                                                 \
    X(rank_sum, struct zt_rank_sum_args)                                                 \
    X(sumsq, struct zt_sumsq_args)                                                       \
    X(adamw, struct zt_adamw_args)

/*
 * The kernels of a device; every member is set. `fault` gets the text of a failure. On an
 * asynchronous device, sync() reports failures of the queued work.
 */
struct zt_kernels {
#define ZT_KERNEL_MEMBER(name, args)                                                     \
    zt_err (*name)(struct zt_device * dev, struct zt_stream * s, const args *a,          \
                   struct zt_fault *fault);
    ZT_KERNELS(ZT_KERNEL_MEMBER)
#undef ZT_KERNEL_MEMBER
};

/* In bytes. */
struct zt_device_memory {
    size_t total, free; /* of the device, whoever uses it; SIZE_MAX: no limit known */
    size_t used, peak;  /* taken through this zt_device: regions and its own scratch */
    size_t reserve;     /* of `free`: what its libraries take later, by themselves */
};

struct zt_backend {
    uint32_t abi;          /* ZT_BACKEND_ABI; anything else is refused when loaded */
    uint32_t struct_bytes; /* sizeof(struct zt_backend), likewise */
    const char *name;      /* "cpu", "meta": as logs and --device spell it */
    bool unified;          /* device memory is host memory: what sync() has passed, either
                            * side may read and write */

    /* Kernels run on the processor: sums are in rank order whatever was asked, and TF32
     * and fp8 cost time, as operands are rounded like a GPU's without its tensor cores. */
    bool runs_on_processor;

    /* How many devices this process sees. ZT_E_UNSUPPORTED: none, and why. */
    zt_err (*count)(int *out, struct zt_fault *fault);

    /* threads: of this rank; 0: what the affinity mask allows. */
    zt_err (*open)(int ordinal, int threads, struct zt_device **out,
                   struct zt_fault *fault);
    void (*close)(struct zt_device *dev); /* NULL is fine */

    /*
     * Large regions, page aligned, zeroed, touched before they are handed out; a rank
     * takes a handful of them before its first step and none after.
     */
    zt_err (*alloc)(struct zt_device *dev, size_t bytes, void **out,
                    struct zt_fault *fault);
    void (*free)(struct zt_device *dev, void *ptr, size_t bytes);
    zt_err (*memory)(struct zt_device *dev, struct zt_device_memory *out,
                     struct zt_fault *fault);

    /* Host memory, zeroed, that transfers reach without a staging copy (pinned). */
    zt_err (*host_alloc)(struct zt_device *dev, size_t bytes, void **out,
                         struct zt_fault *fault);
    void (*host_free)(struct zt_device *dev, void *ptr, size_t bytes);

    /* Bytes between host and device memory, queued on s; the host side must stay valid.
     */
    zt_err (*upload)(struct zt_device *dev, struct zt_stream *s, void *dst,
                     const void *src, size_t bytes, struct zt_fault *fault);
    zt_err (*download)(struct zt_device *dev, struct zt_stream *s, void *dst,
                       const void *src, size_t bytes, struct zt_fault *fault);
    /* Bytes inside device memory, queued on s; no overlap but dst == src. */
    zt_err (*copy)(struct zt_device *dev, struct zt_stream *s, void *dst, const void *src,
                   size_t bytes, struct zt_fault *fault);
    /* The host waits for all that is queued on s; failures of that work come out here. */
    zt_err (*sync)(struct zt_device *dev, struct zt_stream *s, struct zt_fault *fault);

    /*
     * A stream beside the main one: for transfers, collectives and kernels that need no
     * scratch (axpby, fill, rank_sum); others refuse it. Closing waits for its work.
     */
    zt_err (*stream_open)(struct zt_device *dev, struct zt_stream **out,
                          struct zt_fault *fault);
    void (*stream_close)(struct zt_device *dev, struct zt_stream *s);   /* NULL is fine */
    void *(*stream_native)(struct zt_device *dev, struct zt_stream *s); /* cudaStream_t */

    /*
     * record: the point that s has reached with what is queued now; again: a new point.
     * wait: what is queued on s from now on runs after that point; nobody else waits.
     * passed: whether it is behind; a thread of its own may ask. Before the first record
     * an event is passed.
     */
    zt_err (*event_open)(struct zt_device *dev, struct zt_stream_event **out,
                         struct zt_fault *fault);
    void (*event_close)(struct zt_device *dev, struct zt_stream_event *e);
    zt_err (*event_record)(struct zt_device *dev, struct zt_stream_event *e,
                           struct zt_stream *s, struct zt_fault *fault);
    zt_err (*event_wait)(struct zt_device *dev, struct zt_stream_event *e,
                         struct zt_stream *s, struct zt_fault *fault);
    zt_err (*event_passed)(struct zt_device *dev, struct zt_stream_event *e, bool *out,
                           struct zt_fault *fault);

    /*
     * Optional; NULL: products have one way to be computed here. tune: times the ways for
     * each of `products` (their `data` says how it is aligned and is not accessed) that
     * `known`, an earlier text or NULL, has no choice for. *out: the text of all choices;
     * the caller frees it. Takes device memory for one product at a time. ZT_E_CONFIG:
     * `known` is of another device or library; ZT_E_FORMAT: it is no such text.
     * use_tuning: from now on products are computed as the text says. What is not in it is
     * computed as without.
     */
    zt_err (*tune)(struct zt_device *dev, const struct zt_gemm_args *products, int num,
                   const char *known, char **out, struct zt_fault *fault);
    zt_err (*use_tuning)(struct zt_device *dev, const char *text, struct zt_fault *fault);

    const struct zt_kernels *kernels;
};

/*
 * What is known of a backend by its name alone, without its object and without a device:
 * for plans of runs elsewhere, reports, and the choice of "auto".
 */
struct zt_backend_info {
    const char *name;                  /* as --device spells it */
    const struct zt_backend *built_in; /* NULL: in an object, which the next two tell */
    const struct zt_device_object *object;
    const char *toolkit;        /* what has to be installed to build and load it */
    bool automatic;             /* "auto" takes it where it works */
    bool counts_as_host_memory; /* plans count its memory with the host's */
    int64_t product_align; /* sizes of products are best multiples of this; 0: whatever */

    bool (*is_likely)(void);       /* "auto" tries it; NULL: always */
    size_t (*own_bytes)(void);     /* see zt_backend_own_bytes(); NULL: none */
    const char *(*describe)(void); /* one line for reports; NULL: its driver has more */
};
extern const struct zt_backend_info zt_backends[]; /* ends with a name of NULL */

/* NULL: none is called that ("auto" is none). */
const struct zt_backend_info *zt_backend_lookup(const char *name);

/* Whether it is built in, or its object is where zt_backend_find() looks for it. */
bool zt_backend_is_built(const struct zt_backend_info *b);

/* What a device of this name will take for itself when it is opened, in bytes: part of a
 * plan, so known without the device; once there is one, memory() says what it took. */
size_t zt_backend_own_bytes(const char *name);

/*
 * By name; "auto" is cuda where it is built and sees a device, else cpu. cuda is an
 * object that is loaded here, for good: ZLAUNCH_CUDA_BACKEND, or backends/cuda.so beside
 * the executable, or where `make install` puts it (../lib/zlaunch/backends/cuda.so).
 * ZT_E_UNSUPPORTED says what is missing. Threads: one.
 */
zt_err zt_backend_find(const char *name, const struct zt_backend **out,
                       struct zt_fault *fault) ZT_MUST_CHECK;

/* One line on the processor as the cpu backend sees it: "2 threads, instructions up to
 * avx512_bf16". */
const char *zt_cpu_describe(void);

/*
 * Rate of the device's own matrix product in FLOP/s for a square-ish problem of `dtype`
 * (ZT_F8E4M3: into bf16), measured over about `seconds`. What "% of GEMM peak" is
 * relative to.
 */
zt_err zt_measure_gemm(const struct zt_backend *be, struct zt_device *dev, zt_dtype dtype,
                       bool tf32, double seconds, double *flops_per_s,
                       struct zt_fault *fault) ZT_MUST_CHECK;

/* The same for (m, k) times (k, n), in zt_measure_bytes() of device memory that the
 * caller owns. */
struct zt_product {
    int64_t m, n, k;
};
size_t zt_measure_bytes(zt_dtype dtype, struct zt_product p);
zt_err zt_measure_gemm_in(const struct zt_backend *be, struct zt_device *dev,
                          zt_dtype dtype, bool tf32, double seconds, void *memory,
                          struct zt_product p, double *flops_per_s,
                          struct zt_fault *fault) ZT_MUST_CHECK;

#endif
