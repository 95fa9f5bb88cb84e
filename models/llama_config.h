/*
 * llama_config.h -- the numbers of a model of the Llama family: from --model, from single
 * options, or from the config.json that weights come with, and out again for
 * transformers.
 *
 * Names of options are the keys of config.json. Without weights an option changes one
 * number of the published size; with weights config.json says all, and an option that
 * says something else is an error. A setting that is not built is an error that names it.
 */
#ifndef MODELS_LLAMA_CONFIG_H
#define MODELS_LLAMA_CONFIG_H

#include <math.h>

#include "settings.h"

#define MAX_HEAD_DIM 1024

enum llama_kind { LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA };

/* Which layers see a window of the last tokens only. */
enum window_rule {
    NO_WINDOW,
    EVERY_LAYER,  /* sliding_window, where it is not null */
    UPPER_LAYERS, /* use_sliding_window, from layer max_window_layers up */
};

/* What the kinds differ in, beside numbers. */
static const struct kind_facts {
    const char *model_type, *class;
    enum window_rule window;
    bool qkv_bias;       /* q, k and v have biases */
    bool attention_bias; /* the key says whether q, k, v and o have */
    bool head_norms;     /* q and k are normed, head by head */
    bool gemma; /* norms times (1 + w), gelu for silu, the embedding times sqrt(width) */
    int head_dim; /* where config.json is silent; 0: hidden_size / num_attention_heads */
} kinds[] = {
    [LLAMA] = {"llama", "LlamaForCausalLM", .attention_bias = true},
    [MISTRAL] = {"mistral", "MistralForCausalLM", .window = EVERY_LAYER},
    [QWEN2] = {"qwen2", "Qwen2ForCausalLM", .window = UPPER_LAYERS, .qkv_bias = true},
    [QWEN3] = {"qwen3", "Qwen3ForCausalLM", .window = UPPER_LAYERS,
               .attention_bias = true, .head_norms = true, .head_dim = 128},
    [GEMMA] = {"gemma", "GemmaForCausalLM", .attention_bias = true, .gemma = true,
               .head_dim = 256},
};

#define KINDS "llama, mistral, qwen2, qwen3 and gemma"

/* How the frequencies of rope are stretched. */
enum stretch { NOT, LINEAR, LLAMA3 };

static const char *const stretches[] = {
    [NOT] = "default", [LINEAR] = "linear", [LLAMA3] = "llama3"};

struct scaling {
    enum stretch type;
    double factor, low, high;
    int64_t original; /* tokens of the texts the frequencies were made for */
};

struct config {
    enum llama_kind kind;
    int64_t vocab, width, inner, heads, kv_heads, head_dim, positions, num_layers;
    int64_t window, window_from; /* tokens; layers from window_from up have it; 0: none */
    bool tied, qkv_bias, o_bias, mlp_bias;
    bool head_norms, gemma; /* of the kind */
    double theta, eps, deviation, dropout;
    struct scaling scaling;
    int64_t bos, eos; /* tokens; -1: none */
};

/* ---- sizes ---- */

struct llama_size {
    const char *name;
    enum llama_kind kind;
    int64_t width, inner, layers, heads, kv_heads, vocab, positions;
    double theta, eps;
    double factor; /* of "llama3" scaling from 8192 tokens; 0: none */
    bool tied;
    int64_t bos, eos;
    int64_t head_dim, window; /* 0: hidden_size / num_attention_heads; none */
};

/* clang-format off */
#define SIZE2(name, eps, positions, ...) {name, LLAMA, __VA_ARGS__, 32000, positions, 1e4, eps, 0, false, 1, 2, 0, 0}
#define SIZE3(name, positions, factor, tied, ...) \
    {name, LLAMA, __VA_ARGS__, 128256, positions, 5e5, 1e-5, factor, tied, 128000, 128001, 0, 0}
#define QWEN(name, vocab, positions, eps, tied, ...) \
    {name, QWEN2, __VA_ARGS__, vocab, positions, 1e6, eps, 0, tied, 151643, 151643, 0, 0}
#define MISTRAL7(name, vocab, theta, window) \
    {name, MISTRAL, 4096, 14336, 32, 32, 8, vocab, 32768, theta, 1e-5, 0, false, 1, 2, 0, window}
#define QWEN_3(name, tied, ...) \
    {name, QWEN3, __VA_ARGS__, 151936, 40960, 1e6, 1e-6, 0, tied, 151643, 151645, 128, 0}
#define GEMMA1(name, ...) {name, GEMMA, __VA_ARGS__, 256000, 8192, 1e4, 1e-6, 0, true, 2, 1, 256, 0}

#define NAMES "llama-7b|llama2-7b|llama2-13b|llama2-70b|tinyllama-1.1b|llama3-8b|llama3-70b|llama3.1-8b|"     \
    "llama3.1-70b|llama3.1-405b|llama3.2-1b|llama3.2-3b|qwen2-0.5b|qwen2-1.5b|qwen2-7b|qwen2.5-0.5b|" \
    "qwen2.5-1.5b|qwen2.5-3b|qwen2.5-7b|qwen2.5-14b|qwen2.5-32b|mistral-7b-v0.1|mistral-7b-v0.3|" \
    "qwen3-0.6b|qwen3-1.7b|qwen3-4b|qwen3-8b|qwen3-14b|qwen3-32b|gemma-2b|gemma-7b"

static const struct llama_size sizes[] = {            /* D, F, layers, H, K */
    SIZE2("llama-7b", 1e-6, 2048,                  4096, 11008, 32, 32, 32),
    SIZE2("llama2-7b", 1e-5, 4096,                 4096, 11008, 32, 32, 32),
    SIZE2("llama2-13b", 1e-5, 4096,                5120, 13824, 40, 40, 40),
    SIZE2("llama2-70b", 1e-5, 4096,                8192, 28672, 80, 64, 8),
    SIZE2("tinyllama-1.1b", 1e-5, 2048,            2048, 5632, 22, 32, 4),
    SIZE3("llama3-8b", 8192, 0, false,             4096, 14336, 32, 32, 8),
    SIZE3("llama3-70b", 8192, 0, false,            8192, 28672, 80, 64, 8),
    SIZE3("llama3.1-8b", 131072, 8, false,         4096, 14336, 32, 32, 8),
    SIZE3("llama3.1-70b", 131072, 8, false,        8192, 28672, 80, 64, 8),
    SIZE3("llama3.1-405b", 131072, 8, false,       16384, 53248, 126, 128, 8),
    SIZE3("llama3.2-1b", 131072, 32, true,         2048, 8192, 16, 32, 8),
    SIZE3("llama3.2-3b", 131072, 32, true,         3072, 8192, 28, 24, 8),
    QWEN("qwen2-0.5b", 151936, 131072, 1e-6, true,  896, 4864, 24, 14, 2),
    QWEN("qwen2-1.5b", 151936, 131072, 1e-6, true,  1536, 8960, 28, 12, 2),
    QWEN("qwen2-7b", 152064, 131072, 1e-6, false,   3584, 18944, 28, 28, 4),
    QWEN("qwen2.5-0.5b", 151936, 32768, 1e-6, true, 896, 4864, 24, 14, 2),
    QWEN("qwen2.5-1.5b", 151936, 131072, 1e-6, true, 1536, 8960, 28, 12, 2),
    QWEN("qwen2.5-3b", 151936, 32768, 1e-6, true,   2048, 11008, 36, 16, 2),
    QWEN("qwen2.5-7b", 152064, 131072, 1e-6, false, 3584, 18944, 28, 28, 4),
    QWEN("qwen2.5-14b", 152064, 131072, 1e-5, false, 5120, 13824, 48, 40, 8),
    QWEN("qwen2.5-32b", 152064, 131072, 1e-5, false, 5120, 27648, 64, 40, 8),
    MISTRAL7("mistral-7b-v0.1", 32000, 1e4, 4096),
    MISTRAL7("mistral-7b-v0.3", 32768, 1e6, 0),
    QWEN_3("qwen3-0.6b", true,                     1024, 3072, 28, 16, 8),
    QWEN_3("qwen3-1.7b", true,                     2048, 6144, 28, 16, 8),
    QWEN_3("qwen3-4b", true,                       2560, 9728, 36, 32, 8),
    QWEN_3("qwen3-8b", false,                      4096, 12288, 36, 32, 8),
    QWEN_3("qwen3-14b", false,                     5120, 17408, 40, 40, 8),
    QWEN_3("qwen3-32b", false,                     5120, 25600, 64, 64, 8),
    GEMMA1("gemma-2b",                             2048, 16384, 18, 8, 1),
    GEMMA1("gemma-7b",                             3072, 24576, 28, 16, 16),
};

/* What transformers takes for a key that a config.json leaves out. */
static const struct llama_size absent[] = {
    [LLAMA] = SIZE2("llama", 1e-6, 2048, 4096, 11008, 32, 32, 0),
    [MISTRAL] = {"mistral", MISTRAL, 4096, 14336, 32, 32, 8, 32000, 131072, 1e4, 1e-6, 0, false, 1, 2, 0, 4096},
    [QWEN2] = {"qwen2", QWEN2, 4096, 22016, 32, 32, 0, 151936, 32768, 1e4, 1e-6, 0, false, -1, -1, 0, 4096},
    [QWEN3] = {"qwen3", QWEN3, 4096, 22016, 32, 32, 0, 151936, 32768, 1e4, 1e-6, 0, false, -1, -1, 128, 4096},
    [GEMMA] = GEMMA1("gemma", 3072, 24576, 28, 16, 0),
};
/* clang-format on */

#define REAL(option, least, most, text)                                                  \
    {                                                                                    \
        .name = option, .kind = ZT_OPT_FLOAT, .value = "X", .min = least, .max = most,   \
        .help = text                                                                     \
    }

static const struct zt_option options[] = {
    {.name = "model",
     .kind = ZT_OPT_CHOICE,
     .value = "SIZE",
     .def = "llama3.2-1b",
     .choices = NAMES,
     .help = "a published size; the options below change single numbers of it"},
    INT("hidden_size", 1, 1 << 20, "width of the model"),
    INT("intermediate_size", 1, 1 << 22, "width of the feed-forward part"),
    INT("num_hidden_layers", 1, 1000, "transformer layers"),
    INT("num_attention_heads", 1, 1024, "query heads"),
    INT("num_key_value_heads", 1, 1024, "key heads; divides num_attention_heads"),
    INT("head_dim", 2, MAX_HEAD_DIM,
        "width of a head, even; hidden_size / num_attention_heads if not given"),
    INT("vocab_size", 1, 1 << 30,
        "rows of the embedding; what the data need, else the size's"),
    INT("max_position_embeddings", 1, 1 << 24,
        "longest sequence; the size's, or block_size if longer"),
    {.name = "tie_word_embeddings",
     .kind = ZT_OPT_FLAG,
     .help = "the output head is the embedding"},
    REAL("rms_norm_eps", 1e-12, 1, "added to the mean square in a norm"),
    REAL("initializer_range", 0, 1, "standard deviation of new weights"),
    REAL("attention_dropout", 0, 0.99, "of the probabilities in attention"),
    REAL("rope_theta", 1, 1e12, "base of the rotary frequencies"),
    {.name = "rope_type",
     .kind = ZT_OPT_CHOICE,
     .value = "TYPE",
     .choices = "default|linear|llama3",
     .help = "how rotary frequencies are stretched"},
    REAL("rope_factor", 1, 1e6, "by how much they are stretched"),
    REAL("low_freq_factor", 1e-3, 1e6, "llama3: wavelengths above original / this are"),
    REAL("high_freq_factor", 1e-3, 1e6, "llama3: those below original / this are not"),
    INT("original_max_position_embeddings", 1, 1 << 24, "llama3: length to stretch from"),
    INT("sliding_window", 1, 1 << 24, "tokens that a layer with a window sees"),
    INT("max_window_layers", 0, 1000, "qwen: layers from this one up have the window"),
    {.name = NULL},
};

static double settle_real(zt_model *m, const char *name, double def)
{
    const zt_args *args = zt_model_args(m);

    if (!zt_args_given(args, name))
        return def;
    if (zt_model_has_config(m) && def != zt_args_float(args, name))
        zt_model_fail(m, "--%s %g, but the config.json of the weights says %g", name,
                      zt_args_float(args, name), def);
    return zt_args_float(args, name);
}

static double pick_real(zt_model *m, const char *name, double def)
{
    return settle_real(m, name, zt_model_config_float(m, name, def));
}

static bool pick_tied(zt_model *m, bool def)
{
    const zt_args *args = zt_model_args(m);
    bool imported = zt_model_config_int(m, "tie_word_embeddings", def) != 0;

    if (!zt_args_given(args, "tie_word_embeddings"))
        return imported;
    if (zt_model_has_config(m) && imported != zt_args_flag(args, "tie_word_embeddings"))
        zt_model_fail(m, "--tie_word_embeddings is not what the config.json says");
    return zt_args_flag(args, "tie_word_embeddings");
}

/* The row of --model, or with a config.json the one of its kind; NULL: refused. */
static const struct llama_size *find_size(zt_model *m)
{
    const char *name = zt_args_string(zt_model_args(m), "model");
    const char *type = zt_model_config_string(m, "model_type", "");
    size_t i = 0;

    if (zt_model_has_config(m) && zt_args_given(zt_model_args(m), "model")) {
        while (strcmp(sizes[i].name, name) != 0)
            i++;
        if (zt_model_config_int(m, "num_hidden_layers", 0) != sizes[i].layers ||
            zt_model_config_int(m, "hidden_size", 0) != sizes[i].width)
            zt_model_fail(m,
                          "--model %s has %lld layers of width %lld, but the config.json "
                          "of the weights says %lld of %lld; leave --model out",
                          name, (long long)sizes[i].layers, (long long)sizes[i].width,
                          (long long)zt_model_config_int(m, "num_hidden_layers", 0),
                          (long long)zt_model_config_int(m, "hidden_size", 0));
    }
    if (zt_model_has_config(m)) {
        for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
            if (strcmp(kinds[i].model_type, type) == 0)
                return &absent[i];
        zt_model_fail(m,
                      "config.json has model_type \"%s\"; this plugin builds " KINDS "%s",
                      type, strcmp(type, "gpt2") == 0 ? ", and gpt2.so builds gpt2" : "");
        return NULL;
    }
    while (strcmp(sizes[i].name, name) != 0)
        i++; /* the option's choices are the rows */
    return &sizes[i];
}

/* Newer files have one object, rope_parameters; older ones rope_scaling. */
static double rope_number(zt_model *m, const char *key, double def)
{
    char newer[64], older[64];

    snprintf(newer, sizeof(newer), "rope_parameters.%s", key);
    snprintf(older, sizeof(older), "rope_scaling.%s", key);
    return zt_model_config_float(m, newer, zt_model_config_float(m, older, def));
}

static enum stretch rope_type(zt_model *m, enum stretch def)
{
    const char *given = zt_args_string(zt_model_args(m), "rope_type");
    const char *type = zt_model_config_string(m, "rope_scaling.type", stretches[def]);

    type = zt_model_config_string(m, "rope_scaling.rope_type", type);
    type = zt_model_config_string(m, "rope_parameters.rope_type", type);
    if (given && zt_model_has_config(m) && strcmp(given, type) != 0)
        zt_model_fail(m, "--rope_type %s, but the config.json of the weights says %s",
                      given, type);
    type = given ? given : type;
    for (int i = NOT; i <= LLAMA3; i++)
        if (strcmp(stretches[i], type) == 0)
            return (enum stretch)i;
    zt_model_fail(m, "rope_type \"%s\": only default, linear and llama3 are built", type);
    return NOT;
}

/* Has config.json an object of that name, with one of the members that say how? */
static bool has_rope(zt_model *m, const char *object)
{
    static const char *const members[] = {"rope_type", "rope_theta", "factor"};
    char key[64];
    bool has = false;

    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        snprintf(key, sizeof(key), "%s.%s", object, members[i]);
        has = has || zt_model_config_has(m, key);
    }
    return has;
}

/* What transformers refuses, or reads as another model than it looks like. */
static void check_rope(zt_model *m, enum stretch type)
{
    bool newer = has_rope(m, "rope_parameters"), older = has_rope(m, "rope_scaling");

    older = older || zt_model_config_has(m, "rope_scaling.type");
    if (newer && older)
        zt_model_fail(m, "config.json has rope_parameters and rope_scaling, of which "
                         "transformers reads the latter alone: leave one of them out");
    if ((newer || older) && type != NOT && rope_number(m, "factor", 0) <= 0)
        zt_model_fail(m, "rope_type %s of config.json needs a factor above 0",
                      stretches[type]);
}

static void read_rope(zt_model *m, const struct llama_size *size, struct config *c)
{
    struct scaling *how = &c->scaling;
    double factor = size->factor > 0 ? size->factor : 1;
    double original = zt_model_has_config(m) ? (double)c->positions : 8192;
    double theta = zt_model_config_float(m, "rope_theta", size->theta);
    double part = zt_model_config_float(m, "partial_rotary_factor", 1);

    c->theta = settle_real(m, "rope_theta", rope_number(m, "rope_theta", theta));
    how->type = rope_type(m, size->factor > 0 ? LLAMA3 : NOT);
    check_rope(m, how->type);
    how->factor = settle_real(m, "rope_factor", rope_number(m, "factor", factor));
    how->low = settle_real(m, "low_freq_factor", rope_number(m, "low_freq_factor", 1));
    how->high = settle_real(m, "high_freq_factor", rope_number(m, "high_freq_factor", 4));
    original = rope_number(m, "original_max_position_embeddings", original);
    original = original >= 1 && original <= 1 << 24 ? original : 0; /* refused below */
    how->original = settle(m, "original_max_position_embeddings", (int64_t)original);
    if (rope_number(m, "partial_rotary_factor", part) != 1)
        zt_model_fail(m, "partial_rotary_factor: only 1 is built");
    if (!(how->factor >= 1) || !(how->low > 0) || !(how->high > how->low) ||
        !(c->theta > 0) || how->original < 1)
        zt_model_fail(
            m,
            "rope: theta %g, factor %g, low_freq_factor %g, high_freq_factor %g "
            "and original_max_position_embeddings %lld do not fit together",
            c->theta, how->factor, how->low, how->high, (long long)how->original);
}

/* Tokens of the window that config.json or the size has; 0: there is none. */
static int64_t window_of(zt_model *m, const struct llama_size *size,
                         enum window_rule rule)
{
    bool imported = zt_model_has_config(m);

    if (rule == NO_WINDOW) /* a key that has none here is refused below */
        return zt_model_config_int(m, "sliding_window", 0);
    if (imported && rule == UPPER_LAYERS &&
        !zt_model_config_int(m, "use_sliding_window", 0)) {
        zt_model_config_int(m, "sliding_window", 0);
        return 0;
    }
    if (zt_model_config_has(m, "sliding_window")) /* null: none */
        return zt_model_config_int(m, "sliding_window", 0);
    return size->window;
}

/* Which layers see a window, and how long it is. */
static void read_window(zt_model *m, const struct llama_size *size, struct config *c)
{
    enum window_rule rule = kinds[c->kind].window;
    char key[32];

    c->window = settle(m, "sliding_window", window_of(m, size, rule));
    if (rule == UPPER_LAYERS)
        c->window_from = pick(m, "max_window_layers", zt_model_has_config(m) ? 28 : 0);
    else if (zt_args_given(zt_model_args(m), "max_window_layers"))
        zt_model_fail(m, "max_window_layers: the %s kind has none",
                      kinds[c->kind].model_type);
    if (c->window && rule == NO_WINDOW)
        zt_model_fail(m, "sliding_window: the %s kind has none",
                      kinds[c->kind].model_type);
    for (int i = 0; i < c->num_layers; i++) {
        const char *says =
            c->window && i >= c->window_from ? "sliding_attention" : "full_attention";

        snprintf(key, sizeof(key), "layer_types.%d", i);
        if (strcmp(zt_model_config_string(m, key, says), says) != 0)
            zt_model_fail(m,
                          "%s is not \"%s\", as sliding_window %lld and "
                          "max_window_layers %lld say",
                          key, says, (long long)c->window, (long long)c->window_from);
    }
}

/* config.json is of the kind that is built, and nothing of it is passed over. */
static void check_config(zt_model *m, const struct config *c)
{
    static const char *const ignored[] = {
        "pretraining_tp", /* how matrices were cut in pretraining */
        "max_sequence_length", NULL};
    const struct kind_facts *kind = &kinds[c->kind];
    char classes[64];

    snprintf(classes, sizeof(classes), "[\"%s\"]", kind->class);
    zt_model_config_must(m, "architectures.0", classes);
    /* "gelu" in Gemma's first files means its tanh form, as in transformers */
    zt_model_config_must(m, "hidden_act",
                         kind->gemma ? "[\"gelu_pytorch_tanh\", \"gelu\"]"
                                     : "[\"silu\"]");
    if (kind->gemma)
        zt_model_config_must(m, "hidden_activation", "[\"gelu_pytorch_tanh\"]");
    if (kind->window != UPPER_LAYERS)
        zt_model_config_must(m, "use_sliding_window", "[false]");
    zt_model_config_must(m, "use_bidirectional_attention", "[false]");
    zt_model_config_must(m, "use_mrope", "[false]");
    zt_model_config_must(m, "rope_interleaved", "[false]");
    zt_model_config_end(m, ignored);
}

/* What must hold between the numbers. */
static zt_err check_sizes(zt_model *m, const struct config *c)
{
    if (zt_model_status(m)) /* a number is out of its range */
        return zt_model_status(m);
    /* transformers wants it of llama with head_dim, too */
    if (c->width % c->heads && !kinds[c->kind].head_dim)
        return zt_model_fail(
            m, "hidden_size %lld is not a multiple of num_attention_heads %lld",
            (long long)c->width, (long long)c->heads);
    if (c->heads % c->kv_heads)
        return zt_model_fail(m,
                             "num_attention_heads %lld is not a multiple of "
                             "num_key_value_heads %lld",
                             (long long)c->heads, (long long)c->kv_heads);
    if (c->head_dim < 2 || c->head_dim % 2 || c->head_dim > MAX_HEAD_DIM)
        return zt_model_fail(m, "head_dim %lld is not an even number up to %d",
                             (long long)c->head_dim, MAX_HEAD_DIM);
    return zt_model_status(m);
}

static zt_err read_config(zt_model *m, struct config *c)
{
    const struct llama_size *size = find_size(m);
    int64_t data = zt_model_data_vocab(m), block = zt_model_block_size(m), heads;
    bool usual;

    if (!size)
        return zt_model_status(m);
    c->kind = size->kind;
    c->head_norms = kinds[c->kind].head_norms;
    c->gemma = kinds[c->kind].gemma;
    c->width = pick(m, "hidden_size", size->width);
    c->inner = pick(m, "intermediate_size", size->inner);
    c->num_layers = pick(m, "num_hidden_layers", size->layers);
    c->heads = heads = pick(m, "num_attention_heads", size->heads);
    c->kv_heads = pick(m, "num_key_value_heads",
                       size->kv_heads && heads == size->heads ? size->kv_heads : heads);
    c->head_dim = pick(m, "head_dim",
                       size->head_dim ? size->head_dim
                       : heads > 0    ? c->width / heads
                                      : 0);
    c->positions = pick(m, "max_position_embeddings",
                        block > size->positions ? block : size->positions);
    c->vocab = pick(m, "vocab_size", data ? data : size->vocab);
    c->tied = pick_tied(m, size->tied);
    c->eps = pick_real(m, "rms_norm_eps", size->eps);
    c->deviation = pick_real(m, "initializer_range", 0.02);
    c->dropout = pick_real(m, "attention_dropout", 0);
    usual = zt_model_has_config(m) || c->vocab == size->vocab;
    c->bos = usual && size->bos < c->vocab ? size->bos : -1;
    c->eos = usual && size->eos < c->vocab ? size->eos : -1;
    c->qkv_bias = kinds[c->kind].qkv_bias;
    if (kinds[c->kind].attention_bias)
        c->qkv_bias = c->o_bias = zt_model_config_int(m, "attention_bias", 0) != 0;
    if (c->kind == LLAMA)
        c->mlp_bias = zt_model_config_int(m, "mlp_bias", 0) != 0;
    if (check_sizes(m, c))
        return zt_model_status(m);
    read_rope(m, size, c);
    read_window(m, size, c);
    check_config(m, c);
    return zt_model_status(m);
}

/* ---- for transformers ---- */

static void export_rope(zt_model *m, const struct config *c)
{
    const struct scaling *how = &c->scaling;

    zt_model_export(m, "rope_theta", "%.15g", c->theta);
    if (how->type == NOT)
        zt_model_export(m, "rope_scaling", "null");
    else if (how->type == LINEAR)
        zt_model_export(m, "rope_scaling",
                        "{\"rope_type\": \"linear\", \"factor\": %#.15g}", how->factor);
    else
        zt_model_export(m, "rope_scaling",
                        "{\"rope_type\": \"llama3\", \"factor\": %#.15g, "
                        "\"low_freq_factor\": %#.15g, \"high_freq_factor\": %#.15g, "
                        "\"original_max_position_embeddings\": %lld}",
                        how->factor, how->low, how->high, (long long)how->original);
}

static void export_token(zt_model *m, const char *key, int64_t token)
{
    if (zt_model_config_has(m, key)) /* null: none */
        token = -1;
    zt_model_export(m, key, token < 0 ? "null" : "%lld", (long long)token);
    zt_model_export_imported(m, key); /* a list in some files */
}

/* What `transformers` needs in config.json to open our weights. */
static void export_config(zt_model *m, const struct config *c)
{
    zt_model_export(m, "model_type", "\"%s\"", kinds[c->kind].model_type);
    zt_model_export(m, "architectures", "[\"%s\"]", kinds[c->kind].class);
    EXPORT_SETTINGS(m, {"vocab_size", c->vocab}, {"hidden_size", c->width},
                    {"intermediate_size", c->inner}, {"num_hidden_layers", c->num_layers},
                    {"num_attention_heads", c->heads},
                    {"num_key_value_heads", c->kv_heads}, {"head_dim", c->head_dim},
                    {"max_position_embeddings", c->positions});
    zt_model_export(m, "hidden_act", c->gemma ? "\"gelu_pytorch_tanh\"" : "\"silu\"");
    export_real(m, "rms_norm_eps", c->eps);
    export_real(m, "initializer_range", c->deviation);
    export_real(m, "attention_dropout", c->dropout);
    zt_model_export(m, "tie_word_embeddings", c->tied ? "true" : "false");
    export_rope(m, c);
    export_token(m, "bos_token_id", c->bos);
    export_token(m, "eos_token_id", c->eos);
    if (kinds[c->kind].attention_bias)
        zt_model_export(m, "attention_bias", c->o_bias ? "true" : "false");
    if (c->kind == LLAMA)
        zt_model_export(m, "mlp_bias", c->mlp_bias ? "true" : "false");
    if (kinds[c->kind].window == UPPER_LAYERS)
        zt_model_export(m, "use_sliding_window", c->window ? "true" : "false");
    if (kinds[c->kind].window != NO_WINDOW)
        zt_model_export(m, "sliding_window", c->window ? "%lld" : "null",
                        (long long)c->window);
    if (kinds[c->kind].window == UPPER_LAYERS)
        zt_model_export(m, "max_window_layers", "%lld", (long long)c->window_from);
}

#endif
