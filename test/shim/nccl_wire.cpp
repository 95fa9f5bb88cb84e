/*
 * nccl_wire.cpp -- the sockets of a communicator, its end, and the text of its last error.
 */
#include "nccl_wire.h"

#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <set>

#include "shim.h"

/* ---------------------------------------------------------------- the last error */
static std::mutex &words_guard = *new std::mutex;
static std::string &words = *new std::string;

ncclResult_t nccl_set_error(ncclResult_t result, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    std::lock_guard<std::mutex> hold(words_guard);
    words = text;
    return result;
}

std::string nccl_last_error(void)
{
    std::lock_guard<std::mutex> hold(words_guard);

    return words;
}

/* ---------------------------------------------------------------- descriptors */
/*
 * A forked child must not keep the sockets of its parent open: peers would not see the
 * parent die. So all are known, and a child closes them.
 */
static std::mutex &open_guard = *new std::mutex;
static std::set<int> &open_fds = *new std::set<int>;

static void in_child(void)
{
    for (int fd : open_fds)
        close(fd);
    open_fds.clear();
    open_guard.unlock();
    words_guard.unlock();
}

void wire_keep(int fd)
{
    static bool once;
    std::lock_guard<std::mutex> hold(open_guard);

    if (!once)
        pthread_atfork(
            [] {
                words_guard.lock();
                open_guard.lock();
            },
            [] {
                open_guard.unlock();
                words_guard.unlock();
            },
            in_child);
    once = true;
    open_fds.insert(fd);
}

void wire_drop(int fd)
{
    std::lock_guard<std::mutex> hold(open_guard);

    if (open_fds.erase(fd))
        close(fd);
}

wire::~wire()
{
    for (int fd : fds)
        wire_drop(fd);
}

bool wire_owns(wire *w, int fd)
{
    std::lock_guard<std::mutex> hold(w->guard);

    wire_keep(fd);
    if (w->result == ncclSuccess) {
        w->fds.push_back(fd);
        return true;
    }
    wire_drop(fd);
    return false;
}

void wire_fail(wire *w, ncclResult_t result, const char *fmt, ...)
{
    int none = ncclSuccess;
    char text[300];
    va_list args;

    std::lock_guard<std::mutex> hold(w->guard);
    if (!w->result.compare_exchange_strong(none, result))
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    nccl_set_error(result, "%s", text);
    for (int fd : w->fds)
        shutdown(fd, SHUT_RDWR);
}

void wire_abort(wire *w)
{
    w->aborted = true;
    wire_fail(w, ncclInternalError, "rank %d of %d aborted the communicator", w->rank,
              w->num);
    shim_wake();
}

bool wire_peer_left(const wire *w, int *peer)
{
    for (int r = 0; r < w->num; r++) {
        struct pollfd p = {w->links[(size_t)r].coll, POLLRDHUP, 0};

        if (r != w->rank && poll(&p, 1, 0) > 0 && !w->ending) {
            *peer = r;
            return true;
        }
    }
    return false;
}
