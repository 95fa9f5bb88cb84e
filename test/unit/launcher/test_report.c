/* What is said about limits that are too low. */
#include "launcher/report/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

struct heard {
    int num;
    zt_problem_level worst;
    char what[1024];
};

static void hear(void *ctx, zt_problem_level level, const char *what, const char *todo)
{
    struct heard *h = ctx;

    assert_true(strlen(what) > 0 && strlen(todo) > 0);
    if (!h->num || level > h->worst)
        h->worst = level;
    snprintf(h->what + strlen(h->what), sizeof(h->what) - strlen(h->what), "%s\n", what);
    h->num++;
}

/* A machine that nothing is wrong with. */
static struct zt_host_limits fine(void)
{
    return (struct zt_host_limits){
        .open_files = 1024,
        .open_files_hard = 1 << 20,
        .processes = ZT_NO_LIMIT,
        .locked_bytes = 8 << 20,
        .address_bytes = ZT_NO_LIMIT,
        .shm_bytes = 1u << 30,
        .total_bytes = 8ull << 30,
        .free_bytes = 4ull << 30,
        .cgroup_bytes = ZT_NO_LIMIT,
        .num_cpus = 4,
        .huge_pages = "madvise",
    };
}

/* One problem, of this level, that says this. */
static void expect(const struct zt_host_limits *h, zt_problem_level level,
                   const char *part)
{
    struct heard heard = {0};

    zt_host_limits_judge(h, hear, &heard);
    assert_int_equal(heard.num, 1);
    assert_int_equal(heard.worst, level);
    if (!strstr(heard.what, part))
        fail_msg("'%s' is not in: %s", part, heard.what);
}

static void test_a_good_machine_has_no_problems(void **state)
{
    struct zt_host_limits h = fine();
    struct heard heard = {0};

    (void)state;
    zt_host_limits_judge(&h, hear, &heard);
    assert_int_equal(heard.num, 0);
}

static void test_every_low_limit_is_told(void **state)
{
    struct zt_host_limits h = fine();

    (void)state;
    h.open_files = 256;
    expect(&h, ZT_PROBLEM_WARNING, "only 256 files");
    h = fine();
    h.processes = 100;
    expect(&h, ZT_PROBLEM_WARNING, "only 100 processes");
    h = fine();
    h.address_bytes = 1 << 30;
    expect(&h, ZT_PROBLEM_WARNING, "limited to 1024 MiB");
    h = fine();
    h.shm_bytes = 64 << 20;
    expect(&h, ZT_PROBLEM_WARNING, "/dev/shm has 64 MiB");
    h = fine();
    h.free_bytes = 100 << 20;
    expect(&h, ZT_PROBLEM_WARNING, "only 100 MiB of memory are free");
    h = fine();
    h.cgroup_bytes = 1u << 30;
    h.cgroup_used_bytes = 2u << 30; /* swapped, or charged late */
    expect(&h, ZT_PROBLEM_WARNING, "has 0 MiB of memory left of 1024 MiB");
    h = fine();
    h.cgroup_cpus = 1.5;
    expect(&h, ZT_PROBLEM_NOTE, "1.5 of 4 processors");
    h = fine();
    strcpy(h.huge_pages, "never");
    expect(&h, ZT_PROBLEM_NOTE, "huge pages");
}

static void test_locked_memory_matters_with_infiniband_alone(void **state)
{
    struct zt_host_limits h = fine();

    (void)state;
    h.rdma = true;
    expect(&h, ZT_PROBLEM_WARNING, "only 8 MiB of memory may be locked");
}

static void test_without_shared_memory_nothing_runs(void **state)
{
    struct zt_host_limits h = fine();

    (void)state;
    h.memfd_error = EPERM;
    expect(&h, ZT_PROBLEM_ERROR, "Operation not permitted");
}

static void test_this_machine_can_be_read(void **state)
{
    struct zt_host_limits h;

    (void)state;
    zt_host_limits_read(&h);
    assert_true(h.open_files > 0 && h.open_files <= h.open_files_hard);
    assert_true(h.num_cpus > 0);
    assert_true(h.total_bytes >= h.free_bytes && h.free_bytes > 0);
    assert_int_equal(h.memfd_error, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_good_machine_has_no_problems),
        cmocka_unit_test(test_every_low_limit_is_told),
        cmocka_unit_test(test_locked_memory_matters_with_infiniband_alone),
        cmocka_unit_test(test_without_shared_memory_nothing_runs),
        cmocka_unit_test(test_this_machine_can_be_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
