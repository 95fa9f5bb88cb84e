/*
 * caller                         job
 *   |--- fork ------------------->| setsid, stdio to the log
 *   |<-- one byte on a pipe ------| a program: all ranks are started; a plugin: it has
 *   |                             | made its first step, or begins what has no steps
 *   | says so, returns 0          |
 * When the pipe ends without a byte the job is over: its output and code are the
 * caller's.
 */
#include "launcher/ctl/detach.h"

#include "launcher/ctl/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHOWN_BYTES 8192 /* of the log of a job that did not start */

/* One per process: a process is one job. */
static int ready_fd = -1;
static volatile sig_atomic_t job_pid; /* for the handler */

bool zt_detach_is_pending(void)
{
    return ready_fd >= 0;
}

void zt_detach_ready(void)
{
    if (ready_fd < 0)
        return;
    if (write(ready_fd, "", 1) != 1)
        errno = 0; /* nobody waits: the job goes on all the same */
    close(ready_fd);
    ready_fd = -1;
}

static void on_signal(int sig)
{
    kill((pid_t)job_pid, sig);
}

static void become_job(int log_fd, int null_fd, int fd)
{
    setsid();
    dup2(null_fd, STDIN_FILENO);
    dup2(log_fd, STDOUT_FILENO);
    dup2(log_fd, STDERR_FILENO);
    close(log_fd);
    close(null_fd);
    ready_fd = fd;
}

/* What the job has written since `from`, or the end of it. */
static void show_log(const char *path, off_t from)
{
    char block[SHOWN_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t end = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0;
    ssize_t k;

    if (fd < 0)
        return;
    if (end - from > (off_t)sizeof(block))
        from = end - (off_t)sizeof(block);
    k = pread(fd, block, sizeof(block), from);
    if (k > 0)
        fwrite(block, 1, (size_t)k, stderr);
    close(fd);
}

/* The job is over before it was ready. */
static int bury(const char *path, off_t from, pid_t pid)
{
    int status = 0;

    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    show_log(path, from);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int wait_ready(const char *job_id, const char *path, off_t from, int fd, pid_t pid)
{
    struct sigaction sa = {.sa_handler = on_signal};
    char byte;
    ssize_t k;

    job_pid = pid;
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    do
        k = read(fd, &byte, 1);
    while (k < 0 && errno == EINTR);
    if (k != 1)
        return bury(path, from, pid);
    printf("%s\n", job_id);
    fflush(stdout);
    fprintf(stderr,
            "zlaunch: the job runs in the background, its output goes to %s\n"
            "  see it:    zlaunch --attach %s\n"
            "  ask it:    zlaunch --ctl %s status\n",
            path, job_id, job_id);
    return 0;
}

static zt_err open_log(const char *job_id, const char *log_file, char path[4096],
                       int *out, struct zt_fault *fault)
{
    char dir[ZT_CTL_PATH], own[ZT_CTL_PATH];
    zt_err rc;

    if (!log_file) {
        rc = zt_ctl_dir(dir, fault);
        if (!rc)
            rc = zt_ctl_path(dir, job_id, ".log", own, fault);
        if (rc)
            return rc;
        log_file = own;
    }
    snprintf(path, 4096, "%s", log_file);
    *out = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY | O_CLOEXEC, 0600);
    if (*out < 0)
        return zt_fault_set(fault, ZT_E_CANTCREATE, "log file %s: %s", path,
                            strerror(errno));
    return ZT_OK;
}

zt_err zt_detach(const char *job_id, const char *log_file, bool *is_job, int *exit_code,
                 struct zt_fault *fault)
{
    char path[4096];
    int log_fd, null_fd, fds[2];
    off_t from;
    pid_t pid;
    zt_err rc = open_log(job_id, log_file, path, &log_fd, fault);

    if (rc)
        return rc;
    from = lseek(log_fd, 0, SEEK_END);
    null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null_fd < 0 || pipe2(fds, O_CLOEXEC) < 0) {
        rc = zt_fault_set(fault, ZT_E_SYSTEM, "--detach: %s", strerror(errno));
        close(log_fd);
        if (null_fd >= 0)
            close(null_fd);
        return rc;
    }
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        close(fds[0]);
        become_job(log_fd, null_fd, fds[1]);
        *is_job = true;
        return ZT_OK;
    }
    close(log_fd);
    close(null_fd);
    close(fds[1]);
    if (pid < 0)
        rc = zt_fault_set(fault, ZT_E_SYSTEM, "--detach: fork: %s", strerror(errno));
    else
        *exit_code = wait_ready(job_id, path, from < 0 ? 0 : from, fds[0], pid);
    *is_job = false;
    close(fds[0]);
    return rc;
}
