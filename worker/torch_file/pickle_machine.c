#include "worker/torch_file/pickle_machine.h"

#include <stdlib.h>
#include <string.h>

const char zt_pickle_no_room[] = "no memory within its limit";
const char zt_pickle_short_stack[] = "it takes a value where there is none";

/* ---- stack, marks, memo ---- */

bool zt_pickle_reserve(struct pickle_machine *m, void *list, size_t *cap, size_t want,
                       size_t size)
{
    size_t more = *cap ? *cap : 64;
    void *bigger;

    if (want <= *cap)
        return true;
    m->why = zt_pickle_no_room;
    while (more < want)
        more *= 2;
    if (more > ZT_PICKLE_ARENA / size || more * size > ZT_PICKLE_ARENA - m->growth)
        return false;
    bigger = realloc(*(void **)list, more * size);
    if (!bigger)
        return false;
    memset((uint8_t *)bigger + *cap * size, 0, (more - *cap) * size);
    m->growth += (more - *cap) * size;
    *(void **)list = bigger;
    *cap = more;
    return true;
}

bool zt_pickle_push(struct pickle_machine *m, struct zt_pickled *v)
{
    m->why = zt_pickle_no_room;
    if (!v ||
        !zt_pickle_reserve(m, &m->stack, &m->stack_cap, m->height + 1, sizeof(*m->stack)))
        return false;
    m->stack[m->height++] = v;
    return true;
}

/* Values above the last mark, or above nothing. */
size_t zt_pickle_floor_of(const struct pickle_machine *m)
{
    return m->num_marks ? m->marks[m->num_marks - 1] : 0;
}

struct zt_pickled *zt_pickle_pop(struct pickle_machine *m)
{
    m->why = zt_pickle_short_stack;
    return m->height > zt_pickle_floor_of(m) ? m->stack[--m->height] : NULL;
}

struct zt_pickled *zt_pickle_top(struct pickle_machine *m)
{
    m->why = zt_pickle_short_stack;
    return m->height > zt_pickle_floor_of(m) ? m->stack[m->height - 1] : NULL;
}

/* The last mark goes; *first is the height it noted. */
bool zt_pickle_pop_mark(struct pickle_machine *m, size_t *first)
{
    m->why = "it takes values up to a mark where there is none";
    if (m->num_marks == 0)
        return false;
    *first = m->marks[--m->num_marks];
    return true;
}

bool zt_pickle_remember(struct pickle_machine *m, uint64_t i)
{
    struct zt_pickled *v = zt_pickle_top(m);

    if (!v)
        return false;
    m->why = "a memo of a number that is too large";
    if (i >= m->bytes)
        return false;
    if (!zt_pickle_reserve(m, &m->memo, &m->memo_cap, i + 1, sizeof(*m->memo)))
        return false;
    m->memo[i] = v;
    m->next_memo = i >= m->next_memo ? i + 1 : m->next_memo;
    return true;
}

/* ---- reading operands ---- */

const uint8_t *zt_pickle_take(struct pickle_machine *m, uint64_t n)
{
    const uint8_t *p = m->data + m->at;

    m->why = "it ends in the middle of an operation";
    if (n > m->bytes - m->at)
        return NULL;
    m->at += n;
    return p;
}

bool zt_pickle_take_number(struct pickle_machine *m, int bytes, uint64_t *out)
{
    const uint8_t *p = zt_pickle_take(m, (uint64_t)bytes);

    *out = 0;
    for (int i = bytes - 1; p && i >= 0; i--)
        *out = *out << 8 | p[i];
    return p != NULL;
}

const uint8_t *zt_pickle_take_line(struct pickle_machine *m, size_t *n)
{
    const uint8_t *p = m->data + m->at, *end = memchr(p, '\n', m->bytes - m->at);

    m->why = "it ends in the middle of an operation";
    if (!end)
        return NULL;
    *n = (size_t)(end - p);
    m->at += *n + 1;
    return p;
}
