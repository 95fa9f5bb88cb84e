#include "common/suggest.h"

#include <ctype.h>
#include <string.h>

#define LONGEST 63

static char fold(char c)
{
    return c == '-' ? '_' : (char)tolower((unsigned char)c);
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

int zt_edit_distance(const char *a, const char *b)
{
    int d[LONGEST + 1][LONGEST + 1];
    size_t n = strlen(a), m = strlen(b);

    if (n > LONGEST || m > LONGEST)
        return strcmp(a, b) ? (int)(n > m ? n : m) : 0;
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            if (!i || !j) {
                d[i][j] = (int)(i + j);
                continue;
            }
            d[i][j] = d[i - 1][j - 1] + (fold(a[i - 1]) != fold(b[j - 1]));
            d[i][j] = least(d[i][j], least(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) &&
                fold(a[i - 2]) == fold(b[j - 1]))
                d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[n][m];
}

void zt_suggest(struct zt_suggestion *s, const char *word, const char *candidate)
{
    int near = (int)strlen(word) / 3 > 2 ? (int)strlen(word) / 3 : 2;
    int distance = zt_edit_distance(word, candidate);

    if (distance > near || distance >= (int)strlen(word))
        return;
    if (!s->best || distance < s->distance) {
        s->best = candidate;
        s->distance = distance;
    }
}
