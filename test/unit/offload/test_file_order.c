/* The tier of files while pieces move: which job comes first, and what does not wait for it. */
#include "test/unit/offload/file_tier_rig.h"

static atomic_bool held; /* no request ends */

static int hold(void *queue, int least, int most, struct zt_aio_result *results)
{
    while (held)
        usleep(100);
    return real->reap(queue, least, most, results);
}

static const struct zt_aio_engine slow = {.name = "slow",
                                          .open = open_real,
                                          .close = close_real,
                                          .submit = submit_real,
                                          .reap = hold};

static void test_a_piece_is_lent_while_it_is_written(void **state)
{
    struct zt_aio_options o = simple;
    void *store, *data = NULL, *again = NULL;

    (void)state;
    o.engine = &slow;
    setting(true, true, 1, o);
    store = open_store();
    assert_int_equal(zt_file_tier.acquire(store, 0, PIECE, ZT_WRITE, &data, &fault),
                     ZT_OK);
    memset(data, 7, PIECE);
    held = true; /* waiting for it would take forever */
    assert_int_equal(zt_file_tier.commit(store, data, 0, PIECE, true, &fault), ZT_OK);
    assert_int_equal(zt_file_tier.acquire(store, 0, PIECE, ZT_READ, &again, &fault),
                     ZT_OK);
    assert_ptr_equal(again, data);
    assert_int_equal(((char *)again)[PIECE - 1], 7);
    assert_int_equal(zt_file_tier.commit(store, again, 0, PIECE, false, &fault), ZT_OK);
    held = false;
    close_store(store);
}

/* By so many threads, which end with their parts of a job at times of their own. */
static void read_behind_writes(int threads, char value)
{
    struct zt_aio_options o = simple;
    bool begun = false;
    void *store;

    o.engine = &slow;
    o.threads = threads;
    setting(true, true, 1, o);
    cfg.in_order = true;
    store = open_store();
    held = true; /* waiting for a write would take forever */
    for (size_t i = 0; i < 3; i++)
        write_piece(store, i, value);
    assert_int_equal(zt_file_tier.prefetch(store, 3 * PIECE, PIECE, &begun, &fault),
                     ZT_OK);
    assert_true(begun);
    held = false;
    read_piece(store, 3, 0);
    for (size_t i = 0; i < 3; i++)
        read_piece(store, i, value);
    close_store(store);
}

static void test_a_read_begins_behind_the_write_of_its_buffer(void **state)
{
    (void)state;
    for (char value = 1; value < 20; value++) {
        read_behind_writes(1, value);
        read_behind_writes(3, value);
    }
}

/*
 * What is waited for meets a read, which meets a write that it does not meet itself: the write
 * comes first. The thread is at something else while they are started.
 */
static void test_what_a_job_waits_for_has_waited_for_its_own(void **state)
{
    struct zt_aio_job jobs[4];
    struct zt_aio_files files;
    struct zt_aio_options o = simple;
    char *memory = zt_aio_memory_map(3 * PIECE);

    (void)state;
    assert_non_null(memory);
    o.engine = &slow;
    setting(true, true, 1, o);
    assert_int_equal(zt_aio_files_open(swap.aio, dir_list, 4 * PIECE, &files, &fault),
                     ZT_OK);
    memset(memory, 5, PIECE);
    held = true;
    zt_aio_start(swap.aio, &jobs[0], &files, false, memory + 2 * PIECE, 3 * PIECE, PIECE,
                 NULL);
    zt_aio_start(swap.aio, &jobs[1], &files, true, memory, 0, PIECE, NULL);
    zt_aio_start(swap.aio, &jobs[2], &files, false, memory + PIECE, 0, PIECE, NULL);
    zt_aio_start(swap.aio, &jobs[3], &files, true, memory + PIECE, PIECE, PIECE, NULL);
    held = false;
    for (int i = 3; i >= 0; i--)
        assert_int_equal(zt_aio_wait(swap.aio, &jobs[i], &fault), ZT_OK);
    zt_aio_start(swap.aio, &jobs[0], &files, false, memory + 2 * PIECE, PIECE, PIECE,
                 NULL);
    assert_int_equal(zt_aio_wait(swap.aio, &jobs[0], &fault), ZT_OK);
    assert_int_equal(memory[PIECE], 5);
    assert_int_equal(memory[3 * PIECE - 1], 5);
    zt_aio_files_close(&files);
    zt_aio_close(swap.aio);
    zt_aio_memory_unmap(memory, 3 * PIECE);
}

#define MANY 300

static void test_any_number_of_pieces_is_on_the_move(void **state)
{
    struct zt_aio_options o = simple;
    bool begun = true;
    void *store;

    (void)state;
    o.engine = &slow;
    o.threads = 2;
    setting(true, true, 1, o);
    cfg.bytes = MANY * ZT_TIER_ALIGN;
    cfg.piece_bytes = ZT_TIER_ALIGN;
    cfg.buffer_bytes = MANY * ZT_TIER_ALIGN;
    store = open_store();
    held = true;
    for (size_t i = 0; i < MANY && begun; i++)
        assert_int_equal(zt_file_tier.prefetch(store, i * ZT_TIER_ALIGN, ZT_TIER_ALIGN,
                                               &begun, &fault),
                         ZT_OK);
    assert_true(begun);
    held = false;
    for (size_t i = 0; i < MANY; i++) {
        void *data = NULL;

        assert_int_equal(zt_file_tier.acquire(store, i * ZT_TIER_ALIGN, ZT_TIER_ALIGN,
                                              ZT_READ, &data, &fault),
                         ZT_OK);
        assert_int_equal(((char *)data)[0], 0);
        assert_int_equal(zt_file_tier.commit(store, data, i * ZT_TIER_ALIGN,
                                             ZT_TIER_ALIGN, false, &fault),
                         ZT_OK);
    }
    close_store(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_piece_is_lent_while_it_is_written),
        cmocka_unit_test(test_a_read_begins_behind_the_write_of_its_buffer),
        cmocka_unit_test(test_what_a_job_waits_for_has_waited_for_its_own),
        cmocka_unit_test(test_any_number_of_pieces_is_on_the_move),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
