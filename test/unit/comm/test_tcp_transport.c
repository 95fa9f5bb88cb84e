/* Messages over TCP: order, unexpected ones, and batches that are cancelled. */
#include "test/unit/comm/tcp_ranks.h"
#include "worker/comm/mesh/tcp/transport.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

static const struct zt_transport *transport;

static void join_transport(void)
{
    struct zt_comm_config cfg = {.rank = my_rank,
                                 .world = shared->world,
                                 .bootstrap = &bootstrap,
                                 .timeout_s = 60};
    int rank, world, max_tag;

    DO(zt_tcp_transport(&cfg, &transport, &fault));
    CHECK(!transport->start(&rank, &world, &max_tag, fault.text, sizeof(fault.text)));
    CHECK(rank == my_rank && world == shared->world && max_tag >= 1 << 20);
}

static void finish_batch(struct zt_transport_batch *b)
{
    bool done = false;

    while (!done)
        CHECK(!transport->poll(b, &done));
}

/* Poll with no receive posted until `flag`: what comes meanwhile is unexpected. */
static void look_until(int flag)
{
    bool got;
    char c;

    while (atomic_load(&shared->flag) < flag)
        CHECK(!transport->try_recv(&c, 1, 999, &got) && !got);
}

#define BIG 3000000

/* Rank 1 sends; rank 0 asks for some of it before, some after, and not in that order. */
static void messages_keep_their_order(struct zt_comm *none)
{
    static uint8_t big[3][BIG], small[4][8];
    struct zt_transport_batch *b;
    char text[256];
    bool done, got;
    int error;

    (void)none;
    join_transport();
    b = transport->batch_open(16);
    if (my_rank == 1) {
        for (int i = 0; i < 3; i++) {
            memset(big[i], i + 1, BIG);
            memset(small[i], i + 10, 8);
            CHECK(!transport->send(b, small[i], (size_t)i * 4, 0, 5)); /* 0, 4, 8 bytes */
            CHECK(!transport->send(b, big[i], BIG, 0, 6));
        }
        CHECK(!transport->send(b, small[2], 8, 0, 7));
        CHECK(!transport->send(b, small[1], 8, 0, 8));
        finish_batch(b);
        atomic_store(&shared->flag, 1);
        transport->batch_close(b);
        transport->stop();
        return;
    }
    for (got = false; !got;) /* 0 bytes; the first big one is on its way behind them */
        CHECK(!transport->try_recv(text, 1, 5, &got));
    CHECK(!transport->recv(b, big[0], BIG, 1, 6));
    finish_batch(b);
    CHECK(big[0][0] == 1 && big[0][BIG - 1] == 1 && !memcmp(big[0], big[0] + 1, BIG - 1));
    look_until(1); /* all the rest is unexpected */
    CHECK(!transport->recv(b, big[1], BIG, 1, 6));
    CHECK(!transport->recv(b, big[2], BIG, 1, 6));
    CHECK(!transport->recv(b, small[0], 8, 1, 5)); /* more room than comes */
    CHECK(!transport->recv(b, small[1], 8, 1, 5));
    finish_batch(b);
    CHECK(big[1][BIG / 2] == 2 && !memcmp(big[1], big[1] + 1, BIG - 1));
    CHECK(big[2][BIG / 2] == 3 && !memcmp(big[2], big[2] + 1, BIG - 1));
    CHECK(small[0][3] == 11 && small[0][4] == 0 && small[1][7] == 12);
    CHECK(transport->try_recv(text, 4, 7, &got)); /* less room than comes */
    CHECK(!transport->try_recv(text, 8, 7, &got) && got && text[7] == 12);
    error = transport->recv(b, text, 7, 1, 8);
    CHECK(error && transport->error_rank(error) == -1);
    transport->error_text(error, text, sizeof(text));
    CHECK(strstr(text, "rank 1 on ") && strstr(text, "sent more than was asked for"));
    CHECK(!transport->try_recv(text, 8, -1, &got) && got &&
          text[0] == 11); /* it is still there */
    CHECK(!transport->try_recv(text, 8, -1, &got) && !got);
    transport->batch_close(b);
    b = transport->batch_open(1);
    CHECK(!transport->recv(b, text, 8, 1, 9)); /* but rank 1 has ended, in order */
    while (!(error = transport->poll(b, &done)))
        CHECK(!done);
    CHECK(transport->error_rank(error) == 1 && !transport->find_lost());
    transport->batch_close(b);
}

#define PIECE  ((size_t)4 << 20)
#define PIECES 40

/* What nobody asks for is read to a bound; the rest stays with its sender. */
static void unexpected_messages_are_bounded(struct zt_comm *none)
{
    static uint8_t piece[PIECE];
    struct zt_transport_batch *b;
    bool done = false, got;

    (void)none;
    join_transport();
    b = transport->batch_open(PIECES);
    if (my_rank == 1) {
        memset(piece, 7, PIECE);
        for (int i = 0; i < PIECES; i++)
            CHECK(!transport->send(b, piece, PIECE, 0, 1));
        for (int i = 0; i < 1000; i++) { /* far longer than it would take */
            CHECK(!transport->poll(b, &done) && !done);
            usleep(1000);
        }
        atomic_store(&shared->flag, 1);
        finish_batch(b);
    } else {
        look_until(1);
        for (int i = 0; i < PIECES; i++) {
            memset(piece, 0, PIECE);
            CHECK(!transport->recv(b, piece, PIECE, 1, 1));
            finish_batch(b);
            CHECK(piece[0] == 7 && !memcmp(piece, piece + 1, PIECE - 1));
        }
        CHECK(!transport->try_recv(piece, 1, -1, &got) && !got);
    }
    transport->batch_close(b);
    transport->stop();
}

/* A batch that is closed gives up what it expected; a short message goes all the same. */
static void batches_can_be_cancelled(struct zt_comm *none)
{
    static char big[BIG], text[8];
    struct zt_transport_batch *b;

    (void)none;
    join_transport();
    b = transport->batch_open(4);
    if (my_rank == 1) {
        for (int i = 0; i < 3; i++)
            CHECK(!transport->send(b, big, BIG, 0, 1));
        memset(big, 3, BIG);
        finish_batch(b);
        memcpy(text, "goodbye", 8);
        CHECK(!transport->send(b, text, 8, 0, 2));
        transport->batch_close(b);
        memset(text, 0, 8); /* it was taken along */
        transport->stop();
        return;
    }
    CHECK(!transport->recv(b, big, BIG, 1, 1));
    transport->batch_close(b); /* on its way, or not yet */
    b = transport->batch_open(4);
    CHECK(!transport->recv(b, text, 8, 1, 2));
    finish_batch(b);
    CHECK(!strcmp(text, "goodbye"));
    transport->batch_close(b);
    transport->stop();
}

static void run_transport(rank_fn fn)
{
    struct group g = tcp_group(2);

    for (int r = 0; r < g.world; r++)
        start_rank(&g, r, false, fn);
    assert_ranks_end_well(&g);
}

static void test_messages_of_a_tag_keep_their_order_unexpected_or_not(void **state)
{
    (void)state;
    run_transport(messages_keep_their_order);
}

static void test_unexpected_messages_are_bounded(void **state)
{
    (void)state;
    run_transport(unexpected_messages_are_bounded);
}

static void test_a_batch_can_be_cancelled(void **state)
{
    (void)state;
    run_transport(batches_can_be_cancelled);
}

#define HUGE_BYTES ((size_t)1 << 30)

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* malloc of this program: no memory for HUGE_BYTES and more. RLIMIT_AS is not enforced by every
 * kernel. */
void *__libc_malloc(size_t n);

__attribute__((visibility("default"))) void *malloc(size_t n)
{
    if (n < HUGE_BYTES)
        return __libc_malloc(n);
    errno = ENOMEM;
    return NULL;
}
#endif

/* A message that nobody asked for, and for which there is no memory: whoever waits is told. */
static void no_memory_is_told_to_who_waits(struct zt_comm *none)
{
    struct zt_transport_batch *b;
    bool done = false, got;
    char text[256];
    void *huge;
    int error;

    (void)none;
    join_transport();
    b = transport->batch_open(1);
    if (my_rank == 1) {
        huge = mmap(NULL, HUGE_BYTES, PROT_READ,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(huge != MAP_FAILED && !transport->send(b, huge, HUGE_BYTES, 0, 1));
        while (atomic_load(&shared->flag) < 1 && !transport->poll(b, &done))
            ;
        return;
    }
    CHECK(!transport->recv(b, text, 1, 1, 2));
    while (!(error = transport->poll(b, &done)))
        CHECK(!done);
    CHECK(transport->error_code(error) == ZT_E_NOMEM &&
          transport->error_rank(error) == -1);
    transport->error_text(error, text, sizeof(text));
    CHECK(strstr(text, "rank 1 on ") && strstr(text, "this rank has no memory"));
    CHECK(transport->try_recv(text, 1, -1, &got) == error && !got); /* no wait for ever */
    atomic_store(&shared->flag, 1);
    transport->batch_close(b);
}

static void test_no_memory_is_told_to_who_waits(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* they have a malloc of their own */
#endif
    run_tcp(2, no_memory_is_told_to_who_waits);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_of_a_tag_keep_their_order_unexpected_or_not),
        cmocka_unit_test(test_unexpected_messages_are_bounded),
        cmocka_unit_test(test_a_batch_can_be_cancelled),
        cmocka_unit_test(test_no_memory_is_told_to_who_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
