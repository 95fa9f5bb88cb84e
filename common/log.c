#include "common/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/utf8.h"

#define LINE_MAX_BYTES 4096

static struct {
    zt_log_level level;
    bool json;
    char who[32];
    int rank;
    bool tag;
    bool (*sink)(const char *line, size_t n);
} cfg = {.level = ZT_LOG_INFO, .who = "zlaunch", .rank = -1};

static const char *const level_names[] = {"error", "warn", "info", "debug"};
/* as in --log_level, and in what zlaunch says itself */
static const char *const json_level_names[] = {"error", "warning", "info", "debug"};

void zt_log_init(zt_log_level level, bool json, const char *who)
{
    cfg.level = level;
    cfg.json = json;
    snprintf(cfg.who, sizeof(cfg.who), "%s", who ? who : "");
}

void zt_log_set_rank(int rank, int world)
{
    cfg.rank = rank;
    cfg.tag = world > 1;
}

void zt_log_set_sink(bool (*sink)(const char *line, size_t n))
{
    cfg.sink = sink;
}

zt_log_level zt_log_get_level(void)
{
    return cfg.level;
}

double zt_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* Append the JSON form of `s` between quotes; stops early rather than overflow. What is no
 * UTF-8, as a character that was cut, becomes U+FFFD. */
static size_t put_json(char *out, size_t cap, size_t at, const char *s)
{
    while (*s && at + 8 < cap) {
        size_t n = zt_utf8_length(s, strnlen(s, 4));

        if (*s == '"' || *s == '\\')
            at += (size_t)snprintf(out + at, cap - at, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            at += (size_t)snprintf(out + at, cap - at, "\\u%04x", *s);
        else
            at += (size_t)snprintf(out + at, cap - at, "%.*s", n ? (int)n : 3,
                                   n ? s : "\xef\xbf\xbd");
        s += n ? n : 1;
    }
    return at;
}

static size_t stamp(char *out, size_t cap)
{
    struct timespec ts;
    struct tm tm;
    size_t n;

    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    n = strftime(out, cap, "%Y-%m-%dT%H:%M:%S", &tm);
    return n + (size_t)snprintf(out + n, cap - n, ".%06ldZ", ts.tv_nsec / 1000);
}

static void write_all(const char *p, size_t n)
{
    while (n) {
        ssize_t k = write(STDERR_FILENO, p, n);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return;
        p += k;
        n -= (size_t)k;
    }
}

/* The beginning of a line as text: that of a rank is as zlaunch would show it. hh:mm:ss is
 * enough on a console; the JSON form has the date. */
static size_t put_start(char *line, size_t cap, const char *when, zt_log_level level)
{
    char tag[32] = "";

    if (cfg.tag && !cfg.sink) /* zlaunch puts it there itself */
        snprintf(tag, sizeof(tag), "[rank %d] ", cfg.rank);
    return (size_t)snprintf(line, cap, "%s%.8s %-5s %s%s", tag, when + 11,
                            level_names[level], cfg.rank < 0 ? cfg.who : "",
                            cfg.rank < 0 ? " " : "");
}

void zt_log(zt_log_level level, const char *module, const char *fmt, ...)
{
    char text[LINE_MAX_BYTES / 2], line[LINE_MAX_BYTES], when[40];
    size_t at;
    va_list ap;

    if (level > cfg.level)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    stamp(when, sizeof(when));
    if (cfg.json) {
        at = (size_t)snprintf(line, sizeof(line),
                              "{\"ts\":\"%s\",\"event\":\"log\",\"level\":\"%s\",", when,
                              json_level_names[level]);
        if (cfg.rank >= 0)
            at +=
                (size_t)snprintf(line + at, sizeof(line) - at, "\"rank\":%d,", cfg.rank);
        at += (size_t)snprintf(line + at, sizeof(line) - at,
                               "\"who\":\"%s\",\"module\":\"%s\",\"msg\":\"", cfg.who,
                               module);
        at = put_json(line, sizeof(line) - 4, at, text);
        at += (size_t)snprintf(line + at, sizeof(line) - at, "\"}\n");
    } else {
        at = put_start(line, sizeof(line), when, level);
        at += (size_t)snprintf(line + at, sizeof(line) - at, "%s: %s\n", module, text);
        if (at >= sizeof(line))
            at = sizeof(line) - 1;
    }
    if (!cfg.json || !cfg.sink || !cfg.sink(line, at - 1))
        write_all(line, at);
}
