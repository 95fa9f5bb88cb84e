/* Device memory: what is in it, who reaches it, and what is beside it. */
#include "test/unit/cuda/shim_test.h"

static __global__ void scribble(float *x, int64_t at)
{
    x[at] = 1;
}

static __global__ void peek(float *out, const float *x, int64_t at)
{
    *out = x[at];
}

static float *device(size_t n)
{
    float *p = NULL;

    OK(cudaMalloc(&p, n * sizeof(*p)));
    return p;
}

static void test_new_memory_is_nan_and_aligned(void **)
{
    const size_t sizes[] = {1, 63, 64, 1024, 1025, 3000000};
    float *host = (float *)malloc(3000000 * sizeof(*host));

    assert_non_null(host);
    for (size_t n : sizes) {
        float *x = device(n);

        assert_int_equal((uintptr_t)x % 256, 0);
        OK(cudaMemcpy(host, x, n * sizeof(*x), cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < n; i++)
            assert_true(isnan(host[i]));
        OK(cudaFree(x));
    }
    free(host);
}

static void test_copies_wait_in_their_stream(void **)
{
    float *x = device(100), *pinned = NULL, back[100];
    cudaStream_t s;

    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaMallocHost(&pinned, 100 * sizeof(*pinned)));
    for (int i = 0; i < 100; i++) {
        pinned[i] = -1;
        back[i] = 0;
    }
    OK(cudaMemcpyAsync(x, pinned, sizeof(back), cudaMemcpyHostToDevice, s));
    OK(cudaMemsetAsync(x + 50, 0, 10 * sizeof(*x), s));
    OK(cudaMemcpyAsync(back, x, sizeof(back), cudaMemcpyDeviceToHost, s));
    for (int i = 0; i < 100; i++)
        pinned[i] = (float)i; /* too late on a device, maybe; seen here */
    assert_true(back[99] == 0);
    OK(cudaStreamSynchronize(s));
    for (int i = 0; i < 100; i++)
        assert_true(back[i] == (i >= 50 && i < 60 ? 0.0f : (float)i));
    OK(cudaFree(x));
    OK(cudaFreeHost(pinned));
    OK(cudaStreamDestroy(s));
}

static void test_copies_past_an_end_or_the_wrong_way_are_refused(void **)
{
    float *x = device(10), host[20] = {0};

    assert_int_equal(cudaMemcpy(x, host, 11 * sizeof(*x), cudaMemcpyHostToDevice),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(x + 9, host, 2 * sizeof(*x), cudaMemcpyHostToDevice),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(host, x, sizeof(*x), cudaMemcpyHostToDevice),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemset(host, 0, sizeof(*x)), cudaErrorInvalidValue);
    assert_int_equal(cudaFree(host), cudaErrorInvalidValue);
    OK(cudaFree(x));
    assert_int_equal(cudaFree(x), cudaErrorInvalidValue);
    OK(cudaFree(NULL));
    (void)cudaGetLastError();
}

static void test_memory_has_an_end(void **)
{
    size_t free_bytes, total;
    void *p, *q = NULL;

    OK(cudaMemGetInfo(&free_bytes, &total));
    assert_int_equal(cudaMalloc(&p, total + 1), cudaErrorMemoryAllocation);
    assert_null(p);
    OK(cudaMalloc(&p, total / 2));
    assert_int_equal(cudaMalloc(&q, total / 2 + 1), cudaErrorMemoryAllocation);
    OK(cudaFree(p));
    OK(cudaMemGetInfo(&free_bytes, &total));
    assert_int_equal(free_bytes, total);
    (void)cudaGetLastError();
}

static enum cudaMemoryType type_of(const void *p)
{
    struct cudaPointerAttributes a = {};

    OK(cudaPointerGetAttributes(&a, p));
    return a.type;
}

static void test_pointers_say_whose_they_are(void **)
{
    struct cudaPointerAttributes a = {};
    float *x = device(10), *y = managed(10, 0.0f), *pinned = NULL, own[10] = {0};

    OK(cudaMallocHost(&pinned, 40));
    assert_int_equal(type_of(x + 9), cudaMemoryTypeDevice);
    assert_int_equal(type_of(y), cudaMemoryTypeManaged);
    assert_int_equal(type_of(pinned), cudaMemoryTypeHost);
    assert_int_equal(type_of(own), cudaMemoryTypeUnregistered);
    assert_int_equal(type_of(NULL), cudaMemoryTypeUnregistered);
    OK(cudaPointerGetAttributes(&a, x));
    assert_int_equal(a.device, 0);
    assert_ptr_equal(a.devicePointer, x);
    assert_null(a.hostPointer);
    OK(cudaFree(x));
    assert_int_equal(type_of(x), cudaMemoryTypeUnregistered);
    OK(cudaFree(y));
    OK(cudaFreeHost(pinned));
}

static void test_memory_of_the_host_is_registered_once(void **)
{
    static float own[100];
    float *x = device(100);

    OK(cudaHostRegister(own, 200, cudaHostRegisterDefault));
    assert_int_equal(type_of(own + 49), cudaMemoryTypeHost);
    assert_int_equal(type_of(own + 50), cudaMemoryTypeUnregistered);
    assert_int_equal(cudaHostRegister(own + 49, 8, cudaHostRegisterDefault),
                     cudaErrorHostMemoryAlreadyRegistered);
    assert_int_equal(cudaHostRegister(x, 8, cudaHostRegisterDefault),
                     cudaErrorInvalidValue);
    /* half of it pinned and half of it not */
    assert_int_equal(cudaMemcpy(x, own + 40, 80, cudaMemcpyHostToDevice),
                     cudaErrorInvalidValue);
    OK(cudaMemcpy(x, own, 200, cudaMemcpyHostToDevice));
    assert_int_equal(cudaHostUnregister(own + 1), cudaErrorHostMemoryNotRegistered);
    OK(cudaHostUnregister(own));
    assert_int_equal(cudaHostUnregister(own), cudaErrorHostMemoryNotRegistered);
    assert_int_equal(type_of(own), cudaMemoryTypeUnregistered);
    OK(cudaMemcpy(x, own + 40, 80, cudaMemcpyHostToDevice));
    OK(cudaFree(x));
    (void)cudaGetLastError();
}

static void test_devices_have_an_address_each(void **)
{
    char a[32], b[32];

    setenv("SHIM_DEVICES", "2", 1);
    OK(cudaDeviceGetPCIBusId(a, sizeof(a), 0));
    OK(cudaDeviceGetPCIBusId(b, sizeof(b), 1));
    assert_string_equal(a, "0000:01:00.0");
    assert_string_not_equal(a, b);
    assert_int_equal(cudaDeviceGetPCIBusId(a, sizeof(a), 2), cudaErrorInvalidDevice);
    assert_int_equal(cudaDeviceGetPCIBusId(a, 5, 0), cudaErrorInvalidValue);
    unsetenv("SHIM_DEVICES");
    (void)cudaGetLastError();
}

/* ---- faults, each in a child ---- */

static void write_at(size_t n, int64_t at)
{
    float *x = device(n);

    OK(launch(0, dim3(1), dim3(1), scribble, x, at));
    cudaDeviceSynchronize();
}

static void write_just_behind(void)
{
    write_at(10, 10);
}
static void write_before(void)
{
    write_at(10, -1);
}
static void write_into_the_guard(void)
{
    write_at(1024, 1024);
}

static void test_writes_outside_an_allocation_end_the_process(void **)
{
    std::string behind = last_words(write_just_behind), before = last_words(write_before);
    std::string guard = last_words(write_into_the_guard);

    if (SHIM_ASAN) {
        expect_part(behind, "use-after-poison");
        expect_part(before, "use-after-poison");
    } else {
        expect_part(behind, "scribble");
        expect_part(behind,
                    "wrote outside an allocation: at offset 40 of 40 bytes of device");
        expect_part(before,
                    "wrote outside an allocation: at offset -4 of 40 bytes of device");
    }
    expect_part(guard, "scribble");
    expect_part(guard, "block (0,0,0), thread (0,0,0)");
    expect_part(guard, "went outside an allocation: offset 4096 of 4096 bytes of device");
}

static void write_beside_managed(void)
{
    float *x = managed(3, 0.0f);

    OK(launch(0, dim3(1), dim3(1), scribble, x, 3));
    cudaDeviceSynchronize();
}

static void test_writes_beside_managed_memory_are_found_too(void **)
{
    expect_part(last_words(write_beside_managed),
                SHIM_ASAN
                    ? "use-after-poison"
                    : "wrote outside an allocation: at offset 12 of 12 bytes of managed");
}

static void touch_from_the_host(void)
{
    device(10)[3] = 1;
}

static void test_the_host_does_not_reach_device_memory(void **)
{
    expect_part(last_words(touch_from_the_host),
                "host code touched device memory: offset 12 of 40 bytes");
}

static void use_after_free(void)
{
    float *x = device(10), *y = device(10);

    OK(cudaFree(x));
    OK(launch(0, dim3(1), dim3(1), peek, y, x, 2));
    cudaDeviceSynchronize();
}

static void test_freed_memory_is_out_of_reach(void **)
{
    std::string said = last_words(use_after_free);

    expect_part(said, "peek");
    expect_part(said, "touched freed memory: offset 8 of 40 bytes of device");
}

static __global__ void dig(volatile int *x, int depth)
{
    volatile char room[4096];

    room[0] = (char)depth;
    if (depth > 0)
        dig(x, depth - 1);
    *x = *x + room[0];
}

static void overflow(void)
{
    int *x = managed(1, 0);

    OK(launch(0, dim3(1), dim3(1), dig, x, 100000));
    cudaDeviceSynchronize();
}

static void test_a_stack_that_overflows_is_named(void **)
{
    expect_part(last_words(overflow), "the stack of a thread overflowed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_memory_is_nan_and_aligned),
        cmocka_unit_test(test_copies_wait_in_their_stream),
        cmocka_unit_test(test_copies_past_an_end_or_the_wrong_way_are_refused),
        cmocka_unit_test(test_memory_has_an_end),
        cmocka_unit_test(test_pointers_say_whose_they_are),
        cmocka_unit_test(test_memory_of_the_host_is_registered_once),
        cmocka_unit_test(test_devices_have_an_address_each),
        cmocka_unit_test(test_writes_outside_an_allocation_end_the_process),
        cmocka_unit_test(test_writes_beside_managed_memory_are_found_too),
        cmocka_unit_test(test_the_host_does_not_reach_device_memory),
        cmocka_unit_test(test_freed_memory_is_out_of_reach),
        cmocka_unit_test(test_a_stack_that_overflows_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
