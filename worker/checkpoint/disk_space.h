/*
 * disk_space.h -- room on a disk for what a run will save at its end.
 *
 * A reservation is a file without a name: the kernel frees it when the process ends,
 * however that happens. Where a file system cannot do that, its free space is compared
 * once and nothing is held.
 */
#ifndef WORKER_CHECKPOINT_DISK_SPACE_H
#define WORKER_CHECKPOINT_DISK_SPACE_H

#include "common/fault.h"

/* `bytes` in the folder `dir`, which is there. *fd: the reservation, or -1.
 * ZT_E_CANTCREATE with what is needed and what is free. */
zt_err zt_disk_reserve(const char *dir, int64_t bytes, int *fd,
                       struct zt_fault *fault) ZT_MUST_CHECK;
/* Before the room is used; *fd is -1 afterwards. -1 is fine. */
void zt_disk_release(int *fd);

#endif
