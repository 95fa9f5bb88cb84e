/* The byte queue behaves like the plain array it stands for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/buf.h"

static void random_puts_and_drops_keep_the_bytes_in_order(void **state)
{
    uint8_t next_in = 0, next_out = 0, piece[512];
    struct zt_buf b;
    size_t held = 0;

    (void)state;
    srand(1);
    zt_buf_init(&b, 4000);
    for (int round = 0; round < 20000; round++) {
        size_t n = (size_t)rand() % sizeof(piece);

        if (rand() % 2) {
            for (size_t i = 0; i < n; i++)
                piece[i] = (uint8_t)(next_in + i);
            if (held + n > 4000) {
                assert_int_equal(zt_buf_put(&b, piece, n), ZT_E_LIMIT);
            } else {
                assert_int_equal(zt_buf_put(&b, piece, n), ZT_OK);
                next_in = (uint8_t)(next_in + n);
                held += n;
            }
        } else {
            n = n < held ? n : held;
            for (size_t i = 0; i < n; i++)
                assert_int_equal(zt_buf_head(&b)[i], (uint8_t)(next_out + i));
            zt_buf_drop(&b, n);
            next_out = (uint8_t)(next_out + n);
            held -= n;
        }
        assert_int_equal(zt_buf_used(&b), held);
        assert_true(b.off <= b.len && b.len <= b.cap);
    }
    zt_buf_release(&b);
    assert_int_equal(b.max, 4000);
}

static void numbers_are_written_big_endian(void **state)
{
    struct zt_buf b;

    (void)state;
    zt_buf_init(&b, 5);
    assert_int_equal(zt_buf_put_u32(&b, 0x01020304), ZT_OK);
    assert_int_equal(zt_buf_put_u32(&b, 1), ZT_E_LIMIT);
    assert_int_equal(zt_buf_put_u8(&b, 5), ZT_OK);
    assert_memory_equal(zt_buf_head(&b), "\1\2\3\4\5", 5);
    zt_buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_puts_and_drops_keep_the_bytes_in_order),
        cmocka_unit_test(numbers_are_written_big_endian),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
