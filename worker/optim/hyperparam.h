/*
 * hyperparam.h -- what an optimizer or a learning-rate schedule can be told, as rows.
 *
 * The rows of an optimizer or schedule are all that the config reader, the docs and the
 * code know of its parameters. Values are kept as doubles: a whole number as itself, a
 * bool as 0 or 1, a choice as its index, a pair as two neighbours.
 * Threads:   const.
 */
#ifndef WORKER_OPTIM_HYPERPARAM_H
#define WORKER_OPTIM_HYPERPARAM_H

#include "include/zlaunch/types.h"

typedef enum zt_hyper_type {
    ZT_HYPER_FLOAT,
    ZT_HYPER_INT,
    ZT_HYPER_BOOL,
    ZT_HYPER_PAIR,   /* an array of two numbers */
    ZT_HYPER_CHOICE, /* one of `choices` */
} zt_hyper_type;

/* What gives a value that neither the config nor an option has. */
typedef enum zt_hyper_rule {
    ZT_RULE_DEFAULT,      /* `def` */
    ZT_RULE_LR,           /* the optimizer's learning rate */
    ZT_RULE_WARMUP_STEPS, /* `def`; with "auto" also warmup_ratio * steps of the run */
    ZT_RULE_RUN_STEPS,    /* the steps of the run, where a config says "auto" */
} zt_hyper_rule;

struct zt_hyperparam {
    const char
        *name; /* key of optimizer.params or scheduler.params; NULL ends the rows */
    zt_hyper_type type;
    int slot;            /* value[slot]; a pair has the next one as well */
    const char *def;     /* JSON text: what a section without the key means; NULL: none */
    const char *range;   /* "[0,inf)" of every number; NULL: any */
    const char *choices; /* CHOICE: "log|linear" */
    const char *options[2]; /* the run options that "auto" stands for; a pair has two */
    bool takes_auto;        /* "auto" has a meaning */
    zt_hyper_rule rule;
    const char *remark; /* for the docs; NULL: none */
};

/* Values of one optimizer or schedule, by slot. */
#define ZT_HYPER_VALUES 16

/* The row of this name; NULL: there is none. */
const struct zt_hyperparam *zt_hyper_find(const struct zt_hyperparam *rows,
                                          const char *name);
/* The first row with this rule; NULL: there is none. */
const struct zt_hyperparam *zt_hyper_with_rule(const struct zt_hyperparam *rows,
                                               zt_hyper_rule rule);

#endif
