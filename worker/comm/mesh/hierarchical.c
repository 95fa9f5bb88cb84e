/* hierarchical.c -- all_gather in two steps, between nodes and inside them. */
#include "worker/comm/mesh/engine_private.h"

#include "worker/comm/reduce.h"

/* One all_gather, and where this rank is among the nodes. */
struct gather {
    struct mesh_engine *s;
    const struct zt_comm_call *call;
    size_t bytes; /* of a rank's piece */
    int nodes, node, local_rank;
};

static int rank_at(const struct gather *g, int node, int local_rank)
{
    return node * g->s->node_ranks + local_rank;
}

static char *piece(const struct gather *g, int rank, size_t at)
{
    return (char *)g->call->recv + (size_t)rank * g->bytes + at;
}

/* Exchange a window with the ranks of the same local rank on the other nodes. */
static void post_between(const struct gather *g, size_t turn, size_t at, size_t n)
{
    for (int i = 1; i < g->nodes; i++) {
        int r = rank_at(g, (g->node + i) % g->nodes, g->local_rank);

        zt_mesh_recv(g->s->mesh, BATCH_IN(turn), piece(g, r, at), n, r);
    }
    for (int i = 1; i < g->nodes; i++)
        zt_mesh_send(g->s->mesh, BATCH_IN(turn), (const char *)g->call->send + at, n,
                     rank_at(g, (g->node + i) % g->nodes, g->local_rank));
}

/* Share what the ranks of this node have received from node `from`. */
static zt_err share_inside(const struct gather *g, int from, size_t turn, size_t at,
                           size_t n, struct zt_fault *fault)
{
    const char *mine = from == g->node ? (const char *)g->call->send + at
                                       : piece(g, rank_at(g, from, g->local_rank), at);

    for (int i = 1; i < g->s->node_ranks; i++) {
        int local_rank = (g->local_rank + i) % g->s->node_ranks;

        zt_mesh_recv(g->s->mesh, BATCH_OUT(turn),
                     piece(g, rank_at(g, from, local_rank), at), n,
                     rank_at(g, g->node, local_rank));
    }
    for (int i = 1; i < g->s->node_ranks; i++)
        zt_mesh_send(g->s->mesh, BATCH_OUT(turn), mine, n,
                     rank_at(g, g->node, (g->local_rank + i) % g->s->node_ranks));
    return zt_mesh_wait(g->s->mesh, BATCH_OUT(turn), fault);
}

zt_err zt_mesh_hierarchical_gather(struct mesh_engine *s, const struct zt_comm_call *call,
                                   size_t bytes, struct zt_fault *fault)
{
    struct gather g = {.s = s,
                       .call = call,
                       .bytes = bytes,
                       .nodes = s->world / s->node_ranks,
                       .node = s->rank / s->node_ranks,
                       .local_rank = s->rank % s->node_ranks};
    size_t per = ZT_MESH_MOVE_BYTES, next;
    zt_err rc = ZT_OK;

    post_between(&g, 0, 0, bytes < per ? bytes : per);
    zt_comm_copy(piece(&g, s->rank, 0), call->send, bytes, false);
    for (size_t turn = 0, at = 0; !rc && at < bytes; turn++, at = next) {
        size_t n = bytes - at < per ? bytes - at : per;

        next = at + n;
        rc = share_inside(&g, g.node, turn, at, n, fault);
        if (!rc)
            rc = zt_mesh_wait(s->mesh, BATCH_IN(turn), fault);
        if (!rc && next < bytes)
            post_between(&g, turn + 1, next, bytes - next < per ? bytes - next : per);
        for (int i = 1; !rc && i < g.nodes; i++)
            rc = share_inside(&g, (g.node + i) % g.nodes, turn, at, n, fault);
    }
    return rc;
}
