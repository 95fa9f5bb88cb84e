/*
 * gpu_placement.c -- which GPUs the ranks use: NCCL wants one for each.
 */
#include "worker/comm/nccl/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/sysfile.h"

#define BOOT_ID       "/proc/sys/kernel/random/boot_id"
#define NUM_OF(array) (sizeof(array) / sizeof((array)[0]))

void zt_nccl_placement_init(struct zt_nccl_placement *placement,
                            const struct zt_device_comm_config *cfg)
{
    memset(placement, 0, sizeof(*placement)); /* it travels, padding and all */
    placement->share_gpu = cfg->share_gpu;
    placement->ordered = cfg->ordered;
    gethostname(placement->host, sizeof(placement->host) - 1);
    zt_sysfile_line(BOOT_ID, placement->machine, sizeof(placement->machine));
}

static bool on_one_gpu(const struct zt_nccl_placement *a,
                       const struct zt_nccl_placement *b)
{
    return !strcmp(a->machine, b->machine) && !strcmp(a->gpu, b->gpu);
}

static zt_err check_rank(const struct zt_nccl_placement *all, int r,
                         struct zt_fault *fault)
{
    const struct zt_nccl_placement *p = &all[r], *first = &all[0];

    if (p->rc)
        return zt_fault_set(fault, (zt_err)p->rc,
                            "comm: rank %d on %s cannot take part: %s", r, p->host,
                            p->why);
    if (p->version != first->version)
        return zt_fault_set(
            fault, ZT_E_UNSUPPORTED,
            "comm: rank %d on %s has version %d of NCCL, rank 0 on %s has "
            "%d: install the same on all hosts",
            r, p->host, p->version, first->host, first->version);
    if (p->ordered != first->ordered || p->share_gpu != first->share_gpu)
        return zt_fault_set(fault, ZT_E_ARG,
                            "comm: ranks 0 and %d want different kinds of communicators "
                            "on a device",
                            r);
    for (int q = 0; q < r; q++)
        if (!p->share_gpu && on_one_gpu(&all[q], p))
            return zt_fault_set(fault, ZT_E_PLAN,
                                "comm: ranks %d and %d are both on GPU %s of %s: start "
                                "fewer ranks there, or let each see a GPU of its own "
                                "(CUDA_VISIBLE_DEVICES)",
                                q, r, p->gpu, p->host);
    return ZT_OK;
}

/*
 * NCCL refuses two ranks of one host on one GPU. So with ranks that share one, the k-th
 * of those on a GPU says that it is on another host, also called k; what NCCL then finds
 * between "hosts" that are one must not be tried. What the user has set stays.
 */
static void set_host_ids(const struct zt_nccl_placement *all, int rank, int world)
{
    static const char *const off[][2] = {
        {"NCCL_IB_DISABLE", "1"},
        {"NCCL_MNNVL_ENABLE", "0"},
        {"NCCL_NVLS_ENABLE", "0"},
    };
    bool shared = false, one_machine = true;
    int k = 0;
    char name[64];

    for (int r = 0; r < world; r++) {
        for (int q = 0; q < r; q++)
            shared = shared || on_one_gpu(&all[q], &all[r]);
        one_machine = one_machine && !strcmp(all[r].machine, all[0].machine);
        k += r < rank && on_one_gpu(&all[r], &all[rank]);
    }
    if (!shared)
        return;
    snprintf(name, sizeof(name), "%s-%d", all[rank].machine, k);
    setenv("NCCL_HOSTID", name, 1);
    for (size_t i = 0; i < NUM_OF(off); i++)
        setenv(off[i][0], off[i][1], 0);
    if (one_machine)
        setenv("NCCL_SOCKET_IFNAME", "lo", 0);
}

zt_err zt_nccl_exchange_placements(struct zt_comm *host,
                                   const struct zt_nccl_placement *mine,
                                   struct zt_fault *fault)
{
    int rank = zt_comm_rank(host), world = zt_comm_world(host);
    struct zt_nccl_placement *all = calloc((size_t)world, sizeof(*all));
    zt_err rc;

    if (!all) {
        zt_comm_abort(host, rank); /* the others do not know */
        return zt_fault_set(fault, ZT_E_SYSTEM, "comm: out of memory");
    }
    rc = zt_all_gather(host, mine, all, sizeof(*mine), ZT_U8, fault);
    for (int r = 0; !rc && r < world; r++)
        rc = check_rank(all, r, fault);
    if (!rc && all[0].share_gpu)
        set_host_ids(all, rank, world);
    free(all);
    return rc;
}
