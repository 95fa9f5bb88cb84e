/*
 * decode.c -- decoders: a table row each; tokens are pieces, in and out, and at the end
 * they are joined.
 */
#include <stdlib.h>
#include <string.h>

#include "worker/text/unicode/chars.h"
#include "worker/text/pipeline.h"

/* All pieces become one: `text` is w->next. */
static zt_err make_one_piece(struct zt_text_work *w, struct zt_fault *fault)
{
    struct zt_text_piece one = {.n = zt_buf_used(&w->next), .token = -1};
    zt_err rc;

    zt_text_work_swap_text(w);
    zt_buf_empty(&w->pieces);
    rc = zt_buf_put(&w->pieces, &one, sizeof(one));
    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}

static zt_err join(const struct zt_text_work *w, const char *between, struct zt_buf *out)
{
    size_t num;
    const struct zt_text_piece *p = zt_pieces_of(&w->pieces, &num);
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < num; i++) {
        if (i)
            rc = zt_buf_put(out, between, strlen(between));
        if (!rc)
            rc = zt_buf_put(out, zt_text_of(&w->text) + p[i].at, p[i].n);
    }
    return rc;
}

static zt_err fuse(const struct zt_text_step *step, struct zt_text_work *w,
                   struct zt_fault *fault)
{
    zt_err rc;

    (void)step;
    zt_buf_empty(&w->next);
    rc = join(w, "", &w->next);
    return rc ? zt_text_out_of_memory(fault, rc) : make_one_piece(w, fault);
}

/* ---- ByteLevel ---- */

/* A token's bytes; one with a character that stands for no byte is itself. */
static zt_err put_token_bytes(const char *s, size_t n, struct zt_buf *out)
{
    size_t before = out->len;
    zt_err rc = ZT_OK;

    for (size_t at = 0; !rc && at < n;) {
        int byte = zt_char_byte(zt_utf8_next(s, &at));

        if (byte < 0) {
            out->len = before;
            return zt_buf_put(out, s, n);
        }
        rc = zt_buf_put_u8(out, (uint8_t)byte);
    }
    return rc;
}

static zt_err byte_level(const struct zt_text_step *step, struct zt_text_work *w,
                         struct zt_fault *fault)
{
    size_t num;
    const struct zt_text_piece *p = zt_pieces_of(&w->pieces, &num);
    uint64_t replaced = 0;
    zt_err rc = ZT_OK;

    (void)step;
    zt_buf_empty(&w->scratch);
    zt_buf_empty(&w->next);
    for (size_t i = 0; !rc && i < num; i++)
        rc = put_token_bytes(zt_text_of(&w->text) + p[i].at, p[i].n, &w->scratch);
    w->cut = zt_utf8_is_cut(zt_text_of(&w->scratch), zt_buf_used(&w->scratch));
    if (!rc)
        rc = zt_utf8_repair(zt_text_of(&w->scratch), zt_buf_used(&w->scratch), &w->next,
                            &replaced);
    return rc ? zt_text_out_of_memory(fault, rc) : make_one_piece(w, fault);
}

/* ---- ByteFallback ---- */

/* The byte of "<0xHH>", or -1. */
static int fallback_byte(const char *s, size_t n)
{
    char hex[3] = {0};
    char *end;
    long byte;

    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
        return -1;
    memcpy(hex, s + 3, 2);
    byte = strtol(hex, &end, 16);
    return end == hex + 2 && hex[0] != ' ' && hex[0] != '+' && hex[0] != '-' ? (int)byte
                                                                             : -1;
}

/* The bytes that waited in w->scratch, as characters, or one U+FFFD for each. */
static zt_err flush_bytes(struct zt_text_work *w)
{
    size_t n = zt_buf_used(&w->scratch);
    struct zt_text_piece p = {.at = w->next.len, .token = -1};
    zt_err rc = ZT_OK;

    if (!n)
        return ZT_OK;
    if (zt_utf8_valid_bytes(zt_text_of(&w->scratch), n) == n)
        rc = zt_buf_put(&w->next, zt_text_of(&w->scratch), n);
    else
        for (size_t i = 0; !rc && i < n; i++)
            rc = zt_utf8_put(&w->next, 0xfffd);
    p.n = w->next.len - p.at;
    zt_buf_empty(&w->scratch);
    return rc ? rc : zt_buf_put(&w->more, &p, sizeof(p));
}

static zt_err byte_fallback(const struct zt_text_step *step, struct zt_text_work *w,
                            struct zt_fault *fault)
{
    size_t num;
    const struct zt_text_piece *p = zt_pieces_of(&w->pieces, &num);
    zt_err rc = ZT_OK;

    (void)step;
    zt_buf_empty(&w->next);
    zt_buf_empty(&w->more);
    zt_buf_empty(&w->scratch);
    for (size_t i = 0; !rc && i < num; i++) {
        const char *s = zt_text_of(&w->text) + p[i].at;
        int byte = fallback_byte(s, p[i].n);
        struct zt_text_piece moved = {.n = p[i].n, .token = -1};

        if (byte >= 0) {
            rc = zt_buf_put_u8(&w->scratch, (uint8_t)byte);
            continue;
        }
        rc = flush_bytes(w);
        moved.at = w->next.len;
        if (!rc)
            rc = zt_buf_put(&w->next, s, p[i].n);
        if (!rc)
            rc = zt_buf_put(&w->more, &moved, sizeof(moved));
    }
    w->cut = zt_utf8_is_cut(zt_text_of(&w->scratch), zt_buf_used(&w->scratch));
    if (!rc)
        rc = flush_bytes(w);
    zt_text_work_swap_text(w);
    zt_text_work_swap_pieces(w);
    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}

/* ---- WordPiece, BPEDecoder ---- */

static zt_err read_wordpiece(const struct zt_setting *s, struct zt_text_step *step,
                             struct zt_fault *fault)
{
    zt_err rc = zt_step_copy_text(s, "prefix", &step->text, &step->text_bytes, fault);

    return rc ? rc : zt_setting_bool(s, "cleanup", true, &step->flag[0], fault);
}

/* The blanks that English has not, within out->data[from..]; it never becomes longer. */
static void clean_up(struct zt_buf *out, size_t from)
{
    static const char *const pairs[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };

    for (size_t k = 0; k < sizeof(pairs) / sizeof(*pairs); k++) {
        size_t n = strlen(pairs[k][0]), m = strlen(pairs[k][1]), to = from;
        const uint8_t *s = out->data;

        for (size_t at = from; at < out->len;) {
            if (out->len - at >= n && memcmp(s + at, pairs[k][0], n) == 0) {
                memcpy(out->data + to, pairs[k][1], m);
                to += m;
                at += n;
            } else {
                out->data[to++] = s[at++];
            }
        }
        out->len = to;
    }
}

static zt_err put_wordpiece(const struct zt_text_step *step,
                            const struct zt_text_piece *p, size_t i, const char *s,
                            struct zt_buf *out)
{
    size_t from = out->len, n = p->n;
    bool goes_on = n >= step->text_bytes && memcmp(s, step->text, step->text_bytes) == 0;
    zt_err rc = ZT_OK;

    if (i && goes_on) {
        s += step->text_bytes;
        n -= step->text_bytes;
    } else if (i) {
        rc = zt_buf_put_u8(out, ' ');
    }
    if (!rc)
        rc = zt_buf_put(out, s, n);
    if (!rc && step->flag[0] && out->data)
        clean_up(out, from);
    return rc;
}

static zt_err wordpiece(const struct zt_text_step *step, struct zt_text_work *w,
                        struct zt_fault *fault)
{
    return zt_rewrite_pieces(step, w, put_wordpiece, fault);
}

static zt_err read_suffix(const struct zt_setting *s, struct zt_text_step *step,
                          struct zt_fault *fault)
{
    zt_err rc = zt_step_copy_text(s, "suffix", &step->text, &step->text_bytes, fault);

    if (!rc && step->text_bytes == 0)
        rc = zt_setting_refuse(s, fault, "its suffix is empty");
    return rc;
}

/* A suffix ends a word: a blank, but behind the last token. */
static zt_err bpe_suffix(const struct zt_text_step *step, struct zt_text_work *w,
                         struct zt_fault *fault)
{
    size_t num;
    struct zt_text_piece *p = zt_pieces_of(&w->pieces, &num);
    struct zt_text_step blank = *step;
    zt_err rc = ZT_OK;

    zt_buf_empty(&w->next);
    for (size_t i = 0; !rc && i < num; i++) {
        size_t at = w->next.len;

        blank.content = " ";
        blank.content_bytes = i + 1 < num;
        rc = zt_step_replace(&blank, w, zt_text_of(&w->text) + p[i].at, p[i].n, &w->next,
                             fault);
        p[i].at = at;
        p[i].n = w->next.len - at;
    }
    zt_text_work_swap_text(w);
    return rc;
}

/* ---- Metaspace ---- */

static zt_err put_metaspace(const struct zt_text_step *step,
                            const struct zt_text_piece *p, size_t i, const char *s,
                            struct zt_buf *out)
{
    zt_err rc = ZT_OK;

    for (size_t at = 0; !rc && at < p->n;) {
        uint32_t c = zt_utf8_next(s, &at);

        if (c != step->character)
            rc = zt_utf8_put(out, c);
        else if (i || !(step->flag[ZT_PREPEND_ALWAYS] || step->flag[ZT_PREPEND_FIRST]))
            rc = zt_buf_put_u8(out, ' ');
    }
    return rc;
}

static zt_err metaspace(const struct zt_text_step *step, struct zt_text_work *w,
                        struct zt_fault *fault)
{
    return zt_rewrite_pieces(step, w, put_metaspace, fault);
}

/* ---- Strip, Replace ---- */

static zt_err read_strip(const struct zt_setting *s, struct zt_text_step *step,
                         struct zt_fault *fault)
{
    zt_err rc = zt_step_read_character(s, "content", &step->character, fault);

    if (!rc)
        rc = zt_setting_int(s, "start", 0, INT32_MAX, &step->start, fault);
    return rc ? rc : zt_setting_int(s, "stop", 0, INT32_MAX, &step->stop, fault);
}

static zt_err put_stripped(const struct zt_text_step *step, const struct zt_text_piece *p,
                           size_t i, const char *s, struct zt_buf *out)
{
    size_t from = 0, to = p->n, at = 0;

    (void)i;
    for (int64_t k = 0; k < step->start && at < p->n; k++) {
        if (zt_utf8_next(s, &at) != step->character)
            break;
        from = at;
    }
    at = p->n;
    for (int64_t k = 0; k < step->stop && at > 0; k++) {
        if (zt_utf8_previous(s, &at) != step->character)
            break;
        to = at;
    }
    return to > from ? zt_buf_put(out, s + from, to - from) : ZT_OK;
}

static zt_err strip(const struct zt_text_step *step, struct zt_text_work *w,
                    struct zt_fault *fault)
{
    return zt_rewrite_pieces(step, w, put_stripped, fault);
}

static zt_err replace(const struct zt_text_step *step, struct zt_text_work *w,
                      struct zt_fault *fault)
{
    size_t num;
    struct zt_text_piece *p = zt_pieces_of(&w->pieces, &num);
    zt_err rc = ZT_OK;

    zt_buf_empty(&w->next);
    for (size_t i = 0; !rc && i < num; i++) {
        size_t at = w->next.len;

        rc = zt_step_replace(step, w, zt_text_of(&w->text) + p[i].at, p[i].n, &w->next,
                             fault);
        p[i].at = at;
        p[i].n = w->next.len - at;
    }
    zt_text_work_swap_text(w);
    return rc;
}

const struct zt_step_kind zt_decoder_kinds[] = {
    {.type = "ByteLevel",
     .keys = "add_prefix_space trim_offsets use_regex",
     .apply = byte_level},
    {.type = "WordPiece",
     .keys = "prefix cleanup",
     .read = read_wordpiece,
     .apply = wordpiece},
    {.type = "Metaspace",
     .keys = "replacement prepend_scheme add_prefix_space split str_rep",
     .read = zt_step_read_metaspace,
     .apply = metaspace},
    {.type = "BPEDecoder", .keys = "suffix", .read = read_suffix, .apply = bpe_suffix},
    {.type = "ByteFallback", .keys = "", .apply = byte_fallback},
    {.type = "Fuse", .keys = "", .apply = fuse},
    {.type = "Strip", .keys = "content start stop", .read = read_strip, .apply = strip},
    {.type = "Replace",
     .keys = "pattern content",
     .read = zt_step_read_replace,
     .apply = replace},
    {0},
};

/* ---- ids to text ---- */

static zt_err decode_spiece(const struct zt_tokenizer *t, const int32_t *ids, size_t num,
                            bool skip_special, struct zt_buf *out, struct zt_fault *fault)
{
    struct zt_sp_decoding d = {0};
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < num; i++)
        rc = zt_spiece_decode(t, &d, ids[i], skip_special, out, fault);
    if (rc)
        return rc;
    rc = zt_sentencepiece_end(&d, out);
    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}

zt_err zt_decode_in(const struct zt_tokenizer *t, struct zt_text_work *w,
                    const int32_t *ids, size_t num, bool skip_special, struct zt_buf *out,
                    struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (t->spiece.model)
        return decode_spiece(t, ids, num, skip_special, out, fault);
    w->cut = false;
    zt_buf_empty(&w->text);
    zt_buf_empty(&w->pieces);
    for (size_t i = 0; !rc && i < num; i++) {
        struct zt_text_piece p = {.at = w->text.len, .token = -1};
        const char *token = zt_tokenizer_token(t, ids[i], &p.n);

        if (!token || (skip_special && zt_tokenizer_is_special(t, ids[i])))
            continue;
        rc = zt_buf_put(&w->text, token, p.n);
        if (!rc)
            rc = zt_buf_put(&w->pieces, &p, sizeof(p));
    }
    if (rc)
        return zt_text_out_of_memory(fault, rc);
    for (int i = 0; !rc && i < t->decoders.num; i++)
        rc = t->decoders.steps[i].kind->apply(&t->decoders.steps[i], w, fault);
    if (rc)
        return rc;
    rc = join(w, t->decoders.there ? "" : " ", out);
    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}

zt_err zt_decode(const struct zt_tokenizer *t, const int32_t *ids, size_t num,
                 bool skip_special, struct zt_buf *out, struct zt_fault *fault)
{
    struct zt_text_work w = {0};
    zt_err rc = zt_text_work_init(&w, fault);

    if (!rc)
        rc = zt_decode_in(t, &w, ids, num, skip_special, out, fault);
    zt_text_work_release(&w);
    return rc;
}
