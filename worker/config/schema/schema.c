#include "worker/config/schema/schema.h"

#include <string.h>

#define NUM_TABLES 6

static const struct zt_key *table(size_t i)
{
    const struct zt_key *const tables[NUM_TABLES] = {zt_keys_training, zt_keys_optim(),
                                                     zt_keys_zero,     zt_keys_options,
                                                     zt_keys_features, zt_keys_model};

    return tables[i];
}

/* The table that ends behind k. */
static size_t table_of_last(const struct zt_key *k)
{
    size_t t = 0;

    for (; t < NUM_TABLES; t++) {
        const struct zt_key *row = table(t);

        while (row->path && row != k)
            row++;
        if (row == k)
            break;
    }
    return t;
}

const struct zt_key *zt_key_next(const struct zt_key *k)
{
    size_t next;

    if (!k)
        return table(0);
    if (k[1].path)
        return k + 1;
    next = table_of_last(k) + 1;
    return next < NUM_TABLES ? table(next) : NULL;
}

const struct zt_key *zt_key_find(const char *path)
{
    for (const struct zt_key *k = zt_key_next(NULL); k; k = zt_key_next(k))
        if (!strcmp(k->path, path))
            return k;
    return NULL;
}

bool zt_key_is_free(const struct zt_key *k)
{
    size_t n = strlen(k->path);

    for (const struct zt_key *o = zt_key_next(NULL); o; o = zt_key_next(o))
        if (!strncmp(o->path, k->path, n) && (o->path[n] == '.' || o->path[n] == '['))
            return false;
    return k->type == ZT_KEY_OBJECT;
}

const char *zt_key_status_name(zt_key_status status)
{
    static const char *const names[] = {"honoured", "always so", "no effect", "not yet",
                                        "never"};

    return names[status];
}

const char *zt_key_type_name(zt_key_type type)
{
    static const char *const names[] = {"bool", "int",   "float",  "string",
                                        "enum", "array", "object", "any"};

    return names[type];
}
