#include "common/options/foreign.h"

#include <string.h>
#include <strings.h>

#include "common/options/private.h"

const struct zt_foreign *zt_foreign_find(const struct zt_foreign *rows, const char *text,
                                         size_t n)
{
    for (; rows->name; rows++) {
        size_t m = strcspn(rows->name, "*");

        if (rows->name[m] ? n >= m && zt_name_is_n(rows->name, text, m)
                          : zt_name_is(rows->name, text, n))
            return rows;
    }
    return NULL;
}

/* Is `value` one of "a|b", in any case? */
static bool is_among(const char *values, const char *value)
{
    size_t n = strlen(value);

    for (const char *v = values; v; v = strchr(v, '|')) {
        v += *v == '|';
        if (strcspn(v, "|") == n && !strncasecmp(v, value, n))
            return true;
    }
    return false;
}

const struct zt_foreign *zt_foreign_for(const struct zt_foreign *first, const char *value)
{
    const char *name = first->name;

    for (; first->name && !strcmp(first->name, name); first++)
        if (!first->values || is_among(first->values, value))
            return first;
    return NULL;
}
