/*
 * summary.c -- what a run is about to do, in one sentence: so that a wrong model, an empty
 * data set or a missing --output_dir is seen before the first step.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/human.h"
#include "common/log.h"
#include "common/message/event.h"
#include "worker/engine/data.h"
#include "worker/engine/engine.h"
#include "worker/optim/sched/sched.h"

struct line {
    char text[640];
    size_t at;
};

static void add(struct line *l, const char *fmt, ...) ZT_PRINTF(2, 3);
static void add(struct line *l, const char *fmt, ...)
{
    va_list ap;
    int n;

    if (l->at >= sizeof(l->text))
        return;
    va_start(ap, fmt);
    n = vsnprintf(l->text + l->at, sizeof(l->text) - l->at, fmt, ap);
    va_end(ap);
    l->at += n > 0 ? (size_t)n : 0;
}

static void add_offload(struct line *l, const struct zt_zero_options *zero)
{
    static const char *const names[] = {"none", "cpu", "nvme"};
    const struct zt_offload_optimizer *o = &zero->offload_optimizer;

    if (o->device && o->ratio < 1)
        add(l, ", %g of the optimizer on %s", o->ratio, names[o->device]);
    else if (o->device)
        add(l, ", optimizer on %s", names[o->device]);
    if (zero->offload_param.device)
        add(l, ", weights on %s%s",
            zero->offload_param.device == ZT_OFFLOAD_NVME &&
                    zero->offload_param.max_in_cpu
                ? "cpu and "
                : "",
            names[zero->offload_param.device]);
}

static const char *const of_training[] = {"max_steps",
                                          "num_train_epochs",
                                          "save_strategy",
                                          "save_steps",
                                          "save_grace",
                                          "save_total_limit",
                                          "early_stopping_patience",
                                          "save_memory",
                                          "load_best_model_at_end",
                                          "checkpoint_in_memory",
                                          NULL};
static const char *const of_saving[] = {"save_total_limit", "save_grace", "save_memory",
                                        NULL};
static const char *const of_evaluation[] = {"eval_steps",
                                            "eval_batches",
                                            "max_eval_samples",
                                            "eval_fraction",
                                            "metric_for_best_model",
                                            "greater_is_better",
                                            "per_device_eval_batch_size",
                                            NULL};
static const char *const of_evaluation_alone[] = {
    "eval_steps",        "eval_batches",
    "max_eval_samples",  "metric_for_best_model",
    "greater_is_better", NULL};
static const char *const of_parts[] = {"eval_fraction", NULL};
static const char *const of_best[] = {"metric_for_best_model", "greater_is_better", NULL};
static const char *const of_losses[] = {"label_smoothing_factor", NULL};
static const char *const of_rows[] = {
    "source_prefix", "source_column", "target_column",     "source_lang",
    "target_lang",   "text_column",   "max_train_samples", NULL};
static const char *const of_stopping[] = {"early_stopping_threshold", NULL};
static const char *const of_text[] = {
    "do_sample",      "temperature",          "top_k",
    "top_p",          "repetition_penalty",   "no_repeat_ngram_size",
    "num_beams",      "length_penalty",       "early_stopping",
    "min_new_tokens", "num_return_sequences", NULL};
static const char *const of_sampling[] = {"do_sample", NULL};
static const char *const of_draws[] = {"top_k", "top_p", NULL};
static const char *const of_temperature[] = {"temperature", NULL};
static const char *const of_beams[] = {"length_penalty", "early_stopping", NULL};
static const char *const of_weights[] = {"allow_partial_import",
                                         "ignore_mismatched_sizes", NULL};
static const char *const of_output[] = {"overwrite_output_dir", "save_on_each_node",
                                        NULL};
static const char *const of_plan[] = {"rates", NULL};
static const char *const of_files[] = {"output_dir", NULL};

void zt_engine_tell_of_no_effect(const struct zt_run *run)
{
    bool writes = run->generate_tokens > 0 || run->predict_with_generate;
    bool has_files =
        run->do_train || run->do_eval || run->do_predict || run->merge_adapters;
    /* that a run trains needs no saying, unless it is said what else it does */
    bool said_train = zt_run_says(run, (const char *const[]){"do_train", NULL}) != NULL;
    const struct {
        bool none;
        const char *const *names;
        const char *why;
    } rows[] = {
        {run->do_eval && !run->do_train, of_training,
         "is for training, and this run only evaluates; add --do_train to train as well"},
        {run->do_eval && !run->do_train, of_best,
         "is for training, and this run only evaluates; add --do_train to train as well"},
        {run->do_eval && run->do_train && strcmp(run->save_strategy, "no") == 0 &&
             run->early_stopping_patience == 0,
         of_best,
         "has no effect: nothing asks for the best; add --load_best_model_at_end, "
         "--save_strategy best or --early_stopping_patience"},
        {!run->do_eval && !run->do_train && !run->merge_adapters, of_training,
         "is for training, and this run only predicts; add --do_train to train as well"},
        {run->do_train && strcmp(run->save_strategy, "no") == 0, of_saving,
         "has no effect: nothing is saved on the way; add --save_steps"},
        {run->do_train && !run->do_eval, of_evaluation,
         said_train
             ? "has no effect: nothing is evaluated; add --do_eval"
             : "has no effect: nothing is evaluated; add --do_eval, and --do_train "
               "to train as well"},
        {!run->do_train && !run->do_eval, of_evaluation_alone,
         "has no effect: nothing is evaluated; add --do_eval"},
        {run->do_eval && run->eval_files && run->eval_files[0], of_parts,
         "has no effect: what is evaluated is in --eval_file"},
        {!has_files, of_losses,
         "has no effect: nothing is trained, and nothing evaluated"},
        {!has_files, of_rows,
         "has no effect: no file of rows is read, and a prompt is taken as it is"},
        {run->do_train && run->early_stopping_patience == 0, of_stopping,
         "has no effect without --early_stopping_patience"},
        {!writes, of_text,
         run->do_train && !said_train
             ? "has no effect: no text is made; add --prompt, and --do_train to train as "
               "well"
             : "has no effect: no text is made; add --prompt"},
        {writes && !run->do_sample && run->temperature != 0, of_temperature,
         "has no effect: texts are drawn with --do_sample"},
        {writes && !run->do_sample, of_draws,
         "has no effect: texts are drawn with --do_sample"},
        {writes && run->do_sample && run->temperature == 0, of_sampling,
         "has no effect: with --temperature 0 the likeliest token is taken"},
        {writes && run->do_sample && run->temperature == 0, of_draws,
         "has no effect: with --temperature 0 the likeliest token is taken"},
        {writes && run->num_beams <= 1, of_beams, "has no effect without --num_beams"},
        {!run->model_name_or_path, of_weights,
         "has no effect: no weights are read; add --model_name_or_path"},
        {!run->output_dir, of_output, "has no effect without --output_dir"},
        {!run->dry_run, of_plan, "has no effect without --dry_run"},
        {writes && !has_files, of_files,
         "has no effect: texts go to standard output, and nothing is saved"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (const char *const *name = rows[i].names; rows[i].none && *name; name++) {
            const char *said = zt_run_says(run, (const char *const[]){*name, NULL});

            if (said)
                zt_warn("config", "%s %s", said, rows[i].why);
        }
}

/* Steps from the first one of this run on whose learning rate is 0, in the single precision of
 * the optimizer. */
static int64_t steps_at_rate_0(const struct zt_engine *e)
{
    double base = e->run->optim.value[ZT_OPTIM_LR];
    int64_t n = e->steps_taken;
    int64_t last = n + e->total_steps - e->first_step;

    while (n < last && (float)zt_sched_lr(&e->run->sched, base, n + 1) == 0)
        n++;
    return n - e->steps_taken;
}

/* Whether rates come after the last step of this run; WarmupLR begins with two steps of 0. */
static bool is_warming_up(const struct zt_engine *e, int64_t last)
{
    const struct zt_sched_config *s = &e->run->sched;
    const struct zt_hyperparam *p =
        zt_hyper_with_rule(s->schedule->params, ZT_RULE_WARMUP_STEPS);

    return p && (s->value[p->slot] >= (double)last ||
                 (float)zt_sched_lr(s, e->run->optim.value[ZT_OPTIM_LR], last + 2) > 0);
}

/* A warm-up begins with rate 0, which is no surprise in one step of many. */
static void tell_of_rate_0(const struct zt_engine *e)
{
    int64_t num = steps_at_rate_0(e), of = e->total_steps - e->first_step;

    if (!e->run->optim.value[ZT_OPTIM_LR]) /* that is what was asked for */
        return;
    if (num && num == of)
        zt_warn("train",
                "the learning rate is 0 at every step of this run, which learns nothing: "
                "%s",
                is_warming_up(e, e->steps_taken + of)
                    ? "fewer warm-up steps, or more steps"
                : (float)e->run->optim.value[ZT_OPTIM_LR] == 0
                    ? "in single precision, in which the optimizer computes, it is 0"
                    : "its schedule ended before it, or has no other rate");
    else if (num > 1)
        zt_info("train",
                "the learning rate is 0 at the first %" PRId64
                " steps: so the schedule begins",
                num);
}

static void tell_of_repeated_rows(const struct zt_engine *e)
{
    bool cut = e->run->max_train_samples > 0;
    const char *who = cut ? "--max_train_samples leaves" : "the training files have";
    const char *of = cut ? "of them" : "data";
    int64_t tokens = zt_dataset_num_tokens(e->train_data);
    int64_t step = e->run->train_batch_size * e->block_size;
    int64_t rows = zt_dataset_num_rows(e->train_data);
    char has[ZT_HUMAN], needs[ZT_HUMAN];

    if (rows && rows < e->run->train_batch_size)
        zt_warn("data",
                "a step has %lld rows, and %s %lld: rows are in it more than once; a "
                "smaller batch, or more %s",
                (long long)e->run->train_batch_size, who, (long long)rows, of);
    else if (!rows && tokens < step)
        zt_warn(
            "data",
            "a step reads %s tokens, and %s %s: rows are in it more than once; a smaller "
            "batch, or more %s",
            zt_human_count(needs, (double)step), who, zt_human_count(has, (double)tokens),
            of);
}

/* Figures and texts of weights that nothing has trained say nothing. */
static void tell_of_initial_weights(const struct zt_run *run)
{
    bool predicts = run->do_predict || run->generate_tokens > 0;

    if (!run->do_train && !run->model_name_or_path && (run->do_eval || predicts))
        zt_warn("model",
                "nothing has trained the weights of this run, they are initial ones: "
                "--model_name_or_path FOLDER gives those of a model or checkpoint");
}

static void add_training(struct line *l, const struct zt_engine *e)
{
    const struct zt_run *run = e->run;
    double tokens = (double)zt_dataset_num_tokens(e->train_data);
    int64_t to_come = e->total_steps > e->first_step ? e->total_steps - e->first_step : 0;
    int64_t steps = e->total_steps > e->first_step ? e->total_steps : e->first_step;
    double rows = (double)e->samples + (double)run->train_batch_size * (double)to_come;
    double epochs = zt_engine_epochs(e, e->first_step + to_come, rows);
    double samples = (double)zt_dataset_num_samples(e->train_data);
    double all_rows = (double)zt_dataset_num_rows(e->train_data);
    char all[ZT_HUMAN], packed[ZT_HUMAN];

    if (samples > 0)
        add(l,
            "; %" PRId64 " step%s of %" PRId64 " rows of up to %" PRId64
            " tokens, %.3g epochs of %s samples",
            steps, steps == 1 ? "" : "s", run->train_batch_size, e->block_size, epochs,
            zt_human_count(all, samples));
    else
        add(l,
            "; %" PRId64 " step%s of %" PRId64 " rows of %" PRId64
            " tokens, %.3g epochs of %s tokens",
            steps, steps == 1 ? "" : "s", run->train_batch_size, e->block_size, epochs,
            zt_human_count(all, tokens));
    if (zt_dataset_is_packed(e->train_data))
        add(l, " in %s rows", zt_human_count(packed, all_rows));
    if (run->output_dir)
        add(l, "; weights go to %s", run->output_dir);
    else
        add(l, "; nothing is saved (--output_dir)");
}

void zt_engine_print_summary(const struct zt_engine *e)
{
    const struct zt_run *run = e->run;
    char parameters[ZT_HUMAN];
    struct line l = {.at = 0};

    if (run->rank)
        return;
    if (run->run_name && *run->run_name)
        add(&l, "%s: ", run->run_name);
    add(&l, "%s: %s parameters, %s, %d %s on %s, ZeRO stage %d", e->plugin->name,
        zt_human_count(parameters, (double)e->model->numel),
        zt_dtype_name(run->compute_dtype), run->world, run->world == 1 ? "rank" : "ranks",
        run->device, run->zero.stage);
    add_offload(&l, &run->zero);
    if (run->do_train)
        add_training(&l, e);
    else if (run->train_files && run->train_files[0])
        add(&l, "; nothing is trained (--do_train)");
    if (!run->do_eval && run->eval_files && run->eval_files[0])
        add(&l, "; nothing is evaluated (--do_eval)");
    zt_event_begin(l.text, run->run_name, run->do_train);
    if (run->do_train) {
        tell_of_rate_0(e);
        tell_of_repeated_rows(e);
    }
    tell_of_initial_weights(run);
    zt_engine_tell_of_no_effect(run);
}
