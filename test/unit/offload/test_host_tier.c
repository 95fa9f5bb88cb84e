/* The tier that moves pieces: what acquire, prefetch and commit do to the bytes. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "worker/offload/tier.h"

#define PIECE  ZT_TIER_ALIGN
#define PIECES 5

static struct zt_fault fault;
static struct zt_tier_config cfg;

static zt_err take(void *ctx, size_t bytes, void **out, struct zt_fault *f)
{
    (void)ctx;
    return cfg.backend->alloc(cfg.device, bytes, out, f);
}

static void give(void *ctx, void *p, size_t bytes)
{
    (void)ctx;
    cfg.backend->free(cfg.device, p, bytes);
}

static int open_cpu(void **state)
{
    (void)state;
    if (zt_backend_find("cpu", &cfg.backend, &fault) ||
        cfg.backend->open(0, 1, &cfg.device, &fault))
        return -1;
    cfg.bytes = PIECES * PIECE;
    cfg.piece_bytes = PIECE;
    cfg.memory = (struct zt_tier_memory){.alloc = take, .free = give};
    return 0;
}

static int close_cpu(void **state)
{
    (void)state;
    cfg.backend->close(cfg.device);
    return 0;
}

static void *open_store(void)
{
    void *store = NULL;

    assert_int_equal(zt_host_tier.open(&cfg, &store, &fault), ZT_OK);
    return store;
}

static char *acquire(void *store, size_t piece, zt_access access)
{
    void *data = NULL;

    assert_int_equal(
        zt_host_tier.acquire(store, piece * PIECE, PIECE, access, &data, &fault), ZT_OK);
    return data;
}

static void commit(void *store, size_t piece, char *data, bool written)
{
    assert_int_equal(
        zt_host_tier.commit(store, data, piece * PIECE, PIECE, written, &fault), ZT_OK);
}

static void write_piece(void *store, size_t piece, char value)
{
    char *data = acquire(store, piece, ZT_WRITE);

    memset(data, value, PIECE);
    commit(store, piece, data, true);
}

static void assert_piece(void *store, size_t piece, char value)
{
    char *data = acquire(store, piece, ZT_READ);

    for (size_t i = 0; i < PIECE; i++)
        assert_int_equal(data[i], value);
    commit(store, piece, data, false);
}

static void test_a_store_begins_as_zero_and_keeps_what_is_written(void **state)
{
    void *store = open_store();

    (void)state;
    for (size_t i = 0; i < PIECES; i++)
        assert_piece(store, i, 0);
    for (size_t i = 0; i < PIECES; i++)
        write_piece(store, i, (char)(i + 1));
    for (size_t i = PIECES; i-- > 0;)
        assert_piece(store, i, (char)(i + 1));
    zt_host_tier.close(store);
}

static void test_what_is_not_written_stays_as_it_was(void **state)
{
    void *store = open_store();
    char *data;

    (void)state;
    write_piece(store, 2, 3);
    data = acquire(store, 2, ZT_READ_WRITE);
    assert_int_equal(data[PIECE - 1], 3);
    memset(data, 9, PIECE);
    commit(store, 2, data, false);
    assert_piece(store, 2, 3);
    zt_host_tier.close(store);
}

static void test_a_piece_may_be_fetched_while_another_is_at_work(void **state)
{
    void *store = open_store();
    char *first, *second;
    bool begun;

    (void)state;
    write_piece(store, 0, 1);
    write_piece(store, 1, 2);
    first = acquire(store, 0, ZT_READ_WRITE);
    assert_int_equal(zt_host_tier.prefetch(store, PIECE, PIECE, &begun, &fault), ZT_OK);
    assert_true(begun);
    memset(first, 5, PIECE);
    commit(store, 0, first, true);
    second = acquire(store, 1, ZT_READ);
    assert_ptr_not_equal(first, second); /* it is in the other buffer already */
    assert_int_equal(second[0], 2);
    commit(store, 1, second, false);
    assert_piece(store, 0, 5);
    zt_host_tier.close(store);
}

static void test_a_piece_that_was_written_since_is_fetched_again(void **state)
{
    void *store = open_store();
    bool begun;

    (void)state;
    write_piece(store, 3, 1);
    assert_int_equal(zt_host_tier.prefetch(store, 2 * PIECE, PIECE, &begun, &fault),
                     ZT_OK);
    assert_int_equal(zt_host_tier.prefetch(store, 3 * PIECE, PIECE, &begun, &fault),
                     ZT_OK);
    write_piece(store, 3, 4);
    assert_piece(store, 3, 4);
    assert_piece(store, 2, 0);
    zt_host_tier.close(store);
}

static void test_more_pieces_than_buffers_are_refused(void **state)
{
    void *store = open_store(), *third = NULL;
    char *first = acquire(store, 0, ZT_READ), *second = acquire(store, 1, ZT_READ);
    bool begun;

    (void)state;
    assert_int_equal(zt_host_tier.prefetch(store, 3 * PIECE, PIECE, &begun, &fault),
                     ZT_OK);
    assert_false(begun);
    assert_int_equal(
        zt_host_tier.acquire(store, 2 * PIECE, PIECE, ZT_READ, &third, &fault),
        ZT_E_LIMIT);
    commit(store, 0, first, false);
    commit(store, 1, second, false);
    zt_host_tier.close(store);
}

static void test_bytes_are_counted_by_place(void **state)
{
    size_t bytes[ZT_NUM_PLACES] = {0};
    void *store = open_store();

    (void)state;
    zt_host_tier.measure(store, bytes);
    assert_int_equal(bytes[ZT_PLACE_HOST], PIECES * PIECE);
    assert_int_equal(bytes[ZT_PLACE_DEVICE], 2 * PIECE);
    assert_int_equal(bytes[ZT_PLACE_PINNED] + bytes[ZT_PLACE_FILE], 0);
    zt_host_tier.close(store);
}

/* The piece is lent for writing: nobody else may have it. */
static void test_a_piece_is_not_lent_twice_for_writing(void **state)
{
    int status;
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        void *store = open_store(), *data;

        if (!freopen("/dev/null", "w", stderr))
            _exit(1);
        signal(SIGABRT, SIG_DFL);
        acquire(store, 0, ZT_WRITE);
        _exit(zt_host_tier.acquire(store, 0, PIECE, ZT_READ, &data, &fault) ? 2 : 3);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* AddressSanitizer sees who keeps the address of a piece beyond its commit. */
static void test_a_buffer_is_out_of_bounds_after_its_commit(void **state)
{
#if defined(__SANITIZE_ADDRESS__)
    int status;
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        void *store = open_store();
        volatile char *data = acquire(store, 0, ZT_READ);

        if (!freopen("/dev/null", "w", stderr))
            _exit(1);
        commit(store, 0, (char *)data, false);
        _exit(data[5] ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_false(WIFEXITED(status) &&
                 (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2));
#else
    (void)state;
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_store_begins_as_zero_and_keeps_what_is_written),
        cmocka_unit_test(test_what_is_not_written_stays_as_it_was),
        cmocka_unit_test(test_a_piece_may_be_fetched_while_another_is_at_work),
        cmocka_unit_test(test_a_piece_that_was_written_since_is_fetched_again),
        cmocka_unit_test(test_more_pieces_than_buffers_are_refused),
        cmocka_unit_test(test_bytes_are_counted_by_place),
        cmocka_unit_test(test_a_piece_is_not_lent_twice_for_writing),
        cmocka_unit_test(test_a_buffer_is_out_of_bounds_after_its_commit),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
