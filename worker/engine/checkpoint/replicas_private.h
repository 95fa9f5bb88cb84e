/*
 * replicas_private.h -- what replicas.c (the memory, and filling it) and
 * replicas_resume.c share.
 */
#ifndef WORKER_ENGINE_CHECKPOINT_REPLICAS_PRIVATE_H
#define WORKER_ENGINE_CHECKPOINT_REPLICAS_PRIVATE_H

#include "worker/checkpoint/replica.h"
#include "worker/engine/checkpoint/private.h"
#include "worker/engine/checkpoint/replicas.h"

#define ZT_REPLICAS_CHUNK ((size_t)1 << 20) /* bytes of a message between owners */
#define ZT_REPLICAS_GROUP 3 /* nodes at most that keep copies for each other */

/* A part of what a rank owns: its data follow the table, each at a multiple of 8. */
struct zt_replica_part {
    int32_t kind, param;
    int64_t first, elems;
};

/* From a rank to the one that keeps its copies: both of them have one. */
struct zt_replica_link {
    struct zt_comm *comm;  /* of these two; NULL: not this rank's */
    zt_comm_handle flying; /* the last that was started; 0: none */
};

struct zt_replicas {
    struct zt_replica *store;
    struct zt_ckpt_state state;
    struct zt_replica_part *parts; /* this rank's, in the order of the data */
    int64_t num_parts;
    /* The ranks of other nodes at this rank's place, by node: each keeps copies of the one
     * before it, the first of the last. 1: one node, no copies. */
    int num_members, member; /* this rank's place among them */
    struct zt_replica_link
        link[ZT_REPLICAS_GROUP]; /* of two members the first serves both */
    int64_t flying_step;         /* of the copies that are on their way; 0: none are */
    char *chunk;                 /* (ZT_REPLICAS_CHUNK) */
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
 * Start to send what member `owner` of this rank's group owns to its keeper, or (`back`)
 * the copy back to the owner. Called by all members, in the same order; those that it does
 * not concern do nothing. The areas are in use until zt_replicas_wait().
 */
zt_err zt_replicas_send(struct zt_replicas *x, int owner, bool back, int slot,
                        struct zt_fault *fault) ZT_MUST_CHECK;
/* Until all that was sent is there. */
zt_err zt_replicas_wait(struct zt_replicas *x, struct zt_fault *fault) ZT_MUST_CHECK;
/* The rank that is member `i` of this rank's group. */
int zt_replicas_member_rank(const struct zt_run *run, int i);

#endif
