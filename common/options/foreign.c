#include "common/options/foreign.h"

#include <stdlib.h>
#include <string.h>

#include "common/options/private.h"
#include "common/suggest.h"

const char *zt_foreign_dashes(const struct zt_foreign *f)
{
    return f->name[1] ? "--" : "-";
}

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

/* "(0,1)": is it a number between these two? */
static bool is_between(const char *range, const char *value)
{
    char *comma;
    double low, d;

    if (*range != '(' || !zt_parse_double(value, &d))
        return false;
    low = strtod(range + 1, &comma);
    return d > low && d < strtod(comma + 1, NULL);
}

const struct zt_foreign *zt_foreign_for(const struct zt_foreign *first, const char *value)
{
    const char *name = first->name;

    for (; first->name && !strcmp(first->name, name); first++)
        if (!first->values || zt_is_one_of(first->values, value, true) ||
            is_between(first->values, value))
            return first;
    return NULL;
}
