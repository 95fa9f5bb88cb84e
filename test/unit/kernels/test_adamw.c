#include "test/unit/kernels/ref.h"

#include "kernels/philox.h"
#include "kernels/split.h"

#if defined(__clang__)
#define WITHOUT_VECTORS __attribute__((optnone))
#else
#define WITHOUT_VECTORS __attribute__((optimize("no-tree-vectorize")))
#endif

/* The contract, element by element. */
WITHOUT_VECTORS static void scalar_adamw(const struct zt_adamw_args *a, float *p,
                                         float *m, float *v, float grad)
{
    float g = grad * *a->grad_scale;

    if (!a->decoupled)
        g = fmaf(a->weight_decay, *p, g);
    *m = fmaf(a->beta1, *m, (1.0f - a->beta1) * g);
    *v = fmaf(a->beta2, *v, (1.0f - a->beta2) * g * g);
    if (a->decoupled)
        *p = fmaf(-(a->lr * a->weight_decay), *p, *p);
    *p = fmaf(-a->lr_t, *m / fmaf(sqrtf(*v), a->vscale, a->eps), *p);
}

struct slice {
    struct arr p, m, v, g, param;
    float *scale;
    uint32_t *skip;
    struct zt_adamw_args a;
};

/* The words that kernels read where they are. */
static void slice_words(struct slice *s)
{
    s->scale = ref_alloc(sizeof(*s->scale));
    s->skip = ref_alloc(sizeof(*s->skip));
    assert_true(s->scale && s->skip);
    *s->scale = 0.37f;
    *s->skip = 0;
}

static struct slice slice_new(int64_t n, zt_dtype param, bool decoupled)
{
    struct slice s = {0};

    slice_words(&s);
    s.p = arr_1(ZT_F32, n, -1, 1);
    s.m = arr_1(ZT_F32, n, -0.1, 0.1);
    s.v = arr_1(ZT_F32, n, 0, 0.01);
    s.g = arr_1(ZT_F32, n, -1, 1);
    s.param = arr_1(param, n, 5, 6);
    s.a = (struct zt_adamw_args){.master = s.p.v,
                                 .m = s.m.v,
                                 .v = s.v.v,
                                 .grad = s.g.v,
                                 .param = s.param.v,
                                 .lr = 1e-3f,
                                 .lr_t = 3.1e-3f,
                                 .vscale = 1.7f,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.999f,
                                 .eps = 1e-8f,
                                 .weight_decay = 0.1f,
                                 .decoupled = decoupled};
    return s;
}

static void slice_free(struct slice *s)
{
    arr_free(&s->p);
    arr_free(&s->m);
    arr_free(&s->v);
    arr_free(&s->g);
    arr_free(&s->param);
    ref_free(s->scale);
    ref_free(s->skip);
}

static void run(struct zt_device *dev, struct slice *s)
{
    s->a.grad_scale = s->scale;
    s->a.skip = s->skip;
    REF_RUN(dev, adamw, &s->a);
}

static float at(const struct arr *a, int64_t i)
{
    return ((const float *)a->v.data)[i];
}

static void same_bits(float a, float b)
{
    assert_int_equal(zt_float_bits(a), zt_float_bits(b));
}

static void test_bits_are_those_of_the_scalar_sequence(void **state)
{
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int k = 0; k < 6; k++) {
        struct slice s = slice_new(20011, ref_floats[k % 3], k >= 3);

        run(dev, &s);
        for (int64_t i = 0; i < s.p.n; i++) {
            float p = (float)s.p.d[i], m = (float)s.m.d[i], v = (float)s.v.d[i];

            scalar_adamw(&s.a, &p, &m, &v, (float)s.g.d[i]);
            same_bits(at(&s.p, i), p);
            same_bits(at(&s.m, i), m);
            same_bits(at(&s.v, i), v);
            same_bits(at(&s.g, i), (float)s.g.d[i]);
            ref_close("param", &s.param.v, i, (double)p, 0);
        }
        slice_free(&s);
    }
    zt_cpu_backend.close(dev);
}

/* The published formulas, with t = 3, in double. */
static void test_step_is_adamw_of_the_paper(void **state)
{
    struct zt_device *dev = ref_open(1);
    struct slice s = slice_new(500, ZT_F32, true);
    double b1 = (double)s.a.beta1, b2 = (double)s.a.beta2, lr = (double)s.a.lr;

    (void)state;
    s.a.lr_t = (float)(lr / (1 - pow(b1, 3)));
    s.a.vscale = (float)(1 / sqrt(1 - pow(b2, 3)));
    run(dev, &s);
    for (int64_t i = 0; i < s.p.n; i++) {
        double g = s.g.d[i] * (double)*s.scale;
        double m = b1 * s.m.d[i] + (1 - b1) * g, v = b2 * s.v.d[i] + (1 - b2) * g * g;
        double mhat = m / (1 - pow(b1, 3)), vhat = v / (1 - pow(b2, 3));
        double p = s.p.d[i] - lr * (double)s.a.weight_decay * s.p.d[i] -
                   lr * mhat / (sqrt(vhat) + (double)s.a.eps);

        ref_close("p", &s.p.v, i, p, 1e-7);
    }
    slice_free(&s);
    zt_cpu_backend.close(dev);
}

static void test_skip_changes_nothing(void **state)
{
    struct zt_device *dev = ref_open(1);
    struct slice s = slice_new(3000, ZT_BF16, true);

    (void)state;
    *s.skip = 1;
    run(dev, &s);
    for (int64_t i = 0; i < s.p.n; i++) {
        same_bits(at(&s.p, i), (float)s.p.d[i]);
        same_bits(at(&s.m, i), (float)s.m.d[i]);
        same_bits(at(&s.v, i), (float)s.v.d[i]);
        same_bits(at(&s.g, i), (float)s.g.d[i]);
        ref_close("param", &s.param.v, i, s.param.d[i], 0);
    }
    slice_free(&s);
    zt_cpu_backend.close(dev);
}

/* Cut anywhere, by any number of threads: the same weights. */
static void test_a_shard_gives_the_bits_of_the_whole(void **state)
{
    struct slice whole = slice_new(30000, ZT_BF16, true);
    struct arr p = arr_copy(&whole.p), m = arr_copy(&whole.m), v = arr_copy(&whole.v);
    struct zt_device *dev = ref_open(2);

    (void)state;
    run(dev, &whole);
    zt_cpu_backend.close(dev);
    dev = ref_open(1);
    for (int64_t from = 0; from < p.n;) {
        int64_t n = 1 + ref_below(7001);
        struct slice s = whole;

        n = n < p.n - from ? n : p.n - from;
        s.a.master = zt_view_of((float *)p.v.data + from, ZT_F32, 1, &n);
        s.a.m = zt_view_of((float *)m.v.data + from, ZT_F32, 1, &n);
        s.a.v = zt_view_of((float *)v.v.data + from, ZT_F32, 1, &n);
        s.a.grad = zt_view_of((float *)whole.g.v.data + from, ZT_F32, 1, &n);
        s.a.param = (struct zt_view){0};
        run(dev, &s);
        from += n;
    }
    assert_memory_equal(p.v.data, whole.p.v.data, arr_bytes(&p));
    assert_memory_equal(v.v.data, whole.v.v.data, arr_bytes(&v));
    arr_free(&p);
    arr_free(&m);
    arr_free(&v);
    slice_free(&whole);
    zt_cpu_backend.close(dev);
}

/* ---- stochastic rounding ---- */

/* A slice whose step changes nothing but `param`: what becomes of its masters. */
static struct slice still_slice(int64_t n, float value)
{
    struct slice s = slice_new(n, ZT_BF16, true);

    for (int64_t i = 0; i < n; i++)
        ref_put(&s.p, i, (double)value);
    s.a.lr = s.a.lr_t = s.a.weight_decay = 0;
    s.a.stochastic = true;
    s.a.rng = (struct zt_philox){77, 5, 3};
    return s;
}

/* Up or down in proportion; 6 deviations. */
static void test_stochastic_rounding_is_unbiased_and_to_neighbours(void **state)
{
    static const double fractions[] = {0, 0x1p-7, 0.3, 0.5, 0.75, 1 - 0x1p-9};
    const int64_t n = 40000;
    struct zt_device *dev = ref_open(2);

    (void)state;
    for (int k = 0; k < 12; k++) {
        double f = fractions[k / 2], sign = k % 2 ? -1 : 1;
        double low = 0x1.34p-5, up = 0x1.36p-5; /* neighbours in bf16 */
        struct slice s = still_slice(n, (float)(sign * (low + f * (up - low))));
        int64_t ups = 0;

        run(dev, &s);
        for (int64_t i = 0; i < n; i++) {
            double got = sign * ref_get(&s.param.v, i);

            assert_true(got == low || got == up);
            ups += got == up;
        }
        if (!(fabs((double)ups - f * (double)n) <= 6 * sqrt((double)n * f * (1 - f))))
            fail_msg("%lld of %lld were rounded up, want a share of %g", (long long)ups,
                     (long long)n, f);
        slice_free(&s);
    }
    zt_cpu_backend.close(dev);
}

static void test_stochastic_rounding_keeps_what_bf16_has(void **state)
{
    static const float kept[] = {0, 1, -0x1.fep127f, INFINITY, -INFINITY, 0x1p-133f};
    struct zt_device *dev = ref_open(1);

    (void)state;
    for (int k = 0; k < 6; k++) {
        struct slice s = still_slice(100, kept[k]);

        run(dev, &s);
        for (int64_t i = 0; i < 100; i++)
            if (isinf(kept[k])) /* inf - 0 * inf */
                assert_false(isfinite(ref_get(&s.param.v, i)));
            else
                same_bits((float)ref_get(&s.param.v, i), kept[k]);
        slice_free(&s);
    }
    zt_cpu_backend.close(dev);
}

/* Element i rounds by Philox element i, wherever a slice is cut. */
static void test_stochastic_rounding_does_not_depend_on_the_cut(void **state)
{
    struct slice whole = slice_new(30000, ZT_BF16, true);
    struct arr p = arr_copy(&whole.p), m = arr_copy(&whole.m), v = arr_copy(&whole.v);
    struct arr param = arr_copy(&whole.param);
    struct zt_device *dev = ref_open(2);

    (void)state;
    whole.a.stochastic = true;
    whole.a.rng = (struct zt_philox){0x123456789au, 7u << 24 | 5, 1001};
    run(dev, &whole);
    for (int64_t i = 0; i < p.n; i++) {
        uint32_t u = zt_float_bits(at(&whole.p, i)), low = u & 0xffffu;
        bool away =
            low && zt_philox_u32(whole.a.rng, (uint64_t)i) >> 16 >= 0x10000u - low;

        assert_int_equal(((uint16_t *)whole.param.v.data)[i], (u >> 16) + away);
    }
    for (int64_t from = 0; from < p.n;) {
        int64_t n = 1 + ref_below(5003);
        struct slice s = whole;

        n = n < p.n - from ? n : p.n - from;
        s.a.master = zt_view_of((float *)p.v.data + from, ZT_F32, 1, &n);
        s.a.m = zt_view_of((float *)m.v.data + from, ZT_F32, 1, &n);
        s.a.v = zt_view_of((float *)v.v.data + from, ZT_F32, 1, &n);
        s.a.grad = zt_view_of((float *)whole.g.v.data + from, ZT_F32, 1, &n);
        s.a.param = zt_view_of((uint16_t *)param.v.data + from, ZT_BF16, 1, &n);
        s.a.rng.offset += (uint64_t)from;
        run(dev, &s);
        from += n;
    }
    assert_memory_equal(p.v.data, whole.p.v.data, arr_bytes(&p));
    assert_memory_equal(param.v.data, whole.param.v.data, arr_bytes(&param));
    arr_free(&p);
    arr_free(&m);
    arr_free(&v);
    arr_free(&param);
    slice_free(&whole);
    zt_cpu_backend.close(dev);
}

static void test_stochastic_rounding_is_to_bf16_alone(void **state)
{
    struct zt_device *dev = ref_open(1);
    struct slice s = slice_new(10, ZT_F16, true);

    (void)state;
    s.a.stochastic = true;
    s.a.grad_scale = s.scale;
    REF_REFUSES(dev, adamw, &s.a, "adamw: stochastic rounding is to bf16");
    s.a.param = (struct zt_view){0};
    REF_REFUSES(dev, adamw, &s.a, "adamw: stochastic rounding is to bf16");
    slice_free(&s);
    zt_cpu_backend.close(dev);
}

/* ---- split masters ---- */

/* A slice whose master is split: its rest in an array of as many bf16. */
static struct arr split_slice(struct slice *s)
{
    struct arr rest = arr_copy(&s->param);

    for (int64_t i = 0; i < s->p.n; i++) {
        struct zt_halves x = zt_split(at(&s->p, i));

        ((uint16_t *)s->param.v.data)[i] = x.bf16;
        ((uint16_t *)rest.v.data)[i] = x.rest;
    }
    s->a.master = rest.v;
    s->a.master.dtype = ZT_REST16;
    return rest;
}

/* Elements [from, from + n) of a slice. */
static struct slice part_of(const struct slice *s, int64_t from, int64_t n)
{
    struct slice part = *s;
    struct zt_view *each[] = {&part.a.master, &part.a.m, &part.a.v, &part.a.grad,
                              &part.a.param};

    for (int i = 0; i < 5; i++)
        *each[i] = zt_view_of((char *)each[i]->data +
                                  (size_t)from * zt_dtype_bytes(each[i]->dtype),
                              each[i]->dtype, 1, &n);
    return part;
}

/* Several steps, the second in pieces: masters and moments are those of whole masters, ties
 * among them; a weight is the nearest bf16 of its master. */
static void test_split_masters_have_the_bits_of_whole_ones(void **state)
{
    struct slice whole = slice_new(30000, ZT_BF16, true), split;
    struct zt_device *dev = ref_open(2);
    struct arr rest;
    const float lr = whole.a.lr, lr_t = whole.a.lr_t;
    int64_t ties = 0;

    (void)state;
    for (int64_t i = 0; i < whole.p.n; i++) {
        uint32_t u = zt_float_bits(at(&whole.p, i));

        if (i % 3)
            u = (u & 0xffff0000u) | (i % 3 == 1 ? 0x8000u : 0x7fffu + (uint32_t)(i & 2));
        ((float *)whole.p.v.data)[i] = zt_float_of_bits(u);
    }
    split = whole;
    split.p = arr_copy(&whole.p);
    split.m = arr_copy(&whole.m);
    split.v = arr_copy(&whole.v);
    split.param = arr_copy(&whole.param);
    split.a.m = split.m.v;
    split.a.v = split.v.v;
    split.a.param = split.param.v;
    rest = split_slice(&split);
    for (int step = 0; step < 3; step++) {
        /* the first leaves masters, and with them their ties */
        whole.a.lr = split.a.lr = step ? lr : 0;
        whole.a.lr_t = split.a.lr_t = step ? lr_t : 0;
        run(dev, &whole);
        for (int64_t from = 0, n; from < rest.n; from += n) {
            struct slice part;

            n = step == 1 ? 1 + ref_below(5003) : rest.n;
            n = n < rest.n - from ? n : rest.n - from;
            part = part_of(&split, from, n);
            run(dev, &part);
        }
        assert_memory_equal(split.m.v.data, whole.m.v.data, arr_bytes(&whole.m));
        assert_memory_equal(split.v.v.data, whole.v.v.data, arr_bytes(&whole.v));
        for (int64_t i = 0; i < rest.n; i++) {
            uint16_t high = ((uint16_t *)split.param.v.data)[i];
            uint16_t low = ((uint16_t *)rest.v.data)[i];
            uint16_t even = ((uint16_t *)whole.param.v.data)[i];

            same_bits(zt_join(high, low), at(&whole.p, i));
            assert_true(high == even || low == 0x8000);
            ties += high != even;
        }
    }
    assert_true(ties > 1000);
    slice_free(&split);
    arr_free(&rest);
    arr_free(&whole.p);
    arr_free(&whole.m);
    arr_free(&whole.v);
    arr_free(&whole.param);
    zt_cpu_backend.close(dev);
}

static void test_a_split_master_needs_its_other_half(void **state)
{
    struct zt_device *dev = ref_open(1);
    struct slice s = slice_new(10, ZT_BF16, true);
    struct arr rest = split_slice(&s);

    (void)state;
    s.a.grad_scale = s.scale;
    s.a.stochastic = true;
    REF_REFUSES(dev, adamw, &s.a,
                "adamw: a split master needs its half in bf16, rounded to nearest");
    s.a.stochastic = false;
    s.a.param.dtype = ZT_F16;
    REF_REFUSES(dev, adamw, &s.a,
                "adamw: a split master needs its half in bf16, rounded to nearest");
    s.a.param = (struct zt_view){0};
    REF_REFUSES(dev, adamw, &s.a,
                "adamw: a split master needs its half in bf16, rounded to nearest");
    arr_free(&rest);
    slice_free(&s);
    zt_cpu_backend.close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_are_those_of_the_scalar_sequence),
        cmocka_unit_test(test_step_is_adamw_of_the_paper),
        cmocka_unit_test(test_skip_changes_nothing),
        cmocka_unit_test(test_a_shard_gives_the_bits_of_the_whole),
        cmocka_unit_test(test_stochastic_rounding_is_unbiased_and_to_neighbours),
        cmocka_unit_test(test_stochastic_rounding_keeps_what_bf16_has),
        cmocka_unit_test(test_stochastic_rounding_does_not_depend_on_the_cut),
        cmocka_unit_test(test_stochastic_rounding_is_to_bf16_alone),
        cmocka_unit_test(test_split_masters_have_the_bits_of_whole_ones),
        cmocka_unit_test(test_a_split_master_needs_its_other_half),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
