#include "worker/engine/cpu_isa.h"

#include <stdlib.h>
#include <unistd.h>

#include "common/log.h"
#include "kernels/backend.h"
#include "kernels/cpu/features.h"

/* What a rank tells the others. */
struct rank_features {
    uint32_t features;
    char host[60]; /* its beginning, if it is longer */
};

static zt_cpu_isa isa_of(const struct rank_features *r)
{
    return zt_cpu_isa_of(r->features);
}

/* Levels differ, or what the processors of one level are good at. */
static void log_differences(const struct rank_features *all, int world)
{
    int low = 0, high = 0, other = 0;

    for (int r = 1; r < world; r++) {
        if (all[r].features == ZT_CPU_ANY_FEATURES)
            continue;
        low = isa_of(&all[r]) < isa_of(&all[low]) ? r : low;
        high = isa_of(&all[r]) > isa_of(&all[high]) ? r : high;
        other = !other && all[r].features != all[0].features ? r : other;
    }
    if (low != high)
        zt_warn("cpu",
                "ranks may use different instructions: all use %s, the highest level "
                "of rank %d (host %s); rank %d (host %s) has %s",
                zt_cpu_isa_name(isa_of(&all[low])), low, all[low].host, high,
                all[high].host, zt_cpu_isa_name(isa_of(&all[high])));
    else if (other)
        zt_warn("cpu",
                "products of bf16 are faster than of fp32 on one of rank 0 (host %s) and "
                "rank %d (host %s) and not on the other: all ranks multiply fp32",
                all[0].host, other, all[other].host);
}

zt_err zt_cpu_isa_agree(struct zt_comm *c, unsigned features, struct zt_fault *fault)
{
    int world = zt_comm_world(c);
    struct rank_features mine = {.features = features}, *all;
    unsigned common = features;
    zt_err rc;

    all = calloc((size_t)world, sizeof(*all));
    if (!all)
        return zt_fault_set(fault, ZT_E_NOMEM,
                            "comparing instructions of %d ranks: no host memory", world);
    gethostname(mine.host, sizeof(mine.host) - 1);
    rc = zt_all_gather(c, &mine, all, sizeof(mine), ZT_U8, fault);
    for (int r = 0; !rc && r < world; r++)
        common = zt_cpu_common_features(common, all[r].features);
    if (!rc && features != ZT_CPU_ANY_FEATURES)
        rc = zt_cpu_limit_features(common, fault);
    if (!rc && features != ZT_CPU_ANY_FEATURES && zt_comm_rank(c) == 0) {
        log_differences(all, world);
        zt_info("cpu", "%s", zt_cpu_describe());
    }
    free(all);
    return rc;
}
