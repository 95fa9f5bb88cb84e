/*
 * Gated units (Shazeer 2020): y = f(gate) * up, rows at any stride, so that gate and up
 * may be the two halves of one matrix product.
 */
#include "kernels/cuda/elementwise/activation.h"
#include "kernels/cuda/operand.h"

/* (N, F), any row stride; that of a single row is ignored */
struct glu_rows {
    struct zt_operand o;
    int64_t stride;
};

static struct glu_rows rows_of(const struct zt_view *v)
{
    struct glu_rows r;

    r.stride = v->shape[0] > 1 ? v->stride[0] : 0;
    r.o = zt_operand_of(v, r.stride);
    return r;
}

static __device__ __forceinline__ struct zt_raw fetch(const struct glu_rows &r,
                                                      int64_t row, int64_t col,
                                                      int64_t cols)
{
    return zt_fetch(r.o, row * r.stride + col, cols - col);
}

static __device__ __forceinline__ void store(const struct glu_rows &r, int64_t row,
                                             int64_t col, int64_t cols, bool accumulate,
                                             float x[ZT_PACK])
{
    zt_store(r.o, row * r.stride + col, cols - col, accumulate, x);
}

static __global__ void __launch_bounds__(ZT_THREADS)
    glu_kernel(zt_unary kind, struct glu_rows gate, struct glu_rows up, struct glu_rows y,
               int64_t rows, int64_t cols)
{
    float g[ZT_PACK], u[ZT_PACK], slope[ZT_PACK];

    for (int64_t row = zt_first_row(); row < rows; row += zt_row_step())
        for (int64_t col = zt_first_col(); col < cols; col += zt_col_step()) {
            struct zt_raw in_gate = fetch(gate, row, col, cols);
            struct zt_raw in_up = fetch(up, row, col, cols);

            zt_unpack(g, in_gate, gate.o);
            zt_unpack(u, in_up, up.o);
            zt_activate(kind, g, slope, g);
            for (int i = 0; i < ZT_PACK; i++)
                g[i] *= u[i];
            store(y, row, col, cols, false, g);
        }
}

zt_err zt_cuda_glu(struct zt_device *dev, struct zt_stream *s,
                   const struct zt_glu_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_glu(a, fault);
    dim3 blocks, threads;

    if (rc || zt_view_numel(&a->gate) == 0)
        return rc;
    zt_matrix_grid(dev, a->gate.shape[0], a->gate.shape[1], &blocks, &threads);
    return zt_cuda_launch("glu", fault, dev, s, blocks, threads, glu_kernel, a->kind,
                          rows_of(&a->gate), rows_of(&a->up), rows_of(&a->y),
                          a->gate.shape[0], a->gate.shape[1]);
}

struct glu_bwd_job {
    zt_unary kind;
    struct glu_rows dy, gate, up, dgate, dup;
    bool accumulate_gate, accumulate_up;
    int64_t rows, cols;
};

/* dgate and dup may be gate and up */
static __global__ void __launch_bounds__(ZT_THREADS) glu_bwd_kernel(struct glu_bwd_job a)
{
    float g[ZT_PACK], u[ZT_PACK], d[ZT_PACK], slope[ZT_PACK];

    for (int64_t row = zt_first_row(); row < a.rows; row += zt_row_step())
        for (int64_t col = zt_first_col(); col < a.cols; col += zt_col_step()) {
            struct zt_raw gate = fetch(a.gate, row, col, a.cols);
            struct zt_raw up = fetch(a.up, row, col, a.cols);
            struct zt_raw dy = fetch(a.dy, row, col, a.cols);

            zt_unpack(g, gate, a.gate.o);
            zt_unpack(u, up, a.up.o);
            zt_unpack(d, dy, a.dy.o);
            zt_activate(a.kind, g, slope, g);
            for (int i = 0; i < ZT_PACK; i++) {
                slope[i] *= d[i] * u[i];
                g[i] *= d[i];
            }
            if (a.dgate.o.data)
                store(a.dgate, row, col, a.cols, a.accumulate_gate, slope);
            if (a.dup.o.data)
                store(a.dup, row, col, a.cols, a.accumulate_up, g);
        }
}

zt_err zt_cuda_glu_bwd(struct zt_device *dev, struct zt_stream *s,
                       const struct zt_glu_bwd_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_glu_bwd(a, fault);
    struct glu_bwd_job job = {};
    dim3 blocks, threads;

    if (rc || zt_view_numel(&a->gate) == 0)
        return rc;
    job.kind = a->kind;
    job.dy = rows_of(&a->dy);
    job.gate = rows_of(&a->gate);
    job.up = rows_of(&a->up);
    if (a->dgate.data)
        job.dgate = rows_of(&a->dgate);
    if (a->dup.data)
        job.dup = rows_of(&a->dup);
    job.accumulate_gate = a->accumulate_gate;
    job.accumulate_up = a->accumulate_up;
    job.rows = a->gate.shape[0];
    job.cols = a->gate.shape[1];
    zt_matrix_grid(dev, job.rows, job.cols, &blocks, &threads);
    return zt_cuda_launch("glu_bwd", fault, dev, s, blocks, threads, glu_bwd_kernel, job);
}
