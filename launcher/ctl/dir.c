#include "launcher/ctl/ctl.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define NAME_MAX_BYTES 46 /* "/." job id ".sock" */
#define BEGINNING_S    60 /* from bind() to rename(), on a machine that stands still */
#define KEPT_S         (30 * 24 * 3600)

/* What says nothing of a folder. */
static bool is_short(int e)
{
    return e == EMFILE || e == ENFILE || e == ENOMEM;
}

/* A real folder, of this user, closed to others. */
static zt_err check_private(const char *dir, struct zt_fault *fault)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat sb;
    int e;

    if (fd < 0)
        return zt_fault_set(fault,
                            errno == ENOENT   ? ZT_E_NOINPUT
                            : is_short(errno) ? ZT_E_NOMEM
                                              : ZT_E_SYSTEM,
                            "folder %s of running jobs: %s", dir, strerror(errno));
    e = fstat(fd, &sb);
    close(fd);
    if (e < 0)
        return zt_fault_set(fault, ZT_E_SYSTEM, "folder %s of running jobs: %s", dir,
                            strerror(errno));
    if (sb.st_uid != geteuid())
        return zt_fault_set(fault, ZT_E_SYSTEM,
                            "folder %s of running jobs belongs to user %u, not to %u: "
                            "set XDG_RUNTIME_DIR to a folder of your own",
                            dir, (unsigned)sb.st_uid, (unsigned)geteuid());
    if (sb.st_mode & 077)
        return zt_fault_set(fault, ZT_E_SYSTEM,
                            "folder %s of running jobs is open to others: chmod 700 it",
                            dir);
    return ZT_OK;
}

zt_err zt_ctl_dir_at(int i, bool create, char out[ZT_CTL_PATH], struct zt_fault *fault)
{
    const char *run = getenv("XDG_RUNTIME_DIR");
    char dir[ZT_CTL_PATH], usual[32];
    zt_err rc;

    if (i == 0 && !run &&
        !create) { /* a job of a session may be asked from outside of it */
        snprintf(usual, sizeof(usual), "/run/user/%u", (unsigned)geteuid());
        run = usual;
    }
    if (i == 0 && (!run || *run != '/' ||
                   strlen(run) + strlen("/zlaunch") + NAME_MAX_BYTES >= sizeof(dir)))
        return zt_fault_set(fault, ZT_E_NOINPUT, "no usable XDG_RUNTIME_DIR");
    if (i == 0)
        snprintf(dir, sizeof(dir), "%s/zlaunch", run);
    else if (i == 1)
        snprintf(dir, sizeof(dir), "/tmp/zlaunch-%u", (unsigned)geteuid());
    else
        return zt_fault_set(fault, ZT_E_NOINPUT, "no other place");
    if (create && mkdir(dir, 0700) < 0 && errno != EEXIST)
        return zt_fault_set(fault, ZT_E_SYSTEM, "folder %s of running jobs: %s", dir,
                            strerror(errno));
    rc = check_private(dir, fault);
    if (!rc)
        memcpy(out, dir, sizeof(dir));
    return rc;
}

zt_err zt_ctl_dir(char out[ZT_CTL_PATH], struct zt_fault *fault)
{
    if (zt_ctl_dir_at(0, true, out, NULL) == ZT_OK)
        return ZT_OK;
    return zt_ctl_dir_at(1, true, out, fault);
}

static bool ends_in(const char *name, const char *suffix)
{
    size_t n = strlen(name), k = strlen(suffix);

    return n > k && strcmp(name + n - k, suffix) == 0;
}

/* Does nobody listen at it? Asked without waiting. */
static bool refuses(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool dead;

    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    dead = fd >= 0 && connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 &&
           errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return dead;
}

/* A job that begins listens before its socket has its name (ctl.c): it is a moment. */
static bool is_dead_socket(const char *path, const char *name)
{
    struct stat sb;

    if (ends_in(name, ".sock"))
        return refuses(path);
    return name[0] == '.' && stat(path, &sb) == 0 && S_ISSOCK(sb.st_mode) &&
           time(NULL) - sb.st_mtime > BEGINNING_S && refuses(path);
}

/* What the last job of a folder has left (ended.c), long ago. */
static bool is_old_record(const char *path, const char *name)
{
    struct stat sb;

    return strstr(name, ".last") && stat(path, &sb) == 0 &&
           time(NULL) - sb.st_mtime > KEPT_S;
}

/* PID.pid of a process that is no more. */
static bool is_dead_pid(const char *name)
{
    char *end;
    long pid = strtol(name, &end, 10);

    return pid > 0 && strcmp(end, ".pid") == 0 && kill((pid_t)pid, 0) < 0 &&
           errno == ESRCH;
}

static void remove_dead_in(const char *dir)
{
    DIR *d = opendir(dir);
    const struct dirent *e;
    char path[ZT_CTL_PATH];

    while (d && (e = readdir(d)))
        if (zt_ctl_path(dir, e->d_name, "", path, NULL) == ZT_OK &&
            (is_dead_socket(path, e->d_name) || is_dead_pid(e->d_name) ||
             is_old_record(path, e->d_name)))
            unlink(path);
    if (d)
        closedir(d);
}

void zt_ctl_remove_dead(void)
{
    char dir[ZT_CTL_PATH];

    for (int i = 0; i < 2; i++)
        if (zt_ctl_dir_at(i, false, dir, NULL) == ZT_OK)
            remove_dead_in(dir);
}

void zt_ctl_run_id(const char *run_name, char out[ZT_CTL_RUN])
{
    snprintf(out, ZT_CTL_RUN, "%s", run_name);
    for (char *c = out; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_' && (*c != '.' || c == out))
            *c = '-';
}

zt_err zt_ctl_path(const char *dir, const char *job, const char *suffix,
                   char out[ZT_CTL_PATH], struct zt_fault *fault)
{
    int n = snprintf(out, ZT_CTL_PATH, "%s/%s%s", dir, job, suffix);

    if (n < 0 || n >= ZT_CTL_PATH)
        return zt_fault_set(fault, ZT_E_LIMIT, "%s/%s%s: the name is too long", dir, job,
                            suffix);
    return ZT_OK;
}
