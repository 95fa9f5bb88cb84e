/*
 * rendezvous.h -- how ranks that were not started by zlaunch find each other.
 *
 * Rank 0 of a job with MASTER_ADDR and MASTER_PORT serves a store there (server.h); under
 * torchrun all ranks are clients of the agent's TCPStore. Every gather goes through rank
 * 0. Keys of an earlier attempt of the job are never read: our own store ends with rank
 * 0, and in the agent's store all keys lie below a generation that rank 0 draws and
 * confirms to each rank together with a nonce of that rank.
 *
 * The secret of our own store comes from ZLAUNCH_SECRET_FD or ZLAUNCH_SECRET_FILE. With
 * neither the ranks make one from their environment, which protects from accidents only;
 * rank 0 then warns, unless MASTER_ADDR is this machine alone.
 *
 * Failure:   ZT_E_PEER naming who is missing; ZT_E_LOST: a rank, or the store, cannot be reached.
 * Threads:   one at a time.
 */
#ifndef STORE_RENDEZVOUS_H
#define STORE_RENDEZVOUS_H

#include "common/unique_id.h"
#include "store/launch_env.h"

struct zt_rendezvous;

/* Collective over all ranks; env->world is above one. */
zt_err zt_rendezvous_open(const struct zt_launch_env *env, double timeout_s,
                          struct zt_rendezvous **out,
                          struct zt_fault *fault) ZT_MUST_CHECK;
/* Rank 0's store stays until the others have left it, a few seconds at most. NULL: fine.
 */
void zt_rendezvous_close(struct zt_rendezvous *r);

struct zt_blob {
    uint8_t *data;
    size_t bytes;
};

/*
 * Collective: `all` gets what every rank gave, (world) blobs that lie in one allocation;
 * free(all[0].data) frees them. `name` is one use of this rendezvous.
 */
zt_err zt_rendezvous_gather(struct zt_rendezvous *r, const char *name, const void *mine,
                            size_t bytes, struct zt_blob *all,
                            struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * Collective: num_ids opaque ids for a communicator called `name`, made by as many ranks
 * (`make` is called on those, returns 0 on success), read by all.
 */
zt_err zt_rendezvous_unique_ids(struct zt_rendezvous *r, const char *name, int num_ids,
                                int (*make)(void *ctx, uint8_t id[ZT_UNIQUE_ID_BYTES]),
                                void *ctx, uint8_t (*ids)[ZT_UNIQUE_ID_BYTES],
                                struct zt_fault *fault) ZT_MUST_CHECK;

/* One memory file for all ranks, and connections between them (native/liveness.h). */
struct zt_shared_memfd {
    int fd;    /* the file, close-on-exec */
    int *conn; /* (num) rank 0: to each of the others; the others: to rank 0 */
    int *rank; /* (num) who is there */
    int num;
};

/*
 * Collective. ZT_E_UNSUPPORTED naming the hosts when the ranks are on several machines.
 * zt_shared_memfd_release() frees the arrays; descriptors stay the caller's.
 */
zt_err zt_rendezvous_share_memfd(struct zt_rendezvous *r, struct zt_shared_memfd *out,
                                 struct zt_fault *fault) ZT_MUST_CHECK;
void zt_shared_memfd_release(struct zt_shared_memfd *g);

#endif
