#include "worker/optim/optim.h"

#include <strings.h>

#include "common/suggest.h"

/* An optimizer is one file, and its name in these two lines. */
extern const struct zt_optimizer zt_optim_adamw, zt_optim_adam;
const struct zt_optimizer *const zt_optimizers[] = {&zt_optim_adamw, &zt_optim_adam,
                                                    NULL};

const struct zt_optimizer *zt_optimizer_find(const char *type)
{
    for (int i = 0; zt_optimizers[i]; i++)
        if (!strcasecmp(zt_optimizers[i]->name, type))
            return zt_optimizers[i];
    return NULL;
}

const struct zt_optimizer *zt_optimizer_of_option(const char *value)
{
    for (int i = 0; zt_optimizers[i]; i++)
        if (zt_is_one_of(zt_optimizers[i]->options, value, false))
            return zt_optimizers[i];
    return NULL;
}
