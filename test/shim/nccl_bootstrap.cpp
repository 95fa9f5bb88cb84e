/*
 * nccl_bootstrap.cpp -- connecting, splitting, ending. For each of them one process
 * collects a message from every rank and answers: the maker of the id, or rank 0.
 */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>

#include "nccl_wire.h"
#include "shim.h"

static const int MAX_RANKS = 64;
static const char GONE[] = "a rank has gone before all ranks had met";

/* ---------------------------------------------------------------- messages */
static bool send_all(int fd, const void *data, size_t n)
{
    const char *at = (const char *)data;

    while (n > 0) {
        ssize_t did = send(fd, at, n, MSG_NOSIGNAL);

        if (did < 0 && errno == EINTR)
            continue;
        if (did <= 0)
            return false;
        at += did;
        n -= (size_t)did;
    }
    return true;
}

static bool recv_all(int fd, void *data, size_t n)
{
    char *at = (char *)data;

    while (n > 0) {
        ssize_t did = recv(fd, at, n, 0);

        if (did < 0 && errno == EINTR)
            continue;
        if (did <= 0)
            return false;
        at += did;
        n -= (size_t)did;
    }
    return true;
}

union fd_room {
    struct cmsghdr head;
    char room[CMSG_SPACE(4 * sizeof(int))];
};

/* One byte, with 4 descriptors (the first three or all are there). */
static bool send_fds(int fd, const int *give, size_t n)
{
    char byte = (char)n;
    struct iovec part = {&byte, 1};
    struct msghdr msg = {};
    union fd_room room = {};

    msg.msg_iov = &part;
    msg.msg_iovlen = 1;
    msg.msg_control = room.room;
    msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
    room.head.cmsg_level = SOL_SOCKET;
    room.head.cmsg_type = SCM_RIGHTS;
    room.head.cmsg_len = CMSG_LEN(n * sizeof(int));
    memcpy(CMSG_DATA(&room.head), give, n * sizeof(int));
    return sendmsg(fd, &msg, MSG_NOSIGNAL) == 1;
}

static bool recv_fds(int fd, int *take, size_t n)
{
    char byte;
    struct iovec part = {&byte, 1};
    struct msghdr msg = {};
    union fd_room room = {};
    ssize_t did;

    msg.msg_iov = &part;
    msg.msg_iovlen = 1;
    msg.msg_control = room.room;
    msg.msg_controllen = sizeof(room.room);
    do
        did = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
    while (did < 0 && errno == EINTR);
    if (did != 1 || byte != (char)n || room.head.cmsg_len != CMSG_LEN(n * sizeof(int)))
        return false;
    memcpy(take, CMSG_DATA(&room.head), n * sizeof(int));
    return true;
}

/* ---------------------------------------------------------------- the one who answers */
enum { SPLIT = 1, END };
struct request {
    int what, color, key;
};

struct answer {
    int result, rank, num;
    char text[240];
};

static void pair_of(int fds[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
        shim_die("nccl: no sockets for a communicator: %s", strerror(errno));
}

/* Gives the sockets of every pair to its two ranks. One who has gone meanwhile is found
 * out by its peers. */
static void hand_out(const std::vector<int> &conns)
{
    for (size_t i = 0; i < conns.size(); i++)
        for (size_t j = i + 1; j < conns.size(); j++) {
            size_t n = i == 0 ? 4 : 3; /* the fourth is ctl */
            int pairs[4][2], low[4], high[4];

            for (size_t k = 0; k < n; k++) {
                pair_of(pairs[k]);
                low[k] = pairs[k][0];
                high[k] = pairs[k][1];
            }
            std::swap(high[1], high[2]); /* what one sends the other receives */
            send_fds(conns[i], low, n);
            send_fds(conns[j], high, n);
            for (size_t k = 0; k < n; k++) {
                close(pairs[k][0]);
                close(pairs[k][1]);
            }
        }
}

static void admit(const std::vector<int> &conns)
{
    for (size_t i = 0; i < conns.size(); i++) {
        struct answer a = {ncclSuccess, (int)i, (int)conns.size(), ""};

        send_all(conns[i], &a, sizeof(a));
    }
    hand_out(conns);
}

/* The other side of admit(). */
static ncclResult_t take_place(wire *w, int conn)
{
    struct answer a;

    if (!recv_all(conn, &a, sizeof(a)))
        return nccl_set_error(ncclRemoteError,
                              "a rank, or the process that made the unique "
                              "id, has gone before all ranks had met");
    if (a.result != ncclSuccess)
        return nccl_set_error((ncclResult_t)a.result, "%s", a.text);
    w->rank = a.rank;
    w->num = a.num;
    w->links.resize((size_t)a.num);
    for (int r = 0; r < a.num; r++) {
        size_t n = r == 0 || a.rank == 0 ? 4 : 3;
        int got[4] = {-1, -1, -1, -1};
        bool ours = true;

        if (r == a.rank)
            continue;
        if (!recv_fds(conn, got, n))
            return nccl_set_error(ncclRemoteError, "a rank has gone while ranks met");
        w->links[(size_t)r] = {got[0], got[1], got[2], got[3]};
        for (size_t k = 0; k < n; k++)
            ours = wire_owns(w, got[k]) && ours;
        if (!ours)
            return (ncclResult_t)w->result.load();
    }
    return ncclSuccess;
}

/* ---------------------------------------------------------------- connecting */
struct guest {
    int fd;
    wire_hello hello;
};

static bool is_here(int fd)
{
    struct ucred peer = {};
    socklen_t len = sizeof(peer);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
           peer.pid == getpid();
}

/* The rank in this process last: it may end the process when it knows. */
static bool refuse(const std::vector<guest> &guests, ncclResult_t result,
                   const std::string &text)
{
    struct answer a = {};

    a.result = result;
    snprintf(a.text, sizeof(a.text), "%s", text.c_str());
    for (bool here : {false, true})
        for (const guest &g : guests)
            if (is_here(g.fd) == here)
                send_all(g.fd, &a, sizeof(a));
    return false;
}

/* Why the last to come cannot be with the others; "" if it can. */
static std::string trouble_with(const std::vector<guest> &guests, ncclResult_t *result)
{
    const wire_hello &b = guests.back().hello;
    char text[240] = "";

    *result = ncclInvalidUsage;
    for (size_t i = 0; i + 1 < guests.size() && !text[0]; i++) {
        const wire_hello &a = guests[i].hello;

        if (a.num != b.num)
            snprintf(text, sizeof(text), "rank %d wants %d ranks, rank %d wants %d",
                     a.rank, a.num, b.rank, b.num);
        else if (a.rank == b.rank)
            snprintf(text, sizeof(text), "two processes want to be rank %d", a.rank);
        else if (a.ids != b.ids)
            snprintf(text, sizeof(text), "ranks %d and %d have different lists of ids",
                     a.rank, b.rank);
        else if (strcmp(a.bus, b.bus) == 0 && strcmp(a.host, b.host) == 0)
            snprintf(text, sizeof(text),
                     "Duplicate GPU detected: rank %d and rank %d both on CUDA device "
                     "%s; give each its own (SHIM_DEVICES, cudaSetDevice) or its own "
                     "NCCL_HOSTID",
                     a.rank, b.rank, a.bus);
    }
    return text;
}

/* True: all have come. False: whoever has come knows why not. */
static bool gather(int listener, std::vector<guest> *guests)
{
    while (guests->empty() || (int)guests->size() < guests->front().hello.num) {
        std::vector<struct pollfd> fds = {{listener, POLLIN, 0}};
        ncclResult_t result;
        std::string text;
        guest g;

        for (const guest &one : *guests)
            fds.push_back({one.fd, POLLRDHUP, 0});
        if (poll(fds.data(), fds.size(), -1) < 0)
            continue;
        for (size_t i = 1; i < fds.size(); i++)
            if (fds[i].revents)
                return refuse(*guests, ncclRemoteError, GONE);
        if (!(fds[0].revents & POLLIN))
            continue;
        g.fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (g.fd < 0)
            continue;
        wire_keep(g.fd);
        if (!recv_all(g.fd, &g.hello, sizeof(g.hello))) {
            wire_drop(g.fd);
            return refuse(*guests, ncclRemoteError, GONE);
        }
        guests->push_back(g);
        text = trouble_with(*guests, &result);
        if (!text.empty())
            return refuse(*guests, result, text);
    }
    return true;
}

static void preside(int listener)
{
    std::vector<guest> guests;
    bool complete = gather(listener, &guests);
    std::vector<int> conns(guests.size());

    wire_drop(listener); /* the id has served */
    for (const guest &g : guests)
        if (complete)
            conns[(size_t)g.hello.rank] = g.fd;
    if (complete)
        admit(conns);
    for (const guest &g : guests)
        wire_drop(g.fd);
}

static socklen_t address_of(const char *name, struct sockaddr_un *out)
{
    *out = {};
    out->sun_family = AF_UNIX; /* sun_path[0] stays 0: abstract */
    snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "%s", name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                       strlen(out->sun_path + 1));
}

ncclResult_t wire_new_id(ncclUniqueId *out)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unsigned char drawn[16];
    struct sockaddr_un at;
    socklen_t len;

    *out = {};
    if (fd < 0 || getrandom(drawn, sizeof(drawn), 0) != (ssize_t)sizeof(drawn))
        return nccl_set_error(ncclSystemError, "no socket for a unique id: %s",
                              strerror(errno));
    wire_keep(fd);
    snprintf(out->internal, sizeof(out->internal), "shim-nccl-");
    for (unsigned char c : drawn)
        snprintf(out->internal + strlen(out->internal), 3, "%02x", c);
    len = address_of(out->internal, &at);
    if (bind(fd, (struct sockaddr *)&at, len) != 0 || listen(fd, MAX_RANKS) != 0) {
        wire_drop(fd);
        return nccl_set_error(ncclSystemError, "no name for a unique id: %s",
                              strerror(errno));
    }
    shim_new_thread([fd] { preside(fd); });
    return ncclSuccess;
}

ncclResult_t wire_connect(wire *w, const ncclUniqueId *id, const wire_hello *hello)
{
    char name[NCCL_UNIQUE_ID_BYTES];
    struct sockaddr_un at;
    socklen_t len;
    int fd;

    if (hello->num > MAX_RANKS)
        return nccl_set_error(ncclInvalidArgument,
                              "%d ranks: the shim connects at most %d", hello->num,
                              MAX_RANKS);
    memcpy(name, id->internal, sizeof(name));
    name[sizeof(name) - 1] = 0;
    if (strncmp(name, "shim-nccl-", 10) != 0)
        return nccl_set_error(ncclInvalidArgument, "this is not a unique id");
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return nccl_set_error(ncclSystemError, "no socket: %s", strerror(errno));
    if (!wire_owns(w, fd))
        return (ncclResult_t)w->result.load();
    len = address_of(name, &at);
    if (connect(fd, (struct sockaddr *)&at, len) != 0)
        return nccl_set_error(ncclRemoteError,
                              "nobody is at the unique id: its process has "
                              "gone, or it has served a communicator");
    if (!send_all(fd, hello, sizeof(*hello)))
        return nccl_set_error(ncclRemoteError,
                              "the process that made the unique id has gone");
    return take_place(w, fd);
}

/* ---------------------------------------------------------------- splits and ends */
static ncclResult_t lost(wire *w, int peer, const char *doing)
{
    wire_fail(w, ncclRemoteError, "rank %d of %d has gone; rank %d was in %s", peer,
              w->num, w->rank, doing);
    return (ncclResult_t)w->result.load();
}

static const char *name_of(const struct request &r)
{
    return r.what == SPLIT ? "ncclCommSplit" : "ncclCommFinalize";
}

/* Rank 0: what every rank asks; all must ask the same. */
static ncclResult_t collect(wire *w, const struct request &mine,
                            std::vector<struct request> *all)
{
    all->assign((size_t)w->num, mine);
    for (int r = 1; r < w->num; r++) {
        struct request &it = (*all)[(size_t)r];

        if (!recv_all(w->links[(size_t)r].ctl, &it, sizeof(it)))
            return lost(w, r, name_of(mine));
        if (it.what != mine.what)
            shim_die("nccl: rank %d calls %s, rank 0 %s", r, name_of(it), name_of(mine));
    }
    return ncclSuccess;
}

static ncclResult_t split_as_first(wire *w, const struct request &mine, wire *child)
{
    std::vector<struct request> all;
    std::vector<int> order;
    ncclResult_t result = collect(w, mine, &all);
    const struct answer alone = {ncclSuccess, 0, 0, ""};
    int self[2];

    if (result != ncclSuccess)
        return result;
    pair_of(self);
    wire_keep(self[0]);
    wire_keep(self[1]);
    for (int r = 0; r < w->num; r++)
        order.push_back(r);
    std::stable_sort(order.begin(), order.end(), [&all](int a, int b) {
        const struct request &x = all[(size_t)a], &y = all[(size_t)b];
        return x.color != y.color ? x.color < y.color : x.key < y.key;
    });
    for (size_t i = 0; i < order.size();) {
        int color = all[(size_t)order[i]].color;
        std::vector<int> conns;

        for (; i < order.size() && all[(size_t)order[i]].color == color; i++)
            conns.push_back(order[i] == 0 ? self[0] : w->links[(size_t)order[i]].ctl);
        if (color >= 0)
            admit(conns);
        else
            for (int conn : conns)
                send_all(conn, &alone, sizeof(alone));
    }
    result = take_place(child, self[1]);
    wire_drop(self[0]);
    wire_drop(self[1]);
    return result;
}

ncclResult_t wire_split(wire *parent, int color, int key, wire *child)
{
    struct request mine = {SPLIT, color, key};
    ncclResult_t result;

    if (parent->rank == 0)
        return split_as_first(parent, mine, child);
    if (!send_all(parent->links[0].ctl, &mine, sizeof(mine)))
        return lost(parent, 0, name_of(mine));
    result = take_place(child, parent->links[0].ctl);
    return result == ncclRemoteError ? lost(parent, 0, name_of(mine)) : result;
}

ncclResult_t wire_end(wire *w)
{
    struct request mine = {END, 0, 0};
    std::vector<struct request> all;
    ncclResult_t result;
    char done = 1;

    w->ending = true;
    if (w->rank != 0) {
        if (!send_all(w->links[0].ctl, &mine, sizeof(mine)) ||
            !recv_all(w->links[0].ctl, &done, 1))
            return lost(w, 0, name_of(mine));
        return ncclSuccess;
    }
    result = collect(w, mine, &all);
    for (int r = 1; r < w->num && result == ncclSuccess; r++)
        send_all(w->links[(size_t)r].ctl, &done, 1);
    return result;
}
