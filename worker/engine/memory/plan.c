#include "worker/engine/memory/plan.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "worker/autograd/step.h"
#include "worker/engine/batch.h"
#include "worker/engine/checkpoint/replicas.h"
#include "worker/engine/checkpoint/snapshot.h"
#include "worker/engine/memory/process.h"
#include "worker/engine/weights.h"

/* Addresses for the pool of a pass on shapes: never read or written. */
#define META_POOL_BASE ((void *)((uintptr_t)1 << 46))
#define META_POOL_SIZE ((size_t)1 << 51)
#define META_HOST_BASE ((void *)((uintptr_t)1 << 52))

/* Sizes of passes that read a source and generate; more would delay the start of large models. */
#define MOST_SIZES 512

/* What the plan is made with: shapes, and state without values. */
struct meta_run {
    const struct zt_memory_plan_inputs *in;
    struct zt_generation generation;
    struct zt_step *step;
    struct zt_zero *zero;
    const struct zt_backend *backend;
    struct zt_device *device;
    void *zeros;   /* the values of every field */
    bool predicts; /* labels are absent */
};

static bool is_of_prompt(const struct zt_field *f)
{
    return strcmp(f->name, ZT_TOKENS) == 0 || zt_field_is_of_source(f);
}

/* Tokens alone, and a source, are there when text is generated, else all that the data offer. */
static void set_fields(const struct meta_run *d, struct zt_pass *pass)
{
    const struct zt_batch_layout *l = &d->in->model->layout;
    bool tokens_only = pass->mode == ZT_MODE_GENERATE;

    for (int i = 0; i < l->num; i++)
        if (d->predicts && l->fields[i].label)
            continue;
        else if (tokens_only && zt_field_is_of_source(&l->fields[i]) && pass->S == 0)
            continue; /* it was in a pass before */
        else if (tokens_only ? is_of_prompt(&l->fields[i]) : d->in->offered[i])
            pass->fields[i] = d->zeros;
}

/* Whether an evaluation pass has what metrics of its task come from: better before the training
 * than behind it. */
static zt_err check_logits(const struct meta_run *d, const struct zt_pass *pass,
                           struct zt_fault *fault)
{
    const struct zt_model *m = d->in->model;
    const zt_tensor *t = zt_step_find_result(d->step, ZT_LOGITS);
    zt_task task = zt_model_task(m);
    int64_t labels = task == ZT_TASK_REGRESS ? 1 : zt_model_num_labels(m), n;

    if (task != ZT_TASK_CLASSIFY && task != ZT_TASK_REGRESS && task != ZT_TASK_TAG)
        return ZT_OK;
    n = t ? zt_view_numel(zt_tensor_view(t)) : 0;
    labels *= task == ZT_TASK_TAG ? pass->T : 1;
    if (n == pass->B * labels)
        return ZT_OK;
    return zt_fault_set(fault, ZT_E_PLUGIN,
                        "plugin %s: metrics of this task come from %lld rows of %lld "
                        "logits, and the result %s of its forward has %lld numbers: "
                        "zt_step_result(s, ZT_LOGITS, logits)",
                        m->plugin->name, (long long)pass->B, (long long)labels, ZT_LOGITS,
                        (long long)n);
}

/* One pass of a kind; leaves the pools empty again. `micro` counts from 0. */
static zt_err run_pass(struct meta_run *d, struct zt_pass pass, int64_t micro,
                       struct zt_fault *fault)
{
    zt_tensor *out = NULL;
    zt_err rc;

    set_fields(d, &pass);
    zt_zero_pass_begin(d->zero, pass.mode, micro);
    rc = zt_step_forward(d->step, &pass, &out, fault);
    if (!rc && pass.mode == ZT_MODE_TRAIN)
        rc = zt_step_backward(d->step, out, pass.dloss, fault);
    if (!rc && pass.mode == ZT_MODE_EVAL && !d->predicts)
        rc = check_logits(d, &pass, fault);
    zt_step_end(d->step);
    return rc ? rc : zt_zero_pass_end(d->zero, fault);
}

static zt_err run_generated(struct meta_run *d, int64_t rows, int64_t count,
                            struct zt_fault *fault)
{
    struct zt_pass pass = {
        .mode = ZT_MODE_GENERATE, .B = rows, .T = count, .last_only = true};

    return run_pass(d, pass, 0, fault);
}

/* A size is run once as it comes, and once with the constants that it left. */
static zt_err run_size(struct meta_run *d, int64_t T, int64_t S, struct zt_fault *fault)
{
    struct zt_pass pass = {
        .mode = ZT_MODE_GENERATE, .B = 1, .T = T, .S = S, .last_only = true};
    zt_err rc = run_pass(d, pass, 0, fault);

    zt_step_cache_reset(d->step);
    return rc ? rc : run_pass(d, pass, 0, fault);
}

/*
 * Sources are read one by one, of any length up to the longest: a shorter one may lie higher
 * in the pool. Then all rows have one, for a token of every text.
 */
static zt_err run_sources(struct meta_run *d, struct zt_fault *fault)
{
    const struct zt_generation *g = &d->generation;
    struct zt_pass pass = {
        .mode = ZT_MODE_GENERATE, .B = 1, .T = 1, .S = 1, .last_only = true};
    zt_err rc = ZT_OK;

    for (int64_t S = g->source_tokens, num = 0; !rc && S > 0 && num < MOST_SIZES;
         S--, num++) {
        rc = run_size(d, 1, S, fault);
        zt_step_cache_reset(d->step);
    }
    for (int64_t i = 0; !rc && i < g->num_sources; i++) {
        pass.cache_row = i * g->source_rows;
        rc = run_pass(d, pass, 0, fault);
    }
    return rc;
}

/* Prompts by themselves, and half a context of a text that outgrew it. */
static zt_err run_prompts(struct meta_run *d, struct zt_fault *fault)
{
    const struct zt_generation *g = &d->generation;
    int64_t prompt = g->longest < g->tokens ? g->longest : g->tokens;
    zt_err rc = run_generated(d, 1, prompt, fault);

    zt_step_cache_reset(d->step);
    if (!rc && g->restarts)
        rc = run_generated(d, 1, (g->tokens + 1) / 2, fault);
    zt_step_cache_reset(d->step);
    return rc;
}

/*
 * The passes of worker/generate/decoder.c: one of a token first, which leaves the cache and
 * tables where they stay; then prompts or sources, and a token of every text.
 */
static zt_err run_cached_generation(struct meta_run *d, size_t *cache,
                                    struct zt_fault *fault)
{
    const struct zt_generation *g = &d->generation;
    struct zt_pass first = {.mode = ZT_MODE_GENERATE,
                            .B = 1,
                            .T = 1,
                            .S = g->num_sources > 0,
                            .last_only = true};
    zt_err rc = zt_step_cache_open(d->step, g->cache_rows, g->tokens, fault);

    if (!rc && g->num_sources)
        rc = zt_step_cache_add_sources(d->step, g->num_sources, g->source_rows,
                                       g->source_tokens, fault);
    if (!rc)
        rc = run_pass(d, first, 0, fault);
    zt_step_cache_reset(d->step);
    if (!rc)
        rc = g->num_sources ? run_sources(d, fault) : run_prompts(d, fault);
    for (int64_t i = 0; !rc && i < g->rows; i++)
        zt_step_cache_forget(d->step, i);
    if (!rc)
        rc = run_generated(d, g->rows, 1, fault);
    *cache = zt_step_cache_bytes(d->step);
    zt_step_cache_close(d->step);
    return rc;
}

/*
 * Without a cache every pass reads a text from its start, so there are passes of every
 * length. A shorter one holds less, but best fit may lay it out higher than the longest: the
 * plan runs them all, from the longest down, as far as MOST_SIZES goes; below that, of each
 * number of tokens the longest source alone.
 */
static zt_err run_uncached_generation(struct meta_run *d, struct zt_fault *fault)
{
    int64_t longest = d->generation.source_tokens, num = 0;
    zt_err rc = ZT_OK;

    for (int64_t T = d->generation.tokens; !rc && T > 0; T--) {
        rc = run_size(d, T, longest, fault);
        for (int64_t S = longest - 1; !rc && S > 0 && num < MOST_SIZES; S--, num++)
            rc = run_size(d, T, S, fault);
    }
    return rc;
}

/* Text for prompts, twice. *cache grows to the bytes of the cache. */
static zt_err run_generation(struct meta_run *d, struct zt_generation g, size_t *cache,
                             struct zt_fault *fault)
{
    size_t here = 0;
    zt_err rc = ZT_OK;

    d->generation = g;
    if (!zt_plugin_has_cache(d->in->model->plugin, d->in->source_size > 0))
        return run_uncached_generation(d, fault);
    for (int i = 0; !rc && i < 2; i++)
        rc = run_cached_generation(d, &here, fault);
    *cache = here > *cache ? here : *cache;
    return rc;
}

/* Of what an update reads and writes; where it is in files nothing else of it is in memory. */
static double buffer_bytes(const struct zt_zero_bytes *state)
{
    double sum = 0;

    for (zt_memory_place place = ZT_PLACE_PINNED; place <= ZT_PLACE_HOST; place++)
        sum += (double)(state->in[place].master + state->in[place].moments);
    return sum;
}

/* What was done since this was called the last time. */
static void take_work(struct meta_run *d, struct zt_phase_work *out)
{
    out->device = zt_meta_take_work(d->device);
    out->traffic = zt_zero_take_traffic(d->zero);
}

/* The end of a step: it takes no memory that is not there already. */
static zt_err run_update(struct meta_run *d, struct zt_step_work *work,
                         struct zt_fault *fault)
{
    struct zt_optim_step how = {
        .backend = d->backend,
        .device = d->device,
        .cfg = &d->in->run->optim,
        .t = 1,
        .grad_scale = d->zeros, /* for its address alone */
    };
    double sum;
    zt_err rc = zt_zero_sumsq(d->zero, &sum, fault);

    take_work(d, &work->norm);
    if (!rc)
        rc = zt_zero_update(d->zero, &how, fault);
    take_work(d, &work->update);
    return rc;
}

/* Blocks that wait for their update are gathered later than others, and lie elsewhere. */
static zt_err run_late_update(struct meta_run *d, struct zt_pass pass,
                              struct zt_fault *fault)
{
    struct zt_phase_work counted; /* already */
    zt_err rc = zt_zero_plan_late_update(d->zero) ? run_pass(d, pass, 0, fault) : ZT_OK;

    take_work(d, &counted);
    return rc;
}

static zt_err run_training(struct meta_run *d, struct zt_pass pass, double *flops,
                           struct zt_step_work *work, struct zt_fault *fault)
{
    int64_t last = d->in->run->grad_accum_steps - 1;
    zt_err rc = run_pass(d, pass, 0, fault);

    zt_step_take_flops(d->step);
    if (!rc)
        rc = run_pass(d, pass, last, fault);
    *flops = zt_step_take_flops(d->step);
    if (!rc)
        rc = run_update(d, work, fault);
    take_work(d, &work->first); /* not that of a usual step */
    /* now that the order of blocks is known, they are fetched ahead, and buffers of files hold
     * what is there when a step begins */
    if (!rc)
        rc = run_pass(d, pass, 0, fault);
    take_work(d, &work->first);
    if (!rc && last)
        rc = run_pass(d, pass, last, fault);
    take_work(d, &work->last);
    work->micro_batches = last + 1;
    work->reduces_each =
        d->in->run->zero.stage >= 2 || d->in->run->reduce_every_micro_batch;
    if (!rc)
        rc = run_late_update(d, pass, fault);
    return rc ? rc : run_update(d, work, fault);
}

/* Rows of a file, for their labels; of other tasks they are continued. */
static bool predicts(const struct zt_memory_plan_inputs *in)
{
    zt_task task = zt_model_task(in->model);

    return in->run->do_predict &&
           (task == ZT_TASK_CLASSIFY || task == ZT_TASK_REGRESS || task == ZT_TASK_TAG);
}

static int64_t text_size(const struct zt_memory_plan_inputs *in)
{
    return in->text_size ? in->text_size : in->block_size;
}

static struct zt_generation generation_of(const struct zt_memory_plan_inputs *in)
{
    return zt_generation_of(in->run, in->num_prompts, in->longest_prompt, text_size(in),
                            in->source_size);
}

static struct zt_generation generation_of_eval(const struct zt_memory_plan_inputs *in)
{
    return zt_generation_of(in->run, in->num_eval_prompts, in->longest_eval_prompt,
                            text_size(in), in->source_size);
}

/* The texts of an evaluation; a training goes on behind it, with what that leaves. */
static zt_err run_eval_texts(struct meta_run *d, struct zt_pass training, size_t *cache,
                             struct zt_fault *fault)
{
    struct zt_step_work work = {.micro_batches = 0};
    double flops;
    zt_err rc = run_generation(d, generation_of_eval(d->in), cache, fault);

    return rc || !d->in->run->do_train ? rc
                                       : run_training(d, training, &flops, &work, fault);
}

/*
 * What the run will do, in the order it will do it, and each twice: what the first pass
 * leaves behind and learns is there in every later one.
 */
static zt_err run_all(struct meta_run *d, struct zt_memory_plan *out,
                      struct zt_fault *fault)
{
    const struct zt_run *run = d->in->run;
    struct zt_pass pass = {.mode = ZT_MODE_TRAIN,
                           .B = run->micro_batch_size,
                           .T = d->in->block_size,
                           .S = d->in->source_size,
                           .dloss = 1};
    struct zt_pass training = pass;
    zt_err rc = ZT_OK;

    if (run->do_train)
        rc = run_training(d, pass, &out->train_flops, &out->work, fault);
    pass.mode = ZT_MODE_EVAL;
    pass.B = run->per_device_eval_batch_size;
    for (int i = 0; !rc && run->do_eval && i < 2; i++)
        rc = run_pass(d, pass, 0, fault);
    if (!rc && d->in->num_eval_prompts)
        rc = run_eval_texts(d, training, &out->cache, fault);
    d->predicts = true;
    for (int i = 0; !rc && predicts(d->in) && i < 2; i++)
        rc = run_pass(d, pass, 0, fault);
    d->predicts = false;
    return rc || !d->in->num_prompts
               ? rc
               : run_generation(d, generation_of(d->in), &out->cache, fault);
}

bool zt_run_is_staged(const struct zt_run *run)
{
    const struct zt_backend_info *b = zt_backend_lookup(run->device);

    return b && !b->counts_as_host_memory; /* "auto" has become a name by then */
}

bool zt_run_moves_inputs(const struct zt_run *run)
{
    return run->do_train && run->gradient_checkpointing && run->cpu_checkpointing;
}

static const struct zt_tier *tier_for(zt_offload_device device)
{
    return device == ZT_OFFLOAD_CPU    ? &zt_host_tier
           : device == ZT_OFFLOAD_NVME ? &zt_file_tier
                                       : NULL;
}

/* Where the config wants what the optimizer works on. */
static void set_optimizer_tiers(struct zt_zero_config *z,
                                const struct zt_offload_optimizer *o)
{
    const struct zt_tier *tier = tier_for(o->device);
    int kinds = 2 + (z->optimizer ? z->optimizer->num_states : 0);

    z->offload_ratio = o->ratio;
    z->tiers[ZT_STATE_MASTER] = z->tiers[ZT_STATE_GRADIENTS] = tier;
    for (int k = 0; k < ZT_OPTIM_MAX_STATES; k++)
        z->tiers[ZT_STATE_MOMENT + k] = tier;
    z->swap.dirs = o->nvme_paths;
    z->swap.buffers = o->buffer_count / kinds;
    z->swap.pipeline_read = o->pipeline_read;
    z->swap.pipeline_write = o->pipeline_write;
}

/* And weights; the next block's are always read ahead. */
static void set_weights_tier(struct zt_zero_config *z, const struct zt_offload_param *o)
{
    int64_t piece = o->buffer_size / ZT_SHARD_ALIGN * ZT_SHARD_ALIGN;

    z->tiers[ZT_STATE_WEIGHTS] = tier_for(o->device);
    z->weights_piece = piece > 0 ? piece : ZT_SHARD_ALIGN;
    z->weights_in_host = o->device == ZT_OFFLOAD_NVME ? o->max_in_cpu : 0;
    z->weights_swap.dirs = o->nvme_paths;
    z->weights_swap.buffers = o->buffer_count;
    z->weights_swap.pipeline_read = true;
    z->weights_swap.pipeline_write = true;
}

struct zt_zero_config zt_memory_plan_zero_config(const struct zt_run *run,
                                                 struct zt_model *model)
{
    struct zt_zero_config z = {
        .model = model,
        .rank = run->rank,
        .world = run->world,
        .dtype = run->compute_dtype,
        .split_master = run->split_master,
        .training = run->do_train,
        .optimizer = run->optim.optimizer,
        .micro_batches = run->grad_accum_steps,
        .reduce_every_micro_batch = run->reduce_every_micro_batch,
        .options = &run->zero,
        .staged = zt_run_is_staged(run),
        .host_in_reach = !zt_run_is_staged(run),
        .aio = {.block_size = run->aio.block_size,
                .queue_depth = run->aio.queue_depth,
                .threads = run->aio.threads,
                .engine = zt_aio_engine_find(run->aio_engine),
                .single_submit = run->aio.single_submit,
                .overlap_events = run->aio.overlap_events},
        .swap = {.verify = run->verify_swap},
        .weights_swap = {.verify = run->verify_swap},
    };

    set_optimizer_tiers(&z, &run->zero.offload_optimizer);
    set_weights_tier(&z, &run->zero.offload_param);
    return z;
}

static size_t device_bytes(const struct zt_memory_plan_inputs *in)
{
    const struct zt_run *run = in->run;

    if (!zt_run_is_staged(run))
        return 0;
    return (in->device_own ? in->device_own : zt_backend_own_bytes(run->device)) +
           zt_comm_device_bytes(run->world);
}

/* State on the host counts with the rest where the host's memory is the device's. */
static void add_up(struct zt_memory_plan *plan, const struct zt_run *run)
{
    size_t host = zt_zero_total(&plan->state, ZT_PLACE_PINNED) +
                  zt_zero_total(&plan->state, ZT_PLACE_HOST) + plan->process +
                  plan->snapshot + plan->replicas + plan->host_activations;

    plan->total =
        zt_zero_total(&plan->state, ZT_PLACE_DEVICE) + plan->activations + plan->device;
    plan->on_device = plan->total;
    plan->files = zt_zero_total(&plan->state, ZT_PLACE_FILE);
    if (zt_run_is_staged(run))
        plan->host = host;
    else
        plan->total += host;
}

void zt_memory_plan_fit_snapshot(struct zt_memory_plan *plan, const struct zt_run *run)
{
    if (plan->snapshot == plan->snapshot_least || zt_memory_plan_fits(plan))
        return;
    plan->snapshot = plan->snapshot_least;
    add_up(plan, run);
}

/* A place for the largest field of the largest batch; its values do not matter. */
static void *zero_field(const struct zt_memory_plan_inputs *in, size_t *bytes)
{
    int64_t rows = in->run->micro_batch_size + in->run->per_device_eval_batch_size +
                   generation_of(in).rows + generation_of_eval(in).rows;
    const struct zt_batch_layout *l = &in->model->layout;
    size_t most = 1;

    for (int i = 0; i < l->num; i++) {
        size_t here = zt_field_bytes(
            &l->fields[i], (struct zt_extent){rows, in->block_size, in->source_size});

        most = here > most ? here : most;
    }
    /* addresses alone: nothing is written there, and no machine has to hold so much */
    *bytes = most;
    return mmap(NULL, most, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                0);
}

/* What a step does for the sake of the device. "auto" has become a name where it matters. */
static void suit_device(const char *name, struct zt_step_config *sc)
{
    const struct zt_backend_info *b = zt_backend_lookup(name);

    sc->product_align = b ? b->product_align : 0;
}

/* Rows of a step, and of an evaluation's batch beside them. */
static size_t batch_bytes(const struct zt_memory_plan_inputs *in)
{
    const struct zt_run *run = in->run;
    int64_t rows = (run->do_train ? run->micro_batch_size * run->grad_accum_steps : 0) +
                   (run->do_eval ? run->per_device_eval_batch_size : 0);

    return zt_host_batch_bytes(&in->model->layout, in->offered,
                               (struct zt_extent){rows, in->block_size, in->source_size});
}

zt_err zt_memory_plan_make(const struct zt_memory_plan_inputs *in,
                           struct zt_memory_plan *out, struct zt_fault *fault)
{
    struct zt_zero_config zc = zt_memory_plan_zero_config(in->run, in->model);
    struct zt_step_config sc = {
        .model = in->model,
        .compute_dtype = in->run->compute_dtype,
        .tf32 = in->run->tf32,
        .fp8 = in->run->fp8,
        .recompute = in->run->gradient_checkpointing,
        .label_smoothing = (float)in->run->label_smoothing_factor,
    };
    size_t bytes = 0;
    struct meta_run d = {.in = in, .zeros = zero_field(in, &bytes)};
    const struct zt_backend *meta = NULL;
    struct zt_pool *pool = NULL, *host_pool = NULL;
    zt_err rc = ZT_OK;

    if (in->run->zero.share_node_weights && in->run->world > 1 &&
        zt_run_is_staged(in->run))
        rc = zt_fault_set(
            fault, ZT_E_UNSUPPORTED,
            "--share_node_weights is for ranks of a cpu: GPUs have no memory in common; "
            "leave it out, or take ZeRO stage 3 in its place, which divides the weights");
    suit_device(in->run->device, &sc);
    *out = (struct zt_memory_plan){.available = SIZE_MAX,
                                   .device_limit = SIZE_MAX,
                                   .host_available = SIZE_MAX,
                                   .shm = zt_process_shm_bytes(in->run),
                                   .shm_available = SIZE_MAX,
                                   .sharers = 1,
                                   .addresses = SIZE_MAX};
    if (d.zeros == MAP_FAILED)
        rc = zt_fault_set(fault, ZT_E_PLAN,
                          "a batch of this run takes %zu MiB, more than there are "
                          "addresses; a smaller --per_device_train_batch_size is needed",
                          bytes >> 20);
    if (!rc)
        rc = zt_backend_find("meta", &meta, fault);
    if (!rc)
        rc = meta->open(0, 1, &zc.device, fault);
    if (!rc)
        rc = zt_pool_open(META_POOL_BASE, META_POOL_SIZE, &pool, fault);
    if (!rc && zt_run_moves_inputs(in->run))
        rc = zt_pool_open(META_HOST_BASE, META_POOL_SIZE, &host_pool, fault);
    if (!rc)
        zt_meta_note_products(zc.device, in->products);
    zc.backend = sc.backend = meta;
    sc.device = d.device = zc.device;
    d.backend = meta;
    sc.pool = pool;
    sc.host_pool = host_pool;
    if (!rc)
        rc = zt_zero_open(&zc, &d.zero, fault);
    if (!rc)
        rc = zt_zero_open_pools(d.zero, fault);
    if (!rc) {
        sc.hooks = zt_zero_hooks(d.zero);
        rc = zt_step_open(&sc, &d.step, fault);
    }
    if (!rc)
        rc = run_all(&d, out, fault);
    if (!rc) {
        out->activations = zt_pool_peak(pool);
        out->host_activations = host_pool ? zt_pool_peak(host_pool) : 0;
        out->state = zt_zero_measure(d.zero);
        out->work.buffers = buffer_bytes(&out->state);
        out->work.weights_in_host = (double)out->state.weights_in_host;
        out->device = device_bytes(in);
        out->process_now = in->process_now;
        if (in->process_now)
            out->process = in->process_now +
                           zt_process_memory_later(in->run, in->model, out->activations) +
                           batch_bytes(in) +
                           zt_ckpt_file_buffer_bytes(in->run, in->model, d.zero) +
                           zt_weights_export_bytes(in->run, in->model);
        out->snapshot = zt_ckpt_snapshot_bytes(in->run, in->model, d.zero);
        out->snapshot_least = in->run->save_memory_bytes == SIZE_MAX
                                  ? zt_ckpt_snapshot_least(in->run, in->model)
                                  : out->snapshot;
        out->replicas = zt_replicas_bytes(in->run, in->model, d.zero);
        out->replicas_there = out->replicas ? zt_replicas_bytes_there() : 0;
        add_up(out, in->run);
    }
    zt_step_close(d.step);
    zt_zero_close(d.zero);
    zt_pool_close(pool);
    zt_pool_close(host_pool);
    if (meta && zc.device)
        meta->close(zc.device);
    if (d.zeros != MAP_FAILED)
        munmap(d.zeros, bytes);
    return rc;
}

/* ---- what parameters are used for ---- */

/* One pass that is no step of anything: blocks are bound to an address that nobody reads. */
static zt_err note_uses(struct meta_run *d, struct zt_step_config *cfg,
                        struct zt_fault *fault)
{
    struct zt_pass pass = {
        .mode = ZT_MODE_EVAL, .B = 1, .T = d->in->block_size, .S = d->in->source_size};
    struct zt_model *m = d->in->model;
    zt_tensor *out = NULL;
    zt_err rc = zt_step_open(cfg, &d->step, fault);

    if (rc)
        return rc;
    for (int i = 0; i < m->num_blocks; i++)
        zt_block_bind(m->blocks[i], META_HOST_BASE, NULL);
    for (int i = 0; i < m->layout.num; i++) /* there may be no data to offer any */
        pass.fields[i] = d->zeros;
    rc = zt_step_forward(d->step, &pass, &out, fault);
    zt_step_end(d->step);
    zt_step_close(d->step);
    for (int i = 0; i < m->num_blocks; i++)
        zt_block_bind(m->blocks[i], NULL, NULL);
    return rc;
}

zt_err zt_memory_plan_note_uses(const struct zt_memory_plan_inputs *in,
                                struct zt_fault *fault)
{
    struct zt_step_config cfg = {
        .model = in->model, .compute_dtype = in->run->compute_dtype, .note_uses = true};
    size_t bytes = 0;
    struct meta_run d = {.in = in, .zeros = zero_field(in, &bytes)};
    zt_err rc = zt_backend_find("meta", &cfg.backend, fault);

    if (!rc && d.zeros == MAP_FAILED)
        rc = zt_fault_set(fault, ZT_E_PLAN, "a row of this run takes %zu MiB",
                          bytes >> 20);
    if (!rc)
        rc = cfg.backend->open(0, 1, &cfg.device, fault);
    if (!rc)
        rc = zt_pool_open(META_POOL_BASE, META_POOL_SIZE, &cfg.pool, fault);
    if (!rc)
        rc = note_uses(&d, &cfg, fault);
    zt_pool_close(cfg.pool);
    if (cfg.device)
        cfg.backend->close(cfg.device);
    if (d.zeros != MAP_FAILED)
        munmap(d.zeros, bytes);
    return rc;
}
