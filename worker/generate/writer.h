/*
 * writer.h -- texts for all prompts of a run: the loop over tokens, whatever they are chosen
 * by.
 *
 * Prompt i is rank (i % world)'s. A rank writes as many texts at once as it has rows
 * (struct zt_generation); where one ends the next begins in its place. A text depends on the
 * seed, its prompt's number and its own among the prompt's: not on rank, batch or stage.
 *
 * Threads:   one, that of the engine.
 */
#ifndef WORKER_GENERATE_WRITER_H
#define WORKER_GENERATE_WRITER_H

#include "worker/generate/decoder.h"
#include "worker/generate/ends.h"
#include "worker/generate/logits.h"

/* A text that is done: prompt and continuation, without the token that ended it. */
struct zt_written {
    int32_t *ids;
    int64_t n, num_prompt;
    float score; /* of beam search */
};

struct zt_writer {
    struct zt_engine *e;
    const struct zt_prompts *prompts;
    int64_t first; /* number of the first text, for its random numbers */
    struct zt_decoder *decoder;
    struct zt_generation g;
    struct zt_logits_rules rules;
    struct zt_ends ends;

    /* A token of text 0 of prompt 0, as soon as it is chosen; NULL: nobody wants it. true:
     * the text ends here. */
    bool (*on_token)(void *user, int32_t id);
    void *user;

    struct zt_written *written; /* (own prompts, each): those of this rank, in order */
    int64_t num_written;
};

/*
 * Collective. Decoder and rules, as the run asks for them, for prompts of the engine.
 * zt_writer_release() closes what was opened, also of a call that failed. ZT_E_FORMAT: of the
 * files of the model.
 */
zt_err zt_writer_open(struct zt_writer *w, struct zt_engine *e,
                      const struct zt_prompts *prompts,
                      struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Collective: all texts, into w->written, which zt_writer_release() frees. ZT_E_NUMERIC: a
 * logit is NaN or +inf.
 */
zt_err zt_writer_run(struct zt_writer *w, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_writer_release(struct zt_writer *w);
/* The texts alone: others may be written, for prompts that are set anew. */
void zt_writer_forget(struct zt_writer *w);

#endif
