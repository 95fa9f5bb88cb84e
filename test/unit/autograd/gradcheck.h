/*
 * gradcheck.h -- does an op's backward agree with central differences of an independent
 * forward in double precision?
 *
 * A check gives the op's graph and a reference that maps inputs to output; both read the
 * sizes of the trial from `dim`. The loss is the sum of squared distances to random
 * targets (or the output itself, when it is a loss).
 */
#ifndef TEST_AUTOGRAD_GRADCHECK_H
#define TEST_AUTOGRAD_GRADCHECK_H

#include "test/unit/autograd/fixture.h"

#define MAX_IN 5

struct input {
    int ndim;
    int64_t shape[ZT_MAX_NDIM];
    int64_t ids; /* > 0: numbers below this as i32; one in five is -100 if `ignore` */
    bool ignore;
    double shift;
};

#define AXES(...)                                                                        \
    .ndim = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                   \
    .shape = {__VA_ARGS__}
#define FLOATS(...)     ((struct input){AXES(__VA_ARGS__)})
#define IDS(below, ...) ((struct input){AXES(__VA_ARGS__), .ids = (below)})
#define TARGETS(below, ...)                                                              \
    ((struct input){AXES(__VA_ARGS__), .ids = (below), .ignore = true})

struct op_check {
    const char *name;
    struct input in[MAX_IN];
    int num_in;
    zt_tensor *(*run)(zt_step *s, zt_tensor **in);
    void (*ref)(double *const *in, double *out);
    int64_t out_numel;
    bool is_loss;
};

static int64_t dim[8];

struct trial {
    double *x[MAX_IN], *target, *out;
    void *mem[MAX_IN], *target_mem;
    int64_t numel[MAX_IN];
};

static double ref_loss(const struct op_check *c, struct trial *t)
{
    double sum = 0;

    memset(t->out, 0, (size_t)c->out_numel * sizeof(double));
    c->ref(t->x, t->out);
    if (c->is_loss)
        return t->out[0];
    for (int64_t i = 0; i < c->out_numel; i++)
        sum += (t->out[i] - t->target[i]) * (t->out[i] - t->target[i]);
    return sum;
}

/* Random numbers that `dtype` holds exactly. */
static void *fill_random(double *x, int64_t n, zt_dtype dtype, const struct input *how)
{
    void *mem = calloc((size_t)n, 4);

    for (int64_t i = 0; i < n; i++) {
        double v = rnd() + how->shift;

        if (how->ids)
            v = how->ignore && i % 5 == 3 ? -100 : (double)rnd_int(0, how->ids - 1);
        put(mem, how->ids ? ZT_I32 : dtype, i, v);
        x[i] = get(mem, how->ids ? ZT_I32 : dtype, i);
    }
    return mem;
}

static void trial_open(const struct op_check *c, struct trial *t, zt_dtype dtype)
{
    memset(t, 0, sizeof(*t));
    for (int i = 0; i < c->num_in; i++) {
        t->numel[i] = 1;
        for (int d = 0; d < c->in[i].ndim; d++)
            t->numel[i] *= c->in[i].shape[d];
        t->x[i] = calloc((size_t)t->numel[i], sizeof(double));
        t->mem[i] = fill_random(t->x[i], t->numel[i], dtype, &c->in[i]);
    }
    t->out = calloc((size_t)c->out_numel, sizeof(double));
    t->target = calloc((size_t)c->out_numel, sizeof(double));
    t->target_mem =
        fill_random(t->target, c->out_numel, dtype, &(struct input){.shift = 0});
}

static void trial_close(const struct op_check *c, struct trial *t)
{
    for (int i = 0; i < c->num_in; i++) {
        free(t->x[i]);
        free(t->mem[i]);
    }
    free(t->out);
    free(t->target);
    free(t->target_mem);
}

static double central_difference(const struct op_check *c, struct trial *t, int i,
                                 int64_t j)
{
    const double h = 1e-5;
    double was = t->x[i][j], up, down;

    t->x[i][j] = was + h;
    up = ref_loss(c, t);
    t->x[i][j] = was - h;
    down = ref_loss(c, t);
    t->x[i][j] = was;
    return (up - down) / (2 * h);
}

static void compare_grad(const struct op_check *c, struct trial *t, int i,
                         const zt_tensor *leaf, zt_dtype dtype)
{
    const struct zt_view *g = zt_step_leaf_grad(leaf);
    double far = 0, size = 0, limit = dtype == ZT_F32 ? 1e-3 : 2e-2;

    if (!g)
        fail_msg("%s: no gradient reached input %d", c->name, i);
    for (int64_t j = 0; j < t->numel[i]; j++) {
        double want = central_difference(c, t, i, j);
        double got = get(g->data, g->dtype, j);

        far += (got - want) * (got - want);
        size += want * want;
    }
    if (!(sqrt(far) <= limit * sqrt(size) + 1e-7))
        fail_msg("%s (%s): gradient of input %d is off by %.2e of %.2e", c->name,
                 zt_dtype_name(dtype), i, sqrt(far), sqrt(size));
}

static void compare_output(const struct op_check *c, struct trial *t, const zt_tensor *y,
                           zt_dtype dtype)
{
    const struct zt_view *v = zt_tensor_view(y);
    double far = 0, size = 0, limit = dtype == ZT_F32 ? 1e-4 : 1e-2;

    assert_int_equal(zt_view_numel(v), c->out_numel);
    ref_loss(c, t);
    if (!zt_view_is_contiguous(v))
        return; /* views are looked at through what is computed from them */
    for (int64_t j = 0; j < c->out_numel; j++) {
        double d = get(v->data, v->dtype, j) - t->out[j];

        far += d * d;
        size += t->out[j] * t->out[j];
    }
    if (!(sqrt(far) <= limit * sqrt(size) + 1e-6))
        fail_msg("%s (%s): output is off by %.2e of %.2e", c->name, zt_dtype_name(dtype),
                 sqrt(far), sqrt(size));
}

static void check_op_as(const struct op_check *c, zt_dtype dtype)
{
    struct zt_fault fault = {ZT_OK, ""};
    zt_tensor *leaf[MAX_IN], *y, *loss;
    struct trial t;
    struct rig r;

    trial_open(c, &t, dtype);
    rig_open(&r, "cpu", dtype, NULL, (struct zt_step_config){.seed = 1});
    expect_ok(zt_step_begin_bare(r.step, ZT_MODE_TRAIN, &fault), &fault);
    for (int i = 0; i < c->num_in; i++)
        leaf[i] = zt_step_leaf(r.step,
                               zt_view_of(t.mem[i], c->in[i].ids ? ZT_I32 : dtype,
                                          c->in[i].ndim, c->in[i].shape),
                               !c->in[i].ids);
    y = c->run(r.step, leaf);
    expect_step_ok(r.step);
    compare_output(c, &t, y, dtype);
    loss = c->is_loss
               ? y
               : zt_squared_error(
                     r.step, y,
                     zt_step_leaf(r.step,
                                  zt_view_of(t.target_mem, dtype, zt_tensor_ndim(y),
                                             zt_tensor_view(y)->shape),
                                  false));
    expect_step_ok(r.step);
    expect_ok(zt_step_backward(r.step, loss, 1, &fault), &fault);
    for (int i = 0; i < c->num_in; i++)
        if (!c->in[i].ids)
            compare_grad(c, &t, i, leaf[i], dtype);
    zt_step_end(r.step);
    rig_close(&r);
    trial_close(c, &t);
}

static void check_op(struct op_check c)
{
    check_op_as(&c, ZT_F32);
    check_op_as(&c, ZT_BF16);
}

/* A small odd-ish size. */
__attribute__((unused)) static int64_t odd(int64_t most)
{
    return rnd_int(1, (most + 1) / 2) * 2 - 1;
}

#define TRIALS for (int trial_ = 0; trial_ < 4; trial_++)

#endif
