/*
 * sp_words.c -- a normalized text word by word, where the model's pieces allow that; words
 * that were seen before are looked up.
 *
 *      |_the|_quick|__brown|      blanks (_) begin a word, and belong to it; they end it
 *                                 where the model has them as suffixes
 *
 * Where every piece lies within such a word, none crosses the borders. So pairs of BPE are
 * joined within words alone, and of unigram every way passes each border.
 *
 * A unigram word is looked up with care: sums begin at what the words before it add up to,
 * and rounding may turn a close race. The cache has the least lead of the winner.
 * E = 2 n eps (|sum| + reach) bounds what rounding does to the difference of two sums of up
 * to n pieces, and a lead below the sum of E then and E now is not trusted. The winner's
 * scores are added up one by one, as they would have been.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "worker/text/sentencepiece/model.h"

enum { LEAD, REACH, NUM_NOTES }; /* in the cache, in front of a unigram word's ids */

static bool is_blank(const char *s, size_t n)
{
    return n >= ZT_SP_BLANK_BYTES && memcmp(s, ZT_SP_BLANK, ZT_SP_BLANK_BYTES) == 0;
}

static size_t skip_blanks(const char *s, size_t at, size_t n)
{
    while (is_blank(s + at, n - at))
        at += ZT_SP_BLANK_BYTES;
    return at;
}

static size_t skip_others(const char *s, size_t at, size_t n)
{
    while (at < n && !is_blank(s + at, n - at)) {
        const char *next = memchr(s + at + 1, (uint8_t)ZT_SP_BLANK[0], n - at - 1);

        at = next ? (size_t)(next - s) : n;
    }
    return at;
}

static size_t word_bytes(const struct zt_sentencepiece *m, const char *s, size_t n)
{
    return m->whitespace_as_suffix ? skip_blanks(s, skip_others(s, 0, n), n)
                                   : skip_others(s, skip_blanks(s, 0, n), n);
}

void zt_sp_find_words(struct zt_sentencepiece *m)
{
    /* where unused pieces are taken apart, it counts what was joined last, anywhere */
    m->words_stand_alone = !(m->is_bpe && m->any_unused);
    for (int32_t i = 0; m->words_stand_alone && i < m->num; i++) {
        const struct zt_sp_piece *p = &m->pieces[i];

        if (zt_sp_is_of_text(p))
            m->words_stand_alone = word_bytes(m, p->text, p->n) == p->n;
    }
}

static float rounding(size_t n, float sum, float reach)
{
    return 2 * (float)n * FLT_EPSILON * (fabsf(sum) + reach);
}

/* A unigram word's ids, found before, are its ids now. (Sums that are no numbers: no.) */
static bool is_certain(float sum, const float *note, size_t n)
{
    return note[LEAD] > rounding(n, sum, note[REACH]) &&
           sum - note[REACH] > ZT_SP_LOWEST_SUM / 2;
}

/* The word's ids as they were before; false: they are not known, or may be others now. */
static bool look_up(struct zt_sp_words *d, const struct zt_word_cache *words,
                    const char *s, size_t n, zt_err *rc)
{
    const struct zt_sentencepiece *m = d->out.m;
    size_t num, notes = m->is_bpe ? 0 : NUM_NOTES;
    const int32_t *known = zt_word_cache_get(words, s, n, &num);
    float note[NUM_NOTES];

    if (!known)
        return false;
    if (notes) {
        memcpy(note, known, sizeof(note));
        if (!is_certain(d->sum, note, n))
            return false;
        for (size_t i = notes; i < num; i++)
            d->sum += m->scores[known[i]];
    }
    d->out.after_unknown = false;
    *rc = zt_buf_put(d->out.ids, known + notes, (num - notes) * sizeof(*known));
    return true;
}

/* The word's ids are those from byte `before` on; `sum`: what it began at. */
static void keep(const struct zt_sp_words *d, struct zt_word_cache *words, const char *s,
                 size_t n, size_t before, float sum)
{
    const struct zt_sentencepiece *m = d->out.m;
    size_t num = (zt_buf_used(d->out.ids) - before) / sizeof(int32_t);
    size_t notes = m->is_bpe ? 0 : NUM_NOTES;
    int32_t values[ZT_WORD_VALUES];
    float note[NUM_NOTES] = {d->lead - rounding(n, sum, d->reach), d->reach};

    if (num == 0 || num + notes > ZT_WORD_VALUES || (notes && !(note[LEAD] > 0)))
        return;
    memcpy(values, note, sizeof(note));
    memcpy(values + notes, zt_buf_head(d->out.ids) + before, num * sizeof(*values));
    for (size_t i = notes; i < num + notes; i++)
        if (values[i] == m->unknown || m->pieces[values[i]].type == ZT_SP_BYTE)
            return; /* what these are depends on what is in front of the word */
    zt_word_cache_put(words, s, n, values, num + notes);
}

static zt_err encode_word(struct zt_sp_words *d, struct zt_sp_work *w, const char *s,
                          size_t n)
{
    size_t before = zt_buf_used(d->out.ids);
    float sum = d->sum;
    bool may_be_kept = w->words && n <= ZT_WORD_BYTES;
    zt_err rc = ZT_OK;

    if (may_be_kept && look_up(d, w->words, s, n, &rc))
        return rc;
    rc = (d->out.m->is_bpe ? zt_sp_bpe : zt_sp_unigram)(d, w, s, n);
    if (!rc && may_be_kept)
        keep(d, w->words, s, n, before, sum);
    return rc;
}

zt_err zt_sp_encode_words(const struct zt_sentencepiece *m, struct zt_sp_work *w,
                          struct zt_buf *ids)
{
    struct zt_sp_words d = {.out = {.m = m, .ids = ids}};
    const char *text = (const char *)zt_buf_head(&w->text);
    size_t n = zt_buf_used(&w->text);
    zt_err rc = ZT_OK;

    if (m->words_stand_alone && !w->words)
        w->words = zt_word_cache_new(); /* without the memory for it: slowly */
    for (size_t at = 0, len; !rc && at < n; at += len) {
        len = m->words_stand_alone ? word_bytes(m, text + at, n - at) : n;
        rc = encode_word(&d, w, text + at, len);
    }
    return rc;
}
