/*
 * The cuda device: one GPU, its main stream, and memory by the page. A rank takes its
 * regions before the first step, so that neither cudaMalloc nor cudaFree, which wait for
 * the device, happen in one.
 */
#include <stdlib.h>

#include "kernels/cuda/device_error.h"

#define OLDEST_MAJOR                                                                     \
    8 /* compute capability: bf16, and what the kernels are built for                    \
       */

/* ---- open and close ---- */

static zt_err no_devices(cudaError_t e, struct zt_fault *fault)
{
    int driver = 0, runtime = 0;

    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (driver == 0)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "cuda: this machine has no NVIDIA driver; use --device cpu");
    if (e == cudaErrorInsufficientDriver)
        return zt_fault_set(
            fault, ZT_E_UNSUPPORTED,
            "cuda: the driver knows CUDA %d.%d, this program needs %d.%d: "
            "update the driver, or use --device cpu",
            driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (e == cudaErrorNoDevice)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "cuda: the driver sees no GPU (does nvidia-smi? is "
                            "CUDA_VISIBLE_DEVICES set?); use --device cpu");
    return zt_cuda_failed("looking for devices", e, fault);
}

static zt_err cuda_count(int *out, struct zt_fault *fault)
{
    cudaError_t e = cudaGetDeviceCount(out);

    if (e == cudaSuccess && *out == 0)
        e = cudaErrorNoDevice;
    if (e == cudaSuccess)
        return ZT_OK;
    *out = 0;
    return no_devices(e, fault);
}

/* That `ordinal` is there, can run the kernels, and is this thread's device. */
static zt_err choose(int ordinal, int *num_sm, int *capability, struct zt_fault *fault)
{
    int count = 0, major = 0, minor = 0;
    cudaError_t e = cudaSuccess;
    zt_err rc = cuda_count(&count, fault);

    if (rc)
        return rc;
    if (ordinal < 0 || ordinal >= count)
        return zt_fault_set(fault, ZT_E_PLAN,
                            "cuda device %d: this process sees %d, numbered from 0",
                            ordinal, count);
    e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal);
    if (e == cudaSuccess && major < OLDEST_MAJOR)
        return zt_fault_set(
            fault, ZT_E_UNSUPPORTED,
            "cuda device %d has compute capability %d.%d; the kernels need "
            "%d.0 (A100) or newer",
            ordinal, major, minor, OLDEST_MAJOR);
    *capability = 10 * major + minor;
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(num_sm, cudaDevAttrMultiProcessorCount, ordinal);
    if (e == cudaSuccess)
        e = cudaSetDevice(ordinal);
    return e == cudaSuccess ? ZT_OK : zt_cuda_failed("open", e, fault);
}

static zt_err out_of_memory(const struct zt_device *dev, size_t bytes,
                            struct zt_fault *fault)
{
    size_t left = 0, total = 0;

    (void)cudaGetLastError(); /* or the next launch would report it */
    (void)cudaMemGetInfo(&left, &total);
    return zt_fault_set(fault, ZT_E_NOMEM,
                        "cuda device %d: %zu bytes asked for, %zu of %zu are free",
                        dev->ordinal, bytes, left, total);
}

static zt_err device_memory(struct zt_device *dev, size_t bytes, void **out,
                            struct zt_fault *fault)
{
    cudaError_t e = cudaMalloc(out, bytes);

    if (e == cudaErrorMemoryAllocation)
        return out_of_memory(dev, bytes, fault);
    if (e != cudaSuccess)
        return zt_cuda_failed("cudaMalloc", e, fault);
    dev->used += bytes;
    dev->peak = dev->used > dev->peak ? dev->used : dev->peak;
    return ZT_OK;
}

static zt_err open_main(struct zt_device *dev, struct zt_fault *fault)
{
    struct zt_stream *s = &dev->main;
    cudaError_t e = cudaStreamCreateWithFlags(&s->cuda, cudaStreamNonBlocking);
    zt_err rc;

    if (e != cudaSuccess)
        return zt_cuda_failed("a stream", e, fault);
    rc = device_memory(dev, ZT_CUDA_SCRATCH, &s->scratch, fault);
    return rc ? rc : device_memory(dev, ZT_CUDA_WORKSPACE, &s->workspace, fault);
}

static void close_stream(struct zt_stream *s)
{
    if (s->cuda) {
        (void)cudaStreamSynchronize(s->cuda);
        (void)cudaStreamDestroy(s->cuda);
    }
    (void)cudaFree(s->scratch);
    (void)cudaFree(s->workspace);
}

static zt_err open_error_record(struct zt_device *dev, struct zt_fault *fault)
{
    /* pinned: kernels write to it where it is */
    void *p = NULL;
    cudaError_t e = cudaMallocHost(&p, sizeof(*dev->error));

    if (e != cudaSuccess)
        return zt_cuda_failed("pinned host memory", e, fault);
    dev->error = static_cast<struct zt_cuda_device_error *>(p);
    memset(dev->error, 0, sizeof(*dev->error));
    return ZT_OK;
}

static void cuda_close(struct zt_device *dev)
{
    if (!dev)
        return;
    (void)cudaSetDevice(dev->ordinal);
    close_stream(&dev->main);
    zt_cuda_gemms_close(dev->gemms);
    zt_gemm_choices_close(dev->choices);
    zt_cuda_gated_close(dev, dev->gated);
    zt_cuda_sdpa_close(dev->sdpa);
    if (dev->blas)
        (void)cublasLtDestroy(dev->blas);
    (void)cudaFreeHost(dev->error);
    free(dev);
}

/* `threads` are the host's; what runs here needs one. */
static zt_err cuda_open(int ordinal, int threads, struct zt_device **out,
                        struct zt_fault *fault)
{
    struct zt_device *dev;
    int num_sm = 0, capability = 0;
    zt_err rc;

    (void)threads;
    *out = NULL;
    rc = choose(ordinal, &num_sm, &capability, fault);
    if (rc)
        return rc;
    dev = static_cast<struct zt_device *>(calloc(1, sizeof(*dev)));
    if (!dev)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the cuda device");
    dev->ordinal = ordinal;
    dev->num_sm = num_sm;
    dev->capability = capability;
    rc = open_main(dev, fault);
    if (!rc)
        rc = open_error_record(dev, fault);
    if (!rc && cublasLtCreate(&dev->blas) != CUBLAS_STATUS_SUCCESS)
        rc = zt_fault_set(fault, ZT_E_SYSTEM, "cuda device %d: cuBLASLt does not start",
                          ordinal);
    if (rc) {
        cuda_close(dev);
        return rc;
    }
    dev->sdpa = zt_cuda_sdpa_open();
    if (dev->sdpa)
        dev->used = dev->peak += ZT_SDPA_WORKSPACE;
    *out = dev;
    return ZT_OK;
}

/* ---- memory ---- */

#define PAGE ((size_t)4096) /* regions are whole pages, here as in plans */

static size_t page_round(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static void cuda_free(struct zt_device *dev, void *ptr, size_t bytes)
{
    if (!ptr)
        return;
    (void)cudaSetDevice(dev->ordinal);
    (void)cudaFree(ptr); /* waits until nothing uses it */
    dev->used -= page_round(bytes);
}

static zt_err cuda_alloc(struct zt_device *dev, size_t bytes, void **out,
                         struct zt_fault *fault)
{
    void *p = NULL;
    cudaError_t e;
    zt_err rc;

    *out = NULL;
    if (bytes == 0 || bytes > SIZE_MAX / 2)
        return zt_fault_set(fault, ZT_E_ARG, "a region of %zu bytes", bytes);
    bytes = page_round(bytes);
    (void)cudaSetDevice(dev->ordinal);
    rc = device_memory(dev, bytes, &p, fault);
    if (rc)
        return rc;
    e = cudaMemsetAsync(p, 0, bytes, dev->main.cuda);
    if (e == cudaSuccess)
        e = cudaStreamSynchronize(dev->main.cuda); /* other streams may use it at once */
    if (e != cudaSuccess) {
        cuda_free(dev, p, bytes);
        return zt_cuda_failed("clearing a region", e, fault);
    }
    *out = p;
    return ZT_OK;
}

static zt_err cuda_memory(struct zt_device *dev, struct zt_device_memory *out,
                          struct zt_fault *fault)
{
    cudaError_t e;

    (void)cudaSetDevice(dev->ordinal);
    e = cudaMemGetInfo(&out->free, &out->total);
    out->used = dev->used;
    out->peak = dev->peak;
    out->reserve = ZT_CUDA_RESERVE;
    return e == cudaSuccess ? ZT_OK : zt_cuda_failed("cudaMemGetInfo", e, fault);
}

static zt_err cuda_host_alloc(struct zt_device *dev, size_t bytes, void **out,
                              struct zt_fault *fault)
{
    void *p = NULL;
    cudaError_t e;

    *out = NULL;
    (void)cudaSetDevice(dev->ordinal);
    e = cudaMallocHost(&p, bytes);
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError(); /* or the next launch would report it */
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for %zu bytes of pinned memory",
                            bytes);
    }
    if (e != cudaSuccess)
        return zt_cuda_failed("pinned host memory", e, fault);
    memset(p, 0, bytes);
    *out = p;
    return ZT_OK;
}

static void cuda_host_free(struct zt_device *dev, void *ptr, size_t bytes)
{
    (void)bytes;
    if (!ptr)
        return;
    (void)cudaSetDevice(dev->ordinal);
    (void)cudaFreeHost(ptr);
}

/* ---- transfers ---- */

static zt_err copy(struct zt_device *dev, struct zt_stream *s, const char *what,
                   void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                   struct zt_fault *fault)
{
    cudaError_t e;

    if (bytes == 0 || dst == src)
        return ZT_OK;
    (void)cudaSetDevice(dev->ordinal);
    e = cudaMemcpyAsync(dst, src, bytes, kind, zt_cuda_stream(dev, s)->cuda);
    return e == cudaSuccess ? ZT_OK : zt_cuda_failed(what, e, fault);
}

static zt_err cuda_upload(struct zt_device *dev, struct zt_stream *s, void *dst,
                          const void *src, size_t bytes, struct zt_fault *fault)
{
    return copy(dev, s, "upload", dst, src, bytes, cudaMemcpyHostToDevice, fault);
}

static zt_err cuda_download(struct zt_device *dev, struct zt_stream *s, void *dst,
                            const void *src, size_t bytes, struct zt_fault *fault)
{
    return copy(dev, s, "download", dst, src, bytes, cudaMemcpyDeviceToHost, fault);
}

static zt_err cuda_copy(struct zt_device *dev, struct zt_stream *s, void *dst,
                        const void *src, size_t bytes, struct zt_fault *fault)
{
    return copy(dev, s, "copy", dst, src, bytes, cudaMemcpyDeviceToDevice, fault);
}

/* ---- errors that kernels report ---- */

/* Indices that a kernel found outside of what they point into. */
static const struct zt_cuda_index_error {
    enum zt_cuda_error_kind kind;
    const char *op, *value, *place;
} zt_cuda_index_errors[] = {
    {.kind = ZT_CUDA_ERROR_EMBEDDING,
     .op = "embedding",
     .value = "id",
     .place = "at position"},
    {.kind = ZT_CUDA_ERROR_EMBEDDING_BWD,
     .op = "embedding_bwd",
     .value = "id",
     .place = "at position"},
    {.kind = ZT_CUDA_ERROR_CROSS_ENTROPY,
     .op = "cross_entropy",
     .value = "target",
     .place = "in row"},
    {.kind = ZT_CUDA_ERROR_CROSS_ENTROPY_BWD,
     .op = "cross_entropy_bwd",
     .value = "target",
     .place = "in row"},
};

static zt_err set_fault(const struct zt_cuda_device_error *t, struct zt_fault *fault)
{
    for (const zt_cuda_index_error &text : zt_cuda_index_errors)
        if ((int)text.kind == (int)t->kind)
            return zt_fault_set(fault, ZT_E_ARG, "%s: %s %d %s %lld is outside [0, %lld)",
                                text.op, text.value, (int)t->value, text.place,
                                (long long)t->at, (long long)t->limit);
    return zt_fault_set(fault, ZT_E_ARG, "rope: position %d is outside the table of %lld",
                        (int)t->value, (long long)t->limit);
}

static zt_err cuda_sync(struct zt_device *dev, struct zt_stream *s,
                        struct zt_fault *fault)
{
    struct zt_cuda_device_error t;
    cudaError_t e;

    (void)cudaSetDevice(dev->ordinal);
    e = cudaStreamSynchronize(zt_cuda_stream(dev, s)->cuda);
    if (e != cudaSuccess)
        return zt_cuda_failed("the work of a stream", e, fault);
    t = *dev->error;
    if (t.kind == ZT_CUDA_ERROR_NONE)
        return ZT_OK;
    memset(dev->error, 0, sizeof(*dev->error));
    return set_fault(&t, fault);
}

/* ---- the table ---- */

#define ZT_CUDA_ROW(name, args) .name = zt_cuda_##name,
static const struct zt_kernels zt_cuda_kernels = {ZT_KERNELS(ZT_CUDA_ROW)};
#undef ZT_CUDA_ROW

const struct zt_backend zt_cuda_backend = {
    .abi = ZT_BACKEND_ABI,
    .struct_bytes = sizeof(struct zt_backend),
    .name = "cuda",
    .unified = false,
    .runs_on_processor = false,
    .count = cuda_count,
    .open = cuda_open,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .memory = cuda_memory,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .upload = cuda_upload,
    .download = cuda_download,
    .copy = cuda_copy,
    .sync = cuda_sync,
    .stream_open = zt_cuda_stream_open,
    .stream_close = zt_cuda_stream_close,
    .stream_native = zt_cuda_stream_native,
    .event_open = zt_cuda_event_open,
    .event_close = zt_cuda_event_close,
    .event_record = zt_cuda_event_record,
    .event_wait = zt_cuda_event_wait,
    .event_passed = zt_cuda_event_passed,
    .tune = zt_cuda_tune,
    .use_tuning = zt_cuda_use_tuning,
    .kernels = &zt_cuda_kernels,
};
