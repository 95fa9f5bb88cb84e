/*
 * sock.h -- a TCP connection of a blocking client, every wait with a deadline.
 *
 * Deadlines are in seconds of zt_now(). Descriptors are close-on-exec.
 * Threads: any; a descriptor from one at a time.
 */
#ifndef STORE_CORE_SOCK_H
#define STORE_CORE_SOCK_H

#include "common/fault.h"

/*
 * Connect, and try again until the deadline while nobody listens there, the way is not
 * there yet, or the name does not resolve yet (that only for `resolve_s` seconds: a name
 * that is wrong must not take minutes to be told). Says so once when it takes long.
 * ZT_E_LOST: the time was over; ZT_E_USAGE: the name does not resolve; ZT_E_SYSTEM: no socket.
 */
zt_err zt_sock_connect(const char *host, int port, double deadline, double resolve_s,
                       int *out, struct zt_fault *fault) ZT_MUST_CHECK;

/* All of it. ZT_E_LOST: the other side closed, or the deadline passed; where says who. */
zt_err zt_sock_write(int fd, const void *data, size_t bytes, double deadline,
                     const char *where, struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_sock_read(int fd, void *data, size_t bytes, double deadline, const char *where,
                    struct zt_fault *fault) ZT_MUST_CHECK;

/* Milliseconds from now to a deadline for poll(), 0 when it has passed. */
int zt_sock_wait_ms(double deadline);
/* Sleep `seconds`, or up to the deadline if that is nearer. */
void zt_sock_pause(double seconds, double deadline);

#endif
