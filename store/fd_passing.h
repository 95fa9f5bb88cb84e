/*
 * fd_passing.h -- one process of a machine passes a descriptor to the others
 * (SCM_RIGHTS).
 *
 * One listens on an abstract socket whose name the kernel chooses; the others connect
 * and send a token that they got another way. Both sides check the other's user.
 * Abstract names live in the network namespace: there is no file, and nothing to leave
 * behind.
 * Threads:   one at a time.
 * Failure:   what failed and what to do; every wait has a deadline.
 */
#ifndef STORE_FD_PASSING_H
#define STORE_FD_PASSING_H

#include "common/fault.h"

#define ZT_FD_SERVER_NAME  8 /* bytes of a name, with its NUL */
#define ZT_FD_SERVER_TOKEN 32

struct zt_fd_server {
    int listen_fd;
    char name[ZT_FD_SERVER_NAME]; /* of the abstract socket, 5 hex digits */
    uint8_t token[ZT_FD_SERVER_TOKEN];
};

zt_err zt_fd_server_listen(struct zt_fd_server *l, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_fd_server_release(struct zt_fd_server *l);

/*
 * Send `fd` to `num` processes that know the token and have different numbers 1..num.
 * conns, (num): the connection to number i + 1, for the caller to close; on failure -1
 * for processes that did not connect.
 */
zt_err zt_fd_server_send(struct zt_fd_server *l, int fd, int num, double deadline,
                         int *conns, struct zt_fault *fault) ZT_MUST_CHECK;
/* Receive it as number `number`; *out and *conn, the connection, are close-on-exec. */
zt_err zt_fd_receive(const char *name, const uint8_t token[ZT_FD_SERVER_TOKEN],
                     int number, double deadline, int *out, int *conn,
                     struct zt_fault *fault) ZT_MUST_CHECK;

/* Equal texts: the processes can reach each other this way. Made of the machine's boot id
 * and the network namespace. */
zt_err zt_machine_id(char out[96], struct zt_fault *fault) ZT_MUST_CHECK;

#endif
