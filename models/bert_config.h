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

#include <string.h>

#include <zlaunch/plugin.h>

struct bert_config {
    zt_task task;
    int64_t vocab, width, inner, heads, num_layers, positions, types, pad, labels;
    unsigned activation; /* flag of zt_linear(); 0: relu */
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

static const struct {
    zt_task task;
    const char *class;
} classes[] = {
    {ZT_TASK_MASKED_LM, "BertForMaskedLM"},
    {ZT_TASK_CLASSIFY, "BertForSequenceClassification"},
    {ZT_TASK_REGRESS, "BertForSequenceClassification"},
    {ZT_TASK_TAG, "BertForTokenClassification"},
};

/* ---- options ---- */

#define INT(option, least, most, text)                                                   \
    {                                                                                    \
        .name = option, .kind = ZT_OPT_INT, .value = "N", .min = least, .max = most,     \
        .help = text                                                                     \
    }

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
    {.name = "dropout",
     .kind = ZT_OPT_FLOAT,
     .value = "P",
     .def = "0.1",
     .max = 0.99,
     .help = "of embeddings, attention, residual branches and the classifier; without it "
             "what the config.json of weights says"},
    {.name = NULL},
};

/* An option the user gave, else the imported config.json, else the default. */
static int64_t pick(zt_model *m, const char *name, int64_t def)
{
    const zt_args *args = zt_model_args(m);
    int64_t imported = zt_model_config_int(m, name, def);

    if (!zt_args_given(args, name))
        return imported;
    if (zt_model_has_config(m) && imported != zt_args_int(args, name))
        zt_model_fail(m, "--%s %lld, but the config.json of the weights says %lld", name,
                      (long long)zt_args_int(args, name), (long long)imported);
    return zt_args_int(args, name);
}

/* A number of config.json that no option has: at least `least`, below `most`. */
static double imported(zt_model *m, const char *key, double def, double least,
                       double most)
{
    double x = zt_model_config_float(m, key, def);

    if (!(x >= least && x < most))
        zt_model_fail(m, "%s %g of config.json is not in [%g, %g)", key, x, least, most);
    return x;
}

/* --dropout is for all of them; config.json has one for each. */
static double dropout(zt_model *m, const char *key, double def)
{
    double of_config = imported(m, key, def, 0, 1);
    const zt_args *args = zt_model_args(m);

    return zt_args_given(args, "dropout") ? zt_args_float(args, "dropout") : of_config;
}

/* The kind that config.json names is built, and nothing of it is passed over. */
static void check_config(zt_model *m, const struct bert_config *c)
{
    static const char *const ignored[] = {
        "architectures", /* a body is a body: other heads are left aside */
        "id2label",      /* the worker reads these three */
        "label2id",
        "num_labels",
        "gradient_checkpointing",  /* an option of the run */
        "chunk_size_feed_forward", /* the same numbers in pieces */
        "use_cache",               /* of generation */
        "bos_token_id",
        "eos_token_id",
        "directionality", /* of the files that came from TensorFlow */
        "pooler_*",
        NULL};

    zt_model_config_must(m, "model_type", "[\"bert\"]");
    zt_model_config_must(m, "hidden_act",
                         "[\"gelu\", \"gelu_new\", \"gelu_pytorch_tanh\", \"relu\"]");
    zt_model_config_must(m, "position_embedding_type", "[\"absolute\"]");
    zt_model_config_must(m, "is_decoder", "[false]");
    zt_model_config_must(m, "add_cross_attention", "[false]");
    if (c->task == ZT_TASK_CLASSIFY)
        zt_model_config_must(m, "problem_type", "[\"single_label_classification\"]");
    else if (c->task == ZT_TASK_REGRESS)
        zt_model_config_must(m, "problem_type", "[\"regression\"]");
    else
        (void)zt_model_config_string(m, "problem_type", NULL);
    zt_model_config_end(m, ignored);
}

static unsigned activation(zt_model *m)
{
    const char *name = zt_model_config_string(m, "hidden_act", "gelu");

    return strcmp(name, "gelu") == 0   ? ZT_GELU_ERF
           : strcmp(name, "relu") == 0 ? 0
                                       : ZT_GELU_TANH;
}

/* A size that was asked for has to be that of the weights. */
static void check_size(zt_model *m, const struct bert_config *c, size_t p)
{
    if (zt_model_has_config(m) && zt_args_given(zt_model_args(m), "model") &&
        (c->num_layers != presets[p].layers || c->width != presets[p].width))
        zt_model_fail(m,
                      "--model %s has %lld layers of width %lld, but the config.json of "
                      "the weights says %lld of %lld; leave --model out",
                      presets[p].name, (long long)presets[p].layers,
                      (long long)presets[p].width, (long long)c->num_layers,
                      (long long)c->width);
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
        .labels = zt_model_num_labels(m) ? zt_model_num_labels(m) : 2,
        .activation = activation(m),
        .tied = zt_model_config_int(m, "tie_word_embeddings", 1) != 0,
        .drop = dropout(m, "hidden_dropout_prob", drop),
        .attn_drop = dropout(m, "attention_probs_dropout_prob", drop),
        .eps = imported(m, "layer_norm_eps", 1e-12, 0, 1),
        .deviation = imported(m, "initializer_range", 0.02, 0, 100),
    };
    if (c->task == ZT_TASK_REGRESS)
        c->labels = 1;
    c->head_drop = dropout(m, "classifier_dropout", c->drop);
    check_config(m, c);
    check_size(m, c, p);
    if (zt_model_status(m))
        return zt_model_status(m);
    if (c->width % c->heads)
        return zt_model_fail(m,
                             "hidden_size %lld is not a multiple of num_attention_heads "
                             "%lld",
                             (long long)c->width, (long long)c->heads);
    if (c->pad < 0 || c->pad >= c->vocab)
        return zt_model_fail(m, "pad_token_id %lld is not below vocab_size %lld",
                             (long long)c->pad, (long long)c->vocab);
    return zt_model_status(m);
}

/* What `transformers` needs in config.json to open our weights. */
static void export_config(zt_model *m, const struct bert_config *c)
{
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {{"vocab_size", c->vocab},
                 {"hidden_size", c->width},
                 {"num_hidden_layers", c->num_layers},
                 {"num_attention_heads", c->heads},
                 {"intermediate_size", c->inner},
                 {"max_position_embeddings", c->positions},
                 {"type_vocab_size", c->types},
                 {"pad_token_id", c->pad}};
    size_t t = 0;

    while (classes[t].task != c->task)
        t++; /* the worker asks for those of zt_plugin.tasks alone */
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        zt_model_export(m, sizes[i].key, "%lld", (long long)sizes[i].value);
    zt_model_export(m, "model_type", "\"bert\"");
    zt_model_export(m, "architectures", "[\"%s\"]", classes[t].class);
    zt_model_export(m, "hidden_act",
                    c->activation == ZT_GELU_ERF ? "\"gelu\""
                    : c->activation              ? "\"gelu_new\""
                                                 : "\"relu\"");
    zt_model_export(m, "hidden_dropout_prob", "%.9g", c->drop);
    zt_model_export(m, "attention_probs_dropout_prob", "%.9g", c->attn_drop);
    if (c->head_drop != c->drop)
        zt_model_export(m, "classifier_dropout", "%.9g", c->head_drop);
    zt_model_export(m, "layer_norm_eps", "%.9g", c->eps);
    zt_model_export(m, "initializer_range", "%.9g", c->deviation);
    zt_model_export(m, "tie_word_embeddings", c->tied ? "true" : "false");
    if (c->task == ZT_TASK_REGRESS)
        zt_model_export(m, "problem_type", "\"regression\"");
    else if (c->task == ZT_TASK_CLASSIFY)
        zt_model_export(m, "problem_type", "\"single_label_classification\"");
}

#endif
