/*
 * store.c -- the TCPStore of --serve_store, the rendezvous of PyTorch programs, as under
 * torchrun. Every start of the job has a new store, so that a restart does not read keys
 * of an earlier attempt.
 */
#include "launcher/supervise/private.h"
#include "store/tcpstore/server.h"

void zt_sup_store_end(struct zt_supervisor *s)
{
    zt_tcp_server_close(s->store);
    s->store = NULL;
}

zt_err zt_sup_store_begin(struct zt_supervisor *s, struct zt_fault *fault)
{
    struct zt_tcp_server_config cfg = {
        .address = s->plan->same_host ? "127.0.0.1" : NULL,
        .port = s->group.master_port,
    };
    zt_err rc;

    zt_sup_store_end(s);
    if (!s->plan->serve_store)
        return ZT_OK;
    rc = zt_tcp_server_open(&s->loop, &cfg, &s->store, fault);
    return rc ? zt_fault_context(fault, rc, "--serve_store at port %d", cfg.port) : ZT_OK;
}
