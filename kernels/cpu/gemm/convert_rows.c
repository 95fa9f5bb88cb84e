/* Rows of f32, bf16 and f16 to and from fp32, dense or not; and of fp8 to fp32. */
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/convert.h"
#include "kernels/cpu/features.h"
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

#define LINE  64
#define PIECE 512 /* elements that are rounded at a time */

#if defined(__x86_64__)
/* Each by one store: others could come between several and send a line in parts. */
__attribute__((target("avx512f"))) static void stream_lines(char *dst, const char *src,
                                                            size_t bytes)
{
    for (size_t i = 0; i < bytes; i += LINE)
        _mm512_stream_si512((__m512i *)(void *)(dst + i),
                            _mm512_loadu_si512((const void *)(src + i)));
}
#endif

/* Whole lines of dst; the ends of a row, in lines that it shares, are stored as usual. */
static void stream_bytes(char *dst, const char *src, size_t bytes)
{
#if defined(__x86_64__)
    size_t before = (size_t)(-(uintptr_t)dst % LINE), whole;

    if (before < bytes && (zt_cpu_features() & ZT_CPU_AVX512)) {
        memcpy(dst, src, before);
        dst += before, src += before, bytes -= before;
        whole = bytes / LINE * LINE;
        stream_lines(dst, src, whole);
        dst += whole, src += whole, bytes -= whole;
    }
#endif
    memcpy(dst, src, bytes);
}

void zt_stream_row(void *dst, zt_dtype dtype, const float *src, int64_t n)
{
    char piece[PIECE * 2];

    if (dtype == ZT_F32) {
        stream_bytes(dst, (const char *)src, (size_t)n * sizeof(*src));
        return;
    }
    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t m = n - i < PIECE ? n - i : PIECE;

        zt_store_row(piece, dtype, 1, src + i, m);
        stream_bytes((char *)dst + i * 2, piece, (size_t)m * 2);
    }
}

void zt_store_fence(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}
