/*
 * bert_config.h -- the numbers of a BERT: from --model, from single options, or from the
 * config.json that weights come with, and out again for transformers.
 *
 * Names of options are the keys of config.json. Without weights an option changes one
 * number of the published size; with weights config.json says all, and an option that
 * says something else is an error. A setting that is not built is an error that names it.
 */
#ifndef MODELS_BERT_CONFIG_H
#define MODELS_BERT_CONFIG_H

#include "encoder.h"

struct bert_config {
    zt_task task;
    int64_t vocab, width, inner, heads, num_layers, positions, types, pad, labels;
    const struct encoder_activation *activation;
    bool tied;
    double drop, attn_drop,
        head_drop; /* of residual branches, attention, the classifier */
    double eps, deviation;
};

static const struct {
    const char *name;
    int64_t layers, heads, width, inner;
} presets[] = {
    {"bert-base", 12, 12, 768, 3072}, {"bert-large", 24, 16, 1024, 4096},
    {"bert-mini", 4, 4, 256, 1024},   {"bert-small", 4, 8, 512, 2048},
    {"bert-medium", 8, 8, 512, 2048}, {"bert-tiny", 2, 2, 128, 512},
};

/* ---- options ---- */

static const struct zt_option options[] = {
    {.name = "model",
     .kind = ZT_OPT_CHOICE,
     .value = "SIZE",
     .def = "bert-base",
     .choices = "bert-base|bert-large|bert-tiny|bert-mini|bert-small|bert-medium",
     .help = "a published size; the options below change single numbers of it"},
    INT("hidden_size", 1, 1 << 20, "width of the model"),
    INT("intermediate_size", 1, 1 << 22, "width of the feed-forward part"),
    INT("num_hidden_layers", 1, 1000, "transformer layers"),
    INT("num_attention_heads", 1, 1024, "attention heads; divides hidden_size"),
    INT("max_position_embeddings", 1, 1 << 24,
        "longest sequence; 512, or block_size if longer"),
    INT("type_vocab_size", 1, 1 << 16, "types of tokens: 2 for pairs of texts"),
    INT("vocab_size", 1, 1 << 30,
        "rows of the embedding; what the data need, else 30522"),
    ENCODER_DROPOUT,
    {.name = NULL},
};

/* The kind that config.json names is built, and nothing of it is passed over. */
static void check_config(zt_model *m)
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
        "directionality", /* of the files that came from TensorFlow */
        "pooler_*",
        NULL};

    zt_model_config_must(m, "position_embedding_type", "[\"absolute\"]");
    zt_model_config_must(m, "is_decoder", "[false]");
    zt_model_config_must(m, "add_cross_attention", "[false]");
    check_problem_type(m);
    zt_model_config_end(m, ignored);
}

static zt_err read_config(zt_model *m, struct bert_config *c)
{
    const char *size = zt_args_string(zt_model_args(m), "model");
    int64_t vocab = zt_model_data_vocab(m), block = zt_model_block_size(m);
    double drop;
    size_t p = 0;

    while (strcmp(presets[p].name, size) != 0)
        p++; /* the option's choices are the presets */
    drop = zt_args_float(zt_model_args(m), "dropout");
    /* first: what is wrong with the settings of another model is of no use */
    zt_model_config_must(m, "model_type", "[\"bert\"]");
    *c = (struct bert_config){
        .task = zt_model_task(m),
        .num_layers = pick(m, "num_hidden_layers", presets[p].layers),
        .heads = pick(m, "num_attention_heads", presets[p].heads),
        .width = pick(m, "hidden_size", presets[p].width),
        .inner = pick(m, "intermediate_size", presets[p].inner),
        .positions = pick(m, "max_position_embeddings", block > 512 ? block : 512),
        .types = pick(m, "type_vocab_size", 2),
        .vocab = pick(m, "vocab_size", vocab ? vocab : 30522),
        .pad = zt_model_config_int(m, "pad_token_id", 0),
        .labels = encoder_labels(m),
        .activation = imported_activation(m, "hidden_act", "gelu"),
        .tied = imported_flag(m, "tie_word_embeddings", true),
        .drop = pick_dropout(m, "hidden_dropout_prob", drop),
        .attn_drop = pick_dropout(m, "attention_probs_dropout_prob", drop),
        .eps = imported_real(m, "layer_norm_eps", 1e-12, 0, 1),
        .deviation = imported_real(m, "initializer_range", 0.02, 0, 100),
    };
    c->head_drop = pick_dropout(m, "classifier_dropout", c->drop);
    check_config(m);
    check_model_size(m, size, presets[p].layers, presets[p].width, c->num_layers,
                     c->width);
    if (zt_model_status(m))
        return zt_model_status(m);
    return encoder_check_sizes(m, c->width, c->heads, c->pad, c->vocab);
}

/* What `transformers` needs in config.json to open our weights. */
static void export_config(zt_model *m, const struct bert_config *c)
{
    EXPORT_SETTINGS(m, {"vocab_size", c->vocab}, {"hidden_size", c->width},
                    {"num_hidden_layers", c->num_layers},
                    {"num_attention_heads", c->heads}, {"intermediate_size", c->inner},
                    {"max_position_embeddings", c->positions},
                    {"type_vocab_size", c->types}, {"pad_token_id", c->pad});
    zt_model_export(m, "model_type", "\"bert\"");
    export_task(m, "Bert");
    zt_model_export(m, "hidden_act", "\"%s\"", c->activation->name);
    export_real(m, "hidden_dropout_prob", c->drop);
    export_real(m, "attention_probs_dropout_prob", c->attn_drop);
    if (c->head_drop != c->drop)
        export_real(m, "classifier_dropout", c->head_drop);
    export_real(m, "layer_norm_eps", c->eps);
    export_real(m, "initializer_range", c->deviation);
    zt_model_export(m, "tie_word_embeddings", c->tied ? "true" : "false");
}

#endif
