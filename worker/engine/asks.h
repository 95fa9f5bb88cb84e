/*
 * asks.h -- what a person asks of a training run: `zlaunch --ctl JOB save|trace`.
 *
 *      zt_asks_poll() between two steps --> an answer, at once or some steps later
 *
 * A timeline that is asked for covers the next ZT_ASKS_TRACE_STEPS steps of each rank and
 * goes to zlaunch-trace-JOB-N.json.rankR in the rank's folder, a file that can be opened
 * by itself. A run with --trace records anyway and says so.
 * Weights that are asked for are those after the first step that every rank has begun
 * with the question in hand; the training loop counts that, and writes them.
 * Threads: the rank's first. Failure: none of the run's: the answer tells.
 */
#ifndef WORKER_ENGINE_ASKS_H
#define WORKER_ENGINE_ASKS_H

#include "common/event.h"
#include "common/run.h"

#define ZT_ASKS_TRACE_STEPS 5

struct zt_asks {
    const struct zt_run *run;
    struct zt_event_ask trace; /* while trace_steps > 0: whom to tell */
    int trace_steps;           /* still to be recorded */
    struct zt_event_ask save;  /* while wants_save */
    bool wants_save;
    char path[256];
};

void zt_asks_poll(struct zt_asks *a);
/* What became of the weights. */
void zt_asks_saved(struct zt_asks *a, bool ok, const char *text);
/* The last step is over: what is under way ends here. */
void zt_asks_end(struct zt_asks *a);

#endif
