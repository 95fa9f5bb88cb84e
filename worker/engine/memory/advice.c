/*
 * advice.c -- the run is planned again with one thing changed, then with several,
 * until a plan fits; the changes that made it fit are the advice.
 *
 * A smaller micro-batch and fewer ranks come with as many more accumulation steps, so
 * that the training stays the same.
 */
#include "worker/engine/memory/advice.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "worker/engine/memory/trial.h"

#define MIB ((double)(1 << 20))

enum {
    STAGE = 1,
    RECOMPUTE = 2,
    ROWS = 4,
    RANKS = 8,
    BLOCK = 16,
    OFFLOAD = 32,
    PARAMS = 64, /* offloaded as well, at stage 3 */
    EVAL = 128,  /* rows of an evaluation alone */
    LIVE = 256,  /* no gathered block outlives the call that needs it */
    HOST = 512   /* inputs of recomputed blocks wait in host memory */
};

/* From what changes least to what changes most. */
static const int orders[] = {EVAL,
                             STAGE,
                             RECOMPUTE,
                             STAGE | RECOMPUTE,
                             OFFLOAD,
                             OFFLOAD | RECOMPUTE,
                             ROWS,
                             RECOMPUTE | ROWS,
                             STAGE | ROWS,
                             STAGE | RECOMPUTE | ROWS,
                             OFFLOAD | ROWS,
                             OFFLOAD | PARAMS,
                             OFFLOAD | PARAMS | RECOMPUTE,
                             OFFLOAD | PARAMS | RECOMPUTE | ROWS,
                             OFFLOAD | PARAMS | HOST | RECOMPUTE | ROWS,
                             RANKS,
                             RANKS | RECOMPUTE | ROWS,
                             OFFLOAD | PARAMS | LIVE | RECOMPUTE | ROWS,
                             OFFLOAD | PARAMS | LIVE | HOST | RECOMPUTE | ROWS,
                             RANKS | OFFLOAD | RECOMPUTE | ROWS,
                             RANKS | OFFLOAD | PARAMS | RECOMPUTE | ROWS,
                             RANKS | OFFLOAD | PARAMS | LIVE | RECOMPUTE | ROWS,
                             RANKS | OFFLOAD | PARAMS | LIVE | HOST | RECOMPUTE | ROWS,
                             BLOCK | RANKS | STAGE | RECOMPUTE | ROWS,
                             BLOCK | OFFLOAD | PARAMS | RECOMPUTE | ROWS,
                             BLOCK | RANKS | OFFLOAD | PARAMS | LIVE | HOST | RECOMPUTE |
                                 ROWS};

/* Moving state to the host helps where that memory is another, or counted apart. */
static bool may_offload(const struct zt_memory_trial *t)
{
    return zt_run_is_staged(t->given->run) || t->of->device_limit != SIZE_MAX;
}

/* The optimizer's state on the host; at stage 0 it comes with stage 1, or where accumulators of 16
 * bit would be summed on the device there with stage 2. */
static void offload(struct zt_memory_trial *t)
{
    if (!t->run.do_train)
        return; /* there is none */
    t->run.zero.offload_optimizer.ratio = 1;
    if (t->run.zero.offload_optimizer.device == ZT_OFFLOAD_NONE)
        t->run.zero.offload_optimizer.device = ZT_OFFLOAD_CPU;
    if (t->run.zero.stage == 0)
        t->run.zero.stage = 1;
    if (t->run.zero.stage == 1 && t->run.zero.grad_accum_dtype != ZT_F32)
        t->run.zero.stage = 2;
}

static void offload_params(struct zt_memory_trial *t)
{
    zt_memory_trial_set_stage(t, 3);
    t->run.zero.hpz_partition_size = 1; /* a second partition is on the device */
    if (t->run.zero.offload_param.device == ZT_OFFLOAD_NONE)
        t->run.zero.offload_param.device = ZT_OFFLOAD_CPU;
}

static void keep_nothing_gathered(struct zt_memory_trial *t)
{
    t->run.zero.max_live_parameters = 0;
    t->run.zero.prefetch_bucket_size = 0;
}

static void keep_inputs_on_host(struct zt_memory_trial *t)
{
    t->run.gradient_checkpointing = t->run.cpu_checkpointing = t->run.do_train;
}

static void divide_eval_rows(struct zt_memory_trial *t, int64_t by)
{
    int64_t rows = t->run.per_device_eval_batch_size / by;

    t->run.per_device_eval_batch_size = rows ? rows : 1;
}

/* The run with its rows divided by `rows`, its ranks by `ranks`, its tokens by `block`. */
static void change(struct zt_memory_trial *t, bool recompute, int stage, int64_t rows,
                   int ranks, int64_t block)
{
    t->run.gradient_checkpointing |= recompute && t->run.do_train;
    zt_memory_trial_set_stage(t, stage);
    t->run.micro_batch_size /= rows;
    divide_eval_rows(t, rows);
    t->run.world /= ranks;
    t->run.local_world /= ranks;
    t->run.rank %= t->run.world;
    t->run.local_rank %= t->run.local_world;
    t->run.grad_accum_steps *= rows * ranks;
    t->in.block_size /= block;
}

static struct zt_memory_ladder powers_of_two(int64_t most)
{
    struct zt_memory_ladder l = {.num = 0};

    for (int64_t by = 2; by <= most; by *= 2)
        l.rung[l.num++] = by;
    return l;
}

/* Fewer ranks leave more for each where they share what there is. */
static struct zt_memory_ladder fewer_ranks(const struct zt_memory_trial *t)
{
    const struct zt_run *run = t->given->run;
    bool shared = t->of->sharers > 1 && run->world == run->local_world;

    return shared && run->zero.hpz_partition_size <= 1
               ? zt_memory_divisors(run->world)
               : (struct zt_memory_ladder){.num = 0};
}

static struct zt_memory_ladder stages(const struct zt_memory_trial *t)
{
    const struct zt_run *run = t->given->run;
    struct zt_memory_ladder l = {.num = 0};

    for (int s = run->zero.stage + 1; run->world > 1 && s <= 3; s++)
        l.rung[l.num++] = s;
    return l;
}

/* The ladder of a thing that may change, else the one rung that it stands on. */
static struct zt_memory_ladder from(int64_t as_it_is, bool may_change,
                                    struct zt_memory_ladder l)
{
    if (!may_change || !l.num)
        l = (struct zt_memory_ladder){.rung = {as_it_is}, .num = 1};
    return l;
}

static bool fits_with_eval_rows(struct zt_memory_trial *t)
{
    const struct zt_run *run = t->given->run;
    struct zt_memory_ladder rows =
        powers_of_two(run->do_eval ? run->per_device_eval_batch_size : 1);

    for (int r = 0; r < rows.num; r++) {
        zt_memory_trial_begin(t);
        divide_eval_rows(t, rows.rung[r]);
        if (zt_memory_trial_fits(t))
            return true;
    }
    return false;
}

/* The first run that fits with these things changed; else t is the smallest of them. */
static bool fits_with(struct zt_memory_trial *t, int what)
{
    const struct zt_run *run = t->given->run;
    int64_t eighth = t->given->block_size < 8 ? t->given->block_size : 8;
    struct zt_memory_ladder stage = from(run->zero.stage, what & STAGE, stages(t)),
                            rows = from(1, what & ROWS,
                                        zt_memory_divisors(run->micro_batch_size)),
                            ranks = from(1, what & RANKS, fewer_ranks(t)),
                            block = from(1, what & BLOCK, powers_of_two(eighth));

    if (what == EVAL)
        return fits_with_eval_rows(t);
    if ((what & (OFFLOAD | PARAMS | HOST)) && !may_offload(t))
        return false;
    for (int b = 0; b < block.num; b++)
        for (int n = 0; n < ranks.num; n++)
            for (int s = 0; s < stage.num; s++)
                for (int r = 0; r < rows.num; r++) {
                    zt_memory_trial_begin(t);
                    change(t, what & RECOMPUTE, (int)stage.rung[s], rows.rung[r],
                           (int)ranks.rung[n], block.rung[b]);
                    if (what & OFFLOAD)
                        offload(t);
                    if (what & PARAMS)
                        offload_params(t);
                    if (what & LIVE)
                        keep_nothing_gathered(t);
                    if (what & HOST)
                        keep_inputs_on_host(t);
                    if (zt_memory_trial_fits(t))
                        return true;
                }
    return false;
}

/* From what changes most: what a fit may turn out not to need. */
static const int parts[] = {BLOCK,   RANKS, LIVE,      HOST, PARAMS,
                            OFFLOAD, STAGE, RECOMPUTE, ROWS};

/* The same with no change that is not needed. */
static bool fits_with_least(struct zt_memory_trial *t, int what)
{
    bool is_last = fits_with(t, what);

    if (!is_last)
        return false;
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        if (!(what & parts[i]) || what == parts[i])
            continue;
        is_last = fits_with(t, what & ~parts[i]);
        if (is_last)
            what &= ~parts[i];
    }
    return is_last || fits_with(t, what);
}

/* ---- as words ---- */

struct words {
    char *out;
    size_t cap, at;
};

static void say(struct words *w, const char *fmt, ...) ZT_PRINTF(2, 3);
static void say(struct words *w, const char *fmt, ...)
{
    va_list ap;
    int n;

    if (w->at >= w->cap)
        return;
    va_start(ap, fmt);
    n = vsnprintf(w->out + w->at, w->cap - w->at, fmt, ap);
    va_end(ap);
    w->at += n > 0 ? (size_t)n : 0;
}

/* What has a key alone, and no option. */
#define LEAST_GATHERED                                                                   \
    "\"stage3_max_live_parameters\": 0, \"stage3_prefetch_bucket_size\": 0"

/* What differs of offload_optimizer, in JSON. */
static void say_optimizer(struct words *w, const struct zt_offload_optimizer *was,
                          const struct zt_offload_optimizer *now)
{
    say(w, ", \"offload_optimizer\": {\"device\": \"%s\"",
        now->device == ZT_OFFLOAD_NVME ? "nvme" : "cpu");
    if (now->ratio != was->ratio)
        say(w, ", \"ratio\": %g", now->ratio);
    say(w, "}");
}

/* What differs of "zero_optimization", in the JSON of a run that has such a config, else as
 * options. */
static void say_zero(struct words *w, const struct zt_run *was, const struct zt_run *run)
{
    const struct zt_offload_optimizer *o = &run->zero.offload_optimizer,
                                      *before = &was->zero.offload_optimizer;
    bool optimizer = o->device != before->device || o->ratio != before->ratio;
    bool params = run->zero.offload_param.device != was->zero.offload_param.device;
    bool live = run->zero.max_live_parameters != was->zero.max_live_parameters ||
                run->zero.prefetch_bucket_size != was->zero.prefetch_bucket_size;
    bool group = run->zero.hpz_partition_size != was->zero.hpz_partition_size;

    if (run->zero.stage == was->zero.stage && !optimizer && !params && !live)
        return;
    if (run->zero.share_node_weights != was->zero.share_node_weights)
        say(w, "--share_node_weights false ");
    if (!was->has_json) {
        say(w, "--zero_stage %d ", run->zero.stage);
        if (optimizer)
            say(w, "--offload_optimizer_device cpu ");
        if (params)
            say(w, "--offload_param_device cpu ");
        if (live)
            say(w, "--deepspeed '{\"zero_optimization\": {" LEAST_GATHERED "}}' ");
        return;
    }
    say(w, "\"zero_optimization\": {\"stage\": %d", run->zero.stage);
    if (optimizer)
        say_optimizer(w, before, o);
    if (params)
        say(w, ", \"offload_param\": {\"device\": \"cpu\"}");
    if (group)
        say(w, ", \"zero_hpz_partition_size\": 1");
    if (live)
        say(w, ", " LEAST_GATHERED);
    say(w, "} ");
}

/* By --activations where that says how it was. */
static void say_activations(struct words *w, const struct zt_run *was,
                            const struct zt_run *run)
{
    bool host = run->cpu_checkpointing && !was->cpu_checkpointing;
    bool recompute = run->gradient_checkpointing && !was->gradient_checkpointing;

    if (was->activations && (host || recompute))
        say(w, "--activations %s ", host ? "host" : "recompute");
    else if (host && !was->has_json)
        say(w, "--activations host %s",
            recompute ? "" : "in place of --gradient_checkpointing ");
    else if (host)
        say(w, "\"activation_checkpointing\": {\"cpu_checkpointing\": true} ");
    if (!was->activations && recompute && (!host || was->has_json))
        say(w, "--gradient_checkpointing ");
}

/* A size of the batch, where the JSON has it as a number there. */
static void say_batch(struct words *w, const struct zt_run *run, const char *key,
                      const char *option, int64_t value)
{
    bool in_json = zt_run_json_says(run, key);

    say(w, in_json ? "\"%s\": %lld " : "--%s %lld ", in_json ? key : option,
        (long long)value);
}

/* What is to be typed for the run of the trial. */
static void say_changes(struct words *w, const struct zt_memory_trial *t)
{
    const struct zt_run *was = t->given->run, *run = &t->run;

    if (run->world != was->world)
        say(w, "--num_gpus %d ", run->world);
    say_zero(w, was, run);
    say_activations(w, was, run);
    if (run->do_train && run->micro_batch_size != was->micro_batch_size)
        say_batch(w, was, "train_micro_batch_size_per_gpu", "per_device_train_batch_size",
                  run->micro_batch_size);
    if (run->do_train && run->grad_accum_steps != was->grad_accum_steps)
        say_batch(w, was, "gradient_accumulation_steps", "gradient_accumulation_steps",
                  run->grad_accum_steps);
    if (run->do_eval &&
        run->per_device_eval_batch_size != was->per_device_eval_batch_size)
        say(w, "--per_device_eval_batch_size %lld ",
            (long long)run->per_device_eval_batch_size);
    if (t->in.block_size != t->given->block_size)
        say(w, "--block_size %lld ", (long long)t->in.block_size);
}

/* Whether it fits with all state in files; which folder, only the user knows. */
static bool fits_in_files(struct zt_memory_trial *t)
{
    zt_memory_trial_begin(t);
    t->run.zero.offload_optimizer.ratio = 1;
    t->run.zero.offload_optimizer.device = t->run.zero.offload_param.device =
        ZT_OFFLOAD_NVME;
    t->run.zero.offload_param.max_in_cpu = 0;
    offload_params(t);
    t->run.gradient_checkpointing |= t->run.do_train;
    return zt_memory_trial_fits(t);
}

void zt_memory_advice(const struct zt_memory_plan_inputs *in,
                      const struct zt_memory_plan *plan, char *out, size_t cap)
{
    struct zt_memory_trial t = {.given = in, .of = plan};
    struct words w = {.out = out, .cap = cap};
    size_t before;
    bool found = false;

    for (size_t i = 0; i < sizeof(orders) / sizeof(*orders) && !found; i++)
        found = fits_with_least(&t, orders[i]);
    if (!found)
        say(&w, "with ");
    before = w.at;
    say_changes(&w, &t);
    if (found)
        say(&w, "would fit, with %.0f MiB for each",
            (double)(t.plan.total + t.plan.host) / MIB);
    else if (w.at == before)
        w.at = before - strlen("with ");
    if (!found && t.plan.on_device > plan->device_limit)
        say(&w,
            "it would still need %.1f MiB on the device of each: a smaller model, or "
            "more of it",
            (double)t.plan.on_device / MIB);
    else if (!found)
        say(&w,
            "it would still need %.0f MiB for each of %d: a smaller model, or more "
            "memory",
            (double)(t.plan.total + t.plan.host) / MIB, t.run.local_world);
    if (!found && fits_in_files(&t))
        say(&w,
            ", or ZeRO stage 3 with state in files (offload_optimizer and "
            "offload_param, device nvme%s, docs/OFFLOAD.md)%s",
            in->run->zero.offload_param.max_in_cpu ? ", without max_in_cpu" : "",
            in->run->gradient_checkpointing || !in->run->do_train
                ? ""
                : " and --gradient_checkpointing");
    zt_memory_trial_end(&t);
}
