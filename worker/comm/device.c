/* device.c -- how a communicator on a device begins. */
#include "worker/comm/private.h"

zt_err zt_comm_open_device(const struct zt_device_comm_config *cfg, struct zt_comm **out,
                           struct zt_fault *fault)
{
    struct zt_comm *c =
        zt_comm_new(zt_comm_rank(cfg->host), zt_comm_world(cfg->host), NULL);
    zt_err rc;

    if (!c)
        return zt_fault_set(fault, ZT_E_NOMEM, "comm: out of memory");
    c->device_engine = &zt_comm_nccl;
    c->ops = &c->device_engine->ops;
    rc = c->device_engine->open(cfg, &c->self, fault);
    if (rc) {
        zt_comm_free(c);
        return rc;
    }
    *out = c;
    return ZT_OK;
}
