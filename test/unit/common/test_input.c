/* Standard input by lines, whatever pieces it comes in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/message/input.h"

/* All of text, written `piece` bytes at a time, and what is taken after each piece: lines with
 * a bar behind each, and "E" for the end. */
static const char *lines_of(const char *text, size_t n, size_t piece, int64_t *too_long)
{
    static struct zt_buf out = {.max = 1 << 20};
    struct zt_line_reader r;
    zt_input_kind kind = ZT_INPUT_NONE;
    int ends[2];

    zt_buf_release(&out);
    zt_buf_init(&out, 1 << 20);
    zt_line_reader_init(&r);
    assert_int_equal(pipe(ends), 0);
    for (size_t at = 0; kind != ZT_INPUT_END;) {
        size_t k = piece < n - at ? piece : n - at;

        if (k)
            assert_int_equal(write(ends[1], text + at, k), k);
        else if (ends[1] >= 0)
            ends[1] = close(ends[1]) ? -2 : -1;
        at += k;
        zt_line_reader_fill(&r, ends[0]);
        while ((kind = zt_line_reader_take(&r, &out)) == ZT_INPUT_LINE)
            assert_int_equal(zt_buf_put_u8(&out, '|'), ZT_OK);
    }
    assert_int_equal(zt_buf_put(&out, "E", 2), ZT_OK);
    close(ends[0]);
    *too_long = r.too_long;
    zt_line_reader_release(&r);
    return (const char *)zt_buf_head(&out);
}

static void lines_are_the_same_in_any_pieces(void **state)
{
    const char *text = "one\n\ntwo words\nthe last has no end";
    int64_t too_long;

    (void)state;
    for (size_t piece = 1; piece < 40; piece++) {
        assert_string_equal(lines_of(text, strlen(text), piece, &too_long),
                            "one||two words|the last has no end|E");
        assert_int_equal(too_long, 0);
    }
    assert_string_equal(lines_of("", 0, 1, &too_long), "E");
    assert_string_equal(lines_of("\n", 1, 1, &too_long), "|E");
}

static void a_line_that_is_too_long_is_passed_over_and_counted(void **state)
{
    const size_t n = ZT_INPUT_MAX;
    char *text = malloc(3 * n);
    int64_t too_long;
    size_t at = 0;

    (void)state;
    assert_non_null(text);
    memcpy(text, "a\n", 2);
    at = 2;
    memset(text + at, 'x', 2 * n);
    at += 2 * n;
    memcpy(text + at, "\nb\n", 3);
    at += 3;
    assert_string_equal(lines_of(text, at, 1000, &too_long), "a|b|E");
    assert_int_equal(too_long, 1);
    assert_string_equal(lines_of(text, at - 3, 4096, &too_long), "a|E");
    assert_int_equal(too_long, 1);
    assert_int_equal(strlen(lines_of(text + 2, n, 4096, &too_long)), n + 2);
    assert_int_equal(too_long, 0);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_the_same_in_any_pieces),
        cmocka_unit_test(a_line_that_is_too_long_is_passed_over_and_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
