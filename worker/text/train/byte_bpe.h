/*
 * byte_bpe.h -- a byte-level BPE tokenizer made from text, as GPT-2's is: tokenizer.json.
 *
 * Id 0 is <|endoftext|>, which ends a text; the next 256 are the bytes, in the order of
 * GPT-2's alphabet. Text is read line by line, each with its line feed, and cut into words
 * by GPT-2's pattern. The same text gives the same tokenizer, and its merges are those of
 * the package `tokenizers`.
 */
#ifndef WORKER_TEXT_TRAIN_BYTE_BPE_H
#define WORKER_TEXT_TRAIN_BYTE_BPE_H

#include "common/buf.h"
#include "common/fault.h"

#define ZT_BYTE_BPE_END "<|endoftext|>"
/* The tokenizer_config.json beside it. */
#define ZT_BYTE_BPE_CONFIG                                                               \
    "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n  \"bos_token\": "          \
    "\"" ZT_BYTE_BPE_END "\",\n  \"eos_token\": \"" ZT_BYTE_BPE_END                      \
    "\",\n  \"unk_token\": null,\n  \"clean_up_tokenization_spaces\": false\n}\n"
#define ZT_BYTE_BPE_LEAST 257 /* ids that it has in any case */

struct zt_byte_bpe; /* words that were counted */

zt_err zt_byte_bpe_open(struct zt_byte_bpe **out, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_byte_bpe_close(struct zt_byte_bpe *b); /* NULL is fine */

/* Count the words of a text; `name` is what messages call it. ZT_E_LIMIT: more different
 * words than memory is meant for. */
zt_err zt_byte_bpe_add(struct zt_byte_bpe *b, const char *name, const char *text,
                       size_t n, struct zt_fault *fault) ZT_MUST_CHECK;
/* Learn from what was counted, and append the tokenizer.json. ends: its post-processor puts the
 * end of text behind a text, for a model that reads texts which end. *num: how many tokens, which
 * are fewer than vocab_size where the text has no more. */
zt_err zt_byte_bpe_make(const struct zt_byte_bpe *b, int32_t vocab_size, bool ends,
                        struct zt_buf *json, int32_t *num,
                        struct zt_fault *fault) ZT_MUST_CHECK;

#endif
