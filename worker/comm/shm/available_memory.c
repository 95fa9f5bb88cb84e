#include "worker/comm/shm/available_memory.h"

#include <stdint.h>

#include "common/process/cgroups.h"
#include "common/sysfile.h"

size_t zt_comm_available_memory(void)
{
    uint64_t machine = zt_sysfile_meminfo("MemAvailable");
    uint64_t swap = zt_sysfile_meminfo("SwapFree");
    struct zt_cgroups_memory group;

    zt_cgroups_read_memory("", &group);
    if (machine != UINT64_MAX && swap != UINT64_MAX)
        machine += swap;
    return machine < group.left_bytes ? machine : group.left_bytes;
}
