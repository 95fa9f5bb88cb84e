#include "common/process/streams.h"

#include "common/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool zt_streams_open(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR); /* the lowest number that is free */
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd < 0 && errno != EMFILE) { /* EMFILE: every number is taken, these three too */
        fprintf(stderr,
                "/dev/null: %s; a process needs it in place of a closed "
                "standard stream\n",
                strerror(errno));
        return false;
    }
    if (fd >= 0)
        close(fd);
    return true;
}

int zt_streams_end(const char *who, int exit_code)
{
    bool was_lost = ferror(stdout);

    errno = 0;
    if (fflush(stdout) == 0 && !was_lost)
        return exit_code;
    return zt_streams_lost(who, errno ? errno : -1, exit_code);
}

int zt_streams_lost(const char *who, int e, int exit_code)
{
    if (!e)
        return exit_code;
    fprintf(stderr,
            "%s: error: standard output: %s; what was printed there is not complete\n",
            who, e > 0 ? strerror(e) : "it could not be written");
    return exit_code ? exit_code : zt_err_exit_code(ZT_E_CANTCREATE);
}

bool zt_streams_unread(int fd)
{
    struct pollfd p = {.fd = fd};
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) && poll(&p, 1, 0) > 0 &&
           p.revents & POLLERR;
}
