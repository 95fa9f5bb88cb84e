#include "kernels/cpu/tile.h"

#include <math.h>

#include "kernels/convert.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

/* ---- in and out ---- */

const float *zt_tile_load(const void *base, zt_dtype dtype, int64_t at, int64_t n,
                          float *buf)
{
    switch (dtype) {
    case ZT_BF16:
        zt_floats_of_bf16(buf, (const uint16_t *)base + at, n);
        return buf;
    case ZT_F16:
        zt_floats_of_f16(buf, (const uint16_t *)base + at, n);
        return buf;
    default:
        return (const float *)base + at;
    }
}

void zt_tile_store(void *base, zt_dtype dtype, int64_t at, int64_t n, const float *buf,
                   bool accumulate)
{
    float sum[ZT_TILE];

    if (accumulate && dtype == ZT_F32) {
        zt_tile_add((float *)base + at, buf, n);
        return;
    }
    if (accumulate) {
        zt_tile_add_to(sum, zt_tile_load(base, dtype, at, n, sum), buf, n);
        buf = sum;
    }
    switch (dtype) {
    case ZT_BF16:
        zt_bf16_of_floats((uint16_t *)base + at, buf, n);
        break;
    case ZT_F16:
        zt_f16_of_floats((uint16_t *)base + at, buf, n);
        break;
    default:
        memcpy((float *)base + at, buf, (size_t)n * sizeof(float));
        break;
    }
}

struct zt_row zt_row_at(const void *base, zt_dtype dtype, int64_t start, float *buf)
{
    return (struct zt_row){base, dtype, start, -1, NULL, buf};
}

const float *zt_row_tile(struct zt_row *r, int64_t at, int64_t n)
{
    if (r->cached != at) {
        r->tile = zt_tile_load(r->base, r->dtype, r->start + at, n, r->buf);
        r->cached = at;
    }
    return r->tile;
}

/* ---- sums over a tile ---- */

ZT_SIMD float zt_tile_sum(const float *x, int64_t n)
{
#define VALUE(i, k) zt_v16_some(x + (i), k)
    ZT_SUM_BODY(n, VALUE);
#undef VALUE
}

ZT_SIMD float zt_tile_dot(const float *x, const float *y, int64_t n)
{
#define VALUE(i, k) (zt_v16_some(x + (i), k) * zt_v16_some(y + (i), k))
    ZT_SUM_BODY(n, VALUE);
#undef VALUE
}

ZT_LANE_FN zt_v16 sq_from(const float *x, float center, int64_t n)
{
    zt_v16 d = zt_v16_some(x, n) - center;

    d *= d;
    for (int64_t j = n; j < 16; j++)
        d[j] = 0;
    return d;
}

ZT_SIMD float zt_tile_sum_sq_from(const float *x, float center, int64_t n)
{
#define VALUE(i, k) sq_from(x + (i), center, k)
    ZT_SUM_BODY(n, VALUE);
#undef VALUE
}

/* Lanes as an array: of vectors wider than the processor's, gcc compares each value apart. */
ZT_SIMD float zt_tile_max(const float *x, int64_t n)
{
    float m[ZT_LANES], best = -INFINITY;
    int64_t i = 0;

    for (int l = 0; l < ZT_LANES; l++)
        m[l] = -INFINITY;
    for (; i + ZT_LANES <= n; i += ZT_LANES)
        for (int l = 0; l < ZT_LANES; l++)
            m[l] = x[i + l] > m[l] ? x[i + l] : m[l];
    for (int l = 0; l < ZT_LANES; l++)
        best = m[l] > best ? m[l] : best;
    for (; i < n; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

ZT_SIMD void zt_tile_add_to(float *out, const float *x, const float *y, int64_t n)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i] + y[i];
}

ZT_SIMD void zt_tile_add(float *restrict acc, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        acc[i] += x[i];
}

ZT_SIMD void zt_tile_add_mul(float *restrict acc, const float *restrict x,
                             const float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        acc[i] += x[i] * y[i];
}

/* ---- sums over rows ---- */

#define MIN_CHUNK_ROWS 32
#define MAX_CHUNKS     64

int64_t zt_chunk_rows(int64_t rows)
{
    int64_t even = (rows + MAX_CHUNKS - 1) / MAX_CHUNKS;

    return even > MIN_CHUNK_ROWS ? even : MIN_CHUNK_ROWS;
}

int64_t zt_num_chunks(int64_t rows)
{
    int64_t each = zt_chunk_rows(rows);

    return (rows + each - 1) / each;
}

struct sum_chunks {
    const float *partial;
    int64_t chunks, cols;
    void *out;
    zt_dtype dtype;
    bool accumulate;
};

static void sum_chunks_part(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct sum_chunks *s = ctx;
    float acc[ZT_TILE];

    (void)thread;
    for (int64_t at = begin; at < end; at += ZT_TILE) {
        int64_t n = end - at < ZT_TILE ? end - at : ZT_TILE;

        memset(acc, 0, (size_t)n * sizeof(float));
        for (int64_t k = 0; k < s->chunks; k++)
            zt_tile_add(acc, s->partial + k * s->cols + at, n);
        zt_tile_store(s->out, s->dtype, at, n, acc, s->accumulate);
    }
}

void zt_sum_chunks(const float *partial, int64_t chunks, int64_t cols, void *out,
                   zt_dtype dtype, bool accumulate)
{
    struct sum_chunks s = {partial, chunks, cols, out, dtype, accumulate};

    zt_parallel_for(cols, 128, sum_chunks_part, &s);
}
