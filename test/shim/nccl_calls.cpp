/*
 * nccl_calls.cpp -- what goes over the sockets while a call runs.
 *
 * Tasks run in lanes: one for collectives, one for each direction between this rank and a
 * peer. A task is a few rounds; a round is transfers that all must end before the next
 * one begins. Round 0 of every task exchanges what both sides want; so all ranks of a
 * collective, and both of a send, start together, and a difference is told by both.
 */
#include "nccl_calls.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <deque>
#include <map>

/* What a rank sends its peers about a task, before its data. */
struct task_header {
    int32_t kind, type, op, root;
    uint64_t count;
};

struct transfer {
    int fd, peer;
    bool out;
    char *at;
    size_t left;
};

struct lane {
    std::deque<nccl_task> tasks;
    int round = 0;
    std::vector<transfer> now;
    struct task_header mine;
    std::vector<struct task_header> theirs; /* by rank */
    std::vector<char> room;                 /* of all ranks: what is to be reduced here */

    void give(int fd, int peer, const void *p, size_t n)
    {
        now.push_back({fd, peer, true, (char *)const_cast<void *>(p), n});
    }
    void take(int fd, int peer, void *p, size_t n)
    {
        now.push_back({fd, peer, false, (char *)p, n});
    }
};

/* ---------------------------------------------------------------- sizes and names */
static const struct {
    ncclDataType_t type;
    size_t bytes;
    const char *name;
} types[] = {
    {ncclInt8, 1, "int8"},    {ncclUint8, 1, "uint8"},   {ncclInt32, 4, "int32"},
    {ncclInt64, 8, "int64"},  {ncclFloat16, 2, "fp16"},  {ncclFloat32, 4, "fp32"},
    {ncclFloat64, 8, "fp64"}, {ncclBfloat16, 2, "bf16"},
};

size_t nccl_type_bytes(ncclDataType_t type)
{
    for (const auto &row : types)
        if (row.type == type)
            return row.bytes;
    return 0;
}

static const char *type_name(int type)
{
    for (const auto &row : types)
        if (row.type == type)
            return row.name;
    return "?";
}

const char *nccl_kind_name(nccl_kind kind)
{
    static const char *const names[] = {
        "ncclBroadcast", "ncclAllReduce", "ncclReduceScatter", "ncclAllGather",
        "ncclAlltoAll",  "ncclSend",      "ncclRecv"};

    return names[kind];
}

static size_t bytes_of(const nccl_task &t)
{
    return t.count * nccl_type_bytes(t.type);
}

size_t nccl_send_bytes(const nccl_task &t, const wire &w)
{
    if (t.kind == NCCL_RECV || (t.kind == NCCL_BROADCAST && w.rank != t.root))
        return 0;
    if (t.kind == NCCL_REDUCE_SCATTER || t.kind == NCCL_ALL_TO_ALL)
        return bytes_of(t) * (size_t)w.num;
    return bytes_of(t);
}

size_t nccl_recv_bytes(const nccl_task &t, const wire &w)
{
    if (t.kind == NCCL_SEND)
        return 0;
    if (t.kind == NCCL_ALL_GATHER || t.kind == NCCL_ALL_TO_ALL)
        return bytes_of(t) * (size_t)w.num;
    return bytes_of(t);
}

static std::string tell(const struct task_header &w)
{
    char text[160];
    size_t n = (size_t)snprintf(text, sizeof(text), "%s of %llu %s",
                                nccl_kind_name((nccl_kind)w.kind),
                                (unsigned long long)w.count, type_name(w.type));

    if (w.kind == NCCL_BROADCAST)
        snprintf(text + n, sizeof(text) - n, " from rank %d", w.root);
    else if (w.op == ncclMax)
        snprintf(text + n, sizeof(text) - n, " (max)");
    return text;
}

/* ---------------------------------------------------------------- rounds */
struct call : shim_call {
    std::shared_ptr<wire> w;
    std::vector<nccl_task> tasks; /* all, as they came */
    std::vector<lane> lanes;
    uint64_t turn = 0; /* among all calls of the wire */
    bool begun = false;
    std::vector<std::pair<void *, nccl_task>> own; /* sends to itself, and where to */

    bool go_on(void) override;
    void waits_for(std::vector<struct pollfd> *fds) override;

    bool advance(lane *l);
    bool move(transfer *t);
    bool begin_round(lane *l);
    void spoil(void);
};

/* Part r of p, n bytes a part. */
static char *part(const void *p, int r, size_t n)
{
    return (char *)const_cast<void *>(p) + (size_t)r * n;
}

static void copy(void *dst, const void *src, size_t n)
{
    if (n > 0 && dst != src)
        memmove(dst, src, n);
}

static bool is_single(int kind)
{
    return kind == NCCL_SEND || kind == NCCL_RECV;
}

static void exchange_wishes(const wire &w, const nccl_task &t, lane *l)
{
    l->mine = {t.kind, t.type, t.op, is_single(t.kind) ? -1 : t.root, t.count};
    l->theirs.assign((size_t)w.num, l->mine);
    for (int r = 0; r < w.num; r++) {
        const wire_link &link = w.links[(size_t)r];
        int fd = t.kind == NCCL_SEND   ? link.out
                 : t.kind == NCCL_RECV ? link.in
                                       : link.coll;

        if (r == w.rank || (is_single(t.kind) && r != t.root))
            continue;
        l->give(fd, r, &l->mine, sizeof(l->mine));
        l->take(fd, r, &l->theirs[(size_t)r], sizeof(l->mine));
    }
}

static void compare_wishes(const wire &w, const lane &l)
{
    for (int r = 0; r < w.num; r++) {
        const struct task_header &a = l.mine, &theirs = l.theirs[(size_t)r];
        struct task_header b = theirs;

        if (is_single(a.kind) && is_single(b.kind))
            b.kind = a.kind; /* a socket for each direction: they do not cross */
        if (memcmp(&a, &b, sizeof(a)) != 0)
            shim_die("rank %d of %d wants %s, rank %d %s", w.rank, w.num, tell(a).c_str(),
                     r, tell(theirs).c_str());
    }
}

static void begin_single(const wire &w, const nccl_task &t, lane *l)
{
    if (t.kind == NCCL_SEND)
        l->give(w.links[(size_t)t.root].out, t.root, t.send, bytes_of(t));
    else
        l->take(w.links[(size_t)t.root].in, t.root, t.recv, bytes_of(t));
}

static void begin_broadcast(const wire &w, const nccl_task &t, lane *l)
{
    if (w.rank != t.root) {
        l->take(w.links[(size_t)t.root].coll, t.root, t.recv, bytes_of(t));
        return;
    }
    copy(t.recv, t.send, bytes_of(t));
    for (int r = 0; r < w.num; r++)
        if (r != w.rank)
            l->give(w.links[(size_t)r].coll, r, t.send, bytes_of(t));
}

/* From each rank to each: of what is sent, part r or all of it. */
static void begin_exchange(const wire &w, const nccl_task &t, bool parts, void *recv,
                           lane *l)
{
    size_t n = bytes_of(t);

    for (int r = 0; r < w.num; r++) {
        const char *out = parts ? part(t.send, r, n) : (const char *)t.send;

        if (r == w.rank) {
            copy(part(recv, r, n), out, n);
        } else {
            l->give(w.links[(size_t)r].coll, r, out, n);
            l->take(w.links[(size_t)r].coll, r, part(recv, r, n), n);
        }
    }
}

/* Of `count` numbers of each rank in the room. */
static void reduce_room(const wire &w, const nccl_task &t, const lane &l, void *out,
                        size_t count)
{
    std::vector<const void *> from;

    for (int r = 0; r < w.num; r++)
        from.push_back(part(l.room.data(), r, count * nccl_type_bytes(t.type)));
    nccl_reduce(t.type, t.op, out, from, count, w.rank);
}

static void begin_reduce_scatter(const wire &w, const nccl_task &t, lane *l)
{
    if (l->round == 1) {
        l->room.resize(bytes_of(t) * (size_t)w.num);
        begin_exchange(w, t, true, l->room.data(), l);
    } else {
        reduce_room(w, t, *l, t.recv, t.count);
    }
}

/* Chunk r of an all-reduce; chunk r is reduced by rank r. */
static size_t chunk_first(size_t count, int r, int num)
{
    size_t each = count / (size_t)num, more = count % (size_t)num;

    return each * (size_t)r + std::min(more, (size_t)r);
}

static void begin_all_reduce(const wire &w, const nccl_task &t, lane *l)
{
    size_t size = nccl_type_bytes(t.type), mine = chunk_first(t.count, w.rank, w.num);
    size_t count = chunk_first(t.count, w.rank + 1, w.num) - mine, n = count * size;
    char *own = part(t.recv, 1, mine * size);

    if (l->round == 1) {
        l->room.resize(n * (size_t)w.num);
        copy(part(l->room.data(), w.rank, n), part(t.send, 1, mine * size), n);
    } else {
        reduce_room(w, t, *l, own, count);
    }
    for (int r = 0; r < w.num; r++) {
        int fd = w.links[(size_t)r].coll;
        size_t at = chunk_first(t.count, r, w.num) * size;
        size_t theirs = chunk_first(t.count, r + 1, w.num) * size - at;

        if (r == w.rank)
            continue;
        if (l->round == 1) {
            l->give(fd, r, part(t.send, 1, at), theirs);
            l->take(fd, r, part(l->room.data(), r, n), n);
        } else {
            l->give(fd, r, own, n);
            l->take(fd, r, part(t.recv, 1, at), theirs);
        }
    }
}

/* False: the task has had its last round. */
bool call::begin_round(lane *l)
{
    const nccl_task &t = l->tasks.front();
    int last = t.kind == NCCL_ALL_REDUCE || t.kind == NCCL_REDUCE_SCATTER ? 2 : 1;

    l->now.clear();
    if (l->round > last)
        return false;
    if (l->round == 0) {
        exchange_wishes(*w, t, l);
        return true;
    }
    if (l->round == 1)
        compare_wishes(*w, *l);
    if (is_single(t.kind))
        begin_single(*w, t, l);
    else if (t.kind == NCCL_BROADCAST)
        begin_broadcast(*w, t, l);
    else if (t.kind == NCCL_REDUCE_SCATTER)
        begin_reduce_scatter(*w, t, l);
    else if (t.kind == NCCL_ALL_REDUCE)
        begin_all_reduce(*w, t, l);
    else
        begin_exchange(*w, t, t.kind == NCCL_ALL_TO_ALL, t.recv, l);
    return true;
}

/* ---------------------------------------------------------------- progress */

/* As much as goes without waiting; false: it would wait, or the wire has failed. */
bool call::move(transfer *t)
{
    while (t->left > 0) {
        ssize_t n = t->out ? send(t->fd, t->at, t->left, MSG_DONTWAIT | MSG_NOSIGNAL)
                           : recv(t->fd, t->at, t->left, MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return false;
        if (n <= 0) {
            wire_fail(w.get(), ncclRemoteError,
                      "rank %d of %d has gone; rank %d was in %s", t->peer, w->num,
                      w->rank, nccl_kind_name(tasks[0].kind));
            return false;
        }
        t->at += n;
        t->left -= (size_t)n;
    }
    return true;
}

/* True: nothing is left of the lane. */
bool call::advance(lane *l)
{
    while (!l->tasks.empty()) {
        bool all = true;

        for (transfer &t : l->now)
            all = move(&t) && all;
        if (!all)
            return false;
        if (!begin_round(l)) {
            l->tasks.pop_front();
            l->round = 0;
        } else {
            l->round++;
        }
    }
    return true;
}

/* Nobody may count on what a call that failed has left. */
void call::spoil(void)
{
    for (const nccl_task &t : tasks)
        if (nccl_recv_bytes(t, *w) > 0)
            memset(t.recv, 0xFF, nccl_recv_bytes(t, *w));
}

bool call::go_on(void)
{
    bool all = true;

    begun = true;
    for (size_t i = 0; w->result == ncclSuccess && i < lanes.size(); i++)
        all = advance(&lanes[i]) && all;
    if (w->result != ncclSuccess) {
        if (shim_option("SHIM_NCCL_HANG", 0) && !w->aborted)
            return false; /* wire_abort() wakes the device */
        spoil();
        all = true;
    }
    for (const auto &[to, from] : own)
        if (w->result == ncclSuccess)
            copy(to, from.send, bytes_of(from));
    own.clear();
    w->num_done += all;
    return all;
}

void call::waits_for(std::vector<struct pollfd> *fds)
{
    if (w->result != ncclSuccess || turn != w->num_done)
        return;
    for (const lane &l : lanes)
        for (const transfer &t : l.now)
            if (t.left > 0 && (begun || !t.out))
                fds->push_back({t.fd, (short)(t.out ? POLLOUT : POLLIN), 0});
}

/* ---------------------------------------------------------------- a new call */
static void pair_own(call *c)
{
    std::vector<nccl_task> sends, receives;

    for (const nccl_task &t : c->tasks)
        if (is_single(t.kind) && t.root == c->w->rank)
            (t.kind == NCCL_SEND ? sends : receives).push_back(t);
    if (sends.size() != receives.size())
        shim_die("rank %d sends %zu times to itself and receives %zu times, in one group",
                 c->w->rank, sends.size(), receives.size());
    for (size_t i = 0; i < sends.size(); i++) {
        if (sends[i].count != receives[i].count || sends[i].type != receives[i].type)
            shim_die("rank %d sends %zu %s to itself and receives %zu %s", c->w->rank,
                     sends[i].count, type_name(sends[i].type), receives[i].count,
                     type_name(receives[i].type));
        c->own.push_back({receives[i].recv, sends[i]});
    }
}

std::shared_ptr<shim_call> nccl_new_call(std::shared_ptr<wire> w,
                                         const std::vector<nccl_task> &tasks)
{
    std::shared_ptr<call> c = std::make_shared<call>();
    std::map<std::pair<int, int>, std::deque<nccl_task>> lanes;

    c->w = w;
    c->turn = w->num_calls++;
    c->tasks = tasks;
    pair_own(c.get());
    for (const nccl_task &t : tasks)
        if (!is_single(t.kind))
            lanes[{-1, -1}].push_back(t);
        else if (t.root != w->rank)
            lanes[{t.kind, t.root}].push_back(t);
    for (auto &[key, some] : lanes) {
        c->lanes.emplace_back();
        c->lanes.back().tasks = std::move(some);
    }
    for (lane &l : c->lanes) { /* peers' wishes show that they wait for ours */
        c->begin_round(&l);
        l.round = 1;
    }
    return c;
}
