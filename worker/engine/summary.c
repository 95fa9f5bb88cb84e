/*
 * summary.c -- what a run is about to do, in one sentence: so that a wrong model, an empty
 * data set or a missing --output_dir is seen before the first step.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/human.h"
#include "common/message/event.h"
#include "worker/engine/engine.h"

struct line {
    char text[640];
    size_t at;
};

static void add(struct line *l, const char *fmt, ...) ZT_PRINTF(2, 3);
static void add(struct line *l, const char *fmt, ...)
{
    va_list ap;
    int n;

    if (l->at >= sizeof(l->text))
        return;
    va_start(ap, fmt);
    n = vsnprintf(l->text + l->at, sizeof(l->text) - l->at, fmt, ap);
    va_end(ap);
    l->at += n > 0 ? (size_t)n : 0;
}

static void add_training(struct line *l, const struct zt_engine *e)
{
    const struct zt_run *run = e->run;
    double tokens = (double)zt_dataset_num_tokens(e->train_data);
    double rows = (double)run->train_batch_size * (double)e->total_steps;
    char all[ZT_HUMAN];

    add(l,
        "; %" PRId64 " step%s of %" PRId64 " rows of %" PRId64
        " tokens, %.3g epochs of %s tokens",
        e->total_steps, e->total_steps == 1 ? "" : "s", run->train_batch_size,
        e->block_size, rows * (double)e->block_size / tokens,
        zt_human_count(all, tokens));
    if (run->output_dir)
        add(l, "; weights go to %s", run->output_dir);
    else
        add(l, "; nothing is saved (--output_dir)");
}

void zt_engine_print_summary(const struct zt_engine *e)
{
    const struct zt_run *run = e->run;
    char parameters[ZT_HUMAN];
    struct line l = {.at = 0};

    if (run->rank)
        return;
    if (run->run_name)
        add(&l, "%s: ", run->run_name);
    add(&l, "%s: %s parameters, %s, %d %s on %s, ZeRO stage %d", e->plugin->name,
        zt_human_count(parameters, (double)e->model->numel),
        zt_dtype_name(run->compute_dtype), run->world, run->world == 1 ? "rank" : "ranks",
        run->device, run->zero.stage);
    if (run->do_train)
        add_training(&l, e);
    else if (run->train_files && run->train_files[0])
        add(&l, "; nothing is trained (--do_train)");
    zt_event_begin(l.text, run->run_name, run->do_train);
}
