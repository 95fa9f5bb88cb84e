/* Ranks without zlaunch meet, in a store of their own or in torchrun's, and never in what
 * an earlier try left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/log.h"
#include "store/server_thread.h"
#include "store/fd_passing.h"
#include "store/rendezvous.h"
#include "store/tcpstore/client.h"
#include "store/native/liveness.h"
#include "test/unit/store/tcp_host.h"

#define WORLD 5

struct rank {
    pthread_t thread;
    struct zt_launch_env env;
    double timeout_s;
    zt_err rc;
    struct zt_fault fault;
    ino_t inode;   /* of the memory file */
    unsigned gone; /* bits of ranks that ended without a word */
};

static bool one_dies;
static pthread_mutex_t gone_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gone_changed = PTHREAD_COND_INITIALIZER;

static int make_id(void *ctx, uint8_t id[ZT_UNIQUE_ID_BYTES])
{
    const struct rank *r = ctx;

    memset(id, 'A' + r->env.rank, ZT_UNIQUE_ID_BYTES);
    return 0;
}

static zt_err check_ids(struct zt_rendezvous *z, struct rank *r)
{
    uint8_t ids[3][ZT_UNIQUE_ID_BYTES];
    zt_err rc = zt_rendezvous_unique_ids(z, "world", 3, make_id, r, ids, &r->fault);

    for (int k = 0; !rc && k < 3; k++)
        for (int i = 0; i < ZT_UNIQUE_ID_BYTES; i++)
            if (ids[k][i] != 'A' + zt_unique_id_root(WORLD, 3, k))
                return zt_fault_set(&r->fault, ZT_E_FORMAT, "id %d is not its root's", k);
    return rc;
}

static zt_err check_gather(struct zt_rendezvous *z, struct rank *r)
{
    struct zt_blob all[WORLD];
    char mine[32], want[32];
    zt_err rc;

    snprintf(mine, sizeof(mine), "%*d", r->env.rank + 1, r->env.rank);
    rc = zt_rendezvous_gather(z, "words", mine, strlen(mine), all, &r->fault);
    if (rc)
        return rc;
    for (int i = 0; i < WORLD; i++) {
        snprintf(want, sizeof(want), "%*d", i + 1, i);
        if (all[i].bytes != strlen(want) || memcmp(all[i].data, want, strlen(want)) != 0)
            rc = zt_fault_set(&r->fault, ZT_E_FORMAT, "blob %d is wrong", i);
    }
    free(all[0].data);
    return rc;
}

/* Rank WORLD - 1 of a test in which one dies goes without a word; the others must hear
 * of it: rank 0 from its end, and of nobody else's. */
static void count_gone(void *ctx, int rank)
{
    struct rank *r = ctx;

    pthread_mutex_lock(&gone_lock);
    r->gone |= 1u << rank;
    pthread_cond_broadcast(&gone_changed);
    pthread_mutex_unlock(&gone_lock);
}

static void wait_for_gone(struct rank *r)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    pthread_mutex_lock(&gone_lock);
    while (!r->gone && pthread_cond_timedwait(&gone_changed, &gone_lock, &until) == 0)
        ;
    pthread_mutex_unlock(&gone_lock);
}

static zt_err watch_the_end(struct rank *r, struct zt_shared_memfd *g)
{
    struct zt_liveness_config cfg = {g->conn, g->rank, g->num, count_gone, r};
    struct zt_liveness *v;
    zt_err rc = zt_liveness_open(&cfg, &v, &r->fault);

    if (rc)
        return rc;
    if (one_dies && r->env.rank == 0)
        wait_for_gone(r);
    if (!one_dies || r->env.rank != WORLD - 1)
        zt_liveness_leave(v);
    zt_liveness_close(v);
    return ZT_OK;
}

static void *rank_main(void *arg)
{
    struct zt_rendezvous *z = NULL;
    struct zt_shared_memfd group = {.fd = -1};
    struct rank *r = arg;
    struct stat sb;

    r->rc = zt_rendezvous_open(&r->env, r->timeout_s, &z, &r->fault);
    if (!r->rc)
        r->rc = check_gather(z, r);
    if (!r->rc)
        r->rc = check_ids(z, r);
    if (!r->rc)
        r->rc = zt_rendezvous_share_memfd(z, &group, &r->fault);
    if (!r->rc && fstat(group.fd, &sb) == 0)
        r->inode = sb.st_ino;
    if (!r->rc)
        r->rc = watch_the_end(r, &group);
    if (group.fd >= 0)
        close(group.fd);
    zt_shared_memfd_release(&group);
    zt_rendezvous_close(z);
    return NULL;
}

static void start(struct rank *r, zt_launch_kind kind, int rank, int port,
                  double timeout_s)
{
    *r = (struct rank){.timeout_s = timeout_s};
    r->env = (struct zt_launch_env){.kind = kind,
                                    .rank = rank,
                                    .world = WORLD,
                                    .job = "test",
                                    .master_addr = "127.0.0.1",
                                    .master_port = port};
    assert_int_equal(pthread_create(&r->thread, NULL, rank_main, r), 0);
}

static void all_well(struct rank *r)
{
    for (int i = 0; i < WORLD; i++) {
        pthread_join(r[i].thread, NULL);
        if (r[i].rc)
            fail_msg("rank %d: %s", i, r[i].fault.text);
        assert_true(r[i].inode && r[i].inode == r[0].inode);
        assert_int_equal(r[i].gone, one_dies && i == 0 ? 1u << (WORLD - 1) : 0);
    }
}

/* A port that was free a moment ago. */
static int free_port(void)
{
    struct zt_secret secret = {{0}};
    struct zt_store_server_config cfg = {
        .address = "127.0.0.1", .job = "x", .secret = &secret, .generation = 1};
    struct zt_store_thread *h;
    struct zt_fault fault;
    int port;

    assert_int_equal(zt_store_thread_open(&cfg, &h, &fault), ZT_OK);
    port = zt_store_thread_port(h);
    zt_store_thread_close(h, 0);
    return port;
}

static void ranks_meet_in_a_store_of_their_own(void **state)
{
    struct rank r[WORLD];
    int port = free_port();

    (void)state;
    for (int i = WORLD - 1; i >= 0; i--) /* rank 0 last: the others try again */
        start(&r[i], ZT_LAUNCH_ENV, i, port, 30);
    all_well(r);
}

static void a_rank_that_ends_without_a_word_is_noticed_and_no_other(void **state)
{
    struct rank r[WORLD];
    int port = free_port();

    (void)state;
    one_dies = true;
    for (int i = 0; i < WORLD; i++)
        start(&r[i], ZT_LAUNCH_ENV, i, port, 30);
    all_well(r);
    one_dies = false;
}

static void ranks_meet_in_the_agents_store(void **state)
{
    struct tcp_host host;
    struct rank r[WORLD];

    (void)state;
    assert_int_equal(tcp_host_open(&host), 0);
    for (int i = 0; i < WORLD; i++)
        start(&r[i], ZT_LAUNCH_TORCHRUN, i, host.port, 30);
    all_well(r);
    tcp_host_close(&host);
}

/* The same store and the same count of restarts again: everything of the first try is
 * still there. Others come before rank 0 and find the old number first. */
static void a_second_try_in_the_same_store_reads_nothing_old(void **state)
{
    struct tcp_host host;
    struct rank r[WORLD];
    ino_t first;

    (void)state;
    assert_int_equal(tcp_host_open(&host), 0);
    for (int i = 0; i < WORLD; i++)
        start(&r[i], ZT_LAUNCH_TORCHRUN, i, host.port, 30);
    all_well(r);
    first = r[0].inode;
    for (int again = 0; again < 3; again++) {
        for (int i = WORLD - 1; i > 0; i--)
            start(&r[i], ZT_LAUNCH_TORCHRUN, i, host.port, 30);
        usleep(100000); /* they meet the old keys; whether they do changes no result */
        start(&r[0], ZT_LAUNCH_TORCHRUN, 0, host.port, 30);
        all_well(r);
        assert_true(r[0].inode != first);
    }
    tcp_host_close(&host);
}

static void a_rank_that_does_not_come_is_named(void **state)
{
    struct rank r[WORLD];
    struct tcp_host host;
    int port = free_port();

    (void)state;
    for (int i = 0; i < WORLD - 1; i++)
        start(&r[i], ZT_LAUNCH_ENV, i, port, 1);
    for (int i = 0; i < WORLD - 1; i++) {
        pthread_join(r[i].thread, NULL);
        assert_int_equal(r[i].rc, ZT_E_PEER);
    }
    assert_non_null(strstr(r[0].fault.text, "rank 4 (never connected)"));

    assert_non_null(
        strstr(r[0].fault.text, "waiting for all 5 ranks at 127.0.0.1 port "));

    assert_int_equal(tcp_host_open(&host), 0);
    for (int i = 0; i < WORLD - 1; i += i ? 2 : 1) /* 0, 1, 3 */
        start(&r[i], ZT_LAUNCH_TORCHRUN, i, host.port, 2);
    for (int i = 0; i < WORLD - 1; i += i ? 2 : 1) {
        pthread_join(r[i].thread, NULL);
        assert_int_equal(r[i].rc, ZT_E_PEER);
    }
    assert_non_null(strstr(r[0].fault.text, "of 5 ranks these have not come within 2 s: "
                                            "rank 2, 4; "));
    tcp_host_close(&host);
}

static void no_address_is_an_error_that_says_what_to_do(void **state)
{
    struct zt_launch_env env = {.kind = ZT_LAUNCH_ENV, .world = 2, .job = "none"};
    struct zt_rendezvous *z;
    struct zt_fault fault;

    (void)state;
    assert_int_equal(zt_rendezvous_open(&env, 1, &z, &fault), ZT_E_USAGE);
    assert_non_null(strstr(fault.text, "MASTER_ADDR is not set"));
    strcpy(env.master_addr, "no.such.host.invalid");
    env.master_port = 1;
    env.rank = 1;
    assert_int_equal(zt_rendezvous_open(&env, 0.2, &z, &fault), ZT_E_HOST);
    assert_non_null(strstr(fault.text, "does not resolve"));
}

/* ---------------------------------------------------------------- descriptors */

struct giver {
    pthread_t thread;
    struct zt_fd_server local;
    int fd, conn[2];
    zt_err rc;
    struct zt_fault fault;
};

static void *give(void *arg)
{
    struct giver *g = arg;

    g->rc = zt_fd_server_send(&g->local, g->fd, 2, zt_now() + 20, g->conn, &g->fault);
    return NULL;
}

static void a_descriptor_goes_to_who_knows_the_token_only(void **state)
{
    uint8_t wrong[ZT_FD_SERVER_TOKEN] = {1};
    struct giver g = {.fd = -1};
    struct zt_fault fault;
    struct stat a, b;
    int fd, conn;

    (void)state;
    assert_int_equal(zt_fd_server_listen(&g.local, &g.fault), ZT_OK);
    g.fd = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(pthread_create(&g.thread, NULL, give, &g), 0);
    assert_int_equal(
        zt_fd_receive(g.local.name, wrong, 1, zt_now() + 5, &fd, &conn, &fault),
        ZT_E_PEER);
    assert_int_equal(
        zt_fd_receive(g.local.name, g.local.token, 3, zt_now() + 5, &fd, &conn, &fault),
        ZT_E_PEER); /* there is no third */
    for (int number = 2; number >= 1; number--) {
        assert_int_equal(zt_fd_receive(g.local.name, g.local.token, number, zt_now() + 5,
                                       &fd, &conn, &fault),
                         ZT_OK);
        assert_true(fstat(fd, &a) == 0 && fstat(g.fd, &b) == 0 && a.st_ino == b.st_ino);
        close(fd);
        close(conn);
    }
    pthread_join(g.thread, NULL);
    assert_int_equal(g.rc, ZT_OK);
    close(g.conn[0]);
    close(g.conn[1]);
    close(g.fd);
    zt_fd_server_release(&g.local);
}

static void ids_are_spread_over_the_ranks(void **state)
{
    (void)state;
    assert_int_equal(zt_unique_id_count(8, 0), 1);
    assert_int_equal(zt_unique_id_count(128, 128), 1);
    assert_int_equal(zt_unique_id_count(129, 128), 2);
    assert_int_equal(zt_unique_id_count(4096, 128), 32);
    for (int world = 1; world < 200; world += 7)
        for (int n = 1; n <= world; n += 3)
            for (int k = 0; k < n; k++) {
                int root = zt_unique_id_root(world, n, k);

                assert_true(root >= 0 && root < world);
                assert_true(!k || root > zt_unique_id_root(world, n, k - 1));
            }
    /* as NCCL spreads them: the first ones have one rank more */
    assert_int_equal(zt_unique_id_root(11, 3, 0), 0);
    assert_int_equal(zt_unique_id_root(11, 3, 1), 4);
    assert_int_equal(zt_unique_id_root(11, 3, 2), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet_in_a_store_of_their_own),
        cmocka_unit_test(a_rank_that_ends_without_a_word_is_noticed_and_no_other),
        cmocka_unit_test(ranks_meet_in_the_agents_store),
        cmocka_unit_test(a_second_try_in_the_same_store_reads_nothing_old),
        cmocka_unit_test(a_rank_that_does_not_come_is_named),
        cmocka_unit_test(no_address_is_an_error_that_says_what_to_do),
        cmocka_unit_test(a_descriptor_goes_to_who_knows_the_token_only),
        cmocka_unit_test(ids_are_spread_over_the_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
