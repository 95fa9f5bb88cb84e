/*
 * Tokenizers: what stands before the first zero byte is a tokenizer.json, the rest a text
 * that it encodes. Without one, the text goes through a byte-level tokenizer, which has to
 * give it back. Every id is one of the vocabulary, and a text decoded token by token is
 * the text decoded at once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/text/unicode/chars.h"
#include "worker/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MOST_TEXT 4096

static void put(struct zt_buf *json, const char *text)
{
    if (zt_buf_put(json, text, strlen(text)))
        abort();
}

/* A token for each byte, and two merges. */
static struct zt_tokenizer *byte_level(void)
{
    static struct zt_tokenizer *t;
    struct zt_buf json;
    char id[16];

    if (t)
        return t;
    zt_buf_init(&json, 1 << 20);
    put(&json, "{\"model\":{\"type\":\"BPE\",\"merges\":[\"a b\",\"ab a\"],\"vocab\":{");
    for (int b = 0; b < 256; b++) {
        put(&json, b == '"' || b == '\\' ? "\"\\" : "\"");
        if (zt_utf8_put(&json, zt_byte_char((uint8_t)b)))
            abort();
        snprintf(id, sizeof(id), "\":%d,", b);
        put(&json, id);
    }
    put(&json, "\"ab\":256,\"aba\":257}},\"pre_tokenizer\":{\"type\":\"ByteLevel\","
               "\"add_prefix_space\":false},\"decoder\":{\"type\":\"ByteLevel\"}}");
    if (zt_tokenizer_parse("fuzz", (const char *)zt_buf_head(&json), zt_buf_used(&json),
                           &t, NULL))
        abort();
    zt_buf_release(&json);
    return t;
}

/* Only where no run of byte tokens can turn out to be no text. */
static void check_stream(const struct zt_tokenizer *t, const int32_t *ids, size_t num,
                         const struct zt_buf *whole, bool compare)
{
    struct zt_token_stream *s;
    struct zt_buf out;

    if (zt_token_stream_open(t, false, &s, NULL))
        return;
    zt_buf_init(&out, 1 << 24);
    for (size_t i = 0; i < num; i++)
        if (zt_token_stream_put(s, ids[i], &out, NULL))
            compare = false;
    if (zt_token_stream_end(s, &out, NULL))
        compare = false;
    if (compare && (zt_buf_used(&out) != zt_buf_used(whole) ||
                    (zt_buf_used(whole) && memcmp(zt_buf_head(&out), zt_buf_head(whole),
                                                  zt_buf_used(whole)) != 0)))
        abort();
    zt_buf_release(&out);
    zt_token_stream_close(s);
}

static void encode(const struct zt_tokenizer *t, const char *text, size_t n, bool exact)
{
    struct zt_encoder *e;
    const int32_t *ids;
    size_t num;
    struct zt_buf whole, repaired;
    uint64_t replaced = 0;

    if (zt_encoder_open(t, &e, NULL))
        return;
    zt_buf_init(&whole, 1 << 24);
    zt_buf_init(&repaired, 1 << 24);
    if (zt_encode(e, text, n, true, &ids, &num, NULL) == ZT_OK) {
        for (size_t i = 0; i < num; i++)
            if (ids[i] < 0 || ids[i] >= zt_tokenizer_vocab(t))
                abort();
        if (zt_decode(t, ids, num, false, &whole, NULL) == ZT_OK)
            check_stream(t, ids, num, &whole, exact);
        if (exact && (zt_utf8_repair(text, n, &repaired, &replaced) ||
                      zt_buf_used(&repaired) != zt_buf_used(&whole) ||
                      (n && memcmp(zt_buf_head(&repaired), zt_buf_head(&whole),
                                   zt_buf_used(&whole)) != 0) ||
                      replaced != zt_encoder_num_replaced(e)))
            abort();
    } else if (exact) {
        abort();
    }
    zt_buf_release(&whole);
    zt_buf_release(&repaired);
    zt_encoder_close(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const uint8_t *zero = n ? memchr(data, 0, n) : NULL;
    size_t head = zero ? (size_t)(zero - data) : n;
    const char *text = zero ? (const char *)zero + 1 : "The text, 42.";
    size_t len = zero ? n - head - 1 : strlen(text);
    struct zt_tokenizer *t = NULL;

    len = len < MOST_TEXT ? len : MOST_TEXT;
    if (head == 0) {
        encode(byte_level(), text, len, true);
        return 0;
    }
    if (zt_tokenizer_parse("fuzz", (const char *)data, head, &t, NULL) == ZT_OK)
        encode(t, text, len, false);
    zt_tokenizer_close(t);
    return 0;
}
