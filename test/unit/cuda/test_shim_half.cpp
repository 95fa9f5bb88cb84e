/* Conversions of the shim have the bits of common/half.h. */
#include "test/unit/cuda/shim_test.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wc++20-extensions" /* designated initialisers */
#include "common/half.h"
#pragma GCC diagnostic pop

static void test_every_pattern_widens_the_same(void **)
{
    for (unsigned i = 0; i < 65536; i++) {
        unsigned short h = (unsigned short)i;

        assert_int_equal(__float_as_uint(__bfloat162float(__ushort_as_bfloat16(h))),
                         zt_float_bits(zt_float_of_bf16(h)));
        assert_int_equal(__float_as_uint(__half2float(__ushort_as_half(h))),
                         zt_float_bits(zt_float_of_f16(h)));
    }
}

static void same_narrowing(uint32_t bits)
{
    float x = __uint_as_float(bits);

    if (__bfloat16_as_ushort(__float2bfloat16_rn(x)) != zt_bf16_of_float(x) ||
        __half_as_ushort(__float2half_rn(x)) != zt_f16_of_float(x))
        fail_msg("%08x: bf16 %04x, want %04x; f16 %04x, want %04x", bits,
                 __bfloat16_as_ushort(__float2bfloat16_rn(x)), zt_bf16_of_float(x),
                 __half_as_ushort(__float2half_rn(x)), zt_f16_of_float(x));
}

/* Upper halves with every kind of lower half: below, at and above each tie. */
static void test_floats_round_the_same(void **)
{
    static const uint32_t low[] = {0,      1,      0x0fff, 0x1000, 0x1001,
                                   0x1fff, 0x2000, 0x2fff, 0x3000, 0x3001,
                                   0x7fff, 0x8000, 0x8001, 0xffff};

    for (uint32_t high = 0; high < 65536; high++)
        for (uint32_t l : low)
            same_narrowing(high << 16 | l);
    for (uint64_t u = 0; u < 1ull << 32; u += 4099)
        same_narrowing((uint32_t)u);
}

static void test_what_was_widened_narrows_back(void **)
{
    for (unsigned i = 0; i < 65536; i++) {
        __half h = __ushort_as_half((unsigned short)i);
        __nv_bfloat16 b = __ushort_as_bfloat16((unsigned short)i);

        if (!isnan(__half2float(h)))
            assert_int_equal(__half_as_ushort(__float2half_rn(__half2float(h))), i);
        if (!isnan(__bfloat162float(b)))
            assert_int_equal(
                __bfloat16_as_ushort(__float2bfloat16_rn(__bfloat162float(b))), i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pattern_widens_the_same),
        cmocka_unit_test(test_floats_round_the_same),
        cmocka_unit_test(test_what_was_widened_narrows_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
