/*
 * Model files of SentencePiece: the first two bytes are the length of one, the rest is a
 * text that it encodes. Every id is one of the model's, and they are decoded, too.
 */
#include <stdlib.h>

#include "worker/text/sentencepiece/sentencepiece.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MOST_TEXT 4096

static void encode(const struct zt_sentencepiece *m, const char *text, size_t n,
                   zt_sp_start start)
{
    struct zt_sp_decoding d = {0};
    struct zt_sp_work w;
    struct zt_buf ids, out;
    uint64_t replaced = 0;

    zt_sp_work_init(&w);
    zt_buf_init(&ids, 1 << 26);
    zt_buf_init(&out, 1 << 26);
    if (zt_sentencepiece_encode(m, &w, text, n, start, &ids, &replaced) == ZT_OK) {
        const int32_t *list = (const int32_t *)(const void *)ids.data;

        for (size_t i = 0; i < zt_buf_used(&ids) / sizeof(*list); i++)
            if (list[i] < 0 || list[i] >= zt_sentencepiece_num(m) ||
                zt_sentencepiece_put(m, &d, list[i], &out))
                abort();
        if (zt_sentencepiece_end(&d, &out) || d.num_bytes)
            abort();
    }
    zt_buf_release(&ids);
    zt_buf_release(&out);
    zt_sp_work_release(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct zt_sentencepiece *m = NULL;
    size_t head, len;

    if (n < 2)
        return 0;
    head = (size_t)data[0] << 8 | data[1];
    head = head < n - 2 ? head : n - 2;
    len = n - 2 - head;
    len = len < MOST_TEXT ? len : MOST_TEXT;
    if (zt_sentencepiece_parse("fuzz", data + 2, head, &m, NULL) == ZT_OK) {
        encode(m, (const char *)data + 2 + head, len, ZT_SP_TEXT);
        encode(m, (const char *)data + 2 + head, len, ZT_SP_CONTINUED);
    }
    zt_sentencepiece_free(m);
    return 0;
}
