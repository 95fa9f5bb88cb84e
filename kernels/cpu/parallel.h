/*
 * parallel.h -- loops over the computing threads of this process.
 *
 * OpenMP threads or, with ZT_PARALLEL_PTHREADS (builds for ThreadSanitizer, which cannot
 * see inside libgomp), a small pool of threads.
 *
 * The result of a body for an index must not depend on the part or the thread that runs
 * it, so that no result depends on the number of threads.
 * Threads: calls come from one thread; a call from inside a body runs serially there.
 */
#ifndef KERNELS_CPU_PARALLEL_H
#define KERNELS_CPU_PARALLEL_H

#include <stdbool.h>
#include <stdint.h>

#define ZT_MAX_THREADS 1024

/* Work on [begin, end). `thread` is in [0, zt_num_threads()), for scratch of its own. */
typedef void (*zt_range_fn)(int64_t begin, int64_t end, int thread, void *ctx);

/*
 * Split [0, n) into one contiguous part per thread, as even as multiples of `grain`
 * allow. fn is called once per part that is not empty. With n <= grain, one call here.
 */
void zt_parallel_for(int64_t n, int64_t grain, zt_range_fn fn, void *ctx);

/*
 * Runs tasks 0..n-1. Each free thread takes the next task in rising order, which suits
 * tasks of uneven size. Put the large ones first.
 */
typedef void (*zt_task_fn)(int64_t task, int thread, void *ctx);
void zt_parallel_tasks(int64_t n, zt_task_fn fn, void *ctx);

/*
 * 1 until set. Outside [1, ZT_MAX_THREADS] is cut to it. Who else uses OpenMP on the
 * calling thread (oneDNN) gets one thread.
 */
void zt_set_num_threads(int n);
int zt_num_threads(void);

/* True inside a body that runs in parallel with others. */
bool zt_in_parallel(void);

#endif
