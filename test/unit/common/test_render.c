/* What comes out for a person and for a program, byte by byte. */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/human.h"
#include "common/json/line.h"
#include "common/message/render.h"

struct screen {
    struct zt_render *r;
    int out, err;
    char text[65536];
};

static void open_screen(struct screen *s, bool json, bool tag)
{
    struct zt_render_config cfg = {.json = json,
                                   .tag = tag,
                                   .level = ZT_LOG_INFO,
                                   .who = "zlaunch",
                                   .out_fd = s->out = memfd_create("out", MFD_CLOEXEC),
                                   .err_fd = s->err = memfd_create("err", MFD_CLOEXEC)};

    assert_int_equal(zt_render_open(&cfg, &s->r, NULL), ZT_OK);
}

static const char *shown(struct screen *s, int fd)
{
    ssize_t n;

    zt_render_drain(s->r);
    n = pread(fd, s->text, sizeof(s->text) - 1, 0);
    assert_true(n >= 0);
    s->text[n] = 0;
    return s->text;
}

static void close_screen(struct screen *s)
{
    zt_render_close(s->r);
    close(s->out);
    close(s->err);
}

static void lines_are_tagged_and_go_to_their_stream(void **state)
{
    struct screen s;

    (void)state;
    open_screen(&s, false, true);
    zt_render_output(s.r, 0, 1, "a\nb\n", 4);
    zt_render_output(s.r, 12, 2, "c\n\n", 3);
    assert_string_equal(shown(&s, s.out), "[rank 0] a\n[rank 0] b\n");
    assert_string_equal(shown(&s, s.err), "[rank 12] c\n[rank 12] \n");
    close_screen(&s);
}

static void numbers_read_back_as_the_same_double(void **state)
{
    struct zt_buf b;

    (void)state;
    srand(3);
    zt_buf_init(&b, 1000);
    for (int i = 0; i < 20000; i++) {
        uint64_t bits =
            ((uint64_t)rand() << 42) ^ ((uint64_t)rand() << 21) ^ (uint64_t)rand();
        double x, y;
        json_t *v, *back;

        memcpy(&x, &bits, sizeof(x));
        if (!isfinite(x))
            continue;
        v = zt_json_real(x);
        zt_buf_drop(&b, zt_buf_used(&b));
        assert_int_equal(zt_json_put(&b, v), ZT_OK);
        back = json_loadb((const char *)zt_buf_head(&b), zt_buf_used(&b), JSON_DECODE_ANY,
                          NULL);
        assert_true(json_is_real(back));
        y = json_real_value(back);
        assert_memory_equal(&x, &y, sizeof(x));
        json_decref(v);
        json_decref(back);
    }
    zt_buf_release(&b);
}

static void what_is_no_number_travels_as_a_string(void **state)
{
    static const double values[] = {NAN, INFINITY, -INFINITY};

    (void)state;
    for (int i = 0; i < 3; i++) {
        json_t *o = json_pack("{so}", "x", zt_json_real(values[i]));
        double back = zt_json_get_real(o, "x", 7);

        assert_true(isnan(values[i]) ? isnan(back) : back == values[i]);
        json_decref(o);
    }
}

static void any_bytes_become_valid_json(void **state)
{
    static const char text[] = "a\"\\\n\t\x01\xff\xc3\xa9\xed\xa0\x80\xf4\x90\x80\x80 z";
    json_t *v = zt_json_text(text, sizeof(text)); /* with the NUL */
    struct zt_buf b;
    json_t *back;

    (void)state;
    zt_buf_init(&b, 1000);
    assert_int_equal(zt_json_put(&b, v), ZT_OK);
    back = json_loadb((const char *)zt_buf_head(&b), zt_buf_used(&b),
                      JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    assert_non_null(back);
    assert_true(json_equal(v, back));
    assert_non_null(strstr(json_string_value(back), "\xc3\xa9"));
    assert_null(memchr(zt_buf_head(&b), '\n', zt_buf_used(&b)));
    json_decref(v);
    json_decref(back);
    zt_buf_release(&b);
}

static void an_evaluation_is_a_result(void **state)
{
    json_t *ev = json_pack("{ss si sf sf si}", "event", "eval", "step", 12, "loss", 3.25,
                           "perplexity", 25.79, "tokens", 100);
    struct screen s;

    (void)state;
    assert_non_null(ev);
    open_screen(&s, false, true);
    zt_render_event(s.r, 0, ev);
    assert_string_equal(
        shown(&s, s.out),
        "eval at step 12  loss 3.2500  perplexity 25.79  over 100 tokens\n");
    assert_string_equal(shown(&s, s.err), "");
    close_screen(&s);
    json_decref(ev);
}

static void a_step_is_one_line_of_what_people_look_for(void **state)
{
    json_t *ev =
        json_pack("{ss si si sf sf ss sf si si sf sf ss}", "event", "step", "step", 12,
                  "total_steps", 100, "loss", 3.25, "lr", 3e-4, "grad_norm", "NaN",
                  "tokens_per_s", 45123.0, "skipped", 2, "peak_device_bytes", 1 << 20,
                  "gemm_share", 0.61, "eta_s", 125.0, "fingerprint", "00000000deadbeef");
    struct screen s;

    (void)state;
    assert_non_null(ev);
    open_screen(&s, false, true);
    zt_render_event(s.r, 0, ev);
    assert_string_equal(
        shown(&s, s.err),
        "step 12/100  loss 3.2500  lr 0.0003  grad nan  45.1k tok/s  61% of "
        "GEMM peak  mem 1.0 MiB  skipped 2  fingerprint 00000000deadbeef  eta "
        "2m05s\n");
    assert_string_equal(shown(&s, s.out), "");
    close_screen(&s);
    open_screen(&s, true, true);
    zt_render_event(s.r, 0, ev);
    assert_non_null(
        strstr(shown(&s, s.out), "\"event\":\"step\",\"rank\":0,\"step\":12,"));
    assert_non_null(strstr(s.text, "\"grad_norm\":\"NaN\""));
    assert_string_equal(shown(&s, s.err), "");
    close_screen(&s);
    json_decref(ev);
}

static void a_live_line_is_taken_away_before_another_line(void **state)
{
    struct zt_render_config cfg = {.live = true, .level = ZT_LOG_INFO, .who = "z"};
    json_t *ev = json_pack("{ss si}", "event", "step", "step", 1);
    const char *p;
    struct screen s;

    (void)state;
    cfg.out_fd = s.out = memfd_create("out", MFD_CLOEXEC);
    cfg.err_fd = s.err = memfd_create("err", MFD_CLOEXEC);
    assert_int_equal(zt_render_open(&cfg, &s.r, NULL), ZT_OK);
    zt_render_event(s.r, 0, ev);
    zt_render_message(s.r, ZT_LOG_INFO, "hello");
    p = strstr(shown(&s, s.err), "z: hello\n");
    assert_non_null(p);
    assert_int_equal(s.text[0], '\r');
    assert_int_equal(p[-1], '\r');
    assert_int_equal(p[-2], ' '); /* blanks over the step line */
    close_screen(&s);
    json_decref(ev);
}

static void json_log_lines_of_a_rank_pass_unchanged(void **state)
{
    static const char line[] = "{\"ts\":\"2026\",\"event\":\"log\",\"msg\":\"x\"}\n";
    struct screen s;

    (void)state;
    open_screen(&s, true, true);
    zt_render_log(s.r, 1, line, sizeof(line) - 2);
    assert_string_equal(shown(&s, s.out), line);
    close_screen(&s);
    open_screen(&s, true, true);
    zt_render_log(s.r, 1, "no JSON", 7);
    assert_non_null(
        strstr(shown(&s, s.out), "\"stream\":\"stderr\",\"text\":\"no JSON\""));
    close_screen(&s);
    open_screen(&s, true, true);
    zt_render_log(s.r, 1, "{}\n{}", 5); /* two lines are not one */
    assert_non_null(strstr(shown(&s, s.out), "\"text\":\"{}\"}\n{\"ts\""));
    close_screen(&s);
}

static void what_a_rank_prints_is_output_even_if_it_looks_like_an_event(void **state)
{
    static const char line[] = "{\"ts\":\"2026\",\"event\":\"end\",\"exit_code\":0}\n";
    struct screen s;

    (void)state;
    for (int stream = 1; stream <= 2; stream++) {
        open_screen(&s, true, true);
        zt_render_output(s.r, 1, stream, line, sizeof(line) - 1);
        assert_non_null(strstr(shown(&s, s.out), "\"event\":\"output\",\"rank\":1,"));
        assert_non_null(strstr(s.text, "\"text\":\"{\\\"ts\\\":\\\"2026\\\""));
        assert_null(strstr(s.text, "\"event\":\"end\""));
        close_screen(&s);
    }
}

static void human_numbers_are_short(void **state)
{
    char h[ZT_HUMAN];

    (void)state;
    assert_string_equal(zt_human_bytes(h, 1023), "1023 B");
    assert_string_equal(zt_human_bytes(h, 1.5 * 1024), "1.5 KiB");
    assert_string_equal(zt_human_bytes(h, 1048575), "1.0 MiB");
    assert_string_equal(zt_human_count(h, 999), "999");
    assert_string_equal(zt_human_count(h, 999999), "1.0M");
    assert_string_equal(zt_human_seconds(h, 59.6), "1m00s");
    assert_string_equal(zt_human_seconds(h, 7260), "2h01m");
    assert_string_equal(zt_human_seconds(h, NAN), "?");
    assert_string_equal(zt_human_seconds(h, 1e30), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_tagged_and_go_to_their_stream),
        cmocka_unit_test(numbers_read_back_as_the_same_double),
        cmocka_unit_test(what_is_no_number_travels_as_a_string),
        cmocka_unit_test(any_bytes_become_valid_json),
        cmocka_unit_test(an_evaluation_is_a_result),
        cmocka_unit_test(a_step_is_one_line_of_what_people_look_for),
        cmocka_unit_test(a_live_line_is_taken_away_before_another_line),
        cmocka_unit_test(json_log_lines_of_a_rank_pass_unchanged),
        cmocka_unit_test(what_a_rank_prints_is_output_even_if_it_looks_like_an_event),
        cmocka_unit_test(human_numbers_are_short),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
