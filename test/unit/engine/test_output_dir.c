/* The folder of --output_dir, while other runs make and remove its parents. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/engine/output_dir.h"

static char root[] = "/tmp/zt_output_dir_XXXXXX";
static char parent[64], child[80];
static int times; /* that the parent goes just before the child is made */

int mkdir(const char *path, mode_t mode)
{
    if (times && !strcmp(path, child)) {
        times--;
        rmdir(parent);
    }
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

static int make_root(void **state)
{
    (void)state;
    if (!mkdtemp(root))
        return -1;
    snprintf(parent, sizeof(parent), "%s/runs", root);
    snprintf(child, sizeof(child), "%s/first", parent);
    return 0;
}

static int remove_root(void **state)
{
    (void)state;
    rmdir(child);
    rmdir(parent);
    return rmdir(root);
}

static void test_a_parent_that_another_run_removes_is_made_again(void **state)
{
    struct zt_fault fault = {0};
    struct stat st;

    (void)state;
    times = 3;
    if (zt_output_dir_make("--output_dir", child, &fault))
        fail_msg("%s", fault.text);
    assert_int_equal(times, 0);
    assert_int_equal(stat(child, &st), 0);
}

static void test_a_parent_that_never_stays_is_an_error(void **state)
{
    struct zt_fault fault = {0};

    (void)state;
    rmdir(child);
    times = INT_MAX;
    assert_int_equal(zt_output_dir_make("--output_dir", child, &fault), ZT_E_CANTCREATE);
    times = 0;
    assert_non_null(strstr(fault.text, "/runs/first: No such file or directory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_parent_that_another_run_removes_is_made_again),
        cmocka_unit_test(test_a_parent_that_never_stays_is_an_error),
    };

    return cmocka_run_group_tests_name("output_dir", tests, make_root, remove_root);
}
