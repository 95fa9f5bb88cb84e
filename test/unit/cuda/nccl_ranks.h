/*
 * nccl_ranks.h -- ranks of a test: forked processes, each with a device of its own, and
 * what they share.
 */
#ifndef TEST_UNIT_CUDA_NCCL_RANKS_H
#define TEST_UNIT_CUDA_NCCL_RANKS_H

#include "test/unit/cuda/shim_test.h"

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#include <atomic>

#include <nccl.h>

/* What the ranks of a test share. */
struct shared {
    ncclUniqueId id;
    std::atomic<int> has_id, steps[8], num_at_barrier;
};
static struct shared *all;
static ncclUniqueId last_id;
static int rank, num;

/* For ranks: an assertion of cmocka would go on in a child. */
#define CHECK(what)                                                                      \
    do {                                                                                 \
        if (!(what)) {                                                                   \
            fprintf(stderr, "rank %d of %d, %s:%d: %s; %s\n", rank, num, __FILE__,       \
                    __LINE__, #what, ncclGetLastError(NULL));                            \
            _exit(1);                                                                    \
        }                                                                                \
    } while (0)
#define GOOD(call)  CHECK((call) == cudaSuccess)
#define NGOOD(call) CHECK((call) == ncclSuccess)

static inline void wait_until(std::atomic<int> *what, int value)
{
    const struct timespec pause = {0, 200000};

    while (*what < value)
        nanosleep(&pause, NULL);
}

/* Of the hosts; the shim knows nothing of it. */
static inline void barrier(void)
{
    int mine = all->num_at_barrier.fetch_add(1);

    wait_until(&all->num_at_barrier, (mine / num + 1) * num);
}

static inline void in_rank(void (*f)(void))
{
    const struct rlimit no_core = {0, 0};
    char device[16];

    setrlimit(RLIMIT_CORE, &no_core);
    alarm(30); /* a test that stands still must end */
    snprintf(device, sizeof(device), "%d", num);
    setenv("SHIM_DEVICES", device, 1);
    GOOD(cudaSetDevice(rank));
    if (rank == 0) {
        NGOOD(ncclGetUniqueId(&all->id));
        all->has_id = 1;
    }
    wait_until(&all->has_id, 1);
    f();
    _exit(0);
}

/* Forks n ranks; what they said. statuses: as waitpid gives them. */
static inline std::string run_ranks(int n, void (*f)(void), int *statuses)
{
    std::string said;
    pid_t pids[8];
    char text[4096];
    ssize_t got;
    int pipes[2];

    all = (struct shared *)mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(all != MAP_FAILED);
    assert_int_equal(pipe(pipes), 0);
    num = n;
    for (rank = 0; rank < n; rank++) {
        pids[rank] = fork();
        assert_true(pids[rank] >= 0);
        if (pids[rank] == 0) {
            dup2(pipes[1], STDERR_FILENO);
            close(pipes[0]);
            close(pipes[1]);
            in_rank(f);
        }
    }
    close(pipes[1]);
    while ((got = read(pipes[0], text, sizeof(text))) > 0)
        said.append(text, (size_t)got);
    close(pipes[0]);
    for (int r = 0; r < n; r++)
        assert_int_equal(waitpid(pids[r], &statuses[r], 0), pids[r]);
    last_id = all->id;
    munmap(all, sizeof(*all));
    return said;
}

static inline void ranks(int n, void (*f)(void))
{
    int statuses[8];
    std::string said = run_ranks(n, f, statuses);

    for (int r = 0; r < n; r++)
        if (!WIFEXITED(statuses[r]) || WEXITSTATUS(statuses[r]) != 0)
            fail_msg("rank %d of %d: status %x: %s", r, n, statuses[r], said.c_str());
}

static inline ncclComm_t world(void)
{
    ncclComm_t comm = NULL;

    NGOOD(ncclCommInitRank(&comm, num, all->id, rank));
    return comm;
}

static inline cudaStream_t new_stream(void)
{
    cudaStream_t s = NULL;

    GOOD(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}

template <typename T> static inline T *array(size_t n)
{
    T *p = NULL;

    GOOD(cudaMallocManaged(&p, n * sizeof(T)));
    return p;
}

#endif
