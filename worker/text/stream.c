/*
 * stream.c -- decoding token by token.
 *
 *      ids:   | those that were told last | those whose characters are not complete |
 *      text:  | `sent` bytes of it        | ...                                     |
 *
 * Decoders treat the first token apart, so what was told last is decoded again in front
 * of the new ones, and its text taken off. It is told in whole characters: bytes that
 * are tokens of their own are decoded together, and half a character in front would
 * spoil the next one.
 */
#include <stdlib.h>
#include <string.h>

#include "worker/text/pipeline.h"

#define MOST_WAITING 16

struct zt_token_stream {
    const struct zt_tokenizer *t;
    struct zt_text_work work;
    struct zt_buf text;
    int32_t ids[2 * MOST_WAITING];
    size_t num, told, sent; /* told: of `num`, which were */
    bool skip_special;
    struct zt_sp_decoding spiece; /* which decodes token by token by itself */
};

zt_err zt_token_stream_open(const struct zt_tokenizer *t, bool skip_special,
                            struct zt_token_stream **out, struct zt_fault *fault)
{
    struct zt_token_stream *s = calloc(1, sizeof(*s));
    zt_err rc;

    if (!s)
        return zt_text_out_of_memory(fault, ZT_E_NOMEM);
    s->t = t;
    s->skip_special = skip_special;
    zt_buf_init(&s->text, ZT_TEXT_MAX_BYTES);
    rc = zt_text_work_init(&s->work, fault);
    if (rc) {
        zt_token_stream_close(s);
        return rc;
    }
    *out = s;
    return ZT_OK;
}

void zt_token_stream_close(struct zt_token_stream *s)
{
    if (!s)
        return;
    zt_text_work_release(&s->work);
    zt_buf_release(&s->text);
    free(s);
}

static zt_err decode(struct zt_token_stream *s, struct zt_fault *fault)
{
    zt_buf_empty(&s->text);
    return zt_decode_in(s->t, &s->work, s->ids, s->num, s->skip_special, &s->text, fault);
}

/* What s->text has beyond what was sent; from here on only its tokens are kept. */
static zt_err tell(struct zt_token_stream *s, struct zt_buf *out, struct zt_fault *fault)
{
    size_t n = zt_buf_used(&s->text);
    zt_err rc = ZT_OK;

    if (n > s->sent)
        rc = zt_buf_put(out, zt_text_of(&s->text) + s->sent, n - s->sent);
    if (rc)
        return zt_text_out_of_memory(fault, rc);
    s->num -= s->told;
    memmove(s->ids, s->ids + s->told, s->num * sizeof(*s->ids));
    s->told = s->num;
    rc = decode(s, fault);
    s->sent = zt_buf_used(&s->text);
    return rc;
}

zt_err zt_token_stream_put(struct zt_token_stream *s, int32_t id, struct zt_buf *out,
                           struct zt_fault *fault)
{
    size_t n;
    zt_err rc;

    if (s->t->spiece.model)
        return zt_spiece_decode(s->t, &s->spiece, id, s->skip_special, out, fault);
    if (!zt_tokenizer_token(s->t, id, &n) ||
        (s->skip_special && zt_tokenizer_is_special(s->t, id)))
        return ZT_OK;
    s->ids[s->num++] = id;
    rc = decode(s, fault);
    if (rc || (s->work.cut && s->num < s->told + MOST_WAITING))
        return rc;
    return tell(s, out, fault);
}

zt_err zt_token_stream_end(struct zt_token_stream *s, struct zt_buf *out,
                           struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (s->t->spiece.model) {
        rc = zt_sentencepiece_end(&s->spiece, out);
        return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
    }
    if (s->num > s->told)
        rc = decode(s, fault);
    if (!rc && s->num > s->told)
        rc = tell(s, out, fault);
    s->num = s->told = s->sent = 0;
    return rc;
}
