/*
 * rates.h -- how fast a rank is: what turns the work of a plan into an estimate of time.
 *
 * Rates are those of one rank while all ranks of its machine are at work. They come from
 * the file of --rates; what it does not say is measured here, once for a machine and kind
 * of run, and kept in the user's cache ($XDG_CACHE_HOME or ~/.cache, zlaunch/rates.json).
 */
#ifndef WORKER_ENGINE_MEMORY_RATES_H
#define WORKER_ENGINE_MEMORY_RATES_H

#include <jansson.h>

#include "kernels/meta/work.h"
#include "worker/config/run.h"

/* FLOP/s and bytes/s; 0: not known, of operands that they take no time of their own. */
struct zt_rates {
    struct zt_device_work device;
    double node;        /* bytes between ranks of a machine; on a processor that share
                         * memory they move at device.of[ZT_WORK_STREAMS] */
    double network;     /* bytes between machines */
    double read, write; /* bytes of files in nvme_path */
    double pieces; /* pieces of files, by what each takes beside its bytes; 0: nothing */
    double moves;  /* bytes of files, by what the threads that move them take of a
                    * processor: checksums, and the kernel's part; 0: nothing */
    bool has_idle_cores; /* a processor has cores that none of its ranks computes on */
};

/*
 * `backend`, `device` NULL: the device is not here, and nothing of it is measured.
 * `threads`: of a rank on a processor. Takes one to a few seconds where it measures, and sets the
 * threads of this process: nothing is to be computed afterwards. ZT_E_NOINPUT, ZT_E_CONFIG:
 * the file of --rates.
 */
zt_err zt_rates_find(const struct zt_run *run, const struct zt_backend *backend,
                     struct zt_device *device, int threads, struct zt_rates *out,
                     struct zt_fault *fault) ZT_MUST_CHECK;

/* By the name that --rates has for it. */
void zt_rates_set(struct zt_rates *r, const char *name, double rate);

/* As --rates reads it: an object with what is known. NULL: no memory. */
json_t *zt_rates_json(const struct zt_rates *r);

#endif
