#include "worker/text/vocab.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

void zt_vocab_init(struct zt_vocab *v)
{
    *v = (struct zt_vocab){0};
    zt_buf_init(&v->text, UINT32_MAX - 1);
}

void zt_vocab_release(struct zt_vocab *v)
{
    zt_buf_release(&v->text);
    free(v->tokens);
    free(v->slots);
    *v = (struct zt_vocab){0};
}

const char *zt_vocab_token(const struct zt_vocab *v, int32_t id, size_t *n)
{
    if (id < 0 || id >= v->num_ids || v->tokens[id].n == ZT_VOCAB_NONE)
        return NULL;
    *n = v->tokens[id].n;
    return v->text.data ? (const char *)v->text.data + v->tokens[id].at : "";
}

/* The slot that holds the token, or the free one where it belongs. */
static uint32_t find_slot(const struct zt_vocab *v, const char *token, size_t n)
{
    uint32_t mask = v->num_slots - 1, s = (uint32_t)XXH3_64bits(token, n) & mask;

    while (v->slots[s] >= 0) {
        size_t len = 0;
        const char *there = zt_vocab_token(v, v->slots[s], &len);

        if (there && len == n && memcmp(there, token, n) == 0)
            break;
        s = (s + 1) & mask;
    }
    return s;
}

int32_t zt_vocab_id(const struct zt_vocab *v, const char *token, size_t n)
{
    return v->num_slots ? v->slots[find_slot(v, token, n)] : -1;
}

/* At most half of the slots are used. */
static zt_err grow_slots(struct zt_vocab *v)
{
    uint32_t num = v->num_slots ? v->num_slots * 2 : 64;
    int32_t *old = v->slots;

    if (v->used * 2 < v->num_slots)
        return ZT_OK;
    v->slots = malloc(num * sizeof(*v->slots));
    if (!v->slots) {
        v->slots = old;
        return ZT_E_NOMEM;
    }
    free(old);
    memset(v->slots, 0xff, num * sizeof(*v->slots));
    v->num_slots = num;
    for (int32_t id = 0; id < v->num_ids; id++) {
        size_t n = 0;
        const char *token = zt_vocab_token(v, id, &n);

        if (token)
            v->slots[find_slot(v, token, n)] = id;
    }
    return ZT_OK;
}

static zt_err grow_ids(struct zt_vocab *v, int32_t id)
{
    int32_t room = v->room ? v->room : 64;
    struct zt_vocab_token *more;

    while (room <= id)
        room *= 2;
    if (room > v->room) {
        more = realloc(v->tokens, (size_t)room * sizeof(*more));
        if (!more)
            return ZT_E_NOMEM;
        v->tokens = more;
        v->room = room;
    }
    for (; v->num_ids <= id; v->num_ids++)
        v->tokens[v->num_ids] = (struct zt_vocab_token){.n = ZT_VOCAB_NONE};
    return ZT_OK;
}

zt_err zt_vocab_add(struct zt_vocab *v, const char *token, size_t n, int64_t id,
                    bool again)
{
    size_t there;
    uint32_t at = (uint32_t)v->text.len;
    zt_err rc;

    if (id < 0 || id >= ZT_VOCAB_MAX_ID)
        return ZT_E_LIMIT;
    if (zt_vocab_token(v, (int32_t)id, &there) ||
        (!again && zt_vocab_id(v, token, n) >= 0))
        return ZT_E_ARG;
    rc = grow_ids(v, (int32_t)id);
    if (!rc)
        rc = grow_slots(v);
    if (!rc)
        rc = zt_buf_put(&v->text, token, n);
    if (rc)
        return rc;
    v->slots[find_slot(v, token, n)] = (int32_t)id; /* the newer one, where it is again */
    v->tokens[id] = (struct zt_vocab_token){.at = at, .n = (uint32_t)n};
    v->used++;
    return ZT_OK;
}

size_t zt_vocab_bytes(const struct zt_vocab *v)
{
    return v->text.cap + (size_t)v->room * sizeof(*v->tokens) +
           (size_t)v->num_slots * sizeof(*v->slots);
}

/* ---- trie ---- */

struct sortable {
    struct zt_trie_entry e;
    size_t order;
};

static int by_text(const void *a, const void *b)
{
    const struct sortable *x = a, *y = b;
    size_t n = x->e.n < y->e.n ? x->e.n : y->e.n;
    int d = n ? memcmp(x->e.text, y->e.text, n) : 0;

    if (d)
        return d;
    if (x->e.n != y->e.n)
        return x->e.n < y->e.n ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

static zt_err sort_entries(struct zt_trie_entry *entries, size_t num)
{
    struct sortable *s = malloc((num ? num : 1) * sizeof(*s));

    if (!s)
        return ZT_E_NOMEM;
    for (size_t i = 0; i < num; i++)
        s[i] = (struct sortable){.e = entries[i], .order = i};
    qsort(s, num, sizeof(*s), by_text);
    for (size_t i = 0; i < num; i++)
        entries[i] = s[i].e;
    free(s);
    return ZT_OK;
}

/* Entries [from, to) share the first `depth` bytes and hang below a node. */
struct range {
    uint32_t from, to, depth;
};

/* Breadth first, so that a node's edges lie together; ranges[i] belongs to nodes[i]. */
static void fill_node(struct zt_trie *t, const struct zt_trie_entry *e,
                      struct range *ranges, uint32_t node)
{
    struct range r = ranges[node];

    t->nodes[node] = (struct zt_trie_node){.edges = t->num_edges, .value = -1};
    while (r.from < r.to &&
           e[r.from].n == r.depth) { /* sorted: those that end are first */
        if (t->nodes[node].value < 0)
            t->nodes[node].value = e[r.from].value;
        r.from++;
    }
    for (uint32_t i = r.from, end; i < r.to; i = end) {
        uint8_t label = (uint8_t)e[i].text[r.depth];

        for (end = i + 1; end < r.to && (uint8_t)e[end].text[r.depth] == label;)
            end++;
        t->labels[t->num_edges] = label;
        if (node == 0)
            t->first[label] = (int32_t)t->num_nodes;
        ranges[t->num_nodes++] = (struct range){i, end, r.depth + 1};
        t->num_edges++;
        t->nodes[node].num_edges++;
    }
}

#define FEW_EDGES 6 /* which are as fast to look through as to look up */

/* Tables for the nodes with most edges; those past the 65535th are looked through. */
static zt_err build_tables(struct zt_trie *t)
{
    uint32_t num = 0;

    for (uint32_t i = 1; i < t->num_nodes && num < UINT16_MAX; i++)
        num += t->nodes[i].num_edges > FEW_EDGES;
    t->tables = calloc(num ? num : 1, sizeof(*t->tables));
    if (!t->tables)
        return ZT_E_NOMEM;
    for (uint32_t i = 1; i < t->num_nodes && t->num_tables < num; i++) {
        struct zt_trie_node *node = &t->nodes[i];

        if (node->num_edges <= FEW_EDGES)
            continue;
        for (uint16_t k = 0; k < node->num_edges; k++)
            t->tables[t->num_tables][t->labels[node->edges + k]] = (uint16_t)(k + 1);
        node->table = (uint16_t)++t->num_tables;
    }
    return ZT_OK;
}

zt_err zt_trie_build(struct zt_trie *t, struct zt_trie_entry *entries, size_t num)
{
    size_t most = 1;
    struct range *ranges;

    *t = (struct zt_trie){0};
    memset(t->first, 0xff, sizeof(t->first));
    for (size_t i = 0; i < num; i++)
        most += entries[i].n;
    if (most > UINT32_MAX / 2 || num > UINT32_MAX / 2)
        return ZT_E_LIMIT;
    ranges = malloc(most * sizeof(*ranges));
    t->nodes = malloc(most * sizeof(*t->nodes));
    t->labels = malloc(most * sizeof(*t->labels));
    if (!ranges || !t->nodes || !t->labels || sort_entries(entries, num) != ZT_OK) {
        free(ranges);
        zt_trie_release(t);
        return ZT_E_NOMEM;
    }
    ranges[0] = (struct range){0, (uint32_t)num, 0};
    t->num_nodes = 1;
    for (uint32_t node = 0; node < t->num_nodes; node++)
        fill_node(t, entries, ranges, node);
    free(ranges);
    if (build_tables(t) != ZT_OK) {
        zt_trie_release(t);
        return ZT_E_NOMEM;
    }
    return ZT_OK;
}

void zt_trie_release(struct zt_trie *t)
{
    free(t->nodes);
    free(t->labels);
    free(t->tables);
    *t = (struct zt_trie){0};
}

int32_t zt_trie_longest(const struct zt_trie *t, const char *s, size_t n, size_t *len)
{
    uint32_t node = 0;
    int32_t best = -1;

    for (size_t i = 0; i < n; i++) {
        node = zt_trie_step(t, node, (uint8_t)s[i]);
        if (!node)
            break;
        if (t->nodes[node].value >= 0) {
            best = t->nodes[node].value;
            *len = i + 1;
        }
    }
    return best;
}

size_t zt_trie_bytes(const struct zt_trie *t)
{
    return t->num_nodes * (sizeof(*t->nodes) + sizeof(*t->labels)) +
           t->num_tables * sizeof(*t->tables);
}
