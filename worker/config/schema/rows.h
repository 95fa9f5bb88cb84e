/*
 * rows.h -- how the files of the key table write a row; for these alone.
 */
#ifndef WORKER_CONFIG_SCHEMA_ROWS_H
#define WORKER_CONFIG_SCHEMA_ROWS_H

#include "worker/config/run.h"
#include "worker/config/schema/schema.h"

/* path, type, status, default (JSON text), and whatever else the row has */
#define K(path_, type_, status_, def_, ...)                                              \
    {                                                                                    \
        .path = path_, .type = ZT_KEY_##type_, .status = ZT_##status_, .def = def_,      \
        __VA_ARGS__                                                                      \
    }

/* .store = IN_RUN(zero.stage): the member of struct zt_run that the value goes to;
 * IN_RUN_BY(zero.communication_dtype, words): an enum. */
#define IN_RUN(member)           ZT_MEMBER_OF(struct zt_run, member)
#define IN_RUN_BY(member, words) ZT_ENUM_MEMBER_OF(struct zt_run, member, words)

/* What DeepSpeed has and we do not; derive.c completes them. In optim.c. */
extern const struct zt_key zt_keys_other_optimizers[];
extern const struct zt_key zt_keys_other_schedules[];

/* What rows name; in rules.c. */
extern const struct zt_enum_word zt_dtype_words[], zt_offload_words[];
extern const struct zt_auto_rule zt_auto_reduce_bucket, zt_auto_prefetch_bucket,
    zt_auto_persistence;
const char *zt_default_overlap_comm(const struct zt_run *run);

#endif
