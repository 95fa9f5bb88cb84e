/*
 * tokenizer_files.c -- copies of a tokenizer beside weights that were trained with it.
 */
#include "worker/checkpoint/tokenizer_files.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/files/folders.h"
#include "common/mapped_file.h"
#include "worker/checkpoint/atomic_file.h"

#define GENERATION "generation_config.json" /* of the model, not of its tokenizer */

/* Those that transformers writes with a tokenizer, and what text is generated with. */
static const char *const names[] = {"added_tokens.json",
                                    "chat_template.jinja",
                                    GENERATION,
                                    "merges.txt",
                                    "sentencepiece.bpe.model",
                                    "special_tokens_map.json",
                                    "spiece.model",
                                    "tokenizer.json",
                                    "tokenizer.model",
                                    "tokenizer_config.json",
                                    "vocab.json",
                                    "vocab.txt"};
#define NUM_NAMES (sizeof(names) / sizeof(names[0]))

bool zt_is_tokenizer_file(const char *name)
{
    for (size_t i = 0; i < NUM_NAMES; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

bool zt_find_tokenizer(const char *dir, char found[PATH_MAX])
{
    for (size_t i = 0; i < NUM_NAMES; i++)
        if (strcmp(names[i], GENERATION) != 0 &&
            snprintf(found, PATH_MAX, "%s/%s", dir, names[i]) < PATH_MAX &&
            access(found, F_OK) == 0)
            return true;
    return false;
}

static zt_err copy_file(const char *from, const char *to, struct zt_fault *fault)
{
    struct zt_atomic_file f = {.fd = -1};
    struct zt_mapping map = {0};
    zt_err rc = zt_mapping_open(from, &map, fault);

    if (rc)
        return rc;
    rc = zt_atomic_file_open(&f, to, (int64_t)map.bytes, fault);
    if (!rc && map.bytes)
        rc = zt_atomic_file_write(&f, map.data, map.bytes, fault);
    if (!rc)
        rc = zt_atomic_file_publish(&f, fault);
    zt_atomic_file_release(&f);
    zt_mapping_release(&map);
    return rc;
}

static zt_err remove_file(const char *path, struct zt_fault *fault)
{
    return unlink(path) == 0 || errno == ENOENT
               ? ZT_OK
               : zt_fault_set(fault, ZT_E_CANTCREATE,
                              "%s: cannot remove what is left of the replaced model's "
                              "tokenizer: %s",
                              path, strerror(errno));
}

zt_err zt_copy_tokenizer(const char *tokenizer, const char *model, const char *dir,
                         bool replaces, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < NUM_NAMES; i++) {
        bool own = tokenizer && strcmp(names[i], GENERATION) != 0;
        const char *folder = own ? tokenizer : model;
        char from[PATH_MAX] = "", to[PATH_MAX];

        if ((folder && folder[0] &&
             snprintf(from, sizeof(from), "%s/%s", folder, names[i]) >=
                 (int)sizeof(from)) ||
            snprintf(to, sizeof(to), "%s/%s", dir, names[i]) >= (int)sizeof(to))
            return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: the path is too long", dir);
        if (from[0] &&
            access(from, R_OK) == 0) /* a model may be trained in its own folder */
            rc = zt_is_one_file(from, to) ? ZT_OK : copy_file(from, to, fault);
        else if (replaces)
            rc = remove_file(to, fault);
    }
    return rc;
}
