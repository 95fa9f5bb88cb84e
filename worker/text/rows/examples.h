/*
 * examples.h -- rows with a label: of a text, of a pair of texts, of the words of a text.
 *
 *      {"sentence1": "...", "sentence2": "...", "label": "entailment"}     a class, or a number
 *      {"tokens": ["EU", "rejects"], "ner_tags": ["B-ORG", "O"]}           a class of each word
 *
 * What becomes of a row, one behind the other in the stream of ids:
 *
 *      ids of the first text | ids of the second one       (no frame: who makes batches cuts
 *      ids of the words      | as many tags                 them off, and then puts it)
 *
 * A tag is the class + 1 at the first token of a word, and 0 at its other ones. What a row
 * has beside ids is a struct zt_example, given as so many words in the place of its length.
 */
#ifndef WORKER_TEXT_EXAMPLES_H
#define WORKER_TEXT_EXAMPLES_H

#include "common/buf.h"
#include "worker/records/records.h"
#include "worker/text/rows/labels.h"
#include "worker/text/tokenizer.h"

typedef enum zt_example_kind {
    ZT_EXAMPLES_NONE = 0, /* rows are no examples */
    ZT_EXAMPLES_CLASS,    /* of the row: label is its number */
    ZT_EXAMPLES_NUMBER,   /* of the row: label is it */
    ZT_EXAMPLES_TAGS,     /* of each word */
} zt_example_kind;

/* Columns: NULL is the first there is of those that data sets usually have. */
struct zt_example_spec {
    zt_example_kind kind;
    const char *text, *pair, *label;
    const struct zt_labels *labels; /* of classes and tags */
    bool unlabelled; /* labels are not there, or not looked at: predictions are made */
    bool has_unknown;
    int32_t
        unknown; /* stands for a word that has no tokens; without it that is refused */
};

struct zt_example {
    uint32_t tokens, first; /* in the stream; of the first text, or the words */
    uint32_t is_pair, unused;
    double label; /* 0 of tags, and of rows without one */
};
#define ZT_EXAMPLE_WORDS (sizeof(struct zt_example) / sizeof(uint32_t))

/* The columns of a file, by its first row; to be released. `pair` may be NULL then: one text.
 * ZT_E_USAGE: there is none such, with the names of those that there are. */
struct zt_example_columns {
    char *text, *pair, *label;
};
zt_err zt_example_find_columns(const struct zt_example_spec *spec,
                               const struct zt_records *r, struct zt_example_columns *out,
                               struct zt_fault *fault) ZT_MUST_CHECK;
void zt_example_columns_release(struct zt_example_columns *c);

/* A row's ids are appended, and what it is. `tokenizer` NULL: ids are bytes. ZT_E_FORMAT, with
 * path and line. */
zt_err zt_example_encode(const struct zt_example_spec *spec,
                         const struct zt_example_columns *c, const struct zt_records *r,
                         size_t at, const json_t *row, struct zt_encoder *encoder,
                         struct zt_buf *ids, struct zt_example *out,
                         struct zt_fault *fault) ZT_MUST_CHECK;

/* The labels of all rows are added. ZT_E_FORMAT, ZT_E_USAGE, ZT_E_NOMEM. */
zt_err zt_examples_collect(const struct zt_example_spec *spec, const struct zt_records *r,
                           struct zt_labels *labels,
                           struct zt_fault *fault) ZT_MUST_CHECK;

#endif
