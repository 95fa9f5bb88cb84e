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
#define VERSION_S    5
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

static void become(const char *program, const struct zt_mpirun *m)
{
    int null = open("/dev/null", O_RDONLY);
    sigset_t none;

    for (char **e = m->plan->named; *e; e++)
        putenv(*e); /* for srun, which is told but the names of some */
    setpgid(0, 0);  /* out of the terminal's group, where reading would stop it */
    if (null >= 0)
        dup2(null, STDIN_FILENO);
    signal(SIGXFSZ, SIG_DFL); /* see zt_streams_open() */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv(program, m->argv);
    fprintf(stderr, "zlaunch: error: cannot run %s: %s\n", program, strerror(errno));
    fflush(stderr);
    _exit(126);
}

/* SIGUSR1 and SIGUSR2. Whether the run saves is known to its ranks alone: rank 0 says what
 * becomes of it. */
static void pass_on(pid_t pid, int sig, const struct zt_job_plan *p, struct zt_render *r)
{
    if (p->is_plugin && sig == SIGUSR2)
        zt_render_message(r, ZT_LOG_INFO,
                          "SIGUSR2 means nothing to a plugin: it goes on");
    else if (p->is_plugin)
        zt_render_message(r, ZT_LOG_INFO,
                          "SIGUSR1 asks for a checkpoint after the step at hand, and the "
                          "end; a run that saves none (--save_steps) goes on");
    if (!p->is_plugin || sig == SIGUSR1)
        kill(pid, sig); /* which passes it on; from its group ranks would get it twice */
}

/* The first one ends the ranks in order; Ctrl-C after it kills them, as without mpirun. */
static void stop(pid_t pid, int sig, bool again, struct zt_render *r)
{
    if (!again)
        zt_render_message(r, ZT_LOG_INFO, "%s: stopping the ranks%s",
                          sig == SIGINT ? "interrupted" : zt_signal_text(sig),
                          sig == SIGINT ? "; once more to kill them at once" : "");
    if (!again || sig == SIGINT)
        kill(-pid, again ? SIGKILL : sig);
}

/* The code of a job that `sig` has stopped, as without mpirun, which may end with any other. */
static int stopped(int sig, int code, struct zt_render *r)
{
    if (sig == SIGTERM && code == ZT_EXIT_REQUEUE) /* the ranks have told it */
        return code;
    if (sig == SIGINT)
        zt_render_message(r, ZT_LOG_ERROR, "interrupted");
    else
        zt_render_message(r, ZT_LOG_ERROR, "stopped by %s", zt_signal_text(sig));
    return 128 + sig;
}

/* Wait for `pid`; signals of the user go to its group. *stopped_by: the first that ends it, or
 * 0. */
static int watch(pid_t pid, const sigset_t *set, const struct zt_job_plan *p,
                 int *stopped_by, struct zt_render *r)
{
    double end = p->timeout_s > 0 ? zt_now() + p->timeout_s : 0, kill_at = 0;
    int stops = 0, status, timed_out = 0, code;

    *stopped_by = 0;

    while (waitpid(pid, &status, WNOHANG) != pid) {
        struct timespec wait = {.tv_nsec = 100 * 1000 * 1000};
        int sig = sigtimedwait(set, NULL, &wait);

        if (end > 0 && zt_now() > end) {
            zt_render_message(r, ZT_LOG_ERROR,
                              "stopped: the time given with --timeout is over");
            timed_out = 1;
            end = 0;
            kill(-pid, stops++ ? SIGKILL : SIGTERM);
            kill_at = kill_at > 0 ? kill_at : zt_now() + p->grace_ms / 1000.0;
        }
        if (sig == SIGUSR1 || sig == SIGUSR2) {
            pass_on(pid, sig, p, r);
        } else if (sig == SIGINT || sig == SIGTERM || sig == SIGHUP) {
            if (!stops && !timed_out)
                *stopped_by = sig;
            stop(pid, sig, stops++, r);
            kill_at = kill_at > 0 ? kill_at : zt_now() + p->grace_ms / 1000.0;
        }
        zt_render_drain(r);
        if (kill_at > 0 && zt_now() > kill_at)
            kill(-pid, SIGKILL);
    }
    code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return *stopped_by ? stopped(*stopped_by, code, r) : timed_out ? EXIT_TIMEOUT : code;
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

/* It ended with an error: was it started with the options of another MPI's? */
static zt_err explain(const struct zt_mpirun *m, char *program, struct zt_fault *fault)
{
    char *const argv[] = {program, (char *)"--version", NULL};
    size_t n;
    char *version = zt_program_output(argv, VERSION_S, &n);
    zt_err rc = version ? zt_mpirun_check_version(m->plan, version, fault) : ZT_OK;

    free(version);
    return rc;
}

static zt_err run(struct zt_mpirun *m, struct zt_render *r, int *exit_code,
                  struct zt_fault *fault)
{
    static const int sigs[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    char *program;
    sigset_t set;
    pid_t pid;
    int stopped_by = 0;
    zt_err rc = zt_find_program(m->argv[0], &program, fault);

    if (!rc)
        rc = write_hostfile(m, fault);
    if (rc)
        return rc;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(sigs) / sizeof(*sigs); i++)
        if (sigs[i] != SIGHUP || !zt_signal_is_ignored(SIGHUP))
            sigaddset(&set, sigs[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    fflush(stdout);
    pid = fork();
    if (pid == 0)
        become(program, m);
    if (pid < 0) {
        rc = zt_fault_set(fault, ZT_E_SYSTEM, "cannot start %s: fork: %s", program,
                          strerror(errno));
    } else {
        setpgid(pid, pid);
        *exit_code = watch(pid, &set, m->plan, &stopped_by, r);
        sweep();
        if (*exit_code && *exit_code != EXIT_TIMEOUT && !stopped_by)
            rc = explain(m, program, fault);
    }
    free(program);
    if (m->hostfile[0])
        unlink(m->hostfile);
    return rc;
}

/* The ranks print for themselves; this is the last event all the same. */
static void print_end(struct zt_render *r, const struct zt_job_plan *p, int exit_code)
{
    json_t *o = json_object();

    json_object_set_new(o, "event", json_string("end"));
    json_object_set_new(o, "exit_code", json_integer(exit_code));
    json_object_set_new(o, "ranks", json_integer(p->world));
    json_object_set_new(o, "job", json_string(p->job_id));
    zt_render_record(r, o);
    json_decref(o);
}

zt_err zt_mpirun_run(const struct zt_job_plan *plan,
                     const struct zt_render_config *screen, int *exit_code,
                     struct zt_fault *fault)
{
    struct zt_render *r;
    struct zt_mpirun m;
    zt_err rc = zt_mpirun_init(&m, plan, fault);

    if (rc)
        return rc;
    rc = zt_render_open(screen, &r, fault);
    if (!rc) {
        rc = run(&m, r, exit_code, fault);
        if (!rc)
            print_end(r, plan, *exit_code);
        zt_render_close(r);
    }
    zt_mpirun_release(&m);
    return rc;
}
