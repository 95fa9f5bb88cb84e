/*
 * An object as zt_backend_find() loads it, for test_backend.c. Of what it exports only
 * the head and count() are ever looked at. Built four times:
 *      good        as a real one
 *      no_symbol   another name is exported
 *      other_abi, other_size   of another version of backend.h
 */
#include <stdlib.h>

#include "kernels/backend.h"

#ifndef SYMBOL
#define SYMBOL zt_loaded_backend
#endif
#ifndef MORE_ABI
#define MORE_ABI 0
#endif
#ifndef MORE_BYTES
#define MORE_BYTES 0
#endif

/* TEST_CUDA_DEVICES: how many. */
static zt_err count(int *out, struct zt_fault *fault)
{
    const char *text = getenv("TEST_CUDA_DEVICES");

    (void)fault;
    *out = text ? atoi(text) : 0;
    return *out ? ZT_OK
                : zt_fault_set(fault, ZT_E_UNSUPPORTED,
                               "the object of the test sees no device");
}

static const struct zt_backend backend = {
    .abi = ZT_BACKEND_ABI + MORE_ABI,
    .struct_bytes = sizeof(struct zt_backend) + MORE_BYTES,
    .name = "cuda",
    .count = count,
};

extern const struct zt_backend *const SYMBOL;
__attribute__((visibility("default"))) const struct zt_backend *const SYMBOL = &backend;
