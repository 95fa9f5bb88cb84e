#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "common/json/line.h"
#include "common/log.h"
#include "worker/checkpoint/checksummed_json.h"
#include "worker/engine/agree.h"
#include "worker/engine/checkpoint/private.h"
#include "worker/optim/sched/sched.h"

static json_t *hash_json(uint64_t hash)
{
    char text[ZT_HASH_TEXT];

    zt_hash_print(hash, text);
    return json_string(text);
}

static json_t *scaler_json(const struct zt_scaler *s)
{
    return json_pack("{s:o, s:I, s:I, s:i}", "scale", zt_json_real(s->scale), "iter",
                     (json_int_t)s->iter, "last_overflow", (json_int_t)s->last_overflow,
                     "hysteresis_left", s->hysteresis_left);
}

static json_t *data_json(const struct zt_engine *e, int64_t step)
{
    struct zt_sampler_state at;

    zt_sampler_tell(e->sampler, step - e->first_step, &at);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "seed", (json_int_t)at.seed,
                     "epoch", (json_int_t)at.epoch, "index", (json_int_t)at.index, "rows",
                     (json_int_t)at.blocks, "grouped", (json_int_t)at.grouped,
                     "fingerprint", hash_json(at.fingerprint));
}

/* What the next step is taken with, as torch's optimizers keep it; other programs begin with
 * that. Which parameters have weight decay is for each program to say, and not here. */
static json_t *param_groups_json(const struct zt_engine *e)
{
    const struct zt_optim_config *o = &e->run->optim;
    json_t *group = json_object();

    for (const struct zt_hyperparam *p = o->optimizer->params; p->name; p++)
        if (p->type == ZT_HYPER_PAIR)
            json_object_set_new(group, p->name,
                                json_pack("[o, o]", zt_json_real(o->value[p->slot]),
                                          zt_json_real(o->value[p->slot + 1])));
        else if (p->type == ZT_HYPER_FLOAT && strcmp(p->name, "weight_decay") != 0)
            json_object_set_new(group, p->name, zt_json_real(o->value[p->slot]));
    json_object_set_new(group, "lr",
                        zt_json_real(zt_sched_lr(&e->run->sched, o->value[ZT_OPTIM_LR],
                                                 e->steps_taken + 1)));
    return json_pack("[o]", group);
}

json_t *zt_ckpt_training_json(const struct zt_engine *e, int64_t step)
{
    json_t *t =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "step", (json_int_t)step,
                  "steps_taken", (json_int_t)e->steps_taken, "skipped",
                  (json_int_t)e->skipped, "samples", (json_int_t)e->samples, "seed",
                  (json_int_t)e->run->seed, "total_steps", (json_int_t)e->total_steps);
    json_t *best;

    if (e->run->compute_dtype == ZT_F16)
        json_object_set_new(t, "scaler", scaler_json(&e->scaler));
    json_object_set_new(t, "param_groups", param_groups_json(e));
    json_object_set_new(t, "id", json_string(e->training_id));
    if (e->frozen_weights[0])
        json_object_set_new(t, "frozen_weights", json_string(e->frozen_weights));
    json_object_set_new(t, "data", data_json(e, step));
    best = zt_ckpt_best_json(e);
    if (best)
        json_object_set_new(t, "best", best);
    return t;
}

json_t *zt_ckpt_fingerprints(const struct zt_engine *e)
{
    char *model = NULL;
    json_t *f = json_object();

    if (zt_agree_model_text(e->model, &model, NULL) == ZT_OK)
        json_object_set_new(f, "model", hash_json(zt_hash_bytes(model, strlen(model))));
    free(model);
    json_object_set_new(f, "data", hash_json(zt_dataset_fingerprint(e->train_data)));
    json_object_set_new(f, "plugin", json_string(e->plugin->name));
    return f;
}

/* ---- and back ---- */

static zt_err get_int(const json_t *obj, const char *key, int64_t *out,
                      struct zt_fault *fault)
{
    const json_t *v = json_object_get(obj, key);

    if (!json_is_integer(v))
        return zt_fault_set(fault, ZT_E_FORMAT, "the manifest does not say `%s`", key);
    *out = json_integer_value(v);
    return ZT_OK;
}

static zt_err restore_scaler(struct zt_scaler *s, const json_t *saved,
                             struct zt_fault *fault)
{
    int64_t iter = 0, last = 0, hysteresis = 0;
    double scale = zt_json_get_real(saved, "scale", 0);
    zt_err rc = get_int(saved, "iter", &iter, fault);

    if (!rc)
        rc = get_int(saved, "last_overflow", &last, fault);
    if (!rc)
        rc = get_int(saved, "hysteresis_left", &hysteresis, fault);
    if (rc)
        return rc;
    if (!(scale > 0))
        return zt_fault_set(fault, ZT_E_FORMAT, "the manifest has no loss scale");
    if (!s->dynamic) /* the run says another one */
        return ZT_OK;
    s->scale = scale;
    s->iter = iter;
    s->last_overflow = last;
    s->hysteresis_left = (int)hysteresis;
    return ZT_OK;
}

/* What of the order of rows is not as it was; `at` is the checkpoint's position. */
static void tell_order(const struct zt_run *run, const struct zt_sampler_state *at,
                       int64_t rows)
{
    uint64_t seed = (uint64_t)(run->data_seed < 0 ? run->seed : run->data_seed);
    const char *twice =
        at->index > 0 ? ": of this epoch some come twice, and others not at all" : "";

    if (at->blocks > 0 && at->blocks != rows)
        zt_warn("checkpoint",
                "an epoch has %lld rows now, and had %lld: it goes on behind the same "
                "share of it, with rows of another --block_size%s",
                (long long)rows, (long long)at->blocks, twice);
    if (seed == at->seed)
        return;
    if (run->data_seed < 0)
        zt_info("checkpoint",
                "rows come in the order of the checkpoint's seed %llu; --data_seed gives "
                "them another",
                (unsigned long long)at->seed);
    else
        zt_info("checkpoint",
                "rows come in the order of --data_seed %llu from here, before in that of "
                "%llu%s",
                (unsigned long long)seed, (unsigned long long)at->seed, twice);
}

static zt_err restore_data(struct zt_engine *e, const json_t *data, int64_t samples,
                           struct zt_fault *fault)
{
    const char *hash = zt_json_get_text(data, "fingerprint", "");
    struct zt_sampler_state at = {0}, was;
    int64_t seed = 0;
    zt_err rc = get_int(data, "seed", &seed, fault);

    if (!rc)
        rc = get_int(data, "epoch", &at.epoch, fault);
    if (!rc)
        rc = get_int(data, "index", &at.index, fault);
    if (!rc && !zt_hash_parse(hash, &at.fingerprint))
        rc = zt_fault_set(fault, ZT_E_FORMAT, "the manifest has no fingerprint of data");
    at.seed = (uint64_t)seed;
    at.blocks = zt_json_get_int(data, "rows", 0);
    at.grouped = zt_json_get_int(data, "grouped", -1);
    was = at;
    if (!rc && at.blocks > 0 &&
        !e->run->dataloader_drop_last) /* which passes rows over */
        e->rows_recut = ((double)at.epoch + (double)at.index / (double)at.blocks) *
                            (double)zt_sampler_num_blocks(e->sampler) -
                        (double)samples;
    if (e->run->data_seed >= 0)
        at.seed = (uint64_t)e->run->data_seed;
    if (!rc)
        rc = zt_sampler_seek(e->sampler, &at, fault);
    if (!rc && e->run->rank == 0)
        tell_order(e->run, &was, zt_sampler_num_blocks(e->sampler));
    return rc;
}

/* Passes over the data end where they end, whatever the batch was before. */
static void count_steps_again(struct zt_engine *e)
{
    int64_t left = zt_sampler_steps_left(e->sampler, e->run->num_train_epochs);

    if (e->run->max_steps > 0 || e->first_step + left == e->total_steps)
        return;
    e->total_steps = e->planned_steps = e->first_step + left;
    zt_run_resolve_steps((struct zt_run *)e->run, e->total_steps);
    if (e->run->rank == 0 && left > 0)
        zt_info("checkpoint",
                "with another batch or rows than before %lld steps are left of %g epochs",
                (long long)left, e->run->num_train_epochs);
}

void zt_checkpoint_name_training(struct zt_engine *e)
{
    uint64_t id = 0;

    if (e->training_id[0])
        return;
    if (getrandom(&id, sizeof(id), 0) != sizeof(id))
        id = (uint64_t)time(NULL) << 22 ^ (uint64_t)getpid();
    zt_hash_print(id, e->training_id);
}

zt_err zt_ckpt_training_restore(struct zt_engine *e, const json_t *training,
                                struct zt_fault *fault)
{
    const json_t *scaler = json_object_get(training, "scaler");
    const json_t *data = json_object_get(training, "data");
    int64_t step = 0, taken = 0, skipped = 0, samples = 0;
    zt_err rc = get_int(training, "step", &step, fault);

    if (!rc)
        rc = get_int(training, "steps_taken", &taken, fault);
    if (!rc)
        rc = get_int(training, "skipped", &skipped, fault);
    if (!rc)
        rc = get_int(training, "samples", &samples, fault);
    if (!rc && (taken < 0 || skipped < 0 || step < 0 || step > INT64_MAX / 4 ||
                taken > step || skipped > step - taken))
        rc = zt_fault_set(fault, ZT_E_FORMAT, "the manifest counts steps wrong");
    /* one that was imported does not say: DeepSpeed saves no position in the data */
    if (!rc && data)
        rc = restore_data(e, data, samples, fault);
    if (!rc && !data && e->run->rank == 0)
        zt_warn("checkpoint",
                "it does not say where in the data it stood; they begin anew");
    if (!rc && scaler && e->run->compute_dtype == ZT_F16)
        rc = restore_scaler(&e->scaler, scaler, fault);
    if (rc)
        return rc;
    e->first_step = step;
    e->steps_taken = taken;
    e->skipped = skipped;
    e->samples = samples;
    snprintf(e->training_id, sizeof(e->training_id), "%s",
             zt_json_get_text(training, "id", ""));
    if (data)
        count_steps_again(e);
    json_decref(e->best.saved);
    e->best.saved = json_incref(json_object_get(training, "best"));
    return ZT_OK;
}
