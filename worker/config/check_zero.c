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

/* Gradients are divided by it before they are summed, and multiplied behind that. */
static void check_predivide(struct zt_config *c, const struct zt_run *run)
{
    bool f16 = run->zero.communication_dtype == ZT_F16;
    double most = f16 ? 65504 : 1e30, factor = run->zero.predivide_factor;

    if (factor > most || factor < 1 / most)
        zt_problems_add(&c->report, ZT_E_CONFIG,
                        "gradient_predivide_factor %g takes gradients out of the range "
                        "of %s; it is usually the number of ranks, or its root",
                        factor, f16 ? "fp16" : "single precision");
}

void zt_check_zero(struct zt_config *c, const struct zt_run *run)
{
    const struct zt_value *share = zt_args_value(c->args, "share_node_weights");

    check_stage_is_known(c);
    check_groups(c, run);
    check_predivide(c, run);
    if (run->zero.share_node_weights && run->zero.stage != 1 && run->zero.stage != 2)
        zt_problems_add(&c->report, zt_value_error(share),
                        "%s is for ZeRO stages 1 and 2, not %d", share->where,
                        run->zero.stage);
}
