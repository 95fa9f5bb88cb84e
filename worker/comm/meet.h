/*
 * meet.h -- how the ranks of a node find each other, wait, and notice what is wrong.
 *
 *      join: map, announce, wait for all     begin: publish what I want, wait, compare
 *      sync: a barrier                       leave: unmap
 *
 * Invariant: between two barriers a rank writes only what no other rank reads.
 * Ownership: the mapping is the meeting's, the descriptor is the caller's.
 * Threads:   one at a time; zt_meet_abort() from any, and from a signal handler.
 * Failure:   ZT_E_PEER and no way on: a rank is missing, gone, or wants something else.
 */
#ifndef WORKER_COMM_MEET_H
#define WORKER_COMM_MEET_H

#include "worker/comm/engine.h"
#include "worker/comm/shm_layout.h"

struct zt_meet {
    struct zt_shm_head *head;
    struct zt_shm_line *line; /* (world) */
    char *area;               /* of rank 0; the next is area_bytes further */
    size_t area_bytes, heap_bytes, shared_bytes, map_bytes;
    int fd, rank, world;
    uint32_t phase; /* barriers this rank arrived at */
    uint64_t seq;   /* calls this rank began */
    unsigned spin;  /* turns a wait spins before it sleeps; follows what paid off */
    double timeout_s;
    const char *doing; /* the name of the call, for messages */
};

zt_err zt_meet_join(struct zt_meet *m, const struct zt_comm_config *cfg,
                    struct zt_fault *fault) ZT_MUST_CHECK;
void zt_meet_leave(struct zt_meet *m); /* a zeroed or half-joined one is fine */

/*
 * Start call number seq: `mine` is completed, published and compared. On success *all
 * gives the header of rank r as all(m, r); it stays until the call after the next.
 */
zt_err zt_meet_begin(struct zt_meet *m, const struct zt_comm_call *call,
                     struct zt_shm_header *mine, struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_meet_sync(struct zt_meet *m, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_meet_abort(struct zt_meet *m, int rank);

/* Of the call that began last. */
static inline const struct zt_shm_header *zt_meet_header(const struct zt_meet *m,
                                                         int rank)
{
    return &m->line[rank].call[m->seq & 1];
}

/* The parts of a rank's area. */
static inline char *zt_meet_small(const struct zt_meet *m, int rank, uint64_t seq)
{
    return m->area + (size_t)rank * m->area_bytes + (seq & 1) * ZT_SHM_SMALL_BYTES;
}

static inline char *zt_meet_slot(const struct zt_meet *m, int rank, size_t turn)
{
    return m->area + (size_t)rank * m->area_bytes + 2 * ZT_SHM_SMALL_BYTES +
           (turn & 1) * ZT_SHM_SLOT_BYTES;
}

static inline char *zt_meet_result(const struct zt_meet *m, int rank, size_t turn)
{
    return zt_meet_slot(m, rank, turn) + 2 * ZT_SHM_SLOT_BYTES;
}

static inline char *zt_meet_heap(const struct zt_meet *m, int rank)
{
    return m->area + (size_t)rank * m->area_bytes + 2 * ZT_SHM_SMALL_BYTES +
           4 * ZT_SHM_SLOT_BYTES;
}

/* What all ranks have in common, behind the last area. */
static inline char *zt_meet_shared(const struct zt_meet *m)
{
    return m->area + (size_t)m->world * m->area_bytes;
}

/* Give [at, at + bytes) of the mapping memory, so that no access can be refused later. */
zt_err zt_meet_reserve(struct zt_meet *m, const void *at, size_t bytes,
                       struct zt_fault *fault) ZT_MUST_CHECK;

#endif
