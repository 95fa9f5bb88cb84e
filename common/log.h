/*
 * log.h -- "time level rank module: sentence" lines, or one JSON object a line. A rank that
 * zlaunch started, which is one with a sink, leaves out its number: zlaunch puts "[rank 0]"
 * in front of what several ranks print.
 *
 * Messages go to stderr; stdout is for results. Each message is one write(2), so lines of
 * one process never mix. In a rank that zlaunch started, JSON lines go to the control
 * socket instead (common/message/event.h), so that they cannot be confused with what the
 * rank prints. Level, format and sink are process globals, set once at the start.
 * Threads:   any.
 * Failure:   none is reported; a log line that cannot be written is lost.
 */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H

#include "include/zlaunch/types.h"

typedef enum zt_log_level {
    ZT_LOG_ERROR,
    ZT_LOG_WARN,
    ZT_LOG_INFO,
    ZT_LOG_DEBUG
} zt_log_level;

/* `who` begins the lines of a process that is no rank (zlaunch, the daemon). */
void zt_log_init(zt_log_level level, bool json, const char *who);
/* This process is a rank: where there are several, its lines say which. */
void zt_log_set_rank(int rank, int world);
zt_log_level zt_log_get_level(void);

/* Where JSON lines go, without their newline. The sink is called from any thread and must
 * not log; if it returns false the line goes to stderr. NULL: always stderr. */
void zt_log_set_sink(bool (*sink)(const char *line, size_t n));

void zt_log(zt_log_level level, const char *module, const char *fmt, ...) ZT_PRINTF(3, 4);

#define zt_error(module, ...) zt_log(ZT_LOG_ERROR, module, __VA_ARGS__)
#define zt_warn(module, ...)  zt_log(ZT_LOG_WARN, module, __VA_ARGS__)
#define zt_info(module, ...)  zt_log(ZT_LOG_INFO, module, __VA_ARGS__)
#define zt_debug(module, ...) zt_log(ZT_LOG_DEBUG, module, __VA_ARGS__)

/* Seconds on the monotonic clock; only differences mean anything. */
double zt_now(void);

#endif
