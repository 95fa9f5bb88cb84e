/* Communicators of the shim: how they begin, split and end. */
#include "test/unit/cuda/nccl_ranks.h"

static void splits(void)
{
    ncclComm_t comm = world(), part, back, none;
    int n, r, *x = array<int>(1);

    NGOOD(ncclCommSplit(comm, rank % 2, -rank, &part, NULL));
    NGOOD(ncclCommCount(part, &n));
    NGOOD(ncclCommUserRank(part, &r));
    CHECK(n == (num + 1 - rank % 2) / 2);
    CHECK(r == n - 1 - rank / 2); /* keys turn the order round */
    x[0] = rank;
    NGOOD(ncclAllReduce(x, x, 1, ncclInt32, ncclSum, part, 0));
    GOOD(cudaDeviceSynchronize());
    CHECK(x[0] == (rank % 2 == 0 ? 2 : num == 4 ? 4 : 1));
    NGOOD(ncclCommSplit(part, r == 0 ? 5 : NCCL_SPLIT_NOCOLOR, 0, &back, NULL));
    CHECK((back != NULL) == (r == 0));
    if (back) {
        NGOOD(ncclCommCount(back, &n));
        CHECK(n == 1);
        NGOOD(ncclCommDestroy(back));
    }
    NGOOD(ncclCommSplit(comm, NCCL_SPLIT_NOCOLOR, 0, &none, NULL));
    CHECK(none == NULL);
    NGOOD(ncclCommDestroy(part));
    NGOOD(ncclCommDestroy(comm));
    CHECK(ncclCommCount(comm, &n) == ncclInvalidArgument);
    CHECK(strstr(ncclGetLastError(NULL), "destroyed"));
}

static void test_splits_by_color_and_key(void **)
{
    ranks(4, splits);
    ranks(3, splits);
}

static ncclResult_t until_done(ncclComm_t comm)
{
    ncclResult_t state;

    do
        NGOOD(ncclCommGetAsyncError(comm, &state));
    while (state == ncclInProgress);
    return state;
}

static void without_blocking(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm, part = NULL;
    ncclResult_t state;
    int *x = array<int>(2), n;
    cudaStream_t s = new_stream();

    config.blocking = 0;
    if (rank == 1)
        wait_until(&all->steps[0], 1); /* rank 0 has seen that it must wait */
    CHECK(ncclCommInitRankConfig(&comm, num, all->id, rank, &config) == ncclInProgress);
    if (rank == 0) {
        NGOOD(ncclCommGetAsyncError(comm, &state));
        CHECK(state == ncclInProgress);
        CHECK(ncclCommCount(comm, &n) == ncclInvalidArgument);
        all->steps[0] = 1;
    }
    NGOOD(until_done(comm));
    x[0] = rank + 1;
    x[1] = 0;
    CHECK(ncclAllReduce(x, x + 1, 1, ncclInt32, ncclSum, comm, s) == ncclInProgress);
    CHECK(ncclAllReduce(x, x + 1, 1, ncclInt32, ncclSum, comm, s) == ncclInvalidArgument);
    GOOD(cudaStreamSynchronize(s)); /* too early: nothing is queued */
    CHECK(x[1] == 0);
    NGOOD(until_done(comm));
    GOOD(cudaStreamSynchronize(s));
    CHECK(x[1] == 3);
    CHECK(ncclCommSplit(comm, 0, -rank, &part, NULL) == ncclInProgress);
    NGOOD(until_done(comm));
    CHECK(part != NULL);
    NGOOD(ncclCommUserRank(part, &n));
    CHECK(n == 1 - rank);
    for (ncclComm_t c : {part, comm}) {
        CHECK(ncclCommFinalize(c) == ncclInProgress);
        NGOOD(until_done(c));
        NGOOD(ncclCommDestroy(c));
    }
}

static void test_without_blocking_nothing_is_done_until_it_is_asked_for(void **)
{
    ranks(2, without_blocking);
}

static void scalable(void)
{
    ncclUniqueId ids[2] = {all->id, all->id};
    ncclComm_t comm;
    int r, version, device, *x = NULL;
    void *handle;

    ids[1].internal[20] = 'x';
    NGOOD(ncclCommInitRankScalable(&comm, num, rank, 2, ids, NULL));
    NGOOD(ncclCommUserRank(comm, &r));
    NGOOD(ncclCommCuDevice(comm, &device));
    CHECK(r == rank && device == rank);
    NGOOD(ncclGetVersion(&version));
    CHECK(version == 22809 && version == NCCL_VERSION(2, 28, 9));
    NGOOD(ncclMemAlloc((void **)&x, 400));
    NGOOD(ncclCommRegister(comm, x, 400, &handle));
    NGOOD(ncclCommDeregister(comm, handle));
    CHECK(ncclCommDeregister(comm, handle) == ncclInvalidArgument);
    CHECK(ncclCommRegister(comm, x, 401, &handle) == ncclInvalidArgument);
    NGOOD(ncclMemFree(x));
    CHECK(ncclMemFree(&r) == ncclUnhandledCudaError);
    NGOOD(ncclCommFinalize(comm));
    CHECK(ncclAllReduce(x, x, 1, ncclInt32, ncclSum, comm, 0) == ncclInvalidUsage);
    NGOOD(ncclCommDestroy(comm));
}

static void test_several_ids_and_registered_memory(void **)
{
    ranks(2, scalable);
}

static void bad_arguments(void)
{
    ncclConfig_t config = {};
    ncclComm_t comm;
    int *x = array<int>(4);

    CHECK(ncclCommInitRank(&comm, 1, all->id, 1) == ncclInvalidArgument);
    CHECK(ncclCommInitRankConfig(&comm, 1, all->id, 0, &config) == ncclInvalidArgument);
    CHECK(strstr(ncclGetLastError(NULL), "NCCL_CONFIG_INITIALIZER"));
    comm = world();
    CHECK(ncclBroadcast(x, x, 1, ncclInt32, 1, comm, 0) == ncclInvalidArgument);
    CHECK(ncclAllReduce(x, x, 1, (ncclDataType_t)11, ncclSum, comm, 0) ==
          ncclInvalidArgument);
    CHECK(ncclAllReduce(x, x, 1, ncclInt32, (ncclRedOp_t)4, comm, 0) ==
          ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
    NGOOD(ncclGroupStart());
    CHECK(ncclSend(x, 1, ncclInt32, 7, comm, 0) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument); /* nothing of the group is done */
    CHECK(ncclCommInitRank(&comm, 1, all->id, 0) == ncclRemoteError);
    CHECK(strstr(ncclGetLastError(NULL), "has served"));
}

static void test_bad_arguments_are_refused_with_a_sentence(void **)
{
    ranks(1, bad_arguments);
}

static void same_device(void)
{
    ncclComm_t comm;

    GOOD(cudaSetDevice(0));
    CHECK(ncclCommInitRank(&comm, num, all->id, rank) == ncclInvalidUsage);
    CHECK(strstr(ncclGetLastError(NULL), "Duplicate GPU detected"));
    CHECK(comm == NULL);
}

static void same_device_with_names(void)
{
    GOOD(cudaSetDevice(0));
    setenv("NCCL_HOSTID", rank ? "b" : "a", 1);
    NGOOD(ncclCommDestroy(world()));
}

static void test_two_ranks_on_one_device_need_a_host_name_each(void **)
{
    ranks(2, same_device);
    ranks(2, same_device_with_names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splits_by_color_and_key),
        cmocka_unit_test(test_without_blocking_nothing_is_done_until_it_is_asked_for),
        cmocka_unit_test(test_several_ids_and_registered_memory),
        cmocka_unit_test(test_bad_arguments_are_refused_with_a_sentence),
        cmocka_unit_test(test_two_ranks_on_one_device_need_a_host_name_each),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
