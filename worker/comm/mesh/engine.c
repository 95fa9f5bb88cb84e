/*
 * engine.c -- the engines of ranks that exchange messages, over MPI or TCP.
 *
 * A transport moves bytes and computes nothing: every sum is taken in rank order as in
 * shm, so the results have the same bits. Each call begins with a header from every rank
 * to every rank (mesh.h). A short message travels with the header, and the call is done;
 * for long ones see collectives.c.
 *
 * The staging buffer has a constant size, whatever the call.
 */
#include "worker/comm/mesh/engine_private.h"

#include "worker/comm/small_message.h"
#include "worker/comm/mesh/tcp/transport.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define STAGE_BYTES ((size_t)4 << 20)  /* both steps together, of a world of 64 or less */
#define STAGE_MIN   ((size_t)32 << 10) /* a piece in it */

static zt_err engine_run(void *self, const struct zt_comm_call *call,
                         struct zt_fault *fault)
{
    struct mesh_engine *s = self;
    bool each = call->op == ZT_COMM_REDUCE_SCATTER || call->op == ZT_COMM_ALL_TO_ALL;
    size_t elem =
        call->op == ZT_COMM_SUM_F64 ? sizeof(double) : zt_dtype_bytes(call->dtype);
    size_t bytes = call->op == ZT_COMM_BARRIER ? 0 : call->count * elem;
    struct zt_mesh_small small = {call->send, bytes, each ? bytes : 0};
    bool is_small = bytes <= ZT_MESH_SMALL_BYTES;
    bool sends = call->op != ZT_COMM_BROADCAST || s->rank == call->root;
    zt_err rc = zt_mesh_begin(s->mesh, call, 0, is_small && sends ? &small : NULL, fault);

    if (rc)
        return rc;
    if (!is_small)
        return zt_mesh_run_long(s, call, bytes, fault);
    for (int r = 0; r < s->world; r++) /* all payloads came with the headers */
        s->src[r] = zt_mesh_payload(s->mesh, r);
    zt_comm_finish_small(call, s->rank, s->world, s->src, bytes);
    return ZT_OK;
}

/* NULL: no memory. */
static struct mesh_region *map_region(size_t bytes)
{
    struct mesh_region *r = malloc(sizeof(*r));

    if (!r)
        return NULL;
    r->bytes = bytes ? bytes : 1;
    r->at =
        mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r->at != MAP_FAILED)
        return r;
    free(r);
    return NULL;
}

static void unmap_region(struct mesh_region *r)
{
    if (r)
        munmap(r->at, r->bytes);
    free(r);
}

static zt_err engine_alloc(void *self, size_t bytes, bool shared, void **out,
                           struct zt_fault *fault)
{
    struct mesh_engine *s = self;
    struct zt_comm_call call = {
        .op = ZT_COMM_ALLOC, .dtype = ZT_U8, .count = bytes, .root = shared};
    struct mesh_region *r;
    zt_err rc;

    if (shared)
        return zt_fault_set(fault, ZT_E_UNSUPPORTED,
                            "comm: ranks that talk by %s have no memory in common",
                            s->mesh->transport->name);
    r = map_region(bytes);
    rc = zt_mesh_begin(s->mesh, &call, r ? 0 : ZT_MESH_NO_MEMORY, NULL, fault);
    for (int i = 0; !rc && i < s->world; i++)
        if (zt_mesh_header(s->mesh, i)->flags & ZT_MESH_NO_MEMORY)
            rc = zt_fault_set(fault, ZT_E_NOMEM,
                              "comm: rank %d has no memory for %zu bytes",
                              s->mesh->member[i], bytes);
    if (rc) {
        unmap_region(r);
        return rc;
    }
    r->next = s->regions;
    s->regions = r;
    *out = r->at;
    return ZT_OK;
}

static void engine_close(void *self)
{
    struct mesh_engine *s = self;
    struct mesh_region *next;

    if (!s)
        return;
    zt_mesh_close(s->mesh);
    for (struct mesh_region *r = s->regions; r; r = next) {
        next = r->next;
        unmap_region(r);
    }
    free(s->stage);
    free(s->src);
    free(s);
}

/* All but the mesh; NULL: no memory. */
static struct mesh_engine *new_engine(int rank, int world)
{
    struct mesh_engine *s = calloc(1, sizeof(*s));
    size_t per = STAGE_BYTES / 2 / (size_t)world / 4096 * 4096;

    if (!s)
        return NULL;
    s->rank = rank;
    s->world = world;
    s->piece_bytes = per > STAGE_MIN ? per : STAGE_MIN;
    s->src = calloc((size_t)world, sizeof(*s->src));
    s->stage = aligned_alloc(4096, 2 * (size_t)world * s->piece_bytes);
    if (s->src && s->stage)
        return s;
    engine_close(s);
    return NULL;
}

/* Two levels only where all ranks know of the same, and there are several nodes. */
static zt_err agree_on_nodes(struct mesh_engine *s, int node_ranks,
                             struct zt_fault *fault)
{
    int32_t mine = node_ranks, *all = calloc((size_t)s->world, sizeof(*all));
    struct zt_comm_call call = {
        .op = ZT_COMM_ALL_GATHER, .dtype = ZT_I32, .count = 1, .scale = 1, .send = &mine};
    bool same = mine > 1 && s->world > mine && s->world % mine == 0;
    zt_err rc;

    if (!all)
        return zt_fault_set(fault, ZT_E_NOMEM, "comm: out of memory");
    call.recv = all;
    rc = engine_run(s, &call, fault);
    for (int r = 0; r < s->world; r++)
        same = same && all[r] == mine;
    s->node_ranks = !rc && same ? mine : 0;
    free(all);
    return rc;
}

static zt_err engine_open(const struct zt_comm_config *cfg,
                          const struct zt_transport *transport, void **self,
                          struct zt_fault *fault)
{
    struct mesh_engine *s = new_engine(cfg->rank, cfg->world);
    zt_err rc;

    if (!s)
        return zt_fault_set(fault, ZT_E_NOMEM, "comm: out of memory");
    rc = zt_mesh_open(cfg, transport, &s->mesh, fault);
    if (!rc)
        rc = agree_on_nodes(s, cfg->node_ranks, fault);
    if (rc) {
        engine_close(s);
        return rc;
    }
    *self = s;
    return ZT_OK;
}

static zt_err engine_split(void *self, const int *members, int num_members, int my_index,
                           int group_id, void **group_self, struct zt_fault *fault)
{
    struct mesh_engine *s = self, *g = new_engine(my_index, num_members);
    struct zt_mesh *mesh = NULL;
    zt_err rc = zt_mesh_split(s->mesh, members, num_members, my_index, !g, &mesh, fault);

    (void)group_id; /* groups of a split have no rank in common, and need no number */
    if (rc) {
        engine_close(g);
        return rc;
    }
    g->mesh = mesh;
    *group_self = g;
    return ZT_OK;
}

static void engine_abort(void *self, int rank)
{
    struct mesh_engine *s = self;

    zt_mesh_abort(s->mesh, rank);
}

static bool engine_failed(const void *self, struct zt_fault *fault)
{
    const struct mesh_engine *s = self;

    return zt_mesh_failed(s->mesh, fault);
}

static zt_err mpi_open(const struct zt_comm_config *cfg, void **self,
                       struct zt_fault *fault)
{
    const struct zt_transport *transport = NULL;
    zt_err rc = zt_transport_load_mpi(&transport, fault);

    return rc ? rc : engine_open(cfg, transport, self, fault);
}

static zt_err tcp_open(const struct zt_comm_config *cfg, void **self,
                       struct zt_fault *fault)
{
    const struct zt_transport *transport = NULL;
    zt_err rc = zt_tcp_transport(cfg, &transport, fault);

    return rc ? rc : engine_open(cfg, transport, self, fault);
}

static bool mpi_is_default(const struct zt_comm_config *cfg)
{
    (void)cfg;
    return zt_transport_prefers_mpi();
}

const struct zt_comm_engine zt_comm_mpi = {
    .ops = {.close = engine_close,
            .split = engine_split,
            .abort = engine_abort,
            .failed = engine_failed},
    .name = "mpi",
    .can_share = false,
    .needs = ZT_COMM_NEEDS_NOTHING,
    .is_default = mpi_is_default,
    .open = mpi_open,
    .alloc = engine_alloc,
    .run = engine_run,
};

static bool tcp_is_default(const struct zt_comm_config *cfg)
{
    return cfg->bootstrap != NULL;
}

const struct zt_comm_engine zt_comm_tcp = {
    .ops = {.close = engine_close,
            .split = engine_split,
            .abort = engine_abort,
            .failed = engine_failed},
    .name = "tcp",
    .can_share = false,
    .needs = ZT_COMM_NEEDS_BOOTSTRAP,
    .is_default = tcp_is_default,
    .open = tcp_open,
    .alloc = engine_alloc,
    .run = engine_run,
};
