/*
 * save.c -- a save, step by step.
 *
 *      rank 0 makes the work folder                | how did it go? all ranks know
 *      every rank copies what it owns to memory    |
 *      -- training goes on --                      |
 *      the writer has written and synced the shard | how did it go? rank 0 has all hashes
 *      rank 0's writes the manifest and renames    | how did it go?
 *
 * Ranks know with the sums of a step that all writers are through (zt_checkpoint_is_written),
 * so that the questions are asked by all of them after the same step.
 * With --save_on_each_node the first rank of each node does what rank 0 does.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/message/event.h"
#include "common/trace/trace.h"
#include "worker/engine/checkpoint/private.h"
#include "worker/engine/checkpoint/writer.h"
#include "worker/engine/output_dir.h"
#include "worker/engine/weights.h"

/* One save. While a job of the writer runs it is the writer's. */
struct saving {
    struct zt_ckpt_place place;
    int64_t step, best_step;
    double began;     /* seconds, when its copy was begun, */
    double published; /* and when it got its name: of the keeper */
    int rank, world;
    int64_t limit;        /* checkpoints of this training to keep; 0: all */
    const char *training; /* its id */
    struct zt_ckpt_state state;
    struct zt_ckpt_part *parts; /* this rank's, in the order of the file */
    int64_t num_parts;
    struct zt_ckpt_description description; /* of the keeper */
    struct zt_ckpt_outcome mine, *all;
    struct zt_fault prune; /* what kept older ones from being removed */
};

struct zt_ckpt_saver {
    enum { IDLE, WRITING, PUBLISHING } phase;
    struct saving now;
    void *memory;
    size_t bytes;
    struct zt_ckpt_writer *writer;
};

/* This rank makes and renames the folder that it sees. */
static bool is_keeper(const struct zt_engine *e)
{
    return e->run->save_on_each_node ? e->run->local_rank == 0 : e->run->rank == 0;
}

/* ---- this rank's shard ---- */

static zt_err list_parts(struct zt_engine *e, struct saving *s, struct zt_fault *fault)
{
    const struct zt_model *m = e->model;
    size_t most = (size_t)s->state.num_kinds * (size_t)m->num_params;

    s->parts = calloc(most + 1, sizeof(*s->parts));
    if (!s->parts)
        return zt_fault_set(fault, ZT_E_NOMEM, "checkpoint: no host memory");
    for (int k = 0; k < s->state.num_kinds; k++) {
        for (int p = 0; p < m->num_params; p++) {
            struct zt_ckpt_part part = {.kind = k, .param = p};

            if (!(s->state.params[p].kinds >> k & 1))
                continue;
            zt_zero_own_part(e->zero, m->params[p], &part.first, &part.elems);
            if (part.elems)
                s->parts[s->num_parts++] = part;
        }
    }
    return ZT_OK;
}

static size_t part_bytes(const struct saving *s, const struct zt_ckpt_part *p)
{
    return (size_t)p->elems * zt_dtype_bytes(s->state.kinds[p->kind].dtype);
}

static size_t total_bytes(const struct saving *s)
{
    size_t bytes = 0;

    for (int64_t i = 0; i < s->num_parts; i++)
        bytes += part_bytes(s, &s->parts[i]);
    return bytes;
}

/* ---- to memory, by training ---- */

static zt_err copy_part(struct zt_engine *e, const struct saving *s,
                        const struct zt_ckpt_part *p, bool *ended, struct zt_fault *fault)
{
    size_t width = zt_dtype_bytes(s->state.kinds[p->kind].dtype);
    size_t left = part_bytes(s, p), n;
    int64_t at = p->first;
    zt_err rc = ZT_OK;

    for (bool first = true; !rc && left > 0 && !*ended; first = false, left -= n) {
        void *room = zt_ckpt_writer_room(e->saver->writer, first, left, &n);

        *ended = !room;
        if (*ended)
            break;
        rc =
            zt_zero_copy_out(e->zero, s->state.state[p->kind], e->model->params[p->param],
                             at, (int64_t)(n / width), room, fault);
        if (!rc)
            zt_ckpt_writer_filled(e->saver->writer, n);
        at += (int64_t)(n / width);
    }
    return rc;
}

/* All of it, or until the writer has failed: what it says is heard later. */
static zt_err copy_shard(struct zt_engine *e, const struct saving *s,
                         struct zt_fault *fault)
{
    zt_err rc = zt_zero_settle(e->zero, fault);
    bool ended = false;

    for (int64_t i = 0; !rc && !ended && i < s->num_parts; i++)
        rc = copy_part(e, s, &s->parts[i], &ended, fault);
    return rc;
}

/* ---- to the disk, by the writer ---- */

static zt_err write_part(struct zt_ckpt_writer *w, const struct saving *s,
                         const struct zt_ckpt_part *p, struct zt_ckpt_shard_writer *out,
                         struct zt_fault *fault)
{
    size_t left = part_bytes(s, p), n;
    zt_err rc = ZT_OK;

    for (bool first = true; !rc && left > 0; first = false, left -= n) {
        const void *data = zt_ckpt_writer_take(w, first, left, &n);

        if (!data)
            return zt_fault_set(fault, ZT_E_CANCELLED, "the save was given up");
        rc = zt_ckpt_writer_has_all(w) ? zt_ckpt_shard_lend(out, data, n, fault)
                                       : zt_ckpt_shard_put(out, data, n, fault);
        zt_ckpt_writer_taken(w, n);
    }
    return rc;
}

static zt_err write_shard(struct zt_ckpt_writer *w, void *arg, struct zt_fault *fault)
{
    struct saving *s = arg;
    const struct zt_ckpt_tables tables = {s->state.kinds, s->state.num_kinds,
                                          s->state.params, s->state.num_params};
    struct zt_ckpt_shard_writer *out = NULL;
    char work[PATH_MAX];
    zt_err rc;

    zt_trace_begin("checkpoint", "write");
    zt_ckpt_work_dir(&s->place, work);
    rc = zt_ckpt_shard_open(work, s->rank, &tables, s->parts, s->num_parts, &out, fault);
    for (int64_t i = 0; !rc && i < s->num_parts; i++)
        rc = write_part(w, s, &s->parts[i], out, fault);
    if (!rc)
        rc = zt_ckpt_shard_finish(out, &s->mine.made, fault);
    zt_ckpt_shard_close(out);
    zt_trace_end();
    return rc;
}

static zt_err publish(struct zt_ckpt_writer *w, void *arg, struct zt_fault *fault)
{
    struct saving *s = arg;
    int removed = 0;
    zt_err rc;

    (void)w;
    zt_trace_begin("checkpoint", "publish");
    rc = zt_ckpt_write_description(&s->description, &s->place, s->all, s->world, fault);
    if (!rc)
        rc = zt_ckpt_folder_publish(&s->place, fault);
    s->published = zt_now();
    /* the best has its own folder when there is one of its step */
    if (!rc && s->limit)
        (void)!zt_ckpt_prune(s->place.root, s->training, s->limit, s->step, s->best_step,
                             &removed, &s->prune);
    zt_trace_end();
    return rc;
}

/* ---- one after the other ---- */

static zt_err open_writer(struct zt_engine *e, struct zt_fault *fault)
{
    struct zt_ckpt_saver *saver = e->saver;
    zt_err rc = ZT_OK;

    if (saver->writer)
        return ZT_OK;
    assert(e->plan.snapshot >= ZT_CKPT_WRITER_LEAST); /* whoever asks, it is planned */
    saver->bytes = e->plan.snapshot;
    if (!saver->memory)
        rc = e->backend->host_alloc(e->device, saver->bytes, &saver->memory, fault);
    return rc ? rc
              : zt_ckpt_writer_open(saver->memory, saver->bytes, &saver->writer, fault);
}

static zt_err open_saver(struct zt_engine *e, struct zt_fault *fault)
{
    if (!e->saver && !(e->saver = calloc(1, sizeof(*e->saver))))
        return zt_fault_set(fault, ZT_E_NOMEM, "checkpoint: no host memory");
    return ZT_OK;
}

zt_err zt_checkpoint_prepare(struct zt_engine *e, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    if (!e->run->do_train || strcmp(e->run->save_strategy, "no") == 0)
        return ZT_OK;
    rc = open_saver(e, fault);
    return rc ? rc : open_writer(e, fault);
}

/* Every rank's hook is called; what rank 0's hands over is saved. */
static zt_err collect_client_state(struct zt_engine *e, struct saving *s,
                                   struct zt_fault *fault)
{
    zt_client_state *client = NULL;
    zt_err rc = zt_client_state_collect(e, &client, fault);

    if (e->run->rank == 0)
        s->description.client = client;
    else
        zt_client_state_free(client);
    return rc;
}

/* Into its own folder, and not one that a plugin names. */
static bool is_of_run(const struct zt_engine *e, const struct zt_ckpt_place *place)
{
    return e->run->output_dir && strcmp(place->root, e->run->output_dir) == 0;
}

/* What has come to the name of a step during the run, as weights that were saved there, stays. */
static zt_err claim_folder(struct zt_engine *e, const struct zt_ckpt_place *place,
                           struct zt_fault *fault)
{
    char dir[PATH_MAX];
    zt_err rc;

    if (!is_of_run(e, place))
        return zt_output_dir_make(NULL, place->root, fault);
    rc = zt_output_dir_hold(e, fault);
    zt_ckpt_final_dir(place, dir);
    if (!rc && place->name[0] && !e->run->overwrite_output_dir && zt_ckpt_is_foreign(dir))
        rc =
            zt_fault_set(fault, ZT_E_CANTCREATE,
                         "%s is none of zlaunch, and is not replaced: move it away", dir);
    return rc;
}

static zt_err open_saving(struct zt_engine *e, struct saving *s, struct zt_fault *fault)
{
    zt_err rc = open_writer(e, fault);

    if (!rc)
        rc = collect_client_state(e, s, fault);

    if (!rc)
        rc = zt_ckpt_state_open(e, &s->state, fault);
    if (!rc)
        rc = list_parts(e, s, fault);
    if (!rc && !(s->all = calloc((size_t)s->world, sizeof(*s->all))))
        rc = zt_fault_set(fault, ZT_E_NOMEM, "checkpoint: no host memory");
    if (!rc && is_keeper(e))
        rc = zt_ckpt_describe(e, &s->place, &s->state, s->step, &s->description, fault);
    if (!rc && is_keeper(e))
        rc = claim_folder(e, &s->place, fault);
    if (!rc && is_keeper(e))
        rc = zt_ckpt_folder_begin(&s->place, fault);
    return rc;
}

/* Published or not: nothing is being saved now. */
static void end_saving(struct zt_engine *e, bool published)
{
    struct saving *s = &e->saver->now;

    if (!published && is_keeper(e))
        zt_ckpt_folder_abandon(&s->place);
    if (s->place.name[0]) /* a plugin's own is not among those that `auto` finds */
        e->unsaved_step = published ? 0 : s->step;
    else
        e->unsaved_own_step = published ? 0 : s->step;
    zt_ckpt_state_release(&s->state);
    zt_ckpt_description_release(&s->description);
    free(s->parts);
    free(s->all);
    *s = (struct saving){.step = 0};
    e->saver->phase = IDLE;
}

/* checkpoint.writer.show_statistics: of all shards, from the copy to the new name. */
static void tell_statistics(const struct zt_engine *e, const struct saving *s)
{
    double seconds = s->published - s->began, bytes = 0;

    for (int r = 0; r < s->world; r++)
        bytes += (double)s->all[r].made.bytes;
    if (e->run->rank == 0)
        zt_info("checkpoint",
                "that of step %lld: %.1f MB of %d ranks were on the disk after %.3f s, "
                "%.3f GB/s",
                (long long)s->step, bytes / 1e6, s->world, seconds,
                bytes / 1e9 / seconds);
}

static void tell_saved(struct zt_engine *e, const struct saving *s)
{
    char final[PATH_MAX];

    zt_ckpt_final_dir(&s->place, final);
    if (e->run->rank == 0)
        zt_event_checkpoint("saved", final, s->step);
    if (e->run->save_statistics)
        tell_statistics(e, s);
    if (s->prune.code)
        zt_warn("checkpoint", "older ones stay: %s", s->prune.text);
    if (s->place.name[0])
        e->saved_step = s->step;
}

/*
 * With stage3_gather_16bit_weights_on_model_save: model.safetensors beside it, gathered to
 * rank 0, for other programs; adapters always. Training waits for that.
 */
static zt_err save_gathered(struct zt_engine *e, const struct saving *s, zt_err *refused,
                            struct zt_fault *fault)
{
    struct zt_ckpt_outcome mine = {0};
    char top[PATH_MAX];
    zt_err failed = ZT_OK, rc;

    if (!e->run->zero.gather_16bit_on_save && !e->adapters)
        return ZT_OK;
    zt_ckpt_work_top(&s->place, top);
    rc = e->adapters ? zt_adapters_export(e, top, &failed, fault)
                     : zt_weights_export(e, top, &failed, fault);
    mine.code = failed;
    return rc ? rc : zt_ckpt_share_outcome(e, &mine, NULL, refused, fault);
}

zt_err zt_checkpoint_begin(struct zt_engine *e, const struct zt_ckpt_place *place,
                           int64_t step, zt_err *refused, struct zt_fault *fault)
{
    struct saving *s;
    zt_err rc;

    rc = open_saver(e, fault);
    if (rc)
        return rc;
    s = &e->saver->now;
    zt_event_phase("saving a checkpoint");
    zt_trace_begin("step", "checkpoint");
    *s = (struct saving){.place = *place,
                         .step = step,
                         .began = zt_now(),
                         .best_step =
                             e->best.step > 0 && !e->best.folder[0] ? e->best.step : -1,
                         .rank = e->run->rank,
                         .world = e->run->world,
                         .training = e->training_id,
                         .limit = place->name[0] ? e->run->save_total_limit : 0};
    s->mine.code = open_saving(e, s, fault);
    rc = zt_ckpt_share_outcome(e, &s->mine, NULL, refused, fault);
    if (!rc && !*refused)
        rc = save_gathered(e, s, refused, fault);
    if (rc || *refused) {
        end_saving(e, false);
    } else {
        e->saver->phase = WRITING;
        zt_ckpt_writer_start(e->saver->writer, write_shard, s, total_bytes(s));
        rc = copy_shard(e, s, fault);
    }
    zt_trace_end();
    return rc;
}

int64_t zt_checkpoint_pending(const struct zt_engine *e)
{
    return e->saver && e->saver->phase != IDLE ? e->saver->now.step : 0;
}

bool zt_checkpoint_is_written(const struct zt_engine *e)
{
    return zt_checkpoint_pending(e) && zt_ckpt_writer_is_done(e->saver->writer);
}

zt_err zt_checkpoint_advance(struct zt_engine *e, zt_err *refused, struct zt_fault *fault)
{
    struct zt_ckpt_saver *saver = e->saver;
    struct saving *s = &saver->now;
    bool writing = saver->phase == WRITING;
    zt_err rc;

    s->mine.code = zt_ckpt_writer_wait(saver->writer, fault);
    rc = zt_ckpt_share_outcome(e, &s->mine, writing ? s->all : NULL, refused, fault);
    if (rc)
        return rc;
    if (*refused) {
        end_saving(e, false);
    } else if (writing) {
        saver->phase = PUBLISHING;
        if (is_keeper(e))
            zt_ckpt_writer_start(saver->writer, publish, s, 0);
    } else {
        tell_saved(e, s);
        end_saving(e, true);
    }
    return ZT_OK;
}

zt_err zt_checkpoint_finish(struct zt_engine *e, zt_err *refused, struct zt_fault *fault)
{
    zt_err rc = ZT_OK;

    *refused = ZT_OK;
    if (!zt_checkpoint_pending(e))
        return ZT_OK;
    zt_event_phase("saving a checkpoint");
    zt_trace_begin("step", "waiting for a checkpoint");
    while (!rc && zt_checkpoint_pending(e))
        rc = zt_checkpoint_advance(e, refused, fault);
    zt_trace_end();
    return rc;
}

zt_err zt_checkpoint_save(struct zt_engine *e, const struct zt_ckpt_place *place,
                          int64_t step, zt_err *refused, struct zt_fault *fault)
{
    zt_err rc = zt_checkpoint_begin(e, place, step, refused, fault);

    return rc || *refused ? rc : zt_checkpoint_finish(e, refused, fault);
}

void zt_checkpoint_give_up(struct zt_engine *e)
{
    if (!e->saver)
        return;
    zt_ckpt_writer_close(e->saver->writer);
    if (zt_checkpoint_pending(e))
        end_saving(e, false);
    if (e->saver->memory)
        e->backend->host_free(e->device, e->saver->memory, e->saver->bytes);
    free(e->saver);
    e->saver = NULL;
}
