/*
 * One child, in a process group of its own. Signals are taken synchronously, so there is
 * no handler: a loop of sigtimedwait, where the time is that of the next thing to do.
 */
#include "launcher/mpirun/mpirun.h"

#include "common/log.h"
#include "common/proc.h"
#include "common/process/shm_files.h"
#include "launcher/start/program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_TIMEOUT 124
#define SWEEP_TRIES  200
#define SWEEP_US     5000

static zt_err write_hostfile(const struct zt_mpirun *m, struct zt_fault *fault)
{
    FILE *f;
    bool ok = true;

    if (!m->hostfile[0])
        return ZT_OK;
    f = fopen(m->hostfile, "wxe");
    for (int i = 0; f && ok && i < m->plan->num_nodes; i++)
        ok = fprintf(f, "%s\n", m->plan->nodes[i].host) > 0;
    if (!f || fclose(f) || !ok)
        return zt_fault_set(fault, ZT_E_CANTCREATE, "hostfile of mpirun %s: %s",
                            m->hostfile, strerror(errno));
    return ZT_OK;
}

static void become(const char *program, char **argv)
{
    int null = open("/dev/null", O_RDONLY);
    sigset_t none;

    setpgid(0, 0); /* out of the terminal's group, where reading would stop it */
    if (null >= 0)
        dup2(null, STDIN_FILENO);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv(program, argv);
    fprintf(stderr, "zlaunch: error: cannot run %s: %s\n", program, strerror(errno));
    fflush(stderr);
    _exit(126);
}

/* Wait for `pid`; signals of the user go to its group, a second one becomes SIGKILL. */
static int watch(pid_t pid, const sigset_t *set, const struct zt_job_plan *p)
{
    double end = p->timeout_s > 0 ? zt_now() + p->timeout_s : 0, kill_at = 0;
    int stops = 0, status, timed_out = 0;

    while (waitpid(pid, &status, WNOHANG) != pid) {
        struct timespec wait = {.tv_nsec = 100 * 1000 * 1000};
        int sig = sigtimedwait(set, NULL, &wait);

        if (end > 0 && zt_now() > end) {
            timed_out = 1;
            end = 0;
            sig = SIGTERM;
        }
        if (sig == SIGUSR1 || sig == SIGUSR2) {
            kill(-pid, sig);
        } else if (sig == SIGINT || sig == SIGTERM || sig == SIGHUP) {
            kill(-pid, stops++ ? SIGKILL : sig);
            kill_at = kill_at > 0 ? kill_at : zt_now() + p->grace_ms / 1000.0;
        }
        if (kill_at > 0 && zt_now() > kill_at)
            kill(-pid, SIGKILL);
    }
    return timed_out             ? EXIT_TIMEOUT
           : WIFSIGNALED(status) ? 128 + WTERMSIG(status)
                                 : WEXITSTATUS(status);
}

static void sweep(void)
{
    int status;

    for (int i = 0; i < SWEEP_TRIES && zt_proc_signal_descendants(SIGKILL); i++) {
        while (waitpid(-1, &status, WNOHANG) > 0)
            continue;
        usleep(SWEEP_US);
    }
    zt_shm_files_remove_unused();
}

static zt_err run(struct zt_mpirun *m, int *exit_code, struct zt_fault *fault)
{
    static const int sigs[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    char *program;
    sigset_t set;
    pid_t pid;
    zt_err rc = zt_find_program(m->argv[0], &program, fault);

    if (!rc)
        rc = write_hostfile(m, fault);
    if (rc)
        return rc;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(sigs) / sizeof(*sigs); i++)
        sigaddset(&set, sigs[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    fflush(stdout);
    pid = fork();
    if (pid == 0)
        become(program, m->argv);
    if (pid < 0) {
        rc = zt_fault_set(fault, ZT_E_SYSTEM, "cannot start %s: fork: %s", program,
                          strerror(errno));
    } else {
        setpgid(pid, pid);
        *exit_code = watch(pid, &set, m->plan);
        sweep();
    }
    free(program);
    if (m->hostfile[0])
        unlink(m->hostfile);
    return rc;
}

zt_err zt_mpirun_run(const struct zt_job_plan *plan, int *exit_code,
                     struct zt_fault *fault)
{
    struct zt_mpirun m;
    zt_err rc = zt_mpirun_init(&m, plan, fault);

    if (rc)
        return rc;
    rc = run(&m, exit_code, fault);
    zt_mpirun_release(&m);
    return rc;
}
