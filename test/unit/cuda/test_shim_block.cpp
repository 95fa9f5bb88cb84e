/* Threads of a block: who runs, where they meet, and the mistakes that show. */
#include "test/unit/cuda/shim_test.h"

/* ---- geometry ---- */

static __global__ void count(int *times, int *linear)
{
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned at = block * blockDim.x * blockDim.y * blockDim.z + thread;

    times[at]++;
    linear[at] = (int)(threadIdx.x + 100 * threadIdx.y + 10000 * threadIdx.z);
}

static void test_every_thread_of_every_block_runs_once(void **)
{
    const dim3 grid(3, 2, 4), block(5, 3, 2);
    int *times = managed(24 * 30, 0), *linear = managed(24 * 30, -1);

    OK(launch(0, grid, block, count, times, linear));
    assert_int_equal(times[0], 0); /* not before somebody waits */
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < 24 * 30; i++) {
        int t = i % 30;

        assert_int_equal(times[i], 1);
        assert_int_equal(linear[i], t % 5 + 100 * (t / 5 % 3) + 10000 * (t / 15));
    }
    cudaFree(times);
    cudaFree(linear);
}

static __global__ void nothing(void)
{
}

static void test_impossible_launches_are_refused(void **)
{
    assert_int_equal(launch(0, dim3(0), dim3(1), nothing), cudaErrorInvalidConfiguration);
    assert_int_equal(launch(0, dim3(1), dim3(1025), nothing),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(launch(0, dim3(1), dim3(1, 1, 65), nothing),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(launch(0, dim3(1, 65536), dim3(1), nothing),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    OK(launch(0, dim3(1), dim3(1024), nothing));
    OK(cudaDeviceSynchronize());
}

/* ---- barriers ---- */

template <bool with_barrier> static __global__ void reverse(int *x)
{
    __shared__ int copy[256];
    unsigned base = blockIdx.x * 256;

    copy[threadIdx.x] = x[base + threadIdx.x];
    if (with_barrier)
        __syncthreads();
    x[base + threadIdx.x] = copy[255 - threadIdx.x];
}

static int num_wrong_after(void (*kernel)(int *))
{
    int *x = managed(4 * 256, 0), wrong = 0;

    for (int i = 0; i < 4 * 256; i++)
        x[i] = i + 1;
    OK(launch(0, dim3(4), dim3(256), kernel, x));
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < 4 * 256; i++)
        wrong += x[i] != i / 256 * 256 + 255 - i % 256 + 1;
    cudaFree(x);
    return wrong;
}

static void test_a_missing_barrier_gives_wrong_results(void **)
{
    for (uint64_t seed = 0; seed < 10; seed++) {
        shim_set_seed(seed);
        assert_int_equal(num_wrong_after(reverse<true>), 0);
        assert_true(num_wrong_after(reverse<false>) > 100);
    }
    shim_set_seed(0);
}

/* One writes, all read: wrong only if the writer is not the first. */
static __global__ void broadcast(int *x)
{
    __shared__ int value;

    if (threadIdx.x == 0)
        value = (int)blockIdx.x + 1;
    x[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

static void test_a_broadcast_without_barrier_is_wrong_in_some_block(void **)
{
    int *x = managed(16 * 64, 0), wrong = 0;

    OK(launch(0, dim3(16), dim3(64), broadcast, x));
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < 16 * 64; i++)
        wrong += x[i] != i / 64 + 1;
    assert_true(wrong > 0);
    cudaFree(x);
}

/* A warp that is ahead writes its part of the next round before others read this one's.
 */
template <bool with_barrier> static __global__ void rounds(int *x)
{
    __shared__ int part[8];
    int sum = 0;

    for (int round = 1; round <= 4; round++) {
        if (threadIdx.x % 32 == 0)
            part[threadIdx.x / 32] = round;
        __syncthreads();
        for (int i = 0; i < 8; i++)
            sum += __shfl_sync(0xFFFFFFFFu, part[i], 0);
        if (with_barrier)
            __syncthreads();
    }
    x[blockIdx.x * 256 + threadIdx.x] = sum;
}

static int num_wrong_rounds(void (*kernel)(int *))
{
    int *x = managed(16 * 256, 0), wrong = 0;

    OK(launch(0, dim3(16), dim3(256), kernel, x));
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < 16 * 256; i++)
        wrong += x[i] != 8 * (1 + 2 + 3 + 4);
    cudaFree(x);
    return wrong;
}

static void test_a_missing_barrier_before_the_second_use_gives_wrong_results(void **)
{
    for (uint64_t seed = 0; seed < 10; seed++) {
        shim_set_seed(seed);
        assert_int_equal(num_wrong_rounds(rounds<true>), 0);
        assert_true(num_wrong_rounds(rounds<false>) > 0);
    }
    shim_set_seed(0);
}

static __global__ void two_barriers(void)
{
    if (threadIdx.x < 16)
        __syncthreads();
    else
        __syncthreads();
}

static __global__ void barrier_of_half(void)
{
    if (threadIdx.x >= 16)
        return;
    __syncthreads();
}

static __global__ void barrier_in_a_loop(void)
{
    for (unsigned i = 0; i <= threadIdx.x / 32; i++)
        __syncthreads();
}

template <void (*kernel)(void)> static void run_it(void)
{
    launch(0, dim3(2), dim3(64), kernel);
    cudaDeviceSynchronize();
}

static void test_divergent_barriers_end_the_process(void **)
{
    std::string said = last_words(run_it<two_barriers>);

    expect_part(said, "shim: kernel ");
    expect_part(said, "two_barriers");
    expect_part(said, "block (");
    expect_part(said, "divergent barrier");
    expect_part(said, "test_shim_block.cpp:");
    said = last_words(run_it<barrier_of_half>);
    expect_part(said, "barrier_of_half");
    expect_part(said, "divergent barrier");
    expect_part(said, "has left the kernel");
    expect_part(last_words(run_it<barrier_in_a_loop>), "has left the kernel");
}

/* ---- warps ---- */

static __global__ void shuffles(int *out)
{
    int lane = (int)(threadIdx.x % 32), *o = out + threadIdx.x * 8, sum = lane;
    double d = lane + 0.5;

    for (int bit = 16; bit; bit /= 2)
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, bit);
    for (int bit = 16; bit; bit /= 2)
        d += __shfl_xor_sync(0xFFFFFFFFu, d, bit);
    o[0] = sum;
    o[1] = (int)d;
    o[2] = __shfl_sync(0xFFFFFFFFu, lane, 7);
    o[3] = __shfl_sync(0xFFFFFFFFu, lane, 3, 8);
    o[4] = __shfl_down_sync(0xFFFFFFFFu, lane, 5);
    o[5] = __shfl_up_sync(0xFFFFFFFFu, lane, 5, 16);
    o[6] = (int)__ballot_sync(0xFFFFFFFFu, lane % 3 == 0);
    o[7] = lane < 8 ? __shfl_xor_sync(0xFFu, lane, 1) : -1;
    __syncwarp();
}

static void test_shuffles_move_what_they_say(void **)
{
    int *out = managed(96 * 8, -2);
    unsigned third = 0;

    for (int i = 0; i < 32; i += 3)
        third |= 1u << i;
    OK(launch(0, dim3(1), dim3(96), shuffles, out));
    OK(cudaDeviceSynchronize());
    for (int t = 0; t < 96; t++) {
        int lane = t % 32, *o = out + t * 8;

        assert_int_equal(o[0], 31 * 16);
        assert_int_equal(o[1], 31 * 16 + 16);
        assert_int_equal(o[2], 7);
        assert_int_equal(o[3], lane / 8 * 8 + 3);
        assert_int_equal(o[4], lane + 5 < 32 ? lane + 5 : lane);
        assert_int_equal(o[5], lane % 16 >= 5 ? lane - 5 : lane);
        assert_int_equal((unsigned)o[6], third);
        assert_int_equal(o[7], lane < 8 ? (lane ^ 1) : -1);
    }
    cudaFree(out);
}

static __global__ void lanes_leave(void)
{
    if (threadIdx.x % 32 < 20)
        (void)__shfl_xor_sync(0xFFFFFFFFu, 1, 1);
}

static __global__ void lanes_elsewhere(void)
{
    if (threadIdx.x % 32 < 20)
        (void)__shfl_xor_sync(0xFFFFFFFFu, 1, 1);
    else
        __syncthreads();
}

static __global__ void not_in_mask(void)
{
    __syncwarp(0x7FFFFFFFu);
}

static __global__ void reads_outside_mask(void)
{
    if (threadIdx.x % 32 < 4)
        (void)__shfl_sync(0xFu, 1, 5);
}

static __global__ void full_mask(void)
{
    (void)__ballot_sync(0xFFFFFFFFu, 1);
}

static void run_part_of_a_warp(void)
{
    launch(0, dim3(1), dim3(40), full_mask);
    cudaDeviceSynchronize();
}

static void test_lanes_missing_from_a_shuffle_end_the_process(void **)
{
    std::string said = last_words(run_it<lanes_leave>);

    expect_part(said, "lanes_leave");
    expect_part(said, "a shuffle of lanes ffffffff");
    expect_part(said, "has left the kernel");
    expect_part(last_words(run_it<lanes_elsewhere>), "waits at __syncthreads");
    expect_part(last_words(run_it<not_in_mask>),
                "lane 31 is not in its own mask 7fffffff");
    expect_part(last_words(run_it<reads_outside_mask>),
                "reads lane 5, which is not in the mask 0000000f");
    expect_part(last_words(run_part_of_a_warp), "names lanes that are not there");
}

/* ---- atomics ---- */

static __global__ void add_up(int *sum, unsigned *least)
{
    atomicAdd(sum, (int)threadIdx.x);
    atomicMin(least, threadIdx.x + 5);
}

static void test_integer_atomics(void **)
{
    int *sum = managed(1, 0);
    unsigned *least = managed(1, ~0u);

    OK(launch(0, dim3(3), dim3(100), add_up, sum, least));
    OK(cudaDeviceSynchronize());
    assert_int_equal(*sum, 3 * 4950);
    assert_int_equal(*least, 5);
    cudaFree(sum);
    cudaFree(least);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_thread_of_every_block_runs_once),
        cmocka_unit_test(test_impossible_launches_are_refused),
        cmocka_unit_test(test_a_missing_barrier_gives_wrong_results),
        cmocka_unit_test(
            test_a_missing_barrier_before_the_second_use_gives_wrong_results),
        cmocka_unit_test(test_a_broadcast_without_barrier_is_wrong_in_some_block),
        cmocka_unit_test(test_divergent_barriers_end_the_process),
        cmocka_unit_test(test_shuffles_move_what_they_say),
        cmocka_unit_test(test_lanes_missing_from_a_shuffle_end_the_process),
        cmocka_unit_test(test_integer_atomics),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
