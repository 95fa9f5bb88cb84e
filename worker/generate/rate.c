/*
 * rate.c -- texts of an evaluation: written for its rows by all ranks, compared by rank 0.
 */
#include "common/message/event.h"
#include "common/message/metrics.h"
#include "worker/generate/collect.h"
#include "worker/generate/generate.h"
#include "worker/generate/text_out.h"
#include "worker/generate/writer.h"
#include "worker/tasks/text_scores.h"

/* What was written for each prompt, of several texts the first. */
static zt_err list_texts(const struct zt_writer *w, struct zt_buf *out,
                         struct zt_fault *fault)
{
    int64_t each = w->e->run->num_return_sequences;
    zt_err rc = ZT_OK;

    for (int64_t i = 0; !rc && i < w->num_written; i += each) {
        const struct zt_written *t = &w->written[i];
        size_t at;

        if (zt_collect_begin(out, &at))
            return zt_fault_set(fault, ZT_E_NOMEM, "generation: no host memory");
        rc = zt_text_of_ids(w->e, t->ids + t->num_prompt, t->n - t->num_prompt, out,
                            fault);
        zt_collect_end(out, at);
    }
    return rc;
}

struct rating {
    const struct zt_prompts *prompts;
    struct zt_text_scores scores;
};

static zt_err rate_text(void *user, int64_t i, const char *text, size_t n,
                        struct zt_fault *fault)
{
    struct rating *r = user;
    size_t num_meant;
    const char *meant = zt_prompts_meant(r->prompts, i, &num_meant);

    return zt_text_scores_add(&r->scores, text, n, meant, num_meant, fault);
}

/* What rank 0 has counted, to all. */
static zt_err share(struct zt_comm *c, const struct zt_text_scores *s,
                    struct zt_eval_stats *stats, struct zt_fault *fault)
{
    double values[] = {zt_bleu(s), zt_chrf(s), zt_rouge(s, ZT_ROUGE_1),
                       zt_rouge(s, ZT_ROUGE_2), zt_rouge(s, ZT_ROUGE_L)};
    zt_err rc = zt_broadcast(c, values, sizeof(values), ZT_U8, 0, fault);

    stats->has_texts = true;
    stats->bleu = values[0];
    stats->chrf = values[1];
    stats->rouge1 = values[2];
    stats->rouge2 = values[3];
    stats->rougeL = values[4];
    return rc;
}

zt_err zt_generate_scores(struct zt_engine *e, struct zt_eval_stats *stats,
                          struct zt_fault *fault)
{
    struct rating r = {.prompts = &e->eval_prompts};
    struct zt_writer w;
    struct zt_buf mine;
    zt_err rc;

    zt_event_phase("writing the texts of an evaluation");
    zt_buf_init(&mine, (size_t)1 << 40);
    rc = zt_writer_open(&w, e, &e->eval_prompts, fault);
    if (!rc)
        rc = zt_writer_run(&w, fault);
    if (!rc)
        rc = list_texts(&w, &mine, fault);
    if (!rc)
        rc = zt_collect_texts(e->comm, w.prompts->num, 1, &mine, rate_text, &r, fault);
    if (!rc)
        rc = share(e->comm, &r.scores, stats, fault);
    zt_buf_release(&mine);
    zt_writer_release(&w);
    return rc;
}
