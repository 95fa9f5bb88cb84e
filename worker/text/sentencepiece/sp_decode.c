/*
 * sp_decode.c -- ids to text, one at a time. The blank in front of the first piece is not
 * of the text. Tokens of bytes become characters when they are complete; one that belongs
 * to none is U+FFFD.
 */
#include <string.h>

#include "worker/text/unicode/chars.h"
#include "worker/text/sentencepiece/model.h"

#define REPLACEMENT "\xef\xbf\xbd"

static zt_err put(struct zt_sp_decoding *d, const void *s, size_t n, struct zt_buf *out)
{
    d->any_text |= n > 0;
    return zt_buf_put(out, s, n);
}

static void drop_bytes(struct zt_sp_decoding *d, size_t n)
{
    d->num_bytes -= n;
    memmove(d->bytes, d->bytes + n, d->num_bytes);
}

/* The bytes that wait, up to those that others could complete; `all`: those, too. */
static zt_err flush_bytes(struct zt_sp_decoding *d, bool all, struct zt_buf *out)
{
    zt_err rc = ZT_OK;

    while (!rc && d->num_bytes) {
        const char *s = (const char *)d->bytes;
        size_t bad, len = zt_utf8_check(s, d->num_bytes, &bad);

        if (!len && !all && bad == d->num_bytes && zt_utf8_is_cut(s, d->num_bytes))
            break;
        rc = len ? put(d, s, len, out) : put(d, REPLACEMENT, 3, out);
        drop_bytes(d, len ? len : 1);
    }
    return rc;
}

static zt_err put_piece(const struct zt_sentencepiece *m, struct zt_sp_decoding *d,
                        const char *s, size_t n, struct zt_buf *out)
{
    zt_err rc = ZT_OK;

    d->blank_taken = false;
    if (!d->begun && (m->add_dummy_prefix || m->remove_extra_whitespaces) &&
        n >= ZT_SP_BLANK_BYTES && memcmp(s, ZT_SP_BLANK, ZT_SP_BLANK_BYTES) == 0) {
        s += ZT_SP_BLANK_BYTES;
        n -= ZT_SP_BLANK_BYTES;
        d->blank_taken = !m->remove_extra_whitespaces; /* else all in front go */
    }
    while (!rc && n) {
        const char *blank = memmem(s, n, ZT_SP_BLANK, ZT_SP_BLANK_BYTES);
        size_t len = blank ? (size_t)(blank - s) : n;

        rc = put(d, s, len, out);
        if (!rc && blank)
            rc = put(d, " ", 1, out);
        len += blank ? ZT_SP_BLANK_BYTES : 0;
        s += len;
        n -= len;
    }
    return rc;
}

zt_err zt_sentencepiece_put(const struct zt_sentencepiece *m, struct zt_sp_decoding *d,
                            int32_t id, struct zt_buf *out)
{
    const char *s;
    size_t n;
    zt_err rc;

    if (id < 0 || id >= m->num)
        return ZT_OK;
    s = m->pieces[id].text;
    n = m->pieces[id].n;
    id = zt_sp_id(m, s, n); /* of a text that stands twice, the reserved one */
    if (m->pieces[id].type == ZT_SP_BYTE) {
        for (int b = 0; b < 256;
             b++) /* at most four wait: a character is complete then */
            if (m->byte_ids[b] == id)
                d->bytes[d->num_bytes] = (uint8_t)b;
        d->num_bytes++;
        return flush_bytes(d, false, out);
    }
    rc = flush_bytes(d, true, out);
    if (rc)
        return rc;
    d->begun |= d->blank_taken || d->any_text;
    if (m->pieces[id].type == ZT_SP_CONTROL || m->pieces[id].type == ZT_SP_UNKNOWN) {
        d->blank_taken = false;
        return m->pieces[id].type == ZT_SP_CONTROL
                   ? ZT_OK
                   : put(d, m->unknown_text, strlen(m->unknown_text), out);
    }
    return put_piece(m, d, s, n, out);
}

zt_err zt_sentencepiece_end(struct zt_sp_decoding *d, struct zt_buf *out)
{
    zt_err rc = flush_bytes(d, true, out);

    *d = (struct zt_sp_decoding){0};
    return rc;
}
