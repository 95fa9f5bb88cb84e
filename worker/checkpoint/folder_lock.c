#include "worker/checkpoint/folder_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"

#define TRIES       100
#define OWNER_BYTES 512

/* Whoever is in a file ".zlaunch.lock": "PID HOST JOB", and a newline. */
struct owner {
    int pid; /* 0: it has not been written yet */
    char host[256], job[129];
};

static void read_owner(int fd, struct owner *out)
{
    char text[OWNER_BYTES];
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

    *out = (struct owner){0};
    text[n > 0 ? n : 0] = 0;
    if (sscanf(text, "%d %255s %128[^\n]", &out->pid, out->host, out->job) != 3)
        *out = (struct owner){0};
}

static void write_owner(int fd, const char *job)
{
    char text[OWNER_BYTES], host[256] = "localhost";
    int n;

    (void)gethostname(host, sizeof(host) - 1);
    n = snprintf(text, sizeof(text), "%d %s %.128s\n", (int)getpid(), host, job);
    /* a full disk leaves the lock without a name */
    if (ftruncate(fd, 0) == 0)
        (void)!pwrite(fd, text, (size_t)n, 0);
}

static bool is_still_there(int fd, const char *path)
{
    struct stat a, b;

    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino &&
           a.st_dev == b.st_dev;
}

/* option: before the name of the folder, "" or with a space. */
static zt_err refuse(const struct owner *held_by, const char *option, const char *dir,
                     struct zt_fault *fault)
{
    char who[320] = "another run", way[192] = "wait for its end";
    const struct owner o = *held_by;

    if (o.pid)
        snprintf(who, sizeof(who), "%s%.128s (pid %d on %.128s)",
                 strcmp(o.job, "none") == 0 ? "another run" : "job ",
                 strcmp(o.job, "none") == 0 ? "" : o.job, o.pid, o.host);
    if (o.pid && strcmp(o.job, "none") != 0)
        snprintf(way, sizeof(way), "end that one (zlaunch --ctl %.128s stop)", o.job);
    return zt_fault_set(fault, ZT_E_CANTCREATE,
                        "%s%s: %s is running with this folder: give another one, or %s",
                        option, dir, who, way);
}

/* *again: whoever had it has just removed it. */
static zt_err try_once(const char *dir, const char *job, bool is_unique,
                       struct zt_folder_lock *l, bool *again, struct zt_fault *fault)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct owner o;
    zt_err rc = ZT_OK;

    *again = false;
    l->fd = open(l->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (l->fd < 0)
        return zt_fault_set(fault, ZT_E_CANTCREATE, "--output_dir %s: %s: %s", dir,
                            ZT_FOLDER_LOCK_NAME, strerror(errno));
    if (fcntl(l->fd, F_OFD_SETLK, &whole) == 0) {
        *again = !is_still_there(l->fd, l->path);
        if (!*again) {
            write_owner(l->fd, job);
            return ZT_OK;
        }
    } else if (errno == EAGAIN || errno == EACCES) {
        read_owner(l->fd, &o);
        for (int i = 0; i < TRIES && !o.pid; i++) { /* it is about to write its name */
            nanosleep(&(struct timespec){.tv_nsec = 2 * 1000 * 1000}, NULL);
            read_owner(l->fd, &o);
        }
        l->is_others = is_unique && strcmp(o.job, job) == 0;
        if (!l->is_others)
            rc = refuse(&o, "--output_dir ", dir, fault);
    } else {
        zt_warn(
            "checkpoint",
            "--output_dir %s: its file system has no locks (%s): another run with the "
            "same folder would not be noticed",
            dir, strerror(errno));
        (void)unlink(l->path);
    }
    close(l->fd);
    l->fd = -1;
    return rc;
}

zt_err zt_folder_lock_take(const char *dir, const char *job, bool is_unique,
                           struct zt_folder_lock *out, struct zt_fault *fault)
{
    bool again = true;
    zt_err rc = ZT_OK;

    out->fd = -1;
    out->is_others = false;
    if (snprintf(out->path, sizeof(out->path), "%s/%s", dir, ZT_FOLDER_LOCK_NAME) >=
        (int)sizeof(out->path))
        return zt_fault_set(fault, ZT_E_CANTCREATE, "--output_dir: the path is too long");
    for (int i = 0; !rc && again && i < TRIES; i++)
        rc = try_once(dir, job, is_unique, out, &again, fault);
    return rc;
}

zt_err zt_folder_lock_check(const char *dir, struct zt_fault *fault)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[PATH_MAX];
    struct owner o;
    zt_err rc = ZT_OK;
    int fd = -1;

    if (snprintf(path, sizeof(path), "%s/%s", dir, ZT_FOLDER_LOCK_NAME) <
        (int)sizeof(path))
        fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return ZT_OK;
    if (fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK) {
        read_owner(fd, &o);
        rc = refuse(&o, "", dir, fault);
    }
    close(fd);
    return rc;
}

bool zt_folder_lock_is_in_place(const struct zt_folder_lock *l)
{
    return is_still_there(l->fd, l->path);
}

void zt_folder_lock_remove(const struct zt_folder_lock *l)
{
    if (l->fd >= 0 && is_still_there(l->fd, l->path))
        (void)unlink(l->path);
}

void zt_folder_lock_release(struct zt_folder_lock *l)
{
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}
