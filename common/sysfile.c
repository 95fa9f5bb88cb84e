#include "common/sysfile.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

bool zt_sysfile_line(const char *path, char *out, size_t n)
{
    FILE *f = fopen(path, "re");
    bool found;

    out[0] = '\0';
    if (!f)
        return false;
    found = fgets(out, (int)n, f) != NULL;
    fclose(f);
    out[strcspn(out, "\n")] = '\0';
    return found;
}

uint64_t zt_sysfile_meminfo(const char *key)
{
    FILE *f = fopen("/proc/meminfo", "re");
    size_t key_len = strlen(key);
    uint64_t got = UINT64_MAX;
    unsigned long long kib;
    char line[128];

    while (f && got == UINT64_MAX && fgets(line, sizeof(line), f))
        if (strncmp(line, key, key_len) == 0 &&
            sscanf(line + key_len, ": %llu", &kib) == 1)
            got = kib * 1024;
    if (f)
        fclose(f);
    return got;
}

uint64_t zt_sysfile_last_cache(const char *folder)
{
    unsigned long long kib, most = 0;
    char path[PATH_MAX], line[32];

    for (int i = 0; i < 8; i++) {
        snprintf(path, sizeof(path), "%s/index%d/size", folder, i);
        if (zt_sysfile_line(path, line, sizeof(line)) &&
            sscanf(line, "%lluK", &kib) == 1 && kib > most)
            most = kib;
    }
    return most * 1024;
}

bool zt_sysfile_has_rdma(void)
{
    DIR *d = opendir("/sys/class/infiniband");
    const struct dirent *e;
    bool found = false;

    while (d && (e = readdir(d)))
        found = found || e->d_name[0] != '.';
    if (d)
        closedir(d);
    return found;
}

int zt_sysfile_count_gpus(const char *folder)
{
    DIR *d = opendir(folder);
    const struct dirent *e;
    int n = 0;

    while (d && (e = readdir(d)))
        if (strncmp(e->d_name, "nvidia", 6) == 0 && e->d_name[6] >= '0' &&
            e->d_name[6] <= '9')
            n++;
    if (d)
        closedir(d);
    return n;
}
