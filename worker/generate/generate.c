/*
 * generate.c -- what is made of the prompts of a run, and where it goes.
 */
#include "worker/generate/generate.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json/line.h"
#include "common/log.h"
#include "common/message/event.h"
#include "worker/engine/output_dir.h"
#include "worker/generate/collect.h"
#include "worker/generate/text_out.h"
#include "worker/generate/writer.h"
#include "worker/tasks/text_scores.h"

static zt_err out_of_memory(struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_NOMEM, "generation: no host memory");
}

/* ---- as events ---- */

static zt_err send_sample(void *user, int64_t i, const char *text, size_t n,
                          struct zt_fault *fault)
{
    (void)user;
    (void)i;
    (void)fault;
    zt_event_bytes("sample", text, n);
    return ZT_OK;
}

/* Every text, whole. */
static zt_err list_samples(const struct zt_writer *w, struct zt_buf *out,
                           struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int64_t i = 0; !rc && i < w->num_written; i++) {
        const struct zt_written *t = &w->written[i];
        int64_t skip = w->e->source_size > 0; /* the start token is no text */
        size_t at;

        if (zt_collect_begin(out, &at))
            return out_of_memory(fault);
        rc = zt_text_of_ids(w->e, t->ids + skip, t->n - skip, out, fault);
        zt_collect_end(out, at);
    }
    return rc;
}

/* ---- as lines of a file ---- */

/* What was added to a prompt, as a JSON string. */
static json_t *generated_text(const struct zt_writer *w, const struct zt_written *t,
                              struct zt_fault *fault)
{
    struct zt_buf text;
    json_t *made = NULL;

    zt_buf_init(&text, ZT_TEXT_MAX_BYTES);
    if (zt_text_of_ids(w->e, t->ids + t->num_prompt, t->n - t->num_prompt, &text,
                       fault) == ZT_OK)
        made = zt_json_text((const char *)zt_buf_head(&text), zt_buf_used(&text));
    zt_buf_release(&text);
    return made;
}

/* One sequence is a text, several are a list; so with the scores of beams. */
static json_t *generated(const struct zt_writer *w, const struct zt_written *t,
                         bool scores, struct zt_fault *fault)
{
    int64_t num = w->e->run->num_return_sequences;
    json_t *list = json_array();

    for (int64_t i = 0; list && i < num; i++) {
        json_t *one =
            scores ? zt_json_real((double)t[i].score) : generated_text(w, &t[i], fault);

        if (num == 1) {
            json_decref(list);
            return one;
        }
        if (!one || json_array_append_new(list, one)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* {"prompt": ..., "generated": ..., "score": ...} */
static zt_err put_line(const struct zt_writer *w, int64_t prompt,
                       const struct zt_written *t, struct zt_buf *out,
                       struct zt_fault *fault)
{
    size_t n;
    const char *text = zt_prompts_text(w->prompts, prompt, &n);
    json_t *line = json_object();
    zt_err rc = ZT_OK;
    size_t at = 0;

    if (!line || zt_collect_begin(out, &at) ||
        json_object_set_new(line, "prompt", zt_json_text(text, n)) ||
        json_object_set_new(line, "generated", generated(w, t, false, fault)) ||
        (w->e->run->num_beams > 1 &&
         json_object_set_new(line, "score", generated(w, t, true, fault))) ||
        zt_json_put(out, line))
        rc = fault && fault->code ? fault->code : out_of_memory(fault);
    else
        zt_collect_end(out, at);
    json_decref(line);
    return rc;
}

static zt_err list_predictions(const struct zt_writer *w, struct zt_buf *out,
                               struct zt_fault *fault)
{
    const struct zt_run *run = w->e->run;
    int64_t each = run->num_return_sequences;
    zt_err rc = ZT_OK;

    for (int64_t i = 0; !rc && i * each < w->num_written; i++)
        rc = put_line(w, run->rank + i * run->world, &w->written[i * each], out, fault);
    return rc;
}

/* What rank 0 collects. */
struct predictions {
    const struct zt_prompts *prompts;
    struct zt_buf lines;
    struct zt_text_scores scores; /* with --predict_with_generate */
    struct zt_text_scores copied; /* likewise, of the prompts in the place of the texts */
};

/* The text of a line, of several the first one, beside what was meant. */
static zt_err score_line(struct predictions *p, int64_t i, const char *text, size_t n,
                         struct zt_fault *fault)
{
    json_t *line = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
    const json_t *made = json_object_get(line, "generated");
    size_t num_meant;
    const char *meant = zt_prompts_meant(p->prompts, i, &num_meant);
    zt_err rc;

    if (json_is_array(made))
        made = json_array_get(made, 0);
    rc = json_is_string(made)
             ? zt_text_scores_add(&p->scores, json_string_value(made),
                                  json_string_length(made), meant, num_meant, fault)
             : out_of_memory(fault);
    json_decref(line);
    text = zt_prompts_text(p->prompts, i, &n);
    return rc ? rc : zt_text_scores_add(&p->copied, text, n, meant, num_meant, fault);
}

static zt_err append_line(void *user, int64_t i, const char *text, size_t n,
                          struct zt_fault *fault)
{
    struct predictions *p = user;

    if (zt_buf_put(&p->lines, text, n) || zt_buf_put_u8(&p->lines, '\n'))
        return out_of_memory(fault);
    return p->prompts->meant_column ? score_line(p, i, text, n, fault) : ZT_OK;
}

/* By the names that the example scripts of transformers give them. */
static zt_err write_scores(const struct zt_engine *e, const struct zt_text_scores *s,
                           const struct zt_text_scores *copied, struct zt_fault *fault)
{
    json_t *o = json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:I, s:f, s:f, s:s, s:s}", "predict_bleu", zt_bleu(s),
        "predict_chrf", zt_chrf(s), "predict_rouge1", zt_rouge(s, ZT_ROUGE_1),
        "predict_rouge2", zt_rouge(s, ZT_ROUGE_2), "predict_rougeL",
        zt_rouge(s, ZT_ROUGE_L), "predict_samples", (json_int_t)s->num, "copied_bleu",
        zt_bleu(copied), "copied_chrf", zt_chrf(copied), "bleu_signature",
        ZT_BLEU_SIGNATURE, "chrf_signature", ZT_CHRF_SIGNATURE);
    struct zt_buf text;
    zt_err rc;

    zt_buf_init(&text, (size_t)1 << 16);
    rc = !o || zt_json_put(&text, o) || zt_buf_put_u8(&text, '\n')
             ? out_of_memory(fault)
             : zt_output_dir_write(e->run->output_dir, "predict_results.json", &text,
                                   fault);
    json_decref(o);
    zt_buf_release(&text);
    if (!rc)
        zt_info("generate",
                "of %lld texts: BLEU %.2f (%s), chrF2 %.2f, ROUGE-1 %.2f, ROUGE-2 %.2f, "
                "ROUGE-L %.2f",
                (long long)s->num, zt_bleu(s), ZT_BLEU_SIGNATURE, zt_chrf(s),
                zt_rouge(s, ZT_ROUGE_1), zt_rouge(s, ZT_ROUGE_2),
                zt_rouge(s, ZT_ROUGE_L));
    return rc;
}

/* Rank 0 has all lines. */
static zt_err write_predictions(const struct zt_engine *e, const struct predictions *p,
                                struct zt_fault *fault)
{
    zt_err rc =
        zt_output_dir_write(e->run->output_dir, "predictions.jsonl", &p->lines, fault);

    if (!rc && p->prompts->meant_column)
        rc = write_scores(e, &p->scores, &p->copied, fault);
    return rc;
}

/* ---- both ---- */

static zt_err collect(struct zt_writer *w, struct zt_fault *fault)
{
    bool predicts = w->e->run->do_predict;
    struct predictions all = {.prompts = w->prompts};
    struct zt_buf mine;
    zt_err rc;

    zt_buf_init(&mine, (size_t)1 << 40);
    zt_buf_init(&all.lines, (size_t)1 << 40);
    rc = predicts ? list_predictions(w, &mine, fault) : list_samples(w, &mine, fault);
    if (!rc && predicts)
        rc = zt_collect_texts(w->e->comm, w->prompts->num, 1, &mine, append_line, &all,
                              fault);
    else if (!rc)
        rc =
            zt_collect_texts(w->e->comm, w->prompts->num, w->e->run->num_return_sequences,
                             &mine, send_sample, NULL, fault);
    if (!rc && predicts && w->e->run->rank == 0)
        rc = write_predictions(w->e, &all, fault);
    zt_buf_release(&mine);
    zt_buf_release(&all.lines);
    return rc;
}

/* The one text of a run is seen as it comes. */
struct live_text {
    struct zt_text_pieces pieces;
    struct zt_fault fault;
};

static bool show_token(void *user, int32_t id)
{
    struct live_text *live = user;

    /* the other ranks go on: what has failed here is told when the text has ended */
    return live->fault.code ||
           zt_text_pieces_put(&live->pieces, &id, 1, &live->fault) != ZT_OK;
}

static bool is_live(const struct zt_writer *w)
{
    const struct zt_run *run = w->e->run;

    return w->prompts->num == 1 && w->g.each == 1 && !run->do_predict && run->rank == 0;
}

static zt_err begin_live(struct zt_writer *w, struct live_text *live,
                         struct zt_fault *fault)
{
    int64_t n;
    const int32_t *ids = zt_prompts_ids(w->prompts, 0, &n);
    zt_err rc = zt_text_pieces_open(&live->pieces, w->e, "sample_part", fault);

    w->on_token = show_token;
    w->user = live;
    /* one that reads a source and writes another text does not go on with it */
    return rc || w->e->source_size ? rc
                                   : zt_text_pieces_put(&live->pieces, ids, n, fault);
}

static zt_err end_live(struct live_text *live, struct zt_fault *fault)
{
    if (!live->fault.code)
        return zt_text_pieces_end(&live->pieces, fault);
    if (fault)
        *fault = live->fault;
    return live->fault.code;
}

/* Collective. How many tokens all ranks have written, and how fast. */
static zt_err report_speed(const struct zt_writer *w, double seconds,
                           struct zt_fault *fault)
{
    double tokens = 0;
    zt_err rc;

    for (int64_t i = 0; i < w->num_written; i++)
        tokens += (double)(w->written[i].n - w->written[i].num_prompt);
    rc = zt_sum_f64(w->e->comm, &tokens, 1, fault);
    if (!rc && w->e->run->rank == 0 && seconds > 0)
        zt_info("generate", "%.0f tokens in %.3g s, %.4g tokens/s", tokens, seconds,
                tokens / seconds);
    return rc;
}

zt_err zt_generate(struct zt_engine *e, struct zt_fault *fault)
{
    struct live_text live = {.fault = {0}};
    struct zt_writer w;
    double start, seconds;
    zt_err rc;

    zt_event_phase("generating text");
    rc = zt_writer_open(&w, e, &e->prompts, fault);
    if (!rc && is_live(&w))
        rc = begin_live(&w, &live, fault);
    start = zt_now();
    if (!rc)
        rc = zt_writer_run(&w, fault);
    seconds = zt_now() - start;
    if (!rc && w.on_token)
        rc = end_live(&live, fault);
    if (!rc)
        rc = collect(&w, fault);
    if (!rc) /* behind the text, which may have no end of line of its own */
        rc = report_speed(&w, seconds, fault);
    zt_text_pieces_close(&live.pieces);
    zt_writer_release(&w);
    return rc;
}
