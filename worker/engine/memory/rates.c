#include "worker/engine/memory/rates.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/sysfile.h"
#include "kernels/cpu/parallel.h"
#include "kernels/measure.h"
#include "worker/engine/memory/process.h"
#include "worker/engine/memory/rates_cache.h"
#include "worker/engine/memory/rates_files.h"

#define SECONDS 0.03 /* of each kind of work */
#define CACHES  "/sys/devices/system/cpu/cpu0/cache"
#define PASSES  3 /* over all kinds, of a processor: other machines of its host slow it */

/* ---- as JSON ---- */

static const struct {
    const char *key;
    size_t at;
} members[] = {
#define DEVICE(kind) offsetof(struct zt_rates, device) + ZT_WORK_##kind * sizeof(double)
    {"products", DEVICE(PRODUCTS)},
    {"operands", DEVICE(OPERANDS)},
    {"attention", DEVICE(ATTENTION)},
    {"functions", DEVICE(FUNCTIONS)},
    {"streams", DEVICE(STREAMS)},
    {"updates", DEVICE(UPDATES)},
    {"transfers", DEVICE(TRANSFERS)},
    {"node", offsetof(struct zt_rates, node)},
    {"network", offsetof(struct zt_rates, network)},
    {"read", offsetof(struct zt_rates, read)},
    {"write", offsetof(struct zt_rates, write)},
    {"pieces", offsetof(struct zt_rates, pieces)},
    {"moves", offsetof(struct zt_rates, moves)},
#undef DEVICE
};
#define NUM_MEMBERS (sizeof(members) / sizeof(*members))

static double *member(struct zt_rates *r, size_t i)
{
    return (double *)(void *)((char *)r + members[i].at);
}

json_t *zt_rates_json(const struct zt_rates *r)
{
    struct zt_rates copy = *r;
    json_t *o = json_object();

    for (size_t i = 0; o && i < NUM_MEMBERS; i++)
        if (*member(&copy, i) > 0 && isfinite(*member(&copy, i)))
            json_object_set_new(o, members[i].key, json_real(*member(&copy, i)));
    return o;
}

void zt_rates_set(struct zt_rates *r, const char *name, double rate)
{
    for (size_t i = 0; i < NUM_MEMBERS; i++)
        if (!strcmp(name, members[i].key))
            *member(r, i) = rate;
}

/* Members that are not set yet. */
static void fill_in(struct zt_rates *r, const json_t *o)
{
    for (size_t i = 0; i < NUM_MEMBERS; i++)
        if (!*member(r, i))
            *member(r, i) = json_number_value(json_object_get(o, members[i].key));
}

static zt_err read_file(const char *path, struct zt_rates *out, struct zt_fault *fault)
{
    json_error_t e;
    json_t *o = json_load_file(path, JSON_REJECT_DUPLICATES, &e), *value;
    const char *key;
    size_t i = 0;
    zt_err rc = ZT_OK;

    if (!o && !e.text[0]) /* jansson has no words for it */
        return zt_fault_set(fault, ZT_E_NOMEM, "--rates %s: no host memory", path);
    if (!o)
        return zt_fault_set(fault, e.line > 0 ? ZT_E_CONFIG : ZT_E_NOINPUT,
                            "--rates %s: %s", path, e.text);
    if (!json_is_object(o))
        rc = zt_fault_set(fault, ZT_E_CONFIG, "--rates %s: want an object", path);
    json_object_foreach(o, key, value)
    {
        for (i = 0; i < NUM_MEMBERS && strcmp(key, members[i].key) != 0;)
            i++;
        if (i == NUM_MEMBERS)
            rc =
                zt_fault_set(fault, ZT_E_CONFIG,
                             "--rates %s: there is no rate \"%s\"; docs/OFFLOAD.md lists "
                             "them",
                             path, key);
        else if (!(json_number_value(value) > 0))
            rc = zt_fault_set(fault, ZT_E_CONFIG,
                              "--rates %s: \"%s\" has to be a number above 0: FLOP/s or "
                              "bytes/s",
                              path, key);
    }
    if (!rc)
        fill_in(out, o);
    json_decref(o);
    return rc;
}

/* ---- the device ---- */

/* Threads that compute on this machine when all of its ranks do. */
static int busy_threads(const struct zt_run *run, int threads)
{
    int all = threads * run->local_world;
    cpu_set_t own;

    if (sched_getaffinity(0, sizeof(own), &own) == 0 && (!all || all > CPU_COUNT(&own)))
        all = CPU_COUNT(&own);
    return all;
}

static double median(double a, double b, double c)
{
    double low = a < b ? a : b, high = a < b ? b : a;

    return c < low ? low : c > high ? high : c;
}

/* A quarter more than the last cache holds, or what there is to spare, for `n` that measure at once. */
static size_t bytes_to_measure_in(int n)
{
    size_t limit, spare = zt_memory_left(&limit) / 16,
                  most = (size_t)zt_sysfile_last_cache(CACHES) / 4 * 5;

    return (spare < most ? spare : most) / (size_t)n;
}

/* One of `n` that do so at once. */
static zt_err measure_once(const struct zt_run *run, const struct zt_backend *be,
                           struct zt_device *dev, int n, struct zt_device_work *out,
                           struct zt_fault *fault)
{
    zt_dtype product = run->fp8 ? ZT_F8E4M3 : run->compute_dtype;
    size_t memory = be->runs_on_processor ? bytes_to_measure_in(n) : 0;

    return zt_measure_work(be, dev, product, run->compute_dtype, run->tf32, SECONDS,
                           memory, out, fault);
}

/* Threads that measure by themselves, each on a device of its own, as ranks do. */
struct by_itself {
    const struct zt_run *run;
    const struct zt_backend *be;
    int n;
    struct zt_device *dev[ZT_MAX_THREADS];
    struct zt_device_work work[ZT_MAX_THREADS];
    struct zt_fault fault[ZT_MAX_THREADS];
};

static void measure_ranks(int64_t begin, int64_t end, int thread, void *ctx)
{
    struct by_itself *all = ctx;

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        if (measure_once(all->run, all->be, all->dev[i], all->n, &all->work[i],
                         &all->fault[i]))
            return;
}

/* The sum of what `n` of them do at the same time. */
static zt_err measure_together(const struct zt_run *run, const struct zt_backend *be,
                               int n, struct zt_device_work *out, struct zt_fault *fault)
{
    struct by_itself *all = calloc(1, sizeof(*all));
    zt_err rc = all ? ZT_OK : zt_fault_set(fault, ZT_E_NOMEM, "no memory");

    *out = (struct zt_device_work){{0}};
    for (int i = 0; !rc && i < n; i++)
        rc = be->open(0, n, &all->dev[i], fault);
    if (!rc) {
        all->run = run;
        all->be = be;
        all->n = n;
        zt_parallel_for(n, 1, measure_ranks, all);
    }
    for (int i = 0; !rc && i < n; i++) {
        if (all->fault[i].code)
            rc = zt_fault_set(fault, all->fault[i].code, "%s", all->fault[i].text);
        for (int k = 0; k < ZT_NUM_WORK_KINDS; k++)
            out->of[k] += all->work[i].of[k];
    }
    for (int i = 0; all && i < n; i++)
        if (all->dev[i])
            be->close(all->dev[i]);
    free(all);
    return rc;
}

static zt_err measure_team(const struct zt_run *run, const struct zt_backend *be, int n,
                           struct zt_device_work *out, struct zt_fault *fault)
{
    struct zt_device *dev = NULL;
    zt_err rc = be->open(0, n, &dev, fault);

    if (!rc)
        rc = measure_once(run, be, dev, 1, out, fault);
    if (dev)
        be->close(dev);
    return rc;
}

/* A rank's part of what its machine's processors do together. */
static zt_err measure_processor(const struct zt_run *run, const struct zt_backend *be,
                                int threads, struct zt_device_work *out,
                                struct zt_fault *fault)
{
    int n = busy_threads(run, threads);
    struct zt_device_work w[PASSES];
    zt_err rc = ZT_OK;

    for (int i = 0; !rc && i < PASSES; i++)
        rc = threads == 1 ? measure_together(run, be, n, &w[i], fault)
                          : measure_team(run, be, n, &w[i], fault);
    for (int k = 0; !rc && k < ZT_NUM_WORK_KINDS; k++)
        out->of[k] = median(w[0].of[k], w[1].of[k], w[2].of[k]) / run->local_world;
    return rc;
}

static zt_err measure_device(const struct zt_run *run, const struct zt_backend *be,
                             struct zt_device *dev, int threads, struct zt_rates *out,
                             struct zt_fault *fault)
{
    return be->runs_on_processor
               ? measure_processor(run, be, threads, &out->device, fault)
               : measure_once(run, be, dev, 1, &out->device, fault);
}

/* ---- the whole ---- */

/* What was measured before; NULL: nothing, or it is to be measured again. */
static json_t *cached(const struct zt_run *run, const char *key)
{
    return run->rates && !strcmp(run->rates, "measure") ? NULL : zt_rates_cache_get(key);
}

/* Fill in what was measured just now, unless that failed, or what the cache had. */
static void use(struct zt_rates *r, json_t *o, const char *key, zt_err rc,
                const struct zt_rates *measured, const struct zt_fault *fault)
{
    if (rc)
        zt_info("memory", "%s: no time is estimated: %s", key, fault->text);
    if (!rc && !o) {
        o = zt_rates_json(measured);
        zt_rates_cache_put(key, o);
    }
    fill_in(r, o);
    json_decref(o);
}

static void find_device(const struct zt_run *run, const struct zt_backend *be,
                        struct zt_device *dev, int threads, struct zt_rates *r)
{
    struct zt_rates measured = {.node = 0};
    struct zt_fault fault = {ZT_OK, ""};
    zt_err rc = ZT_OK;
    char key[256];
    json_t *o;

    snprintf(key, sizeof(key), "%s %s%s%s, %d ranks on %d threads%s%s", be->name,
             zt_dtype_name(run->compute_dtype), run->tf32 ? " tf32" : "",
             run->fp8 ? " fp8" : "", run->local_world, busy_threads(run, threads),
             be->runs_on_processor ? ", " : "",
             be->runs_on_processor ? zt_cpu_describe() : "");
    o = cached(run, key);
    if (!o)
        rc = measure_device(run, be, dev, threads, &measured, &fault);
    use(r, o, key, rc, &measured, &fault);
}

static void find_files(const struct zt_run *run, struct zt_rates *r)
{
    struct zt_rates measured = {.node = 0};
    struct zt_fault fault = {ZT_OK, ""};
    zt_err rc = ZT_OK;
    char key[ZT_RATES_KEY];
    json_t *o;
    int at;

    at = snprintf(key, sizeof(key),
                  "files of %d ranks, %d threads of %lld x %d, %s%s:", run->local_world,
                  (int)run->aio.threads, (long long)run->aio.block_size,
                  (int)run->aio.queue_depth, run->aio_engine,
                  run->verify_swap ? ", verified" : "");
    for (const char *const *d = zt_rates_folders(run); *d && at < (int)sizeof(key); d++) {
        char *real = realpath(*d, NULL); /* a name means another folder elsewhere */

        at += snprintf(key + at, sizeof(key) - (size_t)at, " %s", real ? real : *d);
        free(real);
    }
    o = cached(run, key);
    if (!o)
        rc = zt_rates_measure_files(run, &measured, &fault);
    use(r, o, key, rc, &measured, &fault);
}

zt_err zt_rates_find(const struct zt_run *run, const struct zt_backend *backend,
                     struct zt_device *device, int threads, struct zt_rates *out,
                     struct zt_fault *fault)
{
    bool device_known = true, has_products;
    double operands;
    zt_err rc = ZT_OK;

    *out = (struct zt_rates){.has_idle_cores =
                                 busy_threads(run, threads) < busy_threads(run, 0)};
    if (run->rates && strcmp(run->rates, "auto") != 0 &&
        strcmp(run->rates, "measure") != 0)
        rc = read_file(run->rates, out, fault);
    if (rc)
        return rc;
    for (int k = 0; k < ZT_NUM_WORK_KINDS; k++)
        device_known &= out->device.of[k] > 0 || k == ZT_WORK_OPERANDS;
    has_products = out->device.of[ZT_WORK_PRODUCTS] > 0;
    operands = out->device.of[ZT_WORK_OPERANDS];
    if (!device_known && device)
        find_device(run, backend, device, threads, out);
    if (has_products) /* what is measured here is of other ones */
        out->device.of[ZT_WORK_OPERANDS] = operands;
    if (zt_rates_folders(run) && !(out->read > 0 && out->write > 0))
        find_files(run, out);
    return ZT_OK;
}
