/*
 * ssh.h -- the starter that reaches nodes by ssh.
 *
 *      zlaunch --- ssh session (libssh2) --- sshd --- shell --exec--> zworker --daemon
 *
 * The control channel is the ssh channel's stdin and stdout: no port is opened. What the
 * library cannot do (RSA user keys, certificates, GSSAPI, most of ssh_config) goes to the
 * ssh program with the same bytes; a note says so, and why. known_hosts is checked unless
 * check_host_key is false; nothing is ever written to it.
 *
 * Settings: those of zt_ssh_options, then ~/.ssh/config and /etc/ssh/ssh_config, then
 * defaults. With a missing cwd the daemon works in the pushed folder, or in the home.
 * With push the daemon finds the folder of the pushed files in ZLAUNCH_PUSH_DIR.
 *
 * zworker there: rq->zworker; else the pushed one; else the path it has here, PATH,
 * ~/.zlaunch/bin. on_up comes when the remote shell has found it and executes it.
 * Closing the channel closes the connection: the daemon sees the end of its stdin.
 *
 * As with all streams of libuv, the process ignores SIGPIPE.
 */
#ifndef LAUNCHER_SSH_SSH_H
#define LAUNCHER_SSH_SSH_H

#include "launcher/start/channel.h"

extern const struct zt_starter zt_starter_ssh;

#endif
