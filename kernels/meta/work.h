/*
 * work.h -- what kernels on the meta backend were asked to do, by what limits their speed:
 * an estimate of time divides it by the rates of a real device.
 *
 * Bytes are those of operands that a kernel reads or writes, as often as it does. Scalars,
 * and rows of tables that are not touched, do not count.
 */
#ifndef KERNELS_META_WORK_H
#define KERNELS_META_WORK_H

#include "kernels/backend.h"

typedef enum zt_work_kind {
    ZT_WORK_PRODUCTS,  /* FLOPs of gemm */
    ZT_WORK_OPERANDS,  /* its bytes: what a processor packs and converts beside them */
    ZT_WORK_ATTENTION, /* FLOPs of what queries see; backward is 2.5 times forward */
    ZT_WORK_FUNCTIONS, /* bytes with an exponential or a random number an element, or that
                        * are normalized */
    ZT_WORK_STREAMS,   /* bytes that are copied, added, summed */
    ZT_WORK_UPDATES,   /* bytes of the optimizer */
    ZT_WORK_TRANSFERS, /* bytes between host and device */
    ZT_NUM_WORK_KINDS
} zt_work_kind;

struct zt_device_work {
    double of[ZT_NUM_WORK_KINDS];
};

typedef enum zt_kernel_id {
#define ZT_KERNEL_ID(name, args) ZT_KERNEL_##name,
    ZT_KERNELS(ZT_KERNEL_ID)
#undef ZT_KERNEL_ID
} zt_kernel_id;

/* What one call adds; `args` are those of the kernel. */
void zt_work_add_kernel(struct zt_device_work *w, zt_kernel_id kernel, const void *args);

/* FLOPs of one call of attention, forward or backward, as they are counted above. */
double zt_attention_flops(const struct zt_attention_args *a, bool backward);

/* Of a device of the meta backend, since it was opened or asked the last time. */
struct zt_device_work zt_meta_take_work(struct zt_device *dev);

#endif
