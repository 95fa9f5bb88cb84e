#include "worker/optim/scaler.h"

#include <math.h>

void zt_scaler_init(struct zt_scaler *s, const struct zt_scaler_config *cfg)
{
    *s = (struct zt_scaler){
        .cfg = *cfg,
        .dynamic = cfg->loss_scale == 0,
        .scale =
            cfg->loss_scale != 0 ? cfg->loss_scale : ldexp(1, cfg->initial_scale_power),
        .last_overflow = -1,
        .hysteresis_left = cfg->hysteresis,
    };
}

static zt_err shrink(struct zt_scaler *s, struct zt_fault *fault)
{
    if (s->cfg.hysteresis > 1 && s->hysteresis_left > 1) {
        s->hysteresis_left--;
        return ZT_OK;
    }
    if (s->scale <= s->cfg.min_loss_scale)
        return zt_fault_set(
            fault, ZT_E_NUMERIC,
            "fp16: gradients overflow although the loss scale is at its "
            "minimum of %g (fp16.min_loss_scale); the run diverges, or the "
            "model needs bf16 (\"bf16\": {\"enabled\": true})",
            s->scale);
    s->scale = fmax(s->scale / 2, s->cfg.min_loss_scale);
    return ZT_OK;
}

static void grow(struct zt_scaler *s)
{
    int64_t good = s->iter - s->last_overflow - 1;

    if (s->cfg.consecutive_hysteresis)
        s->hysteresis_left = s->cfg.hysteresis;
    if (good > 0 && good % s->cfg.loss_scale_window == 0) {
        if (!s->cfg.consecutive_hysteresis)
            s->hysteresis_left = s->cfg.hysteresis;
        s->scale *= 2;
    }
}

zt_err zt_scaler_update(struct zt_scaler *s, bool overflow, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (!s->dynamic)
        return ZT_OK;
    if (overflow) {
        rc = shrink(s, fault);
        s->last_overflow = s->iter;
    } else {
        grow(s);
    }
    s->iter++;
    return rc;
}
