#include "worker/config/run.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/files/folders.h"
#include "common/files/models.h"
#include "common/log.h"
#include "common/options/env_names.h"
#include "worker/config/config.h"
#include "worker/config/options.h"
#include "worker/config/resolve.h"

/* The run and what it was made from, in one piece. */
struct run_and_config {
    struct zt_run run; /* first: zt_run_close() gets its address */
    struct zt_config config;
};

/* ---- files ---- */

/* The name of a Megatron dataset without the .idx and .bin of its two files. */
static bool is_stem(const char *path)
{
    char idx[PATH_MAX];
    int n = snprintf(idx, sizeof(idx), "%s.idx", path);

    return n > 0 && n < (int)sizeof(idx) && access(idx, F_OK) == 0;
}

/* A file by its very name: behind backslashes its characters mean nothing. */
static int take_file(const char *name, int flags, glob_t *found)
{
    char plain[2 * PATH_MAX];
    size_t n = 0;

    for (; *name && n + 3 < sizeof(plain); name++) {
        if (strchr("*?[]\\", *name))
            plain[n++] = '\\';
        plain[n++] = *name;
    }
    plain[n] = 0;
    return glob(plain, flags, NULL, found);
}

/* The end of the alternative that begins at `at`: a ',' or '}' that no inner braces have. NULL:
 * there is none. */
static const char *alternative_end(const char *at)
{
    for (int depth = 0; *at; at++) {
        if (!depth && (*at == ',' || *at == '}'))
            return at;
        depth += (*at == '{') - (*at == '}');
    }
    return NULL;
}

/* The paths of one pattern, or a name that is there, whatever its characters. */
static int take_matches(const char *pattern, int *flags, glob_t *found)
{
    int rc = access(pattern, F_OK) == 0 ? take_file(pattern, *flags, found)
                                        : glob(pattern, *flags | GLOB_TILDE, NULL, found);

    if (rc == GLOB_NOMATCH && is_stem(pattern))
        rc = glob(pattern, *flags | GLOB_NOCHECK, NULL, found);
    *flags = GLOB_APPEND;
    return rc;
}

/* "a{b,c}" is two patterns, as in a shell, each of which has to match. *none: the first that
 * does not. glob() takes them together, and is content with one. */
static int glob_pattern(struct zt_config *c, const char *pattern, int *flags,
                        glob_t *found, const char **none)
{
    const char *open = strchr(pattern, '{');
    const char *last = open ? alternative_end(open + 1) : NULL;
    int rc = 0;

    while (last && *last == ',')
        last = alternative_end(last + 1);
    if (!last || last == open + 1 || access(pattern, F_OK) == 0) {
        *none = pattern;
        return take_matches(pattern, flags, found);
    }
    for (const char *at = open, *end; !rc && at != last; at = end) {
        const char *one;

        end = alternative_end(at + 1);
        one = zt_text_arena_printf(&c->arena, "%.*s%.*s%s", (int)(open - pattern),
                                   pattern, (int)(end - at - 1), at + 1, last + 1);
        rc = one ? glob_pattern(c, one, flags, found, none) : GLOB_NOSPACE;
    }
    return rc;
}

/* Patterns to paths, NULL-terminated; one without a match is a problem. */
static const char *const *expand(struct zt_config *c, const char *option)
{
    const struct zt_value *v = zt_args_value(c->args, option);
    glob_t found = {0};
    const char **out;
    int flags = 0;

    for (int i = 0; v->list[i]; i++) {
        const char *name = v->list[i], *none = name;
        int rc = glob_pattern(c, name, &flags, &found, &none);

        if (rc == GLOB_NOMATCH)
            zt_problems_add(&c->report, ZT_E_NOINPUT,
                            access(none, F_OK) && errno == EACCES
                                ? "%s: a folder on the way to %s may not be read"
                                : "%s: there is no file %s",
                            v->where, none);
        else if (rc)
            zt_problems_add(&c->report, rc == GLOB_NOSPACE ? ZT_E_NOMEM : ZT_E_NOINPUT,
                            "%s: cannot look up %s", v->where, name);
    }
    out = zt_text_arena_alloc(&c->arena, (found.gl_pathc + 1) * sizeof(*out));
    for (size_t i = 0; out && i < found.gl_pathc; i++)
        out[i] =
            zt_text_arena_copy(&c->arena, found.gl_pathv[i], strlen(found.gl_pathv[i]));
    if (flags)
        globfree(&found);
    return out;
}

/* Adapters are no use without the model that they are for. */
static bool is_base_replaced(const struct zt_run *run)
{
    return (run->lora_r || run->adapter_name_or_path) && !run->merge_adapters &&
           run->model_name_or_path &&
           zt_is_of_folder(run->output_dir, run->model_name_or_path);
}

/* Whether nothing is named from which a training that is to go on could: where --output_dir
 * has no checkpoint. */
static bool resumes_nothing(const struct zt_run *run)
{
    const char *what = run->resume_from_checkpoint;

    return what && !zt_has_checkpoints(run->output_dir, false) &&
           (!strcmp(what, "auto") || !strcasecmp(what, "true") || access(what, F_OK));
}

static bool resumes_by_auto(const struct zt_run *run)
{
    return strcmp(run->resume_from_checkpoint, "auto") == 0;
}

static bool has_latest(const char *dir)
{
    char path[PATH_MAX + 16];

    snprintf(path, sizeof(path), "%s/latest", dir);
    return access(path, F_OK) == 0;
}

zt_err zt_run_check_replaced(const struct zt_run *run, struct zt_fault *fault)
{
    char path[PATH_MAX];
    const char *dir = run->output_dir;

    if (run->overwrite_output_dir || run->attempt ||
        !*dir) /* "" is told where it is read */
        return ZT_OK;
    if (zt_find_model(dir, path) && resumes_nothing(run) && has_latest(dir))
        return zt_fault_set(fault, resumes_by_auto(run) ? ZT_E_CANTCREATE : ZT_E_NOINPUT,
                            "--resume_from_checkpoint %s: there is no checkpoint-N; %s "
                            "has one that its file `latest` names, as a plugin saves it: "
                            "--resume_from_checkpoint %s goes on from that",
                            run->resume_from_checkpoint, dir, dir);
    if (zt_find_model(dir, path) && resumes_nothing(run))
        return zt_fault_set(fault, resumes_by_auto(run) ? ZT_E_CANTCREATE : ZT_E_NOINPUT,
                            "--resume_from_checkpoint %s: there is no checkpoint, and %s "
                            "has weights alone: a training from them begins by "
                            "--model_name_or_path %s, with another --output_dir",
                            run->resume_from_checkpoint, dir, dir);
    if (zt_find_model(dir, path))
        return zt_fault_set(fault, ZT_E_CANTCREATE,
                            "--output_dir: %s is there already; %s--overwrite_output_dir "
                            "replaces it",
                            path,
                            zt_has_checkpoints(dir, true)
                                ? "--resume_from_checkpoint auto goes on from the "
                                  "checkpoints beside it, "
                                : "");
    if (strcmp(run->save_strategy, "no") == 0 || !zt_has_checkpoints(dir, false))
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_CANTCREATE,
                        "--output_dir: %s has checkpoints already; %s"
                        "--overwrite_output_dir %s beside them",
                        dir,
                        zt_has_checkpoints(dir, true)
                            ? "--resume_from_checkpoint auto goes on from them, "
                            : "",
                        run->resume_from_checkpoint ? "saves" : "begins anew");
}

zt_err zt_run_check_output_dir(const struct zt_run *run, struct zt_fault *fault)
{
    if (is_base_replaced(run))
        return zt_fault_set(
            fault, ZT_E_CANTCREATE,
            "--output_dir: %s is the folder of --model_name_or_path, whose model "
            "adapters do not replace: they are for it; name another folder",
            run->output_dir);
    if (run->resume_from_checkpoint && zt_has_checkpoints(run->output_dir, false))
        return ZT_OK; /* what is replaced is this run's own, or it ends in an error */
    return zt_run_check_replaced(run, fault);
}

/* A tokenizer that is made is the only one, of text that is there, for a model that is new. */
static void check_train_tokenizer(struct zt_config *c, const struct zt_run *run)
{
    const char *why = NULL;

    if (!run->train_tokenizer)
        return;
    if (run->train_tokenizer < 257)
        why = "256 bytes and end-of-text are 257 tokens";
    else if (!run->train_files || !run->train_files[0])
        why = "it is made from the text of --train_file, which is missing";
    else if (run->tokenizer_name)
        why = "--tokenizer_name is there, too: leave one of them out";
    else if (run->model_name_or_path)
        why = "the weights of --model_name_or_path have the ids of another tokenizer: "
              "leave "
              "one of them out";
    else if (strstr("nanogpt llmc megatron", run->data_format))
        why = "it is made from text, and --data_format says that the files hold ids";
    else if (!run->output_dir && !run->dry_run && !run->check_config)
        why = "it needs an --output_dir, where it is saved";
    if (why)
        zt_problems_add(&c->report, ZT_E_USAGE, "--train_tokenizer %lld: %s",
                        (long long)run->train_tokenizer, why);
}

/* Adapters are beside weights that are there; what is about them needs them. */
static void check_adapters(struct zt_config *c, const struct zt_run *run)
{
    static const char *const about[] = {"lora_alpha",     "lora_dropout",
                                        "use_rslora",     "lora_target_modules",
                                        "merge_adapters", NULL};
    bool any = run->lora_r || run->adapter_name_or_path;
    const char *said = any ? NULL : zt_run_says(run, about);

    if (said)
        zt_problems_add(&c->report, ZT_E_USAGE,
                        "%s: there are no adapters: say --lora_r or "
                        "--adapter_name_or_path",
                        said);
    if (any && !run->model_name_or_path && !run->dry_run)
        zt_problems_add(&c->report, ZT_E_USAGE,
                        "%s needs --model_name_or_path: the weights that adapters are "
                        "beside",
                        run->lora_r ? "--lora_r" : "--adapter_name_or_path");
    if (run->merge_adapters && any && !run->output_dir)
        zt_problems_add(&c->report, ZT_E_USAGE,
                        "--merge_adapters: say --output_dir, where the model goes");
}

/* "$OUT" of a shell variable that is not set. */
static void check_empty_names(struct zt_config *c)
{
    for (const struct zt_option *o = zt_args_table(c->args); o->name; o++) {
        const struct zt_value *v = zt_option_given(c, o->name);
        bool is_path = o->kind == ZT_OPT_STRING && o->flags & ZT_OPTION_PATH;

        /* that of --deepspeed is told where it is read */
        if (is_path && v && v->text && !*v->text && strcmp(o->name, "deepspeed") != 0)
            zt_problems_add(&c->report, zt_value_error(v),
                            "%s: it is empty, as a variable that is not set is; name a "
                            "%s, or leave it out",
                            v->where, strcmp(o->value, "FILE") ? "folder" : "file");
    }
}

static void check_device(struct zt_config *c, const struct zt_run *run)
{
    if (strcmp(run->device, "meta") == 0 && !run->dry_run && !run->check_config)
        zt_problems_add(
            &c->report, ZT_E_USAGE,
            "--device meta: it has shapes alone and no values, so nothing can "
            "be trained or computed on it; it is for a --dry_run");
}

bool zt_run_reads(const struct zt_run *run, const char *file)
{
    const char *const test[] = {run->test_file, NULL};
    const char *const *lists[] = {run->train_files, run->eval_files, test};
    bool is = false;

    for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++)
        for (const char *const *f = lists[i]; f && *f; f++)
            is |= zt_is_one_file(file, *f);
    return is;
}

/* A timeline, and predictions, take the place of what is there. */
static void check_replaced(struct zt_config *c, const struct zt_run *run)
{
    char predictions[PATH_MAX];

    if (run->trace && zt_run_reads(run, run->trace))
        zt_problems_add(&c->report, ZT_E_USAGE,
                        "--trace %s: that is a file of data, which a timeline would "
                        "replace; name another",
                        run->trace);
    if (!run->do_predict || !run->output_dir)
        return;
    snprintf(predictions, sizeof(predictions), "%s/predictions.jsonl", run->output_dir);
    if (zt_run_reads(run, predictions))
        zt_problems_add(&c->report, ZT_E_USAGE,
                        "--output_dir %s: %s is a file of data, which the predictions "
                        "would replace; name another folder",
                        run->output_dir, predictions);
}

static void check_files(struct zt_config *c, struct zt_run *run)
{
    struct zt_fault fault = {0};

    if ((run->do_train || run->do_eval) && run->train_files && !run->train_files[0] &&
        !(run->do_eval && !run->do_train && run->eval_files[0]) &&
        !c->report.num_problems)
        zt_problems_add(&c->report, ZT_E_USAGE, "%s",
                        run->do_train ? "--do_train needs --train_file"
                                      : "--do_eval needs --eval_file or --train_file");
    check_empty_names(c);
    if (run->resume_from_checkpoint && !strcasecmp(run->resume_from_checkpoint, "false"))
        run->resume_from_checkpoint = NULL;
    if (run->resume_from_checkpoint && !run->do_train && !c->report.num_problems)
        zt_problems_add(&c->report, ZT_E_USAGE,
                        "--resume_from_checkpoint goes on with a training, and this run "
                        "does not train: --model_name_or_path DIR takes the weights of a "
                        "checkpoint, --do_train trains as well");
    check_train_tokenizer(c, run);
    check_adapters(c, run);
    check_device(c, run);
    check_replaced(c, run);
    if ((run->do_train || run->merge_adapters) && run->output_dir && !run->check_config &&
        !run->dry_run && zt_run_check_output_dir(run, &fault))
        zt_problems_add(&c->report, fault.code, "%s", fault.text);
}

/* ---- open ---- */

static void check_model_options(struct zt_config *c)
{
    const struct zt_option *o = zt_args_table(c->model_args);

    for (; o->name; o++) {
        const char *name = zt_args_find(c->args, o->name) ? o->name : o->alias;

        if (name && zt_args_find(c->args, name))
            zt_problems_add(&c->report, ZT_E_PLUGIN,
                            "the plugin's option --%s is a run option; it needs another "
                            "name",
                            name);
    }
}

static void warn(void *ctx, const char *text)
{
    (void)ctx;
    zt_warn("config", "%s", text);
}

static void warn_of_environment(const struct zt_config *c)
{
    const struct zt_option *const tables[] = {zt_args_table(c->args),
                                              zt_args_table(c->model_args),
                                              zt_run_foreign_names.beyond};
    const struct zt_foreign *const foreign[] = {zt_run_foreign_names.rows};

    zt_env_names_check(
        &(struct zt_env_readers){
            .tables = tables, .num_tables = 3, .foreign = foreign, .num_foreign = 1},
        warn, NULL);
}

static zt_err open_args(struct zt_config *c, int argc, char **argv,
                        const struct zt_run_facts *facts, struct zt_fault *fault)
{
    static const struct zt_option none[] = {{.name = NULL}};
    zt_err rc = zt_args_open(zt_run_options(), &c->args, fault);

    if (!rc)
        rc = zt_args_open(facts->model_options ? facts->model_options : none,
                          &c->model_args, fault);
    if (rc)
        return rc == ZT_E_ARG ? zt_fault_context(fault, ZT_E_PLUGIN, "%s", facts->program)
                              : rc;
    check_model_options(c);
    zt_args_know(c->args, &zt_run_foreign_names);
    zt_args_read_words((zt_args *const[]){c->args, c->model_args}, 2, argc, argv, NULL,
                       &c->report);
    zt_args_read_env(c->args, &c->report);
    zt_args_read_env(c->model_args, &c->report);
    if (facts->rank == 0 && facts->attempt == 0)
        warn_of_environment(c);
    return ZT_OK;
}

zt_err zt_run_open(int argc, char **argv, const struct zt_run_facts *facts,
                   struct zt_run **out, struct zt_fault *fault)
{
    struct run_and_config *w = calloc(1, sizeof(*w));
    struct zt_config *c;
    struct zt_run *run;
    zt_err rc;

    if (!w)
        return zt_fault_set(fault, ZT_E_NOMEM, "run: no host memory");
    c = &w->config;
    run = &w->run;
    zt_config_init(c);
    run->config = c;
    if (!c->resolved) {
        zt_run_close(run);
        return zt_fault_set(fault, ZT_E_NOMEM, "run: no host memory");
    }
    run->rank = facts->rank;
    run->world = facts->world;
    run->local_rank = facts->local_rank;
    run->local_world = facts->local_world;
    run->attempt = facts->attempt;
    run->job = zt_text_arena_copy(&c->arena, facts->job, strlen(facts->job));
    rc = open_args(c, argc, argv, facts, fault);
    if (rc) {
        zt_run_close(run);
        return rc;
    }
    run->model_args = c->model_args;
    run->has_json = zt_args_string(c->args, "deepspeed") != NULL;
    if (run->has_json)
        zt_config_read(c, zt_args_string(c->args, "deepspeed"));
    for (const struct zt_foreign_key *k = zt_args_keys(c->args); k; k = k->next)
        zt_config_read_key(c, k);
    zt_config_to_args(c);
    zt_resolve_all(c, run);
    run->train_files = expand(c, "train_file");
    run->eval_files = expand(c, "eval_file");
    check_files(c, run);
    if (zt_args_misuse(c->args))
        zt_problems_add(&c->report, ZT_E_ARG, "internal error in the options: %s",
                        zt_args_misuse(c->args));
    rc = zt_problems_end(&c->report, fault);
    if (rc) {
        zt_run_close(run);
        return rc;
    }
    *out = run;
    return ZT_OK;
}

void zt_run_close(struct zt_run *run)
{
    if (!run)
        return;
    zt_config_release(run->config);
    free(run); /* also the address of run_and_config */
}

void zt_run_resolve_steps(struct zt_run *run, int64_t total_steps)
{
    zt_resolve_steps(run->config, run, total_steps);
}

zt_err zt_run_resolve(struct zt_run *run, int64_t hidden_size, int64_t total_steps,
                      struct zt_fault *fault)
{
    zt_resolve_steps(run->config, run, total_steps);
    zt_resolve_sizes(run->config, run, hidden_size);
    return zt_problems_end(&run->config->report, fault);
}

const char *zt_run_note(const struct zt_run *run, int i)
{
    const struct zt_problems_line *l = run->config->report.notes;

    while (l && i-- > 0)
        l = l->next;
    return l ? l->text : NULL;
}

const char *zt_run_says(const struct zt_run *run, const char *const *names)
{
    const struct zt_value *given = NULL;

    for (size_t i = 0; !given && names[i]; i++) {
        given = zt_option_given(run->config, names[i]);
        if (given && given->from < ZT_FROM_ENV) /* of a file, which is for many runs */
            given = NULL;
    }
    return given ? given->where : NULL;
}

const char *zt_run_key_says_otherwise(const struct zt_run *run, const char *path,
                                      const char *text)
{
    const struct zt_item *item = zt_config_find(run->config, path);
    bool typed = item && !item->value->line && item->value->text;

    return typed && strcmp(item->value->text, text) != 0 ? item->where : NULL;
}

bool zt_run_json_says(const struct zt_run *run, const char *path)
{
    const struct zt_item *item = zt_config_find(run->config, path);

    return item && !item->is_auto && item->value->type != ZT_JSON_NULL;
}

const char *zt_run_best_metric(const struct zt_run *run)
{
    const char *name = run->metric_for_best_model;

    return strncmp(name, "eval_", 5) == 0 ? name + 5 : name;
}

void zt_run_print_help(FILE *out)
{
    zt_options_print_help(out, NULL, zt_run_options());
    zt_foreign_print_keys(out, zt_run_foreign_names.rows);
}

zt_err zt_run_print_config(const struct zt_run *run, FILE *out, struct zt_fault *fault)
{
    zt_config_complete(run->config);
    if (run->config->arena.failed)
        return zt_fault_set(fault, ZT_E_NOMEM, "printing the config: no host memory");
    zt_jtree_print(out, run->config->resolved);
    return ZT_OK;
}
