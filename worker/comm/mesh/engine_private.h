/*
 * engine_private.h -- what engine.c (open, memory, groups), collectives.c and
 * hierarchical.c (all_gather over nodes) share. Nobody else includes it.
 */
#ifndef WORKER_COMM_MESH_ENGINE_PRIVATE_H
#define WORKER_COMM_MESH_ENGINE_PRIVATE_H

#include "worker/comm/engine.h"
#include "worker/comm/mesh/mesh.h"

/* Of a piece that is received straight into the caller's buffer. */
#define ZT_MESH_MOVE_BYTES ((size_t)8 << 20)

/* Batches of step `turn`: what is summed or moved, and the results that go out. */
#define BATCH_IN(turn)  ((int)((turn)&1))
#define BATCH_OUT(turn) (2 + (int)((turn)&1))

/* Memory from engine_alloc(). */
struct mesh_region {
    struct mesh_region *next;
    void *at;
    size_t bytes;
};

struct mesh_engine {
    struct zt_mesh *mesh;
    int rank, world;
    int node_ranks;     /* ranks per node where that is the same on several; else 0 */
    size_t piece_bytes; /* of one rank in the staging buffer */
    char *stage;        /* the staging buffer: (2, world, piece_bytes) */
    const void **src;   /* (world) */
    struct mesh_region *regions;
};

/*
 * A collective whose messages are too long to travel with the headers; `bytes` of a
 * rank's piece. Begun by zt_mesh_begin().
 */
zt_err zt_mesh_run_long(struct mesh_engine *s, const struct zt_comm_call *call,
                        size_t bytes, struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * An all_gather of long messages over nodes: ranks with the same index on each node
 * exchange their pieces first, then the ranks of a node share what each has received. So
 * a piece crosses to another node once, not once for each of its ranks.
 */
zt_err zt_mesh_hierarchical_gather(struct mesh_engine *s, const struct zt_comm_call *call,
                                   size_t bytes, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
