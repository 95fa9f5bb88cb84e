/* when.c -- when a checkpoint is saved: by steps, epochs, evaluations, requests, signals. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/message/event.h"
#include "worker/engine/checkpoint/private.h"
#include "worker/engine/data.h"

/* ---- by itself ---- */

bool zt_checkpoint_is_due(const struct zt_engine *e, int64_t step)
{
    const struct zt_run *run = e->run;
    const char *strategy = run->save_strategy;

    if (strcmp(strategy, "no") == 0 || strcmp(strategy, "best") == 0)
        return strcmp(strategy, "best") == 0;
    if (step == e->total_steps)
        return true;
    if (strcmp(strategy, "epoch") == 0)
        return zt_engine_epoch_ends(e, step);
    return run->save_steps > 0 && step % run->save_steps == 0;
}

static void warn_refused(struct zt_engine *e, int64_t step, const struct zt_fault *why)
{
    if (e->unsaved_step == step)
        e->unsaved_why = *why;
    if (e->unsaved_own_step == step)
        e->unsaved_own_why = *why;
    if (e->run->rank == 0)
        zt_warn("checkpoint", "that of step %lld is not saved: %s", (long long)step,
                why->text);
}

/* The save that is pending, to its end or (`once`) its next part. A disk that does not
 * take it is a warning. */
static zt_err settle(struct zt_engine *e, bool once, struct zt_fault *fault)
{
    zt_err refused = ZT_OK, rc;
    int64_t step = zt_checkpoint_pending(e);
    struct zt_fault why = {0};

    rc = once ? zt_checkpoint_advance(e, &refused, &why)
              : zt_checkpoint_finish(e, &refused, &why);
    if (rc)
        return zt_fault_set(fault, rc, "%s", why.text);
    if (refused)
        warn_refused(e, step, &why);
    return ZT_OK;
}

/* Saved when it returns, unless it was before. */
static zt_err save_step(struct zt_engine *e, int64_t step, zt_err *refused,
                        struct zt_fault *fault)
{
    struct zt_ckpt_place place = {.root = ""};
    zt_err rc = settle(e, false, fault);

    *refused = ZT_OK;
    if (rc || e->saved_step == step)
        return rc;
    zt_ckpt_place_of_step(&place, e->run->output_dir, step);
    return zt_checkpoint_save(e, &place, step, refused, fault);
}

/* Once: a step that waits for the disk. */
static void tell_slow_disk(const struct zt_engine *e, int64_t step)
{
    static bool told;

    if (told || !zt_checkpoint_pending(e) || e->run->rank != 0)
        return;
    told = true;
    zt_info("checkpoint",
            "step %lld is to be saved while that of step %lld is still being written: "
            "training waits for the disk",
            (long long)step, (long long)zt_checkpoint_pending(e));
}

/* Written while training goes on; --save_memory 0: before it does. */
static zt_err begin_at(struct zt_engine *e, const struct zt_ckpt_place *place,
                       int64_t step, struct zt_fault *fault)
{
    zt_err refused = ZT_OK, rc;
    struct zt_fault why = {0};

    tell_slow_disk(e, step);
    rc = settle(e, false, fault);
    if (rc)
        return rc;
    rc = zt_checkpoint_begin(e, place, step, &refused, &why);
    if (rc)
        return zt_fault_set(fault, rc, "%s", why.text);
    if (refused)
        warn_refused(e, step, &why);
    return e->run->save_memory_bytes ? ZT_OK : settle(e, false, fault);
}

static zt_err begin_step(struct zt_engine *e, int64_t step, struct zt_fault *fault)
{
    struct zt_ckpt_place place = {.root = ""};

    zt_ckpt_place_of_step(&place, e->run->output_dir, step);
    return begin_at(e, &place, step, fault);
}

/* What the plugin's hook has asked for after this step. */
static zt_err begin_requests(struct zt_engine *e, int64_t step, struct zt_fault *fault)
{
    struct zt_ckpt_place place;
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < e->saves.num; i++) {
        rc = zt_ckpt_agree_on_request(e, i, step, &place, fault);
        if (!rc)
            rc = begin_at(e, &place, step, fault);
    }
    e->saves.num = 0;
    return rc;
}

zt_err zt_checkpoint_after_steps(struct zt_engine *e, struct zt_fault *fault)
{
    return settle(e, false, fault);
}

/* A run that had no step left saves where it is, in its own folder and layout, unless it
 * comes from there. */
zt_err zt_checkpoint_without_steps(struct zt_engine *e, struct zt_fault *fault)
{
    zt_err refused = ZT_OK, rc;

    if (e->first_step > e->total_steps && e->run->rank == 0)
        zt_warn(
            "checkpoint",
            "step %lld is past the %lld steps that were asked for: nothing is trained, "
            "and what is saved are the weights of step %lld; to have others, resume "
            "from an older checkpoint",
            (long long)e->first_step, (long long)e->total_steps,
            (long long)e->first_step);
    else if (e->first_step > 0 && e->first_step == e->total_steps && e->run->rank == 0)
        zt_info("checkpoint", "all %lld steps are made already: a larger %s goes on",
                (long long)e->total_steps,
                e->run->max_steps > 0 ? "--max_steps"
                                      : "--max_steps or --num_train_epochs");
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
    zt_err refused = ZT_OK, rc;
    struct zt_fault why = {0};
    char text[PATH_MAX + 64];

    rc = save_step(e, step, &refused, &why);
    if (rc)
        return zt_fault_set(fault, rc, "%s", why.text);
    snprintf(text, sizeof(text), "training after step %lld is in %s/checkpoint-%lld",
             (long long)step, e->run->output_dir, (long long)step);
    zt_control_requests_saved(requests, zt_err_exit_code(refused),
                              refused ? why.text : text);
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
    rc = requests->save.dir[0] ? zt_engine_check_weights_dir(e, dir, &why) : ZT_OK;
    if (rc) {
        zt_control_requests_saved(requests, zt_err_exit_code(rc), why.text);
        return;
    }
    rc = zt_engine_save(e, dir, &why);
    if (rc && zt_comm_rank(e->comm) == 0)
        (void)rmdir(dir); /* an empty folder must not pass for weights */
    snprintf(text, sizeof(text), "the weights after step %lld are in %s", (long long)step,
             dir);
    zt_control_requests_saved(requests, zt_err_exit_code(rc), rc ? why.text : text);
}

static zt_err answer_save(struct zt_engine *e, int64_t step,
                          struct zt_control_requests *requests, struct zt_fault *fault)
{
    if (!zt_control_requests_wants_weights(requests))
        return answer_checkpoint(e, step, requests, fault);
    answer_weights(e, step, requests);
    return ZT_OK;
}

/* A run that is stopped saves a checkpoint, if it can, and nothing more. */
static void answer_stopped(const struct zt_engine *e,
                           struct zt_control_requests *requests)
{
    bool saved = e->stop_code == ZT_EXIT_REQUEUE;
    bool weights = zt_control_requests_wants_weights(requests);
    char text[PATH_MAX + 128];

    if (saved)
        snprintf(text, sizeof(text),
                 "%straining after step %lld is in %s/checkpoint-%lld",
                 weights ? "the run was stopped, and saves no weights besides: " : "",
                 (long long)e->saved_step, e->run->output_dir, (long long)e->saved_step);
    else
        snprintf(text, sizeof(text), "the run was stopped, and saves nothing: %s",
                 e->unsaved_why.text);
    zt_control_requests_saved(requests, saved && !weights ? 0 : 1, text);
}

/* ---- all of it ---- */

static zt_err stop(struct zt_engine *e, int64_t step, struct zt_fault *fault)
{
    const char *by = zt_checkpoint_signal_name();
    zt_err refused = ZT_OK, rc;
    struct zt_fault why = {0};
    char name[32] =
        "auto"; /* unless that of a later step, of another run, lies beside it */

    rc = save_step(e, step, &refused, &why);
    if (rc)
        return zt_fault_set(fault, rc, "%s", why.text);
    e->stop_code = refused ? ZT_EXIT_TERMINATED : ZT_EXIT_REQUEUE;
    if (e->run->rank == 0 && refused)
        zt_warn("checkpoint", "stopped after step %lld without one: %s", (long long)step,
                why.text);
    else if (e->run->rank == 0) {
        if (zt_ckpt_newest(e->run->output_dir) > step)
            snprintf(name, sizeof(name), "checkpoint-%lld", (long long)step);
        zt_info("checkpoint",
                "stopped%s%s after step %lld, which is saved: --resume_from_checkpoint "
                "%s goes on",
                *by ? " by " : "", by, (long long)step, name);
    }
    return ZT_OK;
}

zt_err zt_checkpoint_after_step(struct zt_engine *e, int64_t step,
                                struct zt_step_wishes wishes,
                                struct zt_control_requests *requests,
                                struct zt_fault *fault)
{
    /* an evaluation may have waited for it since */
    zt_err rc =
        wishes.written && zt_checkpoint_pending(e) ? settle(e, true, fault) : ZT_OK;

    if (!rc && e->saves.num)
        rc = begin_requests(e, step, fault);
    if (!rc && wishes.stop && step < e->total_steps)
        return stop(e, step, fault);
    if (!rc && zt_checkpoint_is_due(e, step) &&
        (strcmp(e->run->save_strategy, "best") != 0 || e->best.step == step))
        rc = begin_step(e, step, fault);
    if (rc)
        return rc;
    return wishes.save ? answer_save(e, step, requests, fault) : ZT_OK;
}

zt_err zt_checkpoint_after_last_step(struct zt_engine *e,
                                     struct zt_control_requests *requests,
                                     struct zt_fault *fault)
{
    double sums[2] = {requests->wants_save ? 1 : 0,
                      zt_checkpoint_is_terminated(e) ? 1 : 0};
    int64_t step = e->steps_taken + e->skipped;
    zt_err rc = e->stop_code ? ZT_OK : zt_sum_f64(e->comm, sums, 2, fault);

    if (!rc && !e->stop_code && sums[0] >= zt_comm_world(e->comm))
        rc = answer_save(e, step, requests, fault);
    if (!rc && !e->stop_code && sums[1] > 0)
        rc = stop(e, step, fault);
    if (!rc && e->stop_code && requests->wants_save)
        answer_stopped(e, requests);
    return rc ? rc : settle(e, false, fault);
}
