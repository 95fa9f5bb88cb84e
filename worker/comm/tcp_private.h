/*
 * tcp_private.h -- what tcp_wire.c (batches), tcp_link.c (one connection), tcp_join.c
 * (how connections come to be) and tcp_way.c (addresses) share. Nobody else includes it.
 */
#ifndef WORKER_COMM_TCP_PRIVATE_H
#define WORKER_COMM_TCP_PRIVATE_H

#include "worker/comm/tcp_wire.h"

#include <netinet/in.h>
#include <sys/socket.h>

#define ZT_TCP_TOKEN   32
#define ZT_TCP_SCRATCH ((size_t)64 << 10)
#define ZT_TCP_GOODBYE UINT32_MAX /* a tag: the connection ends in order */

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

struct zt_wire_batch {
    int num, max, left; /* left: not yet done */
    int error;
    struct tcp_op op[]; /* (max) */
};

/* Error numbers: what, errno, rank. */
enum { TCP_GONE = 1, TCP_TOO_LONG = 2, TCP_TOO_MANY = 3, TCP_NO_MEMORY = 4 };
#define TCP_ERROR(what, number, rank) ((what) << 28 | ((number)&0xff) << 20 | (rank))
#define TCP_WHAT(error)               ((error) >> 28)
#define TCP_NUMBER(error)             ((error) >> 20 & 0xff)
#define TCP_RANK(error)               ((error)&0xfffff)

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
    struct tcp *tcp;
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

/* ---------------------------------------------------------------- tcp_link.c */
void zt_tcp_push(struct tcp_queue *q, struct tcp_op *op);
/* The place of op in q; of its end if it is not there. */
struct tcp_op **zt_tcp_find(struct tcp_queue *q, const struct tcp_op *op);
/* Put `by` (NULL: nothing) in the place of *at. */
void zt_tcp_replace(struct tcp_queue *q, struct tcp_op **at, struct tcp_op *by);
/* It is done: tell its batch, or free it. */
void zt_tcp_finish(struct tcp_op *op);

/* The place of the first early message with `tag` (-1: any); *place is NULL: none. */
struct tcp_early **zt_tcp_find_early(struct tcp_link *l, int tag);
void zt_tcp_drop_early(struct tcp_link *l, struct tcp_early **at);

/* It is over; what came before stays. The socket stays open, for tcp->watch. */
void zt_tcp_end_link(struct tcp_link *l, int error);
/* What the socket takes now. */
void zt_tcp_write(struct tcp_link *l);
/* Read and write whatever can be. Waits for nothing. */
void zt_tcp_progress(struct tcp *t);

/* ---------------------------------------------------------------- tcp_join.c */
/* Connect all ranks: link[].fd, non-blocking and in t->watch with the rank as data. */
zt_err zt_tcp_join(struct tcp *t, const struct zt_comm_config *cfg,
                   struct zt_fault *fault) ZT_MUST_CHECK;

/* ---------------------------------------------------------------- tcp_way.c */
struct tcp_address {
    struct sockaddr_storage at;
    socklen_t bytes;
};

/* This host's and the host of rank 0's, on the way to each other. */
struct tcp_way {
    struct tcp_address own, master;
};

/* ZT_E_USAGE: there is no such host; ZT_E_PEER: no way to it. */
zt_err zt_tcp_find_way(struct tcp_way *w, const char *host,
                       struct zt_fault *fault) ZT_MUST_CHECK;
/* A listening socket: on every address of this host, IPv6 and IPv4 if there is IPv6; or
 * on loopback alone if that is where rank 0 is said to be. -1: errno says why. */
int zt_tcp_listen(const struct tcp_way *w, const char *host);
/* Where to reach a rank; false: it gave no address. */
bool zt_tcp_address_of(const struct tcp_way *w, const struct tcp_card *c,
                       struct tcp_address *out);
void zt_tcp_address_text(const struct tcp_address *a, char out[INET6_ADDRSTRLEN]);

#endif
