/*
 * available_memory.h -- how much memory the machine has left for this process.
 *
 * The kernel never refuses memory of a memfd: asking for more than there is wakes its OOM
 * killer. So ask here first.
 */
#ifndef WORKER_COMM_SHM_AVAILABLE_MEMORY_H
#define WORKER_COMM_SHM_AVAILABLE_MEMORY_H

#include <stddef.h>

/*
 * In bytes: of the machine (free, reclaimable, swap) or of its control groups, whichever
 * is less; SIZE_MAX: unknown. Any thread; others may allocate it at any moment.
 */
size_t zt_comm_available_memory(void);

#endif
