/*
 * tokens.h -- one token file: what format it is, whether it is whole, where its tokens
 * lie.
 *
 * A file becomes runs: stretches of neighbouring tokens of one storage width. Parsing
 * works on bytes in memory and trusts none of them; paths are for messages only.
 * Ownership: runs point into the mappings of their file.
 */
#ifndef WORKER_DATA_TOKENS_H
#define WORKER_DATA_TOKENS_H

#include "common/mapped_file.h"
#include "worker/data/rows.h"
#include "worker/text/rows/lines.h"

typedef enum zt_token_format {
    ZT_TOKENS_AUTO = 0,
    ZT_TOKENS_TEXT,
    ZT_TOKENS_NANOGPT,
    ZT_TOKENS_LLMC,
    ZT_TOKENS_MEGATRON,
    ZT_TOKENS_JSONL, /* these and all below are records (worker/records/records.h) */
    ZT_TOKENS_JSON,
    ZT_TOKENS_CSV,
    ZT_TOKENS_TSV,
    ZT_NUM_TOKEN_FORMATS
} zt_token_format;

/* How a token is stored, little-endian. END: no bytes, an end-of-text token. CONTEXT: ~t of a
 * token that is read and not learnt, of this machine's byte order. */
typedef enum zt_token_code {
    ZT_TOKEN_U8 = 0,
    ZT_TOKEN_I8,
    ZT_TOKEN_U16,
    ZT_TOKEN_I16,
    ZT_TOKEN_U32,
    ZT_TOKEN_I32,
    ZT_TOKEN_I64,
    ZT_TOKEN_I16_CONTEXT,
    ZT_TOKEN_I32_CONTEXT,
    ZT_TOKEN_END
} zt_token_code;

struct zt_token_run {
    const uint8_t *data; /* aligned to the width; NULL for END */
    int64_t n;           /* tokens, > 0 */
    zt_token_code code;
};

/* How text becomes tokens; NULL in its place: each byte is one. */
struct zt_text_encoding {
    const struct zt_tokenizer *tokenizer; /* NULL: each byte is one */
    const struct zt_fault *refusal;       /* it cannot be read, as this says; NULL */
    const char *column;                   /* of records that holds their text; NULL: see
                              zt_records_find_text() */
    struct zt_text_pair pair; /* of records that are pairs; zeroed: they are not */
    const struct zt_example_spec *examples; /* rows are examples; NULL: they are texts */
    struct zt_row_options
        rows;              /* what becomes of them; zeroed: the next token is learnt */
    bool answers_only;     /* of conversations the assistant's answers alone are learnt */
    bool keeps_lengths;    /* of lines, rows and sequences: zt_token_file.lengths */
    int threads;           /* 0: one for each processor */
    const char *cache_dir; /* NULL: ids are made anew every time (token_cache.h) */
    bool cache_reads_only; /* what is not there is not put there */
};

struct zt_token_file {
    char *path; /* of the file with the tokens */
    zt_token_format format;
    struct zt_mapping data, index; /* index: Megatron only */
    struct zt_token_run *runs;
    int64_t num_runs, num_tokens;
    int64_t vocab;     /* the tokenizer's size when the format tells it, else 0 */
    bool encoded;      /* from text, by a tokenizer or from records: `data` is ids */
    bool bytes;        /* tokens are bytes and the end of text */
    uint32_t *lengths; /* (num_lengths) tokens of each line, row or sequence, in order; of
                        * examples ZT_EXAMPLE_WORDS words each */
    int64_t num_lengths;   /* 0: the file does not tell, or nobody asked */
    uint64_t num_replaced; /* bytes of it that were no UTF-8 */
    uint64_t num_blank;    /* rows of records in which nothing stands */
    bool carriage_returns; /* its first line ends with one, before its line feed or... */
    bool no_line_feeds;    /* ...without: it has none */
    struct zt_lines_columns columns; /* of records: where their text is */
};

/* "auto", "text", ...: static text. Parsing back: ZT_NUM_TOKEN_FORMATS when unknown. */
const char *zt_token_format_name(zt_token_format f);
zt_token_format zt_token_format_parse(const char *name);

/* A file that is to hold text or records, and begins as one of those that people give by
 * mistake: an archive, a table in another format, UTF-16; or has zero bytes. ZT_E_FORMAT,
 * ZT_E_NOINPUT. */
zt_err zt_tokens_refuse_foreign(const char *path, struct zt_fault *fault) ZT_MUST_CHECK;

/* Map and check a file. ZT_E_NOINPUT, ZT_E_FORMAT; *out is written only on success. */
zt_err zt_token_file_open(const char *path, zt_token_format format,
                          const struct zt_text_encoding *text, struct zt_token_file *out,
                          struct zt_fault *fault) ZT_MUST_CHECK;
void zt_token_file_release(struct zt_token_file *f); /* a zeroed struct is fine */

/* Ids of such text are below it: the tokenizer's vocabulary, or that of bytes. */
int64_t zt_text_vocab(const struct zt_text_encoding *how);

/* How ids of such text are kept: as narrow as the vocabulary allows. */
zt_token_code zt_text_code(const struct zt_text_encoding *how, bool marks_context);

/* Whether `num` ids, with the lengths of their samples, make rows: none do where samples are
 * examples whose frame has tokens, as of empty texts. ZT_E_FORMAT. */
zt_err zt_text_check_ids(const struct zt_token_file *file,
                         const struct zt_text_encoding *how, int64_t num,
                         const uint32_t *lengths, size_t num_lengths,
                         struct zt_fault *fault) ZT_MUST_CHECK;

/* The ids of a file whose `data` is text, as its format says, into a sink. ZT_E_FORMAT,
 * ZT_E_USAGE, ZT_E_NOMEM, and what the sink says. */
zt_err zt_tokens_encode_into(const struct zt_token_file *file,
                             const struct zt_text_encoding *how, zt_lines_sink sink,
                             void *user, struct zt_lines_counts *counts,
                             struct zt_fault *fault) ZT_MUST_CHECK;

/* The text of a file that is open becomes ids, line by line or row by row
 * (worker/text/rows/lines.h), whose columns the file says then. ZT_E_FORMAT, ZT_E_USAGE,
 * ZT_E_NOMEM; it is text still. */
zt_err zt_tokens_encode_text(struct zt_token_file *file,
                             const struct zt_text_encoding *how,
                             struct zt_fault *fault) ZT_MUST_CHECK;

/* An llm.c token file in memory. ZT_E_FORMAT. */
zt_err zt_tokens_parse_llmc(const char *path, struct zt_mapping m,
                            struct zt_token_run *out, int64_t *vocab,
                            struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * A Megatron index and its tokens in memory: *runs is allocated, the caller frees it.
 * Sequences that lie one behind the other become one run. ZT_E_FORMAT, ZT_E_NOMEM.
 */
zt_err zt_tokens_parse_megatron(const char *idx_path, struct zt_mapping idx,
                                struct zt_mapping bin, struct zt_token_run **runs,
                                int64_t *num_runs, struct zt_fault *fault) ZT_MUST_CHECK;

/* Tokens of each sequence of an index that was parsed; to be freed. ZT_E_NOMEM. */
zt_err zt_tokens_megatron_lengths(struct zt_mapping idx, uint32_t **lengths, int64_t *num,
                                  struct zt_fault *fault) ZT_MUST_CHECK;

/* Bytes of one token; 0 for END. */
size_t zt_token_bytes(zt_token_code code);

/* Tokens [first, first + n) of a run, each known to fit. */
void zt_tokens_copy(const struct zt_token_run *run, int64_t first, int64_t n,
                    int32_t *out);
/* The same with `context` in the place of tokens that are context. */
void zt_tokens_copy_targets(const struct zt_token_run *run, int64_t first, int64_t n,
                            int32_t context, int32_t *out);
/* How many of tokens [first, first + n) of a run are context before the first that is not. */
int64_t zt_tokens_leading_context(const struct zt_token_run *run, int64_t first,
                                  int64_t n);
/* Whether all tokens of a run are context. */
bool zt_tokens_are_context(const struct zt_token_run *run);

/* Smallest and largest token of a run. */
void zt_tokens_range(const struct zt_token_run *run, int64_t *min, int64_t *max);

/* One token, whatever its size. */
int64_t zt_tokens_get(const struct zt_token_run *run, int64_t i);

#endif
