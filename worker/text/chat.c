#include "worker/text/chat.h"

#include <math.h>
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

/* Of several templates the one of this name. */
static const json_t *named_template(const json_t *config, const char *wanted)
{
    const json_t *all = json_object_get(config, "chat_template"), *one;
    size_t i;

    json_array_foreach((json_t *)all, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "name"));

        if (name && strcmp(name, wanted) == 0)
            return json_object_get(one, "template");
    }
    return NULL;
}

static const json_t *default_template(const json_t *config)
{
    const json_t *all = json_object_get(config, "chat_template");

    return json_is_array(all) ? named_template(config, "default") : all;
}

/* transformers has another template for rows with tools; config: where templates are in it. */
static bool has_tool_use(const char *folder, const json_t *config)
{
    char *path = NULL;
    bool has = config && named_template(config, "tool_use");

    if (asprintf(&path, "%s/additional_chat_templates/tool_use.jinja", folder) < 0)
        return has;
    has = has || access(path, F_OK) == 0;
    free(path);
    return has;
}

static bool put_token(json_t *tokens, const char *name, const char *text)
{
    return !text || json_object_set_new(tokens, name, json_string(text)) == 0;
}

/* Names that a model gives its own tokens: keys that end so, and those of two objects. */
static bool put_named(json_t *tokens, json_t *settings)
{
    static const char *const objects[] = {"extra_special_tokens",
                                          "model_specific_special_tokens"};
    static const char end[] = "_token";
    json_t *value;
    const char *key;
    bool done = true;

    json_object_foreach(settings, key, value)
    {
        size_t n = strlen(key);

        if (n >= sizeof(end) - 1 && strcmp(key + n - (sizeof(end) - 1), end) == 0)
            done = done && put_token(tokens, key, zt_folder_token_text(value));
    }
    for (size_t i = 0; i < 2; i++)
        json_object_foreach(json_object_get(settings, objects[i]), key, value) done =
            done && put_token(tokens, key, zt_folder_token_text(value));
    return done;
}

/* bos_token and eos_token may be those of the class of the tokenizer. */
static json_t *special_tokens(const char *folder, json_t *settings)
{
    static const char *const names[] = {"bos_token", "eos_token"};
    json_t *tokens = json_object();
    bool done = tokens && put_named(tokens, settings);

    for (size_t i = 0; done && i < 2; i++) {
        char *own = zt_folder_token(folder, names[i]);

        done = put_token(tokens, names[i], own);
        free(own);
    }
    if (done)
        return tokens;
    json_decref(tokens);
    return NULL;
}

static uint64_t hash_of(const struct zt_chat_source *s)
{
    char *tokens = json_dumps(s->tokens, JSON_SORT_KEYS);
    uint64_t h = tokens ? XXH3_64bits(tokens, strlen(tokens)) : 0;

    free(tokens);
    return XXH3_64bits_withSeed(s->text, s->n, h);
}

zt_err zt_chat_load(const char *folder, struct zt_chat_source *out, uint64_t *hash,
                    struct zt_fault *fault)
{
    zt_err rc = ZT_OK;
    json_t *config = zt_folder_settings(folder, &rc, fault);
    const json_t *in_config = default_template(config);
    struct zt_chat_source s = {.name = NULL};

    if (rc)
        return rc;
    if (asprintf(&s.name, "%s/chat_template.jinja", folder) < 0)
        s.name = NULL;
    s.text = s.name ? read_file(s.name, &s.n) : NULL;
    s.has_tool_use = has_tool_use(folder, s.text ? NULL : config);
    if (s.name && !s.text && json_is_string(in_config)) {
        free(s.name);
        if (asprintf(&s.name, "%s/tokenizer_config.json: chat_template", folder) < 0)
            s.name = NULL;
        s.n = json_string_length(in_config);
        s.text = copy(json_string_value(in_config), s.n);
    }
    s.tokens = special_tokens(folder, config);
    if (!s.name || !s.tokens)
        rc = zt_text_out_of_memory(fault, ZT_E_NOMEM);
    if (!rc && s.text)
        *hash ^= hash_of(&s);
    json_decref(config);
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
    *s = (struct zt_chat_source){.name = NULL};
}

/* ---- rendering ---- */

bool zt_chat_has_template(const struct zt_tokenizer *t)
{
    return t->chat.text != NULL;
}

zt_err zt_chat_open(const struct zt_tokenizer *t, struct zt_template **out,
                    struct zt_fault *fault)
{
    if (!zt_chat_has_template(t))
        return zt_fault_set(
            fault, ZT_E_FORMAT,
            "conversations become text by the chat template of the "
            "tokenizer's folder, and it has neither chat_template.jinja nor "
            "chat_template in tokenizer_config.json; put one there");
    return zt_template_parse(t->chat.name, t->chat.text, t->chat.n, out, fault);
}

/* A number that JSON has and 64 bits have not is read as a real one: its digits are gone. */
static bool has_huge_number(const json_t *v)
{
    const char *key;
    json_t *value;
    size_t i;

    json_array_foreach((json_t *)v, i, value)
    {
        if (has_huge_number(value))
            return true;
    }
    json_object_foreach((json_t *)v, key, value)
    {
        if (has_huge_number(value))
            return true;
    }
    return json_is_real(v) && fabs(json_real_value(v)) >= 0x1p63;
}

static zt_err check_tools(const struct zt_tokenizer *t, const json_t *tools,
                          struct zt_fault *fault)
{
    const json_t *one;
    size_t i;

    if (!tools || json_is_null(tools))
        return ZT_OK;
    if (t->chat.has_tool_use)
        return zt_fault_set(
            fault, ZT_E_FORMAT,
            "the row has \"tools\", for which the tokenizer's folder has a "
            "template \"tool_use\", and the default one is read: write that "
            "one into its chat_template.jinja, and take "
            "additional_chat_templates away");
    if (!json_is_array(tools))
        return zt_fault_set(
            fault, ZT_E_FORMAT, "\"tools\" is %s, and is to be a list of objects%s",
            json_is_string(tools) ? "text" : "no list",
            json_is_string(tools) ? ": jq -c '.tools |= fromjson' FILE makes that"
                                  : "; correct it, or take it out");
    json_array_foreach((json_t *)tools, i, one)
    {
        if (!json_is_object(one))
            return zt_fault_set(fault, ZT_E_FORMAT, "\"tools\"[%zu] is no object", i);
    }
    return ZT_OK;
}

static zt_err check_messages(const struct zt_tokenizer *t, const json_t *row,
                             const char *column, struct zt_fault *fault)
{
    const json_t *messages = json_object_get(row, column);
    const json_t *tools = json_object_get(row, "tools");
    const json_t *one;
    size_t i;

    if (!json_is_array(messages) || !json_array_size(messages))
        return zt_fault_set(
            fault, ZT_E_FORMAT, "\"%s\" is %s; correct it, or take the row out", column,
            json_is_array(messages) ? "a list without messages" : "no list of messages");
    json_array_foreach((json_t *)messages, i, one)
    {
        if (!json_is_string(json_object_get(one, "role")))
            return zt_fault_set(fault, ZT_E_FORMAT, "\"%s\"[%zu] has no \"role\"", column,
                                i);
    }
    if (has_huge_number(messages) || has_huge_number(tools))
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "a number in \"%s\" is beyond 64 bits, and would be written "
                            "otherwise than it stands; make it text",
                            has_huge_number(tools) ? "tools" : column);
    return check_tools(t, tools, fault);
}

/* As in transformers a member that is null is none: datasets fill up with them what a message lacks,
 * and templates would write "None". */
static json_t *leave_nulls_out(const json_t *message)
{
    json_t *copy = json_object(), *value;
    const char *key;

    json_object_foreach((json_t *)message, key, value)
    {
        if (copy && !json_is_null(value) && json_object_set_nocheck(copy, key, value)) {
            json_decref(copy);
            copy = NULL;
        }
    }
    return copy;
}

/*
 * What an assistant thinks has three names, and templates read one of them: as in transformers,
 * the first that is there is `reasoning_content`, and `thinking` where that is not there itself.
 * Takes the message.
 */
static json_t *name_reasoning(json_t *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *reasoning = NULL, *copy;

    for (size_t i = 0; !reasoning && i < sizeof(names) / sizeof(*names); i++)
        reasoning = json_object_get(message, names[i]);
    if (!reasoning)
        return message;
    copy = json_object();
    if (!copy || json_object_set(copy, "thinking", reasoning) ||
        json_object_update(copy, message) ||
        json_object_set(copy, "reasoning_content", reasoning)) {
        json_decref(copy);
        copy = NULL;
    }
    json_decref(message);
    return copy;
}

/* Messages as templates get them. NULL: no memory. */
static json_t *prepare_messages(const json_t *messages)
{
    json_t *all = json_array();
    json_t *one;
    size_t i;

    json_array_foreach((json_t *)messages, i, one)
    {
        if (all && json_array_append_new(all, name_reasoning(leave_nulls_out(one)))) {
            json_decref(all);
            all = NULL;
        }
    }
    return all;
}

/* The text of these messages. What a row has not is none, as it is in transformers. */
static zt_err render_some(const struct zt_tokenizer *t,
                          const struct zt_template *template, const json_t *row,
                          json_t *messages, bool prompts, struct zt_buf *out,
                          struct zt_buf *spans, struct zt_fault *fault)
{
    json_t *tools = json_object_get(row, "tools"), *values = json_copy(t->chat.tokens);
    zt_err rc = ZT_OK;

    if (!values || json_object_set_new(values, "messages", prepare_messages(messages)) ||
        json_object_set_new(values, "add_generation_prompt", json_boolean(prompts)) ||
        json_object_set_new(values, "documents", json_null()) ||
        json_object_set_new(values, "tools", tools ? json_incref(tools) : json_null()))
        rc = zt_text_out_of_memory(fault, ZT_E_NOMEM);
    if (!rc)
        rc = zt_template_render(template, values, out, spans, fault);
    json_decref(values);
    return rc;
}

/* ---- answers ---- */

/* A row's text, of which answers are looked for. */
struct answers {
    const struct zt_tokenizer *t;
    const struct zt_template *template;
    const json_t *row, *messages;
    const char *text; /* (n) */
    size_t n;
    struct zt_buf part; /* the text of its first messages */
    struct zt_fault *fault;
};

/* The bytes that the text of the first `num` messages has; *begins: the whole begins with it. */
static zt_err find_part(struct answers *a, size_t num, bool prompts, bool *begins,
                        size_t *bytes)
{
    json_t *some = json_array();
    zt_err rc = some ? ZT_OK : ZT_E_NOMEM;

    for (size_t i = 0; !rc && i < num; i++)
        if (json_array_append(some, json_array_get(a->messages, i)))
            rc = ZT_E_NOMEM;
    if (rc)
        zt_text_out_of_memory(a->fault, rc);
    zt_buf_empty(&a->part);
    if (!rc)
        rc = render_some(a->t, a->template, a->row, some, prompts, &a->part, NULL,
                         a->fault);
    json_decref(some);
    if (rc)
        return rc;
    *bytes = zt_buf_used(&a->part);
    *begins =
        *bytes <= a->n && (!*bytes || memcmp(zt_text_of(&a->part), a->text, *bytes) == 0);
    return ZT_OK;
}

static zt_err refuse_answer(const struct answers *a, size_t i)
{
    return zt_fault_set(
        a->fault, ZT_E_FORMAT,
        "%s: what the assistant says in message %zu cannot be found: the template "
        "renders a "
        "conversation's beginning differently from the whole; put {%% generation %%} "
        "around "
        "answers in it, or learn all tokens with --assistant_only_loss false",
        a->t->chat.name, i);
}

/* Message `i` is the assistant's. Some templates ask for an answer in words that do not stand
 * before one: then it begins where the message before ends. */
static zt_err find_answer(struct answers *a, size_t i, struct zt_template_span *span)
{
    bool begins = false;
    zt_err rc = ZT_OK;

    span->from = 0;
    if (i)
        rc = find_part(a, i, true, &begins, &span->from);
    if (!rc && i && !begins) {
        rc = find_part(a, i, false, &begins, &span->from);
        if (!rc && !begins)
            return refuse_answer(a, i);
    }
    if (!rc)
        rc = find_part(a, i + 1, false, &begins, &span->to);
    if (!rc && (!begins || span->to < span->from))
        return refuse_answer(a, i);
    return rc;
}

static zt_err find_answers(struct answers *a, struct zt_buf *spans)
{
    zt_err rc = ZT_OK;

    zt_buf_init(&a->part, ZT_TEXT_MAX_BYTES);
    for (size_t i = 0; !rc && i < json_array_size(a->messages); i++) {
        const json_t *role = json_object_get(json_array_get(a->messages, i), "role");
        struct zt_template_span span;

        if (strcmp(json_string_value(role), "assistant") != 0)
            continue;
        rc = find_answer(a, i, &span);
        if (!rc && zt_buf_put(spans, &span, sizeof(span)) != ZT_OK)
            rc = zt_text_out_of_memory(a->fault, ZT_E_NOMEM);
    }
    zt_buf_release(&a->part);
    return rc;
}

zt_err zt_chat_render(const struct zt_tokenizer *t, const struct zt_template *template,
                      const json_t *row, const char *column, struct zt_buf *out,
                      struct zt_buf *answers, struct zt_fault *fault)
{
    json_t *messages = json_object_get(row, column);
    size_t begin = zt_buf_used(out);
    struct answers a = {
        .t = t, .template = template, .row = row, .messages = messages, .fault = fault};
    zt_err rc = check_messages(t, row, column, fault);

    if (!rc)
        rc = render_some(t, template, row, messages, false, out, answers, fault);
    if (rc || !answers || zt_template_marks_generation(template))
        return rc;
    a.text = zt_text_of(out) + begin;
    a.n = zt_buf_used(out) - begin;
    return find_answers(&a, answers);
}

zt_err zt_chat_prompt(const struct zt_tokenizer *t, const struct zt_template *template,
                      const json_t *row, const char *column, struct zt_buf *out,
                      struct zt_fault *fault)
{
    json_t *messages = json_object_get(row, column);
    zt_err rc = check_messages(t, row, column, fault);

    return rc ? rc : render_some(t, template, row, messages, true, out, NULL, fault);
}

/* Tokens of the text up to byte `at`: those that its beginning alone has as well. Some ids of
 * the whole are marked already. *cuts: the next one has bytes from both sides. */
static zt_err find_token(struct zt_encoder *e, const char *text, size_t at, bool frame,
                         const int32_t *ids, size_t num, size_t *token, bool *cuts,
                         struct zt_fault *fault)
{
    const int32_t *first = NULL;
    size_t n = 0, k = 0;
    zt_err rc = zt_encode(e, text, at, frame, &first, &n, fault);

    while (!rc && k < n && k < num && first[k] == (ids[k] < 0 ? ~ids[k] : ids[k]))
        k++;
    *token = k;
    *cuts = k < n;
    return rc;
}

zt_err zt_chat_mark_context(struct zt_encoder *e, const char *text, size_t n, bool frame,
                            const struct zt_buf *answers, int32_t *ids, size_t num,
                            struct zt_fault *fault)
{
    const struct zt_template_span *s = (const void *)zt_text_of(answers);
    size_t num_spans = zt_buf_used(answers) / sizeof(*s), done = 0;
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < num_spans; i++) {
        size_t from = 0, to = num;
        bool cuts = false;

        if (s[i].from == s[i].to)
            continue;
        rc = find_token(e, text, s[i].from, frame, ids, num, &from, &cuts, fault);
        if (!rc && s[i].to < n) {
            rc = find_token(e, text, s[i].to, frame, ids, num, &to, &cuts, fault);
            to += cuts && to < num;
        }
        for (; !rc && done < from; done++)
            ids[done] = ~ids[done];
        done = to > done ? to : done;
    }
    for (; !rc && done < num; done++)
        ids[done] = ~ids[done];
    return rc;
}
