#include "worker/optim/sched/sched.h"

#include <string.h>

#include "common/suggest.h"

/* A schedule is one file, and its name in these two lists. */
extern const struct zt_schedule zt_sched_warmup_lr, zt_sched_warmup_decay_lr,
    zt_sched_warmup_cosine_lr, zt_sched_linear, zt_sched_cosine, zt_sched_constant,
    zt_sched_constant_with_warmup;
const struct zt_schedule *const zt_schedules[] = {&zt_sched_warmup_lr,
                                                  &zt_sched_warmup_decay_lr,
                                                  &zt_sched_warmup_cosine_lr,
                                                  &zt_sched_linear,
                                                  &zt_sched_cosine,
                                                  &zt_sched_constant,
                                                  &zt_sched_constant_with_warmup,
                                                  NULL};

const struct zt_schedule *zt_schedule_find(const char *type)
{
    for (int i = 0; zt_schedules[i]; i++)
        if (zt_schedules[i]->type && !strcmp(zt_schedules[i]->type, type))
            return zt_schedules[i];
    return NULL;
}

const struct zt_schedule *zt_schedule_of_option(const char *value)
{
    for (int i = 0; zt_schedules[i]; i++)
        if (zt_is_one_of(zt_schedules[i]->options, value, false))
            return zt_schedules[i];
    return NULL;
}

double zt_sched_lr(const struct zt_sched_config *cfg, double base_lr, int64_t n)
{
    return cfg->schedule->lr(cfg->value, base_lr, n);
}
