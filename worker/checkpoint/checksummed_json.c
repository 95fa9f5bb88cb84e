#include "worker/checkpoint/checksummed_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/mapped_file.h"

#define SEAL_FORMAT ",\"xxh3\":\"%016llx\"}\n"
#define SEAL_BYTES  28

uint64_t zt_hash_bytes(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

void zt_hash_print(uint64_t hash, char out[ZT_HASH_TEXT])
{
    snprintf(out, ZT_HASH_TEXT, "%016llx", (unsigned long long)hash);
}

bool zt_hash_parse(const char *text, uint64_t *out)
{
    uint64_t value = 0;

    for (int i = 0; i < ZT_HASH_TEXT - 1; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                           : -1;

        if (digit < 0)
            return false;
        value = value << 4 | (uint64_t)digit;
    }
    *out = value;
    return true;
}

zt_err zt_sealed_json_print(const json_t *object, char **text, size_t *bytes,
                            uint64_t *hash, struct zt_fault *fault)
{
    size_t n = json_dumpb(object, NULL, 0, JSON_COMPACT);
    char *all = n > 2 ? malloc(n + SEAL_BYTES + 1) : NULL;

    if (!all)
        return zt_fault_set(fault, n > 2 ? ZT_E_NOMEM : ZT_E_ARG,
                            "a file of a checkpoint cannot be made: %s",
                            n > 2 ? "no host memory" : "text that is no UTF-8");
    (void)!json_dumpb(object, all, n, JSON_COMPACT);
    n--; /* the brace is the seal's */
    snprintf(all + n, SEAL_BYTES + 1, SEAL_FORMAT,
             (unsigned long long)zt_hash_bytes(all, n));
    *text = all;
    *bytes = n + SEAL_BYTES;
    *hash = zt_hash_bytes(all, *bytes);
    return ZT_OK;
}

zt_err zt_sealed_json_parse(const char *name, const void *text, size_t bytes,
                            json_t **out, struct zt_fault *fault)
{
    char seal[SEAL_BYTES + 1];
    json_error_t e;
    json_t *object;

    if (bytes < SEAL_BYTES)
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: truncated: it has %zu bytes", name,
                            bytes);
    snprintf(seal, sizeof(seal), SEAL_FORMAT,
             (unsigned long long)zt_hash_bytes(text, bytes - SEAL_BYTES));
    if (memcmp((const char *)text + bytes - SEAL_BYTES, seal, SEAL_BYTES) != 0)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: damaged: its checksum does not match", name);
    object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &e);
    if (!object && !e.text[0]) /* jansson has no words for it */
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", name);
    if (!json_is_object(object)) {
        json_decref(object);
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: malformed, byte %d: %s", name,
                            e.position, e.text);
    }
    *out = object;
    return ZT_OK;
}

zt_err zt_sealed_json_load(const char *path, json_t **out, uint64_t *hash,
                           struct zt_fault *fault)
{
    struct zt_mapping map;
    zt_err rc = zt_mapping_open(path, &map, fault);

    if (rc)
        return rc;
    *hash = map.bytes ? zt_hash_bytes(map.data, map.bytes) : 0;
    rc = zt_sealed_json_parse(path, map.data, map.bytes, out, fault);
    zt_mapping_release(&map);
    return rc;
}
