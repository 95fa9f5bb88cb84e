#include "worker/engine/peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/message/event.h"
#include "common/message/phase.h"
#include "store/rendezvous.h"
#include "store/native/liveness.h"
#include "worker/comm/shm/abort.h"
#include "worker/comm/mesh/transport.h"

struct zt_peers {
    int fd; /* the shared memory of the collectives */
    struct zt_liveness *liveness;
    struct zt_rendezvous *rendezvous; /* until the ranks have met through it */
    struct zt_launch_env env;
    struct zt_comm_bootstrap bootstrap;
};

static void rank_is_gone(void *ctx, int rank)
{
    zt_comm_abort_fd(((struct zt_peers *)ctx)->fd, rank);
}

/* The ranks are on one machine: share memory, and watch each other. */
static zt_err share_memory(struct zt_peers *p, struct zt_fault *fault)
{
    struct zt_shared_memfd g = {.fd = -1};
    zt_err rc = zt_rendezvous_share_memfd(p->rendezvous, &g, fault);

    if (!rc) {
        struct zt_liveness_config cfg = {g.conn, g.rank, g.num, rank_is_gone, p};

        p->fd = g.fd;
        rc = zt_liveness_open(&cfg, &p->liveness, fault);
    }
    zt_shared_memfd_release(&g);
    return rc;
}

/* Ranks that have not come may never come: where we wait, and until when. */
static void say_wait(const struct zt_launch_env *env, double timeout, const char *setting)
{
    char phase[ZT_PHASE_TEXT];

    snprintf(phase, sizeof(phase),
             "meeting the other ranks, for at most %g s (%s), at %s:%d", timeout, setting,
             env->master_addr, env->master_port);
    zt_event_phase(phase);
}

static zt_err enter(struct zt_peers *p, double timeout, struct zt_fault *fault)
{
    const char *setting = "--ddp_timeout";
    const struct zt_transport *mpi;
    int64_t timeout_s = 0; /* 0: nothing is said of this wait alone */
    zt_err rc = zt_env_int("ZLAUNCH_RENDEZVOUS_TIMEOUT", 1, 86400, &timeout_s, fault);

    if (!rc)
        rc = zt_launch_env_read(&p->env, fault);
    if (!rc && p->env.kind == ZT_LAUNCH_MPI && !*p->env.master_addr)
        rc = zt_transport_load_mpi(&mpi,
                                   fault); /* what the launcher counts on is missing */
    if (timeout_s) {
        timeout = (double)timeout_s;
        setting = "ZLAUNCH_RENDEZVOUS_TIMEOUT";
    }
    if (!rc)
        say_wait(&p->env, timeout, setting);
    return rc ? rc : zt_rendezvous_open(&p->env, timeout, &p->rendezvous, fault);
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
    struct zt_blob *blob = calloc((size_t)p->env.world, sizeof(*blob));
    zt_err rc =
        blob && p->rendezvous
            ? zt_rendezvous_gather(p->rendezvous, "comm", mine, bytes, blob, fault)
            : zt_fault_set(fault, ZT_E_NOMEM, "rendezvous: no memory");

    for (int r = 0; !rc && r < p->env.world; r++) {
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

/* By another --comm ranks would wait for each other in different places. */
static zt_err check_same_engine(struct zt_peers *p, const char *engine,
                                struct zt_fault *fault)
{
    struct zt_blob *all = calloc((size_t)p->env.world, sizeof(*all));
    zt_err rc = all ? zt_rendezvous_gather(p->rendezvous, "engine", engine,
                                           strlen(engine), all, fault)
                    : zt_fault_set(fault, ZT_E_NOMEM, "rendezvous: no memory");

    for (int r = 1; !rc && r < p->env.world; r++)
        if (all[r].bytes != all[0].bytes ||
            memcmp(all[r].data, all[0].data, all[0].bytes) != 0)
            rc =
                zt_fault_set(fault, ZT_E_PEER,
                             "rank %d differs from rank 0: it has --comm %.*s where rank "
                             "0 has --comm %.*s; start all ranks with the same",
                             r, (int)all[r].bytes, (const char *)all[r].data,
                             (int)all[0].bytes, (const char *)all[0].data);
    if (all)
        free(all[0].data);
    free(all);
    return rc;
}

/*
 * Get what the engine lacks. Where it takes either, ranks of zlaunch that come here are
 * on several nodes; others exchange where they are, and all come to the same end.
 */
static zt_err provide(struct zt_peers *p, zt_comm_needs needs, const struct zt_run *run,
                      struct zt_fault *fault)
{
    zt_err rc = enter(p, run->ddp_timeout, fault);
    bool choose = needs == ZT_COMM_NEEDS_EITHER;
    bool connect =
        needs == ZT_COMM_NEEDS_BOOTSTRAP || (choose && p->env.kind == ZT_LAUNCH_ZLAUNCH);

    if (!rc && p->env.kind != ZT_LAUNCH_ZLAUNCH) /* which gives all the same options */
        rc = check_same_engine(p, run->comm, fault);
    if (!rc && !connect) {
        rc = share_memory(p, fault);
        connect = choose && rc == ZT_E_UNSUPPORTED; /* on several machines */
        rc = connect ? ZT_OK : rc;
    }
    if (!rc && connect)
        p->bootstrap = (struct zt_comm_bootstrap){
            .all_gather = gather, .ctx = p, .host = p->env.master_addr};
    else
        end_rendezvous(p);
    return rc;
}

zt_err zt_peers_open(const struct zt_run *run, struct zt_peers **out, int *fd,
                     struct zt_fault *fault)
{
    struct zt_comm_config cfg = {.engine = run->comm, .world = run->world};
    zt_comm_needs needs;
    int64_t given = -1;
    struct zt_peers *p;
    zt_err rc = zt_env_int("ZLAUNCH_SHM_FD", 0, 1 << 20, &given, fault);

    *out = NULL;
    cfg.shm_fd = *fd = (int)given;
    needs = zt_comm_missing(&cfg);
    if (rc || run->world == 1 || needs == ZT_COMM_NEEDS_NOTHING)
        return rc;
    p = calloc(1, sizeof(*p));
    if (!p)
        return zt_fault_set(fault, ZT_E_NOMEM, "meeting the other ranks: no memory");
    p->fd = *fd;
    rc = provide(p, needs, run, fault);
    if (rc) {
        zt_peers_close(p);
        return rc;
    }
    *fd = p->fd;
    *out = p;
    return ZT_OK;
}

const struct zt_comm_bootstrap *zt_peers_bootstrap(const struct zt_peers *p)
{
    return p && p->bootstrap.all_gather ? &p->bootstrap : NULL;
}

void zt_peers_leave(struct zt_peers *p)
{
    if (p)
        zt_liveness_leave(p->liveness);
}

void zt_peers_close(struct zt_peers *p)
{
    if (!p)
        return;
    zt_liveness_close(p->liveness);
    end_rendezvous(p);
    free(p);
}
