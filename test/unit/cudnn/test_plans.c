/*
 * What cuDNN makes of the graphs of backends/cudnn_graph.c for a Hopper GPU, on a machine
 * without one: it takes the properties of a device in place of a handle, and of the
 * driver it needs no more than driver.c has. Nothing runs; that the numbers are right is
 * for test_cudnn.cpp to say, on a device.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <cudnn.h>

#include "kernels/cuda/attention/sdpa.h"
#include "test/unit/sample.h"

extern const struct zt_sdpa zt_sdpa_cudnn;
extern char driver_kernel[256];

/* ---- a device that is not there ---- */

static const char h100[] =
    "{\"deviceName\": \"NVIDIA H100 80GB HBM3\", \"cudaDeviceId\": 0, \"deviceVer\": 900,"
    " \"driverVer\": 13000, \"multiProcessorCount\": 132, \"regsPerBlock\": 65536,"
    " \"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64],"
    " \"smClockRateKHz\": 1980000, \"memClockRateKHz\": 2619000, \"warpSize\": 32,"
    " \"l2CacheSize\": 52428800, \"maxSharedMemoryPerBlock\": 49152,"
    " \"maxSharedMemoryPerBlockOptin\": 232448, \"reservedSharedMemoryPerBlock\": 1024,"
    " \"maxRegistersPerSM\": 65536, \"pciDeviceId\": 0, \"maxCtasPerSM\": 32,"
    " \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"isTccDriver\": 0,"
    " \"supportCoopLaunch\": 1, \"totalGlobalMem\": 84942979072}";

static cudnnBackendDescriptor_t properties;

/* The linker sends the calls of the object here (--wrap). */
cudnnStatus_t __wrap_cudnnCreate(cudnnHandle_t *handle);
cudnnStatus_t __wrap_cudnnDestroy(cudnnHandle_t handle);
cudnnStatus_t __wrap_cudnnBackendSetAttribute(cudnnBackendDescriptor_t d,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type,
                                              int64_t count, const void *value);
cudnnStatus_t __real_cudnnBackendSetAttribute(cudnnBackendDescriptor_t d,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type,
                                              int64_t count, const void *value);

cudnnStatus_t __wrap_cudnnCreate(cudnnHandle_t *handle)
{
    *handle = NULL;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t __wrap_cudnnDestroy(cudnnHandle_t handle)
{
    (void)handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t __wrap_cudnnBackendSetAttribute(cudnnBackendDescriptor_t d,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type,
                                              int64_t count, const void *value)
{
    const cudnnBackendAttributeType_t desc = CUDNN_TYPE_BACKEND_DESCRIPTOR;
    cudnnStatus_t e = CUDNN_STATUS_SUCCESS;

    if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE)
        return e;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
        return __real_cudnnBackendSetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                               desc, 1, &properties);
    if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX)
        e = __real_cudnnBackendSetAttribute(d, CUDNN_ATTR_ENGINE_DEVICEPROP, desc, 1,
                                            &properties);
    if (name == CUDNN_ATTR_ENGINEHEUR_MODE)
        e = __real_cudnnBackendSetAttribute(d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, desc, 1,
                                            &properties);
    return e ? e : __real_cudnnBackendSetAttribute(d, name, type, count, value);
}

/* ---- plans ---- */

static struct zt_sdpa_lib *lib;

static int open_lib(void **state)
{
    char why[1024] = "";

    (void)state;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &properties) ||
        __real_cudnnBackendSetAttribute(properties,
                                        CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                        CUDNN_TYPE_CHAR, sizeof(h100) - 1, h100) ||
        cudnnBackendFinalize(properties)) {
        fprintf(stderr, "this cuDNN wants other properties of a device\n");
        exit(77);
    }
    return zt_sdpa_cudnn.open(&lib, why, sizeof(why)) == ZT_OK ? 0 : -1;
}

static int close_lib(void **state)
{
    (void)state;
    zt_sdpa_cudnn.close(lib);
    return (int)cudnnBackendDestroyDescriptor(properties);
}

struct shape {
    int64_t batch, t, heads, kv_heads, dim;
    bool causal;
    zt_dtype dtype;
};

static struct zt_sdpa_problem problem(const struct shape *s, bool backward)
{
    int64_t row = (s->heads + 2 * s->kv_heads) * s->dim; /* packed */
    struct zt_sdpa_strides in = {s->t * row, row, s->dim};
    struct zt_sdpa_strides out = {s->t * s->heads * s->dim, s->heads * s->dim, s->dim};
    struct zt_sdpa_problem p;

    memset(&p, 0, sizeof(p));
    p.batch = s->batch;
    p.heads = s->heads;
    p.kv_heads = s->kv_heads;
    p.tq = p.tk = s->t;
    p.dim = s->dim;
    p.dtype = s->dtype;
    p.causal = s->causal;
    p.q = p.k = p.v = in;
    p.out = out;
    p.backward = backward;
    if (backward) {
        p.dq = p.dk = p.dv = in;
        p.dout = out;
    }
    return p;
}

/* The fused kernel is found; the workspace it needs. */
static size_t plan(const struct shape *s, bool backward)
{
    struct zt_sdpa_problem p = problem(s, backward);
    struct zt_sdpa_plan *out = NULL;
    char why[1024] = "";
    size_t bytes = 0;

    driver_kernel[0] = 0;
    if (zt_sdpa_cudnn.plan(lib, &p, &out, &bytes, why, sizeof(why)) != ZT_OK)
        fail_msg("T %lld, D %lld, backward %d: %s", (long long)s->t, (long long)s->dim,
                 backward, why);
    zt_sdpa_cudnn.plan_close(out);
    if (!strstr(driver_kernel, backward ? "flash_bprop" : "flash_fprop"))
        fail_msg("the kernel is %s", driver_kernel);
    return bytes;
}

static void test_every_kind_of_head_has_a_fused_kernel(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        if (!in_sample())
            continue;
        struct shape s = {.batch = 2,
                          .t = 1024,
                          .heads = 8,
                          .kv_heads = i % 3 ? 2 : 8,
                          .dim = i & 1 ? 128 : 64,
                          .causal = i & 2,
                          .dtype = i & 1 ? ZT_F16 : ZT_BF16};

        (void)plan(&s, false);
        (void)plan(&s, true);
    }
}

static void test_odd_lengths_and_other_heads_have_a_fused_kernel(void **state)
{
    static const struct shape shapes[] = {{2, 333, 4, 2, 64, true, ZT_BF16},
                                          {2, 256, 4, 4, 40, true, ZT_BF16},
                                          {2, 256, 4, 4, 256, true, ZT_BF16}};

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        if (!in_sample())
            continue;
        (void)plan(&shapes[i], false);
        (void)plan(&shapes[i], true);
    }
}

/* GPT-2 XL: 25 heads. Qwen2.5-1.5B: 12 query heads on 2 key heads, of 128. */
static void test_the_models_that_are_measured_have_a_fused_kernel(void **state)
{
    static const struct shape shapes[] = {{64, 1024, 12, 12, 64, true, ZT_BF16},
                                          {8, 1024, 25, 25, 64, true, ZT_BF16},
                                          {16, 1024, 12, 2, 128, true, ZT_BF16}};

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        if (!in_sample())
            continue;
        (void)plan(&shapes[i], false);
        (void)plan(&shapes[i], true);
    }
}

/* What sdpa.h says of the workspace. */
static void test_the_workspace_holds_what_it_is_said_to_hold(void **state)
{
    struct shape s = {1, 8192, 4, 1, 128, true, ZT_BF16};
    size_t bytes = plan(&s, true);

    (void)state;
    assert_true(bytes <= ZT_SDPA_WORKSPACE);
    assert_true(bytes >= (size_t)4 * 8192 * 8192 * 2); /* dS, so it is deterministic */
    s = (struct shape){1, 16384, 1, 1, 128, true, ZT_BF16};
    assert_true(plan(&s, true) <= ZT_SDPA_WORKSPACE);
}

/* --reduction_order any: a workspace in proportion to T, and no dS. */
static void test_sums_as_they_come_store_no_scores(void **state)
{
    static const struct shape shapes[] = {{8, 1024, 25, 25, 64, true, ZT_BF16},
                                          {16, 1024, 12, 2, 128, true, ZT_BF16},
                                          {1, 8192, 4, 1, 128, true, ZT_F16}};

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const struct shape *s = &shapes[i];
        size_t dq = (size_t)(s->batch * s->t * s->heads * s->dim) * sizeof(float);
        struct zt_sdpa_problem p = problem(s, true);
        struct zt_sdpa_plan *out = NULL;
        char why[1024] = "";
        size_t bytes = 0;

        p.sums = ZT_SDPA_AS_THEY_COME;
        driver_kernel[0] = 0;
        if (zt_sdpa_cudnn.plan(lib, &p, &out, &bytes, why, sizeof(why)) != ZT_OK)
            fail_msg("%s", why);
        zt_sdpa_cudnn.plan_close(out);
        if (!strstr(driver_kernel, "flash_bprop"))
            fail_msg("the kernel is %s", driver_kernel);
        assert_in_range(bytes, dq, 4 * dq);
        assert_true(bytes < plan(s, true));
    }
}

/* By cuDNN 9.25 or newer on Hopper; an older one says that it cannot. */
static void test_sums_in_order_without_scores_are_there_or_refused(void **state)
{
    struct shape s = {1, 32768, 8, 8, 128, true, ZT_BF16};
    struct zt_sdpa_problem p = problem(&s, true);
    struct zt_sdpa_plan *out = NULL;
    char why[1024] = "";
    size_t bytes = 0;

    (void)state;
    p.sums = ZT_SDPA_IN_ORDER;
    if (zt_sdpa_cudnn.version() < 92500) {
        assert_int_equal(zt_sdpa_cudnn.plan(lib, &p, &out, &bytes, why, sizeof(why)),
                         ZT_E_UNSUPPORTED);
        assert_null(out);
        return;
    }
    assert_int_equal(zt_sdpa_cudnn.plan(lib, &p, &out, &bytes, why, sizeof(why)), ZT_OK);
    assert_true(bytes < ZT_SDPA_WORKSPACE);
    zt_sdpa_cudnn.plan_close(out);
}

/* Qwen2.5-1.5B, and a layout with the weights as (in, out). */
static void test_a_product_with_a_swiglu_behind_it_has_a_kernel_of_hopper(void **state)
{
    static const struct zt_sdpa_gated problems[] = {
        {8192, 8960, 1536, 1536, 1, 8960, 1, ZT_BF16, 0},
        {8192, 8960, 1536, 1536, 1, 1, 1536, ZT_BF16, 0},
        {4096, 14336, 4096, 4096, 1, 14336, 1, ZT_F16, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]); i++) {
        int of_hopper = 0, unmeasured = zt_sdpa_cudnn.gated_engine(lib, &problems[i]);
        bool is_of_hopper = false;
        zt_err rc = ZT_OK;

        for (int engine = 0; rc != ZT_E_LIMIT; engine++) {
            struct zt_sdpa_gated_plan *out = NULL;
            char why[1024] = "";
            size_t bytes = 0;

            driver_kernel[0] = 0;
            rc = zt_sdpa_cudnn.gated_plan(lib, &problems[i], engine, &out, &bytes, why,
                                          sizeof(why));
            assert_true(rc == ZT_OK || rc == ZT_E_UNSUPPORTED || rc == ZT_E_LIMIT);
            if (rc == ZT_OK && strstr(driver_kernel, "sm90") &&
                bytes <= ZT_SDPA_WORKSPACE) {
                of_hopper++;
                is_of_hopper |= engine == unmeasured;
            }
            if (rc == ZT_OK)
                print_message("engine %d: %s\n", engine, driver_kernel);
            zt_sdpa_cudnn.gated_plan_close(out);
        }
        assert_true(of_hopper > 0);
        assert_true(is_of_hopper); /* what is taken without a measurement */
    }
}

static void test_a_problem_without_a_kernel_is_refused_with_a_reason(void **state)
{
    struct shape s = {1, 64, 1, 1, 20, true, ZT_BF16}; /* no multiple of 8 */
    struct zt_sdpa_plan *out = NULL;
    char why[1024] = "";
    size_t bytes = 0;

    (void)state;
    for (int backward = 0; backward < 2; backward++) {
        struct zt_sdpa_problem p = problem(&s, backward);

        assert_int_equal(zt_sdpa_cudnn.plan(lib, &p, &out, &bytes, why, sizeof(why)),
                         ZT_E_UNSUPPORTED);
        assert_null(out);
        assert_non_null(strstr(why, "NOT_SUPPORTED"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_of_head_has_a_fused_kernel),
        cmocka_unit_test(test_odd_lengths_and_other_heads_have_a_fused_kernel),
        cmocka_unit_test(test_the_models_that_are_measured_have_a_fused_kernel),
        cmocka_unit_test(test_the_workspace_holds_what_it_is_said_to_hold),
        cmocka_unit_test(test_sums_as_they_come_store_no_scores),
        cmocka_unit_test(test_sums_in_order_without_scores_are_there_or_refused),
        cmocka_unit_test(test_a_product_with_a_swiglu_behind_it_has_a_kernel_of_hopper),
        cmocka_unit_test(test_a_problem_without_a_kernel_is_refused_with_a_reason),
    };

    return cmocka_run_group_tests(tests, open_lib, close_lib);
}
