/*
 * transport.h -- messages over TCP: a connection for each pair of ranks, and no library.
 *
 * The connections are made by the first zt_tcp_transport(), over the network that leads
 * to cfg->bootstrap's host, and stay until the process ends. A frame in front of each
 * message has its tag and its length, both of 32 bits in the machine's byte order.
 *
 * A rank whose connection ends without a goodbye frame is gone, and so is one whose host
 * has not answered for 40 s. (TCP_USER_TIMEOUT would also end connections of ranks
 * that were suspended and go on.)
 *
 * Memory: O(world). Unexpected messages, for which no receive is posted yet, are kept; a
 * rank that has sent UNEXPECTED_BYTES (64 MiB) of them is not read from until some have
 * been received.
 */
#ifndef WORKER_COMM_MESH_TCP_TRANSPORT_H
#define WORKER_COMM_MESH_TCP_TRANSPORT_H

#include "worker/comm/comm.h"
#include "worker/comm/mesh/transport.h"

/*
 * Collective on the first call in a process, which connects all ranks of cfg within its
 * timeout; the same table from then on. ZT_E_UNSUPPORTED: no cfg->bootstrap; ZT_E_USAGE:
 * its host does not resolve; ZT_E_HOST: no network leads there; ZT_E_LOST naming the rank that
 * cannot be reached or is late.
 */
zt_err zt_tcp_transport(const struct zt_comm_config *cfg, const struct zt_transport **out,
                        struct zt_fault *fault) ZT_MUST_CHECK;

#endif
