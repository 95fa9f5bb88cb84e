#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

static void test_the_last_cache_is_the_largest(void **state)
{
    static const char *const sizes[] = {"48K\n", "32K\n", "2048K\n", "491520K\n"};
    char dir[] = "/tmp/zt-sysfile-XXXXXX", sub[64];

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(zt_sysfile_last_cache(dir), 0);
    for (int i = 0; i < 4; i++) {
        snprintf(sub, sizeof(sub), "%s/index%d", dir, i);
        assert_int_equal(mkdir(sub, 0700), 0);
        touch(sub, "size", sizes[i]);
    }
    assert_int_equal(zt_sysfile_last_cache(dir), 480 << 20);
    sweep(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpus_are_their_device_nodes),
        cmocka_unit_test(test_the_first_line_is_read),
        cmocka_unit_test(test_the_last_cache_is_the_largest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
