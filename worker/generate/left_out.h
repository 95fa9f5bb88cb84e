/*
 * left_out.h -- what generation_config.json, or where there is none config.json, says of texts and
 * nobody takes from it: how they are written is said by options alone.
 */
#ifndef WORKER_GENERATE_LEFT_OUT_H
#define WORKER_GENERATE_LEFT_OUT_H

#include "worker/engine/engine.h"

/* A warning for the members of the file at `path` that ask for other texts than the run writes:
 * those that an option asks for, and those that are not built. */
void zt_tell_of_left_out(const struct zt_run *run, const char *path);

#endif
