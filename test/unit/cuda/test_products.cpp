/* Products and attention of the cuda device where the tests of every backend do not go.
 */
#include "test/unit/cuda/device_test.h"

#include <math.h>

extern "C" {
#include "kernels/cpu/cpu.h"
}
#include "kernels/cuda/cuda.h"

static struct zt_device *cpu, *cuda;

static int open_devices(void **)
{
    return zt_cpu_backend.open(0, 1, &cpu, NULL) ||
           zt_cuda_backend.open(0, 1, &cuda, NULL);
}

static int close_devices(void **)
{
    zt_cpu_backend.close(cpu);
    zt_cuda_backend.close(cuda);
    return 0;
}

/* Runs a kernel of either backend and waits for it. */
#define RUN(be, dev, kernel, args)                                                       \
    do {                                                                                 \
        struct zt_fault fault_ = {};                                                     \
        if ((be).kernels->kernel(dev, NULL, args, &fault_) != ZT_OK ||                   \
            (be).sync(dev, NULL, &fault_) != ZT_OK)                                      \
            fail_msg("%s: %s", (be).name, fault_.text);                                  \
    } while (0)

static uint64_t seed = 3;

static float uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(seed >> 33) / (1u << 30) - 1.0);
}

static struct zt_view tensor(int ndim, const int64_t *shape)
{
    struct zt_view v = zt_view_of(NULL, ZT_F32, ndim, shape);
    float *p = managed((size_t)zt_view_numel(&v), 0.0f);

    for (int64_t i = 0; i < zt_view_numel(&v); i++)
        p[i] = uniform();
    v.data = p;
    return v;
}

/* Another view of as much memory, with the same numbers. */
static struct zt_view twin(const struct zt_view *v)
{
    struct zt_view w = *v;
    size_t n = (size_t)zt_view_numel(v);
    float *p = managed(n, 0.0f);

    memcpy(p, v->data, n * sizeof(float));
    w.data = p;
    return w;
}

static void expect_near(const char *what, const struct zt_view *got,
                        const struct zt_view *want, float tolerance)
{
    const float *x = (const float *)got->data, *y = (const float *)want->data;

    for (int64_t i = 0; i < zt_view_numel(got); i++)
        if (!(fabsf(x[i] - y[i]) <= tolerance * (1 + fabsf(y[i]))))
            fail_msg("%s[%d]: got %.7g, want %.7g", what, (int)i, (double)x[i],
                     (double)y[i]);
}

/* ---- attention ---- */

/* In a sanitised build (make asan) this takes minutes: then less is run. */
static bool is_sampled()
{
    const char *one_of = getenv("ZT_SAMPLE");

    return one_of && strtol(one_of, nullptr, 10) > 1;
}

static void check_heads(int64_t dim, bool causal)
{
    /* fewer tiles, heads, and rows beyond the first tile */
    const bool few = is_sampled();
    const int64_t rows = few ? 67 : 100, keys = few ? 70 : 130, kv = few ? 1 : 2;
    const int64_t q[4] = {1, rows, 2 * kv, dim}, k[4] = {1, keys, kv, dim};
    const int64_t lse[3] = {1, 2 * kv, rows};
    struct zt_attention_bwd_args a = {}, b;
    struct zt_view *made[] = {&a.fwd.q, &a.fwd.k, &a.fwd.v, &a.fwd.out, &a.fwd.lse,
                              &a.dout,  &a.dq,    &a.dk,    &a.dv};
    struct zt_view *copy[] = {&b.fwd.q, &b.fwd.k, &b.fwd.v, &b.fwd.out, &b.fwd.lse,
                              &b.dout,  &b.dq,    &b.dk,    &b.dv};
    const char *name[] = {"q", "k", "v", "out", "lse", "dout", "dq", "dk", "dv"};
    const int64_t *shape[] = {q, k, k, q, lse, q, q, k, k};

    for (int i = 0; i < 9; i++)
        *made[i] = tensor(i == 4 ? 3 : 4, shape[i]);
    a.fwd.scale = 1 / sqrtf((float)dim);
    a.fwd.causal = causal;
    a.accumulate_k = true;
    b = a;
    for (int i = 0; i < 9; i++)
        *copy[i] = twin(made[i]);
    RUN(zt_cpu_backend, cpu, attention, &a.fwd);
    RUN(zt_cpu_backend, cpu, attention_bwd, &a);
    RUN(zt_cuda_backend, cuda, attention, &b.fwd);
    RUN(zt_cuda_backend, cuda, attention_bwd, &b);
    for (int i = 0; i < 9; i++) {
        expect_near(name[i], copy[i], made[i], 2e-5f);
        cudaFree(made[i]->data);
        cudaFree(copy[i]->data);
    }
}

static void test_heads_of_every_number_of_chunks_match_the_cpu(void **)
{
    static const int64_t dims[] = {64, 65, 128, 133, 192, 200, 256};

    const char *seed_text = getenv("ZT_SEED");
    const int first =
        is_sampled() && seed_text ? (int)(strtol(seed_text, nullptr, 10) & 1) : 0;

    for (int i = first; i < 7; i += is_sampled() ? 2 : 1)
        check_heads(dims[i], dims[i] % 2 == 0);
}

static void test_heads_too_large_are_refused(void **)
{
    const int64_t shape[4] = {1, 3, 1, 257};
    struct zt_attention_args a = {};
    struct zt_fault fault = {};

    a.q = a.k = a.v = a.out = tensor(4, shape);
    assert_int_equal(zt_cuda_backend.kernels->attention(cuda, NULL, &a, &fault),
                     ZT_E_UNSUPPORTED);
    assert_string_equal(fault.text,
                        "cuda: attention: heads of 257 dimensions, 256 at most");
    cudaFree(a.q.data);
}

/* ---- products ---- */

static void test_more_shapes_than_plans_are_remembered(void **)
{
    const int64_t most = 40, whole[2] = {most, most};
    struct zt_view a = tensor(2, whole), b = tensor(2, whole), c = tensor(2, whole);
    struct zt_view want = twin(&c);

    for (int64_t i = 0; i < most * most; i++) {
        const int64_t m = 1 + i / most, n = 1 + i % most;
        const int64_t mk[2] = {m, 3}, kn[2] = {3, n}, mn[2] = {m, n};
        struct zt_gemm_args g = {};

        g.a = zt_view_of(a.data, ZT_F32, 2, mk);
        g.b = zt_view_of(b.data, ZT_F32, 2, kn);
        g.c = zt_view_of(c.data, ZT_F32, 2, mn);
        g.alpha = 1;
        g.accumulate = i % 2;
        RUN(zt_cuda_backend, cuda, gemm, &g);
        g.c.data = want.data;
        RUN(zt_cpu_backend, cpu, gemm, &g);
        expect_near("c", &c, &want, 1e-5f);
        memcpy(c.data, want.data, (size_t)(most * most) * sizeof(float));
    }
    cudaFree(a.data);
    cudaFree(b.data);
    cudaFree(c.data);
    cudaFree(want.data);
}

/* One shape by both computations, one after the other: two plans. */
static void test_tf32_is_part_of_a_plan(void **)
{
    const int64_t square[2] = {64, 64};
    struct zt_view a = tensor(2, square), b = tensor(2, square);
    struct zt_view exact = tensor(2, square), c = twin(&exact), want = twin(&exact);
    struct zt_gemm_args g = {};
    float furthest = 0;

    g.a = a;
    g.b = b;
    g.alpha = 1;
    for (int round = 0; round < 2; round++) {
        g.c = exact;
        g.tf32 = false;
        RUN(zt_cuda_backend, cuda, gemm, &g);
        g.c = want;
        RUN(zt_cpu_backend, cpu, gemm, &g);
        expect_near("exact", &exact, &want, 1e-5f);
        g.tf32 = true;
        RUN(zt_cpu_backend, cpu, gemm, &g);
        g.c = c;
        RUN(zt_cuda_backend, cuda, gemm, &g);
        expect_near("tf32", &c, &want, 0x1p-6f);
    }
    for (int i = 0; i < 64 * 64; i++) {
        float off = fabsf(((float *)c.data)[i] - ((float *)exact.data)[i]);

        furthest = off > furthest ? off : furthest;
    }
    assert_true(furthest > 1e-4f);
    for (struct zt_view *v : {&a, &b, &exact, &c, &want})
        cudaFree(v->data);
}

/* ---- loss ---- */

static void test_a_target_outside_the_classes_poisons_its_row_alone(void **)
{
    const int64_t shape[2] = {3, 10}, rows[1] = {3}, one[1] = {1};
    struct zt_cross_entropy_args f = {};
    struct zt_cross_entropy_bwd_args b = {};
    int32_t *target = managed(3, (int32_t)4);
    struct zt_fault fault = {};

    target[1] = 10;
    f.logits = tensor(2, shape);
    f.targets = zt_view_of(target, ZT_I32, 1, rows);
    f.loss = tensor(1, one);
    f.lse = tensor(1, rows);
    f.ignore = -100;
    b.logits = f.logits;
    b.targets = f.targets;
    b.lse = f.lse;
    b.dloss = tensor(1, one);
    b.dlogits = tensor(2, shape);
    b.ignore = f.ignore;
    assert_int_equal(zt_cuda_backend.kernels->cross_entropy(cuda, NULL, &f, &fault),
                     ZT_OK);
    assert_int_equal(zt_cuda_backend.kernels->cross_entropy_bwd(cuda, NULL, &b, &fault),
                     ZT_OK);
    assert_int_equal(zt_cuda_backend.sync(cuda, NULL, &fault), ZT_E_ARG);
    assert_string_equal(fault.text,
                        "cross_entropy: target 10 in row 1 is outside [0, 10)");
    assert_true(isnan(*(float *)f.loss.data));
    for (int i = 0; i < 30; i++)
        assert_int_equal(isnan(((float *)b.dlogits.data)[i]) != 0, i / 10 == 1);
    assert_int_equal(zt_cuda_backend.sync(cuda, NULL, &fault), ZT_OK);
    for (void *p : {(void *)target, f.logits.data, f.loss.data, f.lse.data, b.dloss.data,
                    b.dlogits.data})
        cudaFree(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads_of_every_number_of_chunks_match_the_cpu),
        cmocka_unit_test(test_heads_too_large_are_refused),
        cmocka_unit_test(test_more_shapes_than_plans_are_remembered),
        cmocka_unit_test(test_tf32_is_part_of_a_plan),
        cmocka_unit_test(test_a_target_outside_the_classes_poisons_its_row_alone),
    };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
