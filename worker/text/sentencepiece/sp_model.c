/*
 * sp_model.c -- a model file: a message ModelProto of sentencepiece_model.proto, of which
 * these fields are read:
 *
 *      1 pieces           repeated { 1 piece, 2 score, 3 type }
 *      2 trainer_spec     { 3 model_type, 24 treat_whitespace_as_suffix,
 *                           35 byte_fallback, 44 unk_surface, 47 eos_piece }
 *      3 normalizer_spec  { 2 precompiled_charsmap, 3 add_dummy_prefix,
 *                           4 remove_extra_whitespaces, 5 escape_whitespaces }
 *      5 denormalizer_spec
 *
 * The others say how it was trained.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/text/sentencepiece/model.h"
#include "worker/text/sentencepiece/protobuf.h"

#define MAX_PIECE_BYTES 8000

enum { UNIGRAM = 1, BPE = 2 };

struct reading {
    const char *name;
    struct zt_sentencepiece *m;
    struct zt_pb_field charsmap, unknown_text, end;
    bool has_unknown_text, bad, denormalizes;
    uint64_t model_type;
    struct zt_fault *fault;
};

static zt_err no_memory(const struct reading *r)
{
    return zt_fault_set(r->fault, ZT_E_NOMEM, "%s: no host memory", r->name);
}

static zt_err refuse(const struct reading *r, const char *what)
{
    return zt_fault_set(r->fault, ZT_E_FORMAT, "%s: %s", r->name, what);
}

/* ---- fields ---- */

static bool is(const struct zt_pb_field *f, uint32_t number, zt_pb_type type)
{
    return f->number == number && f->type == type;
}

static void read_trainer(struct reading *r, const struct zt_pb_field *message)
{
    struct zt_pb pb = zt_pb_of(message->bytes, message->n);
    struct zt_pb_field f;

    while (zt_pb_next(&pb, &f)) {
        if (is(&f, 3, ZT_PB_VARINT))
            r->model_type = f.value;
        else if (is(&f, 24, ZT_PB_VARINT))
            r->m->whitespace_as_suffix = f.value != 0;
        else if (is(&f, 35, ZT_PB_VARINT))
            r->m->byte_fallback = f.value != 0;
        else if (is(&f, 44, ZT_PB_BYTES)) {
            r->unknown_text = f;
            r->has_unknown_text = true;
        } else if (is(&f, 47, ZT_PB_BYTES))
            r->end = f;
    }
    r->bad |= pb.bad;
}

static void read_normalizer(struct reading *r, const struct zt_pb_field *message)
{
    struct zt_pb pb = zt_pb_of(message->bytes, message->n);
    struct zt_pb_field f;

    while (zt_pb_next(&pb, &f)) {
        if (is(&f, 2, ZT_PB_BYTES))
            r->charsmap = f;
        else if (is(&f, 3, ZT_PB_VARINT))
            r->m->add_dummy_prefix = f.value != 0;
        else if (is(&f, 4, ZT_PB_VARINT))
            r->m->remove_extra_whitespaces = f.value != 0;
        else if (is(&f, 5, ZT_PB_VARINT))
            r->m->escape_whitespaces = f.value != 0;
    }
    r->bad |= pb.bad;
}

static void read_denormalizer(struct reading *r, const struct zt_pb_field *message)
{
    struct zt_pb pb = zt_pb_of(message->bytes, message->n);
    struct zt_pb_field f;

    while (zt_pb_next(&pb, &f))
        r->denormalizes |= is(&f, 2, ZT_PB_BYTES) && f.n;
    r->bad |= pb.bad;
}

/* Texts are copied later, when their size is known: `text` points into the file. */
static void read_piece(struct reading *r, const struct zt_pb_field *message,
                       struct zt_sp_piece *p)
{
    struct zt_pb pb = zt_pb_of(message->bytes, message->n);
    struct zt_pb_field f;

    *p = (struct zt_sp_piece){.type = ZT_SP_NORMAL};
    while (zt_pb_next(&pb, &f)) {
        if (is(&f, 1, ZT_PB_BYTES)) {
            p->text = (const char *)f.bytes;
            p->n = f.n;
        } else if (is(&f, 2, ZT_PB_FIXED32)) {
            p->score = zt_pb_float(&f);
        } else if (is(&f, 3, ZT_PB_VARINT) && f.value >= ZT_SP_NORMAL &&
                   f.value <= ZT_SP_BYTE) {
            p->type = (zt_sp_type)f.value;
        }
    }
    r->bad |= pb.bad;
}

static size_t count_pieces(const void *bytes, size_t n)
{
    struct zt_pb pb = zt_pb_of(bytes, n);
    struct zt_pb_field f;
    size_t num = 0;

    while (zt_pb_next(&pb, &f))
        num += is(&f, 1, ZT_PB_BYTES);
    return num;
}

static zt_err read_fields(struct reading *r, const void *bytes, size_t n)
{
    struct zt_sentencepiece *m = r->m;
    struct zt_pb pb = zt_pb_of(bytes, n);
    struct zt_pb_field f;
    size_t num = count_pieces(bytes, n);

    if (num == 0 || num > ZT_VOCAB_MAX_ID)
        return refuse(r, "is no SentencePiece model: it holds no pieces");
    m->pieces = calloc(num, sizeof(*m->pieces));
    if (!m->pieces)
        return no_memory(r);
    while (zt_pb_next(&pb, &f)) {
        if (is(&f, 1, ZT_PB_BYTES))
            read_piece(r, &f, &m->pieces[m->num++]);
        else if (is(&f, 2, ZT_PB_BYTES))
            read_trainer(r, &f);
        else if (is(&f, 3, ZT_PB_BYTES))
            read_normalizer(r, &f);
        else if (is(&f, 5, ZT_PB_BYTES))
            read_denormalizer(r, &f);
    }
    if (r->bad || pb.bad)
        return refuse(r, "is no SentencePiece model, or cut short");
    return ZT_OK;
}

/* ---- pieces ---- */

static zt_err copy_texts(const struct reading *r)
{
    struct zt_sentencepiece *m = r->m;
    static const char unknown[] = " \xe2\x81\x87 ";
    char *to;

    for (int32_t i = 0; i < m->num; i++)
        m->text_bytes += m->pieces[i].n;
    m->texts = to = malloc(m->text_bytes + 1);
    m->unknown_text = r->has_unknown_text ? strndup((const char *)r->unknown_text.bytes,
                                                    r->unknown_text.n)
                                          : strdup(unknown);
    if (!to || !m->unknown_text)
        return no_memory(r);
    for (int32_t i = 0; i < m->num; i++) {
        if (m->pieces[i].n)
            memcpy(to, m->pieces[i].text, m->pieces[i].n);
        m->pieces[i].text = to;
        to += m->pieces[i].n;
    }
    return ZT_OK;
}

/* The byte of "<0xHH>", or -1. */
static int byte_of(const struct zt_sp_piece *p)
{
    for (int b = 0; p->n == 6 && b < 256; b++) {
        char name[8];

        snprintf(name, sizeof(name), "<0x%02X>", (unsigned)b);
        if (memcmp(name, p->text, 6) == 0)
            return b;
    }
    return -1;
}

static zt_err refuse_piece(const struct reading *r, int32_t id, const char *what)
{
    return zt_fault_set(r->fault, ZT_E_FORMAT, "%s: piece %d %s", r->name, (int)id, what);
}

static zt_err add_piece(const struct reading *r, int32_t id)
{
    struct zt_sentencepiece *m = r->m;
    const struct zt_sp_piece *p = &m->pieces[id];
    zt_err rc;

    if (!p->n || p->n >= MAX_PIECE_BYTES || memchr(p->text, 0, p->n))
        return refuse_piece(r, id, "is empty, too long, or holds a zero byte");
    rc = zt_vocab_add(zt_sp_is_of_text(p) ? &m->text_pieces : &m->reserved, p->text, p->n,
                      id, false);
    if (rc == ZT_E_NOMEM)
        return no_memory(r);
    if (rc)
        return refuse_piece(r, id, "has the text of another one");
    if (!isfinite(p->score))
        return refuse_piece(r, id, "has a score that is no number");
    if (p->type == ZT_SP_UNKNOWN) {
        if (m->unknown >= 0)
            return refuse_piece(r, id, "is a second unknown one");
        m->unknown = id;
    }
    if (p->type == ZT_SP_BYTE) {
        if (!m->byte_fallback || byte_of(p) < 0)
            return refuse_piece(r, id,
                                "is a byte's, but is not called <0xHH>, or the "
                                "model has no byte_fallback");
        m->byte_ids[byte_of(p)] = id;
    }
    m->any_unused |= p->type == ZT_SP_UNUSED;
    m->any_user |= p->type == ZT_SP_USER;
    if (p->type == ZT_SP_NORMAL && p->score < m->min_score)
        m->min_score = p->score;
    return ZT_OK;
}

static zt_err add_pieces(const struct reading *r)
{
    struct zt_sentencepiece *m = r->m;
    zt_err rc = ZT_OK;

    for (int32_t i = 0; !rc && i < m->num; i++)
        rc = add_piece(r, i);
    if (!rc && m->unknown < 0)
        rc = refuse(r, "has no unknown piece");
    for (int b = 0; !rc && m->byte_fallback && b < 256; b++)
        if (m->byte_ids[b] < 0)
            rc = refuse(r, "has byte_fallback, but not a piece for each byte");
    return rc;
}

/* A user's symbol of n bytes is taken wherever it stands: none of its parts has a score
 * above 0. (Older versions of the library had a score that depended on the others'.) */
static zt_err find_scores(const struct reading *r)
{
    struct zt_sentencepiece *m = r->m;

    m->scores = malloc((size_t)m->num * sizeof(*m->scores));
    if (!m->scores)
        return no_memory(r);
    for (int32_t i = 0; i < m->num; i++)
        m->scores[i] = m->pieces[i].type == ZT_SP_USER
                           ? (float)(0.1 * (double)m->pieces[i].n - 0.1)
                           : m->pieces[i].score;
    return ZT_OK;
}

static zt_err build_tries(const struct reading *r)
{
    struct zt_sentencepiece *m = r->m;
    struct zt_trie_entry *e = calloc((size_t)m->num, sizeof(*e));
    zt_err rc = e ? ZT_OK : ZT_E_NOMEM;

    for (int k = 0; !rc && k < 2; k++) {
        size_t num = 0;

        for (int32_t i = 0; i < m->num; i++) {
            const struct zt_sp_piece *p = &m->pieces[i];

            if (k ? p->type == ZT_SP_USER
                  : zt_sp_is_of_text(p) && p->type != ZT_SP_UNUSED && !m->is_bpe)
                e[num++] = (struct zt_trie_entry){p->text, p->n, i};
        }
        rc = zt_trie_build(k ? &m->user_trie : &m->trie, e, num);
    }
    free(e);
    m->node_scores = malloc((m->trie.num_nodes + 1) * sizeof(*m->node_scores));
    if (rc || !m->node_scores)
        return no_memory(r);
    for (uint32_t i = 0; i < m->trie.num_nodes; i++) {
        int32_t id = m->trie.nodes[i].value;

        m->node_scores[i] = id < 0 ? -INFINITY : m->scores[id];
    }
    return ZT_OK;
}

static void find_end(const struct reading *r)
{
    struct zt_sentencepiece *m = r->m;
    int32_t id = r->end.n ? zt_sp_id(m, (const char *)r->end.bytes, r->end.n)
                          : zt_sp_id(m, "</s>", 4);

    m->end = m->pieces[id].type == ZT_SP_CONTROL ? id : -1;
}

static zt_err read_charsmap(const struct reading *r)
{
    zt_err rc;

    if (!r->charsmap.n)
        return ZT_OK;
    rc = zt_charsmap_make(r->charsmap.bytes, r->charsmap.n, &r->m->charsmap);
    if (rc == ZT_E_NOMEM)
        return no_memory(r);
    return rc ? refuse(r, "its precompiled_charsmap is none") : ZT_OK;
}

static zt_err read_all(struct reading *r, const void *bytes, size_t n)
{
    zt_err rc = read_fields(r, bytes, n);

    if (rc)
        return rc;
    if (r->model_type != UNIGRAM && r->model_type != BPE)
        return refuse(r, "is a model of words or characters; unigram and BPE are known");
    if (r->denormalizes)
        return refuse(r, "has a denormalizer_spec, which is not known here");
    r->m->is_bpe = r->model_type == BPE;
    rc = copy_texts(r);
    if (!rc)
        rc = add_pieces(r);
    if (!rc)
        rc = find_scores(r);
    if (!rc)
        rc = build_tries(r);
    if (!rc && r->m->is_bpe && zt_sp_pairs_make(r->m))
        rc = no_memory(r);
    if (rc)
        return rc;
    find_end(r);
    rc = read_charsmap(r);
    if (!rc)
        zt_sp_find_plain(r->m);
    zt_sp_find_words(r->m);
    return rc;
}

/* ---- the room's door ---- */

zt_err zt_sentencepiece_parse(const char *name, const void *bytes, size_t n,
                              struct zt_sentencepiece **out, struct zt_fault *fault)
{
    struct reading r = {.name = name, .fault = fault, .model_type = UNIGRAM};
    zt_err rc;

    r.m = calloc(1, sizeof(*r.m));
    if (!r.m)
        return no_memory(&r);
    r.m->unknown = -1;
    r.m->min_score = FLT_MAX;
    r.m->add_dummy_prefix = r.m->remove_extra_whitespaces = true;
    r.m->escape_whitespaces = true;
    memset(r.m->byte_ids, 0xff, sizeof(r.m->byte_ids));
    zt_vocab_init(&r.m->text_pieces);
    zt_vocab_init(&r.m->reserved);
    rc = read_all(&r, bytes, n);
    if (rc)
        zt_sentencepiece_free(r.m);
    else
        *out = r.m;
    return rc;
}

void zt_sentencepiece_free(struct zt_sentencepiece *m)
{
    if (!m)
        return;
    zt_vocab_release(&m->text_pieces);
    zt_vocab_release(&m->reserved);
    zt_trie_release(&m->trie);
    zt_trie_release(&m->user_trie);
    zt_sp_pairs_release(&m->pairs);
    zt_charsmap_free(m->charsmap);
    free(m->pieces);
    free(m->scores);
    free(m->node_scores);
    free(m->texts);
    free(m->unknown_text);
    free(m);
}

int32_t zt_sentencepiece_num(const struct zt_sentencepiece *m)
{
    return m->num;
}

const char *zt_sentencepiece_piece(const struct zt_sentencepiece *m, int32_t id,
                                   size_t *n)
{
    *n = m->pieces[id].n;
    return m->pieces[id].text;
}

int32_t zt_sentencepiece_end_id(const struct zt_sentencepiece *m)
{
    return m->end;
}

size_t zt_sentencepiece_bytes(const struct zt_sentencepiece *m)
{
    return sizeof(*m) + (size_t)m->num * (sizeof(*m->pieces) + sizeof(*m->scores)) +
           m->text_bytes + m->trie.num_nodes * sizeof(*m->node_scores) +
           zt_vocab_bytes(&m->text_pieces) + zt_vocab_bytes(&m->reserved) +
           zt_trie_bytes(&m->trie) + zt_trie_bytes(&m->user_trie) +
           zt_sp_pairs_bytes(&m->pairs);
}

int32_t zt_sp_id(const struct zt_sentencepiece *m, const char *s, size_t n)
{
    int32_t id = zt_vocab_id(&m->reserved, s, n);

    if (id < 0)
        id = zt_vocab_id(&m->text_pieces, s, n);
    return id < 0 ? m->unknown : id;
}

/* ---- encoding ---- */

#define WORK_MAX ((size_t)1 << 36)

void zt_sp_work_init(struct zt_sp_work *w)
{
    zt_buf_init(&w->text, INT32_MAX - 1); /* places in it are int32_t */
    zt_buf_init(&w->nodes, WORK_MAX);
    zt_buf_init(&w->heap, WORK_MAX);
    zt_buf_init(&w->cut, WORK_MAX);
    w->words = NULL;
}

void zt_sp_work_release(struct zt_sp_work *w)
{
    zt_buf_release(&w->text);
    zt_buf_release(&w->nodes);
    zt_buf_release(&w->heap);
    zt_buf_release(&w->cut);
    zt_word_cache_free(w->words);
    w->words = NULL;
}

size_t zt_sp_work_bytes(const struct zt_sp_work *w)
{
    return w->text.cap + w->nodes.cap + w->heap.cap + w->cut.cap +
           (w->words ? zt_word_cache_bytes() : 0);
}

static zt_err put_id(struct zt_buf *ids, int32_t id)
{
    return zt_buf_put(ids, &id, sizeof(id));
}

zt_err zt_sp_put_piece(struct zt_sp_output *o, const char *s, size_t n, int32_t id)
{
    bool unknown = id == o->m->unknown, again = unknown && o->after_unknown;
    zt_err rc = ZT_OK;

    o->after_unknown = unknown;
    if (!unknown || !o->m->byte_fallback)
        return again ? ZT_OK : put_id(o->ids, id);
    for (size_t i = 0; !rc && i < n; i++)
        rc = put_id(o->ids, o->m->byte_ids[(uint8_t)s[i]]);
    return rc;
}

zt_err zt_sentencepiece_encode(const struct zt_sentencepiece *m, struct zt_sp_work *w,
                               const char *text, size_t n, zt_sp_start start,
                               struct zt_buf *ids, uint64_t *replaced)
{
    zt_err rc = zt_sp_normalize(m, &w->text, text, n, start, replaced);

    return rc ? rc : zt_sp_encode_words(m, w, ids);
}
