#include "worker/engine/checkpoint/replicas_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/env.h"
#include "common/message/event.h"
#include "common/trace/trace.h"
#include "worker/checkpoint/checksummed_json.h"
#include "worker/engine/checkpoint/snapshot.h"

static bool is_wanted(const struct zt_run *run)
{
    return run->do_train && run->checkpoint_in_memory > 0;
}

/* ---- who keeps whose ---- */

static int num_nodes(const struct zt_run *run)
{
    return run->world / run->local_world;
}

/* Pairs of nodes; of an odd number the last three go round. */
static void group_of(const struct zt_run *run, int node, int *first, int *num)
{
    int groups = num_nodes(run) / 2;
    int g = node / 2 < groups ? node / 2 : groups - 1;

    *first = 2 * g;
    *num = g < groups - 1 ? 2 : num_nodes(run) - *first;
}

int zt_replicas_member_rank(const struct zt_run *run, int i)
{
    int first, num;

    group_of(run, run->rank / run->local_world, &first, &num);
    return (first + i % num) * run->local_world + run->local_rank;
}

int zt_replicas_keeper(const struct zt_run *run, int rank)
{
    int node = rank / run->local_world, first, num;

    if (num_nodes(run) < 2)
        return -1;
    group_of(run, node, &first, &num);
    return (first + (node - first + 1) % num) * run->local_world +
           rank % run->local_world;
}

/* ---- how much ---- */

size_t zt_replicas_align(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

size_t zt_replicas_table_bytes(int64_t num_parts)
{
    return sizeof(int64_t) + (size_t)num_parts * sizeof(struct zt_replica_part);
}

size_t zt_replicas_part_bytes(const struct zt_replicas *x,
                              const struct zt_replica_part *p)
{
    return (size_t)p->elems * zt_dtype_bytes(x->state.kinds[p->kind].dtype);
}

size_t zt_replicas_bytes(const struct zt_run *run, const struct zt_model *model,
                         const struct zt_zero *z)
{
    bool several;
    int64_t kinds;
    size_t own;

    if (!is_wanted(run))
        return 0;
    several = num_nodes(run) > 1;
    kinds = 2 + run->optim.optimizer->num_states;
    own = zt_replicas_table_bytes(kinds * model->num_params) +
          zt_ckpt_owned_bytes(run, model, z);
    return zt_replica_file_bytes(own, several ? own : 0) + ZT_REPLICAS_CHUNK;
}

static int memory_file(struct zt_fault *fault)
{
    int64_t fd = -1;

    return zt_env_int("ZLAUNCH_REPLICA_FD", 0, 1 << 20, &fd, fault) ? -1 : (int)fd;
}

size_t zt_replicas_bytes_there(void)
{
    int fd = memory_file(NULL);
    struct stat st;

    return fd >= 0 && fstat(fd, &st) == 0 ? (size_t)st.st_blocks * 512 : 0;
}

/* ---- the memory ---- */

static zt_err list_parts(struct zt_engine *e, struct zt_replicas *x, size_t *bytes,
                         struct zt_fault *fault)
{
    const struct zt_model *m = e->model;
    size_t most = (size_t)x->state.num_kinds * (size_t)m->num_params, data = 0;

    x->parts = calloc(most + 1, sizeof(*x->parts));
    if (!x->parts)
        return zt_fault_set(fault, ZT_E_NOMEM, "copies of the state: no host memory");
    for (int k = 0; k < x->state.num_kinds; k++) {
        for (int p = 0; p < m->num_params; p++) {
            struct zt_replica_part part = {.kind = k, .param = p};

            if (!(x->state.params[p].kinds >> k & 1))
                continue;
            zt_zero_own_part(e->zero, m->params[p], &part.first, &part.elems);
            if (!part.elems)
                continue;
            x->parts[x->num_parts++] = part;
            data += zt_replicas_align(zt_replicas_part_bytes(x, &part));
        }
    }
    *bytes = zt_replicas_table_bytes(x->num_parts) + data;
    return ZT_OK;
}

/* What has to be equal for data to mean the same. */
static uint64_t layout_of(const struct zt_engine *e, const struct zt_replicas *x)
{
    const int64_t words[] = {e->run->rank, e->run->world, e->run->checkpoint_in_memory,
                             x->num_parts, e->run->compute_dtype};

    return zt_hash_bytes(words, sizeof(words)) * 31 +
           zt_hash_bytes(x->parts, (size_t)x->num_parts * sizeof(*x->parts));
}

/* Of nodes with k ranks the ranks add up k to the sum of k * k, and 1 / k to the number of nodes. */
static zt_err check_nodes(const struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    double sums[2] = {run->local_world, 1.0 / run->local_world};
    double world = run->world;
    zt_err rc = zt_sum_f64(e->comm, sums, 2, fault);

    if (rc || fabs(sums[0] * sums[1] - world * world) < 0.5) /* all k are one number */
        return rc;
    return zt_fault_set(fault, ZT_E_USAGE,
                        "--checkpoint_in_memory: some nodes have more ranks than others; "
                        "each rank keeps copies for one of another node, so all nodes "
                        "need as many");
}

/* Two members have one, for both ways. */
static int num_links(const struct zt_replicas *x)
{
    return x->num_members == 2 ? 1 : x->num_members;
}

/*
 * A communicator of two for each link. A rank has a place in one group at a time, so the
 * three links of three nodes that go round take three turns, in which others are alone.
 */
static zt_err open_links(struct zt_engine *e, struct zt_replicas *x,
                         struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    int turns = num_nodes(run) % 2 ? ZT_REPLICAS_GROUP : 1;
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < turns; i++) {
        bool is_end =
            i < num_links(x) && (x->member == i || x->member == (i + 1) % x->num_members);
        int color = is_end ? zt_replicas_member_rank(run, i) : run->rank;
        struct zt_comm *pair = NULL;

        rc = zt_comm_split(e->comm, color, &pair, fault);
        if (is_end)
            x->link[i].comm = pair;
        else
            zt_comm_close(pair);
    }
    return rc;
}

/* What the copies are that this rank keeps. */
static zt_err meet_group(struct zt_engine *e, struct zt_replicas *x,
                         struct zt_replica_config *cfg, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    uint64_t words[2] = {cfg->layout[0], cfg->data_bytes[0]}, *all;
    int first;
    zt_err rc = check_nodes(e, fault);

    x->num_members = 1;
    if (rc || num_nodes(run) < 2)
        return rc;
    group_of(run, run->rank / run->local_world, &first, &x->num_members);
    x->member = run->rank / run->local_world - first;
    all = calloc((size_t)run->world, sizeof(words));
    rc = all ? zt_all_gather(e->comm, words, all, 2, ZT_I64, fault)
             : zt_fault_set(fault, ZT_E_NOMEM, "copies of the state: no host memory");
    if (!rc) {
        const uint64_t *kept =
            &all[2 * zt_replicas_member_rank(run, x->member + x->num_members - 1)];

        cfg->layout[1] = kept[0];
        cfg->data_bytes[1] = kept[1];
        rc = open_links(e, x, fault);
    }
    free(all);
    return rc;
}

static zt_err open_all(struct zt_engine *e, struct zt_replicas *x, struct zt_fault *fault)
{
    struct zt_replica_config cfg = {.fd = memory_file(fault)};
    zt_err rc;

    if (cfg.fd < 0)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--checkpoint_in_memory: nobody keeps the memory of a rank "
                            "that is gone, nor starts the job again: that takes zlaunch "
                            "with --max_restarts");
    if (e->plugin->save_state)
        return zt_fault_set(fault, ZT_E_USAGE,
                            "--checkpoint_in_memory: plugin %s keeps bytes of its own in "
                            "checkpoints (save_state), which copies in memory do not "
                            "have; use --save_steps",
                            e->plugin->name);
    rc = zt_ckpt_state_open(e, &x->state, fault);
    if (!rc)
        rc = list_parts(e, x, &cfg.data_bytes[0], fault);
    if (rc)
        return rc;
    cfg.layout[0] = layout_of(e, x);
    rc = meet_group(e, x, &cfg, fault);
    if (!rc)
        rc = zt_replica_open(&cfg, &x->store, fault);
    x->chunk = rc ? NULL : malloc(ZT_REPLICAS_CHUNK);
    if (!rc && !x->chunk)
        rc = zt_fault_set(fault, ZT_E_NOMEM, "copies of the state: no host memory");
    return rc;
}

zt_err zt_replicas_open(struct zt_engine *e, struct zt_fault *fault)
{
    if (!is_wanted(e->run))
        return ZT_OK;
    zt_event_phase("taking memory for copies of the state");
    e->replicas = calloc(1, sizeof(*e->replicas));
    return e->replicas
               ? open_all(e, e->replicas, fault)
               : zt_fault_set(fault, ZT_E_NOMEM, "copies of the state: no host memory");
}

void zt_replicas_close(struct zt_engine *e)
{
    struct zt_replicas *x = e->replicas;

    if (!x)
        return;
    for (int i = 0; i < ZT_REPLICAS_GROUP; i++) /* first: copies may be on their way */
        zt_comm_close(x->link[i].comm);
    zt_replica_close(x->store);
    zt_ckpt_state_release(&x->state);
    free(x->parts);
    free(x->chunk);
    free(x);
    e->replicas = NULL;
}

/* ---- to others ---- */

zt_err zt_replicas_send(struct zt_replicas *x, int owner, bool back, int slot,
                        struct zt_fault *fault)
{
    int keeper = (owner + 1) % x->num_members, from = back ? keeper : owner;
    struct zt_replica_link *link = &x->link[owner % num_links(x)];
    zt_replica_whose whose = x->member == owner ? ZT_REPLICA_OWN : ZT_REPLICA_COPY;
    int root = from > (back ? owner : keeper); /* ranks are in the order of members */
    size_t bytes;
    char *area;
    zt_err rc;

    if (x->member != owner && x->member != keeper)
        return ZT_OK;
    if (x->member != from)
        (void)zt_replica_begin(x->store, whose, slot);
    area = zt_replica_area(x->store, whose, slot, &bytes);
    /* the head says that the data are there: it comes after them */
    rc = zt_broadcast_start(link->comm, area + ZT_REPLICA_HEAD, bytes - ZT_REPLICA_HEAD,
                            ZT_U8, root, &link->flying, fault);
    return rc ? rc
              : zt_broadcast_start(link->comm, area, ZT_REPLICA_HEAD, ZT_U8, root,
                                   &link->flying, fault);
}

zt_err zt_replicas_wait(struct zt_replicas *x, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < ZT_REPLICAS_GROUP; i++) {
        if (x->link[i].comm)
            rc = zt_comm_wait(x->link[i].comm, x->link[i].flying, fault);
        x->link[i].flying = 0;
    }
    return rc;
}

/* ---- filling it ---- */

static zt_err fill(struct zt_engine *e, char *data, struct zt_fault *fault)
{
    const struct zt_replicas *x = e->replicas;
    size_t at = zt_replicas_table_bytes(x->num_parts);
    zt_err rc = zt_zero_settle(e->zero, fault);

    memcpy(data, &x->num_parts, sizeof(x->num_parts));
    memcpy(data + sizeof(x->num_parts), x->parts, at - sizeof(x->num_parts));
    for (int64_t i = 0; !rc && i < x->num_parts; i++) {
        const struct zt_replica_part *p = &x->parts[i];

        rc =
            zt_zero_copy_out(e->zero, x->state.state[p->kind], e->model->params[p->param],
                             p->first, p->elems, data + at, fault);
        at += zt_replicas_align(zt_replicas_part_bytes(x, p));
    }
    return rc;
}

static size_t bytes_of(const struct zt_replicas *x)
{
    size_t at = zt_replicas_table_bytes(x->num_parts);

    for (int64_t i = 0; i < x->num_parts; i++)
        at += zt_replicas_align(zt_replicas_part_bytes(x, &x->parts[i]));
    return at;
}

static zt_err copy_step(struct zt_engine *e, int64_t step, struct zt_fault *fault)
{
    struct zt_replicas *x = e->replicas;
    int slot = zt_replicas_slot(e->run, step);
    json_t *training = zt_ckpt_training_json(e, step);
    char *text = training ? json_dumps(training, JSON_COMPACT) : NULL;
    zt_err rc =
        text ? fill(e, zt_replica_begin(x->store, ZT_REPLICA_OWN, slot), fault)
             : zt_fault_set(fault, ZT_E_NOMEM, "copies of the state: no host memory");

    if (!rc)
        rc = zt_replica_seal(x->store, ZT_REPLICA_OWN, slot, step, bytes_of(x), text,
                             fault);
    free(text);
    json_decref(training);
    for (int i = 0; !rc && x->num_members > 1 && i < x->num_members; i++)
        rc = zt_replicas_send(x, i, false, slot, fault);
    x->flying_step = step;
    return rc;
}

/* Everything of before is where it belongs. */
static zt_err end_flight(struct zt_engine *e, struct zt_fault *fault)
{
    struct zt_replicas *x = e->replicas;
    zt_err rc = zt_replicas_wait(x, fault);

    if (!rc && x->flying_step && e->run->rank == 0)
        zt_event_checkpoint("kept", "", x->flying_step);
    x->flying_step = 0;
    return rc;
}

/*
 * Ranks run their messages in the order in which they are issued, so the sums of a step,
 * which are behind the copies of the step before it, have seen to it that these are there,
 * on all ranks: nobody waits here, and every set of copies is whole before training has
 * gone a step further.
 */
zt_err zt_replicas_after_step(struct zt_engine *e, int64_t step, struct zt_fault *fault)
{
    zt_err rc = e->replicas ? end_flight(e, fault) : ZT_OK;

    if (rc || !e->replicas || step % e->run->checkpoint_in_memory ||
        step >= e->total_steps || e->stop_code)
        return rc;
    zt_event_phase("copying the state in memory");
    zt_trace_begin("step", "copy in memory");
    rc = copy_step(e, step, fault);
    zt_trace_end();
    return rc;
}
