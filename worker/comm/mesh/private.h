/*
 * private.h -- what mesh.c (calls, waits) and join.c (open, split, close) share. Nobody
 * else includes it.
 */
#ifndef WORKER_COMM_MESH_PRIVATE_H
#define WORKER_COMM_MESH_PRIVATE_H

#include "worker/comm/mesh/mesh.h"
#include "worker/comm/shm/layout.h"

#include <time.h>

/*
 * Tags. 0 is for the first headers of a mesh, when ranks do not know yet which tags are
 * free. From then on a mesh and each group have four: headers, two kinds of batch, and
 * (of the mesh alone) aborts. Ranks may have made different numbers of groups, so a new
 * one begins at the largest first free tag of its ranks. Groups of one split have no rank
 * in common and can use the same tags.
 */
enum {
    ZT_MESH_TAG_HEADER,
    ZT_MESH_TAG_BATCH,
    ZT_MESH_TAG_ABORT = 3,
    ZT_MESH_NUM_TAGS,
    ZT_MESH_TAG_OPEN = 0,
};
#define ZT_MESH_OP_CLOSED  255u /* in a header: this rank has left */
#define ZT_MESH_OP_ABORT   254u /* and: abort; count is the abort word of shm/layout.h */
#define ZT_MESH_SLEEP_NS   50000
#define ZT_MESH_SPIN_MAX   1024u
#define ZT_MESH_SLOT_BYTES (sizeof(struct zt_mesh_header) + ZT_MESH_SMALL_BYTES)

struct zt_mesh_family {
    int rank, world; /* of the transport */
    int abort_tag;   /* 0: not yet known */
    double timeout_s;
    struct zt_shm_head *head; /* of the node daemon, for dead ranks; NULL: no daemon */
    _Atomic uint32_t abort;   /* the abort word of shm/layout.h; 0: none */
    bool has_ended;
    _Atomic uint32_t end_word; /* the abort word it failed with; 0: it has not */
    int error;                 /* of the transport, found outside a wait */
    double lost_at;            /* as zt_mesh_find_lost() has it */
};

/* What a process has one of, since the transport's library has. */
struct zt_mesh_process {
    bool is_up, failed;
    int rank, world, max_tag, next_tags;
    /* "closed" headers for meshes that this rank has closed, still to be received */
    long num_unreceived_closes;
    double timeout_s;
    const struct zt_transport *transport;
    struct zt_mesh *kept; /* closed ones: the transport may still read their `out` */
};
extern struct zt_mesh_process zt_mesh_process;

static inline double zt_mesh_now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline void zt_mesh_sleep_ns(long ns)
{
    struct timespec t = {0, ns};

    nanosleep(&t, NULL);
}

/* Wait until all is sent, but only a moment: the receiver may be gone. */
bool zt_mesh_flush(const struct zt_mesh *m, struct zt_transport_batch *b);

/*
 * The error of a rank that is gone, also one that this wait does not need; else 0. It is
 * reported after a delay in which messages that explain it can arrive. *lost_at: when it
 * was first seen; 0 before.
 */
int zt_mesh_find_lost(const struct zt_transport *transport, double *lost_at);

/* Mark the family as failed. `tell`: send the abort word to the others, too. */
void zt_mesh_end(struct zt_mesh *m, uint32_t word, bool tell);

#endif
