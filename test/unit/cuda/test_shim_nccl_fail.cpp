/* Communicators of the shim when a rank dies, aborts, or asks for the wrong thing. */
#include "test/unit/cuda/nccl_ranks.h"

#include <pthread.h>

/* ---------------------------------------------------------------- failures */
static void expect_spoilt(const int *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        CHECK(x[i] == -1);
}

struct watched {
    ncclComm_t comm;
    cudaEvent_t event;
};

static void *watchdog(void *context)
{
    struct watched *w = (struct watched *)context;
    ncclResult_t state;

    GOOD(cudaSetDevice(0));
    wait_until(&all->steps[rank], 1);
    for (int i = 0; i < 20; i++) {
        CHECK(cudaEventQuery(w->event) == cudaErrorNotReady);
        NGOOD(ncclCommGetAsyncError(w->comm, &state));
        CHECK(state == ncclSuccess);
    }
    NGOOD(ncclCommAbort(w->comm));
    return NULL;
}

/* Rank 1 never comes; the watchdog of rank 0 ends it. */
static void abort_by_a_watchdog(void)
{
    struct watched w = {world(), NULL};
    cudaStream_t s = new_stream();
    ncclResult_t state;
    pthread_t thread;
    int *x = array<int>(5), device;

    if (rank == 1) {
        wait_until(&all->steps[2], 1);
        NGOOD(ncclCommGetAsyncError(w.comm, &state));
        CHECK(state == ncclRemoteError);
        CHECK(strstr(ncclGetLastError(w.comm), "rank 0 of 2 has gone"));
        CHECK(ncclAllReduce(x, x, 5, ncclInt32, ncclSum, w.comm, s) == ncclRemoteError);
        NGOOD(ncclCommAbort(w.comm));
        return;
    }
    GOOD(cudaEventCreateWithFlags(&w.event, cudaEventDisableTiming));
    CHECK(pthread_create(&thread, NULL, watchdog, &w) == 0);
    for (int i = 0; i < 5; i++)
        x[i] = 7;
    NGOOD(ncclAllReduce(x, x, 5, ncclInt32, ncclSum, w.comm, s));
    GOOD(cudaEventRecord(w.event, s));
    all->steps[rank] = 1;
    GOOD(cudaStreamSynchronize(s));
    pthread_join(thread, NULL);
    expect_spoilt(x, 5);
    GOOD(cudaGetDevice(&device));
    CHECK(device == rank);
    CHECK(ncclAllReduce(x, x, 5, ncclInt32, ncclSum, w.comm, s) == ncclInvalidArgument);
    all->steps[2] = 1;
}

static void test_an_abort_from_another_thread_ends_what_waits(void **)
{
    ranks(2, abort_by_a_watchdog);
}

/* Rank 2 is killed; its own child, which has its descriptors, lives on. */
static void killed(void)
{
    ncclComm_t comm = world();
    ncclResult_t state;
    int *x = array<int>(5);

    NGOOD(ncclAllReduce(x, x, 5, ncclInt32, ncclSum, comm, 0));
    GOOD(cudaDeviceSynchronize());
    if (rank == 2) {
        if (fork() == 0) {
            wait_until(&all->steps[0], 2);
            _exit(0);
        }
        raise(SIGKILL);
    }
    NGOOD(ncclReduceScatter(x, x + 4, 1, ncclInt32, ncclSum, comm, 0));
    GOOD(cudaDeviceSynchronize());
    expect_spoilt(x + 4, 1);
    NGOOD(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclRemoteError);
    CHECK(strstr(ncclGetLastError(comm), "has gone"));
    CHECK(ncclCommDestroy(comm) == ncclRemoteError);
    NGOOD(ncclCommAbort(comm));
    all->steps[0]++;
}

static void test_a_killed_rank_is_an_error_for_its_peers(void **)
{
    int statuses[8];
    std::string said = run_ranks(3, killed, statuses);

    assert_true(WIFSIGNALED(statuses[2]) && WTERMSIG(statuses[2]) == SIGKILL);
    for (int r = 0; r < 2; r++)
        if (statuses[r] != 0)
            fail_msg("rank %d: status %x: %s", r, statuses[r], said.c_str());
}

static void *abort_later(void *context)
{
    ncclResult_t state;

    do
        NGOOD(ncclCommGetAsyncError((ncclComm_t)context, &state));
    while (state == ncclSuccess);
    CHECK(state == ncclRemoteError);
    all->steps[1] = 1;
    NGOOD(ncclCommAbort((ncclComm_t)context));
    return NULL;
}

/* As on a device: only the abort ends what is pending. */
static void killed_and_hanging(void)
{
    ncclComm_t comm = world();
    pthread_t thread;
    int *x = array<int>(1);

    setenv("SHIM_NCCL_HANG", "1", 1);
    if (rank == 1)
        raise(SIGKILL);
    NGOOD(ncclAllReduce(x, x, 1, ncclInt32, ncclSum, comm, 0));
    CHECK(pthread_create(&thread, NULL, abort_later, comm) == 0);
    GOOD(cudaDeviceSynchronize());
    CHECK(all->steps[1] == 1);
    pthread_join(thread, NULL);
    expect_spoilt(x, 1);
}

static void test_with_the_option_only_an_abort_ends_pending_work(void **)
{
    int statuses[8];
    std::string said = run_ranks(2, killed_and_hanging, statuses);

    if (statuses[0] != 0)
        fail_msg("rank 0: status %x: %s", statuses[0], said.c_str());
}

static int num_with_name(const ncclUniqueId *id)
{
    FILE *f = fopen("/proc/net/unix", "r");
    char line[512];
    int n = 0;

    while (f && fgets(line, sizeof(line), f))
        n += strstr(line, id->internal) != NULL;
    if (f)
        fclose(f);
    return n;
}

/* Rank 1 never comes, and 2 dies when it has. */
static void dies_while_meeting(void)
{
    const struct timespec pause = {0, 200000};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm;

    config.blocking = 0;
    if (rank == 2) {
        CHECK(ncclCommInitRankConfig(&comm, num, all->id, 2, &config) == ncclInProgress);
        while (num_with_name(&all->id) < 3) /* who listens, and two that came */
            nanosleep(&pause, NULL);
        raise(SIGKILL);
    }
    if (rank == 0) {
        CHECK(ncclCommInitRank(&comm, num, all->id, 0) == ncclRemoteError);
        CHECK(strstr(ncclGetLastError(NULL), "has gone before all ranks had met"));
        CHECK(comm == NULL);
    }
}

static void test_a_rank_that_dies_while_ranks_meet_is_an_error(void **)
{
    int statuses[8];
    std::string said = run_ranks(3, dies_while_meeting, statuses);

    for (int r = 0; r < 2; r++)
        if (statuses[r] != 0)
            fail_msg("rank %d: status %x: %s", r, statuses[r], said.c_str());
}

static void aborts_while_meeting(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm;
    ncclResult_t state;

    config.blocking = 0;
    if (rank == 0)
        return barrier(); /* keeps the id, and does not come */
    CHECK(ncclCommInitRankConfig(&comm, num, all->id, 1, &config) == ncclInProgress);
    NGOOD(ncclCommAbort(comm));
    CHECK(ncclCommGetAsyncError(comm, &state) == ncclInvalidArgument);
    barrier();
}

static void test_who_waits_for_the_others_can_abort(void **)
{
    ranks(2, aborts_while_meeting);
}

/* Rank 0, which made the id, dies in the middle of something. */
static void first_dies(void)
{
    ncclComm_t comm = NULL;
    ncclResult_t result = ncclSuccess;
    int *x = array<int>(1000);

    if (rank == 0 && all->steps[7] == 0)
        raise(SIGKILL);
    result = ncclCommInitRank(&comm, num, all->id, rank);
    if (all->steps[7] == 0) {
        CHECK(result == ncclRemoteError);
        return;
    }
    NGOOD(result);
    for (int i = 0;; i++) {
        ncclResult_t state;

        if (rank == 0 && i == 10)
            raise(SIGKILL);
        NGOOD(ncclAllReduce(x, x, 1000, ncclInt32, ncclSum, comm, 0));
        GOOD(cudaDeviceSynchronize());
        NGOOD(ncclCommGetAsyncError(comm, &state));
        if (state == ncclRemoteError)
            return;
    }
}

static void expect_first_dies(void (*f)(void))
{
    int statuses[8];
    std::string said = run_ranks(3, f, statuses);

    assert_true(WIFSIGNALED(statuses[0]));
    for (int r = 1; r < 3; r++)
        if (statuses[r] != 0)
            fail_msg("rank %d: status %x: %s", r, statuses[r], said.c_str());
    assert_int_equal(num_with_name(&last_id), 0);
}

static void first_dies_later(void)
{
    all->steps[7] = 1;
    first_dies();
}

static void test_the_first_rank_may_die_and_leaves_nothing(void **)
{
    expect_first_dies(first_dies);
    expect_first_dies(first_dies_later);
}

/* ---------------------------------------------------------------- misuse */
static void expect_last_words(int n, void (*f)(void), const char *part)
{
    int statuses[8];
    std::string said = run_ranks(n, f, statuses);

    for (int r = 0; r < n; r++)
        if (!WIFSIGNALED(statuses[r]) || WTERMSIG(statuses[r]) != SIGABRT)
            fail_msg("rank %d: status %x: %s", r, statuses[r], said.c_str());
    expect_part(said, part);
}

static void different_counts(void)
{
    ncclComm_t comm = world();
    int *x = array<int>(8);

    NGOOD(ncclAllReduce(x, x, (size_t)rank + 4, ncclInt32, ncclSum, comm, 0));
    cudaDeviceSynchronize();
}

static void different_kinds(void)
{
    ncclComm_t comm = world();
    int *x = array<int>(8);

    if (rank)
        NGOOD(ncclBroadcast(x, x, 4, ncclInt32, 1, comm, 0));
    else
        NGOOD(ncclAllReduce(x, x, 4, ncclInt32, ncclMax, comm, 0));
    cudaDeviceSynchronize();
}

static void different_sends(void)
{
    ncclComm_t comm = world();
    int *x = array<int>(8);

    if (rank)
        NGOOD(ncclSend(x, 4, ncclInt32, 0, comm, 0));
    else
        NGOOD(ncclRecv(x, 8, ncclInt8, 1, comm, 0));
    cudaDeviceSynchronize();
}

static void different_host_calls(void)
{
    ncclComm_t comm = world(), other;

    if (rank)
        ncclCommFinalize(comm);
    else
        ncclCommSplit(comm, 0, 0, &other, NULL);
    abort(); /* rank 1 lives on, with an error */
}

static void test_ranks_that_want_different_things_end_with_a_sentence(void **)
{
    expect_last_words(2, different_counts,
                      "shim: ncclAllReduce, rank 0 of 2 wants ncclAllReduce of 4 int32, "
                      "rank 1 ncclAllReduce of 5 int32");
    expect_last_words(2, different_kinds,
                      "rank 1 of 2 wants ncclBroadcast of 4 int32 from rank 1, rank 0 "
                      "ncclAllReduce of 4 int32 (max)");
    expect_last_words(2, different_sends,
                      "rank 0 of 2 wants ncclRecv of 8 int8, rank 1 ncclSend of 4 int32");
    expect_last_words(2, different_host_calls,
                      "rank 1 calls ncclCommFinalize, rank 0 ncclCommSplit");
}

static void host_memory(void)
{
    static int own[4];

    ncclAllReduce(own, own, 4, ncclInt32, ncclSum, world(), 0);
}

static void host_memory_pinned(void)
{
    ncclComm_t comm = world();
    static int own[4] = {1, 2, 3, 4};
    int *pinned;

    GOOD(cudaMallocHost(&pinned, sizeof(own)));
    GOOD(cudaHostRegister(own, sizeof(own), cudaHostRegisterDefault));
    NGOOD(ncclAllReduce(own, pinned, 4, ncclInt32, ncclSum, comm, 0));
    GOOD(cudaDeviceSynchronize());
    CHECK(pinned[3] == 4);
    NGOOD(ncclCommDestroy(comm));
}

static void too_long(void)
{
    ncclComm_t comm = world();
    int *x = array<int>(7), *y = array<int>(8);

    ncclAllGather(y, x, 8, ncclInt32, comm, 0);
}

static void overlapping(void)
{
    ncclComm_t comm = world();
    int *x = array<int>(8);

    ncclAllReduce(x, x + 1, 4, ncclInt32, ncclSum, comm, 0);
}

static void freed(void)
{
    ncclComm_t comm = world();
    int *x = NULL;

    GOOD(cudaMalloc(&x, 16));
    GOOD(cudaFree(x));
    ncclAllReduce(x, x, 4, ncclInt32, ncclSum, comm, 0);
    cudaDeviceSynchronize();
}

static void test_buffers_are_looked_at_before_they_are_used(void **)
{
    expect_last_words(
        1, host_memory,
        "shim: ncclAllReduce: the send buffer is memory of the host that is "
        "not pinned");
    expect_last_words(1, too_long,
                      "ncclAllGather: the receive buffer has 28 bytes up to the end of "
                      "its allocation, and 32 are needed");
    expect_last_words(1, overlapping, "ncclAllReduce: send and receive buffer overlap");
    expect_last_words(1, freed, "the send buffer is memory of the host");
    ranks(1, host_memory_pinned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_abort_from_another_thread_ends_what_waits),
        cmocka_unit_test(test_a_killed_rank_is_an_error_for_its_peers),
        cmocka_unit_test(test_with_the_option_only_an_abort_ends_pending_work),
        cmocka_unit_test(test_a_rank_that_dies_while_ranks_meet_is_an_error),
        cmocka_unit_test(test_who_waits_for_the_others_can_abort),
        cmocka_unit_test(test_the_first_rank_may_die_and_leaves_nothing),
        cmocka_unit_test(test_ranks_that_want_different_things_end_with_a_sentence),
        cmocka_unit_test(test_buffers_are_looked_at_before_they_are_used),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
