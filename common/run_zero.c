/* run_zero.c -- the ZeRO section of a config, and how gradients travel. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/run_resolve.h"

#define Z(name) "zero_optimization." name

static zt_dtype resolve_dtype(struct zt_config *c, const char *path)
{
    const char *text = zt_resolve(c, path, NULL, "fp32")->text;

    if (!text || !strcmp(text, "fp32"))
        return ZT_F32;
    return strcmp(text, "bf16") ? ZT_F16 : ZT_BF16;
}

static void resolve_gradients(struct zt_config *c, struct zt_zero_options *o)
{
    o->communication_dtype = resolve_dtype(c, "communication_data_type");
    o->grad_accum_dtype = resolve_dtype(c, "data_types.grad_accum_dtype");
    o->prescale_gradients = zt_resolve_truth(c, "prescale_gradients", NULL, "false");
    o->predivide_factor = zt_resolve_real(c, "gradient_predivide_factor", NULL, "1.0");
    o->reduce_scatter = zt_resolve_truth(c, Z("reduce_scatter"), NULL, "true");
    o->reduce_bucket_size = zt_resolve_int(c, Z("reduce_bucket_size"), NULL, "500000000");
    o->allgather_partitions =
        zt_resolve_truth(c, Z("allgather_partitions"), NULL, "true");
    o->allgather_bucket_size =
        zt_resolve_int(c, Z("allgather_bucket_size"), NULL, "500000000");
    o->sub_group_size = zt_resolve_int(c, Z("sub_group_size"), NULL, "1000000000");
    o->ignore_unused_parameters =
        zt_resolve_truth(c, Z("ignore_unused_parameters"), NULL, "true");
}

/* The older name of a key decides where the newer one is not written. */
static bool resolve_renamed(struct zt_config *c, const char *path, const char *older)
{
    const struct zt_item *old = zt_config_find(c, older);

    if (!old || old->is_auto || zt_config_find(c, path))
        return zt_resolve_truth(c, path, NULL, "false");
    zt_config_set(c, path, old->value, old->where);
    return old->value->truth;
}

static void resolve_stage3(struct zt_config *c, struct zt_zero_options *o)
{
    o->prefetch_bucket_size =
        zt_resolve_int(c, Z("stage3_prefetch_bucket_size"), NULL, "50000000");
    o->param_persistence_threshold =
        zt_resolve_int(c, Z("stage3_param_persistence_threshold"), NULL, "100000");
    o->model_persistence_threshold = zt_resolve_int(
        c, Z("stage3_model_persistence_threshold"), NULL, "9223372036854775807");
    o->max_live_parameters =
        zt_resolve_int(c, Z("stage3_max_live_parameters"), NULL, "1000000000");
    o->max_reuse_distance =
        zt_resolve_int(c, Z("stage3_max_reuse_distance"), NULL, "1000000000");
    o->gather_16bit_on_save =
        resolve_renamed(c, Z("stage3_gather_16bit_weights_on_model_save"),
                        Z("stage3_gather_fp16_weights_on_model_save"));
    o->hpz_partition_size =
        (int)zt_resolve_int(c, Z("zero_hpz_partition_size"), NULL, "1");
}

static void check_groups(struct zt_config *c, const struct zt_run *run)
{
    int group = run->zero.hpz_partition_size;

    if (group > 1 && run->zero.stage != 3)
        zt_report_problem(&c->report, ZT_E_CONFIG,
                          Z("zero_hpz_partition_size") " %d needs stage 3, not %d", group,
                          run->zero.stage);
    else if (group > 1 && run->world % group)
        zt_report_problem(&c->report, ZT_E_CONFIG,
                          Z("zero_hpz_partition_size") " %d does not divide the %d ranks",
                          group, run->world);
}

static void check_sharing(struct zt_config *c, struct zt_run *run)
{
    const struct zt_value *share = zt_args_value(c->args, "share_node_weights");

    run->zero.share_node_weights = share->truth;
    if (share->truth && run->zero.stage != 1 && run->zero.stage != 2)
        zt_report_problem(&c->report, zt_code_of(share),
                          "%s is for ZeRO stages 1 and 2, not %d", share->where,
                          run->zero.stage);
}

void zt_resolve_zero(struct zt_config *c, struct zt_run *run)
{
    struct zt_zero_options *o = &run->zero;

    o->stage = (int)zt_resolve_int(c, Z("stage"), NULL, "0");
    o->overlap_comm =
        zt_resolve_truth(c, Z("overlap_comm"), NULL, o->stage == 3 ? "true" : "false");
    resolve_gradients(c, o);
    resolve_stage3(c, o);
    check_groups(c, run);
    check_sharing(c, run);
}

/* ---- what follows from the model's width ---- */

static int64_t settle(struct zt_config *c, const char *path, int64_t given, double value,
                      const char *rule)
{
    const struct zt_item *item = zt_config_find(c, path);

    if (!item || !item->is_auto || value <= 0 || value > 9e18)
        return given;
    zt_config_set(c, path, zt_int_node(&c->keep, (int64_t)value), rule);
    return (int64_t)value;
}

void zt_resolve_sizes(struct zt_config *c, struct zt_run *run, int64_t hidden_size)
{
    struct zt_zero_options *o = &run->zero;
    double h = (double)hidden_size;

    o->reduce_bucket_size = settle(c, Z("reduce_bucket_size"), o->reduce_bucket_size,
                                   h * h, "auto: hidden size squared");
    o->prefetch_bucket_size =
        settle(c, Z("stage3_prefetch_bucket_size"), o->prefetch_bucket_size,
               floor(0.9 * h * h), "auto: 0.9 x hidden size squared");
    o->param_persistence_threshold =
        settle(c, Z("stage3_param_persistence_threshold"), o->param_persistence_threshold,
               10 * h, "auto: 10 x hidden size");
}
