/*
 * proc.h -- processes below this one, and ways a process ends.
 *
 * Threads:   one.
 * Failure:   a process that is gone already is no error.
 */
#ifndef COMMON_PROC_H
#define COMMON_PROC_H

#include "include/zlaunch/types.h"

#include <sys/types.h>

/*
 * Send `sig` (0: only count) to every living descendant of this process, in whatever
 * group or session it is; `sig` goes to zombies too, but they are not counted. Returns
 * the count. With PR_SET_CHILD_SUBREAPER set, orphans of descendants are descendants
 * still.
 */
int zt_proc_signal_descendants(int sig);
/* The same, but for spare[num] and what is below them. */
int zt_proc_signal_others(int sig, const pid_t *spare, int num);

/* The state of a process as in /proc: 'R', 'S', 'D', 'T', ...; 0: there is none. */
char zt_proc_state(pid_t pid);

/* "SIGSEGV (invalid memory access)": buffer-free, static text for the common ones. */
const char *zt_signal_text(int sig);

/* As nohup leaves SIGHUP, which is then not for us either. */
bool zt_signal_is_ignored(int sig);

/* This thread, and what it starts, gets neither SIGUSR1 nor SIGUSR2 until it unblocks them. */
void zt_signal_block_user(void);

#endif
