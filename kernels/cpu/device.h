/*
 * device.h -- the cpu device: its threads, its scratch and the bytes it has allocated.
 *
 * Scratch grows to the largest request seen and stays, so a steady step allocates
 * nothing.
 * Ownership: the device owns its scratch and its cache of oneDNN primitives.
 * Threads:   one thread calls kernels and requests scratch, before a parallel loop.
 */
#ifndef KERNELS_CPU_DEVICE_H
#define KERNELS_CPU_DEVICE_H

#include "kernels/backend.h"
#include "kernels/cpu/features.h"

/* The users of scratch memory. One slot has one active user at a time. */
enum zt_scratch_slot {
    ZT_SCRATCH_KERNEL, /* any kernel that calls no other kernel */
    ZT_SCRATCH_GEMM,
    ZT_SCRATCH_GEMM_PAD, /* oneDNN's own, or packed panels */
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

/* At least `bytes`, aligned to 64, contents undefined; valid until the slot is requested again. */
zt_err zt_cpu_scratch(struct zt_device *dev, enum zt_scratch_slot slot, size_t bytes,
                      void **out, struct zt_fault *fault) ZT_MUST_CHECK;

/* Account for `more` bytes allocated and `less` bytes freed. */
void zt_cpu_count_bytes(struct zt_device *dev, size_t more, size_t less);

#endif
