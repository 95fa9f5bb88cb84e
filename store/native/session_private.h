/*
 * session_private.h -- what session.c and barrier.c share; nobody else includes it.
 */
#ifndef STORE_NATIVE_SESSION_PRIVATE_H
#define STORE_NATIVE_SESSION_PRIVATE_H

#include "store/native/members.h"
#include "store/native/session.h"

#define ZT_SESSION_TEXT 1600u /* bytes of a sentence in a reply */

struct store_barrier {
    struct store_barrier *prev, *next;
    uint32_t count, num_came;
    struct zt_session *waiting; /* in it now, linked by in_barrier */
    uint8_t *came;              /* (count + 7) / 8: a bit for each member */
    size_t name_bytes;
    char name[];
};

struct zt_hub {
    struct zt_kv *kv;
    uint64_t generation;
    struct zt_members members;
    struct store_barrier *barriers;
    uint32_t num_barriers;
    struct zt_session *all;     /* linked by next */
    struct zt_session *waiting; /* linked by next_waiting */
    double next_due;            /* no wait ends before; 0: nobody waits */
};

struct zt_session {
    struct zt_hub *hub;
    struct zt_peer *peer;
    struct zt_session *prev, *next;
    struct zt_session *prev_waiting, *next_waiting;
    struct zt_session *prev_in_barrier, *next_in_barrier;

    zt_store_op waiting_for; /* 0: idle */
    double since, due;
    struct zt_kv_wait wait;
    struct zt_buf key; /* of a GET that waits */
    struct store_barrier *barrier;
    uint32_t barrier_index;

    bool is_member, ended;
    uint32_t index;
    struct zt_buf in; /* a request that is not all there yet */
};

/* session.c */
void zt_session_reply_ok(struct zt_session *s);
void zt_session_reply_text(struct zt_session *s, zt_store_status status,
                           const char *text);
void zt_session_start_waiting(struct zt_session *s, zt_store_op op, uint32_t timeout_ms,
                              double now);
/* Whatever it waited for, it does no longer. */
void zt_session_stop_waiting(struct zt_session *s);

/* barrier.c */
zt_err zt_barrier_come(struct zt_session *s, const struct zt_store_request *r,
                       double now) ZT_MUST_CHECK;
void zt_barrier_leave(struct zt_session *s);
/* The time of `s` is over; s->barrier is not NULL. */
void zt_barrier_expire(struct zt_session *s, double waited);

#endif
