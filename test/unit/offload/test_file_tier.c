/* The tier of files: bytes through every setting, and what a drive can do to them. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "test/unit/offload/file_tier_rig.h"

/* ---- a drive that fails, and a kernel that refuses ---- */

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

/* Calls `with` with each engine that there is; *engine has it meanwhile. */
static void with_each_engine(const struct zt_aio_engine **engine, void (*with)(void))
{
    for (int i = 0; zt_aio_engines[i]; i++) {
        void *queue;

        *engine = zt_aio_engines[i];
        if ((*engine)->open(2, &queue) != 0)
            continue; /* of a kernel without it */
        (*engine)->close(queue);
        with();
    }
}

int fallocate(int fd, int mode, off_t offset, off_t len)
{
    (void)mode;
    (void)offset;
    if (drive != FULL)
        return ftruncate(fd, len);
    errno = ENOSPC;
    return -1;
}

/* Pieces from i on begin to move, as many as there are buffers for. */
static zt_err prefetch_from(void *store, size_t i)
{
    bool begun = true;
    zt_err rc = ZT_OK;

    for (; !rc && begun && i < PIECES; i++)
        rc = zt_file_tier.prefetch(store, i * PIECE, PIECE, &begun, &fault);
    return rc;
}

/* One turn of the optimizer: every piece read, changed and written, those behind it fetched. */
static zt_err turn(void *store, char was, char becomes)
{
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < PIECES; i++) {
        void *data = NULL;

        rc = prefetch_from(store, i + 1);
        if (!rc)
            rc = zt_file_tier.acquire(store, i * PIECE, PIECE, ZT_READ_WRITE, &data,
                                      &fault);
        if (rc)
            break;
        for (size_t k = 0; k < PIECE; k++)
            assert_int_equal(((char *)data)[k], was ? (char)(was + (char)i) : 0);
        memset(data, becomes + (char)i, PIECE);
        rc = zt_file_tier.commit(store, data, i * PIECE, PIECE, true, &fault);
    }
    return rc;
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

/* Whichever request it is of all those that some turns make. */
static void test_an_error_of_a_write_that_was_put_off_is_named(void **state)
{
    int n = 0, failed = 1;

    (void)state;
    simple.engine = &spoiled;
    for (; failed && n < 1000; n += 7) {
        void *store;
        zt_err rc;

        setting(true, true, 2, simple);
        cfg.in_order = true;
        cfg.num_pieces = PIECES;
        store = open_store();
        requests_before = n;
        drive = BROKEN;
        rc = turn(store, 0, 1);
        if (!rc)
            rc = turn(store, 1, 2);
        failed = rc != ZT_OK;
        if (failed) {
            assert_int_equal(rc, ZT_E_SYSTEM);
            says("Input/output error");
            says("test-file-tier-");
        }
        drive = HONEST;
        close_store(store);
    }
    assert_true(n > 7 && !failed);
    cfg.num_pieces = 0;
    simple.engine = NULL;
}

static void any_request_fails(void)
{
    for (int kind = BROKEN; kind <= SHORT; kind++) {
        int n = 0, failed = 1;

        for (; failed && n < 1000; n += 7) {
            void *store;
            zt_err rc;

            setting(true, n & 1, 2, simple);
            store = open_store();
            requests_before = n;
            drive = kind;
            rc = turn(store, 0, 1);
            if (!rc)
                rc = turn(store, 1, 2);
            failed = rc != ZT_OK;
            if (failed) {
                assert_int_equal(rc, ZT_E_SYSTEM);
                says(kind == BROKEN ? "Input/output error" : "ended early");
                says("test-file-tier-");
            }
            drive = HONEST;
            close_store(store);
        }
        assert_true(n > 7 && !failed);
    }
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
        cmocka_unit_test(test_a_piece_that_is_still_in_its_buffer_is_not_read_again),
        cmocka_unit_test(test_what_buffers_hold_from_one_turn_to_the_next_is_not_read),
        cmocka_unit_test(test_long_buffers_are_cut_into_pieces),
        cmocka_unit_test(test_an_error_of_a_write_is_told_before_its_piece_is_read),
        cmocka_unit_test(
            test_what_is_written_in_another_order_is_held_for_the_one_it_is_read_in),
        cmocka_unit_test(test_a_piece_is_written_when_another_takes_its_buffer),
        cmocka_unit_test(test_what_was_read_for_the_last_time_is_not_written),
        cmocka_unit_test(test_what_waits_to_be_written_is_seen_by_pieces_of_any_length),
        cmocka_unit_test(test_an_error_of_a_write_that_was_put_off_is_named),
        cmocka_unit_test(test_an_error_of_any_request_is_named),
        cmocka_unit_test(test_what_the_kernel_says_of_a_request_is_its_result),
        cmocka_unit_test(test_a_full_drive_is_named_with_what_was_wanted),
        cmocka_unit_test(test_a_folder_that_is_not_there_is_named),
        cmocka_unit_test(test_bytes_that_changed_on_the_drive_are_noticed),
        cmocka_unit_test(test_what_a_store_takes_is_counted_by_place),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
