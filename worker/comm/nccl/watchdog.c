/*
 * watchdog.c -- the thread that aborts what hangs on a device, and the waits that are
 * left to the host: until NCCL has queued a call.
 *
 * A collective whose peer is gone runs on the device for ever, and whoever waits for that
 * stream waits for ever. So a thread checks every LOOK_NS: has the host's communicator
 * failed, has NCCL noticed something, does a collective take too long? Then the family is
 * broken, NCCL is told to abort all communicators at once (one after the other they can
 * wait for each other through the device), which makes their kernels leave, and the
 * others are aborted through `host`.
 *
 * Aborting frees what a call in progress on another thread uses, so it waits for `calls`;
 * but not for long: a call can be stuck because the device takes no more work, and it is
 * the abort that frees it.
 */
#include "worker/comm/nccl/engine.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/trace/trace.h"

#define LOOK_NS    100000000
#define PATIENCE_S 1.0 /* with a call in progress */
#define BLAME_S    1.0 /* from an error of NCCL until the dead rank is known */
#define YIELDS     64

static void sleep_s(double seconds)
{
    struct timespec t = {0, (long)(seconds * 1e9)};

    nanosleep(&t, NULL);
}

/* ---------------------------------------------------------------- the end */
bool zt_nccl_is_broken(struct zt_nccl_family *f, struct zt_fault *fault)
{
    bool broken;

    pthread_mutex_lock(&f->lock);
    broken = f->broken;
    if (broken && fault)
        *fault = f->why;
    pthread_mutex_unlock(&f->lock);
    return broken;
}

zt_err zt_nccl_break(struct zt_nccl_family *f, struct zt_fault *fault)
{
    zt_err rc;

    pthread_mutex_lock(&f->lock);
    if (!f->broken) {
        f->broken = true;
        f->why = *fault;
    }
    *fault = f->why;
    rc = f->why.code;
    pthread_mutex_unlock(&f->lock);
    sem_post(&f->wake);
    return rc;
}

zt_err zt_nccl_error(struct zt_nccl_family *f, struct zt_nccl_comm *c, const char *doing,
                     int error, struct zt_fault *fault)
{
    double until = zt_nccl_now_s() + BLAME_S;
    char text[512];

    f->nccl->error_text(c, error, text, sizeof(text));
    while (!zt_comm_failed(f->host, fault) && zt_nccl_now_s() < until)
        sleep_s(0.01);
    if (!zt_comm_failed(f->host, fault))
        zt_fault_set(fault, ZT_E_PEER, "comm: %s on rank %d: %s: %s", doing,
                     zt_comm_rank(f->host), f->nccl->name, text);
    return zt_nccl_break(f, fault);
}

/* ---------------------------------------------------------------- calls into NCCL */
zt_err zt_nccl_begin(struct zt_nccl_family *f, struct zt_fault *fault)
{
    pthread_mutex_lock(&f->calls);
    if (!zt_nccl_is_broken(f, fault))
        return ZT_OK;
    pthread_mutex_unlock(&f->calls);
    return fault->code;
}

/* What ends a wait, but its success. */
static zt_err check_wait(struct zt_nccl_family *f, const char *doing, double deadline,
                         struct zt_fault *fault)
{
    if (zt_nccl_is_broken(f, fault))
        return fault->code;
    if (zt_comm_failed(f->host, fault))
        return zt_nccl_break(f, fault);
    if (zt_nccl_now_s() < deadline)
        return ZT_OK;
    zt_fault_set(fault, ZT_E_PEER,
                 "comm: %s on rank %d: %s did not reach the other ranks within %g s (do "
                 "they hang? can their hosts reach each other? NCCL_DEBUG=INFO tells "
                 "more)",
                 doing, zt_comm_rank(f->host), f->nccl->name, f->timeout_s);
    return zt_nccl_break(f, fault);
}

static void back_off(unsigned turn)
{
    if (turn < YIELDS)
        sched_yield();
    else
        sleep_s(turn < 4 * YIELDS ? 50e-6 : 1e-3);
}

zt_err zt_nccl_end(struct zt_nccl_group *s, const char *doing, int error,
                   struct zt_fault *fault)
{
    struct zt_nccl_family *f = s->family;
    double deadline = zt_nccl_now_s() + f->timeout_s;
    bool busy = true;
    zt_err rc = ZT_OK;

    for (unsigned turn = 0; !rc; turn++) {
        if (!error && !zt_nccl_is_broken(f, NULL))
            error = f->nccl->state(s->comm, &busy);
        pthread_mutex_unlock(&f->calls); /* the watch may want it */
        if (error)
            return zt_nccl_error(f, NULL, doing, error, fault);
        if (!busy)
            return ZT_OK;
        rc = check_wait(f, doing, deadline, fault);
        if (!rc) {
            back_off(turn);
            rc = zt_nccl_begin(f, fault);
        }
    }
    return rc;
}

zt_err zt_nccl_settle(struct zt_nccl_family *f, struct zt_nccl_comm *c, const char *doing,
                      struct zt_fault *fault)
{
    double deadline = zt_nccl_now_s() + f->timeout_s;
    bool busy = true;
    zt_err rc = ZT_OK;

    for (unsigned turn = 0; !rc && busy; turn++) {
        int error = f->nccl->state(c, &busy);

        if (error)
            rc = zt_nccl_error(f, c, doing, error, fault);
        else if (busy)
            rc = check_wait(f, doing, deadline, fault);
        if (!rc && busy)
            back_off(turn);
    }
    if (rc)
        f->nccl->abort(&c, 1);
    return rc;
}

/* ---------------------------------------------------------------- the watch */
/* The oldest call that the device has not completed, and since when it is the oldest;
 * false: it has completed all. */
static bool oldest_queued(struct zt_nccl_family *f, struct zt_comm_call *call,
                          double *since, zt_err *rc, struct zt_fault *fault)
{
    bool waits = false;

    *rc = ZT_OK;
    pthread_mutex_lock(&f->lock);
    while (!*rc && !waits && f->passed < f->queued) {
        const struct zt_nccl_slot *s = &f->slot[(f->passed + 1) % ZT_NCCL_RING];
        bool passed = true;

        if (s->number > f->passed) /* else it was not for the device */
            *rc = f->be->event_passed(f->dev, s->event, &passed, fault);
        waits = !passed;
        if (waits) {
            *call = s->call;
            *since = s->queued_s > f->passed_s ? s->queued_s : f->passed_s;
        } else {
            f->passed++;
            f->passed_s = zt_nccl_now_s();
        }
    }
    pthread_mutex_unlock(&f->lock);
    return waits;
}

static zt_err check_age(struct zt_nccl_family *f, struct zt_fault *fault)
{
    struct zt_comm_call call;
    double since = 0;
    char text[128];
    zt_err rc;

    if (!oldest_queued(f, &call, &since, &rc, fault) ||
        zt_nccl_now_s() - since < f->timeout_s)
        return rc;
    zt_comm_call_text(&call, text, sizeof(text));
    return zt_fault_set(fault, ZT_E_PEER,
                        "comm: %s (call %llu on the device) on rank %d did not end "
                        "within %g s: another rank hangs, or asked for something else",
                        text, (unsigned long long)call.number, zt_comm_rank(f->host),
                        f->timeout_s);
}

/* What NCCL noticed by itself, between calls. */
static zt_err check_nccl(struct zt_nccl_family *f, struct zt_fault *fault)
{
    int error = 0;
    bool busy;

    if (pthread_mutex_trylock(&f->calls))
        return ZT_OK; /* whoever is in a call sees it there */
    for (const struct zt_nccl_group *s = f->groups; s && !error; s = s->next)
        if (s->comm)
            error = f->nccl->state(s->comm, &busy);
    pthread_mutex_unlock(&f->calls);
    return error ? zt_nccl_error(f, NULL, "a collective on the device", error, fault)
                 : ZT_OK;
}

static bool is_over(struct zt_nccl_family *f)
{
    struct zt_fault fault;
    zt_err rc = ZT_OK;

    if (zt_nccl_is_broken(f, NULL))
        return true;
    if (zt_comm_failed(f->host, &fault))
        rc = fault.code;
    if (!rc)
        rc = check_nccl(f, &fault);
    if (!rc)
        rc = check_age(f, &fault);
    if (rc)
        zt_nccl_break(f, &fault);
    return rc != ZT_OK;
}

/* Lock `calls` between two calls into NCCL; false: a call does not return. */
static bool lock_calls_or_give_up(struct zt_nccl_family *f)
{
    double until = zt_nccl_now_s() + PATIENCE_S;
    bool mine;

    while (!(mine = !pthread_mutex_trylock(&f->calls)) && zt_nccl_now_s() < until)
        sleep_s(0.001);
    return mine;
}

static void abort_all(struct zt_nccl_family *f)
{
    struct zt_nccl_comm **all;
    size_t num = 0;
    bool mine;

    if (!zt_comm_failed(f->host, NULL))
        zt_comm_abort(f->host, zt_comm_rank(f->host));
    mine = lock_calls_or_give_up(f);
    for (const struct zt_nccl_group *s = f->groups; s; s = s->next)
        num++;
    all = calloc(num + 1, sizeof(*all));
    num = 0;
    for (struct zt_nccl_group *s = f->groups; s; s = s->next) {
        if (s->comm && all)
            all[num++] = s->comm;
        s->comm = NULL;
    }
    if (num)
        f->nccl->abort(all, (int)num);
    free(all);
    if (mine)
        pthread_mutex_unlock(&f->calls);
}

/* Sleep until the next check is due, or somebody has posted `wake`. */
static void sleep_until_woken(struct zt_nccl_family *f)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += LOOK_NS;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    sem_clockwait(&f->wake, CLOCK_MONOTONIC, &t);
}

static void *watchdog(void *arg)
{
    struct zt_nccl_family *f = arg;

    zt_trace_thread("nccl watch");
    for (;;) {
        bool stop = atomic_load(&f->stop);

        if (is_over(f)) {
            abort_all(f);
            return NULL;
        }
        if (stop)
            return NULL;
        sleep_until_woken(f);
    }
}

zt_err zt_nccl_watchdog_start(struct zt_nccl_family *f, struct zt_fault *fault)
{
    sigset_t all, was;
    int e;

    sigfillset(&all); /* signals are the application's business */
    pthread_sigmask(SIG_SETMASK, &all, &was);
    e = pthread_create(&f->watchdog, NULL, watchdog, f);
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    if (e)
        return zt_fault_set(fault, ZT_E_SYSTEM, "comm: no thread to watch NCCL: %s",
                            strerror(e));
    f->watchdog_runs = true;
    return ZT_OK;
}

void zt_nccl_watchdog_stop(struct zt_nccl_family *f)
{
    if (!f->watchdog_runs)
        return;
    atomic_store(&f->stop, true);
    sem_post(&f->wake);
    pthread_join(f->watchdog, NULL);
    f->watchdog_runs = false;
}
