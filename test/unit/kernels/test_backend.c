#include "test/unit/kernels/ref.h"

#include <stdio.h>
#include <unistd.h>

#include "kernels/meta/meta.h"

/* The i-th of the list, or the next that is built in; NULL behind the last. */
static const struct zt_backend *built_in(int *i)
{
    while (zt_backends[*i].name && !zt_backends[*i].built_in)
        ++*i;
    return zt_backends[*i].built_in;
}

static void test_every_backend_has_every_kernel_and_call(void **state)
{
    (void)state;
    for (int i = 0; built_in(&i); i++) {
        const struct zt_backend *b = built_in(&i);

        assert_int_equal(b->abi, ZT_BACKEND_ABI);
        assert_int_equal(b->struct_bytes, sizeof(*b));
        assert_true(b->count && b->open && b->close && b->alloc && b->free);
        assert_true(b->memory && b->host_alloc && b->host_free);
        assert_true(b->upload && b->download && b->copy && b->sync);
        assert_true(b->stream_open && b->stream_close && b->stream_native);
        assert_true(b->event_open && b->event_close && b->event_record);
        assert_true(b->event_wait && b->event_passed);
#define IS_SET(kernel, args)                                                             \
    if (!b->kernels->kernel)                                                             \
        fail_msg("backend %s has no %s", b->name, #kernel);
        ZT_KERNELS(IS_SET)
#undef IS_SET
    }
}

static void test_the_list_tells_what_is_known_without_an_object(void **state)
{
    (void)state;
    for (const struct zt_backend_info *b = zt_backends; b->name; b++) {
        assert_ptr_equal(zt_backend_lookup(b->name), b);
        assert_true(b->built_in || (b->object && b->toolkit));
        if (b->built_in) {
            assert_string_equal(b->built_in->name, b->name);
            assert_true(zt_backend_is_built(b));
            assert_true(*b->describe());
        }
    }
    assert_null(zt_backend_lookup("auto"));
    assert_true(zt_backend_lookup("cpu")->counts_as_host_memory);
    assert_false(zt_backend_lookup("cuda")->counts_as_host_memory);
}

static void test_find_knows_every_name_and_refuses_others(void **state)
{
    const struct zt_backend *found;
    struct zt_fault fault = {0};

    (void)state;
    setenv("ZLAUNCH_CUDA_BACKEND", "", 1);
    for (int i = 0; built_in(&i); i++) {
        assert_int_equal(zt_backend_find(zt_backends[i].name, &found, NULL), ZT_OK);
        assert_ptr_equal(found, zt_backends[i].built_in);
        assert_string_equal(found->name, zt_backends[i].name);
    }
    assert_int_equal(zt_backend_find("auto", &found, NULL), ZT_OK);
    assert_string_equal(found->name, "cpu");
    assert_int_equal(zt_backend_find("tpu", &found, &fault), ZT_E_UNSUPPORTED);
    assert_non_null(strstr(fault.text, "\"tpu\""));
}

/* ---- the object with the cuda backend ---- */

/* backends/NAME beside this program: built from loaded_backend.c. */
static void choose_object(const char *name)
{
    char path[4200];
    ssize_t n = readlink("/proc/self/exe", path, 4000);

    assert_true(n > 0);
    path[n] = 0;
    snprintf(strrchr(path, '/'), 100, "/backends/%s.so", name);
    setenv("ZLAUNCH_CUDA_BACKEND", path, 1);
}

static void refuses_cuda(const char *because)
{
    const struct zt_backend *found = &zt_cpu_backend;
    struct zt_fault fault = {0};

    assert_int_equal(zt_backend_find("cuda", &found, &fault), ZT_E_UNSUPPORTED);
    assert_null(found);
    if (!strstr(fault.text, because))
        fail_msg("want \"%s\" in \"%s\"", because, fault.text);
    assert_int_equal(zt_backend_find("auto", &found, NULL), ZT_OK);
    assert_ptr_equal(found, &zt_cpu_backend);
}

static void test_objects_that_will_not_do_are_refused_with_the_reason(void **state)
{
    (void)state;
    setenv("ZLAUNCH_CUDA_BACKEND", "", 1);
    refuses_cuda("this build has no CUDA");
    setenv("ZLAUNCH_CUDA_BACKEND", "/nowhere/cuda.so", 1);
    refuses_cuda("/nowhere/cuda.so");
    choose_object("no_symbol");
    refuses_cuda("no_symbol.so exports no zt_loaded_backend");
    choose_object("other_abi");
    refuses_cuda("other_abi.so is of another version of zlaunch: run make again");
    choose_object("other_size");
    refuses_cuda("other_size.so is of another version of zlaunch");
}

/* The last of these tests: what was loaded once stays. */
static void test_an_object_is_cuda_when_it_sees_a_device(void **state)
{
    const struct zt_backend *found, *again;
    struct zt_fault fault = {0};

    (void)state;
    choose_object("good");
    refuses_cuda("the object of the test sees no device");
    setenv("TEST_CUDA_DEVICES", "2", 1);
    if (zt_backend_find("cuda", &found, &fault))
        fail_msg("%s", fault.text);
    assert_string_equal(found->name, "cuda");
    assert_int_equal(zt_backend_find("auto", &again, NULL), ZT_OK);
    assert_ptr_equal(found, again);
    choose_object("other_abi");
    assert_int_equal(zt_backend_find("cuda", &again, NULL), ZT_OK);
    assert_ptr_equal(found, again);
}

static void test_what_a_device_takes_for_itself_is_known_without_it(void **state)
{
    (void)state;
    assert_int_equal(zt_backend_own_bytes("cpu"), 0);
    assert_int_equal(zt_backend_own_bytes("meta"), 0);
    assert_true(zt_backend_own_bytes("cuda") > 0);
}

/* ---- views ---- */

static void test_view_of_is_row_major_and_contiguous(void **state)
{
    struct zt_view v = zt_view_of(NULL, ZT_F32, 3, (int64_t[]){2, 3, 5});

    (void)state;
    assert_int_equal(v.stride[0], 15);
    assert_int_equal(v.stride[1], 5);
    assert_int_equal(v.stride[2], 1);
    assert_int_equal(zt_view_numel(&v), 30);
    assert_true(zt_view_is_contiguous(&v));
    v.stride[1] = 6;
    assert_false(zt_view_is_contiguous(&v));
    v.shape[1] = 1; /* the stride of an axis of 1 says nothing */
    v.stride[0] = 5;
    assert_true(zt_view_is_contiguous(&v));
    v = zt_view_of(NULL, ZT_F32, 0, NULL);
    assert_int_equal(zt_view_numel(&v), 1);
}

static void test_cpu_regions_are_zeroed_and_copies_arrive(void **state)
{
    struct zt_device *dev = ref_open(2);
    char text[] = "there and back", back[sizeof(text)] = {0}, *mem;
    size_t bytes = (3u << 20) + 5;
    void *p = NULL;

    (void)state;
    assert_int_equal(zt_cpu_backend.alloc(dev, bytes, &p, NULL), ZT_OK);
    mem = p;
    assert_int_equal((uintptr_t)p % 4096, 0);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(mem[i], 0);
    assert_int_equal(zt_cpu_backend.upload(dev, NULL, mem, text, sizeof(text), NULL),
                     ZT_OK);
    assert_int_equal(zt_cpu_backend.download(dev, NULL, back, mem, sizeof(text), NULL),
                     ZT_OK);
    assert_int_equal(zt_cpu_backend.sync(dev, NULL, NULL), ZT_OK);
    assert_string_equal(back, text);
    zt_cpu_backend.free(dev, p, bytes);
    zt_cpu_backend.close(dev);
    zt_cpu_backend.close(NULL);
}

/* ---- memory ---- */

static struct zt_device_memory memory_of(const struct zt_backend *b,
                                         struct zt_device *dev)
{
    struct zt_device_memory m = {0};

    assert_int_equal(b->memory(dev, &m, NULL), ZT_OK);
    return m;
}

static void expect_taken(const struct zt_backend *b, struct zt_device *dev, size_t used,
                         size_t peak)
{
    struct zt_device_memory m = memory_of(b, dev);

    assert_int_equal(m.used, used);
    assert_int_equal(m.peak, peak);
    assert_true(m.total == SIZE_MAX && m.free == SIZE_MAX); /* they know no limit */
}

static void test_memory_counts_what_was_taken(void **state)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    (void)state;
    for (int i = 0; built_in(&i); i++) {
        const struct zt_backend *b = built_in(&i);
        struct zt_device *dev = NULL;
        void *p = NULL, *q = NULL, *host = NULL;

        assert_int_equal(b->open(0, 1, &dev, NULL), ZT_OK);
        expect_taken(b, dev, 0, 0);
        assert_int_equal(b->alloc(dev, 3 * page, &p, NULL), ZT_OK);
        assert_int_equal(b->alloc(dev, 5 * page, &q, NULL), ZT_OK);
        b->free(dev, p, 3 * page);
        expect_taken(b, dev, 5 * page, 8 * page);
        assert_int_equal(b->host_alloc(dev, 9 * page, &host, NULL), ZT_OK);
        assert_non_null(host);
        expect_taken(b, dev, 5 * page, 8 * page); /* the host's, not the device's */
        b->host_free(dev, host, 9 * page);
        b->host_free(dev, NULL, 0);
        b->free(dev, q, 5 * page);
        expect_taken(b, dev, 0, 8 * page);
        assert_int_equal(b->alloc(dev, 0, &p, NULL), ZT_E_ARG);
        assert_int_equal(b->host_alloc(dev, 0, &host, NULL), ZT_E_ARG);
        expect_taken(b, dev, 0, 8 * page);
        b->close(dev);
    }
}

static void test_cpu_counts_its_scratch_and_whole_pages(void **state)
{
    struct zt_device *dev = ref_open(1);
    struct arr x = arr_2(ZT_F16, 40, 40, -1, 1), y = arr_2(ZT_F32, 40, 40, -1, 1);
    struct zt_gemm_args g = {.a = x.v, .b = x.v, .c = y.v, .alpha = 1};
    size_t page = (size_t)sysconf(_SC_PAGESIZE), scratch;
    void *p = NULL;

    (void)state;
    REF_RUN(dev, gemm, &g); /* of halves: widened in scratch */
    scratch = memory_of(&zt_cpu_backend, dev).used;
    assert_true(scratch >= 3 * 40 * 40 * sizeof(float));
    REF_RUN(dev, gemm, &g);
    expect_taken(&zt_cpu_backend, dev, scratch, scratch);
    assert_int_equal(zt_cpu_backend.alloc(dev, 1, &p, NULL), ZT_OK);
    expect_taken(&zt_cpu_backend, dev, scratch + page, scratch + page);
    zt_cpu_backend.free(dev, p, 1);
    expect_taken(&zt_cpu_backend, dev, scratch, scratch + page);
    arr_free(&x);
    arr_free(&y);
    zt_cpu_backend.close(dev);
}

static void test_cpu_host_memory_is_zeroed_and_copies_arrive(void **state)
{
    struct zt_device *dev = ref_open(1);
    const size_t bytes = 10000;
    char *host, *region;
    void *p = NULL, *q = NULL;

    (void)state;
    assert_int_equal(zt_cpu_backend.host_alloc(dev, bytes, &p, NULL), ZT_OK);
    assert_int_equal(zt_cpu_backend.alloc(dev, 2 * bytes, &q, NULL), ZT_OK);
    host = p;
    region = q;
    for (size_t i = 0; i < bytes; i++) {
        assert_int_equal(host[i], 0);
        host[i] = (char)(i % 113);
    }
    assert_int_equal(zt_cpu_backend.upload(dev, NULL, region, host, bytes, NULL), ZT_OK);
    assert_int_equal(
        zt_cpu_backend.copy(dev, NULL, region + bytes, region, bytes - 1, NULL), ZT_OK);
    assert_int_equal(zt_cpu_backend.copy(dev, NULL, region, region, bytes, NULL), ZT_OK);
    assert_int_equal(zt_cpu_backend.sync(dev, NULL, NULL), ZT_OK);
    assert_memory_equal(region, host, bytes);
    assert_memory_equal(region + bytes, host, bytes - 1);
    assert_int_equal(region[2 * bytes - 1], 0);
    zt_cpu_backend.host_free(dev, p, bytes);
    zt_cpu_backend.free(dev, q, 2 * bytes);
    zt_cpu_backend.close(dev);
}

/* ---- devices that run work at once: streams and events with nothing to wait for ---- */

static void test_streams_and_events_of_devices_that_run_at_once(void **state)
{
    (void)state;
    for (int i = 0; built_in(&i); i++) {
        const struct zt_backend *b = built_in(&i);
        struct zt_device *dev = NULL;
        struct zt_stream *s = NULL, *t = NULL;
        struct zt_stream_event *e = NULL;
        bool passed = false;
        int devices = 0;

        assert_int_equal(b->count(&devices, NULL), ZT_OK);
        assert_int_equal(devices, 1);
        assert_int_equal(b->open(0, 1, &dev, NULL), ZT_OK);
        assert_int_equal(b->stream_open(dev, &s, NULL), ZT_OK);
        assert_int_equal(b->stream_open(dev, &t, NULL), ZT_OK);
        assert_true(s && t && s != t);
        assert_null(b->stream_native(dev, s));
        assert_null(b->stream_native(dev, NULL));
        assert_int_equal(b->event_open(dev, &e, NULL), ZT_OK);
        assert_int_equal(b->event_passed(dev, e, &passed, NULL), ZT_OK);
        assert_true(passed); /* never recorded */
        passed = false;
        assert_int_equal(b->event_record(dev, e, s, NULL), ZT_OK);
        assert_int_equal(b->event_wait(dev, e, t, NULL), ZT_OK);
        assert_int_equal(b->event_wait(dev, e, NULL, NULL), ZT_OK);
        assert_int_equal(b->event_passed(dev, e, &passed, NULL), ZT_OK);
        assert_true(passed);
        assert_int_equal(b->sync(dev, t, NULL), ZT_OK);
        b->event_close(dev, e);
        b->event_close(dev, NULL);
        b->stream_close(dev, s);
        b->stream_close(dev, t);
        b->stream_close(dev, NULL);
        b->close(dev);
    }
}

/* Kernels that need no scratch run on any stream. */
static void test_cpu_kernels_run_on_a_stream_beside_the_main_one(void **state)
{
    struct zt_device *dev = ref_open(1);
    struct arr x = arr_2(ZT_F32, 2, 50, -1, 1), y = arr_1(ZT_F32, 50, 0, 0);
    struct zt_rank_sum_args sum = {x.v, y.v, 0.5f};
    struct zt_fill_args fill = {x.v, 3};
    struct zt_stream *s = NULL;

    (void)state;
    assert_int_equal(zt_cpu_backend.stream_open(dev, &s, NULL), ZT_OK);
    assert_int_equal(zt_cpu_kernels.fill(dev, s, &fill, NULL), ZT_OK);
    assert_int_equal(zt_cpu_kernels.rank_sum(dev, s, &sum, NULL), ZT_OK);
    for (int64_t i = 0; i < y.n; i++)
        ref_close("y", &y.v, i, 3, 0);
    zt_cpu_backend.stream_close(dev, s);
    arr_free(&x);
    arr_free(&y);
    zt_cpu_backend.close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_backend_has_every_kernel_and_call),
        cmocka_unit_test(test_the_list_tells_what_is_known_without_an_object),
        cmocka_unit_test(test_find_knows_every_name_and_refuses_others),
        cmocka_unit_test(test_objects_that_will_not_do_are_refused_with_the_reason),
        cmocka_unit_test(test_an_object_is_cuda_when_it_sees_a_device),
        cmocka_unit_test(test_what_a_device_takes_for_itself_is_known_without_it),
        cmocka_unit_test(test_view_of_is_row_major_and_contiguous),
        cmocka_unit_test(test_cpu_regions_are_zeroed_and_copies_arrive),
        cmocka_unit_test(test_memory_counts_what_was_taken),
        cmocka_unit_test(test_cpu_counts_its_scratch_and_whole_pages),
        cmocka_unit_test(test_cpu_host_memory_is_zeroed_and_copies_arrive),
        cmocka_unit_test(test_streams_and_events_of_devices_that_run_at_once),
        cmocka_unit_test(test_cpu_kernels_run_on_a_stream_beside_the_main_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
