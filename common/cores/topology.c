/*
 * Cores and NUMA nodes, as hwloc sees them: it knows what the control group allows, the
 * order of cores in the machine, and memory that has no cores of its own.
 */
#include "common/cores/private.h"

#include <hwloc.h>
#include <stdlib.h>
#include <string.h>

static bool is_fast_memory(hwloc_obj_t node)
{
    return node->subtype &&
           (strcmp(node->subtype, "MCDRAM") == 0 || strcmp(node->subtype, "HBM") == 0);
}

/* Its NUMA node is the first that is local to it; fast memory beside that is better. */
static void find_node(hwloc_topology_t t, hwloc_obj_t core, struct zt_core *out)
{
    hwloc_obj_t node = NULL;

    out->node = out->memory = -1;
    while ((node = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, node))) {
        if (!core->nodeset || !hwloc_bitmap_isset(core->nodeset, node->os_index))
            continue;
        if (out->node < 0 && !is_fast_memory(node))
            out->node = (int)node->os_index;
        if (out->memory < 0 || is_fast_memory(node))
            out->memory = (int)node->os_index;
    }
    if (out->node < 0)
        out->node = out->memory;
}

static void find_threads(hwloc_obj_t core, const cpu_set_t *mask, cpu_set_t *out)
{
    int cpu;

    CPU_ZERO(out);
    for (cpu = hwloc_bitmap_first(core->cpuset); cpu >= 0;
         cpu = hwloc_bitmap_next(core->cpuset, cpu))
        if (cpu < CPU_SETSIZE && CPU_ISSET(cpu, mask))
            CPU_SET(cpu, out);
}

/* Cores of one node one after the other, nodes in the order they come in. */
static int group_by_node(struct zt_core *core, int num, struct zt_core *scratch)
{
    int num_nodes = 0, done = 0;

    memcpy(scratch, core, (size_t)num * sizeof(*core));
    for (int i = 0; i < num; i++) {
        bool known = false;

        for (int k = 0; k < done && !known; k++)
            known = core[k].node == scratch[i].node;
        if (known)
            continue;
        num_nodes++;
        for (int k = i; k < num; k++)
            if (scratch[k].node == scratch[i].node)
                core[done++] = scratch[k];
    }
    return num_nodes;
}

static bool read_cores(hwloc_topology_t t, struct zt_cores *c, const cpu_set_t *mask,
                       bool whole_mask)
{
    int max = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE), num = 0;
    struct zt_core *core = max > 0 ? calloc((size_t)max * 2, sizeof(*core)) : NULL;
    cpu_set_t seen;

    CPU_ZERO(&seen);
    for (int i = 0; core && i < max; i++) {
        hwloc_obj_t o = hwloc_get_obj_by_type(t, HWLOC_OBJ_CORE, (unsigned)i);

        find_threads(o, mask, &core[num].cpu);
        if (!CPU_COUNT(&core[num].cpu))
            continue;
        find_node(t, o, &core[num]);
        CPU_OR(&seen, &seen, &core[num].cpu);
        num++;
    }
    if (!num || (whole_mask && !CPU_EQUAL(&seen, mask))) {
        free(core);
        return false;
    }
    c->num = num;
    c->num_nodes = group_by_node(core, num, core + max);
    c->core = core;
    return true;
}

bool zt_cores_topology(struct zt_cores *c, const char *synthetic, const cpu_set_t *mask)
{
    hwloc_topology_t t;
    bool ok;

    if (hwloc_topology_init(&t))
        return false;
    ok = (!synthetic || hwloc_topology_set_synthetic(t, synthetic) == 0) &&
         hwloc_topology_load(t) == 0 && read_cores(t, c, mask, !synthetic);
    hwloc_topology_destroy(t);
    return ok;
}
