#include "worker/engine/data.h"

#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "worker/checkpoint/checksummed_json.h"
#include "worker/data/tokens.h"
#include "worker/engine/batch.h"
#include "worker/engine/tasks/task.h"
#include "worker/records/records.h"

static bool any(const char *const *files)
{
    return files && files[0];
}

static bool is_encoded(const struct zt_dataset *ds)
{
    return ds && zt_dataset_is_encoded(ds);
}

/* Rows are made of samples, not cut out of a stream; pairs are rows by themselves. */
static bool takes_samples(const struct zt_engine *e)
{
    return e->task == ZT_TASK_SEQ2SEQ || strcmp(e->run->packing, "wrapped") != 0;
}

bool zt_engine_packs_samples(const struct zt_run *run)
{
    return strcmp(run->packing, "bfd") == 0;
}

struct zt_padding zt_engine_padding(const struct zt_run *run)
{
    return (struct zt_padding){.multiple = run->pad_to_multiple_of,
                               .to_max = run->pad_to_max_length};
}

/* A text column beside a target is the source, as run_summarization has them. */
static const char *source_column(const struct zt_run *run)
{
    return run->source_column   ? run->source_column
           : run->target_column ? run->text_column
                                : NULL;
}

struct zt_text_pair zt_engine_pair(const struct zt_run *run)
{
    bool langs = run->source_lang && run->target_lang;
    const char *source = source_column(run);

    return (struct zt_text_pair){.source = source  ? source
                                           : langs ? "translation"
                                                   : NULL,
                                 .target = run->target_column ? run->target_column
                                           : langs            ? "translation"
                                                              : NULL,
                                 .source_lang = run->source_lang,
                                 .target_lang = run->target_lang,
                                 .prefix = run->source_prefix};
}

/* An option as it was typed, or its own name. */
static const char *typed(const struct zt_run *run, const char *option)
{
    const char *said = zt_run_says(run, (const char *const[]){option + 2, NULL});

    return said ? said : option;
}

/* Both sides of a pair, and no other text. */
static zt_err check_pair(const struct zt_run *run, struct zt_fault *fault)
{
    struct zt_text_pair p = zt_engine_pair(run);
    bool answers = run->do_train || run->do_eval; /* else sources are enough */
    const char *source = run->source_column ? "--source_column" : "--source_lang";

    if ((!p.source != !p.target && (answers || !p.source)) ||
        !p.source_lang != !p.target_lang)
        return zt_fault_set(fault, ZT_E_USAGE, "%s: a pair has two sides; give %s, too",
                            typed(run, p.source && !p.target   ? "--source_column"
                                       : p.target && !p.source ? "--target_column"
                                       : p.source_lang         ? "--source_lang"
                                                               : "--target_lang"),
                            p.source && !p.target   ? "--target_column"
                            : p.target && !p.source ? "--source_column"
                            : p.source_lang         ? "--target_lang"
                                                    : "--source_lang");
    if (p.source && run->text_column && p.source != run->text_column)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "%s %s and %s %s: a row is a text or a pair; leave one out",
                            typed(run, "--text_column"), run->text_column,
                            typed(run, source),
                            run->source_column ? run->source_column : run->source_lang);
    return ZT_OK;
}

/* They are about samples, and without them would do nothing. */
static zt_err check_options_of_samples(const struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    const char *option = run->group_by_length          ? "--group_by_length"
                         : run->pad_to_max_length      ? "--pad_to_max_length"
                         : run->pad_to_multiple_of > 1 ? "--pad_to_multiple_of"
                                                       : NULL;

    if (!option || takes_samples(e) || zt_task_reads_examples(e->task))
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_USAGE,
                        "%s is for rows of different lengths, and all are --block_size "
                        "tokens long: leave it out, or make each sample a row of its own "
                        "with --packing none",
                        typed(run, option));
}

/* What does not go with rows that samples share. */
static zt_err check_packing(const struct zt_engine *e, struct zt_fault *fault)
{
    const char *said = zt_run_says(e->run, (const char *const[]){"packing", NULL});

    if (e->task == ZT_TASK_SEQ2SEQ && said && strcmp(e->run->packing, "none") != 0)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "%s: a row has one source for one target; leave it out: with "
                            "--task seq2seq each pair is a row of its own",
                            said);
    if (!zt_engine_packs_samples(e->run))
        return ZT_OK;
    if (zt_task_reads_examples(e->task))
        return zt_fault_set(
            fault, ZT_E_USAGE,
            "--packing bfd: a row has one label, or the tags of one sample, and would "
            "hold "
            "several samples; leave it out: with --task %s each is a row of its own",
            zt_task_name(e->task));
    if (e->run->group_by_length)
        return zt_fault_set(
            fault, ZT_E_USAGE,
            "%s saves padding where each sample is a row of its own (--packing none), "
            "and rows of --packing bfd are full: leave one of the two out",
            typed(e->run, "--group_by_length"));
    return ZT_OK;
}

/* For a model that reads one text and writes another the two of a pair are no one text. */
static void keep_apart(struct zt_text_encoding *how)
{
    how->pair.separate = how->answers_only = true;
}

/* They are about pairs that stay apart, and without them would do nothing. */
static zt_err check_options_of_pairs(const struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    const char *option = run->max_source_length   ? "--max_source_length"
                         : run->max_target_length ? "--max_target_length"
                                                  : NULL;

    if (e->task != ZT_TASK_SEQ2SEQ && option)
        return zt_fault_set(
            fault, ZT_E_USAGE,
            "%s is for models that read one text and write another, and %s "
            "is none: --block_size is the length of its rows",
            option, e->plugin->name);
    if (e->task == ZT_TASK_SEQ2SEQ && run->max_target_length && run->block_size)
        return zt_fault_set(
            fault, ZT_E_USAGE,
            "%s %lld and %s %lld: both are the length of what %s writes; leave one out",
            typed(run, "--max_target_length"), (long long)run->max_target_length,
            typed(run, "--block_size"), (long long)run->block_size, e->plugin->name);
    return ZT_OK;
}

static bool has_columns(const struct zt_dataset *ds)
{
    const char *format = ds ? zt_dataset_format(ds) : "";

    return strcmp(format, "mixed") == 0 || zt_record_format_named(format);
}

/* It is about records, and without them would do nothing. */
static zt_err check_column(const struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_dataset *data = e->train_data ? e->train_data : e->eval_data;

    if (!e->run->text_column || !data || e->run->test_file ||
        has_columns(e->train_data) || has_columns(e->eval_data))
        return ZT_OK;
    return zt_fault_set(
        fault, ZT_E_USAGE,
        "--text_column %s: the data (%s) have no columns; leave it out, or "
        "give records, .jsonl, .json, .csv or .tsv",
        e->run->text_column, zt_dataset_format(data));
}

/* Bits: 1, some rows have one text; 2, some have two. */
static int texts_of_rows(const struct zt_dataset *ds)
{
    int found = 0;

    for (int64_t i = 0; ds && i < zt_dataset_num_samples(ds); i++)
        found |= zt_dataset_example(ds, i)->is_pair ? 2 : 1;
    return found;
}

/* Columns are found file by file, and a model has learnt rows of one kind. */
static zt_err check_texts_of_rows(const struct zt_engine *e, struct zt_fault *fault)
{
    if (!zt_task_reads_examples(e->task) ||
        (texts_of_rows(e->train_data) | texts_of_rows(e->eval_data) |
         texts_of_rows(e->test_data)) != 3)
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_USAGE,
                        "some of the files have rows of two texts and others of one: say "
                        "which are meant of all, --text_column, with --text_pair_column "
                        "where there are two");
}

/* ---- rows to learn from and to evaluate ---- */

/* The columns of a file whose rows are texts, or, without `texts`, have answers; NULL: there is
 * none. */
static const struct zt_lines_columns *rows_of(const struct zt_dataset *ds, bool texts,
                                              const char **path)
{
    for (int i = 0; i < zt_dataset_num_files(ds); i++) {
        const struct zt_lines_columns *c = zt_dataset_columns(ds, i, path);

        if (c->kind != ZT_LINES_PLAIN && (c->kind == ZT_LINES_TEXTS) == texts)
            return c;
    }
    return NULL;
}

/* `pairs of "prompt" and "completion"` */
static void describe_rows(const struct zt_lines_columns *c, char *out, size_t room)
{
    if (c->kind == ZT_LINES_PAIRS)
        snprintf(out, room, "pairs of \"%.60s\" and \"%.60s\"", c->text, c->target);
    else
        snprintf(out, room, "%s of \"%.60s\"",
                 c->kind == ZT_LINES_TEXTS ? "texts" : "conversations", c->text);
}

/* The texts are one side of such pairs: the other side is missing. */
static bool is_side(const struct zt_lines_columns *texts,
                    const struct zt_lines_columns *pairs)
{
    return texts->kind == ZT_LINES_TEXTS && pairs->kind == ZT_LINES_PAIRS &&
           (strcmp(texts->text, pairs->text) == 0 ||
            strcmp(texts->text, pairs->target) == 0);
}

/* Files to learn from: one of a side alone would be learnt as texts. */
static zt_err check_sides(const struct zt_dataset *ds, struct zt_fault *fault)
{
    int num = ds ? zt_dataset_num_files(ds) : 0;

    for (int i = 0; i < num * num; i++) {
        const char *path, *other;
        const struct zt_lines_columns *texts = zt_dataset_columns(ds, i / num, &path);
        const struct zt_lines_columns *pairs = zt_dataset_columns(ds, i % num, &other);
        char rows[160];

        if (!is_side(texts, pairs))
            continue;
        describe_rows(pairs, rows, sizeof(rows));
        return zt_fault_set(
            fault, ZT_E_USAGE,
            "%s: its rows are texts of \"%.60s\", and those of %s are %s: give both the "
            "same columns; one that is all of a text is called \"text\"",
            path, texts->text, other, rows);
    }
    return ZT_OK;
}

/* Rows of the evaluation are whole texts, or are not, and no row of the training is like that. */
static zt_err compare_rows(const struct zt_engine *e, bool texts, struct zt_fault *fault)
{
    const char *train_path = "", *eval_path = "";
    const struct zt_lines_columns *eval = rows_of(e->eval_data, texts, &eval_path);
    const struct zt_lines_columns *train = NULL;
    char train_rows[160], eval_rows[160];

    if (eval && !rows_of(e->train_data, texts, &train_path))
        train = rows_of(e->train_data, !texts, &train_path);
    if (!train)
        return ZT_OK;
    describe_rows(eval, eval_rows, sizeof(eval_rows));
    describe_rows(train, train_rows, sizeof(train_rows));
    if (is_side(eval, train) || is_side(train, eval))
        return zt_fault_set(
            fault, ZT_E_USAGE,
            "%s: its rows are %s, and those of the training data (%s) are "
            "%s: give both the same columns; one that is all of a text is "
            "called \"text\"",
            eval_path, eval_rows, train_path, train_rows);
    if (e->run->rank == 0 &&
        zt_dataset_has_context(e->train_data) != zt_dataset_has_context(e->eval_data))
        zt_warn("data",
                "%s: its rows are %s, and those of the training data (%s) are %s: of the "
                "one all tokens count, of the other those of answers, so the two losses "
                "do not compare",
                eval_path, eval_rows, train_path, train_rows);
    return ZT_OK;
}

static bool has_plain(const struct zt_dataset *ds)
{
    const char *path;
    bool plain = false;

    for (int i = 0; i < zt_dataset_num_files(ds); i++)
        plain |= zt_dataset_columns(ds, i, &path)->kind == ZT_LINES_PLAIN;
    return plain;
}

/* Plain text, or ids, on one side: all tokens count there, and answers alone on the other. */
static void compare_plain(const struct zt_engine *e)
{
    bool training = has_plain(e->train_data);
    const struct zt_dataset *plain = training ? e->train_data : e->eval_data;
    const struct zt_dataset *rows = training ? e->eval_data : e->train_data;

    if (e->run->rank || training == has_plain(e->eval_data) ||
        zt_dataset_has_context(plain) || !zt_dataset_has_context(rows))
        return;
    zt_warn(
        "data",
        "of the %s data all tokens count, and of the %s data those of answers, so the "
        "two losses do not compare",
        training ? "training" : "evaluation", training ? "evaluation" : "training");
}

static zt_err check_rows_of_evaluation(const struct zt_engine *e, struct zt_fault *fault)
{
    zt_err rc;

    if (!e->run->do_train || !e->run->do_eval || !e->train_data || !e->eval_data)
        return ZT_OK;
    compare_plain(e);
    rc = compare_rows(e, true, fault);
    return rc ? rc : compare_rows(e, false, fault);
}

/* ---- the files ---- */

zt_err zt_engine_open_data(struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    struct zt_text_encoding how = {.tokenizer = e->tokenizer,
                                   .refusal = &e->tokenizer_refusal,
                                   .column = run->text_column,
                                   .pair = zt_engine_pair(run),
                                   .answers_only = run->assistant_only_loss,
                                   .keeps_lengths = takes_samples(e),
                                   .threads = zt_engine_threads(run),
                                   .cache_dir = run->data_cache_dir,
                                   .cache_reads_only = run->dry_run || run->check_config};
    zt_err rc = check_options_of_samples(e, fault);

    if (!rc)
        rc = check_packing(e, fault);
    if (!rc)
        rc = check_pair(run, fault);
    if (!rc)
        rc = check_options_of_pairs(e, fault);
    if (!rc)
        rc = zt_engine_encode_for_task(e, &how, fault);
    if (!rc && e->task == ZT_TASK_SEQ2SEQ)
        keep_apart(&how);
    if (!rc && any(run->train_files))
        rc = zt_dataset_open_text(run->train_files, run->data_format, &how, 0,
                                  &e->train_data, fault);
    if (!rc)
        rc = check_sides(e->train_data, fault);
    if (!rc && any(run->eval_files))
        rc = zt_dataset_open_text(run->eval_files, run->data_format, &how, 0,
                                  &e->eval_data, fault);
    if (!rc && zt_engine_predicts(e))
        rc = zt_engine_open_test_data(e, &how, fault);
    if (!rc)
        rc = check_column(e, fault);
    if (!rc)
        rc = check_texts_of_rows(e, fault);
    if (!rc)
        rc = check_rows_of_evaluation(e, fault);
    if (!rc && run->data_cache_dir && !is_encoded(e->train_data) &&
        !is_encoded(e->eval_data) && !is_encoded(e->test_data))
        rc = zt_fault_set(
            fault, ZT_E_USAGE,
            "--data_cache_dir %s: nothing here becomes tokens: the files are "
            "ids already, or text whose tokens are its bytes; leave it out",
            run->data_cache_dir);
    return rc;
}

/* Without evaluation files, hold out the end of the training text. */
static zt_err split_data(struct zt_engine *e, struct zt_fault *fault)
{
    struct zt_dataset *whole = e->train_data;
    zt_err rc;

    if (!e->run->do_eval || e->eval_data || !whole)
        return ZT_OK;
    rc = zt_dataset_split(whole, e->run->eval_fraction, e->block_size, &e->train_data,
                          &e->eval_data, fault);
    if (!rc)
        zt_dataset_close(whole);
    return rc;
}

/* 1: the last token of a row has its target behind it. */
static int64_t tokens_behind(const struct zt_dataset *ds)
{
    return zt_dataset_rows(ds)->kind == ZT_ROWS_NEXT_TOKEN;
}

static int64_t num_rows(const struct zt_dataset *ds, int64_t block_size)
{
    int64_t samples = zt_dataset_num_samples(ds);

    return samples ? samples
                   : (zt_dataset_num_tokens(ds) - tokens_behind(ds)) / block_size;
}

/* No more than the first `rows` rows of the data; 0: all. */
static zt_err limit_rows(struct zt_dataset **ds, int64_t rows, int64_t block_size,
                         struct zt_fault *fault)
{
    struct zt_dataset *whole = *ds;
    zt_err rc;

    if (!rows || !whole || rows > num_rows(whole, block_size))
        return ZT_OK;
    rc = zt_dataset_num_samples(whole)
             ? zt_dataset_view_samples(whole, 0, rows, ds, fault)
             : zt_dataset_view(whole, 0, rows * block_size + tokens_behind(whole), ds,
                               fault);
    if (!rc)
        zt_dataset_close(whole);
    return rc;
}

zt_err zt_engine_divide_data(struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    zt_err rc = split_data(e, fault);

    if (!rc)
        rc = limit_rows(&e->train_data, run->max_train_samples, e->block_size, fault);
    if (!rc)
        rc = limit_rows(&e->eval_data, run->max_eval_samples, e->block_size, fault);
    if (!rc && zt_engine_packs_samples(run) && e->train_data)
        rc = zt_dataset_pack(e->train_data, e->block_size, fault);
    if (!rc && zt_engine_packs_samples(run) && e->eval_data)
        rc = zt_dataset_pack(e->eval_data, e->block_size, fault);
    return rc;
}

uint64_t zt_engine_eval_fingerprint(const struct zt_engine *e)
{
    const struct zt_run *run = e->run;
    int64_t most = run->eval_batches * run->per_device_eval_batch_size * run->world;
    const struct zt_row_options *rows;
    uint64_t what[6];
    bool masked;

    if (!e->eval_data)
        return 0;
    if (most >= num_rows(e->eval_data, e->block_size) + 1) /* the last one may be short */
        most = 0;
    what[0] = zt_dataset_fingerprint(e->eval_data);
    what[1] = (uint64_t)e->block_size;
    what[2] = (uint64_t)e->source_size;
    what[3] = (uint64_t)most;
    rows = zt_dataset_rows(e->eval_data);
    masked = rows->kind == ZT_ROWS_MASKED; /* which tokens are to be predicted */
    what[4] = rows->masking.seed;
    memcpy(&what[5], &rows->masking.probability, sizeof(what[5]));
    return zt_hash_bytes(what, (masked ? 6 : 4) * sizeof(*what));
}

int64_t zt_engine_data_vocab(const struct zt_engine *e)
{
    int64_t a = e->train_data ? zt_dataset_vocab(e->train_data) : 0;
    int64_t b = e->eval_data ? zt_dataset_vocab(e->eval_data) : 0;
    int64_t c = e->test_data ? zt_dataset_vocab(e->test_data) : 0;

    a = a > b ? a : b;
    return a > c ? a : c;
}

static zt_err refuse_train_data(const struct zt_engine *e, struct zt_fault *fault)
{
    const char *const *files = e->run->train_files;

    return zt_fault_set(
        fault, ZT_E_FORMAT,
        "%s%s: the training data hold nothing to learn from: %s in rows of %lld tokens "
        "(--block_size); give more, or longer rows",
        files[0], files[1] ? " and others" : "", zt_engine_missing_target(e->train_data),
        (long long)e->block_size);
}

/* One of a sampler whose steps are a row each. */
static zt_err read_row(const void *data, int64_t i, const struct zt_field_buffers *row,
                       int64_t *rows, struct zt_widths *widths, struct zt_fault *fault)
{
    *rows = 1;
    return zt_sampler_read(data, i + 1, 0, row, widths, fault);
}

/* Steps without a target are passed over (train.c), where some tokens are context, or some rows
 * have no word; not all of them may be such. Masks are others in each epoch. */
static zt_err check_targets(const struct zt_engine *e, struct zt_fault *fault)
{
    struct zt_sampler_config cfg = {.block_size = e->block_size,
                                    .source_size = e->source_size,
                                    .micro_rows = 1,
                                    .num_micro = 1,
                                    .world = 1,
                                    .in_order = true,
                                    .padding = zt_engine_padding(e->run)};
    bool examples = zt_dataset_rows(e->train_data)->kind == ZT_ROWS_EXAMPLES;
    struct zt_sampler *rows;
    bool found = true;
    zt_err rc;

    if (e->model->layout.divisor != ZT_DIVISOR_TARGETS ||
        !(examples || zt_dataset_has_context(e->train_data)))
        return ZT_OK;
    rc = zt_sampler_open(e->train_data, &cfg, &rows, fault);
    if (rc)
        return rc;
    rc = zt_engine_find_target(e, read_row, rows, zt_sampler_num_blocks(rows), &found,
                               fault);
    zt_sampler_close(rows);
    return rc || found ? rc : refuse_train_data(e, fault);
}

zt_err zt_engine_open_sampler(struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    struct zt_sampler_config cfg = {
        .block_size = e->block_size,
        .source_size = e->source_size,
        .micro_rows = run->micro_batch_size,
        .num_micro = run->grad_accum_steps,
        .rank = run->rank,
        .world = run->world,
        .seed = (uint64_t)(run->data_seed < 0 ? run->seed : run->data_seed),
        .drop_last = run->dataloader_drop_last,
        .padding = zt_engine_padding(run),
        .group_by_length = run->group_by_length,
    };
    zt_err rc;

    if (!e->train_data)
        return zt_fault_set(fault, ZT_E_USAGE, "--do_train needs --train_file");
    rc = zt_sampler_open(e->train_data, &cfg, &e->sampler, fault);
    if (!rc)
        rc = check_targets(e, fault);
    if (!rc)
        e->total_steps = e->planned_steps =
            run->max_steps > 0 ? run->max_steps
                               : zt_sampler_num_steps(e->sampler, run->num_train_epochs);
    return rc;
}

static int64_t epoch_after(const struct zt_engine *e, int64_t step)
{
    struct zt_sampler_state at;

    zt_sampler_tell(e->sampler, step - e->first_step, &at);
    return at.epoch;
}

double zt_engine_epochs(const struct zt_engine *e, int64_t step, double rows)
{
    struct zt_sampler_state at;
    int64_t batch = zt_sampler_global_rows(e->sampler);

    if (!e->run->dataloader_drop_last)
        return (rows + e->rows_recut) / (double)zt_sampler_num_blocks(e->sampler);
    zt_sampler_tell(e->sampler, step - e->first_step, &at);
    return (double)at.epoch +
           (double)at.index / (double)(at.index + (at.blocks - at.index) / batch * batch);
}

bool zt_engine_epoch_ends(const struct zt_engine *e, int64_t step)
{
    return epoch_after(e, step) != epoch_after(e, step - 1);
}
