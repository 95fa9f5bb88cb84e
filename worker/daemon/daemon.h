/*
 * daemon.h -- the process that starts, watches and reaps the ranks of one node.
 *
 * Speaks frames with zlaunch on stdin and stdout (a socket, a pipe or an ssh channel
 * alike; docs/PROTOCOL.md). Whatever ends it or zlaunch, no process of the job survives.
 */
#ifndef WORKER_DAEMON_DAEMON_H
#define WORKER_DAEMON_DAEMON_H

/* The whole life of `zworker --daemon`; returns the exit code. */
int zt_daemon_main(int argc, char **argv);

#endif
