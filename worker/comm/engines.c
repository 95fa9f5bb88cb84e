/* engines.c -- the list of engines, and which one a run takes. */
#include "worker/comm/engine.h"

#include <string.h>

#include "worker/comm/shm/layout.h"

/* "auto" takes the first whose is_default() says so. */
static const struct zt_comm_engine *const engines[] = {
    &zt_comm_solo, &zt_comm_shm, &zt_comm_mpi, &zt_comm_tcp, &zt_comm_faulty,
};
#define NUM_ENGINES (sizeof(engines) / sizeof(engines[0]))

/* The engine that `name` means up to a ':'; NULL: none. */
static const struct zt_comm_engine *engine_named(const char *name)
{
    size_t len = strcspn(name, ":");

    for (size_t i = 0; i < NUM_ENGINES; i++)
        if (strlen(engines[i]->name) == len && !strncmp(engines[i]->name, name, len))
            return engines[i];
    return NULL;
}

static const struct zt_comm_engine *default_engine(const struct zt_comm_config *cfg)
{
    for (size_t i = 0; i < NUM_ENGINES; i++)
        if (engines[i]->is_default && engines[i]->is_default(cfg))
            return engines[i];
    return NULL;
}

static bool is_auto(const struct zt_comm_config *cfg)
{
    return !strcmp(cfg->engine, "auto");
}

zt_comm_needs zt_comm_missing(const struct zt_comm_config *cfg)
{
    const struct zt_comm_engine *e =
        is_auto(cfg) ? default_engine(cfg) : engine_named(cfg->engine);

    if (!e && is_auto(cfg))
        return cfg->world > ZT_SHM_MAX_WORLD ? ZT_COMM_NEEDS_BOOTSTRAP
                                             : ZT_COMM_NEEDS_EITHER;
    if (!e)
        return ZT_COMM_NEEDS_NOTHING;
    if ((e->needs == ZT_COMM_NEEDS_SHM_FD && cfg->shm_fd >= 0) ||
        (e->needs == ZT_COMM_NEEDS_BOOTSTRAP && cfg->bootstrap))
        return ZT_COMM_NEEDS_NOTHING;
    return e->needs;
}

zt_err zt_comm_engine_find(const struct zt_comm_config *cfg,
                           const struct zt_comm_engine **out, struct zt_fault *fault)
{
    *out = is_auto(cfg) ? default_engine(cfg) : engine_named(cfg->engine);
    if (*out)
        return ZT_OK;
    if (is_auto(cfg))
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "comm: %d ranks with no way between them: start them with "
                            "zlaunch, or with mpirun where MPI is installed",
                            cfg->world);
    return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                        "comm: no engine '%s'; there are auto, solo, shm, mpi and tcp",
                        cfg->engine);
}
