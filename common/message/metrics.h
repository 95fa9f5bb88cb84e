/*
 * metrics.h -- what is reported of training steps and evaluations: one table, a row for
 *              each metric of each of them.
 *
 *      engine --struct zt_..._stats--> rows: values --> sinks (worker/monitor)
 *                                                          \--> JSON event --> launcher:
 *                                                               progress line, by the rows
 *
 * A row says name, unit and meaning, computes the value from what the engine measured, and
 * prints it. The order of the table is that of the fields of the JSON event.
 * Threads: const.
 */
#ifndef COMMON_MESSAGE_METRICS_H
#define COMMON_MESSAGE_METRICS_H

#include <jansson.h>
#include <stdio.h>

#include "common/human.h"
#include "include/zlaunch/types.h"

/* What the engine measured. tokens, seconds and flops are since the last report. */
struct zt_step_stats {
    int64_t step, total_steps; /* step counts from 1 */
    double loss;               /* mean over the global batch's target tokens, nats */
    double lr, grad_norm;
    double tokens;      /* targets, of all ranks */
    double seconds;     /* > 0 */
    double flops;       /* of this rank's matrix products */
    double gemm_peak;   /* FLOP/s of the GEMM baseline; 0: not measured */
    double loss_scale;  /* fp16; 0: none */
    double steps_per_s; /* of the run so far; 0: not known */
    int64_t samples;    /* rows seen so far */
    int64_t skipped;    /* steps so far that changed nothing */
    int64_t peak_device_bytes;
    int64_t peak_host_bytes, file_bytes; /* of offloaded state; 0: nothing is there */
    double rank_wait, file_wait; /* seconds of `seconds` in which this rank waited */
    uint64_t fingerprint;        /* of the weights */
    bool has_fingerprint;
};

/* What the engine measured in an evaluation. */
struct zt_eval_stats {
    int64_t step;    /* the last one before it; 0: none */
    int64_t tokens;  /* targets where the loss is per token, else those of rows */
    int64_t samples; /* rows with data, where the loss is per row */
    double loss;     /* mean over what the model's loss is divided by */
    bool is_per_token, is_per_row;
    bool is_of_bytes; /* a token is a byte */
    bool is_of_words; /* a token is a word that has a tag */
    /* of tasks with labels; the members behind each are measured where it is true */
    bool has_classes;
    double accuracy, f1_macro, matthews;
    bool has_two_classes;
    double f1;      /* of the second one; of entities */
    bool has_spans; /* entities that tags mark; then there is f1, too */
    double precision, recall;
    bool has_numbers;
    double pearson, spearman;
    bool has_texts; /* that are written, beside those that were meant; 0 to 100 */
    double bleu, chrf, rouge1, rouge2, rougeL;
};

/* What a metric is of, and the event that reports it. */
typedef enum zt_metric_event {
    ZT_METRIC_STEP,
    ZT_METRIC_EVAL,
} zt_metric_event;
const char *zt_metric_event_name(zt_metric_event event); /* "step", "eval" */

typedef enum zt_metric_type {
    ZT_METRIC_INT,
    ZT_METRIC_REAL,
    ZT_METRIC_TEXT
} zt_metric_type;

struct zt_metric_value {
    const struct zt_metric *metric;
    int64_t integer; /* the one that the metric's type says */
    double real;
    char text[24];
};

/* Which values the line shows. */
typedef enum zt_metric_shown {
    ZT_SHOWN_ALWAYS,
    ZT_SHOWN_POSITIVE, /* > 0 */
    ZT_SHOWN_NOT_NEGATIVE,
} zt_metric_shown;

struct zt_metric {
    zt_metric_event event;
    const char *name; /* in the JSON event, and for every sink */
    zt_metric_type type;
    const char *unit; /* "" where it has none */
    const char *help;

    /* The value, by that of the two which `event` says; false: this time there is none. */
    bool (*measure)(const struct zt_step_stats *s, struct zt_metric_value *v);
    bool (*measure_eval)(const struct zt_eval_stats *s, struct zt_metric_value *v);

    /* The line that people read, the progress line for a step: columns ascend; 0: it is not shown there. */
    int column;
    zt_metric_shown shown;
    const char
        *format; /* of a long long, a double or a string, with what stands before it */
    const char *(*human)(char out[ZT_HUMAN], double value); /* then `format` has a %s */
    int rank; /* on a narrow terminal the largest goes first; 0: it stays */
};

/* The last row has no name. */
extern const struct zt_metric zt_metrics[];
#define ZT_MAX_METRICS 64

/* All values that there are, in the order of the table; returns how many. */
int zt_step_metrics_measure(const struct zt_step_stats *s,
                            struct zt_metric_value values[ZT_MAX_METRICS]);
int zt_eval_metrics_measure(const struct zt_eval_stats *s,
                            struct zt_metric_value values[ZT_MAX_METRICS]);

/* The line of an event "step" or "eval": what fits in `columns`, the most telling first
 * (0: all), and in `cap` bytes. Fields that are missing are left out. */
void zt_metrics_line(const json_t *event, int columns, char *line, size_t cap);

/* The table for docs/METRICS.md. */
void zt_metrics_print_markdown(FILE *out);

#endif
