/*
 * lines.h -- cuts what a rank writes into whole lines.
 *
 * A line ends at '\n', "\r\n" or a '\r' alone (programs that redraw a progress line), and
 * comes out ending in '\n'. One longer than ZT_LINE_MAX is cut there, so that no rank can
 * hold back others or eat memory. The last line comes out of zt_lines_finish().
 * Ownership: the caller owns the struct.
 * Threads:   one.
 */
#ifndef WORKER_DAEMON_LINES_H
#define WORKER_DAEMON_LINES_H

#include "common/buf.h"

#define ZT_LINE_MAX                                                                      \
    65536 /* bytes of a line without its end; up to 3 more where they end a
                           * character of UTF-8 */

/* n bytes of whole lines, never empty; at most what was fed plus ZT_LINE_MAX + 3. */
typedef void (*zt_lines_fn)(void *arg, const char *lines, size_t n);

struct zt_lines {
    struct zt_buf pending;
    size_t column; /* bytes since the last line end */
    bool cr;       /* a '\r' came last: is a '\n' next? */
};

void zt_lines_init(struct zt_lines *l);
void zt_lines_release(struct zt_lines *l);
/* ZT_E_NOMEM: these bytes are lost, the next call works as ever. */
zt_err zt_lines_feed(struct zt_lines *l, const char *bytes, size_t n, zt_lines_fn fn,
                     void *arg) ZT_MUST_CHECK;
void zt_lines_finish(struct zt_lines *l, zt_lines_fn fn, void *arg);

#endif
