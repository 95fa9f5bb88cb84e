/* strategies.c -- when a run evaluates and saves, and which evaluation is the best. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "worker/config/options.h"
#include "worker/config/resolve.h"

#define MOST_STEPS 9000000000000000000

/* What is said beside --eval_strategy, and against it. */
static void check_eval_strategy(struct zt_config *c, const struct zt_value *strategy)
{
    const struct zt_value *steps = zt_option_given(c, "eval_steps");
    const struct zt_value *eval = zt_option_given(c, "do_eval");
    bool by_steps = strcmp(strategy->text, "steps") == 0;

    if (strcmp(strategy->text, "no") != 0 && eval && !eval->boolean)
        zt_problems_add(&c->report, zt_value_error(strategy),
                        "%s is %s, but %s is false; leave one of them out",
                        strategy->where, strategy->text, eval->where);
    if (steps && by_steps == (steps->integer == 0))
        zt_problems_add(&c->report, zt_value_error(strategy),
                        "%s is %s, but %s is %lld; leave one of them out",
                        strategy->where, strategy->text, steps->where,
                        (long long)steps->integer);
}

static void resolve_eval_strategy(struct zt_config *c)
{
    const struct zt_value *strategy = zt_option_given(c, "eval_strategy");
    const struct zt_value *steps = zt_args_value(c->args, "eval_steps");
    int64_t logging = zt_logging_steps(c);
    char every[24];

    zt_args_set_default(c->args, "eval_strategy",
                        steps->integer && zt_args_flag(c->args, "do_eval") ? "steps"
                                                                           : "no",
                        "rule: as eval_steps and do_eval", &c->report);
    if (!strategy)
        return;
    check_eval_strategy(c, strategy);
    if (strcmp(strategy->text, "no") != 0)
        zt_args_set_default(c->args, "do_eval", "true", strategy->where, &c->report);
    if (strcmp(strategy->text, "steps") != 0)
        return;
    snprintf(every, sizeof(every), "%lld", /* "inf" is more than an option takes */
             (long long)(logging < MOST_STEPS ? logging : MOST_STEPS));
    zt_args_set_default(c->args, "eval_steps", every, "rule: as logging_steps",
                        &c->report);
}

static bool is_strategy(const struct zt_config *c, const char *option, const char *name)
{
    const char *strategy = zt_args_string(c->args, option);

    return strategy && strcmp(strategy, name) == 0;
}

/* While it is trained, and not at the end alone. */
static bool evaluates_on_the_way(const struct zt_config *c)
{
    return zt_args_flag(c->args, "do_eval") && !is_strategy(c, "eval_strategy", "no");
}

/* What is missing for that. */
static const char *advise_evaluation(const struct zt_config *c)
{
    return !zt_args_int(c->args, "eval_steps") ? "say --eval_strategy steps, or epoch"
           : zt_option_given(c, "do_train")    ? "add --do_eval"
                                               : "add --do_train --do_eval";
}

/* --save_steps alone says steps; steps alone means every 500. */
static void resolve_save_strategy(struct zt_config *c)
{
    const struct zt_value *strategy = zt_option_given(c, "save_strategy");
    const struct zt_value *steps = zt_args_value(c->args, "save_steps");
    const char *resume = zt_args_string(c->args, "resume_from_checkpoint");
    bool needs_dir = strategy ? strcmp(strategy->text, "no") != 0 : steps->integer > 0;
    bool in_dir = resume && (!strcmp(resume, "auto") || !strcasecmp(resume, "true"));

    if (strategy && strcmp(strategy->text, "steps") != 0 && steps->integer)
        zt_problems_add(&c->report, zt_value_error(strategy),
                        "%s is %s, but %s is %lld; leave one of them out",
                        strategy->where, strategy->text, steps->where,
                        (long long)steps->integer);
    else if (strategy && strcmp(strategy->text, "best") == 0 && !evaluates_on_the_way(c))
        zt_problems_add(&c->report, zt_value_error(strategy),
                        "%s is best, but nothing is evaluated on the way: %s",
                        strategy->where, advise_evaluation(c));
    else if ((needs_dir || in_dir) && !zt_args_string(c->args, "output_dir"))
        zt_problems_add(&c->report, ZT_E_USAGE,
                        "%s needs an --output_dir, where the checkpoints are",
                        needs_dir ? (strategy ? strategy->where : steps->where)
                                  : "--resume_from_checkpoint");
    if (!strategy)
        zt_args_set_default(c->args, "save_strategy",
                            steps->integer                                    ? "steps"
                            : zt_args_flag(c->args, "load_best_model_at_end") ? "best"
                                                                              : "no",
                            "rule: as save_steps and load_best_model_at_end", &c->report);
    else if (strcmp(strategy->text, "steps") == 0)
        zt_args_set_default(c->args, "save_steps", "500", "rule: as in Trainer",
                            &c->report);
}

/* What is loaded at the end has to be saved where it was evaluated. */
static void check_load_best(struct zt_config *c)
{
    int64_t eval = zt_args_int(c->args, "eval_steps");
    int64_t save = zt_args_int(c->args, "save_steps");

    if (!zt_args_flag(c->args, "load_best_model_at_end") ||
        is_strategy(c, "save_strategy", "best") ||
        (is_strategy(c, "save_strategy", "epoch") &&
         is_strategy(c, "eval_strategy", "epoch")) ||
        (is_strategy(c, "save_strategy", "steps") && eval && save &&
         (eval % save == 0 || save % eval == 0)))
        return;
    zt_problems_add(&c->report, ZT_E_USAGE,
                    "--load_best_model_at_end: the best evaluation has to be saved, and "
                    "save_strategy is %s: say --save_strategy best, or steps with "
                    "--save_steps a multiple or a divisor of --eval_steps, or epoch for "
                    "both",
                    zt_args_string(c->args, "save_strategy"));
}

/* --metric_for_best_model and what depends on it. */
static void resolve_best(struct zt_config *c)
{
    static const char *const losses[] = {"loss", "perplexity", "bits_per_byte"};
    const struct zt_value *patience = zt_option_given(c, "early_stopping_patience");
    const struct zt_value *load = zt_option_given(c, "load_best_model_at_end");
    const char *name = zt_args_string(c->args, "metric_for_best_model");
    bool is_loss = false;

    name += strncmp(name, "eval_", 5) == 0 ? 5 : 0;
    for (size_t i = 0; i < sizeof(losses) / sizeof(*losses); i++)
        is_loss |= strcmp(name, losses[i]) == 0;
    zt_args_set_default(c->args, "greater_is_better", is_loss ? "false" : "true",
                        "rule: by metric_for_best_model", &c->report);
    if (load && !load->boolean)
        load = NULL;
    if (patience && !patience->integer)
        patience = NULL;
    if ((load || patience) && !evaluates_on_the_way(c))
        zt_problems_add(&c->report, zt_value_error(load ? load : patience),
                        "%s: nothing is evaluated on the way: %s",
                        load ? load->where : patience->where, advise_evaluation(c));
    else if (load && !zt_args_string(c->args, "output_dir"))
        zt_problems_add(&c->report, zt_value_error(load),
                        "%s needs an --output_dir, where the checkpoints are",
                        load->where);
}

void zt_resolve_strategies(struct zt_config *c)
{
    resolve_eval_strategy(c);
    resolve_best(c);
    resolve_save_strategy(c);
    check_load_best(c);
}
