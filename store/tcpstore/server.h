/*
 * server.h -- a TCPStore for PyTorch programs, on a libuv loop.
 *
 * For `zlaunch -- python train.py` with env://: ranks that find
 * TORCHELASTIC_USE_AGENT_STORE=True connect to it as clients. It has no secret: see
 * session.h.
 * Ownership: the server copies what it is given.
 * Threads:   the loop's.
 */
#ifndef STORE_TCPSTORE_SERVER_H
#define STORE_TCPSTORE_SERVER_H

#include <uv.h>

#include "common/fault.h"

struct zt_tcp_server;

struct zt_tcp_server_config {
    const char *address;       /* a number; NULL: every address, IPv6 and IPv4 */
    int port;                  /* 0: any */
    void (*closed)(void *ctx); /* after zt_tcp_server_close(), from the loop; or NULL */
    void *ctx;
};

zt_err zt_tcp_server_open(uv_loop_t *loop, const struct zt_tcp_server_config *cfg,
                          struct zt_tcp_server **out,
                          struct zt_fault *fault) ZT_MUST_CHECK;
/* Its memory goes when the loop has run. NULL is fine. */
void zt_tcp_server_close(struct zt_tcp_server *s);
int zt_tcp_server_port(const struct zt_tcp_server *s);
/* Every key goes: a restart of the job must not read what the last try left. */
void zt_tcp_server_clear(struct zt_tcp_server *s);

#endif
