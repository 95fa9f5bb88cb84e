#include "common/env.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Set to something other than nothing and "0"? */
static bool is_on(const char *name)
{
    const char *v = getenv(name);

    return v && *v && strcmp(v, "0") != 0;
}

zt_err zt_env_int(const char *name, int64_t min, int64_t max, int64_t *out,
                  struct zt_fault *fault)
{
    const char *v = getenv(name);
    long long n;
    char *end;

    if (!v || !*v)
        return ZT_OK;
    errno = 0;
    n = strtoll(v, &end, 10);
    if (*end || errno || n < min || n > max)
        return zt_fault_set(
            fault, ZT_E_USAGE,
            "environment variable %s is '%.64s'; a whole number from %lld to "
            "%lld is expected",
            name, v, (long long)min, (long long)max);
    *out = n;
    return ZT_OK;
}

static bool is_dumb(void)
{
    const char *term = getenv("TERM");

    return !term || !*term || strcmp(term, "dumb") == 0;
}

bool zt_env_color(int fd, zt_when when)
{
    const char *no_color = getenv("NO_COLOR"), *clicolor = getenv("CLICOLOR");

    if (when != ZT_WHEN_AUTO)
        return when == ZT_WHEN_ALWAYS;
    if (no_color && *no_color)
        return false;
    if (is_on("CLICOLOR_FORCE") || is_on("FORCE_COLOR"))
        return true;
    if (clicolor && strcmp(clicolor, "0") == 0)
        return false;
    return isatty(fd) && !is_dumb();
}

bool zt_env_live(int fd)
{
    const char *ci = getenv("CI");

    if (ci && *ci && strcmp(ci, "0") != 0 && strcmp(ci, "false") != 0)
        return false;
    return isatty(fd) && !is_dumb();
}

int zt_env_columns(int fd)
{
    int64_t columns = 80;
    struct winsize ws;

    if (ioctl(fd, TIOCGWINSZ, &ws) == 0 && ws.ws_col > 0)
        return ws.ws_col;
    if (zt_env_int("COLUMNS", 1, 10000, &columns, NULL))
        return 80;
    return (int)columns;
}
