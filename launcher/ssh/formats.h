/*
 * formats.h -- parts of ssh's file and wire formats: base64, HMAC-SHA-1 of hashed host
 * names, length-prefixed strings, host patterns; and whole small files.
 *
 * known_hosts hashes names with SHA-1; nothing here depends on its strength.
 * Threads: any.
 */
#ifndef LAUNCHER_SSH_FORMATS_H
#define LAUNCHER_SSH_FORMATS_H

#include "common/fault.h"

#define ZT_SHA1_BYTES 20

/*
 * Decode [text, text+n). *out is allocated, one byte longer than *out_bytes and ending
 * in 0; NULL: no base64, or no memory. Blanks between are skipped.
 */
uint8_t *zt_base64_decode(const char *text, size_t n, size_t *out_bytes);
/* Allocated text; with padding or without. NULL: no memory. */
char *zt_base64_encode(const uint8_t *bytes, size_t n, bool pad);

void zt_hmac_sha1(const uint8_t *key, size_t key_bytes, const void *data, size_t n,
                  uint8_t out[ZT_SHA1_BYTES]);

/* A cursor over u32 lengths and strings; false: it ends too early, nothing moved. */
struct zt_ssh_reader {
    const uint8_t *p, *end;
};
bool zt_ssh_read_u32(struct zt_ssh_reader *w, uint32_t *out);
bool zt_ssh_read_string(struct zt_ssh_reader *w, const uint8_t **out, size_t *out_bytes);

/* '*' any run, '?' one byte, letters of either case. */
bool zt_pattern_match(const char *pattern, size_t pattern_bytes, const char *text);
/*
 * A comma-separated (sep ',') or blank-separated (' ') list of patterns, each possibly
 * with '!' in front: 1 one matches, -1 a negated one does, 0 none.
 */
int zt_pattern_list(const char *list, size_t n, char sep, const char *text);

/*
 * The whole of a regular file of at most max bytes, with a 0 behind; allocated. NULL:
 * errno says why (EFBIG past max).
 */
char *zt_small_file(const char *path, size_t max, size_t *out_bytes);

#endif
