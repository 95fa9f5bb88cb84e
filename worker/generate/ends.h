/*
 * ends.h -- the tokens that end a text, as the files of a model say.
 *
 * eos_token_id of generation_config.json, a number or a list; else the eos_token of the run's
 * tokenizer; else eos_token_id of config.json. Where tokens are bytes: end-of-text.
 */
#ifndef WORKER_GENERATE_ENDS_H
#define WORKER_GENERATE_ENDS_H

#include "worker/engine/engine.h"

#define ZT_MAX_ENDS 64

struct zt_ends {
    int32_t ids[ZT_MAX_ENDS];
    int num;
};

/* Of the text (n) of a JSON file; *out is empty where it has no eos_token_id. ZT_E_FORMAT: it
 * is no JSON object, or the id is no token of a vocabulary of `vocab`. */
zt_err zt_ends_parse(const char *name, const char *text, size_t n, int64_t vocab,
                     struct zt_ends *out, struct zt_fault *fault) ZT_MUST_CHECK;

zt_err zt_ends_find(const struct zt_engine *e, struct zt_ends *out,
                    struct zt_fault *fault) ZT_MUST_CHECK;

#endif
