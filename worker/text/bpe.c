/*
 * bpe.c -- byte-pair encoding: a word is cut into characters, and of all neighbours that
 * the merges know, those of the lowest rank, the first of them, become one token, until
 * none are left.
 *
 * Pairs wait in a heap by (rank, place), so a word of n characters takes n log n. An entry
 * whose pair is gone is found to be stale when it comes up.
 */
#include <stdlib.h>
#include <string.h>

#include "worker/text/unicode/chars.h"
#include "worker/text/pipeline.h"

struct merge {
    uint64_t pair; /* left id << 32 | right id; FREE */
    uint32_t rank;
    int32_t into;
};

#define FREE UINT64_MAX

struct bpe {
    struct merge *merges; /* (mask + 1), by hash of the pair */
    uint32_t mask;
    bool ignore_merges;
};

struct symbol {
    int32_t id; /* -1: merged into the one before */
    int32_t previous, next;
};

struct candidate {
    uint32_t rank;
    int32_t at, into;
};

/* ---- reading ---- */

static struct merge *find_merge(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint32_t at = (uint32_t)((pair * 0x9e3779b97f4a7c15u) >> 32) & b->mask;

    while (b->merges[at].pair != FREE && b->merges[at].pair != pair)
        at = (at + 1) & b->mask;
    return &b->merges[at];
}

/* "a b", or ["a", "b"]. */
static bool cut_merge(const json_t *v, const char *part[2], size_t n[2])
{
    if (json_is_string(v)) {
        const char *s = json_string_value(v), *end = s + json_string_length(v);
        const char *blank = memchr(s, ' ', (size_t)(end - s));

        if (!blank || memchr(blank + 1, ' ', (size_t)(end - blank - 1)))
            return false;
        part[0] = s;
        n[0] = (size_t)(blank - s);
        part[1] = blank + 1;
        n[1] = (size_t)(end - part[1]);
        return true;
    }
    for (size_t i = 0; i < 2; i++) {
        const json_t *half = json_array_get(v, i);

        if (json_array_size(v) != 2 || !json_is_string(half))
            return false;
        part[i] = json_string_value(half);
        n[i] = json_string_length(half);
    }
    return true;
}

static zt_err add_merge(struct zt_text_model *m, const struct zt_setting *s, size_t rank,
                        struct zt_buf *joined, struct zt_fault *fault)
{
    const char *part[2];
    size_t n[2];
    int32_t left, right, into;
    struct merge *slot;
    zt_err rc;

    if (!cut_merge(s->value, part, n))
        return zt_setting_refuse(s, fault, "is neither \"LEFT RIGHT\" nor a list of two");
    left = zt_vocab_id(&m->vocab, part[0], n[0]);
    right = zt_vocab_id(&m->vocab, part[1], n[1]);
    if (n[1] < m->prefix_bytes)
        return zt_setting_refuse(s, fault, "its right half has no prefix %s", m->prefix);
    zt_buf_empty(joined);
    rc = zt_buf_put(joined, part[0], n[0]);
    if (!rc)
        rc = zt_buf_put(joined, part[1] + m->prefix_bytes, n[1] - m->prefix_bytes);
    if (rc)
        return zt_text_out_of_memory(fault, rc);
    into = zt_vocab_id(&m->vocab, zt_text_of(joined), zt_buf_used(joined));
    if (left < 0 || right < 0 || into < 0)
        return zt_setting_refuse(s, fault,
                                 "\"%.*s\" and \"%.*s\": one of them, or both together, "
                                 "are not in the vocabulary",
                                 (int)n[0], part[0], (int)n[1], part[1]);
    slot = find_merge(m->own, left, right);
    *slot = (struct merge){.pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right,
                           .rank = (uint32_t)rank,
                           .into = into};
    return ZT_OK;
}

static zt_err read_merges(const struct zt_setting *s, struct zt_text_model *m,
                          struct zt_fault *fault)
{
    struct bpe *b = m->own;
    struct zt_setting list, one;
    struct zt_buf joined;
    size_t num, slots = 64;
    zt_err rc = zt_setting_list(s, "merges", true, &list, &num, fault);

    if (rc)
        return rc;
    if (num > (1u << 28))
        return zt_setting_refuse(&list, fault, "has too many entries");
    while (slots < 2 * num)
        slots *= 2;
    b->merges = malloc(slots * sizeof(*b->merges));
    if (!b->merges)
        return zt_text_out_of_memory(fault, ZT_E_NOMEM);
    for (size_t i = 0; i < slots; i++)
        b->merges[i].pair = FREE;
    b->mask = (uint32_t)slots - 1;
    m->own_bytes = slots * sizeof(*b->merges);
    zt_buf_init(&joined, SIZE_MAX / 2);
    for (size_t i = 0; !rc && i < num; i++) {
        const char *text;

        zt_setting_at(&list, i, &one);
        text = json_string_value(one.value); /* a line that says the file's version */
        if (!text || strncmp(text, "#version", 8) != 0)
            rc = add_merge(m, &one, i, &joined, fault);
    }
    zt_buf_release(&joined);
    return rc;
}

/* A prefix or suffix; "" is none. */
static zt_err read_affix(const struct zt_setting *s, const char *key, char **out,
                         size_t *n, struct zt_fault *fault)
{
    struct zt_setting at;

    return zt_setting_get(s, key, &at) ? zt_step_copy_text(s, key, out, n, fault) : ZT_OK;
}

static zt_err read_model(const struct zt_setting *s, struct zt_text_model *m,
                         struct zt_fault *fault)
{
    struct zt_setting dropout;
    struct bpe *b = calloc(1, sizeof(*b));
    zt_err rc;

    m->own = b;
    if (!b)
        return zt_text_out_of_memory(fault, ZT_E_NOMEM);
    if (zt_setting_get(s, "dropout", &dropout) && json_number_value(dropout.value) != 0)
        return zt_setting_refuse(&dropout, fault,
                                 "merges left out at random give other ids every time; "
                                 "set it to null");
    rc = zt_model_read_vocab(s, m, fault);
    if (!rc)
        rc = zt_model_read_unknown(s, m, fault);
    if (!rc)
        rc = read_affix(s, "continuing_subword_prefix", &m->prefix, &m->prefix_bytes,
                        fault);
    if (!rc)
        rc = read_affix(s, "end_of_word_suffix", &m->suffix, &m->suffix_bytes, fault);
    if (!rc)
        rc = zt_setting_bool(s, "fuse_unk", false, &m->fuse_unknown, fault);
    if (!rc)
        rc = zt_setting_bool(s, "byte_fallback", false, &m->byte_fallback, fault);
    if (!rc)
        rc = zt_setting_bool(s, "ignore_merges", false, &b->ignore_merges, fault);
    if (!rc)
        rc = read_merges(s, m, fault);
    zt_model_find_bytes(m);
    return rc;
}

static void release_model(struct zt_text_model *m)
{
    struct bpe *b = m->own;

    if (b)
        free(b->merges);
    free(b);
}

/* ---- characters to symbols ---- */

/* Unknown characters wait: the next one may be fused with them. */
struct cutting {
    const struct zt_text_model *m;
    struct zt_buf *symbols, *name; /* int32_t; a character with what goes around it */
    bool unknown;
    zt_err rc;
};

static void put_symbol(struct cutting *c, int32_t id)
{
    struct symbol s = {.id = id};

    if (!c->rc)
        c->rc = zt_buf_put(c->symbols, &s, sizeof(s));
}

static void put_unknown(struct cutting *c)
{
    if (c->unknown)
        put_symbol(c, c->m->unknown);
    c->unknown = false;
}

static bool put_bytes(struct cutting *c, const char *s, size_t n)
{
    if (!c->m->byte_fallback)
        return false;
    for (size_t i = 0; i < n; i++)
        if (c->m->byte_ids[(uint8_t)s[i]] < 0)
            return false;
    for (size_t i = 0; i < n; i++)
        put_symbol(c, c->m->byte_ids[(uint8_t)s[i]]);
    return true;
}

/* False: there is no id for it, and the unknown token is missing. */
static bool put_char(struct cutting *c, const char *s, size_t n)
{
    int32_t id = zt_vocab_id(&c->m->vocab, s, n);

    if (id >= 0) {
        put_unknown(c);
        put_symbol(c, id);
    } else if (!put_bytes(c, s, n)) { /* which do not make a waiting unknown go first */
        if (c->m->unknown_text)
            return false;
        if (c->m->unknown >= 0 && !c->m->fuse_unknown)
            put_unknown(c);
        c->unknown = c->m->unknown >= 0; /* without an unknown token it is left out */
    }
    return true;
}

static zt_err cut_word(const struct zt_text_model *m, struct zt_model_work *w,
                       const char *text, size_t n, struct zt_fault *fault)
{
    struct cutting c = {.m = m, .symbols = &w->a, .name = &w->b};

    zt_buf_empty(&w->a);
    for (size_t at = 0, end = 0; !c.rc && at < n; at = end) {
        const char *s = text + at;
        size_t len;

        zt_utf8_next(text, &end);
        len = end - at;
        if ((at > 0 && m->prefix) || (end == n && m->suffix)) {
            zt_buf_empty(c.name);
            if (at > 0)
                c.rc = zt_buf_put(c.name, m->prefix, m->prefix_bytes);
            if (!c.rc)
                c.rc = zt_buf_put(c.name, s, len);
            if (!c.rc && end == n)
                c.rc = zt_buf_put(c.name, m->suffix, m->suffix_bytes);
            s = zt_text_of(c.name);
            len = zt_buf_used(c.name);
        }
        if (!c.rc && !put_char(&c, s, len))
            return zt_model_refuse_unknown(m, s, len, fault);
    }
    put_unknown(&c);
    return c.rc ? zt_text_out_of_memory(fault, c.rc) : ZT_OK;
}

/* ---- merging ---- */

static bool comes_before(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void sift_up(struct candidate *h, size_t i)
{
    struct candidate c = h[i];

    for (; i > 0 && comes_before(&c, &h[(i - 1) / 2]); i = (i - 1) / 2)
        h[i] = h[(i - 1) / 2];
    h[i] = c;
}

static struct candidate take_first(struct candidate *h, size_t *num)
{
    struct candidate first = h[0], c = h[--*num];
    size_t i = 0;

    for (;;) {
        size_t k = 2 * i + 1;

        if (k >= *num)
            break;
        if (k + 1 < *num && comes_before(&h[k + 1], &h[k]))
            k++;
        if (!comes_before(&h[k], &c))
            break;
        h[i] = h[k];
        i = k;
    }
    if (*num)
        h[i] = c;
    return first;
}

/* The pair at s[at] and the one behind it, if there is a merge of them. */
static void push_pair(const struct bpe *b, const struct symbol *s, int32_t at,
                      struct candidate *heap, size_t *num)
{
    const struct merge *m;

    if (at < 0 || s[at].next < 0)
        return;
    m = find_merge(b, s[at].id, s[s[at].next].id);
    if (m->pair == FREE)
        return;
    heap[*num] = (struct candidate){.rank = m->rank, .at = at, .into = m->into};
    sift_up(heap, (*num)++);
}

static void merge_all(const struct bpe *b, struct symbol *s, size_t n,
                      struct candidate *heap)
{
    size_t num = 0;

    for (size_t i = 0; i < n; i++) {
        s[i].previous = (int32_t)i - 1;
        s[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
    }
    for (size_t i = 0; i < n; i++)
        push_pair(b, s, (int32_t)i, heap, &num);
    while (num > 0) {
        struct candidate c = take_first(heap, &num);
        struct symbol *left = &s[c.at], *right;
        const struct merge *m;

        if (left->id < 0 || left->next < 0)
            continue;
        right = &s[left->next];
        m = find_merge(b, left->id, right->id);
        if (m->pair == FREE || m->into != c.into)
            continue; /* others are here by now */
        left->id = c.into;
        left->next = right->next;
        right->id = -1;
        if (left->next >= 0)
            s[left->next].previous = c.at;
        push_pair(b, s, left->previous, heap, &num);
        push_pair(b, s, c.at, heap, &num);
    }
}

static zt_err encode(const struct zt_text_model *m, struct zt_model_work *w,
                     const char *text, size_t n, struct zt_fault *fault)
{
    const struct bpe *b = m->own;
    int32_t whole = b->ignore_merges ? zt_vocab_id(&m->vocab, text, n) : -1;
    struct symbol *s;
    uint8_t *heap;
    size_t num;
    zt_err rc;

    if (whole >= 0) {
        rc = zt_model_put(&w->ids, whole);
        return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
    }
    rc = cut_word(m, w, text, n, fault);
    if (rc)
        return rc;
    s = (struct symbol *)(void *)w->a.data;
    num = zt_buf_used(&w->a) / sizeof(*s);
    /* each merge takes a symbol and adds at most two pairs */
    zt_buf_empty(&w->b);
    rc = zt_buf_reserve(&w->b, (3 * num + 1) * sizeof(struct candidate), &heap);
    if (rc)
        return zt_text_out_of_memory(fault, rc);
    merge_all(b, s, num, (struct candidate *)(void *)heap);
    for (size_t i = 0; !rc && i < num; i++)
        if (s[i].id >= 0)
            rc = zt_model_put(&w->ids, s[i].id);
    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}

const struct zt_model_kind zt_bpe = {
    .type = "BPE",
    .keys =
        "vocab merges unk_token continuing_subword_prefix end_of_word_suffix fuse_unk "
        "byte_fallback ignore_merges dropout",
    .read = read_model,
    .encode = encode,
    .release = release_model,
    .cached = true,
};
