/* aio_files.c -- the files of aio.h, and memory to measure them with. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "worker/offload/aio.h"

/* ---- files ---- */

/* A file without a name; on a file system that cannot, one whose name is gone at once. */
static int open_nameless(const char *dir, int flags)
{
    char path[4096];
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
        return fd;
    if (snprintf(path, sizeof(path), "%s/zlaunch-swap-XXXXXX", dir) >= (int)sizeof(path))
        return -1;
    fd = mkostemp(path, O_CLOEXEC | flags);
    if (fd >= 0)
        (void)unlink(path);
    return fd;
}

static zt_err refuse_folder(const char *dir, struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_CANTCREATE,
                        "nvme_path %s: no file can be made there: %s%s", dir,
                        strerror(errno), errno == ENOENT ? "; make the folder" : "");
}

zt_err zt_aio_check_folders(const char *const *dirs, struct zt_fault *fault)
{
    for (; dirs && *dirs; dirs++) {
        int fd = open_nameless(*dirs, 0);

        if (fd < 0)
            return refuse_folder(*dirs, fault);
        close(fd);
    }
    return ZT_OK;
}

static double free_bytes(int fd)
{
    struct statvfs fs;

    return fstatvfs(fd, &fs) ? 0 : (double)fs.f_bavail * (double)fs.f_frsize;
}

static zt_err open_file(struct zt_aio_files *f, const char *dir, size_t bytes,
                        const char *what, const char *advice, struct zt_fault *fault)
{
    int fd = open_nameless(dir, O_DIRECT), rc;
    double left;

    if (fd < 0 && errno == EINVAL) {
        f->direct = false;
        fd = open_nameless(dir, 0);
    }
    if (fd < 0)
        return refuse_folder(dir, fault);
    f->dir[f->num] = dir;
    f->fd[f->num++] = fd;
    left = free_bytes(fd); /* before: what was allocated of it is free again at the end */
    do                     /* of more folders than blocks the last have nothing */
        rc = bytes ? fallocate(fd, 0, 0, (off_t)bytes) : 0;
    while (rc && errno == EINTR);
    if (rc && (errno == EOPNOTSUPP || errno == ENOSYS))
        rc = ftruncate(fd, (off_t)bytes);
    return rc ? zt_fault_set(
                    fault, ZT_E_CANTCREATE,
                    "nvme_path %s: no room for the %.1f MiB of %s, of %.1f MiB that are "
                    "free there (%s)%s%s",
                    dir, (double)bytes / (1 << 20), what, left / (1 << 20),
                    strerror(errno), advice ? ": " : "", advice ? advice : "")
              : ZT_OK;
}

zt_err zt_aio_files_open(const struct zt_aio *a, const char *const *dirs, size_t bytes,
                         const char *what, const char *advice, struct zt_aio_files *out,
                         struct zt_fault *fault)
{
    size_t bs = zt_aio_block_bytes(a), blocks = (bytes + bs - 1) / bs, num = 0;
    zt_err rc = ZT_OK;

    *out = (struct zt_aio_files){.direct = true};
    while (num < ZT_AIO_MAX_FILES && dirs[num])
        num++;
    for (size_t i = 0; !rc && i < num; i++)
        rc = open_file(out, dirs[i], num == 1 ? bytes : (blocks + num - 1 - i) / num * bs,
                       what, advice, fault);
    if (rc)
        zt_aio_files_close(out);
    return rc;
}

void zt_aio_files_close(struct zt_aio_files *f)
{
    for (int i = 0; i < f->num; i++)
        (void)close(f->fd[i]);
    f->num = 0;
}

/* ---- memory ---- */

void *zt_aio_memory_map(size_t bytes)
{
    void *p =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    (void)madvise(p, bytes, MADV_HUGEPAGE); /* advice: works without too */
    memset(p, 0, bytes);
    return p;
}

void zt_aio_memory_unmap(void *p, size_t bytes)
{
    if (p)
        (void)munmap(p, bytes);
}
