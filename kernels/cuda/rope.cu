/*
 * Rotary embedding (Su et al. 2021): rotates pairs (a, b) of a head by an angle that
 * depends on the position. The pairs are (x_i, x_{i + R/2}), or neighbours (x_2i, x_2i+1).
 *
 *      a' = a cos - b sin        b' = b cos + a sin        (inverse: sin changes sign)
 *
 * A block has one (b, t); a thread rotates ZT_PACK pairs at a time, or copies a pack of the
 * dimensions from rotary_dims on. It reads both halves before it writes: y may be x.
 * Rows whose position is outside the tables are not written but reported (device_error.h).
 */
#include "kernels/cuda/operand.h"
#include "kernels/cuda/device_error.h"

struct rope_job {
    struct zt_operand x, y;
    int64_t xstride[3], ystride[3];
    int64_t num, T;        /* num: B * T */
    int heads, half, dims; /* half: pairs of a head; dims: all of it */
    int turning, copying;  /* packs of pairs, and of the rest */
    const int32_t *position;
    int64_t num_positions; /* T, or num: each row has its own */
    const float *cosine, *sine;
    int64_t table; /* positions in the tables */
    bool wide;     /* packs of the tables are on 16-byte boundaries */
    bool interleaved, inverse, accumulate;
    struct zt_cuda_device_error *error;
};

/* Rotates a and b in place, by the angles from pair i of a row of the tables on. */
static __device__ __forceinline__ void turn(const struct rope_job &r, int64_t row, int i,
                                            float a[ZT_PACK], float b[ZT_PACK])
{
    float c[ZT_PACK], s[ZT_PACK];

    zt_load_f32(c, r.cosine + row * r.half + i, r.wide, r.half - i);
    zt_load_f32(s, r.sine + row * r.half + i, r.wide, r.half - i);
    for (int k = 0; k < ZT_PACK; k++) {
        float sine = r.inverse ? -s[k] : s[k], first = a[k];

        a[k] = fmaf(first, c[k], -__fmul_rn(b[k], sine));
        b[k] = fmaf(b[k], c[k], __fmul_rn(first, sine));
    }
}

/* Pairs i ... of the head that begins at xat and yat. */
static __device__ __forceinline__ void turn_halves(const struct rope_job &r, int64_t xat,
                                                   int64_t yat, int64_t row, int i)
{
    float a[ZT_PACK], b[ZT_PACK];
    int left = r.half - i;
    struct zt_raw in_a = zt_fetch(r.x, xat + i, left);
    struct zt_raw in_b = zt_fetch(r.x, xat + r.half + i, left);

    zt_unpack(a, in_a, r.x);
    zt_unpack(b, in_b, r.x);
    turn(r, row, i, a, b);
    zt_store(r.y, yat + i, left, r.accumulate, a);
    zt_store(r.y, yat + r.half + i, left, r.accumulate, b);
}

static __device__ __forceinline__ void turn_neighbours(const struct rope_job &r,
                                                       int64_t xat, int64_t yat,
                                                       int64_t row, int i)
{
    float low[ZT_PACK], high[ZT_PACK], a[ZT_PACK], b[ZT_PACK];
    int left = 2 * (r.half - i);
    struct zt_raw in_low = zt_fetch(r.x, xat + 2 * i, left);
    struct zt_raw in_high = zt_fetch(r.x, xat + 2 * i + ZT_PACK, left - ZT_PACK);

    zt_unpack(low, in_low, r.x);
    zt_unpack(high, in_high, r.x);
    for (int k = 0; k < ZT_PACK / 2; k++) {
        a[k] = low[2 * k];
        b[k] = low[2 * k + 1];
        a[ZT_PACK / 2 + k] = high[2 * k];
        b[ZT_PACK / 2 + k] = high[2 * k + 1];
    }
    turn(r, row, i, a, b);
    for (int k = 0; k < ZT_PACK / 2; k++) {
        low[2 * k] = a[k];
        low[2 * k + 1] = b[k];
        high[2 * k] = a[ZT_PACK / 2 + k];
        high[2 * k + 1] = b[ZT_PACK / 2 + k];
    }
    zt_store(r.y, yat + 2 * i, left, r.accumulate, low);
    zt_store(r.y, yat + 2 * i + ZT_PACK, left - ZT_PACK, r.accumulate, high);
}

static __device__ __forceinline__ void copy_rest(const struct rope_job &r, int64_t xat,
                                                 int64_t yat, int i)
{
    float x[ZT_PACK];
    int at = 2 * r.half + i;

    zt_load(x, r.x, xat + at, r.dims - at);
    zt_store(r.y, yat + at, r.dims - at, r.accumulate, x);
}

static __device__ __forceinline__ void rotate_token(const struct rope_job &r,
                                                    int64_t index)
{
    int64_t b = index / r.T, t = index - b * r.T;
    int64_t row = r.position[r.num_positions == r.T ? t : index];
    int packs = r.turning + r.copying;

    if (row < 0 || row >= r.table)
        return;
    for (int item = (int)threadIdx.x; item < r.heads * packs; item += (int)blockDim.x) {
        int h = item / packs, pack = item - h * packs, i = pack * ZT_PACK;
        int64_t xat = b * r.xstride[0] + t * r.xstride[1] + h * r.xstride[2];
        int64_t yat = b * r.ystride[0] + t * r.ystride[1] + h * r.ystride[2];

        if (pack >= r.turning)
            copy_rest(r, xat, yat, i - r.turning * ZT_PACK);
        else if (r.interleaved)
            turn_neighbours(r, xat, yat, row, i);
        else
            turn_halves(r, xat, yat, row, i);
    }
}

static __global__ void __launch_bounds__(ZT_THREADS) rope_kernel(struct rope_job r)
{
    __shared__ unsigned long long first;

    if (blockIdx.x == 0) { /* one block looks at all positions */
        int64_t at = zt_find_out_of_range(r.position, r.num_positions, r.table,
                                          ZT_NO_IGNORE, &first);

        if (threadIdx.x == 0 && at < r.num_positions)
            zt_cuda_report_error(r.error, ZT_CUDA_ERROR_ROPE, r.position[at], at,
                                 r.table);
    }
    for (int64_t index = blockIdx.x; index < r.num; index += gridDim.x)
        rotate_token(r, index);
}

static void rope_memory(struct rope_job *r, const struct zt_rope_args *a)
{
    r->x = zt_flat_operand(&a->x);
    r->y = zt_flat_operand(&a->y);
    for (int i = 0; i < 3; i++) {
        r->xstride[i] = a->x.shape[i] > 1 ? a->x.stride[i] : 0;
        r->ystride[i] = a->y.shape[i] > 1 ? a->y.stride[i] : 0;
        r->x.wide = r->x.wide && zt_operand_of(&a->x, r->xstride[i]).wide;
        r->y.wide = r->y.wide && zt_operand_of(&a->y, r->ystride[i]).wide;
    }
    if (r->half % ZT_PACK)
        r->x.wide = r->y.wide = false;
}

static bool in_place(const struct rope_job *r)
{
    bool same = r->x.data == r->y.data && !r->accumulate;

    for (int i = 0; i < 3; i++)
        same = same && r->xstride[i] == r->ystride[i];
    return same;
}

zt_err zt_cuda_rope(struct zt_device *dev, struct zt_stream *s,
                    const struct zt_rope_args *a, struct zt_fault *fault)
{
    struct rope_job job = {};
    zt_err rc = zt_check_rope(a, fault);
    unsigned threads;

    if (rc || zt_view_numel(&a->x) == 0)
        return rc;
    job.T = a->x.shape[1];
    job.num = a->x.shape[0] * job.T;
    job.heads = (int)a->x.shape[2];
    job.dims = (int)a->x.shape[3];
    job.half = a->rotary_dims / 2;
    job.accumulate = a->accumulate;
    rope_memory(&job, a);
    job.turning = (int)zt_packs(job.half);
    job.copying = in_place(&job) ? 0 : (int)zt_packs(job.dims - 2 * job.half);
    job.position = static_cast<const int32_t *>(a->positions.data);
    job.num_positions = zt_view_numel(&a->positions);
    job.cosine = static_cast<const float *>(a->cos.data);
    job.sine = static_cast<const float *>(a->sin.data);
    job.table = a->cos.shape[0];
    job.wide = job.half % 4 == 0 && zt_is_aligned(job.cosine) && zt_is_aligned(job.sine);
    job.interleaved = a->interleaved;
    job.inverse = a->inverse;
    job.error = dev->error;
    threads =
        zt_threads_for((int64_t)job.heads * (job.turning + job.copying), ZT_THREADS);
    return zt_cuda_launch("rope", fault, dev, s, zt_cuda_blocks(dev, job.num, 1),
                          threads < ZT_WARP ? ZT_WARP : threads, rope_kernel, job);
}
