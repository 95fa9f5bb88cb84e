/*
 * checkpoint.h -- all that training depends on, to disk and back, by all ranks together.
 *
 *      zt_checkpoint_save     every rank writes what it owns; nothing is gathered
 *      zt_checkpoint_begin    the same while training goes on: what is saved is copied
 *      zt_checkpoint_resume   every rank reads the ranges that it holds, whatever the
 *                             world size, stage and dtype were
 *
 * A checkpoint counts when all ranks have written their part: where one fails nobody
 * publishes, and all know whose failure it was. docs/CHECKPOINTS.md is the format.
 * Threads: the rank's first.
 * Failure: what a call returns means that the ranks have lost each other; that the disk
 *          did not take a checkpoint is *refused.
 */
#ifndef WORKER_ENGINE_CHECKPOINT_CHECKPOINT_H
#define WORKER_ENGINE_CHECKPOINT_CHECKPOINT_H

#include "worker/checkpoint/folder.h"
#include "worker/engine/control_requests.h"
#include "worker/engine/engine.h"

/* Before the first step, in a run that saves: the memory in which checkpoints wait, touched,
 * so that no step waits for its pages. */
zt_err zt_checkpoint_prepare(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Collective. After step `step`. *refused is ZT_OK, or the same on all ranks, and then
 * the text is in `fault`; the folder is as before.
 */
zt_err zt_checkpoint_save(struct zt_engine *e, const struct zt_ckpt_place *place,
                          int64_t step, zt_err *refused,
                          struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Collective. The first half of it, with nothing pending: all that is saved is in host
 * memory, or on its way to the disk when that is less (--save_memory).
 */
zt_err zt_checkpoint_begin(struct zt_engine *e, const struct zt_ckpt_place *place,
                           int64_t step, zt_err *refused,
                           struct zt_fault *fault) ZT_MUST_CHECK;
/* The step of the save that has begun and not ended, the same on all ranks; 0: none. */
int64_t zt_checkpoint_pending(const struct zt_engine *e);
/* This rank has done what it can of it without the others. */
bool zt_checkpoint_is_written(const struct zt_engine *e);
/* Collective. When all have: the next part of it, or its end. Else this waits. */
zt_err zt_checkpoint_advance(struct zt_engine *e, zt_err *refused,
                             struct zt_fault *fault) ZT_MUST_CHECK;
/* Collective. Wait for its end; nothing when none is pending. */
zt_err zt_checkpoint_finish(struct zt_engine *e, zt_err *refused,
                            struct zt_fault *fault) ZT_MUST_CHECK;
/* A save that is pending is given up. */
void zt_checkpoint_give_up(struct zt_engine *e);

/*
 * Collective. Go on where run->resume_from_checkpoint says. *resumed: false when it is
 * "auto" and there is nothing to go on from.
 */
zt_err zt_checkpoint_resume(struct zt_engine *e, bool *resumed,
                            struct zt_fault *fault) ZT_MUST_CHECK;

/* Collective, of a training that begins with step 1: names of checkpoints to come are free, or theirs
 * to be replaced. ZT_E_CANTCREATE. */
zt_err zt_checkpoint_check_names(struct zt_engine *e,
                                 struct zt_fault *fault) ZT_MUST_CHECK;

/* Rank 0 of a run that is not to begin: whether there is a checkpoint to go on from, of this model
 * and all there; its data are not read. */
zt_err zt_checkpoint_check_resume(struct zt_engine *e,
                                  struct zt_fault *fault) ZT_MUST_CHECK;

/* Collective. The weights of the checkpoint of e->best.step. *refused: it cannot be read, with the
 * text in `fault`, and the weights are as before. */
zt_err zt_checkpoint_load_best(struct zt_engine *e, zt_err *refused,
                               struct zt_fault *fault) ZT_MUST_CHECK;

/* Collective. The weights of the checkpoint run->model_name_or_path; all else is new. */
zt_err zt_checkpoint_load_weights(struct zt_engine *e,
                                  struct zt_fault *fault) ZT_MUST_CHECK;

/* Collective. e->frozen_weights, where adapters are trained whose checkpoints may be gone on from. */
zt_err zt_checkpoint_note_frozen(struct zt_engine *e,
                                 struct zt_fault *fault) ZT_MUST_CHECK;

/* By which its checkpoints are known: that of the one that is resumed, else a new one. Each
 * rank has its own; where it counts is that of who writes the manifest. */
void zt_checkpoint_name_training(struct zt_engine *e);

/* Whether this run goes on from a checkpoint, or tries to. */
bool zt_checkpoint_is_wanted(const struct zt_run *run);

/* ---- during training ---- */

/* By its strategy the run saves after this step; by "best" only if its evaluation is the best. */
bool zt_checkpoint_is_due(const struct zt_engine *e, int64_t step);

/* SIGTERM and SIGUSR1 from here on ask for a checkpoint and the end, in runs that save. In
 * others SIGUSR1 does nothing, as SIGUSR2 in all, and rank 0 says so. Before and after both
 * are blocked. */
void zt_checkpoint_watch_signals(const struct zt_engine *e);
void zt_checkpoint_unwatch_signals(const struct zt_engine *e);
/* One of them was received, and asks for the end. */
bool zt_checkpoint_was_signalled(const struct zt_engine *e);
/* It was SIGTERM, and the run saves. */
bool zt_checkpoint_is_terminated(const struct zt_engine *e);
/* "SIGUSR1", "SIGTERM"; "": this rank got neither. */
const char *zt_checkpoint_signal_name(void);

/* What all ranks know after a step. */
struct zt_step_wishes {
    bool save;    /* all have the same request to save */
    bool stop;    /* one has been told to stop by a signal */
    bool written; /* zt_checkpoint_is_written() on all */
};

/*
 * Collective. After a step and its evaluation: what is due is saved, requests are
 * answered. A disk that does not take it is a warning. e->stop_code is set when the run
 * is to end.
 */
zt_err zt_checkpoint_after_step(struct zt_engine *e, int64_t step,
                                struct zt_step_wishes wishes,
                                struct zt_control_requests *requests,
                                struct zt_fault *fault) ZT_MUST_CHECK;

/* Collective. After the last step, and before an evaluation: what is being saved is on the disk,
 * or a warning. */
zt_err zt_checkpoint_after_steps(struct zt_engine *e,
                                 struct zt_fault *fault) ZT_MUST_CHECK;

/* The same, and what came while that step was made: a request to save is answered, and with
 * SIGTERM the run ends with its checkpoint (e->stop_code). */
zt_err zt_checkpoint_after_last_step(struct zt_engine *e,
                                     struct zt_control_requests *requests,
                                     struct zt_fault *fault) ZT_MUST_CHECK;

/* Collective. Instead, when there was no step left: another folder, other ranks. */
zt_err zt_checkpoint_without_steps(struct zt_engine *e,
                                   struct zt_fault *fault) ZT_MUST_CHECK;

#endif
