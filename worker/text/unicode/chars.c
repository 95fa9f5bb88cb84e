#include "worker/text/unicode/chars.h"

#include <string.h>
#include <utf8proc.h>

/* ---- UTF-8 ---- */

/* Table 3-7 of the Unicode standard: what the second byte may be after each first one. */
static size_t sequence_length(uint8_t first, uint8_t *lo, uint8_t *hi)
{
    *lo = 0x80;
    *hi = 0xbf;
    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first <= 0xdf)
        return 2;
    if (first >= 0xe0 && first <= 0xef) {
        *lo = first == 0xe0 ? 0xa0 : 0x80;
        *hi = first == 0xed ? 0x9f : 0xbf; /* no surrogates */
        return 3;
    }
    if (first >= 0xf0 && first <= 0xf4) {
        *lo = first == 0xf0 ? 0x90 : 0x80;
        *hi = first == 0xf4 ? 0x8f : 0xbf;
        return 4;
    }
    return 0;
}

size_t zt_utf8_check(const char *s, size_t n, size_t *bad)
{
    const uint8_t *p = (const uint8_t *)s;
    uint8_t lo, hi;
    size_t len = sequence_length(p[0], &lo, &hi);

    *bad = 1;
    for (size_t i = 1; i < len; i++) {
        if (i >= n || p[i] < lo || p[i] > hi) {
            *bad = i;
            return 0;
        }
        lo = 0x80;
        hi = 0xbf;
    }
    return len;
}

bool zt_utf8_is_cut(const char *s, size_t n)
{
    size_t bad, most = n < 3 ? n : 3;
    uint8_t lo, hi;

    for (size_t k = 1; k <= most; k++) {
        const char *p = s + n - k;

        /* one broken part that reaches to the end, and asks for more than there is */
        if (sequence_length((uint8_t)*p, &lo, &hi) > k && !zt_utf8_check(p, k, &bad) &&
            bad == k)
            return true;
    }
    return false;
}

size_t zt_utf8_count(const char *s, size_t n)
{
    size_t num = 0;

    for (size_t i = 0; i < n; i++)
        num += ((uint8_t)s[i] & 0xc0) != 0x80;
    return num;
}

uint32_t zt_utf8_next(const char *s, size_t *at)
{
    const uint8_t *p = (const uint8_t *)s + *at;

    if (p[0] < 0x80) {
        *at += 1;
        return p[0];
    }
    if (p[0] < 0xe0) {
        *at += 2;
        return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    }
    if (p[0] < 0xf0) {
        *at += 3;
        return (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    }
    *at += 4;
    return (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 |
           (p[3] & 0x3fu);
}

uint32_t zt_utf8_previous(const char *s, size_t *at)
{
    size_t i = *at - 1, end;

    while (i > 0 && ((uint8_t)s[i] & 0xc0) == 0x80)
        i--;
    *at = end = i;
    return zt_utf8_next(s, &end);
}

size_t zt_utf8_valid_bytes(const char *s, size_t n)
{
    size_t i = 0, bad;

    while (i < n) {
        uint64_t eight;
        size_t len;

        if (n - i >= sizeof(eight)) { /* most text is ASCII for long stretches */
            memcpy(&eight, s + i, sizeof(eight));
            if (!(eight & 0x8080808080808080u)) {
                i += sizeof(eight);
                continue;
            }
        }
        len = zt_utf8_check(s + i, n - i, &bad);
        if (!len)
            return i;
        i += len;
    }
    return n;
}

zt_err zt_utf8_repair(const char *s, size_t n, struct zt_buf *out, uint64_t *replaced)
{
    for (size_t i = 0; i < n;) {
        size_t good = zt_utf8_valid_bytes(s + i, n - i), bad = 0;
        zt_err rc = zt_buf_put(out, s + i, good);

        i += good;
        if (!rc && i < n) {
            zt_utf8_check(s + i, n - i, &bad);
            rc = zt_buf_put(out, "\xef\xbf\xbd", 3);
            i += bad;
            *replaced += 1;
        }
        if (rc)
            return rc;
    }
    return ZT_OK;
}

zt_err zt_utf8_put(struct zt_buf *out, uint32_t c)
{
    uint8_t *to;
    zt_err rc = zt_buf_reserve(out, 4, &to);

    if (rc)
        return rc;
    if (c < 0x80) { /* the usual one, without a call */
        *to = (uint8_t)c;
        zt_buf_commit(out, 1);
    } else {
        zt_buf_commit(out, (size_t)utf8proc_encode_char((utf8proc_int32_t)c, to));
    }
    return ZT_OK;
}

/* ---- classes ---- */

static utf8proc_category_t category(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c);
}

bool zt_is_white(uint32_t c)
{
    if (c < 0x80)
        return c == ' ' || (c >= '\t' && c <= '\r');
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool zt_is_mark(uint32_t c)
{
    utf8proc_category_t k = category(c);

    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC ||
           k == UTF8PROC_CATEGORY_ME;
}

bool zt_is_nonspacing_mark(uint32_t c)
{
    return c >= 0x300 && category(c) == UTF8PROC_CATEGORY_MN;
}

bool zt_is_numeric(uint32_t c)
{
    utf8proc_category_t k;

    if (c < 0x80)
        return c >= '0' && c <= '9';
    k = category(c);
    return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL ||
           k == UTF8PROC_CATEGORY_NO;
}

/* Alphabetic, marks, decimal digits, connectors and the two joiners. Alphabetic beyond
 * letters and numbers of letters: the circled and squared letters. */
bool zt_is_word(uint32_t c)
{
    utf8proc_category_t k;

    if (c < 0x80)
        return (c >= '0' && c <= '9') || c == '_' || ((c | 32) >= 'a' && (c | 32) <= 'z');
    k = category(c);
    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) || zt_is_mark(c) ||
           k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL ||
           k == UTF8PROC_CATEGORY_PC || c == 0x200c || c == 0x200d ||
           (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
           (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

bool zt_is_punctuation(uint32_t c)
{
    utf8proc_category_t k;

    if (c < 0x80)
        return c > ' ' && c < 0x7f && (!zt_is_word(c) || c == '_');
    k = category(c);
    return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool zt_is_other(uint32_t c)
{
    utf8proc_category_t k;

    if (c < 0x80)
        return c < ' ' || c == 0x7f;
    k = category(c);
    return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF ||
           k == UTF8PROC_CATEGORY_CO;
}

bool zt_is_cjk(uint32_t c)
{
    /* the fifth block begins 0x100 late in the implementation that made the vocabularies */
    static const uint32_t blocks[][2] = {
        {0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df}, {0x2a700, 0x2b73f},
        {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0xf900, 0xfaff},   {0x2f800, 0x2fa1f},
    };

    for (size_t i = 0; i < sizeof(blocks) / sizeof(*blocks); i++)
        if (c >= blocks[i][0] && c <= blocks[i][1])
            return true;
    return false;
}

/* ---- bytes as characters ---- */

/* Bytes that print in Latin-1 are themselves; the 68 others follow U+0100 in order. */
static bool prints(int byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

uint32_t zt_byte_char(uint8_t byte)
{
    if (prints(byte))
        return byte;
    if (byte <= 32)
        return 0x100u + byte;
    return byte == 173 ? 0x143 : 0x121u + (byte - 127u); /* 127..160, then 173 */
}

int zt_char_byte(uint32_t c)
{
    if (c < 0x100)
        return prints((int)c) ? (int)c : -1;
    if (c <= 0x120)
        return (int)(c - 0x100);
    if (c <= 0x142)
        return (int)(c - 0x121 + 127);
    return c == 0x143 ? 173 : -1;
}
