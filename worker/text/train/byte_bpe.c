#include "worker/text/train/byte_bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/text/unicode/chars.h"
#include "worker/text/tokenizer.h"
#include "worker/text/train/bpe_merges.h"

#define MOST_WORD_BYTES                                                                  \
    ((size_t)8 << 30) /* of different words, and what is kept of each */

struct zt_byte_bpe {
    struct zt_tokenizer *splitter;
    struct zt_encoder *encoder;
    struct zt_word_counts words;
    struct zt_buf bytes; /* of a word */
};

/* ---- words ---- */

static const char splitter[] =
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}";

zt_err zt_byte_bpe_open(struct zt_byte_bpe **out, struct zt_fault *fault)
{
    struct zt_byte_bpe *b = calloc(1, sizeof(*b));
    zt_err rc;

    if (!b)
        return zt_fault_set(fault, ZT_E_NOMEM, "tokenizer: no host memory");
    zt_word_counts_init(&b->words, MOST_WORD_BYTES);
    zt_buf_init(&b->bytes, UINT32_MAX);
    rc = zt_tokenizer_parse("splitter", splitter, strlen(splitter), &b->splitter, fault);
    if (!rc)
        rc = zt_encoder_open(b->splitter, &b->encoder, fault);
    if (rc)
        zt_byte_bpe_close(b);
    else
        *out = b;
    return rc;
}

void zt_byte_bpe_close(struct zt_byte_bpe *b)
{
    if (!b)
        return;
    zt_word_counts_release(&b->words);
    zt_buf_release(&b->bytes);
    zt_encoder_close(b->encoder);
    zt_tokenizer_close(b->splitter);
    free(b);
}

/* A word as the byte-level alphabet writes it. */
static zt_err take_word(void *user, const char *s, size_t n)
{
    struct zt_byte_bpe *b = user;
    zt_err rc = ZT_OK;

    zt_buf_drop(&b->bytes, zt_buf_used(&b->bytes));
    for (size_t at = 0; !rc && at < n;)
        rc = zt_buf_put_u8(&b->bytes, (uint8_t)zt_char_byte(zt_utf8_next(s, &at)));
    return rc ? rc
              : zt_word_counts_add(&b->words, (const char *)zt_buf_head(&b->bytes),
                                   zt_buf_used(&b->bytes), 1);
}

zt_err zt_byte_bpe_add(struct zt_byte_bpe *b, const char *name, const char *text,
                       size_t n, struct zt_fault *fault)
{
    for (size_t at = 0; at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t len = end ? (size_t)(end + 1 - (text + at)) : n - at;
        zt_err rc = zt_encoder_split(b->encoder, text + at, len, take_word, b, fault);

        if (rc == ZT_E_LIMIT)
            return zt_fault_set(fault, rc,
                                "%s: a tokenizer made of it would have to count more "
                                "than %zu GiB of different words; make it of a part of "
                                "the text, with ztok --train",
                                name, MOST_WORD_BYTES >> 30);
        if (rc)
            return zt_fault_context(fault, rc, "%s: line at byte %zu", name, at);
        at += len;
    }
    return ZT_OK;
}

/* ---- the JSON ---- */

struct writing {
    struct zt_buf *out;
    zt_err rc;
};

static void put(struct writing *w, const char *text)
{
    if (!w->rc)
        w->rc = zt_buf_put(w->out, text, strlen(text));
}

/* A token as the alphabet writes its bytes, in quotes. */
static void put_token(struct writing *w, const char *s, size_t n)
{
    put(w, "\"");
    for (size_t i = 0; !w->rc && i < n; i++) {
        if (s[i] == '"' || s[i] == '\\')
            put(w, "\\");
        if (!w->rc)
            w->rc = zt_utf8_put(w->out, zt_byte_char((uint8_t)s[i]));
    }
    put(w, "\"");
}

static const char *text_of(const struct zt_bpe_learned *l, int32_t id, size_t *n)
{
    const size_t *ends = (const size_t *)(const void *)l->ends.data;
    size_t from = id ? ends[id - 1] : 0;

    *n = ends[id] - from;
    return (const char *)l->text.data + from;
}

static void put_vocab(struct writing *w, const struct zt_bpe_learned *l, int32_t num)
{
    char id[24];

    put(w, "      \"" ZT_BYTE_BPE_END "\": 0");
    for (int32_t i = 1; i < num; i++) {
        size_t n;
        const char *s = text_of(l, i, &n);

        put(w, ",\n      ");
        put_token(w, s, n);
        snprintf(id, sizeof(id), ": %d", (int)i);
        put(w, id);
    }
}

static int by_pair(const void *a, const void *b)
{
    const struct zt_bpe_merge *x = *(const struct zt_bpe_merge *const *)a;
    const struct zt_bpe_merge *y = *(const struct zt_bpe_merge *const *)b;

    if (x->left != y->left)
        return x->left < y->left ? -1 : 1;
    if (x->right != y->right)
        return x->right < y->right ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Of merges done twice the last one counts; into < 0 marks the others. */
static zt_err drop_twins(struct zt_bpe_merge *m, size_t num)
{
    struct zt_bpe_merge **sorted = malloc((num ? num : 1) * sizeof(*sorted));

    if (!sorted)
        return ZT_E_NOMEM;
    for (size_t i = 0; i < num; i++)
        sorted[i] = &m[i];
    qsort(sorted, num, sizeof(*sorted), by_pair);
    for (size_t i = 0; i + 1 < num; i++)
        if (sorted[i]->left == sorted[i + 1]->left &&
            sorted[i]->right == sorted[i + 1]->right)
            sorted[i]->into = -1;
    free(sorted);
    return ZT_OK;
}

static void put_merges(struct writing *w, const struct zt_bpe_learned *l)
{
    struct zt_bpe_merge *m = (struct zt_bpe_merge *)(void *)l->merges.data;
    size_t num = zt_buf_used(&l->merges) / sizeof(*m);
    const char *between = "";

    if (!w->rc)
        w->rc = drop_twins(m, num);
    for (size_t i = 0; !w->rc && i < num; i++) {
        size_t n;
        const char *s;

        if (m[i].into < 0)
            continue;
        put(w, between);
        put(w, "\n      [");
        s = text_of(l, m[i].left, &n);
        put_token(w, s, n);
        put(w, ", ");
        s = text_of(l, m[i].right, &n);
        put_token(w, s, n);
        put(w, "]");
        between = ",";
    }
}

/* As T5's: what ends a text stands behind each. */
#define END_PIECE "{\"SpecialToken\": {\"id\": \"" ZT_BYTE_BPE_END "\", \"type_id\": 0}}"
#define PIECE_A   "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}"
#define PIECE_B   "{\"Sequence\": {\"id\": \"B\", \"type_id\": 0}}"
#define PIECES_1  PIECE_A ", " END_PIECE
#define PIECES_2  PIECES_1 ", " PIECE_B ", " END_PIECE

static const char ending[] =
    "{\n    \"type\": \"TemplateProcessing\",\n    \"single\": [" PIECES_1 "],\n"
    "    \"pair\": [" PIECES_2 "],\n    \"special_tokens\": {\"" ZT_BYTE_BPE_END
    "\": {\"id\": \"" ZT_BYTE_BPE_END "\", \"ids\": [0], \"tokens\": [\"" ZT_BYTE_BPE_END
    "\"]}}\n  }";

static zt_err put_json(const struct zt_bpe_learned *l, int32_t num, bool ends,
                       struct zt_buf *out)
{
    struct writing w = {.out = out};

    put(&w, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
            "  \"added_tokens\": [\n    {\"id\": 0, \"content\": \"" ZT_BYTE_BPE_END
            "\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
            "\"normalized\": false, \"special\": true}\n  ],\n  \"normalizer\": null,\n"
            "  \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
            "\"trim_offsets\": true, \"use_regex\": true},\n  \"post_processor\": ");
    put(&w, ends ? ending : "null");
    put(&w,
        ",\n  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
        "\"trim_offsets\": true, \"use_regex\": true},\n  \"model\": {\n"
        "    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
        "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
        "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n"
        "    \"ignore_merges\": false,\n    \"vocab\": {\n");
    put_vocab(&w, l, num);
    put(&w, "\n    },\n    \"merges\": [");
    put_merges(&w, l);
    put(&w, "\n    ]\n  }\n}\n");
    return w.rc;
}

/* ---- the whole ---- */

/* Bytes by the characters that stand for them. */
static void order_bytes(uint8_t *order)
{
    int num = 0;

    for (uint32_t c = 0; num < 256 && c < 0x200; c++)
        if (zt_char_byte(c) >= 0)
            order[num++] = (uint8_t)zt_char_byte(c);
}

zt_err zt_byte_bpe_make(const struct zt_byte_bpe *b, int32_t vocab_size, bool ends,
                        struct zt_buf *json, int32_t *num, struct zt_fault *fault)
{
    uint8_t order[256];
    struct zt_bpe_alphabet alphabet = {.byte_order = order, .first_id = 1};
    struct zt_bpe_learned l;
    zt_err rc;

    order_bytes(order);
    rc = zt_bpe_learn(&b->words, &alphabet, vocab_size, &l);
    *num = (int32_t)(zt_buf_used(&l.ends) / sizeof(size_t));
    if (!rc)
        rc = put_json(&l, *num, ends, json);
    zt_bpe_learned_release(&l);
    return rc ? zt_fault_set(fault, rc, "tokenizer: no memory to make it in") : ZT_OK;
}
