/*
 * limits.h -- what this process may have: open files.
 *
 * Threads: any.
 */
#ifndef COMMON_PROCESS_LIMITS_H
#define COMMON_PROCESS_LIMITS_H

#include "common/fault.h"

/* What either program needs for itself: libraries, streams, its loop, a few files. */
#define ZT_LIMITS_FILES 32

/*
 * See to it that `needed` files can be open at once, by raising the soft limit up to the
 * hard one. ZT_E_SYSTEM if that is lower: `what`, as in "zlaunch needs", says who needs
 * them.
 */
zt_err zt_limits_open_files(uint64_t needed, const char *what,
                            struct zt_fault *fault) ZT_MUST_CHECK;

#endif
