/*
 * resolve.h -- from options and config items to the numbers of a struct zt_run.
 *
 * One decision per key: the file's value, unless an explicit option says otherwise (then
 * it is a contradiction); "auto" and absent values come from the option or a default.
 * Every decision is put into the resolved tree with its origin.
 * Threads: one.
 */
#ifndef WORKER_CONFIG_RESOLVE_H
#define WORKER_CONFIG_RESOLVE_H

#include "worker/config/config.h"
#include "worker/config/run.h"

/* The first half of every field; problems go to c->report. */
void zt_resolve_all(struct zt_config *c, struct zt_run *run);
void zt_resolve_optimizer(struct zt_config *c, struct zt_run *run);
void zt_resolve_scheduler(struct zt_config *c, struct zt_run *run);
void zt_resolve_batch(struct zt_config *c, struct zt_run *run);
/* Defaults of options that follow from --eval_strategy, --save_strategy and their like. */
void zt_resolve_strategies(struct zt_config *c);
void zt_resolve_offload(struct zt_config *c, struct zt_run *run);
void zt_check_zero(struct zt_config *c, const struct zt_run *run);

/* The second half, once data and model are known. */
void zt_resolve_steps(struct zt_config *c, struct zt_run *run, int64_t total);
void zt_resolve_sizes(struct zt_config *c, struct zt_run *run, int64_t hidden_size);

/* What the two halves share: `path` may be "auto" for `option` (NULL: for none); with
 * neither file nor explicit option it is `def` (JSON text), or, when that is NULL, the
 * option's default. Never NULL while memory lasts; then a null node. */
const struct zt_jnode *zt_resolve(struct zt_config *c, const char *path,
                                  const char *option, const char *def);
double zt_resolve_double(struct zt_config *c, const char *path, const char *option,
                         const char *def);
int64_t zt_resolve_int(struct zt_config *c, const char *path, const char *option,
                       const char *def);
bool zt_resolve_bool(struct zt_config *c, const char *path, const char *option,
                     const char *def);

/* The parameters of an optimizer or schedule, as their rows say. */
struct zt_hyper_source {
    const char *section; /* "optimizer": the keys are those of optimizer.params */
    bool written;        /* the file has the section */
    const struct zt_hyperparam *rows;
    const struct zt_optimizer *optimizer; /* whose rows they are; NULL: a schedule's */
    double lr;                            /* ZT_RULE_LR; schedules alone */
};
/* Resolve all but those with ZT_RULE_RUN_STEPS; values go to value[], by slot. */
void zt_resolve_hyperparams(struct zt_config *c, const struct zt_hyper_source *src,
                            double *value);
/* A schedule's parameter where the config has no section: the option's value, else the
 * default of its row, else 0. */
double zt_hyper_from_options(struct zt_config *c, const struct zt_hyperparam *p);
/* "optimizer.params.lr" */
const char *zt_hyper_path(struct zt_config *c, const char *section,
                          const struct zt_hyperparam *p);
/* Has the file this section with anything in it, and a type? A section without a type is
 * a problem. */
bool zt_config_has_section(const struct zt_config *c, const char *section);
void zt_config_check_type(struct zt_config *c, const char *section);

/* The option's value when anybody gave it; NULL: it is its default. */
const struct zt_value *zt_option_given(const struct zt_config *c, const char *option);
/* Steps between reports: those of --logging_steps, or of steps_per_print without it. */
int64_t zt_logging_steps(const struct zt_config *c);
/* What a problem with this value is: ZT_E_CONFIG when a file gave it, else ZT_E_USAGE. */
zt_err zt_value_error(const struct zt_value *v);
/* Nodes from C values. */
struct zt_jnode *zt_int_node(struct zt_text_arena *arena, int64_t value);
struct zt_jnode *zt_double_node(struct zt_text_arena *arena, double value);
double zt_node_double(const struct zt_jnode *node);
int64_t zt_node_int(const struct zt_jnode *node);

#endif
