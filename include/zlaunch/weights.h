/*
 * weights.h -- reading and changing weights outside of a pass, whoever holds them.
 *
 * Under ZeRO no rank needs to hold a parameter whole, and then no rank has it whole at
 * hand. These calls collect the asked-for elements from the ranks that hold them, for
 * reading, or hand new ones to those ranks (DeepSpeed's GatheredParameters).
 *
 * They are for the hooks `setup` and `after_step` of a plugin. Every rank runs the hooks
 * and makes the same calls in the same order: a call talks to all of them.
 * Values are the fp32 master copies, row-major.
 * Errors: a failed call returns false and is remembered; later calls do nothing and
 * return false. The hook returns, and the run stops with the first failure.
 * Threads: the one that runs the hook.
 */
#ifndef ZLAUNCH_WEIGHTS_H
#define ZLAUNCH_WEIGHTS_H

#include <zlaunch/model.h>
#include <zlaunch/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zt_weights zt_weights;

/* This rank, and how many there are. */
ZT_API int zt_weights_rank(const zt_weights *w);
ZT_API int zt_weights_world(const zt_weights *w);

/* Number of elements of a parameter. */
ZT_API int64_t zt_param_numel(const zt_param *p);

/* `n` values of `p` from element `from` on, to every rank's `values` (n). */
ZT_API bool zt_weights_read(zt_weights *w, const zt_param *p, int64_t from, int64_t n,
                            float *values);

/*
 * Replace `n` values of `p` from element `from` on. Those of rank 0 count; what the other
 * ranks pass is overwritten with them, so that they know them, too. Under adapters (--lora_r)
 * after_step cannot change the model itself, which is saved nowhere.
 */
ZT_API bool zt_weights_write(zt_weights *w, zt_param *p, int64_t from, int64_t n,
                             float *values);

#ifdef __cplusplus
}
#endif
#endif
