/* offload.c -- where model state is to be kept, and what goes with that and what does not. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "worker/config/resolve.h"

#define ZT_MAX_NVME_PATHS 16
#define OPTIMIZER         "zero_optimization.offload_optimizer"
#define PARAM             "zero_optimization.offload_param"

/* "2GiB", "1.5G", "800 MiB", "4096": binary units, as memory is counted. 0: no size. */
static uint64_t parse_size(const char *text)
{
    static const struct {
        const char *name;
        int shift;
    } units[] = {{"", 0},    {"B", 0},  {"KiB", 10}, {"K", 10},  {"MiB", 20}, {"M", 20},
                 {"MB", 20}, {"G", 30}, {"GiB", 30}, {"GB", 30}, {"TiB", 40}, {"T", 40}};
    char *end;
    double value = strtod(text, &end), bytes = 0;

    end += strspn(end, " ");
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
        if (end != text && !strcasecmp(end, units[i].name))
            bytes = value * (double)(1ull << units[i].shift);
    return bytes > 0 && bytes < 9e18 ? (uint64_t)bytes : 0;
}

/* Of an option; unless said there is no limit. */
static void resolve_size(struct zt_config *c, const char *option, bool may_be_none,
                         uint64_t *bytes)
{
    const struct zt_value *v = zt_args_value(c->args, option);

    *bytes = v->text ? parse_size(v->text) : UINT64_MAX;
    if (*bytes == 0 && !(may_be_none && strcmp(v->text, "0") == 0))
        zt_problems_add(&c->report, zt_value_error(v),
                        "%s: \"%s\" is no size; write it as 2GiB or 512MiB", v->where,
                        v->text);
}

/* One folder, or a list of them: files are striped over all. */
static const char *const *read_paths(struct zt_config *c, const struct zt_item *item)
{
    const struct zt_jnode *value = item->value, *e = value;
    const char **paths;
    int n = 1, k = 0;

    if (value->type == ZT_JSON_ARRAY) {
        e = value->first;
        n = 0;
        for (const struct zt_jnode *i = e; i; i = i->next)
            n++;
    }
    paths = zt_text_arena_alloc(&c->arena, ((size_t)n + 1) * sizeof(*paths));
    for (; paths && k < n; k++, e = e->next) {
        paths[k] = e->type == ZT_JSON_STRING ? e->text : "";
        if (!*paths[k])
            n = 0;
    }
    if (n >= 1 && n <= ZT_MAX_NVME_PATHS)
        return paths;
    zt_problems_add(&c->report, ZT_E_CONFIG,
                    "%s: \"%s\" must be a folder, or an array of 1 to %d", item->where,
                    item->path, ZT_MAX_NVME_PATHS);
    return NULL;
}

/* The folders of a section, where it has any. */
static const char *const *resolve_paths(struct zt_config *c, const char *section,
                                        zt_offload_device device)
{
    const char *path = zt_text_arena_printf(&c->arena, "%s.nvme_path", section);
    const struct zt_item *item = zt_config_find(c, path);
    bool given = item && !item->is_auto && item->value->type != ZT_JSON_NULL;

    if (given && device != ZT_OFFLOAD_NVME)
        zt_problems_note(
            &c->report, "%s: \"%s\" has no effect: \"device\" beside it is %s, not nvme",
            item->where, item->path, device == ZT_OFFLOAD_CPU ? "cpu" : "none");
    if (given)
        zt_config_set(c, path, item->value, item->where);
    else if (device == ZT_OFFLOAD_NVME)
        zt_problems_add(&c->report, ZT_E_CONFIG,
                        "%s.device is nvme: say where, with %s, a folder on that drive",
                        section, path);
    return given ? read_paths(c, item) : NULL;
}

/* The key of older documents says what a section says today. */
static void resolve_old_key(struct zt_config *c, const char *old_key, bool value,
                            const char *section, zt_offload_device *device)
{
    const char *path = zt_text_arena_printf(&c->arena, "%s.device", section);
    const struct zt_item *old = zt_config_find(c, old_key);
    const struct zt_item *now = zt_config_find(c, path);

    if (!value || *device == ZT_OFFLOAD_CPU)
        return;
    if (now && !now->is_auto) {
        zt_problems_add(&c->report, ZT_E_CONFIG,
                        "%s: \"%s\" is true, but %s: \"%s\" is %s; leave one of them "
                        "out",
                        old->where, old->path, now->where, path,
                        *device == ZT_OFFLOAD_NVME ? "nvme" : "none");
        return;
    }
    if (*device != ZT_OFFLOAD_NONE) /* as an option says */
        return;
    *device = ZT_OFFLOAD_CPU;
    zt_config_set(c, path, zt_jnode_new(&c->arena, ZT_JSON_STRING, "cpu"), old->where);
}

/* 16-bit accumulators that are summed over the ranks behind the last micro-batch are
 * summed where they are. */
static bool sums_accumulators(const struct zt_run *run)
{
    return run->zero.grad_accum_dtype != ZT_F32 && run->zero.stage == 1 &&
           run->world > 1 && run->grad_accum_steps > 1 && !run->reduce_every_micro_batch;
}

static void check_optimizer(struct zt_config *c, const struct zt_run *run)
{
    if (run->zero.offload_optimizer.device == ZT_OFFLOAD_NONE || !run->do_train)
        return;
    if (run->zero.stage == 0)
        zt_problems_add(&c->report, ZT_E_CONFIG,
                        OPTIMIZER " needs ZeRO stage 1, 2 or 3, and "
                                  "zero_optimization.stage is 0: set it to 1");
    if (sums_accumulators(run))
        zt_problems_add(&c->report, ZT_E_CONFIG,
                        OPTIMIZER " at stage 1 with 16-bit data_types.grad_accum_dtype: "
                                  "accumulators that are summed at the end of a step "
                                  "stay on the device; give --reduce_every_micro_batch, "
                                  "or stage 2, or fp32 accumulators");
}

static void check_param(struct zt_config *c, const struct zt_run *run)
{
    if (run->zero.offload_param.device == ZT_OFFLOAD_NONE)
        return;
    if (run->zero.stage != 3)
        zt_problems_add(&c->report, ZT_E_CONFIG,
                        PARAM " needs ZeRO stage 3, where weights are gathered for use, "
                              "and zero_optimization.stage is %d",
                        run->zero.stage);
    if (run->zero.hpz_partition_size > 1)
        zt_problems_add(&c->report, ZT_E_CONFIG,
                        PARAM " with zero_optimization.zero_hpz_partition_size %d: the "
                              "second partition keeps weights on the device; leave one "
                              "of them out",
                        run->zero.hpz_partition_size);
}

void zt_resolve_offload(struct zt_config *c, struct zt_run *run)
{
    struct zt_offload_optimizer *optimizer = &run->zero.offload_optimizer;
    struct zt_offload_param *param = &run->zero.offload_param;

    resolve_size(c, "device_memory", false, &run->device_memory_bytes);
    resolve_size(c, "save_memory", true, &run->save_memory_bytes);
    resolve_old_key(c, "zero_optimization.cpu_offload", run->zero.cpu_offload, OPTIMIZER,
                    &optimizer->device);
    resolve_old_key(c, "zero_optimization.cpu_offload_param", run->zero.cpu_offload_param,
                    PARAM, &param->device);
    optimizer->nvme_paths = resolve_paths(c, OPTIMIZER, optimizer->device);
    param->nvme_paths = resolve_paths(c, PARAM, param->device);
    if (run->aio.block_size % 4096)
        zt_problems_add(&c->report, ZT_E_CONFIG,
                        "aio.block_size %lld is no multiple of 4096, as direct access to "
                        "files needs",
                        (long long)run->aio.block_size);
    run->cpu_checkpointing |= run->activations && !strcmp(run->activations, "host");
    check_optimizer(c, run);
    check_param(c, run);
}
