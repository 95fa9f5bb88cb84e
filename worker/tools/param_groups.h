/*
 * param_groups.h -- with what the next step of a checkpoint is taken: of each parameter group
 * of its optimizer {"lr", "betas", "eps", "weight_decay"}, as far as the checkpoint says so.
 */
#ifndef WORKER_TOOLS_PARAM_GROUPS_H
#define WORKER_TOOLS_PARAM_GROUPS_H

#include <jansson.h>

#include "worker/tools/source.h"
#include "worker/torch_file/torch_write.h"

/* A list, for the caller to release; empty: it does not say. NULL: no memory. */
json_t *zt_param_groups_of(const struct zt_checkpoint_source *s);
/* The keys of group `g` and their values; of a group behind the last, those of the last. */
void zt_param_groups_put(const json_t *groups, size_t g, struct zt_torch_values *v);

#endif
