#include "kernels/backend.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/loadable.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/sizes.h"
#include "kernels/meta/meta.h"

const struct zt_backend *const zt_backends[] = {&zt_cpu_backend, &zt_meta_backend, NULL};

/* ---- by name ---- */

static zt_err check_table(const char *path, const struct zt_backend *b,
                          struct zt_fault *fault)
{
    if (!b)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED, "device cuda: %s exports no %s",
                            path, ZT_BACKEND_SYMBOL);
    if (b->abi != ZT_BACKEND_ABI || b->struct_bytes != sizeof(*b))
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "device cuda: %s is of another version of zlaunch: run make "
                            "again",
                            path);
    return ZT_OK;
}

/* Loaded once and for good: threads of the CUDA runtime outlive whoever closes it. */
static zt_err load_cuda(const struct zt_backend **out, struct zt_fault *fault)
{
    static const struct zt_backend *loaded;
    const struct zt_backend *const *symbol;
    char path[ZT_LOADABLE_PATH];
    void *object;
    zt_err rc;

    if (!loaded) {
        if (!zt_loadable_find("ZLAUNCH_CUDA_BACKEND", "backends/cuda.so", path,
                              sizeof(path)))
            return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                                "device cuda: this build has no CUDA (backends/cuda.so "
                                "is not beside the program): install the CUDA toolkit "
                                "and run make, or use --device cpu");
        object = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
        if (!object)
            return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                                "device cuda: %s (is the CUDA runtime that it was built "
                                "with installed?); or use --device cpu",
                                dlerror());
        symbol = dlsym(object, ZT_BACKEND_SYMBOL);
        rc = check_table(path, symbol ? *symbol : NULL, fault);
        if (rc)
            return rc;
        loaded = *symbol;
    }
    *out = loaded;
    return ZT_OK;
}

/* The cuda backend where there is a device for it. */
static zt_err find_cuda(const struct zt_backend **out, struct zt_fault *fault)
{
    int devices = 0;
    zt_err rc = load_cuda(out, fault);

    if (!rc)
        rc = (*out)->count(&devices, fault);
    if (rc)
        *out = NULL;
    return rc;
}

/* The object brings libraries of hundreds of MB: not without a driver. */
static bool may_have_gpu(void)
{
    return getenv("ZLAUNCH_CUDA_BACKEND") ||
           dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
}

zt_err zt_backend_find(const char *name, const struct zt_backend **out,
                       struct zt_fault *fault)
{
    *out = NULL;
    if (strcmp(name, "cuda") == 0)
        return find_cuda(out, fault);
    if (strcmp(name, "auto") == 0) {
        if (may_have_gpu() && !find_cuda(out, NULL))
            return ZT_OK;
        name = "cpu";
    }
    for (int i = 0; zt_backends[i]; i++)
        if (strcmp(zt_backends[i]->name, name) == 0) {
            *out = zt_backends[i];
            return ZT_OK;
        }
    return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                        "no device called \"%s\"; there are auto, cpu, cuda and meta",
                        name);
}

size_t zt_backend_own_bytes(const char *name)
{
    char path[ZT_LOADABLE_PATH];
    bool sdpa = zt_loadable_find(ZT_SDPA_ENVIRONMENT, ZT_SDPA_FILE, path, sizeof(path));

    return strcmp(name, "cuda")
               ? 0
               : ZT_CUDA_SCRATCH + ZT_CUDA_WORKSPACE + (sdpa ? ZT_SDPA_WORKSPACE : 0);
}

/* ---- views ---- */

struct zt_view zt_view_of(void *data, zt_dtype dtype, int ndim, const int64_t *shape)
{
    struct zt_view v = {.data = data, .dtype = dtype, .ndim = ndim};
    int64_t stride = 1;

    for (int i = ndim - 1; i >= 0; i--) {
        v.shape[i] = shape[i];
        v.stride[i] = stride;
        stride *= shape[i];
    }
    return v;
}

int64_t zt_view_numel(const struct zt_view *v)
{
    int64_t n = 1;

    for (int i = 0; i < v->ndim; i++)
        n *= v->shape[i];
    return n;
}

bool zt_view_is_contiguous(const struct zt_view *v)
{
    int64_t stride = 1;

    for (int i = v->ndim - 1; i >= 0; i--) {
        if (v->shape[i] == 0)
            return true;
        if (v->shape[i] != 1 && v->stride[i] != stride)
            return false;
        stride *= v->shape[i];
    }
    return true;
}

/* ---- the machine's own rate of products ---- */

#define MEASURE_N 1536
#define QUEUED    8 /* products between two looks at the clock, where there is a queue */

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* The best of the products that fit in `seconds`: what the machine does undisturbed. */
static zt_err measure(const struct zt_backend *be, struct zt_device *dev,
                      const struct zt_gemm_args *args, double seconds, double *best,
                      struct zt_fault *fault)
{
    int queued = be->unified ? 1 : QUEUED;
    double start = now(), t0, took;
    bool warm = false;

    *best = INFINITY;
    do {
        t0 = now();
        zt_err rc = ZT_OK;

        for (int i = 0; rc == ZT_OK && i < queued; i++)
            rc = be->kernels->gemm(dev, NULL, args, fault);
        if (rc == ZT_OK)
            rc = be->sync(dev, NULL, fault);
        if (rc != ZT_OK)
            return rc;
        took = (now() - t0) / queued;
        if (warm && took < *best)
            *best = took;
        if (!warm)
            start = now();
        warm = true;
    } while (*best == INFINITY || now() - start < seconds);
    return ZT_OK;
}

size_t zt_measure_bytes(zt_dtype dtype, int64_t n)
{
    size_t one = (size_t)(n * n) * zt_dtype_bytes(dtype);

    /* fp8 makes a bf16 c, and has a scale behind it */
    return dtype == ZT_F8E4M3 ? 4 * one + sizeof(float) : 3 * one;
}

static void lay_out(struct zt_gemm_args *g, zt_dtype dtype, int64_t n, char *mem)
{
    const int64_t shape[2] = {n, n};
    bool fp8 = dtype == ZT_F8E4M3;
    size_t one = (size_t)(n * n) * zt_dtype_bytes(dtype);

    g->a = zt_view_of(mem, dtype, 2, shape);
    g->b = zt_view_of(mem + one, dtype, 2, shape);
    g->c = zt_view_of(mem + 2 * one, fp8 ? ZT_BF16 : dtype, 2, shape);
    if (!fp8)
        return;
    g->b.stride[0] = 1; /* neighbours on the summed axis */
    g->b.stride[1] = n;
    g->a_scale = g->b_scale = (float *)(void *)(mem + 4 * one);
}

/* Operands of 0.5 each. */
static zt_err fill_in(const struct zt_backend *be, struct zt_device *dev,
                      const struct zt_gemm_args *g, struct zt_fault *fault)
{
    bool fp8 = g->a_scale != NULL;
    int64_t n = 2 * zt_view_numel(&g->a), one = 1;
    struct zt_fill_args fill = {
        .y = zt_view_of(g->a.data, fp8 ? ZT_U8 : g->a.dtype, 1, &n),
        .value = fp8 ? 0x30 : 0.5f};
    zt_err rc = be->kernels->fill(dev, NULL, &fill, fault);

    if (rc || !fp8)
        return rc;
    fill.y = zt_view_of((float *)(uintptr_t)g->a_scale, ZT_F32, 1, &one);
    fill.value = 1;
    return be->kernels->fill(dev, NULL, &fill, fault);
}

zt_err zt_measure_gemm_in(const struct zt_backend *be, struct zt_device *dev,
                          zt_dtype dtype, bool tf32, double seconds, void *memory,
                          int64_t n, double *flops_per_s, struct zt_fault *fault)
{
    struct zt_gemm_args args = {.alpha = 1, .tf32 = tf32};
    double best, side = (double)n;
    zt_err rc;

    *flops_per_s = 0;
    if (dtype != ZT_F32 && dtype != ZT_BF16 && dtype != ZT_F16 && dtype != ZT_F8E4M3)
        return zt_fault_set(fault, ZT_E_ARG, "there is no product of %s to measure",
                            zt_dtype_name(dtype));
    lay_out(&args, dtype, n, memory);
    rc = fill_in(be, dev, &args, fault);
    if (rc == ZT_OK)
        rc = measure(be, dev, &args, seconds, &best, fault);
    if (rc == ZT_OK)
        *flops_per_s = 2 * side * side * side / best;
    return rc;
}

zt_err zt_measure_gemm(const struct zt_backend *be, struct zt_device *dev, zt_dtype dtype,
                       bool tf32, double seconds, double *flops_per_s,
                       struct zt_fault *fault)
{
    size_t bytes = zt_measure_bytes(dtype, MEASURE_N);
    void *memory;
    zt_err rc = be->alloc(dev, bytes, &memory, fault);

    if (rc != ZT_OK)
        return rc;
    rc = zt_measure_gemm_in(be, dev, dtype, tf32, seconds, memory, MEASURE_N, flops_per_s,
                            fault);
    be->free(dev, memory, bytes);
    return rc;
}
