#include "common/problems.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct zt_text_arena_chunk {
    struct zt_text_arena_chunk *next;
    size_t used, size;
    max_align_t data[];
};

#define CHUNK_BYTES ((size_t)16384)

void *zt_text_arena_alloc(struct zt_text_arena *a, size_t bytes)
{
    struct zt_text_arena_chunk *c = a->chunks;
    size_t need = (bytes + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1);
    void *p;

    if (!c || need > c->size - c->used) {
        size_t size = need > CHUNK_BYTES ? need : CHUNK_BYTES;

        c = calloc(1, sizeof(*c) + size);
        if (!c) {
            a->failed = true;
            return NULL;
        }
        c->size = size;
        c->next = a->chunks;
        a->chunks = c;
    }
    p = (char *)c->data + c->used;
    c->used += need;
    return p;
}

const char *zt_text_arena_copy(struct zt_text_arena *a, const char *text, size_t n)
{
    char *p = zt_text_arena_alloc(a, n + 1);

    if (!p)
        return "";
    memcpy(p, text, n);
    return p;
}

static const char *format_text(struct zt_text_arena *a, const char *fmt, va_list ap)
{
    va_list again;
    char *p;
    int n;

    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    p = zt_text_arena_alloc(a, (size_t)(n < 0 ? 0 : n) + 1);
    if (!p)
        return "";
    vsnprintf(p, (size_t)(n < 0 ? 0 : n) + 1, fmt, ap);
    return p;
}

const char *zt_text_arena_printf(struct zt_text_arena *a, const char *fmt, ...)
{
    const char *p;
    va_list ap;

    va_start(ap, fmt);
    p = format_text(a, fmt, ap);
    va_end(ap);
    return p;
}

void zt_text_arena_release(struct zt_text_arena *a)
{
    while (a->chunks) {
        struct zt_text_arena_chunk *next = a->chunks->next;

        free(a->chunks);
        a->chunks = next;
    }
    a->failed = false;
}

void zt_problems_init(struct zt_problems *r, struct zt_text_arena *arena)
{
    *r = (struct zt_problems){.arena = arena};
    r->problems_end = &r->problems;
    r->notes_end = &r->notes;
}

static void append(struct zt_text_arena *arena, struct zt_problems_line ***end,
                   const char *fmt, va_list ap)
{
    struct zt_problems_line *line = zt_text_arena_alloc(arena, sizeof(*line));

    if (!line)
        return;
    line->text = format_text(arena, fmt, ap);
    **end = line;
    *end = &line->next;
}

void zt_problems_add(struct zt_problems *r, zt_err code, const char *fmt, ...)
{
    va_list ap;

    if (!r->num_problems++)
        r->code = code;
    va_start(ap, fmt);
    append(r->arena, &r->problems_end, fmt, ap);
    va_end(ap);
}

void zt_problems_note(struct zt_problems *r, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    append(r->arena, &r->notes_end, fmt, ap);
    va_end(ap);
}

zt_err zt_problems_end(const struct zt_problems *r, struct zt_fault *fault)
{
    const size_t reserve = 32; /* for "and 12345 more problems" */
    char text[ZT_FAULT_TEXT] = "";
    size_t used = 0;
    int shown = 0;

    if (r->arena->failed)
        return zt_fault_set(fault, ZT_E_NOMEM, "reading options: no host memory");
    if (!r->num_problems)
        return ZT_OK;
    for (const struct zt_problems_line *l = r->problems; l; l = l->next) {
        size_t n = strlen(l->text);

        if (shown && n + 1 > sizeof(text) - reserve - used - 1)
            break;
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s",
                                 shown ? "\n" : "", l->text);
        if (used > sizeof(text) - reserve - 1)
            used = sizeof(text) - reserve - 1;
        text[used] = 0;
        shown++;
    }
    if (shown < r->num_problems)
        snprintf(text + used, sizeof(text) - used, "\nand %d more problems",
                 r->num_problems - shown);
    return zt_fault_set(fault, r->code, "%s", text);
}
