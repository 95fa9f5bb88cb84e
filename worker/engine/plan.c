#include "worker/engine/plan.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "worker/autograd/step.h"

/* A made-up address space for the pool of a dry pass: never touched. */
#define META_POOL_BASE ((void *)((uintptr_t)1 << 46))
#define META_POOL_SIZE ((size_t)1 << 45)

/* One pass of a kind on shapes; leaves the pool empty again. */
static zt_err dry_pass(struct zt_step *s, struct zt_pass pass, struct zt_fault *fault)
{
    zt_tensor *out = NULL;
    zt_err rc = zt_step_forward(s, &pass, &out, fault);

    if (!rc && pass.mode == ZT_MODE_TRAIN)
        rc = zt_step_backward(s, out, 1, fault);
    zt_step_end(s);
    return rc;
}

/* A prompt, a token, and when the context fills up, half of it again and a token. */
static zt_err dry_generation(const struct zt_run *run, struct zt_step *s, int64_t T,
                             int64_t prompt, const int32_t *ids, struct zt_fault *fault)
{
    const int64_t lengths[] = {prompt < T ? prompt : T, 1, (T + 1) / 2, 1};
    int num = prompt + run->generate_tokens > T ? 4 : 2;
    zt_err rc = zt_step_cache_open(s, 1, T, fault);

    for (int i = 0; !rc && i < num; i++) {
        struct zt_pass pass = {.mode = ZT_MODE_GENERATE,
                               .B = 1,
                               .T = lengths[i],
                               .tokens = ids,
                               .last_only = true};

        if (i == 2 || lengths[0] == T)
            zt_step_cache_reset(s);
        rc = dry_pass(s, pass, fault);
    }
    zt_step_cache_close(s);
    return rc;
}

/* What the run will do, once each, in the order it will do it. */
static zt_err dry_run(const struct zt_run *run, struct zt_step *s, int64_t T,
                      int64_t prompt, double *train_flops, struct zt_fault *fault)
{
    int32_t *ids = calloc(
        (size_t)(T * run->micro_batch_size + T * run->per_device_eval_batch_size + T),
        sizeof(*ids));
    struct zt_pass pass = {.mode = ZT_MODE_TRAIN,
                           .B = run->micro_batch_size,
                           .T = T,
                           .tokens = ids,
                           .targets = ids};
    zt_err rc = ZT_OK;

    if (!ids)
        return zt_fault_set(fault, ZT_E_NOMEM, "plan: no host memory");
    /* twice: what the first pass leaves behind is there in every later one */
    for (int i = 0; !rc && run->do_train && i < 2; i++) {
        zt_step_take_flops(s);
        rc = dry_pass(s, pass, fault);
        *train_flops = zt_step_take_flops(s);
    }
    if (!rc && run->do_eval) {
        pass.mode = ZT_MODE_EVAL;
        pass.B = run->per_device_eval_batch_size;
        rc = dry_pass(s, pass, fault);
    }
    if (!rc && run->generate_tokens > 0)
        rc = dry_generation(run, s, T, prompt, ids, fault);
    free(ids);
    return rc;
}

zt_err zt_plan_make(const struct zt_run *run, struct zt_model *model, int num_states,
                    int64_t block_size, int64_t prompt_tokens, struct zt_plan *out,
                    struct zt_fault *fault)
{
    const struct zt_backend *meta = NULL;
    struct zt_state_config sc = {
        .model = model,
        .dtype = run->compute_dtype,
        .training = run->do_train,
        .micro_grads = run->reduce_every_micro_batch && run->grad_accum_steps > 1,
        .num_states = num_states,
        .sharers = run->local_world,
    };
    struct zt_step_config cfg = {
        .model = model,
        .compute_dtype = run->compute_dtype,
        .recompute = run->gradient_checkpointing,
    };
    struct zt_state *state = NULL;
    struct zt_step *step = NULL;
    struct zt_pool *pool = NULL;
    struct zt_device *dev = NULL;
    zt_err rc;

    *out = (struct zt_plan){.state = zt_state_measure(&sc)};
    rc = zt_backend_find("meta", &meta, fault);
    if (!rc)
        rc = meta->open(0, 1, &dev, fault);
    if (!rc)
        rc = zt_pool_open(META_POOL_BASE, META_POOL_SIZE, &pool, fault);
    cfg.backend = sc.backend = meta;
    cfg.device = sc.device = dev;
    cfg.pool = pool;
    if (!rc)
        rc = zt_state_open(&sc, &state, fault);
    if (!rc)
        rc = zt_step_open(&cfg, &step, fault);
    if (!rc)
        rc = dry_run(run, step, block_size, prompt_tokens, &out->train_flops, fault);
    if (!rc)
        out->activations = zt_pool_peak(pool);
    zt_step_close(step);
    zt_state_close(state);
    zt_pool_close(pool);
    if (meta)
        meta->close(dev);
    out->total = out->state.weights + out->state.master + out->state.grads +
                 out->state.moments + out->activations;
    return rc;
}

/* ---- what there is ---- */

/* The first integer of a one-line file; `def` when there is none ("max", no file). */
static size_t read_size(const char *path, size_t def)
{
    FILE *f = fopen(path, "re");
    unsigned long long n;
    size_t got = def;

    if (!f)
        return def;
    if (fscanf(f, "%llu", &n) == 1)
        got = (size_t)n;
    fclose(f);
    return got;
}

static size_t mem_available(void)
{
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    unsigned long long kib = 0;

    if (!f)
        return SIZE_MAX;
    while (fgets(line, sizeof(line), f))
        if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
            break;
    fclose(f);
    return kib ? (size_t)kib * 1024 : SIZE_MAX;
}

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

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Memory that the ranks of this machine can share. */
static size_t memory_for(int local_world)
{
    size_t limit = read_size("/sys/fs/cgroup/memory.max", SIZE_MAX);
    size_t used = read_size("/sys/fs/cgroup/memory.current", 0);
    size_t own = address_space_left(), all = mem_available();

    if (limit != SIZE_MAX)
        all = least(all, limit > used ? limit - used : 0);
    if (own != SIZE_MAX && own <= SIZE_MAX / (size_t)local_world)
        all = least(all, own * (size_t)local_world);
    return all;
}

#define MIB ((double)(1 << 20))

void zt_plan_print(const struct zt_plan *plan, const struct zt_run *run,
                   const struct zt_model *model, char *out, size_t cap)
{
    char available[48] = "unlimited";

    if (plan->available != SIZE_MAX)
        snprintf(available, sizeof(available), "%.1f MiB", (double)plan->available / MIB);
    snprintf(out, cap,
             "memory of one rank (%lld parameters, %s, micro-batch %lld):\n"
             "  weights          %10.1f MiB\n"
             "  master weights   %10.1f MiB\n"
             "  gradients        %10.1f MiB\n"
             "  optimizer state  %10.1f MiB\n"
             "  activations      %10.1f MiB\n"
             "  total            %10.1f MiB   x %d local ranks, of %s available",
             (long long)model->numel, zt_dtype_name(run->compute_dtype),
             (long long)run->micro_batch_size, (double)plan->state.weights / MIB,
             (double)plan->state.master / MIB, (double)plan->state.grads / MIB,
             (double)plan->state.moments / MIB, (double)plan->activations / MIB,
             (double)plan->total / MIB, run->local_world, available);
}

/* The cheapest change that would make it fit, as a hint; "" when there is none. */
static const char *hint(const struct zt_plan *plan, const struct zt_run *run)
{
    size_t fixed = plan->total - plan->activations;

    if (fixed * (size_t)run->local_world > plan->available)
        return run->local_world > 1 ? "; fewer ranks on this machine would need less"
                                    : "; the model state alone is too large: a smaller "
                                      "model, or more memory";
    return run->gradient_checkpointing
               ? "; a smaller --per_device_train_batch_size or --block_size would fit"
               : "; --gradient_checkpointing or a smaller --per_device_train_batch_size "
                 "may fit";
}

zt_err zt_plan_check(const struct zt_plan *plan, const struct zt_run *run,
                     struct zt_fault *fault)
{
    if (plan->total <= plan->available / (size_t)run->local_world)
        return ZT_OK;
    return zt_fault_set(
        fault, ZT_E_PLAN,
        "this run needs %.0f MiB for each of %d local ranks (weights %.0f, "
        "master %.0f, gradients %.0f, optimizer %.0f, activations %.0f), but "
        "%.0f MiB are available in all%s",
        (double)plan->total / MIB, run->local_world, (double)plan->state.weights / MIB,
        (double)plan->state.master / MIB, (double)plan->state.grads / MIB,
        (double)plan->state.moments / MIB, (double)plan->activations / MIB,
        (double)plan->available / MIB, hint(plan, run));
}

void zt_plan_look(struct zt_plan *plan, const struct zt_run *run)
{
    plan->available = memory_for(run->local_world);
}
