/*
 * event.h -- what a rank tells the person who started it: progress, results, failure.
 *
 * Started by zlaunch, events travel as frames over the control socket (descriptor in
 * ZLAUNCH_CONTROL_FD) to the daemon and on to zlaunch, which renders them: one live line
 * on a terminal, plain lines elsewhere, JSON lines with --log_format json. Without that
 * descriptor the same renderer runs inside the rank itself. The phase goes into a page
 * shared with the daemon (ZLAUNCH_STATE_FD), so telling it costs no system call.
 * Every rank may make every call; steps and evaluations are sent by rank 0 alone.
 * Threads:   one thread of the rank. Failure: events are best effort; they never fail a
 * run.
 */
#ifndef COMMON_EVENT_H
#define COMMON_EVENT_H

#include "common/fault.h"

/* Set up from the environment; before any other call. */
void zt_event_open(int rank, int world);
void zt_event_close(void);

/* What the rank is doing now ("plugin build", "train step 12"): named if it dies there.
 */
void zt_event_phase(const char *phase);
/* A collective of kind `op` (a zt_comm_op) begins, or ends. Any thread, one at a time. */
void zt_event_collective(unsigned op, bool begins);

struct zt_step_event {
    int64_t step, total_steps; /* step counts from 1 */
    double loss;               /* mean over the global batch's target tokens, nats */
    double lr, grad_norm;
    double tokens_per_s;
    double gemm_share; /* achieved / measured GEMM rate, 0..1; < 0: not measured */
    double loss_scale; /* fp16; 0: none */
    int64_t samples, skipped, peak_device_bytes;
    double eta_s;
    uint64_t fingerprint;
    bool has_fingerprint;
};
void zt_event_step(const struct zt_step_event *ev);

struct zt_eval_event {
    int64_t step, tokens;
    double loss, perplexity, bits_per_byte; /* bits_per_byte < 0: not a byte model */
};
void zt_event_eval(const struct zt_eval_event *ev);

/* A named result: "sample" (generated text), "saved" (a path), "note" (a sentence), ...
 */
void zt_event_text(const char *kind, const char *text);

/* Something that a person asks of the running job: `zlaunch --ctl JOB save`. */
struct zt_event_ask {
    int64_t id;
    char what[16]; /* "save", "trace" */
};
/* The next one that came, if any; never waits. Each gets one zt_event_answer(). */
bool zt_event_asked(struct zt_event_ask *out);
void zt_event_answer(const struct zt_event_ask *ask, bool ok, const char *text);

/* The rank is about to exit with this failure; the supervisor shows the first one. */
void zt_event_fail(const struct zt_fault *fault);

#endif
