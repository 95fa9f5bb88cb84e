/*
 * fault.h -- where a failed call leaves the sentence a person will read.
 *
 * The first function that knows the cause writes what, where and what to do; callers
 * pass it up, or put a short context in front. Nobody prints on the way.
 * Ownership: the caller owns the struct, usually on its stack. NULL is accepted by all.
 * Threads:   unlocked; one thread at a time.
 */
#ifndef COMMON_FAULT_H
#define COMMON_FAULT_H

#include <stdbool.h>

#include "include/zlaunch/types.h"

#define ZT_FAULT_TEXT 2048

struct zt_fault {
    zt_err code;
    char text[ZT_FAULT_TEXT]; /* UTF-8, may hold several lines, no trailing newline */
};

/* Set code and text (cut to fit); returns `code`, so that `return zt_fault_set(...)`. */
zt_err zt_fault_set(struct zt_fault *fault, zt_err code, const char *fmt, ...)
    ZT_PRINTF(3, 4);

/* The same call; lets compilers and analysers see that what comes back is `code`. */
#define zt_fault_set(fault, code, ...)                                                   \
    __extension__({                                                                      \
        zt_err zt_fault_code_ = (code);                                                  \
        (zt_fault_set)(fault, zt_fault_code_, __VA_ARGS__);                              \
        zt_fault_code_;                                                                  \
    })

/* Put "context: " in front of the text that is there. Returns the stored code. */
zt_err zt_fault_context(struct zt_fault *fault, zt_err code, const char *fmt, ...)
    ZT_PRINTF(3, 4);

/* "out of memory", "bad config", ...: static text, never NULL. */
const char *zt_err_name(zt_err code);

/* It is a consequence of another rank's end, or of a connection to it that has ended. */
bool zt_err_is_about_peer(zt_err code);
/* All ranks are stopped as soon as one says that it failed: one that fails because of a peer
 * waits so long (us) before it does, so that the peer says why first. */
#define ZT_PEER_FIRST_US 200000

/*
 * The process exit code of a failure: 2 usage, 65 bad config or format, 66 missing input,
 * 69 host unreachable or connection lost, 70 internal, 71 system, 73 cannot create, 78 plan
 * refused, 130 cancelled, else 1.
 */
int zt_err_exit_code(zt_err code);

/* The exit codes of ranks that all end after one step, as they have agreed upon a signal. */
enum {
    ZT_EXIT_REQUEUE = 75,    /* saved: the job can be requeued */
    ZT_EXIT_TERMINATED = 143 /* not saved: as SIGTERM would have ended it */
};

#endif
