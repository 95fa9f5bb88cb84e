/*
 * utf8.h -- characters of UTF-8.
 *
 * Threads:   any.
 */
#ifndef COMMON_UTF8_H
#define COMMON_UTF8_H

#include <stddef.h>

/* Bytes of the well-formed character that begins at text, of which n >= 1 bytes can be read; 0: none
 * does (cut, overlong, a surrogate, beyond U+10FFFF). */
size_t zt_utf8_length(const char *text, size_t n);

#endif
