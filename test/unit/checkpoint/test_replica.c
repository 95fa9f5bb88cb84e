/* Copies of a rank's state in a memory file that outlives it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/checkpoint/replica.h"

enum { OWN_BYTES = 10000, COPY_BYTES = 5000 };

static struct zt_replica_config config(int fd)
{
    return (struct zt_replica_config){
        .fd = fd, .layout = {7, 8}, .data_bytes = {OWN_BYTES, COPY_BYTES}};
}

static int memory_file(void)
{
    int fd = memfd_create("zt-test-replica", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    return fd;
}

static struct zt_replica *open_as(const struct zt_replica_config *cfg)
{
    struct zt_replica *r = NULL;
    struct zt_fault fault = {0};

    assert_int_equal(zt_replica_open(cfg, &r, &fault), ZT_OK);
    return r;
}

static void put(struct zt_replica *r, zt_replica_whose whose, int slot, int64_t step)
{
    size_t bytes = whose == ZT_REPLICA_OWN ? OWN_BYTES - 1 : COPY_BYTES;
    struct zt_fault fault = {0};
    char text[64];

    memset(zt_replica_begin(r, whose, slot), (int)step, bytes);
    snprintf(text, sizeof(text), "{\"step\":%d}", (int)step);
    assert_int_equal(zt_replica_seal(r, whose, slot, step, bytes, text, &fault), ZT_OK);
}

static void what_is_sealed_is_there_for_who_opens_the_file_next(void **state)
{
    struct zt_replica_config cfg = config(memory_file());
    struct zt_replica *r = open_as(&cfg);
    struct stat st;
    const char *data;
    size_t bytes;

    (void)state;
    for (int slot = 0; slot < ZT_REPLICA_SLOTS; slot++) {
        assert_int_equal(zt_replica_step(r, ZT_REPLICA_OWN, slot), -1);
        assert_int_equal(zt_replica_step(r, ZT_REPLICA_COPY, slot), -1);
    }
    put(r, ZT_REPLICA_OWN, 0, 10);
    put(r, ZT_REPLICA_OWN, 1, 20);
    put(r, ZT_REPLICA_COPY, 1, 21);
    zt_replica_close(r);
    assert_int_equal(fstat(cfg.fd, &st), 0);
    assert_int_equal(st.st_size, zt_replica_file_bytes(OWN_BYTES, COPY_BYTES));
    assert_true((size_t)st.st_blocks * 512 >= (size_t)st.st_size); /* all is taken */

    r = open_as(&cfg);
    assert_int_equal(zt_replica_step(r, ZT_REPLICA_OWN, 0), 10);
    assert_int_equal(zt_replica_step(r, ZT_REPLICA_OWN, 1), 20);
    assert_int_equal(zt_replica_step(r, ZT_REPLICA_COPY, 0), -1);
    assert_int_equal(zt_replica_step(r, ZT_REPLICA_COPY, 1), 21);
    data = zt_replica_area(r, ZT_REPLICA_OWN, 1, &bytes);
    assert_int_equal(bytes, zt_replica_area_bytes(OWN_BYTES));
    for (size_t i = 0; i < OWN_BYTES - 1; i++)
        assert_int_equal(data[ZT_REPLICA_HEAD + i], 20);
    assert_string_equal(zt_replica_text(r, ZT_REPLICA_COPY, 1), "{\"step\":21}");
    assert_true(zt_replica_is_whole(r, ZT_REPLICA_OWN, 0));
    assert_true(zt_replica_is_whole(r, ZT_REPLICA_COPY, 1));
    zt_replica_close(r);
    close(cfg.fd);
}

static void an_area_that_was_begun_holds_nothing(void **state)
{
    struct zt_replica_config cfg = config(memory_file());
    struct zt_replica *r = open_as(&cfg);

    (void)state;
    put(r, ZT_REPLICA_OWN, 0, 10);
    put(r, ZT_REPLICA_OWN, 1, 20);
    (void)zt_replica_begin(r, ZT_REPLICA_OWN, 0);
    zt_replica_close(r); /* the rank was killed here */
    r = open_as(&cfg);
    assert_int_equal(zt_replica_step(r, ZT_REPLICA_OWN, 0), -1);
    assert_int_equal(zt_replica_step(r, ZT_REPLICA_OWN, 1), 20);
    zt_replica_close(r);
    close(cfg.fd);
}

static void data_of_another_layout_are_not_taken(void **state)
{
    struct zt_replica_config cfg = config(memory_file());
    struct zt_replica *r = open_as(&cfg);

    (void)state;
    put(r, ZT_REPLICA_OWN, 0, 10);
    put(r, ZT_REPLICA_COPY, 0, 11);
    zt_replica_close(r);
    cfg.layout[1] = 9;
    r = open_as(&cfg);
    assert_int_equal(zt_replica_step(r, ZT_REPLICA_OWN, 0), -1);
    assert_int_equal(zt_replica_step(r, ZT_REPLICA_COPY, 0), -1);
    put(r, ZT_REPLICA_OWN, 0, 12);
    zt_replica_close(r);
    cfg.data_bytes[ZT_REPLICA_COPY] = 0; /* there is one node now */
    r = open_as(&cfg);
    assert_int_equal(zt_replica_step(r, ZT_REPLICA_OWN, 0), -1);
    assert_int_equal(zt_replica_step(r, ZT_REPLICA_COPY, 0), -1);
    zt_replica_close(r);
    close(cfg.fd);
}

/* Any bit of the data is found by the checksum, any bit of the head makes it nothing. */
static void damage_is_found(void **state)
{
    struct zt_replica_config cfg = config(memory_file());
    struct zt_replica *r = open_as(&cfg);
    size_t bytes, head = 0;
    char *area = zt_replica_area(r, ZT_REPLICA_OWN, 1, &bytes);

    (void)state;
    put(r, ZT_REPLICA_OWN, 1, 20);
    for (size_t i = 0; i < OWN_BYTES - 1; i += 997) {
        area[ZT_REPLICA_HEAD + i] ^= 4;
        assert_int_equal(zt_replica_step(r, ZT_REPLICA_OWN, 1), 20);
        assert_false(zt_replica_is_whole(r, ZT_REPLICA_OWN, 1));
        area[ZT_REPLICA_HEAD + i] ^= 4;
    }
    assert_true(zt_replica_is_whole(r, ZT_REPLICA_OWN, 1));
    for (size_t i = 0; i < 64; i++) {
        area[i] ^= 1;
        head += zt_replica_step(r, ZT_REPLICA_OWN, 1) == -1;
        area[i] ^= 1;
    }
    assert_int_equal(head, 64);
    zt_replica_close(r);
    close(cfg.fd);
}

/* An own area of one file into the copy of another, in pieces: whole with the last alone. */
static void an_area_travels_to_another_file(void **state)
{
    struct zt_replica_config from_cfg = config(memory_file()), to_cfg;
    struct zt_replica *from = open_as(&from_cfg), *to;
    size_t bytes, to_bytes;
    char *area, *there;

    (void)state;
    to_cfg = config(memory_file());
    to_cfg.layout[ZT_REPLICA_COPY] = from_cfg.layout[ZT_REPLICA_OWN];
    to_cfg.data_bytes[ZT_REPLICA_COPY] = OWN_BYTES;
    to = open_as(&to_cfg);
    put(from, ZT_REPLICA_OWN, 0, 30);
    area = zt_replica_area(from, ZT_REPLICA_OWN, 0, &bytes);
    there = zt_replica_area(to, ZT_REPLICA_COPY, 0, &to_bytes);
    assert_int_equal(bytes, to_bytes);
    (void)zt_replica_begin(to, ZT_REPLICA_COPY, 0);
    for (size_t at = ZT_REPLICA_HEAD; at < bytes; at += 1000) {
        memcpy(there + at, area + at, bytes - at < 1000 ? bytes - at : 1000);
        assert_int_equal(zt_replica_step(to, ZT_REPLICA_COPY, 0), -1);
    }
    memcpy(there, area, ZT_REPLICA_HEAD / 2); /* torn */
    assert_int_equal(zt_replica_step(to, ZT_REPLICA_COPY, 0), -1);
    memcpy(there, area, ZT_REPLICA_HEAD);
    assert_int_equal(zt_replica_step(to, ZT_REPLICA_COPY, 0), 30);
    assert_true(zt_replica_is_whole(to, ZT_REPLICA_COPY, 0));
    assert_string_equal(zt_replica_text(to, ZT_REPLICA_COPY, 0), "{\"step\":30}");
    zt_replica_close(from);
    zt_replica_close(to);
    close(from_cfg.fd);
    close(to_cfg.fd);
}

static void memory_that_cannot_be_had_is_an_error(void **state)
{
    struct zt_replica_config cfg = config(memory_file());
    struct zt_fault fault = {0};
    struct zt_replica *r = NULL;

    (void)state;
    assert_int_equal(fcntl(cfg.fd, F_ADD_SEALS, F_SEAL_GROW), 0);
    assert_int_equal(zt_replica_open(&cfg, &r, &fault), ZT_E_NOMEM);
    assert_null(r);
    assert_non_null(strstr(fault.text, "cannot be had"));
    close(cfg.fd);
    cfg = config(memory_file());
    cfg.data_bytes[ZT_REPLICA_OWN] = (size_t)1 << 62;
    assert_int_equal(zt_replica_open(&cfg, &r, &fault), ZT_E_NOMEM);
    close(cfg.fd);
}

static void what_is_too_long_is_refused(void **state)
{
    struct zt_replica_config cfg = config(memory_file());
    struct zt_replica *r = open_as(&cfg);
    struct zt_fault fault = {0};
    char *text = malloc(ZT_REPLICA_TEXT + 1);

    (void)state;
    assert_non_null(text);
    memset(text, 'x', ZT_REPLICA_TEXT);
    text[ZT_REPLICA_TEXT] = 0;
    (void)zt_replica_begin(r, ZT_REPLICA_OWN, 0);
    assert_int_equal(zt_replica_seal(r, ZT_REPLICA_OWN, 0, 1, 1, text, &fault),
                     ZT_E_LIMIT);
    assert_int_equal(zt_replica_seal(r, ZT_REPLICA_OWN, 0, 1, OWN_BYTES + 1, "", &fault),
                     ZT_E_LIMIT);
    assert_int_equal(zt_replica_step(r, ZT_REPLICA_OWN, 0), -1);
    text[ZT_REPLICA_TEXT - 1] = 0;
    assert_int_equal(zt_replica_seal(r, ZT_REPLICA_OWN, 0, 1, OWN_BYTES, text, &fault),
                     ZT_OK);
    zt_replica_close(r);
    close(cfg.fd);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_sealed_is_there_for_who_opens_the_file_next),
        cmocka_unit_test(an_area_that_was_begun_holds_nothing),
        cmocka_unit_test(data_of_another_layout_are_not_taken),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(an_area_travels_to_another_file),
        cmocka_unit_test(memory_that_cannot_be_had_is_an_error),
        cmocka_unit_test(what_is_too_long_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
