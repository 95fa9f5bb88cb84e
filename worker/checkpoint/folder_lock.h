/*
 * folder_lock.h -- one run at a time in a folder.
 *
 * The lock is a file .zlaunch.lock that says who holds it, locked by the kernel (fcntl) for
 * as long as that process lives: on a network file system other hosts see it as well, and
 * what a killed process leaves is a file that nobody holds.
 * Ownership: the caller owns the struct.
 * Threads:   one; zt_folder_lock_remove() may be called in a signal handler.
 */
#ifndef WORKER_CHECKPOINT_FOLDER_LOCK_H
#define WORKER_CHECKPOINT_FOLDER_LOCK_H

#include <limits.h>
#include <stdbool.h>

#include "common/fault.h"

#define ZT_FOLDER_LOCK_NAME ".zlaunch.lock"

struct zt_folder_lock {
    int fd;         /* -1: not held */
    bool is_others; /* of the same job: another process of it has the folder */
    char path[PATH_MAX];
};

/*
 * Lock the folder `dir`, which is there, for `job`. With `is_unique`, one that another
 * process of the same job holds is no conflict: the struct then holds nothing, and says so.
 * ZT_E_CANTCREATE with the holder: one sentence. A file system without locks is a warning,
 * and nothing is held.
 */
zt_err zt_folder_lock_take(const char *dir, const char *job, bool is_unique,
                           struct zt_folder_lock *out,
                           struct zt_fault *fault) ZT_MUST_CHECK;
/* For who writes to a folder without being a run: that none has it. ZT_E_CANTCREATE, as above. */
zt_err zt_folder_lock_check(const char *dir, struct zt_fault *fault) ZT_MUST_CHECK;
/* Whether the file that is locked is still in its folder: that may have been moved away, or the
 * file removed. Something is held. */
bool zt_folder_lock_is_in_place(const struct zt_folder_lock *l);
/* The file goes, once, and before the lock does: afterwards it may be another's. Nothing
 * held is fine, and so is a file that is not in its place. */
void zt_folder_lock_remove(const struct zt_folder_lock *l);
void zt_folder_lock_release(struct zt_folder_lock *l); /* one with fd -1 is fine */

#endif
