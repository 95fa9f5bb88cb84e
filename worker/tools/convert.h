/*
 * convert.h -- a source in a form that needs more than its values: one file each.
 *
 * Each prints one line about what it has written.
 */
#ifndef WORKER_TOOLS_CONVERT_H
#define WORKER_TOOLS_CONVERT_H

#include "worker/tools/source.h"

/* A file for llama.cpp; `type`: "f32", "f16", "bf16" or "q8_0". The model is told by the
 * config.json beside the source: GPT-2 and Llama kinds. */
zt_err zt_convert_to_gguf(struct zt_checkpoint_source *s, const char *to,
                          const char *type, struct zt_fault *fault) ZT_MUST_CHECK;
/* A checkpoint to resume from, with the moments that the source has: TO/global_stepN.
 * ZT_E_USAGE: the source is no checkpoint, or one of ours. */
zt_err zt_convert_to_zlaunch(struct zt_checkpoint_source *s, const char *to,
                             bool overwrite, struct zt_fault *fault) ZT_MUST_CHECK;
/* DeepSpeed's universal checkpoint, TO/global_stepN_universal, of a checkpoint with the
 * moments of Adam. ZT_E_USAGE: the source has none. */
zt_err zt_convert_to_universal(struct zt_checkpoint_source *s, const char *to,
                               bool overwrite, struct zt_fault *fault) ZT_MUST_CHECK;

#endif
