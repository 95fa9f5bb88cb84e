#include "common/files/folders.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_TRIES 100

/* Whether `path` is a link to what is not there, and then to what. */
static bool leads_nowhere(const char *path, char to[PATH_MAX])
{
    struct stat st;
    ssize_t n =
        stat(path, &st) < 0 && errno == ENOENT ? readlink(path, to, PATH_MAX - 1) : -1;

    if (n >= 0)
        to[n] = 0;
    return n >= 0;
}

static zt_err refuse_to_make(const char *what, const char *dir, const char *path,
                             int error, struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_CANTCREATE, "%s%s%s: cannot make the folder %s: %s",
                        what ? what : "", what ? " " : "", dir, path, strerror(error));
}

static zt_err refuse_link(const char *what, const char *dir, const char *path,
                          const char *to, struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_CANTCREATE,
                        "%s%s%s: %s is a link to %s, which is not there",
                        what ? what : "", what ? " " : "", dir, path, to);
}

static zt_err refuse_length(const char *what, const char *dir, struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: the path is too long",
                        what ? what : dir);
}

zt_err zt_folders_make(const char *what, const char *dir, size_t *made,
                       struct zt_fault *fault)
{
    char path[PATH_MAX], to[PATH_MAX];
    size_t n = strlen(dir), first = 0;
    int tries = 0;

    if (made)
        *made = 0;
    if (n >= sizeof(path))
        return refuse_length(what, dir, fault);
    memcpy(path, dir, n + 1);
    for (size_t i = 1; i <= n; i++) {
        char c = path[i];

        if (c && c != '/')
            continue;
        path[i] = 0;
        if (mkdir(path, 0777) == 0)
            first = first ? first : i;
        else if (errno == ENOENT && tries++ < MOST_TRIES)
            i = 0; /* another run that begins has made a parent of it, and removed it */
        else if (errno != EEXIST)
            return refuse_to_make(what, dir, path, errno, fault);
        else if (leads_nowhere(path, to))
            return refuse_link(what, dir, path, to, fault);
        if (made)
            *made = first;
        memcpy(path, dir, n + 1);
    }
    return ZT_OK;
}

/* Down to the first that is not there: the one above it is to take it. */
zt_err zt_folders_check(const char *what, const char *dir, struct zt_fault *fault)
{
    char path[PATH_MAX], to[PATH_MAX], above[PATH_MAX] = ".";
    size_t n = strlen(dir);
    struct stat st;

    if (n >= sizeof(path))
        return refuse_length(what, dir, fault);
    memcpy(path, dir, n + 1);
    if (*dir == '/')
        memcpy(above, "/", 2);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] && path[i] != '/')
            continue;
        path[i] = 0;
        if (leads_nowhere(path, to))
            return refuse_link(what, dir, path, to, fault);
        if (stat(path, &st) < 0)
            return errno != ENOENT || access(above, W_OK | X_OK) < 0
                       ? refuse_to_make(what, dir, path, errno, fault)
                       : ZT_OK;
        memcpy(above, path, i + 1);
        memcpy(path, dir, n + 1);
    }
    return ZT_OK;
}

void zt_folders_remove(const char *dir, size_t made)
{
    char path[PATH_MAX];
    size_t n = strlen(dir);

    if (!made || n >= sizeof(path))
        return;
    memcpy(path, dir, n + 1);
    for (; n >= made; n--) {
        if (path[n] && path[n] != '/')
            continue;
        path[n] = 0;
        (void)!rmdir(path);
    }
}

bool zt_is_one_file(const char *a, const char *b)
{
    struct stat x, y;

    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

bool zt_is_of_folder(const char *folder, const char *path)
{
    char *named = strdup(path), *real = realpath(path, NULL);
    bool is = zt_is_one_file(folder, path);
    struct stat st;

    if (named && real && stat(real, &st) == 0 && !S_ISDIR(st.st_mode))
        is = is || zt_is_one_file(folder, dirname(named)) ||
             zt_is_one_file(folder, dirname(real));
    free(named);
    free(real);
    return is;
}

bool zt_is_within(const char *path, const char *folder)
{
    char real[PATH_MAX], above[PATH_MAX];
    size_t n;

    if (!realpath(path, real) || !realpath(folder, above))
        return false;
    n = strlen(above);
    return strncmp(real, above, n) == 0 && (!real[n] || real[n] == '/');
}
