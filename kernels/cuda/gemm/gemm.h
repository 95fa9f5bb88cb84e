/*
 * gemm.h -- the two steps of a matrix product: the call of cuBLASLt, and the epilogue as a
 * kernel of its own where cuBLASLt has none that fits.
 */
#ifndef KERNELS_CUDA_GEMM_GEMM_H
#define KERNELS_CUDA_GEMM_GEMM_H

#include "kernels/cuda/cuda.h"

/* A matrix, or a stack of them: (batch, rows, cols); of the last two strides one is 1. */
struct zt_mat {
    void *data; /* NULL: absent */
    zt_dtype dtype;
    int64_t batch, rows, cols;
    int64_t stride[3]; /* a batch stride of 0 repeats the matrix */
};

static inline struct zt_mat zt_mat_transposed(struct zt_mat m)
{
    int64_t t = m.rows;

    m.rows = m.cols;
    m.cols = t;
    t = m.stride[1];
    m.stride[1] = m.stride[2];
    m.stride[2] = t;
    return m;
}

#define ZT_GEMM_ALIGNED 16 /* bytes; what a plan may count on, at most */

/* As cuBLASLt sees it: d (m, n) = op(a) op(b), all column-major. It is hashed as bytes, so
 * it has no padding. */
struct zt_gemm_key {
    int64_t m, n, k, batch;
    int64_t ld_a, ld_b, ld_d, ld_aux;
    int64_t step_a, step_b, step_d; /* from one of the batch to the next */
    int32_t type_a, type_b, type_d, trans_a, trans_b;
    int32_t epilogue, compute;
    int32_t align_a, align_b, align_d, align_bias, align_aux;
};
static_assert(sizeof(struct zt_gemm_key) == 11 * 8 + 12 * 4, "padding");

/* One product; the key says how these are read. */
struct zt_gemm_product {
    struct zt_gemm_key key;
    const void *a, *b;
    void *bias;
    void *d, *aux;
    const float *a_scale, *b_scale; /* of fp8; NULL: none */
    float alpha, beta;
};

static inline bool zt_gemm_has_bias(const struct zt_gemm_key *k)
{
    return k->epilogue == CUBLASLT_EPILOGUE_BIAS ||
           k->epilogue == CUBLASLT_EPILOGUE_GELU_BIAS ||
           k->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
           k->epilogue == CUBLASLT_EPILOGUE_BGRADA ||
           k->epilogue == CUBLASLT_EPILOGUE_BGRADB; /* which write it */
}

static inline bool zt_gemm_has_aux(const struct zt_gemm_key *k)
{
    return k->epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
           k->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
           k->epilogue == CUBLASLT_EPILOGUE_DGELU; /* which reads it */
}

/* Plans found so far are looked for anew. */
void zt_gemm_forget_plans(struct zt_device *dev);

/* ZT_E_UNSUPPORTED: not with this epilogue, or not at all. */
zt_err zt_gemm_multiply(struct zt_device *dev, struct zt_stream *s,
                        const struct zt_gemm_product *x, struct zt_fault *fault);

/*
 * pre = from + bias, rounded to its dtype; c = activation(pre). All have the shape of c.
 * `from` may be c or pre; absent: zeros. The others may be absent.
 */
struct zt_gemm_epilogue_args {
    struct zt_mat from, bias, pre, c;
    zt_epilogue epilogue;
};
zt_err zt_gemm_run_epilogue(struct zt_device *dev, struct zt_stream *s,
                            const struct zt_gemm_epilogue_args *p,
                            struct zt_fault *fault);

/* ---- choices.cu: which way was the fastest for a product ---- */

#define ZT_GEMM_ALGO_WORDS 8 /* cublasLtMatmulAlgo_t is that many of 64 bits */

/*
 * In place of an epilogue of cuBLASLt in the key of a product that the backward of a
 * SwiGLU follows. Its first word is the engine of gated.h plus 1; 0: apart is faster.
 */
#define ZT_GEMM_SWIGLU_BWD (-1)

struct zt_gemm_choice {
    struct zt_gemm_key key;
    uint64_t algo[ZT_GEMM_ALGO_WORDS];
};

struct zt_gemm_choices {
    bool tuning; /* what has no choice yet is timed when it is first computed */
    int num, room;
    struct zt_gemm_choice *at;
    cudaEvent_t begun, ended; /* of tuning */
};

/* NULL: there is none. */
const struct zt_gemm_choice *zt_gemm_choice_of(const struct zt_device *dev,
                                               const struct zt_gemm_key *key);
/* ZT_E_NOMEM */
zt_err zt_gemm_choice_add(struct zt_device *dev, const struct zt_gemm_choice *c,
                          struct zt_fault *fault);
/* dev->choices from a text; NULL: empty. ZT_E_CONFIG: it is none of this device. */
zt_err zt_gemm_choices_read(struct zt_device *dev, const char *text,
                            struct zt_fault *fault);
/* As text, which the caller frees. */
zt_err zt_gemm_choices_text(const struct zt_device *dev, char **out,
                            struct zt_fault *fault);

static inline bool zt_gemm_is_tuning(const struct zt_device *dev)
{
    return dev->choices && dev->choices->tuning;
}

#define ZT_TIMED_ROUNDS 3 /* the fastest of them counts */
#define ZT_TIMED_CALLS  4 /* in each */
/* Another way is taken where it needs at most this part of the time. */
#define ZT_FASTER 0.98f

/*
 * *ms = a call of run(), which queues work on the main stream: once to load its code, then
 * timed. What run() returns ends it.
 */
template <typename F>
static inline zt_err zt_gemm_time(struct zt_device *dev, F run, float *ms,
                                  struct zt_fault *fault)
{
    const struct zt_gemm_choices *c = dev->choices;
    float least = 0;
    zt_err rc = run();

    for (int round = 0; !rc && round < ZT_TIMED_ROUNDS; round++) {
        cudaError_t e = cudaEventRecord(c->begun, dev->main.cuda);
        float took = 0;

        for (int i = 0; !rc && i < ZT_TIMED_CALLS; i++)
            rc = run();
        if (rc)
            return rc;
        if (e == cudaSuccess)
            e = cudaEventRecord(c->ended, dev->main.cuda);
        if (e == cudaSuccess)
            e = cudaEventSynchronize(c->ended);
        if (e == cudaSuccess)
            e = cudaEventElapsedTime(&took, c->begun, c->ended);
        if (e != cudaSuccess)
            return zt_cuda_failed("timing a product", e, fault);
        least = round && least < took ? least : took;
    }
    *ms = least / ZT_TIMED_CALLS;
    return rc;
}

#endif
