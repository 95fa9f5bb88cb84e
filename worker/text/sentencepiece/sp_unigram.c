/*
 * sp_unigram.c -- of all ways to cut a text into pieces the one whose scores add up to
 * most. Sums are in single precision, as the library's are, so that ties fall the same way.
 */
#include "worker/text/sentencepiece/model.h"

#define UNKNOWN_PENALTY 10.0f
#define LOWEST_SUM      -1e5f

/* The best way to a place in the text. */
struct sp_node {
    float score;
    int32_t from; /* where its last piece begins; -1: no way yet */
    int32_t id;
};

static void offer(struct sp_node *nodes, size_t from, size_t to, int32_t id, float sum)
{
    if (nodes[to].from < 0 || sum > nodes[to].score)
        nodes[to] = (struct sp_node){.score = sum, .from = (int32_t)from, .id = id};
}

/* What all ways that lead past `at` share is taken off where sums have become so large that
 * a score's last bits would be lost in them. */
static void rebase(struct sp_node *nodes, size_t at, size_t end)
{
    float base = nodes[at].score;

    for (size_t i = at; i <= end; i++)
        if (nodes[i].from >= 0)
            nodes[i].score -= base;
}

static void find_ways(const struct zt_sentencepiece *m, const char *text, size_t n,
                      struct sp_node *nodes)
{
    float unknown = m->min_score - UNKNOWN_PENALTY;
    size_t reach = 0; /* the last place that a way leads to */

    for (size_t at = 0, len; at < n; at += len) {
        uint32_t node = 0;
        bool single = false;
        float here;

        if (nodes[at].score < LOWEST_SUM)
            rebase(nodes, at, reach);
        here = nodes[at].score;
        len = zt_sp_char_bytes(text + at, n - at);
        for (size_t i = at; i < n; i++) {
            int32_t id;

            node = zt_trie_step(&m->trie, node, (uint8_t)text[i]);
            if (!node)
                break;
            id = m->trie.nodes[node].value;
            if (id < 0)
                continue;
            reach = i + 1 > reach ? i + 1 : reach;
            offer(nodes, at, i + 1, id, here + m->scores[id]);
            single |= i + 1 - at == len;
        }
        if (!single)
            offer(nodes, at, at + len, m->unknown, here + unknown);
        reach = at + len > reach ? at + len : reach;
    }
}

zt_err zt_sp_unigram(const struct zt_sentencepiece *m, struct zt_sp_work *w,
                     struct zt_sp_output *o)
{
    const char *text = (const char *)zt_buf_head(&w->text);
    size_t n = zt_buf_used(&w->text);
    uint8_t *room = NULL;
    struct sp_node *nodes;
    int32_t at = (int32_t)n, next = -1;
    zt_err rc;

    zt_buf_drop(&w->nodes, zt_buf_used(&w->nodes));
    rc = zt_buf_reserve(&w->nodes, (n + 1) * sizeof(*nodes), &room);
    if (rc)
        return rc;
    nodes = (struct sp_node *)(void *)room;
    nodes[0] = (struct sp_node){.from = -1};
    for (size_t i = 1; i <= n; i++)
        nodes[i].from = -1;
    find_ways(m, text, n, nodes);
    while (at > 0) { /* from the end; then each place knows the next */
        int32_t from = nodes[at].from;

        nodes[at].from = next;
        next = at;
        at = from;
    }
    for (at = 0; !rc && next >= 0; next = nodes[at].from) {
        rc = zt_sp_put_piece(o, text + at, (size_t)(next - at), nodes[next].id);
        at = next;
    }
    return rc;
}
