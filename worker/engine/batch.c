#include "worker/engine/batch.h"

#include <stdlib.h>
#include <string.h>

#include "worker/config/resolve.h"
#include "worker/data/rows.h"
#include "worker/engine/data.h"
#include "worker/engine/tasks/task.h"

/* ---- declared and offered ---- */

/* Attention would look from one sample into the others. */
static zt_err check_segments(const struct zt_engine *e, struct zt_fault *fault)
{
    if (!zt_engine_packs_samples(e->run) ||
        zt_batch_find(&e->model->layout, ZT_SEGMENT_BEGIN) >= 0)
        return ZT_OK;
    return zt_fault_set(
        fault, ZT_E_USAGE,
        "--packing bfd: samples share rows, and this model has no field %s "
        "by which attention keeps them apart (zt_model_packed_fields() in "
        "its build()); --packing none makes each sample a row of its own",
        ZT_SEGMENT_BEGIN);
}

static zt_err match(struct zt_engine *e, const struct zt_dataset *ds, const char *which,
                    struct zt_fault *fault)
{
    const struct zt_row_options of_task = zt_task_rows(e->task);
    const struct zt_row_options *rows = ds ? zt_dataset_rows(ds) : &of_task;
    const struct zt_batch_layout *l = &e->model->layout;
    bool packed = zt_engine_packs_samples(e->run);
    zt_err rc = check_segments(e, fault);

    for (int i = 0; !rc && i < l->num; i++)
        rc = zt_data_offers(&l->fields[i], which, rows, packed, &e->offered[i], fault);
    return rc ? zt_fault_context(fault, rc, "plugin %s", e->plugin->name) : ZT_OK;
}

/* A prompt has tokens, and nothing else. */
/* Texts are longer than the model can write. */
static zt_err limit_texts(const struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_value *said = zt_option_given(e->run->config, "generate_tokens");

    if (!said)
        said = zt_option_given(e->run->config, "generation_max_length");
    if (said)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "%s %lld is longer than the %lld tokens that %s writes",
                            said->where, (long long)said->integer,
                            (long long)e->model->max_tokens, e->plugin->name);
    ((struct zt_run *)e->run)->generate_tokens =
        e->model->max_tokens; /* as usual, but less */
    return ZT_OK;
}

static zt_err check_generation(const struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_batch_layout *l = &e->model->layout;
    const struct zt_value *most = zt_option_given(e->run->config, "generate_tokens");

    if (most && e->run->test_file && zt_task_reads_examples(e->task))
        return zt_fault_set(fault, ZT_E_USAGE,
                            "%s: with --task %s rows of --test_file get labels, and no "
                            "text is written: leave it out",
                            most->where, zt_task_name(e->task));
    if (zt_batch_find(l, ZT_TOKENS) < 0)
        return zt_fault_set(
            fault, ZT_E_USAGE,
            "text is to be written, and %s has no field tokens to write it from",
            e->plugin->name);
    if (!e->model->vocab)
        return zt_fault_set(fault, ZT_E_PLUGIN,
                            "text is to be written, and plugin %s does not say how many "
                            "token ids there are to choose from: its build() calls "
                            "zt_model_set_vocab()",
                            e->plugin->name);
    for (int i = 0; i < l->num; i++) {
        const struct zt_field *f = &l->fields[i];

        if (f->required && !f->label && strcmp(f->name, ZT_TOKENS) != 0 &&
            !(e->source_size && zt_field_is_of_source(f)))
            return zt_fault_set(fault, ZT_E_USAGE,
                                "text is to be written, and %s is no model that writes: "
                                "it requires the field %s, which no prompt and no text "
                                "of --test_file offers; --do_predict writes labels of "
                                "rows with --task classify, regress and tag alone",
                                e->plugin->name, f->name);
    }
    if (!e->source_size && e->run->generation_max_length)
        return zt_fault_set(
            fault, ZT_E_USAGE,
            "%s is for models that read one text and "
            "write another, and %s is none: --max_new_tokens says how many "
            "tokens are added to a prompt",
            zt_args_value(e->run->config->args, "generation_max_length")->where,
            e->plugin->name);
    if (e->source_size && e->model->max_tokens &&
        e->run->generate_tokens > e->model->max_tokens)
        return limit_texts(e, fault);
    return ZT_OK;
}

zt_err zt_engine_match_fields(struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    zt_err rc = ZT_OK;

    if (run->do_train || run->do_eval || zt_engine_predicts(e))
        rc = match(e,
                   run->do_train  ? e->train_data
                   : run->do_eval ? e->eval_data
                                  : e->test_data,
                   run->do_train  ? "the training data"
                   : run->do_eval ? "the evaluation data"
                                  : "the rows to predict",
                   fault);
    if (!rc && run->generate_tokens > 0)
        rc = check_generation(e, fault);
    return rc;
}

/* ---- memory ---- */

struct zt_extent zt_engine_extent(const struct zt_engine *e, int64_t rows)
{
    return (struct zt_extent){rows, e->block_size, e->source_size};
}

size_t zt_host_batch_bytes(const struct zt_batch_layout *l, const bool *offered,
                           struct zt_extent extent)
{
    size_t bytes = 0;

    for (int i = 0; i < l->num; i++)
        if (!offered || offered[i])
            bytes += zt_field_bytes(&l->fields[i], extent);
    return bytes;
}

zt_err zt_host_batch_open(struct zt_engine *e, int64_t rows, struct zt_host_batch *out,
                          struct zt_fault *fault)
{
    const struct zt_batch_layout *l = &e->model->layout;
    zt_err rc = ZT_OK;

    *out = (struct zt_host_batch){.rows = rows};
    for (int i = 0; !rc && i < l->num; i++)
        if (e->offered[i])
            rc = e->backend->host_alloc(
                e->device, zt_field_bytes(&l->fields[i], zt_engine_extent(e, rows)),
                &out->data[i], fault);
    return rc;
}

void zt_host_batch_close(struct zt_engine *e, struct zt_host_batch *b)
{
    for (int i = 0; i < ZT_MAX_FIELDS; i++)
        if (b->data[i])
            e->backend->host_free(e->device, b->data[i],
                                  zt_field_bytes(&e->model->layout.fields[i],
                                                 zt_engine_extent(e, b->rows)));
    *b = (struct zt_host_batch){.rows = 0};
}

struct zt_field_buffers zt_host_batch_at(const struct zt_engine *e,
                                         const struct zt_host_batch *b, int64_t row)
{
    const struct zt_batch_layout *l = &e->model->layout;
    struct zt_field_buffers at = {.fields = l->fields, .num = l->num, .start = l->start};

    for (int i = 0; i < l->num; i++)
        if (b->data[i])
            at.data[i] = (char *)b->data[i] +
                         zt_field_bytes(&l->fields[i], zt_engine_extent(e, row));
    return at;
}

void zt_pass_set_fields(struct zt_pass *pass, const struct zt_field_buffers *from)
{
    for (int i = 0; i < from->num; i++)
        pass->fields[i] = from->data[i];
}

/* ---- the divisor ---- */

static double count_targets(const int32_t *targets, int64_t n)
{
    int64_t count = 0;

    for (int64_t i = 0; i < n; i++)
        count += targets[i] != ZT_IGNORE_TARGET;
    return (double)count;
}

static double sum_values(const void *values, zt_dtype dtype, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += dtype == ZT_I32 ? (double)((const int32_t *)values)[i]
                               : (double)((const float *)values)[i];
    return sum;
}

double zt_batch_divisor(const struct zt_engine *e, const struct zt_field_buffers *batch,
                        struct zt_extent size, int64_t num_rows)
{
    const struct zt_batch_layout *l = &e->model->layout;
    const struct zt_field *f = &l->fields[l->divisor_field < 0 ? 0 : l->divisor_field];
    int64_t n = zt_field_numel(f, size);

    if (l->divisor == ZT_DIVISOR_ROWS)
        return (double)num_rows;
    if (l->divisor == ZT_DIVISOR_TARGETS)
        return count_targets(batch->data[l->divisor_field], n);
    return sum_values(batch->data[l->divisor_field], f->dtype, n);
}

zt_err zt_engine_find_target(const struct zt_engine *e, zt_row_reader read,
                             const void *data, int64_t num_rows, bool *found,
                             struct zt_fault *fault)
{
    const struct zt_batch_layout *l = &e->model->layout;
    struct zt_field_buffers row = {.fields = l->fields, .num = l->num, .start = l->start};
    void *values = NULL;
    bool any = false;
    zt_err rc = ZT_OK;

    if (l->divisor != ZT_DIVISOR_ROWS) {
        values =
            malloc(zt_field_bytes(&l->fields[l->divisor_field], zt_engine_extent(e, 1)));
        if (!values)
            return zt_fault_set(fault, ZT_E_NOMEM, "a row of the data: no host memory");
        row.data[l->divisor_field] = values; /* no other field is read */
    }
    for (int64_t i = 0; !rc && !any && i < num_rows; i++) {
        struct zt_widths widths = {0, 0};
        int64_t rows = 0;

        rc = read(data, i, &row, &rows, &widths, fault);
        if (!rc)
            any = zt_batch_divisor(e, &row,
                                   (struct zt_extent){1, widths.row, widths.source},
                                   rows) > 0;
    }
    free(values);
    if (!rc)
        *found = any;
    return rc;
}

const char *zt_engine_missing_target(const struct zt_dataset *data)
{
    switch (zt_dataset_rows(data)->kind) {
    case ZT_ROWS_MASKED:
        return "no token is masked (--mlm_probability)";
    case ZT_ROWS_EXAMPLES:
        return "no word is among them";
    default:
        return "no target token, of conversations and pairs no answer, is among them";
    }
}
