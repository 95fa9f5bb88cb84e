/* What distances add to scores, by finite differences; dropout of what all rows share. */
#include "test/unit/autograd/gradcheck.h"
#include "test/unit/autograd/nets.h"

/* ---- scores by distance: dim = B, H, Tq, Tk, R ---- */

static int32_t bucket[64];
static int terms;       /* 1: by query, 2: by key, 3: both, 4: both, as one tensor */
static bool transposed; /* operands are views of what has other strides */
#define SCALE 0.7f

static zt_tensor *operand(zt_step *s, zt_tensor *x)
{
    return transposed ? zt_transpose(s, x, 1, 2) : x;
}

static zt_tensor *run_distance(zt_step *s, zt_tensor **in)
{
    zt_tensor *by_query = terms != 2 ? operand(s, in[0]) : NULL;
    zt_tensor *by_key = terms == 1   ? NULL
                        : terms == 4 ? by_query
                                     : operand(s, in[terms == 2 ? 0 : 1]);

    return zt_distance_bias(s, by_query, by_key, bucket, dim[2] + dim[3] - 1, SCALE);
}

/* Element (h, b, t, u) of x with T tokens. */
static double element(const double *x, int64_t T, int64_t h, int64_t b, int64_t t,
                      int64_t u)
{
    return transposed ? x[((h * T + t) * dim[0] + b) * dim[4] + u]
                      : x[((h * dim[0] + b) * T + t) * dim[4] + u];
}

static void ref_distance(double *const *in, double *out)
{
    const double *by_key = in[terms == 3];

    for (int64_t b = 0; b < dim[0]; b++)
        for (int64_t h = 0; h < dim[1]; h++)
            for (int64_t i = 0; i < dim[2]; i++)
                for (int64_t j = 0; j < dim[3]; j++) {
                    int64_t u = bucket[i - j + dim[3] - 1];
                    double y = terms != 2 ? element(in[0], dim[2], h, b, i, u) : 0;

                    y += terms != 1 ? element(by_key, dim[3], h, b, j, u) : 0;
                    *out++ = y * (double)SCALE;
                }
}

static struct input floats_of(int64_t T)
{
    return transposed ? FLOATS(dim[1], T, dim[0], dim[4])
                      : FLOATS(dim[1], dim[0], T, dim[4]);
}

static void test_gradients_of_scores_by_distance(void **state)
{
    (void)state;
    for (int t = 0; t < 16; t++) {
        struct op_check c = {
            .name = "distance_bias", .run = run_distance, .ref = ref_distance};

        terms = 1 + t % 4;
        transposed = t / 4 % 2;
        memcpy(dim, (int64_t[]){2, 3, odd(9), odd(9), odd(7)}, 5 * sizeof(*dim));
        if (terms == 4)
            dim[3] = dim[2];
        for (int64_t i = 0, u = 0; i < dim[2] + dim[3] - 1; i++) {
            bucket[i] = (int32_t)u; /* some buckets are empty, others hold several */
            u += rnd_int(0, 2);
            u = u < dim[4] ? u : dim[4] - 1;
        }
        c.num_in = terms == 3 ? 2 : 1;
        c.in[0] = floats_of(terms == 2 ? dim[3] : dim[2]);
        c.in[1] = floats_of(dim[3]);
        c.out_numel = dim[0] * dim[1] * dim[2] * dim[3];
        check_op(c);
    }
    transposed = false;
}

static zt_tensor *values(zt_step *s, int64_t H, int64_t T, int64_t R)
{
    static float memory[512];
    const int64_t shape[4] = {H, 1, T, R};

    return zt_step_leaf(s, zt_view_of(memory, ZT_F32, 4, shape), true);
}

static zt_tensor *bad_distances(zt_step *s, int which)
{
    static const int32_t falls[5] = {0, 1, 2, 1, 2}, rises[5] = {0, 0, 1, 2, 3};

    switch (which) {
    case 0:
        return zt_distance_bias(s, NULL, NULL, rises, 5, 1);
    case 1:
        return zt_distance_bias(s, values(s, 2, 3, 4), values(s, 2, 3, 5), rises, 5, 1);
    case 2:
        return zt_distance_bias(s, values(s, 2, 3, 4), values(s, 2, 4, 4), rises, 5, 1);
    case 3:
        return zt_distance_bias(s, values(s, 2, 6, 4), NULL, rises, 5, 1);
    case 4:
        return zt_distance_bias(s, values(s, 2, 3, 3), NULL, rises, 5, 1);
    default:
        return zt_distance_bias(s, NULL, values(s, 2, 3, 4), falls, 5, 1);
    }
}

static void test_distances_name_what_is_wrong(void **state)
{
    static const char *const sentences[] = {
        "distance_bias: operand 1 is NULL",
        "distance_bias: by_query (2, 1, 3, 4), by_key (2, 1, 3, 5)",
        "distance_bias: 5 distances, but Tq + Tk - 1 are wanted of by_query (2, 1, 3, 4)",
        "distance_bias: 5 distances, but Tq + Tk - 1 are wanted of by_query (2, 1, 6, 4)",
        "distance_bias: bucket[4] is 3: want numbers in [0, 3), none less than the one "
        "before it",
        "distance_bias: bucket[3] is 1: want numbers in [0, 4), none less than the one "
        "before it",
    };
    struct zt_fault fault = {ZT_OK, ""};
    struct rig r;

    (void)state;
    rig_open(&r, "cpu", ZT_F32, NULL, (struct zt_step_config){.seed = 0});
    for (int i = 0; i < (int)(sizeof(sentences) / sizeof(*sentences)); i++) {
        expect_ok(zt_step_begin_bare(r.step, ZT_MODE_TRAIN, &fault), &fault);
        assert_null(bad_distances(r.step, i));
        assert_int_equal(zt_step_status(r.step, &fault), ZT_E_ARG);
        assert_string_equal(fault.text, sentences[i]);
        zt_step_end(r.step);
    }
    rig_close(&r);
}

/* ---- dropout of a table ---- */

static bool shared;
static zt_param *table;
static zt_block *block_of_table;

static zt_err build_table(zt_model *m, void **self)
{
    block_of_table = zt_model_block(m, "table");

    table = zt_block_param(block_of_table, "table", ZT_SHAPE(40, 8), ZT_ONES(), 0);
    zt_model_language_fields(m);
    *self = NULL;
    return zt_model_status(m);
}

static void drop_table(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    static float numbers[40 * 8];
    zt_tensor *w = zt_weight(s, ctx);

    (void)in;
    for (int i = 0; i < 40 * 8; i++)
        numbers[i] = (float)i; /* so that the loss tells which are dropped */
    w = zt_reshape(s, w, ZT_SHAPE(1, 40, 8)); /* the batch has one row */
    w = (shared ? zt_dropout_shared : zt_dropout)(s, w, 0.5f);
    out[0] = zt_squared_error(s, w, zt_constant(s, ZT_F32, ZT_SHAPE(1, 40, 8), numbers));
}

static zt_tensor *forward_table(zt_step *s, void *self, const zt_batch *b)
{
    zt_tensor *x = zt_batch_field(s, b, ZT_TOKENS);

    (void)self;
    zt_block_call(s, block_of_table, drop_table, table, &x, 1, &x, 1);
    return x;
}

static void test_dropout_of_what_all_rows_share_is_that_of_every_micro_batch(void **state)
{
    static const struct zt_plugin plugin = {.abi = ZT_ABI,
                                            .struct_bytes = sizeof(struct zt_plugin),
                                            .name = "table",
                                            .build = build_table,
                                            .forward = forward_table};
    int32_t tokens[4] = {0}, targets[4] = {0};
    float loss[4];
    struct rig r;

    (void)state;
    rig_open(&r, "cpu", ZT_F32, &plugin, (struct zt_step_config){.seed = 3});
    rig_init_weights(&r, 1);
    for (int i = 0; i < 4; i++) {
        shared = i < 2;
        loss[i] = train_pass(&r, (struct zt_pass){.B = 1,
                                                  .T = 4,
                                                  .fields = {tokens, targets},
                                                  .step = 5,
                                                  .row0 = i % 2 * 3});
    }
    assert_true(loss[0] == loss[1]);
    assert_true(loss[2] != loss[3]); /* which belong to rows */
    shared = true;
    assert_true(
        loss[0] !=
        train_pass(&r, (struct zt_pass){
                           .B = 1, .T = 4, .fields = {tokens, targets}, .step = 6}));
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_of_scores_by_distance),
        cmocka_unit_test(test_distances_name_what_is_wrong),
        cmocka_unit_test(
            test_dropout_of_what_all_rows_share_is_that_of_every_micro_batch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
