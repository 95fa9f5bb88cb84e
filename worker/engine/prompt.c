/*
 * prompt.c -- the tokenizer of a run, and its prompt: how long it is, for the plan of memory counts
 * its pass.
 */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/log.h"
#include "worker/engine/engine.h"

/* The folder of weights that were named by one of their files. */
static const char *folder_of(const char *weights, char out[PATH_MAX])
{
    struct stat sb;
    char *slash;

    if (!weights || stat(weights, &sb) || S_ISDIR(sb.st_mode))
        return weights;
    snprintf(out, PATH_MAX, "%s", weights);
    slash = strrchr(out, '/');
    if (!slash)
        return ".";
    slash[slash == out] = 0;
    return out;
}

/* That of --tokenizer_name, else the one beside the weights. The latter is a find: where it
 * cannot be read, files of ids and prompts of ids do as well, and only text is refused. */
static zt_err open_tokenizer(struct zt_engine *e, struct zt_fault *fault)
{
    char folder[PATH_MAX];
    const char *given = e->run->tokenizer_name;
    const char *model = folder_of(e->run->model_name_or_path, folder);
    struct zt_fault why = {0};
    zt_err rc;

    if (e->run->train_tokenizer)
        return zt_engine_make_tokenizer(e, fault);
    if (given && strcmp(given, "bytes") == 0)
        return ZT_OK;
    if (given) {
        rc = zt_tokenizer_open(given, &e->tokenizer, fault);
        return rc ? zt_fault_context(fault, rc, "--tokenizer_name") : ZT_OK;
    }
    if (!model || !zt_tokenizer_is_in(model))
        return ZT_OK;
    if (zt_tokenizer_open(model, &e->tokenizer, &why) == ZT_OK)
        return ZT_OK;
    if (why.code == ZT_E_NOMEM) {
        if (fault)
            *fault = why;
        return why.code;
    }
    e->tokenizer_refusal = why;
    if (e->run->rank == 0)
        zt_warn("data", "the tokenizer of %s cannot be read, so tokens are ids: %s",
                model, why.text);
    return ZT_OK;
}

static zt_err encode_prompt(struct zt_engine *e, struct zt_fault *fault)
{
    const char *prompt = e->run->prompt ? e->run->prompt : "";
    struct zt_encoder *encoder = NULL;
    const int32_t *ids = NULL;
    size_t num = 0;
    zt_err rc = zt_encoder_open(e->tokenizer, &encoder, fault);

    if (!rc)
        rc = zt_encode(encoder, prompt, strlen(prompt), true, &ids, &num, fault);
    if (rc)
        zt_fault_context(fault, rc, "--prompt");
    if (!rc) {
        e->prompt_ids = calloc(num + 1, sizeof(*ids));
        if (!e->prompt_ids)
            rc = zt_fault_set(fault, ZT_E_NOMEM, "--prompt: no host memory");
    }
    if (!rc && num)
        memcpy(e->prompt_ids, ids, num * sizeof(*ids));
    e->num_prompt_ids = rc ? 0 : (int64_t)num;
    zt_encoder_close(encoder);
    return rc;
}

zt_err zt_engine_open_tokenizer(struct zt_engine *e, struct zt_fault *fault)
{
    zt_err rc = open_tokenizer(e, fault);

    if (!rc && e->tokenizer && e->run->generate_tokens > 0)
        rc = encode_prompt(e, fault);
    return rc;
}

int64_t zt_engine_prompt_tokens(const struct zt_engine *e)
{
    const char *p = e->run->prompt ? e->run->prompt : "";
    int64_t n = 0;

    if (e->tokenizer)
        n = e->num_prompt_ids;
    else if (zt_engine_has_byte_vocab(e))
        n = (int64_t)strlen(p);
    else
        for (; *p; p++)
            n += !isspace((unsigned char)*p) && (!p[1] || isspace((unsigned char)p[1]));
    return n ? n : 1; /* something must come first */
}
