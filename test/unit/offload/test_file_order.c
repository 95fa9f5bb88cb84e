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
    assert_int_equal(
        zt_aio_files_open(swap.aio, dir_list, 4 * PIECE, "state", NULL, &files, &fault),
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

/* ---- requests of several jobs in one queue ---- */

static atomic_int num_submitted, may_end; /* requests */
static atomic_bool wrote[16];             /* which of the submitted ones are writes */

static int count(void *queue, const struct zt_aio_request *const *requests, int num)
{
    int n = real->submit(queue, requests, num);

    for (int i = 0; i < n; i++) {
        wrote[num_submitted % 16] = requests[i]->write;
        num_submitted++;
    }
    return n;
}

static int end_some(void *queue, int least, int most, struct zt_aio_result *results)
{
    while (!may_end)
        usleep(100);
    may_end--;
    return real->reap(queue, least, most > 1 ? 1 : most, results);
}

static const struct zt_aio_engine counted = {.name = "counted",
                                             .open = open_real,
                                             .close = close_real,
                                             .submit = count,
                                             .reap = end_some};

static void submitted_are(int n)
{
    for (int i = 0; i < 10000 && num_submitted < n; i++)
        usleep(1000);
    assert_int_equal(num_submitted, n);
}

/* Jobs of three requests each, and what they move. */
struct moves {
    struct zt_aio_job jobs[3];
    struct zt_aio_files files;
    char *memory;
};

static void open_moves(struct moves *m, int depth)
{
    struct zt_aio_options o = simple;

    num_submitted = may_end = 0;
    o.engine = &counted;
    o.queue_depth = depth;
    setting(true, true, 1, o);
    m->memory = zt_aio_memory_map(3 * PIECE);
    assert_non_null(m->memory);
    assert_int_equal(zt_aio_files_open(swap.aio, dir_list, 3 * PIECE, "state", NULL,
                                       &m->files, &fault),
                     ZT_OK);
}

static void begin(struct moves *m, size_t i, bool write)
{
    zt_aio_start(swap.aio, &m->jobs[i], &m->files, write, m->memory + i * PIECE,
                 i * PIECE, PIECE, NULL);
}

static void close_moves(struct moves *m, size_t num)
{
    may_end = 1000;
    for (size_t i = 0; i < num; i++)
        assert_int_equal(zt_aio_wait(swap.aio, &m->jobs[i], &fault), ZT_OK);
    zt_aio_files_close(&m->files);
    zt_aio_close(swap.aio);
    zt_aio_memory_unmap(m->memory, 3 * PIECE);
}

static void test_the_queue_is_filled_from_the_jobs_behind(void **state)
{
    struct moves m;

    (void)state;
    open_moves(&m, 8);
    begin(&m, 0, false);
    submitted_are(3); /* of one job, and nothing ends */
    begin(&m, 1, false);
    begin(&m, 2, false);
    may_end = 2;
    submitted_are(9);
    close_moves(&m, 3);
}

static void test_what_is_begun_is_left_for_what_comes_first(void **state)
{
    struct moves m;

    (void)state;
    open_moves(&m, 1);
    begin(&m, 0, true);
    submitted_are(1);
    begin(&m, 1, false);
    may_end = 1000;
    submitted_are(6);
    for (int i = 0; i < 6; i++) /* the first write, the reads, and the other writes */
        assert_int_equal(wrote[i], i == 0 || i > 3);
    close_moves(&m, 2);
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

/* ---- which pieces are read again ---- */

#define CYCLE   18
#define BUFFERS 15

/* Every piece in turn is updated while those behind it are read ahead. */
static void update_all(void *store)
{
    for (size_t i = 0; i < CYCLE; i++) {
        void *data = NULL;
        bool begun = true;

        for (size_t k = i; k < CYCLE && begun; k++)
            assert_int_equal(zt_file_tier.prefetch(store, k * ZT_TIER_ALIGN,
                                                   ZT_TIER_ALIGN, &begun, &fault),
                             ZT_OK);
        assert_int_equal(zt_file_tier.acquire(store, i * ZT_TIER_ALIGN, ZT_TIER_ALIGN,
                                              ZT_READ_WRITE, &data, &fault),
                         ZT_OK);
        assert_int_equal(zt_file_tier.commit(store, data, i * ZT_TIER_ALIGN,
                                             ZT_TIER_ALIGN, true, &fault),
                         ZT_OK);
    }
}

/* No more than what buffers have no room for, and what is put out for it while it is read ahead. */
static void test_pieces_that_buffers_have_room_for_are_not_read_again(void **state)
{
    struct zt_swap_traffic planned = {.reads = 0};
    void *store;

    (void)state;
    setting(true, true, 1, simple);
    swap.planned = &planned;
    cfg.planning = cfg.in_order = true;
    cfg.bytes = CYCLE * ZT_TIER_ALIGN;
    cfg.piece_bytes = ZT_TIER_ALIGN;
    cfg.buffer_bytes = BUFFERS / 3 * ZT_TIER_ALIGN; /* of each of three */
    store = open_store();
    for (int i = 0; i < 4; i++)
        update_all(store);
    planned.reads = 0;
    for (int i = 0; i < 4; i++)
        update_all(store);
    assert_true(planned.reads <= 4.0 * (2 * (CYCLE - BUFFERS) + 1));
    close_store(store);
    cfg.planning = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_piece_is_lent_while_it_is_written),
        cmocka_unit_test(test_a_read_begins_behind_the_write_of_its_buffer),
        cmocka_unit_test(test_what_a_job_waits_for_has_waited_for_its_own),
        cmocka_unit_test(test_the_queue_is_filled_from_the_jobs_behind),
        cmocka_unit_test(test_what_is_begun_is_left_for_what_comes_first),
        cmocka_unit_test(test_any_number_of_pieces_is_on_the_move),
        cmocka_unit_test(test_pieces_that_buffers_have_room_for_are_not_read_again),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
