/*
 * comm_limit.h -- a collective without any collective: the bytes it must move, moved by
 * plain loops, for bench_comm.
 *
 * Every rank reads and writes what it would, in the same shared buffers, and nobody waits
 * for anybody. The results are of no use (ranks overwrite what others still read); the
 * time is what memory allows. Each loop comes with ordinary stores and with stores past
 * the caches, and a copy by memcpy as well: what the C library does is the fastest from a
 * core's own caches, and on some processors half as fast from those of another. The
 * fastest one at a size is the limit there.
 */
#ifndef BENCH_COMM_LIMIT_H
#define BENCH_COMM_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

/* How results are stored. */
typedef enum limit_how { LIMIT_LOOP, LIMIT_MEMCPY, LIMIT_STREAM } limit_how;

static inline void limit_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#define LIMIT_BLOCK 512 /* elements of a sum of more than two that stay in a cache */

/* x = y = a + b: the all_reduce of two, a slice */
CLONES static void limit_sum2_to2(float *x, float *y, const float *a, const float *b,
                                  size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float s = a[i] + b[i];

        x[i] = s;
        y[i] = s;
    }
}

/* x = a + b: the reduce_scatter of two */
CLONES static void limit_sum2(float *x, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = a[i] + b[i];
}

CLONES static void limit_add(float *restrict x, const float *restrict a, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] += a[i];
}

/* A line a turn, or the compiler makes a memcpy of it. */
typedef float limit_line __attribute__((vector_size(64), aligned(4), may_alias));

CLONES static void limit_copy(float *x, const float *a, size_t n)
{
    size_t i = 0;

    for (; n - i >= 32; i += 32) {
        limit_line first = *(const limit_line *)(a + i);
        limit_line second = *(const limit_line *)(a + i + 16);

        *(limit_line *)(x + i) = first;
        *(limit_line *)(x + i + 16) = second;
    }
    memcpy(x + i, a + i, (n - i) * sizeof(*x));
}

/* Past the caches where the processor can; dst and n whole lines, else a tail by memcpy
 */
static void limit_put(float *dst, const float *src, size_t n, limit_how how)
{
    size_t i = 0;

#if defined(__x86_64__)
    if (how == LIMIT_STREAM) {
        for (; i < n && ((size_t)(dst + i) & 63); i++)
            dst[i] = src[i];
        for (; n - i >= 16; i += 16)
            for (size_t k = 0; k < 16; k += 4)
                _mm_stream_ps(dst + i + k, _mm_loadu_ps(src + i + k));
    }
#endif
    if (how == LIMIT_LOOP) {
        limit_copy(dst, src, n);
        return;
    }
    memcpy(dst + i, src + i, (n - i) * sizeof(*dst));
}

#if defined(__x86_64__)
/* The same two past the caches; y may be NULL. Slices begin on a line. */
static void limit_stream2(float *x, float *y, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i + 16 <= n; i += 16)
        for (size_t k = i; k < i + 16; k += 4) {
            __m128 s = _mm_add_ps(_mm_loadu_ps(a + k), _mm_loadu_ps(b + k));

            _mm_stream_ps(x + k, s);
            if (y)
                _mm_stream_ps(y + k, s);
        }
}
#else
static void limit_stream2(float *x, float *y, const float *a, const float *b, size_t n)
{
    limit_sum2_to2(x, y ? y : x, a, b, n);
}
#endif

/* The sum of num_src slices into num_dst slices of n elements. */
static void limit_sum(float *const *dst, int num_dst, float *const *src, int num_src,
                      size_t n, bool stream)
{
    float acc[LIMIT_BLOCK];

    if (num_src < 1)
        return;
    if (stream && num_src == 2) {
        limit_stream2(dst[0], num_dst == 2 ? dst[1] : NULL, src[0], src[1], n);
        return;
    }
    if (!stream && num_src == 2 && num_dst == 2) {
        limit_sum2_to2(dst[0], dst[1], src[0], src[1], n);
        return;
    }
    if (!stream && num_src == 2 && num_dst == 1) {
        limit_sum2(dst[0], src[0], src[1], n);
        return;
    }
    for (size_t at = 0; at < n; at += LIMIT_BLOCK) {
        size_t m = n - at < LIMIT_BLOCK ? n - at : LIMIT_BLOCK;

        memcpy(acc, src[0] + at, m * sizeof(*acc));
        for (int r = 1; r < num_src; r++)
            limit_add(acc, src[r] + at, m);
        for (int d = 0; d < num_dst; d++)
            limit_put(dst[d] + at, acc, m, stream ? LIMIT_STREAM : LIMIT_MEMCPY);
    }
}

#endif
