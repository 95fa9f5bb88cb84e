/*
 * normalize.c -- normalizers: a table row each, text in, text out.
 */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "worker/text/unicode/chars.h"
#include "worker/text/pipeline.h"

/* What becomes of a character: it is put to w->next, changed or not, or it is not. */
typedef zt_err (*map_char)(const struct zt_text_step *step, uint32_t c,
                           struct zt_buf *out);

static zt_err map_text(const struct zt_text_step *step, struct zt_text_work *w,
                       map_char map)
{
    const char *s = zt_text_of(&w->text);
    size_t n = zt_buf_used(&w->text), at = 0;
    zt_err rc = ZT_OK;

    zt_buf_empty(&w->next);
    for (size_t i = 0; !rc && i < w->lead && at < n; i++)
        rc = map(step, zt_utf8_next(s, &at), &w->next);
    w->lead = zt_utf8_count(zt_text_of(&w->next), zt_buf_used(&w->next));
    while (!rc && at < n)
        rc = map(step, zt_utf8_next(s, &at), &w->next);
    return rc;
}

static zt_err apply_map(const struct zt_text_step *step, struct zt_text_work *w,
                        map_char map, struct zt_fault *fault)
{
    zt_err rc = map_text(step, w, map);

    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}

/* ---- Unicode ---- */

#define FORM(name, form)                                                                 \
    static zt_err name(const struct zt_text_step *step, struct zt_text_work *w,          \
                       struct zt_fault *fault)                                           \
    {                                                                                    \
        zt_err rc = zt_normalize_unicode(form, w);                                       \
                                                                                         \
        (void)step;                                                                      \
        return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;                            \
    }
FORM(nfc, ZT_NFC)
FORM(nfd, ZT_NFD)
FORM(nfkc, ZT_NFKC)
FORM(nfkd, ZT_NFKD)

/* The full mapping: one capital has a small form of two characters. */
static zt_err lower_char(const struct zt_text_step *step, uint32_t c, struct zt_buf *out)
{
    (void)step;
    if (c < 0x80)
        return zt_buf_put_u8(out, (uint8_t)(c >= 'A' && c <= 'Z' ? c + 32 : c));
    if (c == 0x130)
        return zt_buf_put(out, "i\xcc\x87", 3);
    return zt_utf8_put(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
}

static zt_err lowercase(const struct zt_text_step *step, struct zt_text_work *w,
                        struct zt_fault *fault)
{
    return apply_map(step, w, lower_char, fault);
}

static zt_err drop_mark(const struct zt_text_step *step, uint32_t c, struct zt_buf *out)
{
    (void)step;
    return c >= 0x300 && zt_is_mark(c) ? ZT_OK : zt_utf8_put(out, c);
}

static zt_err strip_accents(const struct zt_text_step *step, struct zt_text_work *w,
                            struct zt_fault *fault)
{
    return apply_map(step, w, drop_mark, fault);
}

/* ---- whitespace, texts ---- */

static zt_err read_strip(const struct zt_setting *s, struct zt_text_step *step,
                         struct zt_fault *fault)
{
    zt_err rc = zt_setting_bool(s, "strip_left", true, &step->flag[0], fault);

    return rc ? rc : zt_setting_bool(s, "strip_right", true, &step->flag[1], fault);
}

/* w->text loses so many bytes in front. */
static void drop_lead(struct zt_text_work *w, size_t bytes)
{
    size_t n = zt_utf8_count(zt_text_of(&w->text), bytes);

    w->lead = w->lead > n ? w->lead - n : 0;
}

static zt_err strip(const struct zt_text_step *step, struct zt_text_work *w,
                    struct zt_fault *fault)
{
    const char *s = zt_text_of(&w->text);
    size_t from = 0, to = zt_buf_used(&w->text), at;
    zt_err rc;

    for (at = 0; step->flag[0] && at < to && zt_is_white(zt_utf8_next(s, &at));)
        from = at;
    for (at = to; step->flag[1] && at > from && zt_is_white(zt_utf8_previous(s, &at));)
        to = at;
    drop_lead(w, from);
    zt_buf_empty(&w->next);
    rc = zt_buf_put(&w->next, s + from, to - from);
    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}

static zt_err read_prepend(const struct zt_setting *s, struct zt_text_step *step,
                           struct zt_fault *fault)
{
    return zt_step_copy_text(s, "prepend", &step->content, &step->content_bytes, fault);
}

static zt_err prepend(const struct zt_text_step *step, struct zt_text_work *w,
                      struct zt_fault *fault)
{
    size_t n = zt_buf_used(&w->text);
    zt_err rc = ZT_OK;

    zt_buf_empty(&w->next);
    if (n)
        rc = zt_buf_put(&w->next, step->content, step->content_bytes);
    if (n && w->lead)
        w->lead += zt_utf8_count(step->content, step->content_bytes);
    if (!rc)
        rc = zt_buf_put(&w->next, zt_text_of(&w->text), n);
    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}

static zt_err replace(const struct zt_text_step *step, struct zt_text_work *w,
                      struct zt_fault *fault)
{
    size_t n = zt_buf_used(&w->text), start = 0, end = 0;
    const char *s = zt_text_of(&w->text);
    bool found = false;
    zt_err rc = ZT_OK;

    if (!step->content_bytes) /* what it takes away at the start moves the text's start */
        rc = zt_step_find(step, w, s, n, 0, &found, &start, &end, fault);
    if (!rc && found && start == 0)
        drop_lead(w, end);
    zt_buf_empty(&w->next);
    return rc ? rc : zt_step_replace(step, w, s, n, &w->next, fault);
}

/* ---- BERT ---- */

enum { CLEAN, CHINESE, ACCENTS, LOWER };

static zt_err read_bert(const struct zt_setting *s, struct zt_text_step *step,
                        struct zt_fault *fault)
{
    zt_err rc = zt_setting_bool(s, "clean_text", true, &step->flag[CLEAN], fault);

    if (!rc)
        rc =
            zt_setting_bool(s, "handle_chinese_chars", true, &step->flag[CHINESE], fault);
    if (!rc)
        rc = zt_setting_bool(s, "lowercase", true, &step->flag[LOWER], fault);
    if (!rc) /* null: as lowercase */
        rc = zt_setting_bool(s, "strip_accents", step->flag[LOWER], &step->flag[ACCENTS],
                             fault);
    return rc;
}

static zt_err clean_char(const struct zt_text_step *step, uint32_t c, struct zt_buf *out)
{
    (void)step;
    if (c == '\t' || c == '\n' || c == '\r')
        return zt_buf_put_u8(out, ' ');
    if (c == 0 || c == 0xfffd || zt_is_other(c))
        return ZT_OK;
    return zt_is_white(c) ? zt_buf_put_u8(out, ' ') : zt_utf8_put(out, c);
}

static zt_err put_apart(const struct zt_text_step *step, uint32_t c, struct zt_buf *out)
{
    zt_err rc;

    (void)step;
    if (c < 0x3400 || !zt_is_cjk(c))
        return zt_utf8_put(out, c);
    rc = zt_buf_put_u8(out, ' ');
    if (!rc)
        rc = zt_utf8_put(out, c);
    return rc ? rc : zt_buf_put_u8(out, ' ');
}

static zt_err drop_nonspacing(const struct zt_text_step *step, uint32_t c,
                              struct zt_buf *out)
{
    (void)step;
    return zt_is_nonspacing_mark(c) ? ZT_OK : zt_utf8_put(out, c);
}

static zt_err bert(const struct zt_text_step *step, struct zt_text_work *w,
                   struct zt_fault *fault)
{
    static const map_char maps[] = {
        [CLEAN] = clean_char,
        [CHINESE] = put_apart,
        [ACCENTS] = drop_nonspacing,
        [LOWER] = lower_char,
    };
    zt_err rc = ZT_OK;

    for (int i = CLEAN; !rc && i <= LOWER; i++) {
        if (!step->flag[i])
            continue;
        if (i == ACCENTS) {
            rc = zt_normalize_unicode(ZT_NFD, w);
            zt_text_work_swap_text(w);
        }
        if (!rc)
            rc = map_text(step, w, maps[i]);
        zt_text_work_swap_text(w);
    }
    zt_text_work_swap_text(w); /* the result is in w->next */
    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}

/* ---- SentencePiece, byte-level ---- */

static zt_err nmt_char(const struct zt_text_step *step, uint32_t c, struct zt_buf *out)
{
    (void)step;
    if ((c >= 1 && c <= 8) || c == 0x0b || (c >= 0x0e && c <= 0x1f) || c == 0x7f ||
        c == 0x8f || c == 0x9f)
        return ZT_OK;
    if (c == '\t' || c == '\n' || c == 0x0c || c == '\r' || c == 0x1680 ||
        (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
        c == 0xfeff || c == 0xfffd)
        return zt_buf_put_u8(out, ' ');
    return zt_utf8_put(out, c);
}

static zt_err nmt(const struct zt_text_step *step, struct zt_text_work *w,
                  struct zt_fault *fault)
{
    return apply_map(step, w, nmt_char, fault);
}

static zt_err read_precompiled(const struct zt_setting *s, struct zt_text_step *step,
                               struct zt_fault *fault)
{
    return zt_charsmap_read(s, &step->charsmap, fault);
}

static zt_err precompiled(const struct zt_text_step *step, struct zt_text_work *w,
                          struct zt_fault *fault)
{
    zt_err rc = zt_charsmap_apply(step->charsmap, w);

    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}

static zt_err byte_level(const struct zt_text_step *step, struct zt_text_work *w,
                         struct zt_fault *fault)
{
    const char *s = zt_text_of(&w->text);
    size_t n = zt_buf_used(&w->text);
    zt_err rc = ZT_OK;

    (void)step;
    zt_buf_empty(&w->next);
    for (size_t i = 0; !rc && i < n; i++)
        rc = zt_utf8_put(&w->next, zt_byte_char((uint8_t)s[i]));
    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}

const struct zt_step_kind zt_normalizer_kinds[] = {
    {.type = "NFC", .keys = "", .apply = nfc},
    {.type = "NFD", .keys = "", .apply = nfd},
    {.type = "NFKC", .keys = "", .apply = nfkc},
    {.type = "NFKD", .keys = "", .apply = nfkd},
    {.type = "Lowercase", .keys = "", .apply = lowercase},
    {.type = "StripAccents", .keys = "", .apply = strip_accents},
    {.type = "Strip",
     .keys = "strip_left strip_right",
     .read = read_strip,
     .apply = strip},
    {.type = "Prepend", .keys = "prepend", .read = read_prepend, .apply = prepend},
    {.type = "Replace",
     .keys = "pattern content",
     .read = zt_step_read_replace,
     .apply = replace},
    {.type = "BertNormalizer",
     .keys = "clean_text handle_chinese_chars strip_accents lowercase",
     .read = read_bert,
     .apply = bert},
    {.type = "Nmt", .keys = "", .apply = nmt},
    {.type = "Precompiled",
     .keys = "precompiled_charsmap",
     .read = read_precompiled,
     .apply = precompiled},
    {.type = "ByteLevel", .keys = "", .apply = byte_level},
    {0},
};

zt_err zt_steps_normalize(const struct zt_steps *steps, struct zt_text_work *w,
                          struct zt_fault *fault)
{
    for (int i = 0; i < steps->num; i++) {
        zt_err rc = steps->steps[i].kind->apply(&steps->steps[i], w, fault);

        if (rc)
            return rc;
        zt_text_work_swap_text(w);
    }
    return ZT_OK;
}
