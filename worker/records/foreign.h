/*
 * foreign.h -- files that people give as data by mistake: archives, tables in other formats,
 * weights; and what can be done.
 *
 * Threads: any.
 */
#ifndef WORKER_RECORDS_FOREIGN_H
#define WORKER_RECORDS_FOREIGN_H

#include "common/mapped_file.h"

/* By its first bytes: "a gzip archive: unpack it". NULL: it is none that is known. */
const char *zt_foreign_data(struct zt_mapping m);

/* As zt_mapping_open(); a folder of Hugging Face's `datasets` is refused as one. */
zt_err zt_data_file_open(const char *path, struct zt_mapping *out,
                         struct zt_fault *fault) ZT_MUST_CHECK;

#endif
