/*
 * signals.c -- SIGTERM and SIGUSR1 to a run that saves: a wish for the next step boundary.
 *
 * A rank alone cannot save, so the handler only notes it; with the next sums of a step all
 * ranks know. A second limit is the grace: when it is over the process ends as the signal
 * would have ended it.
 *
 * SIGUSR1 and SIGUSR2 end no rank, whenever they come: they are blocked from its first
 * instruction (by the daemon, and by the rank itself where it has none) until training
 * begins, so that one which came early counts then. What they ask for is said by zlaunch,
 * which passes them on; by rank 0 where mpirun or nobody does.
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
static volatile sig_atomic_t got_usr2;
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

static void on_usr2(int sig)
{
    (void)sig;
    got_usr2 = 1;
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
    int64_t newest = -1;

    if (is_saving(e->run)) {
        grace_s = e->run->save_grace < 0 ? slurm_grace() : (int)e->run->save_grace;
        if (e->run->rank == 0)
            newest = zt_ckpt_newest(e->run->output_dir);
        if (e->run->local_rank == 0) /* each node may have a zlaunch of its own */
            zt_event_saves(e->run->save_grace, e->run->rank ? NULL : &newest);
        handle(SIGALRM, on_grace_over);
        sigaction(SIGTERM, NULL, &before);
        handle(SIGTERM, on_stop);
    }
    handle(SIGUSR1, is_saving(e->run) ? on_stop : on_no_use);
    handle(SIGUSR2, on_usr2);
    block(SIG_UNBLOCK, SIGUSR1);
    block(SIG_UNBLOCK, SIGUSR2);
}

/*
 * A signal that came too late for a step does what it does elsewhere. Of a run that was stopped and has
 * saved, every rank says so by its exit code: srun ends the others when the first of them has, and
 * one that died of it would make the job one that has failed.
 */
void zt_checkpoint_unwatch_signals(const struct zt_engine *e)
{
    int late = e->stop_code ? 0 : signalled;

    block(SIG_BLOCK, SIGUSR1);
    block(SIG_BLOCK, SIGUSR2);
    if (!is_saving(e->run))
        return;
    alarm(0);
    if (e->stop_code)
        handle(SIGTERM, SIG_IGN);
    else
        sigaction(SIGTERM, &before, NULL);
    if (late == SIGTERM)
        raise(SIGTERM);
}

static void tell_once(const struct zt_engine *e, bool *told, const char *text)
{
    if (!*told && e->run->rank == 0)
        zt_info("checkpoint", "%s", text);
    *told = true;
}

bool zt_checkpoint_was_signalled(const struct zt_engine *e)
{
    static bool told, told_usr2;

    if (got_usr2)
        tell_once(e, &told_usr2, "SIGUSR2 means nothing to a plugin: it goes on");
    if (!signalled)
        return false;
    if (!is_saving(e->run)) {
        tell_once(e, &told,
                  "SIGUSR1 asks for a checkpoint, but this run saves none "
                  "(--save_steps): it goes on");
        return false;
    }
    if (signalled == SIGUSR1 && !getenv("ZLAUNCH_CONTROL_FD"))
        tell_once(e, &told,
                  "SIGUSR1 asks for a checkpoint after the step at hand, and the end");
    return true;
}

bool zt_checkpoint_is_terminated(const struct zt_engine *e)
{
    return is_saving(e->run) && signalled == SIGTERM;
}

const char *zt_checkpoint_signal_name(void)
{
    if (signalled == SIGTERM && getenv("ZLAUNCH_CONTROL_FD"))
        return ""; /* zlaunch has stopped the ranks, and says why */
    return signalled == SIGUSR1 ? "SIGUSR1" : signalled == SIGTERM ? "SIGTERM" : "";
}
