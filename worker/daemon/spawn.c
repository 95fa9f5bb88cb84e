#include "worker/daemon/spawn.h"
#include "worker/daemon/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;

/* ------------------------------------------------------------------ environment */

struct env_list {
    char **items; /* (num), then NULL; each allocated */
    size_t num, cap;
    bool failed;
};

static char **find(const struct env_list *e, const char *item, size_t name_bytes)
{
    for (size_t i = 0; i < e->num; i++)
        if (strncmp(e->items[i], item, name_bytes) == 0 && e->items[i][name_bytes] == '=')
            return &e->items[i];
    return NULL;
}

/* Takes `item`, an allocated "NAME=value"; a later one of the same name wins. */
static void env_take(struct env_list *e, char *item, bool check_old)
{
    char **old;

    if (!item) {
        e->failed = true;
        return;
    }
    old = check_old ? find(e, item, strcspn(item, "=")) : NULL;
    if (old) {
        free(*old);
        *old = item;
        return;
    }
    if (e->num + 1 >= e->cap) {
        size_t cap = e->cap ? 2 * e->cap : 128;
        char **grown = realloc(e->items, cap * sizeof(*grown));

        if (!grown) {
            free(item);
            e->failed = true;
            return;
        }
        e->items = grown;
        e->cap = cap;
    }
    e->items[e->num++] = item;
    e->items[e->num] = NULL;
}

static void env_set(struct env_list *e, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void env_set(struct env_list *e, const char *fmt, ...)
{
    char *item = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&item, fmt, ap) < 0)
        item = NULL;
    va_end(ap);
    env_take(e, item, true);
}

/* What the user set stays. */
static void env_default(struct env_list *e, const char *name, const char *value)
{
    if (!find(e, name, strlen(name)))
        env_set(e, "%s=%s", name, value);
}

static void env_release(struct env_list *e)
{
    for (size_t i = 0; i < e->num; i++)
        free(e->items[i]);
    free(e->items);
}

/* Does it say where this daemon stands in somebody else's job? Not so its ranks. */
static bool is_foreign_place(const char *item)
{
    static const char *const prefixes[] = {
        "ZLAUNCH_SHM_FD=",
        "ZLAUNCH_SECRET_FD=",
        "PMI_",
        "HYDI_",
        "ZLAUNCH_REPLICA_FD=",
        "MPI_LOCALRANKID=",
        "MPI_LOCALNRANKS=",
        "PMIX_RANK=",
        "PMIX_NAMESPACE=",
        "PMIX_SERVER_",
        "OMPI_COMM_WORLD_",
        "MV2_COMM_WORLD_",
        "PALS_RANKID=",
        "PALS_SIZE=",
        "PALS_LOCAL_",
        "TORCHELASTIC_USE_AGENT_STORE=", /* a store of torchrun's, for its ranks */
        "GROUP_WORLD_SIZE=",
        "ROLE_RANK=",
        "ROLE_WORLD_SIZE=",
    };

    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (strncmp(item, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static void build_env(struct env_list *e, const struct zt_spawn *s, int control_fd)
{
    const struct zt_job *job = s->job;
    char threads[16];

    for (char **v = environ; *v; v++)
        if (!is_foreign_place(*v))
            env_take(e, strdup(*v), false);
    for (char **v = job->env; *v; v++)
        env_take(e, strdup(*v), true);
    for (char **v = job->defaults; *v; v++)
        if (!find(e, *v, strcspn(*v, "=")))
            env_take(e, strdup(*v), false);
    env_set(e, "RANK=%d", job->first_rank + s->local_rank);
    env_set(e, "LOCAL_RANK=%d", s->local_rank);
    env_set(e, "WORLD_SIZE=%d", job->world);
    env_set(e, "LOCAL_WORLD_SIZE=%d", job->local_world);
    env_set(e, "GROUP_RANK=%d", job->node_rank);
    env_set(e, "NODE_RANK=%d", job->node_rank);
    env_set(e, "MASTER_ADDR=%s", job->master_addr);
    env_set(e, "MASTER_PORT=%d", job->master_port);
    env_set(e, "LOCAL_SIZE=%d", job->local_world);
    env_set(e, "CROSS_RANK=%d", job->node_rank);
    env_set(e, "CROSS_SIZE=%d", job->num_nodes);
    env_set(e, "ZLAUNCH_RESTART_COUNT=%d", job->restart);
    env_set(e, "TORCHELASTIC_RESTART_COUNT=%d", job->restart);
    env_set(e, "TORCHELASTIC_MAX_RESTARTS=%d", job->max_restarts);
    env_set(e, "TORCHELASTIC_RUN_ID=%s", job->id);
    env_set(e, "ZLAUNCH_JOB_ID=%s", job->id);
    env_set(e, "ZLAUNCH_CONTROL_FD=%d", control_fd);
    if (job->local_world == job->world) /* else it would not reach all ranks */
        env_set(e, "ZLAUNCH_SHM_FD=%d", s->shm_fd);
    env_set(e, "ZLAUNCH_STATE_FD=%d", s->state_fd);
    if (s->secret_fd >= 0)
        env_set(e, "ZLAUNCH_SECRET_FD=%d", s->secret_fd);
    if (s->replica_fd >= 0)
        env_set(e, "ZLAUNCH_REPLICA_FD=%d", s->replica_fd);
    if (s->pmi_fd >= 0) {
        env_set(e, "PMI_FD=%d", s->pmi_fd);
        env_set(e, "PMI_RANK=%d", job->first_rank + s->local_rank);
        env_set(e, "PMI_SIZE=%d", job->world);
    }
    snprintf(threads, sizeof(threads), "%d", s->share->threads);
    env_default(e, "OMP_NUM_THREADS", threads);
    if (s->share->crowded) /* a waiting thread must not burn the core of a working one */
        env_default(e, "OMP_WAIT_POLICY", "PASSIVE");
    else if (!find(e, "OMP_WAIT_POLICY", strlen("OMP_WAIT_POLICY")))
        /* nor that of somebody else's: libgomp's own 300,000 turns are a time slice, these are some
         * microseconds, in which the other threads of a product of matrices are done, too */
        env_default(e, "GOMP_SPINCOUNT", "10000");
    env_default(e, "PYTHONUNBUFFERED", "1");
}

/* ------------------------------------------------------------------ the child */

static void child_fail(const char *what, const char *name, int e, int code)
{
    char text[512];
    int n = snprintf(text, sizeof(text), "zworker: cannot %s %.300s: %s\n", what, name,
                     strerror(e));

    (void)!write(STDERR_FILENO, text,
                 n < (int)sizeof(text) ? (size_t)n : sizeof(text) - 1);
    _exit(code);
}

static int keep_open(int fd)
{
    return fcntl(fd, F_SETFD, 0);
}

/* Pages come from this NUMA node while it has some. A kernel or container that does not
 * allow to ask leaves them where they fall. */
static void prefer_memory(int node)
{
    unsigned long mask[16] = {0};
    const unsigned bits = 8 * sizeof(*mask);

    if (node < 0 || node >= (int)(8 * sizeof(mask)))
        return;
    mask[(unsigned)node / bits] = 1ul << (unsigned)node % bits;
    (void)!syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask, 8 * sizeof(mask) + 1);
}

/* From fork to exec; only async-signal-safe calls, since the daemon may have threads. */
static void child(const struct zt_spawn *s, const int pipes[2], int control_fd,
                  int null_fd, char **env, pid_t daemon)
{
    const struct zt_job *job = s->job;
    sigset_t held;

    setpgid(0, 0);
    zt_cgroup_enter(s->cgroup_fd);
    for (int sig = 1; sig < NSIG; sig++)
        if (sig != SIGKILL && sig != SIGSTOP)
            signal(sig, SIG_DFL); /* the loop's handlers must not run in here */
    sigemptyset(&held);
    if (job->hold_user_signals) { /* a plugin's rank unblocks them when it can tell */
        sigaddset(&held, SIGUSR1);
        sigaddset(&held, SIGUSR2);
    }
    sigprocmask(SIG_SETMASK, &held, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != daemon) /* it died before the line above */
        _exit(1);
    if (dup2(null_fd, STDIN_FILENO) < 0 || dup2(pipes[0], STDOUT_FILENO) < 0 ||
        dup2(pipes[1], STDERR_FILENO) < 0 || keep_open(control_fd) < 0 ||
        keep_open(s->shm_fd) < 0 || keep_open(s->state_fd) < 0 ||
        (s->pmi_fd >= 0 && keep_open(s->pmi_fd) < 0) ||
        (s->secret_fd >= 0 && keep_open(s->secret_fd) < 0) ||
        (s->replica_fd >= 0 && keep_open(s->replica_fd) < 0))
        _exit(71);
    if (job->bind &&
        (s->share->bind || job->core_list)) { /* a list that ranks share is one, too */
        sched_setaffinity(0, sizeof(s->share->mask), &s->share->mask);
        prefer_memory(s->share->memory);
    }
    if (job->cwd && chdir(job->cwd) < 0)
        child_fail("enter folder", job->cwd, errno, 71);
    execvpe(job->argv[0], job->argv, env);
    child_fail("run", job->argv[0], errno, errno == ENOENT ? 127 : 126);
}

/* ------------------------------------------------------------------ the parent */

static void close_fds(int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static void set_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags >= 0)
        fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

zt_err zt_spawn_rank(const struct zt_spawn *s, struct zt_spawned *out,
                     struct zt_fault *fault)
{
    /* our end first: stdout, stderr, control; then /dev/null */
    int fds[7] = {-1, -1, -1, -1, -1, -1, -1};
    pid_t daemon = getpid(), pid;
    struct env_list env = {0};
    sigset_t all, before;
    zt_err rc = ZT_OK;
    int e;

    fds[6] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fds[6] < 0 || pipe2(fds, O_CLOEXEC) < 0 || pipe2(fds + 2, O_CLOEXEC) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds + 4) < 0) {
        rc = zt_fault_set(fault, ZT_E_SYSTEM, "pipes of rank %d: %s",
                          s->job->first_rank + s->local_rank, strerror(errno));
        close_fds(fds, 7);
        return rc;
    }
    build_env(&env, s, fds[5]);
    if (env.failed) {
        rc = zt_fault_set(fault, ZT_E_NOMEM, "environment of a rank: no memory");
        goto out;
    }
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid = fork();
    e = errno;
    if (pid == 0)
        child(s, (int[2]){fds[1], fds[3]}, fds[5], fds[6], env.items, daemon);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (pid < 0) {
        rc = zt_fault_set(fault, ZT_E_SYSTEM, "cannot start rank %d: fork: %s",
                          s->job->first_rank + s->local_rank, strerror(e));
        goto out;
    }
    setpgid(pid, pid); /* here and there: whoever comes first */
    *out = (struct zt_spawned){pid, {fds[0], fds[2]}, fds[4]};
    set_nonblocking(fds[0]);
    set_nonblocking(fds[2]);
    set_nonblocking(fds[4]);
    fds[0] = fds[2] = fds[4] = -1;
out:
    close_fds(fds, 7);
    env_release(&env);
    return rc;
}
