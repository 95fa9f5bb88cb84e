/*
 * train.c -- the step loop: accumulate, reduce, norm, step.
 *
 * The loss is a sum over target tokens and is divided by their number in the whole global
 * batch (all ranks, all micro-batches), so any split of a batch means the same.
 */
#include "worker/engine/engine.h"

#include <math.h>
#include <stdio.h>

#include "common/event.h"
#include "common/log.h"
#include "worker/optim/sched.h"

/* What one step leaves for the log. */
struct outcome {
    double loss, grad_norm, lr;
    double tokens; /* targets of the global batch */
    double flops;  /* of this rank */
    bool skipped;
};

static size_t micro_elems(const struct zt_engine *e)
{
    return (size_t)(e->run->micro_batch_size * e->block_size);
}

/* Read the step's micro-batches; *targets: how many tokens of them count. */
static zt_err load_batches(struct zt_engine *e, int64_t step, int64_t *targets,
                           struct zt_fault *fault)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < e->run->grad_accum_steps; i++) {
        size_t at = (size_t)i * micro_elems(e);
        int64_t n = 0;
        zt_err rc = zt_sampler_read(e->sampler, step, i, e->tokens + at, e->targets + at,
                                    &n, fault);

        if (rc)
            return rc;
        sum += n;
    }
    *targets = sum;
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
        .T = e->block_size,
        .tokens = e->tokens + (size_t)i * micro_elems(e),
        .targets = e->targets + (size_t)i * micro_elems(e),
    };
    zt_tensor *loss = NULL;
    zt_err rc = zt_step_forward(e->step, &pass, &loss, fault);

    if (!rc)
        rc = add_loss(e, loss, fault);
    if (!rc)
        rc = zt_step_backward(e->step, loss, dloss, fault);
    zt_step_end(e->step);
    return rc;
}

/* This rank's shard of a block: where it begins, and how long it is. */
static int64_t shard_elems(const struct zt_engine *e, const struct zt_block *b,
                           int64_t *begin)
{
    int64_t n = b->padded_elems / zt_comm_world(e->comm);

    *begin = n * zt_comm_rank(e->comm);
    return n;
}

/*
 * Sum a gradient region over the ranks, block by block. With shared weights a rank needs
 * the sum of its own shard only.
 */
static zt_err reduce(struct zt_engine *e, float *region, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (zt_comm_world(e->comm) == 1)
        return ZT_OK;
    for (int i = 0; !rc && i < e->model->num_blocks; i++) {
        const struct zt_block *b = e->model->blocks[i];
        float *g = b->frozen ? NULL : region + e->state->train_base[i];
        int64_t begin, n = shard_elems(e, b, &begin);

        if (!g)
            continue;
        if (e->state->shared)
            rc = zt_reduce_scatter(e->comm, g, g + begin, (size_t)n, ZT_F32, 1, fault);
        else
            rc = zt_all_reduce(e->comm, g, g, (size_t)b->padded_elems, ZT_F32, ZT_SUM, 1,
                               fault);
    }
    return rc;
}

/* grads += micro_grads, which start again at zero. */
static zt_err add_micro_grads(struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_kernels *k = e->backend->kernels;
    int64_t n = e->state->train_elems;
    struct zt_axpby_args add = {.x = zt_view_of(e->state->micro_grads, ZT_F32, 1, &n),
                                .y = zt_view_of(e->state->grads, ZT_F32, 1, &n),
                                .alpha = 1,
                                .beta = 1};
    struct zt_fill_args zero = {.y = add.x};
    zt_err rc = k->axpby(e->device, NULL, &add, fault);

    return rc ? rc : k->fill(e->device, NULL, &zero, fault);
}

/* Forward and backward of every micro-batch; afterwards `grads` is summed over ranks. */
static zt_err accumulate(struct zt_engine *e, int64_t step, float dloss,
                         struct zt_fault *fault)
{
    bool every = e->state->micro_grads != NULL;
    zt_err rc = ZT_OK;

    e->scalars->loss = 0;
    for (int64_t i = 0; !rc && i < e->run->grad_accum_steps; i++) {
        rc = micro_step(e, step, i, dloss, fault);
        if (!rc && every)
            rc = reduce(e, e->state->micro_grads, fault);
        if (!rc && every)
            rc = add_micro_grads(e, fault);
    }
    return rc || every ? rc : reduce(e, e->state->grads, fault);
}

/*
 * The square of the gradients' norm: this rank's shard of every block, chunk by chunk,
 * then blocks in order; the ranks' parts are added in rank order by the caller. The same
 * sum whichever stage holds the gradients.
 */
static zt_err shard_sumsq(struct zt_engine *e, double *out, struct zt_fault *fault)
{
    double sum = 0;
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < e->model->num_blocks; i++) {
        const struct zt_block *b = e->model->blocks[i];
        float *g = zt_state_grads(e->state, b);
        int64_t begin, n = shard_elems(e, b, &begin);
        struct zt_sumsq_args a = {.sum = &e->scalars->sumsq[i]};

        e->scalars->sumsq[i] = 0;
        if (!g || !n)
            continue;
        a.x = zt_view_of(g + begin, ZT_F32, 1, &n);
        rc = e->backend->kernels->sumsq(e->device, NULL, &a, fault);
    }
    if (!rc)
        rc = e->backend->sync(e->device, NULL, fault);
    for (int i = 0; i < e->model->num_blocks; i++)
        sum += e->scalars->sumsq[i];
    *out = sum;
    return rc;
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
    e->scalars->grad_scale = (float)factor;
    e->scalars->skip = o->skipped;
    if (overflow && !o->skipped)
        return zt_fault_set(fault, ZT_E_NUMERIC,
                            "gradients are not finite at step %lld (loss %g); lower the "
                            "learning rate, or look at the data of this step",
                            (long long)(e->steps_taken + e->skipped + 1), o->loss);
    return fp16 ? zt_scaler_update(&e->scaler, overflow, fault) : ZT_OK;
}

/* The part of a segment that this rank updates; of shared weights, what is in its shard.
 */
static struct zt_segment own_part(const struct zt_engine *e, const struct zt_segment *seg)
{
    int64_t begin, n = shard_elems(e, seg->block, &begin), end = seg->at + seg->n;
    struct zt_segment own = *seg;

    if (!e->state->shared)
        return own;
    own.at = seg->at > begin ? seg->at : begin;
    end = end < begin + n ? end : begin + n;
    own.n = end > own.at ? end - own.at : 0;
    return own;
}

static zt_err update_segment(struct zt_engine *e, const struct zt_optim_step *how,
                             const struct zt_segment *seg, struct zt_fault *fault)
{
    struct zt_state *st = e->state;
    struct zt_optim_slice s = {
        .master = zt_state_master(st, seg->block) + seg->at,
        .grad = zt_state_grads(st, seg->block) + seg->at,
        .param_dtype = st->dtype,
        .n = seg->n,
        .decay = seg->decay,
    };

    if (st->master)
        s.param = (char *)zt_state_weights(st, seg->block) +
                  (size_t)seg->at * zt_dtype_bytes(st->dtype);
    for (int k = 0; k < st->num_states; k++)
        s.state[k] = zt_state_moment(st, seg->block, k) + seg->at;
    return e->optimizer->update(how, &s, fault);
}

static zt_err clear(struct zt_engine *e, float *grads, int64_t n, struct zt_fault *fault)
{
    struct zt_fill_args zero = {.y = zt_view_of(grads, ZT_F32, 1, &n)};

    return n ? e->backend->kernels->fill(e->device, NULL, &zero, fault) : ZT_OK;
}

/* The optimizer has zeroed what it used; the other ranks' shards are left to us. */
static zt_err clear_foreign_shards(struct zt_engine *e, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < e->model->num_blocks; i++) {
        const struct zt_block *b = e->model->blocks[i];
        float *g = zt_state_grads(e->state, b);
        int64_t begin, n = shard_elems(e, b, &begin);

        if (!g)
            continue;
        rc = clear(e, g, begin, fault);
        if (!rc)
            rc = clear(e, g + begin + n, b->padded_elems - begin - n, fault);
    }
    return rc;
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
    };
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < e->num_segments; i++) {
        struct zt_segment seg = own_part(e, &e->segments[i]);

        if (seg.n)
            rc = update_segment(e, &how, &seg, fault);
    }
    if (!rc && e->state->shared)
        rc = clear_foreign_shards(e, fault);
    if (!rc && e->state->shared) /* nobody reads weights that a peer still writes */
        rc = zt_barrier(e->comm, fault);
    return rc;
}

static zt_err clear_grads(struct zt_engine *e, struct zt_fault *fault)
{
    return clear(e, e->state->grads, e->state->train_elems, fault);
}

/* One optimizer step; `step` counts from 1. */
static zt_err train_step(struct zt_engine *e, int64_t step, struct outcome *o,
                         struct zt_fault *fault)
{
    double scale = e->run->compute_dtype == ZT_F16 ? e->scaler.scale : 1;
    int64_t targets = 0;
    double sums[2] = {0};
    zt_err rc = load_batches(e, step, &targets, fault);

    o->tokens = (double)targets;
    if (!rc)
        rc = zt_sum_f64(e->comm, &o->tokens, 1, fault);
    if (!rc && o->tokens == 0)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "step %lld has no target token to learn from",
                            (long long)step);
    if (!rc)
        rc = accumulate(e, step, (float)(scale / o->tokens), fault);
    if (!rc)
        rc = shard_sumsq(e, &sums[0], fault);
    sums[1] = (double)e->scalars->loss;
    if (!rc)
        rc = zt_sum_f64(e->comm, sums, 2, fault);
    if (rc)
        return rc;

    o->loss = sums[1] / o->tokens;
    o->lr = zt_sched_lr(&e->run->sched, e->run->optim.lr, e->steps_taken + 1);
    o->flops = zt_step_take_flops(e->step);
    rc = decide(e, sums[0], scale, o, fault);
    if (!rc)
        rc = o->skipped ? clear_grads(e, fault) : update_weights(e, o->lr, fault);
    if (rc)
        return rc;
    *(o->skipped ? &e->skipped : &e->steps_taken) += 1;
    e->samples += e->run->train_batch_size;
    return ZT_OK;
}

/* ---- logging ---- */

/* Time and work since the last line. */
struct window {
    double start, tokens, flops;
};

static zt_err report(struct zt_engine *e, int64_t step, const struct outcome *o,
                     struct window *w, struct zt_fault *fault)
{
    double now = zt_now(), took = now - w->start;
    struct zt_step_event ev = {
        .step = step,
        .total_steps = e->total_steps,
        .loss = o->loss,
        .lr = o->lr,
        .grad_norm = o->grad_norm,
        .tokens_per_s = w->tokens / took,
        .gemm_share = e->gemm_peak > 0 ? w->flops / took / e->gemm_peak : -1,
        .loss_scale = e->run->compute_dtype == ZT_F16 ? e->scaler.scale : 0,
        .samples = e->samples,
        .skipped = e->skipped,
        .peak_device_bytes = (int64_t)zt_engine_peak_bytes(e),
    };
    int64_t f = e->run->fingerprint_steps;
    zt_err rc = ZT_OK;

    ev.eta_s = e->rate > 0 ? (double)(e->total_steps - step) / e->rate : 0;
    if (f && step % f == 0) {
        ev.has_fingerprint = true;
        rc = zt_state_fingerprint(e->state, &ev.fingerprint, fault);
    }
    if (!rc && zt_comm_rank(e->comm) == 0)
        zt_event_step(&ev);
    if (ev.gemm_share > 1)
        e->gemm_peak = 0;
    *w = (struct window){.start = zt_now()};
    return rc;
}

/*
 * The yardstick of the progress line, taken once the run has shown that it is long enough
 * to be worth a tenth of a second; and again when the run turns out to be faster than the
 * yardstick, which was then taken while something else kept the processor busy.
 */
#define MEASURE_AT_STEP 20

static zt_err measure_peak(struct zt_engine *e, struct window *w, struct zt_fault *fault)
{
    double before = zt_now();
    zt_err rc = zt_measure_gemm(e->backend, e->device, e->run->compute_dtype, 0.1,
                                &e->gemm_peak, fault);

    w->start += zt_now() - before;
    return rc;
}

static bool due(int64_t step, int64_t every, int64_t last)
{
    return step == last || (every > 0 && step % every == 0);
}

zt_err zt_engine_train(struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    struct window w = {.start = zt_now()};
    double first = 0;
    char phase[48];
    zt_err rc = ZT_OK;

    for (int64_t step = 1; !rc && step <= e->total_steps; step++) {
        struct outcome o = {0};
        bool log = step == 1 || due(step, run->logging_steps, e->total_steps);

        snprintf(phase, sizeof(phase), "training step %lld", (long long)step);
        zt_event_phase(phase);
        rc = train_step(e, step, &o, fault);
        if (rc)
            return zt_fault_context(fault, rc, "step %lld", (long long)step);
        w.tokens += o.tokens;
        w.flops += o.flops;
        if (step == 1)
            first = zt_now(); /* the first step sizes things: not part of the rate */
        else
            e->rate = (double)(step - 1) / (zt_now() - first);
        if (run->fingerprint_steps && step % run->fingerprint_steps == 0)
            log = true;
        if (log)
            rc = report(e, step, &o, &w, fault);
        if (!rc && step >= MEASURE_AT_STEP && e->gemm_peak <= 0 &&
            e->total_steps > 2 * MEASURE_AT_STEP)
            rc = measure_peak(e, &w, fault);
        if (!rc && run->do_eval && run->eval_steps > 0 && step % run->eval_steps == 0 &&
            step < e->total_steps) {
            double before = zt_now();

            rc = zt_engine_evaluate(e, step, fault);
            w.start += zt_now() - before;
            first += zt_now() - before;
        }
    }
    return rc;
}
