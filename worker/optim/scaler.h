/*
 * scaler.h -- dynamic loss scaling for fp16 (Micikevicius et al. 2018), as DeepSpeed runs
 * it.
 *
 *      overflow              spend one of `hysteresis`, or halve; at the floor an error,
 *                            which ends the run
 *      `loss_scale_window`   double, refill hysteresis
 *      updates without one
 *
 * Gradients of a step are unscaled by the scale they were computed with.
 * Threads:   one.
 * Invariant: scale >= min_loss_scale.
 */
#ifndef WORKER_OPTIM_SCALER_H
#define WORKER_OPTIM_SCALER_H

#include "common/fault.h"

struct zt_scaler_config { /* fp16 only */
    double loss_scale;    /* 0: dynamic */
    int initial_scale_power;
    int64_t loss_scale_window;
    int hysteresis;
    bool consecutive_hysteresis;
    double min_loss_scale;
};

struct zt_scaler {
    struct zt_scaler_config cfg;
    bool dynamic;
    double scale;
    int64_t iter, last_overflow;
    int hysteresis_left;
};

void zt_scaler_init(struct zt_scaler *s, const struct zt_scaler_config *cfg);

/* Once per optimizer step. ZT_E_NUMERIC: overflow although the scale is at its floor. */
zt_err zt_scaler_update(struct zt_scaler *s, bool overflow,
                        struct zt_fault *fault) ZT_MUST_CHECK;

#endif
