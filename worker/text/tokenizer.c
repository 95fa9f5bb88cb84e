/*
 * tokenizer.c -- opening a tokenizer, and a text on its way to ids.
 */
#include "worker/text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/mapped_file.h"
#include "worker/text/unicode/chars.h"
#include "worker/text/pipeline.h"

#define MAX_FILE ((size_t)512 << 20)

/* ---- the JSON, from its root ---- */

/* A vocabulary may hold a text twice: what an added token is, is its text. */
static void mark_twin(struct zt_tokenizer *t, int32_t id)
{
    size_t n;
    const char *text = zt_vocab_token(&t->model.vocab, id, &n);
    int32_t last = text ? zt_vocab_id(&t->model.vocab, text, n) : id;

    if (last != id && t->added_by_id[id] < 0)
        t->added_by_id[id] = t->added_by_id[last];
}

static zt_err index_added(struct zt_tokenizer *t, struct zt_fault *fault)
{
    t->vocab = t->model.vocab.num_ids;
    for (int i = 0; i < t->added.num; i++)
        if (t->added.tokens[i].id >= t->vocab)
            t->vocab = t->added.tokens[i].id + 1;
    t->added_by_id = malloc((size_t)(t->vocab + 1) * sizeof(*t->added_by_id));
    if (!t->added_by_id)
        return zt_text_out_of_memory(fault, ZT_E_NOMEM);
    memset(t->added_by_id, 0xff, (size_t)(t->vocab + 1) * sizeof(*t->added_by_id));
    for (int i = 0; i < t->added.num; i++)
        t->added_by_id[t->added.tokens[i].id] = i;
    for (int32_t id = 0; id < t->model.vocab.num_ids; id++)
        mark_twin(t, id);
    return ZT_OK;
}

/* Ids that a post-processor puts are those of tokens. */
static zt_err check_frame(const struct zt_setting *post, const struct zt_tokenizer *t,
                          struct zt_fault *fault)
{
    const struct zt_text_frame *f = &t->frame;
    size_t n;

    for (size_t i = 0; i < f->num_before + f->num_after; i++) {
        int32_t id = i < f->num_before ? f->before[i] : f->after[i - f->num_before];

        if (!zt_tokenizer_token(t, id, &n))
            return zt_setting_refuse(post, fault, "puts id %d, which no token has", id);
    }
    for (int place = 0; place < 3; place++)
        for (size_t i = 0; i < f->pair.num[place]; i++)
            if (!zt_tokenizer_token(t, f->pair.ids[place][i], &n))
                return zt_setting_refuse(post, fault,
                                         "puts id %d between two texts, which no token "
                                         "has",
                                         f->pair.ids[place][i]);
    return ZT_OK;
}

zt_err zt_tokenizer_read_around(const struct zt_setting *root, struct zt_tokenizer *t,
                                struct zt_fault *fault)
{
    struct zt_setting at;
    zt_err rc = zt_added_read(root, t, fault);

    if (!rc)
        rc = index_added(t, fault);
    if (rc)
        return rc;
    zt_setting_get(root, "post_processor", &at);
    rc = zt_frame_read(&at, &t->frame, fault);
    return rc ? rc : check_frame(&at, t, fault);
}

static zt_err read_parts(const struct zt_setting *root, struct zt_tokenizer *t,
                         struct zt_fault *fault)
{
    struct zt_setting at;
    zt_err rc =
        zt_setting_check_keys(root,
                              "version truncation padding added_tokens normalizer "
                              "pre_tokenizer post_processor decoder model",
                              fault);

    if (rc)
        return rc;
    zt_setting_get(root, "model", &at);
    rc = zt_model_read(&at, &t->model, fault);
    if (rc)
        return rc;
    zt_setting_get(root, "normalizer", &at);
    rc = zt_steps_read(&at, zt_normalizer_kinds, "normalizers", &t->normalizers, fault);
    if (rc)
        return rc;
    zt_setting_get(root, "pre_tokenizer", &at);
    rc = zt_steps_read(&at, zt_pretokenizer_kinds, "pretokenizers", &t->pretokenizers,
                       fault);
    if (rc)
        return rc;
    zt_setting_get(root, "decoder", &at);
    rc = zt_steps_read(&at, zt_decoder_kinds, "decoders", &t->decoders, fault);
    return rc ? rc : zt_tokenizer_read_around(root, t, fault);
}

/* ---- opening ---- */

static zt_err read_root(const char *name, const json_t *json, uint64_t hash,
                        struct zt_tokenizer **out, struct zt_fault *fault)
{
    struct zt_setting root = {.file = name, .value = json};
    struct zt_tokenizer *t = calloc(1, sizeof(*t));
    zt_err rc;

    if (!t)
        return zt_text_out_of_memory(fault, ZT_E_NOMEM);
    t->hash = hash;
    t->end = -1;
    rc = read_parts(&root, t, fault);
    if (rc) {
        zt_tokenizer_close(t);
        return rc;
    }
    *out = t;
    return ZT_OK;
}

zt_err zt_tokenizer_parse(const char *name, const char *json, size_t n,
                          struct zt_tokenizer **out, struct zt_fault *fault)
{
    json_error_t why;
    json_t *root;
    zt_err rc;

    if (n > MAX_FILE)
        return zt_fault_set(fault, ZT_E_FORMAT, "%s: is larger than %zu MiB", name,
                            MAX_FILE >> 20);
    root = json_loadb(json, n, JSON_ALLOW_NUL, &why);
    if (!root && !why.text[0]) /* jansson has no words for it */
        return zt_fault_set(fault, ZT_E_NOMEM, "%s: no host memory", name);
    if (!root)
        return zt_fault_set(fault, ZT_E_FORMAT, "%s:%d:%d: %s", name, why.line,
                            why.column, why.text);
    rc = read_root(name, root, XXH3_64bits(json, n), out, fault);
    json_decref(root);
    return rc;
}

static bool has(const char *folder, const char *name)
{
    char *path = NULL;
    bool yes;

    if (asprintf(&path, "%s/%s", folder, name) < 0)
        return false;
    yes = access(path, F_OK) == 0;
    free(path);
    return yes;
}

bool zt_tokenizer_is_in(const char *folder)
{
    return has(folder, "tokenizer.json") || has(folder, "vocab.txt") ||
           zt_spiece_is_in(folder) ||
           (has(folder, "vocab.json") && has(folder, "merges.txt"));
}

static zt_err open_spiece(const char *folder, struct zt_tokenizer **out,
                          struct zt_fault *fault)
{
    struct zt_tokenizer *t = calloc(1, sizeof(*t));
    zt_err rc;

    if (!t)
        return zt_text_out_of_memory(fault, ZT_E_NOMEM);
    zt_vocab_init(&t->model.vocab);
    t->end = t->model.unknown = -1;
    rc = zt_spiece_open(folder, t, fault);
    if (rc)
        zt_tokenizer_close(t);
    else
        *out = t;
    return rc;
}

static zt_err open_folder(const char *folder, struct zt_tokenizer **out,
                          struct zt_fault *fault)
{
    struct zt_mapping m = {0};
    json_t *json = NULL;
    uint64_t hash = 0;
    char *path = NULL;
    zt_err rc;

    if (!has(folder, "tokenizer.json") && zt_spiece_is_in(folder))
        return open_spiece(folder, out, fault);
    if (!has(folder, "tokenizer.json")) {
        rc = zt_folder_to_json(folder, &json, &hash, fault);
        if (!rc)
            rc = read_root(folder, json, hash, out, fault);
        json_decref(json);
        return rc;
    }
    if (asprintf(&path, "%s/tokenizer.json", folder) < 0)
        return zt_text_out_of_memory(fault, ZT_E_NOMEM);
    rc = zt_mapping_open(path, &m, fault);
    if (!rc)
        rc = zt_tokenizer_parse(path, (const char *)m.data, m.bytes, out, fault);
    zt_mapping_release(&m);
    free(path);
    return rc;
}

zt_err zt_tokenizer_open(const char *folder, struct zt_tokenizer **out,
                         struct zt_fault *fault)
{
    struct zt_tokenizer *t = NULL;
    zt_err rc = open_folder(folder, &t, fault);
    char *end;

    if (rc || !t)
        return rc;
    end = zt_folder_token(folder, "eos_token");
    if (end)
        t->end = zt_tokenizer_id(t, end);
    free(end);
    t->without_types = zt_folder_leaves_types_out(folder);
    if (has(folder, "tokenizer.json"))
        rc = zt_folder_check_tokens(folder, t, fault);
    if (!rc)
        rc = zt_chat_load(folder, &t->chat, &t->hash, fault);
    if (rc)
        zt_tokenizer_close(t);
    else
        *out = t;
    return rc;
}

void zt_tokenizer_close(struct zt_tokenizer *t)
{
    if (!t)
        return;
    zt_sentencepiece_free(t->spiece.model);
    zt_steps_release(&t->normalizers);
    zt_steps_release(&t->pretokenizers);
    zt_steps_release(&t->decoders);
    zt_model_release(&t->model);
    zt_added_release(&t->added);
    zt_frame_release(&t->frame);
    zt_chat_release(&t->chat);
    free(t->added_by_id);
    free(t);
}

int64_t zt_tokenizer_vocab(const struct zt_tokenizer *t)
{
    return t->vocab;
}

int32_t zt_tokenizer_end(const struct zt_tokenizer *t)
{
    return t->end;
}

uint64_t zt_tokenizer_fingerprint(const struct zt_tokenizer *t)
{
    return t->hash;
}

size_t zt_tokenizer_bytes(const struct zt_tokenizer *t)
{
    return sizeof(*t) + t->chat.n + zt_model_bytes(&t->model) +
           zt_trie_bytes(&t->added.raw) + zt_trie_bytes(&t->added.normalized) +
           (size_t)t->vocab * sizeof(*t->added_by_id) +
           (t->spiece.model ? zt_sentencepiece_bytes(t->spiece.model) : 0);
}

static const struct zt_added_token *added_of(const struct zt_tokenizer *t, int32_t id)
{
    if (id < 0 || id >= t->vocab || t->added_by_id[id] < 0)
        return NULL;
    return &t->added.tokens[t->added_by_id[id]];
}

const char *zt_tokenizer_token(const struct zt_tokenizer *t, int32_t id, size_t *n)
{
    const struct zt_added_token *a = added_of(t, id);

    if (!a)
        return zt_vocab_token(&t->model.vocab, id, n);
    *n = a->n;
    return a->text;
}

bool zt_tokenizer_is_special(const struct zt_tokenizer *t, int32_t id)
{
    const struct zt_added_token *a = added_of(t, id);

    return a && a->special;
}

int32_t zt_tokenizer_id(const struct zt_tokenizer *t, const char *token)
{
    for (int i = 0; i < t->added.num; i++)
        if (strcmp(t->added.tokens[i].text, token) == 0)
            return t->added.tokens[i].id;
    return zt_vocab_id(&t->model.vocab, token, strlen(token));
}

/* ---- encoding ---- */

struct zt_encoder {
    const struct zt_tokenizer *t;
    struct zt_text_work work;
    struct zt_model_work model;
    struct zt_sp_work spiece;
    struct zt_buf repaired, all, raw; /* text; normalized text; pieces of the former */
    uint64_t replaced;
};

zt_err zt_encoder_open(const struct zt_tokenizer *t, struct zt_encoder **out,
                       struct zt_fault *fault)
{
    struct zt_encoder *e = calloc(1, sizeof(*e));
    zt_err rc;

    if (!e)
        return zt_text_out_of_memory(fault, ZT_E_NOMEM);
    e->t = t;
    zt_buf_init(&e->model.ids, ZT_TEXT_MAX_BYTES * 16);
    zt_buf_init(&e->model.a, ZT_TEXT_MAX_BYTES * 64);
    zt_buf_init(&e->model.b, ZT_TEXT_MAX_BYTES * 64);
    zt_buf_init(&e->repaired, ZT_TEXT_MAX_BYTES * 4);
    zt_buf_init(&e->all, ZT_TEXT_MAX_BYTES * 16);
    zt_buf_init(&e->raw, ZT_TEXT_MAX_BYTES * 64);
    zt_sp_work_init(&e->spiece);
    rc = zt_text_work_init(&e->work, fault);
    if (!rc && t->model.kind && t->model.kind->cached) {
        e->model.cache = zt_word_cache_new();
        if (!e->model.cache)
            rc = zt_text_out_of_memory(fault, ZT_E_NOMEM);
    }
    if (rc) {
        zt_encoder_close(e);
        return rc;
    }
    *out = e;
    return ZT_OK;
}

void zt_encoder_close(struct zt_encoder *e)
{
    if (!e)
        return;
    zt_text_work_release(&e->work);
    zt_sp_work_release(&e->spiece);
    zt_buf_release(&e->model.ids);
    zt_buf_release(&e->model.a);
    zt_buf_release(&e->model.b);
    zt_word_cache_free(e->model.cache);
    zt_buf_release(&e->repaired);
    zt_buf_release(&e->all);
    zt_buf_release(&e->raw);
    free(e);
}

uint64_t zt_encoder_num_replaced(const struct zt_encoder *e)
{
    return e->replaced;
}

size_t zt_encoder_bytes(const struct zt_encoder *e)
{
    return sizeof(*e) + zt_text_work_bytes(&e->work) + e->model.ids.cap + e->model.a.cap +
           e->model.b.cap + e->repaired.cap + e->all.cap + e->raw.cap +
           zt_sp_work_bytes(&e->spiece) + (e->model.cache ? zt_word_cache_bytes() : 0);
}

/* A piece of the text as it came: normalized, to the end of e->all, and cut again. */
static zt_err normalize_piece(struct zt_encoder *e, const char *text,
                              const struct zt_text_piece *p, struct zt_fault *fault)
{
    struct zt_text_work *w = &e->work;
    size_t at = zt_buf_used(&e->all), n;
    zt_err rc;

    w->lead = p->first;
    zt_buf_empty(&w->text);
    rc = zt_buf_put(&w->text, text + p->at, p->n);
    if (rc)
        return zt_text_out_of_memory(fault, rc);
    rc = zt_steps_normalize(&e->t->normalizers, w, fault);
    if (rc)
        return rc;
    n = zt_buf_used(&w->text);
    rc = zt_buf_put(&e->all, zt_text_of(&w->text), n);
    if (!rc)
        rc = zt_added_cut(&e->t->added, true, zt_text_of(&w->text), n, at, w->lead > 0,
                          &w->pieces);
    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}

/* Pieces of normalized text, those that are added tokens marked: e->work. */
static zt_err cut_text(struct zt_encoder *e, const char *text, size_t n,
                       struct zt_fault *fault)
{
    struct zt_text_work *w = &e->work;
    const struct zt_text_piece *p;
    struct zt_buf swap;
    size_t num;
    zt_err rc;

    zt_buf_empty(&e->raw);
    zt_buf_empty(&e->all);
    zt_buf_empty(&w->pieces);
    rc = zt_added_cut(&e->t->added, false, text, n, 0, true, &e->raw);
    if (rc)
        return zt_text_out_of_memory(fault, rc);
    p = zt_pieces_of(&e->raw, &num);
    for (size_t i = 0; !rc && i < num; i++) {
        if (p[i].token < 0)
            rc = normalize_piece(e, text, &p[i], fault);
        else if (zt_buf_put(&w->pieces, &p[i], sizeof(p[i])) != ZT_OK)
            rc = zt_text_out_of_memory(fault, ZT_E_NOMEM);
    }
    swap = w->text;
    w->text = e->all;
    e->all = swap;
    return rc;
}

static zt_err encode_piece(struct zt_encoder *e, const char *s, size_t n,
                           struct zt_fault *fault)
{
    const struct zt_text_model *m = &e->t->model;
    struct zt_model_work *w = &e->model;
    size_t before = zt_buf_used(&w->ids), num = 0;
    const int32_t *known = w->cache ? zt_word_cache_get(w->cache, s, n, &num) : NULL;
    zt_err rc;

    if (known) {
        rc = zt_buf_put(&w->ids, known, num * sizeof(*known));
        return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
    }
    rc = m->kind->encode(m, w, s, n, fault);
    if (!rc && w->cache && w->ids.data)
        zt_word_cache_put(w->cache, s, n,
                          (const int32_t *)(const void *)(w->ids.data + before),
                          (zt_buf_used(&w->ids) - before) / sizeof(int32_t));
    return rc;
}

static zt_err encode_pieces(struct zt_encoder *e, struct zt_fault *fault)
{
    size_t num;
    const struct zt_text_piece *p = zt_pieces_of(&e->work.pieces, &num);
    const char *text = zt_text_of(&e->work.text);
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < num; i++) {
        if (p[i].token < 0)
            rc = encode_piece(e, text + p[i].at, p[i].n, fault);
        else if (zt_model_put(&e->model.ids, p[i].token) != ZT_OK)
            rc = zt_text_out_of_memory(fault, ZT_E_NOMEM);
    }
    return rc;
}

static zt_err encode_spiece(struct zt_encoder *e, const char *text, size_t n,
                            struct zt_fault *fault)
{
    const struct zt_text_piece *p;
    size_t num;
    zt_err rc;

    zt_buf_empty(&e->raw);
    rc = zt_added_cut(&e->t->added, false, text, n, 0, true, &e->raw);
    if (rc)
        return zt_text_out_of_memory(fault, rc);
    p = zt_pieces_of(&e->raw, &num);
    for (size_t i = 0; !rc && i < num; i++) {
        if (p[i].token < 0)
            rc = zt_spiece_encode(e->t, &e->spiece, text, &p[i], &e->model.ids,
                                  &e->replaced, fault);
        else if (zt_model_put(&e->model.ids, p[i].token) != ZT_OK)
            rc = zt_text_out_of_memory(fault, ZT_E_NOMEM);
    }
    return rc;
}

static zt_err repair(struct zt_encoder *e, const char **text, size_t *n,
                     struct zt_fault *fault)
{
    zt_err rc;

    if (zt_utf8_valid_bytes(*text, *n) == *n)
        return ZT_OK;
    zt_buf_empty(&e->repaired);
    rc = zt_utf8_repair(*text, *n, &e->repaired, &e->replaced);
    if (rc)
        return zt_text_out_of_memory(fault, rc);
    *text = zt_text_of(&e->repaired);
    *n = zt_buf_used(&e->repaired);
    return ZT_OK;
}

/* What the model is given: e->work. */
static zt_err split_text(struct zt_encoder *e, const char *text, size_t n,
                         struct zt_fault *fault)
{
    const struct zt_steps *pre = &e->t->pretokenizers;
    zt_err rc = cut_text(e, text, n, fault);

    for (int i = 0; !rc && i < pre->num; i++)
        rc = pre->steps[i].kind->apply(&pre->steps[i], &e->work, fault);
    return rc;
}

static zt_err encode_steps(struct zt_encoder *e, const char *text, size_t n,
                           struct zt_fault *fault)
{
    zt_err rc = split_text(e, text, n, fault);

    return rc ? rc : encode_pieces(e, fault);
}

zt_err zt_encoder_split(struct zt_encoder *e, const char *text, size_t n,
                        zt_take_word take, void *user, struct zt_fault *fault)
{
    const struct zt_text_piece *p;
    size_t num;
    zt_err rc = n > ZT_TEXT_MAX_BYTES ? ZT_E_LIMIT : ZT_OK;

    if (rc)
        return zt_text_out_of_memory(fault, rc);
    rc = repair(e, &text, &n, fault);
    if (!rc)
        rc = split_text(e, text, n, fault);
    if (rc)
        return rc;
    p = zt_pieces_of(&e->work.pieces, &num);
    for (size_t i = 0; !rc && i < num; i++)
        if (p[i].token < 0)
            rc = take(user, zt_text_of(&e->work.text) + p[i].at, p[i].n);
    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}

static zt_err put_frame(struct zt_encoder *e, const int32_t *ids, size_t num,
                        struct zt_fault *fault)
{
    zt_err rc = zt_buf_put(&e->model.ids, ids, num * sizeof(*ids));

    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}

zt_err zt_encode(struct zt_encoder *e, const char *text, size_t n, bool frame,
                 const int32_t **ids, size_t *num, struct zt_fault *fault)
{
    const struct zt_text_frame *f = &e->t->frame;
    bool alone = e->t->spiece.model && !e->t->added.num; /* which takes any bytes */
    zt_err rc = ZT_OK;

    if (n > ZT_TEXT_MAX_BYTES)
        return zt_text_out_of_memory(fault, ZT_E_LIMIT);
    zt_buf_empty(&e->model.ids);
    if (!alone)
        rc = repair(e, &text, &n, fault);
    if (!rc && frame)
        rc = put_frame(e, f->before, f->num_before, fault);
    if (!rc)
        rc = e->t->spiece.model ? encode_spiece(e, text, n, fault)
                                : encode_steps(e, text, n, fault);
    if (!rc && frame)
        rc = put_frame(e, f->after, f->num_after, fault);
    if (rc)
        return rc;
    *num = zt_buf_used(&e->model.ids) / sizeof(**ids);
    *ids = (const int32_t *)(const void *)e->model.ids.data;
    return ZT_OK;
}
