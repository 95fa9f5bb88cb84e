#include "worker/optim/hyperparam.h"

#include <string.h>
#include <strings.h>

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

bool zt_hyper_in_words(const char *words, const char *name, bool any_case)
{
    size_t n = strlen(name);

    for (const char *w = words; w; w = strchr(w, '|')) {
        w += *w == '|';
        if (strcspn(w, "|") == n &&
            (any_case ? !strncasecmp(w, name, n) : !strncmp(w, name, n)))
            return true;
    }
    return false;
}
