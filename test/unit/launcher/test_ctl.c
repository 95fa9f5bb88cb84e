/* The control socket: who may open it, what clients can do, and what they cannot. */
#include "test/unit/launcher/ctl_rig.h"

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
    };

    zt_json_watch_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
