/*
 * Scores texts and tags for comparison. One JSON object a line of standard input:
 * {"written": [...], "meant": [...]} texts, or {"tags": [names], "predicted": [[class, ...], ...],
 * "meant": [...]} rows of classes of words; one line each of standard output.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker/tasks/spans.h"
#include "worker/tasks/text_scores.h"

static json_t *score_texts(const json_t *written, const json_t *meant)
{
    struct zt_text_scores s = {.num = 0};
    struct zt_fault fault = {ZT_OK, ""};

    for (size_t i = 0; i < json_array_size(written); i++) {
        const json_t *w = json_array_get(written, i), *m = json_array_get(meant, i);

        if (zt_text_scores_add(&s, json_string_value(w), json_string_length(w),
                               json_string_value(m), json_string_length(m), &fault))
            return NULL;
    }
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "bleu", zt_bleu(&s), "chrf",
                     zt_chrf(&s), "rouge1", zt_rouge(&s, ZT_ROUGE_1), "rouge2",
                     zt_rouge(&s, ZT_ROUGE_2), "rougeL", zt_rouge(&s, ZT_ROUGE_L));
}

static int32_t *classes_of(const json_t *row)
{
    int32_t *out = malloc((json_array_size(row) + 1) * sizeof(*out));

    for (size_t i = 0; out && i < json_array_size(row); i++)
        out[i] = (int32_t)json_integer_value(json_array_get(row, i));
    return out;
}

static json_t *score_tags(const json_t *names, const json_t *predicted,
                          const json_t *meant)
{
    size_t num = json_array_size(names);
    const char **list = calloc(num + 1, sizeof(*list));
    struct zt_span_tags tags = {.part = NULL};
    struct zt_span_counts c = {0};
    struct zt_fault fault = {ZT_OK, ""};
    bool good = list != NULL;

    for (size_t i = 0; list && i < num; i++)
        list[i] = json_string_value(json_array_get(names, i));
    good = good && zt_tags_mark_spans(list, (int64_t)num) &&
           zt_span_tags_open(&tags, list, (int64_t)num, &fault) == ZT_OK;
    for (size_t i = 0; good && i < json_array_size(meant); i++) {
        const json_t *row = json_array_get(meant, i);
        int32_t *p = classes_of(json_array_get(predicted, i)), *m = classes_of(row);

        good = p && m;
        if (good)
            zt_spans_add(&c, &tags, p, m, (int64_t)json_array_size(row));
        free(p);
        free(m);
    }
    zt_span_tags_close(&tags);
    free(list);
    return good ? json_pack("{s:f, s:f, s:f}", "precision", zt_span_precision(&c),
                            "recall", zt_span_recall(&c), "f1", zt_span_f1(&c))
                : NULL;
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;

    while (getline(&line, &cap, stdin) > 0) {
        json_t *o = json_loads(line, JSON_ALLOW_NUL, NULL), *a = NULL;

        if (o && json_object_get(o, "tags"))
            a = score_tags(json_object_get(o, "tags"), json_object_get(o, "predicted"),
                           json_object_get(o, "meant"));
        else if (o)
            a = score_texts(json_object_get(o, "written"), json_object_get(o, "meant"));
        if (!a || json_dumpf(a, stdout, JSON_COMPACT | JSON_REAL_PRECISION(17))) {
            fprintf(stderr, "scores: %s\n", o ? "no answer" : "malformed input");
            return 1;
        }
        putchar('\n');
        json_decref(a);
        json_decref(o);
    }
    free(line);
    return 0;
}
