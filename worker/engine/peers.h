/*
 * peers.h -- how this rank comes to the memory that it shares with the others, or to
 * connections with them.
 *
 * zlaunch hands it down, and its daemon watches the ranks. Ranks that others started
 * (torchrun, srun, scripts) meet in a store, pass it on between them, and watch each
 * other: one that ends without having said so turns every wait of the others into an
 * error. Ranks of several machines have no such memory: unless MPI connects them they
 * meet in a store as well, which zlaunch gives the secret for, and connect (engine tcp).
 * Under MPI nothing is needed.
 */
#ifndef WORKER_ENGINE_PEERS_H
#define WORKER_ENGINE_PEERS_H

#include "worker/config/run.h"
#include "worker/comm/comm.h"

struct zt_peers;

/*
 * Collective where there is a rendezvous. *fd: for zt_comm_config.shm_fd; -1: none is
 * needed. It stays open until the process ends. *out may be NULL: nobody to watch. Waits
 * ZLAUNCH_RENDEZVOUS_TIMEOUT seconds, or else --ddp_timeout, for ranks that have not
 * started yet.
 */
zt_err zt_peers_open(const struct zt_run *run, struct zt_peers **out, int *fd,
                     struct zt_fault *fault) ZT_MUST_CHECK;
/* For zt_comm_config.bootstrap; NULL: there is none, nor a need for one. */
const struct zt_comm_bootstrap *zt_peers_bootstrap(const struct zt_peers *p);
/* The run ended in order: after the last collective. NULL is fine. */
void zt_peers_leave(struct zt_peers *p);
void zt_peers_close(struct zt_peers *p); /* NULL is fine */

#endif
