#include "common/cores.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * "a,b-c": every processor goes to *out. The kernel's own lists have the same form.
 * False: malformed, or beyond CPU_SETSIZE.
 */
static bool parse_list(const char *s, cpu_set_t *out)
{
    CPU_ZERO(out);
    for (;;) {
        unsigned long a, b;
        char *end;

        if (*s < '0' || *s > '9')
            return false;
        a = b = strtoul(s, &end, 10);
        if (*end == '-') {
            s = end + 1;
            if (*s < '0' || *s > '9')
                return false;
            b = strtoul(s, &end, 10);
        }
        if (a > b || b >= CPU_SETSIZE)
            return false;
        for (; a <= b; a++)
            CPU_SET(a, out);
        while (*end == ' ' || *end == '\n')
            end++;
        if (!*end)
            return true;
        if (*end != ',')
            return false;
        s = end + 1;
        while (*s == ' ')
            s++;
    }
}

static bool read_line(const char *path, char *out, size_t n)
{
    FILE *f = fopen(path, "re");
    bool ok;

    if (!f)
        return false;
    ok = fgets(out, (int)n, f) != NULL;
    fclose(f);
    return ok;
}

/* Hardware threads of the core that `cpu` is on; just itself if the kernel does not tell.
 */
static void siblings(int cpu, cpu_set_t *out)
{
    char path[96], line[512];

    snprintf(path, sizeof(path),
             "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    if (!read_line(path, line, sizeof(line)) || !parse_list(line, out)) {
        CPU_ZERO(out);
        CPU_SET(cpu, out);
    }
}

/* cgroup v2 "max 100000" or "150000 100000": processors, rounded up. */
static int cgroup_quota(void)
{
    char line[128];
    long quota, period;

    if (!read_line("/sys/fs/cgroup/cpu.max", line, sizeof(line)) ||
        sscanf(line, "%ld %ld", &quota, &period) != 2 || quota <= 0 || period <= 0)
        return 0;
    return (int)((quota + period - 1) / period);
}

zt_err zt_cores_init(struct zt_cores *c, const char *list, struct zt_fault *fault)
{
    cpu_set_t mask, want, left, core;

    *c = (struct zt_cores){0};
    if (sched_getaffinity(0, sizeof(mask), &mask) < 0)
        return zt_fault_set(fault, ZT_E_SYSTEM, "affinity mask: %s", strerror(errno));
    if (list) {
        if (!parse_list(list, &want))
            return zt_fault_set(fault, ZT_E_USAGE,
                                "core list '%.100s': expected numbers and ranges such as "
                                "1,3-5,7",
                                list);
        CPU_AND(&left, &want, &mask);
        if (!CPU_EQUAL(&left, &want)) {
            char have[256];

            zt_cores_text(&mask, have, sizeof(have));
            return zt_fault_set(fault, ZT_E_USAGE,
                                "core list '%.100s': this process may only use cores %s",
                                list, have);
        }
        mask = want;
    }
    c->cpu = calloc((size_t)CPU_COUNT(&mask), sizeof(*c->cpu));
    if (!c->cpu)
        return zt_fault_set(fault, ZT_E_NOMEM, "cores: no memory");
    left = mask;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &left))
            continue;
        siblings(i, &core);
        CPU_AND(&c->cpu[c->num], &core, &left);
        CPU_SET(i, &c->cpu[c->num]);
        CPU_XOR(&left, &left, &c->cpu[c->num]);
        c->num++;
    }
    c->quota = cgroup_quota();
    return ZT_OK;
}

void zt_cores_release(struct zt_cores *c)
{
    free(c->cpu);
    *c = (struct zt_cores){0};
}

void zt_cores_share(const struct zt_cores *c, int local_rank, int local_world,
                    struct zt_core_share *out)
{
    int lo = 0, hi = c->num;

    *out = (struct zt_core_share){.bind = true};
    if (c->num < local_world) {
        out->bind = false;
        out->crowded = true;
    } else {
        lo = (int)((int64_t)c->num * local_rank / local_world);
        hi = (int)((int64_t)c->num * (local_rank + 1) / local_world);
    }
    for (int i = lo; i < hi; i++)
        CPU_OR(&out->mask, &out->mask, &c->cpu[i]);
    out->threads = out->crowded ? 1 : hi - lo;
    if (c->quota && out->threads > c->quota / local_world)
        out->threads = c->quota / local_world;
    if (out->threads < 1)
        out->threads = 1;
    if (c->quota && c->quota < local_world)
        out->crowded = true;
}

void zt_cores_text(const cpu_set_t *mask, char *out, size_t out_bytes)
{
    size_t at = 0;

    out[0] = 0;
    for (int i = 0; i < CPU_SETSIZE && at + 1 < out_bytes; i++) {
        int from = i;

        if (!CPU_ISSET(i, mask))
            continue;
        while (i + 1 < CPU_SETSIZE && CPU_ISSET(i + 1, mask))
            i++;
        at += (size_t)snprintf(out + at, out_bytes - at, from == i ? "%s%d" : "%s%d-%d",
                               at ? "," : "", from, i);
    }
}
