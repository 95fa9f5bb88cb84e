#include "worker/generate/beam.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OUT_OF_RACE (-1e9f) /* what takes part no more loses this much */

/* A text, and its score: of one that goes on the sum, of a finished one the final. */
struct beam {
    int32_t *ids;
    int64_t n;
    float score;
    bool finished;
};

/* A beam and a token behind it. */
struct beam_candidate {
    int32_t beam, id;
    float score; /* the sum */
    float key;   /* what it is chosen by */
    bool ends;
};

struct zt_beams {
    struct zt_beam_config cfg;
    int64_t num_prompt, n;             /* n: tokens of every beam that goes on */
    int64_t kept, num;                 /* candidates of a step: at most, and now */
    struct beam *running, *best;       /* (num_beams) each */
    struct beam *next;                 /* (num_beams): what they become */
    struct beam_candidate *candidates; /* (kept) */
    struct zt_choice *choices;         /* (vocab), with sampling */
    float *penalized;                  /* (most tokens of a text) */
    bool may_improve;
};

static struct beam *alloc_beams(int64_t num, int64_t most)
{
    struct beam *b = calloc((size_t)num, sizeof(*b));

    for (int64_t i = 0; b && i < num; i++)
        b[i].ids = malloc((size_t)most * sizeof(*b[i].ids));
    return b;
}

static bool have_ids(const struct beam *b, int64_t num)
{
    for (int64_t i = 0; b && i < num; i++)
        if (!b[i].ids)
            return false;
    return b != NULL;
}

static void free_beams(struct beam *b, int64_t num)
{
    for (int64_t i = 0; b && i < num; i++)
        free(b[i].ids);
    free(b);
}

void zt_beams_close(struct zt_beams *b)
{
    if (!b)
        return;
    free_beams(b->running, b->cfg.num_beams);
    free_beams(b->best, b->cfg.num_beams);
    free_beams(b->next, b->cfg.num_beams);
    free(b->candidates);
    free(b->choices);
    free(b->penalized);
    free(b);
}

zt_err zt_beams_open(const struct zt_beam_config *cfg, const int32_t *ids, int64_t n,
                     struct zt_beams **out, struct zt_fault *fault)
{
    int64_t most = n + cfg->max_new_tokens, num = cfg->num_beams;
    struct zt_beams *b = calloc(1, sizeof(*b));

    if (!b)
        return zt_fault_set(fault, ZT_E_NOMEM, "beam search: no host memory");
    b->cfg = *cfg;
    b->num_prompt = b->n = n;
    b->may_improve = true;
    b->kept = num * (cfg->rules->num_ends > 1 ? cfg->rules->num_ends + 1 : 2);
    if (b->kept > num * cfg->vocab)
        b->kept = num * cfg->vocab;
    b->running = alloc_beams(num, most);
    b->best = alloc_beams(num, most);
    b->next = alloc_beams(num, most);
    b->candidates = calloc((size_t)b->kept, sizeof(*b->candidates));
    b->penalized = malloc((size_t)most * sizeof(*b->penalized));
    if (cfg->sampling)
        b->choices = malloc((size_t)cfg->vocab * sizeof(*b->choices));
    if (!have_ids(b->running, num) || !have_ids(b->best, num) ||
        !have_ids(b->next, num) || !b->candidates || !b->penalized ||
        (cfg->sampling && !b->choices)) {
        zt_beams_close(b);
        return zt_fault_set(fault, ZT_E_NOMEM, "beam search: no host memory");
    }
    for (int64_t i = 0; i < num; i++) {
        memcpy(b->running[i].ids, ids, (size_t)n * sizeof(*ids));
        memcpy(b->best[i].ids, ids, (size_t)n * sizeof(*ids));
        b->running[i].n = b->best[i].n = n;
        b->running[i].score = i ? OUT_OF_RACE : 0; /* they are one and the same text */
        b->best[i].score = OUT_OF_RACE;
    }
    *out = b;
    return ZT_OK;
}

/* ---- candidates ---- */

static bool is_better(const struct beam_candidate *a, const struct beam_candidate *b)
{
    if (a->key != b->key)
        return a->key > b->key;
    return a->beam != b->beam ? a->beam < b->beam : a->id < b->id;
}

/* Into the list of the best, if it belongs there; returns how many there are. */
static int64_t offer(struct zt_beams *b, int64_t num, const struct beam_candidate *c)
{
    struct beam_candidate *list = b->candidates;
    int64_t at;

    if (num == b->kept && !is_better(c, &list[num - 1]))
        return num;
    at = num < b->kept ? num++ : num - 1;
    for (; at > 0 && is_better(c, &list[at - 1]); at--)
        list[at] = list[at - 1];
    list[at] = *c;
    return num;
}

/* Of an exponential race: the keys' order is that of draws without replacement. */
static float drawn_key(const struct zt_beams *b, const struct beam_candidate *c)
{
    uint64_t at = (uint64_t)((b->n * b->cfg.num_beams + c->beam) * b->cfg.vocab + c->id);
    double u = zt_philox_uniform(b->cfg.rng, at);

    return (float)((double)c->score - log(-log1p(-u) + 1e-300));
}

/* What sampling leaves of logits stays, over the temperature; the rest is -inf. */
static void cut_logits(const struct zt_beams *b, float *logits)
{
    int64_t kept =
        zt_sample_candidates(logits, b->cfg.vocab, b->cfg.sampling, b->choices);

    for (int64_t i = 0; i < kept; i++) /* the logit waits beside its id */
        b->choices[i].p =
            (float)((double)logits[b->choices[i].id] / b->cfg.sampling->temperature);
    for (int64_t i = 0; i < b->cfg.vocab; i++)
        logits[i] = -INFINITY;
    for (int64_t i = 0; i < kept; i++)
        logits[b->choices[i].id] = b->choices[i].p;
}

static void find_candidates(struct zt_beams *b, float *logits)
{
    int64_t num = 0, V = b->cfg.vocab;

    for (int64_t i = 0; i < b->cfg.num_beams; i++) {
        float *x = logits + i * V;

        zt_logits_normalize(x, V);
        zt_logits_apply(b->cfg.rules, b->running[i].ids, b->n, b->num_prompt, x, V,
                        b->penalized);
        if (b->cfg.sampling)
            cut_logits(b, x);
        for (int64_t id = 0; id < V; id++) {
            struct beam_candidate c = {.beam = (int32_t)i, .id = (int32_t)id};

            c.score = c.key = x[id] + b->running[i].score;
            if (num == b->kept && !b->cfg.sampling && c.key <= b->candidates[num - 1].key)
                continue;
            if (b->cfg.sampling)
                c.key = drawn_key(b, &c);
            num = offer(b, num, &c);
        }
    }
    b->num = num;
}

static int by_score(const void *a, const void *b)
{
    struct beam_candidate x = *(const struct beam_candidate *)a,
                          y = *(const struct beam_candidate *)b;

    x.key = x.score;
    y.key = y.score;
    return is_better(&x, &y) ? -1 : is_better(&y, &x);
}

/* ---- what becomes of them ---- */

static void copy_text(struct beam *to, const struct beam *from, const int32_t *id)
{
    memcpy(to->ids, from->ids, (size_t)from->n * sizeof(*to->ids));
    to->n = from->n;
    if (id)
        to->ids[to->n++] = *id;
}

/* The best that go on become b->next, with what they come from. */
static void choose_running(struct zt_beams *b, int32_t *from)
{
    int64_t num = 0;

    for (int pass = 0; pass < 2; pass++) /* those that end come last */
        for (int64_t k = 0; k < b->num && num < b->cfg.num_beams; k++) {
            const struct beam_candidate *c = &b->candidates[k];
            struct beam *to = &b->next[num];

            if (c->ends != (pass == 1))
                continue;
            copy_text(to, &b->running[c->beam], &c->id);
            to->score = c->ends ? c->score + OUT_OF_RACE : c->score;
            from[num++] = c->beam;
        }
    for (; num < b->cfg.num_beams;
         num++) { /* a vocabulary of less than there are beams */
        copy_text(&b->next[num], &b->next[0], NULL);
        b->next[num].score = OUT_OF_RACE;
        from[num] = from[0];
    }
}

static bool all_finished(const struct zt_beams *b)
{
    for (int64_t i = 0; i < b->cfg.num_beams; i++)
        if (!b->best[i].finished)
            return false;
    return true;
}

/* Put a finished text among the best, behind those of the same score. */
static void keep_finished(struct zt_beams *b, const struct beam_candidate *c, float score)
{
    int64_t at = b->cfg.num_beams - 1;
    struct beam last = b->best[at];

    if (!(score > last.score))
        return;
    for (; at > 0 && score > b->best[at - 1].score; at--)
        b->best[at] = b->best[at - 1];
    copy_text(&last, &b->running[c->beam], &c->id);
    last.score = score;
    last.finished = true;
    b->best[at] = last;
}

static void choose_finished(struct zt_beams *b)
{
    double length = pow((double)(b->n + 1 - b->num_prompt), b->cfg.length_penalty);
    bool full = b->cfg.early_stopping == ZT_STOP_FIRST && all_finished(b);

    for (int64_t k = 0; k < b->num && k < b->cfg.num_beams; k++) {
        const struct beam_candidate *c = &b->candidates[k];

        if (c->ends && !full && b->may_improve)
            keep_finished(b, c, c->score / (float)length);
    }
}

/* Whether the best beam may still beat the worst finished text, as far as can be told. */
static bool can_improve(const struct zt_beams *b)
{
    int64_t new_tokens = b->n - b->num_prompt;
    float worst = b->best[b->cfg.num_beams - 1].score, best;

    if (b->cfg.early_stopping == ZT_STOP_NEVER && b->cfg.length_penalty > 0)
        new_tokens = b->cfg.max_new_tokens;
    best = b->running[0].score / (float)pow((double)new_tokens, b->cfg.length_penalty);
    return best > (all_finished(b) ? worst : OUT_OF_RACE);
}

/* What sums of logarithms are divided by may leave all of them out of the race. */
static zt_err check_any_finished(const struct zt_beams *b, struct zt_fault *fault)
{
    bool by_length = b->cfg.length_penalty < 0;
    double divisor = by_length         ? b->cfg.length_penalty
                     : b->cfg.sampling ? b->cfg.sampling->temperature
                                       : 1;

    if (b->best[0].finished || divisor >= 1)
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_USAGE,
                        "%s %g leaves no text a score above %.0e, the least with which "
                        "beam search keeps one; take one nearer to %d",
                        by_length ? "--length_penalty" : "--temperature", divisor,
                        (double)OUT_OF_RACE, by_length ? 0 : 1);
}

zt_err zt_beams_step(struct zt_beams *b, float *logits, int32_t *from, bool *done,
                     struct zt_fault *fault)
{
    bool last = b->n + 1 - b->num_prompt >= b->cfg.max_new_tokens, goes_on = false;
    struct beam *next = b->next;

    find_candidates(b, logits);
    if (b->cfg.sampling)
        qsort(b->candidates, (size_t)b->num, sizeof(*b->candidates), by_score);
    for (int64_t k = 0; k < b->num; k++) {
        b->candidates[k].ends =
            last || zt_logits_is_end(b->cfg.rules, b->candidates[k].id);
        goes_on |= !b->candidates[k].ends;
    }
    choose_running(b, from);
    choose_finished(b);
    b->next = b->running;
    b->running = next;
    b->n++;
    b->may_improve = b->may_improve && can_improve(b);
    *done = !b->may_improve || !goes_on ||
            (b->cfg.early_stopping == ZT_STOP_FIRST && all_finished(b));
    return *done ? check_any_finished(b, fault) : ZT_OK;
}

const int32_t *zt_beams_ids(const struct zt_beams *b, int64_t i, int64_t *n)
{
    *n = b->running[i].n;
    return b->running[i].ids;
}

const int32_t *zt_beams_result(const struct zt_beams *b, int64_t i, int64_t *n,
                               float *score)
{
    *n = b->best[i].n;
    *score = b->best[i].score;
    return b->best[i].ids;
}
