/* adam.h -- Adam and AdamW; the arithmetic is that of struct zt_adamw_args. */
#ifndef WORKER_OPTIM_ADAM_H
#define WORKER_OPTIM_ADAM_H

#include "worker/optim/optim.h"

extern const struct zt_optimizer zt_adam;

#endif
