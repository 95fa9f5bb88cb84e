#include "worker/engine/memory/alternatives.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/json/line.h"
#include "worker/engine/memory/step_time.h"
#include "worker/engine/memory/trial.h"

#define MIB ((double)(1 << 20))

static const char *const places[] = {
    [ZT_OFFLOAD_NONE] = "device", [ZT_OFFLOAD_CPU] = "cpu", [ZT_OFFLOAD_NVME] = "nvme"};

/* ---- which there are ---- */

/* Whether this place is one that state of the run could be kept in. */
static bool is_a_place(const struct zt_memory_trial *t, zt_offload_device device,
                       const char *const *paths)
{
    bool apart =
        zt_run_is_staged(t->given->run) || t->of->device_limit != SIZE_MAX || paths;

    return device == ZT_OFFLOAD_NONE || (device == ZT_OFFLOAD_CPU && apart) ||
           (device == ZT_OFFLOAD_NVME && paths);
}

/* Whether the run of the trial makes sense, and is another than those of lower stages. */
static bool is_one(const struct zt_memory_trial *t)
{
    const struct zt_zero_options *z = &t->run.zero, *was = &t->given->run->zero;
    zt_offload_device optimizer = z->offload_optimizer.device,
                      weights = z->offload_param.device;
    bool same = z->stage == was->stage && optimizer == was->offload_optimizer.device &&
                weights == was->offload_param.device;

    if (t->run.cpu_checkpointing && !t->given->run->cpu_checkpointing &&
        !is_a_place(t, ZT_OFFLOAD_CPU, NULL))
        return false;
    if (same)
        return true; /* as it was given */
    if (!is_a_place(t, optimizer, was->offload_optimizer.nvme_paths) ||
        !is_a_place(t, weights, was->offload_param.nvme_paths))
        return false;
    if (weights && (z->stage < 3 || !optimizer || z->hpz_partition_size > 1))
        return false;
    if (optimizer && z->stage == 0)
        return false;
    if (optimizer && z->stage == 1 && t->run.world > 1 && z->grad_accum_dtype != ZT_F32)
        return false; /* accumulators that are summed where they are */
    if (t->run.world > 1)
        return true;
    /* one rank: stages divide nothing, and are what offload asks for */
    return weights ? z->stage == 3 : optimizer ? z->stage == 2 : z->stage == 0;
}

/* The trial's bytes and work as a row. */
static struct zt_memory_alternative row_of(const struct zt_memory_trial *t, bool fits)
{
    const struct zt_run *run = &t->run, *was = t->given->run;
    const struct zt_memory_plan *plan = &t->plan;

    return (struct zt_memory_alternative){
        .stage = run->zero.stage,
        .optimizer = run->zero.offload_optimizer.device,
        .weights = run->zero.offload_param.device,
        .recompute = run->gradient_checkpointing,
        .host_inputs = zt_run_moves_inputs(run),
        .micro_batch = run->micro_batch_size,
        .accumulation = run->grad_accum_steps,
        .device = plan->on_device,
        .host = plan->host ? plan->host : plan->total - plan->on_device,
        .files = plan->files,
        .work = plan->work,
        .seconds = NAN,
        .fits = fits,
        .given =
            run->zero.stage == was->zero.stage &&
            run->zero.offload_optimizer.device == was->zero.offload_optimizer.device &&
            run->zero.offload_param.device == was->zero.offload_param.device &&
            run->gradient_checkpointing == was->gradient_checkpointing &&
            zt_run_moves_inputs(run) == zt_run_moves_inputs(was) &&
            run->micro_batch_size == was->micro_batch_size,
    };
}

/* All rows of a step in so many micro-batches. */
static bool fits_divided(struct zt_memory_trial *t, const struct zt_run *from,
                         int64_t rows, int64_t by)
{
    t->run = *from;
    t->run.micro_batch_size = rows / by;
    t->run.grad_accum_steps = by;
    return zt_memory_trial_fits(t);
}

/* The largest micro-batch that fits, from all rows of a step down; else the smallest. */
static void try_rows(struct zt_memory_trial *t, struct zt_memory_alternatives *out)
{
    const struct zt_run from = t->run;
    int64_t rows = from.micro_batch_size * from.grad_accum_steps;
    struct zt_memory_ladder by = zt_memory_divisors(rows);
    bool fits = fits_divided(t, &from, rows, 1);

    for (int i = 0; !fits && i < by.num; i++)
        fits = fits_divided(t, &from, rows, by.rung[i]);
    out->row[out->num++] = row_of(t, fits);
}

static int speed_rank(const struct zt_memory_alternative *r)
{
    return 4 * (r->weights == ZT_OFFLOAD_NVME) + 4 * (r->optimizer == ZT_OFFLOAD_NVME) +
           (r->weights == ZT_OFFLOAD_CPU) + (r->optimizer == ZT_OFFLOAD_CPU) +
           r->host_inputs;
}

static int compare(const void *x, const void *y)
{
    const struct zt_memory_alternative *a = x, *b = y;

    if (a->fits != b->fits)
        return a->fits ? -1 : 1;
    if (!isnan(a->seconds) && !isnan(b->seconds) && a->seconds != b->seconds)
        return a->seconds < b->seconds ? -1 : 1;
    if (isnan(a->seconds) != isnan(b->seconds))
        return isnan(a->seconds) ? 1 : -1;
    if (speed_rank(a) != speed_rank(b))
        return speed_rank(a) - speed_rank(b);
    if (a->recompute != b->recompute)
        return a->recompute - b->recompute;
    if (a->micro_batch != b->micro_batch)
        return a->micro_batch > b->micro_batch ? -1 : 1;
    return a->stage - b->stage;
}

void zt_memory_alternatives_find(const struct zt_memory_plan_inputs *in,
                                 const struct zt_memory_plan *plan,
                                 struct zt_memory_alternatives *out)
{
    struct zt_memory_trial t = {.given = in, .of = plan};

    out->num = 0;
    out->run = in->run;
    for (int i = 0; i < 4 * 3 * 3 * 3 && out->num < ZT_MAX_ALTERNATIVES; i++) {
        zt_memory_trial_begin(&t);
        zt_memory_trial_set_stage(&t, i / 27);
        t.run.zero.offload_optimizer.device = (zt_offload_device)(i / 9 % 3);
        t.run.zero.offload_param.device = (zt_offload_device)(i / 3 % 3);
        if (t.run.zero.offload_optimizer.device != in->run->zero.offload_optimizer.device)
            t.run.zero.offload_optimizer.ratio = 1;
        t.run.gradient_checkpointing = i % 3 > 0;
        t.run.cpu_checkpointing = i % 3 == 2;
        if (is_one(&t))
            try_rows(&t, out);
    }
    zt_memory_trial_end(&t);
    qsort(out->row, (size_t)out->num, sizeof(*out->row), compare);
}

/* The run of a row, as far as its time depends on it. */
static struct zt_run run_of(const struct zt_memory_alternatives *a,
                            const struct zt_memory_alternative *r)
{
    struct zt_run run = *a->run;

    run.zero.stage = r->stage;
    run.zero.offload_optimizer.device = r->optimizer;
    run.zero.offload_param.device = r->weights;
    run.zero.overlap_comm = zt_memory_trial_overlaps(a->run, r->stage);
    run.gradient_checkpointing = r->recompute;
    run.cpu_checkpointing = r->host_inputs;
    return run;
}

/* Its time; the names of rates that there are not for it are added to those that are missing. */
static double seconds_of(struct zt_memory_alternatives *a,
                         const struct zt_memory_alternative *r)
{
    struct zt_run run = run_of(a, r);
    struct zt_rates all = a->rates;
    const char *missing = NULL;
    double seconds = zt_step_seconds(&r->work, &run, &all, &missing);

    while (missing) {
        size_t n = strlen(a->missing);
        char name[32];

        snprintf(name, sizeof(name), "\"%s\"", missing);
        if (!strstr(a->missing, name))
            snprintf(a->missing + n, sizeof(a->missing) - n, "%s%s", n ? ", " : "", name);
        zt_rates_set(&all, missing, 1);
        (void)zt_step_seconds(&r->work, &run, &all, &missing);
    }
    return seconds;
}

void zt_memory_alternatives_time(struct zt_memory_alternatives *a,
                                 const struct zt_rates *rates)
{
    a->rates = *rates;
    a->missing[0] = 0;
    for (int i = 0; i < a->num; i++)
        a->row[i].seconds = seconds_of(a, &a->row[i]);
    qsort(a->row, (size_t)a->num, sizeof(*a->row), compare);
}

/* ---- as text ---- */

static const char *device_name(zt_offload_device device)
{
    return device ? places[device] : "none"; /* as configs have it */
}

static json_t *offload_json(zt_offload_device device, const char *const *paths)
{
    json_t *o = json_pack("{ss}", "device", device_name(device)), *list = json_array();

    for (; device == ZT_OFFLOAD_NVME && *paths; paths++)
        json_array_append_new(list, json_string(*paths));
    if (json_array_size(list))
        json_object_set(o, "nvme_path",
                        json_array_size(list) > 1 ? list : json_array_get(list, 0));
    json_decref(list);
    return o;
}

/* With the pipelines that its time counts on, and the ratio where the config has one. */
static json_t *optimizer_json(const struct zt_memory_alternative *r,
                              const struct zt_zero_options *z)
{
    const struct zt_offload_optimizer *was = &z->offload_optimizer;
    json_t *o = offload_json(r->optimizer, was->nvme_paths);

    if (r->optimizer == ZT_OFFLOAD_NVME && was->pipeline_read)
        json_object_set_new(o, "pipeline_read", json_true());
    if (r->optimizer == ZT_OFFLOAD_NVME && was->pipeline_write)
        json_object_set_new(o, "pipeline_write", json_true());
    if (r->optimizer && was->ratio != 1)
        json_object_set_new(o, "ratio",
                            json_real(r->optimizer == was->device ? was->ratio : 1));
    return o;
}

/* With what stays in host memory, where the config says so. */
static json_t *param_json(const struct zt_memory_alternative *r,
                          const struct zt_offload_param *was)
{
    json_t *o = offload_json(r->weights, was->nvme_paths);

    if (r->weights == ZT_OFFLOAD_NVME && was->max_in_cpu)
        json_object_set_new(o, "max_in_cpu", json_integer(was->max_in_cpu));
    return o;
}

static json_t *zero_json(const struct zt_memory_alternatives *a,
                         const struct zt_memory_alternative *r)
{
    const struct zt_zero_options *z = &a->run->zero;
    json_t *zero = json_pack("{si}", "stage", r->stage);

    if (r->stage < 3 && a->run->world > 1 && z->overlap_comm)
        json_object_set_new(zero, "overlap_comm", json_true()); /* no default there */
    if (r->optimizer || z->offload_optimizer.device)
        json_object_set_new(zero, "offload_optimizer", optimizer_json(r, z));
    if (r->weights || z->offload_param.device)
        json_object_set_new(zero, "offload_param", param_json(r, &z->offload_param));
    if (r->stage < 3 && z->hpz_partition_size > 1)
        json_object_set_new(zero, "zero_hpz_partition_size", json_integer(1));
    return zero;
}

/* What asks for recomputation, where it does or did; NULL: nothing. */
static json_t *activations_json(const struct zt_memory_alternatives *a,
                                const struct zt_memory_alternative *r)
{
    json_t *o = NULL;

    if (r->host_inputs || a->run->cpu_checkpointing)
        o = json_pack("{sb}", "cpu_checkpointing", (int)r->host_inputs);
    if (!r->recompute &&
        zt_run_json_says(a->run, "activation_checkpointing.partition_activations")) {
        o = o ? o : json_object();
        json_object_set_new(o, "partition_activations", json_false());
    }
    return o;
}

/* The keys that make the config of the run, or an empty one, that of this one. */
static json_t *config_json(const struct zt_memory_alternatives *a,
                           const struct zt_memory_alternative *r)
{
    json_t *own = json_pack("{sb}", "gradient_checkpointing", (int)r->recompute), *all,
           *activations;

    if (a->run->zero.share_node_weights && r->stage % 3 == 0)
        json_object_set_new(own, "share_node_weights", json_false());
    all = json_pack("{sI sI so so}", "train_micro_batch_size_per_gpu",
                    (json_int_t)r->micro_batch, "gradient_accumulation_steps",
                    (json_int_t)r->accumulation, "zero_optimization", zero_json(a, r),
                    "zlaunch", own);
    activations = activations_json(a, r);
    if (activations)
        json_object_set_new(all, "activation_checkpointing", activations);
    return all;
}

/* ", without --a, --b" so far, and one more; NULL: none. */
static void drop(char *list, size_t room, const char *typed)
{
    size_t n = strlen(list);

    if (typed)
        snprintf(list + n, room - n, "%s%s", n ? ", " : ", without ", typed);
}

/* What is typed and says something else than the config of a row: it would win, or be refused. */
static void list_dropped(const struct zt_memory_alternatives *a,
                         const struct zt_memory_alternative *r, char *list, size_t room)
{
    const struct zt_run *run = a->run;
    const char *const recomputes[] = {
        "activations", r->recompute ? NULL : "gradient_checkpointing", NULL};
    const char *const rows[] = {"per_device_train_batch_size", NULL},
                      *const steps[] = {"gradient_accumulation_steps", NULL};
    char stage[8];

    list[0] = '\0';
    snprintf(stage, sizeof(stage), "%d", r->stage);
    drop(list, room, zt_run_says(run, recomputes));
    if (r->micro_batch != run->micro_batch_size)
        drop(list, room, zt_run_says(run, rows));
    if (r->accumulation != run->grad_accum_steps)
        drop(list, room, zt_run_says(run, steps));
    drop(list, room, zt_run_key_says_otherwise(run, "zero_optimization.stage", stage));
    drop(list, room,
         zt_run_key_says_otherwise(run, "zero_optimization.offload_optimizer.device",
                                   device_name(r->optimizer)));
    drop(list, room,
         zt_run_key_says_otherwise(run, "zero_optimization.offload_param.device",
                                   device_name(r->weights)));
}

static void print_row(const struct zt_memory_alternative *r, FILE *out)
{
    char seconds[24] = "-";

    if (!isnan(r->seconds))
        snprintf(seconds, sizeof(seconds), "%.3g", r->seconds);
    fprintf(out, "%c %5d  %-9s  %-7s  %-9s %6lld x %-5lld %10s %10.1f %10.1f %10.1f%s\n",
            r->given ? '*' : ' ', r->stage, places[r->optimizer], places[r->weights],
            r->host_inputs ? "from host"
            : r->recompute ? "yes"
                           : "no",
            (long long)r->micro_batch, (long long)r->accumulation, seconds,
            (double)r->device / MIB, (double)r->host / MIB, (double)r->files / MIB,
            r->fits ? "" : "  too large");
}

void zt_memory_alternatives_print(const struct zt_memory_alternatives *a, FILE *out)
{
    char dropped[256];
    json_t *config;
    char *text;

    fputs("\nthe same rows a step in other ways, each with the largest micro-batch that "
          "fits (* as it was given):\n"
          "  stage  optimizer  weights  recompute  micro x steps  s a step device MiB   "
          "host MiB  files MiB\n",
          out);
    for (int i = 0; i < a->num; i++)
        print_row(&a->row[i], out);
    if (a->missing[0])
        fprintf(out,
                "times are estimates; those without one need the rate%s %s in --rates "
                "FILE (docs/OFFLOAD.md)\n",
                strchr(a->missing, ',') ? "s" : "", a->missing);
    if (!a->num || !a->row[0].fits)
        return;
    config = config_json(a, &a->row[0]);
    list_dropped(a, &a->row[0], dropped, sizeof(dropped));
    fprintf(out, "\nthe first of them, for the config%s:\n", dropped);
    text = zt_json_file_text(config);
    fprintf(out, "%s\n", text ? text : "");
    free(text);
    json_decref(config);
}

json_t *zt_memory_alternatives_json(const struct zt_memory_alternatives *a)
{
    json_t *all = json_array();

    for (int i = 0; all && i < a->num; i++) {
        const struct zt_memory_alternative *r = &a->row[i];
        json_t *o = json_pack("{sb sb so sI sI sI}", "fits", (int)r->fits, "given",
                              (int)r->given, "config", config_json(a, r), "device_bytes",
                              (json_int_t)r->device, "host_bytes", (json_int_t)r->host,
                              "file_bytes", (json_int_t)r->files);

        if (!isnan(r->seconds))
            json_object_set_new(o, "seconds", json_real(r->seconds));
        json_array_append_new(all, o);
    }
    return all;
}
