#include "launcher/ctl/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_MAX_BYTES 46 /* "/." job id ".sock" */

/* A real folder, of this user, closed to others. */
static zt_err check_private(const char *dir, struct zt_fault *fault)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat sb;
    int e;

    if (fd < 0)
        return zt_fault_set(fault, errno == ENOENT ? ZT_E_NOINPUT : ZT_E_SYSTEM,
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
    char dir[ZT_CTL_PATH];
    zt_err rc;

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

zt_err zt_ctl_path(const char *dir, const char *job, const char *suffix,
                   char out[ZT_CTL_PATH], struct zt_fault *fault)
{
    int n = snprintf(out, ZT_CTL_PATH, "%s/%s%s", dir, job, suffix);

    if (n < 0 || n >= ZT_CTL_PATH)
        return zt_fault_set(fault, ZT_E_LIMIT, "%s/%s%s: the name is too long", dir, job,
                            suffix);
    return ZT_OK;
}
