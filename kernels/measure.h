/*
 * measure.h -- how much work of each kind a device does in a second: what an estimate of
 * time divides the work of a plan by (kernels/meta/work.h).
 */
#ifndef KERNELS_MEASURE_H
#define KERNELS_MEASURE_H

#include "kernels/meta/work.h"

/*
 * Rates in FLOP/s and bytes/s, infinite where a kind takes no time of its own; products in
 * a type of their own (fp8). Each kind runs for about `seconds`, after calls that warm up and
 * find out how large one may be for that; the median counts, on a processor of the time that
 * its threads got: other programs matter little.
 * Takes `memory` bytes of the device, at least 80 MiB, or 400 MiB of one with memory of its own.
 * Calls take their operands in turns from all of it: where it is more than the caches hold, they
 * find them in memory, as most operands of a step are.
 */
zt_err zt_measure_work(const struct zt_backend *be, struct zt_device *dev,
                       zt_dtype product, zt_dtype dtype, bool tf32, double seconds,
                       size_t memory, struct zt_device_work *rates,
                       struct zt_fault *fault) ZT_MUST_CHECK;

#endif
