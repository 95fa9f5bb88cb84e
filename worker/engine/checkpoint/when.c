/* when.c -- when a checkpoint is saved: by steps, epochs, evaluations, requests, signals. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/message/event.h"
#include "worker/engine/checkpoint/internal.h"

#define EXIT_REQUEUE    75
#define EXIT_TERMINATED 143

/* ---- by itself ---- */

static int64_t epoch_after(const struct zt_engine *e, int64_t step)
{
    struct zt_sampler_state at;

    zt_sampler_tell(e->sampler, step - e->first_step, &at);
    return at.epoch;
}

static bool is_due(const struct zt_engine *e, int64_t step)
{
    const struct zt_run *run = e->run;
    const char *strategy = run->save_strategy;

    if (strcmp(strategy, "no") == 0)
        return false;
    if (step == e->total_steps)
        return true;
    if (strcmp(strategy, "best") == 0)
        return e->best.step == step;
    if (strcmp(strategy, "epoch") == 0)
        return epoch_after(e, step) != epoch_after(e, step - 1);
    return run->save_steps > 0 && step % run->save_steps == 0;
}

/* The best has its own folder when there is one of its step. */
static zt_err prune(struct zt_engine *e, int64_t step, struct zt_fault *fault)
{
    bool keeper = e->run->save_on_each_node ? e->run->local_rank == 0 : e->run->rank == 0;
    int removed = 0;

    if (!e->run->save_total_limit || !keeper)
        return ZT_OK;
    return zt_ckpt_prune(e->run->output_dir, e->run->save_total_limit, step,
                         e->best.step > 0 ? e->best.step : -1, &removed, fault);
}

static zt_err save_step(struct zt_engine *e, int64_t step, zt_err *refused,
                        struct zt_fault *fault)
{
    struct zt_ckpt_place place = {.root = ""};
    zt_err rc;

    zt_ckpt_place_of_step(&place, e->run->output_dir, step);
    rc = zt_checkpoint_save(e, &place, step, refused, fault);
    if (rc || *refused)
        return rc;
    e->saved_step = step;
    if (prune(e, step, fault))
        zt_warn("checkpoint", "older ones stay: %s", fault ? fault->text : "");
    return ZT_OK;
}

/* A run that had no step left saves where it is, in its own folder and layout. */
zt_err zt_checkpoint_without_steps(struct zt_engine *e, struct zt_fault *fault)
{
    zt_err refused = ZT_OK, rc;

    if (e->first_step < e->total_steps || strcmp(e->run->save_strategy, "no") == 0)
        return ZT_OK;
    rc = save_step(e, e->first_step, &refused, fault);
    return rc ? rc : refused;
}

/* ---- by request ---- */

static zt_err answer_checkpoint(struct zt_engine *e, int64_t step,
                                struct zt_control_requests *requests,
                                struct zt_fault *fault)
{
    zt_err refused = ZT_OK, rc = ZT_OK;
    struct zt_fault why = {0};
    char text[PATH_MAX + 64];

    if (e->saved_step != step)
        rc = save_step(e, step, &refused, &why);
    if (rc)
        return zt_fault_set(fault, rc, "%s", why.text);
    snprintf(text, sizeof(text), "training after step %lld is in %s/checkpoint-%lld",
             (long long)step, e->run->output_dir, (long long)step);
    zt_control_requests_saved(requests, !refused, refused ? why.text : text);
    return ZT_OK;
}

/* A failure is the answer, and the run goes on; one of the ranks' links shows again in the
 * next step. */
static void answer_weights(struct zt_engine *e, int64_t step,
                           struct zt_control_requests *requests)
{
    char dir[PATH_MAX], text[PATH_MAX + 64];
    struct zt_fault why = {0};
    zt_err rc;

    if (requests->save.dir[0])
        snprintf(dir, sizeof(dir), "%s", requests->save.dir);
    else
        snprintf(dir, sizeof(dir), "%s/weights-%lld", e->run->output_dir,
                 (long long)step);
    rc = zt_engine_save(e, dir, &why);
    if (rc && zt_comm_rank(e->comm) == 0)
        (void)rmdir(dir); /* an empty folder must not pass for weights */
    snprintf(text, sizeof(text), "the weights after step %lld are in %s", (long long)step,
             dir);
    zt_control_requests_saved(requests, rc == ZT_OK, rc ? why.text : text);
}

/* ---- all of it ---- */

static zt_err stop(struct zt_engine *e, int64_t step, struct zt_fault *fault)
{
    zt_err refused = ZT_OK, rc = ZT_OK;
    struct zt_fault why = {0};

    if (e->saved_step != step)
        rc = save_step(e, step, &refused, &why);
    if (rc)
        return zt_fault_set(fault, rc, "%s", why.text);
    e->stop_code = refused ? EXIT_TERMINATED : EXIT_REQUEUE;
    if (e->run->rank == 0 && refused)
        zt_warn("checkpoint", "stopped after step %lld without one: %s", (long long)step,
                why.text);
    else if (e->run->rank == 0)
        zt_info("checkpoint",
                "stopped after step %lld, which is saved: --resume_from_checkpoint auto "
                "goes on",
                (long long)step);
    return ZT_OK;
}

zt_err zt_checkpoint_after_step(struct zt_engine *e, int64_t step,
                                struct zt_step_wishes wishes,
                                struct zt_control_requests *requests,
                                struct zt_fault *fault)
{
    zt_err refused = ZT_OK, rc = ZT_OK;
    struct zt_fault why = {0};

    if (wishes.stop && step < e->total_steps)
        return stop(e, step, fault);
    if (is_due(e, step))
        rc = save_step(e, step, &refused, &why);
    if (rc)
        return zt_fault_set(fault, rc, "%s", why.text);
    if (refused && e->run->rank == 0)
        zt_warn("checkpoint", "that of step %lld is not saved: %s", (long long)step,
                why.text);
    if (!wishes.save)
        return ZT_OK;
    if (zt_control_requests_wants_weights(requests)) {
        answer_weights(e, step, requests);
        return ZT_OK;
    }
    return answer_checkpoint(e, step, requests, fault);
}
