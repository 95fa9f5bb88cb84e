/*
 * join.c -- opening, splitting and closing communicators, and their memory.
 *
 * Everything that can fail on one rank alone comes first; then the ranks exchange where
 * they are and what went wrong, so that none waits inside NCCL for one that has failed.
 */
#include "worker/comm/nccl/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STAGE_BYTES   ((size_t)32 << 20)
#define STAGE_ROW_MIN ((size_t)128 << 10)
#define RANKS_PER_ID  128 /* more ranks connect faster with several ids */

struct zt_nccl_region {
    struct zt_nccl_region *next;
    void *at;
    size_t bytes;
};

size_t zt_comm_device_bytes(int world)
{
    size_t rows = (size_t)world * STAGE_ROW_MIN;

    return world == 1 ? 0 : rows > STAGE_BYTES ? rows : STAGE_BYTES;
}

/* ---------------------------------------------------------------- closing */
/* Collective; the wait notices a peer that failed. */
static void leave_nccl(struct zt_nccl_family *f, struct zt_nccl_comm *comm)
{
    struct zt_fault fault;
    int e = f->nccl->finish(comm);

    if (e)
        f->nccl->abort(&comm, 1);
    else if (!zt_nccl_settle(f, comm, "close", &fault))
        f->nccl->close(comm);
}

/* Remove it from the watchdog's list. Returns what NCCL still has of it, or NULL. */
static struct zt_nccl_comm *unlist(struct zt_nccl_group *s)
{
    struct zt_nccl_family *f = s->family;
    struct zt_nccl_comm *comm;

    pthread_mutex_lock(&f->calls);
    for (struct zt_nccl_group **at = &f->groups; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    comm = s->comm;
    s->comm = NULL;
    pthread_mutex_unlock(&f->calls);
    return comm;
}

static void list(struct zt_nccl_group *s, struct zt_nccl_comm *comm)
{
    struct zt_nccl_family *f = s->family;

    pthread_mutex_lock(&f->calls);
    s->comm = comm;
    s->next = f->groups;
    f->groups = s;
    pthread_mutex_unlock(&f->calls);
}

static void close_family(struct zt_nccl_family *f)
{
    zt_nccl_watchdog_stop(f);
    if (f->stage)
        f->be->free(f->dev, f->stage, f->stage_bytes);
    for (size_t i = 0; i < ZT_NCCL_RING; i++)
        if (f->slot[i].event)
            f->be->event_close(f->dev, f->slot[i].event);
    if (f->main_reached)
        f->be->event_close(f->dev, f->main_reached);
    f->be->stream_close(f->dev, f->stream);
    sem_destroy(&f->wake);
    pthread_mutex_destroy(&f->lock);
    pthread_mutex_destroy(&f->calls);
    free(f);
}

void zt_nccl_close(void *self)
{
    struct zt_nccl_group *s = self;
    struct zt_nccl_family *f;
    struct zt_nccl_region *next;
    struct zt_nccl_comm *comm;

    if (!s)
        return;
    f = s->family;
    if (f->stream) { /* what was started; if that hangs the watchdog aborts it */
        zt_err rc = f->be->sync(f->dev, f->stream, NULL);

        (void)rc; /* zt_comm_wait() has reported it */
    }
    if (zt_nccl_is_broken(f, NULL))
        zt_nccl_watchdog_stop(f); /* it aborts all communicators at once */
    comm = unlist(s);
    if (comm)
        leave_nccl(f, comm);
    for (struct zt_nccl_region *r = s->regions; r; r = next) {
        next = r->next;
        f->be->free(f->dev, r->at, r->bytes);
        free(r);
    }
    if (s->is_group)
        zt_comm_close(s->host);
    else
        close_family(f);
    free(s);
}

/* ---------------------------------------------------------------- what one rank takes */
static zt_err open_events(struct zt_nccl_family *f, struct zt_fault *fault)
{
    zt_err rc = f->be->event_open(f->dev, &f->main_reached, fault);

    for (size_t i = 0; !rc && i < ZT_NCCL_RING; i++)
        rc = f->be->event_open(f->dev, &f->slot[i].event, fault);
    return rc;
}

static zt_err open_stage(struct zt_nccl_family *f, int world, struct zt_fault *fault)
{
    void *p = NULL;
    zt_err rc;

    f->stage_bytes = zt_comm_device_bytes(world);
    rc = f->stage_bytes ? f->be->alloc(f->dev, f->stage_bytes, &p, fault) : ZT_OK;
    f->stage = p;
    return rc;
}

static zt_err nccl_failed_at(const struct zt_nccl_family *f, const char *what, int e,
                             struct zt_fault *fault)
{
    char text[256];

    f->nccl->error_text(NULL, e, text, sizeof(text));
    return zt_fault_set(fault, ZT_E_SYSTEM, "comm: %s: %s: %s", f->nccl->name, what,
                        text);
}

/* The device is the thread's current one, since the backend has just used it. */
static zt_err open_nccl(struct zt_nccl_family *f, struct zt_nccl_placement *placement,
                        struct zt_fault *fault)
{
    int version = 0, e;
    zt_err rc = zt_nccl_load(&f->nccl, fault);

    if (rc)
        return rc;
    e = f->nccl->version(&version);
    if (e)
        return nccl_failed_at(f, "version", e, fault);
    e = f->nccl->gpu(placement->gpu);
    if (e)
        return nccl_failed_at(f, "which GPU", e, fault);
    placement->version = version;
    return zt_nccl_watchdog_start(f, fault);
}

static zt_err open_local(struct zt_nccl_family *f, int world,
                         struct zt_nccl_placement *placement, struct zt_fault *fault)
{
    zt_err rc = f->be->stream_open(f->dev, &f->stream, fault);

    if (!rc)
        f->native = f->be->stream_native(f->dev, f->stream);
    if (!rc)
        rc = open_events(f, fault);
    if (!rc)
        rc = open_stage(f, world, fault);
    if (!rc && world > 1)
        rc = open_nccl(f, placement, fault);
    return rc;
}

/* ---------------------------------------------------------------- the ids */
/* Broadcast the ids from the ranks that make them, each with a byte: did that fail? */
static zt_err exchange_ids(struct zt_nccl_family *f, unsigned char *ids, int num_ids,
                           struct zt_fault *fault)
{
    int rank = zt_comm_rank(f->host), world = zt_comm_world(f->host);
    zt_err rc = ZT_OK;

    for (int k = 0; !rc && k < num_ids; k++) {
        unsigned char id[ZT_UNIQUE_ID_BYTES + 1] = {0};
        int root = zt_unique_id_root(world, num_ids, k);

        if (rank == root)
            id[ZT_UNIQUE_ID_BYTES] = f->nccl->make_id(id) != 0;
        rc = zt_broadcast(f->host, id, sizeof(id), ZT_U8, root, fault);
        if (!rc && id[ZT_UNIQUE_ID_BYTES])
            rc =
                zt_fault_set(fault, ZT_E_SYSTEM,
                             "comm: %s on rank %d finds no network to meet the others on "
                             "(NCCL_SOCKET_IFNAME names one, NCCL_DEBUG=INFO tells more)",
                             f->nccl->name, root);
        memcpy(ids + (size_t)k * ZT_UNIQUE_ID_BYTES, id, ZT_UNIQUE_ID_BYTES);
    }
    return rc;
}

static zt_err connect_ranks(struct zt_nccl_group *s, struct zt_fault *fault)
{
    struct zt_nccl_family *f = s->family;
    int num_ids = zt_unique_id_count(s->world, RANKS_PER_ID), e;
    unsigned char *ids = calloc((size_t)num_ids, ZT_UNIQUE_ID_BYTES);
    struct zt_nccl_comm *comm = NULL;
    zt_err rc;

    if (!ids) {
        zt_fault_set(fault, ZT_E_SYSTEM, "comm: out of memory");
        return zt_nccl_break(f, fault); /* the others do not know */
    }
    rc = exchange_ids(f, ids, num_ids, fault);
    if (!rc) {
        e = f->nccl->open(s->world, s->rank, ids, num_ids, &comm);
        rc = e ? zt_nccl_error(f, NULL, "open", e, fault)
               : zt_nccl_settle(f, comm, "open", fault);
    }
    free(ids);
    if (!rc)
        list(s, comm);
    return rc;
}

/* ---------------------------------------------------------------- open */
static zt_err new_family(const struct zt_device_comm_config *cfg,
                         struct zt_nccl_group **out, struct zt_fault *fault)
{
    struct zt_nccl_group *s = calloc(1, sizeof(*s));
    struct zt_nccl_family *f = calloc(1, sizeof(*f));

    if (!s || !f) {
        free(s);
        free(f);
        return zt_fault_set(fault, ZT_E_NOMEM, "comm: out of memory");
    }
    f->be = cfg->backend;
    f->dev = cfg->device;
    f->host = cfg->host;
    f->ordered = cfg->ordered;
    f->timeout_s = cfg->timeout_s;
    pthread_mutex_init(&f->calls, NULL);
    pthread_mutex_init(&f->lock, NULL);
    sem_init(&f->wake, 0, 0);
    s->family = f;
    s->host = cfg->host;
    s->rank = zt_comm_rank(cfg->host);
    s->world = zt_comm_world(cfg->host);
    *out = s;
    return ZT_OK;
}

zt_err zt_nccl_open(const struct zt_device_comm_config *cfg, void **self,
                    struct zt_fault *fault)
{
    struct zt_nccl_group *s = NULL;
    struct zt_fault own = {0}, other = {0};
    struct zt_nccl_placement placement;
    zt_err rc = new_family(cfg, &s, &own), connected = ZT_OK;

    zt_nccl_placement_init(&placement, cfg);
    if (!rc)
        rc = open_local(s->family, s->world, &placement, &own);
    if (zt_comm_world(cfg->host) > 1) {
        placement.rc = rc;
        snprintf(placement.why, sizeof(placement.why), "%s", own.text);
        connected = zt_nccl_exchange_placements(cfg->host, &placement, &other);
        if (!rc && !connected)
            connected = connect_ranks(s, &other);
    }
    if (!rc && !connected) {
        *self = s;
        return ZT_OK;
    }
    if (fault)
        *fault = rc ? own : other;
    zt_nccl_close(s);
    return rc ? rc : connected;
}

/* ---------------------------------------------------------------- groups */
/* A group of one needs nothing of NCCL, but takes part in making the others. */
static zt_err split_nccl(struct zt_nccl_group *s, int color, int key,
                         struct zt_nccl_comm **out, struct zt_fault *fault)
{
    struct zt_nccl_family *f = s->family;
    zt_err rc = zt_nccl_begin(f, fault);

    f->child = NULL;
    if (!rc)
        rc = zt_nccl_end(s, "split", f->nccl->split(s->comm, color, key, &f->child),
                         fault);
    if (!rc && color >= 0)
        rc = zt_nccl_settle(f, f->child, "split", fault);
    *out = rc ? NULL : f->child;
    return rc;
}

zt_err zt_nccl_split(void *self, const int *members, int num_members, int my_index,
                     int group_id, void **group_self, struct zt_fault *fault)
{
    struct zt_nccl_group *s = self, *g = calloc(1, sizeof(*g));
    struct zt_nccl_comm *comm = NULL;
    struct zt_comm *host = NULL;
    zt_err rc;

    (void)members; /* host orders them by rank, too */
    rc = zt_comm_split(s->host, group_id, &host, fault);
    if (!rc && !g)
        rc = zt_fault_set(fault, ZT_E_SYSTEM, "comm: out of memory");
    if (!rc && s->world > 1)
        rc = split_nccl(s, num_members > 1 ? group_id : -1, my_index, &comm, fault);
    if (rc) {
        free(g);
        zt_comm_close(host);
        return rc == ZT_E_NOMEM ? rc : zt_nccl_break(s->family, fault);
    }
    g->family = s->family;
    g->host = host;
    g->rank = my_index;
    g->world = num_members;
    g->is_group = true;
    list(g, comm);
    *group_self = g;
    return ZT_OK;
}

/* ---------------------------------------------------------------- memory */
/* Whether all ranks have allocated it; else nobody keeps it. */
static zt_err agree(struct zt_nccl_group *s, zt_err mine, size_t bytes,
                    struct zt_fault *fault)
{
    int32_t own = mine, *all = calloc((size_t)s->world, sizeof(*all));
    struct zt_fault other;
    zt_err rc;

    if (!all)
        return zt_fault_set(fault, ZT_E_SYSTEM, "comm: out of memory");
    rc = zt_all_gather(s->host, &own, all, 1, ZT_I32, &other);
    for (int r = 0; !rc && r < s->world; r++)
        if (all[r])
            rc = zt_fault_set(&other, (zt_err)all[r],
                              "comm: rank %d has no device memory for %zu bytes", r,
                              bytes);
    free(all);
    if (rc && !mine && fault)
        *fault = other;
    return rc ? rc : mine;
}

zt_err zt_nccl_alloc(void *self, size_t bytes, void **out, struct zt_fault *fault)
{
    struct zt_nccl_group *s = self;
    struct zt_nccl_family *f = s->family;
    struct zt_nccl_region *r = calloc(1, sizeof(*r));
    zt_err rc;

    rc = r ? f->be->alloc(f->dev, bytes ? bytes : 1, &r->at, fault)
           : zt_fault_set(fault, ZT_E_NOMEM, "comm: out of memory");
    rc = agree(s, rc, bytes, fault);
    if (rc || !r) {
        if (r && r->at)
            f->be->free(f->dev, r->at, bytes ? bytes : 1);
        free(r);
        return rc == ZT_E_NOMEM ? rc : zt_nccl_break(f, fault);
    }
    r->bytes = bytes ? bytes : 1;
    r->next = s->regions;
    s->regions = r;
    *out = r->at;
    return ZT_OK;
}
