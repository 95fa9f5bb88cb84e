/* A folder is one run's: who is refused, by which sentence, and what outlives whom. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/checkpoint/folder_lock.h"

static struct zt_fault fault;
static char dir[] = "/tmp/test-folder-lock-XXXXXX";
static char path[sizeof(dir) + sizeof(ZT_FOLDER_LOCK_NAME)];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/test-folder-lock-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof(path), "%s/%s", dir, ZT_FOLDER_LOCK_NAME);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(dir);
}

static zt_err take(const char *job, bool is_unique, struct zt_folder_lock *l)
{
    fault = (struct zt_fault){0};
    return zt_folder_lock_take(dir, job, is_unique, l, &fault);
}

static void the_second_is_refused_by_the_name_of_the_first(void **state)
{
    struct zt_folder_lock a, b;
    char who[64];

    (void)state;
    assert_int_equal(take("first-1", true, &a), ZT_OK);
    assert_int_equal(take("second-2", true, &b), ZT_E_CANTCREATE);
    snprintf(who, sizeof(who), "job first-1 (pid %d on ", (int)getpid());
    assert_non_null(strstr(fault.text, dir));
    assert_non_null(strstr(fault.text, who));
    assert_non_null(strstr(fault.text, "zlaunch --ctl first-1 stop"));
    assert_null(strchr(fault.text, '\n'));
    zt_folder_lock_remove(&a);
    zt_folder_lock_release(&a);
    assert_int_equal(take("second-2", true, &b), ZT_OK);
    zt_folder_lock_remove(&b);
    zt_folder_lock_release(&b);
    assert_int_not_equal(access(path, F_OK), 0);
}

/* Ranks of several nodes, and a restart beside a node that is not known to be dead yet. */
static void one_job_shares_it_where_names_are_unique(void **state)
{
    struct zt_folder_lock a, b;

    (void)state;
    assert_int_equal(take("mine", true, &a), ZT_OK);
    assert_int_equal(take("mine", true, &b), ZT_OK);
    assert_int_equal(b.fd, -1);
    zt_folder_lock_remove(&b); /* which is not its */
    zt_folder_lock_release(&b);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(take("mine", false, &b), ZT_E_CANTCREATE);
    zt_folder_lock_remove(&a);
    zt_folder_lock_release(&a);
}

static void a_run_without_a_name_is_told_by_its_process(void **state)
{
    struct zt_folder_lock a, b;

    (void)state;
    assert_int_equal(take("none", false, &a), ZT_OK);
    assert_int_equal(take("none", false, &b), ZT_E_CANTCREATE);
    assert_non_null(strstr(fault.text, "another run (pid "));
    assert_non_null(strstr(fault.text, "or wait for its end"));
    zt_folder_lock_remove(&a);
    zt_folder_lock_release(&a);
}

static void what_a_killed_owner_leaves_holds_nobody_up(void **state)
{
    struct zt_folder_lock l;
    int status;
    pid_t pid;

    (void)state;
    pid = fork();
    if (pid == 0) {
        if (take("killed", true, &l))
            _exit(1);
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(take("next", true, &l), ZT_OK);
    zt_folder_lock_remove(&l);
    zt_folder_lock_release(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_is_refused_by_the_name_of_the_first),
        cmocka_unit_test(one_job_shares_it_where_names_are_unique),
        cmocka_unit_test(a_run_without_a_name_is_told_by_its_process),
        cmocka_unit_test(what_a_killed_owner_leaves_holds_nobody_up),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
