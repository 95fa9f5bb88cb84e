/* ztok.h -- what ztok does: one of these. */
#ifndef WORKER_TOOLS_ZTOK_ZTOK_H
#define WORKER_TOOLS_ZTOK_ZTOK_H

#include "common/mapped_file.h"
#include "worker/tools/tool.h"

/* A text to be read: mapped, and refused (ZT_E_FORMAT) where zero bytes tell that it is none. */
zt_err zt_ztok_open_text(const char *name, struct zt_mapping *out,
                         struct zt_fault *fault) ZT_MUST_CHECK;

/* A column is asked for, and none of the files has any: ZT_E_USAGE. */
zt_err zt_ztok_check_column(const char *column, const char *const *names, int num,
                            struct zt_fault *fault) ZT_MUST_CHECK;

/* The files `words` to ids: --tokenizer, --out, --text_column, --threads. */
zt_err zt_ztok_encode(const zt_args *args, const char *const *words, int num_words,
                      struct zt_fault *fault) ZT_MUST_CHECK;
/* A tokenizer of them: --train, --out, --text_column. */
zt_err zt_ztok_train(const zt_args *args, const char *const *words, int num_words,
                     struct zt_fault *fault) ZT_MUST_CHECK;

#endif
