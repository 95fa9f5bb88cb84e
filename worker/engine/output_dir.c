#include "worker/engine/output_dir.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/checkpoint/atomic_file.h"
#include "worker/checkpoint/disk_space.h"
#include "worker/checkpoint/folder.h"
#include "worker/engine/engine.h"
#include "worker/engine/weights.h"

#define MOST_TRIES 100

/* *made: the bytes of `dir` that name its first folder that was not there; 0: all were. */
static zt_err make_folders(const char *dir, size_t *made, struct zt_fault *fault)
{
    char path[PATH_MAX];
    size_t n = strlen(dir);
    int tries = 0;

    *made = 0;
    if (n >= sizeof(path))
        return zt_fault_set(fault, ZT_E_CANTCREATE, "--output_dir: the path is too long");
    memcpy(path, dir, n + 1);
    for (size_t i = 1; i <= n; i++) {
        char c = path[i];

        if (c && c != '/')
            continue;
        path[i] = 0;
        if (mkdir(path, 0777) == 0)
            *made = *made ? *made : i;
        else if (errno == ENOENT && tries++ < MOST_TRIES)
            i = 0; /* another run that begins has made a parent of it, and removed it */
        else if (errno != EEXIST)
            return zt_fault_set(fault, ZT_E_CANTCREATE,
                                "--output_dir %s: cannot make the folder %s: %s", dir,
                                path, strerror(errno));
        memcpy(path, dir, n + 1);
    }
    return ZT_OK;
}

/* Those that make_folders() made, unless something is in them by now. */
static void remove_folders(const char *dir, size_t made)
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

static zt_err check_folder(const char *dir, struct zt_fault *fault)
{
    struct stat st;

    if (stat(dir, &st) == 0 && !S_ISDIR(st.st_mode))
        return zt_fault_set(fault, ZT_E_CANTCREATE,
                            "--output_dir %s: that is a file; name a folder", dir);
    if (access(dir, W_OK | X_OK))
        return zt_fault_set(fault, ZT_E_CANTCREATE, "--output_dir %s: %s", dir,
                            strerror(errno));
    return ZT_OK;
}

static zt_err prepare(const char *dir, size_t *made, struct zt_fault *fault)
{
    zt_err rc = make_folders(dir, made, fault);

    if (!rc)
        rc = check_folder(dir, fault);
    if (!rc)
        zt_atomic_file_remove_stale(dir);
    return rc;
}

zt_err zt_output_dir_make(const char *dir, struct zt_fault *fault)
{
    size_t made;

    return prepare(dir, &made, fault);
}

static int64_t bytes_of_weights(const struct zt_engine *e)
{
    const struct zt_model *m = e->model;
    int64_t bytes = 1 << 16; /* config.json, and the head of each file */

    for (int i = 0; i < m->num_params; i++)
        bytes += m->params[i]->numel * (int64_t)zt_dtype_bytes(zt_weights_dtype(e->run)) +
                 (int64_t)strlen(m->params[i]->name) + 128;
    return bytes;
}

zt_err zt_output_dir_reserve(struct zt_engine *e, struct zt_fault *fault)
{
    const char *dir = e->run->output_dir;
    size_t made;
    zt_err rc = prepare(dir, &made, fault);

    if (!rc)
        zt_ckpt_remove_stale(dir); /* now, not while one may be written */
    if (!rc)
        rc = zt_disk_reserve(dir, bytes_of_weights(e), &e->disk_reserved, fault);
    remove_folders(dir, made);
    return rc;
}
