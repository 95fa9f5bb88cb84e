/* Parallel loops, and what the cpu device promises about memory and its speed. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/parallel.h"
#include "kernels/measure.h"

struct seen {
    int64_t n, grain;
    int times[300];
    bool bad_border;
};

static void count_range(int64_t begin, int64_t end, int thread, void *ctx)
{
    struct seen *s = ctx;

    if (begin % s->grain != 0 || (end % s->grain != 0 && end != s->n) || thread < 0 ||
        thread >= zt_num_threads())
        s->bad_border = true;
    for (int64_t i = begin; i < end; i++)
        s->times[i]++;
}

static void test_every_index_is_visited_once_on_borders_of_grain(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        zt_set_num_threads(threads);
        for (int64_t n = 0; n <= 300; n += 37)
            for (int64_t grain = 1; grain <= 64; grain *= 4) {
                struct seen s = {.n = n, .grain = grain};

                zt_parallel_for(n, grain, count_range, &s);
                assert_false(s.bad_border);
                for (int64_t i = 0; i < 300; i++)
                    assert_int_equal(s.times[i], i < n);
            }
    }
}

static void count_task(int64_t task, int thread, void *ctx)
{
    struct seen *s = ctx;

    (void)thread;
    s->times[task]++;
}

static void test_every_task_runs_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 5; threads++)
        for (int64_t n = 0; n <= 300; n += 75) {
            struct seen s = {.n = n};

            zt_set_num_threads(threads);
            zt_parallel_tasks(n, count_task, &s);
            for (int64_t i = 0; i < 300; i++)
                assert_int_equal(s.times[i], i < n);
        }
}

static void outer(int64_t begin, int64_t end, int thread, void *ctx)
{
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        struct seen *s = (struct seen *)ctx + i;

        s->n = 100;
        s->grain = 100; /* one part: any split would break a border */
        zt_parallel_for(100, 1, count_range, s);
    }
}

static void test_a_loop_inside_a_loop_runs_serially(void **state)
{
    struct seen *s = calloc(8, sizeof(*s));

    (void)state;
    assert_non_null(s);
    zt_set_num_threads(3);
    zt_parallel_for(8, 1, outer, s);
    for (int i = 0; i < 8; i++) {
        assert_false(s[i].bad_border);
        assert_int_equal(s[i].times[99], 1);
    }
    assert_false(zt_in_parallel());
    free(s);
}

static void test_regions_are_page_aligned_and_zero(void **state)
{
    const size_t bytes = ((size_t)5 << 20) + 12345;
    struct zt_device *dev;
    char *p;
    void *mem;

    (void)state;
    assert_int_equal(zt_cpu_backend.open(0, 2, &dev, NULL), ZT_OK);
    assert_int_equal(zt_cpu_backend.alloc(dev, bytes, &mem, NULL), ZT_OK);
    assert_int_equal((uintptr_t)mem % 4096, 0);
    p = mem;
    for (size_t i = 0; i < bytes; i += 997)
        assert_int_equal(p[i], 0);
    p[bytes - 1] = 1;
    zt_cpu_backend.free(dev, mem, bytes);
    assert_int_equal(zt_cpu_backend.alloc(dev, 0, &mem, NULL), ZT_E_ARG);
    zt_cpu_backend.close(dev);
}

static void test_scratch_grows_and_stays(void **state)
{
    struct zt_device *dev;
    void *a, *b;

    (void)state;
    assert_int_equal(zt_cpu_backend.open(0, 1, &dev, NULL), ZT_OK);
    assert_int_equal(zt_cpu_scratch(dev, ZT_SCRATCH_KERNEL, 100000, &a, NULL), ZT_OK);
    assert_int_equal((uintptr_t)a % 64, 0);
    memset(a, 1, 100000);
    assert_int_equal(zt_cpu_scratch(dev, ZT_SCRATCH_KERNEL, 10, &b, NULL), ZT_OK);
    assert_ptr_equal(a, b);
    assert_int_equal(zt_cpu_scratch(dev, ZT_SCRATCH_KERNEL, 900000, &b, NULL), ZT_OK);
    memset(b, 1, 900000);
    zt_cpu_backend.close(dev);
}

static void test_the_rate_of_products_can_be_measured(void **state)
{
    struct zt_device *dev;
    struct zt_fault fault;
    double rate;

    (void)state;
    assert_int_equal(zt_cpu_backend.open(0, 2, &dev, NULL), ZT_OK);
    for (int tf32 = 0; tf32 < 2; tf32++) {
        assert_int_equal(
            zt_measure_gemm(&zt_cpu_backend, dev, ZT_F32, tf32, 0, &rate, &fault), ZT_OK);
        assert_true(rate > 1e6);
    }
    assert_int_equal(
        zt_measure_gemm(&zt_cpu_backend, dev, ZT_F8E4M3, false, 0, &rate, &fault), ZT_OK);
    assert_true(rate > 1e6);
    assert_int_equal(
        zt_measure_gemm(&zt_cpu_backend, dev, ZT_I32, false, 0, &rate, &fault), ZT_E_ARG);
    zt_cpu_backend.close(dev);
}

static void test_every_kind_of_work_has_a_rate(void **state)
{
    static const zt_dtype types[][2] = {
        {ZT_F32, ZT_F32}, {ZT_BF16, ZT_BF16}, {ZT_F8E4M3, ZT_BF16}};
    struct zt_device *dev;
    struct zt_fault fault;
    struct zt_device_work w;

    (void)state;
    assert_int_equal(zt_cpu_backend.open(0, 2, &dev, NULL), ZT_OK);
    for (size_t t = 0; t < 3; t++) {
        assert_int_equal(zt_measure_work(&zt_cpu_backend, dev, types[t][0], types[t][1],
                                         false, 0, t << 27, &w, &fault),
                         ZT_OK);
        for (int k = 0; k < ZT_NUM_WORK_KINDS; k++)
            assert_true(w.of[k] > 1e5);
    }
    assert_int_equal(
        zt_measure_work(&zt_cpu_backend, dev, ZT_I32, ZT_I32, false, 0, 0, &w, &fault),
        ZT_E_ARG);
    zt_cpu_backend.close(dev);
}

/* Products of equal numbers draw less power and are faster than any that training has. */
static void test_what_is_measured_multiplies_random_numbers(void **state)
{
    static const zt_dtype types[] = {ZT_F32, ZT_BF16, ZT_F8E4M3};
    const struct zt_product p = {64, 48, 80};
    struct zt_device *dev;
    double rate;

    (void)state;
    assert_int_equal(zt_cpu_backend.open(0, 1, &dev, NULL), ZT_OK);
    for (size_t t = 0; t < 3; t++) {
        size_t bytes = zt_measure_bytes(types[t], p), num = (64 + 48) * 80;
        size_t width = zt_dtype_bytes(types[t]), same = 0;
        char *mem = calloc(1, bytes);

        assert_non_null(mem);
        assert_int_equal(zt_measure_gemm_in(&zt_cpu_backend, dev, types[t], false, 0, mem,
                                            p, &rate, NULL),
                         ZT_OK);
        for (size_t i = 1; i < num; i++)
            same += memcmp(mem + i * width, mem + (i - 1) * width, width) == 0;
        assert_true(same < num / 8);
        free(mem);
    }
    zt_cpu_backend.close(dev);
}

static void see_mask(int64_t begin, int64_t end, int thread, void *ctx)
{
    int *blocked = ctx;
    sigset_t set;

    (void)begin;
    (void)end;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    blocked[thread] = sigismember(&set, SIGTERM) && !sigismember(&set, SIGSEGV);
}

/* A handler on a thread of the pool would write into the data of a product. */
static void test_threads_of_the_pool_take_no_signals(void **state)
{
    int blocked[3] = {-1, -1, -1};

    (void)state;
    zt_set_num_threads(3);
    zt_parallel_for(3, 1, see_mask, blocked);
    assert_int_equal(blocked[0], 0); /* the caller's are its own matter */
    assert_int_equal(blocked[1], 1);
    assert_int_equal(blocked[2], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_measured_multiplies_random_numbers),
        cmocka_unit_test(test_every_index_is_visited_once_on_borders_of_grain),
        cmocka_unit_test(test_every_task_runs_once),
        cmocka_unit_test(test_threads_of_the_pool_take_no_signals),
        cmocka_unit_test(test_a_loop_inside_a_loop_runs_serially),
        cmocka_unit_test(test_regions_are_page_aligned_and_zero),
        cmocka_unit_test(test_scratch_grows_and_stays),
        cmocka_unit_test(test_the_rate_of_products_can_be_measured),
        cmocka_unit_test(test_every_kind_of_work_has_a_rate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
