/*
 * tokenizer.h -- text to token ids and back, as the files of a Hugging Face folder say.
 *
 *      text -> added tokens cut out -> normalizer -> pre-tokenizer -> model -> ids
 *                                                    post-processor adds what frames them
 *      ids -> tokens -> decoder -> text
 *
 * What is read, in this order: tokenizer.json; tokenizer.model or spiece.model of
 * SentencePiece; vocab.json and merges.txt; vocab.txt. The ids are those of the package
 * `tokenizers`, and of `sentencepiece`. Settings that are not known are refused with
 * their place in the file; none is passed over. `truncation` and `padding` belong to the
 * caller of a tokenizer and are not applied.
 *
 * Bytes that are not UTF-8 are read as U+FFFD, one for each maximal part of a character,
 * as Python's errors="replace" does, and counted; a model of SentencePiece alone, without
 * added tokens, reads one for each byte, as its library does.
 *
 * Threads: a tokenizer does not change once it is open: any number of encoders, each used
 *          by one thread, may share one.
 */
#ifndef WORKER_TEXT_TOKENIZER_H
#define WORKER_TEXT_TOKENIZER_H

#include "common/buf.h"
#include "common/fault.h"

#define ZT_TEXT_MAX_BYTES ((size_t)1 << 30) /* of one text */

struct zt_tokenizer;
struct zt_encoder;
struct zt_token_stream;

/* Whether `folder` has the files of a tokenizer. */
bool zt_tokenizer_is_in(const char *folder);

/* ZT_E_NOINPUT: no such files; ZT_E_FORMAT: what they say is not known or contradicts
 * itself, with the file and the path in its JSON; ZT_E_NOMEM. */
zt_err zt_tokenizer_open(const char *folder, struct zt_tokenizer **out,
                         struct zt_fault *fault) ZT_MUST_CHECK;
/* The same of a tokenizer.json in memory; `name` is what messages call it. */
zt_err zt_tokenizer_parse(const char *name, const char *json, size_t n,
                          struct zt_tokenizer **out,
                          struct zt_fault *fault) ZT_MUST_CHECK;
void zt_tokenizer_close(struct zt_tokenizer *t); /* NULL is fine */

int64_t zt_tokenizer_vocab(const struct zt_tokenizer *t); /* the largest id + 1 */
int32_t zt_tokenizer_id(const struct zt_tokenizer *t, const char *token); /* -1: none */
/* What ends a text: eos_token of tokenizer_config.json or special_tokens_map.json; -1: neither
 * is there, or names one of its tokens. */
int32_t zt_tokenizer_end(const struct zt_tokenizer *t);
/* Of all that the ids depend on: the files it was read from. */
uint64_t zt_tokenizer_fingerprint(const struct zt_tokenizer *t);
/* Host memory that it holds, as bytes asked for. */
size_t zt_tokenizer_bytes(const struct zt_tokenizer *t);

/* ---- encoding ---- */

zt_err zt_encoder_open(const struct zt_tokenizer *t, struct zt_encoder **out,
                       struct zt_fault *fault) ZT_MUST_CHECK;
void zt_encoder_close(struct zt_encoder *e); /* NULL is fine */

/*
 * `frame`: with what the post-processor puts before and after. *ids are the encoder's, until its
 * next call. ZT_E_LIMIT: more than ZT_TEXT_MAX_BYTES; ZT_E_FORMAT: the model has no id for
 * a part of it, and no unknown token; or a regular expression gave up on it.
 */
zt_err zt_encode(struct zt_encoder *e, const char *text, size_t n, bool frame,
                 const int32_t **ids, size_t *num, struct zt_fault *fault) ZT_MUST_CHECK;

/* What stands around a text, or around and between two: ids, and of which type each is. */
struct zt_row_frame_part {
    const int32_t *ids;   /* (num), the tokenizer's */
    const uint8_t *types; /* (num); NULL: 0 each */
    size_t num;
};
struct zt_row_frame {
    struct zt_row_frame_part before, between, after;
    uint8_t type_a, type_b; /* of the texts' own tokens */
};

/* Of one text: all is of type 0. */
struct zt_row_frame zt_tokenizer_frame(const struct zt_tokenizer *t);
/* Whether it would be of another, by the post-processor. */
bool zt_tokenizer_types_single(const struct zt_tokenizer *t);
/* Of two. All is of type 0 where tokenizer_config.json leaves token_type_ids out, as transformers
 * does: model_input_names without it, or none and the class TokenizersBackend. ZT_E_FORMAT: the post-processor puts pairs in another order, or has no word on them. */
zt_err zt_tokenizer_frame_pair(const struct zt_tokenizer *t, struct zt_row_frame *out,
                               struct zt_fault *fault) ZT_MUST_CHECK;
/* The id of a special token by its role: "mask_token", "pad_token", "unk_token"; -1: none. */
int32_t zt_tokenizer_special(const struct zt_tokenizer *t, const char *role);

/* The words that the model of a tokenizer is given one by one, to `take`; its error ends it. */
typedef zt_err (*zt_take_word)(void *user, const char *s, size_t n);
zt_err zt_encoder_split(struct zt_encoder *e, const char *text, size_t n,
                        zt_take_word take, void *user,
                        struct zt_fault *fault) ZT_MUST_CHECK;

/* U+FFFD put for broken UTF-8, over all calls. */
uint64_t zt_encoder_num_replaced(const struct zt_encoder *e);
/* Host memory that it holds now, as bytes asked for. */
size_t zt_encoder_bytes(const struct zt_encoder *e);

/* ---- decoding ---- */

/* Appends the text. Ids that no token has are left out; `skip_special`: so are special
 * tokens. ZT_E_NOMEM, ZT_E_LIMIT past the buffer's cap. */
zt_err zt_decode(const struct zt_tokenizer *t, const int32_t *ids, size_t num,
                 bool skip_special, struct zt_buf *out,
                 struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Token by token: what is appended, all calls together, is what zt_decode() makes of all
 * ids, save that text once appended stays where a later byte token of a fallback proves
 * the bytes before it not to be UTF-8. The bytes of an incomplete character wait for
 * those that complete it, at most for 16 tokens.
 */
zt_err zt_token_stream_open(const struct zt_tokenizer *t, bool skip_special,
                            struct zt_token_stream **out,
                            struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_token_stream_put(struct zt_token_stream *s, int32_t id, struct zt_buf *out,
                           struct zt_fault *fault) ZT_MUST_CHECK;
/* What still waits, as U+FFFD; the stream begins anew. */
zt_err zt_token_stream_end(struct zt_token_stream *s, struct zt_buf *out,
                           struct zt_fault *fault) ZT_MUST_CHECK;
void zt_token_stream_close(struct zt_token_stream *s); /* NULL is fine */

#endif
