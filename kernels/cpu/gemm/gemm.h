/*
 * gemm.h -- matrix products of the cpu backend, on oneDNN.
 *
 * Every combination of shapes, strides and types becomes one oneDNN primitive, made at its
 * first use (about half a millisecond) and kept in a bounded cache of the device. Operands
 * are not packed beforehand. Weight gradients in bf16 may go another way (wgrad.h), and what
 * gains by it by its shape (panel_shapes.c).
 *
 * A primitive is run by one thread. Large products are cut into blocks, whose places
 * follow from the shape (thread_blocks.c), so that the bits do not depend on the number of
 * threads.
 */
#ifndef KERNELS_CPU_GEMM_GEMM_H
#define KERNELS_CPU_GEMM_GEMM_H

#include "kernels/cpu/device.h"

/*
 * c = alpha * a b + bias, or c += alpha * a b. Strides (batch, row, column) in elements;
 * a batch stride of 0 repeats the operand. One of the last two strides is 1, c's last one
 * is. Types as oneDNN takes them: f32 to f32, bf16 to bf16 or f32. bias: NULL, or n
 * values of type bias_dtype (f32 or ab's), not together with accumulate.
 */
struct zt_gemm_problem {
    int64_t batch, m, n, k;
    zt_dtype ab, c, bias;
    float alpha;
    bool accumulate, has_bias;
    int64_t as[3], bs[3], cs[3];
};

struct zt_gemm_plan; /* a primitive; owned by the cache, good until the device closes */

/*
 * The plan of a problem. Those asked for with `pinned` stay until zt_gemm_trim; others
 * until ZT_GEMM_PLANS more have been asked for.
 */
#define ZT_GEMM_PLANS 4
zt_err zt_gemm_plan(struct zt_device *dev, const struct zt_gemm_problem *p, bool pinned,
                    const struct zt_gemm_plan **out,
                    struct zt_fault *fault) ZT_MUST_CHECK;

/* Drops the pinned plans if they have become many. Before a kernel asks for its own. */
void zt_gemm_trim(struct zt_device *dev);

/* Bytes of scratch that running it needs, aligned to 64. */
size_t zt_gemm_plan_scratch(const struct zt_gemm_plan *plan);

/* By the calling thread; others may run it beside, each with its own scratch and c. */
zt_err zt_gemm_run(const struct zt_gemm_plan *plan, const void *a, const void *b,
                   const void *bias, void *c, void *scratch,
                   struct zt_fault *fault) ZT_MUST_CHECK;

void zt_gemm_cache_free(struct zt_gemm_cache *cache); /* NULL is fine */

/*
 * For tests and benches: which products in fp32 are of
 * panels (panel_blocks.c) from now on. Not while kernels run.
 */
enum zt_panel_use { ZT_PANELS_THAT_GAIN, ZT_PANELS_ALWAYS, ZT_PANELS_NEVER };
void zt_gemm_use_panels(enum zt_panel_use which);

/* ---- rows of mixed types ---- */

/* dst[i] = src[i * stride], widened to fp32; src is f32, bf16, f16 or fp8. */
void zt_load_row(float *dst, const void *src, zt_dtype dtype, int64_t stride, int64_t n);
/* dst[i * stride] = src[i] rounded to nearest even. */
void zt_store_row(void *dst, zt_dtype dtype, int64_t stride, const float *src, int64_t n);
/*
 * The same of a dense row with non-temporal stores where there is AVX-512, which leave caches as they are:
 * for results that are too large to be there when they are read. Other threads see them behind
 * zt_store_fence().
 */
void zt_stream_row(void *dst, zt_dtype dtype, const float *src, int64_t n);
void zt_store_fence(void);

#endif
