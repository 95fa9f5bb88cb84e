#include "worker/autograd/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)64 << 10)
#define ALIGN       16

struct chunk {
    struct chunk *next;
    size_t used, cap;
    _Alignas(ALIGN) char bytes[];
};

struct zt_arena {
    struct chunk *first, *at;
};

struct zt_arena *zt_arena_open(void)
{
    return calloc(1, sizeof(struct zt_arena));
}

void zt_arena_close(struct zt_arena *a)
{
    struct chunk *next;

    if (!a)
        return;
    for (struct chunk *c = a->first; c; c = next) {
        next = c->next;
        free(c);
    }
    free(a);
}

/* A chunk of at least `bytes` behind the current one. */
static struct chunk *add_chunk(struct zt_arena *a, size_t bytes)
{
    size_t cap = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    struct chunk *c;

    if (cap > SIZE_MAX - sizeof(*c))
        return NULL;
    c = malloc(sizeof(*c) + cap);
    if (!c)
        return NULL;
    c->used = 0;
    c->cap = cap;
    if (a->at) {
        c->next = a->at->next;
        a->at->next = c;
    } else {
        c->next = a->first;
        a->first = c;
    }
    return c;
}

void *zt_arena_take(struct zt_arena *a, size_t bytes)
{
    struct chunk *c = a->at ? a->at : a->first;
    void *p;

    if (bytes > SIZE_MAX - ALIGN)
        return NULL;
    bytes = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    while (c && c->cap - c->used < bytes) {
        a->at = c;
        c = c->next;
    }
    if (!c)
        c = add_chunk(a, bytes);
    if (!c)
        return NULL;
    a->at = c;
    p = c->bytes + c->used;
    c->used += bytes;
    return memset(p, 0, bytes);
}

void zt_arena_reset(struct zt_arena *a)
{
    for (struct chunk *c = a->first; c; c = c->next)
        c->used = 0;
    a->at = NULL;
}
