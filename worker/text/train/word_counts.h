/*
 * word_counts.h -- how often each word stands in a text.
 *
 * Ownership: the struct owns copies of the words. Threads: one.
 */
#ifndef WORKER_TEXT_TRAIN_WORD_COUNTS_H
#define WORKER_TEXT_TRAIN_WORD_COUNTS_H

#include "common/buf.h"

struct zt_word_count {
    size_t at;  /* in `text` */
    uint32_t n; /* bytes */
    uint32_t hash;
    int64_t count;
};

struct zt_word_counts {
    struct zt_buf text, words; /* of words; struct zt_word_count */
    uint32_t *slots;           /* (num_slots): index of a word + 1; 0: free */
    size_t num_slots;
};

/* `max_bytes`: what it may take, at most. */
void zt_word_counts_init(struct zt_word_counts *c, size_t max_bytes);
void zt_word_counts_release(struct zt_word_counts *c);
/* ZT_E_NOMEM; ZT_E_LIMIT past max_bytes. */
zt_err zt_word_counts_add(struct zt_word_counts *c, const char *s, size_t n,
                          int64_t count) ZT_MUST_CHECK;

static inline const struct zt_word_count *zt_words_of(const struct zt_word_counts *c,
                                                      size_t *num)
{
    *num = zt_buf_used(&c->words) / sizeof(struct zt_word_count);
    return (const struct zt_word_count *)(const void *)c->words.data;
}
static inline const char *zt_word_text(const struct zt_word_counts *c,
                                       const struct zt_word_count *w)
{
    return (const char *)c->text.data + w->at;
}

#endif
