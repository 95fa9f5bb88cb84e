/* Fields of a batch: declaring them, their sizes, and what a pass needs of them. */
#include "fixture.h"

/* What build() declares in this test; NULL: nothing. */
static void (*declare)(zt_model *m);
static const char *asked; /* field that forward() reads */
static zt_param *scale;
static zt_block *block;

static zt_err build(zt_model *m, void **self)
{
    (void)self;
    block = zt_model_block(m, "b");
    scale = zt_block_param(block, "w", ZT_SHAPE(3, 4), ZT_ONES(), 0);
    if (declare)
        declare(m);
    return zt_model_status(m);
}

static void run_block(zt_step *s, void *ctx, zt_tensor **in, zt_tensor **out)
{
    zt_tensor *x = zt_embedding(s, in[0], zt_weight(s, scale));

    (void)ctx;
    out[0] = in[1] ? zt_squared_error(s, x, zt_scale(s, x, 2)) : x;
}

static zt_tensor *forward(zt_step *s, void *self, const zt_batch *b)
{
    zt_tensor *in[2] = {zt_batch_field(s, b, asked), NULL}, *out = NULL;

    (void)self;
    in[1] = zt_is_training(s) ? in[0] : NULL;
    zt_block_call(s, block, run_block, NULL, in, 2, &out, 1);
    return out;
}

static const struct zt_plugin plugin = {.abi = ZT_ABI,
                                        .struct_bytes = sizeof(struct zt_plugin),
                                        .name = "fed",
                                        .build = build,
                                        .forward = forward};

static zt_err open_with(void (*fn)(zt_model *m), struct zt_model **m,
                        struct zt_fault *fault)
{
    struct zt_model_config cfg = {.compute_dtype = ZT_F32};

    declare = fn;
    *m = NULL;
    return zt_model_open(&plugin, &cfg, m, fault);
}

static void test_a_model_that_says_nothing_is_a_language_model(void **state)
{
    struct zt_fault fault = {ZT_OK, ""};
    struct zt_model *m;

    (void)state;
    expect_ok(open_with(NULL, &m, &fault), &fault);
    assert_int_equal(m->layout.num, 2);
    assert_string_equal(m->layout.fields[0].name, "tokens");
    assert_false(m->layout.fields[0].label);
    assert_string_equal(m->layout.fields[1].name, "targets");
    assert_true(m->layout.fields[1].label);
    assert_true(m->layout.fields[1].pad == ZT_IGNORE_TARGET);
    assert_int_equal(m->layout.divisor, ZT_DIVISOR_TARGETS);
    assert_int_equal(m->layout.divisor_field, 1);
    zt_model_close(m);
}

/* ---- sizes ---- */

static void declare_sizes(zt_model *m)
{
    zt_model_field(m, ZT_BATCH_FIELD(.name = "ids", .dtype = ZT_I32,
                                     .shape = {ZT_DIM_B, ZT_DIM_T}, .required = true));
    zt_model_field(m, ZT_BATCH_FIELD(.name = "pixels", .dtype = ZT_U8,
                                     .shape = {ZT_DIM_B, 3, 5, 7}, .pad = 255));
    zt_model_field(m, ZT_BATCH_FIELD(.name = "weight", .dtype = ZT_F32,
                                     .shape = {ZT_DIM_B}, .required = true, .pad = 0.5));
    zt_model_set_loss_divisor(m, ZT_DIVISOR_FIELD_SUM, "weight");
}

static void test_sizes_follow_from_rows_and_tokens(void **state)
{
    struct zt_fault fault = {ZT_OK, ""};
    const struct zt_extent size = {4, 9, 6};
    int64_t shape[ZT_MAX_NDIM];
    char text[96];
    struct zt_model *m;

    (void)state;
    expect_ok(open_with(declare_sizes, &m, &fault), &fault);
    assert_int_equal(m->layout.num, 3);
    assert_int_equal(zt_field_shape(&m->layout.fields[0], size, shape), 2);
    assert_int_equal(shape[0], 4);
    assert_int_equal(shape[1], 9);
    assert_int_equal(zt_field_bytes(&m->layout.fields[0], size), 4 * 9 * 4);
    assert_int_equal(zt_field_shape(&m->layout.fields[1], size, shape), 4);
    assert_int_equal(zt_field_bytes(&m->layout.fields[1], size), 4 * 3 * 5 * 7);
    assert_int_equal(zt_field_numel(&m->layout.fields[2], size), 4);
    assert_string_equal(zt_field_text(&m->layout.fields[1], text), "u8 (B, 3, 5, 7)");
    assert_string_equal(zt_field_text(&m->layout.fields[0], text), "i32 (B, T)");
    assert_int_equal(m->layout.divisor, ZT_DIVISOR_FIELD_SUM);
    assert_int_equal(m->layout.divisor_field, 2);
    zt_model_close(m);
}

/* ---- what cannot be declared ---- */

#define IDS .name = "ids", .dtype = ZT_I32, .shape = {ZT_DIM_B, ZT_DIM_T}

static int which;

static void declare_wrong(zt_model *m)
{
    struct zt_field f = *ZT_BATCH_FIELD(IDS, .required = true);

    zt_model_field(m, &f);
    f.name = "x";
    if (which == 0)
        f.name = "ids";
    else if (which == 1)
        f.shape[0] = ZT_DIM_T;
    else if (which == 2)
        f.shape[1] = -7;
    else if (which == 3)
        f.dtype = ZT_F8E4M3;
    else if (which == 4)
        f.pad = NAN;
    else if (which == 5)
        f.pad = 0.5;
    else if (which == 6)
        f.name = NULL;
    else if (which == 7)
        f.struct_bytes = 12;
    else if (which == 8)
        f.struct_bytes = 1u << 30;
    if (which < 9)
        zt_model_field(m, &f);
    else if (which == 9)
        zt_model_set_loss_divisor(m, ZT_DIVISOR_FIELD_SUM, "weights");
    else if (which == 11)
        zt_model_set_loss_divisor(m, ZT_DIVISOR_FIELD_SUM, NULL);
    else if (which == 12)
        zt_model_set_loss_divisor(m, ZT_DIVISOR_ROWS, "ids");
    else if (which == 13)
        zt_model_set_loss_divisor(m, (zt_divisor)9, "ids");
}

static void test_what_cannot_be_declared_is_named(void **state)
{
    static const char *const sentences[] = {
        "two fields are called ids",
        "field x: its first axis must be ZT_DIM_B",
        "field x: its axes must be ZT_DIM_B, then ZT_DIM_T, ZT_DIM_S or sizes",
        "field x: it has no such dtype",
        "field x: its padding must be finite",
        "field x: its padding must be a whole number",
        "field ?: it has no name",
        "a field of 12 bytes: make it with ZT_BATCH_FIELD()",
        "a field of 1073741824 bytes: make it with ZT_BATCH_FIELD()",
        "divided by what field weights holds, but there is no such field",
        "divided by what field targets holds, but there is no such field",
        "the loss divisor of a field's sum needs a field",
        "the loss divisor of rows has no field",
        "there is no loss divisor 9",
    };
    struct zt_fault fault;
    struct zt_model *m;

    (void)state;
    for (which = 0; which < (int)(sizeof(sentences) / sizeof(*sentences)); which++) {
        fault = (struct zt_fault){ZT_OK, ""};
        assert_int_equal(open_with(declare_wrong, &m, &fault), ZT_E_PLUGIN);
        if (!strstr(fault.text, sentences[which]))
            fail_msg("\"%s\" does not say \"%s\"", fault.text, sentences[which]);
    }
}

/* A field of an older header, which did not know labels and padding. */
static void declare_older(zt_model *m)
{
    struct zt_field f = *ZT_BATCH_FIELD(IDS, .required = true);

    f.struct_bytes = offsetof(struct zt_field, required) + 4;
    f.pad = 3;
    zt_model_field(m, &f);
    zt_model_set_loss_divisor(m, ZT_DIVISOR_ROWS, NULL);
}

static void test_fields_of_an_older_header(void **state)
{
    struct zt_fault fault = {ZT_OK, ""};
    struct zt_model *m;

    (void)state;
    expect_ok(open_with(declare_older, &m, &fault), &fault);
    assert_true(m->layout.fields[0].required);
    assert_true(m->layout.fields[0].pad == 0);
    assert_int_equal(m->layout.divisor_field, -1);
    zt_model_close(m);
}

/* ---- passes ---- */

static void declare_pass(zt_model *m)
{
    zt_model_field(m, ZT_BATCH_FIELD(IDS, .required = true));
    zt_model_field(
        m, ZT_BATCH_FIELD(.name = "extra", .dtype = ZT_F32, .shape = {ZT_DIM_B, 2}));
    zt_model_field(m,
                   ZT_BATCH_FIELD(.name = "label", .dtype = ZT_I32, .shape = {ZT_DIM_B},
                                  .required = true, .label = true));
    zt_model_set_loss_divisor(m, ZT_DIVISOR_ROWS, NULL);
}

static void expect_pass(struct rig *r, struct zt_pass pass, zt_err code, const char *text)
{
    struct zt_fault fault = {ZT_OK, ""};
    zt_tensor *out = NULL;

    assert_int_equal(zt_step_forward(r->step, &pass, &out, &fault), code);
    if (code && !strstr(fault.text, text))
        fail_msg("\"%s\" does not say \"%s\"", fault.text, text);
    zt_step_end(r->step);
}

static void test_a_pass_needs_the_fields_of_its_mode(void **state)
{
    static const int32_t ids[] = {0, 1, 2, 2, 1, 0}, label[] = {1, 0};
    const struct zt_pass all = {
        .mode = ZT_MODE_TRAIN, .B = 2, .T = 3, .fields = {ids, NULL, label}};
    struct zt_pass pass = all;
    struct rig r;

    (void)state;
    declare = declare_pass;
    asked = "ids";
    rig_open(&r, "cpu", ZT_F32, &plugin, (struct zt_step_config){.seed = 1});
    rig_init_weights(&r, 0.5);
    expect_pass(&r, pass, ZT_OK, "");
    pass.fields[2] = NULL;
    expect_pass(&r, pass, ZT_E_ARG, "a training pass needs the field label");
    pass.mode = ZT_MODE_GENERATE;
    expect_pass(&r, pass, ZT_OK, "");
    pass.fields[0] = NULL;
    expect_pass(&r, pass, ZT_E_ARG, "a pass needs the field ids");
    asked = "nothing";
    expect_pass(&r, all, ZT_E_PLUGIN, "batch: no field nothing was declared in build");
    asked = "extra"; /* declared, optional, absent: the op says that it is NULL */
    expect_pass(&r, all, ZT_E_ARG, "operand 1 is NULL");
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_model_that_says_nothing_is_a_language_model),
        cmocka_unit_test(test_sizes_follow_from_rows_and_tokens),
        cmocka_unit_test(test_what_cannot_be_declared_is_named),
        cmocka_unit_test(test_fields_of_an_older_header),
        cmocka_unit_test(test_a_pass_needs_the_fields_of_its_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
