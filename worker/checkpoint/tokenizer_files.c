/*
 * tokenizer_files.c -- copies of a tokenizer beside weights that were trained with it.
 */
#include "worker/checkpoint/tokenizer_files.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
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
                                    "spm.model",
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

zt_err zt_check_tokenizer_files(const char *dir, struct zt_fault *fault)
{
    char path[PATH_MAX];

    for (size_t i = 0; i < NUM_NAMES; i++)
        if (snprintf(path, sizeof(path), "%s/%s", dir, names[i]) < PATH_MAX &&
            access(path, F_OK) == 0 && access(path, R_OK) != 0)
            return zt_fault_set(fault, ZT_E_NOINPUT, "%s: %s", path, strerror(errno));
    return ZT_OK;
}

static zt_err write_file(const char *to, const void *data, size_t bytes,
                         struct zt_fault *fault)
{
    struct zt_atomic_file f = {.fd = -1};
    zt_err rc = zt_atomic_file_open(&f, to, (int64_t)bytes, fault);

    if (!rc && bytes)
        rc = zt_atomic_file_write(&f, data, bytes, fault);
    if (!rc)
        rc = zt_atomic_file_publish(&f, fault);
    zt_atomic_file_release(&f);
    return rc;
}

/* A model may be trained in its own folder. */
static zt_err copy_file(const char *from, const char *to, struct zt_fault *fault)
{
    struct zt_mapping map = {0};
    zt_err rc;

    if (zt_is_one_file(from, to))
        return ZT_OK;
    rc = zt_mapping_open(from, &map, fault);
    if (!rc)
        rc = write_file(to, map.data, map.bytes, fault);
    zt_mapping_release(&map);
    return rc;
}

/* generation_config.json with one end more, in front as Trainer puts it; NULL: it is there, or
 * the file is no JSON object. */
static char *add_end(const char *path, int64_t end)
{
    json_t *config = json_load_file(path, 0, NULL), *one;
    json_t *said = json_object_get(config, "eos_token_id"), *ends = json_array();
    bool has = !json_is_object(config) || end < 0;
    char *text = NULL;
    size_t i;

    (void)json_array_append_new(ends, json_integer((json_int_t)end));
    if (json_is_integer(said))
        (void)json_array_append(ends, said);
    else if (json_is_array(said))
        (void)json_array_extend(ends, said);
    json_array_foreach(ends, i, one) has |= i > 0 && json_integer_value(one) == end;
    if (!has && json_object_set(config, "eos_token_id", ends) == 0)
        text = json_dumps(config, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(ends);
    json_decref(config);
    return text;
}

static zt_err copy_generation(const char *from, const char *to, int64_t end,
                              struct zt_fault *fault)
{
    char *text = add_end(from, end);
    zt_err rc =
        text ? write_file(to, text, strlen(text), fault) : copy_file(from, to, fault);

    free(text);
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
                         bool replaces, int64_t end, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < NUM_NAMES; i++) {
        bool generation = strcmp(names[i], GENERATION) == 0;
        const char *folder = tokenizer && !generation ? tokenizer : model;
        char from[PATH_MAX] = "", to[PATH_MAX];

        if ((folder && folder[0] &&
             snprintf(from, sizeof(from), "%s/%s", folder, names[i]) >=
                 (int)sizeof(from)) ||
            snprintf(to, sizeof(to), "%s/%s", dir, names[i]) >= (int)sizeof(to))
            return zt_fault_set(fault, ZT_E_CANTCREATE, "%s: the path is too long", dir);
        if (from[0] && access(from, R_OK) == 0)
            rc = generation ? copy_generation(from, to, end, fault)
                            : copy_file(from, to, fault);
        else if (replaces)
            rc = remove_file(to, fault);
    }
    return rc;
}
