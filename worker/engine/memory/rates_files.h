/*
 * rates_files.h -- how fast files are where state is kept in them: a part of rates.h.
 */
#ifndef WORKER_ENGINE_MEMORY_RATES_FILES_H
#define WORKER_ENGINE_MEMORY_RATES_FILES_H

#include "worker/engine/memory/rates.h"

/* Where state is kept in files; NULL: nowhere. */
const char *const *zt_rates_folders(const struct zt_run *run);

/*
 * read, write, pieces and moves of *out, by a file in those folders: a rank's part of the drives that the
 * ranks of its machine share, with the threads of all of them, which make the checksums.
 */
zt_err zt_rates_measure_files(const struct zt_run *run, struct zt_rates *out,
                              struct zt_fault *fault) ZT_MUST_CHECK;

/*
 * What part of the seconds of a piece its bytes take, of pieces of two lengths, the shorter one so many
 * times (below 1) as long; the rest is the same for both. 1 where that cannot be: the shorter one took no less,
 * or less than its bytes do. Pure.
 */
double zt_rates_share_of_bytes(double longer, double shorter, double lengths);

#endif
