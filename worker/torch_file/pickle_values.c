/* pickle_values.c -- values of a pickle: their memory, and looking at them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/torch_file/private.h"

#define CHUNK ((size_t)64 << 10)

struct zt_pickle_chunk {
    struct zt_pickle_chunk *next;
    size_t used, bytes;
    _Alignas(16) uint8_t data[];
};

/* ---- memory ---- */

void *zt_pickle_alloc(struct zt_pickle *p, size_t bytes)
{
    struct zt_pickle_chunk *c = p->chunks;
    void *out;

    if (bytes > ZT_PICKLE_ARENA)
        return NULL;
    bytes = (bytes + 15) & ~(size_t)15;
    if (!c || bytes > c->bytes - c->used) {
        size_t size = bytes > CHUNK ? bytes : CHUNK;

        if (size > ZT_PICKLE_ARENA - p->arena_bytes)
            return NULL;
        c = calloc(1, sizeof(*c) + size);
        if (!c)
            return NULL;
        c->bytes = size;
        c->next = p->chunks;
        p->chunks = c;
        p->arena_bytes += size;
    }
    out = c->data + c->used;
    c->used += bytes;
    return out;
}

struct zt_pickled *zt_pickle_make(struct zt_pickle *p, zt_pickled_kind kind)
{
    struct zt_pickled *v = zt_pickle_alloc(p, sizeof(*v));

    if (v)
        v->kind = kind;
    return v;
}

bool zt_pickle_append(struct zt_pickle *p, struct zt_pickled *to, struct zt_pickled *item)
{
    if (to->num == to->cap) {
        int64_t cap = to->cap ? 2 * to->cap : 4;
        struct zt_pickled **items =
            zt_pickle_alloc(p, (size_t)cap * sizeof(struct zt_pickled *));

        if (!items)
            return false;
        if (to->num)
            memcpy(items, to->items, (size_t)to->num * sizeof(struct zt_pickled *));
        to->items = items;
        to->cap = cap;
    }
    to->items[to->num++] = item;
    return true;
}

void zt_pickle_release(struct zt_pickle *p)
{
    while (p->chunks) {
        struct zt_pickle_chunk *next = p->chunks->next;

        free(p->chunks);
        p->chunks = next;
    }
    free(p->storages);
    free(p->tensors);
    *p = (struct zt_pickle){0};
}

/* ---- looking ---- */

static bool is_list(const struct zt_pickled *v)
{
    return v && (v->kind == ZT_PICKLED_LIST || v->kind == ZT_PICKLED_TUPLE);
}

static bool is_dict(const struct zt_pickled *v)
{
    return v && v->kind == ZT_PICKLED_DICT;
}

bool zt_pickled_is(const struct zt_pickled *v, const char *text)
{
    return v && (v->kind == ZT_PICKLED_TEXT || v->kind == ZT_PICKLED_CLASS) &&
           v->text_bytes == strlen(text) && memcmp(v->text, text, v->text_bytes) == 0;
}

const struct zt_pickled *zt_pickled_get(const struct zt_pickled *dict, const char *key)
{
    for (int64_t i = zt_pickled_count(dict) - 1; is_dict(dict) && i >= 0; i--)
        if (zt_pickled_is(dict->items[2 * i], key))
            return dict->items[2 * i + 1];
    return NULL;
}

const struct zt_pickled *zt_pickled_at(const struct zt_pickled *list, int64_t i)
{
    return is_list(list) && i >= 0 && i < list->num ? list->items[i] : NULL;
}

int64_t zt_pickled_count(const struct zt_pickled *v)
{
    return is_list(v) ? v->num : is_dict(v) ? v->num / 2 : 0;
}

const struct zt_pickled *zt_pickled_key(const struct zt_pickled *dict, int64_t i)
{
    return is_dict(dict) && i >= 0 && i < dict->num / 2 ? dict->items[2 * i] : NULL;
}

const struct zt_pickled *zt_pickled_value(const struct zt_pickled *dict, int64_t i)
{
    return is_dict(dict) && i >= 0 && i < dict->num / 2 ? dict->items[2 * i + 1] : NULL;
}

bool zt_pickled_int(const struct zt_pickled *v, int64_t *out)
{
    if (!v || (v->kind != ZT_PICKLED_INT && v->kind != ZT_PICKLED_BOOL))
        return false;
    *out = v->integer;
    return true;
}

bool zt_pickled_real(const struct zt_pickled *v, double *out)
{
    int64_t n = 0;

    if (v && v->kind == ZT_PICKLED_FLOAT)
        *out = v->real;
    else if (zt_pickled_int(v, &n))
        *out = (double)n;
    else
        return false;
    return true;
}

const struct zt_torch_tensor *zt_pickled_tensor(const struct zt_pickled *v)
{
    return v && v->kind == ZT_PICKLED_TENSOR ? v->tensor : NULL;
}

void zt_pickled_describe(const struct zt_pickled *v, char *out, size_t cap)
{
    static const char *const names[] = {
        [ZT_PICKLED_NONE] = "None",           [ZT_PICKLED_BOOL] = "a truth value",
        [ZT_PICKLED_INT] = "an integer",      [ZT_PICKLED_FLOAT] = "a number",
        [ZT_PICKLED_TEXT] = "a text",         [ZT_PICKLED_BYTES] = "bytes",
        [ZT_PICKLED_LIST] = "a list",         [ZT_PICKLED_TUPLE] = "a tuple",
        [ZT_PICKLED_DICT] = "a dictionary",   [ZT_PICKLED_CLASS] = "the class",
        [ZT_PICKLED_OBJECT] = "an object of", [ZT_PICKLED_STORAGE] = "a storage",
        [ZT_PICKLED_TENSOR] = "a tensor"};

    if (!v)
        snprintf(out, cap, "nothing");
    else if (v->kind == ZT_PICKLED_CLASS || v->kind == ZT_PICKLED_OBJECT)
        snprintf(out, cap, "%s %.*s", names[v->kind],
                 (int)(v->text_bytes < 100 ? v->text_bytes : 100), v->text);
    else
        snprintf(out, cap, "%s", names[v->kind]);
}
