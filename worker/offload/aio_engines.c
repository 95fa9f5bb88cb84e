#include <string.h>

#include "worker/offload/aio_engine.h"

const struct zt_aio_engine *const zt_aio_engines[] = {&zt_aio_io_uring, &zt_aio_libaio,
                                                      &zt_aio_psync, NULL};

const struct zt_aio_engine *zt_aio_engine_find(const char *name)
{
    for (int i = 0; name && zt_aio_engines[i]; i++)
        if (!strcmp(zt_aio_engines[i]->name, name))
            return zt_aio_engines[i];
    return NULL;
}

/* The one to try when `e` cannot be had; of one that is not in the list: the last. */
static const struct zt_aio_engine *next_engine(const struct zt_aio_engine *e)
{
    int i = 0;

    while (zt_aio_engines[i] != e && zt_aio_engines[i + 1])
        i++;
    return zt_aio_engines[i] == e ? zt_aio_engines[i + 1] : zt_aio_engines[i];
}

const struct zt_aio_engine *zt_aio_engine_open(const struct zt_aio_engine *wanted,
                                               int depth, void **queue, int *refused)
{
    const struct zt_aio_engine *e = wanted ? wanted : zt_aio_engines[0];

    *refused = 0;
    for (; e; e = next_engine(e)) {
        int error = e->open(depth, queue);

        if (!error)
            return e;
        *refused = *refused ? *refused : error;
    }
    return NULL;
}
