/*
 * replicas_private.h -- what replicas.c (the memory, and filling it) and
 * replicas_resume.c share.
 */
#ifndef WORKER_ENGINE_CHECKPOINT_REPLICAS_PRIVATE_H
#define WORKER_ENGINE_CHECKPOINT_REPLICAS_PRIVATE_H

#include "worker/checkpoint/replica.h"
#include "worker/engine/checkpoint/private.h"
#include "worker/engine/checkpoint/replicas.h"

#define ZT_REPLICAS_CHUNK ((size_t)1 << 20) /* bytes of a message */

/* A part of what a rank owns: its data follow the table, each at a multiple of 8. */
struct zt_replica_part {
    int32_t kind, param;
    int64_t first, elems;
};

struct zt_replicas {
    struct zt_replica *store;
    struct zt_ckpt_state state;
    struct zt_replica_part *parts; /* this rank's, in the order of the data */
    int64_t num_parts;
    /* with the ranks of other nodes at this rank's place, by node; NULL: one node */
    struct zt_comm *group;
    size_t most_bytes; /* of an area of the group's */
    char *chunk;       /* (ranks of the group, ZT_REPLICAS_CHUNK) */
};

static inline int zt_replicas_slot(const struct zt_run *run, int64_t step)
{
    return (int)(step / run->checkpoint_in_memory % ZT_REPLICA_SLOTS);
}

/* The rank that keeps copies of what rank `rank` owns; -1: none. */
int zt_replicas_keeper(const struct zt_run *run, int rank);
/* Bytes of a part. */
size_t zt_replicas_part_bytes(const struct zt_replicas *x,
                              const struct zt_replica_part *p);
/* Bytes before the data, and from the data of one part to those of the next. */
size_t zt_replicas_table_bytes(int64_t num_parts);
size_t zt_replicas_align(size_t bytes);

/*
 * Collective. An area of each rank into an area of another one of its group, if that takes
 * it: own ones to keepers, or copies back to whose they are.
 */
zt_err zt_replicas_move(struct zt_engine *e, zt_replica_whose from, int slot, bool take,
                        struct zt_fault *fault) ZT_MUST_CHECK;

#endif
