/*
 * unicode_forms.c -- NFD, NFC, NFKD, NFKC.
 *
 * utf8proc decomposes and composes characters. Marks are put in order here, since its own
 * way takes time by the square of a run of them, and a line may be a megabyte of marks.
 */
#include <string.h>
#include <utf8proc.h>

#include "worker/text/unicode/chars.h"
#include "worker/text/pipeline.h"

#define MOST_POINTS 32 /* of one character, decomposed: 18 */

static zt_err decompose(const char *s, size_t n, utf8proc_option_t options,
                        struct zt_buf *points)
{
    for (size_t at = 0; at < n;) {
        uint32_t c = zt_utf8_next(s, &at);
        uint8_t *to;
        zt_err rc = zt_buf_reserve(points, MOST_POINTS * sizeof(uint32_t), &to);
        utf8proc_ssize_t num = 1;
        int boundary = 0;

        if (rc)
            return rc;
        if (c < 0x80)
            memcpy(to, &c, sizeof(c));
        else
            num = utf8proc_decompose_char((utf8proc_int32_t)c,
                                          (utf8proc_int32_t *)(void *)to, MOST_POINTS,
                                          options, &boundary);
        if (num < 0 || num > MOST_POINTS)
            return ZT_E_LIMIT;
        zt_buf_commit(points, (size_t)num * sizeof(uint32_t));
    }
    return ZT_OK;
}

/* What w->lead characters become; only marks are put in another order. */
static zt_err find_lead(struct zt_text_work *w, utf8proc_option_t options, bool compose)
{
    const char *s = zt_text_of(&w->text);
    size_t n = zt_buf_used(&w->text), end = 0;
    utf8proc_ssize_t num;
    zt_err rc;

    for (size_t i = 0; i < w->lead && end < n; i++)
        zt_utf8_next(s, &end);
    zt_buf_empty(&w->points);
    rc = decompose(s, end, options, &w->points);
    num = (utf8proc_ssize_t)(zt_buf_used(&w->points) / sizeof(uint32_t));
    if (!rc && compose && num)
        num = utf8proc_normalize_utf32((utf8proc_int32_t *)(void *)w->points.data, num,
                                       UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    w->lead = num > 0 ? (size_t)num : 0;
    return num < 0 ? ZT_E_LIMIT : rc;
}

static unsigned mark_class(uint32_t c)
{
    return c < 0x300
               ? 0
               : (unsigned)utf8proc_get_property((utf8proc_int32_t)c)->combining_class;
}

static void insertion_sort(uint32_t *p, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        uint32_t c = p[i];
        size_t k = i;

        for (; k > 0 && mark_class(p[k - 1]) > mark_class(c); k--)
            p[k] = p[k - 1];
        p[k] = c;
    }
}

static zt_err counting_sort(uint32_t *p, size_t n, struct zt_buf *scratch)
{
    size_t begin[257] = {0};
    uint8_t *room;
    zt_err rc;

    zt_buf_empty(scratch);
    rc = zt_buf_reserve(scratch, n * sizeof(*p), &room);
    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++)
        begin[(mark_class(p[i]) & 255) + 1]++;
    for (int k = 0; k < 256; k++)
        begin[k + 1] += begin[k];
    for (size_t i = 0; i < n; i++) {
        size_t to = begin[mark_class(p[i]) & 255]++;

        memcpy(room + to * sizeof(*p), &p[i], sizeof(*p));
    }
    memcpy(p, room, n * sizeof(*p));
    return ZT_OK;
}

static zt_err order_marks(uint32_t *p, size_t n, struct zt_buf *scratch)
{
    for (size_t i = 0; i < n;) {
        size_t end = i;
        zt_err rc;

        while (end < n && mark_class(p[end]))
            end++;
        if (end - i > 32) {
            rc = counting_sort(p + i, end - i, scratch);
            if (rc)
                return rc;
        } else if (end > i) {
            insertion_sort(p + i, end - i);
        }
        i = end + 1;
    }
    return ZT_OK;
}

static bool is_ascii(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((uint8_t)s[i] >= 0x80)
            return false;
    return true;
}

zt_err zt_normalize_unicode(zt_unicode_form form, struct zt_text_work *w)
{
    const utf8proc_option_t compat =
        form == ZT_NFKC || form == ZT_NFKD ? UTF8PROC_COMPAT : 0;
    const bool compose = form == ZT_NFC || form == ZT_NFKC;
    utf8proc_ssize_t num;
    uint32_t *p;
    zt_err rc;

    zt_buf_empty(&w->next);
    if (is_ascii(zt_text_of(&w->text), zt_buf_used(&w->text)))
        return zt_buf_put(&w->next, zt_text_of(&w->text), zt_buf_used(&w->text));
    rc = find_lead(w, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | compat, compose);
    zt_buf_empty(&w->points);
    if (!rc)
        rc = decompose(zt_text_of(&w->text), zt_buf_used(&w->text),
                       UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | compat, &w->points);
    p = (uint32_t *)(void *)w->points.data;
    num = (utf8proc_ssize_t)(zt_buf_used(&w->points) / sizeof(*p));
    if (!rc)
        rc = order_marks(p, (size_t)num, &w->scratch);
    if (!rc && compose)
        num = utf8proc_normalize_utf32((utf8proc_int32_t *)(void *)p, num,
                                       UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (num < 0)
        rc = ZT_E_LIMIT;
    for (utf8proc_ssize_t i = 0; !rc && i < num; i++)
        rc = zt_utf8_put(&w->next, p[i]);
    return rc;
}
