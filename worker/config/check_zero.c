/* check_zero.c -- what does not go together in the ZeRO section. */
#include "worker/config/resolve.h"

static void check_groups(struct zt_config *c, const struct zt_run *run)
{
    int group = run->zero.hpz_partition_size;

    if (group > 1 && run->zero.stage != 3)
        zt_problems_add(&c->report, ZT_E_CONFIG,
                        "zero_optimization.zero_hpz_partition_size %d needs stage 3, "
                        "not %d",
                        group, run->zero.stage);
    else if (group > 1 && run->world % group)
        zt_problems_add(&c->report, ZT_E_CONFIG,
                        "zero_optimization.zero_hpz_partition_size %d does not divide "
                        "the %d ranks",
                        group, run->world);
}

/* Neither transformers nor DeepSpeed has a value for it; accelerate's --zero_stage has. */
static void check_stage_is_known(struct zt_config *c)
{
    const struct zt_item *stage = zt_config_find(c, "zero_optimization.stage");

    if (stage && stage->is_auto)
        zt_problems_add(&c->report, ZT_E_CONFIG,
                        "%s: \"zero_optimization.stage\" is \"auto\", and nothing says "
                        "which; write 0, 1, 2 or 3, or give --zero_stage",
                        stage->where);
}

void zt_check_zero(struct zt_config *c, const struct zt_run *run)
{
    const struct zt_value *share = zt_args_value(c->args, "share_node_weights");

    check_stage_is_known(c);
    check_groups(c, run);
    if (run->zero.share_node_weights && run->zero.stage != 1 && run->zero.stage != 2)
        zt_problems_add(&c->report, zt_value_error(share),
                        "%s is for ZeRO stages 1 and 2, not %d", share->where,
                        run->zero.stage);
}
