/* The tier of files and its drive: when it is asked, and what it can answer. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "test/unit/offload/file_tier_rig.h"

enum { HONEST, BROKEN, SHORT, FULL };
static atomic_int drive;           /* threads of the tier look while tests change it */
static atomic_int requests_before; /* so many are served first */

static int spoil(void *queue, int least, int most, struct zt_aio_result *results)
{
    int n = real->reap(queue, least, most, results);

    for (int i = 0; i < n; i++)
        if (drive != HONEST && requests_before-- <= 0)
            results[i].bytes = drive == BROKEN ? -EIO : results[i].bytes - 4096;
    return n;
}

static const struct zt_aio_engine spoiled = {.name = "spoiled",
                                             .open = open_real,
                                             .close = close_real,
                                             .submit = submit_real,
                                             .reap = spoil};

int fallocate(int fd, int mode, off_t offset, off_t len)
{
    (void)mode;
    (void)offset;
    if (drive != FULL)
        return ftruncate(fd, len);
    errno = ENOSPC;
    return -1;
}

/* All of a piece has the wanted bytes; a drive that may not be asked fails. */
static void read_again(void *store, size_t i, char want, bool from_drive)
{
    void *data = NULL;

    drive = BROKEN;
    requests_before = from_drive ? 1000 : 0;
    assert_int_equal(
        zt_file_tier.acquire(store, i * PIECE, PIECE, ZT_READ, &data, &fault), ZT_OK);
    assert_int_equal(((char *)data)[0], want);
    assert_int_equal(((char *)data)[PIECE - 1], want);
    assert_int_equal(zt_file_tier.commit(store, data, i * PIECE, PIECE, false, &fault),
                     ZT_OK);
    drive = HONEST;
}

static void test_a_piece_that_is_still_in_its_buffer_is_not_read_again(void **state)
{
    struct zt_aio_options o = simple;
    void *store, *data = NULL;

    (void)state;
    o.engine = &spoiled;
    setting(true, false, 1, o);
    swap.buffers = 2;
    store = open_store();
    assert_int_equal(turn(store, 0, 1), ZT_OK);
    read_again(store, PIECES - 1, PIECES, false);
    read_again(store, 0, 1, true);
    read_again(store, 0, 1, false);
    /* written through another piece it is read again */
    assert_int_equal(zt_file_tier.acquire(store, 4096, 4096, ZT_WRITE, &data, &fault),
                     ZT_OK);
    memset(data, 1, 4096);
    assert_int_equal(zt_file_tier.commit(store, data, 4096, 4096, true, &fault), ZT_OK);
    requests_before = 0;
    drive = BROKEN;
    assert_int_equal(zt_file_tier.acquire(store, 0, PIECE, ZT_READ, &data, &fault),
                     ZT_E_SYSTEM);
    drive = HONEST;
    close_store(store);
}

static void says(const char *phrase)
{
    if (!strstr(fault.text, phrase))
        fail_msg("\"%s\" does not say \"%s\"", fault.text, phrase);
}

/* The write fails, and nobody reads what it was to leave in the file. */
static void test_an_error_of_a_write_is_told_before_its_piece_is_read(void **state)
{
    struct zt_aio_options o = simple;
    void *store, *data = NULL;
    bool begun;

    (void)state;
    o.engine = &spoiled;
    setting(true, true, 1, o);
    swap.verify = false;
    cfg.in_order = true;
    store = open_store();
    for (size_t i = 0; i < 3; i++)
        read_piece(store, i, 0);
    requests_before = 0;
    drive = BROKEN;
    write_piece(store, 1, 1);
    write_piece(store, 2, 1);
    assert_int_equal(zt_file_tier.prefetch(store, 3 * PIECE, PIECE, &begun, &fault),
                     ZT_OK);
    assert_true(begun);
    assert_int_equal(zt_file_tier.acquire(store, PIECE, PIECE, ZT_READ, &data, &fault),
                     ZT_E_SYSTEM);
    says("writing");
    drive = HONEST;
    close_store(store);
}

/* Whichever request it is of all those that some turns make; `set` makes the settings of the n-th. */
static void fail_any_request(int kind, const char *error, void (*set)(int n))
{
    int n = 0, failed = 1;

    for (; failed && n < 1000; n += 7) {
        void *store;
        zt_err rc;

        set(n);
        store = open_store();
        requests_before = n;
        drive = kind;
        rc = turn(store, 0, 1);
        if (!rc)
            rc = turn(store, 1, 2);
        failed = rc != ZT_OK;
        if (failed) {
            assert_int_equal(rc, ZT_E_SYSTEM);
            says(error);
            says("test-file-tier-");
        }
        drive = HONEST;
        close_store(store);
    }
    assert_true(n > 7 && !failed);
}

static void set_put_off(int n)
{
    (void)n;
    setting(true, true, 2, simple);
    cfg.in_order = true;
    cfg.num_pieces = PIECES;
}

static void test_an_error_of_a_write_that_was_put_off_is_named(void **state)
{
    (void)state;
    simple.engine = &spoiled;
    fail_any_request(BROKEN, "Input/output error", set_put_off);
    cfg.num_pieces = 0;
    simple.engine = NULL;
}

static void set_pipeline(int n)
{
    setting(true, n & 1, 2, simple);
}

static void any_request_fails(void)
{
    fail_any_request(BROKEN, "Input/output error", set_pipeline);
    fail_any_request(SHORT, "ended early", set_pipeline);
}

static void test_an_error_of_any_request_is_named(void **state)
{
    (void)state;
    simple.engine = &spoiled;
    with_each_engine(&real, any_request_fails);
    simple.engine = NULL;
}

/* What the kernel itself says of a request: of a file that ends before it, and of a
 * descriptor that is none. */
static void kernel_answers(void)
{
    struct zt_aio_request r = {.id = 1, .data = zt_aio_memory_map(8192), .bytes = 8192};
    const struct zt_aio_request *ask = &r;
    const struct zt_aio_engine *e = simple.engine;
    struct zt_aio_result got = {.id = 0};
    char path[80];
    void *queue;

    snprintf(path, sizeof(path), "%s/short", dirs[0]);
    r.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(r.data && r.fd >= 0 && ftruncate(r.fd, 4096) == 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(e->open(2, &queue), 0);
    assert_int_equal(e->submit(queue, &ask, 1), 1);
    assert_int_equal(e->reap(queue, 1, 1, &got), 1);
    assert_true(got.id == 1 && got.bytes == 4096);
    assert_int_equal(close(r.fd), 0);
    r.fd = -1;
    got.bytes = e->submit(queue, &ask, 1);
    if (got.bytes == 1) /* libaio says so at once */
        assert_int_equal(e->reap(queue, 1, 1, &got), 1);
    assert_true(got.bytes == -EBADF);
    e->close(queue);
    zt_aio_memory_unmap(r.data, 8192);
}

static void test_what_the_kernel_says_of_a_request_is_its_result(void **state)
{
    (void)state;
    with_each_engine(&simple.engine, kernel_answers);
    simple.engine = NULL;
}

static void test_a_full_drive_is_named_with_what_was_wanted(void **state)
{
    void *store = NULL;

    (void)state;
    setting(true, false, 1, simple);
    drive = FULL;
    assert_int_equal(zt_file_tier.open(&cfg, &store, &fault), ZT_E_CANTCREATE);
    says("no room for the 0.1 MiB of state of this rank, of ");
    says(" MiB that are free there (No space left on device): make room, name more "
         "folders");
    drive = HONEST;
    zt_aio_close(swap.aio);
}

static void test_a_folder_that_is_not_there_is_named(void **state)
{
    void *store = NULL;

    (void)state;
    setting(true, false, 1, simple);
    dir_list[0] = "./no-such-folder";
    assert_int_equal(zt_file_tier.open(&cfg, &store, &fault), ZT_E_CANTCREATE);
    says("nvme_path ./no-such-folder: ");
    says("No such file or directory");
    zt_aio_close(swap.aio);
}

/* Some of the file's bytes become others, behind the tier's back. */
static void damage(off_t at)
{
    DIR *d = opendir("/proc/self/fd");
    char target[512], path[600];
    struct dirent *e;
    int found = 0;

    assert_non_null(d);
    while ((e = readdir(d))) {
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/self/fd/%s", e->d_name);
        n = readlink(path, target, sizeof(target) - 1);
        if (n <= 0)
            continue;
        target[n] = '\0';
        if (strstr(target, "test-file-tier-") && strstr(target, "deleted")) {
            int fd = open(path, O_WRONLY | O_CLOEXEC);

            assert_true(fd >= 0 && pwrite(fd, "!", 1, at) == 1);
            assert_int_equal(close(fd), 0);
            found++;
        }
    }
    closedir(d);
    assert_int_equal(found, 1);
}

static void test_bytes_that_changed_on_the_drive_are_noticed(void **state)
{
    (void)state;
    for (int verify = 1; verify >= 0; verify--) {
        void *store, *data = NULL;

        setting(true, false, 1, simple);
        swap.verify = verify;
        store = open_store();
        assert_int_equal(turn(store, 0, 1), ZT_OK);
        damage(PIECE + 5000);
        assert_int_equal(zt_file_tier.acquire(store, 0, PIECE, ZT_READ, &data, &fault),
                         ZT_OK);
        assert_int_equal(zt_file_tier.commit(store, data, 0, PIECE, false, &fault),
                         ZT_OK);
        assert_int_equal(
            zt_file_tier.acquire(store, PIECE, PIECE, ZT_READ, &data, &fault),
            verify ? ZT_E_FORMAT : ZT_OK);
        if (verify)
            says("is not what was written there (4096 bytes from 16384 on)");
        close_store(store);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_piece_that_is_still_in_its_buffer_is_not_read_again),
        cmocka_unit_test(test_an_error_of_a_write_is_told_before_its_piece_is_read),
        cmocka_unit_test(test_an_error_of_a_write_that_was_put_off_is_named),
        cmocka_unit_test(test_an_error_of_any_request_is_named),
        cmocka_unit_test(test_what_the_kernel_says_of_a_request_is_its_result),
        cmocka_unit_test(test_a_full_drive_is_named_with_what_was_wanted),
        cmocka_unit_test(test_a_folder_that_is_not_there_is_named),
        cmocka_unit_test(test_bytes_that_changed_on_the_drive_are_noticed),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
