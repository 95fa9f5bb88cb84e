/*
 * seq2seq.h -- what the plugins of encoder-decoders share: an option, parameters by name, and
 * heads of attention.
 */
#ifndef MODELS_SEQ2SEQ_H
#define MODELS_SEQ2SEQ_H

#include "settings.h"

#define DROPOUT                                                                          \
    {                                                                                    \
        .name = "dropout", .kind = ZT_OPT_FLOAT, .value = "P", .def = "0", .max = 0.99,  \
        .help = "wherever the model has dropout, in place of what config.json says"      \
    }

struct seq2seq_linear {
    zt_param *w, *b; /* of a linear map or a norm; b NULL: it has none */
};

/* PREFIX NAME with shape (rows, columns), or (rows) of norms and biases, which do not decay. */
static inline zt_param *declare(zt_block *b, const char *prefix, const char *name,
                                int64_t rows, int64_t columns, struct zt_init init)
{
    char full[160];

    snprintf(full, sizeof(full), "%s%s", prefix, name);
    if (!columns)
        return zt_block_param(b, full, ZT_SHAPE(rows), init, ZT_NO_DECAY);
    return zt_block_param(b, full, ZT_SHAPE(rows, columns), init, 0);
}

/* The tokens that a text begins and ends with, as transformers has them in config.json: those
 * that were imported, where null says none, else these. -1: none. */
static inline void export_tokens(zt_model *m, int64_t pad, int64_t bos, int64_t eos,
                                 int64_t start)
{
    const struct {
        const char *key;
        int64_t id;
    } all[] = {{"pad_token_id", pad},
               {"bos_token_id", bos},
               {"eos_token_id", eos},
               {"decoder_start_token_id", start}};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (i < 3 && zt_model_config_has(m, all[i].key))
            zt_model_export(m, all[i].key, "null");
        else if (all[i].id >= 0)
            zt_model_export(m, all[i].key, "%lld", (long long)all[i].id);
        zt_model_export_imported(m, all[i].key);
    }
    zt_model_export_imported(m, "forced_bos_token_id");
    zt_model_export_imported(m, "forced_eos_token_id");
    zt_model_export(m, "is_encoder_decoder", "true");
}

/* What the decoder begins with is a token of the model. */
static inline void check_start(zt_model *m, int64_t start, int64_t vocab)
{
    if (start < 0 || start >= vocab)
        zt_model_fail(m,
                      "decoder_start_token_id %lld is no token of the vocabulary of "
                      "%lld",
                      (long long)start, (long long)vocab);
}

/* (B, T, H * d) as heads (B, T, H, d); NULL stays NULL. */
static inline zt_tensor *as_heads(zt_step *s, zt_tensor *x, int64_t heads)
{
    return zt_reshape(s, x,
                      ZT_SHAPE(zt_tensor_dim(x, 0), zt_tensor_dim(x, 1), heads,
                               zt_tensor_dim(x, -1) / heads));
}

/* And back. */
static inline zt_tensor *from_heads(zt_step *s, zt_tensor *x)
{
    return zt_reshape(s, x,
                      ZT_SHAPE(zt_tensor_dim(x, 0), zt_tensor_dim(x, 1),
                               zt_tensor_dim(x, 2) * zt_tensor_dim(x, 3)));
}

#endif
