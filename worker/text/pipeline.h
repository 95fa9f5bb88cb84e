/*
 * pipeline.h -- what the steps of a tokenizer work on, and the table rows that they are.
 *
 *      tokenizer.c      reads the JSON from its root, opens, closes, runs the steps
 *      folder.c         folders of older files, as that JSON
 *      spiece.c         folders with a model of SentencePiece (sentencepiece/)
 *      normalize.c      normalizers; charsmap.c: SentencePiece's; unicode_forms.c
 *      pretokenize.c    pre-tokenizers; split.c: what they have in common
 *      bpe.c wordpiece.c unigram.c wordlevel.c    a kind of model each; model.c: the rest
 *      frame.c          post-processors; added.c: added tokens
 *      decode.c         decoders; stream.c: token by token
 */
#ifndef WORKER_TEXT_PIPELINE_H
#define WORKER_TEXT_PIPELINE_H

#include "worker/text/charsmap.h"
#include "worker/text/regex/regex.h"
#include "worker/text/sentencepiece/sentencepiece.h"
#include "worker/text/tokenizer.h"
#include "worker/text/vocab.h"
#include "worker/text/word_cache.h"

/* A stretch of the text of a zt_text_work: what becomes tokens by itself. */
struct zt_text_piece {
    size_t at, n;  /* bytes */
    int32_t token; /* >= 0: it is this added token */
    bool first;    /* it begins where the text began */
};

/* What a thread works with. Buffers keep their memory from text to text. */
struct zt_text_work {
    struct zt_buf text, next;   /* of the pieces; what a step makes of it */
    struct zt_buf pieces, more; /* struct zt_text_piece; what a step makes of them */
    struct zt_buf points;       /* uint32_t: code points */
    struct zt_buf scratch;      /* of a step */
    struct zt_regex_scratch regex;
    bool cut;    /* decoders: the text ends within a character */
    size_t lead; /* normalizers: characters in front that the text's first one became */
};

static inline const char *zt_text_of(const struct zt_buf *b)
{
    return b->data ? (const char *)zt_buf_head(b) : "";
}
static inline struct zt_text_piece *zt_pieces_of(const struct zt_buf *b, size_t *num)
{
    *num = zt_buf_used(b) / sizeof(struct zt_text_piece);
    return (struct zt_text_piece *)(void *)(b->data ? b->data + b->off : NULL);
}
static inline void zt_buf_empty(struct zt_buf *b)
{
    zt_buf_drop(b, zt_buf_used(b));
}
zt_err zt_text_work_init(struct zt_text_work *w, struct zt_fault *fault) ZT_MUST_CHECK;
void zt_text_work_release(struct zt_text_work *w);
size_t zt_text_work_bytes(const struct zt_text_work *w);
/* `next` becomes `text`, `more` becomes `pieces`. */
void zt_text_work_swap_text(struct zt_text_work *w);
void zt_text_work_swap_pieces(struct zt_text_work *w);
zt_err zt_text_out_of_memory(struct zt_fault *fault, zt_err rc);

/* ---- steps: normalizers, pre-tokenizers, decoders ---- */

typedef enum zt_split_behavior {
    ZT_SPLIT_REMOVED,
    ZT_SPLIT_ISOLATED,
    ZT_SPLIT_WITH_PREVIOUS,
    ZT_SPLIT_WITH_NEXT,
    ZT_SPLIT_CONTIGUOUS
} zt_split_behavior;

/* One step with its settings; which of them its kind uses, its `read` says. */
struct zt_text_step {
    const struct zt_step_kind *kind;
    struct zt_regex *regex;
    struct zt_charsmap *charsmap;
    char *text, *content; /* owned */
    size_t text_bytes, content_bytes;
    uint32_t character;
    int64_t start, stop;
    zt_split_behavior behavior;
    bool invert, flag[4];
};

/* A row of the tables in normalize.c, pretokenize.c and decode.c. */
struct zt_step_kind {
    const char *type; /* as files call it */
    const char *keys; /* its other settings; see zt_setting_check_keys() */
    /* optional: NULL means that it has no settings. The step is released by the caller. */
    zt_err (*read)(const struct zt_setting *s, struct zt_text_step *step,
                   struct zt_fault *fault);
    /* A normalizer makes w->next of w->text; a pre-tokenizer changes w's pieces; a decoder
     * does with tokens as pieces. */
    zt_err (*apply)(const struct zt_text_step *step, struct zt_text_work *w,
                    struct zt_fault *fault);
};

struct zt_steps {
    bool there; /* the file has them, if an empty list */
    struct zt_text_step *steps;
    int num;
};

extern const struct zt_step_kind zt_normalizer_kinds[]; /* up to a NULL type */
extern const struct zt_step_kind zt_pretokenizer_kinds[];
extern const struct zt_step_kind zt_decoder_kinds[];

/* A step, or a Sequence of them under `list`, is appended; null: none. */
zt_err zt_steps_read(const struct zt_setting *s, const struct zt_step_kind *kinds,
                     const char *list, struct zt_steps *out,
                     struct zt_fault *fault) ZT_MUST_CHECK;
void zt_steps_release(struct zt_steps *steps);
/* w->text through all normalizers; the result is in w->text. */
zt_err zt_steps_normalize(const struct zt_steps *steps, struct zt_text_work *w,
                          struct zt_fault *fault) ZT_MUST_CHECK;

/* What becomes of a piece's text, the i-th: append to `out`, w->next. */
typedef zt_err (*zt_rewrite_piece)(const struct zt_text_step *step,
                                   const struct zt_text_piece *p, size_t i, const char *s,
                                   struct zt_buf *out);
/* Every piece but added tokens. */
zt_err zt_rewrite_pieces(const struct zt_text_step *step, struct zt_text_work *w,
                         zt_rewrite_piece rewrite, struct zt_fault *fault) ZT_MUST_CHECK;

/* A setting as an owned string. */
zt_err zt_step_copy_text(const struct zt_setting *s, const char *key, char **out,
                         size_t *n, struct zt_fault *fault) ZT_MUST_CHECK;
/* {"String": ...} or {"Regex": ...} under `pattern`. */
zt_err zt_step_read_pattern(const struct zt_setting *s, struct zt_text_step *step,
                            struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_step_read_character(const struct zt_setting *s, const char *key, uint32_t *out,
                              struct zt_fault *fault) ZT_MUST_CHECK;
/* Metaspace, pre-tokenizer and decoder: its character, and where one is put in front. */
enum { ZT_PREPEND_ALWAYS, ZT_PREPEND_FIRST }; /* of step->flag; neither: never */
zt_err zt_step_read_metaspace(const struct zt_setting *s, struct zt_text_step *step,
                              struct zt_fault *fault) ZT_MUST_CHECK;
/* {"pattern": ..., "content": ...}: what zt_step_replace() puts where. */
zt_err zt_step_read_replace(const struct zt_setting *s, struct zt_text_step *step,
                            struct zt_fault *fault) ZT_MUST_CHECK;
/* A zt_split_find: the next place of the pattern (text or regex) of `rule`, a step. */
zt_err zt_step_find(const void *rule, const struct zt_text_work *w, const char *text,
                    size_t n, size_t from, bool *found, size_t *start, size_t *end,
                    struct zt_fault *fault) ZT_MUST_CHECK;
/* s with the pattern's places replaced by step->content, appended to `out`. */
zt_err zt_step_replace(const struct zt_text_step *step, const struct zt_text_work *w,
                       const char *s, size_t n, struct zt_buf *out,
                       struct zt_fault *fault) ZT_MUST_CHECK;

/* ---- normalizers with a file of their own ---- */

typedef enum zt_unicode_form { ZT_NFD, ZT_NFC, ZT_NFKD, ZT_NFKC } zt_unicode_form;

/* w->next becomes that form of w->text. */
zt_err zt_normalize_unicode(zt_unicode_form form, struct zt_text_work *w) ZT_MUST_CHECK;

zt_err zt_charsmap_read(const struct zt_setting *s, struct zt_charsmap **out,
                        struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_charsmap_apply(const struct zt_charsmap *m,
                         struct zt_text_work *w) ZT_MUST_CHECK;

/* ---- splitting ---- */

/* The next match in a piece's text; also finds none. */
typedef zt_err (*zt_split_find)(const void *rule, const struct zt_text_work *w,
                                const char *text, size_t n, size_t from, bool *found,
                                size_t *start, size_t *end, struct zt_fault *fault);

/* All matches of a rule in a text, in order. An empty one counts unless it stands right
 * behind another. The caller sets the first five members. */
struct zt_matches {
    zt_split_find find;
    const void *rule;
    const struct zt_text_work *w;
    const char *text;
    size_t n;
    size_t start, end; /* of the match found */
    size_t done;       /* where the one before it ended: no match between */
    size_t from;       /* where the next is looked for */
};

zt_err zt_next_match(struct zt_matches *m, bool *found,
                     struct zt_fault *fault) ZT_MUST_CHECK;
/* Every piece that is text into those between and of matches. Empty ones vanish. */
zt_err zt_split_pieces(struct zt_text_work *w, zt_split_find find, const void *rule,
                       zt_split_behavior behavior, bool invert,
                       struct zt_fault *fault) ZT_MUST_CHECK;
/* By single characters of a class. */
zt_err zt_split_by_class(struct zt_text_work *w, bool (*is)(uint32_t),
                         zt_split_behavior behavior,
                         struct zt_fault *fault) ZT_MUST_CHECK;

/* ---- models ---- */

struct zt_text_model;

/* Where a model puts ids, and what it needs of its own between calls. */
struct zt_model_work {
    struct zt_buf ids; /* int32_t */
    struct zt_buf a, b;
    struct zt_word_cache *cache; /* NULL: none */
};

struct zt_model_kind {
    const char *type;
    const char *keys;
    zt_err (*read)(const struct zt_setting *s, struct zt_text_model *m,
                   struct zt_fault *fault);
    zt_err (*encode)(const struct zt_text_model *m, struct zt_model_work *w,
                     const char *text, size_t n, struct zt_fault *fault);
    void (*release)(struct zt_text_model *m); /* optional */
    bool cached;                              /* words recur: keep their ids */
};

struct zt_text_model {
    const struct zt_model_kind *kind;
    struct zt_vocab vocab;
    int32_t unknown;    /* -1: none */
    char *unknown_text; /* named, but not in the vocabulary: an error when it is needed */
    int32_t byte_ids[256];
    bool byte_fallback, fuse_unknown;
    char *prefix, *suffix; /* of tokens within a word, at its end; NULL: none */
    size_t prefix_bytes, suffix_bytes;
    int64_t max_word_chars;
    size_t longest_token; /* bytes */
    void *own;            /* of the kind */
    size_t own_bytes;
};

extern const struct zt_model_kind zt_bpe, zt_wordpiece, zt_unigram, zt_wordlevel;

zt_err zt_model_read(const struct zt_setting *s, struct zt_text_model *m,
                     struct zt_fault *fault) ZT_MUST_CHECK;
void zt_model_release(struct zt_text_model *m);
/* {"token": id, ...} under `vocab`. */
zt_err zt_model_read_vocab(const struct zt_setting *s, struct zt_text_model *m,
                           struct zt_fault *fault) ZT_MUST_CHECK;
zt_err zt_model_read_unknown(const struct zt_setting *s, struct zt_text_model *m,
                             struct zt_fault *fault) ZT_MUST_CHECK;
/* Ids of <0x00> to <0xFF>. */
void zt_model_find_bytes(struct zt_text_model *m);
/* Append the bytes' own tokens. False: not all of them have one, nothing is appended. */
bool zt_model_put_bytes(const struct zt_text_model *m, const char *s, size_t n,
                        struct zt_buf *ids, zt_err *rc);
zt_err zt_model_put(struct zt_buf *ids, int32_t id) ZT_MUST_CHECK;
/* Why there is no id for it: the model has no unknown token. */
zt_err zt_model_refuse_unknown(const struct zt_text_model *m, const char *s, size_t n,
                               struct zt_fault *fault);
size_t zt_model_bytes(const struct zt_text_model *m);

/* ---- added tokens, and what frames a text ---- */

struct zt_added_token {
    char *text;
    size_t n;
    int32_t id;
    bool special, lstrip, rstrip, single_word, normalized;
};

struct zt_added {
    struct zt_added_token *tokens;
    int num;
    struct zt_trie raw, normalized; /* of indices; matched before and after normalizers */
    bool any_raw, any_normalized;
};

/* Around and between two texts, in three places; see zt_tokenizer_frame_pair(). */
struct zt_pair_template {
    bool refused; /* it is of another form */
    int32_t *ids[3];
    uint8_t *types[3];
    size_t num[3];
    uint8_t type_a, type_b;
};

struct zt_text_frame {
    int32_t *before, *after;
    size_t num_before, num_after;
    struct zt_pair_template pair;
    int num_templates; /* post-processors that put something */
    bool has_types;    /* tokens of a single text have others than 0 */
};

/* The tokenizer of a model file of SentencePiece; NULL in a tokenizer: it has none, and all
 * of the above does the work. With one, added tokens and what frames a text are as above. */
struct zt_spiece {
    struct zt_sentencepiece *model;
    bool continues; /* behind an added token no blank is put in front (`legacy` false) */
};

/* What a folder says about conversations (chat.c). */
struct zt_chat_source {
    char *name; /* of the template, for messages */
    char *text; /* (n); NULL: there is none */
    size_t n;
    json_t *tokens;    /* bos_token, eos_token, ... of an object */
    bool has_tool_use; /* another template is for rows with tools */
};

/* *hash changes with what it reads. ZT_E_FORMAT: a file of it is malformed; ZT_E_NOMEM. */
zt_err zt_chat_load(const char *folder, struct zt_chat_source *out, uint64_t *hash,
                    struct zt_fault *fault) ZT_MUST_CHECK;
void zt_chat_release(struct zt_chat_source *s); /* zeroed: fine */

struct zt_tokenizer {
    struct zt_spiece spiece;
    struct zt_steps normalizers, pretokenizers, decoders;
    struct zt_text_model model;
    struct zt_added added;
    struct zt_text_frame frame;
    struct zt_chat_source chat;
    uint64_t hash;
    int64_t vocab;
    int32_t end;          /* -1: not known */
    bool without_types;   /* tokenizer_config.json leaves token_type_ids out */
    int32_t *added_by_id; /* (vocab): index of the added token, or -1 */
};

zt_err zt_added_read(const struct zt_setting *root, struct zt_tokenizer *t,
                     struct zt_fault *fault) ZT_MUST_CHECK;
void zt_added_release(struct zt_added *a);
/* Pieces of `text` (n bytes at `at` of w->text) to w->pieces, cut at added tokens. */
zt_err zt_added_cut(const struct zt_added *a, bool normalized, const char *text, size_t n,
                    size_t at, bool first, struct zt_buf *pieces) ZT_MUST_CHECK;

/* `added_tokens` and `post_processor` of a root; the model's vocabulary is there. */
zt_err zt_tokenizer_read_around(const struct zt_setting *root, struct zt_tokenizer *t,
                                struct zt_fault *fault) ZT_MUST_CHECK;

zt_err zt_frame_read(const struct zt_setting *s, struct zt_text_frame *f,
                     struct zt_fault *fault) ZT_MUST_CHECK;
void zt_frame_release(struct zt_text_frame *f);

/* The text of a token, of the model or added; NULL: none. */
const char *zt_tokenizer_token(const struct zt_tokenizer *t, int32_t id, size_t *n);
bool zt_tokenizer_is_special(const struct zt_tokenizer *t, int32_t id);

/* zt_decode() in buffers of the caller. */
zt_err zt_decode_in(const struct zt_tokenizer *t, struct zt_text_work *w,
                    const int32_t *ids, size_t num, bool skip_special, struct zt_buf *out,
                    struct zt_fault *fault) ZT_MUST_CHECK;

/* Whether the folder has a model file of SentencePiece, and a tokenizer of it. */
bool zt_spiece_is_in(const char *folder);
zt_err zt_spiece_open(const char *folder, struct zt_tokenizer *t,
                      struct zt_fault *fault) ZT_MUST_CHECK;
/* A piece of the text as it came: its ids, appended. */
zt_err zt_spiece_encode(const struct zt_tokenizer *t, struct zt_sp_work *w,
                        const char *text, const struct zt_text_piece *p,
                        struct zt_buf *ids, uint64_t *replaced,
                        struct zt_fault *fault) ZT_MUST_CHECK;
/* A token's text, appended; `d` as zt_sentencepiece_put() has it. */
zt_err zt_spiece_decode(const struct zt_tokenizer *t, struct zt_sp_decoding *d,
                        int32_t id, bool skip_special, struct zt_buf *out,
                        struct zt_fault *fault) ZT_MUST_CHECK;

/* A JSON file of a folder; NULL: it is not there, or a fault (*rc). */
json_t *zt_folder_load(const char *folder, const char *name, bool needed, zt_err *rc,
                       struct zt_fault *fault);
/* tokenizer_config.json with what special_tokens_map.json says otherwise, as transformers has them:
 * the latter counts where the former has no added_tokens_decoder. NULL: neither, or a fault (*rc). */
json_t *zt_folder_settings(const char *folder, zt_err *rc, struct zt_fault *fault);
/* The text of a special token: a string, or an object with its content. */
const char *zt_folder_token_text(const json_t *v);
/* bos_token or eos_token as the folder's small files have it, or its class by itself, to be freed;
 * NULL: there is none. */
char *zt_folder_token(const char *folder, const char *role);
/* Whether tokenizer_config.json leaves token_type_ids out: by its model_input_names, else by a
 * class that has none. */
bool zt_folder_leaves_types_out(const char *folder);
/* Of a folder with a tokenizer.json: refused where another file names a token that it has not. */
zt_err zt_folder_check_tokens(const char *folder, const struct zt_tokenizer *t,
                              struct zt_fault *fault);
/* A folder without tokenizer.json: the same as JSON, of its older files. The caller puts
 * *out back; *hash is of the files. */
zt_err zt_folder_to_json(const char *folder, json_t **out, uint64_t *hash,
                         struct zt_fault *fault) ZT_MUST_CHECK;

#endif
