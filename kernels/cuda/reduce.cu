/*
 * Sums over rows, squares of a gradient, squared error.
 *
 * Squares are summed in double by a warp per chunk: element i goes to lane i % 32, the
 * lanes are added as a tree. Chunks are added in ZT_NORM_LANES lanes, a thread's each. Both
 * are as in kernels/cpu/reduce.c, and so are the bits.
 */
#include "kernels/cuda/chunks.h"

/* ---- column sums ---- */

struct colsum_launch {
    struct zt_operand x, z;
    int64_t rows, cols, each; /* each: rows of a chunk */
    int64_t first, num;       /* the columns of this launch */
    float *partial;           /* (chunks, num) */
};

static __device__ __forceinline__ void add_row(const struct colsum_launch &job,
                                               int64_t row, int64_t col,
                                               float acc[ZT_PACK])
{
    int64_t at = row * job.cols + job.first + col;
    float x[ZT_PACK], z[ZT_PACK];

    if (!job.z.data) {
        zt_load(x, job.x, at, job.num - col);
    } else {
        zt_load_two(x, job.x, z, job.z, at, job.num - col);
        for (int i = 0; i < ZT_PACK; i++)
            x[i] *= z[i];
    }
    for (int i = 0; i < ZT_PACK; i++)
        acc[i] += x[i];
}

static __global__ void __launch_bounds__(ZT_THREADS)
    colsum_kernel(struct colsum_launch job)
{
    __shared__ float tile[ZT_FOLD_FLOATS];
    int64_t begin = blockIdx.y * job.each, end = begin + job.each;
    int64_t col = zt_first_col();
    float acc[ZT_PACK] = {0};

    end = end < job.rows ? end : job.rows;
    for (int64_t row = begin + threadIdx.y; row < end; row += blockDim.y)
        add_row(job, row, col, acc);
    zt_fold(job.partial + blockIdx.y * job.num, job.num, false, acc, col, tile);
}

#define SLICES 32 /* runs of chunks, and columns of a block */

static __global__ void __launch_bounds__(SLICES *SLICES)
    sum_chunks_kernel(const float *partial, int64_t chunks, int64_t cols, void *y,
                      zt_dtype dtype, bool accumulate)
{
    __shared__ float tile[SLICES][SLICES];
    int64_t col = (int64_t)blockIdx.x * SLICES + threadIdx.x;
    int64_t each = (chunks + SLICES - 1) / SLICES, begin = threadIdx.y * each;
    int64_t end = begin + each < chunks ? begin + each : chunks;
    float sum = 0;

    for (int64_t k = begin; col < cols && k < end; k++)
        sum += partial[k * cols + col];
    tile[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || col >= cols)
        return;
    sum = 0;
    for (int i = 0; i < SLICES; i++)
        sum += tile[i][threadIdx.x];
    if (accumulate)
        sum += zt_get(y, dtype, col);
    zt_put(y, dtype, col, sum);
}

zt_err zt_cuda_sum_chunks(const char *what, struct zt_device *dev, struct zt_stream *s,
                          const float *partial, int64_t chunks, int64_t cols, void *y,
                          zt_dtype dtype, bool accumulate, struct zt_fault *fault)
{
    unsigned blocks = (unsigned)((cols + SLICES - 1) / SLICES);

    return zt_cuda_launch(what, fault, dev, s, blocks, dim3(SLICES, SLICES),
                          sum_chunks_kernel, partial, chunks, cols, y, dtype, accumulate);
}

/* Columns [job->first, job->first + job->num), into y. */
static zt_err colsum_part(struct zt_device *dev, struct zt_stream *s,
                          struct colsum_launch *job, const struct zt_view *y,
                          bool accumulate, struct zt_fault *fault)
{
    unsigned x = zt_threads_for(zt_packs(job->num), ZT_WARP);
    int64_t across = (zt_packs(job->num) + x - 1) / x;
    int64_t most = (ZT_MAX_CHUNKS + across - 1) / across;
    int64_t fits = (int64_t)(ZT_CUDA_SCRATCH / sizeof(float)) / job->num, chunks;
    void *to =
        static_cast<char *>(y->data) + (size_t)job->first * zt_dtype_bytes(y->dtype);
    zt_err rc = ZT_OK;

    job->each = zt_rows_per_chunk(job->rows, 64, most < fits ? most : fits);
    chunks = (job->rows + job->each - 1) / job->each;
    if (chunks)
        rc = zt_cuda_launch("colsum", fault, dev, s,
                            dim3((unsigned)across, (unsigned)chunks),
                            dim3(x, ZT_THREADS / x), colsum_kernel, *job);
    return rc ? rc
              : zt_cuda_sum_chunks("colsum", dev, s, job->partial, chunks, job->num, to,
                                   y->dtype, accumulate, fault);
}

#define COLSUM_COLS ((int64_t)1 << 20) /* of one launch; 8 chunks fit the scratch */

zt_err zt_cuda_colsum(struct zt_device *dev, struct zt_stream *s,
                      const struct zt_colsum_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_colsum(a, fault);
    struct colsum_launch job = {};

    if (rc)
        return rc;
    job.rows = a->x.shape[0];
    job.cols = a->x.shape[1];
    job.x = zt_operand_of(&a->x, job.cols);
    if (a->z.data)
        job.z = zt_operand_of(&a->z, job.cols);
    job.partial = static_cast<float *>(zt_cuda_scratch(dev, s));
    for (; !rc && job.first < job.cols; job.first += COLSUM_COLS) {
        job.num = job.cols - job.first;
        if (job.num > COLSUM_COLS)
            job.num = COLSUM_COLS;
        rc = colsum_part(dev, s, &job, &a->y, a->accumulate, fault);
    }
    return rc;
}

/* ---- sums in double: chunks, and chunks in lanes ---- */

static_assert(ZT_NORM_LANES == ZT_THREADS, "a thread has a lane");

/* Lanes, followed by as many partial sums as fit. */
#define MOST_CHUNKS ((int64_t)(ZT_CUDA_SCRATCH / sizeof(double)) - ZT_NORM_LANES)

/* partial[k] is added to lane (first + k) % ZT_NORM_LANES, first being below that; lanes begin
 * at 0 unless `accumulate`. all: their sum, or absent. */
static __global__ void __launch_bounds__(ZT_THREADS)
    lanes_kernel(const double *partial, int64_t n, int64_t first, bool accumulate,
                 double *sums, float *all)
{
    __shared__ double part[ZT_WARP];
    double total = accumulate ? sums[threadIdx.x] : 0;

#pragma unroll 8
    for (int64_t k = (threadIdx.x + ZT_NORM_LANES - first) % ZT_NORM_LANES; k < n;
         k += ZT_NORM_LANES)
        total += partial[k];
    sums[threadIdx.x] = total;
    if (!all)
        return;
    total = zt_block_sum(total, part);
    if (threadIdx.x == 0)
        *all = (float)total;
}

#define CHUNK_WARPS (ZT_THREADS / ZT_WARP)

static unsigned chunk_blocks(const struct zt_device *dev, int64_t chunks)
{
    return zt_cuda_blocks(dev, chunks, CHUNK_WARPS);
}

/* x begins at the first of `chunks` chunks */
static __global__ void __launch_bounds__(ZT_THREADS)
    sumsq_kernel(const float *x, int64_t n, int64_t chunks, double *partial)
{
    unsigned lane = threadIdx.x % ZT_WARP;

    for (int64_t k = zt_thread_index() / ZT_WARP; k < chunks;
         k += zt_thread_count() / ZT_WARP) {
        int64_t end = (k + 1) * ZT_NORM_CHUNK < n ? (k + 1) * ZT_NORM_CHUNK : n;
        double sum = 0;

        for (int64_t i = k * ZT_NORM_CHUNK + lane; i < end; i += ZT_WARP)
            sum += (double)x[i] * (double)x[i]; /* the product is exact */
        sum = zt_warp_sum(sum);
        if (lane == 0)
            partial[k] = sum;
    }
}

zt_err zt_cuda_sumsq(struct zt_device *dev, struct zt_stream *s,
                     const struct zt_sumsq_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_sumsq(a, fault);
    double *partial = static_cast<double *>(zt_cuda_scratch(dev, s));
    const float *x = static_cast<const float *>(a->x.data);
    const int64_t most = MOST_CHUNKS * ZT_NORM_CHUNK;
    int64_t n, done = 0;

    if (rc)
        return rc;
    n = zt_view_numel(&a->x);
    do {
        int64_t part = n - done < most ? n - done : most;
        int64_t chunks = (part + ZT_NORM_CHUNK - 1) / ZT_NORM_CHUNK;

        rc = zt_cuda_launch("sumsq", fault, dev, s, chunk_blocks(dev, chunks), ZT_THREADS,
                            sumsq_kernel, x + done, part, chunks, partial);
        if (!rc)
            rc = zt_cuda_launch("sumsq", fault, dev, s, 1, ZT_THREADS, lanes_kernel,
                                partial, chunks,
                                (a->first + done / ZT_NORM_CHUNK) % ZT_NORM_LANES,
                                done > 0 || a->accumulate, a->sums, nullptr);
        done += part;
    } while (!rc && done < n);
    return rc;
}

/* ---- squared error ---- */

/* Elements [first, first + chunks * ZT_NORM_CHUNK) as far as they exist. */
static __global__ void __launch_bounds__(ZT_THREADS)
    squared_error_kernel(struct zt_operand x, struct zt_operand y, int64_t n,
                         int64_t first, int64_t chunks, double *partial)
{
    int64_t lane = threadIdx.x % ZT_WARP;
    float v[ZT_PACK], w[ZT_PACK];

    for (int64_t k = zt_thread_index() / ZT_WARP; k < chunks;
         k += zt_thread_count() / ZT_WARP) {
        int64_t begin = first + k * ZT_NORM_CHUNK, end = begin + ZT_NORM_CHUNK;
        double sum = 0;

        end = end < n ? end : n;
        for (int64_t at = begin + lane * ZT_PACK; at < end; at += ZT_WARP * ZT_PACK) {
            zt_load_two(v, x, w, y, at, end - at);
            for (int i = 0; i < ZT_PACK; i++)
                sum += (double)(v[i] - w[i]) * (double)(v[i] - w[i]);
        }
        sum = zt_warp_sum(sum);
        if (lane == 0)
            partial[k] = sum;
    }
}

zt_err zt_cuda_squared_error(struct zt_device *dev, struct zt_stream *s,
                             const struct zt_squared_error_args *a,
                             struct zt_fault *fault)
{
    zt_err rc = zt_check_squared_error(a, fault);
    double *sums = static_cast<double *>(zt_cuda_scratch(dev, s));
    double *partial = sums + ZT_NORM_LANES;
    int64_t all, done = 0;

    if (rc)
        return rc;
    all = (zt_view_numel(&a->x) + ZT_NORM_CHUNK - 1) / ZT_NORM_CHUNK;
    do {
        int64_t chunks = all - done < MOST_CHUNKS ? all - done : MOST_CHUNKS;

        rc = zt_cuda_launch("squared_error", fault, dev, s, chunk_blocks(dev, chunks),
                            ZT_THREADS, squared_error_kernel, zt_flat_operand(&a->x),
                            zt_flat_operand(&a->y), zt_view_numel(&a->x),
                            done * ZT_NORM_CHUNK, chunks, partial);
        if (!rc)
            rc = zt_cuda_launch("squared_error", fault, dev, s, 1, ZT_THREADS,
                                lanes_kernel, partial, chunks, done % ZT_NORM_LANES,
                                done > 0, sums, static_cast<float *>(a->loss.data));
        done += chunks;
    } while (!rc && done < all);
    return rc;
}

static __global__ void __launch_bounds__(ZT_THREADS)
    squared_error_bwd_kernel(struct zt_operand x, struct zt_operand y, const float *dloss,
                             struct zt_operand dx, struct zt_operand dy,
                             bool accumulate_x, bool accumulate_y, int64_t n)
{
    float v[ZT_PACK], w[ZT_PACK], scale = 2.0f * *dloss;

    for (int64_t at = zt_first_pack(); at < n; at += zt_pack_step()) {
        zt_load_two(v, x, w, y, at, n - at);
        for (int i = 0; i < ZT_PACK; i++) {
            v[i] = (v[i] - w[i]) * scale;
            w[i] = -v[i];
        }
        if (dx.data)
            zt_store(dx, at, n - at, accumulate_x, v);
        if (dy.data)
            zt_store(dy, at, n - at, accumulate_y, w);
    }
}

zt_err zt_cuda_squared_error_bwd(struct zt_device *dev, struct zt_stream *s,
                                 const struct zt_squared_error_bwd_args *a,
                                 struct zt_fault *fault)
{
    zt_err rc = zt_check_squared_error_bwd(a, fault);
    int64_t n = zt_view_numel(&a->x);

    if (rc || n == 0)
        return rc;
    return zt_cuda_launch(
        "squared_error_bwd", fault, dev, s, zt_flat_blocks(dev, n), ZT_THREADS,
        squared_error_bwd_kernel, zt_flat_operand(&a->x), zt_flat_operand(&a->y),
        static_cast<const float *>(a->dloss.data), zt_flat_operand(&a->dx),
        zt_flat_operand(&a->dy), a->accumulate_x, a->accumulate_y, n);
}
