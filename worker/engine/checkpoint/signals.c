/*
 * signals.c -- SIGTERM and SIGUSR1 to a run that saves: a wish for the next step boundary.
 *
 * A rank alone cannot save, so the handler only notes it; with the next sums of a step all
 * ranks know. A second limit is the grace: when it is over the process ends as the signal
 * would have ended it.
 *
 * SIGUSR1 and SIGUSR2 end no rank, whenever they come: they are blocked from its first
 * instruction (by the daemon, and by the rank itself where it has none), SIGUSR1 until
 * training begins, so that one which came early counts then.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "common/message/event.h"
#include "worker/engine/checkpoint/private.h"

#define GRACE_S         30
#define EXIT_TERMINATED 143

static volatile sig_atomic_t signalled; /* the last signal; 0: none */
static volatile sig_atomic_t grace_s = GRACE_S;

static struct sigaction before; /* what SIGTERM did before training */

static void on_stop(int sig)
{
    if (!signalled)
        alarm((unsigned)grace_s);
    signalled = sig;
}

static void on_no_use(int sig)
{
    signalled = sig;
}

static void on_grace_over(int sig)
{
    (void)sig;
    zt_output_dir_leave();
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

static void block(int how, int sig)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, sig);
    pthread_sigmask(how, &set, NULL);
}

void zt_checkpoint_watch_signals(const struct zt_engine *e)
{
    if (is_saving(e->run)) {
        grace_s = e->run->save_grace < 0 ? slurm_grace() : (int)e->run->save_grace;
        if (e->run->rank == 0)
            zt_event_saves(e->run->save_grace);
        handle(SIGALRM, on_grace_over);
        sigaction(SIGTERM, NULL, &before);
        handle(SIGTERM, on_stop);
    }
    handle(SIGUSR1, is_saving(e->run) ? on_stop : on_no_use);
    block(SIG_UNBLOCK, SIGUSR1);
}

/* A signal that came too late for a step does what it does elsewhere. */
void zt_checkpoint_unwatch_signals(const struct zt_engine *e)
{
    int late = e->stop_code ? 0 : signalled;

    block(SIG_BLOCK, SIGUSR1);
    if (!is_saving(e->run))
        return;
    alarm(0);
    sigaction(SIGTERM, &before, NULL);
    if (late == SIGTERM)
        raise(SIGTERM);
}

/* What a run that saves nothing says to the first SIGUSR1. */
static void tell_no_use(const struct zt_engine *e)
{
    static bool told;

    if (!told && e->run->rank == 0)
        zt_info("checkpoint", "SIGUSR1 asks for a checkpoint, but this run saves none "
                              "(--save_steps): it goes on");
    told = true;
}

bool zt_checkpoint_was_signalled(const struct zt_engine *e)
{
    if (!signalled || is_saving(e->run))
        return signalled != 0;
    tell_no_use(e);
    return false;
}

const char *zt_checkpoint_signal_name(void)
{
    return signalled == SIGUSR1 ? "SIGUSR1" : signalled == SIGTERM ? "SIGTERM" : "";
}
