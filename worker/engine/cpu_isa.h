/*
 * cpu_isa.h -- ranks on processors use the same instructions.
 *
 * How results round depends on the level of instructions (kernels/cpu/features.h), and a
 * model that is spread over ranks must not: each rank says what it may use, and all take
 * what they have in common.
 * Threads: one.
 */
#ifndef WORKER_ENGINE_CPU_ISA_H
#define WORKER_ENGINE_CPU_ISA_H

#include "worker/comm/comm.h"

/* Features of a rank that does not compute on its processor: no limit to others. */
#define ZT_CPU_ANY_FEATURES ~0u

/*
 * Collective, before any kernel has run. `features` are those that --cpu_isa leaves this
 * rank, or ZT_CPU_ANY_FEATURES. Limits kernels to what all ranks have in common. Rank 0
 * logs what that is, and which rank is the reason where another has more.
 */
zt_err zt_cpu_isa_agree(struct zt_comm *c, unsigned features,
                        struct zt_fault *fault) ZT_MUST_CHECK;

#endif
