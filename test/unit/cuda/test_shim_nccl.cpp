/* Collectives of the shim: numbers, orders and streams. */
#include "test/unit/cuda/nccl_ranks.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
