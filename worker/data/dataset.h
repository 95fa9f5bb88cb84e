/*
 * dataset.h -- token files as one stream of int32 tokens.
 *
 *      file 0        | file 1    | file 2            |     formats: docs/DATA.md
 *      0 ............................................ num_tokens
 *
 * Files are mapped read-only and follow each other in the order given. Text is bytes
 * (0..255) with the end-of-text token 256 after each file or row of records, or what a
 * tokenizer makes of it, which is kept in memory. Everything that can be wrong
 * with a file is found when it is opened: one line with its path and what to do.
 *
 * Ownership: a dataset and its views share the mappings; close each of them, in any
 *            order.
 * Threads:   reading is safe from several threads; open, view and close are not.
 * A file must not shrink while it is open: the kernel would end the process (SIGBUS).
 */
#ifndef WORKER_DATA_DATASET_H
#define WORKER_DATA_DATASET_H

#include "common/fault.h"

#define ZT_TEXT_VOCAB 257 /* 256 bytes and end-of-text */
#define ZT_TEXT_END   256

struct zt_dataset;
struct zt_text_encoding;
struct zt_example;
struct zt_lines_columns;
struct zt_row_options;

/*
 * `files`: paths, NULL-terminated, at least one; globs already expanded. A Megatron
 * dataset is named by its .idx, its .bin or their common stem, and counts once.
 * `format`: auto|text|nanogpt|llmc|megatron|jsonl|json|csv|tsv; "auto" looks at the magic,
 * then at the name.
 * `vocab`: tokens must be below it; 0: any. Every token is looked at once (text is not).
 * ZT_E_NOINPUT: a file is missing, unreadable or no file; ZT_E_FORMAT: it is empty,
 * truncated or malformed, or holds a token >= vocab; ZT_E_USAGE: an unknown format.
 */
zt_err zt_dataset_open(const char *const *files, const char *format, int64_t vocab,
                       struct zt_dataset **out, struct zt_fault *fault) ZT_MUST_CHECK;
/* The same; `text` says what text becomes (tokens.h); NULL: bytes. */
zt_err zt_dataset_open_text(const char *const *files, const char *format,
                            const struct zt_text_encoding *text, int64_t vocab,
                            struct zt_dataset **out,
                            struct zt_fault *fault) ZT_MUST_CHECK;
void zt_dataset_close(struct zt_dataset *ds); /* NULL is fine */

/* Tokens [first, first + count) of `ds` as a dataset of its own. ZT_E_ARG. */
zt_err zt_dataset_view(struct zt_dataset *ds, int64_t first, int64_t count,
                       struct zt_dataset **out, struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Hold out the tail: `eval` gets `fraction` (0 < fraction < 1) of the tokens, rounded to
 * the nearest token, `train` the rest; no token is in both. Each must hold a block of
 * block_size + 1 tokens, else ZT_E_FORMAT and neither is made.
 */
zt_err zt_dataset_split(struct zt_dataset *ds, double fraction, int64_t block_size,
                        struct zt_dataset **train, struct zt_dataset **eval,
                        struct zt_fault *fault) ZT_MUST_CHECK;

int64_t zt_dataset_num_tokens(const struct zt_dataset *ds);

/*
 * Samples (samples.h), where zt_text_encoding.keeps_lengths asked for them; else there are
 * none. Splitting divides samples then: `fraction` of them, at least one on each side.
 */
int64_t zt_dataset_num_samples(const struct zt_dataset *ds);
/* Of the files as a whole: those that were passed over. */
int64_t zt_dataset_num_short(const struct zt_dataset *ds);
/* Tokens [*at, *at + *n) are sample i, 0 <= i < num_samples; *n > 1. */
void zt_dataset_sample(const struct zt_dataset *ds, int64_t i, int64_t *at, int64_t *n);
/* Of a dataset of examples: what sample i is, beside its tokens. */
const struct zt_example *zt_dataset_example(const struct zt_dataset *ds, int64_t i);
/* What becomes of tokens in a row (rows.h), as zt_text_encoding said. */
const struct zt_row_options *zt_dataset_rows(const struct zt_dataset *ds);

/* What a row of T tokens takes of sample i, of no example: so many from *at on. Where the next
 * token is learnt, the last one of a sample is a target only. */
int64_t zt_dataset_cut(const struct zt_dataset *ds, int64_t i, int64_t T, int64_t *at);

/*
 * Let samples, not examples, share rows of `block_size` tokens (packing.h). Once; views that are
 * made of it are not packed. ZT_E_NOMEM.
 */
zt_err zt_dataset_pack(struct zt_dataset *ds, int64_t block_size,
                       struct zt_fault *fault) ZT_MUST_CHECK;
bool zt_dataset_is_packed(const struct zt_dataset *ds);
/* Of packed data rows, of others with samples these, else 0. */
int64_t zt_dataset_num_rows(const struct zt_dataset *ds);
/* The samples of row i, 0 <= i < num_rows, of packed data: (*num) of them. */
const int64_t *zt_dataset_row(const struct zt_dataset *ds, int64_t i, int64_t *num);

/* Samples are pairs: zt_text_encoding.pair.separate asked for them. */
bool zt_dataset_is_pairs(const struct zt_dataset *ds);
/* The first so many tokens of sample i are its source, the others its target: at least one
 * each. Of pairs. */
int64_t zt_dataset_source(const struct zt_dataset *ds, int64_t i);

/* Samples [first, first + count) of `ds`, count > 0, as a dataset of its own. ZT_E_ARG. */
zt_err zt_dataset_view_samples(struct zt_dataset *ds, int64_t first, int64_t count,
                               struct zt_dataset **out,
                               struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * The smallest vocabulary these files need: 257 for text; the tokenizer's size where the
 * format tells it (llm.c: 50257 GPT-2, 128256 Llama 3), else the largest token plus one.
 * Of the files as a whole, also when `ds` is a view.
 */
int64_t zt_dataset_vocab(const struct zt_dataset *ds);

/*
 * Every token is below `vocab`? Free when the files were found smaller at open. Else
 * ZT_E_FORMAT with the file, the token and its place, as zt_dataset_open() would say it.
 */
zt_err zt_dataset_check_vocab(const struct zt_dataset *ds, int64_t vocab,
                              struct zt_fault *fault) ZT_MUST_CHECK;

/* True for text without a tokenizer: token t < 256 is the byte t. */
bool zt_dataset_is_bytes(const struct zt_dataset *ds);

/* A file of it is text that a tokenizer made ids of. */
bool zt_dataset_is_encoded(const struct zt_dataset *ds);
/* A file of it has ids, and does not say whose. */
bool zt_dataset_has_ids(const struct zt_dataset *ds);
/* U+FFFD put in the place of bytes that were no UTF-8, in text for a tokenizer. */
uint64_t zt_dataset_num_replaced(const struct zt_dataset *ds);
/* The first text for a tokenizer whose lines end with a carriage return and a line feed, or, then
 * *alone, with the former alone; NULL: none. */
const char *zt_dataset_carriage_returns(const struct zt_dataset *ds, bool *alone);

/* The files of it, of the store as a whole, and which columns the rows of file i come from. */
int zt_dataset_num_files(const struct zt_dataset *ds);
const struct zt_lines_columns *zt_dataset_columns(const struct zt_dataset *ds, int i,
                                                  const char **path);

/* Some of its tokens are context: they are read and not learnt. */
bool zt_dataset_has_context(const struct zt_dataset *ds);

/* Rows of records that were passed over, since nothing stands in them. */
uint64_t zt_dataset_num_blank(const struct zt_dataset *ds);

/* "text", "nanogpt", "llmc", "megatron", "jsonl", ..., or "mixed". Static text. */
const char *zt_dataset_format(const struct zt_dataset *ds);

/*
 * A 64-bit hash of the token stream's layout and contents, not of paths or times: whole
 * contents up to 1 MiB a file, 256 pieces spread over larger ones. A view's hash differs
 * with its borders.
 */
uint64_t zt_dataset_fingerprint(const struct zt_dataset *ds);

/* Copy tokens [first, first + n) to out. ZT_E_ARG when they are not all there. */
zt_err zt_dataset_read(const struct zt_dataset *ds, int64_t first, int64_t n,
                       int32_t *out, struct zt_fault *fault) ZT_MUST_CHECK;

/* The same with `context` in the place of tokens that are read and not learnt. */
zt_err zt_dataset_read_targets(const struct zt_dataset *ds, int64_t first, int64_t n,
                               int32_t context, int32_t *out,
                               struct zt_fault *fault) ZT_MUST_CHECK;

/* Start reading tokens [first, first + n) from disk, without waiting. A hint. */
void zt_dataset_prefetch(const struct zt_dataset *ds, int64_t first, int64_t n);

#endif
