#include "worker/checkpoint/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/checkpoint/hf_folder.h"

#define PREFIX "checkpoint-"

/* ---- names ---- */

void zt_ckpt_place_of_step(struct zt_ckpt_place *p, const char *root, int64_t step)
{
    snprintf(p->root, sizeof(p->root), "%s", root);
    snprintf(p->name, sizeof(p->name), PREFIX "%lld", (long long)step);
    snprintf(p->tag, sizeof(p->tag), "global_step%lld", (long long)step);
}

static const char *last_name(const struct zt_ckpt_place *p)
{
    return p->name[0] ? p->name : p->tag;
}

void zt_ckpt_work_top(const struct zt_ckpt_place *p, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/.%s.tmp", p->root, last_name(p));
}

void zt_ckpt_work_dir(const struct zt_ckpt_place *p, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/.%s.tmp%s%s", p->root, last_name(p),
             p->name[0] ? "/" : "", p->name[0] ? p->tag : "");
}

void zt_ckpt_final_dir(const struct zt_ckpt_place *p, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/%s", p->root, last_name(p));
}

/* ---- writing ---- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static zt_err remove_tree(const char *path, struct zt_fault *fault)
{
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT)
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: cannot remove it: %s", path,
                        strerror(errno));
}

static zt_err sync_folder(const char *path, struct zt_fault *fault)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    zt_err rc = ZT_OK;

    /* EINVAL: a file system that has nothing to sync here */
    if (fd < 0 || (fsync(fd) < 0 && errno != EINVAL))
        rc = zt_fault_set(fault, ZT_E_CANTCREATE, "%s: cannot sync the folder: %s", path,
                          strerror(errno));
    if (fd >= 0)
        close(fd);
    return rc;
}

static zt_err make_folder(const char *path, struct zt_fault *fault)
{
    if (mkdir(path, 0777) == 0)
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: cannot make the folder: %s", path,
                        strerror(errno));
}

zt_err zt_ckpt_folder_begin(const struct zt_ckpt_place *p, struct zt_fault *fault)
{
    char top[PATH_MAX], work[PATH_MAX];
    zt_err rc;

    zt_ckpt_work_top(p, top);
    zt_ckpt_work_dir(p, work);
    rc = remove_tree(top, fault);
    if (!rc)
        rc = make_folder(top, fault);
    return rc || !p->name[0] ? rc : make_folder(work, fault);
}

void zt_ckpt_folder_abandon(const struct zt_ckpt_place *p)
{
    char top[PATH_MAX];

    zt_ckpt_work_top(p, top);
    (void)!remove_tree(top, NULL);
}

/*
 * The new folder takes the name of one that is there in the same instant. A file system
 * that cannot exchange gets two renames: a kill between them leaves the older checkpoints.
 */
static zt_err replace(const char *from, const char *to, struct zt_fault *fault)
{
    char old[PATH_MAX + 8];

    if (rename(from, to) == 0)
        return ZT_OK;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: cannot rename it to %s: %s",
                            from, to, strerror(errno));
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0)
        return remove_tree(from, fault);
    snprintf(old, sizeof(old), "%s.old", from);
    (void)!remove_tree(old, NULL);
    if (rename(to, old) < 0 || rename(from, to) < 0)
        return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: cannot replace it: %s", to,
                            strerror(errno));
    return remove_tree(old, fault);
}

zt_err zt_ckpt_folder_publish(const struct zt_ckpt_place *p, struct zt_fault *fault)
{
    char top[PATH_MAX], work[PATH_MAX], final[PATH_MAX];
    zt_err rc;

    zt_ckpt_work_top(p, top);
    zt_ckpt_work_dir(p, work);
    zt_ckpt_final_dir(p, final);
    rc = sync_folder(work, fault);
    if (!rc && p->name[0])
        rc = zt_hf_write_text(top, "latest", p->tag, fault); /* syncs that folder, too */
    if (!rc)
        rc = replace(top, final, fault);
    if (!rc)
        rc = sync_folder(p->root, fault);
    if (!rc && !p->name[0])
        rc = zt_hf_write_text(p->root, "latest", p->tag, fault);
    return rc;
}

/* ---- what there is ---- */

/* "checkpoint-12" is 12; anything else is -1. */
static int64_t step_of(const char *name)
{
    const char *digits = name + sizeof(PREFIX) - 1;
    size_t n;

    if (strncmp(name, PREFIX, sizeof(PREFIX) - 1) != 0)
        return -1;
    n = strspn(digits, "0123456789");
    return n && n < 19 && !digits[n] ? strtoll(digits, NULL, 10) : -1;
}

static int newest_first(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x < *y) - (*x > *y);
}

zt_err zt_ckpt_list(const char *root, int64_t **steps, int *num, struct zt_fault *fault)
{
    DIR *d = opendir(root);
    int64_t *list = NULL;
    const struct dirent *e;
    int n = 0;

    while (d && (e = readdir(d))) {
        int64_t step = step_of(e->d_name), *more;

        if (step < 0)
            continue;
        more = realloc(list, ((size_t)n + 1) * sizeof(*list));
        if (!more) {
            free(list);
            closedir(d);
            return zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", root);
        }
        list = more;
        list[n++] = step;
    }
    if (d)
        closedir(d);
    if (n)
        qsort(list, (size_t)n, sizeof(*list), newest_first);
    *steps = list;
    *num = n;
    return ZT_OK;
}

/* First out of its name: what is half removed is nobody's checkpoint. */
static zt_err remove_step(const char *root, int64_t step, struct zt_fault *fault)
{
    struct zt_ckpt_place p = {.root = ""};
    char top[PATH_MAX], final[PATH_MAX];

    zt_ckpt_place_of_step(&p, root, step);
    zt_ckpt_work_top(&p, top);
    zt_ckpt_final_dir(&p, final);
    (void)!remove_tree(top, NULL);
    if (rename(final, top) < 0)
        return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: cannot remove it: %s", final,
                            strerror(errno));
    return remove_tree(top, fault);
}

zt_err zt_ckpt_prune(const char *root, int64_t limit, int64_t newest, int64_t best,
                     int *removed, struct zt_fault *fault)
{
    int64_t *steps = NULL;
    int num = 0;
    zt_err rc = zt_ckpt_list(root, &steps, &num, fault);

    *removed = 0;
    for (int i = num - 1; !rc && i >= 0 && num - *removed > limit; i--) {
        if (steps[i] == newest || steps[i] == best)
            continue;
        rc = remove_step(root, steps[i], fault);
        *removed += rc ? 0 : 1;
    }
    free(steps);
    return rc;
}
