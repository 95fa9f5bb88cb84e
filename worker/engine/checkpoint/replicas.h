/*
 * replicas.h -- --checkpoint_in_memory K: after a loss of ranks or of a node training goes on
 * without reading a disk, and at most K steps are done again.
 *
 * Every K steps each rank copies what it owns, the ranges that a checkpoint has of it
 * (zt_zero_own_part), with the state of training as text, to a memory file (replica.h)
 * that the daemon of its node has made, handed down (ZLAUNCH_REPLICA_FD) and keeps: it is
 * there when the rank is gone. The step waits for that alone. Then the ranks of a job of
 * several nodes send each other what they have, so that each rank's is in the file of a rank
 * on another node as well: nodes 0 and 1 keep each other's, 2 and 3, ...; of an odd number
 * the last three go round. It goes over the connections that the ranks have, by collectives
 * of two, started here and carried beside the next step's computation; daemons only hold the
 * memory, for the next start of the job (--max_restarts).
 *
 *      rank r:   own 0 | own 1     step s is in slot s / K % 2: one slot is whole while the
 *                copy 0 | copy 1   other is filled
 *      sealed:   after all of it is there, with a checksum (xxh3)
 *
 * Messages of the ranks keep their order, so a step's sums wait for the copies of the step
 * before it: when a step is done, on any rank, these are where they belong, on all ranks.
 * Hence at most K steps are done again, whatever is lost, and one set is always whole: nobody
 * begins to fill a slot before all have finished the other one.
 *
 * A restart: all ranks tell which steps they hold and agree on the newest that everyone has,
 * in its own file or in that of its keeper; what is used is compared with its checksum first,
 * and another step is agreed on when it differs. Who has nothing of its own gets it from its
 * keeper, and the copies that are missing are made again before training goes on. If there
 * is no such step, or a checkpoint on the disk is newer, that is read, and one sentence
 * says so. On one node there are no copies: it outlasts the loss of ranks, not of the
 * node.
 *
 * Memory: two of what a rank owns, and two more with several nodes: a line of the plan. All
 * of it is taken before the first step.
 * Threads: the rank's first.
 */
#ifndef WORKER_ENGINE_CHECKPOINT_REPLICAS_H
#define WORKER_ENGINE_CHECKPOINT_REPLICAS_H

#include "worker/engine/engine.h"

/* Host memory of the run's copies, for the plan; 0: there are none. `z` may be without
 * values. */
size_t zt_replicas_bytes(const struct zt_run *run, const struct zt_model *model,
                         const struct zt_zero *z);
/* How much of it an earlier start of the job has left. */
size_t zt_replicas_bytes_there(void);

/* Collective. Nothing when the run keeps no copies. ZT_E_USAGE: nobody would keep them;
 * ZT_E_NOMEM. */
zt_err zt_replicas_open(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;
/* Before e->comm is closed. */
void zt_replicas_close(struct zt_engine *e);

/* Collective. After a step: what is due is copied. */
zt_err zt_replicas_after_step(struct zt_engine *e, int64_t step,
                              struct zt_fault *fault) ZT_MUST_CHECK;

/* Collective. In a restarted job: go on from the copies, unless the checkpoint of step
 * `saved` (0: there is none) is newer. */
zt_err zt_replicas_resume(struct zt_engine *e, int64_t saved, bool *resumed,
                          struct zt_fault *fault) ZT_MUST_CHECK;

#endif
