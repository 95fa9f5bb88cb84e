/*
 * chars.h -- UTF-8 and the classes of characters that tokenizers speak of.
 *
 * Text inside this room is valid UTF-8 once it passed zt_utf8_repair(). Classes are those
 * of utf8proc's Unicode version.
 */
#ifndef WORKER_TEXT_CHARS_H
#define WORKER_TEXT_CHARS_H

#include "common/buf.h"

/* The length of the valid character at s, 0 where it is broken; *bad: bytes of the maximal
 * part to replace then. n > 0. */
size_t zt_utf8_check(const char *s, size_t n, size_t *bad);

/* Valid text: the character at *at, which moves behind it. */
uint32_t zt_utf8_next(const char *s, size_t *at);
/* The character that ends before *at > 0, which moves to its start. */
uint32_t zt_utf8_previous(const char *s, size_t *at);

/* Characters in n bytes. */
size_t zt_utf8_count(const char *s, size_t n);
/* The text, broken or not, ends within a character that more bytes could complete. */
bool zt_utf8_is_cut(const char *s, size_t n);
/* Where the first broken character is; n: nowhere. */
size_t zt_utf8_valid_bytes(const char *s, size_t n);
/* Append with U+FFFD for what is broken; *replaced grows by their number. ZT_E_NOMEM. */
zt_err zt_utf8_repair(const char *s, size_t n, struct zt_buf *out,
                      uint64_t *replaced) ZT_MUST_CHECK;

zt_err zt_utf8_put(struct zt_buf *out, uint32_t c) ZT_MUST_CHECK;

typedef bool (*zt_char_class)(uint32_t c);

bool zt_is_white(uint32_t c);   /* White_Space */
bool zt_is_word(uint32_t c);    /* \w of UTS #18 */
bool zt_is_numeric(uint32_t c); /* Nd, Nl, No */
bool zt_is_punctuation(
    uint32_t c); /* P*, and all of ASCII's that is no letter or digit */
bool zt_is_nonspacing_mark(uint32_t c); /* Mn */
bool zt_is_mark(uint32_t c);            /* M* */
bool zt_is_other(uint32_t c);           /* Cc, Cf, Co */
bool zt_is_cjk(uint32_t c);             /* ideographs that BERT puts apart */

/* The byte-level alphabet of GPT-2: a character for each byte, and back (-1: none). */
uint32_t zt_byte_char(uint8_t byte);
int zt_char_byte(uint32_t c);

#endif
