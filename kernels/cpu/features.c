#include "kernels/cpu/features.h"

#include <stdatomic.h>
#include <stdio.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"

#if defined(__x86_64__)
static bool is_amd(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx;
}

/* gcc's own test includes that the system saves the registers, but it does not know AMX
 */
static bool has_amx(void)
{
    unsigned a, b, c, d, lo, hi;

    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & (1u << 22)) ||
        !(d & (1u << 24)))
        return false;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return false;
    __asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (lo & 0x60000) == 0x60000; /* tile configuration and tile data */
}

/* By CPUID: not every compiler's builtin knows the name. */
static bool has_avx512_bf16(void)
{
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5);
}

static unsigned detect_features(void)
{
    unsigned f = 0;

    __builtin_cpu_init();
    /* every processor with AVX2 has F16C, which older compilers cannot ask for */
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        f |= ZT_CPU_AVX2;
    if ((f & ZT_CPU_AVX2) && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        f |= ZT_CPU_AVX512;
    if ((f & ZT_CPU_AVX512) && has_avx512_bf16())
        f |= ZT_CPU_AVX512_BF16;
    if ((f & ZT_CPU_AVX512_BF16) && has_amx())
        f |= ZT_CPU_AMX_BF16;
    /* vdpbf16ps has twice the rate of an fp32 fma on AMD and only the same on Intel. This
     * follows the processor and never a timing: it decides how results round. */
    if ((f & ZT_CPU_AMX_BF16) || ((f & ZT_CPU_AVX512_BF16) && is_amd()))
        f |= ZT_CPU_FAST_BF16;
    return f;
}
#else
static unsigned detect_features(void)
{
    return 0;
}
#endif

/* One word says both whether it is known and what: it is read inside parallel loops. */
#define KNOWN (1u << 31)
static atomic_uint known_features;

void zt_cpu_set_features(unsigned features)
{
    atomic_store_explicit(&known_features, features | KNOWN, memory_order_relaxed);
}

unsigned zt_cpu_features(void)
{
    unsigned f = atomic_load_explicit(&known_features, memory_order_relaxed);

    if (!(f & KNOWN)) {
        f = detect_features() | KNOWN;
        atomic_store_explicit(&known_features, f, memory_order_relaxed);
    }
    return f & ~KNOWN;
}

const char *zt_cpu_instruction_sets(void)
{
    static char text[48];
    unsigned f = zt_cpu_features();

    snprintf(text, sizeof(text), "%s%s%s",
             f & ZT_CPU_AVX512 ? "avx512"
             : f & ZT_CPU_AVX2 ? "avx2"
                               : "no wide vectors",
             f & ZT_CPU_AMX_BF16 ? " amx" : "", f & ZT_CPU_AVX512_BF16 ? " bf16" : "");
    return text;
}

const char *zt_cpu_describe(void)
{
    static char text[96];
    int n = zt_num_threads();

    snprintf(text, sizeof(text), "%d thread%s, %s", n, n == 1 ? "" : "s",
             zt_cpu_instruction_sets());
    return text;
}
