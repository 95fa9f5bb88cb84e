/*
 * group.h -- ranks of a node on shared memory: how they join, wait, and notice failures.
 *
 *      join: map, announce, wait for all     begin: publish the call, barrier, compare
 *      split: a group of some of them        barrier
 *      alloc: more of the file for all       leave: unmap
 *
 * Invariant: between two barriers a rank writes only what no other rank reads.
 * Ownership: the mappings are the group's, the descriptor is the caller's.
 * Threads:   one at a time; zt_shm_group_abort() from any, and from a signal handler.
 * Failure:   ZT_E_PEER, for good: a rank is missing, gone, or has issued another call.
 */
#ifndef WORKER_COMM_SHM_GROUP_H
#define WORKER_COMM_SHM_GROUP_H

#include "worker/comm/engine.h"
#include "worker/comm/shm/heap.h"
#include "worker/comm/shm/layout.h"

#define ZT_SHM_SPIN_START 256u

struct zt_shm_group {
    struct zt_shm_head *head;
    struct zt_shm_head *file; /* the head of the whole file: `head`, or not in a group */
    struct zt_shm_line *line; /* (world) */
    char *area;               /* of rank 0; the next is ZT_SHM_AREA_BYTES further */
    uint64_t file_off;        /* of `head` */
    struct zt_heap heap;
    int fd, rank, world;
    int *global_rank; /* (world) ranks of the first world, for messages; NULL: as here */
    uint32_t phase;   /* barriers this rank arrived at */
    uint32_t call_phase; /* the one at which the last call began */
    uint64_t seq;        /* calls this rank began */
    unsigned waits;      /* so far */
    unsigned spin;       /* turns a wait spins before it sleeps; follows what paid off */
    bool background;     /* the call that runs is in the background: sleep soon */
    double timeout_s;
    const char *call_name; /* the name of the call, for messages */
};

zt_err zt_shm_group_join(struct zt_shm_group *g, const struct zt_comm_config *cfg,
                         struct zt_fault *fault) ZT_MUST_CHECK;
void zt_shm_group_leave(struct zt_shm_group *g); /* a zeroed or half-joined one is fine */

/*
 * `members` of g, the caller being members[my_index], become the group `child`. All ranks
 * of g call it. ZT_E_NOMEM, on all alike, breaks nothing. g outlives the child.
 */
zt_err zt_shm_group_split(struct zt_shm_group *g, const int *members, int num_members,
                          int my_index, struct zt_shm_group *child,
                          struct zt_fault *fault) ZT_MUST_CHECK;

/* A piece of the file that ranks allocate together. */
struct zt_shm_piece {
    int leader;      /* the rank that reserves it and publishes its offset */
    size_t bytes;    /* pages */
    size_t from, to; /* the part that this rank allocates pages for, bytes */
};

/*
 * Start call number seq, for one piece of zeroed memory per leader, each rank naming its
 * own. All pages are allocated, so that no access can fail later. ZT_E_NOMEM, on all
 * ranks of g alike: a rank has no memory or no addresses; nothing has changed. On success
 * the caller owns the mapping *out.
 */
zt_err zt_shm_group_alloc(struct zt_shm_group *g, const struct zt_comm_call *call,
                          const struct zt_shm_piece *piece, struct zt_heap_region *out,
                          struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Start call number seq: `mine` is completed, published and compared. On success
 * zt_shm_group_header() gives that of each rank; it stays until the caller arrives at the
 * next barrier.
 */
zt_err zt_shm_group_begin(struct zt_shm_group *g, const struct zt_comm_call *call,
                          struct zt_shm_header *mine,
                          struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_shm_group_barrier(struct zt_shm_group *g, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_shm_group_abort(struct zt_shm_group *g, int rank);
/* Any thread: whether the abort word is set. */
bool zt_shm_group_failed(const struct zt_shm_group *g, struct zt_fault *fault);

/* For group.c and join.c: the parts of a wait. */
double zt_shm_now_s(void);
void zt_shm_sleep(struct zt_shm_head *h, uint32_t seen, double deadline);
zt_err zt_shm_group_abort_error(const struct zt_shm_group *g, uint32_t word,
                                struct zt_fault *fault);

/* What messages call a rank of g. */
static inline int zt_shm_group_global_rank(const struct zt_shm_group *g, int rank)
{
    return g->global_rank ? g->global_rank[rank] : rank;
}

/* A rank's place for its arrival at barrier `phase`. */
static inline struct zt_shm_arrival *zt_shm_group_arrival(const struct zt_shm_group *g,
                                                          int rank, uint32_t phase)
{
    return &g->line[rank].arrival[phase & 1];
}

/* Of the call that began last. */
static inline const struct zt_shm_header *zt_shm_group_header(
    const struct zt_shm_group *g, int rank)
{
    return &zt_shm_group_arrival(g, rank, g->call_phase)->call;
}

/* The parts of a rank's area. */
static inline char *zt_shm_group_small(const struct zt_shm_group *g, int rank,
                                       uint64_t seq)
{
    return g->area + (size_t)rank * ZT_SHM_AREA_BYTES + (seq & 1) * ZT_SHM_SMALL_BYTES;
}

static inline char *zt_shm_group_slot(const struct zt_shm_group *g, int rank, size_t turn)
{
    return g->area + (size_t)rank * ZT_SHM_AREA_BYTES + 2 * ZT_SHM_SMALL_BYTES +
           (turn & 1) * ZT_SHM_SLOT_BYTES;
}

static inline char *zt_shm_group_result(const struct zt_shm_group *g, int rank,
                                        size_t turn)
{
    return zt_shm_group_slot(g, rank, turn) + 2 * ZT_SHM_SLOT_BYTES;
}

#endif
