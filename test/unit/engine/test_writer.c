/* Bytes on their way to a file that is written while training goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "worker/engine/checkpoint/writer.h"

/* Odd lengths, and more than the memory holds. */
static const size_t parts[] = {6, 1,  ZT_CKPT_WRITER_PIECE + 2, 4,
                               0, 13, 3 * ZT_CKPT_WRITER_LEAST, 2};
enum { NUM_PARTS = sizeof(parts) / sizeof(*parts) };

static size_t total(void)
{
    size_t bytes = 0;

    for (size_t p = 0; p < NUM_PARTS; p++)
        bytes += parts[p];
    return bytes;
}

static unsigned char byte_of(size_t part, size_t at)
{
    return (unsigned char)(part * 31 + at * 7 + at / 4099);
}

/* Where there is room for all of them they follow each other, and stay: a file can be
 * written of them later. */
static bool all_is_there(const unsigned char *memory)
{
    for (size_t p = 0; p < NUM_PARTS; memory += parts[p++])
        for (size_t i = 0; i < parts[p]; i++)
            if (memory[i] != byte_of(p, i))
                return false;
    return true;
}

/* What comes is what was put in. */
static zt_err take_all(struct zt_ckpt_writer *w, void *arg, struct zt_fault *fault)
{
    bool *good = arg;

    (void)fault;
    *good = true;
    for (size_t p = 0; p < NUM_PARTS; p++) {
        size_t n;

        for (size_t at = 0; at < parts[p]; at += n) {
            const unsigned char *data =
                zt_ckpt_writer_take(w, at == 0, parts[p] - at, &n);

            if (!data)
                return ZT_E_CANCELLED;
            for (size_t i = 0; i < n; i++)
                *good = *good && data[i] == byte_of(p, at + i);
            zt_ckpt_writer_taken(w, n);
        }
    }
    return ZT_OK;
}

/* False: the job had ended before. */
static bool put_all(struct zt_ckpt_writer *w)
{
    for (size_t p = 0; p < NUM_PARTS; p++) {
        size_t n;

        for (size_t at = 0; at < parts[p]; at += n) {
            unsigned char *room = zt_ckpt_writer_room(w, at == 0, parts[p] - at, &n);

            if (!room)
                return false;
            if (at == 0 && !zt_ckpt_writer_has_all(w))
                assert_int_equal((uintptr_t)room % 8, 0);
            for (size_t i = 0; i < n; i++)
                room[i] = byte_of(p, at + i);
            zt_ckpt_writer_filled(w, n);
        }
    }
    return true;
}

static struct zt_ckpt_writer *open_writer(void **memory, size_t bytes)
{
    struct zt_ckpt_writer *w = NULL;

    *memory = malloc(bytes);
    assert_non_null(*memory);
    assert_int_equal(zt_ckpt_writer_open(*memory, bytes, &w, NULL), ZT_OK);
    return w;
}

static void test_all_bytes_come_in_their_order(void **state)
{
    const size_t all = total();
    const size_t sizes[] = {ZT_CKPT_WRITER_LEAST, ZT_CKPT_WRITER_LEAST + 8, all / 8 * 8,
                            (all + 7) / 8 * 8, 5 * ZT_CKPT_WRITER_LEAST};

    (void)state;
    assert_true(all % 8); /* one size is too small, the next one is not */
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        void *memory;
        struct zt_ckpt_writer *w = open_writer(&memory, sizes[i]);
        bool good = false;

        for (int turn = 0; turn < 2; turn++) { /* a writer has one job after the other */
            zt_ckpt_writer_start(w, take_all, &good, total());
            assert_true(put_all(w));
            assert_int_equal(zt_ckpt_writer_wait(w, NULL), ZT_OK);
            assert_true(zt_ckpt_writer_is_done(w));
            assert_true(good);
            assert_int_equal(zt_ckpt_writer_has_all(w), sizes[i] >= all);
            assert_true(sizes[i] < all || all_is_there(memory));
        }
        zt_ckpt_writer_close(w);
        free(memory);
    }
}

static zt_err fail_at_once(struct zt_ckpt_writer *w, void *arg, struct zt_fault *fault)
{
    (void)w;
    (void)arg;
    return zt_fault_set(fault, ZT_E_CANTCREATE, "the disk is full");
}

static void test_a_job_that_fails_is_waited_for_by_nobody(void **state)
{
    struct zt_fault fault = {0};
    void *memory;
    struct zt_ckpt_writer *w = open_writer(&memory, ZT_CKPT_WRITER_LEAST);
    bool good = false;

    (void)state;
    zt_ckpt_writer_start(w, fail_at_once, NULL, total());
    assert_false(put_all(w));
    assert_int_equal(zt_ckpt_writer_wait(w, &fault), ZT_E_CANTCREATE);
    assert_string_equal(fault.text, "the disk is full");
    zt_ckpt_writer_start(w, take_all, &good, total());
    assert_true(put_all(w));
    assert_int_equal(zt_ckpt_writer_wait(w, &fault), ZT_OK);
    zt_ckpt_writer_close(w);
    free(memory);
}

static void test_a_job_that_waits_for_training_ends_when_that_does(void **state)
{
    void *memory;
    struct zt_ckpt_writer *w = open_writer(&memory, ZT_CKPT_WRITER_LEAST);
    bool good = false;

    (void)state;
    zt_ckpt_writer_start(w, take_all, &good, total());
    zt_ckpt_writer_close(w);
    free(memory);
    zt_ckpt_writer_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_bytes_come_in_their_order),
        cmocka_unit_test(test_a_job_that_fails_is_waited_for_by_nobody),
        cmocka_unit_test(test_a_job_that_waits_for_training_ends_when_that_does),
    };

    return cmocka_run_group_tests_name("writer", tests, NULL, NULL);
}
