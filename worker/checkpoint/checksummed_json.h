/*
 * checksummed_json.h -- JSON files that end with a checksum of themselves.
 *
 *      {"a":1,...  ,"xxh3":"0123456789abcdef"}\n
 *      |- hashed -||---------- 28 bytes --------|
 *
 * Threads: any.
 */
#ifndef WORKER_CHECKPOINT_CHECKSUMMED_JSON_H
#define WORKER_CHECKPOINT_CHECKSUMMED_JSON_H

#include <jansson.h>

#include "common/fault.h"

#define ZT_HASH_TEXT 17 /* 16 digits and NUL */

/* The XXH3 hash of bytes, and hashes as files have them. */
uint64_t zt_hash_bytes(const void *data, size_t bytes);
void zt_hash_print(uint64_t hash, char out[ZT_HASH_TEXT]);
/* Exactly 16 lower-case digits at `text`; what follows does not matter. */
bool zt_hash_parse(const char *text, uint64_t *out);

/*
 * The file of an object, which has at least one member: *text is malloc'ed. *hash: of the
 * whole file. ZT_E_NOMEM, or ZT_E_ARG for what JSON cannot hold.
 */
zt_err zt_sealed_json_print(const json_t *object, char **text, size_t *bytes,
                            uint64_t *hash, struct zt_fault *fault) ZT_MUST_CHECK;
/* Back again; the checksum is right. `name` is what messages call it. ZT_E_FORMAT. */
zt_err zt_sealed_json_parse(const char *name, const void *text, size_t bytes,
                            json_t **out, struct zt_fault *fault) ZT_MUST_CHECK;
/* The same of a file; *hash: of all of it. ZT_E_NOINPUT when it cannot be read. */
zt_err zt_sealed_json_load(const char *path, json_t **out, uint64_t *hash,
                           struct zt_fault *fault) ZT_MUST_CHECK;

#endif
