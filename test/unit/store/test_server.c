/* Real sockets: ranks meet in a store that strangers, liars and floods cannot enter, read
 * or slow down. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/log.h"
#include "store/native/client.h"
#include "store/server_thread.h"

static struct zt_secret secret;
static struct zt_store_thread *host;
static int port;

static int set_up(void **state)
{
    struct zt_store_server_config cfg = {
        .address = "127.0.0.1", .job = "job-1", .secret = &secret, .generation = 3};
    struct zt_fault fault;

    (void)state;
    if (zt_secret_random(&secret, &fault) || zt_store_thread_open(&cfg, &host, &fault))
        return 1;
    port = zt_store_thread_port(host);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    zt_store_thread_close(host, 0);
    return 0;
}

static struct zt_store_config client_config(uint32_t index, uint32_t count)
{
    return (struct zt_store_config){.host = "127.0.0.1",
                                    .port = port,
                                    .job = "job-1",
                                    .secret = &secret,
                                    .generation = 3,
                                    .index = index,
                                    .count = count,
                                    .timeout_s = 20};
}

static void must(zt_err rc, const struct zt_fault *fault)
{
    if (rc)
        print_message("%s\n", fault->text);
    assert_int_equal(rc, ZT_OK);
}

/* ---------------------------------------------------------------- honest ranks */

struct rank {
    pthread_t thread;
    uint32_t index, count;
    int rounds;
    zt_err rc;
    struct zt_fault fault;
    double worst_s, sum_s;
};

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    struct zt_store_config cfg = client_config(r->index, r->count);
    struct zt_store_client *s = NULL;
    char key[32], want[32];
    void *value;
    size_t n;

    r->rc = zt_store_open(&cfg, &s, &r->fault);
    for (int i = 0; !r->rc && i < r->rounds; i++) {
        double start = zt_now(), took;

        snprintf(key, sizeof(key), "%d/%u", i, r->index);
        r->rc = zt_store_set(s, key, key, strlen(key), &r->fault);
        if (!r->rc)
            r->rc = zt_store_barrier(s, "round", 30, &r->fault);
        took = zt_now() - start;
        r->sum_s += took;
        r->worst_s = took > r->worst_s ? took : r->worst_s;
        snprintf(want, sizeof(want), "%d/%u", i, (r->index + 1) % r->count);
        if (!r->rc)
            r->rc = zt_store_get(s, want, 0, &value, &n, &r->fault);
        if (r->rc)
            break;
        if (n != strlen(want) || memcmp(value, want, n) != 0)
            r->rc = zt_fault_set(&r->fault, ZT_E_FORMAT, "%s holds another value", want);
        free(value);
    }
    zt_store_close(s);
    return NULL;
}

static void start_ranks(struct rank *r, uint32_t count, int rounds)
{
    for (uint32_t i = 0; i < count; i++) {
        r[i] = (struct rank){.index = i, .count = count, .rounds = rounds};
        assert_int_equal(pthread_create(&r[i].thread, NULL, rank_main, &r[i]), 0);
    }
}

/* Mean and worst time of a round over all of them. */
static void join_ranks(struct rank *r, uint32_t count, double *mean, double *worst)
{
    *mean = *worst = 0;
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(r[i].thread, NULL);
        must(r[i].rc, &r[i].fault);
        *mean += r[i].sum_s / r[i].rounds / count;
        *worst = r[i].worst_s > *worst ? r[i].worst_s : *worst;
    }
}

static void ranks_meet_and_read_each_other(void **state)
{
    struct rank r[8];
    double mean, worst;

    (void)state;
    start_ranks(r, 8, 50);
    join_ranks(r, 8, &mean, &worst);
}

static void the_missing_rank_is_named(void **state)
{
    struct zt_store_config cfg = client_config(0, 2);
    struct zt_fault fault;
    struct zt_store_client *s;

    (void)state;
    must(zt_store_open(&cfg, &s, &fault), &fault);
    assert_int_equal(zt_store_barrier(s, "init", 0.05, &fault), ZT_E_PEER);
    assert_non_null(strstr(fault.text, "barrier \"init\": 1 of 2 have not come"));
    assert_non_null(strstr(fault.text, "rank 1 (never connected)"));
    zt_store_close(s);
}

static void every_call_of_a_client_does_what_it_says(void **state)
{
    struct zt_store_config cfg = client_config(0, 1);
    const char *const keys[] = {"n", "c"};
    struct zt_fault fault;
    struct zt_store_client *s;
    char *now, *big = calloc(1, 1 << 20);
    void *value;
    int64_t v;
    bool yes;
    size_t n;

    (void)state;
    must(zt_store_open(&cfg, &s, &fault), &fault);
    must(zt_store_add(s, "n", 5, &v, &fault), &fault);
    must(zt_store_add(s, "n", -7, &v, &fault), &fault);
    assert_int_equal(v, -2);
    must(zt_store_compare_set(s, "c", "", "one", &yes, &now, &fault), &fault);
    assert_true(yes && strcmp(now, "one") == 0);
    free(now);
    must(zt_store_compare_set(s, "c", "two", "three", &yes, &now, &fault), &fault);
    assert_true(!yes && strcmp(now, "one") == 0);
    free(now);
    must(zt_store_wait(s, keys, 2, 1, &fault), &fault);
    must(zt_store_delete(s, "c", &yes, &fault), &fault);
    assert_true(yes);
    assert_int_equal(zt_store_wait(s, keys, 2, 0.01, &fault), ZT_E_PEER);
    assert_int_equal(zt_store_get(s, "c", 0, &value, &n, &fault), ZT_E_NOINPUT);
    memset(big, 'x', 1 << 20);
    must(zt_store_set(s, "big", big, 1 << 20, &fault), &fault);
    must(zt_store_get(s, "big", 0, &value, &n, &fault), &fault);
    assert_true(n == 1 << 20 && memcmp(value, big, n) == 0);
    free(value);
    assert_int_equal(zt_store_set(s, "big", big, (1 << 20) + 1, &fault), ZT_E_LIMIT);
    must(zt_store_set(s, "still", "here", 4, &fault), &fault);
    free(big);
    zt_store_close(s);
}

/* ---------------------------------------------------------------- who may not come in */

static void a_wrong_secret_job_or_generation_is_refused_and_told(void **state)
{
    struct zt_secret other;
    struct zt_store_config cfg = client_config(0, 1);
    struct zt_fault fault;
    struct zt_store_client *s;

    (void)state;
    must(zt_secret_random(&other, &fault), &fault);
    cfg.secret = &other;
    assert_int_equal(zt_store_open(&cfg, &s, &fault), ZT_E_PEER);
    assert_non_null(strstr(fault.text, "its secret or its job id (job-1)"));
    cfg = client_config(0, 1);
    cfg.job = "job-2";
    assert_int_equal(zt_store_open(&cfg, &s, &fault), ZT_E_PEER);
    assert_non_null(strstr(fault.text, "job-2"));
    cfg = client_config(0, 1);
    cfg.generation = 2;
    assert_int_equal(zt_store_open(&cfg, &s, &fault), ZT_E_PEER);
    assert_non_null(strstr(fault.text, "at generation 3, this process belongs to "
                                       "generation 2: it was replaced by a restart"));
}

static void a_restart_ends_old_clients_and_no_old_value_is_read(void **state)
{
    struct zt_store_config cfg = client_config(0, 1);
    struct zt_store_client *old, *fresh;
    struct zt_fault fault;
    void *value;
    size_t n;

    (void)state;
    must(zt_store_open(&cfg, &old, &fault), &fault);
    must(zt_store_set(old, "k", "old", 3, &fault), &fault);
    zt_store_thread_advance(host, 4);
    assert_int_equal(zt_store_get(old, "k", 5, &value, &n, &fault), ZT_E_PEER);
    assert_int_equal(zt_store_set(old, "k", "old", 3, &fault), ZT_E_PEER);
    zt_store_close(old);
    assert_int_equal(zt_store_open(&cfg, &old, &fault), ZT_E_PEER);
    cfg.generation = 4;
    must(zt_store_open(&cfg, &fresh, &fault), &fault);
    assert_int_equal(zt_store_get(fresh, "k", 0, &value, &n, &fault), ZT_E_NOINPUT);
    zt_store_close(fresh);
}

static int raw_connect(void)
{
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Bytes that came before the end; -1: the end did not come in time. */
static ssize_t read_to_end(int fd, uint8_t *buf, size_t max, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    size_t got = 0;

    while (poll(&p, 1, timeout_ms) > 0) {
        ssize_t n = recv(fd, buf + got, max - got, 0);

        if (n <= 0)
            return (ssize_t)got;
        got += (size_t)n;
        if (got == max)
            return -1;
    }
    return -1;
}

/* What was recorded from a good conversation opens nothing: the nonce is another one. */
static void a_recorded_conversation_played_again_is_worth_nothing(void **state)
{
    struct zt_handshake_key key = {&secret, "job-1"};
    uint8_t challenge[ZT_HANDSHAKE_CHALLENGE], answer[ZT_HANDSHAKE_ANSWER];
    uint8_t verdict[ZT_HANDSHAKE_VERDICT], rest[256];
    struct zt_fault fault;
    struct zt_handshake p;
    int fd = raw_connect();

    (void)state;
    assert_int_equal(recv(fd, challenge, sizeof(challenge), MSG_WAITALL),
                     sizeof(challenge));
    must(zt_handshake_respond(&p, &key, 3, challenge, answer, &fault), &fault);
    assert_int_equal(send(fd, answer, sizeof(answer), MSG_NOSIGNAL), sizeof(answer));
    assert_int_equal(recv(fd, verdict, sizeof(verdict), MSG_WAITALL), sizeof(verdict));
    must(zt_handshake_accept(&p, &key, verdict, &fault), &fault);
    close(fd);

    fd = raw_connect();
    assert_int_equal(send(fd, answer, sizeof(answer), MSG_NOSIGNAL), sizeof(answer));
    assert_int_equal(read_to_end(fd, rest, sizeof(rest), 5000), ZT_HANDSHAKE_CHALLENGE);
    close(fd);

    /* nor does the verdict convince a client of a server that replays it */
    must(zt_handshake_respond(&p, &key, 3, challenge, answer, &fault), &fault);
    assert_int_equal(zt_handshake_accept(&p, &key, verdict, &fault), ZT_E_PEER);
}

/* ---------------------------------------------------------------- attacks */

struct attack {
    const char *name;
    void *(*run)(void *stop);
};

static void fill_random(uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)random();
}

/* Bytes that mean nothing, as fast as they go. */
static void *garbage(void *stop)
{
    uint8_t bytes[4096];

    while (!atomic_load((atomic_bool *)stop)) {
        int fd = raw_connect();

        if (fd < 0)
            continue;
        fill_random(bytes, sizeof(bytes));
        (void)!send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
        close(fd);
    }
    return NULL;
}

/* Well-formed answers with a wrong proof. */
static void *wrong_proofs(void *stop)
{
    uint8_t challenge[ZT_HANDSHAKE_CHALLENGE], answer[ZT_HANDSHAKE_ANSWER];
    struct zt_secret guess = {{1}};
    struct zt_handshake_key key = {&guess, "job-1"};
    struct zt_handshake p;

    while (!atomic_load((atomic_bool *)stop)) {
        int fd = raw_connect();

        if (fd < 0)
            continue;
        if (recv(fd, challenge, sizeof(challenge), MSG_WAITALL) == sizeof(challenge) &&
            !zt_handshake_respond(&p, &key, 3, challenge, answer, NULL))
            (void)!send(fd, answer, sizeof(answer), MSG_NOSIGNAL);
        close(fd);
    }
    return NULL;
}

/* One byte, then another much later, on many connections. */
static void *slow_bytes(void *stop)
{
    enum { MANY = 100 };
    int fds[MANY];

    for (int i = 0; i < MANY; i++)
        fds[i] = raw_connect();
    while (!atomic_load((atomic_bool *)stop)) {
        for (int i = 0; i < MANY; i++)
            if (fds[i] < 0 || send(fds[i], "Z", 1, MSG_NOSIGNAL) < 0) {
                if (fds[i] >= 0)
                    close(fds[i]);
                fds[i] = raw_connect();
            }
        usleep(20000);
    }
    for (int i = 0; i < MANY; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return NULL;
}

/* A thousand connections that say nothing, held open, renewed when they are closed. */
static void *flood(void *stop)
{
    enum { MANY = 1000 };
    int *fds = calloc(MANY, sizeof(int));
    uint8_t sink[64];

    for (int i = 0; i < MANY; i++)
        fds[i] = raw_connect();
    while (fds && !atomic_load((atomic_bool *)stop)) {
        for (int i = 0; i < MANY; i++) {
            ssize_t n = fds[i] >= 0 ? recv(fds[i], sink, sizeof(sink), MSG_DONTWAIT) : 0;

            if (n > 0 || (n < 0 && errno == EAGAIN))
                continue;
            if (fds[i] >= 0)
                close(fds[i]);
            fds[i] = raw_connect();
        }
        usleep(5000);
    }
    for (int i = 0; fds && i < MANY; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(fds);
    return NULL;
}

static void *nothing(void *stop)
{
    (void)stop;
    return NULL;
}

static void a_job_goes_on_whatever_strangers_do(void **state)
{
    static const struct attack attacks[] = {
        {"nobody", nothing},
        {"garbage", garbage},
        {"wrong proofs", wrong_proofs},
        {"slow bytes", slow_bytes},
        {"1,000 silent connections", flood},
    };
    struct rank r[4];

    (void)state;
    print_message("%-26s %10s %10s %12s\n", "strangers", "barrier us", "worst us",
                  "new rank us");
    for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++) {
        struct zt_store_config cfg = client_config(0, 0);
        double mean, worst, start;
        struct zt_store_client *s;
        struct zt_fault fault;
        atomic_bool stop = false;
        pthread_t attacker;

        assert_int_equal(pthread_create(&attacker, NULL, attacks[i].run, &stop), 0);
        start_ranks(r, 4, 2000);
        start = zt_now();
        must(zt_store_open(&cfg, &s, &fault), &fault);
        start = zt_now() - start;
        join_ranks(r, 4, &mean, &worst);
        atomic_store(&stop, true);
        pthread_join(attacker, NULL);
        zt_store_close(s);
        print_message("%-26s %10.0f %10.0f %12.0f\n", attacks[i].name, mean * 1e6,
                      worst * 1e6, start * 1e6);
    }
}

/* ---------------------------------------------------------------- secrets */

static void a_secret_file_that_others_can_read_is_refused(void **state)
{
    char path[] = "/tmp/zt-secret-XXXXXX", file[64];
    struct zt_secret back;
    struct zt_fault fault;
    bool found;

    (void)state;
    assert_non_null(mkdtemp(path));
    snprintf(file, sizeof(file), "%s/secret", path);
    must(zt_secret_write_file(file, &secret, &fault), &fault);
    assert_int_equal(zt_secret_write_file(file, &secret, &fault), ZT_E_CANTCREATE);
    must(zt_secret_read_file(file, &back, &fault), &fault);
    assert_memory_equal(&back, &secret, sizeof(secret));
    assert_int_equal(chmod(file, 0640), 0);
    assert_int_equal(zt_secret_read_file(file, &back, &fault), ZT_E_USAGE);
    assert_non_null(strstr(fault.text, "chmod 600"));
    assert_int_equal(chmod(file, 0600), 0);
    setenv("ZLAUNCH_SECRET_FILE", file, 1);
    must(zt_secret_from_env(&back, &found, &fault), &fault);
    assert_true(found);
    assert_int_equal(truncate(file, 40), 0);
    assert_int_equal(zt_secret_from_env(&back, &found, &fault), ZT_E_FORMAT);
    unsetenv("ZLAUNCH_SECRET_FILE");
    must(zt_secret_from_env(&back, &found, &fault), &fault);
    assert_false(found);
    unlink(file);
    rmdir(path);
}

static void a_secret_from_a_pipe_is_read_once_and_remembered(void **state)
{
    char text[ZT_SECRET_TEXT], number[16];
    struct zt_secret a, b;
    struct zt_fault fault;
    bool found;
    int fds[2];

    (void)state;
    zt_secret_text(&secret, text);
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], text, strlen(text)), strlen(text));
    close(fds[1]);
    snprintf(number, sizeof(number), "%d", fds[0]);
    setenv("ZLAUNCH_SECRET_FD", number, 1);
    must(zt_secret_from_env(&a, &found, &fault), &fault);
    assert_true(found);
    must(zt_secret_from_env(&b, &found, &fault), &fault);
    assert_memory_equal(&a, &secret, sizeof(secret));
    assert_memory_equal(&b, &secret, sizeof(secret));
    unsetenv("ZLAUNCH_SECRET_FD");
    close(fds[0]);
}

/* Every rank of a node has the same file, and with it one offset. */
static void a_file_gives_its_secret_to_each_who_reads(void **state)
{
    int fd = memfd_create("secret", MFD_CLOEXEC);
    char text[ZT_SECRET_TEXT];
    struct zt_secret got;
    struct zt_fault fault;

    (void)state;
    zt_secret_text(&secret, text);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    for (int i = 0; i < 2; i++) {
        memset(&got, 0, sizeof(got));
        must(zt_secret_read_fd(fd, &got, &fault), &fault);
        assert_memory_equal(&got, &secret, sizeof(secret));
    }
    close(fd);
}

#define store_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

/* Both ends of a thousand connections are in this process. */
static void want_descriptors(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)!setrlimit(RLIMIT_NOFILE, &files);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        store_test(ranks_meet_and_read_each_other),
        store_test(the_missing_rank_is_named),
        store_test(every_call_of_a_client_does_what_it_says),
        store_test(a_wrong_secret_job_or_generation_is_refused_and_told),
        store_test(a_restart_ends_old_clients_and_no_old_value_is_read),
        store_test(a_recorded_conversation_played_again_is_worth_nothing),
        store_test(a_job_goes_on_whatever_strangers_do),
        store_test(a_secret_file_that_others_can_read_is_refused),
        store_test(a_secret_from_a_pipe_is_read_once_and_remembered),
        store_test(a_file_gives_its_secret_to_each_who_reads),
    };

    want_descriptors();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
