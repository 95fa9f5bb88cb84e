/* The cuda device, and what its kernels promise beyond the tests of every backend. */
#include "test/unit/cuda/device_test.h"

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include "kernels/cpu/cpu.h"
}
#include "kernels/cuda/cuda.h"

static struct zt_device *open_device(const struct zt_backend *be)
{
    struct zt_device *dev = NULL;
    struct zt_fault fault = {};

    if (be->open(0, 1, &dev, &fault) != ZT_OK)
        fail_msg("%s", fault.text);
    return dev;
}

/* Runs a kernel of either backend and waits for it. */
#define RUN(be, dev, kernel, args)                                                       \
    do {                                                                                 \
        struct zt_fault fault_ = {};                                                     \
        if ((be)->kernels->kernel(dev, NULL, args, &fault_) != ZT_OK ||                  \
            (be)->sync(dev, NULL, &fault_) != ZT_OK)                                     \
            fail_msg("%s: %s", (be)->name, fault_.text);                                 \
    } while (0)

static float noise(int64_t i)
{
    uint64_t z = (uint64_t)(i + 1) * 0x9E3779B97F4A7C15u;

    z = (z ^ z >> 31) * 0xBF58476D1CE4E5B9u;
    return (float)(int32_t)(z >> 32) * 0x1p-31f;
}

static float *noisy(int64_t n, int64_t seed)
{
    float *p = managed((size_t)n, 0.0f);

    for (int64_t i = 0; i < n; i++)
        p[i] = noise(i + seed);
    return p;
}

static struct zt_view flat(void *p, zt_dtype t, int64_t n)
{
    return zt_view_of(p, t, 1, &n);
}

static struct zt_view matrix(void *p, zt_dtype t, int64_t rows, int64_t cols)
{
    const int64_t shape[2] = {rows, cols};

    return zt_view_of(p, t, 2, shape);
}

/* ---- open and memory ---- */

static void expect_refusal(int ordinal, zt_err rc, const char *part)
{
    struct zt_device *dev = NULL;
    struct zt_fault fault = {};

    assert_int_equal(zt_cuda_backend.open(ordinal, 1, &dev, &fault), rc);
    assert_null(dev);
    expect_part(fault.text, part);
}

/* In a child, as the runtime looks for devices once; so this test is the first one. */
static void test_open_says_that_there_is_no_device(void **)
{
    struct zt_device *dev = NULL;
    struct zt_fault fault = {};
    int status = -1;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        setenv("CUDA_VISIBLE_DEVICES", "", 1);
        setenv("SHIM_DEVICES", "0", 1);
        zt_err rc = zt_cuda_backend.open(0, 1, &dev, &fault);
        _exit(rc != ZT_E_UNSUPPORTED || dev ||
              !strstr(fault.text, "cuda: the driver sees no GPU"));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_open_says_which_devices_there_are(void **)
{
    expect_refusal(1, ZT_E_PLAN, "cuda device 1: this process sees 1, numbered from 0");
    expect_refusal(-1, ZT_E_PLAN, "cuda device -1");
    zt_cuda_backend.close(NULL);
}

static void test_regions_are_zero_and_begin_at_pages(void **)
{
    struct zt_device *dev = open_device(&zt_cuda_backend);
    const size_t bytes = (3u << 20) + 5;
    char *back = (char *)malloc(bytes);
    void *p = NULL;

    assert_int_equal(zt_cuda_backend.alloc(dev, bytes, &p, NULL), ZT_OK);
    assert_int_equal((uintptr_t)p % 4096, 0);
    memset(back, 1, bytes);
    assert_int_equal(zt_cuda_backend.download(dev, NULL, back, p, bytes, NULL), ZT_OK);
    assert_int_equal(zt_cuda_backend.sync(dev, NULL, NULL), ZT_OK);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(back[i], 0);
    zt_cuda_backend.free(dev, p, bytes);
    zt_cuda_backend.free(dev, NULL, 0);
    zt_cuda_backend.close(dev);
    free(back);
}

static void test_memory_that_is_not_there_is_counted(void **)
{
    struct zt_device *dev = open_device(&zt_cuda_backend);
    struct zt_fault fault = {};
    void *p = &fault;

    assert_int_equal(zt_cuda_backend.alloc(dev, (size_t)1 << 50, &p, &fault), ZT_E_NOMEM);
    assert_null(p);
    expect_part(fault.text, "cuda device 0: 1125899906842624 bytes asked for, ");
    expect_part(fault.text, " are free");
    assert_int_equal(zt_cuda_backend.alloc(dev, 0, &p, &fault), ZT_E_ARG);
    float *x = noisy(100, 1);
    struct zt_unary_args a = {ZT_U_RELU, flat(x, ZT_F32, 100), flat(x, ZT_F32, 100)};
    RUN(&zt_cuda_backend, dev, unary, &a); /* no launch hears of it later */
    OK(cudaFree(x));
    zt_cuda_backend.close(dev);
}

static struct zt_device_memory memory_of(struct zt_device *dev)
{
    struct zt_device_memory m = {};

    assert_int_equal(zt_cuda_backend.memory(dev, &m, NULL), ZT_OK);
    assert_true(m.free <= m.total && m.total < SIZE_MAX);
    return m;
}

static void test_memory_counts_what_was_taken(void **)
{
    struct zt_device *dev = open_device(&zt_cuda_backend);
    const size_t own = zt_backend_own_bytes("cuda"), page = 4096;
    struct zt_device_memory before = memory_of(dev), after;
    void *p = NULL, *q = NULL, *host = NULL;
    int devices = 0;

    assert_int_equal(zt_cuda_backend.count(&devices, NULL), ZT_OK);
    assert_true(devices > 0);
    assert_true(before.used == own && before.peak == own);
    assert_int_equal(zt_cuda_backend.alloc(dev, 5 * page, &p, NULL), ZT_OK);
    assert_int_equal(zt_cuda_backend.alloc(dev, page + 1, &q, NULL), ZT_OK);
    assert_int_equal(zt_cuda_backend.host_alloc(dev, page, &host, NULL), ZT_OK);
    after = memory_of(dev);
    assert_true(after.used == own + 7 * page && after.peak == after.used);
    assert_true(after.total == before.total && after.free <= before.free);
    zt_cuda_backend.free(dev, p, 5 * page);
    after = memory_of(dev);
    assert_true(after.used == own + 2 * page && after.peak == own + 7 * page);
    zt_cuda_backend.free(dev, q, page + 1);
    zt_cuda_backend.host_free(dev, host, page);
    zt_cuda_backend.host_free(dev, NULL, 0);
    assert_true(memory_of(dev).used == own);
    zt_cuda_backend.close(dev);
}

static void test_host_memory_is_zeroed_and_copies_arrive(void **)
{
    struct zt_device *dev = open_device(&zt_cuda_backend);
    const size_t n = 10000;
    void *p = NULL, *host = NULL;

    assert_int_equal(zt_cuda_backend.alloc(dev, 2 * n, &p, NULL), ZT_OK);
    assert_int_equal(zt_cuda_backend.host_alloc(dev, 2 * n, &host, NULL), ZT_OK);
    char *there = (char *)p, *here = (char *)host;
    for (size_t i = 0; i < 2 * n; i++) {
        assert_int_equal(here[i], 0);
        here[i] = (char)(i < n ? i % 113 : 1);
    }
    assert_int_equal(zt_cuda_backend.upload(dev, NULL, there, here, n, NULL), ZT_OK);
    assert_int_equal(zt_cuda_backend.copy(dev, NULL, there + n, there, n, NULL), ZT_OK);
    assert_int_equal(zt_cuda_backend.copy(dev, NULL, there, there, n, NULL), ZT_OK);
    assert_int_equal(zt_cuda_backend.download(dev, NULL, here + n, there + n, n, NULL),
                     ZT_OK);
    assert_int_equal(zt_cuda_backend.sync(dev, NULL, NULL), ZT_OK);
    assert_memory_equal(here, here + n, n);
    zt_cuda_backend.host_free(dev, host, 2 * n);
    zt_cuda_backend.free(dev, p, 2 * n);
    zt_cuda_backend.close(dev);
}

/* ---- streams and events ---- */

static void test_an_event_hands_over_between_streams(void **)
{
    struct zt_device *dev = open_device(&zt_cuda_backend);
    const struct zt_backend *be = &zt_cuda_backend;
    const int64_t n = 100000;
    float *x = managed((size_t)n, 0.0f), *y = managed((size_t)n, 0.0f);
    struct zt_fill_args fill = {flat(x, ZT_F32, n), 3};
    struct zt_axpby_args twice = {flat(x, ZT_F32, n), flat(y, ZT_F32, n), 2, 0};
    struct zt_stream *s = NULL;
    struct zt_stream_event *e = NULL;
    bool passed = false;

    assert_int_equal(be->stream_open(dev, &s, NULL), ZT_OK);
    assert_non_null(be->stream_native(dev, s));
    assert_ptr_not_equal(be->stream_native(dev, s), be->stream_native(dev, NULL));
    assert_int_equal(be->event_open(dev, &e, NULL), ZT_OK);
    assert_int_equal(be->event_passed(dev, e, &passed, NULL), ZT_OK);
    assert_true(passed); /* never recorded */
    assert_int_equal(be->kernels->fill(dev, NULL, &fill, NULL), ZT_OK);
    assert_int_equal(be->event_record(dev, e, NULL, NULL), ZT_OK);
    assert_int_equal(be->event_wait(dev, e, s, NULL), ZT_OK);
    assert_int_equal(be->kernels->axpby(dev, s, &twice, NULL), ZT_OK);
    assert_int_equal(be->sync(dev, s, NULL), ZT_OK);
    for (int64_t i = 0; i < n; i++)
        assert_true(y[i] == 6);
    passed = false;
    assert_int_equal(be->event_passed(dev, e, &passed, NULL), ZT_OK);
    assert_true(passed);
    be->event_close(dev, e);
    be->event_close(dev, NULL);
    be->stream_close(dev, s);
    be->stream_close(dev, NULL);
    OK(cudaFree(x));
    OK(cudaFree(y));
    be->close(dev);
}

/* ---- what kernels find wrong ---- */

static void test_the_first_bad_id_is_said_once(void **)
{
    struct zt_device *dev = open_device(&zt_cuda_backend);
    int32_t *ids = managed<int32_t>(5000, 3);
    float *table = noisy(40, 1), *y = managed(20000, 7.0f);
    struct zt_embedding_args a = {flat(ids, ZT_I32, 5000), matrix(table, ZT_F32, 10, 4),
                                  matrix(y, ZT_F32, 5000, 4)};
    struct zt_fault fault = {};

    ids[4321] = 10;
    ids[4900] = -7;
    assert_int_equal(zt_cuda_backend.kernels->embedding(dev, NULL, &a, &fault), ZT_OK);
    assert_int_equal(zt_cuda_backend.kernels->embedding(dev, NULL, &a, &fault), ZT_OK);
    assert_int_equal(zt_cuda_backend.sync(dev, NULL, &fault), ZT_E_ARG);
    assert_string_equal(fault.text,
                        "embedding: id 10 at position 4321 is outside [0, 10)");
    for (int i = 0; i < 20000; i++)
        assert_true(y[i] == 7.0f);
    assert_int_equal(zt_cuda_backend.sync(dev, NULL, &fault), ZT_OK);
    ids[4321] = ids[4900] = 9;
    RUN(&zt_cuda_backend, dev, embedding, &a);
    assert_true(y[4 * 4900 + 3] == table[39]);
    OK(cudaFree(ids));
    OK(cudaFree(table));
    OK(cudaFree(y));
    zt_cuda_backend.close(dev);
}

/* ---- the bits of the cpu backend ---- */

struct both {
    struct zt_device *cpu, *cuda;
};

static struct both open_both(void)
{
    return {open_device(&zt_cpu_backend), open_device(&zt_cuda_backend)};
}

static void close_both(struct both *b)
{
    zt_cpu_backend.close(b->cpu);
    zt_cuda_backend.close(b->cuda);
}

static void test_random_has_the_bits_of_the_cpu(void **)
{
    const zt_dtype types[] = {ZT_F32, ZT_BF16, ZT_F16};
    const int64_t n = 10007;
    struct both b = open_both();
    float *x = managed((size_t)n, 0.0f), *y = managed((size_t)n, 0.0f);

    for (int k = 0; k < 24; k++) {
        struct zt_philox rng = {77, 5, (uint64_t)(k / 6) - 2};
        struct zt_random_args a = {flat(x, types[k % 3], n), rng, k % 2 == 0, -0.5f,
                                   2.0f};

        RUN(&zt_cpu_backend, b.cpu, random, &a);
        a.y.data = y;
        RUN(&zt_cuda_backend, b.cuda, random, &a);
        assert_memory_equal(x, y, (size_t)n * zt_dtype_bytes(types[k % 3]));
    }
    OK(cudaFree(x));
    OK(cudaFree(y));
    close_both(&b);
}

static void test_dropout_has_the_bits_of_the_cpu(void **)
{
    const int64_t n = 10007;
    struct both b = open_both();
    float *x = noisy(n, 3), *y = noisy(n, 4), *z = noisy(n, 4);

    for (uint64_t offset = 0; offset < 5; offset++) {
        struct zt_dropout_args a = {
            flat(x, ZT_F32, n), flat(y, ZT_F32, n), 0.3f, {9, 8, offset}, offset > 0};

        RUN(&zt_cpu_backend, b.cpu, dropout, &a);
        a.y.data = z;
        RUN(&zt_cuda_backend, b.cuda, dropout, &a);
        assert_memory_equal(y, z, (size_t)n * sizeof(float));
    }
    OK(cudaFree(x));
    OK(cudaFree(y));
    OK(cudaFree(z));
    close_both(&b);
}

/* Slices that begin at a boundary of 16 bytes or not, and between counters or not. */
static void test_adamw_has_the_bits_of_the_cpu(void **)
{
    const int64_t n = 5003;
    struct both b = open_both();
    float *word = managed(2, 0.5f);

    for (int k = 0; k < 12; k++) {
        const int64_t skip = k % 3;
        float *x[2][4];
        uint16_t *param[2];

        for (int side = 0; side < 2; side++) {
            for (int i = 0; i < 4; i++)
                x[side][i] = noisy(n + skip, i);
            for (int64_t i = 0; i < n + skip; i++)
                x[side][2][i] *= x[side][2][i]; /* v */
            param[side] = managed<uint16_t>((size_t)(n + skip), 7);
            struct zt_adamw_args a = {};
            a.master = flat(x[side][0] + skip, ZT_F32, n);
            a.m = flat(x[side][1] + skip, ZT_F32, n);
            a.v = flat(x[side][2] + skip, ZT_F32, n);
            a.grad = flat(x[side][3] + skip, ZT_F32, n);
            a.param = flat(param[side] + skip, ZT_BF16, n);
            a.grad_scale = word;
            a.lr = a.lr_t = 1e-2f;
            a.vscale = 1.5f;
            a.beta1 = 0.9f;
            a.beta2 = 0.99f;
            a.eps = 1e-8f;
            a.weight_decay = 0.1f;
            a.decoupled = k % 2;
            a.stochastic = k >= 4;
            a.rng = {42, 3, (uint64_t)k};
            RUN(side ? &zt_cuda_backend : &zt_cpu_backend, side ? b.cuda : b.cpu, adamw,
                &a);
        }
        for (int i = 0; i < 4; i++)
            assert_memory_equal(x[0][i], x[1][i], (size_t)(n + skip) * sizeof(float));
        assert_memory_equal(param[0], param[1], (size_t)(n + skip) * sizeof(uint16_t));
        for (int side = 0; side < 2; side++) {
            for (int i = 0; i < 4; i++)
                OK(cudaFree(x[side][i]));
            OK(cudaFree(param[side]));
        }
    }
    OK(cudaFree(word));
    close_both(&b);
}

static void test_sumsq_has_the_bits_of_the_cpu(void **)
{
    const int64_t sizes[] = {0, 1, 33, 4095, 4097, 70001};
    struct both b = open_both();
    float *x = noisy(70001, 3);
    double *sum = managed(2 * ZT_NORM_LANES, -1.0);

    for (int64_t n : sizes) {
        for (int64_t first : {0, 5, 2 * ZT_NORM_LANES - 3}) {
            struct zt_sumsq_args a = {flat(x, ZT_F32, n), sum, first, first > 0};

            RUN(&zt_cpu_backend, b.cpu, sumsq, &a);
            a.sums = sum + ZT_NORM_LANES;
            RUN(&zt_cuda_backend, b.cuda, sumsq, &a);
            assert_memory_equal(sum, sum + ZT_NORM_LANES, ZT_NORM_LANES * sizeof(*sum));
        }
    }
    OK(cudaFree(x));
    OK(cudaFree(sum));
    close_both(&b);
}

/* More positions than are sorted at a time, and runs of all lengths. */
static void test_embedding_bwd_has_the_bits_of_the_cpu(void **)
{
    const int64_t n = 16384 + 700, cols = 9;
    struct both b = open_both();
    float *dy = noisy(n * cols, 5), *x = noisy(500 * cols, 6), *y = noisy(500 * cols, 6);
    int32_t *ids = managed<int32_t>((size_t)n, 0);

    for (int64_t i = 0; i < n; i++) {
        float u = noise(i + 77);

        ids[i] = (int32_t)(u * u * u * u * 499);
    }
    struct zt_embedding_bwd_args a = {flat(ids, ZT_I32, n), matrix(dy, ZT_F32, n, cols),
                                      matrix(x, ZT_F32, 500, cols)};
    RUN(&zt_cpu_backend, b.cpu, embedding_bwd, &a);
    a.dtable.data = y;
    RUN(&zt_cuda_backend, b.cuda, embedding_bwd, &a);
    assert_memory_equal(x, y, (size_t)(500 * cols) * sizeof(float));
    OK(cudaFree(dy));
    OK(cudaFree(x));
    OK(cudaFree(y));
    OK(cudaFree(ids));
    close_both(&b);
}

/* ---- memory that begins anywhere ---- */

struct norm_arrays {
    float *x, *dy, *w, *y, *dx, *mean, *rstd, *dw, *db;
};

static struct norm_arrays norm_arrays_new(int64_t rows, int64_t cols)
{
    struct norm_arrays t;

    t.x = noisy(rows * cols + 1, 1);
    t.dy = noisy(rows * cols + 1, 2);
    t.w = noisy(cols, 3);
    t.y = noisy(rows * cols, 0);
    t.dx = noisy(rows * cols, 0);
    t.mean = noisy(rows, 0);
    t.rstd = noisy(rows, 0);
    t.dw = managed((size_t)cols, 0.0f);
    t.db = managed((size_t)cols, 0.0f);
    return t;
}

static void norm_arrays_free(struct norm_arrays *t)
{
    float *all[] = {t->x, t->dy, t->w, t->y, t->dx, t->mean, t->rstd, t->dw, t->db};

    for (float *p : all)
        OK(cudaFree(p));
}

static void norm_run(const struct zt_backend *be, struct zt_device *dev, zt_dtype type,
                     struct norm_arrays *t, float *x, int64_t rows, int64_t cols)
{
    struct zt_view none = {};
    struct zt_layernorm_args f = {matrix(x, type, rows, cols),
                                  flat(t->w, ZT_F32, cols),
                                  none,
                                  matrix(t->y, type, rows, cols),
                                  flat(t->mean, ZT_F32, rows),
                                  flat(t->rstd, ZT_F32, rows),
                                  1e-5f,
                                  none,
                                  none};
    struct zt_layernorm_bwd_args b = {matrix(t->dy, type, rows, cols),
                                      f.x,
                                      f.w,
                                      f.mean,
                                      f.rstd,
                                      matrix(t->dx, type, rows, cols),
                                      flat(t->dw, ZT_F32, cols),
                                      flat(t->db, ZT_F32, cols),
                                      false,
                                      false,
                                      false};

    RUN(be, dev, layernorm, &f);
    RUN(be, dev, layernorm_bwd, &b);
}

static void test_norm_bits_do_not_depend_on_where_memory_begins(void **)
{
    const int64_t rows = 41, cols = 1544;
    struct zt_device *dev = open_device(&zt_cuda_backend);
    struct norm_arrays a = norm_arrays_new(rows, cols), b = norm_arrays_new(rows, cols);

    memcpy(b.x + 1, a.x, (size_t)(rows * cols) * sizeof(float));
    norm_run(&zt_cuda_backend, dev, ZT_F32, &a, a.x, rows, cols);
    norm_run(&zt_cuda_backend, dev, ZT_F32, &b, b.x + 1, rows, cols);
    assert_memory_equal(a.y, b.y, (size_t)(rows * cols) * sizeof(float));
    assert_memory_equal(a.dx, b.dx, (size_t)(rows * cols) * sizeof(float));
    assert_memory_equal(a.dw, b.dw, (size_t)cols * sizeof(float));
    assert_memory_equal(a.db, b.db, (size_t)cols * sizeof(float));
    norm_arrays_free(&a);
    norm_arrays_free(&b);
    zt_cuda_backend.close(dev);
}

static void expect_near(const char *what, const float *got, const float *want, int64_t n,
                        float slack)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= slack))
            fail_msg("%s[%lld]: got %.9g, want %.9g", what, (long long)i, (double)got[i],
                     (double)want[i]);
}

/* Rows that no block has threads for: their gradients come from several blocks. */
static void test_norm_of_very_long_rows(void **)
{
    const int64_t rows = 19, cols = 20000;
    struct both two = open_both();
    struct norm_arrays a = norm_arrays_new(rows, cols), b = norm_arrays_new(rows, cols);

    norm_run(&zt_cpu_backend, two.cpu, ZT_F32, &a, a.x, rows, cols);
    norm_run(&zt_cuda_backend, two.cuda, ZT_F32, &b, b.x, rows, cols);
    expect_near("y", b.y, a.y, rows * cols, 1e-5f);
    expect_near("dx", b.dx, a.dx, rows * cols, 1e-5f);
    expect_near("dw", b.dw, a.dw, cols, 1e-4f);
    expect_near("db", b.db, a.db, cols, 1e-4f);
    norm_arrays_free(&a);
    norm_arrays_free(&b);
    close_both(&two);
}

static void test_fill_begins_and_ends_anywhere(void **)
{
    struct zt_device *dev = open_device(&zt_cuda_backend);
    int16_t *p = managed<int16_t>(200, 7);

    for (int64_t from = 0; from < 20; from++)
        for (int64_t n = 0; n < 40; n += 3) {
            struct zt_fill_args a = {flat(p + from, ZT_BF16, n), 1.0f};

            RUN(&zt_cuda_backend, dev, fill, &a);
            for (int64_t i = 0; i < 200; i++) {
                assert_int_equal(p[i], i >= from && i < from + n ? 0x3f80 : 7);
                p[i] = 7;
            }
        }
    OK(cudaFree(p));
    zt_cuda_backend.close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_says_that_there_is_no_device),
        cmocka_unit_test(test_open_says_which_devices_there_are),
        cmocka_unit_test(test_regions_are_zero_and_begin_at_pages),
        cmocka_unit_test(test_memory_that_is_not_there_is_counted),
        cmocka_unit_test(test_memory_counts_what_was_taken),
        cmocka_unit_test(test_host_memory_is_zeroed_and_copies_arrive),
        cmocka_unit_test(test_an_event_hands_over_between_streams),
        cmocka_unit_test(test_the_first_bad_id_is_said_once),
        cmocka_unit_test(test_random_has_the_bits_of_the_cpu),
        cmocka_unit_test(test_dropout_has_the_bits_of_the_cpu),
        cmocka_unit_test(test_adamw_has_the_bits_of_the_cpu),
        cmocka_unit_test(test_sumsq_has_the_bits_of_the_cpu),
        cmocka_unit_test(test_embedding_bwd_has_the_bits_of_the_cpu),
        cmocka_unit_test(test_norm_bits_do_not_depend_on_where_memory_begins),
        cmocka_unit_test(test_norm_of_very_long_rows),
        cmocka_unit_test(test_fill_begins_and_ends_anywhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
