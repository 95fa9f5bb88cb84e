#include "worker/engine/tasks/results.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/json/line.h"
#include "worker/engine/output_dir.h"

static json_t *value_json(const struct zt_metric_value *v)
{
    if (v->metric->type == ZT_METRIC_INT)
        return json_integer(v->integer);
    if (v->metric->type == ZT_METRIC_TEXT)
        return json_string(v->text);
    return isfinite(v->real) ? json_real(v->real) : json_null();
}

/* NULL: no host memory. */
static json_t *stats_json(const struct zt_eval_stats *stats)
{
    struct zt_metric_value values[ZT_MAX_METRICS];
    int n = zt_eval_metrics_measure(stats, values);
    json_t *o = json_object();

    for (int i = 0; o && i < n; i++) {
        const char *name = values[i].metric->name;
        char key[64];

        snprintf(key, sizeof(key), "%s%s", strcmp(name, "step") == 0 ? "" : "eval_",
                 name);
        if (json_object_set_new(o, key, value_json(&values[i]))) {
            json_decref(o);
            o = NULL;
        }
    }
    return o;
}

void zt_results_take(struct zt_engine *e, const struct zt_eval_stats *stats, bool best)
{
    json_decref(e->results.last);
    e->results.last = stats_json(stats);
    if (!best)
        return;
    json_decref(e->results.best);
    e->results.best = json_incref(e->results.last);
}

void zt_results_go_back_to_best(struct zt_engine *e)
{
    json_decref(
        e->results.last); /* the best may be of the run that this one goes on from */
    e->results.last = json_incref(e->results.best);
}

zt_err zt_results_write(const struct zt_engine *e, struct zt_fault *fault)
{
    struct zt_buf text;
    zt_err rc = ZT_OK;

    if (!e->results.last || !e->run->output_dir)
        return ZT_OK;
    zt_buf_init(&text, (size_t)1 << 16);
    if (zt_json_put(&text, e->results.last) || zt_buf_put_u8(&text, '\n'))
        rc = zt_fault_set(fault, ZT_E_NOMEM, "eval_results.json: no host memory");
    if (!rc)
        rc = zt_output_dir_write(e->run->output_dir, "eval_results.json", &text, fault);
    zt_buf_release(&text);
    return rc;
}

/* The steps that showed it were too few to tell it from a bad row. */
static zt_err refuse_weights(struct zt_fault *fault)
{
    return zt_fault_set(
        fault, ZT_E_NUMERIC,
        "the weights that are saved are not finite, nor is the loss of the last step: "
        "lower the learning rate, and go on from an earlier checkpoint");
}

zt_err zt_results_check(const struct zt_engine *e, struct zt_fault *fault)
{
    char after[40] = "";
    zt_err rc;

    if (isfinite(e->results.loss) && !(e->saved_lost && e->lost_in_a_row))
        return ZT_OK;
    rc = zt_barrier(e->comm, fault); /* rank 0 has written what it writes */
    if (rc)
        return rc;
    if (isfinite(e->results.loss))
        return refuse_weights(fault);
    if (e->results.step)
        snprintf(after, sizeof(after), " after step %lld", (long long)e->results.step);
    return zt_fault_set(fault, ZT_E_NUMERIC,
                        "the loss of the evaluation%s is %g: look at the weights (zckpt "
                        "verify names a tensor that is not finite) and the data%s",
                        after, fabs(e->results.loss), /* nan, not -nan */
                        e->run->compute_dtype == ZT_F16 ? ", or try --bf16" : "");
}

void zt_results_release(struct zt_engine *e)
{
    json_decref(e->results.last);
    json_decref(e->results.best);
}
