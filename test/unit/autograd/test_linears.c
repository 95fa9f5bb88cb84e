/* Several linear maps of one value in one product: the numbers and gradients of each by itself,
 * whatever is used, frozen or in between. */
#include "test/unit/autograd/fixture.h"
#include "worker/autograd/adapter.h"
#include "worker/autograd/tape.h"

enum { ROWS = 6, IN = 64, Q = 128, K = 64, MAPS = 3 };

static struct {
    bool bias, adjoin, alone; /* alone: zt_linear() of each */
    int frozen, unused;       /* of the maps; -1: none */
    int twice;                /* whose columns are used in two pieces; -1: none */
} how;
static zt_block *block, *head;
static zt_param *table, *w[MAPS], *b[MAPS];
static int num_products;

static zt_err build(zt_model *m, void **self)
{
    static const int64_t out[MAPS] = {Q, K, K};

    (void)self;
    block = zt_model_block(m, "layer");
    table = zt_block_param(block, "table", ZT_SHAPE(ROWS, IN), ZT_NORMAL(0, 1), 0);
    for (int i = 0; i < MAPS; i++) {
        unsigned flags = i == how.frozen ? ZT_FROZEN : 0;
        char name[8];

        snprintf(name, sizeof(name), "w%d", i);
        w[i] =
            zt_block_param(block, name, ZT_SHAPE(out[i], IN), ZT_NORMAL(0, 0.1f), flags);
        snprintf(name, sizeof(name), "b%d", i);
        b[i] = how.bias ? zt_block_param(block, name, ZT_SHAPE(out[i]), ZT_NORMAL(0, 1),
                                         flags | ZT_NO_DECAY)
                        : NULL;
    }
    if (how.adjoin) {
        zt_block_adjoin(w, MAPS);
        if (how.bias)
            zt_block_adjoin(b, MAPS);
    }
    head = zt_model_block(m, "head");
    zt_model_language_fields(m);
    return zt_model_status(m);
}

/* (B, T, n) -> its sum of squares, of two pieces where so asked */
static zt_tensor *objective(zt_step *s, zt_tensor *y, bool twice)
{
    int64_t half = zt_tensor_dim(y, 2) / 2;

    if (!twice)
        return zt_squared_error(s, y, zt_scale(s, y, 0.5f));
    return zt_add(s, objective(s, zt_slice(s, y, 2, 0, half), false),
                  objective(s, zt_slice(s, y, 2, half, half), false));
}

static void layer(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    zt_tensor *x = zt_embedding(s, in[0], zt_weight(s, table));

    (void)ctx;
    if (!how.alone)
        zt_linears(s, x, w, how.bias ? b : NULL, MAPS, out);
    for (int i = 0; i < MAPS && how.alone; i++)
        out[i] =
            zt_linear(s, x, zt_weight(s, w[i]), how.bias ? zt_weight(s, b[i]) : NULL, 0);
}

static void loss_of(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    (void)ctx;
    out[0] = NULL;
    for (int i = 0; i < MAPS; i++) {
        zt_tensor *part = i == how.unused ? NULL : objective(s, in[i], i == how.twice);

        out[0] = out[0] && part ? zt_add(s, out[0], part) : part ? part : out[0];
    }
}

static zt_tensor *forward(zt_step *s, void *self, const zt_batch *batch)
{
    zt_tensor *x = zt_batch_field(s, batch, ZT_TOKENS), *y[MAPS];

    (void)self;
    zt_block_call(s, block, layer, NULL, &x, 1, y, MAPS);
    zt_block_call(s, head, loss_of, NULL, y, MAPS, &x, 1);
    return x;
}

static const struct zt_plugin plugin = {.abi = ZT_ABI,
                                        .struct_bytes = sizeof(struct zt_plugin),
                                        .name = "linears",
                                        .build = build,
                                        .forward = forward};

static const struct zt_kernels *counted;

static zt_err count_product(struct zt_device *dev, struct zt_stream *s,
                            const struct zt_gemm_args *a, struct zt_fault *fault)
{
    num_products++;
    return counted->gemm(dev, s, a, fault);
}

struct result {
    float loss, table[ROWS * IN], w[MAPS][Q * IN], b[MAPS][Q];
    int num_products;
};

/* is_new: gradients are replaced, and what was there is not a number. */
static struct result run(zt_dtype dtype, bool recompute, bool is_new)
{
    int32_t tokens[ROWS] = {0, 1, 2, 3, 4, 5}, targets[ROWS] = {0};
    struct zt_pass pass = {.B = 2, .T = ROWS / 2, .fields = {tokens, targets}};
    struct zt_fault fault = {ZT_OK, ""};
    struct zt_kernels kernels;
    static struct result r;
    zt_tensor *loss = NULL;
    struct rig rig;

    rig_open(&rig, "cpu", dtype, &plugin,
             (struct zt_step_config){.recompute = recompute});
    rig_init_weights(&rig, 1);
    rig_clear_grads(&rig);
    for (int i = 0; is_new && i < block->num_params; i++) {
        struct zt_param *p = block->params[i];

        if (p->flags & ZT_FROZEN)
            continue;
        p->is_new = true;
        for (int64_t k = 0; k < p->numel; k++)
            block->grads[p->offset_elems + k] = NAN;
    }
    counted = rig.step->k;
    kernels = *counted;
    kernels.gemm = count_product;
    rig.step->k = &kernels;
    num_products = 0;
    expect_ok(zt_step_forward(rig.step, &pass, &loss, &fault), &fault);
    memset(&r, 0, sizeof(r));
    r.loss = *(float *)zt_tensor_view(loss)->data;
    expect_ok(zt_step_backward(rig.step, loss, 0.5f, &fault), &fault);
    zt_step_end(rig.step);
    r.num_products = num_products;
    memcpy(r.table, block->grads + table->offset_elems, sizeof(r.table));
    for (int i = 0; i < MAPS; i++) {
        if (!w[i]->is_new) /* else nothing has come, and whoever has the memory clears it */
            memcpy(r.w[i], block->grads + w[i]->offset_elems,
                   (size_t)w[i]->numel * sizeof(float));
        if (b[i] && !b[i]->is_new)
            memcpy(r.b[i], block->grads + b[i]->offset_elems,
                   (size_t)b[i]->numel * sizeof(float));
    }
    rig.step->k = counted;
    rig_close(&rig);
    return r;
}

static void same(const float *want, const float *got, int n, float most)
{
    for (int i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= most * (fabsf(want[i]) + 1)))
            fail_msg("number %d: %g, not %g", i, (double)got[i], (double)want[i]);
}

/* The same as by zt_linear(); in `products` of them, `forward` of which recomputation repeats. */
static void check(int products, int forward)
{
    for (int kind = 0; kind < 8; kind++) {
        zt_dtype dtype = kind % 2 ? ZT_BF16 : ZT_F32;
        bool recompute = kind & 2, is_new = kind & 4;
        float most = dtype == ZT_BF16 ? 3e-2f : 1e-5f;
        struct result want, got;

        how.alone = true;
        want = run(dtype, recompute, is_new);
        how.alone = false;
        got = run(dtype, recompute, is_new);
        same(&want.loss, &got.loss, 1, most);
        same(want.table, got.table, ROWS * IN, most);
        for (int i = 0; i < MAPS; i++) {
            same(want.w[i], got.w[i], Q * IN, most);
            same(want.b[i], got.b[i], Q, most);
        }
        assert_int_equal(got.num_products, products + (recompute ? forward : 0));
    }
}

static void set(bool bias, bool adjoin, int frozen, int unused, int twice)
{
    how.bias = bias;
    how.adjoin = adjoin;
    how.frozen = frozen;
    how.unused = unused;
    how.twice = twice;
}

static void test_neighbours_are_one_product(void **state)
{
    (void)state;
    set(false, true, -1, -1, -1);
    check(3, 1);
    set(true, true, -1, -1, -1);
    check(3, 1);
}

/* Biases lie in between, unless the model is told otherwise. */
static void test_what_is_apart_is_multiplied_apart(void **state)
{
    (void)state;
    set(true, false, -1, -1, -1);
    check(9, 3);
}

static void test_what_is_frozen_is_multiplied_apart(void **state)
{
    (void)state;
    set(true, true, 1, -1, -1);
    check(8, 3);
}

static void test_a_part_that_is_not_used_has_no_gradient(void **state)
{
    (void)state;
    for (int i = 0; i < MAPS; i++) {
        set(true, true, -1, i, -1);
        check(3, 1);
    }
}

static void test_a_part_may_be_used_in_pieces(void **state)
{
    (void)state;
    for (int i = 0; i < MAPS; i++) {
        set(true, true, -1, (i + 1) % MAPS, i);
        check(3, 1);
    }
}

static void test_names_and_their_order_stay(void **state)
{
    static const char *const names[] = {"table", "w0", "b0", "w1", "b1", "w2", "b2"};
    struct rig r;

    (void)state;
    set(true, true, -1, -1, -1);
    rig_open(&r, "cpu", ZT_F32, &plugin, (struct zt_step_config){.seed = 1});
    for (int i = 0; i < 7; i++)
        assert_string_equal(r.model->params[i]->name, names[i]);
    for (int i = 1; i < MAPS; i++) {
        assert_int_equal(w[i]->offset_elems, w[i - 1]->offset_elems + w[i - 1]->numel);
        assert_true(b[i]->offset_elems > b[i - 1]->offset_elems);
    }
    for (int i = 1; i < block->num_params; i++)
        assert_true(block->params[i]->offset_elems > block->params[i - 1]->offset_elems);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_neighbours_are_one_product),
        cmocka_unit_test(test_what_is_apart_is_multiplied_apart),
        cmocka_unit_test(test_what_is_frozen_is_multiplied_apart),
        cmocka_unit_test(test_a_part_that_is_not_used_has_no_gradient),
        cmocka_unit_test(test_a_part_may_be_used_in_pieces),
        cmocka_unit_test(test_names_and_their_order_stay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
