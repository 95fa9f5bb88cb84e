/* rules.c -- what rows name: words, defaults that depend on other values, "auto". */
#include <math.h>

#include "worker/config/schema/rows.h"

const struct zt_enum_word zt_dtype_words[] = {
    {"fp32", ZT_F32},
    {"bf16", ZT_BF16},
    {"fp16", ZT_F16},
    {.word = NULL},
};

const struct zt_enum_word zt_offload_words[] = {
    {"none", ZT_OFFLOAD_NONE},
    {"cpu", ZT_OFFLOAD_CPU},
    {"nvme", ZT_OFFLOAD_NVME},
    {.word = NULL},
};

/* As in DeepSpeed: stage 3 overlaps unless it is told not to. */
const char *zt_default_overlap_comm(const struct zt_run *run)
{
    return run->zero.stage == 3 ? "true" : "false";
}

/* The rules of Hugging Face's Trainer for "auto". */
static double squared(double hidden)
{
    return hidden * hidden;
}

static double nine_tenths_squared(double hidden)
{
    return floor(0.9 * hidden * hidden);
}

static double tenfold(double hidden)
{
    return 10 * hidden;
}

const struct zt_auto_rule zt_auto_reduce_bucket = {"hidden size squared", squared};
const struct zt_auto_rule zt_auto_prefetch_bucket = {"0.9 x hidden size squared",
                                                     nine_tenths_squared};
const struct zt_auto_rule zt_auto_persistence = {"10 x hidden size", tenfold};
