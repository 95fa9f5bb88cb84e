/*
 * pmi.h -- the process manager that MPI libraries expect: PMI-1, as MPICH speaks it.
 *
 * A rank of MPICH finds a socket in PMI_FD and asks line by line who it is, leaves its
 * address for the others ("put"), waits for them ("barrier") and reads theirs ("get").
 * That is all it needs to do without mpirun. One server for the ranks of a node; those of
 * several nodes exchange what their ranks left at each barrier. docs/PROTOCOL.md has the
 * messages.
 *
 *      rank --bytes--> zt_pmi_feed() --lines--> answers by `send`
 *                            | all ranks of the node wait
 *                            v
 *          `fence` with the new pairs --> all nodes' pairs come back by zt_pmi_merge(),
 *                                         then zt_pmi_release() lets the ranks go on
 *
 * Bounds: a line has at most ZT_PMI_LINE bytes, the key-value space ZT_PMI_MAX_KEYS
 * entries of ZT_PMI_KEY and ZT_PMI_VALUE bytes at most.
 * Ownership: the server copies what it keeps; `send` gets memory for the call only.
 * Threads:   one.
 * Failure:   a rank that breaks the protocol gets rc=-1 or is no longer read from
 *            (ZT_PMI_BAD); neither harms the others.
 */
#ifndef WORKER_DAEMON_PMI_H
#define WORKER_DAEMON_PMI_H

#include "common/fault.h"

#define ZT_PMI_LINE     2048
#define ZT_PMI_NAME     256  /* kvsname_max, with the final NUL */
#define ZT_PMI_KEY      64   /* keylen_max */
#define ZT_PMI_VALUE    1024 /* vallen_max: clients split what is longer */
#define ZT_PMI_MAX_KEYS 65536

struct zt_pmi;

typedef enum zt_pmi_state {
    ZT_PMI_FINE,
    ZT_PMI_BAD,    /* it broke the protocol: listen no more */
    ZT_PMI_FAILED, /* what it said cannot be kept, or answered: it would wait for ever */
    ZT_PMI_ABORT,  /* it asks to be killed, and the job with it (MPI_Abort) */
} zt_pmi_state;

/* A line for rank `rank`, its end included. False: it cannot be sent. */
typedef bool (*zt_pmi_send_fn)(void *arg, int rank, const char *line, size_t n);

/* Every rank of this node waits; `pairs`: n bytes of "key=value" lines that they have
 * left since the last time. */
typedef void (*zt_pmi_fence_fn)(void *arg, const char *pairs, size_t n);

struct zt_pmi_config {
    int first, local, world; /* ranks first to first + local - 1 are on this node */
    const char *name;        /* becomes that of the key-value space */
    /* "(vector,(0,2,4))": which ranks share a node, as PMI_process_mapping says it; NULL:
     * left out, or (local == world) all do */
    const char *mapping;
    zt_pmi_send_fn send;
    zt_pmi_fence_fn fence; /* only called when local < world */
    void *arg;             /* of both */
};

zt_err zt_pmi_open(const struct zt_pmi_config *cfg, struct zt_pmi **out,
                   struct zt_fault *fault) ZT_MUST_CHECK;
void zt_pmi_close(struct zt_pmi *p); /* NULL is fine */

/* Bytes that rank `rank` wrote, cut anywhere. */
zt_pmi_state zt_pmi_feed(struct zt_pmi *p, int rank, const char *bytes, size_t n);

/* n bytes of "key=value" lines from other nodes. ZT_E_FORMAT: they are not;
 * ZT_E_LIMIT: too many, or too long. */
zt_err zt_pmi_merge(struct zt_pmi *p, const char *pairs, size_t n,
                    struct zt_fault *fault) ZT_MUST_CHECK;
/* All nodes have come to the barrier: its ranks go on. ZT_E_FORMAT: none waits here. */
zt_err zt_pmi_release(struct zt_pmi *p, struct zt_fault *fault) ZT_MUST_CHECK;

/* Whether the rank has called MPI_Init but not MPI_Finalize: others may wait for it. */
bool zt_pmi_needs_finalize(const struct zt_pmi *p, int rank);

/* The exit code that the rank asked for with ZT_PMI_ABORT, 1 to 255; 0: it did not. */
int zt_pmi_abort_code(const struct zt_pmi *p, int rank);

#endif
