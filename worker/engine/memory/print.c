/* print.c -- a memory plan as a table and as JSON. */
#include <jansson.h>
#include <stdio.h>

#include "common/json/line.h"
#include "worker/engine/memory/plan.h"

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
    return plan->host_activations || zt_zero_total(&plan->state, ZT_PLACE_PINNED) ||
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
    const char *host = zt_run_is_staged(run) ? "   in host memory" : "";
    /* of a run that does more, the peak may be elsewhere */
    size_t cache = run->do_train || run->do_eval ? 0 : plan->cache;
    char available[48] = "unlimited", rows[64] = "";
    size_t at;

    if (plan->available != SIZE_MAX)
        snprintf(available, sizeof(available), "%.1f MiB", (double)plan->available / MIB);
    if (run->do_train)
        snprintf(rows, sizeof(rows), ", micro-batch %lld",
                 (long long)run->micro_batch_size);
    else if (run->do_eval)
        snprintf(rows, sizeof(rows), ", %lld rows of an evaluation",
                 (long long)run->per_device_eval_batch_size);
    at = (size_t)snprintf(
        out, cap,
        "memory of one rank (%lld parameters, %s, ZeRO stage %d, %d ranks%s):\n",
        (long long)model->numel, zt_dtype_name(run->compute_dtype), run->zero.stage,
        run->world, rows);
    at = row(out, cap, at, "weights", s->weights);
    at = row(out, cap, at, "gathered weights", s->gathered);
    at = row(out, cap, at, "secondary shards", s->secondary);
    at = row(out, cap, at, "master weights", s->master);
    at = row(out, cap, at, "gradients", s->grads);
    at = row(out, cap, at, "gradients on move", s->transient);
    at = row(out, cap, at, "optimizer state", s->moments);
    at = row(out, cap, at, "activations", plan->activations - cache);
    at = row_in(out, cap, at, "key/value cache", plan->cache,
                cache ? "" : "   within the activations");
    at = row(out, cap, at, "staging", s->staging);
    at = row(out, cap, at, "device's own", plan->device);
    at = rows_elsewhere(out, cap, at, &plan->state);
    at = row_in(out, cap, at, "activations", plan->host_activations,
                "   in pinned host memory");
    at = row_in(out, cap, at, "checkpoints", plan->snapshot, host);
    at = row_in(out, cap, at, "copies in memory", plan->replicas, host);
    at = row_in(out, cap, at, "process", plan->process, host);
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

static void set_bytes(json_t *o, const char *key, size_t bytes)
{
    if (bytes && bytes != SIZE_MAX)
        json_object_set_new(o, key, json_integer((json_int_t)bytes));
}

json_t *zt_memory_plan_json(const struct zt_memory_plan *plan, const struct zt_run *run,
                            const struct zt_model *model)
{
    const struct zt_state_bytes s = zt_memory_plan_by_kind(plan);
    json_t *o = zt_json_event("memory_plan");

    json_object_set_new(o, "training", json_boolean(run->do_train));
    json_object_set_new(o, "parameters", json_integer(model->numel));
    json_object_set_new(o, "dtype", json_string(zt_dtype_name(run->compute_dtype)));
    json_object_set_new(o, "stage", json_integer(run->zero.stage));
    json_object_set_new(o, "world", json_integer(run->world));
    json_object_set_new(o, "micro_batch", json_integer(run->micro_batch_size));

    set_bytes(o, "weights_bytes", s.weights);
    set_bytes(o, "master_bytes", s.master);
    set_bytes(o, "gradients_bytes", s.grads);
    set_bytes(o, "optimizer_bytes", s.moments);
    set_bytes(o, "activations_bytes", plan->activations);
    set_bytes(o, "cache_bytes", plan->cache);
    set_bytes(o, "host_activations_bytes", plan->host_activations);
    set_bytes(o, "checkpoints_bytes", plan->snapshot);
    set_bytes(o, "copies_bytes", plan->replicas);
    set_bytes(o, "process_bytes", plan->process);
    if (is_offloaded(plan) || plan->device_limit != SIZE_MAX)
        set_bytes(o, "device_bytes", plan->on_device);
    if (is_offloaded(plan) && !plan->host)
        set_bytes(o, "host_bytes", plan->total - plan->on_device);
    set_bytes(o, "total_bytes", plan->total);
    set_bytes(o, "host_bytes", plan->host);
    set_bytes(o, "file_bytes", plan->files);
    set_bytes(o, "available_bytes", plan->available);
    return o;
}
