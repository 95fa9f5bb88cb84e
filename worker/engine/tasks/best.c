#include "worker/engine/tasks/best.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "worker/engine/checkpoint/checkpoint.h"
#include "worker/engine/tasks/measure.h"
#include "worker/engine/tasks/results.h"

/* False: the evaluation has no metric of that name. */
static bool find_metric(const struct zt_eval_stats *stats, const char *name, double *out)
{
    struct zt_metric_value values[ZT_MAX_METRICS];
    int n = zt_eval_metrics_measure(stats, values);

    for (int i = 0; i < n; i++) {
        if (values[i].metric->type != ZT_METRIC_REAL ||
            strcmp(values[i].metric->name, name) != 0)
            continue;
        *out = values[i].real;
        return true;
    }
    return false;
}

static void list_metrics(const struct zt_eval_stats *stats, char *out, size_t cap)
{
    struct zt_metric_value values[ZT_MAX_METRICS];
    int n = zt_eval_metrics_measure(stats, values);
    size_t at = 0;

    for (int i = 0; i < n && at < cap; i++)
        if (values[i].metric->type == ZT_METRIC_REAL)
            at += (size_t)snprintf(out + at, cap - at, "%s%s", at ? ", " : "",
                                   values[i].metric->name);
}

zt_err zt_best_check(const struct zt_engine *e, struct zt_fault *fault)
{
    struct zt_eval_stats stats = {
        .is_per_token = e->model->layout.divisor == ZT_DIVISOR_TARGETS,
        .is_of_words = e->task == ZT_TASK_TAG,
        .is_of_bytes = e->eval_data && zt_dataset_is_bytes(e->eval_data)};
    char names[256] = "";
    double any;

    zt_measure_promise(e, &stats);
    if (!e->run->do_train || !e->run->do_eval ||
        find_metric(&stats, zt_run_best_metric(e->run), &any))
        return ZT_OK;
    list_metrics(&stats, names, sizeof(names));
    return zt_fault_set(fault, ZT_E_USAGE,
                        "--metric_for_best_model %s: evaluations of this run have %s",
                        e->run->metric_for_best_model, names);
}

/* By more than early_stopping_threshold for `patience`, by anything for the best. */
static bool is_better(const struct zt_run *run, double value, double than, double by)
{
    if (isnan(value) || isnan(than))
        return !isnan(value);
    return run->greater_is_better ? value > than + by : value < than - by;
}

void zt_best_take(struct zt_engine *e, int64_t step, const struct zt_eval_stats *stats)
{
    const struct zt_run *run = e->run;
    struct zt_best *b = &e->best;
    double value = NAN;

    if (step <= 0 || !find_metric(stats, zt_run_best_metric(run), &value))
        return;
    if (!b->seen_step || is_better(run, value, b->seen, run->early_stopping_threshold))
        b->since = 0;
    else
        b->since++;
    if (!b->seen_step || is_better(run, value, b->seen, 0)) {
        b->seen = value;
        b->seen_step = step;
    }
    if (run->load_best_model_at_end && !zt_checkpoint_is_due(e, step))
        return;
    /* what is not finite is the best of nothing, as for Trainer */
    if (isfinite(value) && (!b->step || is_better(run, value, b->metric, 0))) {
        b->metric = value;
        b->loss = stats->loss;
        b->step = step;
        b->folder[0] = 0;
    }
}

bool zt_best_stops(const struct zt_engine *e)
{
    int64_t patience = e->run->early_stopping_patience;

    return patience > 0 && e->best.since >= patience;
}

/* "best", or "best after step 20" where those up to it do not count. */
static const char *best_of(const struct zt_best *b, char text[48])
{
    snprintf(text, 48, "best");
    if (b->after)
        snprintf(text, 48, "best after step %lld", (long long)b->after);
    return text;
}

zt_err zt_best_load(struct zt_engine *e, int64_t *step, struct zt_fault *fault)
{
    const struct zt_best *b = &e->best;
    const char *metric = zt_run_best_metric(e->run);
    int64_t last = e->steps_taken + e->skipped;
    struct zt_fault why = {0};
    zt_err refused = ZT_OK, rc;
    char of[48];

    *step = last;
    if (!e->run->load_best_model_at_end || e->stop_code)
        return ZT_OK;
    if (e->run->rank == 0 && !b->step && b->seen_step && !isfinite(b->seen))
        zt_warn("train",
                "the weights are those of step %lld, the last: no evaluation had a "
                "finite %s",
                (long long)last, metric);
    if (!b->step || b->step == last)
        return ZT_OK;
    rc = zt_checkpoint_load_best(e, &refused, &why);
    if (rc)
        return zt_fault_set(fault, rc, "--load_best_model_at_end: %s", why.text);
    if (refused) {
        if (e->run->rank == 0)
            zt_warn("train",
                    "the weights are those of step %lld, the last, and not of step %lld, "
                    "whose %s was the %s: %.6g: %s",
                    (long long)last, (long long)b->step, metric, best_of(b, of),
                    b->metric, why.text);
        return ZT_OK;
    }
    *step = b->step;
    e->results.loss = b->loss;
    e->results.step = b->step;
    zt_results_go_back_to_best(e);
    if (e->run->rank == 0)
        zt_info("train", "the weights are those of step %lld, whose %s was the %s: %.6g",
                (long long)b->step, metric, best_of(b, of), b->metric);
    return ZT_OK;
}
