#include "worker/text/train/bpe_merges.h"

#include <stdlib.h>
#include <string.h>

#include "worker/text/vocab.h"

#define FREE UINT64_MAX

/* Words in which a pair has come up since the last one that was merged. */
struct places {
    uint64_t pair;
    uint32_t *words; /* (num), rising */
    uint32_t num, room;
};

/* A pair that waits, with the words that it was found in. */
struct waiting {
    uint64_t pair;
    uint64_t count;
    uint32_t *words;
    uint32_t num;
};

struct pair_count {
    uint64_t pair; /* left id << 32 | right id; FREE */
    int64_t count;
    uint32_t place; /* index in `fresh` + 1; 0: none */
};

struct bpe_word {
    size_t at;  /* in `symbols` */
    uint32_t n; /* symbols that are left */
    int64_t count;
};

struct learning {
    int32_t *symbols;
    struct bpe_word *words;
    size_t num_words;
    struct pair_count *pairs; /* (mask + 1), by hash */
    size_t mask, num_pairs;
    struct zt_buf heap, fresh; /* struct waiting; struct places */
    struct zt_vocab tokens;    /* texts of tokens to their ids */
    int32_t next_id;
    zt_err rc; /* of what counting had to do */
};

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* ---- counts ---- */

static struct pair_count *find_slot(struct pair_count *pairs, size_t mask, uint64_t pair)
{
    size_t at = (size_t)((pair * 0x9e3779b97f4a7c15u) >> 20) & mask;

    while (pairs[at].pair != FREE && pairs[at].pair != pair)
        at = (at + 1) & mask;
    return &pairs[at];
}

static zt_err grow_pairs(struct learning *l)
{
    size_t num = l->pairs ? (l->mask + 1) * 2 : (size_t)1 << 16;
    struct pair_count *more;

    if (l->pairs && l->num_pairs * 2 < l->mask)
        return ZT_OK;
    more = malloc(num * sizeof(*more));
    if (!more)
        return ZT_E_NOMEM;
    for (size_t i = 0; i < num; i++)
        more[i] = (struct pair_count){.pair = FREE};
    for (size_t i = 0; l->pairs && i <= l->mask; i++)
        if (l->pairs[i].pair != FREE)
            *find_slot(more, num - 1, l->pairs[i].pair) = l->pairs[i];
    free(l->pairs);
    l->pairs = more;
    l->mask = num - 1;
    return ZT_OK;
}

static zt_err add_place(struct learning *l, struct pair_count *p, uint32_t word)
{
    struct places *places, one = {.pair = p->pair};

    if (!p->place) {
        zt_err rc = zt_buf_put(&l->fresh, &one, sizeof(one));

        if (rc)
            return rc;
        p->place = (uint32_t)(zt_buf_used(&l->fresh) / sizeof(one));
    }
    places = &((struct places *)(void *)l->fresh.data)[p->place - 1];
    if (places->num && places->words[places->num - 1] == word)
        return ZT_OK;
    if (places->num == places->room) {
        uint32_t room = places->room ? places->room * 2 : 2;
        uint32_t *more = realloc(places->words, room * sizeof(*more));

        if (!more)
            return ZT_E_NOMEM;
        places->words = more;
        places->room = room;
    }
    places->words[places->num++] = word;
    return ZT_OK;
}

/* `sign`: 1 where the pair has come up in the word, -1 where it has gone. */
static void count_pair(struct learning *l, int32_t left, int32_t right, int sign,
                       uint32_t word)
{
    struct pair_count *p;

    if (!l->rc)
        l->rc = grow_pairs(l);
    if (l->rc)
        return;
    p = find_slot(l->pairs, l->mask, pair_of(left, right));
    if (p->pair == FREE) {
        *p = (struct pair_count){.pair = pair_of(left, right)};
        l->num_pairs++;
    }
    p->count += sign * l->words[word].count;
    if (sign > 0)
        l->rc = add_place(l, p, word);
}

/* ---- what waits ---- */

static bool comes_before(const struct waiting *a, const struct waiting *b)
{
    return a->count != b->count ? a->count > b->count : a->pair < b->pair;
}

static zt_err push(struct learning *l, struct waiting w)
{
    zt_err rc = zt_buf_put(&l->heap, &w, sizeof(w));
    struct waiting *h = (struct waiting *)(void *)l->heap.data;
    size_t i;

    if (rc)
        return rc;
    i = zt_buf_used(&l->heap) / sizeof(w) - 1;
    for (; i > 0 && comes_before(&w, &h[(i - 1) / 2]); i = (i - 1) / 2)
        h[i] = h[(i - 1) / 2];
    h[i] = w;
    return ZT_OK;
}

static struct waiting pop(struct learning *l)
{
    struct waiting *h = (struct waiting *)(void *)l->heap.data;
    size_t num = zt_buf_used(&l->heap) / sizeof(*h) - 1, i = 0;
    struct waiting first = h[0], w = h[num];

    l->heap.len -= sizeof(*h);
    for (size_t k = 1; k < num; k = 2 * i + 1) {
        if (k + 1 < num && comes_before(&h[k + 1], &h[k]))
            k++;
        if (!comes_before(&h[k], &w))
            break;
        h[i] = h[k];
        i = k;
    }
    if (num)
        h[i] = w;
    return first;
}

/* The pairs that have come up wait from here on. */
static zt_err push_fresh(struct learning *l)
{
    struct places *places = (struct places *)(void *)l->fresh.data;
    size_t num = zt_buf_used(&l->fresh) / sizeof(*places);
    zt_err rc = ZT_OK;

    for (size_t i = 0; i < num; i++) {
        struct pair_count *p = find_slot(l->pairs, l->mask, places[i].pair);

        p->place = 0;
        if (rc || p->count <= 0) {
            free(places[i].words);
            continue;
        }
        rc = push(l, (struct waiting){.pair = p->pair,
                                      .count = (uint64_t)p->count,
                                      .words = places[i].words,
                                      .num = places[i].num});
        if (rc)
            free(places[i].words);
    }
    zt_buf_drop(&l->fresh, zt_buf_used(&l->fresh));
    return rc;
}

/* ---- words ---- */

static zt_err read_words(struct learning *l, const struct zt_word_counts *c,
                         const struct zt_bpe_alphabet *a)
{
    const struct zt_word_count *words = zt_words_of(c, &l->num_words);
    int32_t id_of[256];
    size_t total = zt_buf_used(&c->text);

    for (int i = 0; i < 256; i++)
        id_of[a->byte_order[i]] = a->first_id + i;
    l->symbols = malloc((total ? total : 1) * sizeof(*l->symbols));
    l->words = malloc((l->num_words ? l->num_words : 1) * sizeof(*l->words));
    if (!l->symbols || !l->words)
        return ZT_E_NOMEM;
    for (size_t i = 0; i < total; i++)
        l->symbols[i] = id_of[c->text.data[i]];
    for (size_t i = 0; i < l->num_words; i++)
        l->words[i] = (struct bpe_word){words[i].at, words[i].n, words[i].count};
    for (uint32_t i = 0; i < l->num_words; i++) {
        const int32_t *s = l->symbols + l->words[i].at;

        for (uint32_t k = 0; k + 1 < l->words[i].n; k++)
            count_pair(l, s[k], s[k + 1], 1, i);
    }
    return l->rc;
}

/* Every place of the pair in a word, from the left, and what that does to its neighbours. */
static void merge_word(struct learning *l, uint32_t word, const struct zt_bpe_merge *m)
{
    struct bpe_word *w = &l->words[word];
    int32_t *s = l->symbols + w->at;
    uint32_t to = 0;

    for (uint32_t i = 0; i < w->n; i++) {
        if (s[i] != m->left || i + 1 == w->n || s[i + 1] != m->right) {
            s[to++] = s[i];
            continue;
        }
        if (to) {
            count_pair(l, s[to - 1], m->left, -1, word);
            count_pair(l, s[to - 1], m->into, 1, word);
        }
        if (i + 2 < w->n) {
            count_pair(l, m->right, s[i + 2], -1, word);
            count_pair(l, m->into, s[i + 2], 1, word);
        }
        s[to++] = m->into;
        i++;
    }
    w->n = to;
}

/* ---- tokens ---- */

static zt_err put_token(struct zt_bpe_learned *out, const void *s, size_t n)
{
    zt_err rc = zt_buf_put(&out->text, s, n);
    size_t end = zt_buf_used(&out->text);

    return rc ? rc : zt_buf_put(&out->ends, &end, sizeof(end));
}

static const char *token_text(const struct zt_bpe_learned *l, int32_t id, size_t *n)
{
    const size_t *ends = (const size_t *)(const void *)l->ends.data;
    size_t from = id ? ends[id - 1] : 0;

    *n = ends[id] - from;
    return (const char *)l->text.data + from;
}

/* The id of both texts together: that of the token that has it already, or the next. */
static zt_err make_token(struct learning *l, struct zt_bpe_learned *out,
                         struct zt_bpe_merge *m)
{
    struct zt_buf joined;
    size_t n;
    const char *s = token_text(out, m->left, &n);
    zt_err rc;

    zt_buf_init(&joined, UINT32_MAX);
    rc = zt_buf_put(&joined, s, n);
    s = token_text(out, m->right, &n);
    if (!rc)
        rc = zt_buf_put(&joined, s, n);
    s = (const char *)joined.data;
    n = zt_buf_used(&joined);
    m->into = rc ? -1 : zt_vocab_id(&l->tokens, s, n);
    if (!rc && m->into < 0) {
        m->into = l->next_id++;
        rc = zt_vocab_add(&l->tokens, s, n, m->into, false);
        if (!rc)
            rc = put_token(out, s, n);
    }
    zt_buf_release(&joined);
    return rc;
}

static zt_err put_alphabet(struct learning *l, const struct zt_bpe_alphabet *a,
                           struct zt_bpe_learned *out)
{
    zt_err rc = ZT_OK;

    for (; !rc && l->next_id < a->first_id; l->next_id++)
        rc = put_token(out, "", 0);
    for (int i = 0; !rc && i < 256; i++, l->next_id++) {
        rc = put_token(out, &a->byte_order[i], 1);
        if (!rc)
            rc = zt_vocab_add(&l->tokens, (const char *)&a->byte_order[i], 1, l->next_id,
                              false);
    }
    return rc;
}

static zt_err merge_pair(struct learning *l, const struct waiting *w,
                         struct zt_bpe_learned *out)
{
    struct zt_bpe_merge m = {.left = (int32_t)(w->pair >> 32),
                             .right = (int32_t)(uint32_t)w->pair};
    zt_err rc = make_token(l, out, &m);

    if (!rc)
        rc = zt_buf_put(&out->merges, &m, sizeof(m));
    for (uint32_t i = 0; !rc && i < w->num; i++)
        merge_word(l, w->words[i], &m);
    if (!rc)
        rc = l->rc;
    return rc ? rc : push_fresh(l);
}

static zt_err learn(struct learning *l, int32_t vocab_size, struct zt_bpe_learned *out)
{
    zt_err rc = push_fresh(l);

    while (!rc && l->next_id < vocab_size && zt_buf_used(&l->heap)) {
        struct waiting w = pop(l);
        uint64_t now = (uint64_t)find_slot(l->pairs, l->mask, w.pair)->count;

        if (w.count != now) { /* others have taken some of its places */
            w.count = now;
            rc = push(l, w);
            if (rc)
                free(w.words);
            continue;
        }
        if (now)
            rc = merge_pair(l, &w, out);
        free(w.words);
        if (!now)
            break;
    }
    return rc;
}

static void release(struct learning *l)
{
    struct places *places = (struct places *)(void *)l->fresh.data;
    struct waiting *w = (struct waiting *)(void *)l->heap.data;

    for (size_t i = 0; i < zt_buf_used(&l->fresh) / sizeof(*places); i++)
        free(places[i].words);
    for (size_t i = 0; i < zt_buf_used(&l->heap) / sizeof(*w); i++)
        free(w[i].words);
    free(l->symbols);
    free(l->words);
    free(l->pairs);
    zt_buf_release(&l->heap);
    zt_buf_release(&l->fresh);
    zt_vocab_release(&l->tokens);
}

zt_err zt_bpe_learn(const struct zt_word_counts *words,
                    const struct zt_bpe_alphabet *alphabet, int32_t vocab_size,
                    struct zt_bpe_learned *out)
{
    struct learning l = {0};
    zt_err rc;

    zt_buf_init(&out->merges, SIZE_MAX / 4);
    zt_buf_init(&out->text, SIZE_MAX / 4);
    zt_buf_init(&out->ends, SIZE_MAX / 4);
    zt_buf_init(&l.heap, SIZE_MAX / 4);
    zt_buf_init(&l.fresh, SIZE_MAX / 4);
    zt_vocab_init(&l.tokens);
    rc = grow_pairs(&l);
    if (!rc)
        rc = put_alphabet(&l, alphabet, out);
    if (!rc)
        rc = read_words(&l, words, alphabet);
    if (!rc)
        rc = learn(&l, vocab_size, out);
    release(&l);
    return rc;
}

void zt_bpe_learned_release(struct zt_bpe_learned *l)
{
    zt_buf_release(&l->merges);
    zt_buf_release(&l->text);
    zt_buf_release(&l->ends);
}
