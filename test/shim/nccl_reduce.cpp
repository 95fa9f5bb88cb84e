/*
 * nccl_reduce.cpp -- sums and maxima of the same numbers of all ranks. The order is never
 * that of the ranks for all numbers: code that counts on it must be seen to differ.
 */
#include <type_traits>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "nccl_calls.h"

static const size_t RUN = 64; /* elements with one order */

static float widen(__half x)
{
    return __half2float(x);
}
static float widen(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
template <typename T> static T widen(T x)
{
    return x;
}

static void narrow(float x, __half *out)
{
    *out = __float2half_rn(x);
}
static void narrow(float x, __nv_bfloat16 *out)
{
    *out = __float2bfloat16_rn(x);
}
template <typename T> static void narrow(T x, T *out)
{
    *out = x;
}

template <typename T> static T larger(T a, T b)
{
    if constexpr (std::is_floating_point<T>::value)
        return fmax(a, b); /* a NaN is lost */
    else
        return a < b ? b : a;
}

/* Integers wrap. */
template <typename T> static T added(T a, T b)
{
    if constexpr (std::is_integral<T>::value)
        return (T)((std::make_unsigned_t<T>)a + (std::make_unsigned_t<T>)b);
    else
        return a + b;
}

template <typename T>
static void reduce(ncclRedOp_t op, T *out, const std::vector<const void *> &from,
                   size_t count, int first)
{
    const size_t num = from.size();

    for (size_t i = 0; i < count; i++) {
        size_t start = ((size_t)first + 1 + i / RUN) % num;
        T sum = ((const T *)from[start])[i];

        for (size_t k = 1; k < num; k++) {
            T x = ((const T *)from[(start + k) % num])[i];

            if (op == ncclMax)
                narrow(larger(widen(sum), widen(x)), &sum);
            else
                narrow(added(widen(sum), widen(x)), &sum);
        }
        out[i] = sum;
    }
}

void nccl_reduce(ncclDataType_t type, ncclRedOp_t op, void *out,
                 const std::vector<const void *> &from, size_t count, int first)
{
    switch (type) {
    case ncclInt8:
        return reduce(op, (int8_t *)out, from, count, first);
    case ncclUint8:
        return reduce(op, (uint8_t *)out, from, count, first);
    case ncclInt32:
        return reduce(op, (int32_t *)out, from, count, first);
    case ncclInt64:
        return reduce(op, (int64_t *)out, from, count, first);
    case ncclFloat16:
        return reduce(op, (__half *)out, from, count, first);
    case ncclFloat32:
        return reduce(op, (float *)out, from, count, first);
    case ncclFloat64:
        return reduce(op, (double *)out, from, count, first);
    case ncclBfloat16:
        return reduce(op, (__nv_bfloat16 *)out, from, count, first);
    }
}
