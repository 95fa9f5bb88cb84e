#include "worker/tools/hf_config.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct zt_hf_config {
    char *path;
    json_t *root;
};

static zt_err load(struct zt_hf_config *c, struct zt_fault *fault)
{
    json_error_t e;

    if (access(c->path, R_OK) < 0)
        return zt_fault_set(fault, ZT_E_NOINPUT, "%s: %s", c->path, strerror(errno));
    c->root = json_load_file(c->path, JSON_REJECT_DUPLICATES, &e);
    if (!c->root && !e.text[0]) /* jansson has no words for it */
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", c->path);
    if (!c->root)
        return zt_fault_set(fault, ZT_E_FORMAT, "%s:%d:%d: %s", c->path, e.line, e.column,
                            e.text);
    if (!json_is_object(c->root))
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: is no JSON object", c->path);
    return ZT_OK;
}

zt_err zt_hf_config_open(const char *path, struct zt_hf_config **out,
                         struct zt_fault *fault)
{
    struct zt_hf_config *c = calloc(1, sizeof(*c));
    struct stat st;
    bool is_dir = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    zt_err rc;

    if (c && asprintf(&c->path, "%s%s", path, is_dir ? "/config.json" : "") < 0)
        c->path = NULL;
    rc = c && c->path ? load(c, fault)
                      : zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", path);
    if (rc) {
        zt_hf_config_close(c);
        return rc;
    }
    *out = c;
    return ZT_OK;
}

void zt_hf_config_close(struct zt_hf_config *c)
{
    if (!c)
        return;
    json_decref(c->root);
    free(c->path);
    free(c);
}

/* NULL when any part of the way is missing. */
static const json_t *find(const struct zt_hf_config *c, const char *key)
{
    const json_t *at = c->root;

    while (at && *key) {
        size_t n = strcspn(key, ".");

        at = json_object_getn(at, key, n);
        key += n + (key[n] == '.');
    }
    return at;
}

/* The value, or NULL for "take the default". */
static const json_t *value_of(const struct zt_hf_config *c, const char *key)
{
    const json_t *v = find(c, key);

    return json_is_null(v) ? NULL : v;
}

bool zt_hf_config_has(const struct zt_hf_config *c, const char *key)
{
    return value_of(c, key) != NULL;
}

bool zt_hf_config_says(const struct zt_hf_config *c, const char *key)
{
    return find(c, key) != NULL;
}

static zt_err wrong_type(const struct zt_hf_config *c, const char *key, const json_t *v,
                         const char *want, struct zt_fault *fault)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list",
        [JSON_STRING] = "a string",  [JSON_INTEGER] = "an integer",
        [JSON_REAL] = "a fraction",  [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",      [JSON_NULL] = "null"};

    return zt_fault_set(fault, ZT_E_FORMAT, "%s: \"%s\" is %s; %s is needed", c->path,
                        key, names[json_typeof(v)], want);
}

zt_err zt_hf_config_int(const struct zt_hf_config *c, const char *key, int64_t def,
                        int64_t *out, struct zt_fault *fault)
{
    const json_t *v = value_of(c, key);

    if (v && !json_is_integer(v))
        return wrong_type(c, key, v, "an integer", fault);
    *out = v ? (int64_t)json_integer_value(v) : def;
    return ZT_OK;
}

zt_err zt_hf_config_float(const struct zt_hf_config *c, const char *key, double def,
                          double *out, struct zt_fault *fault)
{
    const json_t *v = value_of(c, key);

    if (v && !json_is_number(v))
        return wrong_type(c, key, v, "a number", fault);
    *out = v ? json_number_value(v) : def;
    return ZT_OK;
}

zt_err zt_hf_config_bool(const struct zt_hf_config *c, const char *key, bool def,
                         bool *out, struct zt_fault *fault)
{
    const json_t *v = value_of(c, key);

    if (v && !json_is_boolean(v))
        return wrong_type(c, key, v, "true or false", fault);
    *out = v ? json_is_true(v) : def;
    return ZT_OK;
}

zt_err zt_hf_config_string(const struct zt_hf_config *c, const char *key, const char *def,
                           const char **out, struct zt_fault *fault)
{
    const json_t *v = value_of(c, key);

    if (v && !json_is_string(v))
        return wrong_type(c, key, v, "a string", fault);
    *out = v ? json_string_value(v) : def;
    return ZT_OK;
}
