/*
 * sp_unigram.c -- of all ways to cut a word into pieces the one whose scores add up to
 * most. Sums are in single precision and run on from word to word, as the library's do, so
 * that ties fall the same way.
 */
#include <math.h>

#include "worker/text/sentencepiece/model.h"

#define UNKNOWN_PENALTY 10.0f

/* The best way to a place in the text. */
struct sp_node {
    float score;   /* -INFINITY: no way yet */
    float rival;   /* of the next best; -INFINITY: none */
    int32_t from;  /* where its last piece begins */
    uint32_t node; /* of the trie, where that piece ends; 0: it is unknown */
};

static void offer(struct sp_node *to, size_t from, uint32_t node, float sum)
{
    bool wins = sum > to->score;
    float loser = wins ? to->score : sum;

    to->rival = loser > to->rival ? loser : to->rival;
    to->score = wins ? sum : to->score;
    to->from = wins ? (int32_t)from : to->from;
    to->node = wins ? node : to->node;
}

/* What all ways that lead past `at` share is taken off where sums have become so large that
 * a score's last bits would be lost in them. */
static void rebase(struct sp_node *nodes, size_t at, size_t end)
{
    float base = nodes[at].score;

    for (size_t i = at; i <= end; i++)
        nodes[i].score -= base; /* -INFINITY stays that */
}

/* Pieces that begin at `at`. Nodes of the trie where none ends have a score that never wins. */
static void find_ways(const struct zt_sentencepiece *m, const char *text, size_t n,
                      struct sp_node *nodes)
{
    float unknown = m->min_score - UNKNOWN_PENALTY;

    for (size_t at = 0, len; at < n; at += len) {
        uint32_t node = 0;
        size_t i = at;
        float here;

        if (nodes[at].score < ZT_SP_LOWEST_SUM)
            rebase(nodes, at, n);
        here = nodes[at].score;
        len = zt_sp_char_bytes(text + at, n - at);
        do { /* within its first character */
            node = zt_trie_step(&m->trie, node, (uint8_t)text[i++]);
            if (node)
                offer(&nodes[i], at, node, here + m->node_scores[node]);
        } while (node && i < at + len);
        if (!node || m->trie.nodes[node].value < 0)
            offer(&nodes[at + len], at, 0, here + unknown);
        while (node && i < n) {
            node = zt_trie_step(&m->trie, node, (uint8_t)text[i++]);
            if (node)
                offer(&nodes[i], at, node, here + m->node_scores[node]);
        }
    }
}

/* How far from `sum` sums went; INFINITY where they began anew on the way. */
static float reach_of(const struct sp_node *nodes, size_t n, float sum)
{
    float lowest = sum, highest = sum;

    for (size_t i = 0; i <= n; i++) {
        float low = nodes[i].rival > -INFINITY ? nodes[i].rival : nodes[i].score;

        if (nodes[i].score > -INFINITY && low < lowest)
            lowest = low;
        if (nodes[i].score > highest)
            highest = nodes[i].score;
    }
    return lowest < ZT_SP_LOWEST_SUM / 2 ? INFINITY : fmaxf(sum - lowest, highest - sum);
}

zt_err zt_sp_unigram(struct zt_sp_words *d, struct zt_sp_work *w, const char *text,
                     size_t n)
{
    const struct zt_sentencepiece *m = d->out.m;
    uint8_t *room = NULL;
    struct sp_node *nodes;
    int32_t at = (int32_t)n, next = -1;
    zt_err rc;

    zt_buf_drop(&w->nodes, zt_buf_used(&w->nodes));
    rc = zt_buf_reserve(&w->nodes, (n + 1) * sizeof(*nodes), &room);
    if (rc)
        return rc;
    nodes = (struct sp_node *)(void *)room;
    for (size_t i = 0; i <= n; i++)
        nodes[i] = (struct sp_node){.score = -INFINITY, .rival = -INFINITY, .from = -1};
    nodes[0].score = d->sum;
    find_ways(m, text, n, nodes);
    d->reach = n <= ZT_WORD_BYTES ? reach_of(nodes, n, d->sum) : INFINITY;
    d->lead = INFINITY;
    d->sum = nodes[n].score;
    while (at > 0) { /* from the end; then each place knows the next */
        int32_t from = nodes[at].from;

        d->lead = fminf(d->lead, nodes[at].score - nodes[at].rival);
        nodes[at].from = next;
        next = at;
        at = from;
    }
    for (at = 0; !rc && next >= 0; next = nodes[at].from) {
        uint32_t node = nodes[next].node;

        rc = zt_sp_put_piece(&d->out, text + at, (size_t)(next - at),
                             node ? m->trie.nodes[node].value : m->unknown);
        at = next;
    }
    return rc;
}
