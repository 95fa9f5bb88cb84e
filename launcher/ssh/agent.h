/*
 * agent.h -- a client of ssh-agent that never blocks the loop: an agent may ask a
 * person before it signs.
 *
 * Threads: the loop's. on_change comes when something that was waited for is there, never
 * from inside a call.
 */
#ifndef LAUNCHER_SSH_AGENT_H
#define LAUNCHER_SSH_AGENT_H

#include "common/fault.h"

#include <uv.h>

struct zt_agent;

typedef enum zt_agent_state {
    ZT_AGENT_BUSY,  /* on_change will come */
    ZT_AGENT_READY, /* listed, or signed */
    ZT_AGENT_GONE,  /* no agent, or it said no */
} zt_agent_state;

/* Connect to the socket and ask for its keys. NULL: no memory. */
struct zt_agent *zt_agent_open(uv_loop_t *loop, const char *path,
                               void (*on_change)(void *ctx), void *ctx);
/* NULL is fine. No on_change comes after it; the rest goes with the loop. */
void zt_agent_close(struct zt_agent *a);

zt_agent_state zt_agent_listed(const struct zt_agent *a);
int zt_agent_num_keys(const struct zt_agent *a);
/* The key as the wire has it; the agent client's. */
const uint8_t *zt_agent_key(const struct zt_agent *a, int index, size_t *bytes);

/*
 * Sign with a key. The first call asks; call again with the same key after on_change.
 * READY: *sig is allocated, the signature without its algorithm's name.
 */
zt_agent_state zt_agent_sign(struct zt_agent *a, int index, const uint8_t *data, size_t n,
                             uint8_t **sig, size_t *sig_bytes);

#endif
