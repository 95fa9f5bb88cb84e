/*
 * lines.h -- a text encoded line by line, by several threads, in the order of its lines.
 *
 * A line is what stands up to a line feed, with it; the last one may have none. Each is
 * encoded by itself and framed by what the post-processor puts, as run_clm of transformers
 * does with a text file. So ids do not depend on the number of threads.
 *
 * Memory: a piece of about 1 MiB of text for each thread, or of one line where that is
 *         longer; its ids until the pieces before it are done.
 */
#ifndef WORKER_TEXT_LINES_H
#define WORKER_TEXT_LINES_H

#include "worker/text/tokenizer.h"

/* Some lines' ids, the next ones in order; one call at a time, from any thread. `bytes`:
 * of the text, up to and with these lines. */
typedef zt_err (*zt_lines_sink)(void *user, const int32_t *ids, size_t num,
                                const uint32_t *line_tokens, size_t num_lines,
                                size_t bytes, struct zt_fault *fault);

struct zt_lines_job {
    const struct zt_tokenizer *tokenizer;
    const char *name; /* of the text, for messages */
    const char *text;
    size_t n;
    int threads; /* 0: one for each processor that this process may use */
    zt_lines_sink sink;
    void *user;
};

/* *replaced grows by the U+FFFD put for broken UTF-8. The first failure in the order of the
 * lines is the one reported; the sink is not called after it. */
zt_err zt_lines_encode(const struct zt_lines_job *job, uint64_t *replaced,
                       struct zt_fault *fault) ZT_MUST_CHECK;

#endif
