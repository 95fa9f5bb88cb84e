/* The tier of files: bytes through every setting, and which of them move. */
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "test/unit/offload/file_tier_rig.h"

/* System calls that this kernel, so to say, does not have; 0: none. */
static _Atomic long refused[2];

long syscall(long number, ...)
{
    static _Atomic(void *) found;
    long (*next)(long, ...);
    void *function = found;
    long a[6];
    va_list ap;

    va_start(ap, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if (!function)
        found = function = dlsym(RTLD_NEXT, "syscall");
    *(void **)&next = function;
    if (number == refused[0] || number == refused[1]) {
        errno = EPERM;
        return -1;
    }
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void every_setting(void)
{
    for (unsigned bits = 0; bits < 256; bits++) {
        struct zt_aio_options o = {.block_size = bits & 1 ? 4096 : 32768,
                                   .queue_depth = bits & 2 ? 1 : 5,
                                   .threads = bits & 4 ? 3 : 1,
                                   .engine = simple.engine,
                                   .single_submit = bits & 1,
                                   .overlap_events = bits & 8};
        void *store;

        setting(bits & 2, bits & 16, bits & 32 ? 2 : 1, o);
        assert_string_equal(zt_aio_engine_name(swap.aio), simple.engine->name);
        cfg.in_order = bits & 64;
        cfg.num_pieces = bits & 128 ? PIECES : 0;      /* known: writes are put off */
        cfg.buffer_bytes = (bits / 4 % 3 + 1) * PIECE; /* 1 to 9 buffers */
        store = open_store();
        assert_int_equal(turn(store, 0, 1), ZT_OK);
        assert_int_equal(turn(store, 1, 20), ZT_OK);
        assert_int_equal(turn(store, 20, 40), ZT_OK);
        close_store(store);
    }
    cfg.num_pieces = 0;
}

static void test_every_setting_of_every_engine_keeps_the_bytes(void **state)
{
    (void)state;
    with_each_engine(&simple.engine, every_setting);
    simple.engine = NULL;
}

/* The kernel refuses these: who moves bytes then, wanted `first`. */
static void without(long one, long other, const struct zt_aio_engine *first,
                    const char *who)
{
    void *store;

    refused[0] = one;
    refused[1] = other;
    simple.engine = first;
    setting(true, true, 2, simple);
    assert_string_equal(zt_aio_engine_name(swap.aio), who);
    store = open_store();
    assert_int_equal(turn(store, 0, 1), ZT_OK);
    assert_int_equal(turn(store, 1, 2), ZT_OK);
    close_store(store);
    refused[0] = refused[1] = 0;
    simple.engine = NULL;
}

static void test_where_the_kernel_refuses_a_queue_another_engine_moves_the_bytes(
    void **state)
{
    void *queue;

    (void)state;
    without(SYS_io_uring_setup, SYS_io_setup, NULL, "psync");
    without(SYS_io_uring_setup, SYS_io_setup, &zt_aio_libaio, "psync");
    without(0, 0, &zt_aio_psync, "psync");
    if (zt_aio_libaio.open(1, &queue) != 0)
        return; /* this kernel has none */
    zt_aio_libaio.close(queue);
    without(SYS_io_uring_setup, 0, NULL, "libaio");
    without(SYS_io_uring_setup, 0, &zt_aio_io_uring, "libaio");
}

static void test_engines_are_found_by_their_names(void **state)
{
    (void)state;
    for (int i = 0; zt_aio_engines[i]; i++)
        assert_ptr_equal(zt_aio_engine_find(zt_aio_engines[i]->name), zt_aio_engines[i]);
    assert_null(zt_aio_engine_find("auto"));
    assert_null(zt_aio_engine_find(NULL));
}

/* A piece of another length than those that were written, as a checkpoint reads. */
static void test_pieces_of_any_length_see_what_was_written_before(void **state)
{
    void *store, *data = NULL;

    (void)state;
    setting(true, true, 1, simple);
    store = open_store();
    assert_int_equal(turn(store, 0, 1), ZT_OK);
    assert_int_equal(
        zt_file_tier.acquire(store, PIECE - 4096, 8192, ZT_READ, &data, &fault), ZT_OK);
    assert_int_equal(((char *)data)[0], 1);
    assert_int_equal(((char *)data)[4096], 2);
    assert_int_equal(zt_file_tier.commit(store, data, PIECE - 4096, 8192, false, &fault),
                     ZT_OK);
    close_store(store);
}

/* Pieces that each of some turns of the optimizer reads with so many buffers, as planned; a
 * turn begins to read before the gradients are complete. */
static void count_reads(bool in_order, size_t buffers, size_t turns, double *pieces)
{
    struct zt_swap_traffic traffic = {0};
    void *store;

    setting(true, true, 1, simple);
    swap.planned = &traffic;
    swap.buffers = 1;
    cfg.planning = true;
    cfg.in_order = in_order;
    cfg.buffer_bytes = buffers * PIECE / 3 + 1; /* of three */
    store = open_store();
    for (size_t t = 0; t < turns; t++) {
        traffic.read = 0;
        assert_int_equal(prefetch_from(store, 0), ZT_OK);
        for (size_t i = 0; i < PIECES; i++) {
            void *data = NULL;

            assert_int_equal(prefetch_from(store, i + 1), ZT_OK);
            assert_int_equal(zt_file_tier.acquire(store, i * PIECE, PIECE, ZT_READ_WRITE,
                                                  &data, &fault),
                             ZT_OK);
            assert_int_equal(
                zt_file_tier.commit(store, data, i * PIECE, PIECE, true, &fault), ZT_OK);
        }
        pieces[t] = traffic.read / PIECE;
    }
    cfg.planning = false;
    close_store(store);
}

static void test_what_buffers_hold_from_one_turn_to_the_next_is_not_read(void **state)
{
    double none[3], some[3], all[3];

    (void)state;
    count_reads(true, PIECES, 3, none);
    assert_true(none[0] == PIECES && none[1] == 0 && none[2] == 0);
    count_reads(true, PIECES - 2, 3, some);
    assert_true(some[1] <= PIECES - 2 && some[2] <= PIECES - 2);
    count_reads(true, 3, 3, all);
    assert_true(all[1] == PIECES && all[2] == PIECES); /* and none of them twice */
}

static void test_long_buffers_are_cut_into_pieces(void **state)
{
    size_t bytes[ZT_NUM_PLACES] = {0};
    void *store;

    (void)state;
    setting(true, true, 1, simple);
    cfg.buffer_bytes = 2 * PIECE + PIECE / 2;
    store = open_store();
    zt_file_tier.measure(store, bytes);
    assert_int_equal(zt_file_tier.piece_bytes(store), PIECE);
    assert_int_equal(bytes[ZT_PLACE_HOST], 7 * PIECE + PIECES * 3 * 8);
    close_store(store);
    for (int pieces = 1; pieces < 6;
         pieces++) { /* no more than those, but three that the pipeline needs */
        setting(true, true, 1, simple);
        cfg.buffer_bytes = 2 * PIECE + PIECE / 2;
        cfg.num_pieces = pieces;
        store = open_store();
        memset(bytes, 0, sizeof(bytes));
        zt_file_tier.measure(store, bytes);
        assert_int_equal(bytes[ZT_PLACE_HOST],
                         (size_t)(pieces > 3 ? pieces : 3) * PIECE + PIECES * 3 * 8);
        close_store(store);
    }
    cfg.num_pieces = 0;
}

/* Gradients are written from behind, and from the first one on of a long block. */
static void test_what_is_written_in_another_order_is_held_for_the_one_it_is_read_in(
    void **state)
{
    static const size_t order[] = {6, 5, 4, 3, 0, 1, 2};
    struct zt_swap_traffic traffic = {0};
    void *store;

    (void)state;
    setting(true, true, 1, simple);
    swap.planned = &traffic;
    cfg.planning = true;
    cfg.in_order = true;
    cfg.buffer_bytes = 5 * PIECE / 3 + 1;
    store = open_store();
    for (int t = 0; t < 3; t++) {
        traffic.read = 0;
        for (size_t i = 0; i < PIECES; i++) {
            void *data = NULL;
            size_t at = order[i] * PIECE;

            assert_int_equal(
                zt_file_tier.acquire(store, at, PIECE, ZT_WRITE, &data, &fault), ZT_OK);
            assert_int_equal(zt_file_tier.commit(store, data, at, PIECE, true, &fault),
                             ZT_OK);
        }
        for (size_t i = 0; i < PIECES; i++) {
            void *data = NULL;

            assert_int_equal(
                zt_file_tier.acquire(store, i * PIECE, PIECE, ZT_READ, &data, &fault),
                ZT_OK);
            assert_int_equal(
                zt_file_tier.commit(store, data, i * PIECE, PIECE, false, &fault), ZT_OK);
        }
        assert_true(t == 0 || traffic.read == 2 * PIECE);
    }
    cfg.planning = false;
    close_store(store);
}

/* ---- writes that are put off ---- */

/* A store that is planned, with so many buffers, which knows how many pieces it has. */
static void *open_planned(struct zt_swap_traffic *traffic, size_t buffers)
{
    setting(true, true, 1, simple);
    swap.planned = traffic;
    cfg.planning = true;
    cfg.in_order = true;
    cfg.num_pieces = PIECES;
    cfg.buffer_bytes = buffers * PIECE / 3 + 1; /* of three */
    return open_store();
}

static void close_planned(void *store)
{
    cfg.planning = false;
    cfg.num_pieces = 0;
    close_store(store);
}

static void use_piece(void *store, size_t i, zt_access access)
{
    void *data = NULL;

    assert_int_equal(zt_file_tier.acquire(store, i * PIECE, PIECE, access, &data, &fault),
                     ZT_OK);
    assert_int_equal(
        zt_file_tier.commit(store, data, i * PIECE, PIECE, access & ZT_WRITE, &fault),
        ZT_OK);
}

static void test_a_piece_is_written_when_another_takes_its_buffer(void **state)
{
    (void)state;
    for (size_t buffers = 3; buffers <= PIECES; buffers++) {
        struct zt_swap_traffic traffic = {0};
        void *store = open_planned(&traffic, buffers);
        size_t missing = PIECES - buffers;

        for (int t = 0; t < 4; t++) {
            traffic = (struct zt_swap_traffic){0};
            for (size_t i = 0; i < PIECES; i++) {
                assert_int_equal(prefetch_from(store, i), ZT_OK);
                use_piece(store, i, ZT_READ_WRITE);
            }
            assert_true(traffic.written <= (double)(PIECES * PIECE));
            assert_true(missing || traffic.written == 0);
            assert_true(missing > 2 || traffic.written <= (double)(2 * missing * PIECE));
            assert_true(t == 0 || traffic.read == traffic.written);
        }
        close_planned(store);
    }
}

/* As gradients are: written from behind, read from the first on, and then of no use. */
static void test_what_was_read_for_the_last_time_is_not_written(void **state)
{
    (void)state;
    for (size_t buffers = 5; buffers <= PIECES; buffers++) {
        struct zt_swap_traffic traffic = {0};
        void *store = open_planned(&traffic, buffers);
        size_t missing = PIECES - buffers, ahead = missing > 0;

        for (int t = 0; t < 4; t++) {
            traffic = (struct zt_swap_traffic){0};
            for (size_t i = PIECES; i-- > 0;)
                use_piece(store, i, ZT_WRITE);
            for (size_t i = 0; i < PIECES; i++) {
                assert_int_equal(prefetch_from(store, i), ZT_OK);
                use_piece(store, i, ZT_READ_LAST);
            }
            assert_true(t == 0 || traffic.read == (double)(missing * PIECE));
            assert_true(t == 0 || traffic.written <= (double)((missing + ahead) * PIECE));
        }
        close_planned(store);
    }
}

static void test_what_waits_to_be_written_is_seen_by_pieces_of_any_length(void **state)
{
    void *store, *data = NULL;
    bool begun = true;

    (void)state;
    setting(true, true, 1, simple);
    cfg.in_order = true;
    cfg.num_pieces = PIECES;
    cfg.buffer_bytes = 5 * PIECE / 3 + 1;
    store = open_store();
    for (size_t i = 0; i < 3; i++)
        write_piece(store, i, (char)(i + 1));
    assert_int_equal(zt_file_tier.prefetch(store, PIECE - 4096, 8192, &begun, &fault),
                     ZT_OK);
    assert_false(begun);
    assert_int_equal(
        zt_file_tier.acquire(store, PIECE - 4096, 8192, ZT_READ, &data, &fault), ZT_OK);
    assert_true(((char *)data)[0] == 1 && ((char *)data)[4096] == 2);
    assert_int_equal(zt_file_tier.commit(store, data, PIECE - 4096, 8192, false, &fault),
                     ZT_OK);
    /* changed through another piece */
    assert_int_equal(
        zt_file_tier.acquire(store, 2 * PIECE - 4096, 8192, ZT_WRITE, &data, &fault),
        ZT_OK);
    memset(data, 9, 8192);
    assert_int_equal(
        zt_file_tier.commit(store, data, 2 * PIECE - 4096, 8192, true, &fault), ZT_OK);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(
            zt_file_tier.acquire(store, i * PIECE, PIECE, ZT_READ, &data, &fault), ZT_OK);
        assert_int_equal(((char *)data)[0], i == 2 ? 9 : i + 1);
        assert_int_equal(((char *)data)[PIECE - 1], i == 1 ? 9 : i + 1);
        assert_int_equal(((char *)data)[4096], i + 1);
        assert_int_equal(
            zt_file_tier.commit(store, data, i * PIECE, PIECE, false, &fault), ZT_OK);
    }
    cfg.num_pieces = 0;
    close_store(store);
}

static void test_what_a_store_takes_is_counted_by_place(void **state)
{
    size_t bytes[ZT_NUM_PLACES] = {0};
    void *store;

    (void)state;
    setting(true, true, 1, simple);
    store = open_store();
    zt_file_tier.measure(store, bytes);
    assert_int_equal(bytes[ZT_PLACE_FILE], PIECES * PIECE);
    assert_int_equal(bytes[ZT_PLACE_HOST], 3 * PIECE + PIECES * 3 * 8); /* checksums */
    assert_int_equal(bytes[ZT_PLACE_DEVICE] + bytes[ZT_PLACE_PINNED], 0);
    close_store(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_setting_of_every_engine_keeps_the_bytes),
        cmocka_unit_test(
            test_where_the_kernel_refuses_a_queue_another_engine_moves_the_bytes),
        cmocka_unit_test(test_engines_are_found_by_their_names),
        cmocka_unit_test(test_pieces_of_any_length_see_what_was_written_before),
        cmocka_unit_test(test_what_buffers_hold_from_one_turn_to_the_next_is_not_read),
        cmocka_unit_test(test_long_buffers_are_cut_into_pieces),
        cmocka_unit_test(
            test_what_is_written_in_another_order_is_held_for_the_one_it_is_read_in),
        cmocka_unit_test(test_a_piece_is_written_when_another_takes_its_buffer),
        cmocka_unit_test(test_what_was_read_for_the_last_time_is_not_written),
        cmocka_unit_test(test_what_waits_to_be_written_is_seen_by_pieces_of_any_length),
        cmocka_unit_test(test_what_a_store_takes_is_counted_by_place),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
