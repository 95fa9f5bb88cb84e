/*
 * sp_pairs.c -- the pairs of symbols that are a piece together. BPE asks for the text of two
 * neighbours among the pieces; what they can be is known beforehand: each is a character, or
 * was joined before, so it is a piece. So it is a question about two numbers.
 */
#include <stdlib.h>
#include <string.h>

#include "worker/text/sentencepiece/model.h"

static int32_t symbol_of(const struct zt_sentencepiece *m, const char *s, size_t n)
{
    int32_t id = zt_vocab_id(&m->text_pieces, s, n);

    if (id < 0) {
        id = zt_vocab_id(&m->pairs.chars, s, n);
        id = id < 0 ? -1 : m->num + id;
    }
    return id;
}

int32_t zt_sp_symbol(const struct zt_sentencepiece *m, const char *s, size_t n)
{
    return n == 1 && (uint8_t)*s < 128 ? m->pairs.ascii[(uint8_t)*s] : symbol_of(m, s, n);
}

/* All characters of pieces that are none themselves get a number. */
static zt_err number_chars(struct zt_sentencepiece *m)
{
    struct zt_vocab *chars = &m->pairs.chars;
    zt_err rc = ZT_OK;

    for (int32_t i = 0; !rc && i < m->num; i++) {
        const struct zt_sp_piece *p = &m->pieces[i];

        for (size_t at = 0, len; !rc && zt_sp_is_of_text(p) && at < p->n; at += len) {
            len = zt_sp_char_bytes(p->text + at, p->n - at);
            if (symbol_of(m, p->text + at, len) < 0)
                rc = zt_vocab_add(chars, p->text + at, len, chars->num_ids, false);
        }
    }
    return rc;
}

/* The ways to cut a piece into two symbols, to `out`. */
static zt_err put_cuts(const struct zt_sentencepiece *m, int32_t id, struct zt_buf *out)
{
    const struct zt_sp_piece *p = &m->pieces[id];
    zt_err rc = ZT_OK;

    for (size_t at = 0; !rc && at < p->n;) {
        int32_t left, right = -1;

        at += zt_sp_char_bytes(p->text + at, p->n - at);
        left = at < p->n ? symbol_of(m, p->text, at) : -1;
        if (left >= 0)
            right = symbol_of(m, p->text + at, p->n - at);
        if (right >= 0) {
            struct zt_sp_pair pair = {.key = zt_sp_pair_key(left, right), .into = id};

            rc = zt_buf_put(out, &pair, sizeof(pair));
        }
    }
    return rc;
}

static zt_err make_slots(struct zt_sp_pairs *p, const struct zt_sp_pair *pairs,
                         size_t num)
{
    size_t slots = 64;

    while (slots < 2 * num && slots < (size_t)1 << 31)
        slots *= 2;
    p->slots = slots < 2 * num ? NULL : malloc(slots * sizeof(*p->slots));
    if (!p->slots)
        return ZT_E_NOMEM;
    memset(p->slots, 0xff, slots * sizeof(*p->slots));
    p->mask = (uint32_t)slots - 1;
    for (size_t i = 0; i < num; i++) {
        uint32_t at = zt_sp_pair_place(p, pairs[i].key);

        while (p->slots[at].key != UINT64_MAX)
            at = (at + 1) & p->mask;
        p->slots[at] = pairs[i];
    }
    return ZT_OK;
}

zt_err zt_sp_pairs_make(struct zt_sentencepiece *m)
{
    struct zt_sp_pairs *p = &m->pairs;
    struct zt_buf cuts;
    zt_err rc;

    zt_vocab_init(&p->chars);
    zt_buf_init(&cuts, SIZE_MAX / 4);
    rc = number_chars(m);
    p->ids = malloc((size_t)m->num * sizeof(*p->ids));
    if (!p->ids)
        rc = ZT_E_NOMEM;
    for (int32_t i = 0; !rc && i < m->num; i++) {
        p->ids[i] = zt_sp_id(m, m->pieces[i].text, m->pieces[i].n);
        if (zt_sp_is_of_text(&m->pieces[i]))
            rc = put_cuts(m, i, &cuts);
    }
    for (int c = 0; c < 128; c++)
        p->ascii[c] = symbol_of(m, &(char){(char)c}, 1);
    if (!rc)
        rc = make_slots(p, (const struct zt_sp_pair *)(const void *)cuts.data,
                        zt_buf_used(&cuts) / sizeof(struct zt_sp_pair));
    zt_buf_release(&cuts);
    return rc;
}

void zt_sp_pairs_release(struct zt_sp_pairs *p)
{
    zt_vocab_release(&p->chars);
    free(p->slots);
    free(p->ids);
    *p = (struct zt_sp_pairs){0};
}

size_t zt_sp_pairs_bytes(const struct zt_sp_pairs *p)
{
    return zt_vocab_bytes(&p->chars) +
           (p->slots ? ((size_t)p->mask + 1) * sizeof(*p->slots) : 0);
}
