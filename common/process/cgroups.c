/*
 * /proc/self/cgroup says which group:   "4:memory:/slurm/job_7", version 2 "0::/user.slice"
 * /proc/self/mountinfo where its files are: "36 31 0:33 /slurm /sys/fs/cgroup/memory ... -
 * cgroup cgroup rw,memory". The fourth word is the group that the mount shows as its top,
 * so here the group is the folder /sys/fs/cgroup/memory/job_7.
 */
#include "common/process/cgroups.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sysfile.h"

#define V1_NO_LIMIT ((uint64_t)1 << 62) /* version 1 writes "none" as about this much */

/* "" as a controller: version 2, which has them all in one hierarchy. */
struct groups {
    char folder[PATH_MAX]; /* of the group itself */
    size_t top;            /* bytes of it that are the mount */
};

/* The file's line that `take` accepts; false: none. */
static bool find_line(const char *root, const char *file,
                      bool (*take)(char *line, const char *controller, char *out),
                      const char *controller, char *out)
{
    char path[PATH_MAX], line[2 * PATH_MAX];
    bool found = false;
    FILE *f;

    snprintf(path, sizeof(path), "%s%s", root, file);
    f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        found = take(line, controller, out);
    }
    if (f)
        fclose(f);
    return found;
}

/* Is `word` one of those between commas? */
static bool holds(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = list; p; p = strchr(p, ',')) {
        p += *p == ',';
        if (strncmp(p, word, n) == 0 && (p[n] == ',' || !p[n]))
            return true;
    }
    return false;
}

/* out: the path of the group. */
static bool take_group(char *line, const char *controller, char *out)
{
    char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;

    if (!path)
        return false;
    *path++ = '\0';
    if (*controller ? !holds(list + 1, controller) : list[1] != '\0')
        return false;
    snprintf(out, PATH_MAX, "%s", strcmp(path, "/") == 0 ? "" : path);
    return true;
}

/* out: the group at the top of the mount, a newline, and where it is mounted. */
static bool take_mount(char *line, const char *controller, char *out)
{
    char *type = strstr(line, " - "), *options = NULL, *save, *top, *at;

    if (!type)
        return false;
    *type = '\0';
    type = strtok_r(type + 3, " ", &save);
    if (type && strtok_r(NULL, " ", &save)) /* what is mounted: any word */
        options = strtok_r(NULL, " ", &save);
    if (!options || strcmp(type, *controller ? "cgroup" : "cgroup2") != 0 ||
        (*controller && !holds(options, controller)))
        return false;
    top = strtok_r(line, " ", &save);
    for (int i = 0; top && i < 3; i++)
        top = strtok_r(NULL, " ", &save);
    at = top ? strtok_r(NULL, " ", &save) : NULL;
    return at && snprintf(out, PATH_MAX, "%s\n%s", strcmp(top, "/") == 0 ? "" : top, at) <
                     PATH_MAX;
}

static bool find_groups(const char *root, const char *controller, struct groups *g)
{
    char group[PATH_MAX], mount[PATH_MAX], *below = group, *at;
    size_t top;
    int n;

    if (!find_line(root, "/proc/self/cgroup", take_group, controller, group) ||
        !find_line(root, "/proc/self/mountinfo", take_mount, controller, mount))
        return false;
    at = strchr(mount, '\n');
    *at++ = '\0';
    top = strlen(mount);
    if (strncmp(group, mount, top) == 0 && (group[top] == '/' || !group[top]))
        below += top;
    else if (top) /* the mount shows another part of the tree: its top is all we know */
        *below = '\0';
    g->top = strlen(root) + strlen(at);
    n = snprintf(g->folder, sizeof(g->folder), "%s%s%s", root, at, below);
    return n > 0 && (size_t)n < sizeof(g->folder);
}

/* From the group to the one above it; false: it was the last. */
static bool go_up(struct groups *g)
{
    char *slash = strlen(g->folder) > g->top ? strrchr(g->folder, '/') : NULL;

    if (!slash)
        return false;
    *slash = '\0';
    return true;
}

/* The number after `key` at the start of a line ("" takes the first), or `none`. */
static uint64_t number_in(const char *folder, const char *file, const char *key,
                          uint64_t none)
{
    char path[PATH_MAX + 64], line[128];
    size_t key_len = strlen(key);
    uint64_t got = none;
    unsigned long long n;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", folder, file);
    f = fopen(path, "re");
    while (f && got == none && fgets(line, sizeof(line), f))
        if (!strncmp(line, key, key_len) && sscanf(line + key_len, "%llu", &n) == 1)
            got = n;
    if (f)
        fclose(f);
    return got;
}

/* ------------------------------------------------------------------ memory */

/* How the two versions spell what this file wants to know. */
static const struct memory_files {
    const char *controller, *limits[2], *used, *cache;
} memory_files[] = {
    {"", {"memory.max", "memory.high"}, "memory.current", "inactive_file "},
    {"memory",
     {"memory.limit_in_bytes", NULL},
     "memory.usage_in_bytes",
     "total_inactive_file "},
};

static void read_group_memory(const struct memory_files *m, const char *folder,
                              struct zt_cgroups_memory *least)
{
    struct zt_cgroups_memory here = {.limit_bytes = V1_NO_LIMIT};
    uint64_t cache;

    for (int i = 0; i < 2 && m->limits[i]; i++) {
        uint64_t n = number_in(folder, m->limits[i], "", V1_NO_LIMIT);

        here.limit_bytes = n < here.limit_bytes ? n : here.limit_bytes;
    }
    if (here.limit_bytes >= V1_NO_LIMIT)
        return;
    here.used_bytes = number_in(folder, m->used, "", 0);
    cache = number_in(folder, "memory.stat", m->cache, 0);
    here.used_bytes -= cache < here.used_bytes ? cache : here.used_bytes;
    here.left_bytes = here.limit_bytes - here.used_bytes;
    if (here.used_bytes > here.limit_bytes)
        here.left_bytes = 0;
    if (here.left_bytes < least->left_bytes)
        *least = here;
}

void zt_cgroups_read_memory(const char *root, struct zt_cgroups_memory *out)
{
    struct groups g;

    *out =
        (struct zt_cgroups_memory){.limit_bytes = UINT64_MAX, .left_bytes = UINT64_MAX};
    for (size_t i = 0; i < sizeof(memory_files) / sizeof(memory_files[0]); i++) {
        const struct memory_files *m = &memory_files[i];

        if (!find_groups(root, m->controller, &g))
            continue;
        do
            read_group_memory(m, g.folder, out);
        while (go_up(&g));
    }
}

int64_t zt_cgroups_count_oom_kills(const char *root)
{
    uint64_t kills = UINT64_MAX;
    struct groups g;
    char proc[PATH_MAX];

    if (find_groups(root, "", &g))
        kills = number_in(g.folder, "memory.events", "oom_kill ", UINT64_MAX);
    if (kills == UINT64_MAX && find_groups(root, "memory", &g))
        kills = number_in(g.folder, "memory.oom_control", "oom_kill ", UINT64_MAX);
    snprintf(proc, sizeof(proc), "%s/proc", root);
    if (kills == UINT64_MAX)
        kills = number_in(proc, "vmstat", "oom_kill ", UINT64_MAX);
    return kills == UINT64_MAX ? -1 : (int64_t)kills;
}

/* ------------------------------------------------------------------ processors */

/* Version 2: "max 100000" or "150000 100000"; version 1 has a file for each. */
static double group_cpus(const char *folder, bool v1)
{
    const char *names[] = {v1 ? "cpu.cfs_quota_us" : "cpu.max", "cpu.cfs_period_us"};
    double number[2] = {0, 0};

    for (int i = 0; i < (v1 ? 2 : 1); i++) {
        char path[PATH_MAX + 64], line[128];

        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        if (!zt_sysfile_line(path, line, sizeof(line)) ||
            sscanf(line, "%lf %lf", &number[i], &number[1]) < 1)
            return 0;
    }
    return number[0] > 0 && number[1] > 0 ? number[0] / number[1] : 0;
}

double zt_cgroups_read_cpus(const char *root)
{
    static const char *const controllers[] = {"", "cpu"};
    double least = 0;
    struct groups g;

    for (int i = 0; i < 2; i++) {
        if (!find_groups(root, controllers[i], &g))
            continue;
        do {
            double here = group_cpus(g.folder, i == 1);

            if (here > 0 && (least <= 0 || here < least))
                least = here;
        } while (go_up(&g));
    }
    return least;
}

bool zt_cgroups_folder(const char *root, char *out, size_t n)
{
    struct groups g;

    return find_groups(root, "", &g) && snprintf(out, n, "%s", g.folder) < (int)n;
}
