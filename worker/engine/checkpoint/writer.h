/*
 * writer.h -- a thread that writes while training goes on, and the memory in which data
 * wait for it.
 *
 *      training: room, fill, filled ...        writer: a job that takes piece by piece
 *      |------ written ------|=== waiting ===|------ room ------|
 *                            written         filled             written + bytes
 *
 * Both sides cut a part of a file into the same pieces, so the memory needs no marks: a
 * ring of bytes, in which a part begins at a multiple of 8 and no piece goes over the end.
 * A job that has room for all of its bytes has no gaps between them, takes the first when the last is there, because a drive that
 * fetches from memory makes the copy that training waits for slower, and what it has taken stays there until it is over.
 * A writer has one job at a time.
 * Threads:   open to close: the rank's first. take and taken: the job, in the writer's.
 * Failure:   a job's own is what zt_ckpt_writer_wait() returns; whoever waits for the
 *            other side is woken by it.
 */
#ifndef WORKER_ENGINE_CHECKPOINT_WRITER_H
#define WORKER_ENGINE_CHECKPOINT_WRITER_H

#include <stddef.h>

#include "common/fault.h"

#define ZT_CKPT_WRITER_PIECE ((size_t)4 << 20)
/* One piece is filled while the other is written. */
#define ZT_CKPT_WRITER_LEAST (2 * ZT_CKPT_WRITER_PIECE)

struct zt_ckpt_writer;
typedef zt_err (*zt_ckpt_job)(struct zt_ckpt_writer *w, void *arg,
                              struct zt_fault *fault);

/* `memory` of `bytes` (a multiple of 8, at least ZT_CKPT_WRITER_LEAST) is the caller's,
 * and is there until close. ZT_E_SYSTEM: no thread. */
zt_err zt_ckpt_writer_open(void *memory, size_t bytes, struct zt_ckpt_writer **out,
                           struct zt_fault *fault) ZT_MUST_CHECK;
/* A job that is still running is given up: what it waits for fails. NULL is fine. */
void zt_ckpt_writer_close(struct zt_ckpt_writer *w);

/* The next job, with an empty ring. The one before has been waited for. `total`: bytes of
 * all its parts. */
void zt_ckpt_writer_start(struct zt_ckpt_writer *w, zt_ckpt_job job, void *arg,
                          size_t total);
/* There is room for all of the job's bytes. */
bool zt_ckpt_writer_has_all(const struct zt_ckpt_writer *w);
bool zt_ckpt_writer_is_done(struct zt_ckpt_writer *w);
/* Until the job is over; what it returned. */
zt_err zt_ckpt_writer_wait(struct zt_ckpt_writer *w,
                           struct zt_fault *fault) ZT_MUST_CHECK;

/* ---- the bytes of a part ---- */

/* Where a part of the stream begins that would begin at `at`. */
size_t zt_ckpt_writer_align(size_t at);

/*
 * Room for the next *bytes of a part of which `left` bytes are still to come; waits for
 * it. NULL: the job has ended, nobody will write it. Then tell that they are there.
 * `first`: it is the first piece of its part.
 */
void *zt_ckpt_writer_room(struct zt_ckpt_writer *w, bool first, size_t left,
                          size_t *bytes);
void zt_ckpt_writer_filled(struct zt_ckpt_writer *w, size_t bytes);
/* The same bytes on the other side. NULL: training has given the save up. */
const void *zt_ckpt_writer_take(struct zt_ckpt_writer *w, bool first, size_t left,
                                size_t *bytes);
void zt_ckpt_writer_taken(struct zt_ckpt_writer *w, size_t bytes);

#endif
