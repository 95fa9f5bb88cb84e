/*
 * sysfile.h -- what the kernel tells in files of one line.
 *
 * Threads:   any.
 * Failure:   an absent file reads as absent; nothing here is an error.
 */
#ifndef COMMON_SYSFILE_H
#define COMMON_SYSFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first line of a file without its newline; false and "": there is none. */
bool zt_sysfile_line(const char *path, char *out, size_t n);

/* A line of /proc/meminfo ("MemAvailable") in bytes; UINT64_MAX: there is none. */
uint64_t zt_sysfile_meminfo(const char *key);

/* Bytes of the largest cache in `folder` (/sys/devices/system/cpu/cpu0/cache), shared or not; 0: it does not say. */
uint64_t zt_sysfile_last_cache(const char *folder);

/* NVIDIA GPUs that `folder` (/dev) has nodes of: those that a container was given. */
int zt_sysfile_count_gpus(const char *folder);

/* Has this machine InfiniBand or the like? */
bool zt_sysfile_has_rdma(void);

#endif
