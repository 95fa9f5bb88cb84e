/*
 * peers.h -- how this rank comes to the memory that it shares with the others.
 *
 * zlaunch hands it down. Ranks that others started (torchrun, srun, scripts) meet in a
 * store and pass it on between them; under MPI nothing is needed.
 */
#ifndef WORKER_ENGINE_PEERS_H
#define WORKER_ENGINE_PEERS_H

#include "common/run.h"

/*
 * Collective where there is a rendezvous. *fd: for zt_comm_config.shm_fd; -1: none is
 * needed. It stays open until the process ends. Waits ZLAUNCH_RENDEZVOUS_TIMEOUT seconds
 * (300) for ranks that have not started yet.
 */
zt_err zt_peers_shm_fd(const struct zt_run *run, int *fd,
                       struct zt_fault *fault) ZT_MUST_CHECK;

#endif
