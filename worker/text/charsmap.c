/*
 * charsmap.c -- SentencePiece's precompiled character map.
 *
 *      u32 T | T bytes: a double-array trie (darts-clone) | texts, each up to a NUL
 *
 * The trie takes a text to the offset of what replaces it. A grapheme of up to five bytes
 * is looked up whole, longer ones and those that are not found character by character; the
 * shortest entry that begins what is looked up replaces all of it. SentencePiece itself takes
 * the longest entry at each place of the text.
 */
#include "worker/text/charsmap.h"

#include <endian.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "worker/text/unicode/chars.h"
#include "worker/text/pipeline.h"

struct zt_charsmap {
    uint32_t *units;
    size_t num_units;
    char *texts; /* NUL at its end */
    size_t text_bytes;
};

zt_err zt_charsmap_make(const void *bytes, size_t n, struct zt_charsmap **out)
{
    struct zt_charsmap *m;
    uint32_t size;

    if (n < 4)
        return ZT_E_FORMAT;
    memcpy(&size, bytes, 4);
    size = le32toh(size);
    if (size > n - 4 || size % 4 || size < 4)
        return ZT_E_FORMAT;
    m = calloc(1, sizeof(*m));
    if (!m)
        return ZT_E_NOMEM;
    m->num_units = size / 4;
    m->text_bytes = n - 4 - size;
    m->units = malloc(size);
    m->texts = calloc(m->text_bytes + 1, 1);
    if (!m->units || !m->texts) {
        zt_charsmap_free(m);
        return ZT_E_NOMEM;
    }
    memcpy(m->units, (const char *)bytes + 4, size);
    for (size_t i = 0; i < m->num_units; i++)
        m->units[i] = le32toh(m->units[i]);
    memcpy(m->texts, (const char *)bytes + 4 + size, m->text_bytes);
    *out = m;
    return ZT_OK;
}

zt_err zt_charsmap_read(const struct zt_setting *s, struct zt_charsmap **out,
                        struct zt_fault *fault)
{
    const char *text;
    size_t n, len = 0;
    unsigned char *raw;
    struct zt_setting at;
    zt_err rc = zt_setting_string(s, "precompiled_charsmap", true, &text, &n, fault);

    if (rc)
        return rc;
    zt_setting_get(s, "precompiled_charsmap", &at);
    raw = malloc(n / 4 * 3 + 3);
    if (!raw)
        return zt_text_out_of_memory(fault, ZT_E_NOMEM);
    if (sodium_base642bin(raw, n / 4 * 3 + 3, text, n, NULL, &len, NULL,
                          sodium_base64_VARIANT_ORIGINAL) != 0)
        rc = zt_setting_refuse(&at, fault, "is no base64");
    if (!rc) {
        rc = zt_charsmap_make(raw, len, out);
        if (rc == ZT_E_FORMAT)
            zt_setting_refuse(&at, fault, "is no precompiled character map");
        else if (rc)
            zt_text_out_of_memory(fault, rc);
    }
    free(raw);
    return rc;
}

void zt_charsmap_free(struct zt_charsmap *m)
{
    if (!m)
        return;
    free(m->units);
    free(m->texts);
    free(m);
}

/* Units: bit 8 says that a leaf follows, bits 10.. where, bit 9 scales that; the low byte
 * is the label, and a leaf's low 31 bits are its value. */
static size_t unit_offset(uint32_t u)
{
    return (size_t)(u >> 10) << ((u & (1u << 9)) >> 6);
}

/* What the shortest entry that begins s says; NULL: none does. */
static const char *find(const struct zt_charsmap *m, const char *s, size_t n)
{
    size_t node = unit_offset(m->units[0]);

    for (size_t i = 0; i < n && s[i]; i++) {
        uint32_t unit, leaf;

        node ^= (uint8_t)s[i];
        if (node >= m->num_units)
            return NULL;
        unit = m->units[node];
        if ((unit & 0x800000ffu) != (uint8_t)s[i])
            return NULL;
        node ^= unit_offset(unit);
        if (!(unit & 0x100u))
            continue;
        if (node >= m->num_units)
            return NULL;
        leaf = m->units[node] & 0x7fffffffu;
        return leaf <= m->text_bytes ? m->texts + leaf : NULL;
    }
    return NULL;
}

bool zt_charsmap_begins(const struct zt_charsmap *m, const char *s, size_t n)
{
    size_t node = unit_offset(m->units[0]);

    for (size_t i = 0; i < n; i++) {
        node ^= (uint8_t)s[i];
        if (node >= m->num_units || (m->units[node] & 0x800000ffu) != (uint8_t)s[i])
            return false;
        node ^= unit_offset(m->units[node]);
    }
    return true;
}

const char *zt_charsmap_longest(const struct zt_charsmap *m, const char *s, size_t n,
                                size_t *len)
{
    size_t node = unit_offset(m->units[0]);
    const char *best = NULL;

    for (size_t i = 0; i < n; i++) {
        uint32_t unit, leaf;

        node ^= (uint8_t)s[i];
        if (node >= m->num_units)
            break;
        unit = m->units[node];
        if ((unit & 0x800000ffu) != (uint8_t)s[i])
            break;
        node ^= unit_offset(unit);
        if (!(unit & 0x100u))
            continue;
        if (node >= m->num_units)
            break;
        leaf = m->units[node] & 0x7fffffffu;
        if (leaf > m->text_bytes)
            break;
        best = m->texts + leaf;
        *len = i + 1;
    }
    return best;
}

static zt_err put(struct zt_text_work *w, const char *s, size_t n)
{
    zt_err rc = zt_buf_put(&w->next, s, n);

    if (zt_buf_used(&w->next) == 0)
        w->lead = 0;
    return rc;
}

static zt_err put_grapheme(const struct zt_charsmap *m, struct zt_text_work *w,
                           const char *s, size_t n)
{
    const char *to = n < 6 ? find(m, s, n) : NULL;
    zt_err rc = ZT_OK;

    if (to)
        return put(w, to, strlen(to));
    for (size_t at = 0; !rc && at < n;) {
        size_t from = at;

        zt_utf8_next(s, &at);
        to = find(m, s + from, at - from);
        rc = to ? put(w, to, strlen(to)) : put(w, s + from, at - from);
    }
    return rc;
}

zt_err zt_charsmap_apply(const struct zt_charsmap *m, struct zt_text_work *w)
{
    const char *s = zt_text_of(&w->text);
    size_t n = zt_buf_used(&w->text), from = 0, at = 0;
    utf8proc_int32_t state = 0;
    uint32_t last = 0;
    zt_err rc = ZT_OK;

    zt_buf_empty(&w->next);
    while (!rc && at < n) {
        size_t here = at;
        uint32_t c = zt_utf8_next(s, &at);

        if (here > from && utf8proc_grapheme_break_stateful(
                               (utf8proc_int32_t)last, (utf8proc_int32_t)c, &state)) {
            rc = put_grapheme(m, w, s + from, here - from);
            from = here;
        }
        last = c;
    }
    if (!rc && from < n)
        rc = put_grapheme(m, w, s + from, n - from);
    return rc;
}
