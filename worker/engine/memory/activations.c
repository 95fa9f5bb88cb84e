/* activations.c -- --activations auto: the way to keep them that fits. */
#include <string.h>

#include "common/log.h"
#include "worker/engine/memory/plan.h"

/* In the order of their speed. */
static const char *const ways[] = {"kept", "recomputed", "recomputed from host memory"};
enum { KEPT, RECOMPUTED, FROM_HOST, NUM_WAYS };

static void set_way(struct zt_run *run, int way)
{
    run->gradient_checkpointing = way != KEPT;
    run->cpu_checkpointing = way == FROM_HOST;
}

static zt_err make(const struct zt_memory_plan_inputs *in,
                   const struct zt_backend *backend, struct zt_device *dev,
                   struct zt_memory_plan *out, struct zt_fault *fault)
{
    zt_err rc = zt_memory_plan_make(in, out, fault);

    return rc ? rc : zt_memory_plan_measure(out, in->run, backend, dev, fault);
}

zt_err zt_memory_plan_choose(const struct zt_memory_plan_inputs *in, struct zt_run *run,
                             const struct zt_backend *backend, struct zt_device *dev,
                             struct zt_memory_plan *out, struct zt_fault *fault)
{
    bool chooses =
        run->do_train && run->activations && strcmp(run->activations, "auto") == 0;
    zt_err rc = make(in, backend, dev, out, fault);
    /* where the host's memory is the device's, inputs on the host save nothing */
    int last =
        zt_run_is_staged(run) || out->device_limit != SIZE_MAX ? FROM_HOST : RECOMPUTED;
    int way = KEPT;

    for (; !rc && chooses && !zt_memory_plan_fits(out) && way < last;) {
        set_way(run, ++way);
        rc = make(in, backend, dev, out, fault);
    }
    if (!rc && chooses && run->rank == 0)
        zt_info("memory", "--activations auto: they are %s", ways[way]);
    return rc;
}
