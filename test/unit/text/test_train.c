/* Byte-level BPE learned from texts small enough to follow by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "worker/text/tokenizer.h"
#include "worker/text/train/byte_bpe.h"

static struct zt_tokenizer *learned(const char *text, int32_t size, int32_t *num)
{
    struct zt_byte_bpe *b = NULL;
    struct zt_tokenizer *t = NULL;
    struct zt_fault fault = {0};
    struct zt_buf json;

    zt_buf_init(&json, 1 << 24);
    if (zt_byte_bpe_open(&b, &fault) ||
        zt_byte_bpe_add(b, "text", text, strlen(text), &fault) ||
        zt_byte_bpe_make(b, size, false, &json, num, &fault) ||
        zt_tokenizer_parse("made", (const char *)zt_buf_head(&json), zt_buf_used(&json),
                           &t, &fault))
        fail_msg("%s", fault.text);
    zt_buf_release(&json);
    zt_byte_bpe_close(b);
    return t;
}

/* The tokens of a text, between bars. */
static const char *tokens_of(const struct zt_tokenizer *t, const char *text)
{
    static char out[1024];
    struct zt_encoder *e = NULL;
    struct zt_buf one;
    const int32_t *ids;
    size_t num, at = 0;

    zt_buf_init(&one, 1 << 16);
    assert_int_equal(zt_encoder_open(t, &e, NULL), ZT_OK);
    assert_int_equal(zt_encode(e, text, strlen(text), true, &ids, &num, NULL), ZT_OK);
    out[0] = 0;
    for (size_t i = 0; i < num; i++) {
        zt_buf_drop(&one, zt_buf_used(&one));
        assert_int_equal(zt_decode(t, &ids[i], 1, false, &one, NULL), ZT_OK);
        at += (size_t)snprintf(out + at, sizeof(out) - at, "%s%.*s", i ? "|" : "",
                               (int)zt_buf_used(&one), (const char *)zt_buf_head(&one));
    }
    zt_buf_release(&one);
    zt_encoder_close(e);
    return out;
}

static void test_the_pair_that_stands_most_often_is_merged_first(void **state)
{
    int32_t num;
    struct zt_tokenizer *t = learned("bc bc bc ab ab", 258, &num);

    (void)state;
    assert_int_equal(num, 258);
    assert_string_equal(tokens_of(t, "abc"), "a|bc");
    zt_tokenizer_close(t);
    /* " b" stands twice, "bc" three times, " bc" twice */
    t = learned("bc bc bc ab ab", 259, &num);
    assert_string_equal(tokens_of(t, "bc bc"), "bc| |bc");
    assert_string_equal(tokens_of(t, "ab"), "ab"); /* of equal counts the lower ids */
    zt_tokenizer_close(t);
}

static void test_words_are_counted_by_the_pattern_line_by_line(void **state)
{
    int32_t num;
    struct zt_tokenizer *t = learned("a1 a1\na1\n", 300, &num);

    (void)state;
    /* letters and digits never stand in one word: " a" is all there is to merge */
    assert_int_equal(num, 258);
    assert_string_equal(tokens_of(t, "a1 a1"), "a|1| a|1");
    zt_tokenizer_close(t);
}

static void test_a_pair_that_overlaps_itself_is_merged_from_the_left(void **state)
{
    int32_t num;
    struct zt_tokenizer *t = learned("aaaaa", 300, &num);

    (void)state;
    assert_int_equal(num, 260); /* aa; of equal counts aa a, not aa aa; aa aaa */
    assert_string_equal(tokens_of(t, "aaaaaaa"), "aa|aaaaa");
    zt_tokenizer_close(t);
}

static void test_bytes_come_first_and_end_of_text_before_them(void **state)
{
    int32_t num;
    struct zt_tokenizer *t = learned("", 400, &num);

    (void)state;
    assert_int_equal(num, ZT_BYTE_BPE_LEAST);
    assert_int_equal(zt_tokenizer_id(t, ZT_BYTE_BPE_END), 0);
    assert_int_equal(zt_tokenizer_id(t, "!"), 1);
    assert_string_equal(tokens_of(t, "\"\\ <|endoftext|>"), "\"|\\| |<|endoftext|>");
    zt_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_pair_that_stands_most_often_is_merged_first),
        cmocka_unit_test(test_words_are_counted_by_the_pattern_line_by_line),
        cmocka_unit_test(test_a_pair_that_overlaps_itself_is_merged_from_the_left),
        cmocka_unit_test(test_bytes_come_first_and_end_of_text_before_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
