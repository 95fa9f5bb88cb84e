/*
 * pretokenize.c -- pre-tokenizers: a table row each; pieces in, pieces out.
 *
 * Those that change characters write w->next anew, piece by piece.
 */
#include <stdlib.h>
#include <string.h>

#include "worker/text/unicode/chars.h"
#include "worker/text/pipeline.h"

/* ---- ByteLevel ---- */

enum { PREFIX_SPACE, USE_REGEX };

static zt_err read_byte_level(const struct zt_setting *s, struct zt_text_step *step,
                              struct zt_fault *fault)
{
    static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| "
                               "?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    bool trim_offsets;
    zt_err rc =
        zt_setting_bool(s, "add_prefix_space", true, &step->flag[PREFIX_SPACE], fault);

    if (!rc)
        rc = zt_setting_bool(s, "use_regex", true, &step->flag[USE_REGEX], fault);
    if (!rc) /* of offsets, which nobody asks for here */
        rc = zt_setting_bool(s, "trim_offsets", true, &trim_offsets, fault);
    if (!rc && step->flag[USE_REGEX])
        rc = zt_regex_compile(s, gpt2, sizeof(gpt2) - 1, &step->regex, fault);
    return rc;
}

static zt_err put_prefix_space(const struct zt_text_step *step,
                               const struct zt_text_piece *p, size_t i, const char *s,
                               struct zt_buf *out)
{
    zt_err rc = p->n && s[0] == ' ' ? ZT_OK : zt_buf_put_u8(out, ' ');

    (void)step;
    (void)i;
    return rc ? rc : zt_buf_put(out, s, p->n);
}

static zt_err put_bytes(const struct zt_text_step *step, const struct zt_text_piece *p,
                        size_t i, const char *s, struct zt_buf *out)
{
    uint8_t *to;
    zt_err rc = zt_buf_reserve(out, 2 * p->n, &to); /* a character has one or two bytes */
    size_t k = 0;

    (void)step;
    (void)i;
    if (rc)
        return rc;
    for (size_t b = 0; b < p->n; b++) {
        uint32_t c = zt_byte_char((uint8_t)s[b]);

        if (c < 0x80) {
            to[k++] = (uint8_t)c;
        } else {
            to[k++] = (uint8_t)(0xc0 | c >> 6);
            to[k++] = (uint8_t)(0x80 | (c & 0x3f));
        }
    }
    zt_buf_commit(out, k);
    return ZT_OK;
}

static zt_err byte_level(const struct zt_text_step *step, struct zt_text_work *w,
                         struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (step->flag[PREFIX_SPACE])
        rc = zt_rewrite_pieces(step, w, put_prefix_space, fault);
    if (!rc && step->flag[USE_REGEX])
        rc = zt_split_pieces(w, zt_step_find, step, ZT_SPLIT_ISOLATED, false, fault);
    return rc ? rc : zt_rewrite_pieces(step, w, put_bytes, fault);
}

/* ---- by patterns ---- */

static zt_err read_behavior(const struct zt_setting *s, struct zt_text_step *step,
                            struct zt_fault *fault)
{
    static const char *const names[] = {
        [ZT_SPLIT_REMOVED] = "Removed",
        [ZT_SPLIT_ISOLATED] = "Isolated",
        [ZT_SPLIT_WITH_PREVIOUS] = "MergedWithPrevious",
        [ZT_SPLIT_WITH_NEXT] = "MergedWithNext",
        [ZT_SPLIT_CONTIGUOUS] = "Contiguous",
    };
    struct zt_setting at;
    const char *name;
    size_t n;
    zt_err rc = zt_setting_string(s, "behavior", true, &name, &n, fault);

    for (int i = 0; !rc && i < (int)(sizeof(names) / sizeof(*names)); i++) {
        step->behavior = (zt_split_behavior)i;
        if (strcmp(names[i], name) == 0)
            return ZT_OK;
    }
    zt_setting_get(s, "behavior", &at);
    return rc ? rc : zt_setting_refuse(&at, fault, "%.64s is not known here", name);
}

static zt_err read_split(const struct zt_setting *s, struct zt_text_step *step,
                         struct zt_fault *fault)
{
    zt_err rc = zt_step_read_pattern(s, step, fault);

    if (!rc)
        rc = read_behavior(s, step, fault);
    return rc ? rc : zt_setting_bool(s, "invert", false, &step->invert, fault);
}

static zt_err split(const struct zt_text_step *step, struct zt_text_work *w,
                    struct zt_fault *fault)
{
    return zt_split_pieces(w, zt_step_find, step, step->behavior, step->invert, fault);
}

static zt_err read_delimiter(const struct zt_setting *s, struct zt_text_step *step,
                             struct zt_fault *fault)
{
    zt_err rc = zt_step_read_character(s, "delimiter", &step->character, fault);

    return rc ? rc
              : zt_step_copy_text(s, "delimiter", &step->text, &step->text_bytes, fault);
}

/* ---- by classes of characters ---- */

static zt_err whitespace_split(const struct zt_text_step *step, struct zt_text_work *w,
                               struct zt_fault *fault)
{
    (void)step;
    return zt_split_by_class(w, zt_is_white, ZT_SPLIT_REMOVED, fault);
}

/* Words, and what is neither word nor whitespace, at their full length. */
static zt_err find_words(const void *rule, const struct zt_text_work *w, const char *text,
                         size_t n, size_t from, bool *found, size_t *start, size_t *end,
                         struct zt_fault *fault)
{
    (void)rule;
    (void)w;
    (void)fault;
    for (size_t at = from; at < n;) {
        size_t here = at;
        uint32_t c = zt_utf8_next(text, &at);
        bool word = zt_is_word(c);

        if (!*found && !word && zt_is_white(c))
            continue;
        if (!*found) {
            *found = true;
            *start = here;
            *end = at;
            continue;
        }
        here = *start;
        if (word != zt_is_word(zt_utf8_next(text, &here)) || (!word && zt_is_white(c)))
            return ZT_OK;
        *end = at;
    }
    return ZT_OK;
}

static zt_err whitespace(const struct zt_text_step *step, struct zt_text_work *w,
                         struct zt_fault *fault)
{
    return zt_split_pieces(w, find_words, step, ZT_SPLIT_REMOVED, true, fault);
}

static zt_err bert(const struct zt_text_step *step, struct zt_text_work *w,
                   struct zt_fault *fault)
{
    zt_err rc = whitespace_split(step, w, fault);

    return rc ? rc : zt_split_by_class(w, zt_is_punctuation, ZT_SPLIT_ISOLATED, fault);
}

static zt_err read_digits(const struct zt_setting *s, struct zt_text_step *step,
                          struct zt_fault *fault)
{
    bool single;
    zt_err rc = zt_setting_bool(s, "individual_digits", false, &single, fault);

    step->behavior = single ? ZT_SPLIT_ISOLATED : ZT_SPLIT_CONTIGUOUS;
    return rc;
}

static zt_err digits(const struct zt_text_step *step, struct zt_text_work *w,
                     struct zt_fault *fault)
{
    return zt_split_by_class(w, zt_is_numeric, step->behavior, fault);
}

static zt_err read_punctuation(const struct zt_setting *s, struct zt_text_step *step,
                               struct zt_fault *fault)
{
    struct zt_setting at;

    step->behavior = ZT_SPLIT_ISOLATED;
    return zt_setting_get(s, "behavior", &at) ? read_behavior(s, step, fault) : ZT_OK;
}

static zt_err punctuation(const struct zt_text_step *step, struct zt_text_work *w,
                          struct zt_fault *fault)
{
    return zt_split_by_class(w, zt_is_punctuation, step->behavior, fault);
}

/* ---- Metaspace ---- */

enum { ALWAYS = ZT_PREPEND_ALWAYS, FIRST = ZT_PREPEND_FIRST, SPLIT };

static zt_err read_metaspace(const struct zt_setting *s, struct zt_text_step *step,
                             struct zt_fault *fault)
{
    zt_err rc = zt_step_read_metaspace(s, step, fault);

    if (!rc)
        rc = zt_step_copy_text(s, "replacement", &step->text, &step->text_bytes, fault);
    return rc ? rc : zt_setting_bool(s, "split", true, &step->flag[SPLIT], fault);
}

static zt_err put_metaspace(const struct zt_text_step *step,
                            const struct zt_text_piece *p, size_t i, const char *s,
                            struct zt_buf *out)
{
    bool there = p->n && (s[0] == ' ' || (p->n >= step->text_bytes &&
                                          memcmp(s, step->text, step->text_bytes) == 0));
    zt_err rc = ZT_OK;

    if (!there && (step->flag[ALWAYS] || (step->flag[FIRST] && p->first)))
        rc = zt_buf_put(out, step->text, step->text_bytes);
    (void)i;
    for (size_t at = 0; !rc && at < p->n;) {
        const char *blank = memchr(s + at, ' ', p->n - at);
        size_t to = blank ? (size_t)(blank - s) : p->n;

        rc = zt_buf_put(out, s + at, to - at);
        if (!rc && blank)
            rc = zt_buf_put(out, step->text, step->text_bytes);
        at = to + (blank != NULL);
    }
    return rc;
}

static zt_err metaspace(const struct zt_text_step *step, struct zt_text_work *w,
                        struct zt_fault *fault)
{
    zt_err rc = zt_rewrite_pieces(step, w, put_metaspace, fault);

    if (rc || !step->flag[SPLIT])
        return rc;
    return zt_split_pieces(w, zt_step_find, step, ZT_SPLIT_WITH_NEXT, false, fault);
}

const struct zt_step_kind zt_pretokenizer_kinds[] = {
    {.type = "ByteLevel",
     .keys = "add_prefix_space trim_offsets use_regex",
     .read = read_byte_level,
     .apply = byte_level},
    {.type = "Split",
     .keys = "pattern behavior invert",
     .read = read_split,
     .apply = split},
    {.type = "CharDelimiterSplit",
     .keys = "delimiter",
     .read = read_delimiter,
     .apply = split}, /* ZT_SPLIT_REMOVED */
    {.type = "Whitespace", .keys = "", .apply = whitespace},
    {.type = "WhitespaceSplit", .keys = "", .apply = whitespace_split},
    {.type = "BertPreTokenizer", .keys = "", .apply = bert},
    {.type = "Digits", .keys = "individual_digits", .read = read_digits, .apply = digits},
    {.type = "Punctuation",
     .keys = "behavior",
     .read = read_punctuation,
     .apply = punctuation},
    {.type = "Metaspace",
     .keys = "replacement prepend_scheme add_prefix_space split str_rep",
     .read = read_metaspace,
     .apply = metaspace},
    {0},
};
