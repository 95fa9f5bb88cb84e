#include "worker/engine/peers.h"

#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "store/rendezvous.h"

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

static zt_err meet(int *fd, struct zt_fault *fault)
{
    struct zt_rendezvous *r = NULL;
    struct zt_place place;
    int64_t timeout_s = 300;
    zt_err rc = zt_env_int("ZLAUNCH_RENDEZVOUS_TIMEOUT", 1, 86400, &timeout_s, fault);

    if (!rc)
        rc = zt_place_read(&place, fault);
    if (!rc)
        rc = zt_rendezvous_open(&place, (double)timeout_s, &r, fault);
    if (!rc)
        rc = zt_rendezvous_local_memfd(r, fd, fault);
    zt_rendezvous_close(r);
    return rc;
}

zt_err zt_peers_shm_fd(const struct zt_run *run, int *fd, struct zt_fault *fault)
{
    int64_t given = -1;
    zt_err rc = zt_env_int("ZLAUNCH_SHM_FD", 0, 1 << 20, &given, fault);

    *fd = (int)given;
    if (rc || given >= 0 || run->world == 1 || is_for_mpi(run->comm))
        return rc;
    return meet(fd, fault);
}
