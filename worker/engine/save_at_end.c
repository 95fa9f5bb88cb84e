/*
 * save_at_end.c -- the weights of a finished run, when the folder that they were meant for
 * does not take them: a disk that others have filled must not cost a training.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/log.h"
#include "common/message/event.h"
#include "worker/engine/engine.h"

#define WAIT_S 600

/* The next request for another folder; others are answered. */
static bool take_folder(struct zt_control_request *out)
{
    struct zt_control_request r;

    while (zt_event_next_request(&r)) {
        if (strcmp(r.name, "save weights") == 0 && r.dir[0]) {
            *out = r;
            return true;
        }
        zt_event_answer(&r, 1,
                        "the training is over and its weights are not saved yet: save "
                        "weights DIR");
    }
    return false;
}

static void tell(const struct zt_engine *e, const struct zt_fault *why)
{
    const char *job = getenv("ZLAUNCH_JOB_ID");

    if (e->run->rank == 0)
        zt_warn("weights",
                "they are not saved: %s; they are kept for %d s: zlaunch --ctl %s save "
                "weights DIR writes them elsewhere",
                why->text, WAIT_S, job ? job : "JOB");
}

static void pause_a_moment(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 200 * 1000 * 1000}, NULL);
}

/* One folder that every rank was told of. *saved: it has taken the weights. */
static zt_err try_folder(struct zt_engine *e, const struct zt_control_request *r,
                         bool *saved, struct zt_fault *fault)
{
    struct zt_fault why = {ZT_OK, ""};
    char text[PATH_MAX + 64];
    zt_err rc = zt_engine_check_weights_dir(e, r->dir, &why);

    *saved = false;
    if (rc == ZT_E_CANTCREATE) {
        zt_event_answer(r, zt_err_exit_code(rc), why.text);
        return ZT_OK;
    }
    if (!rc)
        rc = zt_engine_save(e, r->dir, &why);
    *saved = rc == ZT_OK;
    snprintf(text, sizeof(text), "the weights are in %s", r->dir);
    zt_event_answer(r, zt_err_exit_code(rc), rc ? why.text : text);
    if (rc && !e->save_refused) { /* not the folder: the ranks have lost each other */
        *fault = why;
        return rc;
    }
    return ZT_OK;
}

static zt_err wait_for_folder(struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_fault first = *fault;
    zt_err first_rc = first.code;
    double end = zt_now() + WAIT_S;
    struct zt_control_request r;
    bool have = false, saved = false;

    tell(e, fault);
    zt_event_phase("waiting for a folder to save the weights to");
    while (!saved) {
        double v[2];
        zt_err rc;

        have = have || take_folder(&r);
        v[0] = have;
        v[1] = e->run->rank == 0 && zt_now() > end;
        rc = zt_sum_f64(e->comm, v, 2, fault);
        if (rc)
            return rc;
        if (v[1] > 0) {
            *fault = first;
            return first_rc;
        }
        if (v[0] < e->run->world) {
            pause_a_moment();
            continue;
        }
        rc = try_folder(e, &r, &saved, fault);
        if (rc)
            return rc;
        have = false;
    }
    *fault = (struct zt_fault){ZT_OK, ""};
    return ZT_OK;
}

/* Only zlaunch can pass a request on: to every rank alike. */
static bool can_be_asked(void)
{
    return getenv("ZLAUNCH_CONTROL_FD") && getenv("ZLAUNCH_JOB_ID");
}

/* The folder of the run; where another program has put a model there meanwhile, one in it, which
 * zt_engine_check_saved() tells of. Collective. */
static zt_err choose_folder(struct zt_engine *e, char dir[PATH_MAX],
                            struct zt_fault *fault)
{
    struct zt_fault why = {ZT_OK, ""};
    zt_err rc = zt_engine_check_weights_dir(e, e->run->output_dir, &why);

    snprintf(dir, PATH_MAX, "%s", e->run->output_dir);
    if (rc && rc != ZT_E_CANTCREATE)
        *fault = why;
    if (rc != ZT_E_CANTCREATE)
        return rc;
    snprintf(dir, PATH_MAX, "%s/weights-%lld", e->run->output_dir,
             (long long)e->total_steps);
    zt_fault_set(&e->saved_elsewhere, ZT_E_CANTCREATE,
                 "--output_dir: a model came to %s during the run from elsewhere, and is "
                 "not replaced: the weights of this run are in %s",
                 e->run->output_dir, dir);
    return ZT_OK;
}

zt_err zt_engine_save_at_end(struct zt_engine *e, struct zt_fault *fault)
{
    char dir[PATH_MAX];
    zt_err rc = choose_folder(e, dir, fault);

    if (rc)
        return rc;
    rc = zt_engine_save(e, dir, fault);
    if (!rc || !e->save_refused || !can_be_asked())
        return rc;
    fault->code = rc;
    return wait_for_folder(e, fault);
}

zt_err zt_engine_check_saved(const struct zt_engine *e, struct zt_fault *fault)
{
    char newest[PATH_MAX + 64] = "there is no other";

    if (e->saved_elsewhere.code) {
        *fault = e->saved_elsewhere;
        return fault->code;
    }
    if (e->stop_code)
        return ZT_OK;
    if (!e->unsaved_step && e->unsaved_own_step)
        return zt_fault_set(
            fault, ZT_E_CANTCREATE,
            "checkpoint: training has ended, but the last one that the plugin asked for, "
            "after step %lld, is not saved (%s)",
            (long long)e->unsaved_own_step, e->unsaved_own_why.text);
    if (!e->unsaved_step)
        return ZT_OK;
    if (e->saved_step)
        snprintf(newest, sizeof(newest), "the newest is that of step %lld",
                 (long long)e->saved_step);
    return zt_fault_set(
        fault, ZT_E_CANTCREATE,
        "checkpoint: training has ended, but the last checkpoint, of step "
        "%lld, is not saved (%s); %s",
        (long long)e->unsaved_step, e->unsaved_why.text, newest);
}
