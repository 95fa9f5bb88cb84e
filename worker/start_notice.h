/*
 * start_notice.h -- a start that takes long says what it is at: a line for each phase of
 * it (zt_event_phase()) that lasts more than a second, as one of large weights does.
 *
 * Threads:   both calls from the thread that begins phases; a thread of its own waits.
 * Failure:   without that thread nothing is said.
 */
#ifndef WORKER_START_NOTICE_H
#define WORKER_START_NOTICE_H

void zt_start_notice_begin(void);
void zt_start_notice_end(void); /* the start is over; also where none was begun */

#endif
