#include "common/process/limits.h"

#include <sys/resource.h>

zt_err zt_limits_open_files(uint64_t needed, const char *what, struct zt_fault *fault)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur >= needed)
        return ZT_OK;
    if (r.rlim_max >= needed) {
        r.rlim_cur = needed;
        if (setrlimit(RLIMIT_NOFILE, &r) == 0)
            return ZT_OK;
    }
    return zt_fault_set(fault, ZT_E_SYSTEM,
                        "only %llu files may be open at once, and %s %llu; raise the "
                        "limit: ulimit -n %llu",
                        (unsigned long long)r.rlim_max, what, (unsigned long long)needed,
                        (unsigned long long)(needed > 1024 ? needed : 1024));
}
