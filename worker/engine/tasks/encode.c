/* encode.c -- what becomes of text for a task. */
#include <string.h>

#include "worker/engine/tasks/task.h"

static zt_example_kind kind_of(zt_task task)
{
    return task == ZT_TASK_CLASSIFY  ? ZT_EXAMPLES_CLASS
           : task == ZT_TASK_REGRESS ? ZT_EXAMPLES_NUMBER
           : task == ZT_TASK_TAG     ? ZT_EXAMPLES_TAGS
                                     : ZT_EXAMPLES_NONE;
}

bool zt_task_reads_examples(zt_task task)
{
    return kind_of(task) != ZT_EXAMPLES_NONE;
}

struct zt_row_options zt_task_rows(zt_task task)
{
    return (struct zt_row_options){.kind = zt_task_reads_examples(task) ? ZT_ROWS_EXAMPLES
                                           : task == ZT_TASK_MASKED_LM  ? ZT_ROWS_MASKED
                                           : task == ZT_TASK_SEQ2SEQ    ? ZT_ROWS_PAIRS
                                                                     : ZT_ROWS_NEXT_TOKEN,
                                   .examples = kind_of(task)};
}

/* Options of other tasks would do nothing. */
static zt_err check_options(const struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    bool examples = zt_task_reads_examples(e->task);
    const char *typed = zt_run_says(run, (const char *const[]){"mlm_probability", NULL});
    const char *packing = zt_run_says(run, (const char *const[]){"packing", NULL});
    const char *smooth =
        zt_run_says(run, (const char *const[]){"label_smoothing_factor", NULL});

    if (typed && e->task != ZT_TASK_MASKED_LM)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "%s is of --task masked_lm, and this run is for %s: leave it "
                            "out",
                            typed, zt_task_name(e->task));
    if (smooth && run->label_smoothing_factor > 0 && e->task == ZT_TASK_REGRESS)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "%s is of losses over classes or tokens, and --task regress "
                            "predicts numbers: leave it out",
                            smooth);
    if (!examples && (run->label_column || run->text_pair_column))
        return zt_fault_set(
            fault, ZT_E_USAGE,
            "%s: rows with labels are for --task classify, regress or tag, "
            "and this run is for %s",
            run->label_column ? "--label_column" : "--text_pair_column",
            zt_task_name(e->task));
    if (e->task == ZT_TASK_TAG && run->text_pair_column)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--text_pair_column: words of one text are tagged");
    if (examples && packing && strcmp(run->packing, "none") != 0)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "%s: with --task %s each row of the data is a row of the "
                            "batch; leave it out",
                            packing, zt_task_name(e->task));
    if (examples && (run->source_column || run->target_column || run->source_lang ||
                     run->source_prefix))
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--source_column and the like are of texts to write; of two "
                            "texts to read the columns are --text_column and "
                            "--text_pair_column");
    return ZT_OK;
}

/* What a model learns of its text where its task leaves no choice. */
static zt_err check_answers(const struct zt_engine *e, struct zt_fault *fault)
{
    const char *said =
        zt_run_says(e->run, (const char *const[]){"assistant_only_loss", NULL});
    bool only = e->run->assistant_only_loss;

    if (said && e->task == ZT_TASK_SEQ2SEQ && !only)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "%s: with --task seq2seq the target alone is written, and "
                            "learnt: leave it out",
                            said);
    if (said && e->task == ZT_TASK_MASKED_LM && only)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "%s: with --task masked_lm tokens of the whole text are "
                            "masked: leave it out",
                            said);
    return ZT_OK;
}

/* Without a tokenizer 256 stands around texts and between them. */
static zt_err find_frames(const struct zt_engine *e, struct zt_row_options *rows,
                          struct zt_fault *fault)
{
    static const int32_t end[] = {ZT_TEXT_END};
    static const uint8_t zero[1];
    struct zt_row_frame bytes = {.before = {end, zero, 1}, .after = {end, zero, 1}};

    rows->single = rows->pair = bytes;
    rows->pair.between = bytes.after;
    rows->pair.type_b = 1;
    if (!e->tokenizer)
        return ZT_OK;
    if (zt_tokenizer_types_single(e->tokenizer))
        return zt_fault_set(fault, ZT_E_FORMAT,
                            "the tokenizer gives tokens of a single text a type_id "
                            "other than 0 (`single` of its TemplateProcessing), which "
                            "--task %s does not: set them to 0",
                            zt_task_name(e->task));
    rows->single = zt_tokenizer_frame(e->tokenizer);
    if (e->task == ZT_TASK_CLASSIFY || e->task == ZT_TASK_REGRESS)
        return zt_tokenizer_frame_pair(e->tokenizer, &rows->pair, fault);
    return ZT_OK;
}

static zt_err mask(const struct zt_engine *e, struct zt_row_options *rows,
                   struct zt_fault *fault)
{
    int32_t id = e->tokenizer ? zt_tokenizer_special(e->tokenizer, "mask_token") : -1;

    if (id < 0) {
        char tasks[ZT_TASKS_TEXT];

        zt_plugin_list_tasks(e->plugin, tasks);
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--task masked_lm: %s; a tokenizer with a mask_token is "
                            "needed, as BERT's are: --tokenizer_name FOLDER%s%s",
                            e->tokenizer ? "the tokenizer has no mask_token"
                                         : "bytes have no token that masks others",
                            e->run->task ? ""
                                         : "; or say another --task, of which none is "
                                           "given: ",
                            e->run->task ? "" : tasks);
    }
    rows->masking =
        (struct zt_masking){.probability = e->run->mlm_probability,
                            .seed = (uint64_t)e->run->seed,
                            .mask = id,
                            .vocab = (int32_t)zt_tokenizer_vocab(e->tokenizer)};
    return ZT_OK;
}

zt_err zt_engine_encode_for_task(struct zt_engine *e, struct zt_text_encoding *how,
                                 struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    int32_t unknown = -1;
    zt_err rc = check_options(e, fault);

    if (!rc)
        rc = check_answers(e, fault);
    how->rows = zt_task_rows(e->task);
    if (!rc && e->task != ZT_TASK_CAUSAL_LM && e->task != ZT_TASK_SEQ2SEQ)
        rc = find_frames(e, &how->rows, fault);
    if (!rc && e->task == ZT_TASK_MASKED_LM) {
        how->answers_only = false;
        return mask(e, &how->rows, fault);
    }
    if (rc || !zt_task_reads_examples(e->task))
        return rc;
    if (e->tokenizer)
        unknown = zt_tokenizer_special(e->tokenizer, "unk_token");
    e->examples = (struct zt_example_spec){.kind = kind_of(e->task),
                                           .text = run->text_column,
                                           .pair = run->text_pair_column,
                                           .label = run->label_column,
                                           .labels = &e->labels,
                                           .has_unknown = unknown >= 0,
                                           .unknown = unknown};
    how->examples = &e->examples;
    how->keeps_lengths = true;
    return ZT_OK;
}

struct zt_example_spec zt_task_texts_of_examples(const struct zt_engine *e)
{
    return (struct zt_example_spec){.kind = kind_of(e->task),
                                    .text = e->run->text_column,
                                    .pair = e->run->text_pair_column,
                                    .unlabelled = true};
}

bool zt_engine_predicts(const struct zt_engine *e)
{
    return e->run->do_predict && zt_task_reads_examples(e->task);
}

zt_err zt_engine_open_test_data(struct zt_engine *e, const struct zt_text_encoding *how,
                                struct zt_fault *fault)
{
    const char *const files[] = {e->run->test_file, NULL};
    struct zt_text_encoding test = *how;
    struct zt_example_spec unlabelled = e->examples;

    unlabelled.unlabelled = true;
    test.examples = &unlabelled;
    return zt_dataset_open_text(files, e->run->data_format, &test, 0, &e->test_data,
                                fault);
}
