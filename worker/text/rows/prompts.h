/*
 * prompts.h -- texts that a model is to continue, as token ids.
 *
 * They are given one by one, or as the rows of a file: lines of text, or records, of which a
 * column holds the text or, with a chat template, the conversation up to the next answer.
 *
 * Ownership: release frees what is in the struct; a zeroed one is empty.
 * Threads:   one.
 */
#ifndef WORKER_TEXT_PROMPTS_H
#define WORKER_TEXT_PROMPTS_H

#include "common/buf.h"
#include "worker/text/rows/pairs.h"
#include "worker/text/tokenizer.h"

/* How a text becomes ids: by a tokenizer; else its bytes are ids, or it is numbers that
 * blanks separate. */
struct zt_prompt_encoding {
    const struct zt_tokenizer *tokenizer;
    bool bytes;
    int64_t vocab; /* ids are below it */
    bool ends; /* each ends as a source does that is learnt from, if not by its frame */
    /* Rows of a file: prefix stands in front of each but of conversations, and with
     * source_lang a row is a pair in two languages. NULL: texts are prompts as they are. */
    const struct zt_text_pair *pair;
};

struct zt_prompts {
    int64_t num;
    int64_t longest;           /* tokens of the longest; each has at least 1 */
    uint64_t num_replaced;     /* U+FFFD put for bytes that are no UTF-8 */
    struct zt_buf ids;         /* int32_t, one prompt behind the other */
    struct zt_buf begins;      /* size_t (num): of each in `ids`, counted in ids */
    struct zt_buf text;        /* as they were given, each ends with a zero byte */
    struct zt_buf text_begins; /* size_t (num): bytes of `text` */

    /* Set between init and the rows of a file: the column with what each is meant to
     * become, which of a conversation is the answer that ends it; NULL: nobody asks. */
    const char *meant_column;
    struct zt_buf meant, meant_begins; /* as text and text_begins */
};

void zt_prompts_init(struct zt_prompts *p);
void zt_prompts_release(struct zt_prompts *p);

/* No more than the first n; 0: all. `longest` stays. */
void zt_prompts_limit(struct zt_prompts *p, int64_t n);

/* Ids of prompt i (n). */
const int32_t *zt_prompts_ids(const struct zt_prompts *p, int64_t i, int64_t *n);
/* Its text, n bytes and a zero one; of conversations what the template made of them. */
const char *zt_prompts_text(const struct zt_prompts *p, int64_t i, size_t *n);

/* What it is meant to become, likewise; of prompts of a file, with meant_column. */
const char *zt_prompts_meant(const struct zt_prompts *p, int64_t i, size_t *n);

/*
 * Add a text. An empty one has one token: of a tokenizer its bos_token, else its eos_token;
 * of bytes end-of-text, where the vocabulary has it, else the end of a line; else 0. `name` is
 * what messages call it. ZT_E_USAGE: it is no numbers where they are wanted, or an id is not
 * below the vocabulary; ZT_E_FORMAT, as zt_encode().
 */
zt_err zt_prompts_add(struct zt_prompts *p, const struct zt_prompt_encoding *how,
                      const char *name, const char *text, size_t n,
                      struct zt_fault *fault) ZT_MUST_CHECK;

/* The same of a text that a chat template has made: nothing is put around it. */
zt_err zt_prompts_add_rendered(struct zt_prompts *p, const struct zt_prompt_encoding *how,
                               const char *name, const char *text, size_t n,
                               struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Add the rows of a file. `format`: as zt_record_format_named() takes it, "text", or "auto":
 * by the name of the file. `column`: NULL is "prompt", else as zt_records_find_text(). Blank rows of records are
 * passed over; blank lines of a text are prompts without a word. ZT_E_NOINPUT; ZT_E_USAGE:
 * lines have no meant_column; ZT_E_FORMAT: there are no rows, or with file and line.
 */
zt_err zt_prompts_add_file(struct zt_prompts *p, const struct zt_prompt_encoding *how,
                           const char *path, const char *format, const char *column,
                           struct zt_fault *fault) ZT_MUST_CHECK;

#endif
