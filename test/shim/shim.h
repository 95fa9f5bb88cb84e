/*
 * shim.h -- internals of the shim: CUDA on the processor, made to expose mistakes.
 *
 *   host call -> queue of a stream ... somebody waits -> scheduler -> blocks -> fibers
 *                (stream.cpp)                        (queue.cpp) (block.cpp) (fiber.cpp)
 *
 * Async:    a launch, copy or record only joins the queue of its stream, with a copy of
 *           its arguments. Queues run when the host waits for a stream, an event or the
 *           device, so a host that reads without waiting sees old values.
 * Order:    SHIM_SEED=0 (default): of the streams that can run, the one that was queued to
 *           last runs first, as far as its dependencies allow, so work that no event
 *           orders runs in an unexpected order. 1: only what the host waits for runs, so
 *           a wait for the wrong thing shows. Others: a pseudo-random mix of both.
 * Blocks:   one after the other; __shared__ is static. Threads of a block are fibers.
 *           Each runs up to its next barrier, in random order: all in step, or warp by
 *           warp.
 * Barriers: __syncthreads at different places or after a thread has exited, and warp
 *           calls with lanes missing, end the process with an error.
 * Memory:   device memory is filled with NaN (bytes 0xFF), ends at a guard page, and is
 *           inaccessible to the host while nothing runs. Writes out of bounds are found
 *           after the kernel, by guard pages or by the bytes around the allocation.
 * Peers:    nccl.h: collectives between processes. A call that has to wait for a peer
 *           leaves the device to other work, and continues by itself.
 * Threads:  one thread of the shim runs all work; cuda_runtime.h says what the program's
 *           threads may do. They share one lock, which is not held while work runs.
 * Errors:   every fault ends the process: "shim: kernel K, block B, thread T, what".
 *           Signals that do not concern device memory go to the handler that the program
 *           had installed.
 *
 * It may be linked into a program or into a shared object that one loads; the object then
 * stays loaded until the end.
 *
 * SHIM_SMS is the number of multiprocessors (3: few, so that loops over a grid loop),
 * SHIM_MEMORY_MB the memory (4096), SHIM_DEVICES how many devices share it (1); with
 * SHIM_NO_MANAGED=1 none of it is managed.
 * SHIM_DROP_WAIT=n: the n-th cudaStreamWaitEvent() of the process, counted from 1,
 * returns success and orders nothing: a fault for tests to find. SHIM_NCCL_HANG: nccl.h.
 * SHIM_TIMES=n: events tell made-up times, in which algorithms of products differ, for each
 * n in another way. SHIM_COUNT_ONLY=1 executes nothing: a step of a large model is then counted in seconds.
 */
#ifndef SHIM_SHIM_H
#define SHIM_SHIM_H

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuda_runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#define SHIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SHIM_ASAN 1
#endif
#endif
#ifndef SHIM_ASAN
#define SHIM_ASAN 0
#endif

/* ---- device.cpp: options, errors ---- */
int64_t shim_option(const char *name, int64_t otherwise);
/* Returns e, and keeps it for cudaGetLastError when it is an error. */
cudaError_t shim_error(cudaError_t e);
/* Prints where (kernel, block, thread, as far as known) and what, and aborts. */
[[noreturn]] void shim_die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Name of the function at an address of this program, "?" when it cannot be found. */
std::string shim_name_of(const void *function);

/* ---- work ---- */
/* Work that may have to wait for other processes. */
struct shim_call {
    virtual ~shim_call() = default;
    /* Progresses as far as it can without waiting; true: it has completed. */
    virtual bool go_on(void) = 0;
    /* Adds the descriptors to wait for before it can progress; before it has begun, the
     * one that becomes readable when a peer has begun. */
    virtual void waits_for(std::vector<struct pollfd> *fds) = 0;
};

struct shim_work {
    const void *kernel; /* NULL: `what` is its name */
    const char *what;
    std::function<void()> run;
    std::shared_ptr<shim_call> call = nullptr; /* instead of run */
};

/* Reached when that many items of a stream have completed; no stream: at once. */
struct shim_point {
    struct CUstream_st *stream;
    uint64_t upto;
};

/* ---- queue.cpp: the lock, and the device that runs what is queued ---- */
/*
 * Around everything that reads or changes queues and allocations. Never held while work
 * runs or waits; not recursive.
 */
struct shim_locked {
    shim_locked();
    ~shim_locked();
};
/* Makes the device check again what it waits for. Any thread; takes no lock. */
void shim_wake(void);
/* The work that this thread runs; NULL: host code. */
const shim_work *shim_running(void);
bool shim_on_device(void);
/* Runs all queued work. Called with the lock, which it releases meanwhile. */
void shim_finish_all(void);

/* ---- random.cpp; only the device draws numbers ---- */
/* Restarts the generator with a seed; for tests. */
void shim_set_seed(uint64_t seed);
uint64_t shim_seed(void);
uint64_t shim_random(void);

/* ---- thread.cpp ---- */
/* A detached thread that blocks the program's signals. */
void shim_new_thread(std::function<void()> f);

/* ---- stream.cpp; these take the lock ---- */
cudaError_t shim_enqueue(cudaStream_t stream, shim_work work);
/* The same for work that counts as a launch; with SHIM_COUNT_ONLY=1 it is not executed. */
cudaError_t shim_enqueue_launch(cudaStream_t stream, shim_work work);
/* With SHIM_TIMES events measure this: a launch takes 1, and what it says besides. Work. */
void shim_take_time(double ms);
/* Of kernels, products, copies and memsets, by this process so far. */
extern "C" uint64_t shim_num_launches(void);
/*
 * Queues the call on the first of `streams`, after all work queued on any of them and
 * after *last; the other streams wait for it. *last becomes the point of its completion.
 */
cudaError_t shim_enqueue_call(const std::vector<cudaStream_t> &streams, shim_work work,
                              shim_point *last);
/* Waits for a point, like cudaStreamSynchronize. */
void shim_wait_for(shim_point p);

/* ---- block.cpp ---- */
void shim_run_grid(dim3 grid, dim3 block, const std::function<void()> &thread);
bool shim_in_thread(void);

/* ---- memory.cpp ---- */
enum shim_side { SHIM_HOST, SHIM_DEVICE, SHIM_BOTH };
/* The side of a pointer's memory; *rest: bytes from there to the end of its allocation,
 * SIZE_MAX for memory that the shim did not allocate. Takes the lock. */
shim_side shim_side_of(const void *p, size_t *rest);
/* With the lock: make device memory accessible, or not. */
void shim_memory_open(void);
void shim_memory_close(void);
/* With the lock: aborts when bytes around an allocation have changed. */
void shim_memory_check(void);

/* ---- faults.cpp ---- */
void shim_catch_faults(void);
/* For the thread that runs kernels: faults of a full stack. */
void shim_faults_on_device(void);

/* ---- fiber.cpp ---- */
struct shim_fiber;
typedef void (*shim_fiber_main)(shim_fiber *self); /* never returns */
shim_fiber *shim_fiber_new(shim_fiber_main main);
/* The thread's own stack. */
shim_fiber *shim_fiber_first(void);
void shim_fiber_switch(shim_fiber *from, shim_fiber *to);
bool shim_fiber_overflowed(const void *fault_address);

#endif
