/*
 * faulty.c -- wraps another engine and fails on request, for tests.
 *
 * "faulty:3:shm" is shm whose third call fails as a rank that broke would: this rank gets
 * ZT_E_PEER, and its peers are aborted. Calls are counted over a communicator and
 * its groups: zt_comm_alloc(), a collective, and two for zt_comm_split(), which exchanges
 * the colors first.
 */
#include "worker/comm/engine.h"

#include <stdlib.h>
#include <string.h>

struct faulty {
    const struct zt_comm_engine *engine;
    void *inner;
    struct faulty *root; /* itself, or of a group: what it was split from */
    long calls_left;     /* root: calls until the failing one, which is 1 */
    int rank;
};

static zt_err faulty_open(const struct zt_comm_config *cfg, void **self,
                          struct zt_fault *fault)
{
    struct zt_comm_config inner = *cfg;
    struct faulty *f;
    char *end = NULL;
    const char *spec = strchr(cfg->engine, ':');
    long nth = spec ? strtol(spec + 1, &end, 10) : 0;
    zt_err rc;

    if (nth < 1 || *end != ':')
        return zt_fault_set(fault, ZT_E_ARG,
                            "comm: engine %s: expected faulty:<call>:<engine>",
                            cfg->engine);
    f = calloc(1, sizeof(*f));
    if (!f)
        return zt_fault_set(fault, ZT_E_NOMEM, "comm: out of memory");
    f->root = f;
    f->calls_left = nth;
    f->rank = cfg->rank;
    inner.engine = end + 1;
    rc = zt_comm_engine_find(&inner, &f->engine, fault);
    if (!rc)
        rc = f->engine->open(&inner, &f->inner, fault);
    if (rc) {
        free(f);
        return rc;
    }
    *self = f;
    return ZT_OK;
}

static void faulty_close(void *self)
{
    struct faulty *f = self;

    if (!f)
        return;
    f->engine->ops.close(f->inner);
    free(f);
}

static zt_err fails_now(struct faulty *f, struct zt_fault *fault)
{
    struct faulty *root = f->root;

    if (root->calls_left > 0)
        root->calls_left--;
    if (root->calls_left)
        return ZT_OK;
    root->engine->ops.abort(root->inner, root->rank);
    return zt_fault_set(fault, ZT_E_PEER, "comm: rank %d fails here on request",
                        root->rank);
}

static zt_err faulty_alloc(void *self, size_t bytes, bool shared, void **out,
                           struct zt_fault *fault)
{
    struct faulty *f = self;
    zt_err rc = fails_now(f, fault);

    return rc ? rc : f->engine->alloc(f->inner, bytes, shared, out, fault);
}

static zt_err faulty_run(void *self, const struct zt_comm_call *call,
                         struct zt_fault *fault)
{
    struct faulty *f = self;
    zt_err rc = fails_now(f, fault);

    return rc ? rc : f->engine->run(f->inner, call, fault);
}

static zt_err faulty_split(void *self, const int *members, int num_members, int my_index,
                           int group_id, void **group_self, struct zt_fault *fault)
{
    struct faulty *f = self, *group = calloc(1, sizeof(*group));
    zt_err rc = fails_now(f, fault);

    if (!rc && !group)
        rc = zt_fault_set(fault, ZT_E_SYSTEM, "comm: out of memory");
    if (!rc)
        rc = f->engine->ops.split(f->inner, members, num_members, my_index, group_id,
                                  &group->inner, fault);
    if (rc) {
        free(group);
        return rc;
    }
    group->engine = f->engine;
    group->root = f->root;
    group->rank = my_index;
    *group_self = group;
    return ZT_OK;
}

static bool faulty_shares(const void *self)
{
    const struct faulty *f = self;

    return f->engine->shares ? f->engine->shares(f->inner) : f->engine->can_share;
}

static void faulty_abort(void *self, int rank)
{
    struct faulty *f = self;

    f->engine->ops.abort(f->inner, rank);
}

static bool faulty_failed(const void *self, struct zt_fault *fault)
{
    const struct faulty *f = self;

    return f->engine->ops.failed(f->inner, fault);
}

const struct zt_comm_engine zt_comm_faulty = {
    .ops = {.close = faulty_close,
            .split = faulty_split,
            .abort = faulty_abort,
            .failed = faulty_failed},
    .name = "faulty",
    .needs = ZT_COMM_NEEDS_NOTHING,
    .open = faulty_open,
    .alloc = faulty_alloc,
    .run = faulty_run,
    .shares = faulty_shares,
};
