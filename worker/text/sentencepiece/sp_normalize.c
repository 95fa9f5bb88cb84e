/*
 * sp_normalize.c -- the text that pieces are looked for in. From its front, one after the
 * other: a symbol of the user's as it is, else the longest rule of the charsmap, else a
 * character as it is. Runs of blanks become one, and blanks become U+2581.
 */
#include <string.h>

#include "worker/text/unicode/chars.h"
#include "worker/text/sentencepiece/model.h"

#define REPLACEMENT "\xef\xbf\xbd"

/* What the text's front becomes. */
struct front {
    const char *to;
    size_t n;     /* of `to` */
    size_t taken; /* bytes of the text */
    bool broken;
};

static struct front take_front(const struct zt_sentencepiece *m, const char *s, size_t n)
{
    struct front f = {.to = s};
    size_t bad;

    if (m->any_user && zt_trie_longest(&m->user_trie, s, n, &f.n) >= 0) {
        f.taken = f.n;
        return f;
    }
    f.to = m->charsmap ? zt_charsmap_longest(m->charsmap, s, n, &f.taken) : NULL;
    if (f.to) {
        f.n = strlen(f.to);
        return f;
    }
    f.n = f.taken = zt_utf8_check(s, n, &bad);
    f.to = s;
    if (!f.n)
        f = (struct front){.to = REPLACEMENT, .n = 3, .taken = 1, .broken = true};
    return f;
}

static zt_err put_blank(const struct zt_sentencepiece *m, struct zt_buf *out)
{
    return m->escape_whitespaces ? zt_buf_put(out, ZT_SP_BLANK, ZT_SP_BLANK_BYTES)
                                 : zt_buf_put_u8(out, ' ');
}

static zt_err put_text(const struct zt_sentencepiece *m, struct zt_buf *out,
                       const char *s, size_t n)
{
    zt_err rc = ZT_OK;

    if (!m->escape_whitespaces || !memchr(s, ' ', n))
        return zt_buf_put(out, s, n);
    for (size_t i = 0; !rc && i < n; i++)
        rc = s[i] == ' ' ? put_blank(m, out) : zt_buf_put_u8(out, (uint8_t)s[i]);
    return rc;
}

static size_t count_leading_blanks(const struct zt_sentencepiece *m, const char *text,
                                   size_t n)
{
    size_t at = 0;

    while (at < n) {
        struct front f = take_front(m, text + at, n - at);

        if (f.n != 1 || *f.to != ' ')
            break;
        at += f.taken;
    }
    return at;
}

static void drop_trailing_blanks(const struct zt_sentencepiece *m, struct zt_buf *out)
{
    const char *blank = m->escape_whitespaces ? ZT_SP_BLANK : " ";
    size_t n = strlen(blank);

    while (zt_buf_used(out) >= n && memcmp(out->data + out->len - n, blank, n) == 0)
        out->len -= n;
}

/* The byte in front is a character that stays as it is. */
static bool stays(const struct zt_sentencepiece *m, const char *s, size_t n)
{
    return m->is_plain[(uint8_t)*s] ||
           (m->is_plain_before_ascii[(uint8_t)*s] && (n == 1 || (uint8_t)s[1] < 0x80));
}

/* Bytes from the front that are no blanks and stay as they are, one by one. */
static size_t count_plain(const struct zt_sentencepiece *m, const char *s, size_t n)
{
    size_t i = 0;

    while (i < n && s[i] != ' ' && stays(m, s + i, n - i))
        i++;
    return i;
}

static zt_err put_front(const struct zt_sentencepiece *m, struct zt_buf *out,
                        const char *text, size_t n, size_t *at, bool *after_blank,
                        uint64_t *replaced)
{
    struct front f = take_front(m, text + *at, n - *at);
    zt_err rc = ZT_OK;

    for (; *after_blank && f.n && *f.to == ' '; f.n--)
        f.to++;
    if (f.n) {
        rc = put_text(m, out, f.to, f.n);
        *after_blank = m->remove_extra_whitespaces && f.to[f.n - 1] == ' ';
    }
    *replaced += f.broken;
    *at += f.taken;
    return rc;
}

static zt_err put_all(const struct zt_sentencepiece *m, struct zt_buf *out,
                      const char *text, size_t n, bool after_blank, uint64_t *replaced)
{
    zt_err rc = ZT_OK;

    for (size_t at = 0; !rc && at < n;) {
        size_t plain = count_plain(m, text + at, n - at);

        if (plain) {
            rc = zt_buf_put(out, text + at, plain);
            after_blank = false;
            at += plain;
        } else if (text[at] == ' ' && stays(m, text + at, n - at)) {
            rc = after_blank ? ZT_OK : put_blank(m, out);
            after_blank = m->remove_extra_whitespaces;
            at++;
        } else {
            rc = put_front(m, out, text, n, &at, &after_blank, replaced);
        }
    }
    return rc;
}

/* The Python code that continues a text puts something in front of a blank, and only there. */
static bool keeps_blank(const char *text, size_t n, zt_sp_start start)
{
    return start == ZT_SP_CONTINUED &&
           (*text == ' ' || (n >= ZT_SP_BLANK_BYTES &&
                             memcmp(text, ZT_SP_BLANK, ZT_SP_BLANK_BYTES) == 0));
}

/* No entry of the charsmap is this byte alone, or has ASCII behind it. */
static bool stays_before_ascii(const struct zt_charsmap *m, int byte)
{
    char s[2] = {(char)byte, 0};
    size_t len;

    if (zt_charsmap_longest(m, s, 1, &len))
        return false;
    for (int next = 0; next < 128; next++) {
        s[1] = (char)next;
        if (zt_charsmap_begins(m, s, 2))
            return false;
    }
    return true;
}

void zt_sp_find_plain(struct zt_sentencepiece *m)
{
    for (int b = 0; b < 128; b++) {
        bool text = m->user_trie.first[b] <= 0;

        m->is_plain[b] = text && !(m->charsmap &&
                                   zt_charsmap_begins(m->charsmap, &(char){(char)b}, 1));
        m->is_plain_before_ascii[b] =
            text && (m->is_plain[b] || stays_before_ascii(m->charsmap, b));
    }
}

zt_err zt_sp_normalize(const struct zt_sentencepiece *m, struct zt_buf *out,
                       const char *text, size_t n, zt_sp_start start, uint64_t *replaced)
{
    bool trim = m->remove_extra_whitespaces && n && !keeps_blank(text, n, start);
    bool dummy = m->add_dummy_prefix && start == ZT_SP_TEXT;
    size_t from = trim ? count_leading_blanks(m, text, n) : 0;
    zt_err rc = ZT_OK;

    zt_buf_drop(out, zt_buf_used(out));
    if (from == n)
        return ZT_OK;
    if (dummy && !m->whitespace_as_suffix)
        rc = put_blank(m, out);
    if (!rc)
        rc = put_all(m, out, text + from, n - from, trim, replaced);
    if (!rc && m->remove_extra_whitespaces)
        drop_trailing_blanks(m, out);
    if (!rc && dummy && m->whitespace_as_suffix)
        rc = put_blank(m, out);
    return rc;
}
