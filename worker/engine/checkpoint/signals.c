/*
 * signals.c -- SIGTERM and SIGUSR1 to a run that saves: a wish for the next step boundary.
 *
 * A rank alone cannot save, so the handler only notes it; with the next sums of a step all
 * ranks know. A second limit is the grace: when it is over the process ends as the signal
 * would have ended it.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/message/event.h"
#include "worker/engine/checkpoint/internal.h"

#define GRACE_S         30
#define EXIT_TERMINATED 143

static volatile sig_atomic_t signalled;
static volatile sig_atomic_t grace_s = GRACE_S;

static void on_stop(int sig)
{
    (void)sig;
    if (!signalled)
        alarm((unsigned)grace_s);
    signalled = 1;
}

static void on_grace_over(int sig)
{
    (void)sig;
    _exit(EXIT_TERMINATED);
}

static bool is_saving(const struct zt_run *run)
{
    return strcmp(run->save_strategy, "no") != 0;
}

/* What Slurm leaves of the job, less a moment to end. */
static int slurm_grace(void)
{
    const char *end = getenv("SLURM_JOB_END_TIME");
    long long left = end ? strtoll(end, NULL, 10) - (long long)time(NULL) - 2 : GRACE_S;

    return left < 1 ? 1 : left > 86400 ? 86400 : (int)left;
}

static void handle(int sig, void (*handler)(int))
{
    /* the stack is that of zt_signal_stack_open() */
    struct sigaction action = {.sa_handler = handler,
                               .sa_flags = SA_RESTART | SA_ONSTACK};

    sigemptyset(&action.sa_mask);
    sigaction(sig, &action, NULL);
}

void zt_checkpoint_watch_signals(const struct zt_engine *e)
{
    if (!is_saving(e->run))
        return;
    grace_s = e->run->save_grace < 0 ? slurm_grace() : (int)e->run->save_grace;
    if (e->run->rank == 0)
        zt_event_saves(e->run->save_grace);
    handle(SIGALRM, on_grace_over);
    handle(SIGTERM, on_stop);
    handle(SIGUSR1, on_stop);
}

/* A signal that came too late for a step does what it does elsewhere. */
void zt_checkpoint_unwatch_signals(const struct zt_engine *e)
{
    if (!is_saving(e->run))
        return;
    alarm(0);
    handle(SIGTERM, SIG_DFL);
    handle(SIGUSR1, SIG_DFL);
    if (signalled && !e->stop_code)
        raise(SIGTERM);
}

bool zt_checkpoint_was_signalled(void)
{
    return signalled;
}
