#include "common/options/foreign.h"

#include <string.h>

#include "common/options/private.h"
#include "common/suggest.h"

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

const struct zt_foreign *zt_foreign_for(const struct zt_foreign *first, const char *value)
{
    const char *name = first->name;

    for (; first->name && !strcmp(first->name, name); first++)
        if (!first->values || zt_is_one_of(first->values, value, true))
            return first;
    return NULL;
}
