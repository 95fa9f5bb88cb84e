#include "worker/checkpoint/disk_space.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/human.h"

#define WAY_OUT "make room, or give another --output_dir"

static zt_err refuse(const char *dir, double bytes, double left, struct zt_fault *fault)
{
    char needed[ZT_HUMAN], is_free[ZT_HUMAN];

    zt_human_bytes(needed, bytes);
    zt_human_bytes(is_free, left);
    if (strcmp(needed, is_free) == 0) { /* what is missing must show */
        snprintf(needed, sizeof(needed), "%.0f bytes", bytes);
        snprintf(is_free, sizeof(is_free), "%.0f bytes", left);
    }
    return zt_fault_set(fault, ZT_E_CANTCREATE,
                        "%s: the weights need %s, and %s are free there: " WAY_OUT, dir,
                        needed, is_free);
}

zt_err zt_disk_reserve(const char *dir, int64_t bytes, int *fd, struct zt_fault *fault)
{
    struct statvfs fs;
    struct rlimit most;
    char needed[ZT_HUMAN];
    double left;
    int e;

    *fd = -1;
    left = statvfs(dir, &fs) == 0 && fs.f_blocks > 0
               ? (double)fs.f_bavail * (double)fs.f_frsize
               : (double)bytes;
    if (left < (double)bytes)
        return refuse(dir, (double)bytes, left, fault);
    if (getrlimit(RLIMIT_FSIZE, &most) || most.rlim_cur < (rlim_t)bytes)
        return ZT_OK; /* one file would be too long, and the kernel kills for it */
    *fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (*fd < 0)
        return ZT_OK;
    if (fallocate(*fd, 0, 0, (off_t)bytes) == 0)
        return ZT_OK;
    e = errno;
    zt_disk_release(fd);
    if (e != ENOSPC && e != EDQUOT)
        return ZT_OK;
    return zt_fault_set(
        fault, ZT_E_CANTCREATE,
        "%s: the %s of the weights cannot be reserved there (%s): " WAY_OUT, dir,
        zt_human_bytes(needed, (double)bytes), strerror(e));
}

void zt_disk_release(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}
