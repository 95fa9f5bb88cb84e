/*
 * word_cache.h -- what words became that were seen before: a table of a fixed size. Two words
 * share the place that their hash says, and a third one replaces the older; long ones, and
 * those of many values, are not kept.
 *
 * Ownership: the caller's. Threads: one at a time.
 */
#ifndef WORKER_TEXT_WORD_CACHE_H
#define WORKER_TEXT_WORD_CACHE_H

#include <stddef.h>
#include <stdint.h>

enum { ZT_WORD_BYTES = 44, ZT_WORD_VALUES = 12 }; /* the most that is kept */

struct zt_word_cache;

struct zt_word_cache *zt_word_cache_new(void); /* NULL: no memory */
void zt_word_cache_free(struct zt_word_cache *c);
size_t zt_word_cache_bytes(void);
/* The values of a word, or NULL; good until the next put. */
const int32_t *zt_word_cache_get(const struct zt_word_cache *c, const char *s, size_t n,
                                 size_t *num);
void zt_word_cache_put(struct zt_word_cache *c, const char *s, size_t n,
                       const int32_t *values, size_t num);

#endif
