/*
 * private.h -- what trace.c records and write.c writes.
 *
 * A thread has a track: spans in the order in which they began, in chunks that never
 * move. It fills a span, then counts it; a reader looks only at what is counted. The end
 * of a span comes later, so its duration is atomic.
 */
#ifndef COMMON_TRACE_PRIVATE_H
#define COMMON_TRACE_PRIVATE_H

#include <stdatomic.h>

#include "common/trace/trace.h"

#define ZT_TRACE_CHUNK  4096 /* events */
#define ZT_TRACE_CHUNKS (ZT_TRACE_MAX_EVENTS / ZT_TRACE_CHUNK)

/* Instead of a duration. */
#define ZT_TRACE_OPEN    ((int64_t)-1)
#define ZT_TRACE_INSTANT ((int64_t)-2)

struct zt_trace_event {
    int64_t start_ns;
    _Atomic int64_t took_ns;
    const char *category, *name;
    const char *key; /* of `value`; NULL: there is none */
    int64_t value;
};

struct zt_track {
    struct zt_track *next;
    int tid;                  /* 0, 1, ... in order of the first call */
    const char *_Atomic name; /* NULL: not named */
    struct zt_trace_event *chunks[ZT_TRACE_CHUNKS];
    _Atomic uint32_t num;       /* events that can be read */
    _Atomic uint64_t dropped;   /* events beyond ZT_TRACE_MAX_EVENTS */
    _Atomic int64_t dropped_ns; /* when the first of them came */

    /* of the thread alone */
    int depth;                         /* of open spans; may pass the maximum */
    uint32_t open[ZT_TRACE_MAX_DEPTH]; /* where they are; UINT32_MAX: dropped */
};

struct zt_trace_source {
    const char *path;
    int rank, world;
    int64_t now_ns;                /* open spans end here */
    const struct zt_track *tracks; /* newest first */
    uint64_t lost;                 /* events of threads without a track */
};

/* Write the part of a rank, atomically. ZT_E_CANTCREATE, ZT_E_NOMEM. */
zt_err zt_trace_write(const struct zt_trace_source *src,
                      struct zt_fault *fault) ZT_MUST_CHECK;

/* "PATH.rankN", allocated; NULL: no memory. */
char *zt_trace_part_path(const char *path, int rank);

#endif
