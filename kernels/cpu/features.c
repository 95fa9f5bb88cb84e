#include "kernels/cpu/features.h"

#include <dnnl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"

/* ---- what the processor has ---- */

#if defined(__x86_64__)
static bool is_amd(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx;
}

#define TILE_DATA 18   /* the XSAVE component of the tiles */
#define TILES     8192 /* its bytes with the eight tiles of 1 KiB of palette 1 */

/*
 * Whether tile instructions run. gcc's own test includes that the system saves the
 * registers, but it does not know AMX.
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
    if ((lo & 0x60000) != 0x60000) /* tile configuration and tile data */
        return false;
    if (!__get_cpuid_count(0xd, TILE_DATA, &a, &b, &c, &d) || a != TILES)
        return false;
    /* threads may use tiles from here on: ARCH_REQ_XCOMP_PERM, of Linux 5.16 */
    return syscall(SYS_arch_prctl, 0x1023, (long)TILE_DATA) == 0;
}

/*
 * Whether CPUID describes palette 1. Some virtual machines have tiles and leave its leaf
 * empty. Kernels of our own know the palette's sizes; oneDNN (2.6 to 3.7 at least) asks
 * for no more than has_amx(), takes the sizes from there, and ends with SIGILL in its
 * first product.
 */
static bool shows_palette(void)
{
    unsigned a, b, c, d;

    return __get_cpuid_count(0x1d, 0, &a, &b, &c, &d) && a >= 1;
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
    /* This follows the processor and never a timing: it decides how results round. */
    if ((f & ZT_CPU_AVX512_BF16) && is_amd())
        f |= ZT_CPU_FAST_DOT;
    return f;
}
#else
static bool has_amx(void)
{
    return false;
}

static bool shows_palette(void)
{
    return true;
}

static unsigned detect_features(void)
{
    return 0;
}
#endif

bool zt_cpu_has_tiles(void)
{
    static atomic_int known; /* 0: not yet, 1: no, 2: yes */
    int is = atomic_load_explicit(&known, memory_order_relaxed);

    if (!is) {
        is = has_amx() ? 2 : 1;
        atomic_store_explicit(&known, is, memory_order_relaxed);
    }
    return is == 2;
}

/* ---- levels ---- */

#define UP_TO_AVX2        ZT_CPU_AVX2
#define UP_TO_AVX512      (UP_TO_AVX2 | ZT_CPU_AVX512)
#define UP_TO_AVX512_BF16 (UP_TO_AVX512 | ZT_CPU_AVX512_BF16 | ZT_CPU_FAST_DOT)
#define UP_TO_AMX         (UP_TO_AVX512_BF16 | ZT_CPU_AMX_BF16)

/* oneDNN spells levels alike in releases 2 and 3. */
static const struct level {
    const char *name;
    unsigned own;   /* what a processor of this level has, and of the level below not */
    unsigned up_to; /* what is left of one that has more */
    dnnl_cpu_isa_t onednn;
} levels[] = {
    [ZT_CPU_ISA_PORTABLE] = {"portable", 0, 0, dnnl_cpu_isa_sse41},
    [ZT_CPU_ISA_AVX2] = {"avx2", ZT_CPU_AVX2, UP_TO_AVX2, dnnl_cpu_isa_avx2},
    [ZT_CPU_ISA_AVX512] = {"avx512", ZT_CPU_AVX512, UP_TO_AVX512,
                           dnnl_cpu_isa_avx512_core},
    [ZT_CPU_ISA_AVX512_BF16] = {"avx512_bf16", ZT_CPU_AVX512_BF16, UP_TO_AVX512_BF16,
                                dnnl_cpu_isa_avx512_core_bf16},
    [ZT_CPU_ISA_AMX] = {"amx", ZT_CPU_AMX_BF16, UP_TO_AMX, dnnl_cpu_isa_avx512_core_amx},
};
#define NUM_LEVELS ((int)(sizeof(levels) / sizeof(*levels)))

zt_cpu_isa zt_cpu_isa_of(unsigned features)
{
    int isa = NUM_LEVELS - 1;

    while (isa > ZT_CPU_ISA_PORTABLE && !(features & levels[isa].own))
        isa--;
    return (zt_cpu_isa)isa;
}

const char *zt_cpu_isa_name(zt_cpu_isa isa)
{
    return levels[isa].name;
}

/* The bits of instructions, and what follows from them. */
static unsigned with_consequences(unsigned f)
{
    bool fast_dot = (f & ZT_CPU_AVX512_BF16) && (f & ZT_CPU_FAST_DOT);

    f &= ~(unsigned)ZT_CPU_FAST_BF16;
    return fast_dot || (f & ZT_CPU_AMX_BF16) ? f | ZT_CPU_FAST_BF16 : f;
}

unsigned zt_cpu_common_features(unsigned a, unsigned b)
{
    return with_consequences(a & b);
}

/* ---- what is used of it ---- */

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
        f = with_consequences(detect_features()) | KNOWN;
        atomic_store_explicit(&known_features, f, memory_order_relaxed);
    }
    return f & ~KNOWN;
}

/* "avx2, avx512": the levels up to this one. */
static void list_levels(zt_cpu_isa highest, char *text, size_t cap)
{
    size_t n = 0;

    text[0] = 0;
    for (int i = ZT_CPU_ISA_AVX2; i <= (int)highest && n < cap; i++)
        n += (size_t)snprintf(text + n, cap - n, "%s%s", n ? ", " : "", levels[i].name);
}

static zt_err refuse_level(const char *level, zt_cpu_isa highest, struct zt_fault *fault)
{
    char has[64];

    list_levels(highest, has, sizeof(has));
    if (highest == ZT_CPU_ISA_PORTABLE)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "--cpu_isa %s: this processor has none of the instructions "
                            "that have a name there; leave the option out",
                            level);
    return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                        "--cpu_isa %s: this processor does not have it; it has %s", level,
                        has);
}

/* A level that has a name for --cpu_isa; NUM_LEVELS: there is none of that name. */
static int find_level(const char *name)
{
    int isa = ZT_CPU_ISA_AVX2;

    while (isa < NUM_LEVELS && strcmp(name, levels[isa].name) != 0)
        isa++;
    return isa;
}

zt_err zt_cpu_features_at(const char *level, unsigned *out, struct zt_fault *fault)
{
    unsigned here = zt_cpu_features();
    zt_cpu_isa highest = zt_cpu_isa_of(here);
    int isa = find_level(level);

    if (strcmp(level, "auto") == 0) {
        *out = here;
        return ZT_OK;
    }
    if (isa == NUM_LEVELS)
        return zt_fault_set(fault, ZT_E_ARG, "--cpu_isa %s: no level is called that",
                            level);
    if (isa > (int)highest)
        return refuse_level(level, highest, fault);
    *out = zt_cpu_common_features(here, levels[isa].up_to);
    return ZT_OK;
}

/* What oneDNN was limited to; NUM_LEVELS: it uses all that it finds. */
static int onednn_limit = NUM_LEVELS;

static zt_err limit_onednn(int isa, struct zt_fault *fault)
{
    if (isa >= onednn_limit)
        return ZT_OK;
    if (dnnl_set_max_cpu_isa(levels[isa].onednn) != dnnl_success)
        return zt_fault_set(fault, ZT_E_SYSTEM,
                            "oneDNN %d.%d cannot be limited to %s: it has run already, "
                            "or was built without ONEDNN_ENABLE_MAX_CPU_ISA",
                            dnnl_version()->major, dnnl_version()->minor,
                            levels[isa].name);
    onednn_limit = isa;
    return ZT_OK;
}

zt_err zt_cpu_limit_onednn(struct zt_fault *fault)
{
    if (!has_amx() || shows_palette())
        return ZT_OK;
    return limit_onednn(ZT_CPU_ISA_AVX512_BF16, fault);
}

zt_err zt_cpu_limit_features(unsigned features, struct zt_fault *fault)
{
    zt_cpu_isa isa = zt_cpu_isa_of(features);
    zt_err rc = ZT_OK;

    if (isa < zt_cpu_isa_of(detect_features()))
        rc = limit_onednn((int)isa, fault);
    if (rc)
        return rc;
    zt_cpu_set_features(features);
    return ZT_OK;
}

/* ---- for people ---- */

const char *zt_cpu_instruction_sets(void)
{
    static char text[128];
    zt_cpu_isa isa = zt_cpu_isa_of(zt_cpu_features());
    bool hidden = isa == ZT_CPU_ISA_AMX && !shows_palette();

    snprintf(text, sizeof(text), "instructions up to %s%s", zt_cpu_isa_name(isa),
             hidden ? " (oneDNN: avx512_bf16; CPUID's leaf 0x1d does not describe tiles)"
                    : "");
    return text;
}

const char *zt_cpu_describe(void)
{
    static char text[160];
    int n = zt_num_threads();

    snprintf(text, sizeof(text), "%d thread%s, %s", n, n == 1 ? "" : "s",
             zt_cpu_instruction_sets());
    return text;
}
