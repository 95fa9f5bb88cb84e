/* mesh_nodes.c -- all_gather in two steps, between nodes and inside them. */
#include "worker/comm/mesh_engine_private.h"

#include "worker/comm/fold.h"

/* One gather: where ranks stand, and the window of every piece that is moved in a turn.
 */
struct trip {
    struct mesh_engine *s;
    const struct zt_comm_call *call;
    size_t bytes; /* of a rank's piece */
    int nodes, node, place;
};

static int rank_at(const struct trip *t, int node, int place)
{
    return node * t->s->node_ranks + place;
}

static char *piece(const struct trip *t, int rank, size_t at)
{
    return (char *)t->call->recv + (size_t)rank * t->bytes + at;
}

/* My window to the ranks of my place on the other nodes, theirs to me. */
static void post_between(const struct trip *t, size_t turn, size_t at, size_t n)
{
    for (int i = 1; i < t->nodes; i++) {
        int r = rank_at(t, (t->node + i) % t->nodes, t->place);

        zt_mesh_recv(t->s->mesh, BATCH_IN(turn), piece(t, r, at), n, r);
    }
    for (int i = 1; i < t->nodes; i++)
        zt_mesh_send(t->s->mesh, BATCH_IN(turn), (const char *)t->call->send + at, n,
                     rank_at(t, (t->node + i) % t->nodes, t->place));
}

/* What the ranks of my node have of node `from`, among us. */
static zt_err share_inside(const struct trip *t, int from, size_t turn, size_t at,
                           size_t n, struct zt_fault *fault)
{
    const char *mine = from == t->node ? (const char *)t->call->send + at
                                       : piece(t, rank_at(t, from, t->place), at);

    for (int i = 1; i < t->s->node_ranks; i++) {
        int place = (t->place + i) % t->s->node_ranks;

        zt_mesh_recv(t->s->mesh, BATCH_OUT(turn), piece(t, rank_at(t, from, place), at),
                     n, rank_at(t, t->node, place));
    }
    for (int i = 1; i < t->s->node_ranks; i++)
        zt_mesh_send(t->s->mesh, BATCH_OUT(turn), mine, n,
                     rank_at(t, t->node, (t->place + i) % t->s->node_ranks));
    return zt_mesh_wait(t->s->mesh, BATCH_OUT(turn), fault);
}

zt_err zt_mesh_gather_nodes(struct mesh_engine *s, const struct zt_comm_call *call,
                            size_t bytes, struct zt_fault *fault)
{
    struct trip t = {.s = s,
                     .call = call,
                     .bytes = bytes,
                     .nodes = s->world / s->node_ranks,
                     .node = s->rank / s->node_ranks,
                     .place = s->rank % s->node_ranks};
    size_t per = ZT_MESH_MOVE_BYTES, next;
    zt_err rc = ZT_OK;

    post_between(&t, 0, 0, bytes < per ? bytes : per);
    zt_comm_copy(piece(&t, s->rank, 0), call->send, bytes, false);
    for (size_t turn = 0, at = 0; !rc && at < bytes; turn++, at = next) {
        size_t n = bytes - at < per ? bytes - at : per;

        next = at + n;
        rc = share_inside(&t, t.node, turn, at, n, fault);
        if (!rc)
            rc = zt_mesh_wait(s->mesh, BATCH_IN(turn), fault);
        if (!rc && next < bytes)
            post_between(&t, turn + 1, next, bytes - next < per ? bytes - next : per);
        for (int i = 1; !rc && i < t.nodes; i++)
            rc = share_inside(&t, (t.node + i) % t.nodes, turn, at, n, fault);
    }
    return rc;
}
