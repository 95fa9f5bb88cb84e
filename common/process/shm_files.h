/*
 * shm_files.h -- files in /dev/shm that MPI, UCX or NCCL made and nobody uses any more.
 *
 * These libraries share memory by files with a name, which they remove once all processes
 * have mapped them. A process that is killed before leaves them, and with them their memory,
 * until the machine is started again.
 */
#ifndef COMMON_PROCESS_SHM_FILES_H
#define COMMON_PROCESS_SHM_FILES_H

/*
 * Remove those of this user that no process has open or mapped. Does nothing where another
 * container may use the same /dev/shm, since its processes cannot be seen. Errors are
 * ignored: what stays is tried again by the next job. Any thread.
 */
void zt_shm_files_remove_unused(void);

#endif
