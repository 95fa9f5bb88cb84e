#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/json/tree.h"

struct reading {
    struct zt_text_arena arena;
    struct zt_problems report;
    struct zt_jnode *root;
};

static void read_bytes(struct reading *r, const char *text, size_t n)
{
    char *exact = malloc(n ? n : 1); /* so that a sanitizer sees a byte too far */

    assert_non_null(exact);
    memcpy(exact, text, n);
    r->arena = (struct zt_text_arena){0};
    zt_problems_init(&r->report, &r->arena);
    r->root = zt_jtree_parse(&r->arena, "f", exact, n, &r->report);
    free(exact);
}

static void read_text(struct reading *r, const char *text)
{
    read_bytes(r, text, strlen(text));
}

static char *print(const struct zt_jnode *root)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    assert_non_null(f);
    zt_jtree_print(f, root);
    fclose(f);
    return text;
}

static void test_json_knows_line_and_column(void **state)
{
    struct reading r;
    struct zt_jnode *b;

    (void)state;
    read_text(&r, "{\n  \"a\": [1,\n   {\"b\" : true}]\n}");
    assert_non_null(r.root);
    b = zt_jnode_get(zt_jnode_get(r.root, "a")->last, "b");
    assert_int_equal(b->key_line, 3);
    assert_int_equal(b->key_col, 5);
    assert_int_equal(b->line, 3);
    assert_int_equal(b->col, 11);
    assert_true(b->boolean);
    zt_text_arena_release(&r.arena);
}

static void test_json_accepts_what_people_write(void **state)
{
    static const char *const good[] = {
        "{}",
        " [ ] ",
        "{\"a\": 1, // why\n \"b\": [1, 2,], # also\n /* and\n this */ }",
        "\xef\xbb\xbf{\"a\": -0.5e+10}",
        "NaN",
        "-Infinity",
        "\"\\u00e9\\ud83d\\ude00\\n\\/\"",
        "{\"http://x\": \"// no comment\"}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        struct reading r;

        read_text(&r, good[i]);
        assert_non_null(r.root);
        assert_int_equal(r.report.num_problems, 0);
        zt_text_arena_release(&r.arena);
    }
}

static void test_json_refuses_what_is_none(void **state)
{
    static const char *const bad[] = {
        "",
        "{",
        "{\"a\"}",
        "{\"a\": }",
        "{a: 1}",
        "[1 2]",
        "01",
        "1.",
        ".5",
        "+1",
        "1e",
        "truely",
        "\"a",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\"",
        "\"a\nb\"",
        "\"\x01\"",
        "\"\xff\"",
        "\"\xc0\x80\"",
        "\"\xed\xa0\x80\"",
        "\"\xf4\x90\x80\x80\"",
        "{} x",
        "[1,,2]",
        "/* no end",
        "/",
        "\"\\",
        "{\"a\":1,,}",
        "nul",
        "\"\xe2\x82",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct reading r;

        read_text(&r, bad[i]);
        assert_null(r.root);
        assert_int_equal(r.report.num_problems, 1);
        assert_int_equal(r.report.code, ZT_E_CONFIG);
        assert_int_equal(strncmp(r.report.problems->text, "f:", 2), 0);
        zt_text_arena_release(&r.arena);
    }
}

static void test_json_decodes_escapes_to_utf8(void **state)
{
    struct reading r;

    (void)state;
    read_text(&r, "\"\\u00e9\\u20ac\\ud83d\\ude00\\t\"");
    assert_string_equal(r.root->text, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\t");
    zt_text_arena_release(&r.arena);
}

static void test_json_names_both_places_of_a_duplicate(void **state)
{
    struct reading r;

    (void)state;
    read_text(&r, "{\"a\": 1,\n \"b\": 2, \"a\": 3}");
    assert_non_null(r.root);
    assert_int_equal(r.report.num_problems, 1);
    assert_string_equal(r.report.problems->text,
                        "f:2:10: \"a\" is here a second time; the first is at 1:2");
    assert_string_equal(zt_jnode_get(r.root, "a")->text, "1");
    zt_text_arena_release(&r.arena);
}

static void test_json_depth_is_capped(void **state)
{
    char deep[3 * ZT_JSON_MAX_DEPTH];
    struct reading r;

    (void)state;
    memset(deep, '[', sizeof(deep));
    read_bytes(&r, deep, sizeof(deep));
    assert_null(r.root);
    zt_text_arena_release(&r.arena);
    memset(deep, '[', ZT_JSON_MAX_DEPTH);
    memset(deep + ZT_JSON_MAX_DEPTH, ']', ZT_JSON_MAX_DEPTH);
    read_bytes(&r, deep, (size_t)2 * ZT_JSON_MAX_DEPTH);
    assert_non_null(r.root);
    zt_text_arena_release(&r.arena);
}

static void test_json_printed_reads_back_as_the_same(void **state)
{
    static const char text[] =
        "{\"a\": [1, -2.5e-3, null, true], \"q\\\"\\\\\\u0007\": \"\xc3\xa9\\n\", "
        "\"o\": {\"p\": {}, \"l\": [[], {\"x\": false}]}, \"e\": []}";
    struct reading one, two;
    char *printed, *again;

    (void)state;
    read_text(&one, text);
    one.root->first->comment = "a comment";
    printed = print(one.root);
    assert_non_null(strstr(printed, "// a comment\n"));
    read_text(&two, printed);
    assert_non_null(two.root);
    assert_true(zt_jnode_equal(one.root, two.root));
    two.root->first->comment = "a comment";
    again = print(two.root);
    assert_string_equal(printed, again);
    free(printed);
    free(again);
    zt_text_arena_release(&one.arena);
    zt_text_arena_release(&two.arena);
}

/* Whatever the bytes are: a tree or a problem, and no byte read beyond the end. */
static void test_json_survives_any_cut_and_any_byte(void **state)
{
    static const char text[] =
        "{\"a\\u00e9\": [1.5e3, /* c */ {\"b\": \"\xf0\x9f\x98\x80\"}, "
        "// d\n true,], \"a\": null}";
    char copy[sizeof(text)];

    (void)state;
    for (size_t i = 0; i < sizeof(text); i++) {
        struct reading r;

        read_bytes(&r, text, i);
        assert_true(r.root || r.report.num_problems);
        zt_text_arena_release(&r.arena);
        for (int b = 0; b < 256 && i < sizeof(text) - 1; b++) {
            memcpy(copy, text, sizeof(text));
            copy[i] = (char)b;
            read_bytes(&r, copy, sizeof(text) - 1);
            assert_true(r.root || r.report.num_problems);
            zt_text_arena_release(&r.arena);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_knows_line_and_column),
        cmocka_unit_test(test_json_accepts_what_people_write),
        cmocka_unit_test(test_json_refuses_what_is_none),
        cmocka_unit_test(test_json_decodes_escapes_to_utf8),
        cmocka_unit_test(test_json_names_both_places_of_a_duplicate),
        cmocka_unit_test(test_json_depth_is_capped),
        cmocka_unit_test(test_json_printed_reads_back_as_the_same),
        cmocka_unit_test(test_json_survives_any_cut_and_any_byte),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
