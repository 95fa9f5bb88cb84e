/*
 * ends.h -- the tokens that texts end with, and those that they must begin or end with, as the
 * files of a model say.
 *
 * eos_token_id of generation_config.json, a number or a list; else the eos_token of the run's
 * tokenizer; else eos_token_id of config.json. forced_bos_token_id and forced_eos_token_id of
 * generation_config.json; where there is no such file, of config.json as the model would be
 * saved with. Texts that a run trains on end with the token of its tokenizer, which is one of the
 * ends then. Where tokens are bytes: end-of-text, and none is forced.
 */
#ifndef WORKER_GENERATE_ENDS_H
#define WORKER_GENERATE_ENDS_H

#include "worker/engine/engine.h"

#define ZT_MAX_ENDS 64

struct zt_token_set {
    int32_t ids[ZT_MAX_ENDS];
    int num;
};

struct zt_ends {
    struct zt_token_set ends;
    struct zt_token_set forced_first, forced_last; /* empty: any token */
};

/* Of the text (n) of a JSON file; the sets of *out are empty where it does not have their keys.
 * ZT_E_FORMAT: it is no JSON object, or an id is no token of a vocabulary of `vocab`. */
zt_err zt_ends_parse(const char *name, const char *text, size_t n, int64_t vocab,
                     struct zt_ends *out, struct zt_fault *fault) ZT_MUST_CHECK;

/* What else generation_config.json says, and nobody takes from it, is told once. */
zt_err zt_ends_find(struct zt_engine *e, struct zt_ends *out,
                    struct zt_fault *fault) ZT_MUST_CHECK;

#endif
