/*
 * lines.h -- a text encoded line by line, or records row by row, by several threads, in the
 * order of the file.
 *
 * A line is what stands up to a line feed, with it; the last one may have none. Each is
 * encoded by itself and framed by what the post-processor puts, as run_clm of transformers
 * does with a text file. So ids do not depend on the number of threads. Of records it is one
 * column's text that is encoded, and rows in which nothing stands are passed over.
 *
 * Memory: a piece of about 1 MiB of text for each thread, or of one line where that is
 *         longer; its ids until the pieces before it are done.
 */
#ifndef WORKER_TEXT_LINES_H
#define WORKER_TEXT_LINES_H

#include "worker/records/records.h"
#include "worker/text/chat.h"
#include "worker/text/rows/examples.h"
#include "worker/text/rows/pairs.h"

/* Some lines' ids, the next ones in order; one call at a time, from any thread. `bytes`:
 * of the text, up to and with these lines. Examples have ZT_EXAMPLE_WORDS in the place of each
 * line_tokens, and num_lines counts these. */
typedef zt_err (*zt_lines_sink)(void *user, const int32_t *ids, size_t num,
                                const uint32_t *line_tokens, size_t num_lines,
                                size_t bytes, struct zt_fault *fault);

struct zt_lines_job {
    const struct zt_tokenizer *tokenizer; /* NULL: an id is a byte, `end` follows a row */
    int32_t end;
    const struct zt_records *records; /* of the text; NULL: lines */
    const char *column;               /* of records */
    bool
        masked; /* of masked tokens: a line has no line feed, and blanks alone are no text */
    bool column_is_guessed;   /* by the first row: others may not be of another kind */
    struct zt_text_pair pair; /* of records that are pairs; zeroed: they are not */
    const struct zt_template
        *chat; /* the column's conversations become text by it; NULL */
    bool
        answers_only; /* of conversations, and targets of pairs; another id is given as ~id */
    const struct zt_example_spec *examples;   /* rows are that; NULL: they are texts */
    const struct zt_example_columns *columns; /* of examples */
    const char *name;                         /* of the text, for messages */
    const char *text;
    size_t n, from; /* from: 0, or where a sink was told that a text is done so far */
    int threads;    /* 0: one for each processor that this process may use */
    zt_lines_sink sink;
    void *user;
};

struct zt_lines_counts {
    uint64_t replaced; /* U+FFFD put for broken UTF-8 */
    uint64_t blank;    /* rows of records that were passed over */
};

/* *counts grows, and may be NULL; when the sink is called, these lines and all before them
 * are in it. The first failure in the order of the
 * lines is the one reported; the sink is not called after it. */
zt_err zt_lines_encode(const struct zt_lines_job *job, struct zt_lines_counts *counts,
                       struct zt_fault *fault) ZT_MUST_CHECK;

/* The same of a text that is such records; `column` as zt_records_find_text() takes it. One
 * that holds conversations, as its first row says, needs a tokenizer with a chat template. */
zt_err zt_lines_encode_records(const struct zt_lines_job *job,
                               const struct zt_record_format *format, const char *column,
                               struct zt_lines_counts *counts,
                               struct zt_fault *fault) ZT_MUST_CHECK;

/* What the rows of a file are taken for. */
typedef enum zt_lines_kind {
    ZT_LINES_PLAIN = 0, /* no texts of columns, or examples */
    ZT_LINES_TEXTS,
    ZT_LINES_PAIRS,
    ZT_LINES_CONVERSATIONS
} zt_lines_kind;

struct zt_lines_columns {
    zt_lines_kind kind;
    char *text;   /* the column; NULL: plain. Of pairs that of the source */
    char *target; /* of pairs */
};

/* As zt_lines_encode_records() finds them, in the first row, where it may be several kinds: plain
 * for a model that learns pairs alone. The caller releases them. */
zt_err zt_lines_find_columns(const struct zt_lines_job *job,
                             const struct zt_record_format *format, const char *column,
                             struct zt_lines_columns *out,
                             struct zt_fault *fault) ZT_MUST_CHECK;
void zt_lines_columns_release(struct zt_lines_columns *c); /* a zeroed struct is fine */

/* Whether zt_lines_encode_records() of this gives ~id for tokens that are no answers: they are
 * asked for, and rows have some. */
bool zt_lines_mark_context(const struct zt_lines_job *job,
                           const struct zt_lines_columns *columns);

#endif
