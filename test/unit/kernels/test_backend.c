#include "test/unit/kernels/ref.h"

#include "kernels/meta/meta.h"

static void test_every_backend_has_every_kernel_and_call(void **state)
{
    (void)state;
    for (int i = 0; zt_backends[i]; i++) {
        const struct zt_backend *b = zt_backends[i];

        assert_int_equal(b->abi, ZT_BACKEND_ABI);
        assert_true(b->open && b->close && b->alloc && b->free);
        assert_true(b->upload && b->download && b->sync);
#define IS_SET(kernel, args)                                                             \
    if (!b->kernels->kernel)                                                             \
        fail_msg("backend %s has no %s", b->name, #kernel);
        ZT_KERNELS(IS_SET)
#undef IS_SET
    }
}

static void test_find_knows_every_name_and_refuses_others(void **state)
{
    const struct zt_backend *found;
    struct zt_fault fault = {0};

    (void)state;
    for (int i = 0; zt_backends[i]; i++) {
        assert_int_equal(zt_backend_find(zt_backends[i]->name, &found, NULL), ZT_OK);
        assert_ptr_equal(found, zt_backends[i]);
    }
    assert_int_equal(zt_backend_find("auto", &found, NULL), ZT_OK);
    assert_string_equal(found->name, "cpu");
    assert_int_equal(zt_backend_find("tpu", &found, &fault), ZT_E_UNSUPPORTED);
    assert_non_null(strstr(fault.text, "\"tpu\""));
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_backend_has_every_kernel_and_call),
        cmocka_unit_test(test_find_knows_every_name_and_refuses_others),
        cmocka_unit_test(test_view_of_is_row_major_and_contiguous),
        cmocka_unit_test(test_cpu_regions_are_zeroed_and_copies_arrive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
