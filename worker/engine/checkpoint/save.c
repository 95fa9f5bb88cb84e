/*
 * save.c -- a save, step by step.
 *
 *      rank 0 makes the work folder                | how did it go? all ranks know
 *      every rank writes its shard and syncs it    | how did it go? rank 0 has all hashes
 *      rank 0 writes the manifest and renames      | how did it go?
 *
 * With --save_on_each_node the first rank of each node does what rank 0 does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/message/event.h"
#include "common/trace/trace.h"
#include "worker/engine/checkpoint/internal.h"

#define CHUNK_BYTES ((int64_t)8 << 20)

struct saving {
    const struct zt_ckpt_place *place;
    int64_t step;
    struct zt_ckpt_state state;
    struct zt_ckpt_part *parts; /* this rank's, in the order of the file */
    int64_t num_parts;
    struct zt_ckpt_outcome mine, *all;
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

static zt_err write_part(struct zt_engine *e, const struct saving *s,
                         const struct zt_ckpt_part *p, struct zt_ckpt_shard_writer *w,
                         void *chunk, struct zt_fault *fault)
{
    int64_t width = (int64_t)zt_dtype_bytes(s->state.kinds[p->kind].dtype);
    zt_err rc = ZT_OK;

    for (int64_t done = 0, n; !rc && done < p->elems; done += n) {
        n = p->elems - done < CHUNK_BYTES / width ? p->elems - done : CHUNK_BYTES / width;
        rc =
            zt_zero_copy_out(e->zero, s->state.state[p->kind], e->model->params[p->param],
                             p->first + done, n, chunk, fault);
        if (!rc)
            rc = zt_ckpt_shard_put(w, chunk, (size_t)(n * width), fault);
    }
    return rc;
}

static zt_err write_shard(struct zt_engine *e, struct saving *s, struct zt_fault *fault)
{
    const struct zt_ckpt_tables tables = {s->state.kinds, s->state.num_kinds,
                                          s->state.params, s->state.num_params};
    struct zt_ckpt_shard_writer *w = NULL;
    char work[PATH_MAX];
    void *chunk = malloc((size_t)CHUNK_BYTES);
    zt_err rc =
        chunk ? ZT_OK : zt_fault_set(fault, ZT_E_NOMEM, "checkpoint: no host memory");

    zt_ckpt_work_dir(s->place, work);
    if (!rc)
        rc = zt_ckpt_shard_open(work, e->run->rank, &tables, s->parts, s->num_parts, &w,
                                fault);
    for (int64_t i = 0; !rc && i < s->num_parts; i++)
        rc = write_part(e, s, &s->parts[i], w, chunk, fault);
    if (!rc)
        rc = zt_ckpt_shard_finish(w, &s->mine.made, fault);
    zt_ckpt_shard_close(w);
    free(chunk);
    return rc;
}

/* ---- the three acts ---- */

static zt_err open_saving(struct zt_engine *e, struct saving *s, struct zt_fault *fault)
{
    zt_err rc = zt_ckpt_state_open(e, &s->state, fault);

    if (!rc)
        rc = list_parts(e, s, fault);
    if (!rc && !(s->all = calloc((size_t)e->run->world, sizeof(*s->all))))
        rc = zt_fault_set(fault, ZT_E_NOMEM, "checkpoint: no host memory");
    return rc;
}

static void close_saving(struct saving *s)
{
    zt_ckpt_state_release(&s->state);
    free(s->parts);
    free(s->all);
}

static zt_err begin(struct zt_engine *e, struct saving *s, zt_err *refused,
                    struct zt_fault *fault)
{
    s->mine.code = open_saving(e, s, fault);
    if (!s->mine.code && is_keeper(e))
        s->mine.code = zt_ckpt_folder_begin(s->place, fault);
    return zt_ckpt_share_outcome(e, &s->mine, NULL, refused, fault);
}

static zt_err write(struct zt_engine *e, struct saving *s, zt_err *refused,
                    struct zt_fault *fault)
{
    zt_err rc = zt_zero_settle(e->zero, fault);

    if (rc)
        return rc;
    s->mine.code = write_shard(e, s, fault);
    return zt_ckpt_share_outcome(e, &s->mine, s->all, refused, fault);
}

static zt_err publish(struct zt_engine *e, struct saving *s, zt_err *refused,
                      struct zt_fault *fault)
{
    if (is_keeper(e))
        s->mine.code =
            zt_ckpt_write_manifest(e, s->place, &s->state, s->step, s->all, fault);
    if (is_keeper(e) && !s->mine.code)
        s->mine.code = zt_ckpt_folder_publish(s->place, fault);
    return zt_ckpt_share_outcome(e, &s->mine, NULL, refused, fault);
}

zt_err zt_checkpoint_save(struct zt_engine *e, const struct zt_ckpt_place *place,
                          int64_t step, zt_err *refused, struct zt_fault *fault)
{
    struct saving s = {.place = place, .step = step};
    char final[PATH_MAX];
    zt_err rc;

    zt_event_phase("saving a checkpoint");
    zt_trace_begin("step", "checkpoint");
    rc = begin(e, &s, refused, fault);
    if (!rc && !*refused)
        rc = write(e, &s, refused, fault);
    if (!rc && !*refused)
        rc = publish(e, &s, refused, fault);
    if ((rc || *refused) && is_keeper(e))
        zt_ckpt_folder_abandon(place);
    close_saving(&s);
    zt_trace_end();
    zt_ckpt_final_dir(place, final);
    if (!rc && !*refused && e->run->rank == 0)
        zt_event_checkpoint("saved", final, step);
    return rc;
}
