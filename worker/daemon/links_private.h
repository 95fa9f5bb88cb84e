/* links_private.h -- what links.c (sockets) and interfaces.c share. Nobody else includes
 * it. */
#ifndef WORKER_DAEMON_LINKS_PRIVATE_H
#define WORKER_DAEMON_LINKS_PRIVATE_H

#include "worker/daemon/links.h"

#include <netinet/in.h>

struct zt_link_port {
    char name[64]; /* of the interface */
    char address[INET6_ADDRSTRLEN];
    int bits; /* of the network's prefix */
    int port;
    int mbps; /* 0: not known */
    bool loopback;
};

/* One connection, or one port that waits for them. */
struct zt_link_conn {
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_write_t write;
    struct zt_links *links;
    struct zt_link_conn *next, *prev;
    int node, at; /* of a try: whom it goes to; node -1: a visitor; -2: a port */
    double since_s;
    char got[ZT_LINKS_WORD];
    unsigned got_bytes;
    bool answered; /* the visitor has its answer */
};

/* What is to be tried: addresses of the other nodes. */
struct zt_link_target {
    int node, at;
    struct sockaddr_storage to;
};

struct zt_links {
    uv_loop_t *loop;
    uv_timer_t timer;
    struct zt_link_conn *conns;
    int num_handles; /* that are not closed yet */
    int num_visitors;
    bool closing;
    char ask[ZT_LINKS_WORD], answer[ZT_LINKS_WORD];
    struct zt_link_port ports[ZT_LINKS_ADDRESSES];
    int num_ports;

    /* a LINKS_TRY that is being carried out */
    zt_links_found on_found; /* NULL: none is */
    void *ctx;
    json_t *request, *found;
    struct zt_link_target *targets; /* (num_targets) in the order of trying */
    int num_targets, next_target, num_trying;
    bool *reached; /* (num_nodes) */
    int num_nodes, num_missing;
    double timeout_s, settle_s;
    double settled_s; /* when all nodes had been reached somehow; 0: not yet */
};

zt_err zt_links_listen_all(struct zt_links *l, struct zt_fault *fault) ZT_MUST_CHECK;
/* A port of the address; false: it cannot be had. */
bool zt_links_listen(struct zt_links *l, const struct sockaddr *on,
                     struct sockaddr_storage *bound, int *bound_bytes);

#endif
