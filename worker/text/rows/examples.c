#include "worker/text/rows/examples.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- columns ---- */

/* As the data sets of GLUE, and others, call them; the first that are there. */
static const char *const usual_pairs[][2] = {
    {"sentence1", "sentence2"}, {"premise", "hypothesis"}, {"question1", "question2"},
    {"question", "sentence"},   {"text1", "text2"},        {"text_a", "text_b"},
    {"query", "passage"},
};
static const char *const usual_texts[] = {"text", "sentence", "content", NULL};
static const char *const usual_words[] = {"tokens", "words", NULL};
static const char *const usual_labels[] = {"label", "labels", "score", NULL};
static const char *const usual_tags[] = {"ner_tags", "tags", "pos_tags", "labels", NULL};

/* The first of these that the row has; NULL: none. */
static const char *first_of(const json_t *row, const char *const *names)
{
    while (*names && !json_object_get(row, *names))
        names++;
    return *names;
}

/* Whether a column other than these two can be what is looked for: texts and words are no numbers. */
static bool is_to_choose(const json_t *row, const char *text, const char *pair)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)row, key, value)
    {
        bool taken = text && (strcmp(key, text) == 0 || (pair && strcmp(key, pair) == 0));

        if (!taken && (text || !json_is_number(value)))
            return true;
    }
    return false;
}

/* `text` and `pair`: the columns that are found already, or NULL. */
static zt_err refuse(const struct zt_records *r, size_t at, const json_t *row,
                     const char *wanted, const char *text, const char *pair,
                     const char *what, const char *option, struct zt_fault *fault)
{
    char names[200] = "";
    const char *key;
    json_t *value;
    size_t n = 0;
    zt_err rc = wanted ? ZT_OK : zt_records_check_nested(r, at, row, fault);

    if (rc)
        return rc;
    json_object_foreach((json_t *)row, key, value)
    {
        if (n < sizeof(names))
            n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", n ? ", " : "",
                                  key);
    }
    if (wanted)
        return zt_records_fault(
            r, at, ZT_E_USAGE, fault,
            "there is no column \"%s\"; the row has %s: %s says which", wanted, names,
            option);
    if (!is_to_choose(row, text, pair))
        return zt_records_fault(r, at, ZT_E_FORMAT, fault,
                                "no column holds the %s; the row has %s", what,
                                n ? names : "none");
    return zt_records_fault(r, at, ZT_E_USAGE, fault,
                            "no column is known to hold the %s; the row has %s: %s says "
                            "which",
                            what, names, option);
}

/* Of texts: those that were named, else a usual pair, else a usual text. */
static void find_texts(const struct zt_example_spec *spec, const json_t *row,
                       const char **text, const char **pair)
{
    *text = spec->text;
    *pair = spec->pair;
    if (*text || *pair)
        return;
    for (size_t i = 0; i < sizeof(usual_pairs) / sizeof(*usual_pairs); i++) {
        if (!json_object_get(row, usual_pairs[i][0]) ||
            !json_object_get(row, usual_pairs[i][1]))
            continue;
        *text = usual_pairs[i][0];
        *pair = usual_pairs[i][1];
        return;
    }
    *text = first_of(row, usual_texts);
}

static zt_err find_in_row(const struct zt_example_spec *spec, const struct zt_records *r,
                          size_t at, const json_t *row, struct zt_example_columns *out,
                          struct zt_fault *fault)
{
    bool tags = spec->kind == ZT_EXAMPLES_TAGS;
    const char *text = NULL, *pair = NULL, *label = spec->label;

    if (tags)
        text = spec->text ? spec->text : first_of(row, usual_words);
    else
        find_texts(spec, row, &text, &pair);
    if (!label)
        label = first_of(row, tags ? usual_tags : usual_labels);
    if (!text || !json_object_get(row, text))
        return refuse(r, at, row, text, NULL, NULL, tags ? "words" : "text",
                      "--text_column", fault);
    if (pair && !json_object_get(row, pair))
        return refuse(r, at, row, pair, text, NULL, "second text", "--text_pair_column",
                      fault);
    if (!spec->unlabelled && (!label || !json_object_get(row, label)))
        return refuse(r, at, row, label, text, pair, tags ? "tags" : "labels",
                      "--label_column", fault);
    out->text = strdup(text);
    out->pair = pair ? strdup(pair) : NULL;
    out->label = label ? strdup(label) : NULL;
    if (out->text && (!pair || out->pair) && (!label || out->label))
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", r->path);
}

zt_err zt_example_find_columns(const struct zt_example_spec *spec,
                               const struct zt_records *r, struct zt_example_columns *out,
                               struct zt_fault *fault)
{
    size_t at = r->first, end = zt_records_end(r, at);
    json_t *row = NULL;
    zt_err rc;

    while (end < r->n && zt_records_is_blank(r, at, end)) {
        at = end;
        end = zt_records_end(r, at);
    }
    rc = zt_records_parse(r, at, end, &row, fault);
    *out = (struct zt_example_columns){NULL, NULL, NULL};
    if (!rc)
        rc = find_in_row(spec, r, at, row, out, fault);
    json_decref(row);
    if (rc)
        zt_example_columns_release(out);
    return rc;
}

void zt_example_columns_release(struct zt_example_columns *c)
{
    free(c->text);
    free(c->pair);
    free(c->label);
    *c = (struct zt_example_columns){NULL, NULL, NULL};
}

/*
 * The first row says which columns are meant, where no option does: of a row that has others before
 * these a part alone would be read.
 */
static zt_err check_columns(const struct zt_example_spec *spec,
                            const struct zt_example_columns *c,
                            const struct zt_records *r, size_t at, const json_t *row,
                            struct zt_fault *fault)
{
    struct zt_example_columns own = {NULL, NULL, NULL};
    zt_err rc;

    if (!json_object_get(row, c->text) || (c->pair && !json_object_get(row, c->pair)) ||
        (c->label && !json_object_get(row, c->label)))
        return ZT_OK; /* refused as what it lacks */
    rc = find_in_row(spec, r, at, row, &own, fault);
    if (!rc && own.text && (strcmp(own.text, c->text) != 0 || (own.pair && !c->pair)))
        rc = zt_records_fault(r, at, ZT_E_FORMAT, fault,
                              "the row has \"%s\"%s%s%s, and the first row has "
                              "not: give all rows the same columns, or say which is "
                              "meant, --text_column %s%s%s",
                              own.text, own.pair ? " and \"" : "",
                              own.pair ? own.pair : "", own.pair ? "\"" : "", c->text,
                              c->pair ? " --text_pair_column " : "",
                              c->pair ? c->pair : "");
    else if (!rc && !spec->unlabelled && own.label && c->label &&
             strcmp(own.label, c->label) != 0)
        rc = zt_records_fault(r, at, ZT_E_FORMAT, fault,
                              "the row has labels in \"%s\", and the first row has not: "
                              "give all rows the same columns, or say which is meant, "
                              "--label_column %s",
                              own.label, c->label);
    zt_example_columns_release(&own);
    return rc;
}

/* ---- labels ---- */

static zt_err refuse_label(const struct zt_labels *l, const struct zt_records *r,
                           size_t at, const char *column, const char *name,
                           struct zt_fault *fault)
{
    if (zt_labels_are_unnamed(l))
        return zt_records_fault(
            r, at, ZT_E_FORMAT, fault,
            "\"%s\" has the label \"%.60s\", and the classes of the model have numbers "
            "and "
            "no names (LABEL_0, ...): give labels as numbers from 0 to %lld, or name the "
            "classes by id2label in the config.json of the weights",
            column, name, (long long)l->num - 1);
    return zt_records_fault(r, at, ZT_E_FORMAT, fault,
                            "\"%s\" has the label \"%.60s\", which is none of the %lld "
                            "that the training data, or the weights, have (the first is "
                            "\"%.40s\"); correct it, or take the row out",
                            column, name, (long long)l->num, l->num ? l->names[0] : "");
}

/* What PyTorch's losses leave out (ignore_index), and datasets of tags therefore hold. */
#define NOT_LEARNT (-100)

/* In a table numbers are text. */
static bool is_not_learnt(const json_t *value)
{
    const char *text = json_string_value(value);

    return text ? strcmp(text, "-100") == 0
                : json_is_integer(value) && json_integer_value(value) == NOT_LEARNT;
}

static zt_err refuse_not_learnt(const struct zt_records *r, size_t at, const char *column,
                                struct zt_fault *fault)
{
    return zt_records_fault(r, at, ZT_E_FORMAT, fault,
                            "\"%s\" holds %d, by which PyTorch means that nothing is "
                            "learnt of it; what has no label is not built: give it one "
                            "(tags of tokens: one tag for each word), or take it out",
                            column, NOT_LEARNT);
}

static zt_err class_of(const struct zt_example_spec *spec, const struct zt_records *r,
                       size_t at, const char *column, const json_t *value, int64_t *out,
                       struct zt_fault *fault)
{
    char room[ZT_LABEL_DIGITS];
    const char *name = zt_label_name(value, room);

    if (is_not_learnt(value))
        return refuse_not_learnt(r, at, column, fault);
    if (name && !*name)
        return zt_records_fault(
            r, at, ZT_E_FORMAT, fault,
            "\"%s\" holds an empty label; correct it, or take the row "
            "out",
            column);
    if (!name)
        return zt_records_fault(
            r, at, ZT_E_FORMAT, fault, "\"%s\" holds a label %s", column,
            json_is_real(value) && fabs(json_real_value(value)) >= 0x1p63
                ? "that is a number of more than 64 bits; write it as text"
            : json_is_real(value)   ? "that is neither text nor a whole number; numbers "
                                      "are predicted by --task regress"
            : json_is_string(value) ? "with a zero byte; correct it, or take the row out"
                                    : "that is neither text nor a whole number; correct "
                                      "it, or take the row out");
    *out = zt_labels_find(spec->labels, name);
    if (*out >= 0)
        return ZT_OK;
    return refuse_label(spec->labels, r, at, column, name, fault);
}

/* The decimal number that a text is, between blanks, as tables have them; NAN: none. */
static double number_of_text(const char *text)
{
    size_t n;
    char *end;
    double x;

    text += strspn(text, " \t");
    n = strspn(text, "+-.0123456789eE"); /* strtod() takes 0x10 and nan as well */
    if (!n || text[n + strspn(text + n, " \t")])
        return NAN;
    x = strtod(text, &end);
    return end == text + n ? x : NAN;
}

#define LARGEST_NUMBER 1e18 /* fp32 holds the sum of many of its squares */

static zt_err number_of(const struct zt_records *r, size_t at, const char *column,
                        const json_t *value, double *out, struct zt_fault *fault)
{
    const char *text = json_string_value(value);
    double x = text                    ? number_of_text(text)
               : json_is_number(value) ? json_number_value(value)
                                       : NAN;

    if (fabs(x) > LARGEST_NUMBER)
        return zt_records_fault(
            r, at, ZT_E_FORMAT, fault,
            "\"%s\" is %g, and the square of a number above %g is too "
            "large for a loss; scale the numbers, or take the row out",
            column, x, LARGEST_NUMBER);
    if (!isfinite(x))
        return zt_records_fault(r, at, ZT_E_FORMAT, fault,
                                "\"%s\" is no number that can be learnt; correct it, or "
                                "take the row out (labels with names are predicted by "
                                "--task classify)",
                                column);
    *out = x;
    return ZT_OK;
}

static zt_err label_of_row(const struct zt_example_spec *spec,
                           const struct zt_example_columns *c, const struct zt_records *r,
                           size_t at, const json_t *row, double *out,
                           struct zt_fault *fault)
{
    const json_t *value;
    int64_t class = 0;
    zt_err rc;

    *out = 0;
    if (spec->unlabelled || spec->kind == ZT_EXAMPLES_TAGS)
        return ZT_OK;
    value = json_object_get(row, c->label);
    if (!value)
        return zt_records_fault(r, at, ZT_E_FORMAT, fault,
                                "the row has no \"%s\"; add it, or take the row out",
                                c->label);
    if (spec->kind == ZT_EXAMPLES_NUMBER)
        return number_of(r, at, c->label, value, out, fault);
    rc = class_of(spec, r, at, c->label, value, &class, fault);
    *out = (double)class;
    return rc;
}

/* ---- ids ---- */

static zt_err no_memory(const struct zt_records *r, size_t at, struct zt_fault *fault)
{
    return zt_records_fault(r, at, ZT_E_NOMEM, fault, "no memory for its tokens");
}

static zt_err put_bytes(struct zt_buf *ids, const char *text, size_t n)
{
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < n; i++)
        rc = zt_buf_put(ids, &(int32_t){(uint8_t)text[i]}, sizeof(int32_t));
    return rc;
}

/* A text's ids, without a frame. */
static zt_err put_text(const struct zt_records *r, size_t at, struct zt_encoder *encoder,
                       const char *text, size_t n, struct zt_buf *ids,
                       struct zt_fault *fault)
{
    struct zt_fault why = {ZT_OK, ""};
    const int32_t *made;
    size_t num;
    zt_err rc;

    if (!encoder)
        return put_bytes(ids, text, n) ? no_memory(r, at, fault) : ZT_OK;
    rc = zt_encode(encoder, text, n, false, &made, &num, &why);
    if (rc)
        return zt_records_fault(r, at, rc, fault, "%s", why.text);
    return zt_buf_put(ids, made, num * sizeof(*made)) ? no_memory(r, at, fault) : ZT_OK;
}

static zt_err put_column(const struct zt_records *r, size_t at, const json_t *row,
                         const char *column, struct zt_encoder *encoder,
                         struct zt_buf *ids, struct zt_fault *fault)
{
    const char *text;
    size_t n;
    zt_err rc = zt_records_text(r, at, row, column, &text, &n, fault);

    return rc ? rc : put_text(r, at, encoder, text, n, ids, fault);
}

static size_t count(const struct zt_buf *ids)
{
    return zt_buf_used(ids) / sizeof(int32_t);
}

/* For a word that the tokenizer makes nothing of, so that each has a tag. */
static zt_err put_unknown(const struct zt_example_spec *spec,
                          const struct zt_example_columns *c, const struct zt_records *r,
                          size_t at, size_t word, struct zt_buf *ids,
                          struct zt_fault *fault)
{
    if (!spec->has_unknown)
        return zt_records_fault(r, at, ZT_E_FORMAT, fault,
                                "word %zu of \"%s\" has no tokens; take it out, with its "
                                "tag",
                                word + 1, c->text);
    return zt_buf_put(ids, &spec->unknown, sizeof(spec->unknown))
               ? no_memory(r, at, fault)
               : ZT_OK;
}

/* The words, and in `tags` the class + 1 of each at its first token. */
static zt_err put_words(const struct zt_example_spec *spec,
                        const struct zt_example_columns *c, const struct zt_records *r,
                        size_t at, const json_t *words, const json_t *labels,
                        struct zt_encoder *encoder, struct zt_buf *ids,
                        struct zt_buf *tags, struct zt_fault *fault)
{
    const json_t *word;
    size_t i;
    zt_err rc;

    json_array_foreach((json_t *)words, i, word)
    {
        size_t before = count(ids);
        int64_t class = 0;

        if (!json_is_string(word))
            return zt_records_fault(r, at, ZT_E_FORMAT, fault,
                                    "word %zu of \"%s\" is no text; correct it, or take "
                                    "the row out",
                                    i + 1, c->text);
        rc = put_text(r, at, encoder, json_string_value(word), json_string_length(word),
                      ids, fault);
        if (!rc && count(ids) == before)
            rc = put_unknown(spec, c, r, at, i, ids, fault);
        if (!rc && labels)
            rc =
                class_of(spec, r, at, c->label, json_array_get(labels, i), &class, fault);
        if (rc)
            return rc;
        for (size_t k = before; k < count(ids); k++) {
            int32_t tag = k == before ? (int32_t) class + 1 : 0;

            if (zt_buf_put(tags, &tag, sizeof(tag)))
                return no_memory(r, at, fault);
        }
    }
    return ZT_OK;
}

static zt_err find_words(const struct zt_example_spec *spec,
                         const struct zt_example_columns *c, const struct zt_records *r,
                         size_t at, const json_t *row, const json_t **words,
                         const json_t **labels, struct zt_fault *fault)
{
    *words = json_object_get(row, c->text);
    *labels = spec->unlabelled ? NULL : json_object_get(row, c->label);
    if (!json_is_array(*words))
        return zt_records_fault(r, at, ZT_E_FORMAT, fault,
                                "\"%s\" is no list of words; --text_column names the "
                                "column that is",
                                c->text);
    if (spec->unlabelled)
        return ZT_OK;
    if (!json_is_array(*labels))
        return zt_records_fault(r, at, ZT_E_FORMAT, fault,
                                "\"%s\" is no list of tags; --label_column names the "
                                "column that is",
                                c->label);
    if (json_array_size(*labels) != json_array_size(*words))
        return zt_records_fault(
            r, at, ZT_E_FORMAT, fault,
            "there are %zu words and %zu tags, and each word has one; "
            "correct it, or take the row out",
            json_array_size(*words), json_array_size(*labels));
    return ZT_OK;
}

static zt_err encode_words(const struct zt_example_spec *spec,
                           const struct zt_example_columns *c, const struct zt_records *r,
                           size_t at, const json_t *row, struct zt_encoder *encoder,
                           struct zt_buf *ids, struct zt_example *out,
                           struct zt_fault *fault)
{
    const json_t *words, *labels;
    size_t before = count(ids);
    struct zt_buf tags;
    zt_err rc = find_words(spec, c, r, at, row, &words, &labels, fault);

    zt_buf_init(&tags, ZT_TEXT_MAX_BYTES);
    if (!rc)
        rc = put_words(spec, c, r, at, words, labels, encoder, ids, &tags, fault);
    out->first = (uint32_t)(count(ids) - before);
    if (!rc && zt_buf_used(&tags) &&
        zt_buf_put(ids, zt_buf_head(&tags), zt_buf_used(&tags)))
        rc = no_memory(r, at, fault);
    zt_buf_release(&tags);
    return rc;
}

zt_err zt_example_encode(const struct zt_example_spec *spec,
                         const struct zt_example_columns *c, const struct zt_records *r,
                         size_t at, const json_t *row, struct zt_encoder *encoder,
                         struct zt_buf *ids, struct zt_example *out,
                         struct zt_fault *fault)
{
    size_t before = count(ids);
    zt_err rc = check_columns(spec, c, r, at, row, fault);

    *out = (struct zt_example){.tokens = 0};
    if (rc)
        return rc;
    if (spec->kind == ZT_EXAMPLES_TAGS) {
        rc = encode_words(spec, c, r, at, row, encoder, ids, out, fault);
    } else {
        rc = put_column(r, at, row, c->text, encoder, ids, fault);
        out->first = (uint32_t)(count(ids) - before);
        out->is_pair = c->pair != NULL;
        if (!rc && c->pair)
            rc = put_column(r, at, row, c->pair, encoder, ids, fault);
    }
    out->tokens = (uint32_t)(count(ids) - before);
    return rc ? rc : label_of_row(spec, c, r, at, row, &out->label, fault);
}

/* ---- all labels of a file ---- */

/* As JSON has names; where there is no memory, none is. */
static bool is_utf8(const char *name)
{
    json_t *text = json_string(name);
    bool yes = text != NULL;

    json_decref(text);
    return yes;
}

static zt_err collect_value(const struct zt_records *r, size_t at, const char *column,
                            const json_t *value, struct zt_labels *labels,
                            struct zt_fault *fault)
{
    const struct zt_example_spec any = {.labels = &(struct zt_labels){.num = 0}};
    char room[ZT_LABEL_DIGITS];
    const char *name = value ? zt_label_name(value, room) : NULL;
    int64_t class;

    if (is_not_learnt(value))
        return refuse_not_learnt(r, at, column, fault);
    labels->numbers |= json_is_integer(value);
    labels->booleans |= json_is_boolean(value);
    if (labels->numbers && labels->booleans)
        return zt_records_fault(r, at, ZT_E_FORMAT, fault,
                                "\"%s\" holds %s, and rows before it %s: labels are "
                                "numbers, or true and false, and not both",
                                column, name,
                                json_is_boolean(value) ? "numbers" : "true or false");
    if (name && !is_utf8(name))
        return zt_records_fault(r, at, ZT_E_FORMAT, fault,
                                "\"%s\" holds a label that is no UTF-8; convert the "
                                "file (iconv -f LATIN1 -t UTF-8)",
                                column);
    if (name && *name)
        return zt_labels_add(labels, name, fault);
    if (!value)
        return zt_records_fault(r, at, ZT_E_FORMAT, fault,
                                "the row has no \"%s\"; add it, or take the row out",
                                column);
    return class_of(&any, r, at, column, value, &class, fault);
}

static zt_err collect_row(const struct zt_example_columns *c, const struct zt_records *r,
                          size_t at, const json_t *row, bool tags,
                          struct zt_labels *labels, struct zt_fault *fault)
{
    const json_t *value = json_object_get(row, c->label), *one;
    zt_err rc = ZT_OK;
    size_t i;

    if (!tags || !json_is_array(value)) /* no list of tags: said when it is encoded */
        return tags ? ZT_OK : collect_value(r, at, c->label, value, labels, fault);
    json_array_foreach((json_t *)value, i, one)
    {
        if (!rc)
            rc = collect_value(r, at, c->label, one, labels, fault);
    }
    return rc;
}

zt_err zt_examples_collect(const struct zt_example_spec *spec, const struct zt_records *r,
                           struct zt_labels *labels, struct zt_fault *fault)
{
    struct zt_example_columns c;
    size_t end;
    zt_err rc = zt_example_find_columns(spec, r, &c, fault);

    for (size_t at = r->first; !rc && at < r->n; at = end) {
        json_t *row = NULL;

        end = zt_records_end(r, at);
        if (zt_records_is_blank(r, at, end))
            continue;
        rc = zt_records_parse(r, at, end, &row, fault);
        if (!rc)
            rc = collect_row(&c, r, at, row, spec->kind == ZT_EXAMPLES_TAGS, labels,
                             fault);
        json_decref(row);
    }
    zt_example_columns_release(&c);
    return rc;
}
