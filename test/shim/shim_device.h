/*
 * shim_device.h -- what device code may call: barriers and shuffles by the scheduler of
 * block.cpp, integer atomics, bits and the arithmetic that libm lacks.
 *
 * A barrier or shuffle knows its place in the source, so that threads which wait at two
 * different places are detected.
 */
#ifndef SHIM_DEVICE_H
#define SHIM_DEVICE_H

/* of the thread that runs now; written by the scheduler alone */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
static const int warpSize = 32;

struct shim_place {
    const char *file;
    int line;
};
#define SHIM_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

enum shim_warp_kind { SHIM_SYNC, SHIM_BALLOT, SHIM_SHFL };

void shim_barrier(struct shim_place at);
/*
 * Returns once all lanes of `mask` are in the same call at the same place. SHIM_SHFL: the
 * bits of lane `from`; SHIM_BALLOT: a bit per lane whose value is not 0.
 */
uint64_t shim_warp(shim_warp_kind kind, unsigned mask, uint64_t value, unsigned from,
                   struct shim_place at);
/* Lane of this thread in its warp. */
unsigned shim_lane(void);

/* ---------------------------------------------------------------- barriers and shuffles */
static inline void __syncthreads(SHIM_HERE)
{
    shim_barrier({file, line});
}

static inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, SHIM_HERE)
{
    shim_warp(SHIM_SYNC, mask, 0, 0, {file, line});
}

static inline unsigned __ballot_sync(unsigned mask, int predicate, SHIM_HERE)
{
    return (unsigned)shim_warp(SHIM_BALLOT, mask, predicate != 0, 0, {file, line});
}
static inline int __any_sync(unsigned mask, int predicate, SHIM_HERE)
{
    return shim_warp(SHIM_BALLOT, mask, predicate != 0, 0, {file, line}) != 0;
}
static inline int __all_sync(unsigned mask, int predicate, SHIM_HERE)
{
    return shim_warp(SHIM_BALLOT, mask, predicate != 0, 0, {file, line}) == mask;
}

template <typename T>
static inline T shim_shuffle(unsigned mask, T value, unsigned from, struct shim_place at)
{
    static_assert(std::is_arithmetic<T>::value && sizeof(T) >= 4,
                  "shuffles move numbers");
    uint64_t bits = 0;
    T out;

    memcpy(&bits, &value, sizeof(value));
    bits = shim_warp(SHIM_SHFL, mask, bits, from, at);
    memcpy(&out, &bits, sizeof(out));
    return out;
}

/* A lane outside the segment of `width` lanes gives the caller its own value. */
template <typename T>
static inline T __shfl_sync(unsigned mask, T value, int from, int width = 32, SHIM_HERE)
{
    unsigned lane = shim_lane(), base = lane & ~(unsigned)(width - 1);

    return shim_shuffle(mask, value, base + ((unsigned)from & (unsigned)(width - 1)),
                        {file, line});
}
template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                                SHIM_HERE)
{
    unsigned lane = shim_lane(), from = lane ^ (unsigned)bits;
    unsigned end = (lane & ~(unsigned)(width - 1)) + (unsigned)width;

    return shim_shuffle(mask, value, from < end ? from : lane, {file, line});
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32,
                                 SHIM_HERE)
{
    unsigned lane = shim_lane(), end = (lane & ~(unsigned)(width - 1)) + (unsigned)width;

    return shim_shuffle(mask, value, lane + by < end ? lane + by : lane, {file, line});
}
template <typename T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32,
                               SHIM_HERE)
{
    unsigned lane = shim_lane(), base = lane & ~(unsigned)(width - 1);

    return shim_shuffle(mask, value, lane >= base + by ? lane - by : lane, {file, line});
}

static inline void __threadfence(void)
{
}
static inline void __threadfence_block(void)
{
}

/* ---------------------------------------------------------------- memory */
template <typename T> static inline T __ldg(const T *p)
{
    return *p;
}

/* The old value; a thread runs until it meets others, so an ordinary update is atomic. */
#define SHIM_ATOMIC(name, T, next)                                                       \
    static inline T name(T *p, T v)                                                      \
    {                                                                                    \
        T old = *p;                                                                      \
        *p = (next);                                                                     \
        return old;                                                                      \
    }
#define SHIM_ATOMICS(T)                                                                  \
    SHIM_ATOMIC(atomicAdd, T, old + v)                                                   \
    SHIM_ATOMIC(atomicMin, T, old < v ? old : v)                                         \
    SHIM_ATOMIC(atomicMax, T, old > v ? old : v)                                         \
    SHIM_ATOMIC(atomicExch, T, v)                                                        \
    SHIM_ATOMIC(atomicOr, T, old | v)                                                    \
    SHIM_ATOMIC(atomicAnd, T, old &v)                                                    \
    static inline T atomicCAS(T *p, T expected, T v)                                     \
    {                                                                                    \
        T old = *p;                                                                      \
        *p = old == expected ? v : old;                                                  \
        return old;                                                                      \
    }
SHIM_ATOMICS(int)
SHIM_ATOMICS(unsigned)
SHIM_ATOMICS(unsigned long long)

/* sums of floats in the order of their arrival differ from run to run */
float atomicAdd(float *, float) = delete;
double atomicAdd(double *, double) = delete;

/* ---------------------------------------------------------------- numbers */
template <typename To, typename From> static inline To shim_bits(From x)
{
    static_assert(sizeof(To) == sizeof(From), "one width");
    To y;

    memcpy(&y, &x, sizeof(y));
    return y;
}

static inline unsigned __float_as_uint(float x)
{
    return shim_bits<unsigned>(x);
}
static inline int __float_as_int(float x)
{
    return shim_bits<int>(x);
}
static inline float __uint_as_float(unsigned x)
{
    return shim_bits<float>(x);
}
static inline float __int_as_float(int x)
{
    return shim_bits<float>(x);
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((unsigned long long)a * b >> 32);
}

/* one rounding each, never contracted (the build has -ffp-contract=off) */
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline double __dadd_rn(double a, double b)
{
    return a + b;
}
static inline double __dmul_rn(double a, double b)
{
    return a * b;
}

/* under names of their own: some libms have these */
static inline float shim_rsqrtf(float x)
{
    return (float)(1 / sqrt((double)x));
}
static inline double shim_rsqrt(double x)
{
    return 1 / sqrt(x);
}
static inline float shim_cospif(float x)
{
    return (float)cos(3.14159265358979323846 * (double)fmodf(x, 2));
}
static inline float shim_sinpif(float x)
{
    return (float)sin(3.14159265358979323846 * (double)fmodf(x, 2));
}
static inline void sincospif(float x, float *s, float *c)
{
    *s = shim_sinpif(x);
    *c = shim_cospif(x);
}
#define rsqrtf shim_rsqrtf
#define rsqrt  shim_rsqrt
#define cospif shim_cospif
#define sinpif shim_sinpif

template <typename A, typename B,
          typename = std::enable_if_t<std::is_arithmetic<A>::value &&
                                      std::is_arithmetic<B>::value>>
static inline std::common_type_t<A, B> min(A a, B b)
{
    std::common_type_t<A, B> x = a, y = b;

    return y < x ? y : x;
}
template <typename A, typename B,
          typename = std::enable_if_t<std::is_arithmetic<A>::value &&
                                      std::is_arithmetic<B>::value>>
static inline std::common_type_t<A, B> max(A a, B b)
{
    std::common_type_t<A, B> x = a, y = b;

    return x < y ? y : x;
}

#endif
