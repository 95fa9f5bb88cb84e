#include "store/fd_passing.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <sodium.h>

#include "common/message/frame.h"
#include "common/log.h"
#include "store/core/sock.h"

#define STRANGER_S 2.0 /* for somebody who connected to say the token */

static zt_err system_error(const char *what, struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_SYSTEM, "ranks of this machine: %s: %s", what,
                        strerror(errno));
}

zt_err zt_machine_id(char out[96], struct zt_fault *fault)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    char boot[40] = "", net[40] = "";
    ssize_t n = fd < 0 ? -1 : read(fd, boot, sizeof(boot) - 1);

    if (fd >= 0)
        close(fd);
    if (n <= 0 || readlink("/proc/self/ns/net", net, sizeof(net) - 1) <= 0)
        return system_error("/proc", fault);
    boot[strcspn(boot, "\n")] = 0;
    snprintf(out, 96, "%s %s", boot, net);
    return ZT_OK;
}

zt_err zt_fd_server_listen(struct zt_fd_server *l, struct zt_fault *fault)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    socklen_t len = sizeof(sa);
    size_t name_bytes;

    *l = (struct zt_fd_server){.listen_fd = -1};
    if (sodium_init() < 0)
        return zt_fault_set(fault, ZT_E_SYSTEM, "no random numbers here");
    randombytes_buf(l->token, sizeof(l->token));
    l->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->listen_fd < 0 || /* an address of no more than a family: the kernel names it */
        bind(l->listen_fd, (struct sockaddr *)&sa, sizeof(sa.sun_family)) < 0 ||
        listen(l->listen_fd, 256) < 0 ||
        getsockname(l->listen_fd, (struct sockaddr *)&sa, &len) < 0) {
        zt_err rc = system_error("socket", fault);

        zt_fd_server_release(l);
        return rc;
    }
    name_bytes = len - offsetof(struct sockaddr_un, sun_path) - 1;
    if (name_bytes >= sizeof(l->name))
        name_bytes = sizeof(l->name) - 1;
    memcpy(l->name, sa.sun_path + 1, name_bytes);
    return ZT_OK;
}

void zt_fd_server_release(struct zt_fd_server *l)
{
    if (l->listen_fd >= 0)
        close(l->listen_fd);
    sodium_memzero(l->token, sizeof(l->token));
    l->listen_fd = -1;
}

/* The other end belongs to this user, or to root. */
static bool is_ours(int fd)
{
    struct ucred who;
    socklen_t len = sizeof(who);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 &&
           (who.uid == geteuid() || who.uid == 0);
}

static bool send_fd(int to, int fd)
{
    char byte = 'F';
    struct iovec iov = {&byte, 1};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof(int));
    return sendmsg(to, &msg, MSG_NOSIGNAL) == 1;
}

/* What a receiver sends: the token, then its number. */
struct fd_request {
    uint8_t token[ZT_FD_SERVER_TOKEN], number[4];
};

/* Serve a connection: its number if it knows the token and was sent the descriptor; or
 * 0. */
static int serve_one(const struct zt_fd_server *l, int conn, int fd, int num,
                     double deadline)
{
    double soon = zt_now() + STRANGER_S;
    struct fd_request w;
    uint32_t number;

    if (!is_ours(conn) ||
        zt_sock_read(conn, &w, sizeof(w), soon < deadline ? soon : deadline, "local rank",
                     NULL))
        return 0;
    number = zt_get_u32(w.number);
    if (sodium_memcmp(w.token, l->token, sizeof(w.token)) || number < 1 ||
        number > (uint32_t)num || !send_fd(conn, fd))
        return 0;
    return (int)number;
}

static zt_err not_all_came(const int *conns, int num, struct zt_fault *fault)
{
    for (int i = 0; i < num; i++)
        if (conns[i] < 0)
            return zt_fault_set(fault, ZT_E_PEER,
                                "rank %d did not fetch the shared memory in time", i + 1);
    return ZT_OK;
}

zt_err zt_fd_server_send(struct zt_fd_server *l, int fd, int num, double deadline,
                         int *conns, struct zt_fault *fault)
{
    struct pollfd p = {.fd = l->listen_fd, .events = POLLIN};

    for (int i = 0; i < num; i++)
        conns[i] = -1;
    for (int left = num; left > 0;) {
        int conn, number, n = poll(&p, 1, zt_sock_wait_ms(deadline));

        if (n <= 0 && zt_now() >= deadline)
            return not_all_came(conns, num, fault);
        if (n <= 0)
            continue;
        conn = accept4(l->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (conn < 0)
            continue;
        number = serve_one(l, conn, fd, num, deadline);
        if (number && conns[number - 1] < 0) {
            conns[number - 1] = conn;
            left--;
        } else {
            close(conn);
        }
    }
    return ZT_OK;
}

static zt_err receive_fd(int from, double deadline, int *out, struct zt_fault *fault)
{
    struct pollfd p = {.fd = from, .events = POLLIN};
    char byte;
    struct iovec iov = {&byte, 1};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof(control.bytes)};
    const struct cmsghdr *c;
    ssize_t n;

    while (poll(&p, 1, zt_sock_wait_ms(deadline)) <= 0)
        if (zt_now() >= deadline)
            return zt_fault_set(fault, ZT_E_PEER,
                                "the first rank of this machine did not hand out the "
                                "shared memory in time");
    n = recvmsg(from, &msg, MSG_CMSG_CLOEXEC);
    if (n < 0)
        return zt_fault_set(fault, ZT_E_LOST, "the first rank of this machine: %s",
                            strerror(errno));
    if (n != 1) /* it refuses, or has ended */
        return zt_fault_set(fault, ZT_E_PEER,
                            "the first rank of this machine closed before it handed out "
                            "the shared memory");
    c = CMSG_FIRSTHDR(&msg);
    if (!c || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof(int)))
        return zt_fault_set(fault, ZT_E_PEER,
                            "the first rank of this machine sent no "
                            "descriptor");
    memcpy(out, CMSG_DATA(c), sizeof(int));
    return ZT_OK;
}

zt_err zt_fd_receive(const char *name, const uint8_t token[ZT_FD_SERVER_TOKEN],
                     int number, double deadline, int *out, int *conn,
                     struct zt_fault *fault)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    socklen_t len =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct fd_request w;
    zt_err rc;

    if (fd < 0)
        return system_error("socket", fault);
    memcpy(sa.sun_path + 1, name, strnlen(name, ZT_FD_SERVER_NAME));
    memcpy(w.token, token, sizeof(w.token));
    zt_set_u32(w.number, (uint32_t)number);
    if (connect(fd, (struct sockaddr *)&sa, len) < 0)
        rc = system_error("connect to the first rank", fault);
    else if (!is_ours(fd))
        rc = zt_fault_set(fault, ZT_E_PEER,
                          "ranks of this machine: the socket belongs to another user");
    else
        rc = zt_sock_write(fd, &w, sizeof(w), deadline, "local rank", fault);
    if (!rc)
        rc = receive_fd(fd, deadline, out, fault);
    if (rc)
        close(fd);
    else
        *conn = fd;
    return rc;
}
