#include "worker/engine/tasks/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/convert.h"
#include "worker/comm/comm.h"

/* ---- logits ---- */

static zt_err grow(float **out, int64_t *room, int64_t n, struct zt_fault *fault)
{
    float *more;

    if (n <= *room)
        return ZT_OK;
    more = realloc(*out, (size_t)n * sizeof(*more));
    if (!more)
        return zt_fault_set(fault, ZT_E_NOMEM, "metrics: no memory for %lld logits",
                            (long long)n);
    *out = more;
    *room = n;
    return ZT_OK;
}

/* 16-bit values stand in the second half of the memory that they become fp32 in. */
static void widen(float *out, int64_t n, zt_dtype dtype)
{
    const uint16_t *from = (const uint16_t *)(const void *)(out + n) - n;

    for (int64_t i = 0; i < n; i++) { /* never beyond what is read already */
        uint16_t one = from[i];

        if (dtype == ZT_BF16)
            zt_floats_of_bf16(&out[i], &one, 1);
        else
            zt_floats_of_f16(&out[i], &one, 1);
    }
}

zt_err zt_fetch_logits(struct zt_engine *e, const zt_tensor *result, float **out,
                       int64_t *room, int64_t *n, struct zt_fault *fault)
{
    const zt_tensor *t = zt_step_find_result(e->step, ZT_LOGITS);
    const struct zt_view *v;
    void *to;
    zt_err rc;

    *n = 0;
    t = t ? t : result;
    if (!t)
        return ZT_OK;
    v = zt_tensor_view(t);
    *n = zt_view_numel(v);
    rc = grow(out, room, *n, fault);
    if (rc)
        return rc;
    to = v->dtype == ZT_F32 ? (void *)*out : (uint16_t *)(void *)(*out + *n) - *n;
    rc = e->backend->download(e->device, NULL, to, v->data,
                              (size_t)*n * zt_dtype_bytes(v->dtype), fault);
    if (!rc)
        rc = e->backend->sync(e->device, NULL, fault);
    if (!rc && v->dtype != ZT_F32)
        widen(*out, *n, v->dtype);
    return rc;
}

/* ---- one evaluation ---- */

static bool has_classes(const struct zt_engine *e)
{
    return e->task == ZT_TASK_CLASSIFY || e->task == ZT_TASK_TAG;
}

static bool has_spans(const struct zt_engine *e)
{
    return e->task == ZT_TASK_TAG &&
           zt_tags_mark_spans((const char *const *)e->labels.names, e->labels.num);
}

void zt_measure_promise(const struct zt_engine *e, struct zt_eval_stats *stats)
{
    stats->has_classes = has_classes(e);
    stats->has_two_classes = e->task == ZT_TASK_CLASSIFY && e->labels.num == 2;
    stats->has_spans = has_spans(e);
    stats->has_numbers = e->task == ZT_TASK_REGRESS;
    stats->has_texts = e->eval_prompts.num > 0;
}

zt_err zt_measure_open(struct zt_measure *m, const struct zt_engine *e,
                       struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    *m = (struct zt_measure){.num = 0};
    if (has_classes(e))
        rc = zt_class_counts_open(&m->classes, e->labels.num, fault);
    if (!rc && has_spans(e))
        rc = zt_span_tags_open(&m->tags, (const char *const *)e->labels.names,
                               e->labels.num, fault);
    return rc;
}

void zt_measure_close(struct zt_measure *m)
{
    zt_class_counts_close(&m->classes);
    zt_span_tags_close(&m->tags);
    free(m->words);
    free(m->pairs);
    free(m->logits);
    *m = (struct zt_measure){.num = 0};
}

static const void *field_of(const struct zt_engine *e,
                            const struct zt_field_buffers *batch, const char *name)
{
    int i = zt_batch_find(&e->model->layout, name);

    return i < 0 ? NULL : batch->data[i];
}

/* Logits of `rows` rows or tokens, each with what is meant, or padding. */
static void take_classes(struct zt_measure *m, const int32_t *meant, int64_t rows)
{
    int64_t L = m->classes.num;

    for (int64_t i = 0; i < rows; i++)
        if (meant[i] >= 0 && meant[i] < L)
            zt_class_counts_add(&m->classes, zt_largest(m->logits + i * L, L), meant[i]);
}

/* The words of each row of T tokens, without what is padding. */
static zt_err take_spans(struct zt_measure *m, const int32_t *meant, int64_t T,
                         int64_t rows, struct zt_fault *fault)
{
    int64_t L = m->classes.num;
    int32_t *words = realloc(m->words, 2 * (size_t)T * sizeof(*words));

    if (!words)
        return zt_fault_set(fault, ZT_E_NOMEM, "metrics: no memory");
    m->words = words;
    for (int64_t b = 0; b < rows; b++) {
        int64_t n = 0;

        for (int64_t i = b * T; i < (b + 1) * T; i++) {
            if (meant[i] < 0 || meant[i] >= L)
                continue;
            words[n] = (int32_t)zt_largest(m->logits + i * L, L);
            words[T + n++] = meant[i];
        }
        zt_spans_add(&m->spans, &m->tags, words, words + T, n);
    }
    return ZT_OK;
}

/* A place for each row of the batch, so that every rank has as many. */
static zt_err take_numbers(struct zt_measure *m, const float *meant, int64_t B,
                           int64_t rows, struct zt_fault *fault)
{
    if (m->num + B > m->room) {
        int64_t room = 2 * m->room + B;
        double *more = realloc(m->pairs, 2 * (size_t)room * sizeof(*more));

        if (!more)
            return zt_fault_set(fault, ZT_E_NOMEM, "metrics: no memory");
        m->pairs = more;
        m->room = room;
    }
    for (int64_t i = 0; i < B; i++, m->num++) {
        m->pairs[2 * m->num] = i < rows ? (double)m->logits[i] : NAN;
        m->pairs[2 * m->num + 1] = i < rows ? (double)meant[i] : NAN;
    }
    return ZT_OK;
}

zt_err zt_measure_take(struct zt_measure *m, struct zt_engine *e,
                       const struct zt_field_buffers *batch, int64_t T, int64_t num_rows,
                       struct zt_fault *fault)
{
    int64_t B = e->run->per_device_eval_batch_size, n = 0;
    bool tags = e->task == ZT_TASK_TAG;
    const void *meant = field_of(e, batch, tags ? ZT_TARGETS : ZT_LABELS);
    int64_t width = e->task == ZT_TASK_REGRESS ? 1 : e->labels.num * (tags ? T : 1);
    zt_err rc;

    if ((!has_classes(e) && e->task != ZT_TASK_REGRESS) || !meant)
        return ZT_OK;
    rc = zt_fetch_logits(e, NULL, &m->logits, &m->logits_room, &n, fault);
    if (rc || !n)
        return rc;
    if (n != B * width)
        return zt_fault_set(fault, ZT_E_PLUGIN,
                            "plugin %s: its result %s has %lld values; %lld rows of %lld "
                            "are wanted",
                            e->plugin->name, ZT_LOGITS, (long long)n, (long long)B,
                            (long long)width);
    m->took = true;
    if (e->task == ZT_TASK_REGRESS)
        return take_numbers(m, meant, B, num_rows, fault);
    take_classes(m, meant, num_rows * (tags ? T : 1));
    return m->tags.num ? take_spans(m, meant, T, num_rows, fault) : ZT_OK;
}

/* ---- over all ranks ---- */

static zt_err finish_classes(struct zt_measure *m, struct zt_engine *e,
                             struct zt_eval_stats *stats, struct zt_fault *fault)
{
    double spans[3] = {m->spans.right, m->spans.predicted, m->spans.meant};
    zt_err rc = zt_sum_f64(e->comm, m->classes.counts, (int)(3 * m->classes.num), fault);

    if (!rc && m->tags.num)
        rc = zt_sum_f64(e->comm, spans, 3, fault);
    if (rc)
        return rc;
    m->spans = (struct zt_span_counts){spans[0], spans[1], spans[2]};
    stats->accuracy = zt_accuracy(&m->classes);
    stats->f1 = stats->has_two_classes ? zt_f1_of(&m->classes, 1) : zt_span_f1(&m->spans);
    stats->precision = zt_span_precision(&m->spans);
    stats->recall = zt_span_recall(&m->spans);
    stats->f1_macro = zt_f1_macro(&m->classes);
    stats->matthews = zt_matthews(&m->classes);
    return ZT_OK;
}

/* In the order of the data: batch by batch, and in each rank by rank. */
static int64_t line_up(const double *all, int64_t per_rank, int64_t B, int64_t world,
                       double *x, double *y)
{
    int64_t n = 0;

    for (int64_t batch = 0; batch < per_rank / B; batch++)
        for (int64_t r = 0; r < world; r++)
            for (int64_t i = 0; i < B; i++) {
                const double *pair = all + 2 * (r * per_rank + batch * B + i);

                if (isnan(pair[1])) /* past the end */
                    continue;
                x[n] = pair[0];
                y[n++] = pair[1];
            }
    return n;
}

static zt_err finish_numbers(struct zt_measure *m, struct zt_engine *e,
                             struct zt_eval_stats *stats, struct zt_fault *fault)
{
    int64_t world = e->run->world, B = e->run->per_device_eval_batch_size, n;
    size_t all = (size_t)(world * m->num);
    double *pairs = malloc((2 * all + 1) * sizeof(*pairs));
    double *lined = malloc((2 * all + 1) * sizeof(*lined));
    zt_err rc =
        pairs && lined ? ZT_OK : zt_fault_set(fault, ZT_E_NOMEM, "metrics: no memory");

    if (!rc)
        rc = zt_all_gather(e->comm, m->pairs, pairs, 2 * (size_t)m->num * sizeof(*pairs),
                           ZT_U8, fault);
    if (!rc) {
        n = line_up(pairs, m->num, B, world, lined, lined + all);
        stats->pearson = zt_pearson(lined, lined + all, n);
        rc = zt_spearman(lined, lined + all, n, &stats->spearman, fault);
    }
    free(pairs);
    free(lined);
    return rc;
}

zt_err zt_measure_finish(struct zt_measure *m, struct zt_engine *e,
                         struct zt_eval_stats *stats, struct zt_fault *fault)
{
    if (!m->took) /* the same on every rank: the plugin hands nothing out */
        return ZT_OK;
    zt_measure_promise(e, stats);
    return e->task == ZT_TASK_REGRESS ? finish_numbers(m, e, stats, fault)
                                      : finish_classes(m, e, stats, fault);
}
