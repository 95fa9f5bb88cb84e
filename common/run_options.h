/* run_options.h -- what stands beside zt_run_options (see run.h): headings, aliases. */
#ifndef COMMON_RUN_OPTIONS_H
#define COMMON_RUN_OPTIONS_H

#include "common/options.h"
#include "common/run.h"

extern const struct zt_option_extra zt_run_extras[];

#endif
