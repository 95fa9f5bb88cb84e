#include "worker/optim/hyperparam.h"

#include <string.h>

const struct zt_hyperparam *zt_hyper_find(const struct zt_hyperparam *rows,
                                          const char *name)
{
    for (; rows->name; rows++)
        if (!strcmp(rows->name, name))
            return rows;
    return NULL;
}

const struct zt_hyperparam *zt_hyper_with_rule(const struct zt_hyperparam *rows,
                                               zt_hyper_rule rule)
{
    for (; rows->name; rows++)
        if (rows->rule == rule)
            return rows;
    return NULL;
}
