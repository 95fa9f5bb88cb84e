/*
 * event.h -- events of a rank for the person who started it: progress, results, failure.
 *
 * Started by zlaunch, events travel as frames over the control socket (descriptor in
 * ZLAUNCH_CONTROL_FD) to the daemon and on to zlaunch, which renders them: one live line
 * on a terminal, plain lines elsewhere, JSON lines with --log_format json. Without that
 * descriptor the same renderer runs inside the rank itself. Lines of a JSON log
 * (common/log.h) take the same way: whatever a rank prints on stdout and stderr is output
 * and nothing else, even if it looks like an event. The phase goes into a page
 * shared with the daemon (ZLAUNCH_STATE_FD), so telling it costs no system call.
 * Every rank may make every call; steps and evaluations are sent by rank 0 alone.
 * Threads:   one thread of the rank; log lines come from any.
 * Failure:   events are best effort; they never fail a run.
 */
#ifndef COMMON_MESSAGE_EVENT_H
#define COMMON_MESSAGE_EVENT_H

#include <limits.h>

#include "common/fault.h"
#include "common/message/input.h"
#include "common/message/metrics.h"

/* Set up from the environment; before any other call. */
void zt_event_open(int rank, int world);
/* What was asked of this rank is done, or its failure is reported: from here on it may end. */
void zt_event_done(void);
/* errno of output that standard output did not take; 0: none. */
int zt_event_close(void);

/* What the rank is doing now ("plugin build", "train step 12"): named if it dies there.
 */
void zt_event_phase(const char *phase);
/* Called with each phase by the thread that begins it; NULL: nobody is. */
void zt_event_watch_phases(void (*on_phase)(const char *phase));
/* A collective of kind `op` (a zt_comm_op) begins, or ends. Any thread, one at a time. */
void zt_event_collective(unsigned op, bool begins);

/* The metrics of a step or an evaluation: n values, as zt_step_metrics_measure() or
 * zt_eval_metrics_measure() gives them. */
void zt_event_metrics(zt_metric_event event, const struct zt_metric_value *values, int n);

/* The run begins: what it is about to do, as a sentence; its --run_name or NULL; whether
 * steps follow. */
void zt_event_begin(const char *text, const char *run_name, bool trains);

/* A named result: "sample" (generated text), "saved" (a path), "note" (a sentence), ...
 */
void zt_event_text(const char *kind, const char *text);
/* Likewise n bytes, of which any may be zero. */
void zt_event_bytes(const char *kind, const char *text, size_t n);

/* Weights were "saved" in folder `dir`. */
void zt_event_weights(const char *dir);

/* A checkpoint after step `step` was "saved", or training was "resumed" from it. */
void zt_event_checkpoint(const char *kind, const char *dir, int64_t step);
/* To zlaunch: this run saves checkpoints, and has `grace_s` seconds for one when it is
 * stopped; -1: as many as zlaunch finds right. `newest_step` is that of the checkpoints that are
 * there already; -1: none are; NULL: another rank says it. */
void zt_event_saves(int64_t grace_s, const int64_t *newest_step);

/* A request that `zlaunch --ctl JOB save` passes to every rank of the running job. */
struct zt_control_request {
    int64_t id;
    char name[16];      /* "save", "trace" */
    char dir[PATH_MAX]; /* of "save": where to; "": where the run has its own */
};
/* Take the next request if one was received; never waits. Each has to be answered
 * once. */
bool zt_event_next_request(struct zt_control_request *out);
/* exit_code: of the `zlaunch --ctl` that asked; 0: what was asked for is done. */
void zt_event_answer(const struct zt_control_request *request, int exit_code,
                     const char *text);

/*
 * A dialogue, of rank 0: the next line that is typed at zlaunch is wanted, or that of standard
 * input where there is no zlaunch. zt_event_wait_input() takes what has come, waits up to `ms`,
 * and appends a line; requests of `--ctl` that come meanwhile are turned down.
 */
void zt_event_ask(void);
zt_input_kind zt_event_wait_input(struct zt_buf *line, int ms);
/* Since that line: what is being written is not wanted any longer (Ctrl-C). Never waits. */
bool zt_event_interrupted(void);

/* The rank is about to exit with this failure; the supervisor shows the first one. */
void zt_event_fail(const struct zt_fault *fault);

#endif
