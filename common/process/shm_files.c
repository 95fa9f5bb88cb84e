/*
 * A file is in use from its creation on by a descriptor, a mapping or both, and a process
 * maps it before it closes the descriptor. So names are listed first, then all descriptors
 * are looked at, then all mappings: a file in none of them has no process.
 */
#include "common/process/shm_files.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define FOLDER    "/dev/shm"
#define MAX_FILES 256

/* MPICH, UCX, Open MPI 4 and 5, NCCL */
static const char *const prefixes[] = {"mpich_shar_tmp", "ucx_shm_posix_",
                                       "vader_segment.", "sm_segment.", "nccl-"};

struct shm_file {
    char name[NAME_MAX + 1];
    dev_t dev;
    ino_t ino;
    bool used;
};

struct shm_files {
    struct shm_file list[MAX_FILES];
    int num;
    bool unsure; /* a process of this user does not show what it has open */
};

static bool has_prefix(const char *name)
{
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static void list_files(struct shm_files *f)
{
    DIR *d = opendir(FOLDER);
    const struct dirent *e;
    struct stat st;

    while (d && f->num < MAX_FILES && (e = readdir(d))) {
        struct shm_file *file = &f->list[f->num];

        if (!has_prefix(e->d_name) ||
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(st.st_mode) || st.st_uid != geteuid())
            continue;
        snprintf(file->name, sizeof(file->name), "%s", e->d_name);
        file->dev = st.st_dev;
        file->ino = st.st_ino;
        file->used = false;
        f->num++;
    }
    if (d)
        closedir(d);
}

static void mark(struct shm_files *f, dev_t dev, ino_t ino)
{
    for (int i = 0; i < f->num; i++)
        if (f->list[i].ino == ino && f->list[i].dev == dev)
            f->list[i].used = true;
}

/* A process that ended meanwhile uses nothing. Only what is named like one is looked at
 * closer: a dead network file system among the others would block. */
static void mark_descriptors(struct shm_files *f, const char *pid)
{
    char path[64], target[PATH_MAX];
    const struct dirent *e;
    struct stat st;
    DIR *d;

    snprintf(path, sizeof(path), "/proc/%.20s", pid);
    if (stat(path, &st) < 0)
        return;
    snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
    d = opendir(path);
    if (!d && (errno == EACCES || errno == EPERM) && st.st_uid == geteuid())
        f->unsure = true;
    while (d && (e = readdir(d))) {
        ssize_t n = readlinkat(dirfd(d), e->d_name, target, sizeof(target) - 1);
        const char *slash;

        target[n < 0 ? 0 : n] = '\0';
        slash = strrchr(target, '/');
        if (slash && has_prefix(slash + 1) && fstatat(dirfd(d), e->d_name, &st, 0) == 0)
            mark(f, st.st_dev, st.st_ino);
    }
    if (d)
        closedir(d);
}

static void mark_mappings(struct shm_files *f, const char *pid)
{
    char path[64], line[PATH_MAX + 128];
    unsigned dev_major, dev_minor;
    unsigned long long ino;
    FILE *maps;

    snprintf(path, sizeof(path), "/proc/%.20s/maps", pid);
    maps = fopen(path, "re");
    while (maps && fgets(line, sizeof(line), maps))
        if (sscanf(line, "%*s %*s %*s %x:%x %llu", &dev_major, &dev_minor, &ino) == 3 &&
            ino)
            mark(f, makedev(dev_major, dev_minor), (ino_t)ino);
    if (maps)
        fclose(maps);
}

static void each_process(struct shm_files *f,
                         void (*fn)(struct shm_files *f, const char *pid))
{
    DIR *d = opendir("/proc");
    const struct dirent *e;

    while (d && (e = readdir(d)))
        if (isdigit((unsigned char)e->d_name[0]))
            fn(f, e->d_name);
    f->unsure = f->unsure || !d;
    if (d)
        closedir(d);
}

static bool is_first_namespace(const char *path, const char *first)
{
    char text[64];
    ssize_t n = readlink(path, text, sizeof(text) - 1);

    text[n < 0 ? 0 : n] = '\0';
    return strcmp(text, first) == 0;
}

/* A container that sees its own processes only, but has the machine's /dev/shm? The numbers
 * of the first namespaces are fixed (include/linux/proc_ns.h). */
static bool others_may_be_hidden(void)
{
    return is_first_namespace("/proc/self/ns/ipc", "ipc:[4026531839]") &&
           !is_first_namespace("/proc/self/ns/pid", "pid:[4026531836]");
}

void zt_shm_files_remove_unused(void)
{
    struct shm_files f;
    int folder;

    f.num = 0;
    f.unsure = false;
    list_files(&f);
    if (!f.num || others_may_be_hidden())
        return;
    each_process(&f, mark_descriptors);
    each_process(&f, mark_mappings);
    folder = f.unsure ? -1 : open(FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; folder >= 0 && i < f.num; i++)
        if (!f.list[i].used)
            (void)!unlinkat(folder, f.list[i].name, 0);
    if (folder >= 0)
        close(folder);
}
