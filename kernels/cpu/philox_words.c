#include "kernels/cpu/philox_words.h"

#include "kernels/cpu/device.h"
#include "kernels/cpu/simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

ZT_SIMD static void words_portable(struct zt_philox rng, uint64_t first, int64_t n,
                                   uint32_t *out)
{
    for (int64_t i = 0; i < n; i += ZT_PHILOX_WORDS_BATCH)
        zt_philox_batch(rng, (first + (uint64_t)i) / 4, out + i);
}

/*
 * Eight counters per vector, a word in the lower half of each 64-bit lane: the product
 * of two lower halves is one instruction, which compilers do not find by themselves. What
 * is left in the upper halves does not matter until the end.
 */
#if defined(__x86_64__)
#define ROUNDS __attribute__((target("avx512f"), always_inline)) static inline

struct lanes {
    __m512i c0, c1, c2, c3;
};

ROUNDS void one_round(struct lanes *x, __m512i k0, __m512i k1)
{
    const __m512i m0 = _mm512_set1_epi64(ZT_PHILOX_M0);
    const __m512i m1 = _mm512_set1_epi64(ZT_PHILOX_M1);
    __m512i p0 = _mm512_mul_epu32(x->c0, m0), p1 = _mm512_mul_epu32(x->c2, m1);

    /* 0x96: the exclusive or of three */
    x->c0 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p1, 32), x->c1, k0, 0x96);
    x->c1 = p1;
    x->c2 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p0, 32), x->c3, k1, 0x96);
    x->c3 = p0;
}

ROUNDS void store_lanes(uint32_t *out, const struct lanes *x)
{
    const __m512i even = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0);
    const __m512i odd = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
    __m512i lo = _mm512_mask_mov_epi32(x->c0, 0xAAAA, _mm512_slli_epi64(x->c1, 32));
    __m512i hi = _mm512_mask_mov_epi32(x->c2, 0xAAAA, _mm512_slli_epi64(x->c3, 32));

    _mm512_storeu_si512(out, _mm512_permutex2var_epi64(lo, even, hi));
    _mm512_storeu_si512(out + 16, _mm512_permutex2var_epi64(lo, odd, hi));
}

/* Counters first ... first + 7 of a stream. */
ROUNDS struct lanes load_lanes(struct zt_philox rng, uint64_t first)
{
    const __m512i step = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    __m512i counter = _mm512_add_epi64(_mm512_set1_epi64((long long)first), step);

    return (struct lanes){counter, _mm512_srli_epi64(counter, 32),
                          _mm512_set1_epi64((long long)(uint32_t)rng.stream),
                          _mm512_set1_epi64((long long)(rng.stream >> 32))};
}

__attribute__((target("avx512f"))) static void words_avx512(struct zt_philox rng,
                                                            uint64_t first, int64_t n,
                                                            uint32_t *out)
{
    for (int64_t i = 0; i < n; i += ZT_PHILOX_WORDS_BATCH) {
        uint64_t block = (first + (uint64_t)i) / 4;
        uint32_t k0 = (uint32_t)rng.seed, k1 = (uint32_t)(rng.seed >> 32);
        struct lanes a = load_lanes(rng, block), b = load_lanes(rng, block + 8);

        for (int r = 0; r < ZT_PHILOX_ROUNDS; r++) {
            __m512i key0 = _mm512_set1_epi64(k0), key1 = _mm512_set1_epi64(k1);

            one_round(&a, key0, key1);
            one_round(&b, key0, key1);
            k0 += ZT_PHILOX_W0;
            k1 += ZT_PHILOX_W1;
        }
        store_lanes(out + i, &a);
        store_lanes(out + i + 32, &b);
    }
}

/* The same with four counters per vector. */
#define ROUNDS_4 __attribute__((target("avx2"), always_inline)) static inline

struct lanes_4 {
    __m256i c0, c1, c2, c3;
};

ROUNDS_4 void one_round_4(struct lanes_4 *x, __m256i k0, __m256i k1)
{
    const __m256i m0 = _mm256_set1_epi64x(ZT_PHILOX_M0);
    const __m256i m1 = _mm256_set1_epi64x(ZT_PHILOX_M1);
    __m256i p0 = _mm256_mul_epu32(x->c0, m0), p1 = _mm256_mul_epu32(x->c2, m1);

    x->c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), x->c1), k0);
    x->c1 = p1;
    x->c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), x->c3), k1);
    x->c3 = p0;
}

ROUNDS_4 void store_lanes_4(uint32_t *out, const struct lanes_4 *x)
{
    __m256i lo = _mm256_blend_epi32(x->c0, _mm256_slli_epi64(x->c1, 32), 0xAA);
    __m256i hi = _mm256_blend_epi32(x->c2, _mm256_slli_epi64(x->c3, 32), 0xAA);
    __m256i even = _mm256_unpacklo_epi64(lo, hi), odd = _mm256_unpackhi_epi64(lo, hi);

    _mm256_storeu_si256((__m256i *)out, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256((__m256i *)(out + 8), _mm256_permute2x128_si256(even, odd, 0x31));
}

/* Counters first ... first + 3 of a stream. */
ROUNDS_4 struct lanes_4 load_lanes_4(struct zt_philox rng, uint64_t first)
{
    const __m256i step = _mm256_set_epi64x(3, 2, 1, 0);
    __m256i counter = _mm256_add_epi64(_mm256_set1_epi64x((long long)first), step);

    return (struct lanes_4){counter, _mm256_srli_epi64(counter, 32),
                            _mm256_set1_epi64x((long long)(uint32_t)rng.stream),
                            _mm256_set1_epi64x((long long)(rng.stream >> 32))};
}

__attribute__((target("avx2"))) static void words_avx2(struct zt_philox rng,
                                                       uint64_t first, int64_t n,
                                                       uint32_t *out)
{
    for (int64_t i = 0; i < n; i += 32) {
        uint64_t block = (first + (uint64_t)i) / 4;
        uint32_t k0 = (uint32_t)rng.seed, k1 = (uint32_t)(rng.seed >> 32);
        struct lanes_4 a = load_lanes_4(rng, block), b = load_lanes_4(rng, block + 4);

        for (int r = 0; r < ZT_PHILOX_ROUNDS; r++) {
            __m256i key0 = _mm256_set1_epi64x(k0), key1 = _mm256_set1_epi64x(k1);

            one_round_4(&a, key0, key1);
            one_round_4(&b, key0, key1);
            k0 += ZT_PHILOX_W0;
            k1 += ZT_PHILOX_W1;
        }
        store_lanes_4(out + i, &a);
        store_lanes_4(out + i + 16, &b);
    }
}

void zt_philox_words(struct zt_philox rng, uint64_t first, int64_t n, uint32_t *out)
{
    if (zt_cpu_features() & ZT_CPU_AVX512)
        words_avx512(rng, first, n, out);
    else if (zt_cpu_features() & ZT_CPU_AVX2)
        words_avx2(rng, first, n, out);
    else
        words_portable(rng, first, n, out);
}
#else
void zt_philox_words(struct zt_philox rng, uint64_t first, int64_t n, uint32_t *out)
{
    words_portable(rng, first, n, out);
}
#endif
