/*
 * atomic_file.c -- write beside, sync, rename, sync the folder.
 *
 * The temporary name is fixed, so that what a killed process left is found and reused. A
 * lock on the file keeps two writers apart; since a file can be renamed away between
 * opening and locking it, the name is looked at again under the lock.
 */
#include "worker/checkpoint/atomic_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "worker/checkpoint/disk/write_behind.h"

#define LARGE ((int64_t)2 * (int64_t)ZT_WRITE_BEHIND_BYTES)

/* "PATH: cannot write: No space left on device (needs 12 bytes, 3 are free)" */
static zt_err cannot_write(const struct zt_atomic_file *f, int e, int64_t bytes,
                           struct zt_fault *fault)
{
    struct statvfs vfs;

    if ((e == ENOSPC || e == EDQUOT) && fstatvfs(f->fd, &vfs) == 0) {
        uint64_t left = (uint64_t)vfs.f_bavail * vfs.f_frsize;

        return zt_fault_set(
            fault, ZT_E_CANTCREATE,
            "%s: cannot write: %s (%lld bytes to go, %llu free%s); make "
            "room or choose another folder",
            f->path, strerror(e), (long long)bytes, (unsigned long long)left,
            left >= (uint64_t)bytes ? " by now: others write there, too" : "");
    }
    return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: cannot write: %s", f->path,
                        strerror(e));
}

/* True when the temporary name still means the file that is open and locked. */
static bool still_ours(const struct zt_atomic_file *f)
{
    struct stat a, b;

    return fstat(f->fd, &a) == 0 && stat(f->tmp, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

static zt_err create_temporary(struct zt_atomic_file *f, struct zt_fault *fault)
{
    for (;;) {
        f->fd = open(f->tmp, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (f->fd < 0 && errno == ELOOP && unlink(f->tmp) == 0) /* a link: not ours */
            f->fd = open(f->tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (f->fd < 0)
            return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: cannot create: %s", f->path,
                                strerror(errno));
        /* a file system without locks is used without */
        if (flock(f->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
            close(f->fd);
            f->fd = -1; /* the file is the other's: not to be removed */
            return zt_fault_set(fault, ZT_E_CANTCREATE,
                                "%s: another process is writing it (%s is locked)",
                                f->path, f->tmp);
        }
        if (still_ours(f))
            return ZT_OK;
        close(f->fd);
        f->fd = -1;
    }
}

static bool is_temporary(const char *name)
{
    size_t n = strlen(name);

    return name[0] == '.' && n > 5 && strcmp(name + n - 4, ".tmp") == 0 &&
           (strstr(name, ".safetensors") || strstr(name, ".json"));
}

void zt_atomic_file_remove_stale(const char *dir)
{
    DIR *d = opendir(dir);
    const struct dirent *e;

    while (d && (e = readdir(d))) {
        int fd;

        if (!is_temporary(e->d_name))
            continue;
        fd = openat(dirfd(d), e->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        /* locked: somebody is writing it; a link: somebody wants another file written */
        if (fd < 0 ? errno == ELOOP : flock(fd, LOCK_EX | LOCK_NB) == 0)
            (void)!unlinkat(dirfd(d), e->d_name, 0);
        if (fd >= 0)
            close(fd);
    }
    if (d)
        closedir(d);
}

static zt_err reserve_space(struct zt_atomic_file *f, int64_t bytes,
                            struct zt_fault *fault)
{
    if (ftruncate(f->fd, 0) < 0)
        return cannot_write(f, errno, bytes, fault);
    /* fallocate(2), not posix_fallocate(3), which writes zeros where it is not there */
    if (bytes > 0 && fallocate(f->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) < 0 &&
        (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
        return cannot_write(f, errno, bytes, fault);
    return ZT_OK;
}

static zt_err set_names(struct zt_atomic_file *f, const char *path,
                        struct zt_fault *fault)
{
    const char *slash = strrchr(path, '/');
    int dir_len = slash == path ? 1 : slash ? (int)(slash - path) : 1;
    const char *dir = slash ? path : ".", *name = slash ? slash + 1 : path;

    f->path = strdup(path);
    if (asprintf(&f->dir, "%.*s", dir_len, dir) < 0)
        f->dir = NULL;
    if (!f->dir || asprintf(&f->tmp, "%s/.%s.tmp", f->dir, name) < 0)
        f->tmp = NULL;
    if (!f->path || !f->tmp)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", path);
    return ZT_OK;
}

/* The file takes the place of what has its name: of an older file, not of /dev/null. */
static zt_err refuse_device(const char *path, struct zt_fault *fault)
{
    struct stat sb;

    if (stat(path, &sb) || S_ISREG(sb.st_mode) || S_ISDIR(sb.st_mode))
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_CANTCREATE,
                        "%s: is a device, a pipe or a socket; give a file", path);
}

zt_err zt_atomic_file_open(struct zt_atomic_file *f, const char *path, int64_t bytes,
                           struct zt_fault *fault)
{
    zt_err rc;

    *f = (struct zt_atomic_file){.fd = -1};
    rc = refuse_device(path, fault);
    if (!rc)
        rc = set_names(f, path, fault);
    if (!rc)
        rc = create_temporary(f, fault);
    if (!rc)
        rc = reserve_space(f, bytes, fault);
    f->reserved = !rc && bytes >= LARGE ? (size_t)bytes : 0;
    if (rc)
        zt_atomic_file_release(f);
    return rc;
}

size_t zt_atomic_file_buffer_bytes(int64_t bytes)
{
    return bytes >= LARGE ? ZT_WRITE_BEHIND_BYTES : 0;
}

size_t zt_atomic_file_align(int64_t bytes)
{
    return bytes >= LARGE ? ZT_WRITE_BEHIND_ALIGN : 1;
}

static bool is_written_behind(struct zt_atomic_file *f)
{
    if (f->reserved && !f->behind)
        f->behind = zt_write_behind_open(f->fd, f->reserved);
    if (!f->behind)
        f->reserved = 0; /* where there is no memory it is as others are */
    return f->behind;
}

static zt_err write_through(struct zt_atomic_file *f, const char *p, size_t bytes,
                            struct zt_fault *fault)
{
    while (bytes > 0) {
        size_t piece = bytes < ((size_t)1 << 30) ? bytes : (size_t)1 << 30;
        ssize_t n = write(f->fd, p, piece);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return cannot_write(f, n < 0 ? errno : EIO, (int64_t)bytes, fault);
        p += n;
        bytes -= (size_t)n;
    }
    return ZT_OK;
}

zt_err zt_atomic_file_write(struct zt_atomic_file *f, const void *data, size_t bytes,
                            struct zt_fault *fault)
{
    int e;

    if (!is_written_behind(f))
        return write_through(f, data, bytes, fault);
    e = zt_write_behind_put(f->behind, data, bytes);
    return e ? cannot_write(f, e, (int64_t)bytes, fault) : ZT_OK;
}

zt_err zt_atomic_file_lend(struct zt_atomic_file *f, const void *data, size_t bytes,
                           struct zt_fault *fault)
{
    int e;

    if (!is_written_behind(f))
        return write_through(f, data, bytes, fault);
    e = zt_write_behind_lend(f->behind, data, bytes);
    return e ? cannot_write(f, e, (int64_t)bytes, fault) : ZT_OK;
}

/* Everything so far is in the file; from here on it is written as others are. */
static zt_err end_behind(struct zt_atomic_file *f, struct zt_fault *fault)
{
    int e = f->behind ? zt_write_behind_finish(f->behind) : 0;

    zt_write_behind_close(f->behind);
    f->behind = NULL;
    f->reserved = 0;
    if (!e && lseek(f->fd, 0, SEEK_END) < 0)
        e = errno;
    return e ? cannot_write(f, e, 0, fault) : ZT_OK;
}

zt_err zt_atomic_file_write_at(struct zt_atomic_file *f, int64_t at, const void *data,
                               size_t bytes, struct zt_fault *fault)
{
    const char *p = data;
    zt_err rc = f->behind ? end_behind(f, fault) : ZT_OK;

    while (!rc && bytes > 0) {
        ssize_t n = pwrite(f->fd, p, bytes, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return cannot_write(f, n < 0 ? errno : EIO, (int64_t)bytes, fault);
        p += n;
        at += n;
        bytes -= (size_t)n;
    }
    return rc;
}

zt_err zt_atomic_file_sync(struct zt_atomic_file *f, struct zt_fault *fault)
{
    zt_err rc = f->behind ? end_behind(f, fault) : ZT_OK;

    return !rc && fsync(f->fd) < 0 ? cannot_write(f, errno, 0, fault) : rc;
}

static zt_err sync_folder(const struct zt_atomic_file *f, struct zt_fault *fault)
{
    int fd = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    zt_err rc = ZT_OK;

    /* EINVAL: a file system that has nothing to sync here */
    if (fd < 0 || (fsync(fd) < 0 && errno != EINVAL))
        rc = zt_fault_set(fault, ZT_E_CANTCREATE, "%s: cannot sync the folder: %s",
                          f->path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return rc;
}

zt_err zt_atomic_file_publish(struct zt_atomic_file *f, struct zt_fault *fault)
{
    zt_err rc = zt_atomic_file_sync(f, fault);

    if (rc)
        return rc;
    if (rename(f->tmp, f->path) < 0)
        return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: cannot rename %s: %s", f->path,
                            f->tmp, strerror(errno));
    f->published = true;
    return sync_folder(f, fault);
}

void zt_atomic_file_release(struct zt_atomic_file *f)
{
    zt_write_behind_close(f->behind);
    if (f->fd >= 0 && f->tmp && !f->published)
        unlink(f->tmp);
    if (f->fd >= 0)
        close(f->fd);
    free(f->path);
    free(f->tmp);
    free(f->dir);
    *f = (struct zt_atomic_file){.fd = -1};
}
