/*
 * nccl_wire.h -- how ranks connect, and the sockets between them.
 *
 *      the maker of the id      listens at an abstract name; a thread of its process
 *         ^      ^      ^       waits for all ranks, then hands every pair its sockets
 *       rank 0 rank 1 rank 2    and goes away
 *
 * Sockets have no name in a file system and end with the processes that hold them, so a
 * rank that is killed at any moment leaves nothing behind, and its peers see the end of
 * its sockets.
 *
 * Threads: links do not change once wire_connect() or wire_split() have returned; fail
 * and
 *          abort may be called from any thread at any time, also while those run.
 */
#ifndef SHIM_NCCL_WIRE_H
#define SHIM_NCCL_WIRE_H

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "nccl.h"

/* To one peer; -1 to oneself. */
struct wire_link {
    int coll = -1; /* collectives */
    int out = -1;  /* what this rank sends to the peer with ncclSend */
    int in = -1;   /* and receives with ncclRecv */
    int ctl = -1;  /* between rank 0 and every other: splits and ends */
};

struct wire {
    int rank = 0, num = 0;
    std::vector<wire_link> links; /* by rank */

    std::atomic<int> result{ncclSuccess}; /* an error once it has failed */
    std::atomic<bool> aborted{false};     /* by this process */
    std::atomic<bool> ending{false};      /* peers may leave */
    std::atomic<unsigned long long> num_calls{0}, num_done{0}; /* nccl_calls.cpp */
    std::mutex guard;                                          /* of fds */
    std::vector<int> fds; /* all of the above, and the way to the bootstrap */

    ~wire();
};

/* Makes an id and the thread behind it. */
ncclResult_t wire_new_id(ncclUniqueId *out);

/* What ranks must agree on, or differ in, when they connect. */
struct wire_hello {
    int num, rank;
    unsigned long long ids; /* the same for all: of the list of ids */
    char bus[32], host[96]; /* together different for all */
};
/* Waits for all ranks. */
ncclResult_t wire_connect(wire *w, const ncclUniqueId *id, const wire_hello *hello);

/* Collective. A negative color: `child` stays without a rank. */
ncclResult_t wire_split(wire *parent, int color, int key, wire *child);
/* Collective: returns when all ranks have called it. */
ncclResult_t wire_end(wire *w);

/* The communicator is of no use any more, on all ranks: they see the end of its sockets.
 * Keeps the first result. */
void wire_fail(wire *w, ncclResult_t result, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void wire_abort(wire *w);
/* Whether a peer has left without being expected to; no waiting. */
bool wire_peer_left(const wire *w, int *peer);

/* Descriptors that a forked child closes; wire_drop() closes them here. */
void wire_keep(int fd);
void wire_drop(int fd);
/* Keeps fd until the end of w. False: w has failed meanwhile, and fd is closed. */
bool wire_owns(wire *w, int fd);

/* For ncclGetLastError(); returns result. */
ncclResult_t nccl_set_error(ncclResult_t result, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
std::string nccl_last_error(void);

#endif
