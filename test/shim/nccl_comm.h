/*
 * nccl_comm.h -- a communicator as its process knows it: nccl_comm.cpp begins and ends
 * it, nccl.cpp takes its calls.
 */
#ifndef SHIM_NCCL_COMM_H
#define SHIM_NCCL_COMM_H

#include <pthread.h>

#include "nccl_calls.h"

struct ncclComm {
    std::shared_ptr<wire> w; /* NULL: destroyed or aborted */
    int device = 0;
    bool blocking = true, finalized = false;
    std::atomic<int> num_jobs{0};
    shim_point last = {NULL, 0};

    /* not blocking: what has been issued and is not queued */
    std::vector<nccl_task> held;
    std::vector<cudaStream_t> held_on;
    std::atomic<bool> holds{false};
    pthread_t holder = {};
};

/* NULL: no such communicator, or not any more. */
std::shared_ptr<wire> nccl_wire_of(ncclComm_t comm);
/* Success: the communicator can take a call. */
ncclResult_t nccl_check_ready(ncclComm_t comm, const char *call);
/* nccl.cpp: queues what is held. */
ncclResult_t nccl_queue_held(ncclComm_t comm, std::shared_ptr<wire> w);

ncclResult_t nccl_no_comm(const char *call);
ncclResult_t nccl_of_cuda(cudaError_t e, const char *call);

#endif
