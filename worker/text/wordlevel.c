/* wordlevel.c -- WordLevel: a piece is a token, or unknown. */
#include "worker/text/pipeline.h"

static zt_err read_model(const struct zt_setting *s, struct zt_text_model *m,
                         struct zt_fault *fault)
{
    zt_err rc = zt_model_read_vocab(s, m, fault);

    return rc ? rc : zt_model_read_unknown(s, m, fault);
}

static zt_err encode(const struct zt_text_model *m, struct zt_model_work *w,
                     const char *text, size_t n, struct zt_fault *fault)
{
    int32_t id = zt_vocab_id(&m->vocab, text, n);
    zt_err rc;

    if (id < 0)
        id = m->unknown;
    if (id < 0)
        return zt_model_refuse_unknown(m, text, n, fault);
    rc = zt_model_put(&w->ids, id);
    return rc ? zt_text_out_of_memory(fault, rc) : ZT_OK;
}

const struct zt_model_kind zt_wordlevel = {
    .type = "WordLevel",
    .keys = "vocab unk_token",
    .read = read_model,
    .encode = encode,
};
