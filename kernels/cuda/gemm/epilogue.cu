#include "kernels/cuda/elementwise/activation.h"
#include "kernels/cuda/gemm/gemm.h"

#define THREADS 256

struct operand {
    void *data;
    zt_dtype dtype;
    int64_t stride[3];
    bool wide;
};

struct epilogue_launch {
    struct operand from, bias, pre, c;
    int64_t rows, cols, packs, items; /* packs: of a row */
    zt_epilogue epilogue;
};

static __device__ __forceinline__ void get(float x[ZT_PACK], const struct operand &m,
                                           int64_t batch, int64_t row, int64_t col,
                                           int64_t n)
{
    int64_t at = batch * m.stride[0] + row * m.stride[1] + col * m.stride[2];

    if (m.wide) {
        zt_get_pack(x, m.data, m.dtype, at, n, true, 0.0f);
        return;
    }
    for (int i = 0; i < ZT_PACK; i++)
        x[i] = i < n ? zt_get(m.data, m.dtype, at + i * m.stride[2]) : 0.0f;
}

static __device__ __forceinline__ void put(const struct operand &m, int64_t batch,
                                           int64_t row, int64_t col, int64_t n,
                                           const float x[ZT_PACK])
{
    int64_t at = batch * m.stride[0] + row * m.stride[1] + col * m.stride[2];

    if (m.wide) {
        zt_put_pack(m.data, m.dtype, at, n, true, x);
        return;
    }
    for (int i = 0; i < ZT_PACK; i++)
        if (i < n)
            zt_put(m.data, m.dtype, at + i * m.stride[2], x[i]);
}

static __global__ void __launch_bounds__(THREADS)
    epilogue_kernel(struct epilogue_launch p)
{
    float x[ZT_PACK], bias[ZT_PACK];

    for (int64_t item = zt_thread_index(); item < p.items; item += zt_thread_count()) {
        int64_t line = item / p.packs, col = (item - line * p.packs) * ZT_PACK;
        int64_t batch = line / p.rows, row = line - batch * p.rows, n = p.cols - col;

        for (int i = 0; i < ZT_PACK; i++)
            x[i] = bias[i] = 0;
        if (p.from.data)
            get(x, p.from, batch, row, col, n);
        if (p.bias.data)
            get(bias, p.bias, batch, row, col, n);
        for (int i = 0; i < ZT_PACK; i++)
            x[i] += bias[i];
        if (p.pre.data)
            put(p.pre, batch, row, col, n, x);
        if (p.epilogue != ZT_EPI_NONE)
            for (int i = 0; i < ZT_PACK; i++) {
                float v = zt_rounded(x[i], p.c.dtype), slope;

                x[i] = p.epilogue == ZT_EPI_GELU_TANH ? zt_gelu_tanh(v, &slope)
                                                      : zt_gelu_erf(v, &slope);
            }
        put(p.c, batch, row, col, n, x);
    }
}

/* The operand as the kernel walks it: along rows, or with `flip` along columns. */
static struct operand operand_of(const struct zt_mat *m, bool flip)
{
    struct zt_mat t = flip ? zt_mat_transposed(*m) : *m;
    struct operand o;

    o.data = t.data;
    o.dtype = t.dtype;
    for (int i = 0; i < 3; i++)
        o.stride[i] = t.stride[i];
    o.wide = t.data && t.stride[2] == 1 && t.stride[0] % ZT_PACK == 0 &&
             t.stride[1] % ZT_PACK == 0 && t.cols % ZT_PACK == 0 && zt_is_aligned(t.data);
    return o;
}

zt_err zt_gemm_run_epilogue(struct zt_device *dev, struct zt_stream *s,
                            const struct zt_gemm_epilogue_args *a, struct zt_fault *fault)
{
    bool flip = a->c.stride[2] != 1;
    struct epilogue_launch p;

    p.from = operand_of(&a->from, flip);
    p.bias = operand_of(&a->bias, flip);
    p.pre = operand_of(&a->pre, flip);
    p.c = operand_of(&a->c, flip);
    p.rows = flip ? a->c.cols : a->c.rows;
    p.cols = flip ? a->c.rows : a->c.cols;
    p.packs = (p.cols + ZT_PACK - 1) / ZT_PACK;
    p.items = a->c.batch * p.rows * p.packs;
    p.epilogue = a->epilogue;
    return zt_cuda_launch("gemm", fault, dev, s, zt_cuda_blocks(dev, p.items, THREADS),
                          THREADS, epilogue_kernel, p);
}
