/*
 * charsmap.h -- SentencePiece's precompiled character map, from its bytes.
 */
#ifndef WORKER_TEXT_CHARSMAP_H
#define WORKER_TEXT_CHARSMAP_H

#include "common/fault.h"

struct zt_charsmap;

/* ZT_E_FORMAT (without a text), ZT_E_NOMEM. */
zt_err zt_charsmap_make(const void *bytes, size_t n,
                        struct zt_charsmap **out) ZT_MUST_CHECK;
void zt_charsmap_free(struct zt_charsmap *m); /* NULL is fine */

/* What the longest entry that begins s becomes, and its length; NULL: none does. */
const char *zt_charsmap_longest(const struct zt_charsmap *m, const char *s, size_t n,
                                size_t *len);

/* Whether an entry begins with these bytes. */
bool zt_charsmap_begins(const struct zt_charsmap *m, const char *s, size_t n);

#endif
