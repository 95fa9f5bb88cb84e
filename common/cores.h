/*
 * cores.h -- which processors this process may use, and how ranks share them.
 *
 * A core is a physical core with the hardware threads of it that are in the affinity
 * mask. Shares are contiguous in core number and differ by at most one core: C1  with at
 * least as many cores as ranks, every core belongs to exactly one rank; C2  with fewer,
 * no rank is bound and each counts on one thread. Threads: any.
 */
#ifndef COMMON_CORES_H
#define COMMON_CORES_H

#include "common/fault.h"

#include <sched.h>

struct zt_cores {
    int num;        /* physical cores */
    cpu_set_t *cpu; /* (num) hardware threads of each, in the mask */
    int quota;      /* whole processors a cgroup limit leaves, at least 1; 0: no limit */
};

/*
 * The affinity mask of the caller, cut down to `list` ("1,3-5,7") when that is not NULL.
 * ZT_E_USAGE: the list is malformed or names a processor outside the mask.
 */
zt_err zt_cores_init(struct zt_cores *c, const char *list,
                     struct zt_fault *fault) ZT_MUST_CHECK;
void zt_cores_release(struct zt_cores *c);

struct zt_core_share {
    cpu_set_t mask; /* what to bind to, when `bind` */
    int threads;    /* computing threads this rank should run, at least 1 */
    bool bind;
    bool crowded; /* more ranks than cores: waiting threads must not spin */
};

void zt_cores_share(const struct zt_cores *c, int local_rank, int local_world,
                    struct zt_core_share *out);

/* "0-3,8" */
void zt_cores_text(const cpu_set_t *mask, char *out, size_t out_bytes);

#endif
