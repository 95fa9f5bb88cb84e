#include "worker/generate/ends.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/json/line.h"
#include "common/mapped_file.h"
#include "worker/engine/weights.h"

/* ---- a file ---- */

static zt_err add_end(const json_t *id, const char *name, int64_t vocab,
                      struct zt_ends *out, struct zt_fault *fault)
{
    json_int_t value = json_integer_value(id);

    if (!json_is_integer(id) || value < 0 || value >= vocab)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: eos_token_id: it has what is no token id below %lld",
                            name, (long long)vocab);
    if (out->num == ZT_MAX_ENDS)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "%s: eos_token_id: more than %d tokens that end a text", name,
                            ZT_MAX_ENDS);
    out->ids[out->num++] = (int32_t)value;
    return ZT_OK;
}

zt_err zt_ends_parse(const char *name, const char *text, size_t n, int64_t vocab,
                     struct zt_ends *out, struct zt_fault *fault)
{
    json_t *config = zt_json_object(text, n), *ends, *one;
    zt_err rc = ZT_OK;
    size_t i;

    out->num = 0;
    if (!config)
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: it is no JSON object", name);
    ends = json_object_get(config, "eos_token_id");
    if (json_is_array(ends)) {
        json_array_foreach(ends, i, one)
        {
            if (!rc)
                rc = add_end(one, name, vocab, out, fault);
        }
    } else if (ends && !json_is_null(ends)) {
        rc = add_end(ends, name, vocab, out, fault);
    }
    json_decref(config);
    return rc;
}

static zt_err read_file(const char *path, int64_t vocab, struct zt_ends *out,
                        struct zt_fault *fault)
{
    struct zt_mapping file = {0};
    zt_err rc;

    out->num = 0;
    if (access(path, F_OK))
        return ZT_OK;
    rc = zt_mapping_open(path, &file, fault);
    if (!rc)
        rc = zt_ends_parse(path, (const char *)file.data, file.bytes, vocab, out, fault);
    zt_mapping_release(&file);
    return rc;
}

/* ---- all of them ---- */

zt_err zt_ends_find(const struct zt_engine *e, struct zt_ends *out,
                    struct zt_fault *fault)
{
    char config[4096] = "", path[4096 + 32];
    const char *weights = e->run->model_name_or_path, *slash;
    zt_err rc = ZT_OK;

    out->num = 0;
    if (zt_engine_has_byte_vocab(e)) {
        if (ZT_TEXT_END < e->model->vocab)
            out->ids[out->num++] = ZT_TEXT_END;
        return ZT_OK;
    }
    if (weights)
        rc = zt_weights_config_path(weights, config, sizeof(config), fault);
    slash = strrchr(config, '/');
    if (!rc && slash) {
        snprintf(path, sizeof(path), "%.*s/generation_config.json", (int)(slash - config),
                 config);
        rc = read_file(path, e->model->vocab, out, fault);
    }
    if (rc || out->num)
        return rc;
    if (e->tokenizer && zt_tokenizer_end(e->tokenizer) >= 0) {
        out->ids[out->num++] = zt_tokenizer_end(e->tokenizer);
        return ZT_OK;
    }
    return config[0] && !e->tokenizer ? read_file(config, e->model->vocab, out, fault)
                                      : ZT_OK;
}
