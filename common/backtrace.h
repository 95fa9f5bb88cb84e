/*
 * backtrace.h -- a process prints its own stack on request.
 *
 * On SIGQUIT it writes the stack of its first thread to stderr and continues. The daemon
 * sends SIGQUIT to ranks that make no progress; by hand: kill -QUIT PID.
 * Threads:   the handler runs on whichever thread gets the signal; nothing is allocated.
 */
#ifndef COMMON_BACKTRACE_H
#define COMMON_BACKTRACE_H

/* Once, before there are threads. `name` stands in front of the stack; cut to fit. */
void zt_backtrace_on_quit(const char *name);

#endif
