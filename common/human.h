/*
 * human.h -- numbers as people read them.
 *
 * Threads: any.
 * Failure: none.
 */
#ifndef COMMON_HUMAN_H
#define COMMON_HUMAN_H

/* "1.2 GiB", "45.1k", "2m05s"; the buffer comes back for use in a printf. */
#define ZT_HUMAN 24
const char *zt_human_bytes(char out[ZT_HUMAN], double bytes);
const char *zt_human_count(char out[ZT_HUMAN], double count);
const char *zt_human_seconds(char out[ZT_HUMAN], double seconds);

#endif
