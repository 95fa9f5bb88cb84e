/*
 * features.h -- what the running processor and system offer.
 * Threads:   any.
 */
#ifndef KERNELS_CPU_FEATURES_H
#define KERNELS_CPU_FEATURES_H

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

/* The same for people: "avx512 bf16". */
const char *zt_cpu_instruction_sets(void);

/*
 * For tests, which take the paths of other processors: from now on zt_cpu_features() is
 * `features`. What decides about instructions must be there: AMX_BF16 may be added (it
 * only chooses a path), others may only be taken away. Not while kernels run.
 */
void zt_cpu_set_features(unsigned features);

#endif
