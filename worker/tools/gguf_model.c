#include "worker/tools/gguf_model.h"

#include <stdio.h>
#include <string.h>

#include "common/suggest.h"

static const struct must_be {
    const char *key;
    const char *words; /* what it may be, "a|b"; the first where it is not there */
    bool gpt2;
} words[] = {
    {"activation_function", "gelu_new|gelu_pytorch_tanh|gelu_fast", true},
    {"hidden_act", "silu|swish", false},
};

static const struct must_be_flag {
    const char *key;
    bool value, gpt2;
} flags[] = {
    {"scale_attn_weights", true, true},
    {"scale_attn_by_inverse_layer_idx", false, true},
    {"add_cross_attention", false, true},
    {"use_mrope", false, false},
    {"rope_interleaved", false, false},
    {"use_bidirectional_attention", false, false},
};

static zt_err refuse(const struct zt_gguf_model *m, const char *key, const char *value,
                     struct zt_fault *fault)
{
    return zt_fault_set(
        fault, ZT_E_UNSUPPORTED,
        "%s: config.json has %s %s, which GGUF files of type %s cannot say", m->path, key,
        value, m->kind->arch);
}

static zt_err check_words(const struct zt_gguf_model *m, const struct must_be *w,
                          struct zt_fault *fault)
{
    const char *value = NULL;
    zt_err rc = zt_hf_config_string(m->config, w->key, NULL, &value, fault);

    if (rc || !value || zt_is_one_of(w->words, value, false))
        return rc;
    return refuse(m, w->key, value, fault);
}

static zt_err check_flag(const struct zt_gguf_model *m, const struct must_be_flag *f,
                         struct zt_fault *fault)
{
    bool value;
    zt_err rc = zt_hf_config_bool(m->config, f->key, f->value, &value, fault);

    return rc || value == f->value ? rc
                                   : refuse(m, f->key, value ? "true" : "false", fault);
}

/* Heads that turn in part. */
static zt_err check_rotary(const struct zt_gguf_model *m, struct zt_fault *fault)
{
    static const char *const keys[] = {"partial_rotary_factor",
                                       "rope_scaling.partial_rotary_factor",
                                       "rope_parameters.partial_rotary_factor"};
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < sizeof(keys) / sizeof(*keys); i++) {
        double part = 1;
        char text[32];

        rc = zt_hf_config_float(m->config, keys[i], 1, &part, fault);
        snprintf(text, sizeof(text), "%g", part);
        if (!rc && part != 1)
            rc = refuse(m, keys[i], text, fault);
    }
    return rc;
}

/* Mistral's layers have a window unless the key is null, those of Qwen from max_window_layers up
 * and only if it is used. Llama's have none. Where the key is not there it is what transformers
 * takes. */
static zt_err tell_of_window(const struct zt_gguf_model *m, struct zt_fault *fault)
{
    bool mistral = strcmp(m->kind->model_type, "mistral") == 0, used = mistral;
    int64_t window = 0, from = 0;
    int64_t unsaid = zt_hf_config_says(m->config, "sliding_window") ? 0 : 4096;
    zt_err rc = zt_hf_config_int(m->config, "sliding_window", unsaid, &window, fault);

    if (!rc && !mistral)
        rc = zt_hf_config_bool(m->config, "use_sliding_window", false, &used, fault);
    if (!rc && !mistral)
        rc = zt_hf_config_int(m->config, "max_window_layers", 28, &from, fault);
    if (!rc && used && window > 0 && window < m->context && from < m->layers)
        fprintf(stderr,
                "%s: its layers see the last %lld tokens (sliding_window), and those of "
                "a GGUF "
                "file of type %s see all: longer texts get other values there\n",
                m->path, (long long)window, m->kind->arch);
    return rc;
}

zt_err zt_gguf_check_model(const struct zt_gguf_model *m, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (size_t i = 0; !rc && i < sizeof(words) / sizeof(*words); i++)
        if (words[i].gpt2 == m->kind->gpt2)
            rc = check_words(m, &words[i], fault);
    for (size_t i = 0; !rc && i < sizeof(flags) / sizeof(*flags); i++)
        if (flags[i].gpt2 == m->kind->gpt2)
            rc = check_flag(m, &flags[i], fault);
    if (!rc && !m->kind->gpt2)
        rc = check_rotary(m, fault);
    return rc || m->kind->gpt2 ? rc : tell_of_window(m, fault);
}
