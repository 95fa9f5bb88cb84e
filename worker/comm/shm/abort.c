#include "worker/comm/shm/abort.h"

#include "worker/comm/shm/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

void zt_comm_abort_fd(int shm_fd, int rank)
{
    struct zt_shm_head *h;
    int e;

    do /* grows an empty file to the first page, and never shrinks a larger one */
        e = posix_fallocate(shm_fd, 0, ZT_SHM_PAGE);
    while (e == EINTR);
    if (e)
        return;
    h = mmap(NULL, ZT_SHM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, shm_fd, 0);
    if (h == MAP_FAILED)
        return;
    zt_shm_mark_abort(h, ZT_SHM_WHY_FAILED, rank);
    munmap(h, ZT_SHM_PAGE);
}
