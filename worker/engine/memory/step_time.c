#include "worker/engine/memory/step_time.h"

#include <math.h>
#include <string.h>

struct clock {
    const struct zt_run *run;
    const struct zt_rates *rates;
    const char *missing;
};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double divide(struct clock *c, double amount, double rate, const char *name)
{
    if (amount <= 0)
        return 0;
    if (!(rate > 0) && !c->missing)
        c->missing = name;
    return amount / rate;
}

static double kind_seconds(struct clock *c, const struct zt_device_work *w,
                           zt_work_kind kind)
{
    static const char *const names[ZT_NUM_WORK_KINDS] = {
        [ZT_WORK_PRODUCTS] = "products",   [ZT_WORK_ATTENTION] = "attention",
        [ZT_WORK_FUNCTIONS] = "functions", [ZT_WORK_STREAMS] = "streams",
        [ZT_WORK_UPDATES] = "updates",     [ZT_WORK_TRANSFERS] = "transfers",
    };

    if (kind == ZT_WORK_OPERANDS && !(c->rates->device.of[kind] > 0))
        return 0;
    return divide(c, w->of[kind], c->rates->device.of[kind], names[kind]);
}

/* Copies of the inputs of blocks have a stream of their own beside the kernels; those of
 * offloaded state are queued among them. */
static double device_seconds(struct clock *c, const struct zt_device_work *w)
{
    double kernels = 0, transfers = kind_seconds(c, w, ZT_WORK_TRANSFERS);

    for (zt_work_kind kind = 0; kind < ZT_NUM_WORK_KINDS; kind++)
        kernels += kind == ZT_WORK_TRANSFERS ? 0 : kind_seconds(c, w, kind);
    return zt_run_is_staged(c->run) && zt_run_moves_inputs(c->run)
               ? larger(kernels, transfers)
               : kernels + transfers;
}

/* Whether ranks read one another's memory: then collectives are work of their cores. */
static bool shares_memory(const struct zt_run *run)
{
    return !zt_run_is_staged(run) && run->world == run->local_world &&
           (!strcmp(run->comm, "auto") || !strcmp(run->comm, "shm"));
}

/*
 * Every rank sums its shard of all ranks' buffers and copies the shards of the others.
 * Between processes that do not share memory each sends all but its own part.
 */
static double collective_seconds(struct clock *c, const struct zt_zero_traffic *t)
{
    double W = c->run->world, near = c->run->zero.hpz_partition_size;
    bool apart = c->run->world > c->run->local_world;
    double bytes = (t->reduced + t->gathered) * (W - 1) / W,
           near_bytes = near > 1 ? t->near_gathered * (near - 1) / near : 0;

    if (shares_memory(c->run))
        return divide(
            c, t->reduced * (1 + 1 / W) + 2 * t->gathered * (W - 1) / W + 2 * near_bytes,
            c->rates->device.of[ZT_WORK_STREAMS], "streams");
    return divide(c, bytes, apart ? c->rates->network : c->rates->node,
                  apart ? "network" : "node") +
           divide(c, near_bytes, c->rates->node, "node");
}

/* Collectives run in the background: beside kernels on a GPU, or on cores that no rank
 * computes on. */
static double with_collectives(struct clock *c, double kernels,
                               const struct zt_zero_traffic *t)
{
    double collectives = collective_seconds(c, t);
    bool beside =
        c->run->zero.overlap_comm && (!shares_memory(c->run) || c->rates->has_idle_cores);

    return beside ? larger(kernels, collectives) : kernels + collectives;
}

/* What moves files takes of a processor is work of the rank where it has no core to itself. */
static double moving_seconds(const struct clock *c, const struct zt_swap_traffic *f)
{
    return c->rates->moves > 0 && !c->rates->has_idle_cores
               ? (f->read + f->written) / c->rates->moves
               : 0;
}

static double piece_seconds(const struct clock *c, double pieces)
{
    return c->rates->pieces > 0 ? pieces / c->rates->pieces : 0;
}

/* The part of bytes that is not among so many. */
static double beyond(double bytes, double some)
{
    return bytes > some ? (bytes - some) / bytes : 0;
}

/*
 * What part of its reads goes on beside a pass. It begins with a bucket of blocks that are gathered ahead,
 * and waits for those of their weights that are in files; of the others each moves beside the block before.
 */
static double part_read_ahead(const struct clock *c, const struct zt_step_work *w,
                              const struct zt_swap_traffic *f)
{
    const struct zt_zero_options *z = &c->run->zero;
    double bucket = (double)z->prefetch_bucket_size *
                    (double)zt_dtype_bytes(c->run->compute_dtype) / c->run->world;

    if (z->offload_param.device != ZT_OFFLOAD_NVME || !z->overlap_comm)
        return 1;
    return beyond(f->read, larger(bucket - w->weights_in_host, 0));
}

/* A part of a step whose files are read (`ahead` of them) and written beside it, or in turns with
 * it. */
static double phase_seconds(struct clock *c, const struct zt_phase_work *p, double ahead,
                            bool behind)
{
    const struct zt_swap_traffic *f = &p->traffic.files;
    double read = divide(c, f->read, c->rates->read, "read") + piece_seconds(c, f->reads),
           write = divide(c, f->written, c->rates->write, "write") +
                   piece_seconds(c, f->writes);
    double work = with_collectives(c, device_seconds(c, &p->device), &p->traffic) +
                  moving_seconds(c, f);

    return larger(work, ahead * read + (behind ? write : 0)) + (1 - ahead) * read +
           (behind ? 0 : write);
}

/* Whether a block is updated when the next forward comes near it. Where ranks share weights
 * they have all new ones before that, or gather them beside it. */
static bool updates_beside_forward(const struct zt_run *run)
{
    const struct zt_zero_options *z = &run->zero;

    return z->offload_optimizer.device == ZT_OFFLOAD_NVME &&
           z->offload_optimizer.pipeline_read &&
           (run->world == 1 || z->stage == 3 ||
            (z->overlap_comm && !z->share_node_weights));
}

static double file_seconds(struct clock *c, const struct zt_swap_traffic *f)
{
    return divide(c, f->read, c->rates->read, "read") +
           divide(c, f->written, c->rates->write, "write") +
           piece_seconds(c, f->reads + f->writes);
}

/* What buffers hold of the pieces that an update moves, most of which are shorter. */
static double held_bytes(const struct zt_step_work *w, const struct zt_swap_traffic *u)
{
    double pieces = u->reads + u->writes;

    return pieces > 0 ? w->buffers * (u->read + u->written) / pieces / u->longest : 0;
}

/*
 * The first pass, and the update that goes on in its forward, which is a third of it, or with
 * recomputation a fourth. What buffers hold of the update is read beside the backward before and
 * written beside the one behind; the rest moves beside forward, and all of it is a drive's that does
 * one thing after the other. Of weights forward and backward read a half each.
 */
static double pass_with_update(struct clock *c, const struct zt_step_work *w,
                               const struct zt_phase_work *first,
                               const struct zt_phase_work *update)
{
    const struct zt_swap_traffic *f = &first->traffic.files, *u = &update->traffic.files;
    double share = c->run->gradient_checkpointing ? 1.0 / 4 : 1.0 / 3;
    double pass =
        with_collectives(c, device_seconds(c, &first->device), &first->traffic) +
        moving_seconds(c, f);
    double work =
        with_collectives(c, device_seconds(c, &update->device), &update->traffic) +
        moving_seconds(c, u);
    double held = held_bytes(w, u);
    double read = beyond(u->read, held), written = beyond(u->written, held);
    struct zt_swap_traffic with_forward = {.read = f->read / 2 + u->read * read,
                                           .reads = f->reads / 2 + u->reads * read,
                                           .written = u->written * written,
                                           .writes = u->writes * written};
    struct zt_swap_traffic with_backward = {.read = f->read / 2,
                                            .reads = f->reads / 2,
                                            .written = f->written,
                                            .writes = f->writes};

    return larger(larger(pass * share + work, file_seconds(c, &with_forward)) +
                      larger(pass * (1 - share), file_seconds(c, &with_backward)),
                  file_seconds(c, f) + file_seconds(c, u));
}

/* Writes that nothing goes on beside: their seconds, and no more than those. */
static double take_writes(struct clock *c, struct zt_phase_work *p)
{
    struct zt_swap_traffic *f = &p->traffic.files;
    double seconds =
        divide(c, f->written, c->rates->write, "write") + piece_seconds(c, f->writes);

    f->written = f->writes = 0;
    return seconds;
}

double zt_step_seconds(const struct zt_step_work *work, const struct zt_run *run,
                       const struct zt_rates *rates, const char **missing)
{
    const struct zt_offload_optimizer *o = &run->zero.offload_optimizer;
    struct clock c = {.run = run, .rates = rates};
    struct zt_phase_work between = work->last, first = work->first, update = work->update;
    double sum = 0;

    if (!work->reduces_each)
        between.traffic.reduced = between.traffic.gathered = 0;
    if (run->zero.overlap_comm) { /* new weights arrive beside the next forward */
        first.traffic.gathered += update.traffic.gathered;
        update.traffic.gathered = 0;
    }
    if (updates_beside_forward(run)) {
        if (!o->pipeline_write)
            sum = take_writes(&c, &first) + take_writes(&c, &update);
        sum += pass_with_update(&c, work, &first, &update);
    } else {
        /* gradients are written behind as the pipeline says */
        sum = phase_seconds(&c, &first, part_read_ahead(&c, work, &first.traffic.files),
                            o->pipeline_write) +
              phase_seconds(&c, &update, o->pipeline_read, o->pipeline_write);
    }
    if (work->micro_batches > 1)
        sum += phase_seconds(&c, &work->last,
                             part_read_ahead(&c, work, &work->last.traffic.files),
                             o->pipeline_write) +
               (double)(work->micro_batches - 2) *
                   phase_seconds(&c, &between,
                                 part_read_ahead(&c, work, &between.traffic.files),
                                 o->pipeline_write);
    sum += phase_seconds(&c, &work->norm, o->pipeline_read, false);
    *missing = c.missing;
    return c.missing ? NAN : sum;
}
