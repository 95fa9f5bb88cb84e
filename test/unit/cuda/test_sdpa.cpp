/*
 * Which attention the library behind sdpa.h is asked for, in which parts, and what
 * happens when it is not there or cannot. The library here does its parts with the own
 * kernels, so that they are the same bits; the object it comes in is sdpa_object.c, whose
 * table the tests fill in.
 */
#include "test/unit/cuda/sdpa_test.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "kernels/cuda/attention/sdpa.h"

static struct zt_device *dev;

/* ---- the library ---- */

struct zt_sdpa_lib {
    int unused;
};

struct zt_sdpa_plan {
    struct zt_sdpa_problem p;
    size_t bytes;
};

/* What was asked of it, and what it is to do. */
static struct {
    std::vector<struct zt_sdpa_problem> planned, run;
    int num_open, num_plans; /* that are open now */
    size_t bytes_a_head;     /* workspace of each K head, where dS is stored */
    unsigned sums;           /* the ways to add up that it has, a bit each */
    bool refuses_open, refuses_plans, fails;
} lib;

static zt_err lib_open(struct zt_sdpa_lib **out, char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "no such library");
    if (lib.refuses_open)
        return ZT_E_UNSUPPORTED;
    *out = new zt_sdpa_lib();
    lib.num_open++;
    return ZT_OK;
}

static void lib_close(struct zt_sdpa_lib *l)
{
    lib.num_open -= l != NULL;
    delete l;
}

static zt_err lib_plan(struct zt_sdpa_lib *, const struct zt_sdpa_problem *p,
                       struct zt_sdpa_plan **out, size_t *bytes, char *why,
                       size_t why_bytes)
{
    lib.planned.push_back(*p);
    snprintf(why, why_bytes, "no kernel");
    if (lib.refuses_plans || !(lib.sums >> p->sums & 1))
        return ZT_E_UNSUPPORTED;
    *bytes = (p->sums ? 4096 : lib.bytes_a_head) * (size_t)(p->batch * p->kv_heads);
    *out = new zt_sdpa_plan{*p, *bytes};
    lib.num_plans++;
    return ZT_OK;
}

static void lib_plan_close(struct zt_sdpa_plan *plan)
{
    lib.num_plans -= plan != NULL;
    delete plan;
}

static struct zt_view view(const void *at, const struct zt_sdpa_problem &p, bool keys,
                           const struct zt_sdpa_strides &s)
{
    const int64_t shape[4] = {p.batch, keys ? p.tk : p.tq, keys ? p.kv_heads : p.heads,
                              p.dim};
    struct zt_view v = zt_view_of((void *)at, (zt_dtype)p.dtype, 4, shape);

    v.stride[0] = s.batch;
    v.stride[1] = s.row;
    v.stride[2] = s.head;
    return v;
}

static zt_err lib_run(struct zt_sdpa_lib *, const struct zt_sdpa_plan *plan, void *stream,
                      const struct zt_sdpa_data *d, void *workspace, char *why,
                      size_t why_bytes)
{
    const struct zt_sdpa_problem &p = plan->p;
    const int64_t lse[3] = {p.batch, p.heads, p.tq};
    struct zt_device plain = *dev;
    struct zt_attention_bwd_args a = {};
    struct zt_fault fault = {};
    zt_err rc;

    snprintf(why, why_bytes, "broken");
    if (lib.fails)
        return ZT_E_SYSTEM;
    lib.run.push_back(p);
    assert_ptr_equal(stream, dev->main.cuda);
    OK(cudaMemsetAsync((char *)workspace + plan->bytes - 1, 1, 1, dev->main.cuda));
    plain.sdpa = NULL;
    a.fwd.q = view(d->q, p, false, p.q);
    a.fwd.k = view(d->k, p, true, p.k);
    a.fwd.v = view(d->v, p, true, p.v);
    a.fwd.out = view(d->out, p, false, p.out);
    a.fwd.lse = zt_view_of(d->lse, ZT_F32, 3, lse);
    a.fwd.scale = d->scale;
    a.fwd.causal = p.causal;
    if (p.backward) {
        a.dout = view(d->dout, p, false, p.dout);
        a.dq = view(d->dq, p, false, p.dq);
        a.dk = view(d->dk, p, true, p.dk);
        a.dv = view(d->dv, p, true, p.dv);
        rc = zt_cuda_attention_bwd(&plain, NULL, &a, &fault);
    } else {
        rc = zt_cuda_attention(&plain, NULL, &a.fwd, &fault);
    }
    snprintf(why, why_bytes, "%s", fault.text);
    return rc;
}

static const struct zt_sdpa whole_table = {ZT_SDPA_ABI,
                                           sizeof(struct zt_sdpa),
                                           "TestDNN",
                                           lib_open,
                                           lib_close,
                                           lib_plan,
                                           lib_plan_close,
                                           lib_run,
                                           NULL,
                                           NULL,
                                           NULL,
                                           NULL,
                                           NULL};

/* ---- devices, and what is said ---- */

/* sdpa_object.so lies beside this program. */
static std::string object_path(void)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    assert_true(n > 0);
    self[n] = 0;
    *strrchr(self, '/') = 0;
    return std::string(self) + "/sdpa_object.so";
}

static void fill_in(const struct zt_sdpa &table)
{
    void *object = dlopen(object_path().c_str(), RTLD_NOW);

    if (!object)
        fail_msg("%s", dlerror());
    *static_cast<struct zt_sdpa *>(dlsym(object, ZT_SDPA_SYMBOL)) = table;
}

/* What f writes to stderr. */
template <typename F> static std::string said(F f)
{
    FILE *file = tmpfile();
    int keep = dup(STDERR_FILENO);
    char text[4096];
    size_t n;

    assert_non_null(file);
    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    f();
    fflush(stderr);
    dup2(keep, STDERR_FILENO);
    close(keep);
    rewind(file);
    n = fread(text, 1, sizeof(text), file);
    fclose(file);
    return std::string(text, n);
}

static int close_device(void **)
{
    zt_cuda_backend.close(dev);
    dev = NULL;
    unsetenv("ZLAUNCH_CUDNN_BACKEND");
    return 0;
}

/* Opens `dev` with the object at `path`. */
static void open_with(const char *path)
{
    struct zt_fault fault = {};

    close_device(NULL);
    if (path)
        setenv("ZLAUNCH_CUDNN_BACKEND", path, 1);
    if (zt_cuda_backend.open(0, 1, &dev, &fault) != ZT_OK)
        fail_msg("%s", fault.text);
}

static int with_library(void **)
{
    lib = {};
    lib.bytes_a_head = 1 << 20;
    lib.sums = 1 << ZT_SDPA_STORED;
    fill_in(whole_table);
    open_with(object_path().c_str());
    return dev->sdpa ? 0 : -1;
}

static const struct sdpa_shape small = {2, 13, 13, 4, 2, 16, true, true, ZT_BF16};

static void run_both(const struct sdpa_case &c)
{
    sdpa_forward(dev, c);
    sdpa_backward(dev, c);
}

/* Forward and backward by the library are right, and the bits of the own kernels. */
static void check_shape(const struct sdpa_shape &s)
{
    struct sdpa_case c = sdpa_setup(s);
    struct zt_cuda_sdpa *used = dev->sdpa;
    std::vector<char> bits;

    run_both(c);
    sdpa_expect(c, sdpa_reference_of(c), 3);
    bits = sdpa_bits(c);
    dev->sdpa = NULL;
    run_both(c);
    dev->sdpa = used;
    assert_true(bits == sdpa_bits(c));
    sdpa_teardown(&c);
}

/* ---- what is asked for ---- */

static void test_forward_and_backward_go_to_the_library(void **)
{
    for (zt_dtype t : {ZT_BF16, ZT_F16})
        for (int i = 0; i < 4; i++) {
            struct sdpa_shape s = small;

            s.dtype = t;
            s.causal = i & 1;
            s.packed = i & 2;
            s.tk = s.causal || s.packed ? s.tq : 21;
            lib.run.clear();
            check_shape(s);
            assert_int_equal(lib.run.size(), 2);
            assert_int_equal(lib.run[0].backward, 0);
            assert_int_equal(lib.run[1].backward, 1);
            assert_int_equal(lib.run[1].causal, s.causal);
            assert_int_equal(lib.run[1].dtype, t);
        }
}

static void test_a_problem_is_planned_once(void **)
{
    struct sdpa_case c = sdpa_setup(small);

    for (int i = 0; i < 3; i++) {
        c.a.fwd.scale *= 2; /* is no part of it */
        run_both(c);
    }
    assert_int_equal(lib.planned.size(), 2);
    assert_int_equal(lib.run.size(), 6);
    close_device(NULL);
    assert_int_equal(lib.num_plans, 0);
    assert_int_equal(lib.num_open, 0);
    sdpa_teardown(&c);
}

static void test_without_lse_the_output_is_the_same(void **)
{
    struct sdpa_case c = sdpa_setup(small);
    std::vector<char> bits;

    sdpa_forward(dev, c);
    bits = sdpa_bits(c);
    c.a.fwd.lse.data = NULL;
    sdpa_forward(dev, c);
    assert_int_equal(lib.run.size(), 2);
    assert_true(bits == sdpa_bits(c));
    sdpa_teardown(&c);
}

/* ---- parts ---- */

static void check_parts(size_t heads_that_fit, const struct sdpa_shape &s, int num_parts,
                        int64_t batch, int64_t kv_heads)
{
    lib.run.clear();
    lib.bytes_a_head = ZT_SDPA_WORKSPACE / heads_that_fit;
    check_shape(s);
    assert_int_equal(lib.run.size(), 2 * num_parts);
    for (const struct zt_sdpa_problem &p : lib.run) {
        assert_int_equal(p.batch, batch);
        assert_int_equal(p.kv_heads, kv_heads);
        assert_int_equal(p.heads, kv_heads * (s.heads / s.kv_heads));
    }
}

static void test_what_does_not_fit_is_done_in_equal_parts(void **)
{
    struct sdpa_shape s = {6, 9, 9, 8, 4, 8, true, true, ZT_BF16};

    check_parts(24, s, 1, 6, 4);
    s.tq = s.tk = 10; /* another problem, so another plan */
    check_parts(23, s, 2, 3, 4);
    s.tq = s.tk = 11;
    check_parts(11, s, 3, 2, 4);
    s.tq = s.tk = 12;
    check_parts(4, s, 6, 1, 4);
    s.tq = s.tk = 13;
    check_parts(3, s, 12, 1, 2);
    s.tq = s.tk = 14;
    s.packed = false;
    check_parts(1, s, 24, 1, 1);
    assert_int_equal(lib.num_plans, 12); /* none of what was too large is left */
}

static void test_one_head_that_does_not_fit_is_done_by_the_own_kernels(void **)
{
    std::string text;

    lib.bytes_a_head = ZT_SDPA_WORKSPACE + 1;
    text = said([] { check_shape(small); });
    assert_int_equal(lib.run.size(), 0);
    assert_int_equal(lib.num_plans, 0);
    expect_part(text, "attention of 13 x 13, ");
    expect_part(text, " of 16 in bf16, is done by slower kernels: TestDNN: it needs a "
                      "workspace of 544 MiB, there are 544");
}

/* Forward and backward; how the last run added up. */
static int sums_of_a_run(bool any_order)
{
    struct sdpa_case c = sdpa_setup(small);

    c.a.any_order = any_order;
    run_both(c);
    sdpa_expect(c, sdpa_reference_of(c), 3);
    sdpa_teardown(&c);
    return lib.run.empty() ? -1 : lib.run.back().sums;
}

static void test_sums_are_in_an_order_unless_none_is_asked_for(void **)
{
    lib.sums = 7;
    assert_int_equal(sums_of_a_run(false), ZT_SDPA_STORED);
    assert_int_equal(sums_of_a_run(true), ZT_SDPA_AS_THEY_COME);
    for (const struct zt_sdpa_problem &p : lib.planned)
        assert_true(p.backward || p.sums == 0);
}

static void test_without_kernels_in_any_order_those_in_order_do_it(void **)
{
    assert_int_equal(sums_of_a_run(true), ZT_SDPA_STORED);
}

static void test_what_cannot_be_stored_is_added_in_order(void **)
{
    lib.sums = 1 << ZT_SDPA_STORED | 1 << ZT_SDPA_IN_ORDER;
    lib.bytes_a_head = ZT_SDPA_WORKSPACE + 1;
    assert_int_equal(sums_of_a_run(false), ZT_SDPA_IN_ORDER);
    assert_int_equal(lib.run.size(), 1); /* the forward had no room */
}

/* ---- what is not asked for ---- */

typedef void (*change_fn)(struct sdpa_case *c);

static void test_what_the_library_cannot_do_does_not_reach_it(void **)
{
    static struct zt_view bias, limits;
    static const change_fn changes[] = {
        [](struct sdpa_case *c) { c->a.fwd.window = 3; },
        [](struct sdpa_case *c) { c->a.fwd.key_begin = limits; },
        [](struct sdpa_case *c) { c->a.fwd.key_end = limits; },
        [](struct sdpa_case *c) { c->a.fwd.dropout = 0.25f; },
        [](struct sdpa_case *c) { c->a.fwd.bias = bias; },
        [](struct sdpa_case *c) { c->a.fwd.q.shape[1] = c->a.fwd.out.shape[1] = 7; },
        [](struct sdpa_case *c) { /* off by an element */
                                  for (struct zt_view *v : {&c->a.fwd.q, &c->a.fwd.k,
                                                            &c->a.fwd.v, &c->a.fwd.out}) {
                                      v->data = (char *)v->data + 2;
                                      v->shape[1]--;
                                  }
        },
        [](struct sdpa_case *c) { c->a.fwd.q.stride[1] -= 4; },
        [](struct sdpa_case *c) {
            for (struct zt_view *v :
                 {&c->a.fwd.q, &c->a.fwd.k, &c->a.fwd.v, &c->a.fwd.out})
                v->shape[3] = 12;
        },
    };
    const int64_t shape[4] = {1, 1, small.tq, small.tk};
    const int64_t tokens[2] = {small.batch, small.tq};
    struct sdpa_case made = {};

    limits = sdpa_tensor(&made, ZT_F32, 2, tokens);
    limits.dtype = ZT_I32; /* of whatever numbers */
    bias = sdpa_tensor(&made, ZT_BF16, 4, shape);
    for (change_fn change : changes) {
        struct sdpa_case c = sdpa_setup(small);

        c.a.fwd.lse.data = NULL;
        change(&c);
        sdpa_forward(dev, c);
        assert_int_equal(lib.planned.size(), 0);
        sdpa_teardown(&c);
    }
    sdpa_teardown(&made);
}

static void test_fp32_is_done_by_the_own_kernels(void **)
{
    struct sdpa_shape s = small;
    struct sdpa_case c;

    s.dtype = ZT_F32;
    c = sdpa_setup(s);
    run_both(c);
    sdpa_expect(c, sdpa_reference_of(c), 0.05);
    assert_int_equal(lib.planned.size(), 0);
    sdpa_teardown(&c);
}

static void test_gradients_that_are_added_to_do_not_reach_it(void **)
{
    static const change_fn changes[] = {
        [](struct sdpa_case *c) { c->a.accumulate_q = true; },
        [](struct sdpa_case *c) { c->a.accumulate_k = true; },
        [](struct sdpa_case *c) { c->a.accumulate_v = true; },
        [](struct sdpa_case *c) { c->a.dq = sdpa_tensor(c, ZT_F32, 4, c->a.dq.shape); },
        [](struct sdpa_case *c) { c->a.dv.stride[1] -= 4; },
    };

    for (change_fn change : changes) {
        struct sdpa_case c = sdpa_setup(small);

        sdpa_forward(dev, c);
        lib.planned.clear();
        change(&c);
        sdpa_backward(dev, c);
        assert_int_equal(lib.planned.size(), 0);
        sdpa_teardown(&c);
    }
}

static void test_other_streams_do_not_reach_it(void **)
{
    struct sdpa_case c = sdpa_setup(small);
    struct zt_stream other = dev->main;

    assert_int_equal(zt_cuda_attention(dev, &other, &c.a.fwd, NULL), ZT_OK);
    assert_int_equal(zt_cuda_attention_bwd(dev, &other, &c.a, NULL), ZT_OK);
    assert_int_equal(zt_cuda_backend.sync(dev, NULL, NULL), ZT_OK);
    sdpa_expect(c, sdpa_reference_of(c), 3);
    assert_int_equal(lib.planned.size(), 0);
    sdpa_teardown(&c);
}

static void test_arguments_are_checked_before(void **)
{
    struct sdpa_case c = sdpa_setup(small);
    struct zt_fault fault = {};

    c.a.fwd.k.stride[1] = 0;
    assert_int_equal(zt_cuda_attention(dev, NULL, &c.a.fwd, &fault), ZT_E_ARG);
    assert_int_equal(zt_cuda_attention_bwd(dev, NULL, &c.a, &fault), ZT_E_ARG);
    assert_int_equal(lib.planned.size(), 0);
    sdpa_teardown(&c);
}

static void test_nothing_to_do_is_no_problem(void **)
{
    struct sdpa_case c = sdpa_setup(small);
    std::vector<char> bits = sdpa_bits(c);

    for (struct zt_view *v : {&c.a.fwd.q, &c.a.fwd.k, &c.a.fwd.v, &c.a.fwd.out,
                              &c.a.fwd.lse, &c.a.dout, &c.a.dq, &c.a.dk, &c.a.dv})
        v->shape[0] = 0;
    run_both(c);
    assert_int_equal(lib.planned.size(), 0);
    assert_true(bits == sdpa_bits(c));
    sdpa_teardown(&c);
}

/* ---- a library that cannot ---- */

static void test_what_it_refuses_is_done_by_the_own_kernels_and_said_once(void **)
{
    std::string text;

    lib.refuses_plans = true;
    text = said([] {
        check_shape(small);
        check_shape(small);
    });
    assert_int_equal(lib.planned.size(),
                     3); /* and asked once, of backward for two ways */
    expect_part(text, "attention of 13 x 13, 4 heads of 16 in bf16, is done by slower "
                      "kernels: TestDNN: no kernel");
    assert_true(text.find("is done") == text.rfind("is done"));
}

static void test_problems_beyond_the_table_are_done_by_the_own_kernels(void **)
{
    for (int64_t t = 1; t <= 70; t++) { /* two plans each */
        struct sdpa_case c = sdpa_setup({1, t, t, 1, 1, 8, true, false, ZT_F16});

        run_both(c);
        if (t == 64 || t == 70)
            sdpa_expect(c, sdpa_reference_of(c), 3);
        sdpa_teardown(&c);
    }
    assert_int_equal(lib.planned.size(), 128);
    assert_int_equal(lib.run.size(), 128);
}

static void test_a_run_that_fails_is_an_error_of_the_call(void **)
{
    struct sdpa_case c = sdpa_setup(small);
    struct zt_fault fault = {};

    lib.fails = true;
    assert_int_equal(zt_cuda_attention(dev, NULL, &c.a.fwd, &fault), ZT_E_SYSTEM);
    assert_string_equal(fault.text, "cuda: attention: TestDNN: broken");
    assert_int_equal(zt_cuda_attention_bwd(dev, NULL, &c.a, &fault), ZT_E_SYSTEM);
    assert_string_equal(fault.text, "cuda: attention_bwd: TestDNN: broken");
    sdpa_teardown(&c);
}

/* ---- objects ---- */

static void expect_unusable(const char *path, const char *why)
{
    std::string text = said([&] { open_with(path); });

    expect_part(text, "cuDNN cannot be used, attention is done by slower kernels: ");
    expect_part(text, why);
    assert_null(dev->sdpa);
    assert_int_equal(lib.num_open, 0);
    check_shape(small);
}

static void test_an_object_that_cannot_be_used_is_one_warning(void **)
{
    struct zt_sdpa table = whole_table;

    lib = {};
    expect_unusable("/nowhere/cudnn.so", "/nowhere/cudnn.so");
    expect_unusable("libm.so.6", "libm.so.6 exports no zt_sdpa_cudnn: rebuild it");
    table.abi++;
    fill_in(table);
    expect_unusable(object_path().c_str(), "is of another version of zlaunch");
    table = whole_table;
    table.struct_bytes--;
    fill_in(table);
    expect_unusable(object_path().c_str(), "is of another version of zlaunch");
    fill_in(whole_table);
    lib.refuses_open = true;
    expect_unusable(object_path().c_str(), ": no such library (");
}

static void test_an_object_that_is_not_wanted_or_not_there_is_silent(void **)
{
    fill_in(whole_table);
    for (const char *path : {"", "0", (const char *)NULL}) {
        assert_string_equal(said([=] { open_with(path); }).c_str(), "");
        assert_null(dev->sdpa);
    }
}

int main(void)
{
#define WITH_LIBRARY(f) cmocka_unit_test_setup_teardown(f, with_library, close_device)
#define WITHOUT(f)      cmocka_unit_test_setup_teardown(f, NULL, close_device)
    const struct CMUnitTest tests[] = {
        WITH_LIBRARY(test_forward_and_backward_go_to_the_library),
        WITH_LIBRARY(test_a_problem_is_planned_once),
        WITH_LIBRARY(test_without_lse_the_output_is_the_same),
        WITH_LIBRARY(test_what_does_not_fit_is_done_in_equal_parts),
        WITH_LIBRARY(test_one_head_that_does_not_fit_is_done_by_the_own_kernels),
        WITH_LIBRARY(test_sums_are_in_an_order_unless_none_is_asked_for),
        WITH_LIBRARY(test_without_kernels_in_any_order_those_in_order_do_it),
        WITH_LIBRARY(test_what_cannot_be_stored_is_added_in_order),
        WITH_LIBRARY(test_what_the_library_cannot_do_does_not_reach_it),
        WITH_LIBRARY(test_fp32_is_done_by_the_own_kernels),
        WITH_LIBRARY(test_gradients_that_are_added_to_do_not_reach_it),
        WITH_LIBRARY(test_other_streams_do_not_reach_it),
        WITH_LIBRARY(test_arguments_are_checked_before),
        WITH_LIBRARY(test_nothing_to_do_is_no_problem),
        WITH_LIBRARY(test_what_it_refuses_is_done_by_the_own_kernels_and_said_once),
        WITH_LIBRARY(test_problems_beyond_the_table_are_done_by_the_own_kernels),
        WITH_LIBRARY(test_a_run_that_fails_is_an_error_of_the_call),
        WITHOUT(test_an_object_that_cannot_be_used_is_one_warning),
        WITHOUT(test_an_object_that_is_not_wanted_or_not_there_is_silent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
