#include "worker/text/train/word_counts.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

void zt_word_counts_init(struct zt_word_counts *c, size_t max_bytes)
{
    *c = (struct zt_word_counts){0};
    zt_buf_init(&c->text, max_bytes / 2);
    zt_buf_init(&c->words, max_bytes / 2);
}

void zt_word_counts_release(struct zt_word_counts *c)
{
    zt_buf_release(&c->text);
    zt_buf_release(&c->words);
    free(c->slots);
    *c = (struct zt_word_counts){0};
}

/* The slot of the word, or the free one where it belongs. */
static size_t find_slot(const struct zt_word_counts *c, const char *s, size_t n,
                        uint32_t hash)
{
    const struct zt_word_count *words;
    size_t num, at = hash & (c->num_slots - 1);

    words = zt_words_of(c, &num);
    for (; c->slots[at]; at = (at + 1) & (c->num_slots - 1)) {
        const struct zt_word_count *w = &words[c->slots[at] - 1];

        if (w->hash == hash && w->n == n && memcmp(zt_word_text(c, w), s, n) == 0)
            break;
    }
    return at;
}

/* At most half of the slots are used. */
static zt_err grow(struct zt_word_counts *c)
{
    size_t num, slots = c->num_slots ? c->num_slots * 2 : 1024;
    const struct zt_word_count *words = zt_words_of(c, &num);
    uint32_t *old = c->slots;

    if (num * 2 < c->num_slots)
        return ZT_OK;
    if (num > UINT32_MAX / 2)
        return ZT_E_LIMIT;
    c->slots = calloc(slots, sizeof(*c->slots));
    if (!c->slots) {
        c->slots = old;
        return ZT_E_NOMEM;
    }
    free(old);
    c->num_slots = slots;
    for (size_t i = 0; i < num; i++) {
        size_t at = words[i].hash & (slots - 1);

        while (c->slots[at])
            at = (at + 1) & (slots - 1);
        c->slots[at] = (uint32_t)i + 1;
    }
    return ZT_OK;
}

zt_err zt_word_counts_add(struct zt_word_counts *c, const char *s, size_t n,
                          int64_t count)
{
    struct zt_word_count w = {.n = (uint32_t)n,
                              .hash = (uint32_t)XXH3_64bits(s, n),
                              .at = zt_buf_used(&c->text),
                              .count = count};
    zt_err rc = grow(c);
    size_t at, num;

    if (rc)
        return rc;
    at = find_slot(c, s, n, w.hash);
    if (c->slots[at]) {
        ((struct zt_word_count *)(void *)c->words.data)[c->slots[at] - 1].count += count;
        return ZT_OK;
    }
    rc = zt_buf_put(&c->text, s, n);
    if (!rc)
        rc = zt_buf_put(&c->words, &w, sizeof(w));
    if (rc)
        return rc;
    zt_words_of(c, &num);
    c->slots[at] = (uint32_t)num;
    return ZT_OK;
}
