#include "worker/engine/memory/trial.h"

void zt_memory_trial_begin(struct zt_memory_trial *t)
{
    t->run = *t->given->run;
    t->in = *t->given;
    t->in.run = &t->run;
}

bool zt_memory_trial_overlaps(const struct zt_run *given, int stage)
{
    return given->zero.overlap_comm ||
           (stage == 3 && given->zero.stage < 3 &&
            !zt_run_json_says(given, "zero_optimization.overlap_comm"));
}

void zt_memory_trial_set_stage(struct zt_memory_trial *t, int stage)
{
    t->run.zero.stage = stage;
    t->run.zero.share_node_weights =
        t->given->run->zero.share_node_weights && stage > 0 && stage < 3;
    t->run.zero.overlap_comm = zt_memory_trial_overlaps(t->given->run, stage);
}

bool zt_memory_trial_fits(struct zt_memory_trial *t)
{
    const struct zt_memory_plan *was = t->of;

    zt_model_layout(t->in.model, t->run.world);
    if (zt_memory_plan_make(&t->in, &t->plan, NULL))
        return false;
    t->plan.available = was->available;
    t->plan.addresses = was->addresses;
    t->plan.device_limit = was->device_limit;
    t->plan.shm_available = was->shm_available;
    t->plan.host_available = was->host_available;
    t->plan.sharers =
        was->sharers < t->run.local_world ? was->sharers : t->run.local_world;
    zt_memory_plan_find_room(&t->plan, &t->run);
    zt_memory_plan_fit_snapshot(&t->plan, &t->run);
    return zt_memory_plan_fits(&t->plan);
}

void zt_memory_trial_end(struct zt_memory_trial *t)
{
    zt_model_layout(t->given->model, t->given->run->world);
}

/* ---- what to divide by ---- */

/* Above so many, each is at least twice the one before: there are fewer than 64 of those. */
#define CLOSE_RUNGS 32

static void add_rung(struct zt_memory_ladder *l, int64_t by)
{
    if (l->num < CLOSE_RUNGS || by / 2 >= l->rung[l->num - 1])
        l->rung[l->num++] = by;
}

/* They come in pairs, one of which is no larger than the root of n. */
struct zt_memory_ladder zt_memory_divisors(int64_t n)
{
    struct zt_memory_ladder l = {.num = 0};
    int64_t by = 2;

    for (; by <= n / by; by++)
        if (n % by == 0)
            add_rung(&l, by);
    for (by--; by > 0; by--)
        if (n % by == 0 && n / by > by)
            add_rung(&l, n / by);
    return l;
}
