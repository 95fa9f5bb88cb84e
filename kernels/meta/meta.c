#include "kernels/meta/meta.h"

#include <stdlib.h>

#include "kernels/check.h"
#include "kernels/meta/products.h"
#include "kernels/meta/work.h"
#include "kernels/synchronous_streams.h"

/* Not canonical on x86-64 nor mapped on others: an access faults. */
#define FIRST_ADDRESS ((uintptr_t)1 << (sizeof(uintptr_t) > 4 ? 60 : 28))
#define GRANULE       ((size_t)4096)

struct zt_device {
    uintptr_t next; /* addresses are never given twice */
    size_t used, peak;
    struct zt_device_work work;
    struct zt_products *products; /* NULL: nobody asks for them */
};

struct zt_device_work zt_meta_take_work(struct zt_device *dev)
{
    struct zt_device_work w = dev->work;

    dev->work = (struct zt_device_work){{0}};
    return w;
}

void zt_meta_note_products(struct zt_device *dev, struct zt_products *all)
{
    dev->products = all;
}

/* gemm alone is noted. */
static void note(struct zt_device *dev, zt_kernel_id kernel, const void *args)
{
    zt_work_add_kernel(&dev->work, kernel, args);
    if (kernel == ZT_KERNEL_gemm && dev->products)
        zt_products_add(dev->products, args);
}

static zt_err meta_count(int *out, struct zt_fault *fault)
{
    (void)fault;
    *out = 1;
    return ZT_OK;
}

static zt_err meta_open(int ordinal, int threads, struct zt_device **out,
                        struct zt_fault *fault)
{
    struct zt_device *dev;

    (void)ordinal;
    (void)threads;
    *out = NULL;
    dev = calloc(1, sizeof(*dev));
    if (!dev)
        return zt_fault_set(fault, ZT_E_NOMEM, "no memory for the meta device");
    dev->next = FIRST_ADDRESS;
    *out = dev;
    return ZT_OK;
}

static void meta_close(struct zt_device *dev)
{
    free(dev);
}

static zt_err meta_alloc(struct zt_device *dev, size_t bytes, void **out,
                         struct zt_fault *fault)
{
    *out = NULL;
    if (bytes == 0)
        return zt_fault_set(fault, ZT_E_ARG, "a region of %zu bytes", bytes);
    if (bytes > FIRST_ADDRESS - 2 * GRANULE - (dev->next - FIRST_ADDRESS))
        return zt_fault_set(fault, ZT_E_NOMEM, "no addresses left for %zu bytes", bytes);
    *out = (void *)dev->next;
    /* a page between regions: the end of one is not the start of the next */
    dev->next += (bytes + GRANULE - 1) / GRANULE * GRANULE + GRANULE;
    dev->used += bytes;
    dev->peak = dev->used > dev->peak ? dev->used : dev->peak;
    return ZT_OK;
}

static void meta_free(struct zt_device *dev, void *ptr, size_t bytes)
{
    if (ptr)
        dev->used -= bytes;
}

static zt_err meta_memory(struct zt_device *dev, struct zt_device_memory *out,
                          struct zt_fault *fault)
{
    (void)fault;
    *out = (struct zt_device_memory){
        .total = SIZE_MAX, .free = SIZE_MAX, .used = dev->used, .peak = dev->peak};
    return ZT_OK;
}

/* Host memory is real, as the host writes to it. Untouched pages cost nothing. */
static zt_err meta_host_alloc(struct zt_device *dev, size_t bytes, void **out,
                              struct zt_fault *fault)
{
    (void)dev;
    *out = NULL;
    if (bytes == 0)
        return zt_fault_set(fault, ZT_E_ARG, "a region of %zu bytes", bytes);
    *out = calloc(1, bytes);
    return *out ? ZT_OK
                : zt_fault_set(fault, ZT_E_NOMEM, "no host memory for %zu bytes", bytes);
}

static void meta_host_free(struct zt_device *dev, void *ptr, size_t bytes)
{
    (void)dev;
    (void)bytes;
    free(ptr);
}

static zt_err meta_transfer(struct zt_device *dev, struct zt_stream *s, void *dst,
                            const void *src, size_t bytes, struct zt_fault *fault)
{
    (void)s;
    (void)dst;
    (void)src;
    (void)fault;
    dev->work.of[ZT_WORK_TRANSFERS] += (double)bytes;
    return ZT_OK;
}

/* Read and written. */
static zt_err meta_copy(struct zt_device *dev, struct zt_stream *s, void *dst,
                        const void *src, size_t bytes, struct zt_fault *fault)
{
    (void)s;
    (void)fault;
    dev->work.of[ZT_WORK_STREAMS] += dst == src ? 0 : 2 * (double)bytes;
    return ZT_OK;
}

static zt_err meta_sync(struct zt_device *dev, struct zt_stream *s,
                        struct zt_fault *fault)
{
    (void)dev;
    (void)s;
    (void)fault;
    return ZT_OK;
}

#define META_KERNEL(name, args)                                                          \
    static zt_err meta_##name(struct zt_device *dev, struct zt_stream *s, const args *a, \
                              struct zt_fault *fault)                                    \
    {                                                                                    \
        zt_err rc = zt_check_##name(a, fault);                                           \
                                                                                         \
        (void)s;                                                                         \
        if (!rc)                                                                         \
            note(dev, ZT_KERNEL_##name, a);                                              \
        return rc;                                                                       \
    }
ZT_KERNELS(META_KERNEL)
#undef META_KERNEL

#define META_ROW(name, args) .name = meta_##name,
const struct zt_kernels zt_meta_kernels = {ZT_KERNELS(META_ROW)};
#undef META_ROW

const struct zt_backend zt_meta_backend = {
    .abi = ZT_BACKEND_ABI,
    .struct_bytes = sizeof(struct zt_backend),
    .name = "meta",
    .unified = false,
    .runs_on_processor = false,
    .count = meta_count,
    .open = meta_open,
    .close = meta_close,
    .alloc = meta_alloc,
    .free = meta_free,
    .memory = meta_memory,
    .host_alloc = meta_host_alloc,
    .host_free = meta_host_free,
    .upload = meta_transfer,
    .download = meta_transfer,
    .copy = meta_copy,
    .sync = meta_sync,
    ZT_INORDER_MEMBERS,
    .kernels = &zt_meta_kernels,
};
