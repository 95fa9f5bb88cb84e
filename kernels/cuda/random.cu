/*
 * Random values and dropout. A value is a pure function of its counter, so the bits equal
 * those of the cpu backend, however the elements are split.
 */
#include "kernels/cuda/operand.h"
#include "kernels/normal.h"

/* Words that hold a pack wherever it begins in a block of four. */
#define WINDOW (ZT_PACK + 4)

/* The counter blocks around element `at`; returns the index of its word, 0 to 3. */
static __device__ __forceinline__ int words_around(struct zt_philox rng, int64_t at,
                                                   uint32_t w[WINDOW])
{
    uint64_t first = rng.offset + (uint64_t)at;
    int lead = (int)(first % 4);

    first -= (uint64_t)lead;
    for (int b = 0; b < WINDOW / 4; b++) {
        w[4 * b] = w[4 * b + 1] = w[4 * b + 2] = w[4 * b + 3] = 0;
        if (4 * b < ZT_PACK || lead) /* the last is rarely needed */
            zt_philox_block(rng, (first + 4 * (uint64_t)b) / 4, w + 4 * b);
    }
    return lead;
}

/* from[lead + i] with constant indices alone, so that arrays stay in registers */
template <typename T>
static __device__ __forceinline__ T word_of(const T from[WINDOW], int i, int lead)
{
    T low = lead & 1 ? from[i + 1] : from[i];

    return lead < 2 ? low : lead == 2 ? from[i + 2] : from[i + 3];
}

/* ---- random ---- */

/* Box and Muller (1958): the even word gives the radius, the odd one the angle. */
static __device__ __forceinline__ void normal_pair(const uint32_t w[2], float mean,
                                                   float deviation, float z[2])
{
    float u = (float)(int32_t)((w[0] >> 8) + 1) * 0x1p-24f, s, c;
    float radius = sqrtf(-2.0f * zt_log(u)) * deviation;

    zt_sincos_turn(zt_philox_unit(w[1]), &s, &c);
    z[0] = fmaf(radius, c, mean);
    z[1] = fmaf(radius, s, mean);
}

static __global__ void __launch_bounds__(ZT_THREADS)
    random_kernel(struct zt_operand y, int64_t n, struct zt_philox rng, bool normal,
                  float a, float b)
{
    uint32_t w[WINDOW];
    float z[WINDOW], v[ZT_PACK];

    for (int64_t at = zt_first_pack(); at < n; at += zt_pack_step()) {
        int lead = words_around(rng, at, w);

        for (int i = 0; i < WINDOW; i += 2) {
            if (normal) {
                normal_pair(w + i, a, b, z + i);
                continue;
            }
            z[i] = fmaf(b - a, zt_philox_unit(w[i]), a);
            z[i + 1] = fmaf(b - a, zt_philox_unit(w[i + 1]), a);
        }
        for (int i = 0; i < ZT_PACK; i++)
            v[i] = word_of(z, i, lead);
        zt_store(y, at, n - at, false, v);
    }
}

zt_err zt_cuda_random(struct zt_device *dev, struct zt_stream *s,
                      const struct zt_random_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_random(a, fault);
    int64_t n = zt_view_numel(&a->y);

    if (rc || n == 0)
        return rc;
    return zt_cuda_launch("random", fault, dev, s, zt_flat_blocks(dev, n), ZT_THREADS,
                          random_kernel, zt_flat_operand(&a->y), n, a->rng, a->normal,
                          a->a, a->b);
}

/* ---- dropout ---- */

static __global__ void __launch_bounds__(ZT_THREADS)
    dropout_kernel(struct zt_operand x, struct zt_operand y, int64_t n,
                   struct zt_philox rng, uint32_t below, float scale, bool accumulate)
{
    uint32_t w[WINDOW];
    float v[ZT_PACK];

    for (int64_t at = zt_first_pack(); at < n; at += zt_pack_step()) {
        int lead = words_around(rng, at, w);

        zt_load(v, x, at, n - at);
        for (int i = 0; i < ZT_PACK; i++)
            v[i] = word_of(w, i, lead) < below ? 0.0f : __fmul_rn(v[i], scale);
        zt_store(y, at, n - at, accumulate, v);
    }
}

zt_err zt_cuda_dropout(struct zt_device *dev, struct zt_stream *s,
                       const struct zt_dropout_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_dropout(a, fault);
    int64_t n = zt_view_numel(&a->x);

    if (rc || n == 0)
        return rc;
    return zt_cuda_launch("dropout", fault, dev, s, zt_flat_blocks(dev, n), ZT_THREADS,
                          dropout_kernel, zt_flat_operand(&a->x), zt_flat_operand(&a->y),
                          n, a->rng, zt_philox_drop_below(a->p), 1.0f / (1.0f - a->p),
                          a->accumulate);
}
