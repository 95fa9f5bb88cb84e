#include "worker/engine/peers.h"

#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "store/rendezvous.h"
#include "store/vigil.h"
#include "worker/comm/comm_abort.h"

struct zt_peers {
    int fd; /* the shared memory of the collectives */
    struct zt_vigil *vigil;
};

/* An MPI launcher, or a daemon that speaks for one, carries the data. */
static bool is_for_mpi(const char *comm)
{
    static const char *const marks[] = {"PMI_FD", "PMI_RANK", "PMIX_RANK",
                                        "OMPI_COMM_WORLD_SIZE"};

    if (strcmp(comm, "auto") != 0)
        return strcmp(comm, "mpi") == 0;
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
        if (getenv(marks[i]))
            return true;
    return false;
}

static void rank_is_gone(void *ctx, int rank)
{
    zt_comm_abort_fd(((struct zt_peers *)ctx)->fd, rank);
}

static zt_err watch(struct zt_local_group *g, struct zt_peers **out,
                    struct zt_fault *fault)
{
    struct zt_peers *p = calloc(1, sizeof(*p));
    struct zt_vigil_config cfg = {g->conn, g->rank, g->num, rank_is_gone, p};
    zt_err rc;

    if (!p)
        return zt_fault_set(fault, ZT_E_NOMEM, "watching the other ranks: no memory");
    p->fd = g->fd;
    rc = zt_vigil_open(&cfg, &p->vigil, fault);
    if (rc)
        free(p);
    else
        *out = p;
    return rc;
}

static zt_err meet(struct zt_peers **out, int *fd, struct zt_fault *fault)
{
    struct zt_local_group group = {.fd = -1};
    struct zt_rendezvous *r = NULL;
    struct zt_place place;
    int64_t timeout_s = 300;
    zt_err rc = zt_env_int("ZLAUNCH_RENDEZVOUS_TIMEOUT", 1, 86400, &timeout_s, fault);

    if (!rc)
        rc = zt_place_read(&place, fault);
    if (!rc)
        rc = zt_rendezvous_open(&place, (double)timeout_s, &r, fault);
    if (!rc)
        rc = zt_rendezvous_local_memfd(r, &group, fault);
    if (!rc)
        rc = watch(&group, out, fault);
    *fd = group.fd;
    zt_local_group_release(&group);
    zt_rendezvous_close(r);
    return rc;
}

zt_err zt_peers_open(const struct zt_run *run, struct zt_peers **out, int *fd,
                     struct zt_fault *fault)
{
    int64_t given = -1;
    zt_err rc = zt_env_int("ZLAUNCH_SHM_FD", 0, 1 << 20, &given, fault);

    *out = NULL;
    *fd = (int)given;
    if (rc || given >= 0 || run->world == 1 || is_for_mpi(run->comm))
        return rc;
    return meet(out, fd, fault);
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
    free(p);
}
