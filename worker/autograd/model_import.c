/*
 * model_import.c -- that an imported folder is the model which the plugin builds.
 *
 * Every member of config.json that is looked at is noted. What was not looked at at the end
 * is refused by name, unless the plugin, or the list below, says that it means nothing: a
 * member that is passed over in silence may be the one that makes it another model.
 */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "worker/autograd/model_private.h"

#define MOST_NAMED 8 /* members in one sentence */
#define TIED       "tie_word_embeddings"

/* Of every model of transformers: about files and tasks, not the network. */
static const char *const meaningless[] = {"_name_or_path",
                                          "transformers_version",
                                          "torch_dtype",
                                          "dtype",
                                          "*attn_implementation*",
                                          "gradient_checkpointing",
                                          "torchscript",
                                          "use_bfloat16",
                                          "chunk_size_feed_forward",
                                          "return_dict*",
                                          "output_*",
                                          "finetuning_task",
                                          "problem_type",
                                          "id2label",
                                          "label2id",
                                          "*num_labels",
                                          "tf_legacy_loss",
                                          "is_decoder",
                                          NULL};

/* About its tokens, and the texts that are written with it: they stay with its weights. */
static const char *const carried[] = {"*_token_id",
                                      "tokenizer_class",
                                      "*use_cache",
                                      "initializer_range", /* the weights are there */
                                      "summary_*",         /* of heads for other tasks */
                                      "prefix",
                                      "task_specific_params",
                                      "max_length",
                                      "min_length",
                                      "do_sample",
                                      "early_stopping",
                                      "num_beams",
                                      "num_beam_groups",
                                      "diversity_penalty",
                                      "temperature",
                                      "top_k",
                                      "top_p",
                                      "typical_p",
                                      "repetition_penalty",
                                      "length_penalty",
                                      "*no_repeat_ngram_size",
                                      "bad_words_ids",
                                      "num_return_sequences",
                                      "remove_invalid_values",
                                      "*suppress_tokens",
                                      "exponential_decay_length_penalty",
                                      NULL};

static bool is_listed(const char *const *list, int num, const char *name)
{
    for (int i = 0; list && (num < 0 ? list[i] != NULL : i < num); i++)
        if (fnmatch(list[i], name, 0) == 0)
            return true;
    return false;
}

/* A copy of `text` at the end of a list of `*num`; false: the model has failed. */
static bool append(struct zt_model *m, char ***list, int *num, const char *text)
{
    char **grown = realloc(*list, (size_t)(*num + 1) * sizeof(*grown));
    char *copy = strdup(text);

    if (grown)
        *list = grown;
    if (!grown || !copy) {
        free(copy);
        zt_model_misuse(m, "no host memory for names of config.json");
        return false;
    }
    grown[(*num)++] = copy;
    return true;
}

static void free_list(char **list, int num)
{
    for (int i = 0; i < num; i++)
        free(list[i]);
    free(list);
}

bool zt_model_carries(const char *key)
{
    return is_listed(carried, -1, key);
}

void zt_model_note_key(struct zt_model *m, const char *key)
{
    struct zt_import *in = &m->priv->import;

    for (int i = 0; i < in->num_keys; i++)
        if (strcmp(in->keys[i], key) == 0)
            return;
    append(m, &in->keys, &in->num_keys, key);
}

void zt_model_free_import(struct zt_model *m)
{
    struct zt_import *in = &m->priv->import;

    free_list(in->keys, in->num_keys);
    free_list(in->ignored, in->num_ignored);
    for (int i = 0; i < in->num_twins; i++)
        free(in->twins[i].name);
    free(in->twins);
}

/* ---- config.json ---- */

/* What another plugin, or another task, may well take. */
static const char *who_takes(const char *key, const json_t *v)
{
    const char *word = json_string_value(v);

    if (strcmp(key, "model_type") == 0)
        return "another plugin may be for it; this one takes";
    if (strcmp(key, "problem_type") != 0)
        return NULL;
    return word && strcmp(word, "multi_label_classification") == 0
               ? "several labels of a row are not built; this task takes"
               : "another --task is for it, or with --ignore_mismatched_sizes a head "
                 "that begins as new; this one takes";
}

/* What the head in the folder learnt does not matter where another one takes its place. */
static bool is_of_replaced_head(const struct zt_model *m, const char *key,
                                const json_t *v)
{
    const char *word = json_string_value(v);

    return m->priv->cfg.new_head && strcmp(key, "problem_type") == 0 && word &&
           (strcmp(word, "regression") == 0 ||
            strcmp(word, "single_label_classification") == 0);
}

void zt_model_config_must(zt_model *m, const char *key, const char *allowed)
{
    json_t *list = json_loads(allowed, 0, NULL);
    const json_t *v = zt_model_config_find(m, key);
    bool fits = !v || is_of_replaced_head(m, key, v);
    char *text;

    if (!json_is_array(list))
        zt_model_misuse(m, "%s must be one of %s, which is no JSON list", key, allowed);
    for (size_t i = 0; i < json_array_size(list); i++)
        fits = fits || json_equal(v, json_array_get(list, i));
    if (strcmp(key, TIED) == 0 && json_array_size(list) == 1)
        m->priv->import.always_tied = json_is_true(json_array_get(list, 0));
    text = fits ? NULL : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!fits && who_takes(key, v))
        zt_model_refuse_config(m, "\"%s\" is %.60s: %s %s", key,
                               text ? text : "something else", who_takes(key, v),
                               allowed);
    else if (!fits)
        zt_model_refuse_config(m, "\"%s\" is %.60s, which is not built: only %s is", key,
                               text ? text : "something else", allowed);
    free(text);
    json_decref(list);
}

/* Was `key`, or a member below it, looked at? */
static bool is_noted(const struct zt_import *in, const char *key, bool below)
{
    size_t n = strlen(key);

    for (int i = 0; i < in->num_keys; i++)
        if (strncmp(in->keys[i], key, n) == 0 && in->keys[i][n] == (below ? '.' : '\0'))
            return true;
    return false;
}

struct unknown {
    char text[ZT_FAULT_TEXT / 2];
    int num;
};

static void add_unknown(struct unknown *u, const char *key)
{
    size_t at = strlen(u->text);

    if (u->num++ < MOST_NAMED)
        snprintf(u->text + at, sizeof(u->text) - at, "%s\"%.100s\"", at ? ", " : "", key);
}

/* The members of an object that nobody looked at; `path` ends in a dot, or is empty. */
static void find_unknown(const struct zt_import *in, const json_t *object,
                         const char *path, const char *const *ignored, struct unknown *u)
{
    const char *name;
    json_t *v;

    json_object_foreach((json_t *)object, name, v)
    {
        char key[512];

        snprintf(key, sizeof(key), "%s%s", path, name);
        if (json_is_null(v) || is_noted(in, key, false) || is_listed(ignored, -1, key) ||
            (!*path && (is_listed(meaningless, -1, key) || zt_model_carries(key))))
            continue;
        if (!is_noted(in, key, true)) {
            add_unknown(u, key);
        } else if (json_is_object(v)) {
            snprintf(key, sizeof(key), "%s%s.", path, name);
            find_unknown(in, v, key, ignored, u);
        }
    }
}

void zt_model_config_end(zt_model *m, const char *const *ignored)
{
    struct unknown u = {.num = 0};

    if (!m->priv->imported || m->priv->fault.code)
        return;
    if (!is_noted(&m->priv->import, "is_encoder_decoder",
                  false)) /* the plugin may be one */
        zt_model_config_must(m, "is_encoder_decoder", "[false]");
    zt_model_config_must(m, "pruned_heads", "[{}]");
    find_unknown(&m->priv->import, m->priv->imported, "", ignored, &u);
    if (!u.num)
        return;
    if (u.num > MOST_NAMED)
        snprintf(u.text + strlen(u.text), sizeof(u.text) - strlen(u.text), " and %d more",
                 u.num - MOST_NAMED);
    if (m->priv->cfg.partial_import)
        zt_warn("weights", "%s: the plugin does not know %s: ignored",
                m->priv->cfg.config_json, u.text);
    else
        zt_model_refuse_config(m,
                               "this plugin does not know %s, and another model may be "
                               "meant; --allow_partial_import goes on without",
                               u.text);
}

/* ---- tensors ---- */

void zt_model_ignore_weights(zt_model *m, const char *pattern)
{
    struct zt_import *in = &m->priv->import;

    append(m, &in->ignored, &in->num_ignored, pattern);
}

void zt_param_twin(zt_model *m, zt_param *param, const char *name)
{
    struct zt_import *in = &m->priv->import;
    struct zt_twin *grown =
        realloc(in->twins, (size_t)(in->num_twins + 1) * sizeof(*grown));
    char *copy = strdup(name);

    if (grown)
        in->twins = grown;
    if (!grown || !copy || !param) {
        free(copy);
        zt_model_misuse(m,
                        param ? "no host memory for the name %s"
                              : "zt_param_twin() gives the name %s to no parameter",
                        name);
        return;
    }
    grown[in->num_twins++] = (struct zt_twin){.param = param, .name = copy};
}

bool zt_model_ignores_weight(const struct zt_model *m, const char *name)
{
    const struct zt_import *in = &m->priv->import;

    return is_listed((const char *const *)in->ignored, in->num_ignored, name);
}

const struct zt_twin *zt_model_twins(const struct zt_model *m, int *num)
{
    *num = m->priv->import.num_twins;
    return m->priv->import.twins;
}

bool zt_model_is_always_tied(const struct zt_model *m)
{
    const struct zt_import *in = &m->priv->import;

    return in->always_tied || (m->priv->imported && !is_noted(in, TIED, false));
}
