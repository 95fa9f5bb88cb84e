/* Mapped files: contents, and what is no file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/mapped_file.h"

static struct zt_fault fault;

static void test_a_mapping_shows_the_whole_file(void **state)
{
    char path[] = "/tmp/zt_map.XXXXXX";
    int fd = mkstemp(path);
    struct zt_mapping m;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(zt_mapping_open(path, &m, &fault), ZT_OK);
    assert_null(m.data); /* empty */
    assert_int_equal(m.bytes, 0);
    zt_mapping_release(&m);
    assert_int_equal(write(fd, "abc", 3), 3);
    close(fd);
    assert_int_equal(zt_mapping_open(path, &m, &fault), ZT_OK);
    unlink(path); /* the mapping keeps the contents */
    assert_int_equal(m.bytes, 3);
    assert_memory_equal(m.data, "abc", 3);
    zt_mapping_release(&m);
    assert_null(m.data);
    zt_mapping_release(&m);
}

static void test_what_is_no_file_is_refused_by_name(void **state)
{
    char dir[] = "/tmp/zt_map.XXXXXX", fifo[64];
    struct zt_mapping m;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
    assert_int_equal(zt_mapping_open(fifo, &m, &fault), ZT_E_NOINPUT);
    assert_non_null(strstr(fault.text, "fifo: No such file"));
    assert_int_equal(zt_mapping_open(dir, &m, &fault), ZT_E_NOINPUT);
    assert_non_null(strstr(fault.text, "is a folder"));
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(zt_mapping_open(fifo, &m, &fault), ZT_E_NOINPUT); /* and no wait */
    assert_non_null(strstr(fault.text, "no regular file"));
    unlink(fifo);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_mapping_shows_the_whole_file),
        cmocka_unit_test(test_what_is_no_file_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
