/*
 * tokenizer_files.h -- the tokenizer beside weights that were trained with it, so that
 * transformers, and prompts here, find all of a model in one folder.
 */
#ifndef WORKER_CHECKPOINT_TOKENIZER_FILES_H
#define WORKER_CHECKPOINT_TOKENIZER_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/fault.h"

/* By its name: one that transformers writes with a tokenizer, or generation_config.json. */
bool zt_is_tokenizer_file(const char *name);

/* A file of a tokenizer in the folder `dir`, by its path; false: it has none. */
bool zt_find_tokenizer(const char *dir, char found[PATH_MAX]) ZT_MUST_CHECK;

/* ZT_E_NOINPUT: one of them is in the folder, and may not be read. */
zt_err zt_check_tokenizer_files(const char *dir, struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Those that are in the folder `tokenizer`, or in `model` where that is NULL, into `dir`,
 * synced; generation_config.json comes from `model`. NULL, and "" of `tokenizer`: none. `replaces`: the weights are in
 * the place of a model, and what there is of its tokenizer goes. `end`: a token that is one of
 * the ends in generation_config.json from then on; -1: none. ZT_E_CANTCREATE.
 */
zt_err zt_copy_tokenizer(const char *tokenizer, const char *model, const char *dir,
                         bool replaces, int64_t end,
                         struct zt_fault *fault) ZT_MUST_CHECK;

#endif
