/*
 * device_test.h -- what tests of the cuda device share, be it the shim's or a real one:
 * managed arrays, and words that must be said.
 */
#ifndef TEST_UNIT_CUDA_DEVICE_TEST_H
#define TEST_UNIT_CUDA_DEVICE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <string>

#include <cuda_runtime.h>

extern "C" {
#include <cmocka.h>
}

#define OK(call) assert_int_equal(call, cudaSuccess)

/* n numbers that host and device reach, all `value`. */
template <typename T> static inline T *managed(size_t n, T value)
{
    T *p = NULL;

    OK(cudaMallocManaged(&p, n * sizeof(T)));
    for (size_t i = 0; i < n; i++)
        p[i] = value;
    return p;
}

static inline void expect_part(const std::string &said, const char *part)
{
    if (said.find(part) == std::string::npos)
        fail_msg("want \"%s\" in \"%s\"", part, said.c_str());
}

#endif
