/*
 * sdpa.h -- attention by a library behind a loadable object, instead of our own kernels.
 *
 * The object (backends/cudnn.c) knows its library and, of zlaunch, only this table, which
 * it exports as ZT_SDPA_SYMBOL. Opening a device looks for it in
 * ZLAUNCH_CUDNN_BACKEND ("" or "0": nowhere), beside the executable (backends/cudnn.so)
 * and where `make install` puts it (../lib/zlaunch/backends/cudnn.so). No warning if
 * it is absent; one warning if it is there but unusable. attention.cu and bwd.cu then do
 * the work, as they do for the calls that are refused here:
 *
 *      fp32, dropout, bias, a mask, a window, limits of keys, gradients that are added to,
 *      types that differ,
 *      heads that are no multiple of 8 or larger than 256, memory and strides that are
 *      not multiples of 16 bytes, streams other than the device's main one,
 *      causal attention of Tq != Tk: that is decoding, where every token is a problem of
 *      its own, and finding the plan of one takes tenths of a second;
 *      what the object has no deterministic kernel for.
 *
 * lse is the same number in both, so forward by one and backward by the other agree.
 *
 * Memory: a deterministic backward of cuDNN writes the scores' gradients out, 2 bytes for
 * each of B x H x Tq x Tk. ZT_SDPA_WORKSPACE is taken with the device, and only when
 * there is an object; nothing is allocated later. A larger problem is done in parts: some
 * batches at a time, else some K heads of one batch, which are independent of each other.
 * The parts follow from the shapes alone, so the same call gives the same bits. Where one K
 * head with its query heads does not fit (16384 x 16384 of one does, or 8192 x 8192 of four),
 * a library that can add up in order without writing them out is asked for that, which takes
 * longer. Whoever does not ask for an order gets neither: blocks of keys are added to dQ in
 * fp32 as they come.
 *
 * Threads: as the device's.
 */
#ifndef KERNELS_CUDA_ATTENTION_SDPA_H
#define KERNELS_CUDA_ATTENTION_SDPA_H

#include "include/zlaunch/types.h"
#include "kernels/cuda/sizes.h"

#define ZT_SDPA_ABI    3u
#define ZT_SDPA_SYMBOL "zt_sdpa_cudnn"

struct zt_sdpa_lib;  /* the library, started on one device */
struct zt_sdpa_plan; /* how it does one problem */

/* Strides of (B, T, H, D) in elements; that of D is 1. */
struct zt_sdpa_strides {
    int64_t batch, row, head;
};

/*
 * q, out (B, Tq, H, D); k, v (B, Tk, K, D). No holes: compared whole. The second half of
 * the strides is of a backward only, else 0.
 */
enum zt_sdpa_sums {
    ZT_SDPA_STORED,   /* by way of the scores' gradients, which are stored */
    ZT_SDPA_IN_ORDER, /* block after block, without: memory in proportion to Tq */
    ZT_SDPA_AS_THEY_COME
};

struct zt_sdpa_problem {
    int64_t batch, heads, kv_heads, tq, tk, dim;
    struct zt_sdpa_strides q, k, v, out;
    struct zt_sdpa_strides dout, dq, dk, dv;
    int32_t dtype;    /* ZT_BF16 or ZT_F16, of all but lse */
    int32_t causal;   /* query i sees keys j <= i; tq == tk */
    int32_t backward; /* else forward */
    int32_t sums;     /* how dQ is added up: enum zt_sdpa_sums; 0 of a forward */
};

/* Device memory, on 16 bytes. A forward reads q, k, v and writes out, lse (B, H, Tq). */
struct zt_sdpa_data {
    const void *q, *k, *v;
    void *out;
    float *lse;
    const void *dout; /* from here on of a backward only: it writes dq, dk, dv */
    void *dq, *dk, *dv;
    float scale;
};

/*
 * The other thing that the object is for: a product with the backward of a SwiGLU behind
 * it, dy = a b, dup = dy silu(gate), dgate = dy up silu'(gate), where dy is not stored.
 * a (m, k) and b (k, n) by their strides, of which one is 1; gate, up, dgate and dup (m, n)
 * are contiguous. No holes: compared whole.
 */
struct zt_sdpa_gated {
    int64_t m, n, k;
    int64_t a_row, a_col, b_row, b_col;
    int32_t dtype; /* ZT_BF16 or ZT_F16, of all */
    int32_t zero;
};

struct zt_sdpa_gated_plan;

/* Device memory, on 16 bytes. */
struct zt_sdpa_gated_data {
    const void *a, *b, *gate, *up;
    void *dgate, *dup;
};

/* A call that fails leaves a sentence in `why`, and nothing in *out. */
struct zt_sdpa {
    uint32_t abi;          /* ZT_SDPA_ABI */
    uint32_t struct_bytes; /* sizeof(struct zt_sdpa) */
    const char *name;      /* of the library, as logs spell it: "cuDNN" */

    /* For the calling thread's device. ZT_E_UNSUPPORTED: not with this library. */
    zt_err (*open)(struct zt_sdpa_lib **out, char *why, size_t why_bytes);
    void (*close)(
        struct zt_sdpa_lib *lib); /* NULL is fine; its plans are closed before */

    /*
     * Find the kernel of a problem; the same arguments give it the same bits.
     * *workspace_bytes is what run() needs. ZT_E_UNSUPPORTED: there is none.
     */
    zt_err (*plan)(struct zt_sdpa_lib *lib, const struct zt_sdpa_problem *p,
                   struct zt_sdpa_plan **out, size_t *workspace_bytes, char *why,
                   size_t why_bytes);
    void (*plan_close)(struct zt_sdpa_plan *plan); /* NULL is fine */

    /* Queue it on a cudaStream_t. workspace: device memory, on 256 bytes. */
    zt_err (*run)(struct zt_sdpa_lib *lib, const struct zt_sdpa_plan *plan, void *stream,
                  const struct zt_sdpa_data *d, void *workspace, char *why,
                  size_t why_bytes);

    /*
     * Products: the same three; these members are NULL where there is attention alone. Engines
     * are numbered from 0 and mean the same as long as the library's version() does;
     * ZT_E_LIMIT: there are not that many. gated_engine: the one to take where nobody has
     * measured them, the same for the same library, device and problem; -1: none.
     */
    int (*gated_engine)(struct zt_sdpa_lib *lib, const struct zt_sdpa_gated *p);
    zt_err (*gated_plan)(struct zt_sdpa_lib *lib, const struct zt_sdpa_gated *p,
                         int engine, struct zt_sdpa_gated_plan **out,
                         size_t *workspace_bytes, char *why, size_t why_bytes);
    void (*gated_plan_close)(struct zt_sdpa_gated_plan *plan); /* NULL is fine */
    zt_err (*gated_run)(struct zt_sdpa_lib *lib, const struct zt_sdpa_gated_plan *plan,
                        void *stream, const struct zt_sdpa_gated_data *d, void *workspace,
                        char *why, size_t why_bytes);
    size_t (*version)(void);
};

#ifdef __cplusplus
struct zt_cuda_sdpa;

/* sdpa.cu: the library of a device, for gemm/gated.cu; c is not NULL. */
struct zt_sdpa_use {
    const struct zt_sdpa *table;
    struct zt_sdpa_lib *lib;
    void *workspace; /* ZT_SDPA_WORKSPACE, for the work of the main stream */
};
struct zt_sdpa_use zt_cuda_sdpa_use(const struct zt_cuda_sdpa *c);
#endif

#endif
