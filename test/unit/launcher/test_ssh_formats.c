/* Base64 and HMAC-SHA1 against published vectors, patterns against their rules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "launcher/ssh/formats.h"

static void base64_is_rfc_4648_both_ways(void **state)
{
    static const struct {
        const char *plain, *padded, *bare;
    } cases[] = {
        {"", "", ""},
        {"f", "Zg==", "Zg"},
        {"fo", "Zm8=", "Zm8"},
        {"foo", "Zm9v", "Zm9v"},
        {"foob", "Zm9vYg==", "Zm9vYg"},
        {"fooba", "Zm9vYmE=", "Zm9vYmE"},
        {"foobar", "Zm9vYmFy", "Zm9vYmFy"},
        {"\xff\xfe\xfb", "//77", "//77"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        size_t n = strlen(cases[i].plain), got;
        char *padded = zt_base64_encode((const uint8_t *)cases[i].plain, n, true);
        char *bare = zt_base64_encode((const uint8_t *)cases[i].plain, n, false);
        uint8_t *back = zt_base64_decode(padded, strlen(padded), &got);

        assert_string_equal(padded, cases[i].padded);
        assert_string_equal(bare, cases[i].bare);
        assert_int_equal(got, n);
        assert_memory_equal(back, cases[i].plain, n);
        free(back);
        back = zt_base64_decode(bare, strlen(bare), &got);
        assert_int_equal(got, n);
        free(back);
        free(padded);
        free(bare);
    }
}

static void base64_of_random_bytes_comes_back(void **state)
{
    uint32_t seed = 12345;

    (void)state;
    for (size_t n = 0; n < 300; n++) {
        uint8_t bytes[300] = {0}, *back;
        size_t got;
        char *text;

        for (size_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
        text = zt_base64_encode(bytes, n, n & 1);
        back = zt_base64_decode(text, strlen(text), &got);
        assert_non_null(back);
        assert_int_equal(got, n);
        assert_memory_equal(back, bytes, n);
        free(back);
        free(text);
    }
}

static void what_is_no_base64_is_refused(void **state)
{
    static const char *const bad[] = {"A", "AAAAA", "A===",  "AA=A",
                                      "=", "A-B_",  "AA\x80"};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        size_t n;

        assert_null(zt_base64_decode(bad[i], strlen(bad[i]), &n));
    }
}

/* RFC 2202, cases 1, 2, 3, 6, 7. */
static void hmac_sha1_gives_the_values_of_rfc_2202(void **state)
{
    static const struct {
        int key_byte;
        size_t key_bytes;
        const char *key, *data;
        int data_byte;
        size_t data_bytes;
        const char *want;
    } cases[] = {
        {0x0b, 20, NULL, "Hi There", 0, 0, "b617318655057264e28bc0b6fb378c8ef146be00"},
        {0, 0, "Jefe", "what do ya want for nothing?", 0, 0,
         "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"},
        {0xaa, 20, NULL, NULL, 0xdd, 50, "125d7342b9ac11cd91a39af48aa17b4f63f175d3"},
        {0xaa, 80, NULL, "Test Using Larger Than Block-Size Key - Hash Key First", 0, 0,
         "aa4ae5e15272d00e95705637ce8a3b55ed402112"},
        {0xaa, 80, NULL,
         "Test Using Larger Than Block-Size Key and Larger Than One Block-Size Data", 0,
         0, "e8e99d0f45237d786d6bbaa7965c7808bbff1a91"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint8_t key[100], data[100], out[ZT_SHA1_BYTES];
        char hex[2 * ZT_SHA1_BYTES + 1];
        size_t k = cases[i].key ? strlen(cases[i].key) : cases[i].key_bytes;
        size_t n = cases[i].data ? strlen(cases[i].data) : cases[i].data_bytes;

        memset(key, cases[i].key_byte, sizeof(key));
        memset(data, cases[i].data_byte, sizeof(data));
        if (cases[i].key)
            memcpy(key, cases[i].key, k);
        if (cases[i].data)
            memcpy(data, cases[i].data, n);
        zt_hmac_sha1(key, k, data, n, out);
        for (int b = 0; b < ZT_SHA1_BYTES; b++)
            snprintf(hex + 2 * b, 3, "%02x", out[b]);
        assert_string_equal(hex, cases[i].want);
    }
}

static void patterns_match_as_in_ssh(void **state)
{
    static const struct {
        const char *pattern, *text;
        bool want;
    } cases[] = {
        {"*", "", true},
        {"*", "abc", true},
        {"?", "", false},
        {"a?c", "abc", true},
        {"a*c", "abbbc", true},
        {"a*c", "abcd", false},
        {"*.lan", "x.lan", true},
        {"*.lan", ".lan", true},
        {"*.lan", "lan", false},
        {"Node", "nODE", true},
        {"a*b*c", "aXbYbZc", true},
        {"**a", "a", true},
        {"[1]", "1", false},
        {"", "", true},
        {"", "a", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_int_equal(
            zt_pattern_match(cases[i].pattern, strlen(cases[i].pattern), cases[i].text),
            cases[i].want);
    assert_int_equal(zt_pattern_list("a,b*", 4, ',', "bcd"), 1);
    assert_int_equal(zt_pattern_list("b*,!bcd", 7, ',', "bcd"), -1);
    assert_int_equal(zt_pattern_list("!x,a", 4, ',', "b"), 0);
    assert_int_equal(zt_pattern_list("a b", 3, ' ', "b"), 1);
}

static void wire_strings_never_reach_past_the_end(void **state)
{
    static const uint8_t bytes[] = {0, 0, 0, 2, 'h', 'i', 0, 0, 0, 9, 'x'};
    struct zt_ssh_reader w = {bytes, bytes + sizeof(bytes)};
    const uint8_t *s;
    size_t n;

    (void)state;
    assert_true(zt_ssh_read_string(&w, &s, &n));
    assert_int_equal(n, 2);
    assert_memory_equal(s, "hi", 2);
    assert_false(zt_ssh_read_string(&w, &s, &n));
    assert_ptr_equal(w.p, bytes + 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base64_is_rfc_4648_both_ways),
        cmocka_unit_test(base64_of_random_bytes_comes_back),
        cmocka_unit_test(what_is_no_base64_is_refused),
        cmocka_unit_test(hmac_sha1_gives_the_values_of_rfc_2202),
        cmocka_unit_test(patterns_match_as_in_ssh),
        cmocka_unit_test(wire_strings_never_reach_past_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
