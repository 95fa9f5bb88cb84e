/* replicas_resume.c -- which of the copies in memory training goes on from, and back. */
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/message/event.h"
#include "worker/engine/checkpoint/replicas_private.h"

/* The steps that a rank holds, by slot; -1: nothing. */
struct held {
    int64_t own[ZT_REPLICA_SLOTS], copy[ZT_REPLICA_SLOTS];
};

/* ---- which step ---- */

static void look(const struct zt_engine *e, struct held *out)
{
    const struct zt_replica *store = e->replicas->store;

    for (int slot = 0; slot < ZT_REPLICA_SLOTS; slot++) {
        out->own[slot] = zt_replica_step(store, ZT_REPLICA_OWN, slot);
        out->copy[slot] = zt_replica_step(store, ZT_REPLICA_COPY, slot);
    }
}

static bool keeper_has(const struct zt_run *run, const struct held *all, int rank,
                       int64_t step)
{
    int keeper = zt_replicas_keeper(run, rank);

    return keeper >= 0 && all[keeper].copy[zt_replicas_slot(run, step)] == step;
}

/* The first rank of which nothing is left of this step; -1: it is there for all. */
static int first_lost(const struct zt_run *run, const struct held *all, int64_t step)
{
    int slot = zt_replicas_slot(run, step);

    for (int r = 0; r < run->world; r++)
        if (all[r].own[slot] != step && !keeper_has(run, all, r, step))
            return r;
    return -1;
}

/* The newest that all have; 0: none. *newest: that anyone has. */
static int64_t newest_of_all(const struct zt_run *run, const struct held *all,
                             int64_t *newest)
{
    int64_t best = 0;

    *newest = 0;
    for (int r = 0; r < run->world; r++) {
        const int64_t *steps = (const int64_t *)&all[r];

        for (size_t i = 0; i < sizeof(*all) / sizeof(*steps); i++) {
            *newest = steps[i] > *newest ? steps[i] : *newest;
            if (steps[i] > best && first_lost(run, all, steps[i]) < 0)
                best = steps[i];
        }
    }
    return best;
}

/* What this rank would give of this step is what it was; what is not is forgotten. */
static bool verify(const struct zt_engine *e, const struct held *all, int64_t step,
                   struct held *mine)
{
    const struct zt_replica *store = e->replicas->store;
    int slot = zt_replicas_slot(e->run, step);
    bool good = true, wanted = false;

    for (int r = 0; r < e->run->world; r++)
        wanted = wanted || (zt_replicas_keeper(e->run, r) == e->run->rank &&
                            all[r].own[slot] != step);
    if (mine->own[slot] == step && !zt_replica_is_whole(store, ZT_REPLICA_OWN, slot)) {
        mine->own[slot] = -1;
        good = false;
    }
    if (wanted && mine->copy[slot] == step &&
        !zt_replica_is_whole(store, ZT_REPLICA_COPY, slot)) {
        mine->copy[slot] = -1;
        good = false;
    }
    return good;
}

/* Collective. *step: the one to go on from, verified; 0: none. */
static zt_err agree_on_step(struct zt_engine *e, struct held *all, int64_t *step,
                            int64_t *newest, struct zt_fault *fault)
{
    struct held mine;
    double bad = 1;
    zt_err rc = ZT_OK;

    look(e, &mine);
    while (!rc && bad > 0) {
        rc = zt_all_gather(e->comm, &mine, all, sizeof(mine) / sizeof(int64_t), ZT_I64,
                           fault);
        if (rc)
            break;
        *step = newest_of_all(e->run, all, newest);
        bad = *step && !verify(e, all, *step, &mine) ? 1 : 0;
        rc = zt_sum_f64(e->comm, &bad, 1, fault);
    }
    return rc;
}

/* ---- back to whom it belongs ---- */

/* Collective. Own areas that are missing from their keepers, then copies from owners. */
static zt_err complete(struct zt_engine *e, const struct held *all, int64_t step,
                       struct zt_fault *fault)
{
    struct zt_replicas *x = e->replicas;
    int slot = zt_replicas_slot(e->run, step), num = x->num_members;
    zt_err rc = ZT_OK;

    if (num < 2)
        return ZT_OK;
    for (int i = 0; !rc && i < num; i++)
        if (all[zt_replicas_member_rank(e->run, i)].own[slot] != step)
            rc = zt_replicas_send(x, i, true, slot, fault);
    if (!rc)
        rc = zt_replicas_wait(x, fault);
    if (!rc && all[e->run->rank].own[slot] != step &&
        (zt_replica_step(x->store, ZT_REPLICA_OWN, slot) != step ||
         !zt_replica_is_whole(x->store, ZT_REPLICA_OWN, slot)))
        return zt_fault_set(
            fault, ZT_E_SYSTEM,
            "the copy in memory of step %lld came damaged over the network",
            (long long)step);
    for (int i = 0; !rc && i < num; i++)
        if (all[zt_replicas_member_rank(e->run, i + 1)].copy[slot] != step)
            rc = zt_replicas_send(x, i, false, slot, fault);
    return rc ? rc : zt_replicas_wait(x, fault);
}

/* ---- into the state ---- */

/* The data of a part, which rank `root` has at `data`; `all`: of a root that is not this
 * rank as well, by the chunk. */
static zt_err load_part(struct zt_engine *e, const struct zt_replica_part *p, char *data,
                        int root, bool all, struct zt_fault *fault)
{
    const struct zt_replicas *x = e->replicas;
    size_t width = zt_dtype_bytes(x->state.kinds[p->kind].dtype);
    size_t bytes = zt_replicas_part_bytes(x, p), n;
    zt_err rc = ZT_OK;

    for (size_t at = 0; !rc && at < bytes; at += n) {
        char *piece = root == e->run->rank ? data + at : x->chunk;

        n = bytes - at < ZT_REPLICAS_CHUNK ? bytes - at : ZT_REPLICAS_CHUNK;
        if (all)
            rc = zt_broadcast(e->comm, piece, n, ZT_U8, root, fault);
        if (!rc)
            rc = zt_zero_copy_in(
                e->zero, x->state.state[p->kind], e->model->params[p->param],
                p->first + (int64_t)(at / width), (int64_t)(n / width), piece, fault);
    }
    return rc;
}

/* What rank `root` owns; `all`: into the state of all ranks, by all of them. */
static zt_err load_of(struct zt_engine *e, int root, bool all, int slot,
                      struct zt_fault *fault)
{
    const struct zt_replicas *x = e->replicas;
    bool mine = root == e->run->rank;
    size_t most = (size_t)x->state.num_kinds * (size_t)x->state.num_params + 1, bytes;
    struct zt_replica_part *parts = calloc(most, sizeof(*parts));
    char *data =
        zt_replica_area(x->store, ZT_REPLICA_OWN, slot, &bytes) + ZT_REPLICA_HEAD;
    int64_t num = x->num_parts;
    zt_err rc =
        parts ? ZT_OK
              : zt_fault_set(fault, ZT_E_NOMEM, "copies of the state: no host memory");

    data += zt_replicas_table_bytes(num);
    if (!rc && mine)
        memcpy(parts, x->parts, (size_t)num * sizeof(*parts));
    if (!rc && all)
        rc = zt_broadcast(e->comm, &num, 1, ZT_I64, root, fault);
    if (!rc && all)
        rc = zt_broadcast(e->comm, parts, (size_t)num * sizeof(*parts), ZT_U8, root,
                          fault);
    for (int64_t i = 0; !rc && i < num; i++) {
        rc = load_part(e, &parts[i], data, root, all, fault);
        data += mine ? zt_replicas_align(zt_replicas_part_bytes(x, &parts[i])) : 0;
    }
    free(parts);
    return rc;
}

static zt_err load(struct zt_engine *e, int64_t step, struct zt_fault *fault)
{
    int slot = zt_replicas_slot(e->run, step);
    /* else what a rank is given is what it owns, and the rest is published */
    bool whole = e->run->zero.stage == 0 && e->run->world > 1;
    json_t *training =
        json_loads(zt_replica_text(e->replicas->store, ZT_REPLICA_OWN, slot), 0, NULL);
    zt_err rc = ZT_OK;

    for (int r = 0; !rc && r < e->run->world; r++)
        if (whole || r == e->run->rank)
            rc = load_of(e, r, whole, slot, fault);
    if (!rc)
        rc = zt_ckpt_training_restore(e, training, fault);
    json_decref(training);
    return rc ? zt_fault_context(fault, rc, "copy in memory of step %lld",
                                 (long long)step)
              : zt_zero_publish(e->zero, fault);
}

/* ---- all of it ---- */

/* On rank 0: why not from memory, and what instead. */
static void tell_fallback(const struct zt_engine *e, const struct held *all, int64_t step,
                          int64_t newest, int64_t saved)
{
    char instead[96] = "with what the run began with";

    if (saved > 0)
        snprintf(instead, sizeof(instead), "from the checkpoint of step %lld",
                 (long long)saved);
    if (step > 0)
        zt_info("checkpoint",
                "training goes on %s, which is newer than the copies in "
                "memory, of step %lld",
                instead, (long long)step);
    else if (!newest)
        zt_info("checkpoint",
                "nothing was copied in memory, or all of it is lost: training "
                "goes on %s",
                instead);
    else
        zt_warn("checkpoint",
                "too much of the copies in memory is lost (of step %lld rank %d's): "
                "training goes on %s",
                (long long)newest, first_lost(e->run, all, newest), instead);
}

zt_err zt_replicas_resume(struct zt_engine *e, int64_t saved, bool *resumed,
                          struct zt_fault *fault)
{
    int64_t step = 0, newest = 0;
    struct held *all = calloc((size_t)e->run->world, sizeof(*all));
    zt_err rc =
        all ? agree_on_step(e, all, &step, &newest, fault)
            : zt_fault_set(fault, ZT_E_NOMEM, "copies of the state: no host memory");

    *resumed = !rc && step > 0 && step >= saved;
    if (!rc && !*resumed && e->run->rank == 0)
        tell_fallback(e, all, step, newest, saved);
    if (*resumed)
        rc = complete(e, all, step, fault);
    if (!rc && *resumed)
        rc = load(e, step, fault);
    free(all);
    if (rc || !*resumed || e->run->rank != 0)
        return rc;
    zt_event_checkpoint("kept", "", step);
    zt_info("checkpoint", "training goes on from step %lld, which was copied in memory",
            (long long)step);
    return ZT_OK;
}
