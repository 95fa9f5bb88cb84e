#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/sysfile.h"

static void touch(const char *folder, const char *name, const char *text)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void sweep(const char *folder)
{
    char command[300];

    snprintf(command, sizeof(command), "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
}

static void test_gpus_are_their_device_nodes(void **state)
{
    char dir[] = "/tmp/zt-sysfile-XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(zt_sysfile_count_gpus(dir), 0);
    touch(dir, "nvidiactl", "");
    touch(dir, "nvidia-uvm", "");
    touch(dir, "nvidia-modeset", "");
    assert_int_equal(zt_sysfile_count_gpus(dir), 0);
    touch(dir, "nvidia0", "");
    touch(dir, "nvidia1", "");
    touch(dir, "nvidia15", "");
    assert_int_equal(zt_sysfile_count_gpus(dir), 3);
    sweep(dir);
    assert_int_equal(zt_sysfile_count_gpus(dir), 0);
}

static void test_the_first_line_is_read(void **state)
{
    char dir[] = "/tmp/zt-sysfile-XXXXXX", path[64], line[8];

    (void)state;
    assert_non_null(mkdtemp(dir));
    touch(dir, "value", "12345678910\nmore\n");
    snprintf(path, sizeof(path), "%s/value", dir);
    assert_true(zt_sysfile_line(path, line, sizeof(line)));
    assert_string_equal(line, "1234567");
    snprintf(path, sizeof(path), "%s/none", dir);
    assert_false(zt_sysfile_line(path, line, sizeof(line)));
    assert_string_equal(line, "");
    sweep(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpus_are_their_device_nodes),
        cmocka_unit_test(test_the_first_line_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
