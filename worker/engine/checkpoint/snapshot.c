#include "worker/engine/checkpoint/snapshot.h"

#include <string.h>

#include "worker/checkpoint/atomic_file.h"
#include "worker/checkpoint/reader.h"
#include "worker/engine/checkpoint/checkpoint.h"
#include "worker/engine/checkpoint/writer.h"

/* Of one kind, as parts of the stream lie in memory. */
static size_t add_kind(const struct zt_model *model, const struct zt_zero *z,
                       zt_state_kind kind, size_t at)
{
    for (int i = 0; i < model->num_params; i++) {
        int64_t first, elems;

        if (!zt_zero_has(z, kind, model->params[i]) || model->params[i]->is_base)
            continue;
        zt_zero_own_part(z, model->params[i], &first, &elems);
        at = zt_ckpt_writer_align(at) +
             (size_t)elems * zt_dtype_bytes(zt_zero_dtype(z, kind));
    }
    return at;
}

static bool is_saving(const struct zt_run *run)
{
    return run->do_train && strcmp(run->save_strategy, "no") != 0;
}

/* Nobody knows beforehand whether `--ctl JOB save` comes, which needs an --output_dir, or
 * what a hook will ask for, which may name any folder. */
static bool may_be_asked_to_save(const struct zt_run *run, const struct zt_model *model)
{
    return run->do_train && (run->output_dir || model->plugin->after_step);
}

size_t zt_ckpt_snapshot_least(const struct zt_run *run, const struct zt_model *model)
{
    return is_saving(run) || may_be_asked_to_save(run, model) ||
                   run->resume_from_checkpoint
               ? ZT_CKPT_WRITER_LEAST
               : 0;
}

size_t zt_ckpt_owned_bytes(const struct zt_run *run, const struct zt_model *model,
                           const struct zt_zero *z)
{
    size_t all = add_kind(model, z, ZT_STATE_WEIGHTS, 0);

    all = add_kind(model, z, ZT_STATE_MASTER, all);
    for (int k = 0; k < run->optim.optimizer->num_states; k++)
        all = add_kind(model, z, ZT_STATE_MOMENT + (zt_state_kind)k, all);
    return zt_ckpt_writer_align(all);
}

size_t zt_ckpt_snapshot_bytes(const struct zt_run *run, const struct zt_model *model,
                              const struct zt_zero *z)
{
    size_t least = zt_ckpt_snapshot_least(run, model), all;

    if (!is_saving(run))
        return least;
    all = zt_ckpt_owned_bytes(run, model, z);
    if (all > run->save_memory_bytes)
        all = run->save_memory_bytes & ~(size_t)7;
    return all > least ? all : least;
}

size_t zt_ckpt_file_buffer_bytes(const struct zt_run *run, const struct zt_model *model,
                                 const struct zt_zero *z)
{
    size_t owned = zt_ckpt_owned_bytes(run, model, z), save = 0, load = 0;

    if (zt_ckpt_snapshot_least(run, model))
        save = zt_atomic_file_buffer_bytes((int64_t)owned);
    if (zt_checkpoint_is_wanted(run))
        load = zt_ckpt_read_ahead_bytes(owned * (size_t)run->world);
    return save > load ? save : load; /* one after the other */
}
