/*
 * adam.c -- Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019).
 *
 * The arithmetic is that of struct zt_adamw_args. As in DeepSpeed, the type "Adam" means
 * AdamW unless "adam_w_mode" is false.
 */
#include <math.h>

#include "worker/optim/optim.h"

extern const struct zt_optimizer zt_optim_adamw, zt_optim_adam;

enum {
    LR = ZT_OPTIM_LR,
    BETA1,
    BETA2,
    EPS,
    WEIGHT_DECAY,
    BIAS_CORRECTION,
    TORCH_ADAM,
    ADAM_W_MODE,
};

static struct zt_view flat(void *data, zt_dtype dtype, int64_t n)
{
    return zt_view_of(data, dtype, 1, &n);
}

static zt_err adam_update(const struct zt_optim_step *step,
                          const struct zt_optim_slice *slice, struct zt_fault *fault)
{
    const double *value = step->cfg->value;
    double correct1 = 1, correct2 = 1;
    int64_t n = slice->n;

    if (value[BIAS_CORRECTION] != 0) { /* of the betas that the kernel has */
        correct1 = 1 - pow((float)value[BETA1], (double)step->t);
        correct2 = 1 - pow((float)value[BETA2], (double)step->t);
    }
    struct zt_adamw_args args = {
        .master = flat(slice->master, slice->master_dtype, n),
        .m = flat(slice->state[0], ZT_F32, n),
        .v = flat(slice->state[1], ZT_F32, n),
        .grad = flat(slice->grad, ZT_F32, n),
        .grad_scale = step->grad_scale,
        .skip = step->skip,
        .lr = (float)step->lr,
        .lr_t = (float)(step->lr / correct1),
        .vscale = (float)(1 / sqrt(correct2)),
        .beta1 = (float)value[BETA1],
        .beta2 = (float)value[BETA2],
        .eps = (float)value[EPS],
        .weight_decay = slice->decay ? (float)value[WEIGHT_DECAY] : 0,
        .decoupled = step->cfg->optimizer == &zt_optim_adamw,
    };
    if (slice->param) {
        args.param = flat(slice->param, slice->param_dtype, n);
        args.stochastic = step->stochastic && slice->param_dtype == ZT_BF16;
        args.rng = (struct zt_philox){step->seed, slice->stream, slice->offset};
    }
    return step->backend->kernels->adamw(step->device, NULL, &args, fault);
}

static const struct zt_optimizer *adam_variant(const double *value)
{
    return value[ADAM_W_MODE] != 0 ? &zt_optim_adamw : &zt_optim_adam;
}

/* torch.optim.AdamW decays by default, torch.optim.Adam and DeepSpeed's own do not. */
static const char *adam_default(const struct zt_optimizer *optimizer,
                                const struct zt_hyperparam *param, const double *value)
{
    bool decoupled = optimizer == &zt_optim_adamw || value[ADAM_W_MODE] != 0;

    return param->slot == WEIGHT_DECAY && value[TORCH_ADAM] != 0 && decoupled ? "0.01"
                                                                              : NULL;
}

static const struct zt_hyperparam params[] = {
    {.name = "lr",
     .slot = LR,
     .def = "0.001",
     .range = "[0,inf)",
     .options = {"learning_rate"},
     .takes_auto = true},
    {.name = "betas",
     .type = ZT_HYPER_PAIR,
     .slot = BETA1,
     .def = "[0.9, 0.999]",
     .range = "[0,1)",
     .options = {"adam_beta1", "adam_beta2"},
     .takes_auto = true},
    {.name = "eps",
     .slot = EPS,
     .def = "1e-08",
     .range = "(0,inf)", /* 0: where a gradient is 0, the weight becomes 0 / 0 */
     .options = {"adam_epsilon"},
     .takes_auto = true},
    {.name = "torch_adam",
     .type = ZT_HYPER_BOOL,
     .slot = TORCH_ADAM,
     .def = "false",
     .remark = "same arithmetic; it changes only the default of weight_decay"},
    {.name = "adam_w_mode",
     .type = ZT_HYPER_BOOL,
     .slot = ADAM_W_MODE,
     .def = "true",
     .remark = "of Adam; AdamW decays decoupled whatever it says"},
    {.name = "weight_decay",
     .slot = WEIGHT_DECAY,
     .def = "0.0",
     .range = "[0,inf)",
     .options = {"weight_decay"},
     .takes_auto = true,
     .remark =
         "of matrices and embeddings, as Trainer groups parameters for an optimizer of "
         "its own; biases and norms have none, although DeepSpeed, which makes the "
         "optimizer of this section, decays them as well"},
    {.name = "bias_correction",
     .type = ZT_HYPER_BOOL,
     .slot = BIAS_CORRECTION,
     .def = "true"},
    {.name = NULL},
};

const struct zt_optimizer zt_optim_adamw = {
    .name = "AdamW",
    .options = "adamw|adamw_torch|adamw_torch_fused",
    .help = "Adam with decoupled weight decay",
    .params = params,
    .states = {{"exp_avg", ZT_F32}, {"exp_avg_sq", ZT_F32}},
    .num_states = 2,
    .default_of = adam_default,
    .update = adam_update,
};

const struct zt_optimizer zt_optim_adam = {
    .name = "Adam",
    .help = "AdamW, or with \"adam_w_mode\": false weight decay in the gradient",
    .params = params,
    .states = {{"exp_avg", ZT_F32}, {"exp_avg_sq", ZT_F32}},
    .num_states = 2,
    .default_of = adam_default,
    .variant = adam_variant,
    .update = adam_update,
};
