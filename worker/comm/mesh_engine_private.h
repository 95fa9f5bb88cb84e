/*
 * mesh_engine_private.h -- inside the engines on a mesh: mesh_engine.c, and mesh_nodes.c
 * for groups over several nodes with several ranks each. Nobody else includes it.
 */
#ifndef WORKER_COMM_MESH_ENGINE_PRIVATE_H
#define WORKER_COMM_MESH_ENGINE_PRIVATE_H

#include "worker/comm/engine.h"
#include "worker/comm/mesh.h"

/* A piece that goes straight to its place. */
#define ZT_MESH_MOVE_BYTES ((size_t)8 << 20)

/* Batches: what is summed or moved, and the results that go out. By turn. */
#define BATCH_IN(turn)  ((int)((turn)&1))
#define BATCH_OUT(turn) (2 + (int)((turn)&1))

/* Memory from engine_alloc(). */
struct region {
    struct region *next;
    void *at;
    size_t bytes;
};

struct mesh_engine {
    struct zt_mesh *mesh;
    int rank, world;
    int node_ranks;     /* neighbours that share a node, on several nodes alike; else 0 */
    size_t piece_bytes; /* of one rank in the stage */
    char *stage;        /* (2, world, piece_bytes) */
    const void **src;   /* (world) */
    struct region *regions;
};

/*
 * An all_gather of long messages over nodes: ranks of the same place on each node
 * exchange their pieces first, then the ranks of a node what each has got. So a piece
 * crosses to another node once, not once for each of its ranks.
 */
zt_err zt_mesh_gather_nodes(struct mesh_engine *s, const struct zt_comm_call *call,
                            size_t bytes, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
