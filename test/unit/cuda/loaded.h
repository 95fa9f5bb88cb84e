/*
 * loaded.h -- what test_shim_loaded finds in the two shared objects that it loads: one
 * has the shim and kernels inside (loaded_cuda.cpp), the other calls NCCL and is linked
 * against nothing (loaded_nccl.c). 0 is success everywhere.
 */
#ifndef TEST_UNIT_CUDA_LOADED_H
#define TEST_UNIT_CUDA_LOADED_H

#include <stddef.h>

struct loaded_cuda {
    int (*alloc)(void **out, size_t bytes);
    int (*free)(void *p);
    int (*copy)(void *dst, const void *src, size_t bytes); /* either way */
    int (*add_one)(int *x, int n);                         /* queued */
    int (*write_at)(int *x, long at);                      /* queued */
    int (*sync)(void);
};

/* Sums one number of the device over the ranks; id: 128 bytes, made where it is asked
 * for. */
struct loaded_nccl {
    int (*make_id)(void *id);
    int (*sum)(const void *id, int rank, int num, int *x);
};

#endif
