/*
 * waits.h -- how long a thread has waited, and for what: the difference between the time
 * of a step and the time that it computed.
 *
 * Times are added up per thread, so what a background thread waits for does not count as
 * a wait of the one that trains. The timeline (trace.h) has the single waits.
 *
 * Threads: any; each has sums of its own.
 */
#ifndef COMMON_TRACE_WAITS_H
#define COMMON_TRACE_WAITS_H

typedef enum zt_wait_kind {
    ZT_WAIT_RANKS, /* other ranks, and the messages between them */
    ZT_WAIT_FILES, /* state in files that is read or written */
    ZT_NUM_WAITS,
} zt_wait_kind;

/* Between these two the calling thread waits. They do not nest. */
void zt_wait_begin(void);
void zt_wait_end(zt_wait_kind kind);

/* Seconds of each kind that the calling thread has waited since it last asked. */
void zt_waits_take(double seconds[ZT_NUM_WAITS]);

#endif
