/*
 * comm.h -- collectives between the ranks of a group, whoever carries them.
 *
 * An engine fills one struct zt_comm_engine (engine.h) and is listed in engines.c: `shm`
 * between ranks of one node; `mpi` between any ranks that an MPI library connects; `tcp`
 * between any that reach each other; `solo` for a world of one, the oracle for the rest.
 *
 *      send and recv hold `count` elements per rank:
 *      all_reduce      send (count)         recv (count)
 *      reduce_scatter  send (W, count)      recv (count)
 *      all_gather      send (count)         recv (W, count)
 *      all_to_all      send (W, count)      recv (W, count)
 *
 * Order:    every rank issues the same collectives in the same order, from one thread.
 *           Ranks compare what they want at each call: a difference is ZT_E_PEER naming
 *           both sides on all ranks, never a hang.
 * Sums:     of fp32, bf16 and fp16 are taken in fp32 in rank order 0..W-1, scaled, and
 *           rounded once, by every engine: the same bits on every rank. Integers are
 *           summed in their own type, wrapping, and take no scale but 1. A maximum is
 *           NaN if any rank's value is.
 * Aliasing: send == recv (all_gather: send == recv + rank * count; reduce_scatter also
 *           recv == send + rank * count) is allowed; other overlap is ZT_E_ARG.
 * Memory:   any host pointer works; memory from zt_comm_alloc() skips the staging copy.
 *           Of a communicator on a device (zt_comm_open_device()): device memory alone.
 * Failure:  a rank that died (or an abort) turns every wait into ZT_E_PEER within a
 *           second, a connection that ended into ZT_E_LOST; after that the communicator is dead: each call repeats that fault,
 *           and buffers of unfinished calls hold anything. ZT_E_ARG, and ZT_E_NOMEM from
 *           zt_comm_alloc() or zt_comm_split(), break nothing.
 */
#ifndef WORKER_COMM_COMM_H
#define WORKER_COMM_COMM_H

#include "common/fault.h"

struct zt_backend;
struct zt_comm;
struct zt_device;

/* One asynchronous collective in flight; a value. 0 is "already complete". */
typedef uint64_t zt_comm_handle;

typedef enum zt_reduce_op { ZT_SUM, ZT_MAX } zt_reduce_op;

/* How ranks of engine tcp find each other: an exchange that does not need it yet. */
struct zt_comm_bootstrap {
    /* An all-gather, called once: `all`, (world, bytes), gets each rank's `mine`. Nobody
     * but ranks of the job may read it. */
    zt_err (*all_gather)(void *ctx, const void *mine, size_t bytes, void *all,
                         struct zt_fault *fault);
    void *ctx;
    const char *host; /* of rank 0, as all ranks reach it: a host with several networks
                       * uses the one that leads there */
};

/*
 * What connects the ranks. "auto" is solo for a world of one, shm where there is a
 * descriptor, mpi in a process that an MPI launcher started if MPI can be used, tcp where
 * there is a bootstrap.
 */
struct zt_comm_config {
    const char *engine; /* "auto", "solo", "shm", "mpi", "tcp", "faulty:<nth>:<engine>" */
    int rank, world;
    int shm_fd; /* shm: an empty memfd all ranks share, which comm does not close; or -1
                 */
    const struct zt_comm_bootstrap *bootstrap; /* tcp; or NULL */
    int node_ranks;   /* mpi, tcp: ranks per node, neighbours, on every node alike; 0: not
                     * known. Only speed depends on it */
    double timeout_s; /* a wait longer than this is an error naming who is missing */
};

/* What an engine wants of the configuration that connects its ranks. */
typedef enum zt_comm_needs {
    ZT_COMM_NEEDS_NOTHING,
    ZT_COMM_NEEDS_SHM_FD,
    ZT_COMM_NEEDS_BOOTSTRAP,
    ZT_COMM_NEEDS_EITHER, /* "auto": a descriptor or a bootstrap, whichever there is */
} zt_comm_needs;

/* What cfg still lacks for its engine; NOTHING also where there is no such engine. */
zt_comm_needs zt_comm_missing(const struct zt_comm_config *cfg);

zt_err zt_comm_open(const struct zt_comm_config *cfg, struct zt_comm **out,
                    struct zt_fault *fault) ZT_MUST_CHECK;
/* Completes what was started and frees what zt_comm_alloc() gave. NULL is fine. */
void zt_comm_close(struct zt_comm *c);

/*
 * A communicator for memory of a device, beside one for values of the host. Collectives
 * are queued on a stream of its own and no call waits for them on the host:
 *
 *      start   the collective waits for what is queued on the device's main stream so far
 *      wait    the main stream waits for the collective
 *      else    start and wait
 *
 * so buffers are read and written in the order of the main stream. zt_sum_f64() and
 * zt_barrier() run on `host`, for values of the host, and do not wait for the device;
 * they also compare the collectives that ranks issued here since the last such call,
 * since NCCL does not. zt_comm_alloc() gives memory of the device; zt_comm_can_share() is
 * false. Floats can be summed, but there is no maximum of them (ZT_E_ARG).
 *
 * `host` has the same ranks, outlives this one, and is used by the same thread between
 * its calls. A world of 1 needs no NCCL.
 *
 * Failure: as above. A watchdog thread aborts what is queued on the device when a rank is
 * gone, when NCCL reports an error, or when a collective has not ended within timeout_s,
 * so that the host's wait for a stream returns. The next call, zt_sum_f64() or
 * zt_comm_wait(), reports with ZT_E_PEER that the results are invalid. `host` is dead
 * from then on, too.
 */
struct zt_device_comm_config {
    struct zt_comm *host;
    const struct zt_backend *backend;
    struct zt_device *device; /* opened by the calling thread, of backend */
    bool share_gpu;           /* ranks may be on one GPU; for tests, since it is slow */
    bool ordered;             /* sums of floats as above; else NCCL's own, which are
                               * faster, round more often, and whose bits depend on the
                               * algorithm that it chooses */
    double timeout_s;         /* also for opening */
};

/*
 * Collective over host's ranks, and so is closing it. ZT_E_PLAN: two ranks on one GPU;
 * ZT_E_UNSUPPORTED: NCCL is not there; ZT_E_NOMEM. All ranks get these alike, and `host`
 * stays as it was. After ZT_E_PEER or ZT_E_SYSTEM it may be dead.
 */
zt_err zt_comm_open_device(const struct zt_device_comm_config *cfg, struct zt_comm **out,
                           struct zt_fault *fault) ZT_MUST_CHECK;

/* Device memory that a communicator on a device allocates when it is opened, for plans.
 * NCCL allocates more, which cannot be known before. Groups allocate none. */
size_t zt_comm_device_bytes(int world);

/* The communicator for values of the host: c itself, or the one that a device's was
 * opened on (for a group: the same group of that one). */
struct zt_comm *zt_comm_host(struct zt_comm *c);

/*
 * Collective over all ranks of c: ranks that pass the same color form a group, ordered by
 * their rank in c. For its members an abort or a failure of the group is one of c, and
 * the reverse. The group must be closed before c. Memory of c can be read in
 * place by collectives of the group. Calls on c and on its groups are issued from one
 * thread, in the same order on every member; they run one at a time, in that order.
 */
zt_err zt_comm_split(struct zt_comm *c, int color, struct zt_comm **out,
                     struct zt_fault *fault) ZT_MUST_CHECK;

int zt_comm_rank(const struct zt_comm *c);
int zt_comm_world(const struct zt_comm *c);
const char *zt_comm_engine_name(const struct zt_comm *c);

/*
 * Page-aligned zeroed memory that peers can read in place. Collective: every rank calls
 * it in the same order with the same size. Lives until zt_comm_close(). ZT_E_NOMEM, on
 * all ranks alike: a rank has no memory or address space left; nothing has changed.
 */
zt_err zt_comm_alloc(struct zt_comm *c, size_t bytes, void **out,
                     struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * One piece of memory that all ranks map: what one writes, the others can read after the
 * next collective. Callers agree on who writes what and when. Otherwise as above.
 * ZT_E_UNSUPPORTED, on all ranks alike, unless zt_comm_can_share().
 */
zt_err zt_comm_alloc_shared(struct zt_comm *c, size_t bytes, void **out,
                            struct zt_fault *fault) ZT_MUST_CHECK;

/* Whether zt_comm_alloc_shared() works: all ranks of c can map the same memory. */
bool zt_comm_can_share(const struct zt_comm *c);

/* Blocking collectives. `scale` multiplies the fp32 sum before it is rounded. */
zt_err zt_all_reduce(struct zt_comm *c, const void *send, void *recv, size_t count,
                     zt_dtype dtype, zt_reduce_op op, float scale,
                     struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_reduce_scatter(struct zt_comm *c, const void *send, void *recv, size_t count,
                         zt_dtype dtype, float scale,
                         struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_all_gather(struct zt_comm *c, const void *send, void *recv, size_t count,
                     zt_dtype dtype, struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_all_to_all(struct zt_comm *c, const void *send, void *recv, size_t count,
                     zt_dtype dtype, struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_broadcast(struct zt_comm *c, void *buf, size_t count, zt_dtype dtype, int root,
                    struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_barrier(struct zt_comm *c, struct zt_fault *fault) ZT_MUST_CHECK;

/* Sums of `count` doubles in place, in rank order; for token counts and statistics. */
zt_err zt_sum_f64(struct zt_comm *c, double *values, int count,
                  struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * The same, started and left to a progress thread, or to the stream of a device. Buffers
 * stay untouched until zt_comm_wait(). Handles complete in the order they were issued, on
 * a communicator and its groups together. A blocking collective issued while some are in
 * flight runs after them.
 */
zt_err zt_all_reduce_start(struct zt_comm *c, const void *send, void *recv, size_t count,
                           zt_dtype dtype, zt_reduce_op op, float scale,
                           zt_comm_handle *out, struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_reduce_scatter_start(struct zt_comm *c, const void *send, void *recv,
                               size_t count, zt_dtype dtype, float scale,
                               zt_comm_handle *out, struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_all_gather_start(struct zt_comm *c, const void *send, void *recv, size_t count,
                           zt_dtype dtype, zt_comm_handle *out,
                           struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_broadcast_start(struct zt_comm *c, void *buf, size_t count, zt_dtype dtype,
                          int root, zt_comm_handle *out,
                          struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_comm_wait(struct zt_comm *c, zt_comm_handle handle,
                    struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Any thread, or a signal handler: turn every present and future wait into ZT_E_PEER on
 * all ranks, blaming `rank`. The daemon calls zt_comm_abort_fd() for a rank that died.
 */
void zt_comm_abort(struct zt_comm *c, int rank);

/* Any thread: whether this rank knows of a failure, without a call; and which. */
bool zt_comm_failed(const struct zt_comm *c, struct zt_fault *fault);

#endif
