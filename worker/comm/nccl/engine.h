/*
 * engine.h -- the engine for memory of a device: NCCL moves the bytes, sums over ranks
 * are the backend's rank_sum. What its files share; nobody else includes it.
 *
 *      engine.c         calls: queued on one stream, an event after each
 *      reduce.c         sums in rank order, in pieces through the staging memory
 *      join.c           open, split, close, memory
 *      gpu_placement.c  whether every rank has a GPU of its own
 *      watchdog.c       the thread that aborts what hangs, and how failures are reported
 *      library.c        loads NCCL
 *
 * A communicator and its groups are a family: one stream, one ring of events, one staging
 * memory, one watchdog. They fail together.
 *
 * Locks: `calls` is held over calls into NCCL and by who takes communicators away from
 * it; `lock` over the books below, and while it is held nothing is called that can wait
 * for the device. `lock` may be taken while holding `calls`.
 */
#ifndef WORKER_COMM_NCCL_ENGINE_H
#define WORKER_COMM_NCCL_ENGINE_H

#include "kernels/backend.h"
#include "worker/comm/engine.h"
#include "worker/comm/nccl/library.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <time.h>

#define ZT_NCCL_RING 256u

/* The device has passed call `number` once it has passed the event. */
struct zt_nccl_slot {
    struct zt_stream_event *event;
    uint64_t number;
    double queued_s;
    struct zt_comm_call call;
};

struct zt_nccl_group;

struct zt_nccl_family {
    const struct zt_nccl *nccl; /* NULL: a world of one */
    const struct zt_backend *be;
    struct zt_device *dev;
    struct zt_comm *host;
    bool ordered;
    double timeout_s;

    struct zt_stream *stream;
    void *native; /* the same, as NCCL wants it */
    struct zt_stream_event *main_reached;
    char *stage;
    size_t stage_bytes;

    pthread_mutex_t calls;                  /* NCCL, and the `comm` of every rank */
    pthread_mutex_t lock;                   /* the rest */
    struct zt_nccl_slot slot[ZT_NCCL_RING]; /* call n is in n % ZT_NCCL_RING, if at all */
    uint64_t queued, passed;                /* up to which number */
    double passed_s;                        /* when `passed` last grew */
    struct zt_nccl_group *groups;           /* those that are open */
    struct zt_nccl_comm *child;             /* of a split in progress */
    bool broken;
    struct zt_fault why;

    _Atomic bool stop;
    sem_t wake;
    bool watchdog_runs;
    pthread_t watchdog;
};

/* A communicator, or a group: what engine functions get as `self`. */
struct zt_nccl_group {
    struct zt_nccl_family *family;
    struct zt_nccl_comm *comm; /* NULL: a world of one, or the family is over */
    struct zt_comm *host;      /* of the same ranks; a group owns it */
    int rank, world;
    bool is_group;
    uint64_t num_issued, hash; /* how many collectives, and which */
    struct zt_comm_call last;
    struct zt_nccl_region *regions;
    struct zt_nccl_group *next; /* in the family */
};

/* ---- gpu_placement.c: what ranks exchange before NCCL starts ---- */
struct zt_nccl_placement {
    char machine[40]; /* of this boot; a container has that of its host */
    char host[64];
    char gpu[ZT_NCCL_GPU_BYTES];
    int32_t version, share_gpu, ordered;
    int32_t rc; /* why this rank cannot take part */
    char why[256];
};
void zt_nccl_placement_init(struct zt_nccl_placement *placement,
                            const struct zt_device_comm_config *cfg);
/* Collective: ZT_OK, or what is wrong with the first rank that something is wrong with,
 * on all alike. Sets what NCCL needs in the environment for a GPU that is shared. */
zt_err zt_nccl_exchange_placements(struct zt_comm *host,
                                   const struct zt_nccl_placement *mine,
                                   struct zt_fault *fault) ZT_MUST_CHECK;

/* ---- join.c ---- */
zt_err zt_nccl_open(const struct zt_device_comm_config *cfg, void **self,
                    struct zt_fault *fault) ZT_MUST_CHECK;
void zt_nccl_close(void *self);
zt_err zt_nccl_split(void *self, const int *members, int num_members, int my_index,
                     int group_id, void **group_self, struct zt_fault *fault);
zt_err zt_nccl_alloc(void *self, size_t bytes, void **out, struct zt_fault *fault);

/* ---- reduce.c: queue a reduction; world above one ---- */
zt_err zt_nccl_reduce(struct zt_nccl_group *s, const struct zt_comm_call *call,
                      struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_nccl_rank_sum(struct zt_nccl_group *s, const struct zt_comm_call *call,
                        const void *rows, int num_rows, size_t row_elems, void *out,
                        size_t count, struct zt_fault *fault) ZT_MUST_CHECK;

/* ---- watchdog.c ---- */
zt_err zt_nccl_watchdog_start(struct zt_nccl_family *f,
                              struct zt_fault *fault) ZT_MUST_CHECK;
/* After this nothing of a family that is broken is left in NCCL. */
void zt_nccl_watchdog_stop(struct zt_nccl_family *f);

/* Any thread: is the family broken? Then *fault says why. */
bool zt_nccl_is_broken(struct zt_nccl_family *f, struct zt_fault *fault);
/* Mark the family as broken. The first fault is kept, and returned in `fault`. */
zt_err zt_nccl_break(struct zt_nccl_family *f, struct zt_fault *fault);
/* The same, for an error number of NCCL while `doing`: unless a rank turns out to be
 * gone, which explains it better. */
zt_err zt_nccl_error(struct zt_nccl_family *f, struct zt_nccl_comm *c, const char *doing,
                     int error, struct zt_fault *fault);

/*
 * Around every call into NCCL: begin takes `calls`, unless the family is over, which is
 * the fault; end gives it back and waits until what the call started is on the stream.
 */
zt_err zt_nccl_begin(struct zt_nccl_family *f, struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_nccl_end(struct zt_nccl_group *s, const char *doing, int error,
                   struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Wait until nothing is in progress on a communicator that the watchdog does not know
 * yet. On failure it is aborted.
 */
zt_err zt_nccl_settle(struct zt_nccl_family *f, struct zt_nccl_comm *c, const char *doing,
                      struct zt_fault *fault) ZT_MUST_CHECK;

static inline double zt_nccl_now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
