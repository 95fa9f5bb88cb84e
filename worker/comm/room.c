#include "worker/comm/room.h"

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

static size_t of_machine(void)
{
    size_t free_kib = number_in("/proc/meminfo", "MemAvailable:", SIZE_MAX);

    if (free_kib == SIZE_MAX)
        return SIZE_MAX;
    return (free_kib + number_in("/proc/meminfo", "SwapFree:", 0)) << 10;
}

static size_t of_control_group(void)
{
    size_t most = number_in("/sys/fs/cgroup/memory.max", "", SIZE_MAX);
    size_t used = number_in("/sys/fs/cgroup/memory.current", "", 0);
    size_t cache = number_in("/sys/fs/cgroup/memory.stat", "inactive_file ", 0);

    if (most == SIZE_MAX)
        return SIZE_MAX;
    used -= cache < used ? cache : used;
    return most > used ? most - used : 0;
}

size_t zt_comm_room(void)
{
    size_t machine = of_machine(), group = of_control_group();

    return machine < group ? machine : group;
}
