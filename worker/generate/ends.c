#include "worker/generate/ends.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/json/line.h"
#include "common/mapped_file.h"
#include "worker/engine/weights.h"
#include "worker/generate/left_out.h"

/* ---- a file ---- */

/* Where tokens of JSON are from. */
struct token_key {
    const char *name, *key;
    int64_t vocab;
};

static zt_err add_token(const json_t *id, const struct token_key *s,
                        struct zt_token_set *out, struct zt_fault *fault)
{
    json_int_t value = json_integer_value(id);

    if (!json_is_integer(id) || value < 0 || value >= s->vocab)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: %s: it has what is no token id below %lld", s->name,
                            s->key, (long long)s->vocab);
    if (out->num == ZT_MAX_ENDS)
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: %s: more than %d tokens", s->name,
                            s->key, ZT_MAX_ENDS);
    out->ids[out->num++] = (int32_t)value;
    return ZT_OK;
}

static zt_err read_set(const json_t *config, const struct token_key *s,
                       struct zt_token_set *out, struct zt_fault *fault)
{
    const json_t *value = json_object_get(config, s->key), *one;
    zt_err rc = ZT_OK;
    size_t i;

    out->num = 0;
    if (!value || json_is_null(value))
        return ZT_OK;
    if (!json_is_array(value))
        return add_token(value, s, out, fault);
    json_array_foreach(value, i, one)
    {
        if (!rc)
            rc = add_token(one, s, out, fault);
    }
    return rc;
}

enum which { ENDS = 1, FORCED = 2 };

/* Those of `which` alone; the others of *out stay. */
static zt_err parse(const char *name, const char *text, size_t n, int64_t vocab,
                    int which, struct zt_ends *out, struct zt_fault *fault)
{
    const struct {
        int which;
        const char *key;
        struct zt_token_set *to;
    } sets[] = {{ENDS, "eos_token_id", &out->ends},
                {FORCED, "forced_bos_token_id", &out->forced_first},
                {FORCED, "forced_eos_token_id", &out->forced_last}};
    json_t *config = zt_json_object(text, n);
    zt_err rc = ZT_OK;

    if (!config)
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: it is no JSON object", name);
    for (size_t i = 0; !rc && i < sizeof(sets) / sizeof(sets[0]); i++)
        if (which & sets[i].which)
            rc = read_set(config, &(struct token_key){name, sets[i].key, vocab},
                          sets[i].to, fault);
    json_decref(config);
    return rc;
}

zt_err zt_ends_parse(const char *name, const char *text, size_t n, int64_t vocab,
                     struct zt_ends *out, struct zt_fault *fault)
{
    *out = (struct zt_ends){.ends.num = 0};
    return parse(name, text, n, vocab, ENDS | FORCED, out, fault);
}

static zt_err read_file(const char *path, int64_t vocab, int which, struct zt_ends *out,
                        struct zt_fault *fault)
{
    struct zt_mapping file = {0};
    zt_err rc = zt_mapping_open(path, &file, fault);

    if (!rc)
        rc = parse(path, (const char *)file.data, file.bytes, vocab, which, out, fault);
    zt_mapping_release(&file);
    return rc;
}

/* ---- all of them ---- */

/* As config.json of the model says it, or would: some kinds have a default. */
static zt_err read_forced(const struct zt_engine *e, struct zt_ends *out,
                          struct zt_fault *fault)
{
    char *text = zt_model_config_text(e->model);
    zt_err rc;

    if (!text)
        return zt_fault_set(fault, ZT_E_NOMEM, "generation: no host memory");
    rc = parse("config.json", text, strlen(text), e->model->vocab, FORCED, out, fault);
    free(text);
    return rc;
}

static zt_err find(struct zt_engine *e, struct zt_ends *out, struct zt_fault *fault)
{
    char config[4096] = "", path[4096 + 32] = "";
    const char *weights = e->run->model_name_or_path, *slash;
    int64_t vocab = e->model->vocab;
    bool there;
    zt_err rc = ZT_OK;

    *out = (struct zt_ends){.ends.num = 0};
    if (zt_engine_has_byte_vocab(e)) {
        if (ZT_TEXT_END < vocab)
            out->ends.ids[out->ends.num++] = ZT_TEXT_END;
        return ZT_OK;
    }
    if (weights)
        rc = zt_weights_config_path(weights, config, sizeof(config), fault);
    slash = strrchr(config, '/');
    if (slash)
        snprintf(path, sizeof(path), "%.*s/generation_config.json", (int)(slash - config),
                 config);
    there = path[0] && access(path, F_OK) == 0;
    if (!rc)
        rc = there ? read_file(path, vocab, ENDS | FORCED, out, fault)
                   : read_forced(e, out, fault);
    if (!rc && !e->run->rank && !e->told_of_left_out)
        zt_tell_of_left_out(e->run, there ? path : config);
    e->told_of_left_out = true;
    if (rc || out->ends.num)
        return rc;
    if (e->tokenizer && zt_tokenizer_end(e->tokenizer) >= 0) {
        out->ends.ids[out->ends.num++] = zt_tokenizer_end(e->tokenizer);
        return ZT_OK;
    }
    return config[0] && access(config, F_OK) == 0
               ? read_file(config, vocab, ENDS, out, fault)
               : ZT_OK;
}

zt_err zt_ends_find(struct zt_engine *e, struct zt_ends *out, struct zt_fault *fault)
{
    int32_t learnt = zt_engine_learnt_end(e);
    struct zt_token_set *ends = &out->ends;
    zt_err rc = find(e, out, fault);
    int i = 0;

    while (i < ends->num && ends->ids[i] != learnt)
        i++;
    if (!rc && learnt >= 0 && i == ends->num && i < ZT_MAX_ENDS)
        ends->ids[ends->num++] = learnt;
    return rc;
}
