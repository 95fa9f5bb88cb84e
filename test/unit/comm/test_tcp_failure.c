/* Whatever goes wrong between ranks that talk by TCP has a name and an end. */
#include "test/unit/comm/tcp_ranks.h"
#include "worker/comm/mesh/tcp/private.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

static void check_fault(zt_err rc, zt_err want, const char *part)
{
    if (rc == want && strstr(fault.text, part))
        return;
    fprintf(stderr, "rank %d: wanted '%s', got %s: %s\n", my_rank, part, zt_err_name(rc),
            rc ? fault.text : "");
    _exit(1);
}

static void check_peer(zt_err rc, const char *part)
{
    check_fault(rc, ZT_E_PEER, part);
}

static void check_lost(zt_err rc, const char *part)
{
    check_fault(rc, ZT_E_LOST, part);
}

/* "rank 1 on <this host> is gone", as who notices it by itself says it. */
static const char *gone_text(int rank)
{
    static char text[128];
    char host[64] = "";

    gethostname(host, sizeof(host) - 1);
    snprintf(text, sizeof(text), "tcp: rank %d on %s is gone: its connection", rank,
             host);
    return text;
}

/* By itself or told by another rank, it knows who it was. */
static void check_gone(zt_err rc, int rank)
{
    char told[64];

    snprintf(told, sizeof(told), "a connection to rank %d was lost", rank);
    if (rc == ZT_E_LOST && strstr(fault.text, told))
        return;
    check_lost(rc, gone_text(rank));
}

/* A call that was as good as done when it failed elsewhere ends well; the next does not.
 */
static zt_err two_barriers(struct zt_comm *c)
{
    zt_err rc = zt_barrier(c, &fault);

    return rc ? rc : zt_barrier(c, &fault);
}

/* All but `killed` (-1: none) end well. */
static void run_but(struct group *g, bool open, rank_fn fn, int killed)
{
    int status[MAX_RANKS];

    for (int r = 0; r < g->world; r++)
        start_rank(g, r, open, fn);
    for (int r = 0; r < g->world; r++)
        status[r] = end_of_rank(g, r);
    for (int r = 0; r < g->world; r++)
        assert_int_equal(status[r], r == killed ? SIGKILL : 0);
}

static void run_broken(int world, double timeout_s, rank_fn fn, int killed)
{
    struct group g = tcp_group(world);

    g.timeout_s = timeout_s;
    run_but(&g, true, fn, killed);
}

/* ---------------------------------------------------------------- a rank dies */
static void reduce_until_it_fails(struct zt_comm *c)
{
    size_t n = 3000000;
    float *v = calloc(n, sizeof(*v));
    zt_err rc = ZT_OK;

    CHECK(v);
    for (int i = 0; !rc; i++) {
        if (my_rank == 1 && i == 3)
            raise(SIGKILL);
        rc = zt_all_reduce(c, v, v, n, ZT_F32, ZT_SUM, 1.0f, &fault);
    }
    check_gone(rc, 1);
    check_gone(zt_barrier(c, &fault), 1); /* and so it stays */
    CHECK(zt_comm_failed(c, &fault));
    free(v);
}

static void sum_until_it_fails(struct zt_comm *c)
{
    double v = 1;
    zt_err rc = ZT_OK;

    for (int i = 0; !rc; i++) {
        if (my_rank == 1 && i == 100)
            raise(SIGKILL);
        rc = zt_sum_f64(c, &v, 1, &fault);
    }
    check_gone(rc, 1);
}

static void test_a_killed_rank_is_named_to_the_others(void **state)
{
    (void)state;
    run_broken(2, 60, reduce_until_it_fails, 1);
    run_broken(4, 60, reduce_until_it_fails, 1);
    run_broken(4, 60, sum_until_it_fails, 1);
}

/* Ranks 1 and 2 are killed before the others look: none of them may be blamed alone. */
static void two_die_at_once(struct zt_comm *c)
{
    char state = 0;
    zt_err rc;

    if (my_rank == 1 || my_rank == 2) {
        snprintf(shared->card[my_rank], CARD_MAX, "/proc/%d/stat", (int)getpid());
        atomic_fetch_add(&shared->flag, 1);
        raise(SIGKILL);
    }
    await_flag(2);
    for (int r = 1; r <= 2; r++, state = 0)
        while (state != 'Z') {
            FILE *f = fopen(shared->card[r], "re");

            CHECK(f && fscanf(f, "%*d %*s %c", &state) == 1);
            fclose(f);
        }
    rc = two_barriers(c);
    check_lost(rc, "ranks 1 and 2 are gone; which of them was the first is not known");
}

static void test_of_several_that_are_gone_none_is_blamed(void **state)
{
    struct group g = tcp_group(3);

    (void)state;
    for (int r = 0; r < 3; r++)
        start_rank(&g, r, true, two_die_at_once);
    for (int r = 0; r < 3; r++)
        assert_int_equal(end_of_rank(&g, r), r ? SIGKILL : 0);
}

/* Rank 0 waits in a group for rank 2, which does not come before that has failed. */
static void die_elsewhere(struct zt_comm *c)
{
    struct zt_comm *g;

    DO(zt_comm_split(c, my_rank == 1, &g, &fault));
    if (my_rank == 1)
        raise(SIGKILL);
    if (my_rank == 2)
        await_flag(1);
    check_gone(two_barriers(g), 1);
    atomic_store(&shared->flag, 1);
    zt_comm_close(g);
}

static void test_a_killed_rank_ends_waits_for_others_too(void **state)
{
    (void)state;
    run_broken(3, 60, die_elsewhere, 1);
}

/* No rank dies: a connection does, on one side, and the end of that rank tells the other. */
static void break_connection(struct zt_comm *c)
{
    zt_err rc = ZT_OK;

    for (int fd = 3; my_rank == 1 && fd < 1024; fd++) {
        struct sockaddr_in peer;
        socklen_t n = sizeof(peer);

        if (!getpeername(fd, (void *)&peer, &n) && peer.sin_family != AF_UNIX)
            shutdown(fd, SHUT_RD);
    }
    while (!rc)
        rc = zt_barrier(c, &fault);
    check_lost(rc, gone_text(my_rank ? 0 : 1));
}

static void test_a_connection_that_ends_by_itself_is_told_as_that(void **state)
{
    (void)state;
    run_broken(2, 60, break_connection, -1);
}

/* Not in a call, and from another point of view: somebody asks. */
static void ask_until_it_fails(struct zt_comm *c)
{
    CHECK(!zt_comm_failed(c, &fault));
    DO(zt_barrier(c, &fault));
    if (my_rank == 1) {
        await_flag(2); /* until the others have left the barrier */
        raise(SIGKILL);
    }
    atomic_fetch_add(&shared->flag, 1);
    while (!zt_comm_failed(c, &fault))
        usleep(1000);
    check_lost(fault.code, gone_text(1));
    atomic_fetch_add(&shared->flag, 1);
    await_flag(4); /* so that it is not the end of the other that is seen */
}

static void test_who_asks_learns_of_a_killed_rank_without_a_call(void **state)
{
    (void)state;
    run_broken(3, 60, ask_until_it_fails, 1);
}

/*
 * Ranks 0 and 2 know of it already and see the connection end in a call of their own that
 * ends well; what they then tell all ranks as they close reaches rank 1 no more.
 */
static void close_after_it_was_seen(struct zt_comm *c)
{
    struct zt_comm *g;
    zt_err rc;

    DO(zt_comm_split(c, my_rank == 1, &g, &fault));
    if (my_rank == 1) {
        await_flag(2); /* until nobody needs it for the split */
        raise(SIGKILL);
    }
    atomic_fetch_add(&shared->flag, 1);
    while (!zt_comm_failed(c, &fault))
        usleep(1000);
    atomic_fetch_add(&shared->flag, 1);
    await_flag(4);
    rc = zt_barrier(g, &fault);
    if (rc) /* it took so long that the end of rank 1 counts */
        check_gone(rc, 1);
    zt_comm_close(g);
}

static void test_a_communicator_with_a_killed_rank_is_freed(void **state)
{
    (void)state;
    run_broken(3, 60, close_after_it_was_seen, 1);
}

/* ---------------------------------------------------------------- ranks differ */
static void differ(struct zt_comm *c)
{
    float send[3] = {0}, recv[9] = {0};
    zt_err rc;

    if (my_rank == 1)
        rc = zt_all_gather(c, send, recv, 3, ZT_F32, &fault);
    else
        rc = zt_all_reduce(c, recv, recv, 8, ZT_BF16, ZT_SUM, 1.0f, &fault);
    check_peer(rc, "rank 1 wants all_gather of 12 bytes (3 f32), rank 0 all_reduce of 16 "
                   "bytes (8 bf16) sum times 1");
}

static void leave_early(struct zt_comm *c)
{
    if (my_rank != 1)
        check_peer(zt_barrier(c, &fault), "rank 1 has closed its communicator");
}

static void come_late(struct zt_comm *c)
{
    zt_err rc;

    if (my_rank == 1)
        await_flag(1);
    rc = two_barriers(c);
    check_peer(rc, my_rank == 1   ? "given up, because rank 1 did not come in time"
                   : my_rank == 0 ? "rank 1 did not come"
                                  : ""); /* by its own clock, or told by rank 0 */
    if (my_rank == 0)
        atomic_store(&shared->flag, 1);
}

static void call_off(struct zt_comm *c)
{
    if (my_rank == 1)
        zt_comm_abort(c, 2);
    if (my_rank == 2)
        await_flag(2);
    check_peer(two_barriers(c), "rank 2 has failed");
    CHECK(zt_comm_failed(c, &fault)); /* rank 0 was told by a message alone */
    check_peer(ZT_E_PEER, "rank 2 has failed");
    atomic_fetch_add(&shared->flag, 1);
    if (my_rank ==
        1) /* who leaves with messages unread may take its own last one along */
        await_flag(2);
}

static void test_ranks_that_differ_leave_or_stay_away_are_named(void **state)
{
    (void)state;
    run_broken(3, 60, differ, -1);
    run_broken(3, 60, leave_early, -1);
    run_broken(3, 2, come_late, -1);
    run_broken(3, 60, call_off, -1);
}

/* ---------------------------------------------------------------- while they connect */
static void (*alter)(struct tcp_endpoint *all);

static zt_err gather_altered(void *ctx, const void *mine, size_t bytes, void *all,
                             struct zt_fault *f)
{
    zt_err rc = gather(ctx, mine, bytes, all, f);

    alter(all);
    return rc;
}

static void run_altered(int world, double timeout_s, void (*how)(struct tcp_endpoint *),
                        bool open, rank_fn fn)
{
    struct zt_comm_bootstrap m = {.all_gather = gather_altered, .host = "127.0.0.1"};
    struct group g = tcp_group(world);

    m.ctx = shared;
    alter = how;
    g.bootstrap = &m;
    g.timeout_s = timeout_s;
    run_but(&g, open, fn, -1);
}

static zt_err open_tcp(double timeout_s)
{
    struct zt_comm_bootstrap m = {
        .all_gather = gather_altered, .ctx = shared, .host = "127.0.0.1"};
    struct zt_comm_config cfg = {.engine = "tcp",
                                 .rank = my_rank,
                                 .world = shared->world,
                                 .shm_fd = -1,
                                 .bootstrap = &m,
                                 .timeout_s = timeout_s};
    struct zt_comm *c;

    return zt_comm_open(&cfg, &c, &fault);
}

static int connect_to(const struct tcp_endpoint *c)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(c->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0 && inet_pton(AF_INET, c->address, &a.sin_addr) == 1);
    CHECK(!connect(fd, (void *)&a, sizeof(a)));
    return fd;
}

#define HELLO_BYTES 44
static int stranger_fd = -1;

/* More than have a place, before the ranks come: silent ones, one that sends half a
 * hello, one that sends too much, and one whose hello is right but for the token. */
static void let_strangers_in(struct tcp_endpoint *all)
{
    uint32_t hello[HELLO_BYTES / 4] = {0x7a745450u, 1, 0};
    char garbage[5000];

    if (my_rank != 1)
        return;
    memset(garbage, 'x', sizeof(garbage));
    for (int i = 0; i < 100; i++) {
        int fd = connect_to(&all[0]);

        if (i % 3 == 1)
            CHECK(send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL) > 0);
        if (i % 3 == 2)
            CHECK(send(fd, hello, HELLO_BYTES / 2, MSG_NOSIGNAL) > 0);
    }
    memcpy(hello + 3, all[0].token, ZT_TCP_TOKEN);
    ((uint8_t *)hello)[HELLO_BYTES - 1] ^= 1; /* its last byte */
    stranger_fd = connect_to(&all[0]);
    CHECK(send(stranger_fd, hello, HELLO_BYTES, MSG_NOSIGNAL) == HELLO_BYTES);
}

static void work_beside_strangers(struct zt_comm *c)
{
    double v = my_rank + 1;

    DO(zt_sum_f64(c, &v, 1, &fault));
    CHECK(v == 6);
    if (my_rank == 1) { /* it got no answer but the end */
        char answer;

        CHECK(recv(stranger_fd, &answer, 1, 0) <= 0);
    }
    DO(zt_barrier(c, &fault));
}

static void test_strangers_do_not_disturb(void **state)
{
    (void)state;
    run_altered(3, 60, let_strangers_in, true, work_beside_strangers);
}

static void forget_token(struct tcp_endpoint *all)
{
    if (my_rank == 1)
        all[0].token[31] ^= 0x80;
}

static void not_let_in(struct zt_comm *none)
{
    (void)none;
    check_lost(open_tcp(2), my_rank ? "rank 1 cannot reach rank 0 on"
                                    : "1 rank did not connect to rank 0 in time; the "
                                      "first is rank 1 on");
}

static void test_a_rank_without_the_token_is_not_let_in(void **state)
{
    (void)state;
    run_altered(2, 2, forget_token, false, not_let_in);
}

/* Rank 1 takes rank 0 for another. */
static void mistake(struct tcp_endpoint *all)
{
    if (my_rank == 1)
        all[1].token[0] ^= 1; /* of its own: the answer is not what it expects */
}

static void wrong_answer(struct zt_comm *none)
{
    zt_err rc = open_tcp(2);

    (void)none;
    if (my_rank == 1)
        check_peer(rc, "is not rank 0 of this job");
    else /* it had no reason to doubt, and sees the end of rank 1 */
        check_lost(rc, "rank 1 on");
}

static void test_who_answers_must_be_of_the_job(void **state)
{
    (void)state;
    run_altered(2, 2, mistake, false, wrong_answer);
}

/* Rank 2 has connected to rank 0 when it finds that it cannot to rank 1, which waits. */
static void lose_rank_1(struct tcp_endpoint *all)
{
    if (my_rank == 1)
        await_flag(1);
    if (my_rank == 2)
        strcpy(all[1].address, "nowhere");
}

static void give_up(struct zt_comm *none)
{
    zt_err rc;

    (void)none;
    rc = open_tcp(60);
    if (my_rank == 2)
        check_peer(rc, "rank 1 gave no address");
    else if (my_rank == 0)
        check_lost(rc, "ended while the ranks connected");
    else
        CHECK(rc == ZT_E_LOST); /* rank 0 is gone by then */
    if (my_rank == 0)
        atomic_store(&shared->flag, 1);
}

static void test_the_end_of_a_rank_ends_the_meeting(void **state)
{
    (void)state;
    run_altered(3, 60, lose_rank_1, false, give_up);
}

static void test_without_a_meeting_there_is_a_way_out(void **state)
{
    struct zt_comm_config cfg = {
        .engine = "tcp", .world = 2, .shm_fd = -1, .timeout_s = 1};
    struct zt_comm *c;

    (void)state;
    assert_int_equal(zt_comm_open(&cfg, &c, &fault), ZT_E_UNSUPPORTED);
    assert_non_null(strstr(fault.text, "start them with zlaunch, or set MASTER_ADDR"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_killed_rank_is_named_to_the_others),
        cmocka_unit_test(test_a_killed_rank_ends_waits_for_others_too),
        cmocka_unit_test(test_of_several_that_are_gone_none_is_blamed),
        cmocka_unit_test(test_a_connection_that_ends_by_itself_is_told_as_that),
        cmocka_unit_test(test_who_asks_learns_of_a_killed_rank_without_a_call),
        cmocka_unit_test(test_a_communicator_with_a_killed_rank_is_freed),
        cmocka_unit_test(test_ranks_that_differ_leave_or_stay_away_are_named),
        cmocka_unit_test(test_strangers_do_not_disturb),
        cmocka_unit_test(test_a_rank_without_the_token_is_not_let_in),
        cmocka_unit_test(test_who_answers_must_be_of_the_job),
        cmocka_unit_test(test_the_end_of_a_rank_ends_the_meeting),
        cmocka_unit_test(test_without_a_meeting_there_is_a_way_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
