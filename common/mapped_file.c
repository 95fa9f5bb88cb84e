#include "common/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static zt_err map_fd(int fd, const char *path, struct zt_mapping *out,
                     struct zt_fault *fault)
{
    struct stat st;
    void *p;

    if (fstat(fd, &st) < 0)
        return zt_fault_set(fault, ZT_E_NOINPUT, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return zt_fault_set(fault, ZT_E_NOINPUT, "%s: is %s; give a file", path,
                            S_ISDIR(st.st_mode) ? "a folder" : "no regular file");
    *out = (struct zt_mapping){0};
    if (st.st_size == 0)
        return ZT_OK;
    p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: cannot map %lld bytes: %s", path,
                            (long long)st.st_size, strerror(errno));
    *out = (struct zt_mapping){.data = p, .bytes = (size_t)st.st_size};
    return ZT_OK;
}

zt_err zt_mapping_open(const char *path, struct zt_mapping *out, struct zt_fault *fault)
{
    /* O_NONBLOCK: a FIFO given by mistake is refused, not waited for */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    zt_err rc;

    if (fd < 0)
        return zt_fault_set(fault, ZT_E_NOINPUT, "%s: %s", path, strerror(errno));
    rc = map_fd(fd, path, out, fault);
    close(fd);
    return rc;
}

void zt_mapping_forget(const struct zt_mapping *m)
{
    if (m->data)
        (void)madvise((void *)m->data, m->bytes, MADV_DONTNEED);
}

void zt_mapping_forget_part(const struct zt_mapping *m, size_t from, size_t to)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    from -= from % page;
    to -= to % page;
    if (to > from)
        (void)madvise((void *)(m->data + from), to - from, MADV_DONTNEED);
}

void zt_mapping_release(struct zt_mapping *m)
{
    if (m->data)
        munmap((void *)m->data, m->bytes);
    *m = (struct zt_mapping){0};
}
