#include "worker/optim/adam.h"

#include <math.h>

static struct zt_view flat(void *data, zt_dtype dtype, int64_t n)
{
    return zt_view_of(data, dtype, 1, &n);
}

static zt_err adam_update(const struct zt_optim_step *step,
                          const struct zt_optim_slice *slice, struct zt_fault *fault)
{
    const struct zt_optim_config *cfg = step->cfg;
    double correct1 = 1, correct2 = 1;
    int64_t n = slice->n;

    if (cfg->bias_correction) {
        correct1 = 1 - pow(cfg->beta1, (double)step->t);
        correct2 = 1 - pow(cfg->beta2, (double)step->t);
    }
    struct zt_adamw_args args = {
        .master = flat(slice->master, ZT_F32, n),
        .m = flat(slice->state[0], ZT_F32, n),
        .v = flat(slice->state[1], ZT_F32, n),
        .grad = flat(slice->grad, ZT_F32, n),
        .grad_scale = step->grad_scale,
        .skip = step->skip,
        .lr = (float)step->lr,
        .lr_t = (float)(step->lr / correct1),
        .vscale = (float)(1 / sqrt(correct2)),
        .beta1 = (float)cfg->beta1,
        .beta2 = (float)cfg->beta2,
        .eps = (float)cfg->eps,
        .weight_decay = slice->decay ? (float)cfg->weight_decay : 0,
        .decoupled = cfg->decoupled,
        .zero_grad = true,
    };
    if (slice->param) {
        args.param = flat(slice->param, slice->param_dtype, n);
        args.stochastic = step->stochastic && slice->param_dtype == ZT_BF16;
        args.rng = (struct zt_philox){step->seed, slice->stream, slice->offset};
    }
    return step->backend->kernels->adamw(step->device, NULL, &args, fault);
}

const struct zt_optimizer zt_adam = {
    .name = "adam",
    .num_states = 2,
    .update = adam_update,
};
