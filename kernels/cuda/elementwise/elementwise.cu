/*
 * Kernels where element i of the result depends on element i of the operands. A thread
 * reads all operands of a pack before it writes it, so results may be in place.
 */
#include "kernels/cuda/elementwise/activation.h"
#include "kernels/cuda/operand.h"

/* ---- y = f(x) ---- */

static __global__ void __launch_bounds__(ZT_THREADS)
    unary_kernel(zt_unary kind, struct zt_operand x, struct zt_operand y, int64_t n)
{
    float v[ZT_PACK], slope[ZT_PACK];

    for (int64_t at = zt_first_pack(); at < n; at += zt_pack_step()) {
        zt_load(v, x, at, n - at);
        zt_activate(kind, v, slope, v);
        zt_store(y, at, n - at, false, v);
    }
}

zt_err zt_cuda_unary(struct zt_device *dev, struct zt_stream *s,
                     const struct zt_unary_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_unary(a, fault);
    int64_t n = zt_view_numel(&a->x);

    if (rc || n == 0)
        return rc;
    return zt_cuda_launch("unary", fault, dev, s, zt_flat_blocks(dev, n), ZT_THREADS,
                          unary_kernel, a->kind, zt_flat_operand(&a->x),
                          zt_flat_operand(&a->y), n);
}

static __global__ void __launch_bounds__(ZT_THREADS)
    unary_bwd_kernel(zt_unary kind, struct zt_operand dy, struct zt_operand x,
                     struct zt_operand dx, bool accumulate, int64_t n)
{
    float v[ZT_PACK], d[ZT_PACK], slope[ZT_PACK];

    for (int64_t at = zt_first_pack(); at < n; at += zt_pack_step()) {
        zt_load_two(v, x, d, dy, at, n - at);
        zt_activate(kind, v, slope, v);
        for (int i = 0; i < ZT_PACK; i++)
            d[i] *= slope[i];
        zt_store(dx, at, n - at, accumulate, d);
    }
}

zt_err zt_cuda_unary_bwd(struct zt_device *dev, struct zt_stream *s,
                         const struct zt_unary_bwd_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_unary_bwd(a, fault);
    int64_t n = zt_view_numel(&a->x);

    if (rc || n == 0)
        return rc;
    return zt_cuda_launch("unary_bwd", fault, dev, s, zt_flat_blocks(dev, n), ZT_THREADS,
                          unary_bwd_kernel, a->kind, zt_flat_operand(&a->dy),
                          zt_flat_operand(&a->x), zt_flat_operand(&a->dx), a->accumulate,
                          n);
}

/* ---- y = a op b, b repeated along the leading axes of a ---- */

static __device__ __forceinline__ void apply(zt_binary kind, float a[ZT_PACK],
                                             const float b[ZT_PACK])
{
    for (int i = 0; i < ZT_PACK; i++)
        a[i] = kind == ZT_B_ADD ? __fadd_rn(a[i], b[i]) : __fmul_rn(a[i], b[i]);
}

/* a and y as rows of as many elements as b has */
static __global__ void __launch_bounds__(ZT_THREADS)
    binary_rows_kernel(zt_binary kind, struct zt_operand a, struct zt_operand b,
                       struct zt_operand y, bool accumulate, int64_t rows, int64_t cols)
{
    float v[ZT_PACK], w[ZT_PACK];

    for (int64_t row = zt_first_row(); row < rows; row += zt_row_step())
        for (int64_t col = zt_first_col(); col < cols; col += zt_col_step()) {
            struct zt_raw in_a = zt_fetch(a, row * cols + col, cols - col);
            struct zt_raw in_b = zt_fetch(b, col, cols - col);

            zt_unpack(v, in_a, a);
            zt_unpack(w, in_b, b);
            apply(kind, v, w);
            zt_store(y, row * cols + col, cols - col, accumulate, v);
        }
}

/* a b of a few elements: packs of a cross its end */
static __global__ void __launch_bounds__(ZT_THREADS)
    binary_short_kernel(zt_binary kind, struct zt_operand a, struct zt_operand b,
                        struct zt_operand y, bool accumulate, int64_t n, int period)
{
    float v[ZT_PACK], w[ZT_PACK];

    for (int64_t at = zt_first_pack(); at < n; at += zt_pack_step()) {
        int in_b = (int)(at % period);

        zt_load(v, a, at, n - at);
        for (int i = 0; i < ZT_PACK; i++) {
            w[i] = zt_get(b.data, b.dtype, in_b);
            in_b = in_b + 1 == period ? 0 : in_b + 1;
        }
        apply(kind, v, w);
        zt_store(y, at, n - at, accumulate, v);
    }
}

#define SHORT_PERIOD 64

zt_err zt_cuda_binary(struct zt_device *dev, struct zt_stream *s,
                      const struct zt_binary_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_binary(a, fault);
    int64_t n = zt_view_numel(&a->a), period = zt_view_numel(&a->b);
    int64_t distance = period == n ? 0 : period;
    dim3 blocks, threads;

    if (rc || n == 0)
        return rc;
    if (period < SHORT_PERIOD)
        return zt_cuda_launch("binary", fault, dev, s, zt_flat_blocks(dev, n), ZT_THREADS,
                              binary_short_kernel, a->kind, zt_flat_operand(&a->a),
                              zt_flat_operand(&a->b), zt_flat_operand(&a->y),
                              a->accumulate, n, period);
    zt_matrix_grid(dev, n / period, period, &blocks, &threads);
    return zt_cuda_launch("binary", fault, dev, s, blocks, threads, binary_rows_kernel,
                          a->kind, zt_operand_of(&a->a, distance), zt_flat_operand(&a->b),
                          zt_operand_of(&a->y, distance), a->accumulate, n / period,
                          period);
}

/* ---- y = value ---- */

/*
 * 16 bytes at a time on 16-byte boundaries, where every value of the pattern is where it
 * is from the start of y, since its size divides 16. The ends go byte by byte.
 */
static __global__ void __launch_bounds__(ZT_THREADS)
    fill_kernel(char *y, int64_t bytes, uint4 pattern)
{
    const unsigned char *one = reinterpret_cast<const unsigned char *>(&pattern);
    int64_t lead = (int64_t)(reinterpret_cast<uintptr_t>(y) % sizeof(pattern));

    for (int64_t at = zt_thread_index() * 16 - lead; at < bytes;
         at += zt_thread_count() * 16) {
        if (at >= 0 && at + 16 <= bytes)
            *reinterpret_cast<uint4 *>(y + at) = pattern;
        else
            for (int i = 0; i < 16; i++)
                if (at + i >= 0 && at + i < bytes)
                    y[at + i] = (char)one[i];
    }
}

static uint4 fill_pattern(zt_dtype dtype, float value)
{
    const __nv_bfloat16 bf16 = __float2bfloat16_rn(value);
    const __half f16 = __float2half_rn(value);
    const size_t bytes = zt_dtype_bytes(dtype);
    int32_t i32;
    int64_t i64;
    uint8_t u8;
    char one[16];
    uint4 pattern;

    switch (dtype) {
    case ZT_BF16:
        memcpy(one, &bf16, sizeof(bf16));
        break;
    case ZT_F16:
        memcpy(one, &f16, sizeof(f16));
        break;
    case ZT_I32:
        i32 = (int32_t)value;
        memcpy(one, &i32, sizeof(i32));
        break;
    case ZT_I64:
        i64 = (int64_t)value;
        memcpy(one, &i64, sizeof(i64));
        break;
    case ZT_U8:
        u8 = (uint8_t)value;
        memcpy(one, &u8, sizeof(u8));
        break;
    default:
        memcpy(one, &value, sizeof(value));
        break;
    }
    for (size_t at = bytes; at < sizeof(one); at++)
        one[at] = one[at - bytes];
    memcpy(&pattern, one, sizeof(pattern));
    return pattern;
}

zt_err zt_cuda_fill(struct zt_device *dev, struct zt_stream *s,
                    const struct zt_fill_args *a, struct zt_fault *fault)
{
    zt_err rc = zt_check_fill(a, fault);
    int64_t bytes;

    if (rc)
        return rc;
    bytes = zt_view_numel(&a->y) * (int64_t)zt_dtype_bytes(a->y.dtype);
    if (bytes == 0)
        return ZT_OK;
    return zt_cuda_launch("fill", fault, dev, s,
                          zt_cuda_blocks(dev, bytes / 16 + 2, ZT_THREADS), ZT_THREADS,
                          fill_kernel, static_cast<char *>(a->y.data), bytes,
                          fill_pattern(a->y.dtype, a->value));
}
