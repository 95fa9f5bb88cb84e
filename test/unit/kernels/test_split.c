/*
 * An fp32 number and its two halves (kernels/split.h), against rounding as its definition
 * has it. All upper halves with some lower ones each; ZT_EXHAUSTIVE=1: all 2^32 numbers,
 * which takes half a minute.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/split.h"

static float of_bf16(uint32_t half)
{
    return zt_from_bits(half << 16);
}

/* bf16 is no further than the neighbours on both sides, and of two as near the greater one. */
static bool is_nearest(float x, uint16_t half)
{
    double here = fabs((double)of_bf16(half)), of = fabs((double)x);
    uint32_t size = half & 0x7fffu;
    double above = size < 0x7f80u ? fabs((double)of_bf16(size + 1)) : here;
    double below = size ? fabs((double)of_bf16(size - 1)) : here;

    if (size == 0x7f80u) /* infinity stands where the next number would be */
        here = above = 0x1p128;
    if (size == 0x7f7fu)
        above = 0x1p128;
    if (isinf(x))
        return size == 0x7f80u && signbit(x) == signbit(of_bf16(half));
    return signbit(x) == signbit(of_bf16(half)) &&
           2 * of < here + above + (above == here) &&
           (size == 0 || 2 * of >= here + below);
}

static void check(uint32_t u)
{
    float x = zt_from_bits(u), y;
    struct zt_halves s = zt_split(x);

    y = zt_join(s.bf16, s.rest);
    if (isnan(x)) {
        if (!isnan(y) || !isnan(of_bf16(s.bf16)) || signbit(x) != signbit(y))
            fail_msg("the NaN %08x became %04x %04x", u, s.bf16, s.rest);
        return;
    }
    if (zt_bits_of(y) != u)
        fail_msg("%08x became %04x %04x, and with that %08x", u, s.bf16, s.rest,
                 zt_bits_of(y));
    if (!is_nearest(x, s.bf16))
        fail_msg("%04x is not the nearest to %08x", s.bf16, u);
}

static void test_both_halves_are_the_number(void **state)
{
    static const uint32_t some[] = {0, 1, 0x7ffe, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff};

    (void)state;
    for (uint32_t high = 0; high < 0x10000; high++) {
        for (int i = 0; i < 8; i++)
            check(high << 16 | some[i]);
        for (uint32_t i = 0; i < 4; i++)
            check(high << 16 | ((high * 40503u + i * 16411u) & 0xffffu));
    }
}

static void test_all_numbers(void **state)
{
    (void)state;
    for (uint64_t u = 0; u < (uint64_t)1 << 32; u++)
        check((uint32_t)u);
}

int main(void)
{
    const struct CMUnitTest some[] = {cmocka_unit_test(test_both_halves_are_the_number)};
    const struct CMUnitTest all[] = {cmocka_unit_test(test_all_numbers)};

    return getenv("ZT_EXHAUSTIVE") ? cmocka_run_group_tests(all, NULL, NULL)
                                   : cmocka_run_group_tests(some, NULL, NULL);
}
