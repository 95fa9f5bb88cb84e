#include "common/process/streams.h"

#include "common/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool zt_streams_open(void)
{
    static const int how[] = {O_RDWR, O_RDONLY, O_RDWR};

    signal(SIGXFSZ, SIG_IGN);
    for (int i = STDIN_FILENO; i <= STDERR_FILENO; i++) {
        if (fcntl(i, F_GETFD) >= 0)
            continue;
        /* gets the lowest number that is free; EMFILE: nothing else will get it either */
        if (open("/dev/null", how[i]) >= 0 || errno == EMFILE)
            continue;
        fprintf(stderr,
                "/dev/null: %s; a process needs it in place of a closed "
                "standard stream\n",
                strerror(errno));
        return false;
    }
    return true;
}

int zt_streams_end(const char *who, int exit_code)
{
    bool was_lost = ferror(stdout);

    errno = 0;
    if (fflush(stdout) == 0 && !was_lost)
        return exit_code;
    if (!errno) /* stdio has forgotten why: the next write says it again */
        (void)!write(STDOUT_FILENO, "\n", 1);
    return zt_streams_lost(who, errno ? errno : -1, exit_code);
}

int zt_streams_lost(const char *who, int e, int exit_code)
{
    static bool is_told; /* two writers of one stream lose the same */
    const char *reason = e == EBADF ? "it is closed"
                         : e > 0    ? strerror(e)
                                    : "it could not be written";

    if (!e)
        return exit_code;
    if (!is_told)
        fprintf(
            stderr,
            "%s: error: standard output: %s; what was printed there is not complete\n",
            who, reason);
    is_told = true;
    return exit_code ? exit_code : zt_err_exit_code(ZT_E_CANTCREATE);
}

bool zt_streams_unread(int fd)
{
    struct pollfd p = {.fd = fd};
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) && poll(&p, 1, 0) > 0 &&
           p.revents & POLLERR;
}
