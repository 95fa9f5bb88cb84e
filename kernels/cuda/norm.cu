/*
 * Layer norm (Ba et al. 2016) and RMS norm (Zhang & Sennrich 2019) over rows (N, C).
 *
 * forward   add, if given, and the sum is the row from here on; mean; variance; the
 *           result. Device memory is read once: each thread returns to its own packs of
 *           the row, which are in the L1 cache by then.
 * backward  with h = (x - mean) * rstd and g = dy * w:
 *               dx = rstd * (g - avg(g) - h * avg(g * h)),  dw += dy * h,  db += dy
 *           A block has a chunk of rows; each thread has one pack of columns of all of
 *           them and sums dw and db in registers. Then as in chunks.h.
 *
 * An RMS norm is a layer norm with mean 0, no b, no avg(g), and w or 1 + w. Sums are
 * fp32. A row belongs to a block, or, where a warp has enough lanes, to a warp.
 */
#include "kernels/cuda/chunks.h"

#define MOST_THREADS 1024

/* Both are called by all threads of the row. `part` is __shared__ float[ZT_WARP]. */
static __device__ __forceinline__ float row_sum(float x, float *part)
{
    return blockDim.x == ZT_WARP ? zt_warp_sum(x) : zt_block_sum(x, part);
}

/* w or 1 + w; 0 past the end */
static __device__ __forceinline__ void load_weight(float w[ZT_PACK],
                                                   const struct zt_operand &o,
                                                   bool add_one, int64_t col,
                                                   int64_t cols)
{
    zt_load(w, o, col, cols - col);
    for (int i = 0; add_one && i < ZT_PACK; i++)
        w[i] += 1.0f;
}

/* ---- forward ---- */

struct norm_job {
    struct zt_operand x, w, b, y;
    struct zt_operand term1, term2; /* where x is their sum, to be made */
    float *mean, *rstd;             /* mean NULL: RMS norm */
    int64_t rows, cols;
    float eps;
    bool add_one;
};

#define AT_ONCE 2 /* packs of a thread whose loads are under way together */

static __device__ __forceinline__ int64_t packs_apart(void)
{
    return (int64_t)blockDim.x * ZT_PACK;
}

/* Packs of o at col, col + packs_apart(), ...; 0 past the end. */
static __device__ __forceinline__ void load_packs(float x[AT_ONCE][ZT_PACK],
                                                  const struct zt_operand &o,
                                                  const struct norm_job &a, int64_t row,
                                                  int64_t col)
{
    struct zt_raw r[AT_ONCE];

    for (int k = 0; k < AT_ONCE; k++, col += packs_apart())
        r[k] = zt_fetch(o, row * a.cols + col, a.cols - col);
    for (int k = 0; k < AT_ONCE; k++)
        zt_unpack(x[k], r[k], o);
}

/* x = term1 + term2: the packs that the thread reads afterwards, and no others. */
static __device__ __forceinline__ void add_row(const struct norm_job &a, int64_t row)
{
    float sum[AT_ONCE][ZT_PACK], add[AT_ONCE][ZT_PACK];

    for (int64_t col = threadIdx.x * ZT_PACK; col < a.cols;
         col += AT_ONCE * packs_apart()) {
        load_packs(sum, a.term1, a, row, col);
        load_packs(add, a.term2, a, row, col);
        for (int k = 0; k < AT_ONCE; k++) {
            int64_t at = col + k * packs_apart();

            for (int i = 0; i < ZT_PACK; i++)
                sum[k][i] = __fadd_rn(sum[k][i], add[k][i]);
            zt_store(a.x, row * a.cols + at, a.cols - at, false, sum[k]);
        }
    }
}

static __device__ __forceinline__ float row_mean(const struct norm_job &a, int64_t row,
                                                 float *part)
{
    float x[AT_ONCE][ZT_PACK], sum = 0;

    for (int64_t col = threadIdx.x * ZT_PACK; col < a.cols;
         col += AT_ONCE * packs_apart()) {
        load_packs(x, a.x, a, row, col);
        for (int k = 0; k < AT_ONCE; k++)
            for (int i = 0; i < ZT_PACK; i++)
                sum += x[k][i];
    }
    return row_sum(sum, part) / (float)a.cols;
}

static __device__ __forceinline__ float row_rstd(const struct norm_job &a, int64_t row,
                                                 float mean, float *part)
{
    float x[AT_ONCE][ZT_PACK], sum = 0;

    for (int64_t col = threadIdx.x * ZT_PACK; col < a.cols;
         col += AT_ONCE * packs_apart()) {
        load_packs(x, a.x, a, row, col);
        for (int k = 0; k < AT_ONCE; k++)
            for (int i = 0; i < ZT_PACK; i++) {
                bool exists = col + k * packs_apart() + i < a.cols;
                float far = exists ? x[k][i] - mean : 0.0f;

                sum = fmaf(far, far, sum);
            }
    }
    return 1.0f / sqrtf(row_sum(sum, part) / (float)a.cols + a.eps);
}

static __device__ __forceinline__ void scale_row(const struct norm_job &a, int64_t row,
                                                 float mean, float rstd)
{
    float x[ZT_PACK], w[ZT_PACK], b[ZT_PACK] = {0};

    for (int64_t col = threadIdx.x * ZT_PACK; col < a.cols; col += blockDim.x * ZT_PACK) {
        zt_load(x, a.x, row * a.cols + col, a.cols - col);
        load_weight(w, a.w, a.add_one, col, a.cols);
        if (a.b.data)
            zt_load(b, a.b, col, a.cols - col);
        for (int i = 0; i < ZT_PACK; i++)
            x[i] = fmaf((x[i] - mean) * rstd, w[i], b[i]);
        zt_store(a.y, row * a.cols + col, a.cols - col, false, x);
    }
}

/* All rows of a warp or block. (The job by value: by reference it costs registers.) */
template <bool adding> static __device__ __forceinline__ void norm_rows(struct norm_job a)
{
    __shared__ float part[ZT_WARP];
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;

    for (; row < a.rows; row += (int64_t)gridDim.x * blockDim.y) {
        float mean, rstd;

        if (adding)
            add_row(a, row);
        mean = a.mean ? row_mean(a, row, part) : 0.0f;
        rstd = row_rstd(a, row, mean, part);
        scale_row(a, row, mean, rstd);
        if (threadIdx.x == 0)
            a.rstd[row] = rstd;
        if (threadIdx.x == 0 && a.mean)
            a.mean[row] = mean;
    }
}

static __global__ void __launch_bounds__(MOST_THREADS) norm_kernel(struct norm_job a)
{
    norm_rows<false>(a);
}

/* A kernel of its own: the registers of the addition would lower the occupancy. */
static __global__ void __launch_bounds__(MOST_THREADS) add_norm_kernel(struct norm_job a)
{
    norm_rows<true>(a);
}

/* A warp takes rows of up to four packs per lane; a block longer ones, two per thread. */
static dim3 forward_threads(int64_t cols)
{
    int64_t packs = zt_packs(cols), warps = (packs + 2 * ZT_WARP - 1) / (2 * ZT_WARP);

    if (packs <= 4 * ZT_WARP)
        return dim3(ZT_WARP, ZT_THREADS / ZT_WARP);
    return dim3(ZT_WARP * (unsigned)(warps < 32 ? warps : 32));
}

static zt_err forward(const char *what, struct zt_device *dev, struct zt_stream *s,
                      const struct zt_layernorm_args *a, bool add_one,
                      struct zt_fault *fault)
{
    struct norm_job job = {};
    dim3 threads;

    job.rows = a->x.shape[0];
    job.cols = a->x.shape[1];
    if (job.rows == 0 || job.cols == 0)
        return ZT_OK;
    job.x = zt_operand_of(a->add.data ? &a->sum : &a->x, job.cols);
    job.term1 = zt_operand_of(&a->x, job.cols);
    job.term2 = zt_operand_of(&a->add, job.cols);
    job.w = zt_flat_operand(&a->w);
    job.b = zt_flat_operand(&a->b);
    job.y = zt_operand_of(&a->y, job.cols);
    job.mean = static_cast<float *>(a->mean.data);
    job.rstd = static_cast<float *>(a->rstd.data);
    job.eps = a->eps;
    job.add_one = add_one;
    threads = forward_threads(job.cols);
    return zt_cuda_launch(what, fault, dev, s, zt_cuda_blocks(dev, job.rows, threads.y),
                          threads, a->add.data ? add_norm_kernel : norm_kernel, job);
}

zt_err zt_cuda_layernorm(struct zt_device *dev, struct zt_stream *s,
                         const struct zt_layernorm_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_layernorm(a, fault);

    return rc ? rc : forward("layernorm", dev, s, a, false, fault);
}

zt_err zt_cuda_rmsnorm(struct zt_device *dev, struct zt_stream *s,
                       const struct zt_rmsnorm_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_rmsnorm(a, fault);
    struct zt_layernorm_args same = {};

    same.x = a->x;
    same.w = a->w;
    same.y = a->y;
    same.rstd = a->rstd;
    same.eps = a->eps;
    same.add = a->add;
    same.sum = a->sum;
    return rc ? rc : forward("rmsnorm", dev, s, &same, a->add_one, fault);
}

/* ---- backward ---- */

struct norm_bwd_job {
    struct zt_operand dy, x, w, dx;
    const float *mean, *rstd; /* mean NULL: RMS norm */
    float *dw, *db;           /* (chunks, C) in scratch, or NULL */
    int64_t rows, cols, each;
    bool add_one, accumulate;
};

/* One pack of one row; past the end of the row g is 0, and so is what it adds. */
struct norm_pack {
    float g[ZT_PACK], h[ZT_PACK]; /* g is dy until weigh() */
};

static __device__ __forceinline__ void load_pack(struct norm_pack *p,
                                                 const struct norm_bwd_job &a,
                                                 int64_t row, int64_t col)
{
    float mean = a.mean ? a.mean[row] : 0.0f, rstd = a.rstd[row];

    zt_load_two(p->g, a.dy, p->h, a.x, row * a.cols + col, a.cols - col);
    for (int i = 0; i < ZT_PACK; i++)
        p->h[i] = (p->h[i] - mean) * rstd;
}

static __device__ __forceinline__ void weigh(struct norm_pack *p,
                                             const struct norm_bwd_job &a, int64_t col,
                                             float *sum_g, float *sum_gh)
{
    float w[ZT_PACK];

    load_weight(w, a.w, a.add_one, col, a.cols);
    for (int i = 0; i < ZT_PACK; i++) {
        p->g[i] *= w[i];
        *sum_g += p->g[i];
        *sum_gh = fmaf(p->g[i], p->h[i], *sum_gh);
    }
}

/* The packs of the row that belong to other blocks than the one that has column `own`. */
static __device__ __forceinline__ void add_other_packs(const struct norm_bwd_job &a,
                                                       int64_t row, int64_t own,
                                                       float *sum_g, float *sum_gh)
{
    struct norm_pack p;

    for (int64_t col = threadIdx.x * ZT_PACK; col < a.cols; col += blockDim.x * ZT_PACK) {
        if (col == own)
            continue;
        load_pack(&p, a, row, col);
        weigh(&p, a, col, sum_g, sum_gh);
    }
}

static __device__ __forceinline__ void store_dx(const struct norm_bwd_job &a, int64_t row,
                                                int64_t col, const struct norm_pack &p,
                                                float avg_g, float avg_gh)
{
    float rstd = a.rstd[row], dx[ZT_PACK];

    for (int i = 0; i < ZT_PACK; i++)
        dx[i] = rstd * (fmaf(-p.h[i], avg_gh, p.g[i]) - avg_g);
    zt_store(a.dx, row * a.cols + col, a.cols - col, a.accumulate, dx);
}

/*
 * blockIdx.x is the chunk, blockIdx.y which packs of the row the threads have. Without
 * `split` they have all, and registers are enough for what stays in them.
 */
template <bool split>
static __global__ void __launch_bounds__(MOST_THREADS)
    norm_bwd_kernel(struct norm_bwd_job a)
{
    __shared__ float part[ZT_WARP], tile[ZT_FOLD_FLOATS];
    int64_t own = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * ZT_PACK;
    int64_t end = (blockIdx.x + 1) * a.each < a.rows ? (blockIdx.x + 1) * a.each : a.rows;
    float dw[ZT_PACK] = {0}, db[ZT_PACK] = {0};
    struct norm_pack p;

    for (int64_t row = blockIdx.x * a.each + threadIdx.y; row < end; row += blockDim.y) {
        float sum_g = 0, sum_gh = 0;

        load_pack(&p, a, row, own);
        for (int i = 0; i < ZT_PACK; i++) {
            dw[i] = fmaf(p.g[i], p.h[i], dw[i]);
            db[i] += p.g[i];
        }
        weigh(&p, a, own, &sum_g, &sum_gh);
        if (split)
            add_other_packs(a, row, own, &sum_g, &sum_gh);
        sum_g = a.mean ? row_sum(sum_g, part) : 0.0f;
        sum_gh = row_sum(sum_gh, part);
        if (a.dx.data)
            store_dx(a, row, own, p, sum_g / (float)a.cols, sum_gh / (float)a.cols);
    }
    if (a.dw)
        zt_fold(a.dw + blockIdx.x * a.cols, a.cols, a.cols % 4 == 0, dw, own, tile);
    if (a.db)
        zt_fold(a.db + blockIdx.x * a.cols, a.cols, a.cols % 4 == 0, db, own, tile);
}

/* A pack a thread; rows of up to a warp's go eight at a time. */
static dim3 backward_threads(int64_t cols)
{
    int64_t warps = (zt_packs(cols) + ZT_WARP - 1) / ZT_WARP;

    if (warps <= 1)
        return dim3(ZT_WARP, ZT_THREADS / ZT_WARP);
    return dim3(
        (unsigned)(warps * ZT_WARP < MOST_THREADS ? warps * ZT_WARP : MOST_THREADS));
}

static zt_err backward(const char *what, struct zt_device *dev, struct zt_stream *s,
                       const struct zt_layernorm_bwd_args *a, bool add_one,
                       struct zt_fault *fault)
{
    int64_t rows = a->x.shape[0], cols = a->x.shape[1], chunks;
    int64_t fits = (int64_t)(ZT_CUDA_SCRATCH / (2 * sizeof(float)));
    dim3 threads = backward_threads(cols);
    unsigned across = (unsigned)((zt_packs(cols) + threads.x - 1) / threads.x);
    float *scratch = static_cast<float *>(zt_cuda_scratch(dev, s));
    struct norm_bwd_job job = {};
    zt_err rc;

    if (rows == 0 || cols == 0)
        return ZT_OK;
    if (cols > fits)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "cuda: %s: rows of %lld, at most %lld", what, (long long)cols,
                            (long long)fits);
    fits /= cols;
    job.rows = rows;
    job.cols = cols;
    job.each = zt_rows_per_chunk(rows, 8 * (int64_t)threads.y,
                                 fits < ZT_MAX_CHUNKS ? fits : ZT_MAX_CHUNKS);
    chunks = (rows + job.each - 1) / job.each;
    job.dy = zt_operand_of(&a->dy, cols);
    job.x = zt_operand_of(&a->x, cols);
    job.w = zt_flat_operand(&a->w);
    job.dx = zt_operand_of(&a->dx, cols);
    job.mean = static_cast<const float *>(a->mean.data);
    job.rstd = static_cast<const float *>(a->rstd.data);
    job.dw = a->dw.data ? scratch : NULL;
    job.db = a->db.data ? scratch + chunks * cols : NULL;
    job.add_one = add_one;
    job.accumulate = a->accumulate;
    rc = zt_cuda_launch(what, fault, dev, s, dim3((unsigned)chunks, across), threads,
                        across > 1 ? norm_bwd_kernel<true> : norm_bwd_kernel<false>, job);
    if (!rc && job.dw)
        rc = zt_cuda_sum_chunks(what, dev, s, job.dw, chunks, cols, a->dw.data, ZT_F32,
                                a->accumulate_w, fault);
    if (!rc && job.db)
        rc = zt_cuda_sum_chunks(what, dev, s, job.db, chunks, cols, a->db.data, ZT_F32,
                                a->accumulate_b, fault);
    return rc;
}

zt_err zt_cuda_layernorm_bwd(struct zt_device *dev, struct zt_stream *s,
                             const struct zt_layernorm_bwd_args *a,
                             struct zt_fault *fault)
{
    zt_err rc = zt_check_layernorm_bwd(a, fault);

    return rc ? rc : backward("layernorm_bwd", dev, s, a, false, fault);
}

zt_err zt_cuda_rmsnorm_bwd(struct zt_device *dev, struct zt_stream *s,
                           const struct zt_rmsnorm_bwd_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_rmsnorm_bwd(a, fault);
    struct zt_layernorm_bwd_args same = {};

    same.dy = a->dy;
    same.x = a->x;
    same.w = a->w;
    same.rstd = a->rstd;
    same.dx = a->dx;
    same.dw = a->dw;
    same.accumulate = a->accumulate;
    same.accumulate_w = a->accumulate_w;
    return rc ? rc : backward("rmsnorm_bwd", dev, s, &same, a->add_one, fault);
}
