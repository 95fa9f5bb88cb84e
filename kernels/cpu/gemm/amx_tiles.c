#include "kernels/cpu/gemm/amx_tiles.h"

#include "kernels/cpu/features.h"
#include "kernels/cpu/gemm/amx_instructions.h"

/*
 * Sums stay in tiles over so many pairs, and wait in memory for the next: 32 columns of b and
 * 32 rows of a are in the L1 cache together meanwhile.
 */
#define PAIRS_AT_ONCE 128
#define ROWS_AT_ONCE  128

/* Rows of a that are not 16, or words that are not, with zeros around them. */
static void fill_edge(uint32_t edge[16][16], const char *a, int64_t a_row, int64_t rows,
                      int64_t words)
{
    memset(edge, 0, 16 * sizeof(edge[0]));
    for (int64_t i = 0; i < rows && i < 16; i++)
        memcpy(edge[i], a + i * a_row,
               (size_t)(words < 16 ? words : 16) * sizeof(edge[0][0]));
}

#define NAME(x) model_##x
#define TILE(x) EMULATED_##x
#include "kernels/cpu/gemm/amx_tiles.inc"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(                                                            \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))),              \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#endif
#define NAME(x) amx_##x
#define TILE(x) AMX_##x
#include "kernels/cpu/gemm/amx_tiles.inc"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

const struct zt_tile_kernels *zt_tile_emulation(void)
{
    return &model_kernels;
}

const struct zt_tile_kernels *zt_tile_kernels(void)
{
#if defined(__x86_64__)
    if (zt_cpu_has_tiles())
        return &amx_kernels;
#endif
    return &model_kernels;
}
