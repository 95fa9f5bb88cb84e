/* Collectives of the shim, between forked processes. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#include <atomic>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <nccl.h>

#include "test/unit/cuda/shim_test.h"

/* ---------------------------------------------------------------- ranks */
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

static void wait_until(std::atomic<int> *what, int value)
{
    const struct timespec pause = {0, 200000};

    while (*what < value)
        nanosleep(&pause, NULL);
}

/* Of the hosts; the shim knows nothing of it. */
static void barrier(void)
{
    int mine = all->num_at_barrier.fetch_add(1);

    wait_until(&all->num_at_barrier, (mine / num + 1) * num);
}

static void in_rank(void (*f)(void))
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
static std::string run_ranks(int n, void (*f)(void), int *statuses)
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

static void ranks(int n, void (*f)(void))
{
    int statuses[8];
    std::string said = run_ranks(n, f, statuses);

    for (int r = 0; r < n; r++)
        if (!WIFEXITED(statuses[r]) || WEXITSTATUS(statuses[r]) != 0)
            fail_msg("rank %d of %d: status %x: %s", r, n, statuses[r], said.c_str());
}

static ncclComm_t world(void)
{
    ncclComm_t comm = NULL;

    NGOOD(ncclCommInitRank(&comm, num, all->id, rank));
    return comm;
}

static cudaStream_t new_stream(void)
{
    cudaStream_t s = NULL;

    GOOD(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}

template <typename T> static T *array(size_t n)
{
    T *p = NULL;

    GOOD(cudaMallocManaged(&p, n * sizeof(T)));
    return p;
}

/* ---------------------------------------------------------------- numbers */
/* A small integer that every type holds, and so do sums over the ranks. */
static double value(int r, size_t i)
{
    return (double)((r * 7 + (int)(i % 1000) * 3) % 11);
}

static double read_as(const void *p, size_t i, ncclDataType_t type)
{
    switch (type) {
    case ncclInt8:
        return ((const int8_t *)p)[i];
    case ncclUint8:
        return ((const uint8_t *)p)[i];
    case ncclInt32:
        return ((const int32_t *)p)[i];
    case ncclInt64:
        return (double)((const int64_t *)p)[i];
    case ncclFloat16:
        return __half2float(((const __half *)p)[i]);
    case ncclFloat32:
        return ((const float *)p)[i];
    case ncclFloat64:
        return ((const double *)p)[i];
    default:
        return __bfloat162float(((const __nv_bfloat16 *)p)[i]);
    }
}

static void write_as(void *p, size_t i, ncclDataType_t type, double x)
{
    switch (type) {
    case ncclInt8:
        ((int8_t *)p)[i] = (int8_t)x;
        break;
    case ncclUint8:
        ((uint8_t *)p)[i] = (uint8_t)x;
        break;
    case ncclInt32:
        ((int32_t *)p)[i] = (int32_t)x;
        break;
    case ncclInt64:
        ((int64_t *)p)[i] = (int64_t)x;
        break;
    case ncclFloat16:
        ((__half *)p)[i] = __float2half((float)x);
        break;
    case ncclFloat32:
        ((float *)p)[i] = (float)x;
        break;
    case ncclFloat64:
        ((double *)p)[i] = x;
        break;
    default:
        ((__nv_bfloat16 *)p)[i] = __float2bfloat16((float)x);
    }
}

static const struct {
    ncclDataType_t type;
    size_t bytes;
} types[] = {{ncclInt8, 1},    {ncclUint8, 1},   {ncclInt32, 4},   {ncclInt64, 8},
             {ncclFloat16, 2}, {ncclFloat32, 4}, {ncclFloat64, 8}, {ncclBfloat16, 2}};

static double sum_of(size_t i)
{
    double sum = 0;

    for (int r = 0; r < num; r++)
        sum += value(r, i);
    return sum;
}

static double max_of(size_t i)
{
    double max = 0;

    for (int r = 0; r < num; r++)
        max = fmax(max, value(r, i));
    return max;
}

struct round {
    ncclComm_t comm;
    cudaStream_t stream;
    ncclDataType_t type;
    size_t bytes, n; /* of one number; numbers of each rank */
    char *send, *recv;

    void fill(size_t count)
    {
        for (size_t i = 0; i < count; i++)
            write_as(send, i, type, value(rank, i));
        memset(recv, 0x55, (size_t)num * n * bytes);
    }
    void sync(void)
    {
        GOOD(cudaStreamSynchronize(stream));
    }
    void expect(const void *p, size_t i, double want)
    {
        double got = read_as(p, i, type);

        if (got != want)
            fprintf(stderr, "type %d, %zu numbers, number %zu: %g, want %g\n", type, n, i,
                    got, want);
        CHECK(got == want);
    }
};

static void one_all_reduce(struct round t)
{
    for (ncclRedOp_t op : {ncclSum, ncclMax})
        for (bool in_place : {false, true}) {
            char *to = in_place ? t.send : t.recv;

            t.fill(t.n);
            NGOOD(ncclAllReduce(t.send, to, t.n, t.type, op, t.comm, t.stream));
            t.sync();
            for (size_t i = 0; i < t.n; i++)
                t.expect(to, i, op == ncclSum ? sum_of(i) : max_of(i));
        }
}

static void one_reduce_scatter(struct round t)
{
    for (bool in_place : {false, true}) {
        char *to = in_place ? t.send + (size_t)rank * t.n * t.bytes : t.recv;

        t.fill((size_t)num * t.n);
        NGOOD(ncclReduceScatter(t.send, to, t.n, t.type, ncclSum, t.comm, t.stream));
        t.sync();
        for (size_t i = 0; i < t.n; i++)
            t.expect(to, i, sum_of((size_t)rank * t.n + i));
    }
}

static void one_all_gather(struct round t)
{
    for (bool in_place : {false, true}) {
        char *own = t.recv + (size_t)rank * t.n * t.bytes;

        t.fill(t.n);
        memcpy(own, t.send, t.n * t.bytes);
        NGOOD(ncclAllGather(in_place ? own : t.send, t.recv, t.n, t.type, t.comm,
                            t.stream));
        t.sync();
        for (int r = 0; r < num; r++)
            for (size_t i = 0; i < t.n; i++)
                t.expect(t.recv, (size_t)r * t.n + i, value(r, i));
    }
}

static void one_all_to_all(struct round t)
{
    t.fill((size_t)num * t.n);
    NGOOD(ncclAlltoAll(t.send, t.recv, t.n, t.type, t.comm, t.stream));
    t.sync();
    for (int r = 0; r < num; r++)
        for (size_t i = 0; i < t.n; i++)
            t.expect(t.recv, (size_t)r * t.n + i, value(r, (size_t)rank * t.n + i));
}

static void one_broadcast(struct round t)
{
    for (int root = 0; root < num; root++) {
        t.fill(t.n);
        /* the send buffer of the others is of no interest */
        NGOOD(ncclBroadcast(rank == root ? t.send : NULL, t.recv, t.n, t.type, root,
                            t.comm, t.stream));
        t.sync();
        for (size_t i = 0; i < t.n; i++)
            t.expect(t.recv, i, value(root, i));
    }
}

static void all_collectives(void)
{
    const size_t counts[] = {1, 2, 37, 1000}, most = 1000 * 8;
    ncclComm_t comm = world();
    cudaStream_t s = new_stream();
    char *send = array<char>(most * (size_t)num), *recv = array<char>(most * (size_t)num);

    for (const auto &type : types)
        for (size_t n : counts) {
            struct round t = {comm, s, type.type, type.bytes, n, send, recv};

            one_all_reduce(t);
            one_reduce_scatter(t);
            one_all_gather(t);
            one_all_to_all(t);
            one_broadcast(t);
        }
    NGOOD(ncclCommDestroy(comm));
}

static void test_collectives_of_all_types_agree_with_plain_sums(void **)
{
    for (int n = 1; n <= 4; n++)
        ranks(n, all_collectives);
}

static void much_data(void)
{
    const size_t n = (size_t)3 << 20;
    ncclComm_t comm = world();
    cudaStream_t s = new_stream();
    int *x = array<int>(n);

    for (size_t i = 0; i < n; i++)
        x[i] = (int)i * (rank + 1);
    NGOOD(ncclAllReduce(x, x, n, ncclInt32, ncclSum, comm, s));
    GOOD(cudaStreamSynchronize(s));
    for (size_t i = 0; i < n; i++)
        CHECK(x[i] == (int)i * 6);
    NGOOD(ncclCommDestroy(comm));
}

static void test_more_than_a_socket_holds_goes_over(void **)
{
    ranks(3, much_data);
}

static void order_of_sums(void)
{
    const size_t n = 4096;
    const float values[3] = {1e8f, -1e8f, 1};
    ncclComm_t comm = world();
    float *x = array<float>(n), *y = array<float>(n * 3);
    size_t num_other = 0, num_rank_order = 0;

    for (size_t i = 0; i < n; i++)
        x[i] = values[rank];
    NGOOD(ncclAllReduce(x, x, n, ncclFloat32, ncclSum, comm, 0));
    NGOOD(ncclAllGather(x, y, n, ncclFloat32, comm, 0));
    GOOD(cudaDeviceSynchronize());
    for (size_t i = 0; i < n; i++) {
        CHECK(x[i] == 1 || x[i] == 0); /* (0 + 1) + 2, or one of the others */
        num_rank_order += x[i] == 1;
        num_other += x[i] == 0;
        CHECK(y[i] == y[n + i] && y[i] == y[2 * n + i]);
    }
    CHECK(num_other > n / 3 && num_rank_order > n / 6);
    NGOOD(ncclCommDestroy(comm));
}

static void test_sums_are_not_taken_in_rank_order_yet_alike_on_all_ranks(void **)
{
    ranks(3, order_of_sums);
}

static void rounding(void)
{
    const size_t n = 1024;
    ncclComm_t comm = world();
    __nv_bfloat16 *x = array<__nv_bfloat16>(n);
    float *f = array<float>(2);
    size_t num_rounded = 0;

    for (size_t i = 0; i < n; i++)
        x[i] = __float2bfloat16(rank == 0 ? 256.0f : 1.0f);
    f[0] = rank == 1 ? NAN : (float)rank;
    NGOOD(ncclAllReduce(x, x, n, ncclBfloat16, ncclSum, comm, 0));
    NGOOD(ncclAllReduce(f, f + 1, 1, ncclFloat32, ncclMax, comm, 0));
    GOOD(cudaDeviceSynchronize());
    for (size_t i = 0; i < n; i++) /* 259, rounded once, would be 260 everywhere */
        num_rounded += __bfloat162float(x[i]) == 256;
    CHECK(num_rounded >= n / 4);
    CHECK(f[1] == 3);
    NGOOD(ncclCommDestroy(comm));
}

static void test_sums_round_in_their_type_and_max_loses_nan(void **)
{
    ranks(4, rounding);
}

/* ---------------------------------------------------------------- sends */
/* Rank a sends (a + 1) * (b + 2) numbers to rank b. */
static size_t num_from_to(int a, int b)
{
    return (size_t)((a + 1) * (b + 2)) * 7000;
}

static void uneven_exchange(void)
{
    ncclComm_t comm = world();
    cudaStream_t s = new_stream();
    int *out[8], *in[8];

    for (int p = 0; p < num; p++) {
        out[p] = array<int>(num_from_to(rank, p));
        in[p] = array<int>(num_from_to(p, rank));
        for (size_t i = 0; i < num_from_to(rank, p); i++)
            out[p][i] = (int)i + rank * 1000 + p;
    }
    /* each rank posts in an order of its own */
    NGOOD(ncclGroupStart());
    for (int k = 0; k < 2 * num; k++) {
        int p = (k / 2 + rank) % num;

        if ((k + rank) % 2)
            NGOOD(ncclSend(out[p], num_from_to(rank, p), ncclInt32, p, comm, s));
        else
            NGOOD(ncclRecv(in[p], num_from_to(p, rank), ncclInt32, p, comm, s));
    }
    NGOOD(ncclGroupEnd());
    GOOD(cudaStreamSynchronize(s));
    for (int p = 0; p < num; p++)
        for (size_t i = 0; i < num_from_to(p, rank); i++)
            CHECK(in[p][i] == (int)i + p * 1000 + rank);
    NGOOD(ncclCommDestroy(comm));
}

static void test_grouped_sends_and_receives_meet_in_any_order(void **)
{
    for (int n = 1; n <= 4; n++)
        ranks(n, uneven_exchange);
}

static void one_way(void)
{
    ncclComm_t comm = world();
    int *x = array<int>(2);

    x[0] = rank;
    for (int i = 0; i < 3; i++) /* several, without a group */
        if (rank == 0)
            NGOOD(ncclSend(x, 1, ncclInt32, 1, comm, 0));
        else
            NGOOD(ncclRecv(x + 1, 1, ncclInt32, 0, comm, 0));
    GOOD(cudaDeviceSynchronize());
    CHECK(rank == 0 || x[1] == 0);
    /* collectives and sends in one group */
    NGOOD(ncclGroupStart());
    NGOOD(ncclAllReduce(x, x, 1, ncclInt32, ncclSum, comm, 0));
    if (rank == 0)
        NGOOD(ncclRecv(x + 1, 1, ncclInt32, 1, comm, 0));
    else
        NGOOD(ncclSend(x + 1, 1, ncclInt32, 0, comm, 0));
    NGOOD(ncclGroupEnd());
    GOOD(cudaDeviceSynchronize());
    CHECK(x[0] == 1);
    NGOOD(ncclCommDestroy(comm));
}

static void test_sends_pair_up_in_their_order(void **)
{
    ranks(2, one_way);
}

/* ---------------------------------------------------------------- streams */
static __global__ void set(int *x, int v)
{
    *x = v;
}

static void late_and_ordered(void)
{
    ncclComm_t comm = world();
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t e;
    int *x = array<int>(3);

    GOOD(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    for (int i = 0; i < 3; i++)
        x[i] = 0;
    CHECK(launch(a, dim3(1), dim3(1), set, x, 1) == cudaSuccess);
    NGOOD(ncclAllReduce(x, x + 1, 1, ncclInt32, ncclSum, comm, a));
    /* another stream, no event: of one communicator they keep their order */
    NGOOD(ncclAllReduce(x + 1, x + 2, 1, ncclInt32, ncclSum, comm, b));
    CHECK(x[1] == 0);
    GOOD(cudaEventRecord(e, b));
    GOOD(cudaEventSynchronize(e));
    CHECK(x[1] == num && x[2] == num * num);
    NGOOD(ncclCommDestroy(comm));
}

static void test_a_collective_is_work_of_its_stream(void **)
{
    ranks(2, late_and_ordered);
}

static void two_communicators(void)
{
    ncclComm_t comm = world(), other;
    cudaStream_t a = new_stream(), b = new_stream();
    int *x = array<int>(2);

    NGOOD(ncclCommSplit(comm, 0, rank, &other, NULL));
    x[0] = x[1] = 1;
    shim_set_seed(1); /* only what the host waits for */
    NGOOD(ncclAllReduce(x, x, 1, ncclInt32, ncclSum, comm, a));
    NGOOD(ncclAllReduce(x + 1, x + 1, 1, ncclInt32, ncclSum, other, b));
    GOOD(cudaStreamSynchronize(rank ? a : b));
    GOOD(cudaStreamSynchronize(rank ? b : a));
    CHECK(x[0] == num && x[1] == num);
    NGOOD(ncclCommDestroy(other));
    NGOOD(ncclCommDestroy(comm));
}

static void test_hosts_that_wait_in_different_orders_do_not_stand_still(void **)
{
    ranks(2, two_communicators);
}

static void host_elsewhere(void)
{
    ncclComm_t comm = world();
    int *x = array<int>(1);

    x[0] = 1;
    NGOOD(ncclAllReduce(x, x, 1, ncclInt32, ncclSum, comm, 0));
    if (rank == 0)
        GOOD(cudaDeviceSynchronize()); /* the others wait for this rank's host */
    barrier();
    GOOD(cudaDeviceSynchronize());
    CHECK(x[0] == num);
    NGOOD(ncclCommDestroy(comm));
}

static void test_a_rank_takes_part_while_its_host_waits_for_something_else(void **)
{
    ranks(3, host_elsewhere);
}

/* ---------------------------------------------------------------- communicators */
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
        cmocka_unit_test(test_collectives_of_all_types_agree_with_plain_sums),
        cmocka_unit_test(test_more_than_a_socket_holds_goes_over),
        cmocka_unit_test(test_sums_are_not_taken_in_rank_order_yet_alike_on_all_ranks),
        cmocka_unit_test(test_sums_round_in_their_type_and_max_loses_nan),
        cmocka_unit_test(test_grouped_sends_and_receives_meet_in_any_order),
        cmocka_unit_test(test_sends_pair_up_in_their_order),
        cmocka_unit_test(test_a_collective_is_work_of_its_stream),
        cmocka_unit_test(test_hosts_that_wait_in_different_orders_do_not_stand_still),
        cmocka_unit_test(test_a_rank_takes_part_while_its_host_waits_for_something_else),
        cmocka_unit_test(test_splits_by_color_and_key),
        cmocka_unit_test(test_without_blocking_nothing_is_done_until_it_is_asked_for),
        cmocka_unit_test(test_several_ids_and_registered_memory),
        cmocka_unit_test(test_bad_arguments_are_refused_with_a_sentence),
        cmocka_unit_test(test_two_ranks_on_one_device_need_a_host_name_each),
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
