/*
 * run_resolve.h -- from options and config items to the numbers of a struct zt_run.
 *
 * One decision per key: the file's value, unless an explicit option says otherwise (then
 * it is a contradiction); "auto" and absent values come from the option or a default.
 * Every decision is put into the resolved tree with its origin.
 * Threads: one.
 */
#ifndef COMMON_RUN_RESOLVE_H
#define COMMON_RUN_RESOLVE_H

#include "common/config.h"
#include "common/run.h"

/* The first half of every field; problems go to c->report. */
void zt_resolve_all(struct zt_config *c, struct zt_run *run);
void zt_resolve_optimizer(struct zt_config *c, struct zt_run *run);
void zt_resolve_scheduler(struct zt_config *c, struct zt_run *run);
void zt_resolve_batch(struct zt_config *c, struct zt_run *run);
void zt_resolve_zero(struct zt_config *c, struct zt_run *run);

/* The second half, once data and model are known. */
void zt_resolve_steps(struct zt_config *c, struct zt_run *run, int64_t total);
void zt_resolve_sizes(struct zt_config *c, struct zt_run *run, int64_t hidden_size);

/* What the two halves share: `path` may be "auto" for `option` (NULL: for none); with
 * neither file nor explicit option it is `absent` (JSON text), or, when that is NULL, the
 * option's default. Never NULL while memory lasts; then a null node. */
const struct zt_jnode *zt_resolve(struct zt_config *c, const char *path,
                                  const char *option, const char *absent);
double zt_resolve_real(struct zt_config *c, const char *path, const char *option,
                       const char *absent);
int64_t zt_resolve_int(struct zt_config *c, const char *path, const char *option,
                       const char *absent);
bool zt_resolve_truth(struct zt_config *c, const char *path, const char *option,
                      const char *absent);

/* The option's value when anybody gave it; NULL: it is its default. */
const struct zt_value *zt_explicit(const struct zt_config *c, const char *option);
/* What a problem with this value is: ZT_E_CONFIG when a file gave it, else ZT_E_USAGE. */
zt_err zt_code_of(const struct zt_value *v);
/* Nodes from C values. */
struct zt_jnode *zt_int_node(struct zt_keep *keep, int64_t value);
struct zt_jnode *zt_real_node(struct zt_keep *keep, double value);
double zt_node_real(const struct zt_jnode *node);
int64_t zt_node_int(const struct zt_jnode *node);

#endif
