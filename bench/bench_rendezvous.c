/*
 * How the rendezvous store scales: N simulated daemons (non-blocking clients in a few
 * processes) connect, prove the secret, say who they are, and pass ten barriers through
 * one server in a process of its own. Best of several rounds; memory is the server's
 * peak.
 *
 * Columns: clients; seconds for all to be proved and joined; seconds for ten barriers;
 * both; microseconds of both for one client; peak resident memory of the server.
 *
 *      bench_rendezvous [CLIENTS ...]     (500 1000 2000 4000)
 */
#include "common/log.h"
#include "store/native/handshake.h"
#include "store/native/server.h"
#include "store/native/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BARRIERS 10
#define WORKERS  2 /* processes that play the clients */
#define ROUNDS   5

/* Seen by all processes of a round. */
struct shared {
    int port;
    double joined[WORKERS], done[WORKERS];
    bool failed;
};

struct client {
    int fd, step; /* 0: challenge, 1: verdict, 2: joined, 3..: barriers */
    uint32_t index;
    uint8_t in[64];
    size_t have, want;
    struct zt_handshake proof;
};

static struct zt_secret secret;
static struct shared *shared;

static void die(const char *what)
{
    perror(what);
    shared->failed = true;
    _exit(1);
}

/* ------------------------------------------------------------------ server */

static void server_main(int tell_fd)
{
    struct zt_store_server_config cfg = {.address = "127.0.0.1",
                                         .job = "bench",
                                         .noun = "node",
                                         .secret = &secret,
                                         .generation = 1};
    struct zt_store_server *s;
    struct zt_fault fault;
    uv_loop_t loop;

    uv_loop_init(&loop);
    if (zt_store_server_open(&loop, &cfg, &s, &fault)) {
        fprintf(stderr, "%s\n", fault.text);
        _exit(1);
    }
    shared->port = zt_store_server_port(s);
    if (write(tell_fd, "x", 1) != 1)
        _exit(1);
    uv_run(&loop, UV_RUN_DEFAULT); /* until it is killed */
}

/* ------------------------------------------------------------------ clients */

static void start_client(struct client *c, int epoll)
{
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)shared->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
    int one = 1;

    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        die("socket");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(c->fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 && errno != EINPROGRESS)
        die("connect");
    c->want = ZT_HANDSHAKE_CHALLENGE;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &ev) < 0)
        die("epoll_ctl");
}

static void send_request(struct client *c, const struct zt_store_request *r)
{
    uint8_t bytes[256];
    struct zt_buf out = {.data = bytes, .cap = sizeof(bytes), .max = sizeof(bytes)};

    if (zt_store_put_request(&out, r) ||
        send(c->fd, bytes, out.len, MSG_NOSIGNAL) != (ssize_t)out.len)
        die("send");
    c->want = 5; /* an OK without a body */
}

static void send_answer(struct client *c)
{
    struct zt_handshake_key key = {&secret, "bench"};
    uint8_t answer[ZT_HANDSHAKE_ANSWER];

    if (zt_handshake_respond(&c->proof, &key, 1, c->in, answer, NULL) ||
        send(c->fd, answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer))
        die("answer");
    c->want = ZT_HANDSHAKE_VERDICT;
}

/* The message that was awaited is there. True: the client moved to its next step. */
static void advance(struct client *c, uint32_t count)
{
    struct zt_handshake_key key = {&secret, "bench"};
    struct zt_store_request r = {.op = ZT_STORE_BARRIER,
                                 .timeout_ms = 60000,
                                 .index = c->index,
                                 .count = count,
                                 .key = {"step", 4}};

    if (c->step == 0) {
        send_answer(c);
    } else if (c->step == 1) {
        if (zt_handshake_accept(&c->proof, &key, c->in, NULL))
            die("the server's proof");
        r.op = ZT_STORE_JOIN;
        r.key = (struct zt_span){"node", 4};
        send_request(c, &r);
    } else {
        if (c->in[4] != ZT_STORE_OK)
            die("the answer");
        if (c->step < 2 + BARRIERS)
            send_request(c, &r);
    }
    c->step++;
    c->have = 0;
}

static void clients_main(int worker, uint32_t count, double start)
{
    uint32_t mine = count / WORKERS, moved_in = 0, finished = 0;
    struct client *c = calloc(mine, sizeof(*c));
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event ev[256];

    for (uint32_t i = 0; i < mine; i++) {
        c[i].index = i * WORKERS + (uint32_t)worker;
        start_client(&c[i], epoll);
    }
    while (finished < mine) {
        int n = epoll_wait(epoll, ev, 256, 60000);

        if (n <= 0)
            die("the server is silent");
        for (int i = 0; i < n; i++) {
            struct client *k = ev[i].data.ptr;
            ssize_t got = recv(k->fd, k->in + k->have, k->want - k->have, 0);

            if (got <= 0 && errno != EAGAIN)
                die("recv");
            k->have += got > 0 ? (size_t)got : 0;
            if (k->have < k->want)
                continue;
            advance(k, count);
            moved_in += k->step == 3;
            finished += k->step == 3 + BARRIERS;
            if (k->step == 3 && moved_in == mine)
                shared->joined[worker] = zt_now() - start;
        }
    }
    shared->done[worker] = zt_now() - start;
    free(c);
}

/* ------------------------------------------------------------------ rounds */

static double larger(const double *v)
{
    double most = v[0];

    for (int i = 1; i < WORKERS; i++)
        most = v[i] > most ? v[i] : most;
    return most;
}

static bool run_round(uint32_t count, double *joined, double *total, long *peak_kib)
{
    pid_t server, worker[WORKERS];
    struct rusage usage;
    double start;
    int tell[2], status;
    char byte;

    memset(shared, 0, sizeof(*shared));
    if (pipe(tell) < 0)
        return false;
    server = fork();
    if (server == 0) {
        server_main(tell[1]);
        _exit(0);
    }
    close(tell[1]);
    if (read(tell[0], &byte, 1) != 1)
        return false;
    close(tell[0]);
    start = zt_now();
    for (int i = 0; i < WORKERS; i++) {
        worker[i] = fork();
        if (worker[i] == 0) {
            clients_main(i, count, start);
            _exit(0);
        }
    }
    for (int i = 0; i < WORKERS; i++)
        waitpid(worker[i], &status, 0);
    kill(server, SIGKILL);
    wait4(server, &status, 0, &usage);
    *joined = larger(shared->joined);
    *total = larger(shared->done);
    *peak_kib = usage.ru_maxrss;
    return !shared->failed;
}

static bool measure(uint32_t count)
{
    double best = 1e9, best_joined = 0;
    long peak = 0;

    for (int i = 0; i < ROUNDS; i++) {
        double joined, total;
        long kib;

        if (!run_round(count, &joined, &total, &kib))
            return false;
        peak = kib > peak ? kib : peak;
        if (total < best) {
            best = total;
            best_joined = joined;
        }
    }
    printf("%8u %10.3f %12.3f %10.3f %12.1f %10.1f\n", count, best_joined,
           best - best_joined, best, best / count * 1e6, (double)peak / 1024);
    fflush(stdout);
    return true;
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"500", "1000", "2000", "4000"};
    struct rlimit files;
    bool ok = true;
    int n = argc > 1 ? argc - 1 : 4;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)!setrlimit(RLIMIT_NOFILE, &files);
    }
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || zt_secret_random(&secret, NULL))
        return 1;
    printf("%8s %10s %12s %10s %12s %10s\n", "clients", "join s", "10 barriers", "all s",
           "us/client", "peak MiB");
    for (int i = 0; ok && i < n; i++) {
        long count = strtol(argc > 1 ? argv[i + 1] : usual[i], NULL, 10);

        ok = count >= WORKERS && count <= 100000 && count % WORKERS == 0 &&
             measure((uint32_t)count);
    }
    if (!ok)
        fprintf(stderr, "bench_rendezvous: failed (open files: %llu)\n",
                (unsigned long long)files.rlim_cur);
    return !ok;
}
