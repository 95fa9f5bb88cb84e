/*
 * estimate.h -- --estimate: model state by DeepSpeed's own formulas, from two numbers.
 *
 * They know nothing of a model but its parameters and its largest layer, and count
 * neither activations nor buffers. --dry_run plans a run exactly.
 */
#ifndef LAUNCHER_PLAN_ESTIMATE_H
#define LAUNCHER_PLAN_ESTIMATE_H

#include <stdbool.h>
#include <stdio.h>

#include "common/fault.h"

struct zt_estimate {
    double parameters, largest_layer; /* the second 0: not known, no stage 3 */
    int gpus, nodes;                  /* gpus: of each node */
};

/* Bytes of a node's host memory and of each of its GPUs. */
struct zt_estimate_need {
    double host, gpu;
};
struct zt_estimate_need zt_estimate_stage2(const struct zt_estimate *e, bool optimizer);
struct zt_estimate_need zt_estimate_stage3(const struct zt_estimate *e, bool params,
                                           bool optimizer, bool zero_init);

/* "2783M:65M", "1.5B", "124439808:38597376"; ZT_E_USAGE. */
zt_err zt_estimate_parse(const char *text, struct zt_estimate *out,
                         struct zt_fault *fault) ZT_MUST_CHECK;
/* The tables, as text or as JSON lines. */
void zt_estimate_print(const struct zt_estimate *e, bool json, FILE *out);

#endif
