/*
 * split.c -- cutting pieces at matches, by what becomes of a match.
 */
#include "worker/text/unicode/chars.h"
#include "worker/text/pipeline.h"

/* Intervals come in order; the last one waits, for the next one may join it. */
struct splitter {
    zt_split_behavior behavior;
    bool invert;
    const struct zt_text_piece *of;
    struct zt_buf *out;
    size_t start, end; /* of the one that waits */
    bool waits, match, last_match;
};

static zt_err put_interval(const struct splitter *s, size_t start, size_t end)
{
    struct zt_text_piece p = {.at = s->of->at + start,
                              .n = end - start,
                              .token = -1,
                              .first = s->of->first && start == 0};

    return end > start ? zt_buf_put(s->out, &p, sizeof(p)) : ZT_OK;
}

static zt_err flush(struct splitter *s)
{
    bool waits = s->waits;

    s->waits = false;
    return waits ? put_interval(s, s->start, s->end) : ZT_OK;
}

static zt_err add(struct splitter *s, size_t start, size_t end, bool match)
{
    bool joins = false;
    zt_err rc;

    match ^= s->invert;
    switch (s->behavior) {
    case ZT_SPLIT_REMOVED:
        return match ? ZT_OK : put_interval(s, start, end);
    case ZT_SPLIT_ISOLATED:
        return put_interval(s, start, end);
    case ZT_SPLIT_CONTIGUOUS:
        joins = s->waits && s->match == match;
        break;
    case ZT_SPLIT_WITH_PREVIOUS:
        joins = s->waits && match && !s->last_match;
        break;
    case ZT_SPLIT_WITH_NEXT:
        joins = s->waits && s->match && !match;
        break;
    }
    s->last_match = match;
    if (joins) {
        s->end = end;
        s->match = match;
        return ZT_OK;
    }
    rc = flush(s);
    s->waits = true;
    s->start = start;
    s->end = end;
    s->match = match;
    return rc;
}

zt_err zt_next_match(struct zt_matches *m, bool *found, struct zt_fault *fault)
{
    size_t start = 0, end = 0;
    zt_err rc;

    m->done = m->end;
    do {
        *found = false;
        if (m->from > m->n)
            return ZT_OK;
        rc = m->find(m->rule, m->w, m->text, m->n, m->from, found, &start, &end, fault);
        if (rc || !*found)
            return rc;
        m->from = end;
        if (end == start && start < m->n)
            zt_utf8_next(m->text, &m->from);
        else if (end == start)
            m->from = m->n + 1;
    } while (end == start && start == m->done && start > 0);
    m->start = start;
    m->end = end;
    return ZT_OK;
}

static zt_err split_one(struct splitter *s, const struct zt_text_work *w,
                        const char *text, size_t n, zt_split_find find, const void *rule,
                        struct zt_fault *fault)
{
    struct zt_matches m = {.find = find, .rule = rule, .w = w, .text = text, .n = n};
    bool found = true;
    zt_err rc = ZT_OK;

    s->waits = s->match = s->last_match = false;
    while (!rc) {
        rc = zt_next_match(&m, &found, fault);
        if (rc)
            return rc;
        if (!found)
            break;
        if (m.start > m.done)
            rc = add(s, m.done, m.start, false);
        if (!rc)
            rc = add(s, m.start, m.end, true);
    }
    if (!rc && m.done < n)
        rc = add(s, m.done, n, false);
    if (!rc)
        rc = flush(s);
    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}

zt_err zt_split_pieces(struct zt_text_work *w, zt_split_find find, const void *rule,
                       zt_split_behavior behavior, bool invert, struct zt_fault *fault)
{
    size_t num;
    const struct zt_text_piece *p = zt_pieces_of(&w->pieces, &num);
    zt_err rc = ZT_OK;

    zt_buf_empty(&w->more);
    for (size_t i = 0; !rc && i < num; i++) {
        struct splitter s = {
            .behavior = behavior, .invert = invert, .of = &p[i], .out = &w->more};

        if (p[i].token < 0)
            rc = split_one(&s, w, zt_text_of(&w->text) + p[i].at, p[i].n, find, rule,
                           fault);
        else if (zt_buf_put(&w->more, &p[i], sizeof(p[i])) != ZT_OK)
            rc = zt_text_out_of_memory(fault, ZT_E_NOMEM);
    }
    zt_text_work_swap_pieces(w);
    return rc;
}

struct by_class {
    bool (*is)(uint32_t);
};

static zt_err find_class(const void *rule, const struct zt_text_work *w, const char *text,
                         size_t n, size_t from, bool *found, size_t *start, size_t *end,
                         struct zt_fault *fault)
{
    const struct by_class *r = rule;

    (void)w;
    (void)fault;
    for (size_t at = from; at < n;) {
        size_t here = at;

        if (r->is(zt_utf8_next(text, &at))) {
            *found = true;
            *start = here;
            *end = at;
            return ZT_OK;
        }
    }
    return ZT_OK;
}

zt_err zt_split_by_class(struct zt_text_work *w, bool (*is)(uint32_t),
                         zt_split_behavior behavior, struct zt_fault *fault)
{
    struct by_class rule = {is};

    return zt_split_pieces(w, find_class, &rule, behavior, false, fault);
}
