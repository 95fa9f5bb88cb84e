/*
 * meet.h -- how the ranks of a node find each other, wait, and notice what is wrong.
 *
 *      join: map, announce, wait for all     begin: publish what I want, wait, compare
 *      split: a meeting of some of them      sync: a barrier
 *      claim: more of the file for all       leave: unmap
 *
 * Invariant: between two barriers a rank writes only what no other rank reads.
 * Ownership: the mappings are the meeting's, the descriptor is the caller's.
 * Threads:   one at a time; zt_meet_abort() from any, and from a signal handler.
 * Failure:   ZT_E_PEER and no way on: a rank is missing, gone, or wants something else.
 */
#ifndef WORKER_COMM_MEET_H
#define WORKER_COMM_MEET_H

#include "worker/comm/engine.h"
#include "worker/comm/heap.h"
#include "worker/comm/shm_layout.h"

#define ZT_MEET_SPIN_START 256u

struct zt_meet {
    struct zt_shm_head *head;
    struct zt_shm_head *file; /* the head of the whole file: `head`, or not in a group */
    struct zt_shm_line *line; /* (world) */
    char *area;               /* of rank 0; the next is ZT_SHM_AREA_BYTES further */
    uint64_t file_off;        /* of `head` */
    struct zt_heap heap;
    int fd, rank, world;
    int *name;       /* (world) ranks of the first world, for messages; NULL: as here */
    uint32_t phase;  /* barriers this rank arrived at */
    uint64_t seq;    /* calls this rank began */
    unsigned waits;  /* so far */
    unsigned spin;   /* turns a wait spins before it sleeps; follows what paid off */
    bool background; /* the call that runs is in the background: sleep soon */
    double timeout_s;
    const char *doing; /* the name of the call, for messages */
};

zt_err zt_meet_join(struct zt_meet *m, const struct zt_comm_config *cfg,
                    struct zt_fault *fault) ZT_MUST_CHECK;
void zt_meet_leave(struct zt_meet *m); /* a zeroed or half-joined one is fine */

/*
 * `members` of m, the caller being members[my_index], meet in `group` from now on. All
 * ranks of m call it. ZT_E_NOMEM, on all alike, breaks nothing. m outlives the group.
 */
zt_err zt_meet_split(struct zt_meet *m, const int *members, int num_members, int my_index,
                     struct zt_meet *group, struct zt_fault *fault) ZT_MUST_CHECK;

/* A piece of the file that ranks ask for together. */
struct zt_meet_piece {
    int leader;      /* the rank that takes it and tells the others where it is */
    size_t bytes;    /* pages */
    size_t from, to; /* the part that this rank gives memory, bytes */
};

/*
 * Start call number seq, for one piece of zeroed memory per leader, each rank naming its
 * own. All pages have memory, so that no access is refused later. ZT_E_NOMEM, on all
 * ranks of m alike: a rank has no memory or no addresses; nothing has changed. On success
 * the caller owns the mapping *out.
 */
zt_err zt_meet_claim(struct zt_meet *m, const struct zt_comm_call *call,
                     const struct zt_meet_piece *piece, struct zt_heap_region *out,
                     struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Start call number seq: `mine` is completed, published and compared. On success
 * zt_meet_header() gives that of each rank; it stays until the call after the next.
 */
zt_err zt_meet_begin(struct zt_meet *m, const struct zt_comm_call *call,
                     struct zt_shm_header *mine, struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_meet_sync(struct zt_meet *m, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_meet_abort(struct zt_meet *m, int rank);
/* Any thread: whether the file says that it is over. */
bool zt_meet_failed(const struct zt_meet *m, struct zt_fault *fault);

/* For meet.c and meet_join.c: the parts of a wait. */
double zt_meet_now_s(void);
void zt_meet_sleep(struct zt_shm_head *h, uint32_t seen, double deadline);
zt_err zt_meet_aborted(const struct zt_meet *m, uint32_t word, struct zt_fault *fault);

/* What messages call a rank of m. */
static inline int zt_meet_name(const struct zt_meet *m, int rank)
{
    return m->name ? m->name[rank] : rank;
}

/* Of the call that began last. */
static inline const struct zt_shm_header *zt_meet_header(const struct zt_meet *m,
                                                         int rank)
{
    return &m->line[rank].call[m->seq & 1];
}

/* The parts of a rank's area. */
static inline char *zt_meet_small(const struct zt_meet *m, int rank, uint64_t seq)
{
    return m->area + (size_t)rank * ZT_SHM_AREA_BYTES + (seq & 1) * ZT_SHM_SMALL_BYTES;
}

static inline char *zt_meet_slot(const struct zt_meet *m, int rank, size_t turn)
{
    return m->area + (size_t)rank * ZT_SHM_AREA_BYTES + 2 * ZT_SHM_SMALL_BYTES +
           (turn & 1) * ZT_SHM_SLOT_BYTES;
}

static inline char *zt_meet_result(const struct zt_meet *m, int rank, size_t turn)
{
    return zt_meet_slot(m, rank, turn) + 2 * ZT_SHM_SLOT_BYTES;
}

#endif
