/*
 * shim_types.h -- qualifiers and the built-in vector types.
 *
 * Blocks run one after the other, so a __shared__ variable is a static one.
 */
#ifndef SHIM_TYPES_H
#define SHIM_TYPES_H

#define __host__
#define __device__
#define __global__
#define __constant__
#define __shared__      static
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n)    __attribute__((aligned(n)))
#define __launch_bounds__(...)

#define SHIM_VECTOR1(name, T)                                                            \
    struct name {                                                                        \
        T x;                                                                             \
    };                                                                                   \
    static inline name make_##name(T x)                                                  \
    {                                                                                    \
        return {x};                                                                      \
    }
#define SHIM_VECTOR2(name, T, align)                                                     \
    struct alignas(align) name {                                                         \
        T x, y;                                                                          \
    };                                                                                   \
    static inline name make_##name(T x, T y)                                             \
    {                                                                                    \
        return {x, y};                                                                   \
    }
#define SHIM_VECTOR3(name, T)                                                            \
    struct name {                                                                        \
        T x, y, z;                                                                       \
    };                                                                                   \
    static inline name make_##name(T x, T y, T z)                                        \
    {                                                                                    \
        return {x, y, z};                                                                \
    }
#define SHIM_VECTOR4(name, T, align)                                                     \
    struct alignas(align) name {                                                         \
        T x, y, z, w;                                                                    \
    };                                                                                   \
    static inline name make_##name(T x, T y, T z, T w)                                   \
    {                                                                                    \
        return {x, y, z, w};                                                             \
    }

SHIM_VECTOR1(float1, float)
SHIM_VECTOR2(float2, float, 8)
SHIM_VECTOR3(float3, float)
SHIM_VECTOR4(float4, float, 16)
SHIM_VECTOR2(double2, double, 16)
SHIM_VECTOR1(uint1, unsigned)
SHIM_VECTOR2(uint2, unsigned, 8)
SHIM_VECTOR3(uint3, unsigned)
SHIM_VECTOR4(uint4, unsigned, 16)
SHIM_VECTOR2(int2, int, 8)
SHIM_VECTOR3(int3, int)
SHIM_VECTOR4(int4, int, 16)
SHIM_VECTOR2(ushort2, unsigned short, 4)
SHIM_VECTOR4(ushort4, unsigned short, 8)
SHIM_VECTOR4(uchar4, unsigned char, 4)
SHIM_VECTOR2(longlong2, long long, 16)
SHIM_VECTOR2(ulonglong2, unsigned long long, 16)

struct dim3 {
    unsigned x, y, z;

    constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1)
        : x(vx), y(vy), z(vz)
    {
    }
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z)
    {
    }
};

#endif
