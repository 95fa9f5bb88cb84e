#include "worker/config/resolve.h"
#include "worker/config/options.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- nodes ---- */

struct zt_jnode *zt_int_node(struct zt_text_arena *arena, int64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%lld", (long long)value);
    return zt_jnode_new(arena, ZT_JSON_NUMBER, text);
}

struct zt_jnode *zt_double_node(struct zt_text_arena *arena, double value)
{
    char text[ZT_DOUBLE_TEXT];

    zt_format_double(value, text);
    return zt_jnode_new(arena, ZT_JSON_NUMBER, text);
}

double zt_node_double(const struct zt_jnode *node)
{
    return node && node->type == ZT_JSON_NUMBER ? strtod(node->text, NULL) : 0;
}

int64_t zt_node_int(const struct zt_jnode *node)
{
    int64_t i = 0;

    if (node && node->type == ZT_JSON_NUMBER)
        (void)zt_parse_int64(node->text, &i);
    return i;
}

/* A default of the table: JSON text. */
static struct zt_jnode *default_node(struct zt_config *c, const char *text)
{
    struct zt_problems unused;

    zt_problems_init(&unused, &c->arena);
    return zt_jtree_parse(&c->arena, "", text, strlen(text), &unused);
}

static struct zt_jnode *option_node(struct zt_config *c, const char *option)
{
    const struct zt_option *o = zt_args_table(c->args);
    const struct zt_value *v = zt_args_value(c->args, option);

    while (strcmp(o->name, option) != 0)
        o++;
    switch (o->kind) {
    case ZT_OPT_FLAG:
        return zt_jnode_new(&c->arena, ZT_JSON_BOOL, v->boolean ? "true" : "false");
    case ZT_OPT_INT:
        return zt_int_node(&c->arena, v->integer);
    case ZT_OPT_FLOAT:
        return zt_double_node(&c->arena, v->real);
    case ZT_OPT_STRING:
    case ZT_OPT_CHOICE:
    case ZT_OPT_LIST:
        break;
    }
    return zt_jnode_new(&c->arena, ZT_JSON_STRING, v->text ? v->text : "");
}

/* ---- one decision ---- */

const struct zt_value *zt_option_given(const struct zt_config *c, const char *option)
{
    const struct zt_value *v = option ? zt_args_value(c->args, option) : NULL;

    return v && v->from != ZT_FROM_DEFAULT ? v : NULL;
}

zt_err zt_value_error(const struct zt_value *v)
{
    return v->from == ZT_FROM_FILE ? ZT_E_CONFIG : ZT_E_USAGE;
}

static void contradiction(struct zt_config *c, const struct zt_item *item,
                          const struct zt_value *option, const struct zt_jnode *wanted)
{
    char a[64], b[64];

    zt_jnode_brief(item->value, a, sizeof(a));
    zt_jnode_brief(wanted, b, sizeof(b));
    zt_problems_add(&c->report, ZT_E_CONFIG,
                    "%s: \"%s\" is %s, but %s is %s; make them agree%s", item->where,
                    item->path, a, option->where, b,
                    !(item->key->flags & ZT_KEY_AUTO) ? ", or leave one of them out"
                    : item->value->line               ? ", or write \"auto\" in the file"
                                        : ", or write \"auto\" for the first");
}

/* What an older key says that names this one and still means the same. NULL: nothing. */
static const struct zt_item *older_item_of(const struct zt_config *c,
                                           const struct zt_key *key)
{
    for (const struct zt_item *i = c->items; i; i = i->next)
        if (i->key->status == ZT_HONOURED && i->key->replaced_by && !i->is_auto &&
            i->key->type == key->type && !strcmp(i->key->replaced_by, key->path))
            return i;
    return NULL;
}

/* The value of the file for this key: under its path, or under an older one. NULL: none. */
static const struct zt_item *item_of(const struct zt_config *c, const struct zt_key *key)
{
    const struct zt_item *item = zt_config_find(c, key->path);
    const struct zt_item *older = older_item_of(c, key);

    return older && (!item || item->is_auto) ? older : item;
}

static void check_older_key(struct zt_config *c, const struct zt_key *key)
{
    const struct zt_item *item = item_of(c, key), *older = older_item_of(c, key);
    char a[64], b[64];

    if (!item || !older || zt_jnode_equal(item->value, older->value))
        return;
    zt_jnode_brief(older->value, a, sizeof(a));
    zt_jnode_brief(item->value, b, sizeof(b));
    zt_problems_add(&c->report, ZT_E_CONFIG,
                    "%s: \"%s\" is %s, but %s: \"%s\" is %s; leave one of them out",
                    older->where, older->path, a, item->where, item->path, b);
}

/* `def` is JSON text; NULL: the default of the option. */
static const struct zt_jnode *resolve(struct zt_config *c, const struct zt_key *key,
                                      const char *option, const char *def)
{
    static const struct zt_jnode nothing;
    const struct zt_item *item = item_of(c, key);
    const struct zt_value *given = zt_option_given(c, option);
    const char *origin;
    struct zt_jnode *node;

    if (item && !item->is_auto) {
        node = item->value;
        origin = item->where;
        if (given && !zt_jnode_equal(node, option_node(c, option)))
            contradiction(c, item, given, option_node(c, option));
    } else if (given) {
        node = option_node(c, option);
        origin = item ? zt_text_arena_printf(&c->arena, "auto: %s", given->where)
                      : given->where;
    } else if (item && option) {
        node = option_node(c, option);
        origin = zt_text_arena_printf(&c->arena, "auto: the default of --%s", option);
    } else {
        assert(def || option); /* a row that is stored has either */
        node = def ? default_node(c, def) : option_node(c, option);
        origin = item ? "auto: the default" : "default";
    }
    zt_config_set(c, key->path, node, origin);
    return node ? node : &nothing;
}

const struct zt_jnode *zt_resolve(struct zt_config *c, const char *path,
                                  const char *option, const char *def)
{
    return resolve(c, zt_key_find(path), option, def);
}

double zt_resolve_double(struct zt_config *c, const char *path, const char *option,
                         const char *def)
{
    return zt_node_double(zt_resolve(c, path, option, def));
}

int64_t zt_resolve_int(struct zt_config *c, const char *path, const char *option,
                       const char *def)
{
    return zt_node_int(zt_resolve(c, path, option, def));
}

bool zt_resolve_bool(struct zt_config *c, const char *path, const char *option,
                     const char *def)
{
    return zt_resolve(c, path, option, def)->boolean;
}

/* ---- keys that their rows say all about ---- */

static void store_node(const struct zt_struct_member *s, void *base,
                       const struct zt_jnode *node)
{
    struct zt_value v = {.boolean = node->boolean, .text = node->text};

    if (node->type == ZT_JSON_NUMBER) {
        v.real = zt_node_double(node);
        v.integer = zt_node_int(node);
    }
    zt_struct_member_set(s, base, &v);
}

static void store_keys(struct zt_config *c, struct zt_run *run)
{
    for (const struct zt_key *k = zt_key_next(NULL); k; k = zt_key_next(k)) {
        const char *def = k->default_rule ? k->default_rule(run)
                          : k->option     ? NULL
                                          : k->def;

        if (k->store.type == ZT_MEMBER_NONE)
            continue;
        check_older_key(c, k);
        store_node(&k->store, run, resolve(c, k, k->option, def));
    }
}

void zt_resolve_sizes(struct zt_config *c, struct zt_run *run, int64_t hidden_size)
{
    for (const struct zt_key *k = zt_key_next(NULL); k; k = zt_key_next(k)) {
        const struct zt_item *item = k->auto_rule ? zt_config_find(c, k->path) : NULL;
        struct zt_jnode *node;
        double value;

        if (!item || !item->is_auto)
            continue;
        value = k->auto_rule->value((double)hidden_size);
        if (value <= 0 || value > 9e18)
            continue;
        node = zt_int_node(&c->arena, (int64_t)value);
        zt_config_set(c, k->path, node,
                      zt_text_arena_printf(&c->arena, "auto: %s", k->auto_rule->text));
        if (node)
            store_node(&k->store, run, node);
    }
}

/* ---- precision ---- */

static void resolve_precision(struct zt_config *c, struct zt_run *run)
{
    bool fp16 = zt_resolve_bool(c, "fp16.enabled", "fp16", NULL);
    bool bf16 = zt_resolve_bool(c, "bf16.enabled", "bf16", NULL);

    run->compute_dtype = fp16 ? ZT_F16 : bf16 ? ZT_BF16 : ZT_F32;
    if (fp16 && bf16) {
        const struct zt_jnode *f =
            zt_jnode_get(zt_jnode_get(c->resolved, "fp16"), "enabled");
        const struct zt_jnode *b =
            zt_jnode_get(zt_jnode_get(c->resolved, "bf16"), "enabled");
        bool options = zt_option_given(c, "fp16") && zt_option_given(c, "bf16");

        zt_problems_add(
            &c->report, options ? ZT_E_USAGE : ZT_E_CONFIG,
            "fp16.enabled (%s) and bf16.enabled (%s) exclude each other: choose one",
            f ? f->comment : "", b ? b->comment : "");
    }
}

/* A flag that goes on top of bf16. */
static void check_bf16_flag(struct zt_config *c, const struct zt_run *run,
                            const char *option, const char *what)
{
    const struct zt_value *v = zt_args_value(c->args, option);

    if (v->boolean && run->compute_dtype != ZT_BF16)
        zt_problems_add(&c->report, zt_value_error(v),
                        "%s is about %s in bf16: give --bf16 (or \"bf16\": "
                        "{\"enabled\": true}), or leave it out",
                        v->where, what);
}

static void check_clipping(struct zt_config *c, const struct zt_run *run)
{
    const struct zt_value *given = zt_option_given(c, "max_grad_norm");

    if (run->max_grad_norm > 0 && run->max_grad_norm < 1e-30)
        zt_problems_add(&c->report, given ? zt_value_error(given) : ZT_E_CONFIG,
                        "gradient_clipping %g leaves nothing of gradients in single "
                        "precision; 0 is without clipping",
                        run->max_grad_norm);
}

static void check_numbers(struct zt_config *c, struct zt_run *run)
{
    const struct zt_scaler_config *s = &run->scaler;

    if (run->tf32 && run->compute_dtype != ZT_F32) {
        zt_problems_note(&c->report, "%s changes nothing: no product is of fp32",
                         zt_args_value(c->args, "tf32")->where);
        run->tf32 = false;
    }
    check_clipping(c, run);
    check_bf16_flag(c, run, "fp8", "linear layers of a run");
    check_bf16_flag(c, run, "stochastic_rounding", "weights");
    check_bf16_flag(c, run, "split_master", "master weights of weights");
    if (run->split_master && run->stochastic_rounding)
        zt_problems_add(
            &c->report, zt_value_error(zt_args_value(c->args, "split_master")),
            "%s finds masters again from weights that are rounded to nearest: "
            "leave it out, or %s",
            zt_args_value(c->args, "split_master")->where,
            zt_args_value(c->args, "stochastic_rounding")->where);
    if (run->compute_dtype == ZT_F16 && s->loss_scale > 0 && s->loss_scale < 1)
        zt_problems_add(
            &c->report, ZT_E_CONFIG,
            "fp16.loss_scale %g would make gradients smaller, where fp16 needs "
            "them larger: write 0, with which it adapts, or 1 and more",
            s->loss_scale);
    if (s->loss_scale == 0 &&
        s->min_loss_scale > (double)(1ull << s->initial_scale_power))
        zt_problems_add(&c->report, ZT_E_CONFIG,
                        "fp16.min_loss_scale %g is above the first scale, 2 to "
                        "fp16.initial_scale_power %d",
                        s->min_loss_scale, s->initial_scale_power);
}

/* ---- options that follow from others ---- */

/* Both are ways to keep what recomputation needs. */
static void ask_for_recomputation(struct zt_config *c, const char *path)
{
    const struct zt_item *item = zt_config_find(c, path);
    const struct zt_value *given = zt_args_value(c->args, "gradient_checkpointing");

    if (item && item->value->boolean)
        zt_args_set_default(c->args, "gradient_checkpointing", "true",
                            "rule: activation_checkpointing asks for it", &c->report);
    if (item && item->value->boolean && !given->boolean)
        zt_problems_add(&c->report, ZT_E_CONFIG,
                        "%s: \"%s\" asks for recomputation, but %s is false", item->where,
                        path, given->where);
}

/* --activations says all of it: nothing beside it may. */
static void resolve_activations(struct zt_config *c)
{
    static const char *const paths[] = {"activation_checkpointing.partition_activations",
                                        "activation_checkpointing.cpu_checkpointing"};
    const struct zt_value *how = zt_option_given(c, "activations");
    const struct zt_value *flag = zt_option_given(c, "gradient_checkpointing");
    const char *other = flag ? flag->where : NULL;

    if (!how)
        return;
    for (size_t i = 0; !other && i < sizeof(paths) / sizeof(*paths); i++) {
        const struct zt_item *item = zt_config_find(c, paths[i]);

        other = item && item->value->boolean ? item->where : NULL;
    }
    if (other)
        zt_problems_add(
            &c->report, zt_value_error(how),
            "%s is %s, and %s says how to keep activations as well; leave one "
            "of them out",
            how->where, how->text, other);
    else if (!strcmp(how->text, "recompute") || !strcmp(how->text, "host"))
        zt_args_set_default(c->args, "gradient_checkpointing", "true", how->where,
                            &c->report);
}

static void resolve_checkpointing(struct zt_config *c)
{
    resolve_activations(c);
    ask_for_recomputation(c, "activation_checkpointing.partition_activations");
    ask_for_recomputation(c, "activation_checkpointing.cpu_checkpointing");
}

/* What is to be done, where nobody says: there is a reason to name files. */
static void resolve_task(struct zt_config *c)
{
    bool only_predicts =
        zt_option_given(c, "do_predict") && zt_args_flag(c->args, "do_predict");

    if (zt_args_flag(c->args, "do_train") || zt_args_flag(c->args, "do_eval"))
        return;
    if (zt_args_string(c->args, "train_file") && !only_predicts)
        zt_args_set_default(c->args, "do_train", "true",
                            "rule: there is something to train on", &c->report);
    if (zt_args_string(c->args, "eval_file"))
        zt_args_set_default(c->args, "do_eval", "true",
                            "rule: there is something to evaluate on", &c->report);
}

/* Rows of these are predicted, not continued. */
static bool predicts_labels(const struct zt_config *c)
{
    const char *task = zt_args_string(c->args, "task");

    return task && (strcmp(task, "classify") == 0 || strcmp(task, "regress") == 0 ||
                    strcmp(task, "tag") == 0);
}

/* A name with two meanings: of samples in training, and of prompt and text together. */
static void check_max_length(struct zt_config *c)
{
    const struct zt_value *v = zt_args_value(c->args, "block_size");

    if (v && strcmp(v->where, "--max_length") == 0 &&
        !zt_args_string(c->args, "train_file"))
        zt_problems_add(
            &c->report, ZT_E_USAGE,
            "--max_length %s: samples of a training have it, as --block_size; "
            "how many tokens are written behind a prompt says "
            "--max_new_tokens N",
            v->text);
}

/* transformers counts the token that a text begins with. */
static void resolve_max_length(struct zt_config *c)
{
    const struct zt_value *most = zt_option_given(c, "generation_max_length");
    const struct zt_value *tokens = zt_option_given(c, "generate_tokens");
    char text[24];

    snprintf(text, sizeof(text), "%lld", (long long)most->integer - 1);
    if (most->integer < 2)
        zt_problems_add(&c->report, zt_value_error(most),
                        "%s is %lld: with the token that it begins with, a text has at "
                        "least 2",
                        most->where, (long long)most->integer);
    else if (tokens && tokens->integer != most->integer - 1)
        zt_problems_add(&c->report, zt_value_error(most),
                        "%s is %lld, with the token that a text begins with, and %s is "
                        "%lld: leave one of them out",
                        most->where, (long long)most->integer, tokens->where,
                        (long long)tokens->integer);
    else
        zt_args_set_default(c->args, "generate_tokens", text, most->where, &c->report);
}

/* As long as targets, with the token that they begin with, as in Trainer's scripts. */
static const char *usual_tokens(const struct zt_config *c, char out[24])
{
    int64_t target = zt_args_int(c->args, "max_target_length");

    snprintf(out, 24, "%lld", (long long)(target > 1 ? target - 1 : 100));
    return out;
}

/* Texts for a metric are not drawn, nor are beams, which are for the likeliest text. */
static void resolve_generation(struct zt_config *c)
{
    const char *file = zt_args_string(c->args, "test_file");
    bool rates = zt_args_flag(c->args, "predict_with_generate");
    bool writes = file || rates || zt_args_string(c->args, "prompt");
    const char *why = file    ? "rule: there is a --test_file"
                      : rates ? "rule: --predict_with_generate"
                              : "rule: there is a prompt";
    char most[24];

    if (file)
        zt_args_set_default(c->args, "do_predict", "true", "rule: there is a --test_file",
                            &c->report);
    if (file && predicts_labels(c))
        return;
    if (file || zt_args_string(c->args, "prompt"))
        check_max_length(c);
    if (zt_args_int(c->args, "generation_max_length"))
        resolve_max_length(c);
    else if (zt_args_flag(c->args, "interactive"))
        zt_args_set_default(c->args, "generate_tokens", "200", "rule: --interactive",
                            &c->report);
    else if (writes)
        zt_args_set_default(c->args, "generate_tokens", usual_tokens(c, most), why,
                            &c->report);
    if (file || rates || zt_args_int(c->args, "num_beams") > 1)
        zt_args_set_default(c->args, "do_sample", "false",
                            file || rates ? why : "rule: beams search", &c->report);
}

static void set_option_defaults(struct zt_config *c)
{
    resolve_checkpointing(c);
    resolve_generation(c);
    resolve_task(c);
    zt_resolve_strategies(c);
}

/* ---- the rest ---- */

/* The file's number of steps between reports; NULL: it has none. */
static const struct zt_item *steps_per_print(const struct zt_config *c)
{
    const struct zt_item *item = zt_config_find(c, "steps_per_print");

    return item && !item->is_auto && item->value->type == ZT_JSON_NUMBER ? item : NULL;
}

int64_t zt_logging_steps(const struct zt_config *c)
{
    const struct zt_item *item = steps_per_print(c);
    const struct zt_value *steps = zt_args_value(c->args, "logging_steps");

    return item && steps->from < ZT_FROM_ENV ? zt_node_int(item->value) : steps->integer;
}

static void resolve_reports(struct zt_config *c, struct zt_run *run)
{
    const struct zt_item *item = steps_per_print(c);
    const struct zt_value *steps = zt_args_value(c->args, "logging_steps");

    run->logging_steps = zt_logging_steps(c);
    if (item && steps->from < ZT_FROM_ENV) {
        zt_config_set(c, "steps_per_print", item->value, item->where);
    } else {
        if (item && zt_node_int(item->value) != steps->integer)
            zt_problems_note(&c->report, "%s: steps_per_print gives way to %s",
                             item->where, steps->where);
        zt_config_set(c, "steps_per_print", zt_int_node(&c->arena, steps->integer),
                      steps->where);
    }
}

static void check_task(struct zt_config *c, const struct zt_run *run)
{
    const struct zt_value *steps = zt_args_value(c->args, "max_steps");
    const struct zt_value *epochs = zt_args_value(c->args, "num_train_epochs");

    if (run->max_steps == 0)
        zt_problems_add(&c->report, zt_value_error(steps),
                        "%s: 0 steps are no training; give --do_eval or --prompt alone "
                        "to do only that",
                        steps->where);
    if (run->do_train && run->max_steps < 0 && run->num_train_epochs == 0)
        zt_problems_add(&c->report, zt_value_error(epochs),
                        "%s: 0 epochs are no training; give --do_eval or --prompt alone "
                        "to do only that",
                        epochs->where);
    /* a name that is wrong may be the one that would have said it */
    if (run->do_train || run->do_eval || run->do_predict || run->generate_tokens ||
        run->check_config || run->dry_run || run->merge_adapters ||
        c->report.code == ZT_E_USAGE)
        return;
    if (run->train_files && run->train_files[0] && zt_option_given(c, "do_train"))
        zt_problems_add(&c->report, ZT_E_USAGE,
                        "nothing to do: %s is false; leave it out to train on %s",
                        zt_option_given(c, "do_train")->where, run->train_files[0]);
    else if (run->prompt && zt_option_given(c, "generate_tokens"))
        zt_problems_add(&c->report, ZT_E_USAGE,
                        "nothing to do: %s adds no token to a prompt",
                        zt_option_given(c, "generate_tokens")->where);
    else
        zt_problems_add(&c->report, ZT_E_USAGE,
                        "nothing to do: give --train_file to train, --eval_file to "
                        "evaluate, or --prompt");
}

/* What --do_predict needs, and what is given to it and to nobody else. */
static void check_prediction(struct zt_config *c, const struct zt_run *run)
{
    if (run->do_predict && !run->test_file)
        zt_problems_add(
            &c->report, ZT_E_USAGE,
            "--do_predict needs a --test_file with the rows to predict or to continue");
    if (run->do_predict && !run->output_dir)
        zt_problems_add(&c->report, ZT_E_USAGE,
                        "--test_file needs an --output_dir for predictions.jsonl");
    if (run->test_file && !run->do_predict)
        zt_problems_add(&c->report, ZT_E_USAGE,
                        "--test_file and --do_predict=false: leave one of them out");
    if (run->predict_with_generate && predicts_labels(c))
        zt_problems_add(&c->report, ZT_E_USAGE,
                        "--predict_with_generate is for tasks that write text; --task %s "
                        "has metrics of its own",
                        zt_args_string(c->args, "task"));
    else if (run->predict_with_generate && !run->do_predict &&
             !(run->do_eval && zt_args_string(c->args, "eval_file")))
        zt_problems_add(
            &c->report, ZT_E_USAGE,
            "--predict_with_generate needs rows with texts to compare with: those of "
            "--test_file, or of an --eval_file that is evaluated; the end of "
            "--train_file "
            "that is held out is not written");
    if (run->interactive && (run->test_file || run->prompt[0]))
        zt_problems_add(&c->report, ZT_E_USAGE,
                        "--interactive and %s: texts are given by one of the two",
                        run->test_file ? "--test_file" : "--prompt");
    if (run->interactive && run->num_return_sequences > 1)
        zt_problems_add(&c->report, ZT_E_USAGE,
                        "--interactive: there is one answer; leave out "
                        "--num_return_sequences");
    if (run->test_file && run->prompt[0])
        zt_problems_add(&c->report, ZT_E_USAGE,
                        "--prompt and --test_file: texts are given by one of the two");
}

/* As `generate` of transformers has them. */
static void check_generation(struct zt_config *c, const struct zt_run *run)
{
    bool greedy = !run->do_sample || run->temperature == 0;
    const struct zt_value *most = zt_option_given(c, "generate_tokens");
    const struct zt_value *fewest = zt_args_value(c->args, "min_new_tokens");
    const struct zt_value *several = zt_args_value(c->args, "num_return_sequences");

    check_prediction(c, run);
    if (run->num_beams > 1 && run->num_return_sequences > run->num_beams)
        zt_problems_add(&c->report, zt_value_error(several),
                        "%s: %lld texts of %lld beams; at most as many as there are",
                        several->where, (long long)run->num_return_sequences,
                        (long long)run->num_beams);
    if (run->num_beams == 1 && greedy && run->num_return_sequences > 1)
        zt_problems_add(&c->report, zt_value_error(several),
                        "%s: without --do_sample or --num_beams there is one text alone, "
                        "the likeliest",
                        several->where);
    if (most && !run->generate_tokens &&
        (run->do_train || run->do_eval || run->do_predict) &&
        (run->prompt[0] || run->interactive || run->predict_with_generate ||
         (run->test_file && !predicts_labels(c))))
        zt_problems_add(&c->report, ZT_E_USAGE, "%s 0: no token is added to a prompt",
                        most->where);
    if (run->generate_tokens && run->min_new_tokens > run->generate_tokens)
        zt_problems_add(&c->report, ZT_E_USAGE, "%s %lld is more than the %lld of %s",
                        fewest->where, (long long)run->min_new_tokens,
                        (long long)run->generate_tokens,
                        most ? most->where : "--max_new_tokens");
}

void zt_resolve_all(struct zt_config *c, struct zt_run *run)
{
    set_option_defaults(c);
    zt_run_store_options(run, c->args);
    zt_resolve_batch(c, run);
    resolve_reports(c, run);
    zt_resolve_optimizer(c, run);
    zt_resolve_scheduler(c, run);
    resolve_precision(c, run);
    store_keys(c, run);
    check_numbers(c, run);
    zt_resolve_offload(c, run);
    zt_check_zero(c, run);
    check_task(c, run);
    check_generation(c, run);
}
