/*
 * frame.c -- post-processors: what they put before a text and behind it, and around a pair of
 * texts. Those that change offsets alone change nothing here.
 */
#include <stdlib.h>
#include <string.h>

#include "worker/text/pipeline.h"

static zt_err put_ids(int32_t **list, size_t *num, const int32_t *ids, size_t n,
                      bool in_front, struct zt_fault *fault)
{
    int32_t *more = n ? realloc(*list, (*num + n) * sizeof(*more)) : NULL;

    if (!n)
        return ZT_OK;
    if (!more)
        return zt_text_out_of_memory(fault, ZT_E_NOMEM);
    *list = more;
    if (in_front)
        memmove(more + n, more, *num * sizeof(*more));
    memcpy(in_front ? more : more + *num, ids, n * sizeof(*ids));
    *num += n;
    return ZT_OK;
}

/* Into a place of a pair's template, with its type. */
static zt_err put_typed(struct zt_pair_template *p, int place, int32_t id, uint8_t type,
                        struct zt_fault *fault)
{
    size_t num = p->num[place];
    uint8_t *types = realloc(p->types[place], num + 1);

    if (!types)
        return zt_text_out_of_memory(fault, ZT_E_NOMEM);
    types[num] = type;
    p->types[place] = types;
    return put_ids(&p->ids[place], &p->num[place], &id, 1, false, fault);
}

static void release_pair(struct zt_pair_template *p)
{
    for (int i = 0; i < 3; i++) {
        free(p->ids[i]);
        free(p->types[i]);
    }
    *p = (struct zt_pair_template){.refused = true};
}

/* ---- BertProcessing, RobertaProcessing ---- */

/* ["[SEP]", 102] */
static zt_err read_pair(const struct zt_setting *s, const char *key, int32_t *id,
                        struct zt_fault *fault)
{
    struct zt_setting at;
    const json_t *n;

    zt_setting_get(s, key, &at);
    n = json_array_get(at.value, 1);
    if (!json_is_integer(n) || json_integer_value(n) < 0 ||
        json_integer_value(n) >= ZT_VOCAB_MAX_ID)
        return zt_setting_refuse(&at, fault, "is no list of a token and its id");
    *id = (int32_t)json_integer_value(n);
    return ZT_OK;
}

/* [CLS] A [SEP] B [SEP]; RoBERTa's has the separator twice between, and one type. */
static zt_err put_bert_pair(const struct zt_setting *s, struct zt_text_frame *f,
                            int32_t cls, int32_t sep, struct zt_fault *fault)
{
    const char *type = json_string_value(json_object_get(s->value, "type"));
    bool roberta = type && strcmp(type, "RobertaProcessing") == 0;
    zt_err rc = put_typed(&f->pair, 0, cls, 0, fault);

    f->num_templates++;
    f->pair.type_b = roberta ? 0 : 1;
    for (int i = 0; !rc && i < 1 + roberta; i++)
        rc = put_typed(&f->pair, 1, sep, 0, fault);
    return rc ? rc : put_typed(&f->pair, 2, sep, f->pair.type_b, fault);
}

static zt_err read_bert(const struct zt_setting *s, struct zt_text_frame *f,
                        struct zt_fault *fault)
{
    int32_t cls = 0, sep = 0;
    zt_err rc = read_pair(s, "cls", &cls, fault);

    if (!rc)
        rc = read_pair(s, "sep", &sep, fault);
    if (!rc)
        rc = put_ids(&f->before, &f->num_before, &cls, 1, true, fault);
    if (!rc)
        rc = put_ids(&f->after, &f->num_after, &sep, 1, false, fault);
    return rc ? rc : put_bert_pair(s, f, cls, sep, fault);
}

/* ---- TemplateProcessing ---- */

/* The ids of a special token of the template, by its name. */
static zt_err put_special(const struct zt_setting *template,
                          const struct zt_setting *item, const char *name, int32_t **list,
                          size_t *num, struct zt_fault *fault)
{
    struct zt_setting all, one, ids;
    size_t n;
    zt_err rc;

    zt_setting_get(template, "special_tokens", &all);
    if (!zt_setting_get(&all, name, &one))
        return zt_setting_refuse(item, fault, "%s is not among special_tokens", name);
    rc = zt_setting_check_keys(&one, "id ids tokens", fault);
    if (!rc)
        rc = zt_setting_list(&one, "ids", true, &ids, &n, fault);
    for (size_t i = 0; !rc && i < n; i++) {
        const json_t *v = json_array_get(ids.value, i);
        int32_t id;

        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            json_integer_value(v) >= ZT_VOCAB_MAX_ID)
            return zt_setting_refuse(&ids, fault, "holds something that is no id");
        id = (int32_t)json_integer_value(v);
        rc = put_ids(list, num, &id, 1, false, fault);
    }
    return rc;
}

static uint8_t type_of(const struct zt_setting *part)
{
    json_int_t type = json_integer_value(json_object_get(part->value, "type_id"));

    return type > 0 && type < 256 ? (uint8_t)type : 0;
}

/* What this template puts around; then those of `f` go around it. */
static zt_err read_items(const struct zt_setting *s, const struct zt_setting *items,
                         size_t n, struct zt_text_frame *own, struct zt_fault *fault)
{
    bool behind = false;
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < n; i++) {
        struct zt_setting item, part;
        const char *name;
        size_t len;

        zt_setting_at(items, i, &item);
        rc = zt_setting_check_keys(&item, "SpecialToken Sequence", fault);
        if (rc)
            return rc;
        if (zt_setting_get(&item, "SpecialToken", &part)) {
            own->has_types |= type_of(&part) != 0;
            rc = zt_setting_check_keys(&part, "id type_id", fault);
            if (!rc)
                rc = zt_setting_string(&part, "id", true, &name, &len, fault);
            if (!rc && behind)
                rc = put_special(s, &part, name, &own->after, &own->num_after, fault);
            else if (!rc)
                rc = put_special(s, &part, name, &own->before, &own->num_before, fault);
            continue;
        }
        if (!zt_setting_get(&item, "Sequence", &part))
            return zt_setting_refuse(&item, fault, "is empty");
        own->has_types |= type_of(&part) != 0;
        rc = zt_setting_check_keys(&part, "id type_id", fault);
        if (!rc)
            rc = zt_setting_string(&part, "id", true, &name, &len, fault);
        if (!rc && (behind || strcmp(name, "A") != 0))
            rc = zt_setting_refuse(&part, fault, "a template takes sequence A once here");
        behind = true;
    }
    if (!rc && !behind)
        rc = zt_setting_refuse(items, fault, "leaves sequence A out");
    return rc;
}

static zt_err put_special_typed(const struct zt_setting *template,
                                const struct zt_setting *part, const char *name,
                                int place, struct zt_pair_template *p,
                                struct zt_fault *fault)
{
    int32_t *ids = NULL;
    size_t num = 0;
    zt_err rc = put_special(template, part, name, &ids, &num, fault);

    for (size_t i = 0; !rc && i < num; i++)
        rc = put_typed(p, place, ids[i], type_of(part), fault);
    free(ids);
    return rc;
}

/* One item of `pair`; *place: behind how many of the two texts it stands. */
static zt_err read_pair_item(const struct zt_setting *s, const struct zt_setting *item,
                             int *place, struct zt_pair_template *p,
                             struct zt_fault *fault)
{
    struct zt_setting part;
    const char *name = "";
    bool text;
    size_t len;
    zt_err rc = zt_setting_check_keys(item, "SpecialToken Sequence", fault);

    if (rc)
        return rc;
    text = zt_setting_get(item, "Sequence", &part);
    if (!text && !zt_setting_get(item, "SpecialToken", &part))
        return zt_setting_refuse(item, fault, "is empty");
    rc = zt_setting_check_keys(&part, "id type_id", fault);
    if (!rc)
        rc = zt_setting_string(&part, "id", true, &name, &len, fault);
    if (rc || !text)
        return rc ? rc : put_special_typed(s, &part, name, *place, p, fault);
    p->refused |= *place > 1 || strcmp(name, *place ? "B" : "A") != 0;
    if (*place == 0)
        p->type_a = type_of(&part);
    else
        p->type_b = type_of(&part);
    *place += *place < 2;
    return ZT_OK;
}

static zt_err read_pair_template(const struct zt_setting *s, struct zt_text_frame *f,
                                 struct zt_fault *fault)
{
    struct zt_setting items, item;
    size_t n = 0;
    int place = 0;
    zt_err rc = ZT_OK;

    if (json_is_array(json_object_get(s->value, "pair")))
        rc = zt_setting_list(s, "pair", true, &items, &n, fault);
    for (size_t i = 0; !rc && i < n; i++) {
        zt_setting_at(&items, i, &item);
        rc = read_pair_item(s, &item, &place, &f->pair, fault);
    }
    f->pair.refused |= place != 2;
    return rc;
}

static zt_err read_template(const struct zt_setting *s, struct zt_text_frame *f,
                            struct zt_fault *fault)
{
    struct zt_text_frame own = {0};
    struct zt_setting items;
    size_t n;
    zt_err rc = zt_setting_list(s, "single", true, &items, &n, fault);

    if (!rc)
        rc = read_items(s, &items, n, &own, fault);
    if (!rc)
        rc = put_ids(&f->before, &f->num_before, own.before, own.num_before, true, fault);
    if (!rc)
        rc = put_ids(&f->after, &f->num_after, own.after, own.num_after, false, fault);
    f->has_types |= own.has_types;
    zt_frame_release(&own);
    f->num_templates++;
    return rc ? rc : read_pair_template(s, f, fault);
}

/* ---- the list ---- */

static zt_err read_offsets(const struct zt_setting *s, struct zt_text_frame *f,
                           struct zt_fault *fault)
{
    (void)s;
    (void)f;
    (void)fault;
    return ZT_OK;
}

static const struct {
    const char *type, *keys;
    zt_err (*read)(const struct zt_setting *s, struct zt_text_frame *f,
                   struct zt_fault *fault);
} kinds[] = {
    {"TemplateProcessing", "type single pair special_tokens", read_template},
    {"BertProcessing", "type sep cls", read_bert},
    {"RobertaProcessing", "type sep cls trim_offsets add_prefix_space", read_bert},
    {"ByteLevel", "type add_prefix_space trim_offsets use_regex", read_offsets},
};

static zt_err read_frame(const struct zt_setting *s, int depth, struct zt_text_frame *f,
                         struct zt_fault *fault)
{
    struct zt_setting at, list, one;
    const char *type;
    size_t n;
    zt_err rc;

    if (!json_is_object(s->value) || depth > 16)
        return zt_setting_refuse(s, fault, "is no object, or nested too deeply");
    rc = zt_setting_string(s, "type", true, &type, &n, fault);
    if (rc)
        return rc;
    if (strcmp(type, "Sequence") == 0) {
        rc = zt_setting_check_keys(s, "type processors", fault);
        if (!rc)
            rc = zt_setting_list(s, "processors", true, &list, &n, fault);
        for (size_t i = 0; !rc && i < n; i++) {
            zt_setting_at(&list, i, &one);
            rc = read_frame(&one, depth + 1, f, fault);
        }
        return rc;
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        if (strcmp(kinds[i].type, type) != 0)
            continue;
        rc = zt_setting_check_keys(s, kinds[i].keys, fault);
        return rc ? rc : kinds[i].read(s, f, fault);
    }
    zt_setting_get(s, "type", &at);
    return zt_setting_refuse(&at, fault,
                             "%.64s is not known here; known are Sequence, "
                             "TemplateProcessing, BertProcessing, RobertaProcessing, "
                             "ByteLevel",
                             type);
}

zt_err zt_frame_read(const struct zt_setting *s, struct zt_text_frame *f,
                     struct zt_fault *fault)
{
    zt_err rc;

    f->pair =
        (struct zt_pair_template){.type_b = 1}; /* as they are: one behind the other */
    if (!s->value || json_is_null(s->value))
        return ZT_OK;
    rc = read_frame(s, 0, f, fault);
    if (!rc && f->num_templates > 1)
        rc = zt_setting_refuse(s, fault, "frames a text twice, by %d processors",
                               f->num_templates);
    if (f->pair.refused)
        release_pair(&f->pair);
    return rc;
}

void zt_frame_release(struct zt_text_frame *f)
{
    free(f->before);
    free(f->after);
    release_pair(&f->pair);
    *f = (struct zt_text_frame){0};
}

/* ---- for those who frame by themselves ---- */

bool zt_tokenizer_types_single(const struct zt_tokenizer *t)
{
    return t->frame.has_types && !t->without_types;
}

struct zt_row_frame zt_tokenizer_frame(const struct zt_tokenizer *t)
{
    static const uint8_t zeros[64];
    const struct zt_text_frame *f = &t->frame;

    return (struct zt_row_frame){
        .before = {f->before, f->num_before <= sizeof(zeros) ? zeros : NULL,
                   f->num_before},
        .after = {f->after, f->num_after <= sizeof(zeros) ? zeros : NULL, f->num_after}};
}

zt_err zt_tokenizer_frame_pair(const struct zt_tokenizer *t, struct zt_row_frame *out,
                               struct zt_fault *fault)
{
    const struct zt_pair_template *p = &t->frame.pair;

    if (p->refused || t->spiece.model)
        return zt_fault_set(
            fault, ZT_E_FORMAT,
            "the tokenizer does not say how two texts are put together as "
            "one row: `pair` of a TemplateProcessing with A before B, or "
            "a BertProcessing, does");
    *out = (struct zt_row_frame){.before = {p->ids[0], p->types[0], p->num[0]},
                                 .between = {p->ids[1], p->types[1], p->num[1]},
                                 .after = {p->ids[2], p->types[2], p->num[2]},
                                 .type_a = p->type_a,
                                 .type_b = p->type_b};
    if (t->without_types) {
        out->before.types = out->between.types = out->after.types = NULL;
        out->type_a = out->type_b = 0;
    }
    return ZT_OK;
}

/* A folder of a vocab.txt alone has the names that its class has by itself. */
int32_t zt_tokenizer_special(const struct zt_tokenizer *t, const char *role)
{
    static const struct {
        const char *role, *text;
    } own[] = {{"mask_token", "[MASK]"}, {"mask_token", "<mask>"},
               {"pad_token", "[PAD]"},   {"pad_token", "<pad>"},
               {"unk_token", "[UNK]"},   {"unk_token", "<unk>"}};
    const char *text = json_string_value(json_object_get(t->chat.tokens, role));
    int32_t id = text ? zt_tokenizer_id(t, text) : -1;

    for (size_t i = 0; id < 0 && i < sizeof(own) / sizeof(*own); i++)
        if (strcmp(own[i].role, role) == 0)
            id = zt_tokenizer_id(t, own[i].text);
    return id;
}
