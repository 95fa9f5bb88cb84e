/* labels.c -- the classes of a run: of the weights that it starts from, else of its data. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/mapped_file.h"
#include "worker/checkpoint/hf_folder.h"
#include "worker/checkpoint/reader.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/data/tokens.h"
#include "worker/engine/tasks/task.h"
#include "worker/engine/weights.h"

#define MOST_COMPARED 1000    /* classes, each with each */
#define MOST_UNNAMED  1000000 /* classes that a config.json counts; more are no count */

static bool has_classes(zt_task task)
{
    return task == ZT_TASK_CLASSIFY || task == ZT_TASK_TAG;
}

/* ---- of the weights ---- */

/* The class of transformers that config.json is of; NULL: it says none. */
static const char *class_of(const json_t *config)
{
    return json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
}

/* A class without a head, or none, leaves it to the weights whether there is one. */
static bool names_head(const json_t *config)
{
    const char *name = class_of(config);

    return name && strstr(name, "For");
}

/* Whether config.json is of a model with a head for this task. */
static bool has_head(const json_t *config, zt_task task)
{
    const char *name = class_of(config);

    return name && strstr(name, task == ZT_TASK_TAG ? "ForTokenClassification"
                                                    : "ForSequenceClassification");
}

static zt_err add_unnamed(struct zt_labels *l, int64_t num, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;
    char name[40];

    for (int64_t i = 0; !rc && i < num; i++) {
        snprintf(name, sizeof(name), "LABEL_%lld", (long long)i);
        rc = zt_labels_add(l, name, fault);
    }
    return rc;
}

/* Those in id2label; transformers leaves it out where there are two without names, and older files
 * where num_labels says how many there are. */
static int64_t outputs_of(const json_t *config)
{
    json_int_t named = (json_int_t)json_object_size(json_object_get(config, "id2label"));
    json_int_t unnamed = json_integer_value(json_object_get(config, "num_labels"));

    if (named)
        return named;
    return unnamed > 0 && unnamed <= MOST_UNNAMED ? unnamed : 2;
}

static zt_err take_names(const json_t *config, const char *path, struct zt_labels *l,
                         struct zt_fault *fault)
{
    const json_t *names = json_object_get(config, "id2label");
    size_t num = json_object_size(names);
    zt_err rc = ZT_OK;

    if (names && !json_is_null(names) && !json_is_object(names))
        return zt_fault_set(fault, ZT_E_CONFIG,
                            "%s: id2label is no object of numbers and names, as in "
                            "{\"0\": \"no\", \"1\": \"yes\"}",
                            path);
    if (!num)
        return add_unnamed(l, outputs_of(config), fault);
    for (size_t i = 0; !rc && i < num; i++) {
        char key[24], room[ZT_LABEL_DIGITS];
        const json_t *value;
        const char *name;

        snprintf(key, sizeof(key), "%zu", i);
        value = json_object_get(names, key);
        name = value ? zt_label_name(value, room) : NULL;
        if (!name || (l->ids && json_object_get(l->ids, name)))
            return zt_fault_set(fault, ZT_E_CONFIG,
                                "%s: id2label does not give each number from 0 to %zu a "
                                "name of its own (\"%s\")",
                                path, num - 1, key);
        rc = zt_labels_add(l, name, fault);
    }
    return rc;
}

/* What is wrong with the file, the model says. *sure: it names a head of this task. */
static zt_err of_config(const struct zt_engine *e, const char *path, struct zt_labels *l,
                        bool *sure, struct zt_fault *fault)
{
    json_t *config = json_load_file(path, 0, NULL);
    zt_err rc = ZT_OK;

    *sure = config && has_head(config, e->task);
    if (*sure || (config && !names_head(config)))
        rc = take_names(config, path, l, fault);
    json_decref(config);
    return rc;
}

/* Classes of a head that was trained with adapters; 0: none was. */
static int64_t adapted_head_rows(const char *folder)
{
    static const char head[] = "base_model.model.classifier.weight";
    const struct zt_safetensors_tensor *t;
    struct zt_safetensors_file *f = NULL;
    char path[PATH_MAX];
    int64_t rows;

    snprintf(path, sizeof(path), "%s/adapter_model.safetensors", folder);
    if (zt_safetensors_open(path, &f, NULL)) /* refused when it is loaded */
        return 0;
    t = zt_safetensors_find(f, head);
    rows = t && t->ndim == 2 ? t->shape[0] : 0;
    zt_safetensors_close(f);
    return rows;
}

/* A head that was trained with adapters. The Python package peft keeps no names: they are those of
 * the model beneath, where it has as many. */
static zt_err of_adapters(const struct zt_engine *e, struct zt_labels *l,
                          struct zt_fault *fault)
{
    int64_t outputs = adapted_head_rows(e->run->adapter_name_or_path);
    const char *folder = e->run->model_name_or_path;
    char path[PATH_MAX];
    bool sure;
    zt_err rc;

    snprintf(path, sizeof(path), "%s/config.json", e->run->adapter_name_or_path);
    rc = of_config(e, path, l, &sure, fault);
    if (rc || l->num || !outputs)
        return rc;
    path[0] = '\0';
    if (folder)
        rc = zt_weights_config_path(folder, path, sizeof(path), fault);
    if (!rc && path[0])
        rc = of_config(e, path, l, &sure, fault);
    if (rc || l->num == outputs)
        return rc;
    zt_labels_release(l);
    return add_unnamed(l, outputs, fault);
}

/* Whether a folder has weights of a head: without, the head that its config.json speaks of begins
 * as new. */
static zt_err find_head(const char *folder, bool *trained, struct zt_fault *fault)
{
    struct zt_hf_folder *hf = NULL;
    zt_err rc;

    *trained = zt_ckpt_gives_weights(folder); /* which has all of its model */
    if (*trained)
        return ZT_OK;
    rc = zt_hf_folder_open(folder, &hf, fault);
    for (int i = 0; !rc && i < zt_hf_folder_count(hf); i++)
        *trained |= zt_hf_is_of_head(zt_hf_folder_at(hf, i)->name);
    zt_hf_folder_close(hf);
    return rc;
}

const char *zt_task_of_trained_head(const char *folder)
{
    char path[PATH_MAX];
    json_t *config;
    zt_task task = ZT_NUM_TASKS;
    bool trained = false;

    snprintf(path, sizeof(path), "%s/config.json", folder);
    config = json_load_file(path, 0, NULL);
    if (config && has_head(config, ZT_TASK_TAG))
        task = ZT_TASK_TAG;
    else if (config && has_head(config, ZT_TASK_CLASSIFY))
        task = outputs_of(config) == 1 ? ZT_TASK_REGRESS : ZT_TASK_CLASSIFY;
    json_decref(config);
    return task != ZT_NUM_TASKS && !find_head(folder, &trained, NULL) && trained
               ? zt_task_name(task)
               : NULL;
}

static zt_err of_weights(const struct zt_engine *e, struct zt_labels *l, bool *trained,
                         struct zt_fault *fault)
{
    const char *folder = e->run->model_name_or_path;
    char path[PATH_MAX] = "";
    bool sure = true;
    zt_err rc = ZT_OK;

    *trained = true;
    if (e->run->adapter_name_or_path)
        rc = of_adapters(e, l, fault);
    if (rc || l->num || !folder)
        return rc;
    rc = zt_weights_config_path(folder, path, sizeof(path), fault);
    if (!rc && path[0])
        rc = of_config(e, path, l, &sure, fault);
    if (rc || !l->num)
        return rc;
    rc = find_head(folder, trained, fault);
    if (!rc && !*trained && !sure) /* a body: the classes are those of the data */
        zt_labels_release(l);
    return rc;
}

/* ---- of the data ---- */

static zt_err collect_file(const struct zt_engine *e, const char *path,
                           struct zt_labels *l, struct zt_fault *fault)
{
    const struct zt_example_spec spec = {
        .kind = e->task == ZT_TASK_TAG ? ZT_EXAMPLES_TAGS : ZT_EXAMPLES_CLASS,
        .text = e->run->text_column,
        .pair = e->run->text_pair_column,
        .label = e->run->label_column};
    const struct zt_record_format *format = zt_record_format_named(e->run->data_format);
    struct zt_mapping m = {0};
    struct zt_records r = {0};
    zt_err rc = ZT_OK;

    if (!format) {
        format = zt_record_format_of_file(path);
        if (!format) /* refused when it is opened */
            return ZT_OK;
        rc = zt_tokens_refuse_foreign(path, fault);
    }
    if (!rc)
        rc = zt_mapping_open(path, &m, fault);
    if (!rc)
        rc = zt_records_open(&r, format, path, (const char *)m.data, m.bytes, fault);
    if (!rc)
        rc = zt_examples_collect(&spec, &r, l, fault);
    zt_records_release(&r);
    zt_mapping_release(&m);
    return rc;
}

static zt_err of_data(const struct zt_engine *e, struct zt_labels *l,
                      struct zt_fault *fault)
{
    const char *const *files = e->run->train_files;
    zt_err rc = ZT_OK;

    if (!files || !files[0])
        files = e->run->eval_files;
    for (; !rc && files && *files; files++)
        rc = collect_file(e, *files, l, fault);
    zt_labels_sort(l);
    return rc;
}

/* Classes of a head that is new, which a config.json numbers and does not name, have the names of
 * as many in the data. */
static bool are_named_by(const struct zt_labels *weights, const struct zt_labels *data)
{
    if (weights->num != data->num || !zt_labels_are_unnamed(weights))
        return false;
    for (int64_t i = 0; i < data->num; i++)
        if (zt_labels_find(weights, data->names[i]) >= 0)
            return false;
    return true;
}

/* With --ignore_mismatched_sizes data of another number of classes, some of them unknown to the
 * weights, have a head of their own. */
static bool are_other_classes(const struct zt_engine *e, const struct zt_labels *weights,
                              const struct zt_labels *data)
{
    if (!e->run->ignore_mismatched_sizes || !e->run->do_train ||
        data->num == weights->num)
        return false;
    for (int64_t i = 0; i < data->num; i++)
        if (zt_labels_find(weights, data->names[i]) < 0)
            return true;
    return false;
}

/* One class, of the data or of a head, which one number has as well. */
static zt_err refuse_one(const struct zt_engine *e, bool by_data, struct zt_fault *fault)
{
    if (by_data)
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "all rows have the label \"%.60s\": there is nothing to tell "
                            "apart",
                            e->labels.names[0]);
    return zt_fault_set(fault, ZT_E_CONFIG,
                        "the weights have a head of one output (\"%.60s\" in id2label of "
                        "their config.json), which tells no classes apart: one that has "
                        "learnt numbers is for --task regress%s",
                        e->labels.names[0],
                        e->run->do_train && !e->run->adapter_name_or_path
                            ? "; with --ignore_mismatched_sizes a head for the classes "
                              "of the data begins as new"
                            : "");
}

static bool is_same_number(const char *a, const char *b)
{
    char *end_a, *end_b;
    double x = strtod(a, &end_a), y = strtod(b, &end_b);

    return *a && *b && !*end_a && !*end_b && x == y;
}

/* "1" and "1.0", as programs write a column into which a number is missing. */
static void warn_of_same_numbers(const struct zt_labels *l)
{
    for (int64_t i = 0; i < l->num && i < MOST_COMPARED; i++)
        for (int64_t k = 0; k < i; k++)
            if (is_same_number(l->names[i], l->names[k])) {
                zt_warn("data",
                        "the labels \"%.60s\" and \"%.60s\" are one number and two "
                        "classes: a label is taken as it is written",
                        l->names[k], l->names[i]);
                return;
            }
}

/* Numbers that are measured, in a file that writes all values as text. */
static void warn_of_fractions(const struct zt_labels *l)
{
    const char *fraction = NULL;

    for (int64_t i = 0; i < l->num; i++) {
        char *end;

        (void)strtod(l->names[i], &end);
        if (!l->names[i][0] || *end)
            return;
        fraction = fraction || !strpbrk(l->names[i], ".eE") ? fraction : l->names[i];
    }
    if (fraction)
        zt_warn("data",
                "all labels are numbers, as %.60s, and %lld classes here: numbers are "
                "predicted by --task regress",
                fraction, (long long)l->num);
}

/* The word of `name` in a folder's JSON file, first of a list; the caller frees. */
static char *word_of(const char *folder, const char *file, const char *name)
{
    char path[PATH_MAX];
    const json_t *v;
    json_t *root;
    char *word;

    snprintf(path, sizeof(path), "%s/%s", folder, file);
    root = json_load_file(path, 0, NULL);
    v = json_object_get(root, name);
    v = json_is_array(v) ? json_array_get(v, 0) : v;
    word = json_is_string(v) ? strdup(json_string_value(v)) : NULL;
    json_decref(root);
    return word;
}

/* What adapters were trained for: task_type is peft's word for it; where that says nothing, the
 * config.json is theirs, or of the model that they lie beside. ZT_NUM_TASKS: nothing says. */
static zt_task task_of_adapters(const char *folder)
{
    static const struct {
        const char *type, *class;
        zt_task task;
    } rows[] = {{"SEQ_CLS", "ForSequenceClassification", ZT_TASK_CLASSIFY},
                {"TOKEN_CLS", "ForTokenClassification", ZT_TASK_TAG},
                {"CAUSAL_LM", "ForCausalLM", ZT_TASK_CAUSAL_LM},
                {"SEQ_2_SEQ_LM", "ForConditionalGeneration", ZT_TASK_SEQ2SEQ},
                {"", "ForMaskedLM", ZT_TASK_MASKED_LM}};
    char *type = word_of(folder, "adapter_config.json", "task_type");
    char *class = word_of(folder, "config.json", "architectures");
    int64_t outputs = adapted_head_rows(folder);
    zt_task task = ZT_NUM_TASKS;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (type ? strcmp(type, rows[i].type) == 0
                 : class && strstr(class, rows[i].class) != NULL)
            task = rows[i].task;
    free(type);
    free(class);
    if (task == ZT_TASK_CLASSIFY && outputs == 1)
        task = ZT_TASK_REGRESS;
    else if (task == ZT_TASK_MASKED_LM && outputs) /* of the model beside */
        task = ZT_NUM_TASKS;
    return task;
}

/* Models of language have no head of their task that another's adapters could miss. */
static zt_err check_adapters(const struct zt_engine *e, struct zt_fault *fault)
{
    const char *folder = e->run->adapter_name_or_path;
    zt_task task = task_of_adapters(folder);

    if (task == ZT_NUM_TASKS || task == e->task ||
        (!zt_task_reads_examples(task) && !zt_task_reads_examples(e->task)))
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_CONFIG,
                        "%s was trained for --task %s, and has no head for --task %s; "
                        "adapters go on, and are used, with the task they learnt",
                        folder, zt_task_name(task), zt_task_name(e->task));
}

/* A head that begins as new is of use to a run that trains it alone, and one of another task to
 * none. */
static zt_err check_head(struct zt_engine *e, struct zt_fault *fault)
{
    const char *folder = e->run->model_name_or_path, *task;

    if (e->run->adapter_name_or_path)
        return check_adapters(e, fault);
    if (!folder || !zt_task_reads_examples(e->task))
        return ZT_OK;
    task = zt_task_of_trained_head(folder);
    if (task && e->task == ZT_TASK_CLASSIFY &&
        strcmp(task, zt_task_name(ZT_TASK_REGRESS)) == 0)
        return ZT_OK; /* refuse_one() */
    if (!task || strcmp(task, zt_task_name(e->task)) == 0)
        return ZT_OK;
    e->head_is_other = e->run->do_train && e->run->ignore_mismatched_sizes;
    return e->head_is_other
               ? ZT_OK
               : zt_fault_set(fault, ZT_E_CONFIG,
                              "%s was trained for --task %s, and has no head for --task "
                              "%s; %s",
                              folder, task, zt_task_name(e->task),
                              e->run->do_train
                                  ? "with --ignore_mismatched_sizes one begins as new"
                                  : "a run that trains nothing needs one that has");
}

zt_err zt_engine_open_labels(struct zt_engine *e, struct zt_fault *fault)
{
    struct zt_labels data = {0};
    bool trained = false, by_data;
    zt_err rc = check_head(e, fault);

    if (rc || !has_classes(e->task))
        return rc;
    rc = of_weights(e, &e->labels, &trained, fault);
    if (!rc)
        rc = of_data(e, &data, fault);
    if (!rc && e->run->rank == 0) {
        warn_of_same_numbers(&data);
        warn_of_fractions(&data);
    }
    by_data = !rc && (!e->labels.num || are_other_classes(e, &e->labels, &data) ||
                      (!trained && are_named_by(&e->labels, &data)));
    if (by_data) {
        zt_labels_release(&e->labels);
        e->labels = data;
        data = (struct zt_labels){0};
    }
    zt_labels_release(&data);
    if (!rc && !e->labels.num && e->run->do_predict)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--do_predict: the model names no classes (id2label in its "
                            "config.json): it was not trained for this task; train it "
                            "first, or give the folder of one that was");
    return rc || e->labels.num != 1 ? rc : refuse_one(e, by_data, fault);
}
