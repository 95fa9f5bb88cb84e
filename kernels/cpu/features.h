/*
 * features.h -- the instructions that the cpu backend uses: what the running processor and
 * system offer, or less.
 *
 * Levels of instructions are named; each includes those before it. Where they decide how
 * a result rounds, the level in use decides, so ranks that compute together use one
 * (worker/engine/cpu_isa.h). Loops in ZT_SIMD (kernels/cpu/simd.h) and sums over ranks
 * have the same bits with all instructions: they take what the processor has.
 * Threads:   any; limits are set by one, before kernels run.
 */
#ifndef KERNELS_CPU_FEATURES_H
#define KERNELS_CPU_FEATURES_H

#include <stdbool.h>

#include "common/fault.h"

/* Instructions, and what of their speed decides about a path, as bits. */
enum {
    ZT_CPU_AVX2 = 1,        /* with fma and f16c */
    ZT_CPU_AVX512 = 2,      /* f, bw, dq, vl */
    ZT_CPU_AVX512_BF16 = 4, /* vdpbf16ps and vcvtneps2bf16 */
    ZT_CPU_AMX_BF16 = 8,
    /* products of bf16 run faster than the same in fp32: follows from the others */
    ZT_CPU_FAST_BF16 = 16,
    /* vdpbf16ps has twice the rate of an fp32 fma (AMD), not the same (Intel) */
    ZT_CPU_FAST_DOT = 32,
};

/* The level of instructions that a set of features has. */
typedef enum zt_cpu_isa {
    ZT_CPU_ISA_PORTABLE,
    ZT_CPU_ISA_AVX2,
    ZT_CPU_ISA_AVX512,
    ZT_CPU_ISA_AVX512_BF16,
    ZT_CPU_ISA_AMX,
} zt_cpu_isa;

/* In use. Until somebody limits them: all that the processor and the system offer. */
unsigned zt_cpu_features(void);

/* Whether tile instructions can be run, whatever zt_cpu_features() says. */
bool zt_cpu_has_tiles(void);

zt_cpu_isa zt_cpu_isa_of(unsigned features);
const char *zt_cpu_isa_name(zt_cpu_isa isa); /* "avx512_bf16", as --cpu_isa spells it */

/* The same for people, of the features in use: "instructions up to avx512_bf16". */
const char *zt_cpu_instruction_sets(void);

/*
 * What of zt_cpu_features() is left at a level; "auto": all of it. ZT_E_UNSUPPORTED: it
 * has no such instructions; the text names the levels that it has. ZT_E_ARG: no level is
 * called that.
 */
zt_err zt_cpu_features_at(const char *level, unsigned *out,
                          struct zt_fault *fault) ZT_MUST_CHECK;

/* What two processors both have. */
unsigned zt_cpu_common_features(unsigned a, unsigned b);

/*
 * From now on kernels use no more than `features`, a part of those in use, and oneDNN no
 * more than their level. Before the first product, and once: oneDNN keeps to the first
 * limit that it is given. ZT_E_SYSTEM: oneDNN refuses; nothing has changed.
 */
zt_err zt_cpu_limit_features(unsigned features, struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * oneDNN uses no instructions that it finds and cannot run here. Before its first
 * product; a limit that was set before stays. ZT_E_SYSTEM: as above.
 */
zt_err zt_cpu_limit_onednn(struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * For tests, which take the paths of other processors: from now on zt_cpu_features() is
 * `features`, and oneDNN stays as it is. What decides about instructions must be there:
 * AMX_BF16 may be added (it only chooses a path), others may only be taken away. Not
 * while kernels run.
 */
void zt_cpu_set_features(unsigned features);

#endif
