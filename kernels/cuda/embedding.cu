/*
 * Lookups. Both directions first look at the ids: one that is outside the table is
 * reported (device_error.h), and nothing is written.
 *
 * Backward adds the rows of one id in order of N without waiting for one another:
 * positions are sorted by (id, position), PIECE of them at a time, and the threads at the
 * start of a run of equal ids add the run to its row of the table. The rank of a position
 * is counted, not sorted for: how many pairs are smaller. That is PIECE compares per
 * position, all in shared memory, and little beside the rows themselves.
 */
#include "kernels/cuda/operand.h"
#include "kernels/cuda/device_error.h"

#define CHECK_THREADS 1024

/* first_bad: n when all is well */
static __global__ void __launch_bounds__(CHECK_THREADS)
    check_ids_kernel(const int32_t *id, int64_t n, int64_t rows,
                     enum zt_cuda_error_kind kind, struct zt_cuda_device_error *t,
                     int64_t *first_bad)
{
    __shared__ unsigned long long first;
    int64_t at = zt_find_out_of_range(id, n, rows, ZT_NO_IGNORE, &first);

    if (threadIdx.x)
        return;
    *first_bad = at;
    if (at < n)
        zt_cuda_report_error(t, kind, id[at], at, rows);
}

static zt_err check_ids(const char *what, struct zt_device *dev, struct zt_stream *s,
                        const struct zt_view *ids, int64_t rows,
                        enum zt_cuda_error_kind kind, int64_t *first_bad,
                        struct zt_fault *fault)
{
    return zt_cuda_launch(what, fault, dev, s, 1, CHECK_THREADS, check_ids_kernel,
                          static_cast<const int32_t *>(ids->data), ids->shape[0], rows,
                          kind, dev->error, first_bad);
}

/* ---- forward ---- */

static __global__ void __launch_bounds__(ZT_THREADS)
    lookup_kernel(const int32_t *id, struct zt_operand table, struct zt_operand y,
                  int64_t rows, int64_t cols, const int64_t *first_bad)
{
    float x[ZT_PACK];

    if (*first_bad < rows)
        return;
    for (int64_t row = zt_first_row(); row < rows; row += zt_row_step()) {
        int64_t from = id[row] * cols;

        for (int64_t col = zt_first_col(); col < cols; col += zt_col_step()) {
            zt_load(x, table, from + col, cols - col);
            zt_store(y, row * cols + col, cols - col, false, x);
        }
    }
}

zt_err zt_cuda_embedding(struct zt_device *dev, struct zt_stream *s,
                         const struct zt_embedding_args *a, struct zt_fault *fault)
{
    int64_t *first_bad = static_cast<int64_t *>(zt_cuda_scratch(dev, s));
    int64_t rows, cols;
    zt_err rc = zt_check_embedding(a, fault);
    dim3 blocks, threads;

    if (rc || a->y.shape[0] == 0)
        return rc;
    rows = a->y.shape[0];
    cols = a->y.shape[1];
    rc = check_ids("embedding", dev, s, &a->ids, a->table.shape[0],
                   ZT_CUDA_ERROR_EMBEDDING, first_bad, fault);
    if (rc || cols == 0)
        return rc;
    zt_matrix_grid(dev, rows, cols, &blocks, &threads);
    return zt_cuda_launch("embedding", fault, dev, s, blocks, threads, lookup_kernel,
                          static_cast<const int32_t *>(a->ids.data),
                          zt_operand_of(&a->table, cols), zt_operand_of(&a->y, cols),
                          rows, cols, first_bad);
}

/* ---- backward ---- */

#define PIECE 16384 /* positions */
#define SPLIT 8     /* blocks that count for the same positions */

struct sort_scratch {
    int64_t first_bad;
    int32_t smaller[SPLIT][PIECE]; /* pairs below that of the position, by part */
    int32_t id[PIECE], at[PIECE];  /* sorted; at counts from the start of the piece */
};

/* For PIECE positions from id on, or n: how many of part blockIdx.y come before. */
static __global__ void __launch_bounds__(ZT_THREADS)
    rank_kernel(const int32_t *id, int n, struct sort_scratch *sort, int64_t all)
{
    __shared__ int32_t tile[ZT_THREADS];
    int me = (int)zt_thread_index(), each = (n + SPLIT - 1) / SPLIT, before = 0;
    int begin = (int)blockIdx.y * each, end = begin + each < n ? begin + each : n;
    int32_t mine;

    if (sort->first_bad < all)
        return;
    mine = me < n ? id[me] : 0;
    for (int at = begin; at < end; at += ZT_THREADS) {
        int num = end - at < ZT_THREADS ? end - at : ZT_THREADS;

        if ((int)threadIdx.x < num)
            tile[threadIdx.x] = id[at + (int)threadIdx.x];
        __syncthreads();
        for (int i = 0; i < num; i++)
            before += tile[i] < mine + (at + i < me); /* equal ids: the earlier first */
        __syncthreads();
    }
    if (me < n)
        sort->smaller[blockIdx.y][me] = before;
}

static __global__ void __launch_bounds__(ZT_THREADS)
    place_kernel(const int32_t *id, int n, struct sort_scratch *sort, int64_t all)
{
    int me = (int)zt_thread_index(), rank = 0;

    if (me >= n || sort->first_bad < all)
        return;
    for (int part = 0; part < SPLIT; part++)
        rank += sort->smaller[part][me];
    sort->id[rank] = id[me];
    sort->at[rank] = me;
}

#define AHEAD 4 /* rows whose loads are under way together */

/* sum += rows of dy at sorted places from `from` on, while they are of `id`. */
static __device__ __forceinline__ void add_run(float sum[ZT_PACK],
                                               const struct zt_operand &dy,
                                               const struct sort_scratch *sort, int from,
                                               int n, int32_t id, int64_t col,
                                               int64_t cols)
{
    struct zt_raw row[AHEAD];
    float x[ZT_PACK];
    bool more = true;

    for (int k = from; more; k += AHEAD) {
        bool is[AHEAD];

        for (int j = 0; j < AHEAD; j++) {
            is[j] = more = more && k + j < n && sort->id[k + j] == id;
            if (more)
                row[j] = zt_fetch(dy, sort->at[k + j] * cols + col, cols - col);
        }
        for (int j = 0; j < AHEAD && is[j]; j++) {
            zt_unpack(x, row[j], dy);
            for (int i = 0; i < ZT_PACK; i++)
                sum[i] += x[i];
        }
    }
}

/* blockIdx.x is a sorted place, and works if a run begins there. */
static __global__ void __launch_bounds__(ZT_THREADS)
    add_rows_kernel(const struct sort_scratch *sort, int n, struct zt_operand dy,
                    float *table, bool wide, int64_t cols, int64_t all)
{
    int place = (int)blockIdx.x;
    float sum[ZT_PACK];
    int32_t id;

    if (sort->first_bad < all)
        return;
    id = sort->id[place];
    if (place && sort->id[place - 1] == id)
        return;
    for (int64_t col = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * ZT_PACK;
         col < cols; col += (int64_t)gridDim.y * blockDim.x * ZT_PACK) {
        float *row = table + id * cols + col;

        zt_load_f32(sum, row, wide, cols - col);
        add_run(sum, dy, sort, place, n, id, col, cols);
        zt_store_f32(row, wide, cols - col, sum);
    }
}

/* Positions [first, first + n) of a->ids. */
static zt_err add_piece(struct zt_device *dev, struct zt_stream *s,
                        const struct zt_embedding_bwd_args *a, int64_t first, int n,
                        struct sort_scratch *sort, struct zt_fault *fault)
{
    const int32_t *id = static_cast<const int32_t *>(a->ids.data) + first;
    int64_t cols = a->dy.shape[1], all = a->ids.shape[0], packs = zt_packs(cols);
    unsigned threads = zt_threads_for(packs, ZT_THREADS);
    unsigned groups = (unsigned)((n + ZT_THREADS - 1) / ZT_THREADS);
    int64_t across = (packs + threads - 1) / threads;
    struct zt_view dy = a->dy;
    bool wide = zt_is_aligned(a->dtable.data) && cols % 4 == 0;
    zt_err rc;

    dy.data =
        static_cast<char *>(dy.data) + (size_t)(first * cols) * zt_dtype_bytes(dy.dtype);
    rc = zt_cuda_launch("embedding_bwd", fault, dev, s, dim3(groups, SPLIT), ZT_THREADS,
                        rank_kernel, id, n, sort, all);
    if (!rc)
        rc = zt_cuda_launch("embedding_bwd", fault, dev, s, groups, ZT_THREADS,
                            place_kernel, id, n, sort, all);
    if (!rc)
        rc = zt_cuda_launch("embedding_bwd", fault, dev, s,
                            dim3((unsigned)n, (unsigned)(across < 64 ? across : 64)),
                            threads, add_rows_kernel, sort, n, zt_operand_of(&dy, cols),
                            static_cast<float *>(a->dtable.data), wide, cols, all);
    return rc;
}

zt_err zt_cuda_embedding_bwd(struct zt_device *dev, struct zt_stream *s,
                             const struct zt_embedding_bwd_args *a,
                             struct zt_fault *fault)
{
    struct sort_scratch *sort =
        static_cast<struct sort_scratch *>(zt_cuda_scratch(dev, s));
    zt_err rc = zt_check_embedding_bwd(a, fault);
    int64_t all;

    static_assert(sizeof(*sort) <= ZT_CUDA_SCRATCH, "a piece must fit the scratch");
    if (rc || a->ids.shape[0] == 0)
        return rc;
    all = a->ids.shape[0];
    rc = check_ids("embedding_bwd", dev, s, &a->ids, a->dtable.shape[0],
                   ZT_CUDA_ERROR_EMBEDDING_BWD, &sort->first_bad, fault);
    for (int64_t at = 0; !rc && a->dy.shape[1] && at < all; at += PIECE)
        rc = add_piece(dev, s, a, at, (int)(all - at < PIECE ? all - at : PIECE), sort,
                       fault);
    return rc;
}
