#include "worker/text/rows/labels.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

zt_err zt_labels_add(struct zt_labels *l, const char *name, struct zt_fault *fault)
{
    const char **more, *key;
    json_t *id;

    if (!l->ids)
        l->ids = json_object();
    if (json_object_get(l->ids, name))
        return ZT_OK;
    more = realloc(l->names, (size_t)(l->num + 1) * sizeof(*more));
    if (more)
        l->names = more;
    id = more ? json_integer((json_int_t)l->num) : NULL;
    if (!id || json_object_set_new(l->ids, name, id))
        return zt_fault_set(fault, ZT_E_NOMEM, "labels: no memory");
    key = json_object_iter_key(json_object_iter_at(l->ids, name));
    l->names[l->num++] = key;
    return ZT_OK;
}

/* A whole number and nothing else. */
static bool is_number(const char *name, long long *value)
{
    char *end;

    errno = 0;
    *value = strtoll(name, &end, 10);
    return !errno && end != name && !*end && !isspace((unsigned char)*name);
}

static int compare_numbers(const void *x, const void *y)
{
    long long a = 0, b = 0;

    (void)is_number(*(const char *const *)x, &a);
    (void)is_number(*(const char *const *)y, &b);
    return (a > b) - (a < b);
}

static int compare_names(const void *x, const void *y)
{
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

void zt_labels_sort(struct zt_labels *l)
{
    bool numbers = true;
    long long value;

    for (int64_t i = 0; numbers && i < l->num; i++)
        numbers = is_number(l->names[i], &value);
    if (l->num)
        qsort(l->names, (size_t)l->num, sizeof(*l->names),
              numbers ? compare_numbers : compare_names);
    for (int64_t i = 0; i < l->num; i++)
        json_integer_set(json_object_get(l->ids, l->names[i]), (json_int_t)i);
}

bool zt_labels_are_unnamed(const struct zt_labels *l)
{
    char name[40];

    for (int64_t i = 0; i < l->num; i++) {
        snprintf(name, sizeof(name), "LABEL_%lld", (long long)i);
        if (strcmp(l->names[i], name) != 0)
            return false;
    }
    return l->num > 0;
}

int64_t zt_labels_find(const struct zt_labels *l, const char *name)
{
    const json_t *id = json_object_get(l->ids, name);
    long long number;

    if (id)
        return (int64_t)json_integer_value(id);
    return is_number(name, &number) && number >= 0 && number < l->num &&
                   zt_labels_are_unnamed(l)
               ? (int64_t)number
               : -1;
}

const char *zt_label_name(const json_t *value, char room[ZT_LABEL_DIGITS])
{
    if (json_is_string(value)) /* a name ends at a zero byte, and would be another's */
        return strlen(json_string_value(value)) == json_string_length(value)
                   ? json_string_value(value)
                   : NULL;
    if (json_is_boolean(value))
        return json_is_true(value) ? "true" : "false";
    if (!json_is_integer(value))
        return NULL;
    snprintf(room, ZT_LABEL_DIGITS, "%lld", (long long)json_integer_value(value));
    return room;
}

void zt_labels_release(struct zt_labels *l)
{
    free(l->names);
    json_decref(l->ids);
    *l = (struct zt_labels){.names = NULL};
}
