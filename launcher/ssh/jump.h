/*
 * jump.h -- a connection through another host: an ssh session to it, a forwarded
 * channel to the target, and a socket pair that the target's own session speaks over.
 *
 *      target's session <-> socket pair <-> forwarded channel <-> jump host <-> target
 *
 * Threads: the loop's. No event comes from inside open or close.
 */
#ifndef LAUNCHER_SSH_JUMP_H
#define LAUNCHER_SSH_JUMP_H

#include "launcher/ssh/session.h"

struct zt_jump;

struct zt_jump_events {
    void (*on_fd)(void *ctx, int fd); /* connected; the descriptor is the receiver's */
    void (*on_fail)(void *ctx, const struct zt_fault *why, bool program);
    void (*on_closed)(void *ctx); /* the jump is gone */
};

/* cfg: the jump host. NULL: no memory. Strings live until on_closed. */
struct zt_jump *zt_jump_open(uv_loop_t *loop, const struct zt_ssh_session_config *cfg,
                             const char *target, int port,
                             const struct zt_jump_events *ev, void *ctx);
void zt_jump_close(struct zt_jump *j); /* NULL is fine */

#endif
