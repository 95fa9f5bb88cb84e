/* A rank's calls arrive at its supervisor as frames, and its phase without one. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/message/event.h"
#include "common/message/frame.h"
#include "common/json/line.h"
#include "common/log.h"
#include "common/message/phase.h"

static int ours = -1, theirs = -1, phases = -1;

static void set_fd(const char *name, int fd)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", fd);
    setenv(name, text, 1);
}

static int setup(void **state)
{
    int pair[2];

    (void)state;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        return -1;
    ours = pair[0];
    theirs = pair[1];
    phases = memfd_create("phases", 0);
    if (ftruncate(phases, 2 * sizeof(struct zt_phase_slot)) < 0)
        return -1;
    set_fd("ZLAUNCH_CONTROL_FD", theirs);
    set_fd("ZLAUNCH_STATE_FD", phases);
    setenv("LOCAL_RANK", "1", 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    zt_event_close();
    close(ours);
    close(theirs);
    close(phases);
    return 0;
}

/* The next frame of this type, as JSON; NULL: none is waiting. */
static json_t *next_of(zt_frame_type type)
{
    static struct zt_buf in = {.max = 2 * ZT_FRAME_MAX};
    char block[4096];
    struct zt_frame f;
    json_t *o;
    ssize_t k = recv(ours, block, sizeof(block), MSG_DONTWAIT);

    if (k > 0)
        assert_int_equal(zt_buf_put(&in, block, (size_t)k), ZT_OK);
    if (zt_frame_peek(&in, &f, NULL) != ZT_OK) {
        zt_buf_release(&in);
        return NULL;
    }
    assert_int_equal(f.type, type);
    o = zt_json_object(f.body, f.body_bytes);
    assert_non_null(o);
    zt_frame_drop(&in, &f);
    return o;
}

static json_t *next(void)
{
    return next_of(ZT_FRAME_EVENT);
}

static void a_step_carries_every_field(void **state)
{
    struct zt_step_stats s = {.step = 3,
                              .total_steps = 10,
                              .loss = 0.1,
                              .lr = 1.0 / 3,
                              .grad_norm = NAN,
                              .tokens = 3e9,
                              .seconds = 3,
                              .samples = 24,
                              .skipped = 1,
                              .peak_device_bytes = INT64_C(1) << 40,
                              .fingerprint = 0xfedcba9876543210u,
                              .has_fingerprint = true};
    struct zt_metric_value values[ZT_MAX_METRICS];
    json_t *o;

    (void)state;
    zt_event_open(0, 2);
    zt_event_metrics(ZT_METRIC_STEP, values, zt_step_metrics_measure(&s, values));
    o = next();
    assert_string_equal(zt_json_get_text(o, "event", ""), "step");
    assert_int_equal(zt_json_get_int(o, "step", 0), 3);
    assert_true(zt_json_get_real(o, "loss", 0) == 0.1);
    assert_true(zt_json_get_real(o, "lr", 0) == 1.0 / 3);
    assert_true(isnan(zt_json_get_real(o, "grad_norm", 0)));
    assert_true(zt_json_get_real(o, "tokens_per_s", 0) == 1e9);
    assert_int_equal(zt_json_get_int(o, "samples", 0), 24);
    assert_int_equal(zt_json_get_int(o, "skipped", 0), 1);
    assert_int_equal(zt_json_get_int(o, "peak_device_bytes", 0), INT64_C(1) << 40);
    assert_string_equal(zt_json_get_text(o, "fingerprint", ""), "fedcba9876543210");
    assert_null(json_object_get(o, "gemm_share"));
    json_decref(o);
}

static void steps_come_from_rank_0_alone_and_failures_from_any(void **state)
{
    struct zt_step_stats s = {.step = 1, .seconds = 1};
    struct zt_metric_value values[ZT_MAX_METRICS];
    struct zt_fault fault;
    json_t *o;

    (void)state;
    zt_fault_set(&fault, ZT_E_PEER, "rank 0 is gone");
    zt_event_open(1, 2);
    zt_event_metrics(ZT_METRIC_STEP, values, zt_step_metrics_measure(&s, values));
    assert_null(next());
    zt_event_fail(&fault);
    o = next();
    assert_string_equal(zt_json_get_text(o, "event", ""), "fail");
    assert_string_equal(zt_json_get_text(o, "text", ""), "rank 0 is gone");
    assert_int_equal(zt_json_get_int(o, "exit_code", 0), 1);
    assert_true(json_is_true(json_object_get(o, "peer")));
    json_decref(o);
    zt_fault_set(&fault, ZT_E_LOST, "the connection to rank 0 broke");
    zt_event_fail(&fault);
    o = next();
    assert_string_equal(zt_json_get_text(o, "code", ""), "connection lost");
    assert_int_equal(zt_json_get_int(o, "exit_code", 0), 69);
    assert_true(json_is_true(json_object_get(o, "peer")));
    json_decref(o);
}

static void the_phase_is_in_the_shared_page_and_is_the_last_one(void **state)
{
    struct zt_phase_slot slots[2];
    char text[ZT_PHASE_TEXT], longer[400];

    (void)state;
    zt_event_open(1, 2);
    zt_event_phase("plugin build");
    zt_event_phase("train step 7");
    assert_int_equal(pread(phases, slots, sizeof(slots), 0), sizeof(slots));
    zt_phase_read(&slots[1], text);
    assert_string_equal(text, "train step 7");
    zt_phase_read(&slots[0], text);
    assert_string_equal(text, "");
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = 0;
    zt_event_phase(longer);
    assert_int_equal(pread(phases, slots, sizeof(slots), 0), sizeof(slots));
    zt_phase_read(&slots[1], text);
    assert_int_equal(strlen(text), ZT_PHASE_TEXT - 1);
    assert_null(next());
}

static void a_supervisor_that_is_gone_does_not_stop_the_rank(void **state)
{
    (void)state;
    zt_event_open(0, 1);
    close(ours);
    zt_event_text("note", "nobody hears this");
    zt_event_text("note", "nor this");
    zt_event_phase("still here");
}

static void a_json_log_goes_to_the_supervisor_and_not_to_stderr(void **state)
{
    json_t *o;

    (void)state;
    zt_log_init(ZT_LOG_INFO, true, "zworker");
    zt_event_open(1, 2);
    zt_warn("weights", "a \"name\"\nis odd");
    o = next_of(ZT_FRAME_LOG);
    assert_string_equal(zt_json_get_text(o, "event", ""), "log");
    assert_string_equal(zt_json_get_text(o, "level", ""), "warning");
    assert_int_equal(zt_json_get_int(o, "rank", 0), 1);
    assert_string_equal(zt_json_get_text(o, "module", ""), "weights");
    assert_string_equal(zt_json_get_text(o, "msg", ""), "a \"name\"\nis odd");
    json_decref(o);
    zt_log_init(ZT_LOG_INFO, false, "zworker");
    zt_warn("weights", "text"); /* to stderr */
    assert_null(next());
}

static void a_json_log_is_utf8_whatever_the_text_is(void **state)
{
    static const char *const cases[][2] = {
        {"caf\xc3\xa9 \xe6\x97\xa5 \xf0\x9f\x98\x80\x7f", NULL},
        {"cut \xe6\x97", "cut \xef\xbf\xbd\xef\xbf\xbd"},
        {"\xe9t\xe9", "\xef\xbf\xbdt\xef\xbf\xbd"},
        {"\xc0\x80\xff", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* half of a pair */
    };
    char longer[6000];
    json_t *o;

    (void)state;
    zt_log_init(ZT_LOG_INFO, true, "zworker");
    zt_event_open(1, 2);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        zt_info("data", "%s", cases[i][0]);
        o = next_of(ZT_FRAME_LOG);
        assert_string_equal(zt_json_get_text(o, "msg", ""),
                            cases[i][1] ? cases[i][1] : cases[i][0]);
        json_decref(o);
    }
    for (size_t i = 0; i + 2 < sizeof(longer); i += 2)
        memcpy(longer + i, "\xc3\xbc", 3);
    zt_info("data", "%s", longer);
    o = next_of(ZT_FRAME_LOG);
    assert_non_null(o);
    json_decref(o);
    zt_log_init(ZT_LOG_INFO, false, "zworker");
}

struct talker {
    pthread_t thread;
    int lines;
};

static void *talk(void *arg)
{
    struct talker *t = arg;

    for (int i = 0; i < t->lines; i++)
        zt_info("test", "line %d", i);
    return NULL;
}

static void log_lines_of_several_threads_and_events_do_not_mix(void **state)
{
    struct talker t[3] = {{.lines = 30}, {.lines = 30}, {.lines = 30}};
    struct zt_buf in = {.max = 2 * ZT_FRAME_MAX};
    int logs = 0, events = 0;
    struct zt_frame f;
    char block[4096];

    (void)state;
    zt_log_init(ZT_LOG_INFO, true, "zworker");
    zt_event_open(1, 2);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&t[i].thread, NULL, talk, &t[i]), 0);
    for (int i = 0; i < 10; i++)
        zt_event_text("note", "between");
    while (logs < 90 || events < 10) {
        ssize_t k = recv(ours, block, sizeof(block), 0);

        assert_true(k > 0);
        assert_int_equal(zt_buf_put(&in, block, (size_t)k), ZT_OK);
        while (zt_frame_peek(&in, &f, NULL) == ZT_OK) {
            json_t *o = zt_json_object(f.body, f.body_bytes);

            assert_non_null(o);
            json_decref(o);
            logs += f.type == ZT_FRAME_LOG;
            events += f.type == ZT_FRAME_EVENT;
            zt_frame_drop(&in, &f);
        }
    }
    for (int i = 0; i < 3; i++)
        pthread_join(t[i].thread, NULL);
    zt_buf_release(&in);
    zt_log_init(ZT_LOG_INFO, false, "test");
}

static void send_frame(zt_frame_type type, const void *body, size_t n)
{
    struct zt_buf b = {.max = 2 * ZT_FRAME_MAX};

    assert_int_equal(zt_frame_put(&b, type, body, n), ZT_OK);
    assert_int_equal(send(ours, zt_buf_head(&b), zt_buf_used(&b), 0), zt_buf_used(&b));
    zt_buf_release(&b);
}

static void a_rank_that_asks_gets_lines_and_what_ends_an_answer(void **state)
{
    const char *request = "{\"id\":7,\"request\":\"save\"}";
    struct zt_buf line = {.max = ZT_INPUT_MAX};
    json_t *o;

    (void)state;
    zt_event_open(0, 1);
    zt_event_ask();
    o = next();
    assert_string_equal(zt_json_get_text(o, "event", ""), "ask");
    json_decref(o);
    assert_int_equal(zt_event_wait_input(&line, 0), ZT_INPUT_NONE);
    send_frame(ZT_FRAME_INPUT, "\3", 1); /* of the answer before */
    send_frame(ZT_FRAME_REQUEST, request, strlen(request));
    send_frame(ZT_FRAME_INPUT, "\1hello", 6);
    assert_int_equal(zt_event_wait_input(&line, 1000), ZT_INPUT_LINE);
    assert_int_equal(zt_buf_used(&line), 5);
    assert_memory_equal(zt_buf_head(&line), "hello", 5);
    o = next();
    assert_int_equal(zt_json_get_int(o, "id", 0), 7);
    assert_true(json_is_false(json_object_get(o, "ok")));
    assert_int_equal(zt_json_get_int(o, "exit_code", 0), 1);
    json_decref(o);
    assert_false(zt_event_interrupted());
    send_frame(ZT_FRAME_INPUT, "\3", 1);
    assert_true(zt_event_interrupted());
    assert_false(zt_event_interrupted());
    send_frame(ZT_FRAME_INPUT, "\2", 1);
    assert_int_equal(zt_event_wait_input(&line, 1000), ZT_INPUT_END);
    zt_buf_release(&line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_step_carries_every_field, setup, teardown),
        cmocka_unit_test_setup_teardown(
            steps_come_from_rank_0_alone_and_failures_from_any, setup, teardown),
        cmocka_unit_test_setup_teardown(
            the_phase_is_in_the_shared_page_and_is_the_last_one, setup, teardown),
        cmocka_unit_test_setup_teardown(a_supervisor_that_is_gone_does_not_stop_the_rank,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_json_log_goes_to_the_supervisor_and_not_to_stderr, setup, teardown),
        cmocka_unit_test_setup_teardown(a_json_log_is_utf8_whatever_the_text_is, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            a_rank_that_asks_gets_lines_and_what_ends_an_answer, setup, teardown),
        cmocka_unit_test_setup_teardown(
            log_lines_of_several_threads_and_events_do_not_mix, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
