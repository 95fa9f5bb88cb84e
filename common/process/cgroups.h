/*
 * cgroups.h -- the control groups that this process is in, and what they leave it.
 *
 * A process is in one group of version 2, and in one of each hierarchy of version 1 that is
 * mounted. A limit of any group above holds as well: a container in a slice, a step in a job
 * of Slurm. `root` is where the file system of this machine begins: "", but for tests.
 * Threads:   any.
 * Failure:   what cannot be read sets no limit.
 */
#ifndef COMMON_PROCESS_CGROUPS_H
#define COMMON_PROCESS_CGROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of the group that leaves least. */
struct zt_cgroups_memory {
    uint64_t limit_bytes; /* UINT64_MAX: none sets one */
    uint64_t used_bytes;  /* without file pages that the kernel would give back at once */
    uint64_t left_bytes;  /* limit - used, or UINT64_MAX */
};

void zt_cgroups_read_memory(const char *root, struct zt_cgroups_memory *out);

/* Processors whose time they give; 0: no limit. */
double zt_cgroups_read_cpus(const char *root);

/* Processes of this process's group that the kernel's OOM killer ended so far, or where no
 * group counts them, of the machine; -1: not known. */
int64_t zt_cgroups_count_oom_kills(const char *root);

/* The folder of the group of version 2; false: none is mounted. */
bool zt_cgroups_folder(const char *root, char *out, size_t n);

#endif
