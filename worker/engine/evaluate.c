/*
 * evaluate.c -- the mean loss over the evaluation data, and the metrics of its task or of the
 * texts that are written for it: every token, or row, counted once.
 *
 * What is beyond the end of the data is padding, which the divisor does not count. So
 * each rank runs the same number of batches, and the mean is exact whatever their number.
 */
#include "common/message/event.h"
#include "worker/engine/batch.h"
#include "worker/engine/data.h"
#include "worker/engine/tasks/best.h"
#include "worker/engine/tasks/measure.h"
#include "worker/engine/tasks/results.h"
#include "worker/monitor/monitor.h"

/* ---- before training ---- */

static zt_err refuse_data(const struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    const char *const *files =
        run->eval_files && run->eval_files[0] ? run->eval_files : run->train_files;

    return zt_fault_set(fault, ZT_E_FORMAT,
                        "%s%s: the evaluation data hold nothing to compare with: %s in "
                        "rows of %lld tokens (--block_size); give more, or longer rows",
                        files[0], files[1] ? " and others" : "",
                        zt_engine_missing_target(e->eval_data), (long long)e->block_size);
}

static zt_err read_row(const void *data, int64_t i, const struct zt_field_buffers *row,
                       int64_t *rows, struct zt_widths *widths, struct zt_fault *fault)
{
    return zt_eval_batches_read(data, i, row, rows, widths, fault);
}

zt_err zt_engine_check_eval_data(const struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    int64_t most = run->eval_batches * run->per_device_eval_batch_size * run->world;
    struct zt_eval_batches it;
    bool found = true;
    zt_err rc;

    if (!run->do_eval || !e->eval_data)
        return ZT_OK;
    rc = zt_eval_batches_init(&it, e->eval_data, e->block_size, 1, 0, 1, fault);
    if (rc || e->model->layout.divisor == ZT_DIVISOR_ROWS)
        return rc;
    it.padding = zt_engine_padding(run);
    it.source_size = e->source_size;
    if (most <= 0 || most > it.num_batches)
        most = it.num_batches;
    rc = zt_engine_find_target(e, read_row, &it, most, &found, fault);
    return rc || found ? rc : refuse_data(e, fault);
}

/* ---- an evaluation ---- */

/* The batch is the caller's again when this returns. */
static zt_err eval_batch(struct zt_engine *e, const struct zt_field_buffers *batch,
                         struct zt_extent size, int64_t rows, struct zt_measure *m,
                         double *loss, struct zt_fault *fault)
{
    struct zt_pass pass = {.mode = ZT_MODE_EVAL, .B = size.B, .T = size.T, .S = size.S};
    zt_tensor *out = NULL;
    float value = 0;
    zt_err rc;

    zt_pass_set_fields(&pass, batch);
    zt_zero_pass_begin(e->zero, pass.mode, 0);
    rc = zt_step_forward(e->step, &pass, &out, fault);
    if (!rc)
        rc = e->backend->download(e->device, NULL, &value, zt_tensor_view(out)->data,
                                  sizeof(value), fault);
    if (!rc)
        rc = e->backend->sync(e->device, NULL, fault);
    if (!rc)
        rc = zt_measure_take(m, e, batch, size.T, rows, fault);
    zt_step_end(e->step);
    if (!rc)
        rc = zt_zero_pass_end(e->zero, fault);
    *loss += (double)value;
    return rc;
}

static zt_err all_batches(struct zt_engine *e, const struct zt_eval_batches *it,
                          struct zt_measure *m, double sums[3], struct zt_fault *fault)
{
    struct zt_host_batch host = {.rows = 0};
    int64_t batches = it->num_batches;
    struct zt_field_buffers batch;
    zt_err rc = zt_host_batch_open(e, it->rows, &host, fault);

    batch = zt_host_batch_at(e, &host, 0);
    if (e->run->eval_batches > 0 && e->run->eval_batches < batches)
        batches = e->run->eval_batches;
    for (int64_t i = 0; !rc && i < batches; i++) {
        struct zt_widths widths = {0, 0};
        struct zt_extent size;
        int64_t rows = 0;

        rc = zt_eval_batches_read(it, i, &batch, &rows, &widths, fault);
        size = (struct zt_extent){it->rows, widths.row, widths.source};
        if (!rc)
            rc = eval_batch(e, &batch, size, rows, m, &sums[0], fault);
        if (!rc)
            sums[1] += zt_batch_divisor(e, &batch, size, rows);
        sums[2] += (double)(rows * size.T);
    }
    zt_host_batch_close(e, &host);
    return rc;
}

static struct zt_eval_stats stats_of(const struct zt_engine *e, int64_t step,
                                     const double sums[3])
{
    bool per_token = e->model->layout.divisor == ZT_DIVISOR_TARGETS;

    return (struct zt_eval_stats){.step = step,
                                  .tokens = (int64_t)sums[per_token ? 1 : 2],
                                  .samples = (int64_t)sums[1],
                                  .loss = sums[0] / sums[1],
                                  .is_per_token = per_token,
                                  .is_per_row =
                                      e->model->layout.divisor == ZT_DIVISOR_ROWS,
                                  .is_of_words = e->task == ZT_TASK_TAG,
                                  .is_of_bytes = zt_dataset_is_bytes(e->eval_data)};
}

zt_err zt_engine_evaluate(struct zt_engine *e, int64_t step, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    struct zt_eval_stats stats;
    struct zt_eval_batches it;
    struct zt_measure m;
    double sums[3] = {0}; /* loss, divisor, tokens of rows with data */
    zt_err rc;

    if (!e->eval_data)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--do_eval needs --eval_file or --train_file");
    zt_event_phase("evaluating");
    rc = zt_eval_batches_init(&it, e->eval_data, e->block_size,
                              run->per_device_eval_batch_size, run->rank, run->world,
                              fault);
    if (rc)
        return rc;
    it.padding = zt_engine_padding(run);
    it.source_size = e->source_size;
    rc = zt_measure_open(&m, e, fault);
    if (!rc)
        rc = all_batches(e, &it, &m, sums, fault);
    if (!rc)
        rc = zt_sum_f64(e->sums, sums, 3, fault);
    if (!rc) {
        stats = stats_of(e, step, sums);
        rc = zt_measure_finish(&m, e, &stats, fault);
    }
    if (!rc && e->eval_prompts.num)
        rc = e->rate_texts(e, &stats, fault);
    zt_measure_close(&m);
    if (rc)
        return rc;
    e->results.loss = stats.loss;
    e->results.step = step;
    zt_best_take(e, step, &stats);
    if (zt_comm_rank(e->comm) == 0) {
        zt_results_take(e, &stats, e->best.step == step);
        zt_monitor_eval(&stats);
    }
    return ZT_OK;
}
