/*
 * threads.c -- how many threads a rank on a processor computes with.
 *
 * zlaunch's daemon has divided the cores and says so by OMP_NUM_THREADS, which it leaves as
 * it is where a person has set it. Other launchers bind each rank to its part, or leave
 * them all on the same processors, where each takes its share. (torchrun sets
 * OMP_NUM_THREADS to 1 whatever the machine: that is nobody's wish.)
 */
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/env.h"
#include "worker/engine/engine.h"

#define MOST_THREADS 4096

/* May this process run on just what its parent may? Then nobody has bound it. */
static bool is_unbound(const cpu_set_t *own)
{
    cpu_set_t parent;

    return sched_getaffinity(getppid(), sizeof(parent), &parent) == 0 &&
           CPU_EQUAL(own, &parent);
}

int zt_engine_threads(const struct zt_run *run)
{
    int64_t given = 0;
    cpu_set_t own;
    int n;

    if (run->threads)
        return (int)run->threads;
    if (getenv("ZLAUNCH_JOB_ID") &&
        !zt_env_int("OMP_NUM_THREADS", 1, MOST_THREADS, &given, NULL) && given > 0)
        return (int)given;
    if (run->local_world == 1 || sched_getaffinity(0, sizeof(own), &own) ||
        !is_unbound(&own))
        return 0;
    n = CPU_COUNT(&own) / run->local_world;
    return n > 0 ? n : 1;
}
