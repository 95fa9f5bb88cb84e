#include "launcher/start/start.h"

#include "launcher/start/slurm.h"
#include "launcher/ssh/ssh.h"

#include <string.h>

/* Every way to reach a node that this version has. */
static const struct zt_starter *const starters[] = {&zt_starter_local, &zt_starter_ssh,
                                                    &zt_starter_slurm};

const struct zt_starter *zt_starter_find(const char *name)
{
    for (size_t i = 0; i < sizeof(starters) / sizeof(*starters); i++)
        if (strcmp(starters[i]->name, name) == 0)
            return starters[i];
    return NULL;
}

const struct zt_starter *zt_starter_at(size_t i)
{
    return i < sizeof(starters) / sizeof(*starters) ? starters[i] : NULL;
}
