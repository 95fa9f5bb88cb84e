/*
 * options.h -- what options.def makes besides the members of struct zt_run: the table of
 * options (zt_run_options(), see run.h), where each is stored, and its key of a config.
 */
#ifndef WORKER_CONFIG_OPTIONS_H
#define WORKER_CONFIG_OPTIONS_H

#include "common/options/struct_member.h"
#include "worker/config/run.h"
#include "worker/config/schema/schema.h"

/* Of a row, beside the public flags: says nothing where the config has a scheduler. */
#define ZT_OPTION_OF_SCHEDULE 0x100u

/* Names that are known and are no options. */
extern const struct zt_foreign_names zt_run_foreign_names;

/* Options into their members of run, once all of them have their last value. */
void zt_run_store_options(struct zt_run *run, const zt_args *args);

#endif
