#include "worker/engine/checkpoint/replicas_private.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/env.h"
#include "common/message/event.h"
#include "common/trace/trace.h"
#include "worker/checkpoint/checksummed_json.h"
#include "worker/engine/checkpoint/snapshot.h"

#define MAX_GROUP 3 /* nodes that keep copies for each other */

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
static int group_of(const struct zt_run *run, int node, int *first, int *num)
{
    int groups = num_nodes(run) / 2;
    int g = node / 2 < groups ? node / 2 : groups - 1;

    *first = 2 * g;
    *num = g < groups - 1 ? 2 : num_nodes(run) - *first;
    return g;
}

int zt_replicas_keeper(const struct zt_run *run, int rank)
{
    int node = rank / run->local_world, first, num;

    if (num_nodes(run) < 2)
        return -1;
    (void)group_of(run, node, &first, &num);
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
    return zt_replica_file_bytes(own, several ? own : 0) +
           (several ? MAX_GROUP : 1) * ZT_REPLICAS_CHUNK;
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

static zt_err check_nodes(const struct zt_engine *e, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    double ranks = run->local_world;
    zt_err rc = zt_sum_f64(e->comm, &ranks, 1, fault);

    if (rc || ranks == (double)run->world * run->local_world)
        return rc;
    return zt_fault_set(
        fault, ZT_E_USAGE,
        "--checkpoint_in_memory: rank %d has %d ranks on its node, others "
        "have another number; each keeps copies for one of another node, "
        "so all nodes need as many",
        run->rank, run->local_world);
}

/* With the ranks that keep copies for each other: what the copies are. */
static zt_err meet_group(struct zt_engine *e, struct zt_replicas *x,
                         struct zt_replica_config *cfg, struct zt_fault *fault)
{
    const struct zt_run *run = e->run;
    int first, num, me, g;
    uint64_t words[2] = {cfg->layout[0], cfg->data_bytes[0]}, all[2 * MAX_GROUP];
    zt_err rc = check_nodes(e, fault);

    if (rc || num_nodes(run) < 2)
        return rc;
    g = group_of(run, run->rank / run->local_world, &first, &num);
    rc = zt_comm_split(e->comm, g * run->local_world + run->local_rank, &x->group, fault);
    if (!rc)
        rc = zt_all_gather(x->group, words, all, 2, ZT_I64, fault);
    if (rc)
        return rc;
    me = zt_comm_rank(x->group);
    cfg->layout[1] = all[2 * ((me + num - 1) % num)];
    cfg->data_bytes[1] = all[2 * ((me + num - 1) % num) + 1];
    for (int i = 0; i < num; i++)
        x->most_bytes = all[2 * i + 1] > x->most_bytes ? all[2 * i + 1] : x->most_bytes;
    x->most_bytes = zt_replica_area_bytes(x->most_bytes);
    return ZT_OK;
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
    x->chunk =
        rc ? NULL
           : malloc(ZT_REPLICAS_CHUNK * (x->group ? (size_t)zt_comm_world(x->group) : 1));
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
    zt_replica_close(x->store);
    zt_ckpt_state_release(&x->state);
    free(x->parts);
    free(x->chunk);
    zt_comm_close(x->group);
    free(x);
    e->replicas = NULL;
}

/* ---- filling it ---- */

static void take_piece(char *to, size_t bytes, size_t at, const char *piece)
{
    size_t head = at == 0 ? ZT_REPLICA_HEAD : 0;

    if (at >= bytes)
        return;
    bytes = bytes - at < ZT_REPLICAS_CHUNK ? bytes - at : ZT_REPLICAS_CHUNK;
    memcpy(to + at + head, piece + head, bytes - head);
    memcpy(to + at, piece, head);
}

/* Bytes from `at` of every area in the group; those of `source` to `to` (NULL: nowhere). */
static zt_err move_piece(struct zt_replicas *x, const char *from, size_t from_bytes,
                         int source, char *to, size_t to_bytes, size_t at,
                         struct zt_fault *fault)
{
    char *mine = x->chunk + (size_t)zt_comm_rank(x->group) * ZT_REPLICAS_CHUNK;
    zt_err rc;

    if (at < from_bytes)
        memcpy(mine, from + at,
               from_bytes - at < ZT_REPLICAS_CHUNK ? from_bytes - at : ZT_REPLICAS_CHUNK);
    rc = zt_all_gather(x->group, mine, x->chunk, ZT_REPLICAS_CHUNK, ZT_U8, fault);
    if (!rc && to)
        take_piece(to, to_bytes, at, x->chunk + (size_t)source * ZT_REPLICAS_CHUNK);
    return rc;
}

zt_err zt_replicas_move(struct zt_engine *e, zt_replica_whose from, int slot, bool take,
                        struct zt_fault *fault)
{
    struct zt_replicas *x = e->replicas;
    zt_replica_whose into = from == ZT_REPLICA_OWN ? ZT_REPLICA_COPY : ZT_REPLICA_OWN;
    int num = zt_comm_world(x->group), me = zt_comm_rank(x->group);
    int source = (me + (from == ZT_REPLICA_OWN ? num - 1 : 1)) % num;
    size_t from_bytes, to_bytes;
    char *area = zt_replica_area(x->store, from, slot, &from_bytes);
    char *to = zt_replica_area(x->store, into, slot, &to_bytes);
    zt_err rc = ZT_OK;

    if (take)
        (void)zt_replica_begin(x->store, into, slot);
    /* the first piece has the head and is the last to come */
    for (size_t at = ZT_REPLICAS_CHUNK; !rc && at < x->most_bytes;
         at += ZT_REPLICAS_CHUNK)
        rc = move_piece(x, area, from_bytes, source, take ? to : NULL, to_bytes, at,
                        fault);
    return rc ? rc
              : move_piece(x, area, from_bytes, source, take ? to : NULL, to_bytes, 0,
                           fault);
}

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
    return rc || !x->group ? rc : zt_replicas_move(e, ZT_REPLICA_OWN, slot, true, fault);
}

zt_err zt_replicas_after_step(struct zt_engine *e, int64_t step, struct zt_fault *fault)
{
    zt_err rc;

    if (!e->replicas || step % e->run->checkpoint_in_memory || step >= e->total_steps ||
        e->stop_code)
        return ZT_OK;
    zt_event_phase("copying the state in memory");
    zt_trace_begin("step", "copy in memory");
    rc = copy_step(e, step, fault);
    zt_trace_end();
    if (!rc && e->run->rank == 0)
        zt_event_checkpoint("kept", "", step);
    return rc;
}
