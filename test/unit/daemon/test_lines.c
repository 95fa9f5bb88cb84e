/* However the bytes are cut, the same lines come out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "worker/daemon/lines.h"

static void collect(void *arg, const char *lines, size_t n)
{
    assert_true(n > 0);
    assert_int_equal(lines[n - 1], '\n');
    assert_int_equal(zt_buf_put(arg, lines, n), ZT_OK);
}

/* Feed `text` in pieces of `cut` bytes; what came out must be `want`. */
static void expect(const char *text, size_t n, size_t cut, const char *want)
{
    struct zt_buf out;
    struct zt_lines l;

    zt_buf_init(&out, 1 << 22);
    zt_lines_init(&l);
    for (size_t i = 0; i < n; i += cut)
        assert_int_equal(
            zt_lines_feed(&l, text + i, n - i < cut ? n - i : cut, collect, &out), ZT_OK);
    zt_lines_finish(&l, collect, &out);
    zt_lines_finish(&l, collect, &out); /* twice is once */
    assert_int_equal(zt_buf_used(&out), strlen(want));
    assert_memory_equal(zt_buf_head(&out), want, strlen(want));
    zt_lines_release(&l);
    zt_buf_release(&out);
}

static void lines_do_not_depend_on_how_the_bytes_are_cut(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"a\nbb\n\nc\n", "a\nbb\n\nc\n"},
        {"no end", "no end\n"},
        {"", ""},
        {"a\r\nb\r\n", "a\nb\n"},
        {"\r 10%\r 20%\r 30%\ndone\n", " 10%\n 20%\n 30%\ndone\n"},
        {"x\r", "x\n"},
        {"x\r\r\ny", "x\n\ny\n"},
        {"\n\n", "\n\n"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        for (size_t cut = 1; cut < 12; cut++)
            expect(cases[i].text, strlen(cases[i].text), cut, cases[i].want);
}

static void nothing_is_handed_out_before_its_line_ends(void **state)
{
    struct zt_buf out;
    struct zt_lines l;

    (void)state;
    zt_buf_init(&out, 100);
    zt_lines_init(&l);
    assert_int_equal(zt_lines_feed(&l, "one\ntw", 6, collect, &out), ZT_OK);
    assert_int_equal(zt_buf_used(&out), 4);
    assert_int_equal(zt_lines_feed(&l, "o", 1, collect, &out), ZT_OK);
    assert_int_equal(zt_buf_used(&out), 4);
    zt_lines_release(&l);
    zt_buf_release(&out);
}

static void a_line_too_long_is_cut_at_the_cap(void **state)
{
    size_t n = 2 * ZT_LINE_MAX + 10;
    char *text = malloc(n), *want = malloc(n + 4);

    (void)state;
    memset(text, 'x', n);
    memset(want, 'x', n + 4);
    want[ZT_LINE_MAX] = want[2 * ZT_LINE_MAX + 1] = want[n + 2] = '\n';
    want[n + 3] = 0;
    for (size_t cut = 1000; cut < 200000; cut *= 4)
        expect(text, n, cut, want);
    /* exactly at the cap: one line, no empty one after it */
    text[ZT_LINE_MAX] = '\n';
    want[ZT_LINE_MAX + 1] = 0;
    expect(text, ZT_LINE_MAX + 1, 4096, want);
    free(text);
    free(want);
}

static void no_character_is_cut_in_two(void **state)
{
    static const char euro[] = "\xe2\x82\xac";

    (void)state;
    for (size_t ahead = 0; ahead < 3; ahead++) {
        char *text = malloc(ZT_LINE_MAX + 8), *want = malloc(ZT_LINE_MAX + 10);
        size_t n = ZT_LINE_MAX - ahead, before = ahead ? n + 3 : n;

        memset(text, 'x', n);
        memcpy(text + n, euro, 3);
        text[n + 3] = 'y';
        memcpy(want, text, before);
        want[before] = '\n';
        memcpy(want + before + 1, text + before, n + 4 - before);
        strcpy(want + n + 5, "\n");
        for (size_t cut = 1000; cut < 200000; cut *= 4)
            expect(text, n + 4, cut, want);
        free(text);
        free(want);
    }
}

static void bytes_that_are_no_text_are_cut_too(void **state)
{
    size_t n = 2 * ZT_LINE_MAX + 6;
    char *text = malloc(n), *want = malloc(n + 3);

    (void)state;
    memset(text, '\x80', n);
    memset(want, '\x80', n + 2);
    want[ZT_LINE_MAX + 3] = want[n + 1] = '\n';
    want[n + 2] = 0;
    expect(text, n, 4096, want);
    free(text);
    free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_do_not_depend_on_how_the_bytes_are_cut),
        cmocka_unit_test(nothing_is_handed_out_before_its_line_ends),
        cmocka_unit_test(a_line_too_long_is_cut_at_the_cap),
        cmocka_unit_test(no_character_is_cut_in_two),
        cmocka_unit_test(bytes_that_are_no_text_are_cut_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
