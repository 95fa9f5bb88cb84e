/*
 * local.h -- processes of one machine hand a descriptor to each other.
 *
 * One listens on an abstract socket whose name the kernel chooses; the others connect and
 * say a token that came to them another way. Both sides look at the other's user.
 * Abstract names live in the network namespace: there is no file, and nothing to leave
 * behind. Threads: one at a time. Failure: what failed and what to do; every wait has a
 * deadline.
 */
#ifndef STORE_LOCAL_H
#define STORE_LOCAL_H

#include "common/fault.h"

#define ZT_LOCAL_NAME  8 /* bytes of a name, with its NUL */
#define ZT_LOCAL_TOKEN 32

struct zt_local {
    int listen_fd;
    char name[ZT_LOCAL_NAME]; /* of the abstract socket, 5 hex digits */
    uint8_t token[ZT_LOCAL_TOKEN];
};

zt_err zt_local_listen(struct zt_local *l, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_local_release(struct zt_local *l);

/*
 * Give `fd` to `num` processes that know the token and have different numbers 1..num.
 * conns, (num): the connection to number i + 1, the caller's to close; -1 for those that
 * did not come when it fails.
 */
zt_err zt_local_give(struct zt_local *l, int fd, int num, double deadline, int *conns,
                     struct zt_fault *fault) ZT_MUST_CHECK;
/* Get it as number `number`; *out and *conn, the connection, are close-on-exec. */
zt_err zt_local_take(const char *name, const uint8_t token[ZT_LOCAL_TOKEN], int number,
                     double deadline, int *out, int *conn,
                     struct zt_fault *fault) ZT_MUST_CHECK;

/* Text that is the same for processes that can reach each other this way: the machine's
 * boot and the network namespace. */
zt_err zt_local_machine(char out[96], struct zt_fault *fault) ZT_MUST_CHECK;

#endif
