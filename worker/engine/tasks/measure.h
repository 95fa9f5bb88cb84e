/*
 * measure.h -- the metrics of an evaluation beside its loss: of what the plugin hands out as
 * ZT_LOGITS, for tasks with labels.
 *
 *      zt_measure_open -> zt_measure_take, after each forward -> zt_measure_finish, all ranks
 *
 * Rows past the end of the data do not count, so each row counts once on any number of ranks.
 * Threads: one.
 */
#ifndef WORKER_ENGINE_TASKS_MEASURE_H
#define WORKER_ENGINE_TASKS_MEASURE_H

#include "common/message/metrics.h"
#include "worker/engine/engine.h"
#include "worker/tasks/metrics.h"
#include "worker/tasks/spans.h"

struct zt_measure {
    struct zt_class_counts classes; /* zeroed: the task has none */
    struct zt_span_tags tags;       /* zeroed: its classes mark no entities */
    struct zt_span_counts spans;
    int32_t *words; /* (2 * words of a row) classes predicted and meant */
    double *pairs;  /* (2 * num) predicted and meant numbers, NAN past the end; NULL */
    int64_t num, room;
    float *logits; /* of a batch, as fp32 */
    int64_t logits_room;
    bool took; /* some logits were there */
};

/* What of *stats the task will fill: to know beforehand. */
void zt_measure_promise(const struct zt_engine *e, struct zt_eval_stats *stats);

zt_err zt_measure_open(struct zt_measure *m, const struct zt_engine *e,
                       struct zt_fault *fault) ZT_MUST_CHECK;
void zt_measure_close(struct zt_measure *m); /* zeroed: fine */

/* Of the pass at hand, whose batch has B rows, of which the first num_rows hold data. */
zt_err zt_measure_take(struct zt_measure *m, struct zt_engine *e,
                       const struct zt_field_buffers *batch, int64_t T, int64_t num_rows,
                       struct zt_fault *fault) ZT_MUST_CHECK;

/* Collective: the metrics over all ranks. */
zt_err zt_measure_finish(struct zt_measure *m, struct zt_engine *e,
                         struct zt_eval_stats *stats,
                         struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * What the pass at hand gave as ZT_LOGITS, else `result`, the value that forward returned, as
 * fp32 in a buffer that grows and is the caller's to free. *n: 0, there is none.
 */
zt_err zt_fetch_logits(struct zt_engine *e, const zt_tensor *result, float **out,
                       int64_t *room, int64_t *n, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
