/*
 * Random values and dropout. Words come in batches of 64 that begin at multiples of 64 of
 * the absolute counter, so a value depends on its counter alone.
 */
#include "kernels/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/tile.h"
#include "kernels/cpu/vmath.h"
#include "kernels/cpu/philox_words.h"

#define BATCH ZT_PHILOX_WORDS_BATCH /* elements */

/* Room for a tile that begins anywhere in a batch. */
#define TILE_WORDS (ZT_TILE + BATCH)

/*
 * Words around elements at ... at + n - 1; returns the index of element `at` in `out`,
 * and the number of words in *got.
 */
static int64_t tile_words(struct zt_philox rng, int64_t at, int64_t n, uint32_t *out,
                          int64_t *got)
{
    uint64_t first = rng.offset + (uint64_t)at;
    int64_t lead = (int64_t)(first % BATCH);

    *got = (lead + n + BATCH - 1) / BATCH * BATCH;
    zt_philox_words(rng, first - (uint64_t)lead, *got, out);
    return lead;
}

/* ---- random ---- */

ZT_SIMD static void uniform(float *restrict y, const uint32_t *restrict w, float a,
                            float width, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = fmaf(width, zt_philox_unit(w[i]), a);
}

/*
 * Box and Muller (1958) on neighbouring words: the even one gives the radius, the odd one
 * the angle; the even element is the cosine, the odd one the sine. At most 5.77
 * deviations from the mean.
 */
ZT_SIMD static void normal(float *restrict y, const uint32_t *restrict w, float mean,
                           float deviation, int64_t n)
{
    for (int64_t i = 0; i < n / 2; i++) {
        float u = (float)(int32_t)((w[2 * i] >> 8) + 1) * 0x1p-24f, s, c;
        float radius = sqrtf(-2.0f * zt_log(u)) * deviation;

        zt_sincos_turn(zt_philox_unit(w[2 * i + 1]), &s, &c);
        y[2 * i] = fmaf(radius, c, mean);
        y[2 * i + 1] = fmaf(radius, s, mean);
    }
}

static void random_part(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct zt_random_args *a = ctx;
    uint32_t w[TILE_WORDS];
    float y[TILE_WORDS];

    (void)thread;
    for (int64_t at = begin; at < end; at += ZT_TILE) {
        int64_t n = end - at < ZT_TILE ? end - at : ZT_TILE, got;
        int64_t lead = tile_words(a->rng, at, n, w, &got);

        if (a->normal)
            normal(y, w, a->a, a->b, got);
        else
            uniform(y, w, a->a, a->b - a->a, got);
        zt_tile_store(a->y.data, a->y.dtype, at, n, y + lead, false);
    }
}

zt_err zt_cpu_random(struct zt_device *dev, struct zt_stream *s,
                     const struct zt_random_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_random(a, fault);

    (void)dev;
    (void)s;
    if (!rc)
        zt_parallel_for(zt_view_numel(&a->y), ZT_GRAIN, random_part, (void *)a);
    return rc;
}

/* ---- dropout ---- */

ZT_SIMD static void keep(float *restrict y, const float *restrict x,
                         const uint32_t *restrict w, uint32_t below, float scale,
                         int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float kept = x[i] * scale;

        y[i] = w[i] < below ? 0.0f : kept;
    }
}

static void dropout_part(int64_t begin, int64_t end, int thread, void *ctx)
{
    const struct zt_dropout_args *a = ctx;
    uint32_t w[TILE_WORDS], below = zt_philox_drop_below(a->p);
    float in[ZT_TILE], out[ZT_TILE], scale = 1.0f / (1.0f - a->p);

    (void)thread;
    for (int64_t at = begin; at < end; at += ZT_TILE) {
        int64_t n = end - at < ZT_TILE ? end - at : ZT_TILE, got;
        int64_t lead = tile_words(a->rng, at, n, w, &got);
        const float *x = zt_tile_load(a->x.data, a->x.dtype, at, n, in);

        keep(out, x, w + lead, below, scale, n);
        zt_tile_store(a->y.data, a->y.dtype, at, n, out, a->accumulate);
    }
}

zt_err zt_cpu_dropout(struct zt_device *dev, struct zt_stream *s,
                      const struct zt_dropout_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_dropout(a, fault);

    (void)dev;
    (void)s;
    if (!rc)
        zt_parallel_for(zt_view_numel(&a->x), ZT_GRAIN, dropout_part, (void *)a);
    return rc;
}
