#include "worker/generate/text_out.h"

#include <stdio.h>

#include "common/message/event.h"

static zt_err out_of_memory(struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_NOMEM, "generation: no host memory");
}

/* Bytes as they are, without end-of-text, or "1 22 333"; `first`: nothing stands before them. */
static zt_err put_plain(const int32_t *ids, int64_t n, bool bytes, bool first,
                        struct zt_buf *out)
{
    char number[16];
    zt_err rc = ZT_OK;

    for (int64_t i = 0; !rc && i < n; i++) {
        int k;

        if (bytes) {
            rc = ids[i] < 256 ? zt_buf_put_u8(out, (uint8_t)ids[i]) : ZT_OK;
            continue;
        }
        k = snprintf(number, sizeof(number), first && i == 0 ? "%d" : " %d", ids[i]);
        rc = zt_buf_put(out, number, (size_t)k);
    }
    return rc;
}

zt_err zt_text_of_ids(const struct zt_engine *e, const int32_t *ids, int64_t n,
                      struct zt_buf *out, struct zt_fault *fault)
{
    if (e->tokenizer)
        return zt_decode(e->tokenizer, ids, (size_t)n, true, out, fault);
    return put_plain(ids, n, zt_engine_has_byte_vocab(e), true, out)
               ? out_of_memory(fault)
               : ZT_OK;
}

/* ---- piece by piece ---- */

zt_err zt_text_pieces_open(struct zt_text_pieces *p, const struct zt_engine *e,
                           const char *kind, struct zt_fault *fault)
{
    *p = (struct zt_text_pieces){
        .e = e, .kind = kind, .bytes = zt_engine_has_byte_vocab(e)};
    zt_buf_init(&p->piece, ZT_TEXT_MAX_BYTES);
    return e->tokenizer ? zt_token_stream_open(e->tokenizer, true, &p->stream, fault)
                        : ZT_OK;
}

void zt_text_pieces_close(struct zt_text_pieces *p)
{
    zt_token_stream_close(p->stream);
    zt_buf_release(&p->piece);
    p->stream = NULL;
}

/* Bytes of n at the end that begin a character which is not whole. */
static size_t incomplete(const uint8_t *text, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        uint8_t c = text[n - back];
        size_t wanted = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;

        if (c >= 0xc0)
            return wanted > back ? back : 0;
        if (c < 0x80)
            return 0;
    }
    return 0;
}

/* An event with all but the last `kept` bytes. */
static void send(struct zt_text_pieces *p, size_t kept)
{
    size_t n = zt_buf_used(&p->piece) - kept;

    if (n)
        zt_event_bytes(p->kind, (const char *)zt_buf_head(&p->piece), n);
    zt_buf_drop(&p->piece, n);
}

zt_err zt_text_pieces_put(struct zt_text_pieces *p, const int32_t *ids, int64_t n,
                          struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int64_t i = 0; !rc && p->stream && i < n; i++)
        rc = zt_token_stream_put(p->stream, ids[i], &p->piece, fault);
    if (!p->stream && put_plain(ids, n, p->bytes, !p->any, &p->piece))
        rc = out_of_memory(fault);
    p->any |= n > 0;
    if (!rc)
        send(p, incomplete(zt_buf_head(&p->piece), zt_buf_used(&p->piece)));
    return rc;
}

zt_err zt_text_pieces_end(struct zt_text_pieces *p, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (p->stream)
        rc = zt_token_stream_end(p->stream, &p->piece, fault);
    p->any = false;
    if (!rc)
        send(p, 0);
    return rc;
}
