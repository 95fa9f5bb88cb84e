/*
 * server.h -- the rendezvous store on a libuv loop: in zlaunch, or in rank 0 of a job
 * that has no zlaunch.
 *
 * Ownership: the server copies its configuration.
 * Threads:   the loop's.
 */
#ifndef STORE_NATIVE_SERVER_H
#define STORE_NATIVE_SERVER_H

#include <uv.h>

#include "store/native/handshake.h"
#include "store/native/session.h"

struct zt_store_server;

struct zt_store_server_config {
    const char *address; /* a number; NULL: every address, IPv6 and IPv4 */
    int port;            /* 0: any */
    const char *job;     /* the job's id: part of every proof */
    const char *noun; /* what a member is called: "rank", "node"; static; NULL: "rank" */
    const struct zt_secret *secret;
    uint64_t generation;       /* 1, 2, ...: grows with every restart of the job */
    int max_clients;           /* 0: 16384 */
    double proof_s;            /* a connection's time to prove itself; 0: 2 */
    void (*closed)(void *ctx); /* after zt_store_server_close(), from the loop; or NULL */
    void *ctx;
};

/* ZT_E_SYSTEM: the address cannot be bound. */
zt_err zt_store_server_open(uv_loop_t *loop, const struct zt_store_server_config *cfg,
                            struct zt_store_server **out,
                            struct zt_fault *fault) ZT_MUST_CHECK;
/* Its memory goes when the loop has run. NULL is fine. */
void zt_store_server_close(struct zt_store_server *s);

int zt_store_server_port(const struct zt_store_server *s);
int zt_store_server_num_members(const struct zt_store_server *s);
int zt_store_server_num_conns(const struct zt_store_server *s);

/*
 * Restart: all keys go, clients of the old generation get ZT_STORE_STALE, and only
 * those of the new one are let in.
 */
void zt_store_server_advance(struct zt_store_server *s, uint64_t generation);

/* A key set from inside. */
zt_err zt_store_server_set(struct zt_store_server *s, const char *key, const void *value,
                           size_t bytes) ZT_MUST_CHECK;

#endif
