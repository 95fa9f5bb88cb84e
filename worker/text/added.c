/*
 * added.c -- added tokens: texts that are one token wherever they stand.
 *
 * Those that are not normalized are cut out of the text as it came, the others out of what
 * the normalizers make of it, by their own normalized form. The longest that begins at the
 * leftmost place wins.
 */
#include <stdlib.h>
#include <string.h>

#include "worker/text/unicode/chars.h"
#include "worker/text/pipeline.h"

/* ---- reading ---- */

static zt_err read_token(const struct zt_setting *s, struct zt_added_token *a,
                         struct zt_fault *fault)
{
    struct zt_setting at;
    int64_t id;
    zt_err rc = zt_setting_check_keys(
        s, "id content single_word lstrip rstrip normalized special", fault);

    if (!rc)
        rc = zt_setting_int(s, "id", -1, ZT_VOCAB_MAX_ID - 1, &id, fault);
    if (!rc && id < 0) {
        zt_setting_get(s, "id", &at);
        rc = zt_setting_refuse(&at, fault, "is missing");
    }
    if (!rc)
        rc = zt_setting_bool(s, "single_word", false, &a->single_word, fault);
    if (!rc)
        rc = zt_setting_bool(s, "lstrip", false, &a->lstrip, fault);
    if (!rc)
        rc = zt_setting_bool(s, "rstrip", false, &a->rstrip, fault);
    if (!rc)
        rc = zt_setting_bool(s, "special", false, &a->special, fault);
    if (!rc)
        rc = zt_setting_bool(s, "normalized", !a->special, &a->normalized, fault);
    if (!rc)
        rc = zt_step_copy_text(s, "content", &a->text, &a->n, fault);
    if (!rc)
        a->id = (int32_t)id;
    return rc;
}

/* The id that the package gives a token that the model has not: the next one. */
static int32_t next_id(const struct zt_tokenizer *t)
{
    int32_t next = (int32_t)t->model.vocab.used;

    for (int i = 0; i < t->added.num; i++)
        if (t->added.tokens[i].id >= next)
            next = t->added.tokens[i].id + 1;
    return next;
}

/* Its id is that of the model, else the next one. */
static zt_err check_token(const struct zt_setting *s, const struct zt_tokenizer *t,
                          const struct zt_added_token *a, struct zt_fault *fault)
{
    int32_t id = zt_vocab_id(&t->model.vocab, a->text, a->n);
    size_t n;

    if (a->n == 0)
        return zt_setting_refuse(s, fault, "its content is empty");
    if (id >= 0 && id != a->id)
        return zt_setting_refuse(s, fault,
                                 "has id %d, but \"%s\" is %d in the vocabulary", a->id,
                                 a->text, id);
    if (id < 0 && zt_vocab_token(&t->model.vocab, a->id, &n))
        return zt_setting_refuse(
            s, fault, "has id %d, which another token of the vocabulary has", a->id);
    for (int i = 0; i < t->added.num; i++)
        if (t->added.tokens[i].id == a->id ||
            (t->added.tokens[i].n == a->n &&
             memcmp(t->added.tokens[i].text, a->text, a->n) == 0))
            return zt_setting_refuse(s, fault, "id %d or \"%s\" stands there twice",
                                     a->id, a->text);
    if (id < 0 && !t->spiece.model && a->id != next_id(t))
        return zt_setting_refuse(
            s, fault,
            "\"%s\" has id %d, but is %d for transformers, which numbers them one "
            "behind the other; the file that it writes says so: "
            "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
            a->text, a->id, next_id(t));
    return ZT_OK;
}

/* What the normalizers make of a token's text. */
static zt_err normalized_form(const struct zt_tokenizer *t, struct zt_text_work *w,
                              const struct zt_added_token *a, char **out, size_t *n,
                              struct zt_fault *fault)
{
    zt_err rc;

    zt_buf_empty(&w->text);
    rc = zt_buf_put(&w->text, a->text, a->n);
    if (rc)
        return zt_text_out_of_memory(fault, rc);
    rc = zt_steps_normalize(&t->normalizers, w, fault);
    if (rc)
        return rc;
    *n = zt_buf_used(&w->text);
    *out = malloc(*n + 1);
    if (!*out)
        return zt_text_out_of_memory(fault, ZT_E_NOMEM);
    memcpy(*out, zt_text_of(&w->text), *n);
    return ZT_OK;
}

/* Special ones first: of two with the same text the first one stays. */
static zt_err build_trie(const struct zt_tokenizer *t, struct zt_text_work *w,
                         bool normalized, struct zt_trie *trie, bool *any,
                         struct zt_fault *fault)
{
    const struct zt_added *a = &t->added;
    struct zt_trie_entry *e = calloc((size_t)a->num + 1, sizeof(*e));
    size_t num = 0;
    zt_err rc = ZT_OK;

    if (!e)
        return zt_text_out_of_memory(fault, ZT_E_NOMEM);
    for (int k = 0; !rc && k < 2 * a->num; k++) {
        int i = k % a->num;
        char *text = NULL;

        if (a->tokens[i].normalized != normalized || a->tokens[i].special != (k < a->num))
            continue;
        e[num].value = i;
        if (!normalized) {
            e[num].text = a->tokens[i].text;
            e[num++].n = a->tokens[i].n;
            continue;
        }
        rc = normalized_form(t, w, &a->tokens[i], &text, &e[num].n, fault);
        if (!rc && e[num].n == 0)
            rc = zt_fault_set(fault, ZT_E_FORMAT,
                              "tokenizer: nothing is left of the added token \"%s\" when "
                              "it is normalized, so it would stand everywhere",
                              a->tokens[i].text);
        if (rc)
            free(text);
        else
            e[num++].text = text;
    }
    *any = num > 0;
    if (!rc) {
        rc = zt_trie_build(trie, e, num);
        if (rc)
            zt_text_out_of_memory(fault, rc);
    }
    for (size_t i = 0; normalized && i < num; i++)
        free((char *)e[i].text);
    free(e);
    return rc;
}

zt_err zt_added_read(const struct zt_setting *root, struct zt_tokenizer *t,
                     struct zt_fault *fault)
{
    struct zt_added *a = &t->added;
    struct zt_text_work w = {0};
    struct zt_setting list, one;
    size_t num;
    zt_err rc = zt_setting_list(root, "added_tokens", false, &list, &num, fault);

    if (rc)
        return rc;
    if (num > 4096)
        return zt_setting_refuse(&list, fault, "has %zu entries, more than 4096", num);
    a->tokens = calloc(num + 1, sizeof(*a->tokens));
    if (!a->tokens)
        return zt_text_out_of_memory(fault, ZT_E_NOMEM);
    for (size_t i = 0; !rc && i < num; i++) {
        zt_setting_at(&list, i, &one);
        rc = read_token(&one, &a->tokens[i], fault);
        if (!rc)
            rc = check_token(&one, t, &a->tokens[i], fault);
        a->num++; /* its text is released in any case */
    }
    if (!rc)
        rc = zt_text_work_init(&w, fault);
    if (!rc)
        rc = build_trie(t, &w, false, &a->raw, &a->any_raw, fault);
    if (!rc)
        rc = build_trie(t, &w, true, &a->normalized, &a->any_normalized, fault);
    zt_text_work_release(&w);
    return rc;
}

void zt_added_release(struct zt_added *a)
{
    for (int i = 0; i < a->num; i++)
        free(a->tokens[i].text);
    free(a->tokens);
    zt_trie_release(&a->raw);
    zt_trie_release(&a->normalized);
    *a = (struct zt_added){0};
}

/* ---- matching ---- */

static bool is_single_word(const char *s, size_t n, size_t start, size_t end)
{
    size_t at = start;

    if (start > 0 && zt_is_word(zt_utf8_previous(s, &at)))
        return false;
    at = end;
    return end == n || !zt_is_word(zt_utf8_next(s, &at));
}

/* The token with the whitespace that it takes; false: it does not count here. */
static bool widen(const struct zt_added_token *a, const char *s, size_t n, size_t done,
                  size_t *start, size_t *end)
{
    size_t at;

    if (a->single_word && !is_single_word(s, n, *start, *end))
        return false;
    if (a->lstrip) /* not what the one before has taken */
        for (at = *start; at > done && zt_is_white(zt_utf8_previous(s, &at));)
            *start = at;
    if (a->rstrip)
        for (at = *end; at < n && zt_is_white(zt_utf8_next(s, &at));)
            *end = at;
    return true;
}

static zt_err put_piece(struct zt_buf *pieces, size_t at, size_t n, int32_t token,
                        bool first)
{
    struct zt_text_piece p = {.at = at, .n = n, .token = token, .first = first};

    return n ? zt_buf_put(pieces, &p, sizeof(p)) : ZT_OK;
}

zt_err zt_added_cut(const struct zt_added *a, bool normalized, const char *text, size_t n,
                    size_t at, bool first, struct zt_buf *pieces)
{
    const struct zt_trie *trie = normalized ? &a->normalized : &a->raw;
    bool any = normalized ? a->any_normalized : a->any_raw;
    size_t done = 0, i = 0;
    zt_err rc = ZT_OK;

    while (!rc && any && i < n) {
        size_t len = 0, start, end;
        int32_t k;

        if (trie->first[(uint8_t)text[i]] < 0) {
            i++;
            continue;
        }
        k = zt_trie_longest(trie, text + i, n - i, &len);
        if (k < 0) {
            i++;
            continue;
        }
        start = i;
        i = end = i + len; /* what is matched is not looked at again, counted or not */
        if (!widen(&a->tokens[k], text, n, done, &start, &end))
            continue;
        if (start > done) /* else one before has swallowed its beginning */
            rc = put_piece(pieces, at + done, start - done, -1, first && done == 0);
        if (!rc)
            rc = put_piece(pieces, at + start, end - start, a->tokens[k].id, false);
        done = end; /* a match within what was swallowed gives the rest back */
    }
    return rc ? rc : put_piece(pieces, at + done, n - done, -1, first && done == 0);
}
