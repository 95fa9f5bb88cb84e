/* Rows of f32, bf16 and f16 to and from fp32, dense or not; and of fp8 to fp32. */
#include <string.h>

#include "kernels/convert.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/fp8.h"

static void load_strided(float *dst, const void *src, zt_dtype dtype, int64_t stride,
                         int64_t n)
{
    const uint16_t *h = src;
    const float *f = src;

    for (int64_t i = 0; i < n; i++)
        dst[i] = dtype == ZT_F32    ? f[i * stride]
                 : dtype == ZT_BF16 ? zt_float_of_bf16(h[i * stride])
                                    : zt_float_of_f16(h[i * stride]);
}

static void load_codes(float *dst, const uint8_t *src, zt_dtype dtype, int64_t stride,
                       int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = zt_float_of_f8(src[i * stride], dtype);
}

void zt_load_row(float *dst, const void *src, zt_dtype dtype, int64_t stride, int64_t n)
{
    if (dtype == ZT_F8E4M3 || dtype == ZT_F8E5M2)
        load_codes(dst, src, dtype, stride, n);
    else if (stride != 1)
        load_strided(dst, src, dtype, stride, n);
    else if (dtype == ZT_F32)
        memcpy(dst, src, (size_t)n * sizeof(*dst));
    else if (dtype == ZT_BF16)
        zt_floats_of_bf16(dst, src, n);
    else
        zt_floats_of_f16(dst, src, n);
}

static void store_strided(void *dst, zt_dtype dtype, int64_t stride, const float *src,
                          int64_t n)
{
    uint16_t *h = dst;
    float *f = dst;

    for (int64_t i = 0; i < n; i++) {
        if (dtype == ZT_F32)
            f[i * stride] = src[i];
        else if (dtype == ZT_BF16)
            h[i * stride] = zt_bf16_of_float(src[i]);
        else
            h[i * stride] = zt_f16_of_float(src[i]);
    }
}

void zt_store_row(void *dst, zt_dtype dtype, int64_t stride, const float *src, int64_t n)
{
    if (stride != 1)
        store_strided(dst, dtype, stride, src, n);
    else if (dtype == ZT_F32)
        memcpy(dst, src, (size_t)n * sizeof(*src));
    else if (dtype == ZT_BF16)
        zt_bf16_of_floats(dst, src, n);
    else
        zt_f16_of_floats(dst, src, n);
}
