/*
 * tcp_wire.h -- messages over TCP: a connection for each pair of ranks, and no library.
 *
 * The connections are made when the wire is asked for, over the way that cfg->meeting
 * shows, and stay until the process ends. A frame in front of each message has its tag
 * and its length, both of 32 bits in the order of the machine.
 *
 * A connection that ends without a goodbye is a rank that is gone, and so is one whose
 * host has not answered for 40 s. (TCP_USER_TIMEOUT would also end connections of ranks
 * that were suspended and go on.)
 *
 * Memory: O(world). What comes before anybody asks for it is kept; of a rank that is
 * EARLY_BYTES (64 MiB) ahead nothing more is read until some of it was taken.
 */
#ifndef WORKER_COMM_TCP_WIRE_H
#define WORKER_COMM_TCP_WIRE_H

#include "worker/comm/comm.h"
#include "worker/comm/wire.h"

/*
 * Collective on the first call in a process, which connects all ranks of cfg within its
 * timeout; the same wire from then on. ZT_E_UNSUPPORTED: no cfg->meeting; ZT_E_USAGE: its
 * host is no host; ZT_E_PEER naming the rank that is not to be reached or did not come.
 */
zt_err zt_tcp_wire(const struct zt_comm_config *cfg, const struct zt_wire **out,
                   struct zt_fault *fault) ZT_MUST_CHECK;

#endif
