/*
 * softmax.h -- the two passes over a row that softmax and cross-entropy share.
 */
#ifndef KERNELS_CPU_SOFTMAX_H
#define KERNELS_CPU_SOFTMAX_H

#include "kernels/cpu/tile.h"

/* max x and sum exp(x - max) of a row of n, in one pass over memory. */
void zt_row_max_sum(struct zt_row *x, int64_t n, float *max, double *sum);

/* y[i] = exp(x[i] - shift) * scale, for x <= shift; y may be x */
void zt_tile_exp(float *y, const float *x, float shift, float scale, int64_t n);

#endif
