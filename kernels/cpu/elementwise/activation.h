/*
 * activation.h -- the functions of enum zt_unary on a tile of fp32, and their slopes.
 */
#ifndef KERNELS_CPU_ELEMENTWISE_ACTIVATION_H
#define KERNELS_CPU_ELEMENTWISE_ACTIVATION_H

#include "kernels/backend.h"

/* y[i] = f(x[i]); y may be x. Any n. */
void zt_tile_activate(zt_unary kind, float *y, const float *x, int64_t n);

/* y[i] = f(x[i]) and slope[i] = f'(x[i]); neither may be x. */
void zt_tile_activate_slope(zt_unary kind, float *y, float *slope, const float *x,
                            int64_t n);

#endif
