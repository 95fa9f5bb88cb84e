/*
 * mesh_private.h -- what mesh.c (waiting, calls) and mesh_join.c (coming, going) share.
 * Nobody else includes it.
 */
#ifndef WORKER_COMM_MESH_PRIVATE_H
#define WORKER_COMM_MESH_PRIVATE_H

#include "worker/comm/mesh.h"
#include "worker/comm/shm_layout.h"

#include <time.h>

/*
 * Tags. 0 is for the first headers of a mesh, when nobody knows yet what is free. From
 * then on a mesh and each group have four: headers, two kinds of batch, and (of the mesh
 * alone) aborts. Ranks may have made different numbers of groups, so a new one takes the
 * largest of what its ranks have free; groups of one split have no rank in common and
 * can have the same.
 */
enum {
    ZT_MESH_TAG_HEADER,
    ZT_MESH_TAG_BATCH,
    ZT_MESH_TAG_ABORT = 3,
    ZT_MESH_NUM_TAGS,
    ZT_MESH_TAG_LOBBY = 0,
};
#define ZT_MESH_OP_CLOSED  255u /* in a header: this rank has left */
#define ZT_MESH_OP_ABORT   254u /* and: it is over, count says why as in shm_layout.h */
#define ZT_MESH_SLEEP_NS   50000
#define ZT_MESH_SPIN_MAX   1024u
#define ZT_MESH_SLOT_BYTES (sizeof(struct zt_mesh_header) + ZT_MESH_SMALL_BYTES)

struct zt_mesh_family {
    int rank, world; /* of the wire */
    int abort_tag;   /* 0: not yet known */
    double timeout_s;
    struct zt_shm_head *head; /* where the daemon tells of dead ranks; NULL: no daemon */
    _Atomic uint32_t abort;   /* as in shm_layout.h */
    bool is_dead;
    int error;      /* of the wire, found outside a wait */
    double lost_at; /* as zt_mesh_lost() has it */
};

/* What one process has one of, since the library has. */
struct zt_mesh_process {
    bool is_up, failed;
    int rank, world, max_tag, next_tags;
    long owed; /* headers of ranks that left, of closed meshes, still to come */
    double timeout_s;
    const struct zt_wire *wire;
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

/* Until all is sent, or a moment has passed: whoever should take it may be gone. */
bool zt_mesh_flush(const struct zt_mesh *m, struct zt_wire_batch *b);

/*
 * A rank that nobody here waits for may be gone: its error, once it had its say; else 0.
 * *lost_at: when this was first seen; 0 before.
 */
int zt_mesh_lost(const struct zt_wire *wire, double *lost_at);

/* The end of the family: tell the others `word`, if they cannot know. */
void zt_mesh_die(struct zt_mesh *m, uint32_t word, bool tell);

#endif
