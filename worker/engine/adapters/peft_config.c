#include "worker/engine/adapters/peft_config.h"

#include <errno.h>
#include <fnmatch.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/json/line.h"

/* Of these keys the values that are built; others ask for other numbers. */
static const struct {
    const char *key, *allowed; /* a JSON list */
} fixed[] = {
    {"peft_type", "[\"LORA\"]"},
    {"bias", "[\"none\"]"},
    /* the others change the weights that the adapters are beside */
    {"init_lora_weights", "[true, false, \"gaussian\", \"orthogonal\", \"eva\"]"},
};

/* What is read elsewhere, or changes no number of adapters that are there. */
static const char *const known[] = {"r",
                                    "lora_alpha",
                                    "lora_dropout",
                                    "use_rslora",
                                    "target_modules",
                                    "peft_type",
                                    "bias",
                                    "init_lora_weights",
                                    "modules_to_save",
                                    "task_type",
                                    "base_model_name_or_path",
                                    "auto_mapping",
                                    "revision",
                                    "inference_mode",
                                    "fan_in_fan_out",
                                    "peft_version",
                                    "megatron_core",
                                    "qalora_group_size",
                                    "eva_config",
                                    NULL};

/* null, false, "", [] and {} ask for nothing. */
static bool asks_for_nothing(const json_t *v)
{
    return json_is_null(v) || json_is_false(v) ||
           (json_is_array(v) && !json_array_size(v)) ||
           (json_is_object(v) && !json_object_size(v)) ||
           (json_is_string(v) && !json_string_length(v));
}

static bool is_known(const char *key)
{
    for (int i = 0; known[i]; i++)
        if (fnmatch(known[i], key, 0) == 0)
            return true;
    return false;
}

static zt_err refuse(const char *path, const char *key, const json_t *v, const char *what,
                     struct zt_fault *fault)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);

    zt_fault_set(fault, ZT_E_CONFIG, "%s: \"%s\" is %.80s, %s", path, key,
                 text ? text : "of another type", what);
    free(text);
    return ZT_E_CONFIG;
}

static zt_err check_fixed(const char *path, const json_t *root, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        const json_t *v = json_object_get(root, fixed[i].key);
        json_t *allowed = json_loads(fixed[i].allowed, 0, NULL);
        bool good = !v || json_is_null(v);

        for (size_t k = 0; !good && k < json_array_size(allowed); k++)
            good = json_equal(v, json_array_get(allowed, k));
        if (!allowed)
            rc = zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", path);
        else if (!good)
            rc = refuse(path, fixed[i].key, v, "which is not built", fault);
        json_decref(allowed);
    }
    return rc;
}

static zt_err check_keys(const char *path, const json_t *root, struct zt_fault *fault)
{
    zt_err rc = check_fixed(path, root, fault);
    const char *key;
    json_t *v;

    if (rc)
        return rc;
    json_object_foreach((json_t *)root, key, v)
    {
        if (!is_known(key) && !asks_for_nothing(v))
            return refuse(path, key, v, "which is not built", fault);
    }
    return ZT_OK;
}

static zt_err read_number(const char *path, const json_t *root, const char *key,
                          double def, double least, double most, double *out,
                          struct zt_fault *fault)
{
    const json_t *v = json_object_get(root, key);
    double x = json_is_number(v) ? json_number_value(v) : def;
    char range[96];

    *out = x;
    snprintf(range, sizeof(range), "but a number from %g to %g is wanted", least, most);
    if ((v && !json_is_null(v) && !json_is_number(v)) || !(x >= least && x <= most))
        return refuse(path, key, v, range, fault);
    return ZT_OK;
}

static zt_err read_flag(const char *path, const json_t *root, const char *key, bool *out,
                        struct zt_fault *fault)
{
    const json_t *v = json_object_get(root, key);

    *out = json_is_true(v);
    return !v || json_is_null(v) || json_is_boolean(v)
               ? ZT_OK
               : refuse(path, key, v, "but true or false is wanted", fault);
}

/* Modules that are stored whole; (*num) copies in *out. */
static zt_err read_saved(const char *path, const json_t *root, struct zt_peft_config *c,
                         struct zt_fault *fault)
{
    const json_t *v = json_object_get(root, "modules_to_save");
    size_t num = json_array_size(v);
    zt_err rc = ZT_OK;

    if (v && !json_is_null(v) && !json_is_array(v))
        return refuse(path, "modules_to_save", v, "but names are wanted", fault);
    c->saved = calloc(num + 1, sizeof(*c->saved));
    if (!c->saved)
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", path);
    for (size_t i = 0; !rc && i < num; i++) {
        const char *name = json_string_value(json_array_get(v, i));

        c->saved[i] = name ? strdup(name) : NULL;
        if (!name)
            rc = refuse(path, "modules_to_save", v, "but names are wanted", fault);
        else if (!c->saved[i])
            rc = zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", path);
        else
            c->num_saved++;
    }
    return rc;
}

static zt_err read_base(const char *path, const json_t *root, struct zt_peft_config *c,
                        struct zt_fault *fault)
{
    const char *base =
        json_string_value(json_object_get(root, "base_model_name_or_path"));

    c->base = base ? strdup(base) : NULL;
    return !base || c->base ? ZT_OK
                            : zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", path);
}

/* A list of names, or one string: all-linear or a regular expression. */
static zt_err read_targets(const char *path, const json_t *root, struct zt_targets *out,
                           struct zt_fault *fault)
{
    const json_t *v = json_object_get(root, "target_modules");
    size_t num = json_is_array(v) ? json_array_size(v) : 1;
    const char **words = calloc(num + 1, sizeof(*words));
    char where[PATH_MAX + 32];
    zt_err rc = words ? ZT_OK : zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", path);

    snprintf(where, sizeof(where), "%s: target_modules", path);
    for (size_t i = 0; !rc && i < num; i++) {
        words[i] = json_string_value(json_is_array(v) ? json_array_get(v, i) : v);
        if (!words[i])
            rc = refuse(path, "target_modules", v, "but names are wanted", fault);
    }
    if (!rc)
        rc = zt_targets_open(where, words, (int)num, json_is_string(v), out, fault);
    free(words);
    return rc;
}

static zt_err read_root(const char *path, const json_t *root, struct zt_peft_config *c,
                        struct zt_fault *fault)
{
    double rank = 0;
    zt_err rc = json_is_object(root)
                    ? check_keys(path, root, fault)
                    : zt_fault_set(fault, ZT_E_FORMAT, "%s: is no JSON object", path);

    if (!rc)
        rc = read_number(path, root, "r", 8, 1, 65536, &rank, fault);
    if (!rc && rank != floor(rank))
        rc = zt_fault_set(fault, ZT_E_CONFIG, "%s: \"r\" is %g, no whole number", path,
                          rank);
    c->rank = (int64_t)rank;
    if (!rc)
        rc = read_number(path, root, "lora_alpha", 8, 0, 1e6, &c->alpha, fault);
    if (!rc)
        rc = read_number(path, root, "lora_dropout", 0, 0, 0.99, &c->dropout, fault);
    if (!rc)
        rc = read_flag(path, root, "use_rslora", &c->rslora, fault);
    if (!rc)
        rc = read_saved(path, root, c, fault);
    if (!rc)
        rc = read_base(path, root, c, fault);
    return rc ? rc : read_targets(path, root, &c->targets, fault);
}

zt_err zt_peft_config_read(const char *path, struct zt_peft_config *out,
                           struct zt_fault *fault)
{
    struct zt_peft_config c = {.rank = 0};
    json_error_t e;
    json_t *root;
    zt_err rc;

    if (access(path, R_OK) < 0)
        return zt_fault_set(fault, ZT_E_NOINPUT, "%s: %s", path, strerror(errno));
    root = json_load_file(path, JSON_REJECT_DUPLICATES, &e);
    if (!root && !e.text[0]) /* jansson has no words for it */
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", path);
    if (!root)
        return zt_fault_set(fault, ZT_E_FORMAT, "%s:%d:%d: %s", path, e.line, e.column,
                            e.text);
    rc = read_root(path, root, &c, fault);
    json_decref(root);
    if (rc)
        zt_peft_config_release(&c);
    else
        *out = c;
    return rc;
}

void zt_peft_config_release(struct zt_peft_config *c)
{
    for (int i = 0; i < c->num_saved; i++)
        free(c->saved[i]);
    free(c->saved);
    free(c->base);
    zt_targets_close(&c->targets);
    *c = (struct zt_peft_config){.rank = 0};
}

/* ---- out ---- */

static json_t *list_of(char *const *names, int num)
{
    json_t *list = json_array();

    for (int i = 0; i < num; i++)
        json_array_append_new(list, json_string(names[i]));
    return list;
}

static json_t *text_or_null(const char *text)
{
    return text ? json_string(text) : json_null();
}

/* 16 rather than 16.0: peft's own type is int. */
static json_t *number(double x)
{
    return x == floor(x) && fabs(x) < 1e9 ? json_integer((json_int_t)x) : json_real(x);
}

static json_t *targets_json(const struct zt_targets *t, const struct zt_peft_words *w)
{
    if (t->pattern)
        return json_string(t->pattern);
    return t->all_linear ? list_of(w->names, w->num_names) : list_of(t->names, t->num);
}

char *zt_peft_config_text(const struct zt_peft_config *c, const struct zt_peft_words *w)
{
    json_t *root = json_object();
    char *text;

    json_object_set_new(root, "base_model_name_or_path", text_or_null(w->base));
    json_object_set_new(root, "bias", json_string("none"));
    json_object_set_new(root, "fan_in_fan_out", json_boolean(w->fan_in_fan_out));
    json_object_set_new(root, "inference_mode", json_true());
    json_object_set_new(root, "init_lora_weights", json_true());
    json_object_set_new(root, "lora_alpha", number(c->alpha));
    json_object_set_new(root, "lora_dropout", json_real(c->dropout));
    json_object_set_new(root, "modules_to_save",
                        c->num_saved ? list_of(c->saved, c->num_saved) : json_null());
    json_object_set_new(root, "peft_type", json_string("LORA"));
    json_object_set_new(root, "r", json_integer((json_int_t)c->rank));
    json_object_set_new(root, "target_modules", targets_json(&c->targets, w));
    json_object_set_new(root, "task_type", text_or_null(w->task_type));
    json_object_set_new(root, "use_dora", json_false());
    json_object_set_new(root, "use_rslora", json_boolean(c->rslora));
    text = zt_json_file_text(root);
    json_decref(root);
    return text;
}
