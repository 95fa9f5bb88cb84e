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

#include "common/json/line.h"
#include "common/process/streams.h"
#include "launcher/ctl/private.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHOWN_BYTES 8192 /* of the log of a job that did not start */

/* One per process: a process is one job. */
static int ready_fd = -1;
static char job_log[4096];
static volatile sig_atomic_t job_pid; /* for the handler */

bool zt_detach_is_pending(void)
{
    return ready_fd >= 0;
}

const char *zt_detach_log(void)
{
    return *job_log ? job_log : NULL;
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

/* The job as its caller sees it. */
struct begun {
    const char *job_id, *log; /* log: the file that its output goes to */
    off_t from;               /* where that begins in it */
    pid_t pid;
};

/* What the job has written, or the end of it, in whole lines. */
static size_t read_log(const struct begun *job, char out[SHOWN_BYTES])
{
    int fd = open(job->log, O_RDONLY | O_CLOEXEC);
    off_t end = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0, from = job->from;
    const char *nl;
    struct stat st;
    ssize_t k;

    if (fd < 0)
        return 0;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) { /* a device gives back nothing */
        close(fd);
        return 0;
    }
    if (end - from > SHOWN_BYTES)
        from = end - SHOWN_BYTES;
    k = pread(fd, out, SHOWN_BYTES, from);
    close(fd);
    nl = k > 0 && from > job->from ? memchr(out, '\n', (size_t)k) : NULL;
    if (nl) { /* the line before it has lost its beginning */
        k -= nl + 1 - out;
        memmove(out, nl + 1, (size_t)k);
    }
    return k > 0 ? (size_t)k : 0;
}

/* Lines of a job that prints JSON; true: its last event was among them. */
static bool pass_events(struct zt_render *r, const char *lines, size_t n)
{
    bool ended = false;

    while (n) {
        const char *nl = memchr(lines, '\n', n);
        size_t line = nl ? (size_t)(nl - lines) : n;

        ended = zt_ctl_pass_event(r, lines, line) || ended;
        lines += line + (nl != NULL);
        n -= line + (nl != NULL);
    }
    return ended;
}

static void print_end(struct zt_render *r, int exit_code)
{
    json_t *o = json_object();

    json_object_set_new(o, "event", json_string("end"));
    json_object_set_new(o, "exit_code", json_integer(exit_code));
    zt_render_record(r, o);
    json_decref(o);
}

/* The job is over before it was ready. */
static int bury(const struct begun *job, struct zt_render *r)
{
    char text[SHOWN_BYTES];
    int status = 0, code;
    size_t n;

    while (waitpid(job->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    n = read_log(job, text);
    if (!n && code)
        zt_render_message(r, ZT_LOG_ERROR,
                          "the job ended with exit code %d before it had begun, and log "
                          "file %s has nothing of it (is there room?); without --detach "
                          "it says why here",
                          code, job->log);
    if (!zt_render_is_json(r))
        fwrite(text, 1, n, stderr);
    else if (!pass_events(r, text, n))
        print_end(r, code);
    return code;
}

static void print_detached(const struct begun *job, struct zt_render *r)
{
    json_t *o;

    if (!zt_render_is_json(r)) {
        printf("%s\n", job->job_id);
        fflush(stdout);
        zt_render_message(r, ZT_LOG_INFO,
                          "the job runs in the background, its output goes to %s\n"
                          "  see it:    zlaunch --attach %s\n"
                          "  ask it:    zlaunch --ctl %s status",
                          job->log, job->job_id, job->job_id);
        return;
    }
    o = json_object();
    json_object_set_new(o, "event", json_string("detached"));
    json_object_set_new(o, "job", json_string(job->job_id));
    json_object_set_new(o, "log_file", zt_json_text(job->log, strlen(job->log)));
    zt_render_record(r, o);
    json_decref(o);
    print_end(r, 0);
}

static int wait_ready(const struct begun *job, int fd, struct zt_render *r)
{
    struct sigaction sa = {.sa_handler = on_signal};
    char byte;
    ssize_t k;

    job_pid = job->pid;
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    do
        k = read(fd, &byte, 1);
    while (k < 0 && errno == EINTR);
    if (k != 1)
        return bury(job, r);
    print_detached(job, r);
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

/* In the caller, until the job has begun. */
static zt_err attend(const struct begun *job, int fd,
                     const struct zt_render_config *screen, int *exit_code,
                     struct zt_fault *fault)
{
    struct zt_render *r;
    zt_err rc = zt_render_open(screen, &r, fault);

    if (rc)
        return rc;
    *exit_code = wait_ready(job, fd, r);
    zt_render_drain(r);
    *exit_code = zt_streams_lost("zlaunch", zt_render_lost(r), *exit_code);
    zt_render_close(r);
    return ZT_OK;
}

zt_err zt_detach(const char *job_id, const char *log_file,
                 const struct zt_render_config *screen, bool *is_job, int *exit_code,
                 struct zt_fault *fault)
{
    struct begun job = {.job_id = job_id};
    char path[4096];
    int log_fd, null_fd, fds[2];
    zt_err rc = open_log(job_id, log_file, path, &log_fd, fault);

    if (rc)
        return rc;
    job.log = path;
    job.from = lseek(log_fd, 0, SEEK_END);
    if (job.from < 0)
        job.from = 0;
    null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null_fd < 0 || pipe2(fds, O_CLOEXEC) < 0) {
        rc = zt_fault_set(fault, ZT_E_SYSTEM, "--detach: %s", strerror(errno));
        close(log_fd);
        if (null_fd >= 0)
            close(null_fd);
        return rc;
    }
    fflush(stdout);
    job.pid = fork();
    if (job.pid == 0) {
        close(fds[0]);
        become_job(log_fd, null_fd, fds[1]);
        if (!realpath(path, job_log))
            memcpy(job_log, path, sizeof(path));
        *is_job = true;
        return ZT_OK;
    }
    close(log_fd);
    close(null_fd);
    close(fds[1]);
    if (job.pid < 0)
        rc = zt_fault_set(fault, ZT_E_SYSTEM, "--detach: fork: %s", strerror(errno));
    else
        rc = attend(&job, fds[0], screen, exit_code, fault);
    *is_job = false;
    close(fds[0]);
    return rc;
}
