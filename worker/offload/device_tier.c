/* device_tier.c -- state in device memory, where kernels and collectives work on it. */
#include <stdlib.h>

#include "worker/offload/tier.h"

struct device_store {
    struct zt_tier_config cfg;
    char *base;
};

static void device_close(void *store)
{
    struct device_store *s = store;

    if (!s)
        return;
    if (s->base)
        s->cfg.memory.free(s->cfg.memory.ctx, s->base, s->cfg.bytes);
    free(s);
}

static zt_err device_open(const struct zt_tier_config *cfg, void **store,
                          struct zt_fault *fault)
{
    struct device_store *s = calloc(1, sizeof(*s));
    void *base = NULL;
    zt_err rc;

    if (!s)
        return zt_fault_set(fault, ZT_E_NOMEM, "device tier: no host memory");
    s->cfg = *cfg;
    rc = cfg->memory.alloc(cfg->memory.ctx, cfg->bytes, &base, fault);
    s->base = base;
    if (rc) {
        device_close(s);
        return rc;
    }
    *store = s;
    return ZT_OK;
}

static size_t device_piece_bytes(const void *store)
{
    (void)store;
    return SIZE_MAX;
}

static zt_err device_acquire(void *store, size_t offset, size_t bytes, zt_access access,
                             void **data, struct zt_fault *fault)
{
    const struct device_store *s = store;

    (void)bytes;
    (void)access;
    (void)fault;
    *data = s->base + offset;
    return ZT_OK;
}

static zt_err device_commit(void *store, void *data, size_t offset, size_t bytes,
                            bool written, struct zt_fault *fault)
{
    (void)store;
    (void)data;
    (void)offset;
    (void)bytes;
    (void)written;
    (void)fault;
    return ZT_OK;
}

static void device_measure(const void *store, size_t *bytes)
{
    const struct device_store *s = store;

    bytes[ZT_PLACE_DEVICE] += s->cfg.bytes;
}

const struct zt_tier zt_device_tier = {
    .name = "device",
    .in_place = true,
    .open = device_open,
    .close = device_close,
    .piece_bytes = device_piece_bytes,
    .acquire = device_acquire,
    .commit = device_commit,
    .measure = device_measure,
};
