#include "kernels/cpu/gemm/bf16_dot.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/device.h"
#include "kernels/cpu/gemm/amx_tiles.h"
#include "kernels/integers.h"

static bool has_tiles(void)
{
    return zt_cpu_features() & ZT_CPU_AMX_BF16;
}

bool zt_dot_is_supported(void)
{
    unsigned f = zt_cpu_features();

    return (f & ZT_CPU_AVX512) && (f & ZT_CPU_AVX512_BF16) && (f & ZT_CPU_FAST_BF16);
}

const struct zt_dot_form *zt_dot_form(void)
{
    static const struct zt_dot_form dots = {.left_rows = 48,
                                            .most_rows = 48,
                                            .rows = 12,
                                            .pairs = 1,
                                            .add_rows = 12,
                                            .add_words = 1 << 17,
                                            .strip_rows = 96,
                                            .strip_keys = 1152};
    static const struct zt_dot_form tiles = {.left_rows = 32,
                                             .most_rows = 128,
                                             .rows = 64,
                                             .pairs = 16,
                                             .add_rows = 128,
                                             .add_words = 0,
                                             .pack_rows = true,
                                             .strip_rows = 128,
                                             .strip_keys = 384};

    return has_tiles() ? &tiles : &dots;
}

void zt_dot_begin(void)
{
    if (has_tiles())
        zt_tile_kernels()->begin();
}

void zt_dot_end(void)
{
    if (has_tiles())
        zt_tile_kernels()->end();
}

int64_t zt_dot_pairs(int64_t k)
{
    int64_t step = zt_dot_form()->pairs;

    return ((k + 1) / 2 + step - 1) / step * step;
}

size_t zt_dot_words(int64_t k, int64_t n, int64_t width)
{
    return (size_t)(zt_dot_pairs(k) * ((n + width - 1) / width * width));
}

struct zt_dot_left zt_dot_left(const uint32_t *words, int64_t k, int64_t row,
                               int64_t pair)
{
    int64_t pairs = zt_dot_pairs(k), width = zt_dot_form()->left_rows,
            word = sizeof(*words);

    if (has_tiles())
        return (struct zt_dot_left){words + row * pairs + 16 * pair,
                                    16 * word,
                                    word,
                                    16 * pairs * word,
                                    256 * word,
                                    true};
    return (struct zt_dot_left){words + row * pairs + pair * width,
                                word,
                                width * word,
                                16 * word,
                                16 * width * word,
                                false};
}

#if defined(__x86_64__)

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define INLINE static inline TARGET __attribute__((always_inline))

/* The first n of 16 lanes; all from 16 on, none below 1. */
static __mmask16 lanes(int64_t n)
{
    return n >= 16 ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1);
}

/* ---- packing ---- */

/* Elements of two rows as 16 words. */
INLINE __m512i zip(const uint16_t *even, const uint16_t *odd, __mmask16 mask)
{
    __m512i lo = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, even));
    __m512i hi = odd ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, odd))
                     : _mm512_setzero_si512();

    return _mm512_or_si512(lo, _mm512_slli_epi32(hi, 16));
}

/* (k, n) into panels of `width`; pairs up to `pairs` are filled with zeros. */
INLINE void pack(uint32_t *panels, int64_t width, const uint16_t *src, int64_t ld,
                 int64_t k, int64_t n, int64_t pairs)
{
    for (int64_t col = 0; col < n; col += width) {
        for (int64_t i = 0; i < k; i += 2) {
            const uint16_t *even = src + i * ld + col;
            const uint16_t *odd = i + 1 < k ? even + ld : NULL;

            for (int64_t j = 0; j < width; j += 16)
                _mm512_storeu_si512(
                    panels + j, zip(even + j, odd ? odd + j : NULL, lanes(n - col - j)));
            panels += width;
        }
        for (int64_t i = (k + 1) / 2; i < pairs; i++, panels += width)
            memset(panels, 0, (size_t)width * sizeof(*panels));
    }
}

/* The same into tiles: those of 16 pairs beside each other, along the rows of src first. */
INLINE void pack_right_tiles(uint32_t *panels, const uint16_t *src, int64_t ld, int64_t k,
                             int64_t n, int64_t pairs)
{
    for (int64_t i = 0; i < pairs; i += 16)
        for (int64_t col = 0; col < n; col += ZT_DOT_B_WIDTH) {
            uint32_t *tiles = panels + col * pairs + i * ZT_DOT_B_WIDTH;

            for (int64_t row = 0; row < 16; row++) {
                int64_t at = 2 * (i + row);
                const uint16_t *even = src + at * ld + col;
                const uint16_t *odd = at + 1 < k ? even + ld : NULL;

                for (int64_t j = 0; j < ZT_DOT_B_WIDTH; j += 16)
                    _mm512_storeu_si512(
                        tiles + 16 * j + 16 * row,
                        at < k ? zip(even + j, odd ? odd + j : NULL, lanes(n - col - j))
                               : _mm512_setzero_si512());
            }
        }
}

TARGET void zt_dot_pack(uint32_t *panels, const uint16_t *src, int64_t ld, int64_t k,
                        int64_t n)
{
    if (has_tiles())
        pack_right_tiles(panels, src, ld, k, n, zt_dot_pairs(k));
    else
        pack(panels, ZT_DOT_B_WIDTH, src, ld, k, n, zt_dot_pairs(k));
}

/* 16 rows of 16 words change places with their columns. */
INLINE void transpose_words(__m512i r[16])
{
    __m512i t[16];

    for (int i = 0; i < 16; i += 2) { /* pairs of rows */
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) { /* fours */
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 16; i += 8) /* eights, by quarters of a vector */
        for (int j = 0; j < 4; j++) {
            t[i + j] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0x88);
            t[i + j + 4] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0xdd);
        }
    for (int j = 0; j < 8; j++) {
        r[j] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0x88);
        r[j + 8] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0xdd);
    }
}

TARGET void zt_dot_pack_transposed(uint32_t *panels, const uint16_t *src, int64_t ld,
                                   int64_t k, int64_t n)
{
    const int64_t width = ZT_DOT_B_WIDTH, pairs = zt_dot_pairs(k);
    const int64_t row_words = has_tiles() ? 16 : width; /* within 16 pairs */
    const int64_t col_words = has_tiles() ? 16 : 1;

    for (int64_t col = 0; col < (n + width - 1) / width * width; col += 16) {
        uint32_t *panel = panels + col / width * width * pairs + col % width * col_words;

        for (int64_t i = 0; i < pairs; i += 16) {
            int64_t left = k - 2 * i;
            __mmask32 mask = left >= 32 ? ~0u : (1u << left) - 1;
            __m512i r[16];

            for (int j = 0; j < 16; j++)
                r[j] = col + j < n
                           ? _mm512_maskz_loadu_epi16(mask, src + (col + j) * ld + 2 * i)
                           : _mm512_setzero_si512();
            transpose_words(r);
            for (int j = 0; j < 16 && i + j < pairs; j++)
                _mm512_storeu_si512(panel + i * width + j * row_words, r[j]);
        }
    }
}

/* Tile after tile of (16 rows, 16 pairs): rows of a matrix may fall into few sets of the
 * cache, these do not. */
TARGET static void pack_tiles(uint32_t *words, const uint16_t *src, int64_t ld, int64_t k,
                              int64_t m)
{
    int64_t pairs = zt_dot_pairs(k);

    /* along the rows of src first: they may be pages apart */
    for (int64_t i = 0; i < pairs; i += 16)
        for (int64_t row = 0; row < m; row += 16) {
            __mmask16 mask = lanes(m - row);
            __m512i r[16];

            for (int j = 0; j < 16; j++) {
                int64_t at = 2 * (i + j);
                const uint16_t *even = src + at * ld + row;

                r[j] = at < k ? zip(even, at + 1 < k ? even + ld : NULL, mask)
                              : _mm512_setzero_si512();
            }
            transpose_words(r);
            for (int j = 0; j < 16; j++)
                _mm512_storeu_si512(words + row * pairs + 16 * (i + j), r[j]);
        }
}

TARGET void zt_dot_pack_left(uint32_t *words, const uint16_t *src, int64_t ld, int64_t k,
                             int64_t m)
{
    if (has_tiles())
        pack_tiles(words, src, ld, k, m);
    else
        pack(words, zt_dot_form()->left_rows, src, ld, k, m, zt_dot_pairs(k));
}

TARGET void zt_dot_pack_left_rows(uint32_t *words, const uint16_t *src, int64_t ld,
                                  int64_t k, int64_t m)
{
    int64_t pairs = zt_dot_pairs(k);

    for (int64_t row = 0; row < m; row += 16)
        for (int64_t i = 0; i < 16; i++) {
            uint32_t *to = words + row * pairs + 16 * i;
            const uint16_t *from = src + (row + i) * ld;

            for (int64_t at = 0; at < 2 * pairs; at += 32) {
                int64_t left = row + i < m ? k - at : 0;
                __mmask32 mask = left >= 32 ? ~0u : left <= 0 ? 0 : (1u << left) - 1;

                _mm512_storeu_si512(to + 8 * at,
                                    _mm512_maskz_loadu_epi16(mask, from + at));
            }
        }
}

/* ---- the product ---- */

#define ROWS 6 /* with four vectors a row: 24 sums, 4 of b, 1 of a in 32 registers */

/* `rows` x `vectors` of c, kept in registers over the whole of k. */
INLINE void block(const struct zt_dot *p, const char *a, const uint32_t *b, float *c,
                  int64_t n, int rows, int vectors)
{
    __m512 sum[ROWS][4], alpha = _mm512_set1_ps(p->alpha);
    __mmask16 last = lanes(n - 16 * (vectors - 1)); /* of each row's last vector */

#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            sum[i][j] = _mm512_setzero_ps();
    if (p->accumulate)
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++)
                _mm_prefetch((const char *)(c + i * p->ldc + 16 * j), _MM_HINT_T0);
    for (int64_t k = 0; k < p->pairs; k++) {
        __m512i right[4];

#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            right[j] = _mm512_loadu_si512(b + 16 * j);
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            int32_t word;

            memcpy(&word, a + i * p->a.row, sizeof(word));
            __m512i left = _mm512_set1_epi32(word);
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++)
                sum[i][j] =
                    _mm512_dpbf16_ps(sum[i][j], (__m512bh)left, (__m512bh)right[j]);
        }
        a += p->a.pair;
        b += ZT_DOT_B_WIDTH;
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            float *to = c + i * p->ldc + 16 * j;
            __mmask16 mask = j == vectors - 1 ? last : 0xffff;
            __m512 old =
                p->accumulate ? _mm512_maskz_loadu_ps(mask, to) : _mm512_setzero_ps();

            _mm512_mask_storeu_ps(to, mask, _mm512_fmadd_ps(sum[i][j], alpha, old));
        }
}

typedef void (*block_fn)(const struct zt_dot *p, const char *a, const uint32_t *b,
                         float *c, int64_t n);

#define BLOCK(rows, vectors)                                                             \
    TARGET static void block_##rows##_##vectors(const struct zt_dot *p, const char *a,   \
                                                const uint32_t *b, float *c, int64_t n)  \
    {                                                                                    \
        block(p, a, b, c, n, rows, vectors);                                             \
    }
#define BLOCKS(rows) BLOCK(rows, 1) BLOCK(rows, 2) BLOCK(rows, 3) BLOCK(rows, 4)
BLOCKS(1)
BLOCKS(2)
BLOCKS(3)
BLOCKS(4)
BLOCKS(5)
BLOCKS(6)

#define NAMES(rows)                                                                      \
    {                                                                                    \
        block_##rows##_1, block_##rows##_2, block_##rows##_3, block_##rows##_4           \
    }
static const block_fn blocks[ROWS][4] = {NAMES(1), NAMES(2), NAMES(3),
                                         NAMES(4), NAMES(5), NAMES(6)};

void zt_dot_product(const struct zt_dot *p)
{
    const uint32_t *b = p->b;

    if (has_tiles()) {
        zt_tile_kernels()->product(p);
        return;
    }
    for (int64_t col = 0; col < p->n; col += ZT_DOT_B_WIDTH, b += p->b_panel) {
        int64_t n = zt_min(p->n - col, ZT_DOT_B_WIDTH);

        for (int64_t row = 0; row < p->m; row += ROWS) {
            int64_t rows = zt_min(p->m - row, ROWS);

            blocks[rows - 1][(n - 1) / 16](p, (const char *)p->a.data + row * p->a.row, b,
                                           p->c + row * p->ldc + col, n);
        }
    }
}

#else

/* zt_dot_is_supported() is false here: nobody calls these. */
void zt_dot_pack(uint32_t *panels, const uint16_t *src, int64_t ld, int64_t k, int64_t n)
{
    (void)panels, (void)src, (void)ld, (void)k, (void)n;
}

void zt_dot_pack_transposed(uint32_t *panels, const uint16_t *src, int64_t ld, int64_t k,
                            int64_t n)
{
    (void)panels, (void)src, (void)ld, (void)k, (void)n;
}

void zt_dot_pack_left(uint32_t *words, const uint16_t *src, int64_t ld, int64_t k,
                      int64_t m)
{
    (void)words, (void)src, (void)ld, (void)k, (void)m;
}

void zt_dot_pack_left_rows(uint32_t *words, const uint16_t *src, int64_t ld, int64_t k,
                           int64_t m)
{
    (void)words, (void)src, (void)ld, (void)k, (void)m;
}

void zt_dot_product(const struct zt_dot *p)
{
    (void)p;
}

#endif
