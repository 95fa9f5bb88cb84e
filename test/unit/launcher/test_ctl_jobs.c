/* Jobs by their control sockets: which one is meant, what is said of one that has ended, and
 * what killed ones leave. */
#include "test/unit/launcher/ctl_rig.h"

static bool ends_in_libuv;

/* As libuv does without memory: nobody clears up. */
int uv_pipe_open(uv_pipe_t *pipe, uv_file file)
{
    int (*open_it)(uv_pipe_t *, uv_file) = NULL;

    if (ends_in_libuv)
        _exit(0);
    *(void **)&open_it = dlsym(RTLD_NEXT, "uv_pipe_open");
    return open_it ? open_it(pipe, file) : UV_ENOSYS;
}

/* ------------------------------------------------------------------ the client */

/* zt_ctl_main() in a child, while the server here works; its exit code. */
static const char *client_folder; /* NULL: that of the jobs */

static int client(struct rig *r, const char *job, const char *request)
{
    double until = zt_now() + 20;
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        const struct zt_render_config screen = {
            .out_fd = STDOUT_FILENO, .err_fd = STDERR_FILENO, .who = "zlaunch"};
        struct zt_fault fault = {0};
        int null = open("/dev/null", O_WRONLY);
        struct zt_render *render;

        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        if ((client_folder && chdir(client_folder)) ||
            zt_render_open(&screen, &render, NULL))
            _exit(99);
        _exit(zt_ctl_main(job, request ? 1 : 0, (char *[]){(char *)request}, render,
                          &fault));
    }
    assert_true(pid > 0);
    while (waitpid(pid, &status, WNOHANG) == 0)
        assert_true(pump(r, until));
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_a_job_is_found_by_id_prefix_or_as_the_last(void **state)
{
    static const struct timespec future[2] = {{4000000000, 0}, {4000000000, 0}};
    struct rig r;
    struct rig other = {.num_requests = 0};
    char path[ZT_CTL_PATH];

    (void)state;
    rig_open(&r);
    assert_int_equal(client(&r, JOB, "status"), 0);
    assert_int_equal(client(&r, "zt-1-t", "status"), 0);
    assert_int_equal(client(&r, JOB, "save"), 1);
    r.loses_answers = true;
    assert_int_equal(client(&r, JOB, "status"), zt_err_exit_code(ZT_E_HOST));
    r.loses_answers = false;
    assert_int_equal(client(&r, JOB "x", "status"), zt_err_exit_code(ZT_E_NOINPUT));
    assert_int_equal(client(&r, JOB, NULL), 2);
    other.ctl = serve(&r.loop, &other, JOB "-2");
    assert_int_equal(client(&r, "zt-1-te", "status"), 2); /* both */
    assert_int_equal(client(&r, JOB, "status"), 0);       /* a whole name is one */
    assert_int_equal(zt_ctl_path(r.dir, JOB, ".sock", path, NULL), ZT_OK);
    assert_int_equal(utimensat(AT_FDCWD, path, future, 0), 0);
    r.num_requests = other.num_requests = 0;
    assert_int_equal(client(&r, "last", "status"), 0);
    assert_int_equal(r.num_requests, 1);
    assert_int_equal(other.num_requests, 0);
    assert_int_equal(client(&r, "list", NULL), 0);
    assert_int_equal(r.num_requests, 2);
    assert_int_equal(other.num_requests, 1);
    client_folder = "/"; /* nothing was started there */
    assert_int_equal(client(&r, "last", "status"), 2);
    assert_int_equal(client(&r, "last", "stop"), 2);
    assert_int_equal(client(&r, "last", "save"), 2);
    assert_int_equal(r.num_requests, 2);
    client_folder = NULL;
    zt_ctl_close(other.ctl);
    rig_close(&r);
}

static void test_the_name_of_a_run_is_its_job_and_none_that_begins_so(void **state)
{
    static const char *const ids[] = {"try_1-0123456789abcdef",
                                      "try_10-0123456789abcdef"};
    struct rig r;
    struct rig runs[2] = {{.num_requests = 0}};

    (void)state;
    rig_open(&r);
    for (int i = 0; i < 2; i++)
        runs[i].ctl = serve(&r.loop, &runs[i], ids[i]);
    assert_int_equal(client(&r, "try_1", "status"), 0);
    assert_int_equal(client(&r, "try_10", "status"), 0);
    assert_int_equal(client(&r, "try", "status"), 2); /* both */
    assert_int_equal(runs[0].num_requests, 1);
    assert_int_equal(runs[1].num_requests, 1);
    for (int i = 0; i < 2; i++)
        zt_ctl_close(runs[i].ctl);
    rig_close(&r);
}

/* What is said of a job that does not run. */
static void says_of(const char *name, const char *what)
{
    struct zt_fault fault = {0};
    struct zt_ctl_job job;
    struct zt_ctl_talk t;

    assert_int_equal(zt_ctl_talk_to(name, &t, &job, &fault), ZT_E_NOINPUT);
    if (!strstr(fault.text, what))
        fail_msg("\"%s\" does not say \"%s\"", fault.text, what);
}

static void test_the_last_job_that_has_ended_is_the_one_that_began_last(void **state)
{
    const int good = 0, stopped = 143;
    struct rig r;
    char path[ZT_CTL_PATH];
    int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    FILE *log;

    (void)state;
    set_run(&r);
    assert_int_equal(chdir(r.run), 0); /* where nobody else begins any */
    zt_ctl_note_job("long-1", NULL, NULL, 0);
    zt_ctl_note_job("short-2", NULL, NULL, 0);
    zt_ctl_note_job("short-2", NULL, &good, 0);
    zt_ctl_note_job("long-1", NULL, &stopped, 0);
    says_of("last", "the last job of this folder, short-2, ended at ");
    says_of("last", "with exit code 0");

    /* of the other one its output is left */
    says_of("long", "no job 'long' of this user runs here");
    assert_int_equal(zt_ctl_path(r.dir, "long-1", ".log", path, NULL), ZT_OK);
    log = fopen(path, "w");
    assert_true(log && fclose(log) == 0);
    says_of("long-1", "of those that have ended it is long-1 whose log was kept last: ");
    says_of("long", path);
    says_of("longer", "no job 'longer' of this user runs here");
    assert_true(here >= 0 && fchdir(here) == 0);
    close(here);
    drop_run(&r);
}

static void test_a_place_that_is_open_to_others_is_passed_over(void **state)
{
    struct rig r;
    char dir[ZT_CTL_PATH];

    (void)state;
    rig_open(&r);
    assert_int_equal(zt_ctl_dir_at(1, true, dir, NULL), ZT_OK);
    assert_int_equal(chmod(r.dir, 0755), 0);
    /* whoever that is, it is not request */
    assert_int_equal(client(&r, JOB, "status"), zt_err_exit_code(ZT_E_NOINPUT));
    assert_int_equal(client(&r, "list", NULL), 0);
    assert_int_equal(r.num_requests, 0);
    assert_int_equal(chmod(r.dir, 0700), 0);
    assert_int_equal(client(&r, JOB, "status"), 0);
    rig_close(&r);
}

static void test_the_socket_of_a_killed_job_is_removed(void **state)
{
    struct rig r;
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    /* no prefix of a real job's id: the client looks in the user's other folder, too */
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    rig_open(&r);
    assert_int_equal(zt_ctl_path(r.dir, "killed-long-ago", ".sock", addr.sun_path, NULL),
                     ZT_OK);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(fd, 1), 0);
    close(fd);
    assert_int_equal(access(addr.sun_path, F_OK), 0);
    assert_int_equal(client(&r, "killed-", "status"), zt_err_exit_code(ZT_E_NOINPUT));
    assert_int_equal(access(addr.sun_path, F_OK), -1);
    rig_close(&r);
}

/* A socket that nobody listens at, `age_s` old. */
static void leave_socket(const struct rig *r, const char *name, time_t age_s)
{
    struct timespec times[2] = {{.tv_sec = time(NULL) - age_s}};
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    times[1] = times[0];
    assert_int_equal(zt_ctl_path(r->dir, name, "", addr.sun_path, NULL), ZT_OK);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    close(fd);
    assert_int_equal(utimensat(AT_FDCWD, addr.sun_path, times, 0), 0);
}

static bool is_there(const struct rig *r, const char *name)
{
    char path[ZT_CTL_PATH];

    return zt_ctl_path(r->dir, name, "", path, NULL) == ZT_OK && access(path, F_OK) == 0;
}

static void test_what_killed_jobs_left_goes_and_what_lives_stays(void **state)
{
    struct rig r;

    (void)state;
    rig_open(&r);
    leave_socket(&r, "killed.sock", 0);
    leave_socket(&r, ".killed-before-it-had-a-name", 100);
    leave_socket(&r, ".begins", 0);
    zt_ctl_remove_dead();
    assert_false(is_there(&r, "killed.sock"));
    assert_false(is_there(&r, ".killed-before-it-had-a-name"));
    assert_true(is_there(&r, ".begins"));
    assert_true(is_there(&r, JOB ".sock"));
    assert_int_equal(client(&r, JOB, "status"), 0);
    rig_close(&r);
}

static void test_a_job_that_ends_in_libuv_leaves_what_the_next_removes(void **state)
{
    struct rig r = {.ctl = NULL};
    uv_loop_t loop;
    int status;
    pid_t pid;

    (void)state;
    set_run(&r);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        ends_in_libuv = true;
        uv_loop_init(&loop);
        serve(&loop, &r, JOB);
        _exit(1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(is_there(&r, JOB ".sock"));
    zt_ctl_remove_dead();
    assert_false(is_there(&r, JOB ".sock"));
    assert_int_equal(rmdir(r.dir), 0);
    drop_run(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_job_is_found_by_id_prefix_or_as_the_last),
        cmocka_unit_test(test_the_name_of_a_run_is_its_job_and_none_that_begins_so),
        cmocka_unit_test(test_the_last_job_that_has_ended_is_the_one_that_began_last),
        cmocka_unit_test(test_a_place_that_is_open_to_others_is_passed_over),
        cmocka_unit_test(test_the_socket_of_a_killed_job_is_removed),
        cmocka_unit_test(test_what_killed_jobs_left_goes_and_what_lives_stays),
        cmocka_unit_test(test_a_job_that_ends_in_libuv_leaves_what_the_next_removes),
    };

    zt_json_watch_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
