/*
 * session.h -- the rendezvous store without sockets: a hub, and a session for each
 * client.
 *
 * A hub holds keys, barriers and what is known of the members of a job. A session takes
 * bytes of a client that has proved itself and answers through its peer. A request that
 * has to wait keeps its session waiting until it is answered, its time is over, or the
 * client goes; it may send nothing meanwhile.
 *
 *            bytes                     reply
 *      IDLE -------> a request that can be answered ------> IDLE
 *      IDLE -------> GET, WAIT, BARRIER not ready --> WAITING
 *      WAITING ----> key set, last member came -----------> IDLE
 *      WAITING ----> time over: reply names who is missing -> IDLE
 *
 * Generation: everything in a hub belongs to one. zt_hub_advance() drops all of it and
 * tells every client that it is out of date.
 * Ownership: the hub's owner closes sessions before the hub.
 * Threads:   one. Times are seconds of zt_now().
 */
#ifndef STORE_NATIVE_SESSION_H
#define STORE_NATIVE_SESSION_H

#include "store/native/wire.h"

struct zt_hub;
struct zt_session;

/* The way back to a client; embedded in whatever carries it. */
struct zt_peer {
    /* Copied and queued. */
    void (*send)(struct zt_peer *p, const void *data, size_t bytes);
    /* End the connection after what was sent; closing the session comes later. */
    void (*drop)(struct zt_peer *p);
};

/* `noun`: what a member is called in messages ("rank", "node"); static text. */
zt_err zt_hub_open(uint64_t generation, const char *noun,
                   struct zt_hub **out) ZT_MUST_CHECK;
void zt_hub_close(struct zt_hub *h); /* NULL is fine */

uint64_t zt_hub_generation(const struct zt_hub *h);
/* A new generation: keys and barriers go, sessions end with ZT_STORE_STALE. */
void zt_hub_advance(struct zt_hub *h, uint64_t generation);

/*
 * Answer whoever has waited past its time. Returns when the next is due, 0: nobody
 * waits. To be called then, and when zt_hub_next() grew nearer.
 */
double zt_hub_expire(struct zt_hub *h, double now);
double zt_hub_next(const struct zt_hub *h);

/* Members that have said who they are and are connected. */
int zt_hub_num_members(const struct zt_hub *h);
/* A key set by the hub's own process, as a client would. */
zt_err zt_hub_set(struct zt_hub *h, struct zt_span key,
                  struct zt_span value) ZT_MUST_CHECK;

zt_err zt_session_open(struct zt_hub *h, struct zt_peer *peer,
                       struct zt_session **out) ZT_MUST_CHECK;
void zt_session_close(struct zt_session *s); /* NULL is fine */

/* ZT_E_FORMAT, ZT_E_LIMIT, ZT_E_NOMEM: the connection is of no use any more. */
zt_err zt_session_feed(struct zt_session *s, const void *data, size_t bytes,
                       double now) ZT_MUST_CHECK;
/* Has a request begun that is not all there? */
bool zt_session_is_partial(const struct zt_session *s);

#endif
