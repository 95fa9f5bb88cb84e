/*
 * private.h -- what transport.c (batches), link.c (one connection), connect.c (making the
 * connections) and address.c share. Nobody else includes it.
 */
#ifndef WORKER_COMM_MESH_TCP_PRIVATE_H
#define WORKER_COMM_MESH_TCP_PRIVATE_H

#include "worker/comm/mesh/tcp/transport.h"

#include <netinet/in.h>
#include <sys/socket.h>

#define ZT_TCP_TOKEN   32
#define ZT_TCP_SCRATCH ((size_t)64 << 10)
#define ZT_TCP_GOODBYE UINT32_MAX /* a tag: the connection ends in order */

/* How to connect to a rank; every rank gets those of all others. */
struct tcp_endpoint {
    char host[64];    /* its name, for messages */
    char machine[40]; /* the same of ranks under one kernel; "": not known */
    char address[INET6_ADDRSTRLEN];
    uint16_t port;
    uint8_t token[ZT_TCP_TOKEN]; /* whoever connects has to send this */
};

/* In front of each message. */
struct tcp_frame {
    uint32_t tag, bytes;
};

/* A send or a posted receive of a batch; or, with no batch, a send that nobody waits for,
 * with memory of its own behind it. */
struct tcp_op {
    struct tcp_op *next; /* in its queue */
    struct zt_transport_batch *batch;
    char *at;
    struct tcp_frame frame; /* bytes: of a receive its buffer's */
    int peer;
    bool is_recv, is_done;
};

struct zt_transport_batch {
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

/* A message for which no receive has been posted yet. */
struct tcp_unexpected {
    struct tcp_unexpected *next;
    uint32_t tag, bytes;
    bool is_whole;
    char data[];
};

struct tcp_link {
    struct tcp *tcp;
    int fd; /* -1: this rank itself */
    int rank;
    bool is_gone, is_paused; /* the connection ended; it is not read from */
    bool wants_out;          /* unsent data waits until the socket is writable */
    int error;               /* errno of its end, or 0 */
    struct tcp_queue out;    /* first come, first sent */
    size_t sent;             /* bytes of the first, frame and all */
    struct tcp_queue in;     /* posted receives */
    struct tcp_unexpected *unexpected, **unexpected_end;
    size_t unexpected_bytes;
    /* The message that is being received. */
    struct tcp_frame frame;
    size_t frame_got;
    char *at;    /* where the rest of it goes; NULL: discarded */
    size_t left; /* of it */
    struct tcp_op *op;
    struct tcp_unexpected *op_unexpected;
};

/* The transport of a process. */
struct tcp {
    int rank, world;
    int work;                      /* epoll: links that can be read or written */
    int watch;                     /* epoll, for any thread: links that ended */
    struct tcp_link *link;         /* (world) */
    struct tcp_endpoint *endpoint; /* (world) */
    int num_gone, num_unexpected;
    int no_memory; /* TCP_NO_MEMORY for an unexpected message; 0: there was */
    char *scratch;
};

/* ---------------------------------------------------------------- link.c */
void zt_tcp_push(struct tcp_queue *q, struct tcp_op *op);
/* The place of op in q; of its end if it is not there. */
struct tcp_op **zt_tcp_find(struct tcp_queue *q, const struct tcp_op *op);
/* Put `by` (NULL: nothing) in the place of *at. */
void zt_tcp_replace(struct tcp_queue *q, struct tcp_op **at, struct tcp_op *by);
/* Complete it: count it in its batch, or free it. */
void zt_tcp_finish(struct tcp_op *op);

/* Where the first unexpected message with `tag` (-1: any) is linked; NULL there: none. */
struct tcp_unexpected **zt_tcp_find_unexpected(struct tcp_link *l, int tag);
void zt_tcp_drop_unexpected(struct tcp_link *l, struct tcp_unexpected **at);

/* The connection has ended; what was received stays. The socket stays open for t->watch.
 */
void zt_tcp_end_link(struct tcp_link *l, int error);
/* Send as much as the socket takes now. */
void zt_tcp_write(struct tcp_link *l);
/* Read and write what is possible without waiting. */
void zt_tcp_progress(struct tcp *t);

/* ---------------------------------------------------------------- connect.c */
/* Connect all ranks: link[].fd, non-blocking and in t->watch with the rank as data. */
zt_err zt_tcp_connect_ranks(struct tcp *t, const struct zt_comm_config *cfg,
                            struct zt_fault *fault) ZT_MUST_CHECK;

/* ---------------------------------------------------------------- address.c */
struct tcp_address {
    struct sockaddr_storage at;
    socklen_t bytes;
};

/* The addresses of this host and of rank 0's host that reach each other. */
struct tcp_route {
    struct tcp_address own, master;
};

/* ZT_E_USAGE: there is no such host; ZT_E_HOST: no route to it; ZT_E_SYSTEM: no socket. */
zt_err zt_tcp_find_route(struct tcp_route *w, const char *host,
                         struct zt_fault *fault) ZT_MUST_CHECK;
/* A listening socket: on every address of this host, IPv6 and IPv4 if there is IPv6; or
 * on loopback alone if that is where rank 0 is said to be. -1: errno says why. */
int zt_tcp_listen(const struct tcp_route *w, const char *host);
/* Where to reach a rank; false: it gave no address. */
bool zt_tcp_address_of(const struct tcp_route *w, const struct tcp_endpoint *c,
                       struct tcp_address *out);
void zt_tcp_address_text(const struct tcp_address *a, char out[INET6_ADDRSTRLEN]);

#endif
