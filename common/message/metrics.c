#include "common/message/metrics.h"

#include "common/json/line.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- values ---- */

/* A function that copies a member of the stats. */
#define COPY(name, member)                                                               \
    static bool name(const struct zt_step_stats *s, struct zt_metric_value *v)           \
    {                                                                                    \
        v->member = s->name;                                                             \
        return true;                                                                     \
    }
COPY(step, integer)
COPY(total_steps, integer)
COPY(loss, real)
COPY(lr, real)
COPY(grad_norm, real)
COPY(samples, integer)
COPY(skipped, integer)
COPY(peak_device_bytes, integer)

static bool peak_host_bytes(const struct zt_step_stats *s, struct zt_metric_value *v)
{
    v->integer = s->peak_host_bytes;
    return v->integer > 0;
}

static bool file_bytes(const struct zt_step_stats *s, struct zt_metric_value *v)
{
    v->integer = s->file_bytes;
    return v->integer > 0;
}

static bool tokens_per_s(const struct zt_step_stats *s, struct zt_metric_value *v)
{
    v->real = s->tokens / s->seconds;
    return true;
}

/* Nothing is faster than its peak: a larger share says that the baseline was taken while
 * something else ran. */
static bool gemm_share(const struct zt_step_stats *s, struct zt_metric_value *v)
{
    double share = s->gemm_peak > 0 ? s->flops / s->seconds / s->gemm_peak : -1;

    v->real = share > 1 ? 1 : share;
    return v->real >= 0;
}

static bool rank_wait_share(const struct zt_step_stats *s, struct zt_metric_value *v)
{
    v->real = s->rank_wait / s->seconds;
    return v->real > 0;
}

static bool file_wait_share(const struct zt_step_stats *s, struct zt_metric_value *v)
{
    v->real = s->file_wait / s->seconds;
    return v->real > 0;
}

static bool loss_scale(const struct zt_step_stats *s, struct zt_metric_value *v)
{
    v->real = s->loss_scale;
    return v->real > 0;
}

static bool eta_s(const struct zt_step_stats *s, struct zt_metric_value *v)
{
    double left = (double)(s->total_steps - s->step);

    v->real = s->steps_per_s > 0 ? left / s->steps_per_s : 0;
    return s->steps_per_s > 0;
}

static bool fingerprint(const struct zt_step_stats *s, struct zt_metric_value *v)
{
    snprintf(v->text, sizeof(v->text), "%016llx", (unsigned long long)s->fingerprint);
    return s->has_fingerprint;
}

/* The same for a member of the stats of an evaluation. */
#define COPY_EVAL(name, member)                                                          \
    static bool eval_##name(const struct zt_eval_stats *s, struct zt_metric_value *v)    \
    {                                                                                    \
        v->member = s->name;                                                             \
        return true;                                                                     \
    }
COPY_EVAL(step, integer)
COPY_EVAL(loss, real)

static bool eval_tokens(const struct zt_eval_stats *s, struct zt_metric_value *v)
{
    v->integer = s->tokens;
    return !s->is_per_row;
}

static bool eval_samples(const struct zt_eval_stats *s, struct zt_metric_value *v)
{
    v->integer = s->samples;
    return s->is_per_row;
}

static bool perplexity(const struct zt_eval_stats *s, struct zt_metric_value *v)
{
    v->real = exp(s->loss);
    return s->is_per_token && !s->is_of_words;
}

static bool bits_per_byte(const struct zt_eval_stats *s, struct zt_metric_value *v)
{
    v->real = s->loss / log(2.0);
    return s->is_per_token && s->is_of_bytes && !s->is_of_words;
}

/* The same for one that is measured of some tasks. */
#define COPY_SCORE(name, member, where)                                                  \
    static bool eval_##name(const struct zt_eval_stats *s, struct zt_metric_value *v)    \
    {                                                                                    \
        v->real = s->member;                                                             \
        return s->where;                                                                 \
    }
COPY_SCORE(accuracy, accuracy, has_classes)
COPY_SCORE(precision, precision, has_spans)
COPY_SCORE(recall, recall, has_spans)
COPY_SCORE(f1_macro, f1_macro, has_classes)
COPY_SCORE(matthews_correlation, matthews, has_classes)
COPY_SCORE(pearson, pearson, has_numbers)
COPY_SCORE(spearmanr, spearman, has_numbers)
COPY_SCORE(bleu, bleu, has_texts)
COPY_SCORE(chrf, chrf, has_texts)
COPY_SCORE(rouge1, rouge1, has_texts)
COPY_SCORE(rouge2, rouge2, has_texts)
COPY_SCORE(rougeL, rougeL, has_texts)

static bool eval_f1(const struct zt_eval_stats *s, struct zt_metric_value *v)
{
    v->real = s->f1;
    return s->has_two_classes || s->has_spans;
}

static const char *percent(char out[ZT_HUMAN], double value)
{
    snprintf(out, ZT_HUMAN, "%.0f%%", 100 * value);
    return out;
}

/* ---- the table ---- */

const struct zt_metric zt_metrics[] = {
    {.name = "step",
     .type = ZT_METRIC_INT,
     .unit = "",
     .help = "optimizer steps, from 1",
     .measure = step,
     .column = 1,
     .format = "step %lld"},
    {.name = "total_steps",
     .type = ZT_METRIC_INT,
     .unit = "",
     .help = "steps of the run",
     .measure = total_steps,
     .column = 2,
     .format = "/%lld",
     .shown = ZT_SHOWN_POSITIVE},
    {.name = "loss",
     .type = ZT_METRIC_REAL,
     .unit = "nats",
     .help =
         "mean over the target tokens of the global batch, or what else the loss of the "
         "model is divided by",
     .measure = loss,
     .column = 3,
     .format = "  loss %.4f"},
    {.name = "lr",
     .type = ZT_METRIC_REAL,
     .unit = "",
     .help = "learning rate of the step",
     .measure = lr,
     .column = 4,
     .format = "  lr %.3g",
     .rank = 6},
    {.name = "grad_norm",
     .type = ZT_METRIC_REAL,
     .unit = "",
     .help = "2-norm of the gradient, before clipping",
     .measure = grad_norm,
     .column = 5,
     .format = "  grad %.3g",
     .rank = 7},
    {.name = "tokens_per_s",
     .type = ZT_METRIC_REAL,
     .unit = "tokens/s",
     .help =
         "of all ranks, since the last report: target tokens, or where the loss is not "
         "per token those of the rows as they are padded; the time of evaluations and "
         "checkpoints is left out",
     .measure = tokens_per_s,
     .column = 6,
     .format = "  %s tok/s",
     .human = zt_human_count,
     .rank = 1},
    {.name = "samples",
     .type = ZT_METRIC_INT,
     .unit = "",
     .help = "rows seen so far",
     .measure = samples},
    {.name = "skipped",
     .type = ZT_METRIC_INT,
     .unit = "",
     .help = "steps so far whose gradients were not finite",
     .measure = skipped,
     .column = 12,
     .format = "  skipped %lld",
     .shown = ZT_SHOWN_POSITIVE,
     .rank = 3},
    {.name = "peak_device_bytes",
     .type = ZT_METRIC_INT,
     .unit = "bytes",
     .help =
         "most memory of its device that the tensors of this rank have taken so far; "
         "what "
         "--dry_run plans for the longest rows is set aside from the start, and is more "
         "where rows are shorter; a GPU counts all of that, a processor not what the "
         "process itself takes",
     .measure = peak_device_bytes,
     .column = 10,
     .format = "  mem %s",
     .human = zt_human_bytes,
     .shown = ZT_SHOWN_POSITIVE,
     .rank = 4},
    {.name = "peak_host_bytes",
     .type = ZT_METRIC_INT,
     .unit = "bytes",
     .help = "of offloaded state and activations in host memory, the most so far; on a "
             "processor a part of the former",
     .measure = peak_host_bytes},
    {.name = "file_bytes",
     .type = ZT_METRIC_INT,
     .unit = "bytes",
     .help = "of offloaded state in files",
     .measure = file_bytes},
    {.name = "gemm_share",
     .type = ZT_METRIC_REAL,
     .unit = "",
     .help =
         "rate of matrix products, of the best that products of the run's sizes reach on "
         "all ranks at once; once it was measured, never above 1",
     .measure = gemm_share,
     .column = 7,
     .format = "  %s of GEMM peak",
     .human = percent,
     .shown = ZT_SHOWN_NOT_NEGATIVE,
     .rank = 5},
    {.name = "rank_wait_share",
     .type = ZT_METRIC_REAL,
     .unit = "",
     .help =
         "share of the time since the last report in which this rank waited for other "
         "ranks, or for messages between them",
     .measure = rank_wait_share,
     .column = 8,
     .format = "  %s rank wait",
     .human = percent,
     .shown = ZT_SHOWN_POSITIVE,
     .rank = 11},
    {.name = "file_wait_share",
     .type = ZT_METRIC_REAL,
     .unit = "",
     .help = "share of that time in which it waited for state that lives in files",
     .measure = file_wait_share,
     .column = 9,
     .format = "  %s file wait",
     .human = percent,
     .shown = ZT_SHOWN_POSITIVE,
     .rank = 10},
    {.name = "loss_scale",
     .type = ZT_METRIC_REAL,
     .unit = "",
     .help = "with fp16",
     .measure = loss_scale,
     .column = 11,
     .format = "  scale %g",
     .shown = ZT_SHOWN_POSITIVE,
     .rank = 8},
    {.name = "eta_s",
     .type = ZT_METRIC_REAL,
     .unit = "s",
     .help = "time that the rest of the run will take, with evaluations and checkpoints "
             "as often "
             "as so far; not known at the first step",
     .measure = eta_s,
     .column = 14,
     .format = "  eta %s",
     .human = zt_human_seconds,
     .shown = ZT_SHOWN_NOT_NEGATIVE,
     .rank = 2},
    {.name = "fingerprint",
     .type = ZT_METRIC_TEXT,
     .unit = "",
     .help = "hash of the weights, 16 hex digits, every fingerprint_steps",
     .measure = fingerprint,
     .column = 13,
     .format = "  fingerprint %s",
     .rank = 9},
    {.event = ZT_METRIC_EVAL,
     .name = "step",
     .type = ZT_METRIC_INT,
     .unit = "",
     .help = "optimizer steps before it",
     .measure_eval = eval_step,
     .column = 1,
     .format = "eval at step %lld"},
    {.event = ZT_METRIC_EVAL,
     .name = "tokens",
     .type = ZT_METRIC_INT,
     .unit = "tokens",
     .help = "target tokens; where the loss is divided by what a field adds up to, all "
             "tokens of the rows, with padding",
     .measure_eval = eval_tokens,
     .column = 20,
     .format = "  over %lld tokens"},
    {.event = ZT_METRIC_EVAL,
     .name = "samples",
     .type = ZT_METRIC_INT,
     .unit = "rows",
     .help = "where the loss is a mean over rows, as of classes and of numbers",
     .measure_eval = eval_samples,
     .column = 21,
     .format = "  over %lld rows"},
    {.event = ZT_METRIC_EVAL,
     .name = "loss",
     .type = ZT_METRIC_REAL,
     .unit = "nats",
     .help =
         "mean over the target tokens of the evaluation set, or what else the loss of "
         "the model is divided by; with --label_smoothing_factor smoothed as in "
         "training, and so are the two that follow from it",
     .measure_eval = eval_loss,
     .column = 2,
     .format = "  loss %.4f"},
    {.event = ZT_METRIC_EVAL,
     .name = "perplexity",
     .type = ZT_METRIC_REAL,
     .unit = "",
     .help = "where the loss is per token, but of tags",
     .measure_eval = perplexity,
     .column = 3,
     .format = "  perplexity %.4g",
     .shown = ZT_SHOWN_NOT_NEGATIVE},
    {.event = ZT_METRIC_EVAL,
     .name = "bits_per_byte",
     .type = ZT_METRIC_REAL,
     .unit = "bits/byte",
     .help = "where the loss is per token, but of tags, and tokens are bytes",
     .measure_eval = bits_per_byte,
     .column = 4,
     .format = "  %.4f bits/byte",
     .shown = ZT_SHOWN_NOT_NEGATIVE},
    {.event = ZT_METRIC_EVAL,
     .name = "accuracy",
     .type = ZT_METRIC_REAL,
     .unit = "",
     .help = "of classes, of rows or words: the share that is right",
     .measure_eval = eval_accuracy,
     .column = 5,
     .format = "  accuracy %.4f"},
    {.event = ZT_METRIC_EVAL,
     .name = "f1",
     .type = ZT_METRIC_REAL,
     .unit = "",
     .help = "of two classes of rows: F1 of the second one; of tags that mark entities "
             "(B-TYPE, I-TYPE, O): F1 of these, as seqeval counts them",
     .measure_eval = eval_f1,
     .column = 6,
     .format = "  F1 %.4f"},
    {.event = ZT_METRIC_EVAL,
     .name = "f1_macro",
     .type = ZT_METRIC_REAL,
     .unit = "",
     .help = "of classes: the mean of their F1",
     .measure_eval = eval_f1_macro,
     .column = 7,
     .format = "  F1 macro %.4f"},
    {.event = ZT_METRIC_EVAL,
     .name = "matthews_correlation",
     .type = ZT_METRIC_REAL,
     .unit = "",
     .help = "of classes: of any number of them",
     .measure_eval = eval_matthews_correlation,
     .column = 8,
     .format = "  Matthews %.4f"},
    {.event = ZT_METRIC_EVAL,
     .name = "pearson",
     .type = ZT_METRIC_REAL,
     .unit = "",
     .help = "of numbers: the correlation of predictions and labels",
     .measure_eval = eval_pearson,
     .column = 9,
     .format = "  Pearson %.4f"},
    {.event = ZT_METRIC_EVAL,
     .name = "spearmanr",
     .type = ZT_METRIC_REAL,
     .unit = "",
     .help = "of numbers: that of their ranks",
     .measure_eval = eval_spearmanr,
     .column = 10,
     .format = "  Spearman %.4f"},
    {.event = ZT_METRIC_EVAL,
     .name = "precision",
     .type = ZT_METRIC_REAL,
     .unit = "",
     .help = "of entities: the share of those found that is right",
     .measure_eval = eval_precision,
     .column = 11,
     .format = "  precision %.4f"},
    {.event = ZT_METRIC_EVAL,
     .name = "recall",
     .type = ZT_METRIC_REAL,
     .unit = "",
     .help = "of entities: the share of those meant that was found",
     .measure_eval = eval_recall,
     .column = 12,
     .format = "  recall %.4f"},
    {.event = ZT_METRIC_EVAL,
     .name = "bleu",
     .type = ZT_METRIC_REAL,
     .unit = "",
     .help = "with --predict_with_generate: of the texts that are written, 0 to 100, as "
             "sacreBLEU computes it",
     .measure_eval = eval_bleu,
     .column = 13,
     .format = "  BLEU %.2f"},
    {.event = ZT_METRIC_EVAL,
     .name = "chrf",
     .type = ZT_METRIC_REAL,
     .unit = "",
     .help = "the same: chrF2, as sacreBLEU computes it",
     .measure_eval = eval_chrf,
     .column = 14,
     .format = "  chrF2 %.2f"},
    {.event = ZT_METRIC_EVAL,
     .name = "rouge1",
     .type = ZT_METRIC_REAL,
     .unit = "",
     .help =
         "the same: F1 of words, mean over texts, as rouge_score computes it, times 100",
     .measure_eval = eval_rouge1,
     .column = 15,
     .format = "  ROUGE-1 %.2f"},
    {.event = ZT_METRIC_EVAL,
     .name = "rouge2",
     .type = ZT_METRIC_REAL,
     .unit = "",
     .help = "the same: of pairs of words",
     .measure_eval = eval_rouge2,
     .column = 16,
     .format = "  ROUGE-2 %.2f"},
    {.event = ZT_METRIC_EVAL,
     .name = "rougeL",
     .type = ZT_METRIC_REAL,
     .unit = "",
     .help = "the same: of the longest common subsequence of words",
     .measure_eval = eval_rougeL,
     .column = 17,
     .format = "  ROUGE-L %.2f"},
    {.name = NULL},
};

const char *zt_metric_event_name(zt_metric_event event)
{
    static const char *const names[] = {"step", "eval"};

    return names[event];
}

int zt_step_metrics_measure(const struct zt_step_stats *s,
                            struct zt_metric_value values[ZT_MAX_METRICS])
{
    int n = 0;

    for (const struct zt_metric *m = zt_metrics; m->name && n < ZT_MAX_METRICS; m++) {
        values[n] = (struct zt_metric_value){.metric = m};
        n += m->event == ZT_METRIC_STEP && m->measure(s, &values[n]);
    }
    return n;
}

int zt_eval_metrics_measure(const struct zt_eval_stats *s,
                            struct zt_metric_value values[ZT_MAX_METRICS])
{
    int n = 0;

    for (const struct zt_metric *m = zt_metrics; m->name && n < ZT_MAX_METRICS; m++) {
        values[n] = (struct zt_metric_value){.metric = m};
        n += m->event == ZT_METRIC_EVAL && m->measure_eval(s, &values[n]);
    }
    return n;
}

/* ---- the line ---- */

/* The next column's metric; NULL: that was the last. */
static const struct zt_metric *next_column(zt_metric_event event, int column)
{
    const struct zt_metric *next = NULL;

    for (const struct zt_metric *m = zt_metrics; m->name; m++)
        if (m->event == event && m->column > column &&
            (!next || m->column < next->column))
            next = m;
    return next;
}

static bool is_shown(const struct zt_metric *m, double value)
{
    return m->shown == ZT_SHOWN_ALWAYS ||
           (m->shown == ZT_SHOWN_POSITIVE ? value > 0 : value >= 0);
}

/* One field of the event as text. */
static void print_field(const struct zt_metric *m, const json_t *event, char *out,
                        size_t cap)
{
    double real = zt_json_get_real(event, m->name, NAN);
    int64_t integer = zt_json_get_int(event, m->name, 0);
    char text[ZT_HUMAN];

    *out = 0;
    if (!json_object_get(event, m->name))
        return;
    if (m->type == ZT_METRIC_INT)
        real = (double)integer;
    if (m->type != ZT_METRIC_TEXT && !is_shown(m, real))
        return;
    if (m->human)
        snprintf(out, cap, m->format, m->human(text, real));
    else if (m->type == ZT_METRIC_TEXT)
        snprintf(out, cap, m->format, zt_json_get_text(event, m->name, ""));
    else if (m->type == ZT_METRIC_INT)
        snprintf(out, cap, m->format, (long long)integer);
    else
        snprintf(out, cap, m->format, real);
}

/* The columns of at most this rank. */
static size_t print_columns(const json_t *event, int rank, char *line, size_t cap)
{
    const char *name = zt_json_get_text(event, "event", "");
    zt_metric_event of = strcmp(name, zt_metric_event_name(ZT_METRIC_EVAL))
                             ? ZT_METRIC_STEP
                             : ZT_METRIC_EVAL;
    const struct zt_metric *m = NULL;
    size_t at = 0;

    *line = 0;
    while (at + 1 < cap && (m = next_column(of, m ? m->column : 0))) {
        if (m->rank > rank)
            continue;
        print_field(m, event, line + at, cap - at);
        at += strlen(line + at);
    }
    return at;
}

void zt_metrics_line(const json_t *event, int columns, char *line, size_t cap)
{
    int rank = ZT_MAX_METRICS;
    size_t n = print_columns(event, rank, line, cap);

    while (columns > 0 && n > (size_t)columns && rank-- > 0)
        n = print_columns(event, rank, line, cap);
}

/* ---- docs ---- */

static void print_rows(zt_metric_event event, FILE *out)
{
    static const char *const types[] = {"integer", "number", "text"};

    fputs(
        "| metric | type | unit | column | meaning |\n| --- | --- | --- | --- | --- |\n",
        out);
    for (const struct zt_metric *m = zt_metrics; m->name; m++) {
        if (m->event != event)
            continue;
        fprintf(out, "| `%s` | %s | %s | ", m->name, types[m->type], m->unit);
        if (m->column)
            fprintf(out, "%d", m->column);
        fprintf(out, " | %s |\n", m->help);
    }
}

void zt_metrics_print_markdown(FILE *out)
{
    fputs(
        "# Metrics\n\nWhat a run reports of its steps: fields of the JSON event `step` "
        "(`--log_format json`), in this order. Those with a column are on the progress "
        "line. Made from the table in `common/message/metrics.c` by `zworker --print_man "
        "metrics`.\n\n",
        out);
    print_rows(ZT_METRIC_STEP, out);
    fputs(
        "\nWhat `gemm_share` compares with is measured after steps 20, 200 and 2000, "
        "where at least 20 more follow: all ranks wait for each other and multiply "
        "matrices for a tenth of a second on a GPU and up to about half a second on "
        "processors, whose large products take longer. The rates of these metrics leave "
        "that pause out.\n",
        out);
    fputs("\n## Evaluation\n\nFields of the JSON event `eval`. The columns are those of "
          "the "
          "line that an evaluation prints.\n\n",
          out);
    print_rows(ZT_METRIC_EVAL, out);
}
