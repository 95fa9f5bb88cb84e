/* Runs of pieces that the tier of files lends at once, among pieces that come and go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "test/unit/offload/file_tier_rig.h"

#define LAST (PIECE - ZT_TIER_ALIGN) /* the last piece of a run may be shorter */

static void open_cfg(size_t buffers, bool in_order, bool known, bool pipeline)
{
    setting(true, pipeline, 1, simple);
    cfg.in_order = in_order;
    cfg.num_pieces = known ? PIECES : 0;
    swap.buffers = 1;
    cfg.buffer_bytes = buffers * PIECE / (pipeline ? 3 : 1) + pipeline; /* of three */
}

static void close_cfg(void *store)
{
    cfg.num_pieces = 0;
    close_store(store);
}

static void *acquire(void *store, size_t first, size_t bytes, zt_access access)
{
    void *data = NULL;

    assert_int_equal(
        zt_file_tier.acquire(store, first * PIECE, bytes, access, &data, &fault), ZT_OK);
    return data;
}

static void commit(void *store, void *data, size_t first, size_t bytes, bool written)
{
    assert_int_equal(
        zt_file_tier.commit(store, data, first * PIECE, bytes, written, &fault), ZT_OK);
}

/* ---- what is lent ---- */

static void test_no_run_is_lent_without_room_for_a_piece_besides(void **state)
{
    void *store, *run;

    (void)state;
    open_cfg(6, true, true, true);
    store = open_store();
    assert_true(zt_file_tier.lends(store, PIECE) && zt_file_tier.lends(store, 5 * PIECE));
    assert_false(zt_file_tier.lends(store, 6 * PIECE));
    run = acquire(store, 0, PIECE + LAST, ZT_WRITE);
    assert_true(zt_file_tier.lends(store, PIECE));
    assert_false(zt_file_tier.lends(store, 3 * PIECE)); /* it may lie in the middle */
    commit(store, run, 0, PIECE + LAST, false);
    assert_true(zt_file_tier.lends(store, 5 * PIECE));
    close_cfg(store);
    setting(false, true, 1, simple); /* kernels do not reach buffers */
    store = open_store();
    assert_false(zt_file_tier.lends(store, PIECE));
    close_store(store);
}

/* Wherever the buffers are that are lent. */
static void test_what_it_lends_it_has_room_for(void **state)
{
    (void)state;
    for (size_t hole = 0; hole < PIECES; hole++) {
        void *store, *one[PIECES], *run;

        open_cfg(PIECES, true, true, true);
        store = open_store();
        for (size_t i = 0; i < PIECES - 1; i++)
            one[i] = acquire(store, i, PIECE, ZT_READ);
        for (size_t i = 0; i < PIECES - 1; i++)
            if (i != hole)
                commit(store, one[i], i, PIECE, false);
        if (hole == PIECES - 1) {
            close_cfg(store);
            break;
        }
        assert_true(zt_file_tier.lends(store, 3 * PIECE));
        run = acquire(store, hole > 2 ? 0 : 4, 3 * PIECE, ZT_READ);
        commit(store, run, hole > 2 ? 0 : 4, 3 * PIECE, false);
        commit(store, one[hole], hole, PIECE, false);
        close_cfg(store);
    }
}

/* ---- their bytes ---- */

static unsigned next_random(unsigned *r, unsigned below)
{
    *r = *r * 1103515245u + 12345u;
    return (*r >> 16) % below;
}

static void check(const char *data, const char *want, size_t bytes)
{
    for (size_t k = 0; k < bytes; k += 512)
        assert_int_equal(data[k], want[k / PIECE]);
    assert_int_equal(data[bytes - 1], want[(bytes - 1) / PIECE]);
}

/* Pieces and runs in any order, as long as they are lent, another lent meanwhile; want: a byte of each
 * piece. */
static void use_in_any_order(void *store, unsigned seed, char *want)
{
    static const zt_access ways[] = {ZT_READ, ZT_WRITE, ZT_READ_WRITE, ZT_READ_LAST};

    for (int i = 0; i < 60; i++) {
        size_t n = 1 + next_random(&seed, 4), first = next_random(&seed, PIECES - 3);
        zt_access way = ways[next_random(&seed, 4)];
        bool begun;
        char *data;

        if (next_random(&seed, 2)) {
            assert_int_equal(
                zt_file_tier.prefetch(store, first * PIECE, PIECE, &begun, &fault),
                ZT_OK);
        }
        if (!zt_file_tier.lends(store, n * PIECE))
            n = 1;
        if (way == ZT_READ_LAST) { /* what it forgets is written before it is read */
            data = acquire(store, first, n * PIECE, way);
            check(data, want + first, n * PIECE);
            commit(store, data, first, n * PIECE, false);
            way = ZT_WRITE;
        }
        data = acquire(store, first, n * PIECE, way);
        if (way & ZT_READ)
            check(data, want + first, n * PIECE);
        if (way & ZT_WRITE) {
            memset(data, i + 1, n * PIECE);
            memset(want + first, i + 1, n);
        }
        commit(store, data, first, n * PIECE, way & ZT_WRITE);
    }
}

static void test_runs_and_pieces_in_any_order_keep_the_bytes(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 64; bits++) {
        char want[PIECES] = {0};
        void *store;

        open_cfg(3 + bits % 8, bits & 8, bits & 16, bits & 32);
        store = open_store();
        use_in_any_order(store, bits, want);
        for (size_t i = 0; i < PIECES; i++)
            read_piece(store, i, want[i]);
        close_cfg(store);
    }
}

/* As backward and update use gradients: runs are written from behind, one of them all the while. */
static void test_a_step_keeps_the_bytes_of_runs(void **state)
{
    (void)state;
    for (size_t buffers = 6; buffers <= PIECES + 1; buffers++) {
        void *store;

        open_cfg(buffers, true, true, true);
        store = open_store();
        for (int t = 1; t < 4; t++) {
            char *shared = acquire(store, 0, 2 * PIECE, ZT_WRITE);

            for (size_t i = PIECES - 1; i >= 2; i--) {
                char *one = acquire(store, i, PIECE, ZT_WRITE);

                memset(one, t * 10 + (int)i, PIECE);
                commit(store, one, i, PIECE, true);
            }
            memset(shared, t * 10, PIECE);
            memset(shared + PIECE, t * 10 + 1, PIECE);
            commit(store, shared, 0, 2 * PIECE, true);
            for (size_t i = 0; i < PIECES; i++) {
                char *one;

                assert_int_equal(prefetch_from(store, i), ZT_OK);
                one = acquire(store, i, PIECE, ZT_READ_LAST);
                assert_int_equal(one[0], t * 10 + (int)i);
                assert_int_equal(one[PIECE - 1], t * 10 + (int)i);
                commit(store, one, i, PIECE, false);
            }
        }
        close_cfg(store);
    }
}

/* ---- room for all ---- */

static void test_a_store_with_a_buffer_for_every_piece_is_resident(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        bool known = i & 1, enough = i & 2, direct = i & 4;
        void *store;

        open_cfg(enough ? PIECES : PIECES - 1, false, known, true);
        cfg.direct = direct;
        store = open_store();
        assert_int_equal(zt_file_tier.is_resident(store), known && enough && direct);
        close_cfg(store);
    }
}

/* Wherever they were acquired first, and though each is lent already. */
static void test_pieces_of_a_resident_store_lie_as_in_the_store(void **state)
{
    static const size_t order[PIECES] = {4, 0, 6, 2, 1, 5, 3};
    char *one[PIECES], *all;
    void *store;

    (void)state;
    open_cfg(PIECES, false, true, true);
    store = open_store();
    for (size_t i = 0; i < PIECES; i++)
        write_piece(store, order[i], (char)(order[i] + 1));
    for (size_t i = 0; i < PIECES; i++)
        one[order[i]] = acquire(store, order[i], PIECE, ZT_READ);
    all = acquire(store, 0, PIECES * PIECE, ZT_READ_LAST);
    for (size_t i = 0; i < PIECES; i++) {
        assert_ptr_equal(one[i], all + i * PIECE);
        assert_int_equal(one[i][0], (char)(i + 1));
        commit(store, one[i], i, PIECE, false);
        assert_int_equal(all[i * PIECE], (char)(i + 1));
    }
    commit(store, all, 0, PIECES * PIECE, false);
    close_cfg(store);
}

/* ---- several readers ---- */

/* Bytes from the middle of piece 1 to that of piece 2. */
#define ODD (PIECE + ZT_TIER_ALIGN)

static void *acquire_odd(void *store, zt_access access)
{
    void *data = NULL;

    assert_int_equal(zt_file_tier.acquire(store, ODD, PIECE, access, &data, &fault),
                     ZT_OK);
    return data;
}

static void commit_odd(void *store, void *data, bool written)
{
    assert_int_equal(zt_file_tier.commit(store, data, ODD, PIECE, written, &fault),
                     ZT_OK);
}

static void check_odd(const char *data, char one, char two)
{
    for (size_t i = 0; i < PIECE; i++)
        assert_int_equal(data[i], i < PIECE - ZT_TIER_ALIGN ? one : two);
}

static void test_readers_at_once_have_what_was_written_last(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 16; bits++) {
        char *first, *second, *odd;
        void *store;

        open_cfg(bits & 1 ? PIECES : 5, bits & 2, true, true);
        cfg.direct = bits & 4;
        store = open_store();
        write_piece(store, 1, 11);
        write_piece(store, 2, 12);
        first = acquire(store, 1, PIECE, ZT_READ);
        second = acquire(store, 1, PIECE, ZT_READ);
        odd = acquire_odd(store, ZT_READ);
        check_odd(odd, 11, 12);
        commit(store, first, 1, PIECE, false);
        for (size_t i = 0; i < PIECE; i++)
            assert_int_equal(second[i], 11);
        if (bits & 8) /* what others have is not taken away */
            write_piece(store, 5, 15);
        commit_odd(store, odd, false);
        commit(store, second, 1, PIECE, false);
        odd = acquire_odd(store, ZT_WRITE);
        memset(odd, 13, PIECE);
        commit_odd(store, odd, true);
        first = acquire(store, 1, PIECE, ZT_READ);
        for (size_t i = 0; i < PIECE; i++)
            assert_int_equal(first[i], i < ZT_TIER_ALIGN ? 11 : 13);
        commit(store, first, 1, PIECE, false);
        close_cfg(store);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_run_is_lent_without_room_for_a_piece_besides),
        cmocka_unit_test(test_what_it_lends_it_has_room_for),
        cmocka_unit_test(test_runs_and_pieces_in_any_order_keep_the_bytes),
        cmocka_unit_test(test_a_step_keeps_the_bytes_of_runs),
        cmocka_unit_test(test_a_store_with_a_buffer_for_every_piece_is_resident),
        cmocka_unit_test(test_pieces_of_a_resident_store_lie_as_in_the_store),
        cmocka_unit_test(test_readers_at_once_have_what_was_written_last),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
