/* Bytes that threads write behind and read ahead are those of plain reads and writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "test/unit/data/files.h"
#include "worker/checkpoint/atomic_file.h"
#include "worker/checkpoint/disk/read_ahead.h"
#include "worker/checkpoint/disk/write_behind.h"

#define MIB  ((size_t)1 << 20)
#define SOME (21 * MIB + 12345)
#define MANY (85 * MIB + 12345) /* large enough to be written behind, and no whole page */

static char *content(size_t bytes)
{
    char *p = malloc(bytes);

    assert_non_null(p);
    for (size_t i = 0; i < bytes; i++)
        p[i] = (char)(i * 2654435761u >> 13);
    return p;
}

static void assert_content(int fd, const char *want, size_t bytes)
{
    char *got = malloc(bytes + 1);
    size_t n = 0;

    assert_non_null(got);
    for (ssize_t k = 1; k > 0; n += (size_t)k) {
        k = pread(fd, got + n, bytes + 1 - n, (off_t)n);
        assert_true(k >= 0);
    }
    assert_int_equal(n, bytes);
    assert_memory_equal(got, want, bytes);
    free(got);
}

/* ---- writing ---- */

static size_t next_cut(size_t i)
{
    static const size_t cuts[] = {1, 4096, 5 * MIB + 3, 77, 4 * MIB, 23 * MIB, 4095, MIB};

    return cuts[i % (sizeof(cuts) / sizeof(cuts[0]))];
}

static void test_a_large_file_has_its_bytes_whatever_the_cuts(void **state)
{
    const char *path = in_scratch("large");
    char *want = content(MANY);
    struct zt_atomic_file f;
    struct zt_fault fault = {0};
    size_t at = 0;
    int fd;

    (void)state;
    assert_int_equal(zt_atomic_file_open(&f, path, (int64_t)MANY, &fault), ZT_OK);
    assert_null(f.behind); /* no buffers before there are bytes for them */
    for (size_t i = 0, n; at < MANY; i++, at += n) {
        n = next_cut(i) < MANY - at ? next_cut(i) : MANY - at;
        assert_int_equal(zt_atomic_file_write(&f, want + at, n, &fault), ZT_OK);
        assert_non_null(f.behind);
    }
    assert_int_equal(zt_atomic_file_publish(&f, &fault), ZT_OK);
    zt_atomic_file_release(&f);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_content(fd, want, MANY);
    close(fd);
    free(want);
}

/* Lent in one run, from a page or not; in runs that are torn; in turns with what is put. */
static void lend_all(struct zt_write_behind *w, char *from, char *torn, size_t bytes)
{
    size_t at = 0;

    for (size_t i = 0, n; at < bytes; i++, at += n) {
        n = next_cut(i) < bytes - at ? next_cut(i) : bytes - at;
        if (torn && i % 4 == 3)
            assert_int_equal(zt_write_behind_put(w, from + at, n), 0);
        else
            assert_int_equal(
                zt_write_behind_lend(w, (torn && i % 4 == 2 ? torn : from) + at, n), 0);
    }
}

static void lend_with(const char *want, char *memory[2], size_t head, size_t off)
{
    for (int torn = 0; torn < 2; torn++) {
        int fd = open(in_scratch("lent"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        struct zt_write_behind *w = zt_write_behind_open(fd, SOME);

        assert_non_null(w);
        for (int i = 0; i < 2; i++)
            memcpy(memory[i] + head + off, want + head, SOME - head);
        assert_int_equal(zt_write_behind_put(w, want, head), 0);
        lend_all(w, memory[0] + head + off, torn ? memory[1] + head + off : NULL,
                 SOME - head);
        assert_int_equal(zt_write_behind_finish(w), 0);
        zt_write_behind_close(w);
        assert_content(fd, want, SOME);
        close(fd);
    }
}

static void test_what_is_lent_is_in_the_file_whatever_the_cuts(void **state)
{
    static const size_t heads[] = {0, 1000, 8192}, offs[] = {0, 1000, 3096};
    char *want = content(SOME), *memory[2];

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_non_null(memory[i] = aligned_alloc(4096, 22 * MIB));
    for (size_t i = 0; i < 9; i++)
        lend_with(want, memory, heads[i / 3], offs[i % 3]);
    free(memory[0]);
    free(memory[1]);
    free(want);
}

static void test_a_large_file_is_overwritten_and_goes_on(void **state)
{
    const char *path = in_scratch("overwritten");
    char *want = content(MANY);
    struct zt_atomic_file f;
    struct zt_fault fault = {0};
    int fd;

    (void)state;
    assert_int_equal(zt_atomic_file_open(&f, path, (int64_t)MANY, &fault), ZT_OK);
    assert_int_equal(zt_atomic_file_write(&f, want, MANY - 100, &fault), ZT_OK);
    memset(want + 9 * MIB - 7, 'x', 14);
    assert_int_equal(
        zt_atomic_file_write_at(&f, 9 * MIB - 7, want + 9 * MIB - 7, 14, &fault), ZT_OK);
    assert_int_equal(zt_atomic_file_write(&f, want + MANY - 100, 100, &fault), ZT_OK);
    assert_int_equal(zt_atomic_file_publish(&f, &fault), ZT_OK);
    zt_atomic_file_release(&f);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_content(fd, want, MANY);
    close(fd);
    free(want);
}

static void test_a_file_that_is_given_up_leaves_nothing(void **state)
{
    char *some = content(9 * MIB);
    struct zt_atomic_file f;
    int before = count_files(scratch_dir);

    (void)state;
    assert_int_equal(zt_atomic_file_open(&f, in_scratch("given-up"), (int64_t)MANY, NULL),
                     0);
    assert_int_equal(zt_atomic_file_write(&f, some, 9 * MIB, NULL), 0);
    zt_atomic_file_release(&f);
    assert_int_equal(count_files(scratch_dir), before);
    free(some);
}

static void test_without_o_direct_it_is_written_as_well(void **state)
{
    int fd = memfd_create("no O_DIRECT", MFD_CLOEXEC);
    char *want = content(11 * MIB + 5);
    struct zt_write_behind *w = zt_write_behind_open(fd, 11 * MIB);

    (void)state;
    assert_non_null(w);
    assert_int_equal(zt_write_behind_put(w, want, 11 * MIB + 5), 0);
    assert_int_equal(zt_write_behind_finish(w), 0);
    zt_write_behind_close(w);
    assert_content(fd, want, 11 * MIB + 5);
    close(fd);
    free(want);
}

/* The disk that is full, as a limit of the process. */
static void test_a_refused_write_is_an_error_at_the_end_at_latest(void **state)
{
    struct rlimit before, less;
    char *some = content(4 * MIB);

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (size_t limit = 0; limit <= 24 * MIB; limit += 3 * MIB + 4096) {
        int fd =
            open(in_scratch("refused"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        struct zt_write_behind *w = zt_write_behind_open(fd, 24 * MIB);
        int error = 0;

        assert_non_null(w);
        less = (struct rlimit){limit, before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
        for (int i = 0; i < 6 && !error; i++)
            error = zt_write_behind_put(w, some, 4 * MIB);
        error = error ? error : zt_write_behind_finish(w);
        zt_write_behind_close(w);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(error, limit < 24 * MIB ? EFBIG : 0);
        close(fd);
    }
    free(some);
}

/* ---- reading ---- */

struct range {
    int file;
    int64_t at;
    size_t bytes;
};

/* Neighbours, gaps, two files in turns, one longer than a block, backwards, to the end. */
static const struct range ranges[] = {
    {0, 8, 100},        {0, 108, 4 * MIB},      {0, 4 * MIB + 108, 17}, {1, 3, 5},
    {0, 6 * MIB, MIB},  {0, 7 * MIB, MIB},      {0, 8 * MIB, MIB},      {0, 9 * MIB, MIB},
    {0, 10 * MIB, MIB}, {1, MIB + 1, 9 * MIB},  {0, 4096, 4096},        {0, 8192, 4096},
    {1, 20 * MIB, 1},   {0, MANY - 5000, 5000}, {1, MANY - 1, 1},
};
#define NUM_RANGES (sizeof(ranges) / sizeof(ranges[0]))

static void read_them(bool shared)
{
    char *want = content(MANY);
    int fds[2], error;
    struct zt_read_ahead *r = zt_read_ahead_open(shared);

    assert_non_null(r);
    for (int i = 0; i < 2; i++)
        fds[i] = open(put_file(i ? "b" : "a", want, MANY), O_RDONLY | O_CLOEXEC);
    for (size_t i = 0; i < NUM_RANGES; i++)
        assert_true(
            zt_read_ahead_expect(r, fds[ranges[i].file], ranges[i].at, ranges[i].bytes));
    assert_true(zt_read_ahead_start(r));
    for (size_t i = 0; i < NUM_RANGES; i++) {
        const struct range *g = &ranges[i];
        const void *got;

        /* what was not expected takes nothing away */
        assert_null(zt_read_ahead_take(r, fds[g->file], g->at + 1, g->bytes, &error));
        assert_int_equal(error, 0);
        got = zt_read_ahead_take(r, fds[g->file], g->at, g->bytes, &error);
        assert_non_null(got);
        assert_memory_equal(got, want + g->at, g->bytes);
    }
    assert_null(zt_read_ahead_take(r, fds[0], 8, 100, &error));
    assert_int_equal(error, 0);
    zt_read_ahead_close(r);
    close(fds[0]);
    close(fds[1]);
    free(want);
}

static void test_expected_ranges_come_as_they_are(void **state)
{
    (void)state;
    read_them(false);
    read_them(true);
}

static void test_a_range_behind_the_end_is_an_error(void **state)
{
    char *want = content(MIB);
    int fd = open(put_file("short", want, MIB), O_RDONLY | O_CLOEXEC), error;
    struct zt_read_ahead *r = zt_read_ahead_open(false);

    (void)state;
    assert_true(zt_read_ahead_expect(r, fd, MIB - 10, 11));
    assert_true(zt_read_ahead_start(r));
    assert_null(zt_read_ahead_take(r, fd, MIB - 10, 11, &error));
    assert_int_equal(error, -1);
    zt_read_ahead_close(r);
    close(fd);
    free(want);
}

/* It fails while those before it are still being read. */
static void test_an_error_comes_behind_the_ranges_before_it(void **state)
{
    char *want = content(MANY);
    int fd = open(put_file("cut", want, MANY), O_RDONLY | O_CLOEXEC), error;
    struct zt_read_ahead *r = zt_read_ahead_open(false);
    const size_t whole = 3;

    (void)state;
    for (size_t i = 0; i < whole; i++)
        assert_true(zt_read_ahead_expect(r, fd, (int64_t)(i * 4 * MIB), 4 * MIB));
    assert_true(zt_read_ahead_expect(r, fd, (int64_t)MANY, 1));
    assert_true(zt_read_ahead_start(r));
    for (size_t i = 0; i < whole; i++) {
        const void *got =
            zt_read_ahead_take(r, fd, (int64_t)(i * 4 * MIB), 4 * MIB, &error);

        assert_non_null(got);
        assert_memory_equal(got, want + i * 4 * MIB, 4 * MIB);
    }
    assert_null(zt_read_ahead_take(r, fd, (int64_t)MANY, 1, &error));
    assert_int_equal(error, -1);
    zt_read_ahead_close(r);
    close(fd);
    free(want);
}

static void test_reading_ahead_ends_when_it_is_closed(void **state)
{
    char *want = content(MANY);
    int fd = open(put_file("unread", want, MANY), O_RDONLY | O_CLOEXEC);

    (void)state;
    for (int taken = 0; taken < 3; taken++) {
        struct zt_read_ahead *r = zt_read_ahead_open(false);
        int error;

        for (size_t i = 0; i < 11; i++)
            assert_true(zt_read_ahead_expect(r, fd, (int64_t)(i * 4 * MIB), 4 * MIB));
        assert_true(zt_read_ahead_start(r));
        for (int i = 0; i < taken; i++)
            assert_non_null(zt_read_ahead_take(r, fd, (int64_t)((size_t)i * 4 * MIB),
                                               4 * MIB, &error));
        zt_read_ahead_close(r);
    }
    close(fd);
    free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_large_file_has_its_bytes_whatever_the_cuts),
        cmocka_unit_test(test_what_is_lent_is_in_the_file_whatever_the_cuts),
        cmocka_unit_test(test_a_large_file_is_overwritten_and_goes_on),
        cmocka_unit_test(test_a_file_that_is_given_up_leaves_nothing),
        cmocka_unit_test(test_without_o_direct_it_is_written_as_well),
        cmocka_unit_test(test_a_refused_write_is_an_error_at_the_end_at_latest),
        cmocka_unit_test(test_expected_ranges_come_as_they_are),
        cmocka_unit_test(test_a_range_behind_the_end_is_an_error),
        cmocka_unit_test(test_an_error_comes_behind_the_ranges_before_it),
        cmocka_unit_test(test_reading_ahead_ends_when_it_is_closed),
    };

    return cmocka_run_group_tests_name("background I/O", tests, scratch_make,
                                       scratch_remove);
}
