#include "worker/engine/peers.h"

#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "store/rendezvous.h"
#include "store/vigil.h"
#include "worker/comm/comm_abort.h"
#include "worker/comm/wire.h"

struct zt_peers {
    int fd; /* the shared memory of the collectives */
    struct zt_vigil *vigil;
    struct zt_rendezvous *rendezvous; /* until the ranks have met through it */
    struct zt_place place;
    struct zt_comm_meeting meeting;
};

static void rank_is_gone(void *ctx, int rank)
{
    zt_comm_abort_fd(((struct zt_peers *)ctx)->fd, rank);
}

/* The ranks are on one machine: share memory, and watch each other. */
static zt_err share_memory(struct zt_peers *p, struct zt_fault *fault)
{
    struct zt_local_group g = {.fd = -1};
    zt_err rc = zt_rendezvous_local_memfd(p->rendezvous, &g, fault);

    if (!rc) {
        struct zt_vigil_config cfg = {g.conn, g.rank, g.num, rank_is_gone, p};

        p->fd = g.fd;
        rc = zt_vigil_open(&cfg, &p->vigil, fault);
    }
    zt_local_group_release(&g);
    return rc;
}

static zt_err enter(struct zt_peers *p, struct zt_fault *fault)
{
    const struct zt_wire *mpi;
    int64_t timeout_s = 300;
    zt_err rc = zt_env_int("ZLAUNCH_RENDEZVOUS_TIMEOUT", 1, 86400, &timeout_s, fault);

    if (!rc)
        rc = zt_place_read(&p->place, fault);
    if (!rc && p->place.kind == ZT_PLACE_MPI && !*p->place.master_addr)
        rc = zt_wire_load(&mpi, fault); /* what the launcher counts on is missing */
    if (!rc)
        rc = zt_rendezvous_open(&p->place, (double)timeout_s, &p->rendezvous, fault);
    return rc;
}

static void end_rendezvous(struct zt_peers *p)
{
    zt_rendezvous_close(p->rendezvous);
    p->rendezvous = NULL;
}

/* What a rank gives up to all others, after which they need the rendezvous no more. */
static zt_err gather(void *ctx, const void *mine, size_t bytes, void *all,
                     struct zt_fault *fault)
{
    struct zt_peers *p = ctx;
    struct zt_blob *blob = calloc((size_t)p->place.world, sizeof(*blob));
    zt_err rc =
        blob && p->rendezvous
            ? zt_rendezvous_gather(p->rendezvous, "comm", mine, bytes, blob, fault)
            : zt_fault_set(fault, ZT_E_NOMEM, "rendezvous: no memory");

    for (int r = 0; !rc && r < p->place.world; r++) {
        if (blob[r].bytes != bytes)
            rc = zt_fault_set(fault, ZT_E_PEER, "rank %d is of another version", r);
        else
            memcpy((char *)all + (size_t)r * bytes, blob[r].data, bytes);
    }
    if (blob)
        free(blob[0].data);
    free(blob);
    end_rendezvous(p);
    return rc;
}

/*
 * Memory in common, or the way to meet. Left to choose, ranks of zlaunch that come here
 * are on several nodes; others say where they are, and all hear the same.
 */
static zt_err meet(struct zt_peers *p, const char *comm, struct zt_fault *fault)
{
    zt_err rc = enter(p, fault);
    bool choose = strcmp(comm, "auto") == 0;
    bool connect =
        strcmp(comm, "tcp") == 0 || (choose && p->place.kind == ZT_PLACE_ZLAUNCH);

    if (!rc && !connect) {
        rc = share_memory(p, fault);
        connect = choose && rc == ZT_E_UNSUPPORTED; /* on several machines */
        rc = connect ? ZT_OK : rc;
    }
    if (!rc && connect)
        p->meeting = (struct zt_comm_meeting){gather, p, p->place.master_addr};
    else
        end_rendezvous(p);
    return rc;
}

/* Do ranks that were given `fd` (-1: no memory) have to meet? Not under MPI. */
static bool has_to_meet(const struct zt_run *run, int fd)
{
    if (run->world == 1 || strcmp(run->comm, "mpi") == 0)
        return false;
    if (strcmp(run->comm, "tcp") == 0)
        return true;
    return fd < 0 && (strcmp(run->comm, "auto") != 0 || !zt_wire_is_mpi());
}

zt_err zt_peers_open(const struct zt_run *run, struct zt_peers **out, int *fd,
                     struct zt_fault *fault)
{
    int64_t given = -1;
    struct zt_peers *p;
    zt_err rc = zt_env_int("ZLAUNCH_SHM_FD", 0, 1 << 20, &given, fault);

    *out = NULL;
    *fd = (int)given;
    if (rc || !has_to_meet(run, *fd))
        return rc;
    p = calloc(1, sizeof(*p));
    if (!p)
        return zt_fault_set(fault, ZT_E_NOMEM, "meeting the other ranks: no memory");
    p->fd = *fd;
    rc = meet(p, run->comm, fault);
    if (rc) {
        zt_peers_close(p);
        return rc;
    }
    *fd = p->fd;
    *out = p;
    return ZT_OK;
}

const struct zt_comm_meeting *zt_peers_meeting(const struct zt_peers *p)
{
    return p && p->meeting.gather ? &p->meeting : NULL;
}

void zt_peers_leave(struct zt_peers *p)
{
    if (p)
        zt_vigil_leave(p->vigil);
}

void zt_peers_close(struct zt_peers *p)
{
    if (!p)
        return;
    zt_vigil_close(p->vigil);
    end_rendezvous(p);
    free(p);
}
