/*
 * meta.h -- the backend without memory: shapes only.
 *
 * Regions have addresses that no process can read or write, apart from each other, so a
 * stray access faults. Kernels check their arguments as every backend does, and then do
 * nothing but count (work.h); upload and download likewise. What runs here makes the same
 * allocations as on a real device.
 */
#ifndef KERNELS_META_META_H
#define KERNELS_META_META_H

#include "kernels/backend.h"

extern const struct zt_kernels zt_meta_kernels;
extern const struct zt_backend zt_meta_backend;

#endif
