/* available_memory.c -- by /proc/meminfo and the control groups of both versions. */
#include "worker/comm/shm/available_memory.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The number after `key` at the start of a line ("" takes the first), or `none`. */
static size_t number_in(const char *path, const char *key, size_t none)
{
    FILE *f = fopen(path, "re");
    char line[128];
    size_t key_len = strlen(key), got = none;
    unsigned long long n;

    if (!f)
        return none;
    while (got == none && fgets(line, sizeof(line), f))
        if (!strncmp(line, key, key_len) && sscanf(line + key_len, "%llu", &n) == 1)
            got = (size_t)n;
    fclose(f);
    return got;
}

static size_t machine_memory(void)
{
    size_t free_kib = number_in("/proc/meminfo", "MemAvailable:", SIZE_MAX);

    if (free_kib == SIZE_MAX)
        return SIZE_MAX;
    return (free_kib + number_in("/proc/meminfo", "SwapFree:", 0)) << 10;
}

/* How the two generations of control groups spell what this file wants to know. */
struct hierarchy {
    const char *line; /* of /proc/self/cgroup, between the first ':' and the path */
    const char *mount, *limit, *used, *cache;
};
static const struct hierarchy hierarchies[] = {
    {":", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "},
    {"memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file "},
};
#define NUM_HIERARCHIES (sizeof(hierarchies) / sizeof(hierarchies[0]))

static size_t cgroup_memory(const struct hierarchy *h, const char *folder)
{
    char path[PATH_MAX + 128];
    size_t limit, used, cache;

    snprintf(path, sizeof(path), "%s%s/%s", h->mount, folder, h->limit);
    limit = number_in(path, "", SIZE_MAX);
    if (limit == SIZE_MAX)
        return SIZE_MAX;
    snprintf(path, sizeof(path), "%s%s/%s", h->mount, folder, h->used);
    used = number_in(path, "", 0);
    snprintf(path, sizeof(path), "%s%s/memory.stat", h->mount, folder);
    cache = number_in(path, h->cache, 0);
    used -= cache < used ? cache : used;
    return limit > used ? limit - used : 0;
}

/* The minimum over a folder and all above it; in a container the path may not exist. */
static size_t cgroup_path_memory(const struct hierarchy *h, char *folder)
{
    size_t least = cgroup_memory(h, "");

    while (*folder == '/' && folder[1]) {
        size_t here = cgroup_memory(h, folder);

        least = here < least ? here : least;
        *strrchr(folder, '/') = '\0';
    }
    return least;
}

static size_t own_cgroup_memory(void)
{
    FILE *f = fopen("/proc/self/cgroup", "re");
    char line[PATH_MAX];
    size_t least = SIZE_MAX;

    if (!f)
        return SIZE_MAX;
    while (fgets(line, sizeof(line), f)) { /* "number:controllers:/path" */
        char *rest = strchr(line, ':');

        line[strcspn(line, "\n")] = '\0';
        for (size_t i = 0; rest && i < NUM_HIERARCHIES; i++) {
            size_t len = strlen(hierarchies[i].line), here;

            if (strncmp(rest + 1, hierarchies[i].line, len) != 0)
                continue;
            here = cgroup_path_memory(&hierarchies[i], rest + 1 + len);
            least = here < least ? here : least;
        }
    }
    fclose(f);
    return least;
}

size_t zt_comm_available_memory(void)
{
    size_t machine = machine_memory(), group = own_cgroup_memory();

    return machine < group ? machine : group;
}
