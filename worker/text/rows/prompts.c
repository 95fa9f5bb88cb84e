#include "worker/text/rows/prompts.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/records/foreign.h"
#include "worker/records/records.h"
#include "worker/text/chat.h"

#define MOST_BYTES ((size_t)1 << 40) /* of all prompts */

void zt_prompts_init(struct zt_prompts *p)
{
    *p = (struct zt_prompts){.num = 0};
    zt_buf_init(&p->ids, MOST_BYTES);
    zt_buf_init(&p->begins, MOST_BYTES);
    zt_buf_init(&p->text, MOST_BYTES);
    zt_buf_init(&p->text_begins, MOST_BYTES);
    zt_buf_init(&p->meant, MOST_BYTES);
    zt_buf_init(&p->meant_begins, MOST_BYTES);
}

void zt_prompts_release(struct zt_prompts *p)
{
    zt_buf_release(&p->ids);
    zt_buf_release(&p->begins);
    zt_buf_release(&p->text);
    zt_buf_release(&p->text_begins);
    zt_buf_release(&p->meant);
    zt_buf_release(&p->meant_begins);
    p->num = 0;
}

static size_t begin_of(const struct zt_buf *begins, int64_t i)
{
    size_t at;

    memcpy(&at, zt_buf_head(begins) + (size_t)i * sizeof(at), sizeof(at));
    return at;
}

void zt_prompts_limit(struct zt_prompts *p, int64_t n)
{
    if (n > 0 && n < p->num)
        p->num = n;
}

const int32_t *zt_prompts_ids(const struct zt_prompts *p, int64_t i, int64_t *n)
{
    size_t from = begin_of(&p->begins, i);
    size_t num = zt_buf_used(&p->begins) / sizeof(size_t); /* of them there may be more */
    size_t to = (size_t)i + 1 < num ? begin_of(&p->begins, i + 1)
                                    : zt_buf_used(&p->ids) / sizeof(int32_t);

    *n = (int64_t)(to - from);
    return (const int32_t *)(const void *)zt_buf_head(&p->ids) + from;
}

/* Text i of those that stand in `all`. */
static const char *text_at(const struct zt_buf *all, const struct zt_buf *begins,
                           int64_t i, size_t *n)
{
    size_t from = begin_of(begins, i);
    size_t num = zt_buf_used(begins) / sizeof(size_t);
    size_t to = (size_t)i + 1 < num ? begin_of(begins, i + 1) : zt_buf_used(all);

    *n = to - from - 1; /* there is a zero byte behind each */
    return (const char *)zt_buf_head(all) + from;
}

const char *zt_prompts_text(const struct zt_prompts *p, int64_t i, size_t *n)
{
    return text_at(&p->text, &p->text_begins, i, n);
}

const char *zt_prompts_meant(const struct zt_prompts *p, int64_t i, size_t *n)
{
    return text_at(&p->meant, &p->meant_begins, i, n);
}

/* ---- ids ---- */

static zt_err out_of_memory(struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_NOMEM, "prompts: no host memory");
}

static zt_err put_id(struct zt_prompts *p, int32_t id)
{
    return zt_buf_put(&p->ids, &id, sizeof(id));
}

/* Nothing is what stands before a text: end-of-text, where the model has it behind its bytes,
 * else the end of a line. */
static zt_err put_bytes(struct zt_prompts *p, const char *text, size_t n, int64_t vocab)
{
    zt_err rc = n ? ZT_OK : put_id(p, vocab > 256 ? 256 : '\n');

    for (size_t i = 0; !rc && i < n; i++)
        rc = put_id(p, (unsigned char)text[i]);
    return rc;
}

/* "1 22 333"; what is not in int32_t is -1, which no vocabulary has. */
static zt_err put_numbers(struct zt_prompts *p, const char *name, const char *text,
                          size_t n, struct zt_fault *fault)
{
    const char *at = text, *stop = text + n;
    bool any = false;
    zt_err rc = ZT_OK;

    while (at < stop && isspace((unsigned char)*at))
        at++;
    for (; !rc && at < stop; any = true) {
        char *end;
        long id;

        errno = 0;
        id = strtol(at, &end, 10);
        if (end == at)
            return zt_fault_set(
                fault, ZT_E_USAGE,
                "%s \"%.*s\": this model's vocabulary is not bytes: give token ids "
                "separated by blanks, the tokenizer's folder by --tokenizer_name, or "
                "--tokenizer_name bytes if it was trained on bytes",
                name, n > 400 ? 400 : (int)n, text);
        rc = put_id(p, errno || id < 0 || id > INT32_MAX ? -1 : (int32_t)id);
        at = end;
        while (at < stop && isspace((unsigned char)*at))
            at++;
    }
    if (!rc && !any)
        rc = put_id(p, 0);
    return rc ? out_of_memory(fault) : ZT_OK;
}

/* What stands before a text, as where `generate` is given none; of sources the end alone. */
static zt_err put_begin(struct zt_prompts *p, const struct zt_prompt_encoding *how)
{
    int32_t end = zt_tokenizer_end(how->tokenizer);
    int32_t begin = zt_tokenizer_special(how->tokenizer, "bos_token");

    if (how->ends && end >= 0) /* which put_end() puts */
        return ZT_OK;
    return put_id(p, begin >= 0 ? begin : end >= 0 ? end : 0);
}

static zt_err put_encoded(struct zt_prompts *p, const struct zt_prompt_encoding *how,
                          const char *text, size_t n, bool frame, struct zt_fault *fault)
{
    struct zt_encoder *encoder = NULL;
    const int32_t *ids = NULL;
    size_t num = 0;
    zt_err rc = zt_encoder_open(how->tokenizer, &encoder, fault);

    if (!rc)
        rc = zt_encode(encoder, text, n, frame, &ids, &num, fault);
    p->num_replaced += encoder ? zt_encoder_num_replaced(encoder) : 0;
    if (!rc && (num ? zt_buf_put(&p->ids, ids, num * sizeof(*ids)) : put_begin(p, how)))
        rc = out_of_memory(fault);
    zt_encoder_close(encoder);
    return rc;
}

static zt_err check_ids(const struct zt_prompts *p, const struct zt_prompt_encoding *how,
                        size_t from, const char *name, struct zt_fault *fault)
{
    const int32_t *ids = (const int32_t *)(const void *)zt_buf_head(&p->ids);
    size_t to = zt_buf_used(&p->ids) / sizeof(*ids);

    for (size_t i = from; i < to; i++)
        if (ids[i] < 0 || ids[i] >= how->vocab)
            return zt_fault_set(
                fault, ZT_E_USAGE,
                "%s: token %zu (from 0) is outside the vocabulary of %lld%s", name,
                i - from, (long long)how->vocab,
                how->tokenizer ? ", so the tokenizer is not the one of the model "
                                 "(--tokenizer_name names that one), or has tokens for "
                                 "which the model was not resized "
                                 "(resize_token_embeddings() of transformers)"
                               : "");
    return ZT_OK;
}

/* ---- texts ---- */

/* The ids are there, from `from` on: the text beside them, and one prompt more. */
static zt_err end_prompt(struct zt_prompts *p, size_t from, const char *text, size_t n,
                         struct zt_fault *fault)
{
    int64_t num = (int64_t)(zt_buf_used(&p->ids) / sizeof(int32_t) - from);
    size_t at = zt_buf_used(&p->text);

    if (zt_buf_put(&p->begins, &from, sizeof(from)) ||
        zt_buf_put(&p->text_begins, &at, sizeof(at)) || zt_buf_put(&p->text, text, n) ||
        zt_buf_put_u8(&p->text, 0))
        return out_of_memory(fault);
    p->longest = num > p->longest ? num : p->longest;
    p->num++;
    return ZT_OK;
}

/* The end-of-text that sources of training have. */
static zt_err put_end(struct zt_prompts *p, const struct zt_prompt_encoding *how,
                      size_t from)
{
    const int32_t *ids = (const int32_t *)(const void *)zt_buf_head(&p->ids);
    size_t num = zt_buf_used(&p->ids) / sizeof(*ids);
    int32_t end = how->tokenizer                   ? zt_tokenizer_end(how->tokenizer)
                  : how->bytes && how->vocab > 256 ? 256
                                                   : -1;

    return end < 0 || (num > from && ids[num - 1] == end) ? ZT_OK : put_id(p, end);
}

/* frame: with what the tokenizer's post-processor puts around a text. */
static zt_err put_ids(struct zt_prompts *p, const struct zt_prompt_encoding *how,
                      const char *name, const char *text, size_t n, bool frame,
                      struct zt_fault *fault)
{
    size_t from = zt_buf_used(&p->ids) / sizeof(int32_t);
    zt_err rc;

    if (how->tokenizer) {
        rc = put_encoded(p, how, text, n, frame, fault);
        if (rc)
            zt_fault_context(fault, rc, "%s", name);
    } else if (how->bytes) {
        rc = put_bytes(p, text, n, how->vocab) ? out_of_memory(fault) : ZT_OK;
    } else {
        rc = put_numbers(p, name, text, n, fault);
    }
    if (!rc && how->ends && put_end(p, how, from))
        rc = out_of_memory(fault);
    return rc ? rc : check_ids(p, how, from, name, fault);
}

static zt_err add(struct zt_prompts *p, const struct zt_prompt_encoding *how,
                  const char *name, const char *text, size_t n, bool frame,
                  struct zt_fault *fault)
{
    size_t from = zt_buf_used(&p->ids) / sizeof(int32_t);
    zt_err rc = put_ids(p, how, name, text, n, frame, fault);

    return rc ? rc : end_prompt(p, from, text, n, fault);
}

/* The ids have the prefix, the text beside them is the row's own. */
static zt_err add_row(struct zt_prompts *p, const struct zt_prompt_encoding *how,
                      const char *name, const char *text, size_t n,
                      struct zt_fault *fault)
{
    const char *prefix = how->pair ? how->pair->prefix : NULL;
    size_t from = zt_buf_used(&p->ids) / sizeof(int32_t);
    struct zt_buf whole;
    zt_err rc;

    if (!prefix)
        return add(p, how, name, text, n, true, fault);
    zt_buf_init(&whole, ZT_TEXT_MAX_BYTES);
    if (zt_buf_put(&whole, prefix, strlen(prefix)) || zt_buf_put(&whole, text, n) ||
        zt_buf_put_u8(&whole, 0)) /* numbers are read up to it */
        rc = out_of_memory(fault);
    else
        rc = put_ids(p, how, name, (const char *)zt_buf_head(&whole),
                     zt_buf_used(&whole) - 1, true, fault);
    zt_buf_release(&whole);
    return rc ? rc : end_prompt(p, from, text, n, fault);
}

zt_err zt_prompts_add(struct zt_prompts *p, const struct zt_prompt_encoding *how,
                      const char *name, const char *text, size_t n,
                      struct zt_fault *fault)
{
    return add(p, how, name, text, n, true, fault);
}

zt_err zt_prompts_add_rendered(struct zt_prompts *p, const struct zt_prompt_encoding *how,
                               const char *name, const char *text, size_t n,
                               struct zt_fault *fault)
{
    return add(p, how, name, text, n, false, fault);
}

/* ---- files ---- */

static zt_err add_lines(struct zt_prompts *p, const struct zt_prompt_encoding *how,
                        const char *path, const struct zt_mapping *file,
                        struct zt_fault *fault)
{
    const char *at = (const char *)file->data, *stop = at + file->bytes;
    zt_err rc = ZT_OK;

    for (int64_t line = 1; !rc && at < stop; line++) {
        const char *end = memchr(at, '\n', (size_t)(stop - at));
        size_t n = (size_t)((end ? end : stop) - at);
        char *name = NULL, *copy = malloc(n + 1);

        if (!copy || asprintf(&name, "%s:%lld", path, (long long)line) < 0) {
            free(copy);
            return out_of_memory(fault);
        }
        memcpy(copy, at, n);
        if (n && copy[n - 1] == '\r')
            n--;
        copy[n] = 0; /* numbers are read up to it */
        rc = add_row(p, how, name, copy, n, fault);
        free(name);
        free(copy);
        at = end ? end + 1 : stop;
    }
    return rc;
}

struct record_prompts {
    const struct zt_prompt_encoding *how;
    struct zt_records records;
    struct zt_template *chat; /* NULL: the column holds text */
    char *column;
    bool is_guessed; /* the column, by the first row */
};

/* What went wrong with a row's text, with its line. */
static zt_err name_row(const struct record_prompts *r, size_t from, zt_err rc,
                       const struct zt_fault *why, struct zt_fault *fault)
{
    return zt_records_fault(&r->records, from, rc, fault, "%s", why->text);
}

/* The answer that ends a conversation, which is what is meant; else NULL. */
static const json_t *answer_at_end(const struct record_prompts *r, const json_t *row)
{
    const json_t *list = r->chat ? json_object_get(row, r->column) : NULL;
    const json_t *last = json_array_get(list, json_array_size(list) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));

    return role && strcmp(role, "assistant") == 0 ? json_object_get(last, "content")
                                                  : NULL;
}

/* The row without its last message. NULL: no memory. */
static json_t *copy_without_answer(const struct record_prompts *r, const json_t *row)
{
    json_t *copy = json_copy((json_t *)row);
    json_t *list = json_copy(json_object_get(row, r->column));

    if (!copy || !list || json_array_remove(list, json_array_size(list) - 1) ||
        json_object_set(copy, r->column, list)) {
        json_decref(copy);
        copy = NULL;
    }
    json_decref(list);
    return copy;
}

static zt_err add_conversation(struct zt_prompts *p, const struct record_prompts *r,
                               size_t from, const json_t *row, struct zt_fault *fault)
{
    bool ends = answer_at_end(r, row) != NULL;
    json_t *asked = ends ? copy_without_answer(r, row) : json_incref((json_t *)row);
    struct zt_fault why = {0};
    struct zt_buf text;
    zt_err rc;

    if (!asked)
        return out_of_memory(fault);
    zt_buf_init(&text, ZT_TEXT_MAX_BYTES);
    rc = zt_chat_prompt(r->how->tokenizer, r->chat, asked, r->column, &text, &why);
    if (!rc)
        rc = zt_prompts_add_rendered(p, r->how, "its prompt",
                                     (const char *)zt_buf_head(&text), zt_buf_used(&text),
                                     &why);
    zt_buf_release(&text);
    json_decref(asked);
    return rc ? name_row(r, from, rc, &why, fault) : ZT_OK;
}

/* A pair in two languages: else a column holds the text. */
static bool has_languages(const struct record_prompts *r)
{
    return r->how->pair && r->how->pair->source_lang;
}

/* What the prompt of this row is meant to become. */
static zt_err add_meant(struct zt_prompts *p, const struct record_prompts *r, size_t from,
                        const json_t *row, struct zt_fault *fault)
{
    const json_t *answer = answer_at_end(r, row);
    struct zt_fault why = {0};
    size_t at = zt_buf_used(&p->meant), n;
    const char *text;
    zt_err rc = zt_buf_put(&p->meant_begins, &at, sizeof(at));

    if (rc)
        return out_of_memory(fault);
    if (has_languages(r)) {
        rc = zt_pair_render_target(r->how->pair, row, &p->meant, &why);
        if (rc)
            return name_row(r, from, rc, &why, fault);
    } else if (json_is_string(answer)) {
        rc = zt_buf_put(&p->meant, json_string_value(answer), json_string_length(answer));
    } else {
        rc = zt_records_text(&r->records, from, row, p->meant_column, &text, &n, fault);
        if (rc)
            return rc;
        rc = zt_buf_put(&p->meant, text, n);
    }
    return rc || zt_buf_put_u8(&p->meant, 0) ? out_of_memory(fault) : ZT_OK;
}

static zt_err add_source(struct zt_prompts *p, const struct record_prompts *r,
                         size_t from, const json_t *row, struct zt_fault *fault)
{
    struct zt_fault why = {0};
    struct zt_buf text;
    zt_err rc;

    zt_buf_init(&text, ZT_TEXT_MAX_BYTES);
    rc = zt_pair_render_source(r->how->pair, row, &text, &why);
    if (!rc && zt_buf_put_u8(&text, 0))
        rc = out_of_memory(&why);
    if (!rc)
        rc = add_row(p, r->how, "its source", (const char *)zt_buf_head(&text),
                     zt_buf_used(&text) - 1, &why);
    zt_buf_release(&text);
    return rc ? name_row(r, from, rc, &why, fault) : ZT_OK;
}

/* A row with what would have come before the first row's column has its prompt there. */
static zt_err check_column(const struct record_prompts *r, size_t from, const json_t *row,
                           struct zt_fault *fault)
{
    static const char *const names[] = {"prompt", "text", "messages"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const json_t *value = json_object_get(row, names[i]);

        if (strcmp(names[i], r->column) == 0)
            break;
        if (i < 2 ? json_is_string(value) : json_is_array(value))
            return zt_records_fault(&r->records, from, ZT_E_FORMAT, fault,
                                    "the row has \"%s\", and the first row has not: give "
                                    "all rows the same columns, or name the one that is "
                                    "meant, --text_column %s",
                                    names[i], r->column);
    }
    return ZT_OK;
}

static zt_err add_record(struct zt_prompts *p, const struct record_prompts *r,
                         size_t from, const json_t *row, struct zt_fault *fault)
{
    struct zt_fault why = {0};
    const char *text;
    size_t n;
    zt_err rc;

    if (has_languages(r))
        return add_source(p, r, from, row, fault);
    rc = r->is_guessed ? check_column(r, from, row, fault) : ZT_OK;
    if (rc)
        return rc;
    if (r->chat)
        return add_conversation(p, r, from, row, fault);
    rc = zt_records_text(&r->records, from, row, r->column, &text, &n, fault);
    if (rc)
        return rc;
    rc = add_row(p, r->how, "its prompt", text, n, &why);
    return rc ? name_row(r, from, rc, &why, fault) : ZT_OK;
}

/* A prompt, or nothing in its place, which is told by its row. */
static bool has_prompts(const struct zt_records *r)
{
    return zt_records_holds_text(r, "prompt") ||
           (zt_records_has(r, "prompt") && !zt_records_holds_lists(r, "prompt") &&
            !zt_records_has(r, "text") && !zt_records_has(r, "messages"));
}

static zt_err open_records(struct record_prompts *r, const char *path,
                           const struct zt_record_format *format,
                           const struct zt_mapping *file, const char *column,
                           struct zt_fault *fault)
{
    zt_err rc = zt_records_open(&r->records, format, path, (const char *)file->data,
                                file->bytes, fault);

    if (rc || has_languages(r))
        return rc;
    r->is_guessed = !column;
    if (!column && has_prompts(&r->records))
        column = "prompt";
    rc = zt_records_find_text(&r->records, column, &r->column, fault);
    if (rc || !zt_records_holds_lists(&r->records, r->column))
        return rc;
    rc = zt_records_check_messages(&r->records, r->column, fault);
    if (rc)
        return rc;
    if (!r->how->tokenizer)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "%s: conversations become text by the chat template of a "
                            "tokenizer: name its folder by --tokenizer_name",
                            path);
    return zt_chat_open(r->how->tokenizer, &r->chat, fault);
}

static zt_err add_records(struct zt_prompts *p, struct record_prompts *r,
                          struct zt_fault *fault)
{
    size_t from = r->records.first, to;
    zt_err rc = ZT_OK;

    for (; !rc && from < r->records.n; from = to) {
        json_t *row = NULL;

        to = zt_records_end(&r->records, from);
        if (zt_records_is_blank(&r->records, from, to))
            continue;
        rc = zt_records_parse(&r->records, from, to, &row, fault);
        if (!rc)
            rc = add_record(p, r, from, row, fault);
        if (!rc && p->meant_column)
            rc = add_meant(p, r, from, row, fault);
        json_decref(row);
    }
    return rc;
}

zt_err zt_prompts_add_file(struct zt_prompts *p, const struct zt_prompt_encoding *how,
                           const char *path, const char *format, const char *column,
                           struct zt_fault *fault)
{
    struct record_prompts r = {.how = how};
    const struct zt_record_format *f = strcmp(format, "auto") == 0
                                           ? zt_record_format_of_file(path)
                                           : zt_record_format_named(format);
    struct zt_mapping file = {0};
    int64_t before = p->num;
    zt_err rc = zt_data_file_open(path, &file, fault);

    if (rc)
        return rc;
    if (f) {
        rc = open_records(&r, path, f, &file, column, fault);
        if (!rc)
            rc = add_records(p, &r, fault);
    } else if (p->meant_column) {
        rc = zt_fault_set(fault, ZT_E_USAGE,
                          "%s: lines do not say what they are meant to become: "
                          "--predict_with_generate takes records, with a column \"%s\"",
                          path, p->meant_column);
    } else {
        rc = add_lines(p, how, path, &file, fault);
    }
    if (!rc && p->num == before)
        rc = zt_fault_set(fault, ZT_E_FORMAT, "%s: there is no row in it", path);
    free(r.column);
    zt_template_close(r.chat);
    zt_records_release(&r.records);
    zt_mapping_release(&file);
    return rc;
}
