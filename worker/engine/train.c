/*
 * train.c -- the step loop: accumulate, reduce, norm, step.
 *
 * The loss is a sum over target tokens, or what else the model says, and is divided by
 * their number in the whole global batch (all ranks, all micro-batches), so any split of
 * a batch means the same.
 */
#include "worker/engine/engine.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/message/event.h"
#include "common/log.h"
#include "common/trace/trace.h"
#include "common/trace/waits.h"
#include "worker/data/rows.h"
#include "worker/engine/batch.h"
#include "worker/engine/checkpoint/checkpoint.h"
#include "worker/engine/checkpoint/replicas.h"
#include "worker/engine/data.h"
#include "worker/engine/tasks/best.h"
#include "worker/monitor/monitor.h"
#include "worker/optim/sched/sched.h"

/* What one step leaves for the log. */
struct outcome {
    double loss, grad_norm, lr;
    double divisor, tokens; /* of the global batch */
    double flops;           /* of this rank */
    bool skipped;
    struct zt_step_wishes wishes;
};

/* Of the batch that is at hand, over all ranks or this rank's part. */
enum { DIVISOR, TOKENS, NUM_BATCH_SUMS };

/* Read the step's micro-batches; sums: the loss's divisor, and tokens of all rows as they are
 * padded, of this rank. */
static zt_err load_batches(struct zt_engine *e, int64_t step, double sums[NUM_BATCH_SUMS],
                           struct zt_fault *fault)
{
    int64_t B = e->run->micro_batch_size;

    sums[DIVISOR] = sums[TOKENS] = 0;
    for (int64_t i = 0; i < e->run->grad_accum_steps; i++) {
        struct zt_field_buffers micro = zt_host_batch_at(e, &e->batch, i * B);
        zt_err rc = zt_sampler_read(e->sampler, step - e->first_step, i, &micro,
                                    &e->widths[i], fault);

        if (rc)
            return rc;
        sums[DIVISOR] += zt_batch_divisor(
            e, &micro, (struct zt_extent){B, e->widths[i].row, e->widths[i].source}, B);
        sums[TOKENS] += (double)(B * e->widths[i].row);
    }
    return ZT_OK;
}

static zt_err add_loss(struct zt_engine *e, const zt_tensor *loss, struct zt_fault *fault)
{
    struct zt_axpby_args a = {.x = *zt_tensor_view(loss), .alpha = 1, .beta = 1};

    a.y = zt_view_of(&e->scalars->loss, ZT_F32, a.x.ndim, a.x.shape);
    return e->backend->kernels->axpby(e->device, NULL, &a, fault);
}

static zt_err micro_step(struct zt_engine *e, int64_t step, int64_t i, float dloss,
                         struct zt_fault *fault)
{
    struct zt_pass pass = {
        .mode = ZT_MODE_TRAIN,
        .step = (uint64_t)step,
        .row0 = zt_sampler_row0(e->sampler, i),
        .B = e->run->micro_batch_size,
        .T = e->widths[i].row,
        .S = e->widths[i].source,
        .dloss = dloss,
    };
    struct zt_field_buffers micro = zt_host_batch_at(e, &e->batch, i * pass.B);
    zt_tensor *loss = NULL;
    zt_err rc;

    zt_pass_set_fields(&pass, &micro);
    zt_zero_pass_begin(e->zero, pass.mode, i);
    zt_trace_begin("step", "forward");
    rc = zt_step_forward(e->step, &pass, &loss, fault);
    if (!rc)
        rc = add_loss(e, loss, fault);
    zt_trace_end();
    zt_trace_begin("step", "backward");
    if (!rc)
        rc = zt_step_backward(e->step, loss, dloss, fault);
    zt_step_end(e->step);
    if (!rc)
        rc = zt_zero_pass_end(e->zero, fault);
    zt_trace_end();
    return rc;
}

/* Forward and backward of every micro-batch; afterwards gradients are summed over ranks.
 */
static zt_err accumulate(struct zt_engine *e, int64_t step, float dloss,
                         struct zt_fault *fault)
{
    struct zt_fill_args zero = {
        .y = zt_view_of(&e->scalars->loss, ZT_F32, 1, &(int64_t){1})};
    zt_err rc = e->backend->kernels->fill(e->device, NULL, &zero, fault);

    for (int64_t i = 0; !rc && i < e->run->grad_accum_steps; i++)
        rc = micro_step(e, step, i, dloss, fault);
    return rc;
}

/* Sum of squares of this rank's gradients, and its loss. The host waits for the device
 * here, and nowhere else in a step. */
static zt_err read_step_stats(struct zt_engine *e, double *sumsq, double *loss,
                              struct zt_fault *fault)
{
    float *on_host = &e->on_host->loss;
    zt_err rc = e->backend->download(e->device, NULL, on_host, &e->scalars->loss,
                                     sizeof(*on_host), fault);

    if (!rc)
        rc = zt_zero_sumsq(e->zero, sumsq, fault);
    *loss = (double)*on_host;
    return rc;
}

/*
 * Steps without a finite loss that a run may have one after the other: a bad row is past by
 * then. Weights that overflow stay as they are: a smaller loss scale brings back gradients that
 * overflow, and no loss.
 */
#define MOST_LOST      20
#define MOST_LOST_LAST 3 /* of a run that ends with them */

static zt_err check_lost_in_a_row(const struct zt_engine *e, int64_t most,
                                  struct zt_fault *fault)
{
    if (e->lost_in_a_row < most)
        return ZT_OK;
    return zt_fault_set(
        fault, ZT_E_NUMERIC,
        "the loss is not finite in any of the last %lld steps, to step %lld%s; lower the "
        "learning rate, look at the data%s, and go on from an earlier checkpoint",
        (long long)e->lost_in_a_row, (long long)(e->steps_taken + e->skipped),
        e->lost_updated ? ""
                        : ": each was skipped, and the weights have not changed since",
        e->run->compute_dtype == ZT_F16 ? " or train with --bf16" : "");
}

/* Skip or go, and by how much to scale the gradients. */
static zt_err decide(struct zt_engine *e, double sumsq, double scale, struct outcome *o,
                     struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    bool fp16 = run->compute_dtype == ZT_F16;
    bool overflow = !isfinite(sumsq);
    double factor = 1 / scale;

    o->grad_norm = sqrt(sumsq) / scale;
    o->skipped =
        overflow && (fp16 || (run->compute_dtype == ZT_BF16 && run->check_grad_overflow));
    if (run->max_grad_norm > 0 && o->grad_norm + 1e-6 > run->max_grad_norm)
        factor *= run->max_grad_norm / (o->grad_norm + 1e-6);
    e->on_host->grad_scale = (float)factor;
    e->on_host->skip = o->skipped;
    if (overflow && !o->skipped)
        return zt_fault_set(
            fault, ZT_E_NUMERIC, "gradients are not finite at step %lld (loss %g); %s",
            (long long)(e->steps_taken + e->skipped + 1), o->loss,
            e->steps_taken == 0 && !run->model_name_or_path
                ? "no step has changed the weights yet: look at what the model computes, "
                  "at its initial values and at the data of this step"
            : e->steps_taken == 0
                ? "no step has changed the weights yet: zckpt verify looks for values in "
                  "them that are not finite; else look at the data of this step"
                : "lower the learning rate, or look at the data of this step");
    return fp16 ? zt_scaler_update(&e->scaler, overflow, fault) : ZT_OK;
}

static zt_err update_weights(struct zt_engine *e, double lr, struct zt_fault *fault)
{
    struct zt_optim_step how = {
        .backend = e->backend,
        .device = e->device,
        .cfg = &e->run->optim,
        .lr = lr,
        .t = e->steps_taken + 1,
        .grad_scale = &e->scalars->grad_scale,
        .skip = &e->scalars->skip,
        .stochastic = e->run->stochastic_rounding,
        .seed = (uint64_t)e->run->seed,
    };
    zt_err rc;

    zt_trace_begin("step", "optimizer");
    rc = e->backend->upload(e->device, NULL, e->scalars, e->on_host,
                            offsetof(struct zt_scalars, loss), fault);
    if (!rc)
        rc = zt_zero_update(e->zero, &how, fault);
    zt_trace_end();
    return rc ? rc : zt_zero_step_model(e->zero, how.t, &e->saves, fault);
}

/* Of masks, and of rows without a word, this may be so often: it is said once. */
static void tell_of_no_target(struct zt_engine *e, int64_t step)
{
    bool masked = zt_dataset_rows(e->train_data)->kind == ZT_ROWS_MASKED;

    if (zt_comm_rank(e->comm) != 0 || e->told_no_target)
        return;
    if (zt_dataset_has_context(e->train_data)) {
        zt_warn("data",
                "step %lld: its rows hold no token of an answer, so there is nothing to "
                "learn from them; larger batches or a larger --block_size avoid it",
                (long long)step);
        return;
    }
    e->told_no_target = true;
    zt_warn(
        "data",
        "step %lld: %s, so there is nothing to learn from them (said of the first such "
        "step alone); larger batches%s avoid it",
        (long long)step,
        masked ? "no token of its rows is masked" : "its rows hold no word",
        masked ? ", or a larger --mlm_probability," : "");
}

/* The divisor over all ranks; 0 is nothing to learn from: gradients are zero then. */
static zt_err check_divisor(struct zt_engine *e, int64_t step, struct zt_fault *fault)
{
    const struct zt_batch_layout *l = &e->model->layout;

    if (e->step_divisor > 0)
        return ZT_OK;
    if (l->divisor == ZT_DIVISOR_TARGETS) {
        e->step_divisor = 1;
        tell_of_no_target(e, step);
        return ZT_OK;
    }
    return zt_fault_set(fault, ZT_E_FORMAT,
                        "step %lld has nothing to learn from: field %s sums up to %g, "
                        "by which the loss is divided",
                        (long long)step, l->fields[l->divisor_field].name,
                        e->step_divisor);
}

static void take_sums(struct zt_engine *e, const double sums[NUM_BATCH_SUMS])
{
    e->step_divisor = sums[DIVISOR];
    e->step_tokens = sums[TOKENS];
}

/* Tokens of the global batch: its targets, where these are what counts. */
static double step_tokens(const struct zt_engine *e)
{
    bool per_token = e->model->layout.divisor == ZT_DIVISOR_TARGETS;

    return per_token ? e->step_divisor : e->step_tokens;
}

/* The batch of the first step; later ones are read while the step before ends. */
static zt_err first_batch(struct zt_engine *e, struct zt_fault *fault)
{
    double sums[NUM_BATCH_SUMS];
    zt_err rc = load_batches(e, e->first_step + 1, sums, fault);

    if (!rc)
        rc = zt_sum_f64(e->comm, sums, NUM_BATCH_SUMS, fault);
    if (!rc)
        take_sums(e, sums);
    return rc;
}

/* One optimizer step; `step` counts from 1. Its batch is there. */
static zt_err train_step(struct zt_engine *e, int64_t step, bool save_requested,
                         struct outcome *o, struct zt_fault *fault)
{
    double scale = e->run->compute_dtype == ZT_F16 ? e->scaler.scale : 1;
    /* squares, loss; ranks with a request to save, to stop, and with their part of a
     * checkpoint on the disk; of the next step's batch */
    double sums[5 + NUM_BATCH_SUMS] = {0};
    zt_err rc = check_divisor(e, step, fault);

    o->divisor = e->step_divisor;
    o->tokens = step_tokens(e);
    if (!rc)
        rc = accumulate(e, step, (float)(scale / o->divisor), fault);
    if (!rc)
        rc = read_step_stats(e, &sums[0], &sums[1], fault);
    if (!rc && step < e->total_steps)
        rc = load_batches(e, step + 1, &sums[5], fault);
    sums[2] = save_requested ? 1 : 0;
    sums[3] = zt_checkpoint_was_signalled(e) ? 1 : 0;
    sums[4] = zt_checkpoint_is_written(e) ? 1 : 0;
    if (!rc)
        rc = zt_sum_f64(e->sums, sums, 5 + NUM_BATCH_SUMS, fault);
    if (rc)
        return rc;

    take_sums(e, &sums[5]);
    o->loss = sums[1] / o->divisor;
    o->wishes.save = sums[2] >= (double)zt_comm_world(e->comm);
    o->wishes.stop = sums[3] > 0;
    o->wishes.written = sums[4] >= (double)zt_comm_world(e->comm);
    o->lr =
        zt_sched_lr(&e->run->sched, e->run->optim.value[ZT_OPTIM_LR], e->steps_taken + 1);
    o->flops = zt_step_take_flops(e->step);
    rc = decide(e, sums[0], scale, o, fault);
    if (!rc && !o->skipped)
        rc = update_weights(e, o->lr, fault);
    if (rc)
        return rc;
    *(o->skipped ? &e->skipped : &e->steps_taken) += 1;
    e->samples += e->run->train_batch_size;
    e->lost_in_a_row = isfinite(o->loss) ? 0 : e->lost_in_a_row + 1;
    e->lost_updated = e->lost_in_a_row && (e->lost_updated || !o->skipped);
    return check_lost_in_a_row(e, MOST_LOST, fault);
}

/* ---- logging ---- */

/* Time and work since the last line. */
struct window {
    double start, tokens, flops;
    double waits[ZT_NUM_WAITS]; /* before the last pause */
};

/* What is no step, an evaluation for one: neither its time nor its waits are the window's. */
static double begin_pause(struct window *w)
{
    double waits[ZT_NUM_WAITS];

    zt_waits_take(waits);
    for (int i = 0; i < ZT_NUM_WAITS; i++)
        w->waits[i] += waits[i];
    return zt_now();
}

/* Seconds of it. */
static double end_pause(struct window *w, double begun)
{
    double waits[ZT_NUM_WAITS], seconds = zt_now() - begun;

    zt_waits_take(waits);
    w->start += seconds;
    return seconds;
}

#define DIVERGED 100 /* times the loss of the first step, or 1 where that is less */
#define LOST     3   /* reports of a loss that is no number, of fp16; or the last step */

/* Once: the loss grows without bound. In fp16 the activations of a single step may overflow. */
static void warn_of_divergence(struct zt_engine *e, int64_t step, double loss)
{
    bool lost = !isfinite(loss) && e->run->compute_dtype == ZT_F16;

    if (step == e->first_step + 1 || e->first_loss == 0) /* 0: it had no target */
        e->first_loss = loss;
    e->losses_lost = lost ? e->losses_lost + 1 : 0;
    if (e->told_divergence || !isfinite(e->first_loss) ||
        loss <= DIVERGED * fmax(e->first_loss, 1) ||
        (lost && e->losses_lost < LOST && step < e->total_steps))
        return;
    e->told_divergence = true;
    zt_log(ZT_LOG_WARN, "train",
           "step %lld: the loss is %.3g after %.3g at first: it runs away, unless "
           "a row of this step is far from all others; a smaller --learning_rate or more "
           "--warmup_steps may hold it",
           (long long)step, fabs(loss), e->first_loss); /* nan, not -nan */
}

/* Of this rank, since the last line. */
static void report_recomputation(struct zt_engine *e, int64_t step)
{
    struct zt_recompute_times t = zt_step_take_times(e->step);

    if (t.calls && e->run->profile_checkpointing)
        zt_info("activations",
                "step %lld: since the last line, %lld calls of recomputed blocks took "
                "%.1f ms forward, %.1f ms again and %.1f ms backward",
                (long long)step, (long long)t.calls, 1e3 * t.forward, 1e3 * t.again,
                1e3 * t.backward);
}

static zt_err report(struct zt_engine *e, int64_t step, const struct outcome *o,
                     struct window *w, struct zt_fault *fault)
{
    struct zt_step_stats stats = {
        .step = step,
        .total_steps = e->total_steps,
        .loss = o->loss,
        .lr = o->lr,
        .grad_norm = o->grad_norm,
        .tokens = w->tokens,
        .seconds = zt_now() - w->start,
        .flops = w->flops,
        .gemm_peak = e->gemm_peak,
        .loss_scale = e->run->compute_dtype == ZT_F16 ? e->scaler.scale : 0,
        .steps_per_s = e->rate,
        .samples = e->samples,
        .skipped = e->skipped,
        .peak_device_bytes = (int64_t)zt_engine_peak_bytes(e),
        .peak_host_bytes = (int64_t)zt_engine_peak_host_bytes(e),
        .file_bytes = (int64_t)zt_engine_file_bytes(e),
    };
    int64_t f = e->run->fingerprint_steps;
    zt_err rc = ZT_OK;

    begin_pause(w);
    stats.rank_wait = zt_comm_world(e->comm) > 1 ? w->waits[ZT_WAIT_RANKS] : 0;
    stats.file_wait = w->waits[ZT_WAIT_FILES];
    if (f && step % f == 0) {
        stats.has_fingerprint = true;
        rc = zt_zero_fingerprint(e->zero, &stats.fingerprint, fault);
    }
    if (!rc && zt_comm_rank(e->comm) == 0) {
        zt_monitor_step(&stats);
        warn_of_divergence(e, step, o->loss);
        report_recomputation(e, step);
    }
    end_pause(w, 0); /* the fingerprint */
    *w = (struct window){.start = zt_now()};
    return rc;
}

/*
 * The GEMM baseline of the progress line: the best rate of products like the run's
 * largest, and of large square ones, on all ranks at once with the threads of the run. It
 * is measured at fixed steps, so that all ranks do it together: once the run has shown
 * that it is long enough to be worth a tenth of a second, and twice more when clocks and
 * neighbours have settled. The best counts.
 */
#define MEASURE_AT_STEP     20
#define LARGEST_PRODUCT     ((int64_t)8192)
#define SQUARE_OF_PROCESSOR ((int64_t)1536)

static bool measures_at(const struct zt_engine *e, int64_t step)
{
    int64_t at = MEASURE_AT_STEP;

    while (at < step && at < 100 * MEASURE_AT_STEP)
        at *= 10;
    return at == step && e->total_steps >= step + MEASURE_AT_STEP;
}

/* Of what most products of the run are. */
static zt_dtype product_type(const struct zt_run *run)
{
    return run->fp8 ? ZT_F8E4M3 : run->compute_dtype;
}

/* Memory is what was planned; between two steps the pool is free. A product that it has
 * no room for is taken with fewer rows. */
static zt_err measure_in_pool(struct zt_engine *e, struct zt_product p,
                              struct zt_fault *fault)
{
    zt_dtype dtype = product_type(e->run);
    void *memory = NULL;
    double rate = 0;
    zt_err rc = ZT_E_NOMEM;

    for (p.m *= 2; rc == ZT_E_NOMEM && p.m > 64;) {
        p.m /= 2;
        rc = zt_pool_alloc(e->pool, zt_measure_bytes(dtype, p), &memory, NULL);
    }
    if (rc)
        return ZT_OK;
    rc = zt_measure_gemm_in(e->backend, e->device, dtype, e->run->tf32, 0.05, memory, p,
                            &rate, fault);
    zt_pool_free(e->pool, memory);
    e->gemm_peak = rate > e->gemm_peak ? rate : e->gemm_peak;
    return rc;
}

static zt_err measure_peak(struct zt_engine *e, struct zt_fault *fault)
{
    struct zt_product largest = zt_step_largest_product(e->step);
    int64_t n = e->backend->unified ? SQUARE_OF_PROCESSOR : LARGEST_PRODUCT;
    zt_err rc = zt_barrier(e->comm, fault);

    if (!rc && largest.m && !e->run->fp8) /* fp8 does not come in every size */
        rc = measure_in_pool(e, largest, fault);
    if (!rc)
        rc = measure_in_pool(e, (struct zt_product){n, n, n}, fault);
    return rc;
}

static bool due(int64_t step, int64_t every, int64_t last)
{
    return step == last || (every > 0 && step % every == 0);
}

static bool evaluation_is_due(const struct zt_engine *e, int64_t step)
{
    return e->run->do_eval && (due(step, e->run->eval_steps, e->total_steps) ||
                               (strcmp(e->run->eval_strategy, "epoch") == 0 &&
                                zt_engine_epoch_ends(e, step)));
}

/* In 16 bits a step without finite gradients is skipped, so that a run which is short enough
 * would end well although it never learned anything. One that was stopped may go on. */
static zt_err check_losses(const struct zt_engine *e, int64_t num_finite,
                           int64_t num_updates, struct zt_fault *fault)
{
    bool scaled = e->run->compute_dtype == ZT_F16; /* it says why no scale helps */
    zt_err rc = e->stop_code || (scaled && !num_finite)
                    ? ZT_OK
                    : check_lost_in_a_row(e, MOST_LOST_LAST, fault);

    if (rc || (num_finite && (num_updates || e->stop_code)) ||
        e->total_steps <= e->first_step)
        return rc;
    if (num_finite && !scaled)
        return zt_fault_set(
            fault, ZT_E_NUMERIC,
            "each of %lld steps was skipped, as its gradients were not finite: nothing "
            "was learnt; look at the weights and the data",
            (long long)(e->total_steps - e->first_step));
    if (num_finite)
        return zt_fault_set(
            fault, ZT_E_NUMERIC,
            "each of %lld steps was skipped, as its gradients overflowed in fp16: "
            "nothing was learnt, and the weights are those that training began with; %s, "
            "which is %g by now; --bf16 needs none",
            (long long)(e->total_steps - e->first_step),
            e->scaler.dynamic
                ? "a smaller fp16.initial_scale_power, or more steps, lower the loss "
                  "scale"
                : "a smaller fp16.loss_scale, or 0, with which it adapts, changes that",
            e->scaler.scale);
    return zt_fault_set(
        fault, ZT_E_NUMERIC,
        "the loss was not finite at any of %lld steps%s; look at the weights and the "
        "data%s",
        (long long)(e->total_steps - e->first_step),
        scaled        ? ", and no scale of it changes that"
        : num_updates ? ""
                      : ", each was skipped, and the weights have not changed",
        scaled ? ", or train with --bf16" : "");
}

/* As of adapters that count 0 times. */
static void tell_of_no_gradient(const struct zt_engine *e)
{
    if (e->run->rank == 0 && e->total_steps > e->first_step)
        zt_warn("train", "the gradient was 0 at each of %lld steps: nothing was learnt",
                (long long)(e->total_steps - e->first_step));
}

/* An evaluation may have been long: who wants to stop since then makes no step more. */
static zt_err ask_for_stop(struct zt_engine *e, struct zt_step_wishes *wishes,
                           struct zt_fault *fault)
{
    double any = zt_checkpoint_was_signalled(e) ? 1 : 0;
    zt_err rc = zt_sum_f64(e->comm, &any, 1, fault);

    wishes->stop = wishes->stop || any > 0;
    return rc;
}

/* This step becomes the last, which is saved as the last one is. */
static void end_early(struct zt_engine *e, int64_t step)
{
    double threshold = e->run->early_stopping_threshold;
    bool tells = e->run->rank == 0 && step < e->total_steps;

    if (tells && !isfinite(e->best.seen))
        zt_warn("train",
                "step %lld is the last: no evaluation up to it had a finite %s "
                "(--early_stopping_patience)",
                (long long)step, zt_run_best_metric(e->run));
    else if (tells && threshold > 0)
        zt_info(
            "train",
            "step %lld is the last: %lld evaluations in a row were not better by more "
            "than %g than the best before them (--early_stopping_threshold)",
            (long long)step, (long long)e->best.since, threshold);
    else if (tells)
        zt_info("train",
                "step %lld is the last: %lld evaluations in a row were no better than "
                "that of step %lld (--early_stopping_patience)",
                (long long)step, (long long)e->best.since, (long long)e->best.seen_step);
    e->total_steps = step;
}

zt_err zt_engine_train(struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    double earlier[ZT_NUM_WAITS]; /* of what came before training */
    struct window w = {.start = zt_now()};
    struct zt_control_requests requests = {.run = run};
    int64_t finite = 0;  /* steps with a loss that is a number */
    int64_t updates = 0; /* steps that were not skipped */
    bool any_gradient = false;
    int64_t held = e->total_steps; /* the step of the weights that it ends with */
    double first = 0;
    char phase[48];
    zt_err rc = e->first_step < e->total_steps ? first_batch(e, fault)
                                               : zt_checkpoint_without_steps(e, fault);

    zt_waits_take(earlier);
    zt_checkpoint_watch_signals(e);
    for (int64_t step = e->first_step + 1; !rc && step <= e->total_steps && !e->stop_code;
         step++) {
        struct outcome o = {0};
        /* the second step is the first that says when the end will be */
        bool log =
            step <= e->first_step + 2 || due(step, run->logging_steps, e->total_steps);

        snprintf(phase, sizeof(phase), "training step %lld", (long long)step);
        zt_event_phase(phase);
        zt_trace_begin("step", "step");
        rc = train_step(e, step, requests.wants_save, &o, fault);
        zt_trace_end();
        zt_control_requests_poll(&requests);
        if (rc == ZT_E_NUMERIC) /* on every rank: what is being saved can be */
            (void)!zt_checkpoint_after_steps(e, NULL);
        if (rc)
            return zt_fault_context(fault, rc, "step %lld", (long long)step);
        finite += isfinite(o.loss) ? 1 : 0;
        updates += o.skipped ? 0 : 1;
        any_gradient = any_gradient || o.grad_norm != 0;
        w.tokens += o.tokens;
        w.flops += o.flops;
        if (step == e->first_step + 1)
            first = zt_now(); /* the first step sizes things: not part of the rate, as
                               evaluations and checkpoints are, for there will be more */
        else
            e->rate = (double)(step - e->first_step - 1) / (zt_now() - first);
        if (run->fingerprint_steps && step % run->fingerprint_steps == 0)
            log = true;
        if (log)
            rc = report(e, step, &o, &w, fault);
        if (!rc && measures_at(e, step)) {
            double begun = begin_pause(&w);

            rc = measure_peak(e, fault);
            first += end_pause(&w, begun);
        }
        if (!rc && evaluation_is_due(e, step)) {
            double begun = begin_pause(&w);

            /* it may be long, and what is saved on the way is there before it */
            rc = zt_checkpoint_after_steps(e, fault);
            if (!rc)
                rc = zt_engine_evaluate(e, step, fault);
            if (!rc && zt_best_stops(e))
                end_early(e, step);
            if (!rc)
                rc = ask_for_stop(e, &o.wishes, fault);
            (void)end_pause(&w, begun);
        }
        if (!rc) {
            double begun = begin_pause(&w);

            rc = zt_checkpoint_after_step(e, step, o.wishes, &requests, fault);
            if (!rc)
                rc = zt_replicas_after_step(e, step, fault);
            (void)end_pause(&w, begun);
        }
    }
    if (!rc && !any_gradient && !e->stop_code)
        tell_of_no_gradient(e);
    if (!rc)
        rc = zt_checkpoint_after_last_step(e, &requests, fault);
    if (!rc)
        rc = zt_best_load(e, &held, fault);
    zt_checkpoint_unwatch_signals(e);
    zt_control_requests_end(&requests);
    /* of weights of before this run nothing is known here */
    if (!rc && run->do_eval && !e->stop_code && held <= e->first_step)
        rc = zt_engine_evaluate(e, held, fault);
    return rc ? rc : check_losses(e, finite, updates, fault);
}
