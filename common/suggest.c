#include "common/suggest.h"

#include <limits.h>
#include <string.h>
#include <strings.h>

static int fold(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A' + 'a';
    return c == '-' ? '_' : (unsigned char)c;
}

bool zt_is_one_of(const char *words, const char *word, bool any_case)
{
    size_t n = strlen(word);

    for (const char *w = words; w; w = strchr(w, '|')) {
        w += *w == '|';
        if (strcspn(w, "|=") == n &&
            (any_case ? !strncasecmp(w, word, n) : !strncmp(w, word, n)))
            return true;
    }
    return false;
}

static int min3(int a, int b, int c)
{
    int m = a < b ? a : b;

    return m < c ? m : c;
}

int zt_suggest_distance(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b);
    int rows[3][ZT_SUGGEST_MAX + 1];
    int *before = rows[0], *last = rows[1], *now = rows[2];

    if (na > ZT_SUGGEST_MAX || nb > ZT_SUGGEST_MAX)
        return INT_MAX;
    for (size_t j = 0; j <= nb; j++)
        last[j] = (int)j;
    memcpy(before, last, sizeof(rows[0]));
    for (size_t i = 1; i <= na; i++) {
        int *oldest = before;

        now[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            int change = fold(a[i - 1]) != fold(b[j - 1]);

            now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + change);
            if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) &&
                fold(a[i - 2]) == fold(b[j - 1]) && before[j - 2] + 1 < now[j])
                now[j] = before[j - 2] + 1;
        }
        before = last;
        last = now;
        now = oldest;
    }
    return last[nb];
}

/* How many words, between '_', a has; 0: they are not those of b in their order, with one more
 * in b. */
static int words_without_one(const char *a, const char *b)
{
    int num = 0, more = 0;

    while (*b) {
        size_t na = strcspn(a, "-_"), nb = strcspn(b, "-_"), i = 0;

        while (na == nb && i < na && fold(a[i]) == fold(b[i]))
            i++;
        if (na && i == na && nb == na) {
            num++;
            a += na + (a[na] != 0);
        } else if (more++) {
            return 0;
        }
        b += nb + (b[nb] != 0);
    }
    return *a || !more ? 0 : num;
}

/* Whether b goes on behind the words of a. */
static bool is_beginning(const char *a, const char *b)
{
    size_t i = 0;

    while (a[i] && fold(a[i]) == fold(b[i]))
        i++;
    return !a[i] && (b[i] == '_' || b[i] == '-');
}

#define WORD_LEFT_OUT 2 /* as many slips: a nearer name is better */
#define LEAST_WORDS   3 /* that remain; fewer are in too many names */
#define BEGINNING     3 /* likewise; where several names begin so, none is meant */
#define LEAST_LETTERS 8 /* of a beginning */

void zt_suggest_init(struct zt_suggest *s, const char *word)
{
    *s = (struct zt_suggest){.word = word, .distance = INT_MAX};
}

void zt_suggest_offer_as(struct zt_suggest *s, const char *name, const char *what)
{
    size_t a = strlen(s->word), b = strlen(name);
    bool begins = a >= LEAST_LETTERS && is_beginning(s->word, name);
    int d;

    if (words_without_one(s->word, name) >= LEAST_WORDS)
        d = WORD_LEFT_OUT;
    else if (begins)
        d = BEGINNING;
    else if (s->distance != INT_MAX && (int)(a > b ? a - b : b - a) >= s->distance)
        return; /* lengths alone differ by more */
    else
        d = zt_suggest_distance(s->word, name);
    if (begins && d == s->distance && strcmp(what, s->best) != 0)
        s->best = "";
    if (d < s->distance) {
        s->distance = d;
        s->best = what;
    }
}

void zt_suggest_offer(struct zt_suggest *s, const char *name)
{
    zt_suggest_offer_as(s, name, name);
}

const char *zt_suggest_best(const struct zt_suggest *s)
{
    size_t n = strlen(s->word);
    int most = n < 4 ? 1 : n < 8 ? 2 : 3; /* slips of the finger; more is another word */

    return s->best && *s->best && s->distance <= most ? s->best : NULL;
}
