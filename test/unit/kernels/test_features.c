/* Levels of instructions: what is left at each, what is refused, and that oneDNN keeps to
 * the one in use. */
#include "test/unit/kernels/ref.h"

#include <dnnl.h>

#include "kernels/cpu/features.h"

#define UP_TO_AVX512 (ZT_CPU_AVX2 | ZT_CPU_AVX512)
#define INTEL        (UP_TO_AVX512 | ZT_CPU_AVX512_BF16)
#define AMD          (INTEL | ZT_CPU_FAST_DOT | ZT_CPU_FAST_BF16)
#define AMX          (INTEL | ZT_CPU_AMX_BF16 | ZT_CPU_FAST_BF16)

static unsigned here; /* what tests may use of this processor */

static int keep_features(void **state)
{
    (void)state;
    here = zt_cpu_features();
    return 0;
}

static int restore_features(void **state)
{
    (void)state;
    zt_cpu_set_features(here);
    return 0;
}

static unsigned at(unsigned processor, const char *level)
{
    unsigned out = 0;

    zt_cpu_set_features(processor);
    assert_int_equal(zt_cpu_features_at(level, &out, NULL), ZT_OK);
    return out;
}

static void test_a_level_leaves_what_processors_of_that_level_have(void **state)
{
    (void)state;
    assert_int_equal(at(AMX, "auto"), AMX);
    assert_int_equal(at(AMX, "amx"), AMX);
    assert_int_equal(at(AMX, "avx512_bf16"), INTEL);
    assert_int_equal(at(AMX, "avx512"), UP_TO_AVX512);
    assert_int_equal(at(AMX, "avx2"), ZT_CPU_AVX2);
    assert_int_equal(at(AMD, "avx512_bf16"), AMD);
    assert_int_equal(at(AMD, "avx512"), UP_TO_AVX512);
    assert_int_equal(at(0, "auto"), 0);
}

static void test_the_name_of_a_level_follows_from_features(void **state)
{
    static const char *const names[] = {"avx2", "avx512", "avx512_bf16", "amx"};

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_string_equal(zt_cpu_isa_name(zt_cpu_isa_of(at(AMX, names[i]))), names[i]);
    assert_int_equal(zt_cpu_isa_of(0), ZT_CPU_ISA_PORTABLE);
    assert_int_equal(zt_cpu_isa_of(AMD), ZT_CPU_ISA_AVX512_BF16);
}

/* bf16 is fast on both, for reasons that the other does not have. */
static void test_what_two_processors_have_in_common(void **state)
{
    (void)state;
    assert_int_equal(zt_cpu_common_features(AMX, AMX), AMX);
    assert_int_equal(zt_cpu_common_features(AMD, AMD), AMD);
    assert_int_equal(zt_cpu_common_features(AMX, AMD), INTEL);
    assert_int_equal(zt_cpu_common_features(AMD, UP_TO_AVX512), UP_TO_AVX512);
    assert_int_equal(zt_cpu_common_features(AMX, 0), 0);
}

static void expect_refusal(unsigned processor, const char *level, zt_err code,
                           const char *sentence)
{
    struct zt_fault fault = {0};
    unsigned out = 77;

    zt_cpu_set_features(processor);
    assert_int_equal(zt_cpu_features_at(level, &out, &fault), code);
    assert_string_equal(fault.text, sentence);
    assert_int_equal(out, 77);
}

static void test_a_level_that_is_not_there_is_refused_with_those_that_are(void **state)
{
    (void)state;
    expect_refusal(AMD, "amx", ZT_E_UNSUPPORTED,
                   "--cpu_isa amx: this processor does not have it; it has avx2, avx512, "
                   "avx512_bf16");
    expect_refusal(ZT_CPU_AVX2, "avx512", ZT_E_UNSUPPORTED,
                   "--cpu_isa avx512: this processor does not have it; it has avx2");
    expect_refusal(
        0, "avx2", ZT_E_UNSUPPORTED,
        "--cpu_isa avx2: this processor has none of the instructions that have "
        "a name there; leave the option out");
    expect_refusal(AMX, "sse", ZT_E_ARG, "--cpu_isa sse: no level is called that");
}

/* oneDNN takes one limit, before it has run: this one stays for the process. */
static void test_a_limit_holds_for_onednn_and_cannot_be_lowered_later(void **state)
{
    static const float a[2] = {2, 3}, b[2] = {5, 7};
    float c[1] = {0};
    struct zt_gemm_args g = {.alpha = 1};
    struct zt_fault fault = {0};
    struct zt_device *dev;

    (void)state;
    if (zt_cpu_isa_of(here) < ZT_CPU_ISA_AVX512 || getenv("ZLAUNCH_CPU_ISA"))
        skip(); /* nothing is below, or a limit is set */
    assert_int_equal(zt_cpu_limit_features(here, NULL), ZT_OK);
    assert_int_equal(zt_cpu_limit_features(at(here, "avx2"), NULL), ZT_OK);
    assert_int_equal(zt_cpu_features(), ZT_CPU_AVX2);
    assert_int_equal(dnnl_get_effective_cpu_isa(), dnnl_cpu_isa_avx2);
    assert_string_equal(zt_cpu_instruction_sets(), "instructions up to avx2");

    dev = ref_open(1);
    g.a = zt_view_of((void *)(uintptr_t)a, ZT_F32, 2, (int64_t[]){1, 2});
    g.b = zt_view_of((void *)(uintptr_t)b, ZT_F32, 2, (int64_t[]){2, 1});
    g.c = zt_view_of(c, ZT_F32, 2, (int64_t[]){1, 1});
    REF_RUN(dev, gemm, &g);
    assert_true(c[0] == 31);
    zt_cpu_backend.close(dev);

    assert_int_equal(zt_cpu_limit_features(0, &fault), ZT_E_SYSTEM);
    assert_non_null(strstr(fault.text, "cannot be limited to portable: it has run"));
    assert_int_equal(zt_cpu_features(), ZT_CPU_AVX2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_a_level_leaves_what_processors_of_that_level_have,
                                  restore_features),
        cmocka_unit_test_teardown(test_the_name_of_a_level_follows_from_features,
                                  restore_features),
        cmocka_unit_test(test_what_two_processors_have_in_common),
        cmocka_unit_test_teardown(
            test_a_level_that_is_not_there_is_refused_with_those_that_are,
            restore_features),
        cmocka_unit_test(test_a_limit_holds_for_onednn_and_cannot_be_lowered_later),
    };

    return cmocka_run_group_tests(tests, keep_features, NULL);
}
