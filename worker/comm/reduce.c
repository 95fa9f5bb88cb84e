/* reduce.c -- sums and maxima over ranks, for each instruction set; copies. */
#include "worker/comm/reduce.h"
#include "common/half.h"

#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define HAVE_X86 1
#else
#define HAVE_X86 0
#endif

/*
 * Two sources, the common case, are added in one loop that writes every destination.
 * Else a block at a time stays in the first-level cache: sources are added into `acc` one
 * after the other, and the rounded result goes to every destination.
 */
#define BLOCK 1024

/* What stays in the caches next to a core, bytes. */
#define CACHED ((size_t)256 << 10)

/*
 * The end of a piece, bytes, that is worked on from its border inwards, as reduce.h says
 * of zt_comm_copy_span(). Measured on a Zen 3: 8 KiB do it, 2 KiB do not.
 */
#define EDGE ((size_t)8 << 10)

/*
 * UNROLLED: a loop of one vector a turn is half as fast where it happens to lie across two
 * lines of code.
 * INDEPENDENT: the same, of iterations that do not depend on each other: a destination is
 * a source or does not overlap any.
 */
#if defined(__clang__)
#define UNROLLED    _Pragma("clang loop interleave_count(4)")
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety) interleave_count(4)")
#else
#define UNROLLED    _Pragma("GCC unroll 4")
#define INDEPENDENT _Pragma("GCC ivdep") _Pragma("GCC unroll 4")
#endif

/* ---------------------------------------------------------------- loops, any target */
#define INLINE static inline __attribute__((always_inline))

/* One source joins the accumulator: replaces it, is added to it, or the larger stays. */
typedef enum join_step { STEP_LOAD, STEP_ADD, STEP_MAX, NUM_STEP } join_step;

INLINE float step_one(join_step step, float acc, float x)
{
    switch (step) {
    case STEP_ADD:
        return acc + x;
    case STEP_MAX:
        return x > acc || x != x ? x : acc;
    default:
        return x;
    }
}

INLINE void join_f32(join_step step, float *restrict acc, const void *src, size_t n)
{
    const float *restrict x = src;

    UNROLLED
    for (size_t i = 0; i < n; i++)
        acc[i] = step_one(step, acc[i], x[i]);
}

INLINE void join_bf16(join_step step, float *restrict acc, const void *src, size_t n)
{
    const uint16_t *restrict x = src;

    UNROLLED
    for (size_t i = 0; i < n; i++)
        acc[i] = step_one(step, acc[i], zt_float_of_bf16(x[i]));
}

INLINE void store_f32(void *dst, const float *restrict acc, float scale, size_t n)
{
    float *restrict y = dst;

    UNROLLED
    for (size_t i = 0; i < n; i++)
        y[i] = acc[i] * scale;
}

INLINE void store_bf16(void *dst, const float *restrict acc, float scale, size_t n)
{
    uint16_t *restrict y = dst;

    UNROLLED
    for (size_t i = 0; i < n; i++)
        y[i] = zt_bf16_of_float(acc[i] * scale);
}

/* Two ranks in one loop: load, add and store without the accumulator. */
INLINE void pair_f32(void *dst, const void *a, const void *b, float scale, size_t n)
{
    const float *x = a, *z = b;
    float *y = dst;

    INDEPENDENT
    for (size_t i = 0; i < n; i++)
        y[i] = step_one(STEP_ADD, x[i], z[i]) * scale;
}

INLINE void pair_bf16(void *dst, const void *a, const void *b, float scale, size_t n)
{
    const uint16_t *x = a, *z = b;
    uint16_t *y = dst;

    INDEPENDENT
    for (size_t i = 0; i < n; i++)
        y[i] = zt_bf16_of_float(
            step_one(STEP_ADD, zt_float_of_bf16(x[i]), zt_float_of_bf16(z[i])) * scale);
}

/* The same to two destinations. */
INLINE void twin_f32(void *dst, void *dst2, const void *a, const void *b, float scale,
                     size_t n)
{
    const float *x = a, *z = b;
    float *y = dst, *y2 = dst2;

    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        float sum = step_one(STEP_ADD, x[i], z[i]) * scale;

        y[i] = sum;
        y2[i] = sum;
    }
}

INLINE void twin_bf16(void *dst, void *dst2, const void *a, const void *b, float scale,
                      size_t n)
{
    const uint16_t *x = a, *z = b;
    uint16_t *y = dst, *y2 = dst2;

    INDEPENDENT
    for (size_t i = 0; i < n; i++) {
        uint16_t sum = zt_bf16_of_float(
            step_one(STEP_ADD, zt_float_of_bf16(x[i]), zt_float_of_bf16(z[i])) * scale);

        y[i] = sum;
        y2[i] = sum;
    }
}

/* Elements that a loop from the end on works on at a time, whole lines. */
#define STRIDE 32

INLINE void widen_portable(float *restrict y, const uint16_t *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = zt_float_of_f16(x[i]);
}

INLINE void narrow_portable(uint16_t *restrict y, const float *restrict x, float scale,
                            size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = zt_f16_of_float(x[i] * scale);
}

/* ---------------------------------------------------------------- a table per target */
typedef void (*join_fn)(float *acc, const void *src, size_t n);
typedef void (*store_fn)(void *dst, const float *acc, float scale, size_t n);
typedef void (*pair_fn)(void *dst, const void *a, const void *b, float scale, size_t n);
typedef void (*twin_fn)(void *dst, void *dst2, const void *a, const void *b, float scale,
                        size_t n);

#define NUM_FLOAT 3 /* ZT_F32, ZT_BF16, ZT_F16 */

/* pair and twin are by direction: [1] from the end on. */
struct kernels {
    join_fn join[NUM_FLOAT][NUM_STEP];
    store_fn store[NUM_FLOAT];
    pair_fn pair[2][NUM_FLOAT]; /* NULL: by join and store */
    twin_fn twin[2][NUM_FLOAT];
};

#define JOIN(name, target, type, step)                                                   \
    target static void name##_##type##_##step(float *acc, const void *src, size_t n)     \
    {                                                                                    \
        join_##type(STEP_##step, acc, src, n);                                           \
    }
#define JOIN_F16(name, target, widen, step)                                              \
    target static void name##_f16_##step(float *acc, const void *src, size_t n)          \
    {                                                                                    \
        float x[BLOCK];                                                                  \
        widen(x, src, n);                                                                \
        join_f32(STEP_##step, acc, x, n);                                                \
    }
#define JOINS(name, target, type)                                                        \
    JOIN(name, target, type, LOAD)                                                       \
    JOIN(name, target, type, ADD)                                                        \
    JOIN(name, target, type, MAX)
#define STORE(name, target, type)                                                        \
    target static void name##_store_##type(void *dst, const float *acc, float scale,     \
                                           size_t n)                                     \
    {                                                                                    \
        store_##type(dst, acc, scale, n);                                                \
    }
#define BYTES_f32          4
#define BYTES_bf16         2
#define AT(base, type, at) ((char *)(base) + (at)*BYTES_##type)
#define PAIR(name, target, type)                                                         \
    target static void name##_pair_##type(void *dst, const void *a, const void *b,       \
                                          float scale, size_t n)                         \
    {                                                                                    \
        pair_##type(dst, a, b, scale, n);                                                \
    }                                                                                    \
    target static void name##_twin_##type(void *dst, void *dst2, const void *a,          \
                                          const void *b, float scale, size_t n)          \
    {                                                                                    \
        twin_##type(dst, dst2, a, b, scale, n);                                          \
    }                                                                                    \
    target static void name##_pair_back_##type(void *dst, const void *a, const void *b,  \
                                               float scale, size_t n)                    \
    {                                                                                    \
        size_t at = n - n % STRIDE;                                                      \
                                                                                         \
        pair_##type(AT(dst, type, at), AT(a, type, at), AT(b, type, at), scale, n - at); \
        while (at) {                                                                     \
            at -= STRIDE;                                                                \
            pair_##type(AT(dst, type, at), AT(a, type, at), AT(b, type, at), scale,      \
                        STRIDE);                                                         \
        }                                                                                \
    }                                                                                    \
    target static void name##_twin_back_##type(void *dst, void *dst2, const void *a,     \
                                               const void *b, float scale, size_t n)     \
    {                                                                                    \
        size_t at = n - n % STRIDE;                                                      \
                                                                                         \
        twin_##type(AT(dst, type, at), AT(dst2, type, at), AT(a, type, at),              \
                    AT(b, type, at), scale, n - at);                                     \
        while (at) {                                                                     \
            at -= STRIDE;                                                                \
            twin_##type(AT(dst, type, at), AT(dst2, type, at), AT(a, type, at),          \
                        AT(b, type, at), scale, STRIDE);                                 \
        }                                                                                \
    }
#define KERNELS(name, target, widen, narrow)                                             \
    JOINS(name, target, f32)                                                             \
    JOINS(name, target, bf16)                                                            \
    JOIN_F16(name, target, widen, LOAD)                                                  \
    JOIN_F16(name, target, widen, ADD)                                                   \
    JOIN_F16(name, target, widen, MAX)                                                   \
    STORE(name, target, f32)                                                             \
    STORE(name, target, bf16)                                                            \
    PAIR(name, target, f32)                                                              \
    PAIR(name, target, bf16)                                                             \
    target static void name##_store_f16(void *dst, const float *acc, float scale,        \
                                        size_t n)                                        \
    {                                                                                    \
        narrow(dst, acc, scale, n);                                                      \
    }                                                                                    \
    static const struct kernels name##_kernels = {                                       \
        .join = {{name##_f32_LOAD, name##_f32_ADD, name##_f32_MAX},                      \
                 {name##_bf16_LOAD, name##_bf16_ADD, name##_bf16_MAX},                   \
                 {name##_f16_LOAD, name##_f16_ADD, name##_f16_MAX}},                     \
        .store = {name##_store_f32, name##_store_bf16, name##_store_f16},                \
        .pair = {{name##_pair_f32, name##_pair_bf16},                                    \
                 {name##_pair_back_f32, name##_pair_back_bf16}},                         \
        .twin = {{name##_twin_f32, name##_twin_bf16},                                    \
                 {name##_twin_back_f32, name##_twin_back_bf16}},                         \
    };

KERNELS(portable, , widen_portable, narrow_portable)

#if HAVE_X86

/* F16C rounds as half.h does. A tail is padded so that all elements take one path. */
__attribute__((target("avx2,f16c"))) static void widen_f16c(float *y, const uint16_t *x,
                                                            size_t n)
{
    size_t i = 0;

    for (; n - i >= 8; i += 8)
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(x + i))));
    if (i < n) {
        uint16_t pad[8] = {0};
        float wide[8];

        memcpy(pad, x + i, (n - i) * sizeof(*x));
        _mm256_storeu_ps(wide, _mm256_cvtph_ps(_mm_loadu_si128((const void *)pad)));
        memcpy(y + i, wide, (n - i) * sizeof(*y));
    }
}

__attribute__((target("avx2,f16c"))) static void narrow_f16c(uint16_t *y, const float *x,
                                                             float scale, size_t n)
{
    __m256 s = _mm256_set1_ps(scale);
    size_t i = 0;

    for (; n - i >= 8; i += 8)
        _mm_storeu_si128((void *)(y + i),
                         _mm256_cvtps_ph(_mm256_mul_ps(_mm256_loadu_ps(x + i), s),
                                         _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    if (i < n) {
        float wide[8] = {0};
        uint16_t pad[8];

        memcpy(wide, x + i, (n - i) * sizeof(*x));
        _mm_storeu_si128((void *)pad,
                         _mm256_cvtps_ph(_mm256_mul_ps(_mm256_loadu_ps(wide), s),
                                         _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
        memcpy(y + i, pad, (n - i) * sizeof(*y));
    }
}

/* gcc alone would stop at 256 bits; clang does not know the option */
#if defined(__clang__)
#define WIDE_VECTORS ""
#else
#define WIDE_VECTORS ",prefer-vector-width=512"
#endif

KERNELS(avx2, __attribute__((target("avx2,f16c"))), widen_f16c, narrow_f16c)
KERNELS(
    avx512,
    __attribute__((target("avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq" WIDE_VECTORS))),
    widen_f16c, narrow_f16c)

static const struct kernels *const levels[] = {&portable_kernels, &avx2_kernels,
                                               &avx512_kernels};

static int best_level(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2")) /* which comes with F16C */
        return 0;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512dq")
               ? 2
               : 1;
}

#else
static const struct kernels *const levels[] = {&portable_kernels};

static int best_level(void)
{
    return 0;
}
#endif

static _Atomic int level_plus_1; /* 0: not asked yet */

int zt_reduce_level(void)
{
    int l = atomic_load_explicit(&level_plus_1, memory_order_relaxed);

    if (!l) {
        l = best_level() + 1;
        atomic_store_explicit(&level_plus_1, l, memory_order_relaxed);
    }
    return l - 1;
}

void zt_reduce_set_level(int level)
{
    int best = best_level();

    atomic_store(&level_plus_1, (level < best ? level : best) + 1);
}

/* ---------------------------------------------------------------- integers */
#define INTEGER(type, name, wide)                                                        \
    static void join_##name(void *acc, const void *src, zt_reduce_op op, size_t n)       \
    {                                                                                    \
        type *restrict a = acc;                                                          \
        const type *restrict x = src;                                                    \
        if (op == ZT_MAX)                                                                \
            for (size_t i = 0; i < n; i++)                                               \
                a[i] = x[i] > a[i] ? x[i] : a[i];                                        \
        else                                                                             \
            for (size_t i = 0; i < n; i++)                                               \
                a[i] = (type)((wide)a[i] + (wide)x[i]);                                  \
    }
INTEGER(int32_t, i32, uint32_t)
INTEGER(int64_t, i64, uint64_t)
INTEGER(uint8_t, u8, uint32_t)

static void reduce_integers(const struct zt_rank_reduction *how, void *out,
                            const void *const *src, int num_src, size_t at, size_t n)
{
    size_t elem = zt_dtype_bytes(how->dtype);

    memcpy(out, (const char *)src[0] + at * elem, n * elem);
    for (int r = 1; r < num_src; r++) {
        const char *x = (const char *)src[r] + at * elem;

        if (how->dtype == ZT_I32)
            join_i32(out, x, how->op, n);
        else if (how->dtype == ZT_I64)
            join_i64(out, x, how->op, n);
        else
            join_u8(out, x, how->op, n);
    }
}

/* ---------------------------------------------------------------- copies */
#if HAVE_X86
/* Whole lines past the caches: no read of the line that is overwritten. */
static void copy_stream(void *dst, const void *src, size_t bytes)
{
    char *d = dst;
    const char *s = src;
    size_t head = -(uintptr_t)d & 63;

    if (head > bytes)
        head = bytes;
    memcpy(d, s, head);
    for (d += head, s += head, bytes -= head; bytes >= 64;
         d += 64, s += 64, bytes -= 64) {
        __m128i a = _mm_loadu_si128((const void *)s);
        __m128i b = _mm_loadu_si128((const void *)(s + 16));
        __m128i c = _mm_loadu_si128((const void *)(s + 32));
        __m128i e = _mm_loadu_si128((const void *)(s + 48));

        _mm_stream_si128((void *)d, a);
        _mm_stream_si128((void *)(d + 16), b);
        _mm_stream_si128((void *)(d + 32), c);
        _mm_stream_si128((void *)(d + 48), e);
    }
    memcpy(d, s, bytes);
}

/*
 * For copies of up to CACHED. From 2 KiB on memcpy of glibc is `rep movsb`, whose
 * last stores arrive late, and which some processors (Zen 3 and 4) do at half the speed or
 * less where source and destination lie nearly alike in their pages.
 */
__attribute__((target("avx2"))) static void copy_avx2(void *dst, const void *src,
                                                      size_t bytes)
{
    char *d = dst;
    const char *s = src;

    for (; bytes >= 128; d += 128, s += 128, bytes -= 128) {
        __m256i a = _mm256_loadu_si256((const void *)s);
        __m256i b = _mm256_loadu_si256((const void *)(s + 32));
        __m256i c = _mm256_loadu_si256((const void *)(s + 64));
        __m256i e = _mm256_loadu_si256((const void *)(s + 96));

        _mm256_storeu_si256((void *)d, a);
        _mm256_storeu_si256((void *)(d + 32), b);
        _mm256_storeu_si256((void *)(d + 64), c);
        _mm256_storeu_si256((void *)(d + 96), e);
    }
    memcpy(d, s, bytes);
}

__attribute__((target("avx2"))) static void copy_avx2_backward(void *dst, const void *src,
                                                               size_t bytes)
{
    char *d = (char *)dst + bytes;
    const char *s = (const char *)src + bytes;

    for (; bytes >= 128; bytes -= 128) {
        d -= 128;
        s -= 128;

        __m256i a = _mm256_loadu_si256((const void *)s);
        __m256i b = _mm256_loadu_si256((const void *)(s + 32));
        __m256i c = _mm256_loadu_si256((const void *)(s + 64));
        __m256i e = _mm256_loadu_si256((const void *)(s + 96));

        _mm256_storeu_si256((void *)(d + 96), e);
        _mm256_storeu_si256((void *)(d + 64), c);
        _mm256_storeu_si256((void *)(d + 32), b);
        _mm256_storeu_si256((void *)d, a);
    }
    memcpy(dst, src, bytes);
}

/* Streaming stores are not ordered by a release store: fence before peers are notified.
 */
static void stream_fence(void)
{
    _mm_sfence();
}
#else
static void copy_stream(void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}

static void stream_fence(void)
{
}
#endif

void zt_comm_copy(void *dst, const void *src, size_t bytes, bool stream)
{
    if (!bytes || dst == src)
        return;
    if (!stream) {
#if HAVE_X86
        if (bytes <= CACHED && zt_reduce_level() > 0) {
            copy_avx2(dst, src, bytes);
            return;
        }
#endif
        memcpy(dst, src, bytes);
        return;
    }
    copy_stream(dst, src, bytes);
    stream_fence();
}

/* Where the rest of a piece and its edge, which is done last, meet: on a line. */
static size_t edge_border(size_t bytes, bool backward)
{
    size_t edge = bytes / 2 < EDGE ? bytes / 2 : EDGE;

    return (backward ? edge : bytes - edge) / 64 * 64;
}

void zt_comm_copy_span(void *dst, const void *src, size_t bytes, bool backward)
{
#if HAVE_X86
    if (dst != src && bytes <= CACHED && zt_reduce_level() > 0) {
        size_t at = edge_border(bytes, backward);

        if (!backward)
            copy_avx2(dst, src, at);
        copy_avx2_backward((char *)dst + at, (const char *)src + at, bytes - at);
        if (backward)
            copy_avx2(dst, src, at);
        return;
    }
#endif
    (void)backward;
    zt_comm_copy(dst, src, bytes, false);
}

/* ---------------------------------------------------------------- over ranks */
/* Elements [at, at + n) of the sources into `out`. */
static void reduce_block(const struct kernels *k, const struct zt_rank_reduction *how,
                         void *out, const void *const *src, int num_src, size_t at,
                         size_t n)
{
    float acc[BLOCK] __attribute__((aligned(64)));
    join_step step = how->op == ZT_MAX ? STEP_MAX : STEP_ADD;
    size_t off = at * zt_dtype_bytes(how->dtype);

    if (how->dtype >= NUM_FLOAT) {
        reduce_integers(how, out, src, num_src, at, n);
        return;
    }
    if (num_src == 2 && step == STEP_ADD && k->pair[0][how->dtype]) {
        k->pair[0][how->dtype](out, (const char *)src[0] + off,
                               (const char *)src[1] + off, how->scale, n);
        return;
    }
    k->join[how->dtype][STEP_LOAD](acc, (const char *)src[0] + off, n);
    for (int r = 1; r < num_src; r++)
        k->join[how->dtype][step](acc, (const char *)src[r] + off, n);
    k->store[how->dtype](out, acc, how->scale, n);
}

/* Elements [at, at + n) of two sources straight to one or two destinations. */
static void pair_block(const struct kernels *k, const struct zt_rank_reduction *how,
                       void *const *dst, int num_dst, const void *const *src, size_t at,
                       size_t n, bool backward)
{
    size_t off = at * zt_dtype_bytes(how->dtype);
    const void *a = (const char *)src[0] + off, *b = (const char *)src[1] + off;

    if (num_dst == 1)
        k->pair[backward][how->dtype]((char *)dst[0] + off, a, b, how->scale, n);
    else
        k->twin[backward][how->dtype]((char *)dst[0] + off, (char *)dst[1] + off, a, b,
                                      how->scale, n);
}

/* All of it, if there is a loop for that. */
static bool reduce_two(const struct kernels *k, const struct zt_rank_reduction *how,
                       void *const *dst, int num_dst, const void *const *src, int num_src,
                       size_t count)
{
    size_t bytes = count * zt_dtype_bytes(how->dtype), at;
    bool backward = how->backward && bytes <= CACHED;

    if (num_src != 2 || num_dst > 2 || how->stream || how->op == ZT_MAX ||
        how->dtype >= NUM_FLOAT || !k->pair[0][how->dtype])
        return false;
    at = edge_border(bytes, backward) / zt_dtype_bytes(how->dtype);
    if (!backward)
        pair_block(k, how, dst, num_dst, src, 0, at, false);
    pair_block(k, how, dst, num_dst, src, at, count - at, true);
    if (backward)
        pair_block(k, how, dst, num_dst, src, 0, at, false);
    return true;
}

void zt_reduce_ranks(const struct zt_rank_reduction *how, void *const *dst, int num_dst,
                     const void *const *src, int num_src, size_t count)
{
    char out[BLOCK * 8] __attribute__((aligned(64)));
    size_t elem = zt_dtype_bytes(how->dtype);
    const struct kernels *k = levels[zt_reduce_level()];

    if (reduce_two(k, how, dst, num_dst, src, num_src, count))
        return;
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = count - at < BLOCK ? count - at : BLOCK;
        /* a sum of integers grows in the result, which must not be a source yet */
        bool apart = how->stream || how->dtype >= NUM_FLOAT;
        char *sum = (char *)dst[0] + at * elem;

        if (apart)
            sum = out;
        reduce_block(k, how, sum, src, num_src, at, n);
        for (int d = apart ? 0 : 1; d < num_dst; d++) {
            char *to = (char *)dst[d] + at * elem;

            if (how->stream)
                copy_stream(to, sum, n * elem);
            else if (to != sum)
                memcpy(to, sum, n * elem);
        }
    }
    if (how->stream)
        stream_fence();
}
