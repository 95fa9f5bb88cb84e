/*
 * backtrace.h -- a process prints its own stack on request.
 *
 * On SIGQUIT it writes the stack of its first thread to stderr and continues. The daemon
 * sends SIGQUIT to ranks that make no progress; by hand: kill -QUIT PID.
 * Threads:   the handler runs on whichever thread gets the signal; nothing is allocated.
 */
#ifndef COMMON_PROCESS_BACKTRACE_H
#define COMMON_PROCESS_BACKTRACE_H

/* Once, before there are threads. `name` stands in front of the stack; cut to fit. */
void zt_backtrace_on_quit(const char *name);

/*
 * After zt_backtrace_on_quit(): SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT print the stack of
 * the thread that they come to, and end the process as they do by default. Where a handler is
 * installed already, as a sanitizer's, it stays.
 */
void zt_backtrace_on_crash(void);

/*
 * Gives the calling thread a stack for handlers with SA_ONSTACK. Every handler of a process
 * that computes needs it: kernels that oneDNN writes at run time use the stack pointer as
 * one more register for data, and a handler on the ordinary stack would write its frame
 * there. Threads of the pool block signals instead. One thread of a process, the first.
 */
void zt_signal_stack_open(void);

#endif
