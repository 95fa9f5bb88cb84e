/* Whatever goes wrong between ranks that talk by TCP has a name and an end. */
#include "test/unit/comm/tcp_ranks.h"
#include "worker/comm/tcp_private.h"

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

    snprintf(told, sizeof(told), "rank %d has failed", rank);
    if (rc == ZT_E_PEER && strstr(fault.text, told))
        return;
    check_peer(rc, gone_text(rank));
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
    atomic_store(&lobby->flag, 1);
    zt_comm_close(g);
}

static void test_a_killed_rank_ends_waits_for_others_too(void **state)
{
    (void)state;
    run_broken(3, 60, die_elsewhere, 1);
}

/* Not in a call, and from another point of view: somebody asks. */
static void ask_until_it_fails(struct zt_comm *c)
{
    CHECK(!zt_comm_failed(c, &fault));
    DO(zt_barrier(c, &fault));
    if (my_rank == 1)
        raise(SIGKILL);
    while (!zt_comm_failed(c, &fault))
        usleep(1000);
    check_peer(ZT_E_PEER, gone_text(1));
    atomic_fetch_add(&lobby->flag, 1);
    await_flag(2); /* so that it is not the end of the other that is seen */
}

static void test_who_asks_learns_of_a_killed_rank_without_a_call(void **state)
{
    (void)state;
    run_broken(3, 60, ask_until_it_fails, 1);
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
        atomic_store(&lobby->flag, 1);
}

static void call_off(struct zt_comm *c)
{
    if (my_rank == 1)
        zt_comm_abort(c, 2);
    if (my_rank == 2)
        await_flag(2);
    check_peer(two_barriers(c), "rank 2 has failed");
    atomic_fetch_add(&lobby->flag, 1);
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
static void (*spoil)(struct tcp_card *all);

static zt_err gather_spoilt(void *ctx, const void *mine, size_t bytes, void *all,
                            struct zt_fault *f)
{
    zt_err rc = gather(ctx, mine, bytes, all, f);

    spoil(all);
    return rc;
}

static void run_spoilt(int world, double timeout_s, void (*how)(struct tcp_card *),
                       bool open, rank_fn fn)
{
    struct zt_comm_meeting m = {gather_spoilt, NULL, "127.0.0.1"};
    struct group g = tcp_group(world);

    m.ctx = lobby;
    spoil = how;
    g.meeting = &m;
    g.timeout_s = timeout_s;
    run_but(&g, open, fn, -1);
}

static zt_err open_tcp(double timeout_s)
{
    struct zt_comm_meeting m = {gather_spoilt, lobby, "127.0.0.1"};
    struct zt_comm_config cfg = {.engine = "tcp",
                                 .rank = my_rank,
                                 .world = lobby->world,
                                 .shm_fd = -1,
                                 .meeting = &m,
                                 .timeout_s = timeout_s};
    struct zt_comm *c;

    return zt_comm_open(&cfg, &c, &fault);
}

static int connect_to(const struct tcp_card *c)
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
static void let_strangers_in(struct tcp_card *all)
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
    run_spoilt(3, 60, let_strangers_in, true, work_beside_strangers);
}

static void forget_token(struct tcp_card *all)
{
    if (my_rank == 1)
        all[0].token[31] ^= 0x80;
}

static void not_let_in(struct zt_comm *none)
{
    (void)none;
    check_peer(open_tcp(2), my_rank ? "rank 1 cannot reach rank 0 on"
                                    : "1 rank did not connect to rank 0 in time; the "
                                      "first is rank 1 on");
}

static void test_a_rank_without_the_token_is_not_let_in(void **state)
{
    (void)state;
    run_spoilt(2, 2, forget_token, false, not_let_in);
}

/* Rank 1 takes rank 0 for another. */
static void mistake(struct tcp_card *all)
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
        check_peer(rc, "rank 1 on");
}

static void test_who_answers_must_be_of_the_job(void **state)
{
    (void)state;
    run_spoilt(2, 2, mistake, false, wrong_answer);
}

/* Rank 2 has connected to rank 0 when it finds that it cannot to rank 1, which waits. */
static void lose_rank_1(struct tcp_card *all)
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
        check_peer(rc, "ended while the ranks connected");
    else
        CHECK(rc == ZT_E_PEER); /* rank 0 is gone by then */
    if (my_rank == 0)
        atomic_store(&lobby->flag, 1);
}

static void test_the_end_of_a_rank_ends_the_meeting(void **state)
{
    (void)state;
    run_spoilt(3, 60, lose_rank_1, false, give_up);
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

/* ---------------------------------------------------------------- messages */
static const struct zt_wire *wire;

static void join_wire(void)
{
    struct zt_comm_config cfg = {
        .rank = my_rank, .world = lobby->world, .meeting = &meeting, .timeout_s = 60};
    int rank, world, max_tag;

    DO(zt_tcp_wire(&cfg, &wire, &fault));
    CHECK(!wire->start(&rank, &world, &max_tag, fault.text, sizeof(fault.text)));
    CHECK(rank == my_rank && world == lobby->world && max_tag >= 1 << 20);
}

static void finish_batch(struct zt_wire_batch *b)
{
    bool done = false;

    while (!done)
        CHECK(!wire->poll(b, &done));
}

/* Look around, with nothing expected, until `flag`: what comes meanwhile is early. */
static void look_until(int flag)
{
    bool got;
    char c;

    while (atomic_load(&lobby->flag) < flag)
        CHECK(!wire->heard(&c, 1, 999, &got) && !got);
}

#define BIG 3000000

/* Rank 1 sends; rank 0 asks for some of it before, some after, and not in that order. */
static void messages_keep_their_order(struct zt_comm *none)
{
    static uint8_t big[3][BIG], small[4][8];
    struct zt_wire_batch *b;
    char text[256];
    bool done, got;
    int error;

    (void)none;
    join_wire();
    b = wire->batch_open(16);
    if (my_rank == 1) {
        for (int i = 0; i < 3; i++) {
            memset(big[i], i + 1, BIG);
            memset(small[i], i + 10, 8);
            CHECK(!wire->send(b, small[i], (size_t)i * 4, 0, 5)); /* 0, 4, 8 bytes */
            CHECK(!wire->send(b, big[i], BIG, 0, 6));
        }
        CHECK(!wire->send(b, small[2], 8, 0, 7));
        CHECK(!wire->send(b, small[1], 8, 0, 8));
        finish_batch(b);
        atomic_store(&lobby->flag, 1);
        wire->batch_close(b);
        wire->stop();
        return;
    }
    for (got = false; !got;) /* 0 bytes; the first big one is on its way behind them */
        CHECK(!wire->heard(text, 1, 5, &got));
    CHECK(!wire->recv(b, big[0], BIG, 1, 6));
    finish_batch(b);
    CHECK(big[0][0] == 1 && big[0][BIG - 1] == 1 && !memcmp(big[0], big[0] + 1, BIG - 1));
    look_until(1); /* all the rest is early */
    CHECK(!wire->recv(b, big[1], BIG, 1, 6));
    CHECK(!wire->recv(b, big[2], BIG, 1, 6));
    CHECK(!wire->recv(b, small[0], 8, 1, 5)); /* more room than comes */
    CHECK(!wire->recv(b, small[1], 8, 1, 5));
    finish_batch(b);
    CHECK(big[1][BIG / 2] == 2 && !memcmp(big[1], big[1] + 1, BIG - 1));
    CHECK(big[2][BIG / 2] == 3 && !memcmp(big[2], big[2] + 1, BIG - 1));
    CHECK(small[0][3] == 11 && small[0][4] == 0 && small[1][7] == 12);
    CHECK(wire->heard(text, 4, 7, &got)); /* less room than comes */
    CHECK(!wire->heard(text, 8, 7, &got) && got && text[7] == 12);
    error = wire->recv(b, text, 7, 1, 8);
    CHECK(error && wire->who(error) == -1);
    wire->why(error, text, sizeof(text));
    CHECK(strstr(text, "rank 1 on ") && strstr(text, "sent more than was asked for"));
    CHECK(!wire->heard(text, 8, -1, &got) && got &&
          text[0] == 11); /* it is still there */
    CHECK(!wire->heard(text, 8, -1, &got) && !got);
    wire->batch_close(b);
    b = wire->batch_open(1);
    CHECK(!wire->recv(b, text, 8, 1, 9)); /* but rank 1 has ended, in order */
    while (!(error = wire->poll(b, &done)))
        CHECK(!done);
    CHECK(wire->who(error) == 1 && !wire->lost());
    wire->batch_close(b);
}

#define PIECE  ((size_t)4 << 20)
#define PIECES 40

/* What nobody asks for is read to a bound; the rest stays with its sender. */
static void early_messages_are_bounded(struct zt_comm *none)
{
    static uint8_t piece[PIECE];
    struct zt_wire_batch *b;
    bool done = false, got;

    (void)none;
    join_wire();
    b = wire->batch_open(PIECES);
    if (my_rank == 1) {
        memset(piece, 7, PIECE);
        for (int i = 0; i < PIECES; i++)
            CHECK(!wire->send(b, piece, PIECE, 0, 1));
        for (int i = 0; i < 1000; i++) { /* far longer than it would take */
            CHECK(!wire->poll(b, &done) && !done);
            usleep(1000);
        }
        atomic_store(&lobby->flag, 1);
        finish_batch(b);
    } else {
        look_until(1);
        for (int i = 0; i < PIECES; i++) {
            memset(piece, 0, PIECE);
            CHECK(!wire->recv(b, piece, PIECE, 1, 1));
            finish_batch(b);
            CHECK(piece[0] == 7 && !memcmp(piece, piece + 1, PIECE - 1));
        }
        CHECK(!wire->heard(piece, 1, -1, &got) && !got);
    }
    wire->batch_close(b);
    wire->stop();
}

/* A batch that is closed gives up what it expected; a short message goes all the same. */
static void batches_can_be_given_up(struct zt_comm *none)
{
    static char big[BIG], text[8];
    struct zt_wire_batch *b;

    (void)none;
    join_wire();
    b = wire->batch_open(4);
    if (my_rank == 1) {
        for (int i = 0; i < 3; i++)
            CHECK(!wire->send(b, big, BIG, 0, 1));
        memset(big, 3, BIG);
        finish_batch(b);
        memcpy(text, "goodbye", 8);
        CHECK(!wire->send(b, text, 8, 0, 2));
        wire->batch_close(b);
        memset(text, 0, 8); /* it was taken along */
        wire->stop();
        return;
    }
    CHECK(!wire->recv(b, big, BIG, 1, 1));
    wire->batch_close(b); /* on its way, or not yet */
    b = wire->batch_open(4);
    CHECK(!wire->recv(b, text, 8, 1, 2));
    finish_batch(b);
    CHECK(!strcmp(text, "goodbye"));
    wire->batch_close(b);
    wire->stop();
}

static void run_wire(rank_fn fn)
{
    struct group g = tcp_group(2);

    run_but(&g, false, fn, -1);
}

static void test_messages_of_a_tag_keep_their_order_early_or_not(void **state)
{
    (void)state;
    run_wire(messages_keep_their_order);
}

static void test_what_comes_early_is_bounded(void **state)
{
    (void)state;
    run_wire(early_messages_are_bounded);
}

static void test_a_batch_can_be_given_up(void **state)
{
    (void)state;
    run_wire(batches_can_be_given_up);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_killed_rank_is_named_to_the_others),
        cmocka_unit_test(test_a_killed_rank_ends_waits_for_others_too),
        cmocka_unit_test(test_who_asks_learns_of_a_killed_rank_without_a_call),
        cmocka_unit_test(test_ranks_that_differ_leave_or_stay_away_are_named),
        cmocka_unit_test(test_strangers_do_not_disturb),
        cmocka_unit_test(test_a_rank_without_the_token_is_not_let_in),
        cmocka_unit_test(test_who_answers_must_be_of_the_job),
        cmocka_unit_test(test_the_end_of_a_rank_ends_the_meeting),
        cmocka_unit_test(test_without_a_meeting_there_is_a_way_out),
        cmocka_unit_test(test_messages_of_a_tag_keep_their_order_early_or_not),
        cmocka_unit_test(test_what_comes_early_is_bounded),
        cmocka_unit_test(test_a_batch_can_be_given_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
