/*
 * links.h -- can this node reach the others, and how fast? The daemon's side of the test
 * that zlaunch makes before ranks start (docs/PROTOCOL.md: LINKS).
 *
 * The node listens on a port of each of its addresses. A visitor sends this node's `ask`
 * and receives its `answer`, 32 random hex digits each that only zlaunch and the nodes
 * know which it gives them to: so a port of another program, or of this node itself under
 * an address that every node has (docker0), does not count as a node that was reached.
 *
 * Ownership: zt_links_open() allocates. zt_links_close() closes the handles; the memory
 *            goes with the last of them, so the loop has to run once more.
 * Threads:   the loop's.
 */
#ifndef WORKER_DAEMON_LINKS_H
#define WORKER_DAEMON_LINKS_H

#include "common/fault.h"

#include <jansson.h>
#include <uv.h>

#define ZT_LINKS_WORD      32 /* hex digits of `ask` and of `answer` */
#define ZT_LINKS_ADDRESSES 16 /* of one node; more are left out */

struct zt_links;

/* Listen. ZT_E_SYSTEM: interfaces cannot be read, or no random numbers. */
zt_err zt_links_open(uv_loop_t *loop, struct zt_links **out,
                     struct zt_fault *fault) ZT_MUST_CHECK;
void zt_links_close(struct zt_links *l); /* NULL is fine */

/* The body of LINKS_HERE: where it listens. NULL: no memory. */
json_t *zt_links_describe(const struct zt_links *l);

/*
 * Carry out the body of LINKS_TRY; tries of an earlier one are cancelled. on_found gets
 * the body of LINKS_FOUND, once, and owns it. ZT_E_FORMAT: the body is malformed.
 */
typedef void (*zt_links_found)(void *ctx, json_t *found);
zt_err zt_links_try(struct zt_links *l, const void *body, size_t bytes,
                    zt_links_found on_found, void *ctx,
                    struct zt_fault *fault) ZT_MUST_CHECK;

/* Which network this process is in: equal only for processes that share one. */
#define ZT_LINKS_NETWORK 96
void zt_links_network(char out[ZT_LINKS_NETWORK]);

#endif
