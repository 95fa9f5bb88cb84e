/*
 * same_model.c -- whether a checkpoint is of the model that the run has, beyond shapes: the
 * number of heads, what angles turn by, ... change what is computed, and no tensor.
 */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/json/line.h"
#include "common/log.h"
#include "worker/checkpoint/checksummed_json.h"
#include "worker/engine/adapters/adapters.h"
#include "worker/engine/checkpoint/private.h"

/* What follows from the data, or is of files. */
static bool is_of_no_matter(const char *key)
{
    static const char *const keys[] = {
        "architectures", "dtype",    "torch_dtype",  "transformers_version", "use_cache",
        "id2label",      "label2id", "problem_type", "_name_or_path"};

    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

/* What may change on the way: tokens that a row may have, how many are dropped. */
static bool may_differ(const char *key)
{
    static const char *const parts[] = {"drop", "max_position_embeddings", "n_positions"};

    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        if (strstr(key, parts[i]))
            return true;
    return zt_model_carries(key);
}

/* null: what follows from other values, which are compared, or that there is none of it. */
static bool is_other(const char *key, const json_t *a, const json_t *b)
{
    if (json_is_null(a) != json_is_null(b))
        return strncmp(key, "rope_", 5) == 0 || strcmp(key, "sliding_window") == 0;
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) != json_number_value(b);
    return !json_equal(a, b);
}

/* A value on one line; malloc'ed. */
static char *text_of(const json_t *v)
{
    return json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
}

static zt_err tell(const char *dir, const char *key, const json_t *was, const json_t *now,
                   struct zt_fault *fault)
{
    char *a = text_of(was), *b = text_of(now);
    zt_err rc = ZT_OK;

    if (!a || !b)
        rc = zt_fault_set(fault, ZT_E_NOMEM, "%s: no memory", dir);
    else if (may_differ(key))
        zt_info("checkpoint",
                "it is resumed with another value: config.json's %s: %s, was %s", key, b,
                a);
    else
        rc = zt_fault_set(
            fault, ZT_E_CONFIG,
            "%s: the model that was trained has %s %s, this one %s: give its options "
            "as they were; to begin anew from its weights, as they are, "
            "--model_name_or_path and none of them",
            dir, key, a, b);
    free(a);
    free(b);
    return rc;
}

/* config.json of a checkpoint, in its folder or in that of the tag; NULL: it has none. */
static json_t *config_of(const char *dir, const char *tag_dir)
{
    const char *const dirs[] = {tag_dir, dir};
    json_t *o = NULL;

    for (int i = 0; !o && i < 2; i++) {
        char path[PATH_MAX];

        if (snprintf(path, sizeof(path), "%s/config.json", dirs[i]) < (int)sizeof(path))
            o = json_load_file(path, 0, NULL);
    }
    return o;
}

zt_err zt_checkpoint_note_frozen(struct zt_engine *e, struct zt_fault *fault)
{
    uint64_t hash = 0;
    char text[ZT_HASH_TEXT];
    zt_err rc;

    if (!e->adapters || !e->run->do_train ||
        (!e->run->output_dir && !zt_checkpoint_is_wanted(e->run)))
        return ZT_OK;
    rc = zt_zero_frozen_fingerprint(e->zero, &hash, fault);
    zt_hash_print(hash, text);
    if (!rc)
        snprintf(e->frozen_weights, sizeof(e->frozen_weights), "%s %s",
                 zt_dtype_name(e->run->compute_dtype), text);
    return rc;
}

/* Adapters are in a checkpoint, and what they are beside is not. Weights in another type are
 * rounded otherwise: nothing is known of them. */
static zt_err check_frozen(const struct zt_engine *e, const char *dir, const json_t *root,
                           struct zt_fault *fault)
{
    const char *was =
        zt_json_get_text(json_object_get(root, "training"), "frozen_weights", "");
    const char *now = e->frozen_weights, *from = e->run->model_name_or_path;
    size_t type = strcspn(was, " ");

    if (!*was || !*now || strcmp(was, now) == 0 || strncmp(was, now, type + 1) != 0)
        return ZT_OK;
    return zt_fault_set(
        fault, ZT_E_CONFIG,
        "%s: its adapters were trained beside other weights than those of "
        "%s: give --model_name_or_path as it was, or begin anew with the "
        "adapters (--adapter_name_or_path)",
        dir, from ? from : "this run");
}

/* What their product counts changes no shape either. */
static zt_err check_scale(const struct zt_engine *e, const char *dir,
                          struct zt_fault *fault)
{
    const struct zt_peft_config *now = &e->adapters->cfg;
    struct zt_peft_config was = {.rank = 0};
    char path[PATH_MAX], text[160];
    zt_err rc;

    if (snprintf(path, sizeof(path), "%s/adapter_config.json", dir) >=
            (int)sizeof(path) ||
        access(path, F_OK))
        return ZT_OK;
    rc = zt_peft_config_read(path, &was, fault);
    if (rc)
        return rc;
    if (was.rslora != now->rslora)
        snprintf(text, sizeof(text), "%s --use_rslora, and this run has them %s it",
                 was.rslora ? "with" : "without", now->rslora ? "with" : "without");
    else
        snprintf(text, sizeof(text), "with --lora_alpha %g, and this run has %g",
                 was.alpha, now->alpha);
    if (was.rslora != now->rslora || was.alpha != now->alpha)
        rc = zt_fault_set(fault, ZT_E_CONFIG,
                          "%s: its adapters were trained %s: a run goes on with the "
                          "--lora_alpha and --use_rslora it began with, or the same "
                          "--adapter_name_or_path",
                          dir, text);
    zt_peft_config_release(&was);
    return rc;
}

zt_err zt_ckpt_check_same_model(const struct zt_engine *e, const char *dir,
                                const char *tag_dir, const json_t *root,
                                struct zt_fault *fault)
{
    char *text = zt_model_config_text(e->model);
    json_t *was = config_of(dir, tag_dir), *now = text ? json_loads(text, 0, NULL) : NULL;
    json_t *value;
    const char *key;
    zt_err rc = text ? ZT_OK : zt_fault_set(fault, ZT_E_NOMEM, "config.json: no memory");

    if (!rc && e->adapters)
        rc = check_frozen(e, dir, root, fault);
    if (!rc && e->adapters)
        rc = check_scale(e, dir, fault);
    json_object_foreach(was, key, value)
    {
        json_t *mine = json_object_get(now, key);

        if (!rc && mine && !is_of_no_matter(key) && is_other(key, value, mine))
            rc = tell(dir, key, value, mine, fault);
    }
    json_decref(was);
    json_decref(now);
    free(text);
    return rc;
}
