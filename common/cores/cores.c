#include "common/cores/cores.h"

#include "common/cores/private.h"
#include "common/process/cgroups.h"
#include "common/sysfile.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
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

/* Hardware threads of the core that `cpu` is on; just itself if the kernel does not tell.
 */
static void siblings(int cpu, cpu_set_t *out)
{
    char path[96], line[512];

    snprintf(path, sizeof(path),
             "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    if (!zt_sysfile_line(path, line, sizeof(line)) || !parse_list(line, out)) {
        CPU_ZERO(out);
        CPU_SET(cpu, out);
    }
}

/* Whole processors whose time the control groups give, rounded up; 0: no limit. */
static int cgroup_quota(void)
{
    double cpus = zt_cgroups_read_cpus("");

    return cpus < INT_MAX ? (int)ceil(cpus) : 0;
}

/* Does Linux know more than one NUMA node? Only then is there anything to ask hwloc. */
static bool many_nodes(void)
{
    char line[512];
    cpu_set_t nodes;

    if (getenv("HWLOC_SYNTHETIC") || getenv("HWLOC_XMLFILE"))
        return true;
    return zt_sysfile_line("/sys/devices/system/node/online", line, sizeof(line)) &&
           parse_list(line, &nodes) && CPU_COUNT(&nodes) > 1;
}

/* Each processor of `mask` with its hardware threads, in order of numbers. */
static zt_err cores_of_mask(struct zt_cores *c, const cpu_set_t *mask,
                            struct zt_fault *fault)
{
    cpu_set_t left = *mask, threads;

    c->core = calloc((size_t)CPU_COUNT(mask), sizeof(*c->core));
    if (!c->core)
        return zt_fault_set(fault, ZT_E_NOMEM, "cores: no memory");
    c->num_nodes = 1;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        struct zt_core *core = &c->core[c->num];

        if (!CPU_ISSET(i, &left))
            continue;
        siblings(i, &threads);
        CPU_AND(&core->cpu, &threads, &left);
        CPU_SET(i, &core->cpu);
        CPU_XOR(&left, &left, &core->cpu);
        core->node = core->memory = -1;
        c->num++;
    }
    return ZT_OK;
}

/* *mask: what may be used; cut down to `list`. */
static zt_err apply_list(cpu_set_t *mask, const char *list, struct zt_fault *fault)
{
    cpu_set_t want, both;
    char have[256];

    if (!parse_list(list, &want))
        return zt_fault_set(fault, ZT_E_USAGE,
                            "core list '%.100s': expected numbers up to %d and ranges, "
                            "such as 1,3-5,7",
                            list, CPU_SETSIZE - 1);
    CPU_AND(&both, &want, mask);
    if (!CPU_EQUAL(&both, &want)) {
        zt_cores_text(mask, have, sizeof(have));
        return zt_fault_set(fault, ZT_E_USAGE,
                            "core list '%.100s': this process may only use cores %s",
                            list, have);
    }
    *mask = want;
    return ZT_OK;
}

zt_err zt_cores_init(struct zt_cores *c, const char *list, struct zt_fault *fault)
{
    cpu_set_t mask;
    zt_err rc = ZT_OK;

    *c = (struct zt_cores){0};
    if (sched_getaffinity(0, sizeof(mask), &mask) < 0)
        return zt_fault_set(fault, ZT_E_SYSTEM, "affinity mask: %s", strerror(errno));
    if (list)
        rc = apply_list(&mask, list, fault);
    if (rc)
        return rc;
    c->quota = cgroup_quota();
    /* where hwloc does not know all of the mask (containers), the kernel's word counts */
    if (many_nodes() && zt_cores_topology(c, NULL, &mask))
        return ZT_OK;
    return cores_of_mask(c, &mask, fault);
}

zt_err zt_cores_init_synthetic(struct zt_cores *c, const char *machine, const char *list,
                               struct zt_fault *fault)
{
    cpu_set_t mask;
    zt_err rc;

    *c = (struct zt_cores){0};
    memset(&mask, 0xff, sizeof(mask));
    if (!zt_cores_topology(c, machine, &mask))
        return zt_fault_set(fault, ZT_E_USAGE, "'%.100s' is no machine", machine);
    if (!list)
        return ZT_OK;
    CPU_ZERO(&mask);
    for (int i = 0; i < c->num; i++)
        CPU_OR(&mask, &mask, &c->core[i].cpu);
    zt_cores_release(c);
    rc = apply_list(&mask, list, fault);
    if (!rc && !zt_cores_topology(c, machine, &mask))
        rc = zt_fault_set(fault, ZT_E_NOMEM, "cores: no memory");
    return rc;
}

void zt_cores_release(struct zt_cores *c)
{
    free(c->core);
    *c = (struct zt_cores){0};
}

/* ------------------------------------------------------------------ shares */

#define MAX_NODES 1024

struct span {
    int first, num; /* cores */
    int ranks;
};

/* The NUMA nodes as runs of cores; their number, 0: too many of them. */
static int find_spans(const struct zt_cores *c, struct span *spans)
{
    int n = 0;

    for (int i = 0; i < c->num; i++) {
        if (i == 0 || c->core[i].node != c->core[i - 1].node) {
            if (n == MAX_NODES)
                return 0;
            spans[n++] = (struct span){.first = i};
        }
        spans[n - 1].num++;
    }
    return n;
}

/*
 * Rank by rank, always to the node that would have the most cores for each of its ranks:
 * nothing else makes the smallest share larger. False: C2 does not hold.
 */
static bool spread(struct span *spans, int n, int cores, int ranks)
{
    assert(ranks > 0);
    for (int r = 0; r < ranks; r++) {
        struct span *best = &spans[0];

        for (int i = 1; i < n; i++) /* num / (ranks + 1) is larger than the best's */
            if ((int64_t)spans[i].num * (best->ranks + 1) >
                (int64_t)best->num * (spans[i].ranks + 1))
                best = &spans[i];
        best->ranks++;
    }
    for (int i = 0; i < n; i++)
        if (spans[i].ranks && spans[i].num / spans[i].ranks < cores / ranks)
            return false;
    return true;
}

static void even_part(int first, int num, int i, int n, int *lo, int *hi)
{
    assert(n > 0);
    *lo = first + (int)((int64_t)num * i / n);
    *hi = first + (int)((int64_t)num * (i + 1) / n);
}

/* The cores from *lo to below *hi are the rank's. */
static void find_part(const struct zt_cores *c, int rank, int ranks, int *lo, int *hi)
{
    struct span spans[MAX_NODES];
    int n = find_spans(c, spans);

    if (!n || !spread(spans, n, c->num, ranks)) {
        even_part(0, c->num, rank, ranks, lo, hi);
        return;
    }
    for (int i = 0; i < n; i++) {
        if (rank < spans[i].ranks) {
            even_part(spans[i].first, spans[i].num, rank, spans[i].ranks, lo, hi);
            return;
        }
        rank -= spans[i].ranks;
    }
}

static void find_node(const struct zt_cores *c, int lo, int hi, struct zt_core_share *out)
{
    if (lo == hi)
        return;
    for (int i = lo + 1; i < hi; i++)
        if (c->core[i].node != c->core[lo].node)
            return;
    out->node = c->core[lo].node;
    out->memory = c->core[lo].memory;
}

void zt_cores_share(const struct zt_cores *c, int local_rank, int local_world,
                    struct zt_core_share *out)
{
    int lo = 0, hi = c->num;

    assert(local_world > 0);
    *out = (struct zt_core_share){.bind = true, .node = -1, .memory = -1};
    if (c->num < local_world) {
        out->bind = false;
        out->crowded = true;
    } else {
        find_part(c, local_rank, local_world, &lo, &hi);
        find_node(c, lo, hi, out);
    }
    for (int i = lo; i < hi; i++)
        CPU_OR(&out->mask, &out->mask, &c->core[i].cpu);
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
