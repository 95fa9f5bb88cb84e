/*
 * token_cache.h -- the ids of a text file in a file of their own, made once.
 *
 *      DIR/tokens-TEXT-TOKENIZER.bin     (hashes of all of the text, and of the tokenizer
 *                                         with the column and kind of records, and
 *                                         whether context is marked)
 *      0        header: struct header, token_cache.c
 *      64 KiB   ids, in 2 or 4 bytes of the machine's byte order; then, at a multiple of 4,
 *               u32 tokens of each line or row, up to the end
 *
 * A file has its name when it is whole, and says its checksum: one that is damaged or cut
 * short counts as none. Processes that need the same one wait for the first of them, by a
 * lock that goes with it; where the file system has none, each makes it by itself.
 *
 * Ownership: what is found is mapped, and the caller's.
 */
#ifndef WORKER_DATA_TOKEN_CACHE_H
#define WORKER_DATA_TOKEN_CACHE_H

#include "worker/data/tokens.h"

struct zt_cached_tokens {
    struct zt_mapping ids; /* nothing before or behind them */
    int64_t num;
    size_t width; /* bytes of an id: 2 or 4 */
    uint32_t
        *lengths; /* (num_lengths) of lines or rows, to be freed; NULL: nobody asked */
    int64_t num_lengths;
    struct zt_lines_counts counts;
};

/* The ids of a file's text by how->tokenizer, from how->cache_dir, where they are put if they
 * are not there; `marks_context` as zt_lines_mark_context() said. With how->cache_reads_only they are not put: *found may be false then.
 * ZT_E_CANTCREATE, and as zt_tokens_encode_into(). */
zt_err zt_token_cache_get(const struct zt_text_encoding *how,
                          const struct zt_token_file *text, bool marks_context,
                          bool *found, struct zt_cached_tokens *out,
                          struct zt_fault *fault) ZT_MUST_CHECK;

#endif
