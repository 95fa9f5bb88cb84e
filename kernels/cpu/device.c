#include "kernels/cpu/device.h"

#include <stdlib.h>

void zt_cpu_count_bytes(struct zt_device *dev, size_t more, size_t less)
{
    dev->used += more - less;
    dev->peak = dev->used > dev->peak ? dev->used : dev->peak;
}

zt_err zt_cpu_scratch(struct zt_device *dev, enum zt_scratch_slot slot, size_t bytes,
                      void **out, struct zt_fault *fault)
{
    if (bytes > dev->scratch_bytes[slot]) {
        size_t want = (bytes + 4095) / 4096 * 4096;
        void *p = want < bytes ? NULL : aligned_alloc(4096, want);

        if (!p)
            return zt_fault_set(fault, ZT_E_NOMEM, "no memory for %zu bytes of scratch",
                                bytes);
        free(dev->scratch[slot]);
        zt_cpu_count_bytes(dev, want, dev->scratch_bytes[slot]);
        dev->scratch[slot] = p;
        dev->scratch_bytes[slot] = want;
    }
    *out = dev->scratch[slot];
    return ZT_OK;
}
