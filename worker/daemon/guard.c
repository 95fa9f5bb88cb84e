#include "worker/daemon/guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/proc.h"
#include "common/process/shm_files.h"

#define SWEEP_US  2000
#define MAX_SWEEP 2500 /* 5 s: what cannot be killed is not waited for any longer */

/* The channel is the daemon's alone: it must close when the daemon ends. */
static void close_channel(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (int fd = 0; null >= 0 && fd <= 2; fd++)
        dup2(null, fd);
}

/* Until the daemon ends; signals to the guard are forwarded to it. */
static int wait_for(pid_t daemon, const sigset_t *set)
{
    for (;;) {
        int status, sig = sigwaitinfo(set, NULL);
        pid_t pid;

        if (sig > 0 && sig != SIGCHLD)
            kill(daemon, sig);
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
            if (pid == daemon)
                return status;
    }
}

static void sweep(void)
{
    for (int i = 0; i < MAX_SWEEP && zt_proc_signal_descendants(SIGKILL) > 0; i++) {
        usleep(SWEEP_US);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    }
    zt_shm_files_remove_unused();
}

bool zt_guard_fork(int *exit_code)
{
    static const int forwarded[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP};
    pid_t self = getpid(), daemon;
    sigset_t set, before;
    int status;

    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(forwarded) / sizeof(*forwarded); i++)
        sigaddset(&set, forwarded[i]);
    sigprocmask(SIG_BLOCK, &set, &before);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    daemon = fork();
    if (daemon <= 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        if (daemon == 0)
            prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (daemon == 0 && getppid() != self)
            _exit(1);
        return true;
    }
    close_channel();
    prctl(PR_SET_NAME, "zworker-guard");
    status = wait_for(daemon, &set);
    sweep();
    if (WIFSIGNALED(status)) {
        signal(WTERMSIG(status), SIG_DFL);
        sigprocmask(SIG_SETMASK, &before, NULL);
        raise(WTERMSIG(status));
    }
    *exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return false;
}
