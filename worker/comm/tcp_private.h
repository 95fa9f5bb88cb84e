/*
 * tcp_private.h -- what tcp_wire.c (messages) and tcp_join.c (connections) share. Nobody
 * else includes it.
 */
#ifndef WORKER_COMM_TCP_PRIVATE_H
#define WORKER_COMM_TCP_PRIVATE_H

#include "worker/comm/tcp_wire.h"

#include <netinet/in.h>

#define ZT_TCP_TOKEN 32

/* What a rank tells of itself to all others. */
struct tcp_card {
    char host[64]; /* its name, for messages */
    char address[INET6_ADDRSTRLEN];
    uint16_t port;
    uint8_t token[ZT_TCP_TOKEN]; /* who connects to it has to know this */
};

/* In front of each message. */
struct tcp_frame {
    uint32_t tag, bytes;
};

/* A message of a batch, on its way out or expected; or, with no batch, one of its own
 * that nobody waits for, whose memory it owns. */
struct tcp_op {
    struct tcp_op *next; /* in its queue */
    struct zt_wire_batch *batch;
    char *at;
    struct tcp_frame frame; /* bytes: that there is room for, where it is expected */
    int peer;
    bool is_recv, is_done;
};

struct tcp_queue {
    struct tcp_op *first, **end;
};

/* A message that nobody has asked for yet. */
struct tcp_early {
    struct tcp_early *next;
    uint32_t tag, bytes;
    bool is_whole;
    char data[];
};

struct tcp_link {
    int fd; /* -1: this rank itself */
    int rank;
    bool is_gone, is_full; /* its connection ended; it is not read from */
    bool wants_out;        /* something waits for room to be sent */
    int error;             /* errno of its end, or 0 */
    struct tcp_queue out;  /* first come, first sent */
    size_t sent;           /* bytes of the first, frame and all */
    struct tcp_queue in;   /* expected */
    struct tcp_early *early, **early_end;
    size_t early_bytes;
    /* The message that is coming in. */
    struct tcp_frame frame;
    size_t frame_got;
    char *at;    /* where the rest of it goes; NULL: nowhere */
    size_t left; /* of it */
    struct tcp_op *op;
    struct tcp_early *op_early;
};

/* All that a process has of it. */
struct tcp {
    int rank, world;
    int work;              /* epoll: links that can be read or written */
    int watch;             /* epoll, for any thread: links that ended */
    struct tcp_link *link; /* (world) */
    struct tcp_card *card; /* (world) */
    int num_gone, num_early;
    bool no_memory; /* for a message that came early */
    char *scratch;
};

/* Connect all ranks: link[].fd, non-blocking and in t->watch with the rank as data. */
zt_err zt_tcp_join(struct tcp *t, const struct zt_comm_config *cfg,
                   struct zt_fault *fault) ZT_MUST_CHECK;

#endif
