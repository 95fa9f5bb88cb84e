/*
 * mesh.h -- ranks that know each other by messages alone: how they meet, agree on each
 * call, wait, and notice what is wrong. The counterpart of meet.h, over a wire (wire.h).
 *
 *      begin   every rank sends every other a header: what it wants. A short payload
 *              rides along, so that a small collective is done when begin is
 *      post    messages into one of the batches, which
 *      wait    waits for
 *
 * Waits poll: for a moment at full speed, then asleep in between, so that ranks that
 * share cores do not burn them. A wait ends by messages, by its deadline, by an abort
 * (of this process, a message from a peer, or the word that the node daemon sets in the
 * shared memory for a rank that died).
 * A group lives on its parent's wire under tags of its own and shares its fate.
 *
 * Ownership: zt_mesh_open() and zt_mesh_split() allocate, zt_mesh_close() frees.
 * Threads:   one at a time, for a mesh and its groups together; zt_mesh_abort() from any,
 *            and from a signal handler.
 * Failure:   ZT_E_PEER and no way on, for the mesh and all of its groups. Ranks in
 *            messages are those of the mesh that was opened, not of the group.
 */
#ifndef WORKER_COMM_MESH_H
#define WORKER_COMM_MESH_H

#include "worker/comm/engine.h"
#include "worker/comm/wire.h"

#define ZT_MESH_SMALL_BYTES ((size_t)ZT_COMM_F64_MAX * sizeof(double))
#define ZT_MESH_BATCHES     4 /* two kinds of message, two turns of each */

/* What a rank wants from its call number `seq`; travels in front of its payload. */
struct zt_mesh_header {
    uint64_t seq, count;
    uint32_t scale_bits;
    int32_t root;
    int32_t next_tags; /* the first tags that are free on this rank */
    uint8_t op, dtype, reduce;
    uint8_t flags; /* ZT_MESH_NO_MEMORY; may differ between ranks */
};
_Static_assert(sizeof(struct zt_mesh_header) == 32, "payloads behind it are aligned");

#define ZT_MESH_NO_MEMORY 1u

struct zt_mesh_family; /* what a mesh and its groups share */

struct zt_mesh {
    struct zt_mesh_family *family;
    const struct zt_wire *wire;
    int rank, world;
    int *member;       /* (world) ranks of the wire */
    int tags;          /* ours: headers, and one for each kind of batch */
    uint64_t seq;      /* calls begun */
    const char *doing; /* the name of the call, for messages */
    bool background;   /* of the call: do not spin */
    unsigned spin;     /* polls before a wait sleeps; follows what paid off */
    struct zt_wire_batch *batch[ZT_MESH_BATCHES];
    struct zt_wire_batch *headers;
    char *out, *in; /* (world) slots: a header and room for a payload */
};

/* The payloads of a call: `bytes` to each rank, at send, or at send + rank * stride. */
struct zt_mesh_small {
    const void *send;
    size_t bytes, stride;
};

/* Start the wire if need be (one in a process), and meet all ranks of cfg. Collective. */
zt_err zt_mesh_open(const struct zt_comm_config *cfg, const struct zt_wire *wire,
                    struct zt_mesh **out, struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * As zt_comm_engine.split. ZT_E_NOMEM, on all ranks alike: some rank has no memory for
 * the group, or says so with `no_memory`.
 */
zt_err zt_mesh_split(struct zt_mesh *m, const int *members, int num_members, int my_index,
                     bool no_memory, struct zt_mesh **out,
                     struct zt_fault *fault) ZT_MUST_CHECK;

/* Tells the others, waits for nobody; groups go first. NULL is fine. */
void zt_mesh_close(struct zt_mesh *m);

/* Exchange what all want, and the payloads; ZT_E_PEER if they differ. */
zt_err zt_mesh_begin(struct zt_mesh *m, const struct zt_comm_call *call, uint8_t flags,
                     const struct zt_mesh_small *small,
                     struct zt_fault *fault) ZT_MUST_CHECK;

/* Of the call that began last: what rank `rank` of the group sent, until the next. */
const struct zt_mesh_header *zt_mesh_header(const struct zt_mesh *m, int rank);
const void *zt_mesh_payload(const struct zt_mesh *m, int rank);

/*
 * Into batch b; b / 2 is the kind: a message meets a receive of its kind, in order. At
 * most a send and a receive per rank. Errors come out of the wait.
 */
void zt_mesh_send(struct zt_mesh *m, int b, const void *at, size_t bytes, int to);
void zt_mesh_recv(struct zt_mesh *m, int b, void *at, size_t bytes, int from);
zt_err zt_mesh_wait(struct zt_mesh *m, int b, struct zt_fault *fault) ZT_MUST_CHECK;

void zt_mesh_abort(struct zt_mesh *m, int rank);
/*
 * Any thread: whether this process or the node daemon says that it is over, or the wire
 * that a rank is gone. What a peer says by a message is heard by waits alone.
 */
bool zt_mesh_failed(const struct zt_mesh *m, struct zt_fault *fault);

#endif
