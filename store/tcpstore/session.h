/*
 * session.h -- the server's side of PyTorch's TCPStore, without sockets.
 *
 * Nobody proves anything here: the protocol knows no secrets, and who can reach the port
 * can read and write every key. It is for programs that want torch's env:// and is off
 * unless asked for.
 * Ownership: the hub's owner closes sessions before the hub.
 * Threads:   one.
 */
#ifndef STORE_TCPSTORE_SESSION_H
#define STORE_TCPSTORE_SESSION_H

#include "store/native/session.h"

struct zt_tcp_hub;
struct zt_tcp_session;

zt_err zt_tcp_hub_open(struct zt_tcp_hub **out) ZT_MUST_CHECK;
void zt_tcp_hub_close(struct zt_tcp_hub *h); /* NULL is fine */
/* Every key goes; for the next try of a job that is started again. */
void zt_tcp_hub_clear(struct zt_tcp_hub *h);

zt_err zt_tcp_session_open(struct zt_tcp_hub *h, struct zt_peer *peer,
                           struct zt_tcp_session **out) ZT_MUST_CHECK;
void zt_tcp_session_close(struct zt_tcp_session *s); /* NULL is fine */

/* ZT_E_FORMAT, ZT_E_LIMIT, ZT_E_NOMEM: close the connection, as torch's servers do. */
zt_err zt_tcp_session_feed(struct zt_tcp_session *s, const void *data,
                           size_t bytes) ZT_MUST_CHECK;
/* Has the client begun with the words of this protocol? */
bool zt_tcp_session_is_valid(const struct zt_tcp_session *s);
bool zt_tcp_session_is_partial(const struct zt_tcp_session *s);
uint64_t zt_tcp_session_num_requests(const struct zt_tcp_session *s); /* served so far */

#endif
