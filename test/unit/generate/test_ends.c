/* Tokens that end a text: as generation_config.json has them, and what it may not have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "worker/generate/ends.h"

static zt_err parse(const char *text, struct zt_ends *out, struct zt_fault *fault)
{
    return zt_ends_parse("generation_config.json", text, strlen(text), 100, out, fault);
}

static void test_a_number_a_list_or_nothing(void **state)
{
    struct zt_fault fault = {0};
    struct zt_ends e;

    (void)state;
    assert_int_equal(parse("{\"eos_token_id\": 99}", &e, &fault), ZT_OK);
    assert_int_equal(e.ends.num, 1);
    assert_int_equal(e.ends.ids[0], 99);
    assert_int_equal(parse("{\"eos_token_id\": [7, 3]}", &e, &fault), ZT_OK);
    assert_int_equal(e.ends.num, 2);
    assert_int_equal(e.ends.ids[1], 3);
    assert_int_equal(parse("{\"eos_token_id\": null}", &e, &fault), ZT_OK);
    assert_int_equal(e.ends.num, 0);
    assert_int_equal(parse("{\"top_k\": 5}", &e, &fault), ZT_OK);
    assert_int_equal(e.ends.num, 0);
}

static void test_tokens_that_are_forced(void **state)
{
    struct zt_fault fault = {0};
    struct zt_ends e;

    (void)state;
    assert_int_equal(parse("{\"eos_token_id\": 2, \"forced_bos_token_id\": 5, "
                           "\"forced_eos_token_id\": [7, 8]}",
                           &e, &fault),
                     ZT_OK);
    assert_int_equal(e.ends.num, 1);
    assert_int_equal(e.forced_first.num, 1);
    assert_int_equal(e.forced_first.ids[0], 5);
    assert_int_equal(e.forced_last.num, 2);
    assert_int_equal(e.forced_last.ids[1], 8);
    assert_int_equal(parse("{\"forced_bos_token_id\": null}", &e, &fault), ZT_OK);
    assert_int_equal(e.ends.num + e.forced_first.num + e.forced_last.num, 0);
    assert_int_equal(parse("{\"forced_eos_token_id\": 100}", &e, &fault), ZT_E_FORMAT);
    assert_non_null(
        strstr(fault.text, "forced_eos_token_id: it has what is no token id"));
}

static void test_what_is_no_token_is_refused(void **state)
{
    static const char *const wrong[] = {
        "",
        "[]",
        "{\"eos_token_id\": 100}",
        "{\"eos_token_id\": -1}",
        "{\"eos_token_id\": [1, 9999999999999]}",
        "{\"eos_token_id\": \"2\"}",
        "{\"eos_token_id\": [1.5]}",
        "{\"eos_token_id\": {\"a\": 1}}",
        "{\"eos_token_id\": 1",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct zt_fault fault = {0};
        struct zt_ends e;

        assert_int_equal(parse(wrong[i], &e, &fault), ZT_E_FORMAT);
        assert_non_null(strstr(fault.text, "generation_config.json: "));
    }
}

static void test_more_than_there_is_room_for(void **state)
{
    char text[4096] = "{\"eos_token_id\": [0";
    struct zt_fault fault = {0};
    struct zt_ends e;

    (void)state;
    for (int i = 0; i < ZT_MAX_ENDS; i++)
        strcat(text, ", 1");
    strcat(text, "]}");
    assert_int_equal(parse(text, &e, &fault), ZT_E_FORMAT);
    assert_non_null(strstr(fault.text, "more than 64"));
}

/* Any byte replaced, any end cut off: read or refused, and never out of bounds. */
static void test_broken_files(void **state)
{
    static const char whole[] =
        "{\"bos_token_id\": 1, \"eos_token_id\": [2, 99, 0], \"pad_token_id\": null}";
    size_t n = sizeof(whole) - 1;

    (void)state;
    for (size_t at = 0; at < n; at++)
        for (int c = 0; c < 256; c += 3) {
            char *text = malloc(n), *cut = malloc(at + 1);
            struct zt_ends e;

            assert_non_null(text);
            assert_non_null(cut);
            memcpy(text, whole, n);
            memcpy(cut, whole, at);
            text[at] = (char)c;
            if (zt_ends_parse("f", text, n, 100, &e, NULL) == ZT_OK)
                for (int i = 0; i < e.ends.num; i++)
                    assert_in_range(e.ends.ids[i], 0, 99);
            assert_int_equal(zt_ends_parse("f", cut, at, 100, &e, NULL), ZT_E_FORMAT);
            free(text);
            free(cut);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_number_a_list_or_nothing),
        cmocka_unit_test(test_tokens_that_are_forced),
        cmocka_unit_test(test_what_is_no_token_is_refused),
        cmocka_unit_test(test_more_than_there_is_room_for),
        cmocka_unit_test(test_broken_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
