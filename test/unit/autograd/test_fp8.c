/* Linear ops with fp8 products: what is rounded, where it is not, and its memory. */
#include "test/unit/autograd/fixture.h"

#define VOCAB 48 /* of the model below */

static zt_err build(zt_model *m, void **self)
{
    zt_block *b = zt_model_block(m, "b");

    (void)self;
    zt_block_param(b, "w", ZT_SHAPE(16), ZT_ONES(), 0);
    zt_model_set_vocab(m, VOCAB);
    return zt_model_status(m);
}

static const struct zt_plugin model_with_vocab = {
    .abi = ZT_ABI, .name = "vocab", .build = build};

/* ---- one op, forward and backward ---- */

struct sizes {
    int64_t rows, in, out;
    unsigned flags;
    int64_t from; /* x is columns from here on of a matrix that is 64 wider */
};

/* Bits and pool of loss = sum (linear(x, w) - target)^2, and its gradients. */
struct result {
    uint16_t *x, *w, *bias, *target, *y, *dx, *dw;
    size_t peak;
};

static uint16_t *random_bf16(int64_t n, double size)
{
    uint16_t *p = calloc((size_t)n, sizeof(*p));

    for (int64_t i = 0; i < n; i++)
        p[i] = to_bf16((float)(size * rnd()));
    return p;
}

static uint16_t *bits_of(const struct zt_view *v)
{
    size_t bytes = (size_t)zt_view_numel(v) * sizeof(uint16_t);
    uint16_t *p = malloc(bytes);

    assert_int_equal(v->dtype, ZT_BF16);
    memcpy(p, v->data, bytes);
    return p;
}

static zt_tensor *leaf(struct rig *r, uint16_t *data, int64_t rows, int64_t cols,
                       bool grad)
{
    return zt_step_leaf(
        r->step,
        zt_view_of(data, ZT_BF16, rows ? 2 : 1, (int64_t[]){rows ? rows : cols, cols}),
        grad);
}

static struct result run(const struct sizes *n, const char *backend, bool fp8)
{
    struct result res = {0};
    struct zt_fault fault = {ZT_OK, ""};
    bool in_out = n->flags & ZT_W_IN_OUT;
    int64_t wide_in = n->in + (n->from ? 64 : 0);
    zt_tensor *x, *w, *y, *loss;
    struct rig r;

    rand_state = 7;
    res.x = random_bf16(n->rows * wide_in, 1);
    res.w = random_bf16(n->in * n->out, 0.3);
    res.bias = random_bf16(n->out, 1);
    res.target = random_bf16(n->rows * n->out, 2);
    rig_open(&r, backend, ZT_BF16, &model_with_vocab,
             (struct zt_step_config){.fp8 = fp8});
    expect_ok(zt_step_begin_bare(r.step, ZT_MODE_TRAIN, &fault), &fault);
    x = leaf(&r, res.x, n->rows, wide_in, true);
    w = leaf(&r, res.w, in_out ? n->in : n->out, in_out ? n->out : n->in, true);
    y = zt_linear(r.step, n->from ? zt_slice(r.step, x, 1, n->from, n->in) : x, w,
                  leaf(&r, res.bias, 0, n->out, false), n->flags);
    expect_step_ok(r.step);
    if (strcmp(backend, "cpu") == 0)
        res.y = bits_of(zt_tensor_view(y));
    loss = zt_squared_error(r.step, y, leaf(&r, res.target, n->rows, n->out, false));
    expect_ok(zt_step_backward(r.step, loss, 1, &fault), &fault);
    if (strcmp(backend, "cpu") == 0) {
        res.dx = bits_of(zt_step_leaf_grad(x));
        res.dw = bits_of(zt_step_leaf_grad(w));
    }
    zt_step_end(r.step);
    res.peak = zt_pool_peak(r.pool);
    rig_close(&r);
    return res;
}

static void result_free(struct result *r)
{
    uint16_t *all[] = {r->x, r->w, r->bias, r->target, r->y, r->dx, r->dw};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]);
}

/* ---- fp8 in double ---- */

struct format {
    int fraction, smallest; /* bits; exponent of the smallest normal number */
    double largest;
};
static const struct format e4m3 = {3, -6, 448}, e5m2 = {2, -14, 57344};

static double round_to(double x, const struct format *f)
{
    int e = x == 0 ? f->smallest : ilogb(x);
    double step = ldexp(1, (e > f->smallest ? e : f->smallest) - f->fraction);
    double y = nearbyint(x / step) * step;

    return y > f->largest ? f->largest : y < -f->largest ? -f->largest : y;
}

/* What the codes of n numbers mean. */
static double *coded(const double *x, int64_t n, const struct format *f)
{
    double *y = calloc((size_t)n, sizeof(*y)), amax = 0;
    float factor;

    for (int64_t i = 0; i < n; i++)
        amax = fmax(amax, fabs(x[i]));
    factor = (float)f->largest / (float)amax;
    for (int64_t i = 0; i < n; i++)
        y[i] = round_to((double)((float)x[i] * factor), f) / (double)factor;
    return y;
}

static double *wide(const uint16_t *bits, int64_t n)
{
    double *x = calloc((size_t)n, sizeof(*x));

    for (int64_t i = 0; i < n; i++)
        x[i] = (double)from_bf16(bits[i]);
    return x;
}

static void expect_bf16(const char *what, const uint16_t *got, const double *want,
                        int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double g = (double)from_bf16(got[i]);

        if (!(fabs(g - want[i]) <= 0x1.1p-8 * fabs(want[i]) + 1e-4))
            fail_msg("%s[%lld]: got %g, want %g", what, (long long)i, g, want[i]);
    }
}

/* w element (o, i) whichever way it lies. */
static int64_t w_at(const struct sizes *n, int64_t o, int64_t i)
{
    return n->flags & ZT_W_IN_OUT ? i * n->out + o : o * n->in + i;
}

static void check_against_codes(const struct sizes *n, const struct result *r)
{
    int64_t M = n->rows, I = n->in, O = n->out;
    double *x = wide(r->x, M * I), *w = wide(r->w, I * O), *dy = wide(r->y, M * O);
    double *cx = coded(x, M * I, &e4m3), *cw = coded(w, I * O, &e4m3), *cdy;
    double *y = calloc((size_t)(M * O), sizeof(*y));
    double *dx = calloc((size_t)(M * I), sizeof(*dx));
    double *dw = calloc((size_t)(I * O), sizeof(*dw));

    for (int64_t k = 0; k < M * O; k++) /* what squared_error hands back */
        dy[k] = (double)from_bf16(
            to_bf16((float)(2 * (dy[k] - (double)from_bf16(r->target[k])))));
    cdy = coded(dy, M * O, &e5m2);
    for (int64_t m = 0; m < M; m++)
        for (int64_t o = 0; o < O; o++) {
            y[m * O + o] = (double)from_bf16(r->bias[o]);
            for (int64_t i = 0; i < I; i++) {
                y[m * O + o] += cx[m * I + i] * cw[w_at(n, o, i)];
                dx[m * I + i] += cdy[m * O + o] * cw[w_at(n, o, i)];
                dw[w_at(n, o, i)] += cdy[m * O + o] * cx[m * I + i];
            }
        }
    expect_bf16("y", r->y, y, M * O);
    expect_bf16("dx", r->dx, dx, M * I);
    expect_bf16("dw", r->dw, dw, I * O);
    double *all[] = {x, w, dy, cx, cw, cdy, y, dx, dw};
    for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++)
        free(all[k]);
}

static void test_products_of_a_linear_op_are_those_of_codes(void **state)
{
    static const struct sizes n[] = {{16, 32, 64, 0, 0},
                                     {48, 16, 32, ZT_W_IN_OUT, 0},
                                     {80, 96, 16, 0, 0},
                                     {32, 144, 80, ZT_W_IN_OUT, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof(n) / sizeof(n[0]); i++) {
        struct result r = run(&n[i], "cpu", true);

        check_against_codes(&n[i], &r);
        result_free(&r);
    }
}

/* ---- how far that is from bf16 ---- */

static double distance(const uint16_t *a, const uint16_t *b, int64_t n)
{
    double far = 0, size = 0;

    for (int64_t i = 0; i < n; i++) {
        double x = (double)from_bf16(a[i]), y = (double)from_bf16(b[i]);

        far += (x - y) * (x - y);
        size += y * y;
    }
    return sqrt(far / size);
}

static void expect_between(const char *what, double x, double low, double high)
{
    if (!(x > low && x < high))
        fail_msg("%s is off by %.3g, want between %g and %g", what, x, low, high);
}

/* e4m3 rounds by 1/16 at most, e5m2 by 1/8: a third of that in the mean. */
static void test_gradients_are_off_by_what_fp8_implies(void **state)
{
    static const unsigned epilogues[] = {0, ZT_GELU_TANH, ZT_GELU_ERF};

    (void)state;
    for (unsigned k = 0; k < 6; k++) {
        struct sizes n = {96, 128, 64, epilogues[k / 2] | (k % 2 ? ZT_W_IN_OUT : 0), 0};
        struct result a = run(&n, "cpu", true), b = run(&n, "cpu", false);

        expect_between("y", distance(a.y, b.y, n.rows * n.out), 0.005, 0.05);
        expect_between("dx", distance(a.dx, b.dx, n.rows * n.in), 0.01, 0.1);
        expect_between("dw", distance(a.dw, b.dw, n.in * n.out), 0.01, 0.1);
        result_free(&a);
        result_free(&b);
    }
}

/* ---- where there is none ---- */

static void test_sizes_that_16_does_not_divide_and_output_heads_stay_bf16(void **state)
{
    static const struct sizes n[] = {{24, 32, 64, 0, 0},
                                     {32, 40, 64, ZT_W_IN_OUT, 0},
                                     {32, 64, 24, 0, 0},
                                     {1, 16, 16, 0, 0},
                                     {32, 64, VOCAB, ZT_OUTPUT_HEAD, 0},
                                     {32, 64, 64, ZT_OUTPUT_HEAD | ZT_W_IN_OUT, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof(n) / sizeof(n[0]); i++) {
        struct result a = run(&n[i], "cpu", true), b = run(&n[i], "cpu", false);

        assert_memory_equal(a.y, b.y, (size_t)(n[i].rows * n[i].out) * 2);
        assert_memory_equal(a.dx, b.dx, (size_t)(n[i].rows * n[i].in) * 2);
        assert_memory_equal(a.dw, b.dw, (size_t)(n[i].in * n[i].out) * 2);
        assert_int_equal(a.peak, b.peak);
        result_free(&a);
        result_free(&b);
    }
}

static void test_a_layer_as_wide_as_the_vocabulary_is_no_output_head(void **state)
{
    struct sizes n = {32, 64, VOCAB, 0, 0};
    struct result a = run(&n, "cpu", true), b = run(&n, "cpu", false);

    (void)state;
    expect_between("y", distance(a.y, b.y, n.rows * n.out), 0.005, 0.05);
    result_free(&a);
    result_free(&b);
}

/* A window whose lines do not begin at 16 bytes is no operand, as its gradient is none.
 */
static void test_a_window_is_taken_if_its_lines_are_aligned(void **state)
{
    static const struct sizes n[] = {{32, 64, 96, 0, 8}, {32, 64, 96, 0, 4}};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct result a = run(&n[i], "cpu", true), b = run(&n[i], "cpu", false);
        double dx = distance(a.dx, b.dx, 32 * 128);

        if (i == 0)
            expect_between("dx", dx, 0.01, 0.1);
        else
            assert_true(dx == 0);
        result_free(&a);
        result_free(&b);
    }
}

/* ---- memory ---- */

static void test_a_plan_sees_the_codes(void **state)
{
    struct sizes n = {64, 256, 512, ZT_W_IN_OUT | ZT_GELU_TANH, 0};
    struct result a = run(&n, "cpu", true), b = run(&n, "cpu", false);
    struct result planned = run(&n, "meta", true);

    (void)state;
    assert_int_equal(planned.peak, a.peak);
    assert_true(a.peak > b.peak);
    assert_true(a.peak - b.peak <= (size_t)(2 * n.rows * n.out + n.in * n.out + 1024));
    result_free(&a);
    result_free(&b);
    result_free(&planned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_of_a_linear_op_are_those_of_codes),
        cmocka_unit_test(test_gradients_are_off_by_what_fp8_implies),
        cmocka_unit_test(test_sizes_that_16_does_not_divide_and_output_heads_stay_bf16),
        cmocka_unit_test(test_a_layer_as_wide_as_the_vocabulary_is_no_output_head),
        cmocka_unit_test(test_a_window_is_taken_if_its_lines_are_aligned),
        cmocka_unit_test(test_a_plan_sees_the_codes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
