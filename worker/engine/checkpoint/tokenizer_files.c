/*
 * tokenizer_files.c -- the tokenizer of the model folder beside a checkpoint, so that other
 * programs find all of a model there. Training does not read it.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/mapped_file.h"
#include "worker/checkpoint/atomic_file.h"
#include "worker/engine/checkpoint/private.h"
#include "worker/engine/weights.h"

/* Those that transformers writes with a tokenizer, and what text is generated with. */
static const char *const names[] = {"added_tokens.json",
                                    "chat_template.jinja",
                                    "generation_config.json",
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

bool zt_ckpt_is_tokenizer_file(const char *name)
{
    for (size_t i = 0; i < NUM_NAMES; i++)
        if (strcmp(names[i], name) == 0)
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

zt_err zt_ckpt_copy_tokenizer(const char *model, const char *dir, struct zt_fault *fault)
{
    char from[PATH_MAX], to[PATH_MAX + 64], *slash;
    zt_err rc = ZT_OK;

    /* a model folder that has gone since the start takes nothing from the checkpoint */
    if (!model || zt_weights_config_path(model, from, sizeof(from), NULL))
        return ZT_OK;
    slash = strrchr(from, '/');
    for (size_t i = 0; slash && !rc && i < NUM_NAMES; i++) {
        snprintf(slash + 1, sizeof(from) - (size_t)(slash + 1 - from), "%s", names[i]);
        snprintf(to, sizeof(to), "%s/%s", dir, names[i]);
        if (access(from, R_OK) == 0)
            rc = copy_file(from, to, fault);
    }
    return rc;
}
