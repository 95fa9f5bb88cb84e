/*
 * cores.h -- which processors this process may use, and how ranks share them.
 *
 * A core is a physical core with the hardware threads of it that are in the affinity
 * mask. Cores of one NUMA node are consecutive. With at least as many cores as ranks:
 *
 *      C1  every core belongs to one rank, and a rank's cores are consecutive; only
 *          with C3 a whole NUMA node may stay unused
 *      C2  every rank has at least cores / ranks cores, rounded down
 *      C3  if C2 allows it, all cores of a rank are in one NUMA node
 *      C4  else, and within a NUMA node, shares differ by at most one core
 *
 * With fewer cores than ranks no rank is bound, but where a list was given to all of it, and each runs
 * one thread.
 * Threads: any.
 */
#ifndef COMMON_CORES_CORES_H
#define COMMON_CORES_CORES_H

#include "common/fault.h"

#include <sched.h>

struct zt_core {
    cpu_set_t cpu; /* its hardware threads, in the mask */
    int node;      /* NUMA node, as the system numbers it; -1: not known */
    int memory;    /* node that its memory should come from; -1: not known */
};

struct zt_cores {
    int num;
    struct zt_core *core; /* (num) */
    int num_nodes;        /* NUMA nodes that they lie in, at least 1 */
    int quota; /* whole processors a cgroup limit leaves, at least 1; 0: no limit */
};

/*
 * The affinity mask of the caller, cut down to `list` ("1,3-5,7") when that is not NULL.
 * ZT_E_USAGE: the list is malformed or names a processor outside the mask.
 */
zt_err zt_cores_init(struct zt_cores *c, const char *list,
                     struct zt_fault *fault) ZT_MUST_CHECK;
void zt_cores_release(struct zt_cores *c);
/* The same on a machine that hwloc makes up, as in "package:2 numa:2 core:4 pu:2"; all of
 * it may be used. ZT_E_USAGE: it makes no sense. */
zt_err zt_cores_init_synthetic(struct zt_cores *c, const char *machine, const char *list,
                               struct zt_fault *fault) ZT_MUST_CHECK;

struct zt_core_share {
    cpu_set_t mask; /* what to bind to, when `bind` */
    int threads;    /* computing threads this rank should run, at least 1 */
    int node;       /* the NUMA node that all of it lies in; -1: several, or not known */
    int memory;     /* node to prefer for the rank's memory; -1: none */
    bool bind;
    bool crowded; /* more ranks than cores: waiting threads must not spin */
};

void zt_cores_share(const struct zt_cores *c, int local_rank, int local_world,
                    struct zt_core_share *out);

/* "0-3,8" */
void zt_cores_text(const cpu_set_t *mask, char *out, size_t out_bytes);

#endif
