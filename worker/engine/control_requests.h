/*
 * control_requests.h -- requests of `zlaunch --ctl JOB save|save weights|trace` to a training run.
 *
 *      zt_control_requests_poll() between two steps --> an answer, at once or later
 *
 * trace: records a timeline of the next ZT_CONTROL_TRACE_STEPS steps of each rank. It is
 *        written to zlaunch-trace-JOB-N.json.rankR in the rank's folder, a file that can
 *        be opened by itself. A run with --trace records anyway and answers so.
 * save:  a checkpoint, or by `save weights [DIR]` the weights alone, after the first step
 *        that every rank has begun with the request received, or behind the last step; the
 *        training loop counts these ranks, and worker/engine/checkpoint/ writes.
 * Threads:   the rank's first.
 * Failure:   a failed request is answered with the reason; the run goes on.
 */
#ifndef WORKER_ENGINE_CONTROL_REQUESTS_H
#define WORKER_ENGINE_CONTROL_REQUESTS_H

#include "common/message/event.h"
#include "worker/config/run.h"

#define ZT_CONTROL_TRACE_STEPS 5

struct zt_control_requests {
    const struct zt_run *run;
    struct zt_control_request trace; /* to be answered, while trace_steps > 0 */
    int trace_steps;                 /* still to be recorded */
    struct zt_control_request save;  /* to be answered, while wants_save */
    bool wants_save;
    char path[256];
};

void zt_control_requests_poll(struct zt_control_requests *a);
/* The request to save is for the weights alone, as another program reads them. */
bool zt_control_requests_wants_weights(const struct zt_control_requests *a);
/* Answer the request to save, as zt_event_answer(). */
void zt_control_requests_saved(struct zt_control_requests *a, int exit_code,
                               const char *text);
/* After the last step: finish and answer what is still pending. */
void zt_control_requests_end(struct zt_control_requests *a);

#endif
