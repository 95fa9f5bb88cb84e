#include "kernels/cpu/device.h"

#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

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
        size_t align = want < HUGE_PAGE ? 4096 : HUGE_PAGE;
        void *p = NULL;

        if (want < bytes || posix_memalign(&p, align, want) != 0)
            return zt_fault_set(fault, ZT_E_NOMEM, "no memory for %zu bytes of scratch",
                                bytes);
        if (align == HUGE_PAGE)
            (void)madvise(p, want, MADV_HUGEPAGE); /* advice: works without too */
        free(dev->scratch[slot]);
        zt_cpu_count_bytes(dev, want, dev->scratch_bytes[slot]);
        dev->scratch[slot] = p;
        dev->scratch_bytes[slot] = want;
    }
    *out = dev->scratch[slot];
    return ZT_OK;
}
