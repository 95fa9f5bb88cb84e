#include "worker/tasks/ngrams.h"

#include <stdlib.h>
#include <string.h>

#include "worker/text/unicode/chars.h"

void zt_symbols_release(struct zt_symbols *s)
{
    free(s->at);
    *s = (struct zt_symbols){.at = NULL};
}

bool zt_is_blank(uint32_t c)
{
    return zt_is_white(c) || (c >= 0x1c && c <= 0x1f);
}

/* ---- symbols ---- */

zt_err zt_symbols_of_chars(const char *text, size_t n, struct zt_symbols *out)
{
    *out = (struct zt_symbols){.at = malloc((n + 1) * sizeof(*out->at))};
    if (!out->at)
        return ZT_E_NOMEM;
    for (size_t at = 0; at < n;) {
        uint32_t c = zt_utf8_next(text, &at);

        if (!zt_is_blank(c))
            out->at[out->n++] = c;
    }
    return ZT_OK;
}

struct ngram_word {
    const char *text;
    size_t n;
    uint32_t *symbol; /* where its number goes */
};

static int compare_words(const void *x, const void *y)
{
    const struct ngram_word *a = x, *b = y;
    int c = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);

    return c ? c : (a->n > b->n) - (a->n < b->n);
}

/* Each word of a text has a place in `out`; returns how many words there are. */
static size_t find_words(const char *text, size_t n, struct ngram_word *words,
                         struct zt_symbols *out)
{
    size_t num = 0, begin = 0;

    for (size_t at = 0; at <= n;) {
        size_t end = at; /* of the word, if what comes now is a blank or the end */

        if (at < n && !zt_is_blank(zt_utf8_next(text, &at)))
            continue;
        if (end > begin)
            words[num++] =
                (struct ngram_word){text + begin, end - begin, &out->at[out->n++]};
        at += end == n;
        begin = at;
    }
    return num;
}

zt_err zt_symbols_of_words(const char *const text[2], const size_t n[2],
                           struct zt_symbols out[2])
{
    struct ngram_word *words = malloc((n[0] + n[1] + 2) * sizeof(*words));
    size_t num = 0;
    uint32_t last = 0;

    for (int i = 0; i < 2; i++)
        out[i] = (struct zt_symbols){.at = malloc((n[i] + 1) * sizeof(*out[i].at))};
    if (!words || !out[0].at || !out[1].at) {
        free(words);
        zt_symbols_release(&out[0]);
        zt_symbols_release(&out[1]);
        return ZT_E_NOMEM;
    }
    for (int i = 0; i < 2; i++)
        num += find_words(text[i], n[i], words + num, &out[i]);
    qsort(words, num, sizeof(*words), compare_words);
    for (size_t i = 0; i < num; i++) {
        last += i > 0 && compare_words(&words[i - 1], &words[i]) != 0;
        *words[i].symbol = last;
    }
    free(words);
    return ZT_OK;
}

/* ---- in common ---- */

int64_t zt_num_ngrams(const struct zt_symbols *s, int64_t n)
{
    return s->n >= n ? s->n - n + 1 : 0;
}

static int compare_ngrams(const void *x, const void *y, void *length)
{
    const uint32_t *a = *(const uint32_t *const *)x, *b = *(const uint32_t *const *)y;
    int64_t n = *(int64_t *)length;

    for (int64_t i = 0; i < n; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

static const uint32_t **sorted_ngrams(const struct zt_symbols *s, int64_t n)
{
    int64_t num = zt_num_ngrams(s, n);
    const uint32_t **list = malloc(((size_t)num + 1) * sizeof(*list));

    for (int64_t i = 0; list && i < num; i++)
        list[i] = s->at + i;
    if (list)
        qsort_r(list, (size_t)num, sizeof(*list), compare_ngrams, &n);
    return list;
}

zt_err zt_common_ngrams(const struct zt_symbols *a, const struct zt_symbols *b, int64_t n,
                        int64_t *out)
{
    const uint32_t **of_a = sorted_ngrams(a, n), **of_b = sorted_ngrams(b, n);
    int64_t i = 0, k = 0, num = 0;
    zt_err rc = of_a && of_b ? ZT_OK : ZT_E_NOMEM;

    while (!rc && i < zt_num_ngrams(a, n) && k < zt_num_ngrams(b, n)) {
        int order = compare_ngrams(&of_a[i], &of_b[k], &n);

        num += order == 0;
        i += order <= 0;
        k += order >= 0;
    }
    free(of_a);
    free(of_b);
    if (!rc)
        *out = num;
    return rc;
}

zt_err zt_longest_common(const struct zt_symbols *a, const struct zt_symbols *b,
                         int64_t *out)
{
    /* a row of the table: [k] is of the symbols of a up to here, and the first k of b */
    int64_t *row = calloc((size_t)b->n + 1, sizeof(*row));

    if (!row)
        return ZT_E_NOMEM;
    for (int64_t i = 0; i < a->n; i++) {
        int64_t diagonal = 0;

        for (int64_t k = 1; k <= b->n; k++) {
            int64_t above = row[k], left = row[k - 1];

            row[k] = a->at[i] == b->at[k - 1] ? diagonal + 1
                     : above > left           ? above
                                              : left;
            diagonal = above;
        }
    }
    *out = row[b->n];
    free(row);
    return ZT_OK;
}
