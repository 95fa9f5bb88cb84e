/*
 * context.h -- how many texts are written at once, and which tokens of a growing text the
 * next pass is fed.
 *
 *      0        start             fed         n
 *      | forgotten | in the cache  | from here |        with a cache
 *      | forgotten | from here ............... |        without
 *
 * A text that outgrows the context goes on behind its second half, whether there is a
 * cache or not: both ways see the same tokens. The plan of memory walks the same passes.
 */
#ifndef WORKER_ENGINE_CONTEXT_H
#define WORKER_ENGINE_CONTEXT_H

#include "worker/config/run.h"

struct zt_context {
    int64_t size; /* most tokens of a pass and the cache together */
    bool cached;
    int64_t start, fed;
};

/*
 * What a rank writes at once: `rows` texts, of which `each` belong to one prompt (beams, or
 * sequences to return), and the tokens of a text that are seen together, at most.
 */
struct zt_generation {
    int64_t rows, each, tokens;
    int64_t cache_rows; /* the texts', and with beams one to change rows by */
    int64_t longest;    /* tokens of the longest prompt */
    bool restarts;      /* a text can outgrow `tokens` */
    /* of a model that reads a source: so many at once, for so many rows each, of at most so
     * many tokens; else 0 */
    int64_t num_sources, source_rows, source_tokens;
};
/* longest: tokens of the longest prompt. text_size: most that a text sees at once. source_size: most tokens of a source, of a model that
 * reads the prompt as one; else 0. */
struct zt_generation zt_generation_of(const struct zt_run *run, int64_t num_prompts,
                                      int64_t longest, int64_t text_size,
                                      int64_t source_size);

/* A text of `n` tokens so far; of a longer one than `size` the end counts. */
void zt_context_begin(struct zt_context *c, int64_t size, bool cached, int64_t n);

/* The pass behind `n` tokens is fed those from the returned one on. *restart: what is in
 * the cache is to be forgotten first. */
int64_t zt_context_next(struct zt_context *c, int64_t n, bool *restart);

#endif
