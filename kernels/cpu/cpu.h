/*
 * cpu.h -- the kernels of the cpu backend, one zt_cpu_<name> for every row of ZT_KERNELS.
 *
 * kernels/backend.h describes each above its arguments. A kernel completes before it
 * returns, on the threads of parallel.h; the stream is ignored.
 * Threads: one at a time per process.
 */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include "kernels/backend.h"

#define ZT_CPU_DECLARE(name, args)                                                       \
    zt_err zt_cpu_##name(struct zt_device *dev, struct zt_stream *s, const args *a,      \
                         struct zt_fault *fault);
ZT_KERNELS(ZT_CPU_DECLARE)
#undef ZT_CPU_DECLARE

extern const struct zt_kernels zt_cpu_kernels;
extern const struct zt_backend zt_cpu_backend;

#endif
