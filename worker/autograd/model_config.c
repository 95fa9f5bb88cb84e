/* model_config.c -- the config.json that weights come with, and the one they leave with.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/options/options.h"
#include "worker/autograd/model_private.h"

zt_err zt_model_read_config(struct zt_model *m, const char *path, struct zt_fault *fault)
{
    json_error_t e;

    if (!path)
        return ZT_OK;
    if (access(path, R_OK))
        return zt_fault_set(fault, ZT_E_NOINPUT, "%s: %s", path, strerror(errno));
    m->priv->imported = json_load_file(path, JSON_REJECT_DUPLICATES, &e);
    if (!m->priv->imported && !e.text[0]) /* jansson has no words for it */
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", path);
    if (!m->priv->imported)
        return zt_fault_set(fault, ZT_E_FORMAT, "%s:%d:%d: %s", path, e.line, e.column,
                            e.text);
    if (!json_is_object(m->priv->imported))
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: it holds no JSON object", path);
    return ZT_OK;
}

void zt_model_free_config(struct zt_model *m)
{
    json_decref(m->priv->imported);
    for (int i = 0; i < m->priv->num_exports; i++) {
        free(m->priv->exports[i].key);
        free(m->priv->exports[i].json);
    }
    free(m->priv->exports);
    zt_model_free_import(m);
}

/* ---- import ---- */

/* A reader cannot fail and cannot note anything, the model can: it is ours to change while
 * build runs. */
static zt_model *ours(const zt_model *m)
{
    return (zt_model *)m;
}

/* The member at "a.b.c", or "a.0" of a list; NULL when there is none. */
static const json_t *member(const zt_model *m, const char *key)
{
    const json_t *at = m->priv->imported;
    char word[128];

    if (at)
        zt_model_note_key(ours(m), key);
    while (at && *key) {
        size_t n = strcspn(key, ".");

        if (n >= sizeof(word))
            return NULL;
        memcpy(word, key, n);
        word[n] = 0;
        at = json_is_array(at) && isdigit((unsigned char)word[0])
                 ? json_array_get(at, strtoul(word, NULL, 10))
                 : json_object_get(at, word);
        key += n + (key[n] == '.');
    }
    return at;
}

const json_t *zt_model_config_find(const zt_model *m, const char *key)
{
    const json_t *v = member(m, key);

    return json_is_null(v) ? NULL : v;
}

void zt_model_refuse_config(struct zt_model *m, const char *fmt, ...)
{
    char text[ZT_FAULT_TEXT];
    va_list ap;

    if (m->priv->fault.code)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    zt_fault_set(&m->priv->fault, ZT_E_CONFIG, "%s: %s", m->priv->cfg.config_json, text);
}

static void wrong_type(const zt_model *m, const char *key, const json_t *v,
                       const char *want)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);

    zt_model_refuse_config(ours(m), "%s is %.60s, but %s is wanted", key,
                           text ? text : "of another type", want);
    free(text);
}

/* Within the range of the option of that name, if there is one? */
static bool in_range(const zt_model *m, const char *key, double value)
{
    const zt_args *args = m->priv->cfg.args;
    const struct zt_option *o = args ? zt_args_table(args) : NULL;

    while (o && o->name && strcmp(o->name, key) != 0)
        o++;
    if (!o || !o->name || (o->min == 0 && o->max == 0) ||
        (value >= o->min && value <= o->max))
        return true;
    zt_model_refuse_config(ours(m), "%s is %.15g; it must be between %.15g and %.15g",
                           key, value, o->min, o->max);
    return false;
}

bool zt_model_has_config(const zt_model *m)
{
    return m->priv->imported != NULL;
}

bool zt_model_config_has(const zt_model *m, const char *key)
{
    return member(m, key) != NULL;
}

int64_t zt_model_config_length(const zt_model *m, const char *key)
{
    const json_t *v = member(m, key);

    return json_is_array(v) ? (int64_t)json_array_size(v) : -1;
}

/* A new model of pairs has no config.json to say them: they are those of the tokenizer, or what
 * ends its texts where it has no such token, for whatever the plugin guesses is a word there. */
static int64_t new_token(const struct zt_model_config *c, const char *key, int64_t def)
{
    int64_t id = -1;

    if (!c->has_tokenizer || c->task != ZT_TASK_SEQ2SEQ || c->text_end < 0)
        return def;
    if (strcmp(key, "pad_token_id") == 0)
        id = c->text_pad;
    else if (strcmp(key, "bos_token_id") == 0)
        id = c->text_begin;
    else if (strcmp(key, "eos_token_id") != 0)
        return def;
    return id >= 0 ? id : c->text_end;
}

int64_t zt_model_config_int(const zt_model *m, const char *key, int64_t def)
{
    const json_t *v = zt_model_config_find(m, key);
    int64_t n;
    double d;

    if (!v)
        return zt_model_has_config(m) ? def : new_token(&m->priv->cfg, key, def);
    if (json_is_boolean(v))
        return json_is_true(v);
    d = json_is_number(v) ? json_number_value(v) : 0.5;
    if (!json_is_integer(v) && (d != floor(d) || fabs(d) >= 9e15)) {
        wrong_type(m, key, v, "an integer");
        return def;
    }
    n = json_is_integer(v) ? (int64_t)json_integer_value(v) : (int64_t)d;
    return in_range(m, key, d) ? n : def;
}

double zt_model_config_float(const zt_model *m, const char *key, double def)
{
    const json_t *v = zt_model_config_find(m, key);

    if (!v)
        return def;
    if (json_is_number(v))
        return in_range(m, key, json_number_value(v)) ? json_number_value(v) : def;
    wrong_type(m, key, v, "a number");
    return def;
}

const char *zt_model_config_string(const zt_model *m, const char *key, const char *def)
{
    const json_t *v = zt_model_config_find(m, key);

    if (!v)
        return def;
    if (json_is_string(v))
        return json_string_value(v);
    wrong_type(m, key, v, "a string");
    return def;
}

/* ---- export ---- */

/* The place for `key`: where it was written before, or a new one. */
static struct zt_export *place(zt_model *m, const char *key)
{
    struct zt_model_private *p = m->priv;
    struct zt_export *e;

    for (int i = 0; i < p->num_exports; i++)
        if (strcmp(p->exports[i].key, key) == 0)
            return &p->exports[i];
    e = realloc(p->exports, (size_t)(p->num_exports + 1) * sizeof(*e));
    if (!e)
        return NULL;
    p->exports = e;
    e += p->num_exports;
    *e = (struct zt_export){.key = strdup(key)};
    if (!e->key)
        return NULL;
    p->num_exports++;
    return e;
}

void zt_model_export(zt_model *m, const char *key, const char *json_fmt, ...)
{
    struct zt_export *e;
    json_error_t err;
    char *text = NULL;
    json_t *parsed;
    va_list ap;
    int n;

    if (m->priv->fault.code)
        return;
    va_start(ap, json_fmt);
    n = vasprintf(&text, json_fmt, ap);
    va_end(ap);
    if (n < 0) {
        zt_model_misuse(m, "no host memory for config.json");
        return;
    }
    parsed = json_loads(text, JSON_DECODE_ANY, &err);
    e = parsed ? place(m, key) : NULL;
    if (!parsed) {
        zt_model_misuse(m, "export of %s: %.200s is no JSON value: %s", key, text,
                        err.text);
    } else if (!e) {
        zt_model_misuse(m, "no host memory for config.json");
    } else {
        free(e->json);
        e->json = text;
        text = NULL;
    }
    json_decref(parsed);
    free(text);
}

/* 0.03, not 0.029999999999999999; malloc'ed. */
static char *text_of(const json_t *v)
{
    size_t digits = 15;
    char *text;
    json_t *read;
    bool same;

    do {
        text = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
        read = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
        same = !text || json_equal(read, v);
        json_decref(read);
        if (!same)
            free(text);
    } while (!same && ++digits < 18);
    return same ? text : json_dumps(v, JSON_ENCODE_ANY);
}

void zt_model_export_imported(zt_model *m, const char *key)
{
    const json_t *v = zt_model_config_find(m, key);
    char *text = v ? text_of(v) : NULL;

    if (v && !text)
        zt_model_misuse(m, "no host memory for config.json");
    if (text)
        zt_model_export(m, key, "%s", text);
    free(text);
}

static void export_json(struct zt_model *m, const char *key, const json_t *value)
{
    char *text = value ? text_of(value) : NULL;

    if (text)
        zt_model_export(m, key, "%s", text);
    else
        zt_model_misuse(m, "no host memory for config.json");
    free(text);
}

/* What the plugin has said of it; NULL: nothing. */
static const char *exported(const struct zt_model *m, const char *key)
{
    for (int i = 0; i < m->priv->num_exports; i++)
        if (strcmp(m->priv->exports[i].key, key) == 0)
            return m->priv->exports[i].json;
    return NULL;
}

static bool has_end(const json_t *ends, const json_t *end)
{
    bool has = json_equal(ends, end);
    const json_t *one;
    size_t i;

    json_array_foreach((json_t *)ends, i, one) has |= json_equal(one, end) != 0;
    return has;
}

/* As Trainer does: an end that is learnt stands in front of several, or in the place of one. */
static void align_end(struct zt_model *m, const char *said)
{
    json_t *now = json_loads(said, JSON_DECODE_ANY, NULL);
    json_t *end = json_integer((json_int_t)m->priv->cfg.learnt_end);
    char *text = NULL;

    if (!has_end(now, end)) {
        if (json_is_array(now) && json_array_insert(now, 0, end) == 0)
            text = json_dumps(now, 0);
        else
            text = json_dumps(end, JSON_ENCODE_ANY);
        if (text)
            zt_model_export(m, "eos_token_id", "%s", text);
        else
            zt_model_misuse(m, "no host memory for config.json");
    }
    free(text);
    json_decref(end);
    json_decref(now);
}

/* A config.json that the model comes from says it itself. A plugin can only guess, and a guess is
 * an ordinary word, at which transformers would end a text. */
void zt_model_export_ends(struct zt_model *m)
{
    const struct zt_model_config *c = &m->priv->cfg;
    const char *begin = exported(m, "bos_token_id");
    const char *end = exported(m, "eos_token_id");
    char text[24] = "null";
    bool pairs = c->task == ZT_TASK_SEQ2SEQ && !c->has_tokenizer; /* of bytes */

    if (end && zt_model_has_config(m) && c->has_tokenizer && c->learnt_end >= 0)
        align_end(m, end);
    if ((!c->has_tokenizer && !c->has_text_end) ||
        (c->task != ZT_TASK_CAUSAL_LM && !pairs) || zt_model_has_config(m) || !end)
        return;
    if (c->text_end >= 0)
        snprintf(text, sizeof(text), "%lld", (long long)c->text_end);
    zt_model_export(m, "eos_token_id", "%s", text);
    if (!pairs && begin && strcmp(begin, "null") != 0)
        zt_model_export(m, "bos_token_id", "%s", text);
}

void zt_model_export_carried(struct zt_model *m)
{
    const char *key;
    json_t *v;

    json_object_foreach(m->priv->imported, key, v)
    {
        if (zt_model_carries(key) && !json_is_null(v) && !exported(m, key))
            export_json(m, key, v);
    }
}

/* transformers knows by their number how many outputs a head has: of a regression it is 1. */
void zt_model_export_labels(struct zt_model *m)
{
    static const char *const one[] = {"LABEL_0"};
    const struct zt_model_config *c = &m->priv->cfg;
    bool regress = c->task == ZT_TASK_REGRESS;
    const char *const *labels = regress ? one : c->labels;
    int64_t num = regress ? 1 : c->num_labels;
    json_t *names = json_object(), *ids = json_object();

    for (int64_t i = 0; names && ids && i < num; i++) {
        char key[24];

        snprintf(key, sizeof(key), "%lld", (long long)i);
        json_object_set_new(names, key, json_string(labels[i]));
        json_object_set_new(ids, labels[i], json_integer((json_int_t)i));
    }
    if (num) {
        export_json(m, "id2label", names);
        export_json(m, "label2id", ids);
    }
    json_decref(names);
    json_decref(ids);
}

/* `key` as a JSON string, quotes and all. The caller frees. */
static char *quoted(const char *key)
{
    json_t *s = json_string(key);
    char *text = s ? json_dumps(s, JSON_ENCODE_ANY) : NULL;

    json_decref(s);
    return text;
}

char *zt_model_config_text(const struct zt_model *m)
{
    const struct zt_model_private *p = m->priv;
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    bool ok = f != NULL;

    if (!f)
        return NULL;
    fputs("{\n", f);
    for (int i = 0; i < p->num_exports; i++) {
        char *key = quoted(p->exports[i].key);

        ok = ok && key;
        fprintf(f, "  %s: %s%s\n", key ? key : "", p->exports[i].json,
                i + 1 < p->num_exports ? "," : "");
        free(key);
    }
    fputs("}\n", f);
    if (fclose(f) || !ok) {
        free(text);
        return NULL;
    }
    return text;
}
