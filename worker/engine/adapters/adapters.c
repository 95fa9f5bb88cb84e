#include "worker/engine/adapters/adapters.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/human.h"
#include "common/log.h"
#include "worker/autograd/adapter.h"
#include "worker/checkpoint/hf_folder.h"
#include "worker/checkpoint/reader.h"
#include "worker/engine/engine.h"
#include "worker/engine/weights.h"

#define PATH_BYTES 512

static zt_err no_memory(struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_NOMEM, "adapters: no host memory");
}

/* ---- names ---- */

/* The class of transformers whose weights the model has: what its config.json says. */
static zt_err read_class(const struct zt_model *m, struct zt_adapters *a,
                         struct zt_fault *fault)
{
    static const struct {
        const char *part, *task;
    } tasks[] = {{"CausalLM", "CAUSAL_LM"},
                 {"LMHeadModel", "CAUSAL_LM"},
                 {"ConditionalGeneration", "SEQ_2_SEQ_LM"},
                 {"SequenceClassification", "SEQ_CLS"},
                 {"TokenClassification", "TOKEN_CLS"}};
    char *text = zt_model_config_text(m);
    json_t *root = text ? json_loads(text, 0, NULL) : NULL;
    const char *class =
        json_string_value(json_array_get(json_object_get(root, "architectures"), 0));

    for (size_t i = 0; class && i < sizeof(tasks) / sizeof(tasks[0]); i++)
        if (strstr(class, tasks[i].part))
            a->task_type = tasks[i].task;
    json_decref(root);
    free(text);
    return text ? ZT_OK : no_memory(fault);
}

/* "transformer.h.0.attn.c_attn" of "transformer.h.0.attn.c_attn.weight". */
static void module_path(const struct zt_param *p, char path[PATH_BYTES])
{
    size_t n = strlen(p->name), end = strlen(".weight");

    if (n > end && strcmp(p->name + n - end, ".weight") == 0)
        n -= end;
    snprintf(path, PATH_BYTES, "%.*s", (int)n, p->name);
}

/* ---- what was asked for ---- */

static zt_err contradicts(const char *option, const struct zt_run *run,
                          struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_CONFIG,
                        "%s: the adapter_config.json of %s says something else; leave "
                        "the option out",
                        option, run->adapter_name_or_path);
}

/* An option that stands beside a folder has to say what the folder says. */
static zt_err check_options(const struct zt_run *run, const struct zt_peft_config *c,
                            struct zt_fault *fault)
{
    static const char *const alpha[] = {"lora_alpha", NULL};
    static const char *const dropout[] = {"lora_dropout", NULL};
    static const char *const targets[] = {"lora_target_modules", NULL};
    static const char *const rslora[] = {"use_rslora", NULL};

    if (run->lora_r && run->lora_r != c->rank)
        return contradicts("--lora_r", run, fault);
    if (zt_run_says(run, alpha) && run->lora_alpha != c->alpha)
        return contradicts("--lora_alpha", run, fault);
    if (zt_run_says(run, dropout) && run->lora_dropout != c->dropout)
        return contradicts("--lora_dropout", run, fault);
    if (zt_run_says(run, rslora) && run->use_rslora != c->rslora)
        return contradicts("--use_rslora", run, fault);
    return zt_run_says(run, targets)
               ? zt_fault_set(fault, ZT_E_CONFIG,
                              "--lora_target_modules: the adapter_config.json of %s says "
                              "which modules; leave the option out",
                              run->adapter_name_or_path)
               : ZT_OK;
}

static zt_err read_options(const struct zt_run *run, struct zt_peft_config *c,
                           struct zt_fault *fault)
{
    static const char *const all[] = {ZT_ALL_LINEAR};
    const char *const *words = run->lora_target_modules;
    int num = 0;

    while (words && words[num])
        num++;
    c->rank = run->lora_r;
    c->alpha = run->lora_alpha;
    c->dropout = run->lora_dropout;
    c->rslora = run->use_rslora;
    return zt_targets_open("--lora_target_modules", num ? words : all, num ? num : 1,
                           false, &c->targets, fault);
}

/* ---- the model that a folder of adapters is for ---- */

/* "llama" of a folder's config.json; NULL: it has none. The caller frees. */
static char *model_type_of(const char *dir)
{
    char path[PATH_MAX];
    json_t *root = NULL;
    const char *type;
    char *out;

    if (snprintf(path, sizeof(path), "%s/config.json", dir) < (int)sizeof(path))
        root = json_load_file(path, 0, NULL);
    type = json_string_value(json_object_get(root, "model_type"));
    out = type ? strdup(type) : NULL;
    json_decref(root);
    return out;
}

/* What the config.json beside the adapters says, or that of the folder that peft names, where it
 * is here. Adapters of another model would fit by chance at best. */
static zt_err check_model_type(const struct zt_engine *e, const struct zt_peft_config *c,
                               struct zt_fault *fault)
{
    const char *dir = e->run->adapter_name_or_path;
    char *text = zt_model_config_text(e->model), *was = model_type_of(dir);
    json_t *root = text ? json_loads(text, 0, NULL) : NULL;
    const char *now = json_string_value(json_object_get(root, "model_type"));
    zt_err rc = text ? ZT_OK : no_memory(fault);

    if (!was && c->base)
        was = model_type_of(c->base);
    if (!rc && was && now && strcmp(was, now) != 0)
        rc = zt_fault_set(fault, ZT_E_CONFIG,
                          "--adapter_name_or_path %s: these adapters were trained on a "
                          "model of type %s, and that of --model_name_or_path %s is of "
                          "type %s; give the model that they were trained on",
                          dir, was, e->run->model_name_or_path, now);
    json_decref(root);
    free(text);
    free(was);
    return rc;
}

/* ---- what is the model's own ---- */

static bool is_saved(const struct zt_adapters *a, const struct zt_param *p)
{
    char path[PATH_BYTES], *dot;

    module_path(p, path);
    dot = strstr(path, ".bias");
    if (dot)
        *dot = 0;
    for (int k = 0; k < a->cfg.num_saved; k++)
        if (zt_targets_name_ends(path, a->cfg.saved[k]))
            return true;
    return false;
}

/* peft trains these whole where texts or words get classes, in whatever folder they are. */
static bool is_class_head(const struct zt_adapters *a, const struct zt_param *p)
{
    return a->task_type && strstr(a->task_type, "_CLS") &&
           (strstr(p->name, "classifier.") || strstr(p->name, "score."));
}

/*
 * A plugin declares new what a folder may lack. What this one has is the model's own, and
 * frozen with it, unless the adapters' config says that it was trained whole.
 */
static zt_err find_new(struct zt_engine *e, const struct zt_adapters *a,
                       struct zt_fault *fault)
{
    const char *from = e->run->model_name_or_path;
    struct zt_hf_folder *hf = NULL;
    zt_err rc;

    if (!from || zt_ckpt_gives_weights(from))
        return ZT_OK;
    rc = zt_hf_folder_open(from, &hf, fault);
    for (int i = 0; !rc && i < e->model->num_params; i++) {
        struct zt_param *p = e->model->params[i];

        if ((p->flags & ZT_EXTRA) && !is_saved(a, p) && !is_class_head(a, p) &&
            zt_weights_has(e->model, hf, p))
            p->flags &= ~ZT_EXTRA;
    }
    zt_hf_folder_close(hf);
    return rc;
}

/* ---- which weights ---- */

/* A linear op that a name may mean, as peft sees it: not the output head, nor what is
 * trained whole. */
static bool is_candidate(const struct zt_param *p)
{
    return zt_param_is_linear(p) && !(p->flags & ZT_EXTRA);
}

/* Is p to have an adapter? ZT_E_CONFIG: it is named, and cannot. */
static zt_err is_meant(const struct zt_adapters *a, const struct zt_param *p, bool *is,
                       struct zt_fault *fault)
{
    size_t n = strlen(p->name), end = strlen(".bias");
    char path[PATH_BYTES];
    zt_err rc;

    *is = a->cfg.targets.all_linear && is_candidate(p) && !(p->uses & ZT_USED_HEAD);
    if (a->cfg.targets.all_linear || p->ndim != 2 ||
        (n > end && strcmp(p->name + n - end, ".bias") == 0))
        return ZT_OK;
    module_path(p, path);
    rc = zt_targets_match(&a->cfg.targets, path, is, fault);
    if (rc || !*is || is_candidate(p))
        return rc;
    return zt_fault_set(fault, ZT_E_CONFIG,
                        "adapters: %s is meant by the target modules, and cannot have "
                        "one: %s",
                        path,
                        p->flags & ZT_EXTRA ? "it is new, and trained whole"
                                            : "no linear op alone works with its weight");
}

static zt_err choose_weights(struct zt_model *m, struct zt_adapters *a,
                             struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    a->weights = calloc((size_t)m->num_params + 1, sizeof(struct zt_param *));
    if (!a->weights)
        return no_memory(fault);
    for (int i = 0; !rc && i < m->num_params; i++) {
        bool is = false;

        rc = is_meant(a, m->params[i], &is, fault);
        if (!rc && is)
            a->weights[a->num++] = m->params[i];
    }
    return rc;
}

/* Each name of modules has to mean some, or it is misspelt: those that there are. */
static zt_err check_names(const struct zt_engine *e, const struct zt_adapters *a,
                          struct zt_fault *fault)
{
    const struct zt_targets *t = &a->cfg.targets;
    const struct zt_model *m = e->model;
    const char *dir = e->run->adapter_name_or_path;
    char have[400] = "", path[PATH_BYTES];
    static const char all[] = ZT_ALL_LINEAR;
    const char *unused = a->num ? NULL : t->pattern ? t->pattern : all;

    for (int k = 0; k < t->num; k++) {
        bool used = false;

        for (int i = 0; i < a->num && !used; i++) {
            module_path(a->weights[i], path);
            used = zt_targets_name_ends(path, t->names[k]);
        }
        unused = used ? unused : t->names[k];
    }
    for (int i = 0; unused && i < m->num_params; i++) {
        const char *last;
        size_t at = strlen(have);

        if (!is_candidate(m->params[i]))
            continue;
        module_path(m->params[i], path);
        last = strrchr(path, '.') ? strrchr(path, '.') + 1 : path;
        if (!strstr(have, last))
            snprintf(have + at, sizeof(have) - at, "%s%s", at ? ", " : "", last);
    }
    if (unused == all && *have)
        return zt_fault_set(fault, ZT_E_CONFIG,
                            "adapters: all-linear, the default, leaves out heads, and "
                            "this model has no other modules with a linear op; say "
                            "--lora_target_modules %s if they are to have adapters",
                            have);
    if (unused == all)
        return zt_fault_set(fault, ZT_E_CONFIG,
                            "adapters: no module of this model has a linear op, so none "
                            "can have an adapter");
    if (unused && dir)
        return zt_fault_set(
            fault, ZT_E_CONFIG,
            "--adapter_name_or_path %s: these adapters are of another "
            "model%s%s: their target \"%s\" is no module of this one with "
            "a linear op; there are: %s",
            dir, a->cfg.base ? ", " : "", a->cfg.base ? a->cfg.base : "", unused, have);
    return unused ? zt_fault_set(fault, ZT_E_CONFIG,
                                 "adapters: the target \"%s\" is no module of this model "
                                 "with a linear op; there are: %s",
                                 unused, have)
                  : ZT_OK;
}

/* peft's modules_to_save: parameters that the plugin declares new, and no others. */
static zt_err check_saved(const struct zt_model *m, const struct zt_adapters *a,
                          struct zt_fault *fault)
{
    for (int i = 0; i < m->num_params; i++) {
        const struct zt_param *p = m->params[i];

        if (!(p->flags & ZT_EXTRA) && is_saved(a, p))
            return zt_fault_set(
                fault, ZT_E_CONFIG,
                "adapters: modules_to_save has the module of %s, a weight that the "
                "model has without adapters: only heads that begin as new, as those of "
                "--task classify, are trained whole beside adapters",
                p->name);
    }
    return ZT_OK;
}

/* ---- what a config says ---- */

static bool is_listed(char *const *names, int num, const char *name)
{
    for (int i = 0; i < num; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static bool add_once(char **names, int *num, const char *name)
{
    if (is_listed(names, *num, name))
        return true;
    names[*num] = strdup(name);
    return names[(*num)++] != NULL;
}

/* Would the name be the end of another module, too: of a linear op without adapter, or with
 * `saved` of what is not trained whole? */
static bool is_ambiguous(const struct zt_model *m, const char *name, bool saved)
{
    char path[PATH_BYTES];

    for (int i = 0; i < m->num_params; i++) {
        const struct zt_param *p = m->params[i];

        if (saved ? (p->flags & ZT_EXTRA) != 0
                  : p->adapter || p->adapts || !(p->uses & ZT_USED_LINEAR))
            continue;
        module_path(p, path);
        if (zt_targets_name_ends(path, name))
            return true;
    }
    return false;
}

/* Last words of paths where these say enough, else paths: as peft writes all-linear. */
static zt_err list_names(const struct zt_model *m, struct zt_adapters *a,
                         struct zt_fault *fault)
{
    a->names = calloc((size_t)a->num + 1, sizeof(*a->names));
    if (!a->names)
        return no_memory(fault);
    for (int i = 0; i < a->num; i++) {
        char path[PATH_BYTES];
        const char *last;

        module_path(a->weights[i], path);
        last = strrchr(path, '.') ? strrchr(path, '.') + 1 : path;
        if (!add_once(a->names, &a->num_names,
                      is_ambiguous(m, last, false) ? path : last))
            return no_memory(fault);
    }
    return ZT_OK;
}

/* The modules that are trained whole, by their last word where that says enough. */
static zt_err list_saved(const struct zt_model *m, struct zt_adapters *a,
                         struct zt_fault *fault)
{
    struct zt_peft_config *c = &a->cfg;

    for (int i = 0; i < c->num_saved; i++)
        free(c->saved[i]);
    free(c->saved);
    c->num_saved = 0;
    c->saved = calloc((size_t)m->num_params + 1, sizeof(*c->saved));
    if (!c->saved)
        return no_memory(fault);
    for (int i = 0; i < m->num_params; i++) {
        const struct zt_param *p = m->params[i];
        char path[PATH_BYTES], *dot;

        if (!(p->flags & ZT_EXTRA) || p->adapts)
            continue;
        module_path(p, path);
        dot = strstr(path, ".bias");
        if (dot)
            *dot = 0;
        dot = strrchr(path, '.');
        if (!dot || is_ambiguous(m, dot + 1, true))
            dot = NULL;
        if (!add_once(c->saved, &c->num_saved, dot ? dot + 1 : path))
            return no_memory(fault);
    }
    return ZT_OK;
}

/* ---- the whole ---- */

static zt_err note_uses(struct zt_engine *e, struct zt_fault *fault)
{
    struct zt_memory_plan_inputs in = {.run = e->run,
                                       .model = e->model,
                                       .block_size = e->block_size,
                                       .source_size = e->source_size};

    zt_err rc = zt_memory_plan_note_uses(&in, fault);

    return rc ? zt_fault_context(fault, rc, "looking for linear ops") : ZT_OK;
}

static zt_err adapt(struct zt_engine *e, struct zt_adapters *a, struct zt_fault *fault)
{
    double r = (double)a->cfg.rank;
    struct zt_adapter_spec spec = {
        .rank = a->cfg.rank,
        .scale = (float)(a->cfg.alpha / (a->cfg.rslora ? sqrt(r) : r)),
        .dropout = (float)a->cfg.dropout};
    zt_err rc = zt_model_adapt(e->model, a->weights, a->num, &spec, fault);

    if (rc)
        return rc;
    zt_model_freeze_base(e->model);
    zt_model_layout(e->model, e->run->world);
    return ZT_OK;
}

/* From the option or the folder to the model. */
static zt_err open_all(struct zt_engine *e, struct zt_adapters *a, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    char path[PATH_MAX];
    zt_err rc;

    snprintf(path, sizeof(path), "%s/adapter_config.json",
             run->adapter_name_or_path ? run->adapter_name_or_path : "");
    if (access(path, F_OK) && errno == ENOTDIR)
        return zt_fault_set(
            fault, ZT_E_NOINPUT,
            "--adapter_name_or_path: %s is a file; name the folder that it "
            "is in",
            run->adapter_name_or_path);
    rc = run->adapter_name_or_path ? zt_peft_config_read(path, &a->cfg, fault)
                                   : read_options(run, &a->cfg, fault);

    if (!rc && run->adapter_name_or_path)
        rc = check_options(run, &a->cfg, fault);
    if (!rc && run->adapter_name_or_path)
        rc = check_model_type(e, &a->cfg, fault);
    if (!rc)
        rc = read_class(e->model, a, fault);
    if (!rc)
        rc = find_new(e, a, fault);
    if (!rc)
        rc = note_uses(e, fault);
    if (!rc)
        rc = choose_weights(e->model, a, fault);
    if (!rc)
        rc = check_names(e, a, fault);
    if (!rc)
        rc = check_saved(e->model, a, fault);
    if (!rc)
        rc = adapt(e, a, fault);
    if (!rc)
        rc = list_names(e->model, a, fault);
    return rc ? rc : list_saved(e->model, a, fault);
}

/* How many numbers are trained, of how many. */
static void tell(const struct zt_engine *e)
{
    char part[ZT_HUMAN], all[ZT_HUMAN];
    int64_t trained = 0;

    for (int i = 0; i < e->model->num_params; i++)
        trained += e->model->params[i]->is_base ? 0 : e->model->params[i]->numel;
    if (e->run->rank == 0)
        zt_info("adapters", "%d of rank %lld: %s of %s parameters", e->adapters->num,
                (long long)e->adapters->cfg.rank, zt_human_count(part, (double)trained),
                zt_human_count(all, (double)e->model->numel));
}

/* Adapters that lie beside the model are not the run's unless it names them. */
static void tell_of_others(const struct zt_run *run)
{
    const char *from = run->model_name_or_path;
    struct zt_hf_folder *hf = NULL;
    struct zt_fault why = {0};
    char path[PATH_MAX];

    if (run->rank || !from || run->adapter_name_or_path || zt_ckpt_gives_weights(from))
        return;
    snprintf(path, sizeof(path), "%s/adapter_config.json", from);
    if (access(path, F_OK) || zt_hf_folder_open(from, &hf, &why))
        return;
    zt_hf_folder_close(hf);
    zt_warn("adapters",
            "%s has adapters beside its model, which transformers would add and this run "
            "does not: --adapter_name_or_path %s adds them",
            from, from);
}

zt_err zt_adapters_open(struct zt_engine *e, struct zt_fault *fault)
{
    zt_err rc;

    tell_of_others(e->run);
    if (!e->run->lora_r && !e->run->adapter_name_or_path)
        return ZT_OK;
    e->adapters = calloc(1, sizeof(*e->adapters));
    if (!e->adapters)
        return no_memory(fault);
    rc = open_all(e, e->adapters, fault);
    if (!rc)
        tell(e);
    return rc;
}

void zt_adapters_close(struct zt_adapters *a)
{
    if (!a)
        return;
    for (int i = 0; i < a->num_names; i++)
        free(a->names[i]);
    free(a->names);
    free(a->weights);
    zt_peft_config_release(&a->cfg);
    free(a);
}
