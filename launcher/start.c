#include "launcher/start.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_program(const char *path)
{
    struct stat sb;

    return stat(path, &sb) == 0 && S_ISREG(sb.st_mode) && access(path, X_OK) == 0;
}

static zt_err no_memory(struct zt_fault *fault)
{
    return zt_fault_set(fault, ZT_E_NOMEM, "no memory for a path");
}

/* The first `name` in PATH that can be executed; NULL: none. */
static char *search_path(const char *name)
{
    const char *dirs = getenv("PATH");

    for (const char *p = dirs ? dirs : "/usr/bin:/bin"; p; p = strchr(p, ':')) {
        char path[PATH_MAX];
        size_t n;

        p += *p == ':';
        n = strcspn(p, ":");
        snprintf(path, sizeof(path), "%.*s/%s", n ? (int)n : 1, n ? p : ".", name);
        if (is_program(path))
            return strdup(path);
    }
    return NULL;
}

zt_err zt_find_program(const char *name, char **out, struct zt_fault *fault)
{
    struct stat sb;
    char *found;

    if (!strchr(name, '/')) {
        found = search_path(name);
        if (!found && stat(name, &sb) == 0)
            return zt_fault_set(
                fault, ZT_E_NOINPUT,
                "program '%s' is not in PATH; write ./%s for the file in this "
                "folder",
                name, name);
        if (!found)
            return zt_fault_set(fault, ZT_E_NOINPUT, "program '%s' is not in PATH", name);
        *out = found;
        return ZT_OK;
    }
    if (stat(name, &sb) < 0)
        return zt_fault_set(fault, ZT_E_NOINPUT, "cannot run %s: %s", name,
                            strerror(errno));
    if (!is_program(name))
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "cannot run %s: it is no executable file; scripts go through "
                            "their interpreter, as in: zlaunch -- python3 %s",
                            name, name);
    found = strdup(name);
    if (!found)
        return no_memory(fault);
    *out = found;
    return ZT_OK;
}

zt_err zt_find_zworker(char **out, struct zt_fault *fault)
{
    const char *set = getenv("ZLAUNCH_ZWORKER");
    char self[PATH_MAX], *slash;
    ssize_t n;

    if (set && *set) {
        if (!is_program(set))
            return zt_fault_set(fault, ZT_E_NOINPUT,
                                "ZLAUNCH_ZWORKER is '%s', which is no executable file",
                                set);
        *out = strdup(set);
        return *out ? ZT_OK : no_memory(fault);
    }
    n = readlink("/proc/self/exe", self, sizeof(self) - 16);
    if (n > 0) {
        self[n] = 0;
        slash = strrchr(self, '/');
        memcpy(slash + 1, "zworker", sizeof("zworker"));
        if (is_program(self)) {
            *out = strdup(self);
            return *out ? ZT_OK : no_memory(fault);
        }
    }
    *out = search_path("zworker");
    if (!*out)
        return zt_fault_set(fault, ZT_E_NOINPUT,
                            "zworker is neither beside zlaunch nor in PATH; set "
                            "ZLAUNCH_ZWORKER to where it is");
    return ZT_OK;
}

static void daemon_child(const char *zworker, int fd)
{
    sigset_t none;

    setsid();
    for (int sig = 1; sig < NSIG; sig++)
        if (sig != SIGKILL && sig != SIGSTOP)
            signal(sig, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(fd, STDIN_FILENO) >= 0 && dup2(fd, STDOUT_FILENO) >= 0)
        execl(zworker, "zworker", "--daemon", (char *)NULL);
    fprintf(stderr, "zlaunch: error: cannot run %s: %s\n", zworker, strerror(errno));
    fflush(stderr);
    _exit(71);
}

static zt_err start_local(const char *host, const char *zworker, struct zt_started *out,
                          struct zt_fault *fault)
{
    sigset_t all, before;
    int pair[2], e;
    pid_t pid;

    (void)host; /* it is this one */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return zt_fault_set(fault, ZT_E_SYSTEM, "control channel: %s", strerror(errno));
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before); /* no handler of ours may run in the child */
    pid = fork();
    e = errno;
    if (pid == 0)
        daemon_child(zworker, pair[1]);
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return zt_fault_set(fault, ZT_E_SYSTEM, "cannot start the node daemon: fork: %s",
                            strerror(e));
    }
    *out = (struct zt_started){pid, pair[0]};
    return ZT_OK;
}

const struct zt_starter zt_starter_local = {.name = "local", .start = start_local};
