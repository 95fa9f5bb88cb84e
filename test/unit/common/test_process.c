#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/proc.h"
#include "common/process/cgroups.h"
#include "common/process/limits.h"
#include "common/process/shm_files.h"
#include "common/process/streams.h"

/* ------------------------------------------------------------------ control groups */

static char root[64]; /* of a made-up machine */

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/zt-process-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -r '%s'", root);
    return system(command);
}

/* A file of that machine, with the folders above it. */
static void file(const char *path, const char *text)
{
    char full[512];
    FILE *f;

    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        (void)mkdir(full, 0700);
        *p = '/';
    }
    f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void assert_memory(uint64_t limit, uint64_t left)
{
    struct zt_cgroups_memory m;

    zt_cgroups_read_memory(root, &m);
    assert_true(m.limit_bytes == limit);
    assert_true(m.left_bytes == left);
}

#define V2_MOUNT "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"

static void test_a_limit_of_any_group_above_holds_in_version_2(void **state)
{
    (void)state;
    file("/proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" V2_MOUNT);
    file("/proc/self/cgroup", "0::/user.slice/job/step\n");
    assert_memory(UINT64_MAX, UINT64_MAX);
    file("/sys/fs/cgroup/user.slice/memory.max", "9000\n");
    file("/sys/fs/cgroup/user.slice/memory.current", "8000\n");
    file("/sys/fs/cgroup/user.slice/memory.stat", "anon 100\ninactive_file 3000\n");
    file("/sys/fs/cgroup/user.slice/job/memory.max", "5000\n");
    file("/sys/fs/cgroup/user.slice/job/memory.current", "500\n");
    file("/sys/fs/cgroup/user.slice/job/step/memory.max", "max\n");
    assert_memory(9000, 4000);
    file("/sys/fs/cgroup/user.slice/job/memory.current", "6000\n");
    assert_memory(5000, 0);
    file("/sys/fs/cgroup/user.slice/job/memory.current", "500\n");
    file("/sys/fs/cgroup/user.slice/job/step/memory.high", "3000\n");
    assert_memory(3000, 3000);
}

static void test_version_1_where_its_controller_is_mounted(void **state)
{
    (void)state;
    file("/proc/self/mountinfo",
         "35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n"
         "36 31 0:33 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n" V2_MOUNT);
    file("/proc/self/cgroup",
         "4:memory:/slurm/job_7\n1:cpu,cpuacct:/slurm/job_7\n0::/\n");
    file("/cg/memory/memory.limit_in_bytes", "9223372036854771712\n");
    file("/cg/memory/slurm/memory.limit_in_bytes", "4000\n");
    file("/cg/memory/slurm/memory.usage_in_bytes", "2000\n");
    file("/cg/memory/slurm/memory.stat", "inactive_file 9\ntotal_inactive_file 500\n");
    assert_memory(4000, 2500);
    assert_true(zt_cgroups_read_cpus(root) <= 0);
    file("/cg/cpu/slurm/cpu.cfs_quota_us", "150000\n");
    file("/cg/cpu/slurm/cpu.cfs_period_us", "100000\n");
    file("/cg/cpu/slurm/job_7/cpu.cfs_quota_us", "-1\n");
    file("/cg/cpu/slurm/job_7/cpu.cfs_period_us", "100000\n");
    assert_true(zt_cgroups_read_cpus(root) > 1.49 && zt_cgroups_read_cpus(root) < 1.51);
    assert_int_equal(zt_cgroups_count_oom_kills(root), -1);
    file("/proc/vmstat", "pgfault 7\noom_kill 9\n");
    assert_int_equal(zt_cgroups_count_oom_kills(root), 9);
    file("/cg/memory/slurm/job_7/memory.oom_control", "under_oom 0\noom_kill 2\n");
    assert_int_equal(zt_cgroups_count_oom_kills(root), 2);
}

/* A container with the hierarchy of its host: the mount begins at the container's group. */
static void test_a_mount_that_begins_inside_the_tree(void **state)
{
    char folder[256], expected[256];

    (void)state;
    file("/proc/self/mountinfo",
         "30 23 0:26 /docker/ab /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    file("/proc/self/cgroup", "0::/docker/ab/in\n");
    file("/sys/fs/cgroup/in/cpu.max", "50000 100000\n");
    file("/sys/fs/cgroup/cpu.max", "max 100000\n");
    file("/sys/fs/cgroup/in/memory.events", "oom 4\noom_kill 3\n");
    assert_true(zt_cgroups_read_cpus(root) > 0.49 && zt_cgroups_read_cpus(root) < 0.51);
    assert_int_equal(zt_cgroups_count_oom_kills(root), 3);
    assert_true(zt_cgroups_folder(root, folder, sizeof(folder)));
    snprintf(expected, sizeof(expected), "%s/sys/fs/cgroup/in", root);
    assert_string_equal(folder, expected);
    file("/proc/self/cgroup", "0::/somewhere/else\n");
    assert_true(zt_cgroups_folder(root, folder, sizeof(folder)));
    snprintf(expected, sizeof(expected), "%s/sys/fs/cgroup", root);
    assert_string_equal(folder, expected);
}

static void test_no_control_groups_set_no_limit(void **state)
{
    char folder[256];

    (void)state;
    assert_memory(UINT64_MAX, UINT64_MAX);
    assert_true(zt_cgroups_read_cpus(root) <= 0);
    assert_int_equal(zt_cgroups_count_oom_kills(root), -1);
    assert_false(zt_cgroups_folder(root, folder, sizeof(folder)));
}

/* ------------------------------------------------------------------ streams, limits */

/* The exit code of a child that runs `fn`. */
static int in_child(int (*fn)(void))
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(fn());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int open_with_closed_streams(void)
{
    int fd;

    for (fd = 0; fd <= 2; fd++)
        close(fd);
    if (!zt_streams_open())
        return 1;
    for (fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) != 0) /* open, and stays so over exec */
            return 2;
    if (write(STDOUT_FILENO, "lost", 4) != -1 || errno != EBADF)
        return 3; /* what is printed is lost, and nobody would know */
    if (write(STDERR_FILENO, "", 0) != 0)
        return 4;
    fd = open("/dev/null", O_RDONLY);
    return fd > 2 ? 0 : 5;
}

static int print_to_a_full_device(void)
{
    if (!freopen("/dev/full", "w", stdout))
        return 1;
    printf("text\n");
    return zt_streams_end("test", 0) == 73 && zt_streams_end("test", 5) == 5 ? 0 : 2;
}

static int need_files(void)
{
    struct rlimit r = {.rlim_cur = 20, .rlim_max = 40};
    struct zt_fault fault = {0};

    if (setrlimit(RLIMIT_NOFILE, &r) || zt_limits_open_files(30, "a test needs", &fault))
        return 1;
    if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur != 30)
        return 2;
    if (zt_limits_open_files(41, "a test needs", &fault) != ZT_E_SYSTEM)
        return 3;
    return strstr(fault.text, "only 40 files may be open at once, and a test needs 41")
               ? 0
               : 4;
}

static void test_closed_streams_become_dev_null(void **state)
{
    (void)state;
    assert_int_equal(in_child(open_with_closed_streams), 0);
}

static void test_output_that_a_device_does_not_take_fails(void **state)
{
    (void)state;
    assert_int_equal(in_child(print_to_a_full_device), 0);
}

static void test_the_limit_of_open_files_is_raised_or_named(void **state)
{
    (void)state;
    assert_int_equal(in_child(need_files), 0);
}

/* ------------------------------------------------------------------ files in /dev/shm */

static void test_shared_files_without_a_process_are_removed(void **state)
{
    enum { UNUSED, OPEN, MAPPED, OTHER, NUM };
    static const char *const prefix[NUM] = {"mpich_shar_tmp", "ucx_shm_posix_",
                                            "mpich_shar_tmp", "zt_other_"};
    char path[NUM][64];
    int fd[NUM];
    void *map;

    (void)state;
    for (int i = 0; i < NUM; i++) {
        snprintf(path[i], sizeof(path[i]), "/dev/shm/%szt%d_%d", prefix[i], i,
                 (int)getpid());
        fd[i] = open(path[i], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd[i] < 0)
            skip(); /* no /dev/shm here */
        assert_int_equal(ftruncate(fd[i], 4096), 0);
    }
    map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd[MAPPED], 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    for (int i = 0; i < NUM; i++)
        if (i != OPEN)
            close(fd[i]);
    zt_shm_files_remove_unused();
    if (access(path[UNUSED], F_OK) == 0) { /* others share it: see shm_files.h */
        unlink(path[UNUSED]);
        print_message("nothing is removed here\n");
    }
    for (int i = OPEN; i < NUM; i++)
        assert_int_equal(access(path[i], F_OK), 0);
    close(fd[OPEN]);
    munmap(map, 4096);
    zt_shm_files_remove_unused();
    for (int i = OPEN; i < NUM; i++)
        unlink(path[i]);
}

static void test_the_state_of_a_process_is_seen(void **state)
{
    pid_t pid = fork();
    int status;

    (void)state;
    assert_true(pid >= 0);
    if (pid == 0) {
        raise(SIGSTOP);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_int_equal(zt_proc_state(pid), 'T');
    assert_int_equal(zt_proc_state(getpid()), 'R');
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(zt_proc_state(pid), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_a_limit_of_any_group_above_holds_in_version_2, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_version_1_where_its_controller_is_mounted,
                                        make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_a_mount_that_begins_inside_the_tree,
                                        make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_no_control_groups_set_no_limit, make_root,
                                        remove_root),
        cmocka_unit_test(test_closed_streams_become_dev_null),
        cmocka_unit_test(test_output_that_a_device_does_not_take_fails),
        cmocka_unit_test(test_the_limit_of_open_files_is_raised_or_named),
        cmocka_unit_test(test_shared_files_without_a_process_are_removed),
        cmocka_unit_test(test_the_state_of_a_process_is_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
