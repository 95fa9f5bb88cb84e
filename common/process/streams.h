/*
 * streams.h -- standard input, output and error of this process, and what a write does that
 * fails.
 *
 * Threads: one, before any other is started and after all have ended.
 */
#ifndef COMMON_PROCESS_STREAMS_H
#define COMMON_PROCESS_STREAMS_H

#include <stdbool.h>

/*
 * First of all in main(): descriptors 0 to 2 that whoever started this process has closed
 * become /dev/null. Else the next file or socket that is opened would get their numbers,
 * and what is printed would go there. One in place of standard output takes nothing: a
 * write is an error as to a closed descriptor (EBADF), so that lost results are noticed,
 * and a run that prints none ends well. False: /dev/null cannot be opened; stderr, where it
 * is open, says so.
 *
 * From here on a write past `ulimit -f` fails with EFBIG, as on a full disk, instead of ending
 * the process by SIGXFSZ. Who runs a command of the user gives it the default back.
 */
bool zt_streams_open(void);

/*
 * Last of all: is everything that was printed where it should be? Returns `exit_code`;
 * if that is 0 and output was lost, the code of an output that cannot be made, after
 * `who` has said so on stderr.
 */
int zt_streams_end(const char *who, int exit_code);

/* The same, for output that did not go through stdio and was lost with errno `e`; 0:
 * nothing was, -1: the reason is not known. */
int zt_streams_lost(const char *who, int e, int exit_code);

/* Is fd a pipe whose reader has left, as `head` does? What is written there is lost. */
bool zt_streams_unread(int fd);

#endif
