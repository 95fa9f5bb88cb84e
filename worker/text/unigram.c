/*
 * unigram.c -- Unigram: of all ways to cut a text into pieces, the one whose scores add up
 * to most (Viterbi). A character that no piece begins with is unknown, at ten below the
 * lowest score; unknown ones side by side are one.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/text/unicode/chars.h"
#include "worker/text/pipeline.h"

#define UNKNOWN_PENALTY 10.0

struct unigram {
    struct zt_trie trie; /* pieces to their place in `scores` */
    double *scores;
    size_t num;
    double unknown_score;
};

/* The best way to a place in the text. */
struct node {
    double score;
    int64_t from; /* where its last piece begins; -1: no way yet */
    int32_t id;
};

static zt_err read_piece(const struct zt_setting *s, struct unigram *u, size_t i,
                         struct zt_trie_entry *entry, struct zt_fault *fault)
{
    const json_t *text = json_array_get(s->value, 0),
                 *score = json_array_get(s->value, 1);

    if (json_array_size(s->value) != 2 || !json_is_string(text) || !json_is_number(score))
        return zt_setting_refuse(s, fault, "is no list of a text and a number");
    u->scores[i] = json_number_value(score);
    if (u->scores[i] - UNKNOWN_PENALTY < u->unknown_score)
        u->unknown_score = u->scores[i] - UNKNOWN_PENALTY;
    *entry = (struct zt_trie_entry){.text = json_string_value(text),
                                    .n = json_string_length(text),
                                    .value = (int32_t)i};
    return ZT_OK;
}

/* A text that stands twice has the id and the score of the last one. */
static zt_err add_pieces(struct zt_text_model *m, struct unigram *u,
                         struct zt_trie_entry *entries, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < u->num; i++)
        rc = zt_vocab_add(&m->vocab, entries[i].text, entries[i].n, (int64_t)i, true);
    for (size_t i = 0; !rc && i < u->num; i++)
        entries[i].value = zt_vocab_id(&m->vocab, entries[i].text, entries[i].n);
    if (!rc)
        rc = zt_trie_build(&u->trie, entries, u->num);
    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}

static zt_err read_vocab(const struct zt_setting *s, struct zt_text_model *m,
                         struct zt_fault *fault)
{
    struct unigram *u = m->own;
    struct zt_trie_entry *entries;
    struct zt_setting list, one;
    zt_err rc = zt_setting_list(s, "vocab", true, &list, &u->num, fault);

    if (rc)
        return rc;
    if (u->num == 0 || u->num > ZT_VOCAB_MAX_ID)
        return zt_setting_refuse(&list, fault, "has %zu pieces", u->num);
    entries = calloc(u->num, sizeof(*entries));
    u->scores = calloc(u->num, sizeof(*u->scores));
    u->unknown_score = INFINITY;
    if (!entries || !u->scores) {
        free(entries);
        return zt_text_out_of_memory(fault, ZT_E_NOMEM);
    }
    for (size_t i = 0; !rc && i < u->num; i++) {
        zt_setting_at(&list, i, &one);
        rc = read_piece(&one, u, i, &entries[i], fault);
    }
    if (!rc)
        rc = add_pieces(m, u, entries, fault);
    free(entries);
    return rc;
}

static zt_err read_model(const struct zt_setting *s, struct zt_text_model *m,
                         struct zt_fault *fault)
{
    struct unigram *u = calloc(1, sizeof(*u));
    struct zt_setting at;
    int64_t unknown;
    zt_err rc;

    m->own = u;
    if (!u)
        return zt_text_out_of_memory(fault, ZT_E_NOMEM);
    rc = read_vocab(s, m, fault);
    if (!rc)
        rc = zt_setting_int(s, "unk_id", -1, INT32_MAX, &unknown, fault);
    if (!rc)
        rc = zt_setting_bool(s, "byte_fallback", false, &m->byte_fallback, fault);
    if (rc)
        return rc;
    zt_setting_get(s, "unk_id", &at);
    if (unknown >= (int64_t)u->num)
        return zt_setting_refuse(&at, fault, "is no id of the vocabulary");
    m->unknown = (int32_t)unknown;
    m->own_bytes = zt_trie_bytes(&u->trie) + u->num * sizeof(*u->scores);
    zt_model_find_bytes(m);
    return ZT_OK;
}

static void release_model(struct zt_text_model *m)
{
    struct unigram *u = m->own;

    if (u) {
        zt_trie_release(&u->trie);
        free(u->scores);
    }
    free(u);
}

/* A way to `to` by way of `from`; of equal ones the first found stays. */
static void offer(struct node *nodes, size_t from, size_t to, int32_t id, double score)
{
    double sum = score + nodes[from].score;

    if (nodes[to].from < 0 || sum > nodes[to].score)
        nodes[to] = (struct node){.score = sum, .from = (int64_t)from, .id = id};
}

/* False: a character needs the unknown token, and there is none. */
static bool find_ways(const struct zt_text_model *m, const char *text, size_t n,
                      struct node *nodes)
{
    const struct unigram *u = m->own;

    for (size_t at = 0; at < n;) {
        size_t next = at;
        uint32_t node = 0;
        bool single = false;

        zt_utf8_next(text, &next);
        for (size_t i = at; i < n; i++) {
            int32_t id;

            node = zt_trie_step(&u->trie, node, (uint8_t)text[i]);
            if (!node)
                break;
            id = u->trie.nodes[node].value;
            if (id < 0)
                continue;
            offer(nodes, at, i + 1, id, u->scores[id]);
            single |= i + 1 == next;
        }
        if (!single && m->unknown < 0)
            return false;
        if (!single)
            offer(nodes, at, next, m->unknown, u->unknown_score);
        at = next;
    }
    return true;
}

/* A piece of the best way; what is unknown may have tokens by bytes, or as a whole. */
static zt_err put_piece(const struct zt_text_model *m, struct zt_model_work *w,
                        const char *s, size_t n, struct zt_fault *fault)
{
    int32_t id = zt_vocab_id(&m->vocab, s, n);
    zt_err rc = ZT_OK;

    if (id < 0 && m->byte_fallback && zt_model_put_bytes(m, s, n, &w->ids, &rc))
        return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
    if (id < 0)
        id = m->unknown;
    if (id < 0)
        return zt_model_refuse_unknown(m, s, n, fault);
    rc = zt_model_put(&w->ids, id);
    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}

/* The way's places, from the end, into `cuts`; unknown ones side by side are one piece. */
static zt_err walk_back(const struct zt_text_model *m, const struct node *nodes, size_t n,
                        struct zt_buf *cuts)
{
    bool unknown = false;
    zt_err rc = ZT_OK;

    zt_buf_empty(cuts);
    for (size_t at = n; !rc && at > 0; at = (size_t)nodes[at].from) {
        bool is_unknown = m->unknown >= 0 && nodes[at].id == m->unknown;

        if (!unknown || !is_unknown)
            rc = zt_buf_put(cuts, &at, sizeof(at));
        unknown = is_unknown;
    }
    return rc;
}

static zt_err encode(const struct zt_text_model *m, struct zt_model_work *w,
                     const char *text, size_t n, struct zt_fault *fault)
{
    uint8_t *room;
    struct node *nodes;
    const size_t *cuts;
    size_t num, from = 0;
    zt_err rc;

    zt_buf_empty(&w->a);
    rc = zt_buf_reserve(&w->a, (n + 1) * sizeof(*nodes), &room);
    if (rc)
        return zt_text_out_of_memory(fault, rc);
    nodes = (struct node *)(void *)room;
    for (size_t i = 0; i <= n; i++)
        nodes[i] = (struct node){.from = -1};
    if (!find_ways(m, text, n, nodes))
        return zt_model_refuse_unknown(m, text, n, fault);
    rc = walk_back(m, nodes, n, &w->b);
    if (rc)
        return zt_text_out_of_memory(fault, rc);
    cuts = (const size_t *)(const void *)w->b.data;
    num = zt_buf_used(&w->b) / sizeof(*cuts);
    while (!rc && num > 0) {
        size_t to = cuts[--num];

        rc = put_piece(m, w, text + from, to - from, fault);
        from = to;
    }
    return rc;
}

const struct zt_model_kind zt_unigram = {
    .type = "Unigram",
    .keys = "vocab unk_id byte_fallback",
    .read = read_model,
    .encode = encode,
    .release = release_model,
    .cached = true,
};
