/* The control socket: who may open it, what clients can do, and what they cannot. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/message/frame.h"
#include "common/json/line.h"
#include "common/log.h"
#include "launcher/ctl/private.h"
#include "zlaunch/types.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define JOB "zt-1-test"

/* A server on a loop of its own, in a fresh XDG_RUNTIME_DIR. */
struct rig {
    char run[64], dir[ZT_CTL_PATH];
    uv_loop_t loop;
    struct zt_ctl *ctl;
    char request[64];
    uint32_t client; /* that request last */
    int num_requests;
    bool loses_answers;
};

static void on_request(void *ctx, uint32_t client, const char *request)
{
    struct rig *r = ctx;

    snprintf(r->request, sizeof(r->request), "%s", request);
    r->client = client;
    r->num_requests++;
    if (strcmp(request, "status") == 0 && !r->loses_answers) {
        json_t *o = json_pack("{ss si}", "job", JOB, "pid", 7);

        zt_ctl_answer(r->ctl, client, o);
        json_decref(o);
        zt_ctl_end(r->ctl, client, 0, NULL);
    } else if (strcmp(request, "status without memory") == 0) {
        zt_ctl_answer(r->ctl, client, NULL);
        zt_ctl_end(r->ctl, client, 0, NULL);
    } else if (strcmp(request, "status in part") == 0) {
        json_t *o = json_object();

        json_object_set_new(o, "job", json_stringn_nocheck("", SIZE_MAX / 2));
        zt_ctl_answer(r->ctl, client, o);
        json_decref(o);
        zt_ctl_end(r->ctl, client, 0, NULL);
    } else if (strcmp(request, "status") == 0) {
        zt_ctl_end(r->ctl, client, 0, NULL);
    } else if (strcmp(request, "save") == 0) {
        zt_ctl_print(r->ctl, client, "%s", "not yet");
        zt_ctl_end(r->ctl, client, 1, NULL);
    } else if (strcmp(request, "attach") == 0) {
        zt_ctl_follow(r->ctl, client, ZT_CTL_ALL, true);
    }
}

static void set_run(struct rig *r)
{
    snprintf(r->run, sizeof(r->run), "/tmp/zt-ctl-XXXXXX");
    assert_non_null(mkdtemp(r->run));
    assert_int_equal(setenv("XDG_RUNTIME_DIR", r->run, 1), 0);
    snprintf(r->dir, sizeof(r->dir), "%s/zlaunch", r->run);
}

static void drop_run(struct rig *r)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", r->run);
    assert_int_equal(system(command), 0);
}

/* Questions to it go to `r`. */
static struct zt_ctl *serve(uv_loop_t *loop, struct rig *r, const char *job)
{
    struct zt_ctl_config cfg = {
        .loop = loop, .job_id = job, .on_request = on_request, .ctx = r};
    struct zt_ctl *ctl = NULL;
    struct zt_fault fault = {0};

    if (zt_ctl_open(&cfg, &ctl, &fault))
        fail_msg("%s", fault.text);
    return ctl;
}

static void rig_open(struct rig *r)
{
    memset(r, 0, sizeof(*r));
    set_run(r);
    assert_int_equal(uv_loop_init(&r->loop), 0);
    r->ctl = serve(&r->loop, r, JOB);
}

static void rig_close(struct rig *r)
{
    zt_ctl_close(r->ctl);
    uv_run(&r->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&r->loop), 0);
    drop_run(r);
}

/* A sanitizer's allocator answers as malloc does when there is too much to give. */
ZT_API const char *__asan_default_options(void);
ZT_API const char *__tsan_default_options(void);

const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

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

/* Let the server work for a moment; false when the deadline is over. */
static bool pump(struct rig *r, double until)
{
    uv_run(&r->loop, UV_RUN_NOWAIT);
    usleep(500);
    return zt_now() < until;
}

static int dial(const struct rig *r)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(zt_ctl_path(r->dir, JOB, ".sock", addr.sun_path, NULL), ZT_OK);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    return fd;
}

static void put(int fd, zt_frame_type type, const char *body)
{
    struct zt_buf b;

    zt_buf_init(&b, ZT_FRAME_MAX);
    assert_int_equal(zt_frame_put(&b, type, body, strlen(body)), ZT_OK);
    assert_int_equal(write(fd, zt_buf_head(&b), zt_buf_used(&b)), zt_buf_used(&b));
    zt_buf_release(&b);
}

static int dial_request(const struct rig *r, const char *request)
{
    int fd = dial(r);
    char body[128];

    snprintf(body, sizeof(body), "{\"request\":\"%s\"}", request);
    put(fd, ZT_FRAME_CTL_REQUEST, body);
    return fd;
}

static void wait_requests(struct rig *r, int num)
{
    double until = zt_now() + 10;

    while (r->num_requests < num)
        assert_true(pump(r, until));
}

/* All frames until the server closes; copied one behind the other. */
static void hear_all(struct rig *r, int fd, struct zt_buf *in)
{
    double until = zt_now() + 20;
    uint8_t block[65536];
    ssize_t k;

    while ((k = read(fd, block, sizeof(block))) != 0) {
        if (k > 0) {
            assert_int_equal(zt_buf_put(in, block, (size_t)k), ZT_OK);
        } else if (errno == ECONNRESET) {
            return;
        } else {
            assert_int_equal(errno, EAGAIN);
            assert_true(pump(r, until));
        }
    }
}

static void expect_closed(struct rig *r, int fd)
{
    struct zt_buf in;

    zt_buf_init(&in, ZT_FRAME_MAX);
    hear_all(r, fd, &in);
    assert_int_equal(zt_buf_used(&in), 0);
    zt_buf_release(&in);
    close(fd);
}

/* ------------------------------------------------------------------ where */

static void test_the_folder_is_made_for_its_owner_alone(void **state)
{
    struct rig r;
    struct stat sb;
    char dir[ZT_CTL_PATH];

    (void)state;
    set_run(&r);
    assert_int_equal(zt_ctl_dir_at(0, false, dir, NULL), ZT_E_NOINPUT);
    assert_int_equal(zt_ctl_dir_at(0, true, dir, NULL), ZT_OK);
    assert_string_equal(dir, r.dir);
    assert_int_equal(stat(dir, &sb), 0);
    assert_int_equal(sb.st_mode & 07777, 0700);
    assert_int_equal(chmod(dir, 0750), 0);
    assert_int_equal(zt_ctl_dir_at(0, true, dir, NULL), ZT_E_SYSTEM);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(symlink("/tmp", dir), 0);
    assert_int_equal(zt_ctl_dir_at(0, true, dir, NULL), ZT_E_SYSTEM);
    drop_run(&r);
}

static void test_a_folder_of_another_user_is_refused(void **state)
{
    struct rig r;
    struct zt_fault fault = {0};
    char dir[ZT_CTL_PATH];

    (void)state;
    if (geteuid() != 0)
        skip();
    set_run(&r);
    assert_int_equal(zt_ctl_dir_at(0, true, dir, NULL), ZT_OK);
    assert_int_equal(chown(dir, 4242, 4242), 0);
    assert_int_equal(zt_ctl_dir_at(0, true, dir, &fault), ZT_E_SYSTEM);
    assert_non_null(strstr(fault.text, "belongs to user 4242"));
    drop_run(&r);
}

static void test_a_long_or_missing_runtime_folder_means_tmp(void **state)
{
    char dir[ZT_CTL_PATH], want[64];

    (void)state;
    snprintf(want, sizeof(want), "/tmp/zlaunch-%u", (unsigned)geteuid());
    assert_int_equal(setenv("XDG_RUNTIME_DIR", "relative", 1), 0);
    assert_int_equal(zt_ctl_dir(dir, NULL), ZT_OK);
    assert_string_equal(dir, want);
    assert_int_equal(setenv("XDG_RUNTIME_DIR",
                            "/tmp/0123456789012345678901234567890123456789012345678901234"
                            "56789/0123456789",
                            1),
                     0);
    assert_int_equal(zt_ctl_dir(dir, NULL), ZT_OK);
    assert_string_equal(dir, want);
}

static void test_the_socket_is_there_while_the_job_runs(void **state)
{
    struct rig r;
    char path[ZT_CTL_PATH];

    (void)state;
    rig_open(&r);
    assert_int_equal(zt_ctl_path(r.dir, JOB, ".sock", path, NULL), ZT_OK);
    assert_int_equal(access(path, F_OK), 0);
    zt_ctl_finish(r.ctl, 0);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(rmdir(r.dir), 0); /* it is empty: nothing hidden either */
    rig_close(&r);
}

/* ------------------------------------------------------------------ what clients do */

static void test_a_question_gets_its_answer_and_the_end(void **state)
{
    struct rig r;
    struct zt_buf in;
    struct zt_frame f;
    json_t *o;
    int fd;

    (void)state;
    rig_open(&r);
    zt_buf_init(&in, ZT_FRAME_MAX);
    fd = dial_request(&r, "status");
    hear_all(&r, fd, &in);
    assert_string_equal(r.request, "status");
    assert_int_equal(zt_frame_peek(&in, &f, NULL), ZT_OK);
    assert_int_equal(f.type, ZT_FRAME_CTL_ANSWER);
    o = zt_json_object(f.body, f.body_bytes);
    assert_string_equal(zt_json_get_text(o, "job", ""), JOB);
    json_decref(o);
    zt_frame_drop(&in, &f);
    assert_int_equal(zt_frame_peek(&in, &f, NULL), ZT_OK);
    assert_int_equal(f.type, ZT_FRAME_CTL_END);
    zt_frame_drop(&in, &f);
    assert_int_equal(zt_buf_used(&in), 0);
    zt_buf_release(&in);
    close(fd);
    rig_close(&r);
}

static void test_an_answer_that_memory_is_out_for_is_no_success(void **state)
{
    static const char *const requests[] = {"status without memory", "status in part"};
    struct rig r;

    (void)state;
    rig_open(&r);
    for (int i = 0; i < 2; i++) {
        int fd = dial_request(&r, requests[i]);
        struct zt_buf in;
        struct zt_frame f;
        json_t *o;

        zt_buf_init(&in, ZT_FRAME_MAX);
        hear_all(&r, fd, &in);
        assert_int_equal(zt_frame_peek(&in, &f, NULL), ZT_OK);
        assert_int_equal(f.type, ZT_FRAME_CTL_END);
        o = zt_json_object(f.body, f.body_bytes);
        assert_int_equal(zt_json_get_int(o, "exit_code", 0), 71);
        assert_non_null(strstr(zt_json_get_text(o, "text", ""), "no memory"));
        json_decref(o);
        zt_frame_drop(&in, &f);
        assert_int_equal(zt_buf_used(&in), 0);
        zt_buf_release(&in);
        close(fd);
    }
    rig_close(&r);
}

static void test_what_is_no_question_closes_the_connection(void **state)
{
    static const char *const garbage[] = {"GET / HTTP/1.1\r\n\r\n", "\0\0\0\0\0\0"};
    struct rig r;
    int fd;

    (void)state;
    rig_open(&r);
    for (size_t i = 0; i < 2; i++) {
        fd = dial(&r);
        assert_int_equal(write(fd, garbage[i], 6), 6);
        expect_closed(&r, fd);
    }
    fd = dial(&r);
    put(fd, ZT_FRAME_STOP, "{}");
    expect_closed(&r, fd);
    fd = dial(&r);
    put(fd, ZT_FRAME_CTL_REQUEST, "{\"request\":7}");
    expect_closed(&r, fd);
    fd = dial(&r);
    put(fd, ZT_FRAME_CTL_REQUEST, "no JSON");
    expect_closed(&r, fd);
    assert_int_equal(r.num_requests, 0);
    rig_close(&r);
}

static void test_a_question_without_end_is_not_kept(void **state)
{
    static const uint8_t head[] = {0, 0x0f, 0, 0, ZT_FRAME_CTL_REQUEST};
    struct rig r;
    uint8_t junk[3000] = {0};
    int fd;

    (void)state;
    rig_open(&r);
    fd = dial(&r);
    assert_int_equal(write(fd, head, sizeof(head)), sizeof(head));
    assert_int_equal(write(fd, junk, sizeof(junk)), sizeof(junk));
    pump(&r, 0);
    assert_int_equal(write(fd, junk, sizeof(junk)), sizeof(junk));
    expect_closed(&r, fd);
    rig_close(&r);
}

static void test_a_second_question_closes_the_connection(void **state)
{
    struct rig r;
    int fd;

    (void)state;
    rig_open(&r);
    fd = dial_request(&r, "anything");
    wait_requests(&r, 1);
    assert_true(zt_ctl_is_connected(r.ctl, r.client));
    put(fd, ZT_FRAME_CTL_REQUEST, "{\"request\":\"status\"}");
    expect_closed(&r, fd);
    assert_int_equal(r.num_requests, 1);
    assert_false(zt_ctl_is_connected(r.ctl, r.client));
    zt_ctl_print(r.ctl, r.client, "to nobody"); /* nothing happens */
    zt_ctl_end(r.ctl, r.client, 0, NULL);
    rig_close(&r);
}

static void test_a_silent_client_is_closed(void **state)
{
    struct rig r;

    (void)state;
    rig_open(&r);
    expect_closed(&r, dial(&r));
    rig_close(&r);
}

static void test_one_client_too_many_is_told_so(void **state)
{
    struct rig r;
    struct zt_buf in;
    struct zt_frame f;
    int fds[ZT_CTL_CLIENTS], fd;

    (void)state;
    rig_open(&r);
    for (int i = 0; i < ZT_CTL_CLIENTS; i++)
        fds[i] = dial_request(&r, "attach");
    wait_requests(&r, ZT_CTL_CLIENTS);
    zt_buf_init(&in, ZT_FRAME_MAX);
    fd = dial(&r);
    hear_all(&r, fd, &in);
    assert_int_equal(zt_frame_peek(&in, &f, NULL), ZT_OK);
    assert_int_equal(f.type, ZT_FRAME_CTL_END);
    zt_buf_release(&in);
    close(fd);
    for (int i = 0; i < ZT_CTL_CLIENTS; i++)
        close(fds[i]);
    rig_close(&r);
}

/* ------------------------------------------------------------------ lines */

static void line(struct rig *r, int stream, int i)
{
    char text[32];

    snprintf(text, sizeof(text), "line %d", i);
    zt_ctl_publish_line(r->ctl, stream, "[rank 3] ", text, strlen(text));
}

static int end_code(const struct zt_frame *f)
{
    json_t *o = zt_json_object(f->body, f->body_bytes);
    int code = (int)zt_json_get_int(o, "exit_code", -1);

    json_decref(o);
    return code;
}

static void test_a_follower_gets_the_last_lines_and_all_that_come(void **state)
{
    struct rig r;
    struct zt_buf in;
    struct zt_frame f;
    int fd, want = 250 - ZT_CTL_RING_LINES;
    char text[64];

    (void)state;
    rig_open(&r);
    for (int i = 0; i < 250; i++)
        line(&r, 2, i);
    fd = dial_request(&r, "attach");
    wait_requests(&r, 1);
    for (int i = 250; i < 260; i++)
        line(&r, 2, i);
    zt_ctl_finish(r.ctl, 42);
    zt_buf_init(&in, ZT_FRAME_MAX);
    hear_all(&r, fd, &in);
    while (zt_frame_peek(&in, &f, NULL) == ZT_OK && f.type == ZT_FRAME_CTL_LINE) {
        snprintf(text, sizeof(text), "[rank 3] line %d", want++);
        assert_int_equal(f.body[0], 2);
        assert_int_equal(f.body_bytes, strlen(text) + 1);
        assert_memory_equal(f.body + 1, text, strlen(text));
        zt_frame_drop(&in, &f);
    }
    assert_int_equal(want, 260);
    assert_int_equal(f.type, ZT_FRAME_CTL_END);
    assert_int_equal(end_code(&f), 42);
    zt_buf_release(&in);
    close(fd);
    rig_close(&r);
}

static void test_long_lines_push_out_more_than_one(void **state)
{
    struct rig r;
    struct zt_buf in;
    size_t n = 2 * ZT_CTL_LINE_BYTES;
    char *text = malloc(n);
    int fd;

    (void)state;
    assert_non_null(text);
    memset(text, 'x', n);
    rig_open(&r);
    for (int i = 0; i < 50; i++)
        zt_ctl_publish_line(r.ctl, 1, "", text, n);
    fd = dial_request(&r, "attach");
    wait_requests(&r, 1);
    zt_ctl_finish(r.ctl, 0);
    zt_buf_init(&in, 2 * ZT_FRAME_MAX);
    hear_all(&r, fd, &in);
    assert_in_range(zt_buf_used(&in), ZT_CTL_LINE_BYTES, ZT_CTL_RING_BYTES + 100);
    zt_buf_release(&in);
    close(fd);
    free(text);
    rig_close(&r);
}

/* A number in the text of a line that says how many are missing; 0: it is another line */
static unsigned long long missing(const struct zt_frame *f)
{
    unsigned long long n = 0;
    char text[256];

    snprintf(text, sizeof(text), "%.*s", (int)f->body_bytes - 1,
             (const char *)f->body + 1);
    return sscanf(text, "zlaunch: warning: %llu lines are left out", &n) == 1 ? n : 0;
}

static void test_a_slow_follower_loses_lines_and_is_told_how_many(void **state)
{
    struct rig r;
    struct zt_buf in;
    struct zt_frame f;
    char text[1000];
    unsigned long long got = 0, lost = 0;
    const unsigned sent = 8000;
    int fd;

    (void)state;
    rig_open(&r);
    fd = dial_request(&r, "attach");
    wait_requests(&r, 1);
    memset(text, 'x', sizeof(text));
    for (unsigned i = 0; i < sent; i++) {
        zt_ctl_publish_line(r.ctl, 1, "", text, sizeof(text));
        if (i % 100 == 0)
            uv_run(&r.loop, UV_RUN_NOWAIT);
    }
    assert_false(zt_ctl_flushed(r.ctl));
    zt_ctl_finish(r.ctl, 0);
    zt_buf_init(&in, 8 * ZT_FRAME_MAX);
    hear_all(&r, fd, &in);
    assert_in_range(zt_buf_used(&in), 1, 3 * ZT_FRAME_MAX);
    while (zt_frame_peek(&in, &f, NULL) == ZT_OK && f.type == ZT_FRAME_CTL_LINE) {
        unsigned long long n = missing(&f);

        lost += n;
        got += n == 0;
        zt_frame_drop(&in, &f);
    }
    assert_int_equal(f.type, ZT_FRAME_CTL_END);
    assert_true(lost > 0);
    assert_int_equal(got + lost, sent);
    zt_buf_release(&in);
    close(fd);
    rig_close(&r);
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
        cmocka_unit_test(test_the_folder_is_made_for_its_owner_alone),
        cmocka_unit_test(test_a_folder_of_another_user_is_refused),
        cmocka_unit_test(test_a_long_or_missing_runtime_folder_means_tmp),
        cmocka_unit_test(test_the_socket_is_there_while_the_job_runs),
        cmocka_unit_test(test_a_question_gets_its_answer_and_the_end),
        cmocka_unit_test(test_an_answer_that_memory_is_out_for_is_no_success),
        cmocka_unit_test(test_what_is_no_question_closes_the_connection),
        cmocka_unit_test(test_a_question_without_end_is_not_kept),
        cmocka_unit_test(test_a_second_question_closes_the_connection),
        cmocka_unit_test(test_a_silent_client_is_closed),
        cmocka_unit_test(test_one_client_too_many_is_told_so),
        cmocka_unit_test(test_a_follower_gets_the_last_lines_and_all_that_come),
        cmocka_unit_test(test_long_lines_push_out_more_than_one),
        cmocka_unit_test(test_a_slow_follower_loses_lines_and_is_told_how_many),
        cmocka_unit_test(test_a_job_is_found_by_id_prefix_or_as_the_last),
        cmocka_unit_test(test_the_last_job_that_has_ended_is_the_one_that_began_last),
        cmocka_unit_test(test_a_place_that_is_open_to_others_is_passed_over),
        cmocka_unit_test(test_the_socket_of_a_killed_job_is_removed),
        cmocka_unit_test(test_what_killed_jobs_left_goes_and_what_lives_stays),
        cmocka_unit_test(test_a_job_that_ends_in_libuv_leaves_what_the_next_removes),
    };

    zt_json_watch_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
