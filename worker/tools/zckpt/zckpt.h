/* zckpt.h -- the commands of zckpt, one function each; main.c has their table. */
#ifndef WORKER_TOOLS_ZCKPT_ZCKPT_H
#define WORKER_TOOLS_ZCKPT_ZCKPT_H

#include "common/options/options.h"
#include "worker/tools/source.h"

zt_err zt_zckpt_ls(const zt_args *args, const char *const *words, int num_words,
                   struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_zckpt_verify(const zt_args *args, const char *const *words, int num_words,
                       struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_zckpt_diff(const zt_args *args, const char *const *words, int num_words,
                     struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_zckpt_convert(const zt_args *args, const char *const *words, int num_words,
                        struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_zckpt_average(const zt_args *args, const char *const *words, int num_words,
                        struct zt_fault *fault) ZT_MUST_CHECK;
/* What is written replaces no file and no model, unless asked to (--overwrite). ZT_E_CANTCREATE. */
zt_err zt_zckpt_check_out(const char *out, const zt_args *args,
                          struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_zckpt_prune(const zt_args *args, const char *const *words, int num_words,
                      struct zt_fault *fault) ZT_MUST_CHECK;

#endif
