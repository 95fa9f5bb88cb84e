#include "worker/checkpoint/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/mapped_file.h"
#include "worker/checkpoint/checksummed_json.h"
#include "worker/checkpoint/hf_folder.h"
#include "worker/checkpoint/reader.h"

#define PREFIX "checkpoint-"
#define WORK   ".tmp"
#define OWN    ".checkpoint.tmp" /* of a plugin's own tag, which may be any name */
#define OLD    ".old" /* after WORK: what a checkpoint replaces, for a moment */

/* The work folder of this process, locked for as long as it is written; -1: none. */
static int work_fd = -1;

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
    snprintf(out, PATH_MAX, "%s/.%s%s", p->root, last_name(p), p->name[0] ? WORK : OWN);
}

void zt_ckpt_work_dir(const struct zt_ckpt_place *p, char out[PATH_MAX])
{
    size_t n;

    zt_ckpt_work_top(p, out);
    n = strlen(out);
    if (p->name[0])
        snprintf(out + n, PATH_MAX - n, "/%s", p->tag);
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

zt_err zt_ckpt_remove_tree(const char *path, struct zt_fault *fault)
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

static void unlock_work(void)
{
    if (work_fd >= 0)
        close(work_fd);
    work_fd = -1;
}

/* A user's own tag may be the name of anything. */
static zt_err check_replaced(const struct zt_ckpt_place *p, struct zt_fault *fault)
{
    char final[PATH_MAX];

    zt_ckpt_final_dir(p, final);
    if (p->name[0] || access(final, F_OK) || zt_ckpt_is_here(final))
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_CANTCREATE,
                        "%s: is there and is no checkpoint, so it is not replaced; save "
                        "under another tag, or move it away",
                        final);
}

zt_err zt_ckpt_folder_begin(const struct zt_ckpt_place *p, struct zt_fault *fault)
{
    char top[PATH_MAX], work[PATH_MAX];
    zt_err rc;

    zt_ckpt_work_top(p, top);
    zt_ckpt_work_dir(p, work);
    rc = check_replaced(p, fault);
    if (!p->name[0]) /* no run looks through a plugin's folder when it begins */
        zt_ckpt_remove_stale(p->root);
    if (!rc)
        rc = zt_ckpt_remove_tree(top, fault);
    if (!rc)
        rc = make_folder(top, fault);
    unlock_work();
    work_fd = rc ? -1 : open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (work_fd >= 0)
        (void)!flock(work_fd,
                     LOCK_EX | LOCK_NB); /* a file system without locks has none */
    return rc || !p->name[0] ? rc : make_folder(work, fault);
}

void zt_ckpt_folder_abandon(const struct zt_ckpt_place *p)
{
    char top[PATH_MAX];

    zt_ckpt_work_top(p, top);
    (void)!zt_ckpt_remove_tree(top, NULL);
    unlock_work();
}

/*
 * A file system that cannot exchange gets two renames: a kill between them leaves the older
 * checkpoints. The old one goes when its name is gone on the disk, too: a loss of power must
 * not leave the name with half of it.
 */
zt_err zt_ckpt_replace_folder(const char *root, const char *from, const char *to,
                              struct zt_fault *fault)
{
    char aside[PATH_MAX + 8];
    const char *old = from;
    zt_err rc;

    if (rename(from, to) == 0)
        return sync_folder(root, fault);
    /* ENOTDIR: a link to another folder, which stays, or a file */
    if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR)
        return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: cannot rename it to %s: %s",
                            from, to, strerror(errno));
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) < 0) {
        snprintf(aside, sizeof(aside), "%s" OLD, from);
        old = aside;
        (void)!zt_ckpt_remove_tree(old, NULL);
        if (rename(to, old) < 0 || rename(from, to) < 0) {
            zt_fault_set(fault, ZT_E_CANTCREATE, "%s: cannot replace it: %s", to,
                         strerror(errno));
            (void)!rename(old, to); /* it keeps its name, then */
            return ZT_E_CANTCREATE;
        }
    }
    rc = sync_folder(root, fault);
    return rc ? rc : zt_ckpt_remove_tree(old, fault);
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
        rc = zt_ckpt_replace_folder(p->root, top, final, fault);
    if (!rc && !p->name[0])
        rc = zt_hf_write_text(p->root, "latest", p->tag, fault);
    if (!rc)
        unlock_work();
    return rc;
}

/* ---- what there is ---- */

/* The config.json of the checkpoint that is in `dir`; false: weights in `dir` have another. */
static bool own_config(const char *dir, char out[PATH_MAX])
{
    static const char *const places[] = {"%s/%s/config.json", "%s/config.json",
                                         "%s/../config.json"};
    char tag[ZT_CKPT_TAG] = "", path[PATH_MAX];
    bool has_tag = zt_ckpt_latest(dir, tag), is_tag;

    is_tag = snprintf(path, sizeof(path), "%s/manifest.json", dir) < PATH_MAX &&
             access(path, F_OK) == 0;
    /* of a plugin's own tag, beside the manifest there */
    if (!is_tag && has_tag && snprintf(out, PATH_MAX, places[0], dir, tag) < PATH_MAX &&
        access(out, F_OK) == 0)
        return false;
    for (size_t i = 1; i <= (is_tag ? 2 : 1); i++)
        if (snprintf(out, PATH_MAX, places[i], dir) < PATH_MAX && access(out, F_OK) == 0)
            return true;
    return false;
}

static zt_err check_same_config(const char *dir, const char *config,
                                struct zt_fault *fault)
{
    struct zt_mapping now = {0};
    char path[PATH_MAX];
    bool same;
    zt_err rc;

    if (!own_config(dir, path))
        return ZT_OK;
    rc = zt_mapping_open(path, &now, fault);
    if (rc)
        return rc;
    same = config && strlen(config) == now.bytes &&
           (now.bytes == 0 || memcmp(config, now.data, now.bytes) == 0);
    zt_mapping_release(&now);
    return same ? ZT_OK
                : zt_fault_set(fault, ZT_E_CANTCREATE,
                               "%s: is a checkpoint, and its config.json is not that of "
                               "these weights, which would make it useless: name "
                               "another folder",
                               dir);
}

zt_err zt_ckpt_check_config(const char *dir, const char *config, bool own,
                            struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (zt_ckpt_is_here(dir))
        rc = check_same_config(dir, config, fault);
    if (rc || own || !zt_ckpt_is_here(dir) || !zt_ckpt_outranks_weights(dir))
        return rc;
    return zt_fault_set(fault, ZT_E_CANTCREATE,
                        "%s: is a checkpoint, of which its own weights are read, and not "
                        "others that lie there: name another folder",
                        dir);
}

int64_t zt_ckpt_step_of_name(const char *name)
{
    const char *digits = name + sizeof(PREFIX) - 1;
    size_t n;

    if (strncmp(name, PREFIX, sizeof(PREFIX) - 1) != 0)
        return -1;
    n = strspn(digits, "0123456789");
    if (digits[0] == '0' && n > 1)
        return -1;
    return n && n < 19 && !digits[n] ? strtoll(digits, NULL, 10) : -1;
}

static bool ends_with(const char *name, size_t n, const char *end)
{
    size_t k = strlen(end);

    return n > k && strncmp(name + n - k, end, k) == 0;
}

/* ".checkpoint-12.tmp", ".TAG.checkpoint.tmp", or their ".old": what one process writes and nobody reads. */
static bool is_work(const char *name)
{
    char step[64];
    size_t n = strlen(name);
    const size_t work = sizeof(WORK) - 1;

    if (ends_with(name, n, OLD))
        n -= sizeof(OLD) - 1;
    if (name[0] == '.' && ends_with(name + 1, n - 1, OWN))
        return true;
    if (name[0] != '.' || n <= 1 + work || n - work > sizeof(step) ||
        !ends_with(name, n, WORK))
        return false;
    memcpy(step, name + 1, n - work - 1);
    step[n - work - 1] = 0;
    return zt_ckpt_step_of_name(step) >= 0;
}

void zt_ckpt_remove_stale(const char *root)
{
    DIR *d = opendir(root);
    const struct dirent *e;

    while (d && (e = readdir(d))) {
        char path[PATH_MAX + 256];
        int fd = is_work(e->d_name)
                     ? openat(dirfd(d), e->d_name,
                              O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)
                     : -1;

        /* locked: somebody is writing it */
        snprintf(path, sizeof(path), "%s/%s", root, e->d_name);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
            (void)!zt_ckpt_remove_tree(path, NULL);
        if (fd >= 0)
            close(fd);
    }
    if (d)
        closedir(d);
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
        int64_t step = zt_ckpt_step_of_name(e->d_name), *more;

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

/* First out of its name, on the disk as well: what is half removed is nobody's checkpoint. */
static zt_err remove_step(const char *root, int64_t step, struct zt_fault *fault)
{
    struct zt_ckpt_place p = {.root = ""};
    char top[PATH_MAX], final[PATH_MAX];
    zt_err rc;

    zt_ckpt_place_of_step(&p, root, step);
    zt_ckpt_work_top(&p, top);
    zt_ckpt_final_dir(&p, final);
    (void)!zt_ckpt_remove_tree(top, NULL);
    if (rename(final, top) < 0)
        return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: cannot remove it: %s", final,
                            strerror(errno));
    rc = sync_folder(root, fault);
    return rc ? rc : zt_ckpt_remove_tree(top, fault);
}

int64_t zt_ckpt_newest(const char *root)
{
    int64_t *steps = NULL, newest = -1;
    struct zt_ckpt_place p = {.root = ""};
    char dir[PATH_MAX];
    int num = 0;

    if (zt_ckpt_list(root, &steps, &num, NULL))
        return -1;
    for (int i = 0; newest < 0 && i < num; i++) {
        zt_ckpt_place_of_step(&p, root, steps[i]);
        zt_ckpt_final_dir(&p, dir);
        newest = zt_ckpt_is_here(dir) ? steps[i] : -1;
    }
    free(steps);
    return newest;
}

/* A checkpoint, and of this training: others are not this run's to remove. */
static bool is_of(const char *root, int64_t step, const char *training)
{
    struct zt_ckpt_place p = {.root = ""};
    char dir[PATH_MAX], path[PATH_MAX + 256];
    json_t *manifest = NULL;
    const char *id;
    uint64_t hash;
    bool is;

    zt_ckpt_place_of_step(&p, root, step);
    zt_ckpt_final_dir(&p, dir);
    if (!training)
        return zt_ckpt_is_here(dir);
    snprintf(path, sizeof(path), "%s/%s/manifest.json", dir, p.tag);
    if (zt_sealed_json_load(path, &manifest, &hash, NULL))
        return false;
    id = json_string_value(json_object_get(json_object_get(manifest, "training"), "id"));
    is = id && strcmp(id, training) == 0;
    json_decref(manifest);
    return is;
}

bool zt_ckpt_has_of_training(const char *root, const char *training)
{
    int64_t *steps = NULL;
    int num = 0;
    bool has = false;

    if (!training[0] || zt_ckpt_list(root, &steps, &num, NULL))
        return false;
    for (int i = 0; !has && i < num; i++)
        has = is_of(root, steps[i], training);
    free(steps);
    return has;
}

zt_err zt_ckpt_list_old(const char *root, const char *training, int64_t limit,
                        int64_t newest, int64_t best, int64_t **steps, int *num,
                        struct zt_fault *fault)
{
    int64_t *all = NULL, *old = NULL;
    int num_all = 0, num_own = 0, n = 0;
    zt_err rc = zt_ckpt_list(root, &all, &num_all, fault);

    if (!rc && num_all && !(old = malloc((size_t)num_all * sizeof(*old))))
        rc = zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", root);
    for (int i = 0; !rc && i < num_all; i++)
        if (all[i] == newest || all[i] == best || is_of(root, all[i], training))
            all[num_own++] = all[i];
    for (int i = num_own - 1; !rc && i >= 0 && num_own - n > limit; i--)
        if (all[i] != newest && all[i] != best)
            old[n++] = all[i];
    free(all);
    *steps = old;
    *num = n;
    return rc;
}

zt_err zt_ckpt_prune(const char *root, const char *training, int64_t limit,
                     int64_t newest, int64_t best, int *removed, struct zt_fault *fault)
{
    int64_t *steps = NULL;
    int num = 0;
    zt_err rc =
        zt_ckpt_list_old(root, training, limit, newest, best, &steps, &num, fault);

    *removed = 0;
    for (int i = 0; !rc && i < num; i++) {
        rc = remove_step(root, steps[i], fault);
        *removed += rc ? 0 : 1;
    }
    free(steps);
    return rc;
}
