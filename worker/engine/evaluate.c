/*
 * evaluate.c -- the mean loss over the evaluation data: every token counted once.
 *
 * Rows beyond the end of the data carry no targets, so each rank runs the same number of
 * batches and the mean is exact whatever their number.
 */
#include <math.h>
#include <stdlib.h>

#include "common/event.h"
#include "worker/engine/engine.h"

/* `tokens` and `targets` are the caller's again when this returns. */
static zt_err eval_batch(struct zt_engine *e, const int32_t *tokens,
                         const int32_t *targets, double *loss, struct zt_fault *fault)
{
    struct zt_pass pass = {
        .mode = ZT_MODE_EVAL,
        .B = e->run->per_device_eval_batch_size,
        .T = e->block_size,
        .tokens = tokens,
        .targets = targets,
    };
    zt_tensor *out = NULL;
    float value = 0;
    zt_err rc;

    zt_zero_pass_begin(e->zero, pass.mode, 0);
    rc = zt_step_forward(e->step, &pass, &out, fault);

    if (!rc)
        rc = e->backend->download(e->device, NULL, &value, zt_tensor_view(out)->data,
                                  sizeof(value), fault);
    if (!rc)
        rc = e->backend->sync(e->device, NULL, fault);
    zt_step_end(e->step);
    if (!rc)
        rc = zt_zero_pass_end(e->zero, fault);
    *loss += (double)value;
    return rc;
}

static zt_err all_batches(struct zt_engine *e, const struct zt_eval_batches *it,
                          double sums[2], struct zt_fault *fault)
{
    size_t n = (size_t)(it->rows * it->block_size);
    int32_t *ids = calloc(2 * n, sizeof(*ids));
    int64_t batches = it->num_batches;
    zt_err rc = ZT_OK;

    if (!ids)
        return zt_fault_set(fault, ZT_E_NOMEM, "evaluation: no host memory");
    if (e->run->eval_batches > 0 && e->run->eval_batches < batches)
        batches = e->run->eval_batches;
    for (int64_t i = 0; !rc && i < batches; i++) {
        int64_t targets = 0;

        rc = zt_eval_batches_read(it, i, ids, ids + n, &targets, fault);
        if (!rc)
            rc = eval_batch(e, ids, ids + n, &sums[0], fault);
        sums[1] += (double)targets;
    }
    free(ids);
    return rc;
}

zt_err zt_engine_evaluate(struct zt_engine *e, int64_t step, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    struct zt_eval_event ev = {.step = step, .bits_per_byte = -1};
    struct zt_eval_batches it;
    double sums[2] = {0}; /* loss, targets */
    zt_err rc;

    if (!e->eval_data)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--do_eval needs --eval_file or --train_file");
    zt_event_phase("evaluating");
    rc = zt_eval_batches_init(&it, e->eval_data, e->block_size,
                              run->per_device_eval_batch_size, run->rank, run->world,
                              fault);
    if (!rc)
        rc = all_batches(e, &it, sums, fault);
    if (!rc)
        rc = zt_sum_f64(e->sums, sums, 2, fault);
    if (rc)
        return rc;
    ev.tokens = (int64_t)sums[1];
    ev.loss = sums[0] / sums[1];
    ev.perplexity = exp(ev.loss);
    if (zt_dataset_is_bytes(e->eval_data))
        ev.bits_per_byte = ev.loss / log(2.0);
    if (zt_comm_rank(e->comm) == 0)
        zt_event_eval(&ev);
    return ZT_OK;
}
