#include "worker/engine/tasks/predict.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/message/event.h"
#include "worker/checkpoint/atomic_file.h"
#include "worker/comm/comm.h"
#include "worker/data/rows.h"
#include "worker/engine/batch.h"
#include "worker/engine/data.h"
#include "worker/engine/tasks/measure.h"
#include "worker/engine/tasks/task.h"

struct prediction {
    struct zt_engine *e;
    int64_t B,
        width; /* rows of a batch; numbers of a row: logits, or classes of tokens */
    float *logits;
    int64_t room;
    float *own, *all; /* (B * width); the same of every rank */
    struct zt_atomic_file file;
    bool writes;
    zt_err rc; /* of writing; the passes go on all the same */
    struct zt_fault why;
};

/* ---- lines ---- */

static bool are_finite(const float *logits, int64_t n)
{
    int64_t i = 0;

    while (i < n && isfinite(logits[i]))
        i++;
    return i == n;
}

static json_t *class_json(const struct zt_labels *l, const float *logits)
{
    int64_t best = zt_largest(logits, l->num);
    json_t *list = json_array();
    double sum = 0;

    for (int64_t i = 0; i < l->num; i++) {
        json_array_append_new(list, json_real((double)logits[i]));
        sum += exp((double)logits[i] - (double)logits[best]);
    }
    return json_pack("{s:s, s:f, s:o}", "label", l->names[best], "score", 1 / sum,
                     "logits", list);
}

/* Of this row nothing can be said. */
static void refuse_row(struct prediction *p, int64_t sample)
{
    p->rc = zt_fault_set(&p->why, ZT_E_NUMERIC,
                         "predictions: what the model makes of row %lld of %s is not "
                         "finite: look at the weights (zckpt verify names a tensor that "
                         "is not)",
                         (long long)sample + 1, p->e->run->test_file);
}

/* The class at the first token of each word, by what the data keep of words. */
static json_t *tags_json(struct prediction *p, int64_t sample, const float *classes)
{
    const struct zt_dataset *ds = p->e->test_data;
    const struct zt_row_options *o = zt_dataset_rows(ds);
    const struct zt_example *x = zt_dataset_example(ds, sample);
    json_t *tags = json_array();
    int64_t at, n, a, b; /* a: tokens of words that the row has */
    int32_t *marks = malloc(((size_t)x->first + 1) * sizeof(*marks));

    zt_dataset_sample(ds, sample, &at, &n);
    (void)zt_example_cut(o, x, p->e->block_size, &a, &b);
    if (!marks || zt_dataset_read(ds, at + x->first, x->first, marks, &p->why))
        p->rc = p->why.code ? p->why.code : ZT_E_NOMEM;
    for (int64_t i = 0; !p->rc && i < x->first; i++) {
        int64_t class = i < a ? (int64_t)classes[(int64_t)o->single.before.num + i] : -1;

        if (i < a && marks[i] > 0 && class < 0)
            refuse_row(p, sample);
        else if (marks[i] > 0)
            json_array_append_new(tags, i < a ? json_string(p->e->labels.names[class])
                                              : json_null());
    }
    free(marks);
    return json_pack("{s:o}", "tags", tags);
}

static json_t *row_json(struct prediction *p, int64_t sample, const float *row)
{
    if (p->e->task == ZT_TASK_TAG)
        return tags_json(p, sample, row);
    if (!are_finite(row, p->width)) {
        refuse_row(p, sample);
        return NULL;
    }
    return p->e->task == ZT_TASK_REGRESS ? json_pack("{s:f}", "label", (double)row[0])
                                         : class_json(&p->e->labels, row);
}

static void write_row(struct prediction *p, int64_t sample, const float *row)
{
    json_t *line = row_json(p, sample, row);
    char *text = line ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;

    if (!p->rc && !text)
        p->rc = zt_fault_set(&p->why, ZT_E_NOMEM, "predictions: no memory");
    if (!p->rc)
        p->rc = zt_atomic_file_write(&p->file, text, strlen(text), &p->why);
    if (!p->rc)
        p->rc = zt_atomic_file_write(&p->file, "\n", 1, &p->why);
    free(text);
    json_decref(line);
}

/* ---- passes ---- */

/* Logits of the batch become what rank 0 needs of them. */
static zt_err keep(struct prediction *p, int64_t n, int64_t T, struct zt_fault *fault)
{
    bool tags = p->e->task == ZT_TASK_TAG;
    int64_t L = p->e->task == ZT_TASK_REGRESS ? 1 : p->e->labels.num;

    if (n != p->B * L * (tags ? T : 1))
        return zt_fault_set(fault, ZT_E_PLUGIN,
                            "plugin %s: without labels it returns %lld values; %lld rows "
                            "of %lld are wanted",
                            p->e->plugin->name, (long long)n, (long long)p->B,
                            (long long)(L * (tags ? T : 1)));
    for (int64_t b = 0; tags && b < p->B; b++)
        for (int64_t i = 0; i < T; i++) {
            const float *x = p->logits + (b * T + i) * L;

            p->own[b * p->width + i] = are_finite(x, L) ? (float)zt_largest(x, L) : -1;
        }
    if (!tags)
        memcpy(p->own, p->logits, (size_t)n * sizeof(*p->own));
    return ZT_OK;
}

static zt_err predict_batch(struct prediction *p, const struct zt_field_buffers *batch,
                            int64_t T, struct zt_fault *fault)
{
    const struct zt_batch_layout *l = &p->e->model->layout;
    struct zt_pass pass = {.mode = ZT_MODE_EVAL, .B = p->B, .T = T};
    zt_tensor *out = NULL;
    int64_t n = 0;
    zt_err rc;

    zt_pass_set_fields(&pass, batch);
    for (int i = 0; i < l->num; i++)
        if (l->fields[i].label)
            pass.fields[i] = NULL;
    zt_zero_pass_begin(p->e->zero, pass.mode, 0);
    rc = zt_step_forward(p->e->step, &pass, &out, fault);
    if (!rc)
        rc = zt_fetch_logits(p->e, out, &p->logits, &p->room, &n, fault);
    zt_step_end(p->e->step);
    if (!rc)
        rc = zt_zero_pass_end(p->e->zero, fault);
    return rc ? rc : keep(p, n, T, fault);
}

static void write_batch(struct prediction *p, int64_t batch)
{
    int64_t rows = p->e->run->world * p->B, num = zt_dataset_num_samples(p->e->test_data);

    for (int64_t i = 0; p->writes && !p->rc && i < rows && batch * rows + i < num; i++)
        write_row(p, batch * rows + i, p->all + i * p->width);
}

static zt_err all_batches(struct prediction *p, const struct zt_eval_batches *it,
                          struct zt_fault *fault)
{
    struct zt_host_batch host = {.rows = 0};
    struct zt_field_buffers batch;
    zt_err rc = zt_host_batch_open(p->e, p->B, &host, fault);

    batch = zt_host_batch_at(p->e, &host, 0);
    for (int64_t i = 0; !rc && i < it->num_batches; i++) {
        struct zt_widths widths = {0, 0};
        int64_t rows = 0;

        rc = zt_eval_batches_read(it, i, &batch, &rows, &widths, fault);
        if (!rc)
            rc = predict_batch(p, &batch, widths.row, fault);
        if (!rc)
            rc = zt_all_gather(p->e->comm, p->own, p->all,
                               (size_t)(p->B * p->width) * sizeof(*p->own), ZT_U8, fault);
        if (!rc)
            write_batch(p, i);
    }
    zt_host_batch_close(p->e, &host);
    return rc;
}

/* ---- the file ---- */

static void open_file(struct prediction *p)
{
    const char *dir = p->e->run->output_dir;
    char path[PATH_MAX];

    p->rc = zt_output_dir_make("--output_dir", dir, &p->why);
    if (!p->rc && snprintf(path, sizeof(path), "%s/predictions.jsonl", dir) >= PATH_MAX)
        p->rc = zt_fault_set(&p->why, ZT_E_CANTCREATE, "--output_dir %s: too long", dir);
    if (!p->rc)
        p->rc = zt_atomic_file_open(&p->file, path, 0, &p->why);
}

/* What rank 0 could not write all ranks hear of. */
static zt_err end_file(struct prediction *p, struct zt_fault *fault)
{
    double failed;
    zt_err rc;

    if (p->writes && !p->rc)
        p->rc = zt_atomic_file_publish(&p->file, &p->why);
    failed = p->rc ? 1 : 0;
    rc = zt_sum_f64(p->e->comm, &failed, 1, p->rc ? NULL : fault);
    if (p->rc)
        return zt_fault_set(fault, p->rc, "%s", p->why.text);
    if (!rc && failed > 0)
        return zt_fault_set(fault, ZT_E_PEER, "rank 0 could not write the predictions");
    if (!rc && p->writes)
        zt_event_text("predictions", p->file.path);
    return rc;
}

zt_err zt_engine_predict(struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    struct prediction p = {.e = e,
                           .B = run->per_device_eval_batch_size,
                           .width = e->task == ZT_TASK_TAG       ? e->block_size
                                    : e->task == ZT_TASK_REGRESS ? 1
                                                                 : e->labels.num,
                           .writes = zt_comm_rank(e->comm) == 0,
                           .file = {.fd = -1}};
    struct zt_eval_batches it;
    zt_err rc = zt_eval_batches_init(&it, e->test_data, e->block_size, p.B, run->rank,
                                     run->world, fault);

    if (rc)
        return rc;
    zt_event_phase("predicting");
    it.padding = zt_engine_padding(run);
    p.own = calloc((size_t)(p.B * p.width), sizeof(*p.own));
    p.all = calloc((size_t)(p.B * p.width) * (size_t)run->world, sizeof(*p.all));
    if (!p.own || !p.all)
        rc = zt_fault_set(fault, ZT_E_NOMEM, "predictions: no memory");
    if (!rc && p.writes)
        open_file(&p);
    if (!rc)
        rc = all_batches(&p, &it, fault);
    if (!rc)
        rc = end_file(&p, fault);
    zt_atomic_file_release(&p.file);
    free(p.logits);
    free(p.own);
    free(p.all);
    return rc;
}
