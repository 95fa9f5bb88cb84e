/* Frames survive any cutting of the stream, and nonsense is refused, never believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/message/frame.h"

static void frames_come_out_as_they_went_in_whatever_the_cutting(void **state)
{
    static const size_t sizes[] = {0, 1, 5, 300, 70000, ZT_FRAME_MAX - 1};
    size_t num = sizeof(sizes) / sizeof(*sizes);
    char *body = calloc(1, ZT_FRAME_MAX);
    struct zt_buf wire, in;

    (void)state;
    for (size_t i = 0; i < ZT_FRAME_MAX; i++)
        body[i] = (char)(i * 7 + (i >> 8));
    zt_buf_init(&wire, 4 * ZT_FRAME_MAX);
    for (size_t i = 0; i < num; i++)
        assert_int_equal(zt_frame_put(&wire, (zt_frame_type)(i + 1), body, sizes[i]),
                         ZT_OK);
    for (size_t cut = 1; cut < 200000; cut = cut * 3 + 1) {
        size_t at = 0, got = 0;

        zt_buf_init(&in, 4 * ZT_FRAME_MAX);
        while (got < num) {
            struct zt_frame f;
            zt_err rc = zt_frame_peek(&in, &f, NULL);

            if (rc == ZT_E_SHORT) {
                size_t n = zt_buf_used(&wire) - at < cut ? zt_buf_used(&wire) - at : cut;

                assert_true(n > 0);
                assert_int_equal(zt_buf_put(&in, zt_buf_head(&wire) + at, n), ZT_OK);
                at += n;
                continue;
            }
            assert_int_equal(rc, ZT_OK);
            assert_int_equal(f.type, got + 1);
            assert_int_equal(f.body_bytes, sizes[got]);
            assert_memory_equal(f.body, body, f.body_bytes);
            zt_frame_drop(&in, &f);
            got++;
        }
        assert_int_equal(zt_buf_used(&in), 0);
        zt_buf_release(&in);
    }
    zt_buf_release(&wire);
    free(body);
}

static void the_header_is_big_endian_and_counts_the_type(void **state)
{
    static const uint8_t want[] = {0, 0, 0, 3, 32, 'h', 'i'};
    struct zt_buf b;

    (void)state;
    zt_buf_init(&b, 100);
    assert_int_equal(zt_frame_put(&b, ZT_FRAME_EVENT, "hi", 2), ZT_OK);
    assert_int_equal(zt_buf_used(&b), sizeof(want));
    assert_memory_equal(zt_buf_head(&b), want, sizeof(want));
    zt_buf_release(&b);
}

static void lengths_of_zero_and_over_the_cap_are_refused(void **state)
{
    static const uint32_t lengths[] = {0, ZT_FRAME_MAX + 1, UINT32_MAX};
    struct zt_fault fault = {0};
    struct zt_frame f;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct zt_buf b;

        zt_buf_init(&b, 100);
        assert_int_equal(zt_buf_put_u32(&b, lengths[i]), ZT_OK);
        assert_int_equal(zt_frame_peek(&b, &f, &fault), ZT_E_FORMAT);
        assert_non_null(strstr(fault.text, "control channel"));
        zt_buf_release(&b);
    }
}

static void a_frame_that_does_not_fit_leaves_the_buffer_as_it_was(void **state)
{
    struct zt_buf b;

    (void)state;
    zt_buf_init(&b, 20);
    assert_int_equal(zt_frame_put(&b, ZT_FRAME_STOP, "0123456789", 10), ZT_OK);
    assert_int_equal(zt_frame_put(&b, ZT_FRAME_STOP, "0", 1), ZT_E_LIMIT);
    assert_int_equal(zt_buf_used(&b), 15);
    assert_int_equal(zt_frame_put(&b, ZT_FRAME_STOP, NULL, 0), ZT_OK);
    zt_buf_release(&b);
    zt_buf_init(&b, SIZE_MAX / 2);
    assert_int_equal(zt_frame_put(&b, ZT_FRAME_STOP, "", ZT_FRAME_MAX), ZT_E_LIMIT);
    zt_buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_come_out_as_they_went_in_whatever_the_cutting),
        cmocka_unit_test(the_header_is_big_endian_and_counts_the_type),
        cmocka_unit_test(lengths_of_zero_and_over_the_cap_are_refused),
        cmocka_unit_test(a_frame_that_does_not_fit_leaves_the_buffer_as_it_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
