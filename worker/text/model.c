/*
 * model.c -- what the kinds of models share: the vocabulary, the unknown token, tokens of
 * bytes.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/text/pipeline.h"

static const struct zt_model_kind *const kinds[] = {&zt_bpe, &zt_wordpiece, &zt_unigram,
                                                    &zt_wordlevel};

#define NUM_KINDS (sizeof(kinds) / sizeof(*kinds))

/* Files of old have no type: the kind whose settings they have. */
static const struct zt_model_kind *guess_kind(const struct zt_setting *s)
{
    struct zt_setting at;

    if (zt_setting_get(s, "merges", &at))
        return &zt_bpe;
    if (zt_setting_get(s, "vocab", &at) && json_is_array(at.value))
        return &zt_unigram;
    if (zt_setting_get(s, "continuing_subword_prefix", &at))
        return &zt_wordpiece;
    return &zt_wordlevel;
}

zt_err zt_model_read(const struct zt_setting *s, struct zt_text_model *m,
                     struct zt_fault *fault)
{
    char keys[256] = "type ";
    struct zt_setting at;
    const char *type;
    size_t n;
    zt_err rc;

    zt_vocab_init(&m->vocab);
    m->unknown = -1;
    memset(m->byte_ids, 0xff, sizeof(m->byte_ids));
    if (!json_is_object(s->value))
        return zt_setting_refuse(s, fault, "is missing, or no object");
    rc = zt_setting_string(s, "type", false, &type, &n, fault);
    if (rc)
        return rc;
    if (!type)
        m->kind = guess_kind(s);
    for (size_t i = 0; type && i < NUM_KINDS; i++)
        if (strcmp(kinds[i]->type, type) == 0)
            m->kind = kinds[i];
    zt_setting_get(s, "type", &at);
    if (!m->kind)
        return zt_setting_refuse(&at, fault,
                                 "%.64s is not known here; known are BPE, WordPiece, "
                                 "Unigram, WordLevel",
                                 type);
    strncat(keys, m->kind->keys, sizeof(keys) - sizeof("type "));
    rc = zt_setting_check_keys(s, keys, fault);
    return rc ? rc : m->kind->read(s, m, fault);
}

void zt_model_release(struct zt_text_model *m)
{
    if (m->kind && m->kind->release)
        m->kind->release(m);
    zt_vocab_release(&m->vocab);
    free(m->unknown_text);
    free(m->prefix);
    free(m->suffix);
    *m = (struct zt_text_model){0};
}

zt_err zt_model_read_vocab(const struct zt_setting *s, struct zt_text_model *m,
                           struct zt_fault *fault)
{
    struct zt_setting vocab;
    const char *token;
    json_t *id;

    if (!zt_setting_get(s, "vocab", &vocab) || !json_is_object(vocab.value))
        return zt_setting_refuse(&vocab, fault, "is missing, or no object");
    json_object_foreach((json_t *)vocab.value, token, id)
    {
        struct zt_setting at = {
            .in = &vocab, .file = vocab.file, .key = token, .value = id};
        zt_err rc;

        if (!json_is_integer(id))
            return zt_setting_refuse(&at, fault, "is no integer");
        rc = zt_vocab_add(&m->vocab, token, strlen(token), json_integer_value(id), false);
        if (rc == ZT_E_NOMEM)
            return zt_text_out_of_memory(fault, rc);
        if (rc)
            return zt_setting_refuse(&at, fault, "%s",
                                     rc == ZT_E_ARG
                                         ? "has the id of another token"
                                         : "has an id that is negative or too large");
    }
    return ZT_OK;
}

zt_err zt_model_read_unknown(const struct zt_setting *s, struct zt_text_model *m,
                             struct zt_fault *fault)
{
    const char *text;
    size_t n;
    zt_err rc = zt_setting_string(s, "unk_token", false, &text, &n, fault);

    if (rc || !text)
        return rc;
    m->unknown = zt_vocab_id(&m->vocab, text, n);
    if (m->unknown >= 0)
        return ZT_OK;
    m->unknown_text = strdup(text);
    return m->unknown_text ? ZT_OK : zt_text_out_of_memory(fault, ZT_E_NOMEM);
}

zt_err zt_model_refuse_unknown(const struct zt_text_model *m, const char *s, size_t n,
                               struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_FORMAT,
                        "the tokenizer has no id for \"%.*s\"%s: %s%s",
                        (int)(n < 64 ? n : 64), s, n > 64 ? "..." : "",
                        m->unknown_text ? "its unknown token is not in its vocabulary: "
                                        : "it names no unknown token",
                        m->unknown_text ? m->unknown_text : "");
}

void zt_model_find_bytes(struct zt_text_model *m)
{
    for (int b = 0; b < 256; b++) {
        char name[8];

        snprintf(name, sizeof(name), "<0x%02X>", b);
        m->byte_ids[b] = zt_vocab_id(&m->vocab, name, 6);
    }
}

zt_err zt_model_put(struct zt_buf *ids, int32_t id)
{
    return zt_buf_put(ids, &id, sizeof(id));
}

bool zt_model_put_bytes(const struct zt_text_model *m, const char *s, size_t n,
                        struct zt_buf *ids, zt_err *rc)
{
    for (size_t i = 0; i < n; i++)
        if (m->byte_ids[(uint8_t)s[i]] < 0)
            return false;
    for (size_t i = 0; !*rc && i < n; i++)
        *rc = zt_model_put(ids, m->byte_ids[(uint8_t)s[i]]);
    return true;
}

size_t zt_model_bytes(const struct zt_text_model *m)
{
    return zt_vocab_bytes(&m->vocab) + m->own_bytes;
}
