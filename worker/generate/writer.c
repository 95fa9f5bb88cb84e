#include "worker/generate/writer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/generate/beam.h"
#include "worker/generate/sample.h"

/* Of random numbers: text k of all, counted over prompts, has a stream of its own. */
#define STREAM 0x67656e65726174ull

/* What takes rows together: a text, or the beams of one. */
struct unit {
    int64_t prompt, sequence;
    int32_t *ids; /* of a text */
    int64_t n, num_prompt;
    struct zt_beams *beams; /* NULL: a text */
};

struct loop {
    struct zt_writer *w;
    int64_t rows_each;   /* of a unit */
    int64_t next_prompt; /* of this rank's */
    struct unit *units;
    int64_t num, most;
    struct zt_sampling sampling;
    bool draws;
    float *logits;                 /* (rows, vocab) */
    struct zt_decoder_text *texts; /* (rows) */
    struct zt_choice *choices;     /* (vocab) */
    float *penalized;              /* (tokens of a text) */
    int32_t *from;                 /* (num_beams) */
};

static const struct zt_run *run_of(const struct loop *l)
{
    return l->w->e->run;
}

static bool searches(const struct zt_run *run)
{
    return run->num_beams > 1;
}

static zt_err out_of_memory(struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_NOMEM, "generation: no host memory");
}

static struct zt_philox stream_of(const struct loop *l, const struct unit *u)
{
    uint64_t text = (uint64_t)(l->w->first + u->prompt * l->w->g.each + u->sequence);

    return (struct zt_philox){.seed = (uint64_t)run_of(l)->seed, .stream = STREAM + text};
}

/* ---- a unit's life ---- */

static zt_err open_beams(struct loop *l, struct unit *u, const int32_t *ids,
                         struct zt_fault *fault)
{
    const struct zt_run *run = run_of(l);
    struct zt_beam_config cfg = {.num_beams = run->num_beams,
                                 .vocab = l->w->e->model->vocab,
                                 .max_new_tokens = run->generate_tokens,
                                 .length_penalty = run->length_penalty,
                                 .early_stopping = run->early_stopping,
                                 .rules = &l->w->rules,
                                 .sampling = l->draws ? &l->sampling : NULL,
                                 .rng = stream_of(l, u)};

    return zt_beams_open(&cfg, ids, u->num_prompt, &u->beams, fault);
}

/* All rows of the unit that begins are written from the prompt. */
static zt_err set_sources(struct loop *l, const int32_t *ids, int64_t n,
                          struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int64_t i = 0; !rc && i < l->rows_each; i++)
        rc = zt_decoder_set_source(l->w->decoder, l->num * l->rows_each + i, ids, n,
                                   fault);
    return rc;
}

static zt_err begin_unit(struct loop *l, int64_t prompt, int64_t sequence,
                         struct zt_fault *fault)
{
    struct unit *u = &l->units[l->num];
    const int32_t *ids;
    zt_err rc = ZT_OK;

    *u = (struct unit){.prompt = prompt, .sequence = sequence};
    ids = zt_prompts_ids(l->w->prompts, prompt, &u->num_prompt);
    if (l->w->e->source_size) { /* the prompt is read, and a text begins by itself */
        rc = set_sources(l, ids, u->num_prompt, fault);
        ids = &l->w->e->model->layout.start;
        u->num_prompt = 1;
    }
    u->n = u->num_prompt;
    for (int64_t i = 0; i < l->rows_each; i++)
        zt_decoder_begin(l->w->decoder, l->num * l->rows_each + i, u->n);
    l->num++;
    if (rc)
        return rc;
    if (searches(run_of(l)))
        return open_beams(l, u, ids, fault);
    u->ids = malloc((size_t)(u->n + run_of(l)->generate_tokens) * sizeof(*ids));
    if (!u->ids)
        return out_of_memory(fault);
    memcpy(u->ids, ids, (size_t)u->n * sizeof(*ids));
    return ZT_OK;
}

static void release_unit(struct unit *u)
{
    free(u->ids);
    zt_beams_close(u->beams);
    *u = (struct unit){.ids = NULL};
}

/* Prompts of this rank for as long as there are rows for all that belongs to one. */
static zt_err begin_units(struct loop *l, struct zt_fault *fault)
{
    const struct zt_run *run = run_of(l);
    int64_t units = searches(run) ? 1 : l->w->g.each;
    zt_err rc = ZT_OK;

    while (!rc && l->next_prompt < l->w->prompts->num && l->num + units <= l->most) {
        for (int64_t k = 0; !rc && k < units; k++)
            rc = begin_unit(l, l->next_prompt, k, fault);
        l->next_prompt += run->world;
    }
    return rc;
}

static struct zt_written *written_of(struct loop *l, const struct unit *u,
                                     int64_t sequence)
{
    return &l->w->written[u->prompt / run_of(l)->world * run_of(l)->num_return_sequences +
                          sequence];
}

static zt_err keep_beams(struct loop *l, const struct unit *u, struct zt_fault *fault)
{
    for (int64_t i = 0; i < run_of(l)->num_return_sequences; i++) {
        struct zt_written *t = written_of(l, u, i);
        const int32_t *ids = zt_beams_result(u->beams, i, &t->n, &t->score);

        t->num_prompt = u->num_prompt;
        if (t->n > t->num_prompt && zt_logits_is_end(&l->w->rules, ids[t->n - 1]))
            t->n--;
        t->ids = malloc((size_t)t->n * sizeof(*ids));
        if (!t->ids)
            return out_of_memory(fault);
        memcpy(t->ids, ids, (size_t)t->n * sizeof(*ids));
    }
    return ZT_OK;
}

/* The unit is done: what it has become stays, and the last one takes its rows. */
static zt_err end_unit(struct loop *l, int64_t at, struct zt_fault *fault)
{
    struct unit *u = &l->units[at];
    int64_t each = l->rows_each, last = --l->num;
    zt_err rc = ZT_OK;

    if (u->beams) {
        rc = keep_beams(l, u, fault);
    } else {
        *written_of(l, u, u->sequence) =
            (struct zt_written){.ids = u->ids, .n = u->n, .num_prompt = u->num_prompt};
        u->ids = NULL;
    }
    release_unit(u);
    if (rc || at == last)
        return rc;
    *u = l->units[last];
    l->units[last] = (struct unit){.ids = NULL};
    for (int64_t i = 0; !rc && i < each; i++)
        rc = zt_decoder_move(l->w->decoder, last * each + i, at * each + i, fault);
    return rc;
}

/* ---- a token ---- */

static void choose_token(struct loop *l, struct unit *u, float *logits, bool *done)
{
    int64_t vocab = l->w->e->model->vocab;
    int32_t id;

    zt_logits_apply(&l->w->rules, u->ids, u->n, u->num_prompt, logits, vocab,
                    l->penalized);
    id = zt_sample_token(logits, vocab, &l->sampling,
                         zt_philox_uniform(stream_of(l, u), (uint64_t)u->n), l->choices);
    *done = zt_logits_is_end(&l->w->rules, id);
    if (*done)
        return;
    u->ids[u->n++] = id;
    *done = u->n - u->num_prompt >= run_of(l)->generate_tokens;
    if (l->w->on_token && u->prompt == 0 && u->sequence == 0)
        *done |= l->w->on_token(l->w->user, id);
}

/* Of the rows of a unit, before the rules: what they leave of a NaN looks like a choice. */
static zt_err check_logits(const struct loop *l, const struct unit *u,
                           const float *logits, struct zt_fault *fault)
{
    int64_t vocab = l->w->e->model->vocab, num = l->rows_each * vocab;
    int64_t bad = zt_logits_find_bad(logits, num);

    if (bad < 0)
        return ZT_OK;
    return zt_fault_set(
        fault, ZT_E_NUMERIC,
        "generation: behind %lld tokens the model gives token %lld the logit %s: look at "
        "the weights (zckpt verify names a tensor that is not finite)%s",
        (long long)u->n, (long long)(bad % vocab), isnan(logits[bad]) ? "nan" : "inf",
        run_of(l)->compute_dtype == ZT_F16 ? ", or try --bf16" : "");
}

static zt_err advance_unit(struct loop *l, int64_t at, bool *done, struct zt_fault *fault)
{
    struct unit *u = &l->units[at];
    float *logits = l->logits + at * l->rows_each * l->w->e->model->vocab;
    zt_err rc = check_logits(l, u, logits, fault);

    if (rc)
        return rc;
    if (u->beams)
        rc = zt_beams_step(u->beams, logits, l->from, done, fault);
    else
        choose_token(l, u, logits, done);
    if (rc || !u->beams || *done)
        return rc;
    return zt_decoder_reorder(l->w->decoder, at * l->rows_each, l->from, l->rows_each,
                              fault);
}

/* From the last unit on: one that ends is replaced by one that has had its turn. */
static zt_err advance_units(struct loop *l, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int64_t at = l->num - 1; !rc && at >= 0; at--) {
        bool done = false;

        rc = advance_unit(l, at, &done, fault);
        if (!rc && done)
            rc = end_unit(l, at, fault);
    }
    return rc;
}

static void list_texts(struct loop *l)
{
    for (int64_t at = 0; at < l->num; at++)
        for (int64_t i = 0; i < l->rows_each; i++) {
            struct zt_decoder_text *t = &l->texts[at * l->rows_each + i];
            const struct unit *u = &l->units[at];

            *t = (struct zt_decoder_text){u->ids, u->n};
            if (u->beams)
                t->ids = zt_beams_ids(u->beams, i, &t->n);
        }
}

/* ---- all of them ---- */

static zt_err open_loop(struct loop *l, struct zt_writer *w, struct zt_fault *fault)
{
    const struct zt_run *run = w->e->run;
    size_t vocab = (size_t)w->e->model->vocab, rows = (size_t)w->g.rows;
    int64_t own = (w->prompts->num - run->rank + run->world - 1) / run->world;

    *l = (struct loop){.w = w,
                       .rows_each = searches(run) ? run->num_beams : 1,
                       .next_prompt = run->rank,
                       .draws = run->do_sample && run->temperature > 0};
    l->most = w->g.rows / l->rows_each;
    l->sampling = (struct zt_sampling){.temperature = l->draws ? run->temperature : 0,
                                       .top_p = run->top_p,
                                       .top_k = run->top_k};
    if (searches(run)) /* enough for every beam to go on */
        l->sampling.min_kept = w->rules.num_ends + 1 > 2 ? w->rules.num_ends + 1 : 2;
    w->num_written = own > 0 ? own * run->num_return_sequences : 0;
    w->written = calloc((size_t)w->num_written + 1, sizeof(*w->written));
    l->units = calloc((size_t)l->most, sizeof(*l->units));
    l->logits = malloc(rows * vocab * sizeof(*l->logits));
    l->texts = calloc(rows, sizeof(*l->texts));
    l->choices = malloc(vocab * sizeof(*l->choices));
    l->penalized =
        malloc((size_t)(w->g.longest + run->generate_tokens) * sizeof(*l->penalized));
    l->from = calloc((size_t)l->rows_each, sizeof(*l->from));
    if (!w->written || !l->units || !l->logits || !l->texts || !l->choices ||
        !l->penalized || !l->from)
        return out_of_memory(fault);
    return ZT_OK;
}

static void close_loop(struct loop *l)
{
    for (int64_t i = 0; l->units && i < l->num; i++)
        release_unit(&l->units[i]);
    free(l->units);
    free(l->logits);
    free(l->texts);
    free(l->choices);
    free(l->penalized);
    free(l->from);
}

zt_err zt_writer_open(struct zt_writer *w, struct zt_engine *e,
                      const struct zt_prompts *prompts, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    zt_err rc;

    *w = (struct zt_writer){
        .e = e, .prompts = prompts, .g = zt_engine_generation(e, prompts)};
    rc = zt_ends_find(e, &w->ends, fault);
    w->rules = (struct zt_logits_rules){.repetition_penalty = run->repetition_penalty,
                                        .no_repeat_ngram_size = run->no_repeat_ngram_size,
                                        .min_new_tokens = run->min_new_tokens,
                                        .ends = w->ends.ends.ids,
                                        .num_ends = w->ends.ends.num,
                                        .forced_first = w->ends.forced_first.ids,
                                        .num_forced_first = w->ends.forced_first.num,
                                        .forced_last = w->ends.forced_last.ids,
                                        .num_forced_last = w->ends.forced_last.num,
                                        .max_new_tokens = run->generate_tokens};
    return rc ? rc : zt_decoder_open(e, &w->g, &w->decoder, fault);
}

zt_err zt_writer_run(struct zt_writer *w, struct zt_fault *fault)
{
    struct loop l;
    bool more = true;
    zt_err rc = open_loop(&l, w, fault);

    while (!rc && more) {
        rc = begin_units(&l, fault);
        list_texts(&l);
        if (!rc)
            rc = zt_decoder_step(w->decoder, l.texts, l.num * l.rows_each, l.logits,
                                 &more, fault);
        if (!rc && more)
            rc = advance_units(&l, fault);
    }
    close_loop(&l);
    return rc;
}

void zt_writer_forget(struct zt_writer *w)
{
    for (int64_t i = 0; w->written && i < w->num_written; i++)
        free(w->written[i].ids);
    free(w->written);
    w->written = NULL;
}

void zt_writer_release(struct zt_writer *w)
{
    zt_writer_forget(w);
    zt_decoder_close(w->decoder);
    w->decoder = NULL;
}
