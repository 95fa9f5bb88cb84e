#include "kernels/cpu/gemm/panels.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/features.h"
#include "kernels/integers.h"

#define ROWS ZT_PANEL_ROWS
#define COLS ZT_PANEL_COLS

#if defined(__x86_64__)

#define TARGET __attribute__((target("avx2,fma,prfchw")))
#define INLINE static inline TARGET __attribute__((always_inline))

bool zt_panels_are_supported(void)
{
    unsigned f = zt_cpu_features();

    return (f & ZT_CPU_AVX2) && !(f & ZT_CPU_AVX512);
}

/* ---- packing ---- */

/*
 * Lines are pages apart, which the processor does not foresee. What is asked for past the
 * end does no harm.
 */
#define VALUES_AHEAD 64 /* of each line */
#define STEPS_AHEAD  12

/* `n` lines of the cache, `dist` floats apart. */
INLINE void fetch(const float *at, int64_t dist, int n)
{
    for (int i = 0; i < n; i++)
        _mm_prefetch((const char *)at + i * dist * (int64_t)sizeof(*at), _MM_HINT_T0);
}

/* Lines of a panel that has fewer than `width`, or values that are few. */
static void pack_some(float *dst, int64_t width, const float *src, int64_t line,
                      int64_t step, int64_t k, int64_t n)
{
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < width; j++)
            dst[i * width + j] = j < n ? src[i * step + j * line] : 0;
}

/* 8 rows of 8 change places with their columns. */
INLINE void transpose(__m256 r[8])
{
    __m256 t[8];

#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) { /* pairs of rows */
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) { /* fours */
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    memcpy(r, t, sizeof(t));
}

/* 8 values each of `lines` lines, `width` floats apart; 8 floats are written of each value. */
INLINE void pack_square(float *dst, int64_t width, const float *src, int64_t line,
                        int lines)
{
    __m256 r[8];

#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        r[j] = j < lines ? _mm256_loadu_ps(src + j * line) : _mm256_setzero_ps();
    transpose(r);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        _mm256_storeu_ps(dst + i * width, r[i]);
}

/* Lines whose values are side by side, a panel at a time. */
TARGET static void pack_rows_along(float *dst, const float *src, int64_t line, int64_t k,
                                   int64_t n)
{
    for (int64_t j = 0; j < n; j += ROWS, dst += ROWS * k, src += ROWS * line) {
        int64_t i = 0;

        if (n - j >= ROWS)
            for (; i + 8 <= k; i += 8) {
                fetch(src + i + VALUES_AHEAD, line, ROWS);
                pack_square(dst + i * ROWS, ROWS, src + i, line, ROWS);
            }
        pack_some(dst + i * ROWS, ROWS, src + i, line, 1, k - i, zt_min(n - j, ROWS));
    }
}

/* A whole line of the cache of every line at a time: they may share a set. */
TARGET static void pack_cols_along(float *dst, const float *src, int64_t line, int64_t k,
                                   int64_t n)
{
    for (int64_t j = 0; j < n; j += COLS, dst += COLS * k, src += COLS * line) {
        int64_t i = 0;

        if (n - j >= COLS)
            for (; i + 16 <= k; i += 16) {
                fetch(src + i + VALUES_AHEAD, line, COLS);
                for (int64_t half = 0; half < COLS; half += 8) {
                    const float *from = src + half * line + i;

                    pack_square(dst + i * COLS + half, COLS, from, line, 8);
                    pack_square(dst + (i + 8) * COLS + half, COLS, from + 8, line, 8);
                }
            }
        pack_some(dst + i * COLS, COLS, src + i, line, 1, k - i, zt_min(n - j, COLS));
    }
}

#define ABREAST 4 /* panels that are packed together, for longer stretches of memory */

/* Lines side by side. */
TARGET static void pack_rows_across(float *dst, const float *src, int64_t step, int64_t k,
                                    int64_t n)
{
    int64_t j = 0;

    for (; j + ABREAST * ROWS <= n; j += ABREAST * ROWS, dst += ABREAST * ROWS * k)
        for (int64_t i = 0; i < k; i++) {
            fetch(src + (i + STEPS_AHEAD) * step + j, 16, ABREAST * ROWS / 16 + 1);
#pragma GCC unroll 4
            for (int64_t p = 0; p < ABREAST; p++) {
                const float *from = src + i * step + j + p * ROWS;
                float *to = dst + (p * k + i) * ROWS;

                _mm_storeu_ps(to, _mm_loadu_ps(from));
                memcpy(to + 4, from + 4, 2 * sizeof(float));
            }
        }
    for (; j < n; j += ROWS, dst += ROWS * k)
        pack_some(dst, ROWS, src + j, 1, step, k, zt_min(n - j, ROWS));
}

TARGET static void pack_cols_across(float *dst, const float *src, int64_t step, int64_t k,
                                    int64_t n)
{
    int64_t j = 0;

    for (; j + ABREAST * COLS <= n; j += ABREAST * COLS, dst += ABREAST * COLS * k)
        for (int64_t i = 0; i < k; i++) {
            fetch(src + (i + STEPS_AHEAD) * step + j, 16, ABREAST * COLS / 16);
#pragma GCC unroll 4
            for (int64_t p = 0; p < ABREAST; p++) {
                const float *from = src + i * step + j + p * COLS;
                float *to = dst + (p * k + i) * COLS;

                _mm256_store_ps(to, _mm256_loadu_ps(from));
                _mm256_store_ps(to + 8, _mm256_loadu_ps(from + 8));
            }
        }
    for (; j < n; j += COLS, dst += COLS * k)
        pack_some(dst, COLS, src + j, 1, step, k, zt_min(n - j, COLS));
}

void zt_panels_pack_rows(float *dst, const float *src, int64_t line, int64_t step,
                         int64_t k, int64_t n)
{
    if (step == 1)
        pack_rows_along(dst, src, line, k, n);
    else
        pack_rows_across(dst, src, step, k, n);
}

void zt_panels_pack_cols(float *dst, const float *src, int64_t line, int64_t step,
                         int64_t k, int64_t n)
{
    if (step == 1)
        pack_cols_along(dst, src, line, k, n);
    else
        pack_cols_across(dst, src, step, k, n);
}

/* ---- products ---- */

#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5)

/*
 * c of ROWS x COLS: sums stay in twelve registers. Meanwhile an AHEAD-th of a panel of b comes
 * from `next` into the L2 cache, and c into the L1 cache: stores would wait for it.
 */
#define AHEAD 8
INLINE void multiply_tile(int64_t k, const float *a, const float *b, const float *next,
                          const float *from, int64_t ld_from, float alpha, float *c,
                          int64_t ldc)
{
#define DECLARE(i) __m256 lo##i = _mm256_setzero_ps(), hi##i = lo##i;
#define FETCH(i)                                                                         \
    __builtin_prefetch(c + i * ldc, 1);                                                  \
    __builtin_prefetch(c + i * ldc + COLS - 1, 1);
#define ADD(i)                                                                           \
    x = _mm256_broadcast_ss(a + i);                                                      \
    lo##i = _mm256_fmadd_ps(x, left, lo##i);                                             \
    hi##i = _mm256_fmadd_ps(x, right, hi##i);
#define STEP                                                                             \
    left = _mm256_load_ps(b);                                                            \
    right = _mm256_load_ps(b + 8);                                                       \
    EACH_ROW(ADD)
#define STORE(i)                                                                         \
    lo##i = _mm256_fmadd_ps(x, lo##i, _mm256_loadu_ps(from + i * ld_from));              \
    hi##i = _mm256_fmadd_ps(x, hi##i, _mm256_loadu_ps(from + i * ld_from + 8));          \
    _mm256_storeu_ps(c + i * ldc, lo##i);                                                \
    _mm256_storeu_ps(c + i * ldc + 8, hi##i);
    __m256 x, left, right;

    EACH_ROW(DECLARE)
    EACH_ROW(FETCH)
    for (; k >= AHEAD; k -= AHEAD, next += COLS) {
        _mm_prefetch((const char *)next, _MM_HINT_T1);
#pragma GCC unroll 8
        for (int i = 0; i < AHEAD; i++, a += ROWS, b += COLS) {
            STEP
        }
    }
    for (; k > 0; k--, a += ROWS, b += COLS) {
        STEP
    }
    x = _mm256_set1_ps(alpha);
    EACH_ROW(STORE)
#undef DECLARE
#undef FETCH
#undef ADD
#undef STEP
#undef STORE
}

/* The same of fewer rows or columns. */
TARGET static void multiply_edge(const struct zt_panel_product *p, int64_t i, int64_t j)
{
    const float *from = p->from + i * p->ld_from + j;
    float *c = p->c + i * p->ldc + j, tile[ROWS * COLS] = {0};
    int64_t rows = zt_min(ROWS, p->m - i);
    size_t bytes = (size_t)zt_min(COLS, p->n - j) * sizeof(float);

    for (int64_t r = 0; r < rows; r++)
        memcpy(tile + r * COLS, from + r * p->ld_from, bytes);
    multiply_tile(p->k, p->a + i * p->k, p->b + j * p->k, p->b + j * p->k, tile, COLS,
                  p->alpha, tile, COLS);
    for (int64_t r = 0; r < rows; r++)
        memcpy(c + r * p->ldc, tile + r * COLS, bytes);
}

/* What of b is fetched during tile i of panel j: a part of the next panel. */
INLINE const float *ahead(const struct zt_panel_product *p, int64_t i, int64_t j)
{
    int64_t part = i / ROWS % AHEAD * (p->k / AHEAD);

    return p->b + (j + COLS < p->n ? j + COLS : j) * p->k + part * COLS;
}

TARGET void zt_panels_multiply(const struct zt_panel_product *p)
{
    for (int64_t j = 0; j < p->n; j += COLS)
        for (int64_t i = 0; i < p->m; i += ROWS)
            if (p->m - i < ROWS || p->n - j < COLS)
                multiply_edge(p, i, j);
            else
                multiply_tile(p->k, p->a + i * p->k, p->b + j * p->k, ahead(p, i, j),
                              p->from + i * p->ld_from + j, p->ld_from, p->alpha,
                              p->c + i * p->ldc + j, p->ldc);
}

INLINE void fetch_part(const struct zt_panel_fetch *f, int64_t part)
{
    int64_t each = 64 / (int64_t)sizeof(float); /* values of a line of the cache */
    bool along = f->step == 1;
    int64_t far = along ? f->line : f->step, num = along ? f->n : f->k;
    int64_t lines = zt_num_parts(along ? f->k : f->n, each), all = num * lines;

    for (int64_t i = all * part / f->parts, end = all * (part + 1) / f->parts; i < end;
         i++)
        _mm_prefetch((const char *)(f->at + i / lines * far + i % lines * each),
                     _MM_HINT_T1);
}

/* Panels of b stay in the L2 cache, those of a come by: the next one is fetched in four. */
TARGET void zt_panels_multiply_few_cols(const struct zt_panel_product *p,
                                        const struct zt_panel_fetch *f)
{
    for (int64_t i = 0; i < p->m; i += ROWS) {
        const float *a = p->a + i * p->k;

        if (f->at)
            fetch_part(f, f->part + i / ROWS);
        for (int64_t j = 0; j < p->n; j += COLS)
            if (p->m - i < ROWS || p->n - j < COLS)
                multiply_edge(p, i, j);
            else
                multiply_tile(p->k, a, p->b + j * p->k,
                              a + (4 + j / COLS % 4) * (p->k * ROWS / 4),
                              p->from + i * p->ld_from + j, p->ld_from, p->alpha,
                              p->c + i * p->ldc + j, p->ldc);
    }
}

#else

bool zt_panels_are_supported(void)
{
    return false;
}

void zt_panels_pack_rows(float *dst, const float *src, int64_t line, int64_t step,
                         int64_t k, int64_t n)
{
    (void)dst, (void)src, (void)line, (void)step, (void)k, (void)n;
}

void zt_panels_pack_cols(float *dst, const float *src, int64_t line, int64_t step,
                         int64_t k, int64_t n)
{
    (void)dst, (void)src, (void)line, (void)step, (void)k, (void)n;
}

void zt_panels_multiply(const struct zt_panel_product *p)
{
    (void)p;
}

void zt_panels_multiply_few_cols(const struct zt_panel_product *p,
                                 const struct zt_panel_fetch *f)
{
    (void)p, (void)f;
}

#endif
