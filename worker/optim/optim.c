#include "worker/optim/optim.h"

#include "worker/optim/adam.h"

/* An optimizer is one file, and its lines here. */
static const struct {
    zt_optim_kind kind;
    const struct zt_optimizer *ops;
} optimizers[] = {
    {ZT_OPTIM_ADAMW, &zt_adam},
    {ZT_OPTIM_ADAM, &zt_adam}, /* decoupled or not is in the config */
};

const struct zt_optimizer *zt_optimizer_find(zt_optim_kind kind)
{
    for (size_t i = 0; i < sizeof(optimizers) / sizeof(optimizers[0]); i++)
        if (optimizers[i].kind == kind)
            return optimizers[i].ops;
    return NULL;
}
