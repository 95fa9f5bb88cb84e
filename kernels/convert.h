/*
 * convert.h -- arrays of bf16 and fp16 to fp32 and back, with the widest vectors of the
 * running processor; the bits are those of common/half.h. Arrays do not overlap.
 */
#ifndef KERNELS_CONVERT_H
#define KERNELS_CONVERT_H

#include "common/half.h"
#include "include/zlaunch/types.h"

void zt_floats_of_bf16(float *dst, const uint16_t *src, int64_t n);
void zt_bf16_of_floats(uint16_t *dst, const float *src, int64_t n);
void zt_floats_of_f16(float *dst, const uint16_t *src, int64_t n);
void zt_f16_of_floats(uint16_t *dst, const float *src, int64_t n);

#endif
