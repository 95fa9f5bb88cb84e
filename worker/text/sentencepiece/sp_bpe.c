/*
 * sp_bpe.c -- of all neighbours that are a piece together, those of the highest score, the
 * first of them, become one symbol, until none are left. A user's symbol stays as it is.
 * Where a piece that is not to be used came out of it, it is taken apart again.
 *
 * Pairs wait in a heap; one whose symbols have changed is found to be stale when it comes
 * up: the lengths do not add up to the pair's any more.
 */
#include <string.h>

#include "worker/text/sentencepiece/model.h"

struct sp_symbol {
    int32_t id;    /* zt_sp_symbol() */
    int32_t at, n; /* bytes of the text; n == 0: merged into the one before */
    int32_t previous, next;
    bool frozen;
};

struct pair {
    float score;
    int32_t left, right, n, into;
};

struct merging {
    const struct zt_sentencepiece *m;
    const char *text;
    struct sp_symbol *s;
    struct pair *heap;
    size_t num;
    int32_t
        *left_bytes; /* (pieces): where unused ones were joined; NULL: there are none */
};

static bool comes_before(const struct pair *a, const struct pair *b)
{
    return a->score != b->score ? a->score > b->score : a->left < b->left;
}

static void push(struct merging *g, struct pair p)
{
    size_t i = g->num++;

    for (; i > 0 && comes_before(&p, &g->heap[(i - 1) / 2]); i = (i - 1) / 2)
        g->heap[i] = g->heap[(i - 1) / 2];
    g->heap[i] = p;
}

static struct pair pop(struct merging *g)
{
    struct pair first = g->heap[0], p = g->heap[--g->num];
    size_t i = 0;

    for (size_t k = 1; k < g->num; k = 2 * i + 1) {
        if (k + 1 < g->num && comes_before(&g->heap[k + 1], &g->heap[k]))
            k++;
        if (!comes_before(&g->heap[k], &p))
            break;
        g->heap[i] = g->heap[k];
        i = k;
    }
    if (g->num)
        g->heap[i] = p;
    return first;
}

static void offer(struct merging *g, int32_t left, int32_t right)
{
    const struct sp_symbol *s = g->s;
    int32_t id;

    if (left < 0 || right < 0 || s[left].frozen || s[right].frozen)
        return;
    id = zt_sp_join(&g->m->pairs, s[left].id, s[right].id);
    if (id < 0)
        return;
    push(g, (struct pair){.score = g->m->pieces[id].score,
                          .left = left,
                          .right = right,
                          .n = s[left].n + s[right].n,
                          .into = id});
    if (g->left_bytes && g->m->pieces[id].type == ZT_SP_UNUSED)
        g->left_bytes[id] = s[left].n;
}

static void merge_all(struct merging *g)
{
    struct sp_symbol *s = g->s;

    while (g->num > 0) {
        struct pair p = pop(g);
        struct sp_symbol *left = &s[p.left], *right = &s[p.right];

        if (!left->n || !right->n || left->n + right->n != p.n)
            continue;
        left->n = p.n;
        left->id = p.into;
        left->next = right->next;
        if (right->next >= 0)
            s[right->next].previous = p.left;
        right->n = 0;
        offer(g, left->previous, p.left);
        offer(g, p.left, left->next);
    }
}

/* Where there is a split, each half is shorter, so the depth is a piece's length at most. */
static zt_err put_symbol(const struct merging *g, const char *s, int32_t n, int32_t id,
                         struct zt_sp_output *o)
{
    int32_t left;
    zt_err rc;

    if (!g->left_bytes || g->m->pieces[id].type != ZT_SP_UNUSED)
        return zt_sp_put_piece(o, s, (size_t)n, id);
    left = g->left_bytes[id];
    if (left <= 0 || left >= n)
        return zt_sp_put_piece(o, s, (size_t)n, g->m->unknown);
    rc = put_symbol(g, s, left, zt_sp_id(g->m, s, (size_t)left), o);
    if (rc)
        return rc;
    s += left;
    n -= left;
    return put_symbol(g, s, n, zt_sp_id(g->m, s, (size_t)n), o);
}

static int32_t cut_symbols(const struct zt_sentencepiece *m, const char *text, size_t n,
                           struct sp_symbol *s)
{
    int32_t num = 0;

    for (size_t at = 0, len = 0; at < n; at += len, num++) {
        bool user =
            m->any_user && zt_trie_longest(&m->user_trie, text + at, n - at, &len) >= 0;

        if (!user)
            len = zt_sp_char_bytes(text + at, n - at);
        s[num] = (struct sp_symbol){.id = user ? -1 : zt_sp_symbol(m, text + at, len),
                                    .at = (int32_t)at,
                                    .n = (int32_t)len,
                                    .previous = num - 1,
                                    .next = at + len < n ? num + 1 : -1,
                                    .frozen = user};
    }
    return num;
}

static zt_err reserve(struct zt_buf *b, size_t bytes, void *out)
{
    uint8_t *room = NULL;
    zt_err rc;

    zt_buf_drop(b, zt_buf_used(b));
    rc = zt_buf_reserve(b, bytes, &room);
    memcpy(out, &room, sizeof(room));
    return rc;
}

zt_err zt_sp_bpe(struct zt_sp_words *d, struct zt_sp_work *w, const char *text, size_t n)
{
    const struct zt_sentencepiece *m = d->out.m;
    struct merging g = {.m = m, .text = text};
    int32_t num;
    zt_err rc = reserve(&w->nodes, (n + 1) * sizeof(*g.s), &g.s);

    if (rc)
        return rc;
    num = cut_symbols(m, g.text, n, g.s);
    /* each merge takes a symbol and adds at most two pairs */
    rc = reserve(&w->heap, (3 * (size_t)num + 1) * sizeof(*g.heap), &g.heap);
    if (!rc && m->any_unused) {
        rc = reserve(&w->cut, (size_t)m->num * sizeof(*g.left_bytes), &g.left_bytes);
        if (!rc)
            memset(g.left_bytes, 0, (size_t)m->num * sizeof(*g.left_bytes));
    }
    for (int32_t i = 1; !rc && i < num; i++)
        offer(&g, i - 1, i);
    if (!rc)
        merge_all(&g);
    for (int32_t i = 0; !rc && num && i >= 0; i = g.s[i].next) {
        const struct sp_symbol *s = &g.s[i];
        int32_t id = s->id >= 0 && s->id < m->num
                         ? m->pairs.ids[s->id]
                         : zt_sp_id(m, text + s->at, (size_t)s->n);

        rc = put_symbol(&g, text + s->at, s->n, id, &d->out);
    }
    return rc;
}
