#include "store/native/members.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN 8u

zt_err zt_members_join(struct zt_members *m, uint32_t index, uint32_t count,
                       struct zt_span label, char *text, size_t text_bytes)
{
    char *copy;

    if (m->count && m->count != count) {
        snprintf(text, text_bytes,
                 "%s %u (%.*s) says the job has %u %ss, others say %u: they were started "
                 "with different WORLD_SIZE",
                 m->noun, index, (int)label.bytes, (const char *)label.data, count,
                 m->noun, m->count);
        return ZT_E_ARG;
    }
    if (!m->member) {
        m->member = calloc(count, sizeof(*m->member));
        if (!m->member)
            return ZT_E_NOMEM;
        m->count = count;
    }
    if (m->member[index].connected) {
        snprintf(text, text_bytes,
                 "%s %u is here already (%s); %.*s was given the same number", m->noun,
                 index, m->member[index].label, (int)label.bytes,
                 (const char *)label.data);
        return ZT_E_ARG;
    }
    copy = strndup(label.data, label.bytes);
    if (!copy)
        return ZT_E_NOMEM;
    for (char *p = copy; *p; p++) /* it goes into messages */
        if ((unsigned char)*p < ' ' || *p == 127)
            *p = '?';
    free(m->member[index].label);
    m->member[index] = (struct zt_member){copy, true};
    m->connected++;
    return ZT_OK;
}

void zt_members_leave(struct zt_members *m, uint32_t index)
{
    m->member[index].connected = false;
    m->connected--;
}

void zt_members_release(struct zt_members *m)
{
    for (uint32_t i = 0; i < m->count; i++)
        free(m->member[i].label);
    free(m->member);
    *m = (struct zt_members){.noun = m->noun};
}

static void add_text(struct zt_names *n, const char *fmt, ...) ZT_PRINTF(2, 3);
static void add_text(struct zt_names *n, const char *fmt, ...)
{
    size_t left = n->bytes - n->used;
    va_list ap;
    int w;

    va_start(ap, fmt);
    w = vsnprintf(n->text + n->used, left, fmt, ap);
    va_end(ap);
    n->used += w < 0 ? 0 : (size_t)w < left ? (size_t)w : left - 1;
}

void zt_names_add(struct zt_names *n, const struct zt_members *m, uint32_t index)
{
    const struct zt_member *who = index < m->count ? &m->member[index] : NULL;

    if (n->num++ >= SHOWN)
        return;
    add_text(n, "%s%s %u", n->num > 1 ? ", " : "", m->noun, index);
    if (!who)
        return;
    if (!who->label)
        add_text(n, " (never connected)");
    else
        add_text(n, " (%.100s%s)", who->label, who->connected ? "" : ", connection lost");
}

void zt_names_end(struct zt_names *n)
{
    if (n->num > SHOWN)
        add_text(n, " and %u others", n->num - SHOWN);
}
