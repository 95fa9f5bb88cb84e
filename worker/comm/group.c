/* group.c -- groups of a communicator's ranks. */
#include "worker/comm/private.h"

#include <stdlib.h>

/* What a split makes of the colors: this rank's group, and its place there. */
struct grouping {
    int *members; /* (num_members) ranks of the parent, in order */
    int num_members, my_index, group_id;
};

static void group_by_color(const int32_t *colors, int world, int rank, struct grouping *g)
{
    g->num_members = g->my_index = g->group_id = 0;
    for (int r = 0; r < world; r++) {
        if (colors[r] != colors[rank])
            continue;
        if (r == rank)
            g->my_index = g->num_members;
        g->members[g->num_members++] = r;
    }
    /* groups are numbered in the order of their first members */
    for (int r = 0; r < g->members[0]; r++) {
        int q = 0;

        while (colors[q] != colors[r])
            q++;
        g->group_id += q == r;
    }
}

/* All-gather the colors; for a communicator on a device on its host's. */
static zt_err exchange_colors(struct zt_comm *c, int32_t color, int32_t *colors,
                              struct zt_fault *fault)
{
    struct zt_comm *host = zt_comm_host(c);
    struct zt_comm_call call = {.op = ZT_COMM_ALL_GATHER,
                                .dtype = ZT_I32,
                                .scale = 1,
                                .count = 1,
                                .send = &color,
                                .recv = colors};

    if (host != c)
        return zt_all_gather(host, &color, colors, 1, ZT_I32, fault);
    zt_comm_drain(c);
    return zt_comm_run_now(c, &call) ? zt_comm_dead_error(c, fault) : ZT_OK;
}

static zt_err split(struct zt_comm *c, const struct grouping *g, struct zt_comm **out,
                    struct zt_fault *fault)
{
    struct zt_comm *group = zt_comm_new(g->my_index, g->num_members, c);
    zt_err rc;

    if (!group) /* not ZT_E_NOMEM: the others do not know */
        return zt_comm_finish_alloc(
            c, zt_fault_set(&c->dead_fault, ZT_E_SYSTEM, "comm: out of memory"), fault);
    group->ops = c->ops;
    group->engine = c->engine;
    group->device_engine = c->device_engine;
    rc = c->ops->split(c->self, g->members, g->num_members, g->my_index, g->group_id,
                       &group->self, &c->dead_fault);
    if (rc) {
        zt_comm_free(group);
        return zt_comm_finish_alloc(c, rc, fault);
    }
    *out = group;
    return ZT_OK;
}

zt_err zt_comm_split(struct zt_comm *c, int color, struct zt_comm **out,
                     struct zt_fault *fault)
{
    size_t world = (size_t)c->world;
    int32_t *colors = calloc(world, sizeof(*colors));
    struct grouping g = {.members = calloc(world, sizeof(*g.members))};
    zt_err rc;

    if (!colors || !g.members) {
        rc = zt_fault_set(fault, ZT_E_SYSTEM, "comm: out of memory");
    } else {
        rc = exchange_colors(c, color, colors, fault);
    }
    if (!rc) {
        group_by_color(colors, c->world, c->rank, &g);
        rc = split(c, &g, out, fault);
    }
    free(g.members);
    free(colors);
    return rc;
}
