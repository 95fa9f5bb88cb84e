/*
 * vocab.h -- tokens and ids, both ways; and the tokens that begin a text.
 *
 * Ownership: both own copies of the texts they are given.
 * Threads:   reading is safe from any once nothing is added any more.
 */
#ifndef WORKER_TEXT_VOCAB_H
#define WORKER_TEXT_VOCAB_H

#include "common/buf.h"

#define ZT_VOCAB_MAX_ID (1 << 24)

struct zt_vocab {
    struct zt_buf text; /* of all tokens, one behind the other */
    struct zt_vocab_token {
        uint32_t at, n; /* in `text`; n == ZT_VOCAB_NONE: no token has this id */
    } * tokens;         /* (num_ids) */
    int32_t num_ids;    /* the largest id + 1 */
    int32_t room;
    int32_t *slots; /* (num_slots), by hash; -1: free */
    uint32_t num_slots, used;
};

#define ZT_VOCAB_NONE UINT32_MAX

void zt_vocab_init(struct zt_vocab *v);
void zt_vocab_release(struct zt_vocab *v);

/* `again`: a token that is there already may have another id; the last one is its own.
 * ZT_E_ARG: the id, or without `again` the token, is there already; ZT_E_LIMIT: an id past
 * ZT_VOCAB_MAX_ID, or 4 GiB of text; ZT_E_NOMEM. */
zt_err zt_vocab_add(struct zt_vocab *v, const char *token, size_t n, int64_t id,
                    bool again) ZT_MUST_CHECK;
int32_t zt_vocab_id(const struct zt_vocab *v, const char *token, size_t n); /* -1 */
/* NULL: none. Not terminated. */
const char *zt_vocab_token(const struct zt_vocab *v, int32_t id, size_t *n);
size_t zt_vocab_bytes(const struct zt_vocab *v);

/*
 * A trie over texts with a number each: all that begin a text are found in one walk over
 * its bytes. Made once, from all of them.
 */
struct zt_trie_entry {
    const char *text;
    size_t n;
    int32_t value; /* >= 0 */
};

struct zt_trie {
    struct zt_trie_node {
        uint32_t edges; /* its first edge */
        uint16_t num_edges;
        uint16_t table; /* of a node with many edges, + 1; 0: none */
        int32_t value;  /* -1: none ends here */
    } * nodes;          /* nodes[0] is the root */
    uint8_t *labels;    /* of edges, rising within a node; edge k leads to node k + 1 */
    uint16_t (*tables)[256]; /* by byte: which edge of the node, + 1; 0: none */
    int32_t first[256];      /* the root's edges by byte; -1: none */
    uint32_t num_nodes, num_edges, num_tables;
};

/* `entries` are sorted in place; of equal texts the first one given stays. */
zt_err zt_trie_build(struct zt_trie *t, struct zt_trie_entry *entries,
                     size_t num) ZT_MUST_CHECK;
void zt_trie_release(struct zt_trie *t);
/* The node behind `node` (0: the root) over a byte; 0: none. */
static inline uint32_t zt_trie_step(const struct zt_trie *t, uint32_t node, uint8_t byte)
{
    uint32_t lo, end, k;

    if (node == 0)
        return t->first[byte] > 0 ? (uint32_t)t->first[byte] : 0;
    lo = t->nodes[node].edges;
    if (t->nodes[node].table) {
        k = t->tables[t->nodes[node].table - 1][byte];
        return k ? lo + k : 0;
    }
    end = lo + t->nodes[node].num_edges;
    while (lo < end && t->labels[lo] < byte)
        lo++;
    return lo < end && t->labels[lo] == byte ? lo + 1 : 0;
}
/* The longest entry that begins s: its value and length, or -1. */
int32_t zt_trie_longest(const struct zt_trie *t, const char *s, size_t n, size_t *len);
size_t zt_trie_bytes(const struct zt_trie *t);

#endif
