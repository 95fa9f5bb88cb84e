/*
 * wordpiece.c -- WordPiece: the longest token that begins a word, then the longest that
 * goes on, with a prefix; a word that does not come out even is unknown as a whole.
 */
#include <string.h>

#include "worker/text/unicode/chars.h"
#include "worker/text/pipeline.h"

static zt_err read_model(const struct zt_setting *s, struct zt_text_model *m,
                         struct zt_fault *fault)
{
    zt_err rc = zt_model_read_vocab(s, m, fault);

    if (!rc)
        rc = zt_model_read_unknown(s, m, fault);
    if (!rc)
        rc = zt_step_copy_text(s, "continuing_subword_prefix", &m->prefix,
                               &m->prefix_bytes, fault);
    if (!rc)
        rc = zt_setting_int(s, "max_input_chars_per_word", 100, INT32_MAX,
                            &m->max_word_chars, fault);
    for (int32_t id = 0; id < m->vocab.num_ids; id++)
        if (m->vocab.tokens[id].n != ZT_VOCAB_NONE &&
            m->vocab.tokens[id].n > m->longest_token)
            m->longest_token = m->vocab.tokens[id].n;
    return rc;
}

/* The longest token at `from`; its end, or `from`. */
static zt_err longest(const struct zt_text_model *m, struct zt_model_work *w,
                      const char *text, size_t n, size_t from, size_t *end, int32_t *id)
{
    size_t prefix = from ? m->prefix_bytes : 0;
    size_t most = n - from;
    zt_err rc;

    if (m->longest_token < prefix)
        return ZT_OK;
    if (most > m->longest_token - prefix)
        most = m->longest_token - prefix;
    zt_buf_empty(&w->a);
    rc = zt_buf_put(&w->a, m->prefix, prefix);
    if (!rc)
        rc = zt_buf_put(&w->a, text + from, most);
    for (size_t k = most; !rc && k > 0; k--) {
        if (from + k < n && ((uint8_t)text[from + k] & 0xc0) == 0x80)
            continue; /* within a character */
        *id = zt_vocab_id(&m->vocab, zt_text_of(&w->a), prefix + k);
        if (*id >= 0) {
            *end = from + k;
            return ZT_OK;
        }
    }
    return rc;
}

static size_t count_chars(const char *s, size_t n)
{
    size_t num = 0;

    for (size_t i = 0; i < n; i++)
        num += ((uint8_t)s[i] & 0xc0) != 0x80;
    return num;
}

static zt_err encode(const struct zt_text_model *m, struct zt_model_work *w,
                     const char *text, size_t n, struct zt_fault *fault)
{
    size_t before = w->ids.len;
    bool bad = (int64_t)count_chars(text, n) > m->max_word_chars;
    zt_err rc = ZT_OK;

    for (size_t at = 0; !rc && !bad && at < n;) {
        size_t end = at;
        int32_t id = -1;

        rc = longest(m, w, text, n, at, &end, &id);
        if (!rc && end == at)
            bad = true;
        else if (!rc)
            rc = zt_model_put(&w->ids, id);
        at = end;
    }
    if (!rc && bad) {
        if (m->unknown < 0)
            return zt_model_refuse_unknown(m, text, n, fault);
        w->ids.len = before;
        rc = zt_model_put(&w->ids, m->unknown);
    }
    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}

const struct zt_model_kind zt_wordpiece = {
    .type = "WordPiece",
    .keys = "vocab unk_token continuing_subword_prefix max_input_chars_per_word",
    .read = read_model,
    .encode = encode,
    .cached = true,
};
