/*
 * device.h -- the cpu device: its threads, what the processor can do, and scratch.
 *
 * Scratch grows to the largest request seen and stays, so a steady step allocates
 * nothing.
 * Ownership: the device owns its scratch and its cache of oneDNN primitives.
 * Threads:   one thread calls kernels; scratch is asked for before a parallel loop.
 */
#ifndef KERNELS_CPU_DEVICE_H
#define KERNELS_CPU_DEVICE_H

#include "kernels/backend.h"

/* What the running processor and system offer, as bits. */
enum {
    ZT_CPU_AVX2 = 1,        /* with fma and f16c */
    ZT_CPU_AVX512 = 2,      /* f, bw, dq, vl */
    ZT_CPU_AVX512_BF16 = 4, /* vdpbf16ps and vcvtneps2bf16 */
    ZT_CPU_AMX_BF16 = 8,
    /* products of bf16 run faster than the same in fp32 */
    ZT_CPU_FAST_BF16 = 16,
};
unsigned zt_cpu_features(void);

/* Who uses a piece of scratch; two users of one slot must not be active together. */
enum zt_scratch_slot {
    ZT_SCRATCH_KERNEL, /* any kernel that calls no other kernel */
    ZT_SCRATCH_GEMM,
    ZT_SCRATCH_GEMM_PAD, /* oneDNN's own */
    ZT_SCRATCH_ATTENTION,
    ZT_SCRATCH_ATTENTION_PLANS,
    ZT_NUM_SCRATCH
};

struct zt_gemm_cache;

struct zt_device {
    int threads;
    void *scratch[ZT_NUM_SCRATCH];
    size_t scratch_bytes[ZT_NUM_SCRATCH];
    struct zt_gemm_cache *gemm; /* made by the first product */
    size_t used, peak;          /* bytes of regions and scratch */
};

/* At least `bytes`, aligned to 64, contents undefined; good until asked for again. */
zt_err zt_cpu_scratch(struct zt_device *dev, enum zt_scratch_slot slot, size_t bytes,
                      void **out, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
