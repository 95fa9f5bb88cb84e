/*
 * abort.h -- abort the collectives of a node whose rank has died.
 *
 * For the node daemon, which made the memory (memfd_create) and never joins the group.
 */
#ifndef WORKER_COMM_SHM_ABORT_H
#define WORKER_COMM_SHM_ABORT_H

/*
 * Every present and future wait of the group on `shm_fd` ends with ZT_E_PEER blaming
 * `rank`; the first rank blamed stays. Works before any rank has opened it. Does not
 * block. A descriptor that cannot be mapped is left alone: then no rank can be waiting
 * there.
 */
void zt_comm_abort_fd(int shm_fd, int rank);

#endif
