/*
 * amx_tiles.h -- products of packed bf16 operands (bf16_dot.h) by matrix tiles.
 *
 * The kernel's source is compiled for the instructions and for an emulation of them in C
 * (amx_instructions.h), and both give the same bits: processors without tiles test what the
 * others run.
 */
#ifndef KERNELS_CPU_GEMM_AMX_TILES_H
#define KERNELS_CPU_GEMM_AMX_TILES_H

#include "kernels/cpu/gemm/bf16_dot.h"

struct zt_tile_kernels {
    void (*begin)(void); /* on the calling thread; nothing else may use tiles until end */
    void (*end)(void);
    /* as zt_dot_product, of operands packed for tiles */
    void (*product)(const struct zt_dot *p);
};

/* The instructions where the processor has them, else the model. */
const struct zt_tile_kernels *zt_tile_kernels(void);
const struct zt_tile_kernels *zt_tile_emulation(void);

#endif
