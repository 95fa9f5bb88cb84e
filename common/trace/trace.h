/*
 * trace.h -- a timeline of what the threads of each rank did, for chrome://tracing and
 * Perfetto.
 *
 *      rank 0  compute  |------------- step -------------|
 *                         |- forward -|  |-- backward --|
 *              comm                        |- reduce -|
 *
 * Spans of a thread nest. A rank keeps them in memory, writes its part PATH.rankN when it
 * closes, and rank 0 makes one file of the parts; each part is a trace by itself, too.
 * In the file the process is the rank, times are microseconds of CLOCK_MONOTONIC: ranks
 * of a node line up, ranks of different nodes do not.
 *
 * Memory:    a thread keeps at most ZT_TRACE_MAX_EVENTS (48 bytes each, taken as they
 *            fill); then it stops recording, and the file tells how many were dropped.
 *            What was recorded stays until the next open or the end of the process.
 * Threads:   begin, end, instant and thread: any, without a lock once a thread has made
 *            its first call. The others: one. What a thread still records while the trace
 *            is being closed may be missing from the file; while a second trace is being
 *            opened, no thread may be in here.
 * Strings:   names are kept as pointers: static text, or text that zt_trace_text() keeps.
 * Global:    there is one trace in a process; while none is open a call costs one branch.
 */
#ifndef COMMON_TRACE_TRACE_H
#define COMMON_TRACE_TRACE_H

#include "common/fault.h"

#define ZT_TRACE_MAX_EVENTS (1 << 18) /* of a thread: 12 MiB */
#define ZT_TRACE_MAX_DEPTH  32        /* of spans in spans; deeper ones are dropped */

/*
 * Start recording. `path` NULL: nothing is recorded, and every call below succeeds.
 * ZT_E_CANTCREATE when the folder of `path` cannot be written to, so that a run does not
 * find out at its end.
 */
zt_err zt_trace_open(const char *path, int rank, int world,
                     struct zt_fault *fault) ZT_MUST_CHECK;

/* Stop, and write this rank's part. Spans that are open end now. ZT_E_CANTCREATE. */
zt_err zt_trace_close(struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Make PATH of the parts of all ranks and remove them: one rank, after a barrier behind
 * the closing of all. ZT_E_NOINPUT when a part is missing, ZT_E_FORMAT when it is
 * damaged, ZT_E_CANTCREATE; the parts then stay.
 */
zt_err zt_trace_merge(const char *path, int world, struct zt_fault *fault) ZT_MUST_CHECK;

/* A copy that lives as long as the trace; for names made at run time. Takes a lock. The
 * same text gives the same pointer. Not recording, or memory is out: "". */
const char *zt_trace_text(const char *text);

/* ---- recording ---- */

extern bool zt_trace_recording; /* read it through zt_trace_on() */
static inline bool zt_trace_on(void)
{
    return __atomic_load_n(&zt_trace_recording, __ATOMIC_RELAXED);
}

void zt_trace_record_thread(const char *name);
void zt_trace_record_begin(const char *category, const char *name, const char *key,
                           int64_t value);
void zt_trace_record_end(void);
void zt_trace_record_span(const char *category, const char *name, const char *key,
                          int64_t value, int64_t began_ns);
void zt_trace_record_instant(const char *category, const char *name);

/* What the calling thread is called in the file: "compute", "comm". */
static inline void zt_trace_thread(const char *name)
{
    if (zt_trace_on())
        zt_trace_record_thread(name);
}

/* A span of the calling thread, until its zt_trace_end(). */
static inline void zt_trace_begin(const char *category, const char *name)
{
    if (zt_trace_on())
        zt_trace_record_begin(category, name, NULL, 0);
}

/* The same with a number that the viewer shows: "bytes", 4096. */
static inline void zt_trace_begin_with(const char *category, const char *name,
                                       const char *key, int64_t value)
{
    if (zt_trace_on())
        zt_trace_record_begin(category, name, key, value);
}

/* End of the innermost open span; nothing when there is none. */
static inline void zt_trace_end(void)
{
    if (zt_trace_on())
        zt_trace_record_end();
}

int64_t zt_trace_now(void); /* nanoseconds of the timeline's clock */

/* A span that began at such a time and ends now, of which the number is known now. Since then
 * the calling thread has recorded nothing. */
static inline void zt_trace_span(const char *category, const char *name, const char *key,
                                 int64_t value, int64_t began_ns)
{
    if (zt_trace_on())
        zt_trace_record_span(category, name, key, value, began_ns);
}

/* A point in time. */
static inline void zt_trace_instant(const char *category, const char *name)
{
    if (zt_trace_on())
        zt_trace_record_instant(category, name);
}

#endif
