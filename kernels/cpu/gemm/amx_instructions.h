/*
 * amx_instructions.h -- the instructions of matrix tiles (Intel AMX) that bf16 products
 * need, and an emulation of them in plain C that gives the same bits on any processor.
 *
 * Tiles are numbered 0 to 7, hold 16 rows of 64 bytes each, and belong to the thread.
 * AMX_x is the instruction, EMULATED_x its emulation; the numbers are literals.
 *
 *      CONFIGURE()            all eight tiles are 16 x 64 bytes, and zero
 *      RELEASE()              the tiles are given back
 *      ZERO(t)
 *      LOAD(t, from, stride)  16 rows, `stride` bytes apart
 *      STORE(t, to, stride)
 *      MULTIPLY(c, a, b)      c (16, 16) fp32 += a (16, 32) bf16 times b, whose row i
 *                             holds rows 2i and 2i + 1 of a (32, 16) matrix in pairs
 *
 * MULTIPLY sums the even and the odd elements of k apart, each by fused multiply-adds
 * from zero, adds the two sums, and adds that to c. Denormals count as zero.
 * See: Intel 64 and IA-32 Architectures Software Developer's Manual, TDPBF16PS.
 */
#ifndef KERNELS_CPU_GEMM_AMX_INSTRUCTIONS_H
#define KERNELS_CPU_GEMM_AMX_INSTRUCTIONS_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)

/* What ldtilecfg reads: palette 1, and rows and bytes of a row of each tile. */
struct zt_amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

static const struct zt_amx_config zt_amx_config = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

/* By assembler: compilers' own intrinsics do not say that memory is read and written. */
#define AMX_CONFIGURE() __asm__ volatile("ldtilecfg %0" ::"m"(zt_amx_config) : "memory")
#define AMX_RELEASE()   __asm__ volatile("tilerelease" ::: "memory")
#define AMX_ZERO(t)     __asm__ volatile("tilezero %%tmm" #t ::: "memory")
#define AMX_LOAD(t, from, stride)                                                        \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(from), "r"((int64_t)(stride)) \
                     : "memory")
#define AMX_STORE(t, to, stride)                                                         \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(to),                      \
                     "r"((int64_t)(stride))                                              \
                     : "memory")
#define AMX_MULTIPLY(c, a, b)                                                            \
    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")

#endif

static _Thread_local uint32_t zt_amx_emulated[8][16][16];

static inline float zt_amx_float(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return fabsf(x) < FLT_MIN ? copysignf(0, x) : x; /* NaN stays */
}

static inline float zt_amx_flush(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

static inline void zt_amx_emulated_multiply(int c, int a, int b)
{
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) {
            float even = 0, odd = 0, sum;

            for (int k = 0; k < 16; k++) {
                uint32_t x = zt_amx_emulated[a][i][k], y = zt_amx_emulated[b][k][j];

                even = zt_amx_flush(
                    fmaf(zt_amx_float(x << 16), zt_amx_float(y << 16), even));
                odd = zt_amx_flush(fmaf(zt_amx_float(x & 0xffff0000),
                                        zt_amx_float(y & 0xffff0000), odd));
            }
            sum = zt_amx_flush(even + odd);
            sum = zt_amx_flush(zt_amx_float(zt_amx_emulated[c][i][j]) + sum);
            memcpy(&zt_amx_emulated[c][i][j], &sum, sizeof(sum));
        }
}

static inline void zt_amx_emulated_load(int t, const void *from, int64_t stride)
{
    for (int i = 0; i < 16; i++)
        memcpy(zt_amx_emulated[t][i], (const char *)from + i * stride, 64);
}

static inline void zt_amx_emulated_store(int t, void *to, int64_t stride)
{
    for (int i = 0; i < 16; i++)
        memcpy((char *)to + i * stride, zt_amx_emulated[t][i], 64);
}

#define EMULATED_CONFIGURE()           memset(zt_amx_emulated, 0, sizeof(zt_amx_emulated))
#define EMULATED_RELEASE()             ((void)0)
#define EMULATED_ZERO(t)               memset(zt_amx_emulated[t], 0, sizeof(zt_amx_emulated[t]))
#define EMULATED_LOAD(t, from, stride) zt_amx_emulated_load(t, from, stride)
#define EMULATED_STORE(t, to, stride)  zt_amx_emulated_store(t, to, stride)
#define EMULATED_MULTIPLY(c, a, b)     zt_amx_emulated_multiply(c, a, b)

#endif
