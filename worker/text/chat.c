#include "worker/text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "common/mapped_file.h"
#include "worker/text/pipeline.h"

/* ---- what the folder has ---- */

static char *copy(const char *text, size_t n)
{
    char *s = malloc(n + 1);

    if (s) {
        memcpy(s, text, n);
        s[n] = 0;
    }
    return s;
}

static char *read_file(const char *path, size_t *n)
{
    struct zt_mapping m = {0};
    char *text = NULL;

    if (access(path, F_OK) == 0 && zt_mapping_open(path, &m, NULL) == ZT_OK) {
        text = copy((const char *)m.data, m.bytes);
        *n = m.bytes;
    }
    zt_mapping_release(&m);
    return text;
}

/* Of several templates the default one. */
static const json_t *default_template(const json_t *config)
{
    const json_t *all = json_object_get(config, "chat_template"), *one;
    size_t i;

    if (!json_is_array(all))
        return all;
    json_array_foreach((json_t *)all, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "name"));

        if (name && strcmp(name, "default") == 0)
            return json_object_get(one, "template");
    }
    return NULL;
}

static json_t *special_tokens(const json_t *config, const json_t *special)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token",
                                        "sep_token", "pad_token", "cls_token",
                                        "mask_token"};
    json_t *tokens = json_object();

    for (size_t i = 0; tokens && i < sizeof(names) / sizeof(*names); i++) {
        const char *text = zt_folder_token_text(json_object_get(config, names[i]));

        if (!text)
            text = zt_folder_token_text(json_object_get(special, names[i]));
        if (text && json_object_set_new(tokens, names[i], json_string(text))) {
            json_decref(tokens);
            return NULL;
        }
    }
    return tokens;
}

static uint64_t hash_of(const struct zt_chat_source *s)
{
    char *tokens = json_dumps(s->tokens, JSON_SORT_KEYS);
    uint64_t h = tokens ? XXH3_64bits(tokens, strlen(tokens)) : 0;

    free(tokens);
    return XXH3_64bits_withSeed(s->text, s->n, h);
}

/* A folder whose files say nothing that is understood has no template. */
zt_err zt_chat_load(const char *folder, struct zt_chat_source *out, uint64_t *hash,
                    struct zt_fault *fault)
{
    zt_err rc = ZT_OK, ignored = ZT_OK;
    json_t *config =
        zt_folder_load(folder, "tokenizer_config.json", false, &ignored, NULL);
    json_t *special =
        zt_folder_load(folder, "special_tokens_map.json", false, &ignored, NULL);
    const json_t *in_config = default_template(config);
    struct zt_chat_source s = {NULL, NULL, 0, NULL};

    if (asprintf(&s.name, "%s/chat_template.jinja", folder) < 0)
        s.name = NULL;
    s.text = s.name ? read_file(s.name, &s.n) : NULL;
    if (s.name && !s.text && json_is_string(in_config)) {
        free(s.name);
        if (asprintf(&s.name, "%s/tokenizer_config.json: chat_template", folder) < 0)
            s.name = NULL;
        s.n = json_string_length(in_config);
        s.text = copy(json_string_value(in_config), s.n);
    }
    s.tokens = special_tokens(config, special);
    if (!s.name || !s.tokens)
        rc = zt_text_out_of_memory(fault, ZT_E_NOMEM);
    if (!rc && s.text)
        *hash ^= hash_of(&s);
    json_decref(config);
    json_decref(special);
    if (rc)
        zt_chat_release(&s);
    else
        *out = s;
    return rc;
}

void zt_chat_release(struct zt_chat_source *s)
{
    free(s->name);
    free(s->text);
    json_decref(s->tokens);
    *s = (struct zt_chat_source){NULL, NULL, 0, NULL};
}

/* ---- rendering ---- */

zt_err zt_chat_open(const struct zt_tokenizer *t, struct zt_template **out,
                    struct zt_fault *fault)
{
    if (!t->chat.text)
        return zt_fault_set(
            fault, ZT_E_FORMAT,
            "conversations become text by the chat template of the "
            "tokenizer's folder, and it has neither chat_template.jinja nor "
            "chat_template in tokenizer_config.json; put one there");
    return zt_template_parse(t->chat.name, t->chat.text, t->chat.n, out, fault);
}

static zt_err check_messages(const json_t *messages, const char *column,
                             struct zt_fault *fault)
{
    const json_t *one;
    size_t i;

    if (!json_is_array(messages) || !json_array_size(messages))
        return zt_fault_set(fault, ZT_E_FORMAT, "\"%s\" is no list of messages", column);
    json_array_foreach((json_t *)messages, i, one)
    {
        if (!json_is_string(json_object_get(one, "role")))
            return zt_fault_set(fault, ZT_E_FORMAT, "\"%s\"[%zu] has no \"role\"", column,
                                i);
    }
    return ZT_OK;
}

zt_err zt_chat_render(const struct zt_tokenizer *t, const struct zt_template *template,
                      const json_t *row, const char *column, struct zt_buf *out,
                      struct zt_fault *fault)
{
    json_t *messages = json_object_get(row, column),
           *tools = json_object_get(row, "tools");
    json_t *values;
    zt_err rc = check_messages(messages, column, fault);

    if (rc)
        return rc;
    values = json_copy(t->chat.tokens);
    if (!values || json_object_set(values, "messages", messages) ||
        json_object_set_new(values, "add_generation_prompt", json_false()) ||
        (tools && json_object_set(values, "tools", tools)))
        rc = zt_text_out_of_memory(fault, ZT_E_NOMEM);
    if (!rc)
        rc = zt_template_render(template, values, out, fault);
    json_decref(values);
    return rc;
}
