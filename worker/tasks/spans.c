#include "worker/tasks/spans.h"

#include <stdlib.h>
#include <string.h>

static bool is_tag(const char *name)
{
    return strcmp(name, "O") == 0 ||
           (name[0] && strchr("BIES", name[0]) && name[1] == '-' && name[2]);
}

bool zt_tags_mark_spans(const char *const *names, int64_t num)
{
    bool any = false;

    for (int64_t i = 0; i < num; i++) {
        if (!is_tag(names[i]))
            return false;
        any |= names[i][0] != 'O';
    }
    return any;
}

zt_err zt_span_tags_open(struct zt_span_tags *t, const char *const *names, int64_t num,
                         struct zt_fault *fault)
{
    *t = (struct zt_span_tags){.num = num};
    t->part = calloc((size_t)num, sizeof(*t->part));
    t->type = calloc((size_t)num, sizeof(*t->type));
    if (!t->part || !t->type) {
        zt_span_tags_close(t);
        return zt_fault_set(fault, ZT_E_NOMEM, "metrics: no memory");
    }
    for (int64_t i = 0; i < num; i++) {
        int64_t first = 0; /* tag with this type */

        t->part[i] = names[i][0];
        while (names[i][0] != 'O' &&
               (names[first][0] == 'O' || strcmp(names[first] + 2, names[i] + 2) != 0))
            first++;
        t->type[i] = names[i][0] == 'O' ? -1 : (int)first;
    }
    return ZT_OK;
}

void zt_span_tags_close(struct zt_span_tags *t)
{
    free(t->part);
    free(t->type);
    *t = (struct zt_span_tags){.part = NULL};
}

/* The entity that a row of tags is in. */
struct open_span {
    char part; /* of the last word */
    int type;
    int64_t begin;
};

static bool ends(const struct open_span *s, char part, int type)
{
    if (s->part == 'E' || s->part == 'S')
        return true;
    if (s->part == 'O')
        return false;
    return part == 'B' || part == 'S' || part == 'O' || s->type != type;
}

static bool begins(const struct open_span *s, char part, int type)
{
    if (part == 'O')
        return false;
    return part == 'B' || part == 'S' || s->part == 'E' || s->part == 'S' ||
           s->part == 'O' || s->type != type;
}

/* To word i; *was: what ended before it, true if anything did. */
static bool step(struct open_span *s, char part, int type, int64_t i,
                 struct open_span *was)
{
    bool ended = ends(s, part, type);

    *was = *s;
    if (begins(s, part, type))
        s->begin = i;
    s->part = part;
    s->type = type;
    return ended;
}

void zt_spans_add(struct zt_span_counts *c, const struct zt_span_tags *t,
                  const int32_t *predicted, const int32_t *meant, int64_t n)
{
    struct open_span p = {'O', -1, 0}, m = {'O', -1, 0}, of_p, of_m;

    for (int64_t i = 0; i <= n; i++) {
        bool p_ended = step(&p, i < n ? t->part[predicted[i]] : 'O',
                            i < n ? t->type[predicted[i]] : -1, i, &of_p);
        bool m_ended = step(&m, i < n ? t->part[meant[i]] : 'O',
                            i < n ? t->type[meant[i]] : -1, i, &of_m);

        c->predicted += p_ended;
        c->meant += m_ended;
        c->right +=
            p_ended && m_ended && of_p.begin == of_m.begin && of_p.type == of_m.type;
    }
}

double zt_span_precision(const struct zt_span_counts *c)
{
    return c->predicted > 0 ? c->right / c->predicted : 0;
}

double zt_span_recall(const struct zt_span_counts *c)
{
    return c->meant > 0 ? c->right / c->meant : 0;
}

double zt_span_f1(const struct zt_span_counts *c)
{
    return c->predicted + c->meant > 0 ? 2 * c->right / (c->predicted + c->meant) : 0;
}
