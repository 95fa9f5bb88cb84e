/*
 * mesh.h -- ranks that exchange messages with every other: how they connect, agree on
 * each call, wait, and notice failures. The counterpart of shm/group.h, over a transport.
 *
 *      begin       every rank sends every other a header that says what it wants. A short
 *                  payload travels with it: a small collective is done when begin returns
 *      send, recv  post messages into a batch
 *      wait        until a batch is complete
 *
 * Waits poll: for a moment at full speed, then with sleeps in between, so that ranks that
 * share cores do not burn them. A wait ends when its messages are complete, at its
 * deadline, or by an abort (of this process, by a message from a peer, or by the abort
 * word that the node daemon sets in shared memory for a rank that died).
 * A group uses its parent's transport with tags of its own, and fails with it.
 *
 * Ownership: zt_mesh_open() and zt_mesh_split() allocate, zt_mesh_close() frees.
 * Threads:   one at a time, for a mesh and its groups together; zt_mesh_abort() from any,
 *            and from a signal handler.
 * Failure:   ZT_E_PEER or ZT_E_LOST and no way on, for the mesh and all of its groups. Ranks in
 *            messages are those of the mesh that was opened, not of the group.
 */
#ifndef WORKER_COMM_MESH_MESH_H
#define WORKER_COMM_MESH_MESH_H

#include "worker/comm/engine.h"
#include "worker/comm/mesh/transport.h"

#define ZT_MESH_SMALL_BYTES ((size_t)ZT_COMM_F64_MAX * sizeof(double))
#define ZT_MESH_BATCHES     4 /* two kinds of message, two turns of each */

/* Which call a rank has issued as its number `seq`; travels in front of its payload. */
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

struct zt_mesh_family; /* what a mesh and its groups have in common */

struct zt_mesh {
    struct zt_mesh_family *family;
    const struct zt_transport *transport;
    int rank, world;
    int *member;           /* (world) ranks of the transport */
    int tags;              /* the first of ours: headers, one for each kind of batch */
    uint64_t seq;          /* calls begun */
    const char *call_name; /* the name of the call, for messages */
    bool background;       /* of the call: do not spin */
    unsigned spin;         /* polls before a wait sleeps; follows what paid off */
    struct zt_transport_batch *batch[ZT_MESH_BATCHES];
    struct zt_transport_batch *headers;
    char *out, *in;            /* (world) slots: a header and room for a payload */
    struct zt_mesh *next_kept; /* after closing, in zt_mesh_process.kept */
};

/* The payloads of a call: `bytes` to each rank, at send, or at send + rank * stride. */
struct zt_mesh_small {
    const void *send;
    size_t bytes, stride;
};

/* Collective over all ranks of cfg. Starts the transport, of which a process has one, if
 * nobody has. */
zt_err zt_mesh_open(const struct zt_comm_config *cfg,
                    const struct zt_transport *transport, struct zt_mesh **out,
                    struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * As zt_comm_engine.split. ZT_E_NOMEM, on all ranks alike: some rank has no memory for
 * the group, or says so with `no_memory`.
 */
zt_err zt_mesh_split(struct zt_mesh *m, const int *members, int num_members, int my_index,
                     bool no_memory, struct zt_mesh **out,
                     struct zt_fault *fault) ZT_MUST_CHECK;

/* Tells the others, but does not wait for them. Groups are closed first. NULL is fine. */
void zt_mesh_close(struct zt_mesh *m);

/* Exchange headers and payloads; ZT_E_PEER if ranks issued different calls. */
zt_err zt_mesh_begin(struct zt_mesh *m, const struct zt_comm_call *call, uint8_t flags,
                     const struct zt_mesh_small *small,
                     struct zt_fault *fault) ZT_MUST_CHECK;

/* What rank `rank` of the group sent with the last call; valid until the next. */
const struct zt_mesh_header *zt_mesh_header(const struct zt_mesh *m, int rank);
const void *zt_mesh_payload(const struct zt_mesh *m, int rank);

/*
 * Post into batch b. b / 2 is its kind: sends match receives of the same kind, in order.
 * At most one send and one receive per rank. The wait reports errors.
 */
void zt_mesh_send(struct zt_mesh *m, int b, const void *at, size_t bytes, int to);
void zt_mesh_recv(struct zt_mesh *m, int b, void *at, size_t bytes, int from);
zt_err zt_mesh_wait(struct zt_mesh *m, int b, struct zt_fault *fault) ZT_MUST_CHECK;

void zt_mesh_abort(struct zt_mesh *m, int rank);
/*
 * Any thread: whether a call has failed, this process or the node daemon has aborted, or
 * the transport has lost a rank. An abort message of a peer is received by waits only.
 */
bool zt_mesh_failed(const struct zt_mesh *m, struct zt_fault *fault);

#endif
