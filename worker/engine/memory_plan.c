#include "worker/engine/memory_plan.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/process/cgroups.h"
#include "common/sysfile.h"
#include "worker/autograd/step.h"
#include "worker/engine/context.h"
#include "worker/engine/memory_advice.h"
#include "worker/engine/process_memory.h"

/* Addresses for the pool of a pass on shapes: never read or written. */
#define META_POOL_BASE ((void *)((uintptr_t)1 << 46))
#define META_POOL_SIZE ((size_t)1 << 45)

/* What the plan is made with: shapes, and state without values. */
struct meta_run {
    const struct zt_memory_plan_inputs *in;
    struct zt_step *step;
    struct zt_zero *zero;
    void *zeros; /* the values of every field */
};

/* Tokens alone are there when text is generated, else all that the data offer. */
static void set_fields(const struct meta_run *d, struct zt_pass *pass)
{
    const struct zt_batch_layout *l = &d->in->model->layout;
    bool tokens_only = pass->mode == ZT_MODE_GENERATE;

    for (int i = 0; i < l->num; i++)
        if (tokens_only ? strcmp(l->fields[i].name, ZT_TOKENS) == 0 : d->in->offered[i])
            pass->fields[i] = d->zeros;
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
        rc = zt_step_backward(d->step, out, 1, fault);
    zt_step_end(d->step);
    return rc ? rc : zt_zero_pass_end(d->zero, fault);
}

static zt_err run_generated(struct meta_run *d, int64_t count, struct zt_fault *fault)
{
    return run_pass(
        d,
        (struct zt_pass){.mode = ZT_MODE_GENERATE, .B = 1, .T = count, .last_only = true},
        0, fault);
}

/* A prompt, a token, and when the context fills up, half of it again and a token. */
static zt_err run_cached_generation(struct meta_run *d, struct zt_fault *fault)
{
    const struct zt_run *run = d->in->run;
    int64_t T = d->in->block_size, prompt = d->in->prompt_tokens;
    const int64_t lengths[] = {prompt < T ? prompt : T, 1, (T + 1) / 2, 1};
    int num = prompt + run->generate_tokens > T ? 4 : 2;
    zt_err rc = zt_step_cache_open(d->step, 1, T, fault);

    for (int i = 0; !rc && i < num; i++) {
        if (i == 2 || lengths[0] == T)
            zt_step_cache_reset(d->step);
        rc = run_generated(d, lengths[i], fault);
    }
    zt_step_cache_close(d->step);
    return rc;
}

/* Every pass is longer than the one before, and tables grow with them: they are run as
 * they will come, until the context has been full twice and they begin to repeat. */
static zt_err run_whole_generation(struct meta_run *d, struct zt_fault *fault)
{
    int64_t T = d->in->block_size, n = d->in->prompt_tokens;
    int64_t stop = n + d->in->run->generate_tokens;
    struct zt_context context;
    bool restart, again = false;
    zt_err rc = ZT_OK;

    zt_context_begin(&context, T, false, n);
    for (; !rc && n < stop; n++) {
        int64_t from = zt_context_next(&context, n, &restart);

        again |= restart;
        rc = run_generated(d, n - from, fault);
        if (again && n - from == T)
            break;
    }
    return rc;
}

static zt_err run_generation(struct meta_run *d, struct zt_fault *fault)
{
    return d->in->model->plugin->flags & ZT_PLUGIN_CACHED
               ? run_cached_generation(d, fault)
               : run_whole_generation(d, fault);
}

static zt_err run_training(struct meta_run *d, struct zt_pass pass, double *flops,
                           struct zt_fault *fault)
{
    int64_t last = d->in->run->grad_accum_steps - 1;
    zt_err rc = run_pass(d, pass, 0, fault);

    zt_step_take_flops(d->step);
    if (!rc)
        rc = run_pass(d, pass, last, fault);
    *flops = zt_step_take_flops(d->step);
    /* now that the order of blocks is known, they are fetched ahead */
    if (!rc)
        rc = run_pass(d, pass, 0, fault);
    return rc || !last ? rc : run_pass(d, pass, last, fault);
}

/*
 * What the run will do, in the order it will do it, and each twice: what the first pass
 * leaves behind and learns is there in every later one.
 */
static zt_err run_all(struct meta_run *d, double *train_flops, struct zt_fault *fault)
{
    const struct zt_run *run = d->in->run;
    struct zt_pass pass = {
        .mode = ZT_MODE_TRAIN, .B = run->micro_batch_size, .T = d->in->block_size};
    zt_err rc = ZT_OK;

    if (run->do_train)
        rc = run_training(d, pass, train_flops, fault);
    pass.mode = ZT_MODE_EVAL;
    pass.B = run->per_device_eval_batch_size;
    for (int i = 0; !rc && run->do_eval && i < 2; i++)
        rc = run_pass(d, pass, 0, fault);
    for (int i = 0; !rc && run->generate_tokens > 0 && i < 2; i++)
        rc = run_generation(d, fault);
    return rc;
}

bool zt_run_is_staged(const struct zt_run *run)
{
    const struct zt_backend_info *b = zt_backend_lookup(run->device);

    return b && !b->counts_as_host_memory; /* "auto" has become a name by then */
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
                  zt_zero_total(&plan->state, ZT_PLACE_HOST) + plan->process;

    plan->total =
        zt_zero_total(&plan->state, ZT_PLACE_DEVICE) + plan->activations + plan->device;
    plan->on_device = plan->total;
    plan->files = zt_zero_total(&plan->state, ZT_PLACE_FILE);
    if (zt_run_is_staged(run))
        plan->host = host;
    else
        plan->total += host;
}

/* A place for the largest field of the largest batch; its values do not matter. */
static void *zero_field(const struct zt_memory_plan_inputs *in, size_t *bytes)
{
    int64_t rows = in->run->micro_batch_size + in->run->per_device_eval_batch_size + 1;
    const struct zt_batch_layout *l = &in->model->layout;
    size_t most = 1;

    for (int i = 0; i < l->num; i++) {
        size_t here = zt_field_bytes(&l->fields[i], rows, in->block_size);

        most = here > most ? here : most;
    }
    /* addresses alone: nothing is written there, and no machine has to hold so much */
    *bytes = most;
    return mmap(NULL, most, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                0);
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
    };
    size_t bytes = 0;
    struct meta_run d = {.in = in, .zeros = zero_field(in, &bytes)};
    const struct zt_backend *meta = NULL;
    struct zt_pool *pool = NULL;
    zt_err rc = ZT_OK;

    *out = (struct zt_memory_plan){.available = SIZE_MAX,
                                   .device_limit = SIZE_MAX,
                                   .files_available = SIZE_MAX,
                                   .host_available = SIZE_MAX,
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
    zc.backend = sc.backend = meta;
    sc.device = zc.device;
    sc.pool = pool;
    if (!rc)
        rc = zt_zero_open(&zc, &d.zero, fault);
    if (!rc) {
        sc.hooks = zt_zero_hooks(d.zero);
        rc = zt_step_open(&sc, &d.step, fault);
    }
    if (!rc)
        rc = run_all(&d, &out->train_flops, fault);
    if (!rc) {
        out->activations = zt_pool_peak(pool);
        out->state = zt_zero_measure(d.zero);
        out->device = device_bytes(in);
        out->process_now = in->process_now;
        if (in->process_now)
            out->process =
                in->process_now + zt_process_memory_later(in->run, out->activations);
        add_up(out, in->run);
    }
    zt_step_close(d.step);
    zt_zero_close(d.zero);
    zt_pool_close(pool);
    if (meta && zc.device)
        meta->close(zc.device);
    if (d.zeros != MAP_FAILED)
        munmap(d.zeros, bytes);
    return rc;
}

/* ---- what is available ---- */

/* What this process may still take by its own limit; SIZE_MAX: no limit. */
static size_t address_space_left(void)
{
    struct rlimit r;
    unsigned long long pages = 0;
    FILE *f;

    if (getrlimit(RLIMIT_AS, &r) || r.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    f = fopen("/proc/self/statm", "re");
    if (f) {
        if (fscanf(f, "%llu", &pages) != 1)
            pages = 0;
        fclose(f);
    }
    pages *= (unsigned long long)sysconf(_SC_PAGESIZE);
    return r.rlim_cur > pages ? r.rlim_cur - pages : 0;
}

/* Memory that the ranks of this machine can share; *limit: of the control group that sets
 * it, 0: the machine does. */
static size_t memory_left(size_t *limit)
{
    uint64_t machine = zt_sysfile_meminfo("MemAvailable");
    struct zt_cgroups_memory group;

    zt_cgroups_read_memory("", &group);
    *limit = group.left_bytes < machine ? group.limit_bytes : 0;
    return *limit ? group.left_bytes : machine;
}

/* For one of the ranks of this machine: files are striped evenly, so the drive with the
 * least room decides. */
static size_t files_left(const struct zt_run *run)
{
    const char *const *const lists[] = {run->zero.offload_optimizer.nvme_paths,
                                        run->zero.offload_param.nvme_paths};
    size_t least = SIZE_MAX, n = 0;
    struct statvfs fs;

    for (int i = 0; i < 2; i++)
        for (n = 0; lists[i] && lists[i][n]; n++)
            if (!statvfs(lists[i][n], &fs)) /* else opening says what is wrong */
                least =
                    fs.f_bavail * fs.f_frsize < least ? fs.f_bavail * fs.f_frsize : least;
    n = n ? n : 1;
    return least == SIZE_MAX ? SIZE_MAX : least / (size_t)run->local_world * n;
}

zt_err zt_memory_plan_measure(struct zt_memory_plan *plan, const struct zt_run *run,
                              const struct zt_backend *backend, struct zt_device *dev,
                              struct zt_fault *fault)
{
    struct zt_device_memory m;
    size_t left = memory_left(&plan->group_limit);
    zt_err rc;

    plan->device_limit = run->device_memory_bytes;
    plan->files_available = files_left(run);
    if (!zt_run_is_staged(run)) {
        plan->available = left;
        plan->sharers = run->local_world;
        plan->addresses = address_space_left();
        return ZT_OK;
    }
    plan->host_available = left / (size_t)run->local_world;
    if (!dev)
        return ZT_OK;
    rc = backend->memory(dev, &m, fault);
    plan->available = rc ? SIZE_MAX : m.free + m.used;
    plan->sharers = run->share_gpu ? run->local_world : 1;
    return rc;
}

/* ---- the table ---- */

#define MIB ((double)(1 << 20))

/* "  weights          %10.1f MiB", when there is any; `where`: behind it, or "". */
static size_t row_in(char *out, size_t cap, size_t at, const char *name, size_t bytes,
                     const char *where)
{
    if (!bytes || at >= cap)
        return at;
    return at + (size_t)snprintf(out + at, cap - at, "  %-18s %10.1f MiB%s\n", name,
                                 (double)bytes / MIB, where);
}

static size_t row(char *out, size_t cap, size_t at, const char *name, size_t bytes)
{
    return row_in(out, cap, at, name, bytes, "");
}

/* The state that is kept apart from the device: "  ...   in pinned host memory". */
static size_t rows_elsewhere(char *out, size_t cap, size_t at,
                             const struct zt_zero_bytes *state)
{
    for (zt_memory_place place = ZT_PLACE_PINNED; place < ZT_NUM_PLACES; place++) {
        const struct zt_state_bytes *s = &state->in[place];
        char where[48];

        snprintf(where, sizeof(where), "   in %s%s", zt_memory_place_name(place),
                 place == ZT_PLACE_FILE ? "s" : " memory");
        at = row_in(out, cap, at, "weights", s->weights, where);
        at = row_in(out, cap, at, "master weights", s->master, where);
        at = row_in(out, cap, at, "gradients", s->grads, where);
        at = row_in(out, cap, at, "optimizer state", s->moments, where);
    }
    return at;
}

/* Whether state is kept elsewhere than on the device. */
static bool is_offloaded(const struct zt_memory_plan *plan)
{
    return zt_zero_total(&plan->state, ZT_PLACE_PINNED) ||
           zt_zero_total(&plan->state, ZT_PLACE_HOST) ||
           zt_zero_total(&plan->state, ZT_PLACE_FILE);
}

/* What of the total is on the device, where that is not all of it. */
static size_t device_row(char *out, size_t cap, size_t at,
                         const struct zt_memory_plan *plan)
{
    char limit[64] = "";

    if (plan->device_limit != SIZE_MAX)
        snprintf(limit, sizeof(limit), "   of --device_memory %.1f MiB",
                 (double)plan->device_limit / MIB);
    return row_in(out, cap, at, "on the device", plan->on_device, limit);
}

void zt_memory_plan_print(const struct zt_memory_plan *plan, const struct zt_run *run,
                          const struct zt_model *model, char *out, size_t cap)
{
    const struct zt_state_bytes *s = &plan->state.in[ZT_PLACE_DEVICE];
    char available[48] = "unlimited";
    size_t at;

    if (plan->available != SIZE_MAX)
        snprintf(available, sizeof(available), "%.1f MiB", (double)plan->available / MIB);
    at = (size_t)snprintf(
        out, cap,
        "memory of one rank (%lld parameters, %s, ZeRO stage %d, %d ranks, micro-batch "
        "%lld):\n",
        (long long)model->numel, zt_dtype_name(run->compute_dtype), run->zero.stage,
        run->world, (long long)run->micro_batch_size);
    at = row(out, cap, at, "weights", s->weights);
    at = row(out, cap, at, "gathered weights", s->gathered);
    at = row(out, cap, at, "secondary shards", s->secondary);
    at = row(out, cap, at, "master weights", s->master);
    at = row(out, cap, at, "gradients", s->grads);
    at = row(out, cap, at, "gradients on move", s->transient);
    at = row(out, cap, at, "optimizer state", s->moments);
    at = row(out, cap, at, "activations", plan->activations);
    at = row(out, cap, at, "staging", s->staging);
    at = row(out, cap, at, "device's own", plan->device);
    at = rows_elsewhere(out, cap, at, &plan->state);
    at = row_in(out, cap, at, "process", plan->process,
                zt_run_is_staged(run) ? "   in host memory" : "");
    if (at >= cap)
        return;
    if (is_offloaded(plan) || plan->device_limit != SIZE_MAX)
        at = device_row(out, cap, at, plan);
    if (at >= cap)
        return;
    at += (size_t)snprintf(out + at, cap - at, "  %-18s %10.1f MiB", "total",
                           (double)plan->total / MIB);
    if (at < cap && zt_run_is_staged(run) && plan->available == SIZE_MAX)
        snprintf(out + at, cap - at, "   on each GPU");
    else if (at < cap && zt_run_is_staged(run))
        snprintf(out + at, cap - at, "   on each GPU, of %s free", available);
    else if (at < cap)
        at += (size_t)snprintf(out + at, cap - at, "   x %d local ranks, of %s available",
                               run->local_world, available);
    if (at < cap && plan->group_limit && !zt_run_is_staged(run))
        snprintf(out + at, cap - at, " (control group: limit %.1f MiB)",
                 (double)plan->group_limit / MIB);
}

/* The state by kind, wherever it is. */
static struct zt_state_bytes in_all_places(const struct zt_zero_bytes *state)
{
    struct zt_state_bytes sum = {.weights = 0};

    for (zt_memory_place place = 0; place < ZT_NUM_PLACES; place++) {
        const struct zt_state_bytes *s = &state->in[place];

        sum.weights += s->weights + s->gathered + s->secondary;
        sum.master += s->master;
        sum.grads += s->grads + s->transient;
        sum.moments += s->moments;
    }
    return sum;
}

static void set_bytes(json_t *o, const char *key, size_t bytes)
{
    if (bytes && bytes != SIZE_MAX)
        json_object_set_new(o, key, json_integer((json_int_t)bytes));
}

json_t *zt_memory_plan_json(const struct zt_memory_plan *plan, const struct zt_run *run,
                            const struct zt_model *model)
{
    const struct zt_state_bytes s = in_all_places(&plan->state);
    json_t *o =
        json_pack("{ss sb sI ss si si sI}", "event", "memory_plan", "training",
                  (int)run->do_train, "parameters", (json_int_t)model->numel, "dtype",
                  zt_dtype_name(run->compute_dtype), "stage", run->zero.stage, "world",
                  run->world, "micro_batch", (json_int_t)run->micro_batch_size);

    set_bytes(o, "weights_bytes", s.weights);
    set_bytes(o, "master_bytes", s.master);
    set_bytes(o, "gradients_bytes", s.grads);
    set_bytes(o, "optimizer_bytes", s.moments);
    set_bytes(o, "activations_bytes", plan->activations);
    set_bytes(o, "process_bytes", plan->process);
    if (is_offloaded(plan))
        set_bytes(o, "device_bytes", plan->on_device);
    if (is_offloaded(plan) && !plan->host)
        set_bytes(o, "host_bytes", plan->total - plan->on_device);
    set_bytes(o, "total_bytes", plan->total);
    set_bytes(o, "host_bytes", plan->host);
    set_bytes(o, "file_bytes", plan->files);
    set_bytes(o, "available_bytes", plan->available);
    return o;
}

/* ---- what does not fit ---- */

/* Bytes of addresses that a rank maps: its own memory, and its peers' to read. */
static size_t mapped(const struct zt_memory_plan *plan)
{
    return plan->total + plan->state.peers - (plan->host ? 0 : plan->process_now);
}

/* Of `bytes` in host memory, what is not there yet. */
static size_t to_come(const struct zt_memory_plan *plan, size_t bytes)
{
    return bytes > plan->process_now ? bytes - plan->process_now : 0;
}

bool zt_memory_plan_fits(const struct zt_memory_plan *plan)
{
    size_t total = plan->host ? plan->total : to_come(plan, plan->total);

    return plan->on_device <= plan->device_limit &&
           plan->files <= plan->files_available &&
           total <= plan->available / (size_t)plan->sharers &&
           to_come(plan, plan->host) <= plan->host_available &&
           mapped(plan) <= plan->addresses;
}

/* What there is less of than the plan needs. */
static void limit_text(const struct zt_memory_plan *plan, const struct zt_run *run,
                       char *out, size_t cap)
{
    if (mapped(plan) > plan->addresses)
        snprintf(out, cap,
                 "with the %.0f MiB of peers that it maps that is more than the %.0f MiB "
                 "of addresses that ulimit -v leaves it",
                 (double)plan->state.peers / MIB, (double)plan->addresses / MIB);
    else if (plan->files > plan->files_available)
        snprintf(out, cap,
                 "its %.0f MiB in files are more than the %.0f MiB that nvme_path has "
                 "left for each rank",
                 (double)plan->files / MIB, (double)plan->files_available / MIB);
    else if (plan->on_device > plan->device_limit)
        snprintf(out, cap,
                 "%.0f MiB of that are on the device, and --device_memory is %.0f MiB",
                 (double)plan->on_device / MIB, (double)plan->device_limit / MIB);
    else if (to_come(plan, plan->host) > plan->host_available)
        snprintf(out, cap, "of %.0f MiB of it in host memory %.0f MiB are available",
                 (double)plan->host / MIB, (double)plan->host_available / MIB);
    else if (zt_run_is_staged(run))
        snprintf(out, cap, "%.0f MiB are free on the GPU", (double)plan->available / MIB);
    else if (plan->group_limit)
        snprintf(out, cap,
                 "the control group leaves %.0f MiB in all, of its limit of %.0f MiB",
                 (double)plan->available / MIB, (double)plan->group_limit / MIB);
    else
        snprintf(out, cap, "%.0f MiB are available in all",
                 (double)plan->available / MIB);
}

zt_err zt_memory_plan_check(const struct zt_memory_plan_inputs *in,
                            const struct zt_memory_plan *plan, struct zt_fault *fault)
{
    const struct zt_run *run = in->run;
    const struct zt_state_bytes s = in_all_places(&plan->state);
    char what[288], limit[160], advice[320];

    if (zt_memory_plan_fits(plan))
        return ZT_OK;
    snprintf(what, sizeof(what),
             "weights %.0f, master %.0f, gradients %.0f, optimizer %.0f, activations "
             "%.0f, the process %.0f",
             (double)s.weights / MIB, (double)s.master / MIB, (double)s.grads / MIB,
             (double)s.moments / MIB, (double)plan->activations / MIB,
             (double)plan->process / MIB);
    limit_text(plan, run, limit, sizeof(limit));
    zt_memory_advice(in, plan, advice, sizeof(advice));
    return zt_fault_set(
        fault, ZT_E_PLAN,
        "this run needs %.0f MiB for each of %d local ranks at ZeRO stage "
        "%d (%s), but %s; %s",
        (double)(plan->total + plan->host) / MIB, run->local_world, run->zero.stage, what,
        limit, advice);
}
