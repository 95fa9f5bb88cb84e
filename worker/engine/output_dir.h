/* output_dir.h -- the folder of --output_dir: there when something is saved in it. */
#ifndef WORKER_ENGINE_OUTPUT_DIR_H
#define WORKER_ENGINE_OUTPUT_DIR_H

#include "common/fault.h"

struct zt_engine;

/* The folder, with its parents; it is fine if it is there. ZT_E_CANTCREATE when it cannot
 * be made or written to. */
zt_err zt_output_dir_make(const char *dir, struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Before training rather than after: that the folder of the run can be made and written to,
 * and that the disk has room for the weights, which is held where the file system can, until
 * zt_engine_save() takes it. A folder that was not there is not there afterwards: a run
 * that saves nothing leaves nothing. ZT_E_CANTCREATE.
 */
zt_err zt_output_dir_reserve(struct zt_engine *e, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
