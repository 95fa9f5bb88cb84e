#include "worker/text/word_cache.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { NUM_PLACES = 1 << 14 };

struct word {
    uint16_t n; /* 0: free */
    uint16_t num;
    char text[ZT_WORD_BYTES];
    int32_t values[ZT_WORD_VALUES];
};

struct zt_word_cache {
    struct word words[NUM_PLACES][2]; /* the newer one first */
};

struct zt_word_cache *zt_word_cache_new(void)
{
    return calloc(1, sizeof(struct zt_word_cache));
}

void zt_word_cache_free(struct zt_word_cache *c)
{
    free(c);
}

size_t zt_word_cache_bytes(void)
{
    return sizeof(struct zt_word_cache);
}

static size_t place_of(const char *s, size_t n)
{
    return XXH3_64bits(s, n) % NUM_PLACES;
}

const int32_t *zt_word_cache_get(const struct zt_word_cache *c, const char *s, size_t n,
                                 size_t *num)
{
    const struct word *w;

    if (n == 0 || n > ZT_WORD_BYTES)
        return NULL;
    w = c->words[place_of(s, n)];
    for (int i = 0; i < 2; i++, w++) {
        if (w->n == n && memcmp(w->text, s, n) == 0) {
            *num = w->num;
            return w->values;
        }
    }
    return NULL;
}

void zt_word_cache_put(struct zt_word_cache *c, const char *s, size_t n,
                       const int32_t *values, size_t num)
{
    struct word *w;

    if (n == 0 || n > ZT_WORD_BYTES || num > ZT_WORD_VALUES)
        return;
    w = c->words[place_of(s, n)];
    w[1] = w[0];
    w->n = (uint16_t)n;
    w->num = (uint16_t)num;
    memcpy(w->text, s, n);
    memcpy(w->values, values, num * sizeof(*values));
}
