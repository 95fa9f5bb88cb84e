/*
 * ref.h -- what tests of kernels share: arrays of every type with a double beside each
 * element, comparison with a reference in double, and slopes by central differences.
 *
 * Memory of an array is exactly as long as its elements, so that AddressSanitizer sees a
 * step past either end. Seeds are fixed: a failure repeats.
 *
 * The tests are written against the cpu backend. For another one they are compiled with
 *      REF_BACKEND  its struct zt_backend; each kernel is waited for
 *      REF_ALLOC    void *f(size_t): memory that tests and kernels both reach
 *      REF_FREE     void f(void *): its end
 *      REF_ENTER, REF_LEAVE  void f(void *args, size_t), void f(void): around a kernel, for
 *                   memory that is copied there and back; args point there in between
 * and with this header in front, for those that do not include it.
 */
#ifndef TEST_UNIT_KERNELS_REF_H
#define TEST_UNIT_KERNELS_REF_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/backend.h"
#include "kernels/convert.h"
#include "kernels/cpu/cpu.h"

#define REF_FN static inline __attribute__((unused))

/* ---- the backend that is tested ---- */

#ifdef REF_BACKEND
extern const struct zt_backend REF_BACKEND;

void REF_ENTER(void *args, size_t bytes);
void REF_LEAVE(void);

/* ref_<kernel>: run, then wait, so that the test may look. */
#define REF_DEFINE(name, args)                                                           \
    REF_FN zt_err ref_##name(struct zt_device *dev, struct zt_stream *s, const args *a,  \
                             struct zt_fault *fault)                                     \
    {                                                                                    \
        args there = *a;                                                                 \
        zt_err rc;                                                                       \
                                                                                         \
        REF_ENTER(&there, sizeof(there));                                                \
        rc = REF_BACKEND.kernels->name(dev, s, &there, fault);                           \
        if (rc == ZT_OK)                                                                 \
            rc = REF_BACKEND.sync(dev, s, fault);                                        \
        REF_LEAVE();                                                                     \
        return rc;                                                                       \
    }
ZT_KERNELS(REF_DEFINE)
#undef REF_DEFINE

#define REF_MEMBER(name, args) .name = ref_##name,
static const struct zt_kernels ref_kernels
    __attribute__((unused)) = {ZT_KERNELS(REF_MEMBER)};
#undef REF_MEMBER

#define REF_KERNELS          ref_kernels
#define zt_cpu_backend       REF_BACKEND
#define zt_cpu_gemm          ref_gemm
#define zt_cpu_attention     ref_attention
#define zt_cpu_attention_bwd ref_attention_bwd
#else
#define REF_BACKEND zt_cpu_backend
#define REF_KERNELS zt_cpu_kernels
#endif

#ifdef REF_ALLOC
void *REF_ALLOC(size_t bytes);
void REF_FREE(void *ptr);
#else
#define REF_ALLOC malloc
#define REF_FREE  free
#endif

/* Memory that a kernel may be given. */
REF_FN void *ref_alloc(size_t bytes)
{
    return REF_ALLOC(bytes);
}

REF_FN void ref_free(void *ptr)
{
    REF_FREE(ptr);
}

/* ---- random numbers of the tests themselves ---- */

static uint64_t ref_state = 0x2545F4914F6CDD1Du;

REF_FN uint64_t ref_bits(void)
{
    ref_state ^= ref_state << 13;
    ref_state ^= ref_state >> 7;
    ref_state ^= ref_state << 17;
    return ref_state * 0x9E3779B97F4A7C15u;
}

REF_FN double ref_uniform(double lo, double hi)
{
    return lo + (hi - lo) * (double)(ref_bits() >> 11) * 0x1p-53;
}

REF_FN int64_t ref_below(int64_t n)
{
    return (int64_t)(ref_bits() % (uint64_t)n);
}

/* ---- arrays ---- */

struct arr {
    struct zt_view v;
    double *d; /* what was stored, exactly */
    int64_t n;
};

static const zt_dtype ref_floats[3] __attribute__((unused)) = {ZT_F32, ZT_BF16, ZT_F16};

REF_FN double ref_get(const struct zt_view *v, int64_t at)
{
    const uint16_t *half = v->data;

    switch (v->dtype) {
    case ZT_BF16:
        return (double)zt_float_of_bf16(half[at]);
    case ZT_F16:
        return (double)zt_float_of_f16(half[at]);
    case ZT_I32:
        return ((const int32_t *)v->data)[at];
    default:
        return (double)((const float *)v->data)[at];
    }
}

REF_FN void ref_put(struct arr *a, int64_t at, double value)
{
    switch (a->v.dtype) {
    case ZT_BF16:
        ((uint16_t *)a->v.data)[at] = zt_bf16_of_float((float)value);
        break;
    case ZT_F16:
        ((uint16_t *)a->v.data)[at] = zt_f16_of_float((float)value);
        break;
    case ZT_I32:
        ((int32_t *)a->v.data)[at] = (int32_t)value;
        break;
    default:
        ((float *)a->v.data)[at] = (float)value;
        break;
    }
    a->d[at] = ref_get(&a->v, at);
}

/* Uniform in [lo, hi); release with arr_free. */
REF_FN struct arr arr_new(zt_dtype dtype, int ndim, const int64_t *shape, double lo,
                          double hi)
{
    struct arr a = {.v = zt_view_of(NULL, dtype, ndim, shape)};

    a.n = zt_view_numel(&a.v);
    a.v.data = ref_alloc((size_t)a.n * zt_dtype_bytes(dtype) + (a.n == 0));
    a.d = malloc((size_t)a.n * sizeof(double) + (a.n == 0));
    assert_non_null(a.v.data);
    assert_non_null(a.d);
    for (int64_t i = 0; i < a.n; i++)
        ref_put(&a, i,
                dtype == ZT_I32 ? floor(ref_uniform(lo, hi)) : ref_uniform(lo, hi));
    return a;
}

REF_FN struct arr arr_1(zt_dtype dtype, int64_t n, double lo, double hi)
{
    return arr_new(dtype, 1, &n, lo, hi);
}

REF_FN struct arr arr_2(zt_dtype dtype, int64_t rows, int64_t cols, double lo, double hi)
{
    return arr_new(dtype, 2, (int64_t[]){rows, cols}, lo, hi);
}

REF_FN size_t arr_bytes(const struct arr *a)
{
    return (size_t)a->n * zt_dtype_bytes(a->v.dtype);
}

REF_FN struct arr arr_copy(const struct arr *a)
{
    struct arr b = arr_new(a->v.dtype, a->v.ndim, a->v.shape, 0, 0);

    memcpy(b.v.data, a->v.data, arr_bytes(a));
    memcpy(b.d, a->d, (size_t)a->n * sizeof(double));
    return b;
}

/* Back to what arr_new stored, whatever a kernel wrote since. */
REF_FN void arr_restore(struct arr *a)
{
    for (int64_t i = 0; i < a->n; i++)
        ref_put(a, i, a->d[i]);
}

REF_FN void arr_free(struct arr *a)
{
    ref_free(a->v.data);
    free(a->d);
}

/* ---- comparison ---- */

/* Half the distance of neighbouring values, relative: one rounding. */
REF_FN double ref_rounding(zt_dtype dtype)
{
    return dtype == ZT_BF16 ? 0x1p-8 : dtype == ZT_F16 ? 0x1p-11 : 0x1p-24;
}

/*
 * Element `at` of v is `want` up to one rounding to its type and `slack`: an error of the
 * fp32 arithmetic, absolute.
 */
REF_FN void ref_close(const char *what, const struct zt_view *v, int64_t at, double want,
                      double slack)
{
    double got = ref_get(v, at), tiny = v->dtype == ZT_F16 ? 0x1p-25 : 0;
    double allowed = fabs(want) * ref_rounding(v->dtype) * 1.01 + tiny + slack;

    if (!(fabs(got - want) <= allowed))
        fail_msg("%s[%lld] (%s): got %.9g, want %.9g, off by %.3g of %.3g", what,
                 (long long)at, zt_dtype_name(v->dtype), got, want, got - want, allowed);
}

/*
 * Slope of f at x[i] by central differences of the fourth order; h fits values of size 1.
 */
typedef double (*ref_fn)(void *ctx);
REF_FN double ref_slope(ref_fn f, void *ctx, double *x)
{
    const double h = 1e-3, keep = *x;
    double near, far;

    *x = keep + h;
    near = f(ctx);
    *x = keep - h;
    near -= f(ctx);
    *x = keep + 2 * h;
    far = f(ctx);
    *x = keep - 2 * h;
    far -= f(ctx);
    *x = keep;
    return (8 * near - far) / (12 * h);
}

/* Elements worth probing in an array of n: both ends, the borders of a tile, and others.
 */
REF_FN int64_t ref_probe(int k, int64_t n)
{
    const int64_t fixed[6] = {0, n - 1, 1023, 1024, n / 2, 1025};

    return k < 6 && fixed[k] < n ? fixed[k] : ref_below(n);
}
#define REF_PROBES 16

/* ---- devices ---- */

REF_FN struct zt_device *ref_open(int threads)
{
    struct zt_device *dev = NULL;

    assert_int_equal(REF_BACKEND.open(0, threads, &dev, NULL), ZT_OK);
    return dev;
}

/* Run a kernel that must succeed; the sentence of a failure becomes the test's. */
#define REF_RUN(dev, name, args)                                                         \
    do {                                                                                 \
        struct zt_fault fault_ = {0};                                                    \
        if (REF_KERNELS.name(dev, NULL, args, &fault_) != ZT_OK)                         \
            fail_msg("%s", fault_.text);                                                 \
    } while (0)

/* Run a kernel that must refuse its arguments with exactly this sentence. */
#define REF_REFUSES(dev, name, args, sentence)                                           \
    do {                                                                                 \
        struct zt_fault fault_ = {0};                                                    \
        assert_int_equal(REF_KERNELS.name(dev, NULL, args, &fault_), ZT_E_ARG);          \
        assert_string_equal(fault_.text, sentence);                                      \
    } while (0)

#endif
