#include "kernels/cpu/device.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/parallel.h"
#include "kernels/inorder.h"

/* ---- processor ---- */

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

/* Also asked inside parallel loops: one word says both whether it is known and what. */
unsigned zt_cpu_features(void)
{
    const unsigned known = 1u << 31;
    static atomic_uint features;
    unsigned f = atomic_load_explicit(&features, memory_order_relaxed);

    if (!(f & known)) {
        f = detect_features() | known;
        atomic_store_explicit(&features, f, memory_order_relaxed);
    }
    return f & ~known;
}

const char *zt_cpu_describe(void)
{
    static char text[96];
    unsigned f = zt_cpu_features();
    int n = zt_num_threads();

    snprintf(text, sizeof(text), "%d thread%s, %s%s%s", n, n == 1 ? "" : "s",
             f & ZT_CPU_AVX512 ? "avx512"
             : f & ZT_CPU_AVX2 ? "avx2"
                               : "no wide vectors",
             f & ZT_CPU_AMX_BF16 ? " amx" : "", f & ZT_CPU_AVX512_BF16 ? " bf16" : "");
    return text;
}

/* ---- open and close ---- */

static int allowed_cpus(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

static zt_err cpu_count(int *out, struct zt_fault *fault)
{
    (void)fault;
    *out = 1;
    return ZT_OK;
}

static zt_err cpu_open(int ordinal, int threads, struct zt_device **out,
                       struct zt_fault *fault)
{
    struct zt_device *dev;

    *out = NULL;
    if (ordinal < 0 || threads < 0 || threads > ZT_MAX_THREADS)
        return zt_fault_set(fault, ZT_E_ARG,
                            "cpu device %d with %d threads: want an ordinal from 0 and 0 "
                            "to %d threads",
                            ordinal, threads, ZT_MAX_THREADS);
    dev = calloc(1, sizeof(*dev));
    if (!dev)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the cpu device");
    (void)zt_cpu_features(); /* found out before there are threads */
    zt_set_num_threads(threads ? threads : allowed_cpus());
    dev->threads = zt_num_threads();
    *out = dev;
    return ZT_OK;
}

static void cpu_close(struct zt_device *dev)
{
    if (!dev)
        return;
    zt_gemm_cache_free(dev->gemm);
    for (int i = 0; i < ZT_NUM_SCRATCH; i++)
        free(dev->scratch[i]);
    free(dev);
}

/* ---- memory ---- */

#define TOUCH_GRAIN ((int64_t)2 << 20) /* a huge page */

static size_t page_round(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return (bytes + page - 1) / page * page;
}

static void touch(int64_t begin, int64_t end, int thread, void *ctx)
{
    volatile char *base = ctx;

    (void)thread;
    for (int64_t i = begin; i < end; i += 4096)
        base[i] = 0;
}

static void count_bytes(struct zt_device *dev, size_t more, size_t less)
{
    dev->used += more - less;
    dev->peak = dev->used > dev->peak ? dev->used : dev->peak;
}

/* Host memory is what regions are made of, but none of the device's. */
static zt_err cpu_host_alloc(struct zt_device *dev, size_t bytes, void **out,
                             struct zt_fault *fault)
{
    void *p;

    (void)dev;
    *out = NULL;
    if (bytes == 0 || bytes > SIZE_MAX / 2)
        return zt_fault_set(fault, ZT_E_ARG, "a region of %zu bytes", bytes);
    bytes = page_round(bytes);
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for a region of %zu bytes: %s",
                            bytes, strerror(errno));
    if (bytes >= (size_t)TOUCH_GRAIN)
        (void)madvise(p, bytes, MADV_HUGEPAGE); /* advice: works without too */
    zt_parallel_for((int64_t)bytes, TOUCH_GRAIN, touch, p);
    *out = p;
    return ZT_OK;
}

static void cpu_host_free(struct zt_device *dev, void *ptr, size_t bytes)
{
    (void)dev;
    if (ptr)
        munmap(ptr, page_round(bytes));
}

static zt_err cpu_alloc(struct zt_device *dev, size_t bytes, void **out,
                        struct zt_fault *fault)
{
    zt_err rc = cpu_host_alloc(dev, bytes, out, fault);

    if (!rc)
        count_bytes(dev, page_round(bytes), 0);
    return rc;
}

static void cpu_free(struct zt_device *dev, void *ptr, size_t bytes)
{
    cpu_host_free(dev, ptr, bytes);
    if (ptr)
        count_bytes(dev, 0, page_round(bytes));
}

/* How much the system has left is not this device's to say: see worker/engine/plan.c. */
static zt_err cpu_memory(struct zt_device *dev, struct zt_device_memory *out,
                         struct zt_fault *fault)
{
    (void)fault;
    *out = (struct zt_device_memory){SIZE_MAX, SIZE_MAX, dev->used, dev->peak};
    return ZT_OK;
}

zt_err zt_cpu_scratch(struct zt_device *dev, enum zt_scratch_slot slot, size_t bytes,
                      void **out, struct zt_fault *fault)
{
    if (bytes > dev->scratch_bytes[slot]) {
        size_t want = (bytes + 4095) / 4096 * 4096;
        void *p = want < bytes ? NULL : aligned_alloc(4096, want);

        if (!p)
            return zt_fault_set(fault, ZT_E_NOMEM, "no memory for %zu bytes of scratch",
                                bytes);
        free(dev->scratch[slot]);
        count_bytes(dev, want, dev->scratch_bytes[slot]);
        dev->scratch[slot] = p;
        dev->scratch_bytes[slot] = want;
    }
    *out = dev->scratch[slot];
    return ZT_OK;
}

/* ---- transfers: everything is done when the call returns ---- */

static zt_err cpu_copy(struct zt_device *dev, struct zt_stream *s, void *dst,
                       const void *src, size_t bytes, struct zt_fault *fault)
{
    (void)dev;
    (void)s;
    (void)fault;
    if (bytes && dst != src)
        memmove(dst, src, bytes);
    return ZT_OK;
}

static zt_err cpu_sync(struct zt_device *dev, struct zt_stream *s, struct zt_fault *fault)
{
    (void)dev;
    (void)s;
    (void)fault;
    return ZT_OK;
}

#define ZT_CPU_ROW(name, args) .name = zt_cpu_##name,
const struct zt_kernels zt_cpu_kernels = {ZT_KERNELS(ZT_CPU_ROW)};
#undef ZT_CPU_ROW

const struct zt_backend zt_cpu_backend = {
    .abi = ZT_BACKEND_ABI,
    .struct_bytes = sizeof(struct zt_backend),
    .name = "cpu",
    .unified = true,
    .count = cpu_count,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .memory = cpu_memory,
    .host_alloc = cpu_host_alloc,
    .host_free = cpu_host_free,
    .upload = cpu_copy,
    .download = cpu_copy,
    .copy = cpu_copy,
    .sync = cpu_sync,
    ZT_INORDER_MEMBERS,
    .kernels = &zt_cpu_kernels,
};
