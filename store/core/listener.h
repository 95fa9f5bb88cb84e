/*
 * listener.h -- a bounded TCP server on a libuv loop, for any protocol that strangers can
 * reach.
 *
 * A connection is a stranger until its protocol says that it has proved itself. Strangers
 * are limited in number, in time, and in bytes (the protocol says how many it wants to
 * read). When there are too many, new ones wait in the kernel's queue until one of those
 * inside has had a fair time and is thrown out. Connections are taken a few at a time, so
 * a flood costs the others little. A proved client that stops in the middle of a request,
 * or does not read its answers, is dropped, too.
 *
 * Ownership: the listener owns its connections; a protocol's object is opened and closed
 *            by its table. The listener's memory goes after zt_listener_close() when the
 *            loop has run; then `closed` is called.
 * Threads:   the loop's.
 */
#ifndef STORE_CORE_LISTENER_H
#define STORE_CORE_LISTENER_H

#include <uv.h>

#include "common/fault.h"

struct zt_listener;
struct zt_conn;

typedef enum zt_conn_state {
    ZT_CONN_STRANGER,   /* may send what the protocol wants to read, for a while */
    ZT_CONN_IDLE,       /* proved, between two requests */
    ZT_CONN_PARTIAL,    /* proved, a request has begun and is not all there */
    ZT_CONN_PROGRESSED, /* the same, but some request before it was answered just now */
    ZT_CONN_DROP,       /* no use: close it after what was sent */
} zt_conn_state;

struct zt_protocol {
    /* A connection came; may send. NULL: no memory, it is closed. */
    void *(*open)(void *ctx, struct zt_conn *conn);
    /* Bytes came; `now` in seconds of zt_now(). */
    zt_conn_state (*bytes)(void *object, const void *data, size_t bytes, double now);
    /* How many bytes it will read next from a stranger; at least 1. */
    size_t (*stranger_bytes)(const void *object);
    void (*close)(void *object);
};

struct zt_listener_config {
    const char *address; /* a number, IPv4 or IPv6; NULL: every one of both */
    int port;            /* 0: any free one */
    int max_conns;       /* strangers and others */
    int max_strangers;
    double stranger_s; /* to prove itself */
    double fair_s;     /* nobody is thrown out before */
    double stall_s;    /* for the rest of a request that has begun */
    size_t max_unsent; /* bytes that a client may leave unread */
    const struct zt_protocol *protocol;
    void *ctx;
    void (*closed)(void *ctx); /* may be NULL */
};

/* ZT_E_SYSTEM: the address cannot be bound; what to do stands in the text. */
zt_err zt_listener_open(uv_loop_t *loop, const struct zt_listener_config *cfg,
                        struct zt_listener **out, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_listener_close(struct zt_listener *l); /* NULL is fine */
int zt_listener_port(const struct zt_listener *l);
int zt_listener_num_conns(const struct zt_listener *l);
/* Refuse whoever comes from now on. */
void zt_listener_stop(struct zt_listener *l);

/* Copied and queued; a client that has too much unread is dropped. */
void zt_conn_send(struct zt_conn *c, const void *data, size_t bytes);
/* Close after what was sent; its object is closed from the loop, not at once. */
void zt_conn_drop(struct zt_conn *c);

#endif
