#include "worker/optim/sched.h"

#include <math.h>

/* DeepSpeed's warm-up factor: 0 at t <= 0, 1 from about `steps` on. */
static double warmup_factor(const struct zt_sched_config *cfg, int64_t t)
{
    int64_t steps = cfg->warmup_steps > 2 ? cfg->warmup_steps : 2;

    if (t < 0)
        return 0;
    if (t >= steps)
        return 1;
    return cfg->warmup_log ? log((double)t + 1) / log((double)steps)
                           : (double)t / (double)steps;
}

static double warmup_lr(const struct zt_sched_config *cfg, int64_t t)
{
    return cfg->min_lr + (cfg->max_lr - cfg->min_lr) * warmup_factor(cfg, t);
}

static double warmup_decay_lr(const struct zt_sched_config *cfg, int64_t t)
{
    int64_t steps = cfg->warmup_steps > 2 ? cfg->warmup_steps : 2;
    double left = (double)(cfg->total_steps - t),
           span = (double)(cfg->total_steps - steps);

    if (t < steps)
        return warmup_lr(cfg, t);
    return cfg->min_lr + (cfg->max_lr - cfg->min_lr) * fmax(0, left / fmax(1, span));
}

/* Hugging Face's: linear warm-up from 0, then what is left of the run as 1 .. 0. */
static double remaining(const struct zt_sched_config *cfg, int64_t k)
{
    double span = (double)(cfg->total_steps - cfg->warmup_steps);

    return fmax(0, (double)(cfg->total_steps - k) / fmax(1, span));
}

double zt_sched_lr(const struct zt_sched_config *cfg, double base_lr, int64_t n)
{
    int64_t k = n - 1;
    bool warming = k < cfg->warmup_steps;
    double ramp = warming ? (double)k / fmax(1, (double)cfg->warmup_steps) : 1;

    switch (cfg->kind) {
    case ZT_SCHED_WARMUP:
        return warmup_lr(cfg, n - 2);
    case ZT_SCHED_WARMUP_DECAY:
        return warmup_decay_lr(cfg, n - 2);
    case ZT_SCHED_LINEAR:
        return base_lr * (warming ? ramp : remaining(cfg, k));
    case ZT_SCHED_COSINE:
        /* remaining() falls from 1 to 0: cos(pi (1 - r)) */
        return base_lr *
               (warming ? ramp : 0.5 * (1 + cos(acos(-1.0) * (1 - remaining(cfg, k)))));
    case ZT_SCHED_CONSTANT_WITH_WARMUP:
        return base_lr * ramp;
    case ZT_SCHED_CONSTANT:
        break;
    }
    return base_lr;
}
