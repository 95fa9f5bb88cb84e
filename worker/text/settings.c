#include "worker/text/settings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void put_path(const struct zt_setting *s, char *out, size_t room)
{
    size_t n;

    if (!s->in) {
        snprintf(out, room, "$");
        return;
    }
    put_path(s->in, out, room);
    n = strlen(out);
    if (s->key)
        snprintf(out + n, room - n, ".%s", s->key);
    else
        snprintf(out + n, room - n, "[%zu]", s->index);
}

zt_err zt_setting_refuse(const struct zt_setting *s, struct zt_fault *fault,
                         const char *fmt, ...)
{
    char path[256], text[768];
    va_list args;

    put_path(s, path, sizeof(path));
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return zt_fault_set(fault, ZT_E_FORMAT, "%s: %s: %s", s->file, path, text);
}

bool zt_setting_get(const struct zt_setting *obj, const char *key, struct zt_setting *out)
{
    *out = (struct zt_setting){.in = obj,
                               .file = obj->file,
                               .key = key,
                               .value = json_object_get(obj->value, key)};
    return out->value && !json_is_null(out->value);
}

void zt_setting_at(const struct zt_setting *list, size_t i, struct zt_setting *out)
{
    *out = (struct zt_setting){.in = list,
                               .file = list->file,
                               .index = i,
                               .value = json_array_get(list->value, i)};
}

static bool is_listed(const char *word, const char *words)
{
    size_t n = strlen(word);

    for (const char *p = words; (p = strstr(p, word)) != NULL; p += n)
        if ((p == words || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return true;
    return false;
}

zt_err zt_setting_check_keys(const struct zt_setting *obj, const char *keys,
                             struct zt_fault *fault)
{
    const char *key;
    json_t *value;

    if (!json_is_object(obj->value))
        return zt_setting_refuse(obj, fault, "is no object");
    json_object_foreach((json_t *)obj->value, key, value)
    {
        struct zt_setting there = {.in = obj, .file = obj->file, .key = key};

        if (!is_listed(key, keys))
            return zt_setting_refuse(&there, fault,
                                     "is not known here, so what it would change is not "
                                     "done; known are: %s",
                                     keys);
    }
    return ZT_OK;
}

zt_err zt_setting_bool(const struct zt_setting *obj, const char *key, bool absent,
                       bool *out, struct zt_fault *fault)
{
    struct zt_setting s;

    *out = absent;
    if (!zt_setting_get(obj, key, &s))
        return ZT_OK;
    if (!json_is_boolean(s.value))
        return zt_setting_refuse(&s, fault, "is neither true nor false");
    *out = json_is_true(s.value);
    return ZT_OK;
}

zt_err zt_setting_int(const struct zt_setting *obj, const char *key, int64_t absent,
                      int64_t max, int64_t *out, struct zt_fault *fault)
{
    struct zt_setting s;

    *out = absent;
    if (!zt_setting_get(obj, key, &s))
        return ZT_OK;
    if (!json_is_integer(s.value))
        return zt_setting_refuse(&s, fault, "is no integer");
    *out = json_integer_value(s.value);
    if (*out < 0 || *out > max)
        return zt_setting_refuse(&s, fault, "is %lld, not within 0 and %lld",
                                 (long long)*out, (long long)max);
    return ZT_OK;
}

zt_err zt_setting_string(const struct zt_setting *obj, const char *key, bool needed,
                         const char **out, size_t *n, struct zt_fault *fault)
{
    struct zt_setting s;

    *out = NULL;
    *n = 0;
    if (!zt_setting_get(obj, key, &s)) {
        if (needed)
            return zt_setting_refuse(&s, fault, "is missing");
        return ZT_OK;
    }
    if (!json_is_string(s.value))
        return zt_setting_refuse(&s, fault, "is no string");
    *out = json_string_value(s.value);
    *n = json_string_length(s.value);
    return ZT_OK;
}

zt_err zt_setting_list(const struct zt_setting *obj, const char *key, bool needed,
                       struct zt_setting *out, size_t *num, struct zt_fault *fault)
{
    *num = 0;
    if (!zt_setting_get(obj, key, out)) {
        if (needed)
            return zt_setting_refuse(out, fault, "is missing");
        return ZT_OK;
    }
    if (!json_is_array(out->value))
        return zt_setting_refuse(out, fault, "is no list");
    *num = json_array_size(out->value);
    return ZT_OK;
}
