/*
 * deberta_config.h -- the numbers of a DeBERTa v2 or v3: from --model, from single options, or
 * from the config.json that weights come with, and out again for transformers.
 *
 * A key that a config.json leaves out means what transformers takes for it, which is another
 * model than any that is published. A setting that is not built is an error that names it.
 */
#ifndef MODELS_DEBERTA_CONFIG_H
#define MODELS_DEBERTA_CONFIG_H

#include "encoder.h"

struct deberta_config {
    zt_task task;
    int64_t vocab, width, inner, heads, num_layers, positions, types, pad, labels;
    int64_t embedding; /* width of embeddings, projected to `width` where it is another */
    int64_t max_distance,
        buckets;         /* of distances on either side; buckets 0: one for each */
    int64_t conv_kernel; /* tokens that the convolution sees; 0: none */
    bool relative, by_query, by_key; /* relative attention, and its two terms */
    bool share_key, norm_relative, absolute, legacy, tied;
    const struct encoder_activation *activation, *pooler_activation, *conv_activation;
    double drop, attn_drop, pooler_drop, head_drop;
    double eps, deviation;
};

/* ---- sizes ---- */

static const struct deberta_size {
    const char *name;
    int64_t layers, heads, width, inner, vocab, conv_kernel;
} sizes[] = {
    {"deberta-v3-base", 12, 12, 768, 3072, 128100, 0},
    {"deberta-v3-xsmall", 12, 6, 384, 1536, 128100, 0},
    {"deberta-v3-small", 6, 12, 768, 3072, 128100, 0},
    {"deberta-v3-large", 24, 16, 1024, 4096, 128100, 0},
    {"mdeberta-v3-base", 12, 12, 768, 3072, 251000, 0},
    {"deberta-v2-xlarge", 24, 24, 1536, 6144, 128100, 3},
    {"deberta-v2-xxlarge", 48, 24, 1536, 6144, 128100, 3},
};

/* What transformers takes for keys that a config.json leaves out. */
static const struct deberta_size absent = {"", 24, 24, 1536, 6144, 128100, 0};

static const struct zt_option options[] = {
    {.name = "model",
     .kind = ZT_OPT_CHOICE,
     .value = "SIZE",
     .def = "deberta-v3-base",
     .choices = "deberta-v3-base|deberta-v3-xsmall|deberta-v3-small|deberta-v3-large|"
                "mdeberta-v3-base|deberta-v2-xlarge|deberta-v2-xxlarge",
     .help = "a published size; the options below change single numbers of it"},
    INT("hidden_size", 1, 1 << 20, "width of the model"),
    INT("intermediate_size", 1, 1 << 22, "width of the feed-forward part"),
    INT("num_hidden_layers", 1, 1000, "transformer layers"),
    INT("num_attention_heads", 1, 1024, "attention heads; divides hidden_size"),
    INT("max_position_embeddings", 1, 1 << 24,
        "distances that differ; 512, or block_size if longer"),
    INT("position_buckets", -1, 1 << 20,
        "of distances on either side, the near ones of one each; 256; -1: no buckets"),
    INT("conv_kernel_size", 0, 255,
        "tokens that a convolution beside the first layer sees, an odd number; 0: none"),
    INT("type_vocab_size", 0, 1 << 16, "types of tokens; 0: they make no difference"),
    INT("vocab_size", 1, 1 << 30,
        "rows of the embedding; what the data need, else the size's"),
    ENCODER_DROPOUT,
    {.name = NULL},
};

/* ---- in ---- */

/* One word of pos_att_type: "c2p" or "p2c", the terms by query and by key. transformers makes
 * a list with an empty word of an empty string. */
static void read_term(zt_model *m, struct deberta_config *c, const char *word, size_t n)
{
    if (n == 3 && strncmp(word, "c2p", n) == 0)
        c->by_query = true;
    else if (n == 3 && strncmp(word, "p2c", n) == 0)
        c->by_key = true;
    else if (n)
        zt_model_fail(m, "pos_att_type %.*s of config.json; c2p and p2c are built",
                      (int)n, word);
}

/* A list of words, or one string with | between them. */
static void read_terms(zt_model *m, struct deberta_config *c)
{
    int64_t num = zt_model_config_length(m, "pos_att_type");
    const char *word;
    char key[48];

    if (!zt_model_has_config(m)) {
        c->by_query = c->by_key = true;
        return;
    }
    for (int64_t i = 0; i < num && !zt_model_status(m); i++) {
        snprintf(key, sizeof(key), "pos_att_type.%lld", (long long)i);
        word = zt_model_config_string(m, key, "");
        read_term(m, c, word, strlen(word));
    }
    word = num < 0 ? zt_model_config_string(m, "pos_att_type", "") : "";
    while (*word && !zt_model_status(m)) {
        size_t n = strcspn(word, "|");

        read_term(m, c, word, n);
        word += n + (word[n] != '\0');
    }
}

/* A width that transformers lets a config.json say, and that has to be this one. */
static void must_be(zt_model *m, const char *key, int64_t value)
{
    int64_t said = zt_model_config_int(m, key, value);

    if (said != value)
        zt_model_fail(m, "%s %lld of config.json: %lld is built", key, (long long)said,
                      (long long)value);
}

/* Of the kind that is built, and nothing of it is passed over. */
static void check_config(zt_model *m, const struct deberta_config *c)
{
    static const char *const ignored[] = {
        "architectures", /* a body is a body: other heads are left aside */
        "id2label",      /* the worker reads these three */
        "label2id",
        "num_labels",
        "gradient_checkpointing",  /* an option of the run */
        "chunk_size_feed_forward", /* the same numbers in pieces */
        "bos_token_id",
        "eos_token_id",
        "z_steps", /* of another decoder of masked tokens, which transformers has not */
        NULL};

    zt_model_config_must(m, "norm_rel_ebd", "[\"layer_norm\", \"none\"]");
    zt_model_config_must(m, "conv_groups", "[1]");
    must_be(m, "attention_head_size", c->width / c->heads);
    must_be(m, "pooler_hidden_size", c->width);
    check_problem_type(m);
    zt_model_config_end(m, ignored);
}

static zt_err check_numbers(zt_model *m, const struct deberta_config *c)
{
    zt_err rc = encoder_check_sizes(m, c->width, c->heads, c->pad, c->vocab);

    if (rc)
        return rc;
    if (c->embedding < 1)
        return zt_model_fail(m, "embedding_size %lld of config.json is not above 0",
                             (long long)c->embedding);
    if (c->relative && !c->by_query && !c->by_key)
        return zt_model_fail(m,
                             "relative_attention of config.json without c2p and p2c in "
                             "pos_att_type is not built: it needs one of them, or both");
    if (c->buckets == 1 || (c->buckets > 1 && c->max_distance <= c->buckets / 2 + 1))
        return zt_model_fail(
            m,
            "position_buckets %lld: want 2 or more, less than half of "
            "them one below the %lld distances of max_relative_positions "
            "or max_position_embeddings",
            (long long)c->buckets, (long long)c->max_distance);
    if (c->conv_kernel && c->conv_kernel % 2 == 0)
        return zt_model_fail(m, "conv_kernel_size %lld is not odd",
                             (long long)c->conv_kernel);
    if (!c->legacy && c->task == ZT_TASK_MASKED_LM && c->embedding != c->width)
        return zt_model_fail(
            m,
            "legacy false of config.json wants embedding_size %lld to be "
            "hidden_size %lld",
            (long long)c->embedding, (long long)c->width);
    return zt_model_status(m);
}

/* What makes the attention of one DeBERTa differ from another's. */
static void read_relative(zt_model *m, struct deberta_config *c)
{
    bool imported = zt_model_has_config(m);
    const char *norm =
        zt_model_config_string(m, "norm_rel_ebd", imported ? "none" : "layer_norm");
    int64_t buckets = pick(m, "position_buckets", imported ? -1 : 256);

    c->relative = imported_flag(m, "relative_attention", !imported);
    read_terms(m, c);
    c->share_key = imported_flag(m, "share_att_key", !imported);
    c->norm_relative = strcmp(norm, "layer_norm") == 0;
    c->buckets = buckets > 0 ? buckets : 0;
    c->max_distance = zt_model_config_int(m, "max_relative_positions", -1);
    if (c->max_distance < 1)
        c->max_distance = c->positions;
}

static void read_dropouts(zt_model *m, struct deberta_config *c)
{
    double drop = zt_args_float(zt_model_args(m), "dropout");

    c->drop = pick_dropout(m, "hidden_dropout_prob", drop);
    c->attn_drop = pick_dropout(m, "attention_probs_dropout_prob", drop);
    c->pooler_drop = imported_real(m, "pooler_dropout", 0, 0, 1);
    c->head_drop = pick_dropout(m, "cls_dropout", c->drop);
    if (c->task == ZT_TASK_TAG)
        c->head_drop = c->drop;
}

static zt_err read_config(zt_model *m, struct deberta_config *c)
{
    const char *size = zt_args_string(zt_model_args(m), "model");
    int64_t vocab = zt_model_data_vocab(m), block = zt_model_block_size(m);
    bool imported = zt_model_has_config(m);
    const struct deberta_size *p = sizes, *base;

    while (strcmp(p->name, size) != 0)
        p++; /* the option's choices are the sizes */
    base = imported ? &absent : p;
    /* first: what is wrong with the settings of another model is of no use */
    zt_model_config_must(m, "model_type", "[\"deberta-v2\"]");
    *c = (struct deberta_config){
        .task = zt_model_task(m),
        .num_layers = pick(m, "num_hidden_layers", base->layers),
        .heads = pick(m, "num_attention_heads", base->heads),
        .width = pick(m, "hidden_size", base->width),
        .inner = pick(m, "intermediate_size", base->inner),
        .positions =
            pick(m, "max_position_embeddings", !imported && block > 512 ? block : 512),
        .types = pick(m, "type_vocab_size", 0),
        .vocab = pick(m, "vocab_size", vocab && !imported ? vocab : base->vocab),
        .conv_kernel = pick(m, "conv_kernel_size", base->conv_kernel),
        .pad = zt_model_config_int(m, "pad_token_id", 0),
        .labels = encoder_labels(m),
        .absolute = imported_flag(m, "position_biased_input", imported),
        .legacy = imported_flag(m, "legacy", true),
        .tied = imported_flag(m, "tie_word_embeddings", true),
        .activation = imported_activation(m, "hidden_act", "gelu"),
        .pooler_activation = imported_activation(m, "pooler_hidden_act", "gelu"),
        .conv_activation = imported_activation(m, "conv_act", imported ? "tanh" : "gelu"),
        .eps = imported_real(m, "layer_norm_eps", 1e-7, 0, 1),
        .deviation = imported_real(m, "initializer_range", 0.02, 0, 100),
    };
    c->embedding = zt_model_config_int(m, "embedding_size", c->width);
    read_relative(m, c);
    read_dropouts(m, c);
    check_config(m, c);
    check_model_size(m, size, p->layers, p->width, c->num_layers, c->width);
    return zt_model_status(m) ? zt_model_status(m) : check_numbers(m, c);
}

/* ---- out ---- */

static void export_flag(zt_model *m, const char *key, bool value)
{
    zt_model_export(m, key, value ? "true" : "false");
}

static void export_activation(zt_model *m, const char *key,
                              const struct encoder_activation *act)
{
    zt_model_export(m, key, "\"%s\"", act->name);
}

static void export_relative(zt_model *m, const struct deberta_config *c)
{
    export_flag(m, "relative_attention", c->relative);
    export_flag(m, "share_att_key", c->share_key);
    zt_model_export(m, "norm_rel_ebd", c->norm_relative ? "\"layer_norm\"" : "\"none\"");
    zt_model_export(m, "pos_att_type", "[%s%s%s]", c->by_key ? "\"p2c\"" : "",
                    c->by_key && c->by_query ? ", " : "", c->by_query ? "\"c2p\"" : "");
    zt_model_export(m, "position_buckets", "%lld",
                    (long long)(c->buckets ? c->buckets : -1));
    zt_model_export(m, "max_relative_positions", "%lld",
                    (long long)(c->max_distance == c->positions ? -1 : c->max_distance));
}

/* What `transformers` needs in config.json to open our weights. */
static void export_config(zt_model *m, const struct deberta_config *c)
{
    const struct {
        const char *key;
        double value;
    } reals[] = {{"hidden_dropout_prob", c->drop},
                 {"attention_probs_dropout_prob", c->attn_drop},
                 {"pooler_dropout", c->pooler_drop},
                 {"layer_norm_eps", c->eps},
                 {"initializer_range", c->deviation}};

    EXPORT_SETTINGS(
        m, {"vocab_size", c->vocab}, {"hidden_size", c->width},
        {"num_hidden_layers", c->num_layers}, {"num_attention_heads", c->heads},
        {"intermediate_size", c->inner}, {"max_position_embeddings", c->positions},
        {"type_vocab_size", c->types}, {"pad_token_id", c->pad},
        {"embedding_size", c->embedding}, {"conv_kernel_size", c->conv_kernel});
    for (size_t i = 0; i < sizeof(reals) / sizeof(reals[0]); i++)
        export_real(m, reals[i].key, reals[i].value);
    if (c->head_drop != c->drop)
        export_real(m, "cls_dropout", c->head_drop);
    export_relative(m, c);
    export_flag(m, "position_biased_input", c->absolute);
    export_flag(m, "legacy", c->legacy);
    export_flag(m, "tie_word_embeddings", c->tied);
    export_activation(m, "hidden_act", c->activation);
    export_activation(m, "pooler_hidden_act", c->pooler_activation);
    export_activation(m, "conv_act", c->conv_activation);
    zt_model_export(m, "model_type", "\"deberta-v2\"");
    export_task(m, "DebertaV2");
}

#endif
