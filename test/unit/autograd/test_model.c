/* Declarations, the layout of blocks, and config.json in and out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/options/options.h"
#include "worker/autograd/model.h"

static void (*scene)(zt_model *m);
static int released;

static zt_err build(zt_model *m, void **self)
{
    *self = NULL;
    scene(m);
    return zt_model_status(m);
}

static zt_tensor *forward(zt_step *s, void *self, const zt_batch *b)
{
    (void)s;
    (void)self;
    (void)b;
    return NULL;
}

static void release(void *self)
{
    (void)self;
    released++;
}

static const struct zt_plugin plugin = {.abi = ZT_ABI,
                                        .struct_bytes = sizeof(struct zt_plugin),
                                        .name = "toy",
                                        .build = build,
                                        .forward = forward,
                                        .release = release};

static struct zt_model *open_scene(void (*fn)(zt_model *m), const char *config_json)
{
    struct zt_model_config cfg = {
        .data_vocab = 257, .block_size = 64, .config_json = config_json};
    struct zt_fault fault = {ZT_OK, ""};
    struct zt_model *m = NULL;

    scene = fn;
    if (zt_model_open(&plugin, &cfg, &m, &fault))
        fail_msg("%s", fault.text);
    return m;
}

static void expect_refusal(void (*fn)(zt_model *m), const char *config_json, zt_err code,
                           const char *text)
{
    struct zt_model_config cfg = {.config_json = config_json};
    struct zt_fault fault = {ZT_OK, ""};
    struct zt_model *m = NULL;

    scene = fn;
    assert_int_equal(zt_model_open(&plugin, &cfg, &m, &fault), code);
    assert_null(m);
    if (!strstr(fault.text, text))
        fail_msg("\"%s\" does not say \"%s\"", fault.text, text);
}

/* ---- layout ---- */

static void three_blocks(zt_model *m)
{
    zt_block *a = zt_model_block(m, "a"), *b = zt_model_block(m, "b");
    zt_block *c = zt_model_block(m, "c");
    zt_param *p = zt_block_param(a, "p", ZT_SHAPE(7, 9), ZT_NORMAL(0, 1), 0);

    zt_block_param(a, "q", ZT_SHAPE(64), ZT_ZEROS(), ZT_NO_DECAY);
    zt_block_param(a, "r", ZT_SHAPE(5000), ZT_UNIFORM(-1, 1), ZT_FROZEN);
    zt_block_param(b, "s", ZT_SHAPE(2, 3, 4), ZT_ONES(), ZT_FROZEN);
    zt_block_share(c, p);
    zt_block_share(c, p);
    zt_block_share(a, p);
    zt_model_set_hidden_size(m, 12);
    zt_model_set_vocab(m, zt_model_data_vocab(m));
    zt_model_set_max_tokens(m, zt_model_block_size(m));
}

static void test_layout_places_every_element_once_at_any_world_size(void **state)
{
    struct zt_model *m = open_scene(three_blocks, NULL);

    (void)state;
    for (int world = 1; world <= 7; world += 2) {
        zt_model_layout(m, world);
        for (int i = 0; i < m->num_blocks; i++) {
            const struct zt_block *b = m->blocks[i];
            int64_t end = 0;

            for (int j = 0; j < b->num_params; j++) {
                assert_ptr_equal(b->params[j]->block, b);
                assert_int_equal(b->params[j]->offset_elems % ZT_PARAM_ALIGN, 0);
                assert_in_range(b->params[j]->offset_elems, end,
                                end + ZT_PARAM_ALIGN - 1); /* M1 */
                end = b->params[j]->offset_elems + b->params[j]->numel;
            }
            assert_int_equal(b->padded_elems % (world * ZT_SHARD_ALIGN), 0); /* M3 */
            assert_true(b->padded_elems >= end);
            assert_true(b->padded_elems < end + ZT_PARAM_ALIGN + world * ZT_SHARD_ALIGN);
        }
    }
    zt_model_close(m);
}

static void test_tables_hold_what_was_declared(void **state)
{
    struct zt_model *m = open_scene(three_blocks, NULL);
    struct zt_param *p = zt_model_find(m, "p");

    (void)state;
    assert_int_equal(m->num_blocks, 3);
    assert_int_equal(m->num_params, 4);
    assert_int_equal(m->numel, 63 + 64 + 5000 + 24);
    assert_int_equal(m->blocks[0]->numel, 63 + 64 + 5000);
    assert_false(m->blocks[0]->frozen); /* one of three is */
    assert_true(m->blocks[1]->frozen);
    assert_int_equal(m->blocks[2]->num_shared, 1);
    assert_ptr_equal(m->blocks[2]->shared[0], p);
    assert_int_equal(m->blocks[0]->num_shared, 0); /* its own */
    assert_int_equal(m->blocks[2]->padded_elems, 0);
    assert_int_equal(m->hidden_size, 12);
    assert_int_equal(m->vocab, 257);
    assert_int_equal(m->max_tokens, 64);
    assert_int_equal(p->shape[1], 9);
    assert_null(zt_model_find(m, "nobody"));
    /* keys of initial values are part of what a seed means: they must not change */
    assert_true(zt_param_init_stream(p) == 0xbe20e5191d449b87u);
    assert_true(zt_param_init_stream(p) != zt_param_init_stream(zt_model_find(m, "q")));
    zt_model_close(m);
}

/* ---- refusals ---- */

static void twin_blocks(zt_model *m)
{
    zt_model_block(m, "a");
    assert_null(zt_model_block(m, "a"));
    assert_null(zt_model_block(m, "b")); /* nothing works after a failure */
}

static void twin_params(zt_model *m)
{
    zt_block *a = zt_model_block(m, "a");

    zt_block_param(a, "w", ZT_SHAPE(1), ZT_ONES(), 0);
    zt_block_param(a, "w", ZT_SHAPE(2), ZT_ONES(), 0);
}

static void empty_axis(zt_model *m)
{
    zt_block_param(zt_model_block(m, "a"), "w", ZT_SHAPE(3, 0), ZT_ONES(), 0);
}

static void huge(zt_model *m)
{
    zt_block_param(zt_model_block(m, "a"), "w", ZT_SHAPE(1ll << 40, 1ll << 40), ZT_ONES(),
                   0);
}

static void many_axes(zt_model *m)
{
    zt_block_param(zt_model_block(m, "a"), "w", ZT_SHAPE(1, 1, 1, 1, 1, 1, 1), ZT_ONES(),
                   0);
}

static void negative_deviation(zt_model *m)
{
    zt_block_param(zt_model_block(m, "a"), "w", ZT_SHAPE(1), ZT_NORMAL(0, -1), 0);
}

static void unknown_flag(zt_model *m)
{
    zt_block_param(zt_model_block(m, "a"), "w", ZT_SHAPE(1), ZT_ONES(), 64);
}

static void nameless(zt_model *m)
{
    zt_model_block(m, "");
}

static void nothing(zt_model *m)
{
    zt_model_block(m, "a");
}

static void own_words(zt_model *m)
{
    zt_model_fail(m, "n_embd %d is not a multiple of n_head %d", 10, 3);
    zt_model_fail(m, "and more");
}

static void bad_export(zt_model *m)
{
    zt_block_param(zt_model_block(m, "a"), "w", ZT_SHAPE(1), ZT_ONES(), 0);
    zt_model_export(m, "model_type", "gpt%d", 2);
}

static void no_text(zt_model *m)
{
    zt_block_param(zt_model_block(m, "a"), "gr\xff", ZT_SHAPE(1), ZT_ONES(), 0);
}

static void reserved(zt_model *m)
{
    zt_block_param(zt_model_block(m, "a"), "__metadata__", ZT_SHAPE(1), ZT_ONES(), 0);
}

static void twin_of_nothing(zt_model *m)
{
    zt_param_twin(m, NULL, "lm_head.weight");
}

static void share_of_nothing(zt_model *m)
{
    zt_block_share(zt_model_block(m, "head"), NULL);
}

static void adjoin_of_nothing(zt_model *m)
{
    zt_param *w = zt_block_param(zt_model_block(m, "a"), "w", ZT_SHAPE(1), ZT_ONES(), 0);

    zt_block_adjoin((zt_param *[]){w, NULL}, 2);
}

static void vocab_below_0(zt_model *m)
{
    zt_model_set_vocab(m, -3);
}

static zt_err silent_build(zt_model *m, void **self)
{
    (void)m;
    *self = malloc(10); /* ours to free: there is no release */
    return ZT_E_LIMIT;
}

static void misread_option(zt_model *m)
{
    assert_int_equal(zt_args_int(zt_model_args(m), "n_layr"), 0);
    zt_model_fail(m, "n_layer is 0");
}

static void test_an_option_that_the_plugin_has_not_fails_its_build(void **state)
{
    static const struct zt_option options[] = {
        {.name = "n_layer", .kind = ZT_OPT_INT, .def = "2", .help = "layers"},
        {.name = NULL}};
    struct zt_fault fault = {ZT_OK, ""};
    struct zt_model_config cfg = {.data_vocab = 0};
    struct zt_model *m = NULL;
    zt_args *args = NULL;

    (void)state;
    assert_int_equal(zt_args_open(options, &args, &fault), ZT_OK);
    cfg.args = args;
    scene = misread_option;
    assert_int_equal(zt_model_open(&plugin, &cfg, &m, &fault), ZT_E_PLUGIN);
    assert_string_equal(fault.text,
                        "plugin toy: it asks for the option \"n_layr\", which is not in "
                        "its table; there are n_layer");
    zt_args_close(args);
}

static void test_bad_declarations_are_refused_by_name(void **state)
{
    struct zt_plugin silent = plugin;
    struct zt_model_config cfg = {.data_vocab = 0};
    struct zt_fault fault = {ZT_OK, ""};
    struct zt_model *m = NULL;

    (void)state;
    released = 0;
    expect_refusal(twin_blocks, NULL, ZT_E_PLUGIN, "plugin toy: two blocks are called a");
    expect_refusal(twin_params, NULL, ZT_E_PLUGIN, "two parameters are called w");
    expect_refusal(empty_axis, NULL, ZT_E_PLUGIN, "parameter w: axis 1 is 0");
    expect_refusal(huge, NULL, ZT_E_PLUGIN, "parameter w: axis 1 is 1099511627776");
    expect_refusal(many_axes, NULL, ZT_E_PLUGIN, "parameter w has 7 axes");
    expect_refusal(negative_deviation, NULL, ZT_E_PLUGIN, "no such initial values");
    expect_refusal(unknown_flag, NULL, ZT_E_PLUGIN, "parameter w: unknown flags 0x40");
    expect_refusal(nameless, NULL, ZT_E_PLUGIN, "a block without a name");
    expect_refusal(nothing, NULL, ZT_E_PLUGIN, "build declared no parameters");
    expect_refusal(own_words, NULL, ZT_E_CONFIG,
                   "plugin toy: n_embd 10 is not a multiple of n_head 3");
    expect_refusal(bad_export, NULL, ZT_E_PLUGIN,
                   "export of model_type: gpt2 is no JSON");
    expect_refusal(twin_of_nothing, NULL, ZT_E_PLUGIN,
                   "gives the name lm_head.weight to no parameter");
    expect_refusal(share_of_nothing, NULL, ZT_E_PLUGIN,
                   "block head: zt_block_share() of no parameter");
    expect_refusal(adjoin_of_nothing, NULL, ZT_E_PLUGIN,
                   "zt_block_adjoin() of w and no parameter");
    expect_refusal(vocab_below_0, NULL, ZT_E_PLUGIN,
                   "zt_model_set_vocab(): -3 is below 0");
    expect_refusal(no_text, NULL, ZT_E_PLUGIN, "no file of weights can have this name");
    expect_refusal(reserved, NULL, ZT_E_PLUGIN, "parameter __metadata__: no file");
    assert_int_equal(released, 17);
    silent.build = silent_build;
    silent.release = NULL;
    assert_int_equal(zt_model_open(&silent, &cfg, &m, &fault), ZT_E_PLUGIN);
    assert_string_equal(fault.text,
                        "plugin toy: build failed without a reason (limit reached)");
}

static void expect_late(void (*declare)(zt_model *m), zt_err code, const char *text)
{
    struct zt_model *m = open_scene(three_blocks, NULL);
    struct zt_fault fault = {ZT_OK, ""};

    assert_int_equal(zt_model_check_options(m, &fault), ZT_OK);
    declare(m);
    assert_int_equal(m->num_blocks, 3);
    assert_int_equal(m->num_params, 4);
    assert_int_equal(m->layout.num, 2);
    assert_int_equal(zt_model_check_options(m, &fault), code);
    if (!strstr(fault.text, text))
        fail_msg("\"%s\" does not say \"%s\"", fault.text, text);
    zt_model_close(m);
}

static void late_block(zt_model *m)
{
    zt_model_block(m, "late");
}

static void late_param(zt_model *m)
{
    zt_block_param(m->blocks[0], "late", ZT_SHAPE(1), ZT_ONES(), 0);
}

static void late_field(zt_model *m)
{
    zt_model_field(m,
                   ZT_BATCH_FIELD(.name = "late", .dtype = ZT_I32, .shape = {ZT_DIM_B}));
}

static void late_share(zt_model *m)
{
    zt_block_share(m->blocks[1], m->params[0]);
}

static void test_what_is_declared_or_refused_behind_build_is_a_failure(void **state)
{
    (void)state;
    expect_late(late_block, ZT_E_PLUGIN,
                "plugin toy: a block is declared behind build()");
    expect_late(late_param, ZT_E_PLUGIN, "a parameter is declared behind build()");
    expect_late(late_field, ZT_E_PLUGIN, "a field is declared behind build()");
    expect_late(late_share, ZT_E_PLUGIN, "a shared parameter is declared behind build()");
    expect_late(own_words, ZT_E_CONFIG, "plugin toy: n_embd 10 is not a multiple");
}

/* ---- config.json ---- */

static const char *write_config(const char *text)
{
    static char path[64];
    FILE *f;

    snprintf(path, sizeof(path), "/tmp/zt_config_%d.json", (int)getpid());
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return path;
}

static void read_config(zt_model *m)
{
    zt_block_param(zt_model_block(m, "a"), "w", ZT_SHAPE(1), ZT_ONES(), 0);
    assert_true(zt_model_has_config(m));
    assert_int_equal(zt_model_config_int(m, "n_layer", 3), 12);
    assert_int_equal(zt_model_config_int(m, "n_big", 3), 5);
    assert_int_equal(zt_model_config_int(m, "flag", 0), 1);
    assert_int_equal(zt_model_config_int(m, "n_inner", 7), 7); /* null */
    assert_int_equal(zt_model_config_int(m, "absent", 8), 8);
    assert_int_equal(zt_model_config_int(m, "rope.base", 0), 10000);
    assert_int_equal(zt_model_config_int(m, "rope.absent.deeper", 4), 4);
    assert_true(zt_model_config_float(m, "eps", 0) == 1e-5);
    assert_true(zt_model_config_float(m, "n_layer", 0) == 12);
    assert_string_equal(zt_model_config_string(m, "act", "x"), "gelu_new");
    assert_string_equal(zt_model_config_string(m, "absent", "x"), "x");
    assert_string_equal(zt_model_config_string(m, "types.1", "x"), "local");
    assert_string_equal(zt_model_config_string(m, "types.2", "x"), "x");
    assert_string_equal(zt_model_config_string(m, "types.one", "x"), "x");
    assert_int_equal(zt_model_config_int(m, "deep.0.n", 0), 6);
}

static void read_wrong_type(zt_model *m)
{
    assert_int_equal(zt_model_config_int(m, "act", 9), 9);
}

static void test_config_json_is_read_with_its_types(void **state)
{
    const char *path = write_config("{\"n_layer\": 12, \"n_big\": 5.0, \"flag\": true,"
                                    "\"n_inner\": null, \"rope\": {\"base\": 10000},"
                                    "\"eps\": 1e-5, \"act\": \"gelu_new\","
                                    "\"types\": [\"full\", \"local\"],"
                                    "\"deep\": [{\"n\": 6}]}");

    (void)state;
    zt_model_close(open_scene(read_config, path));
    expect_refusal(read_wrong_type, path, ZT_E_CONFIG,
                   "act is \"gelu_new\", but an integer is wanted");
    write_config("{\"n_layer\": 12,\n \"n_head\" 3}");
    expect_refusal(nothing, path, ZT_E_FORMAT, ".json:2:");
    write_config("[1]");
    expect_refusal(nothing, path, ZT_E_FORMAT, "no JSON object");
    unlink(path);
    expect_refusal(nothing, path, ZT_E_NOINPUT, "No such file");
}

static void know_some(zt_model *m)
{
    static const char *const ignored[] = {"summary_*", NULL};

    zt_block_param(zt_model_block(m, "a"), "w", ZT_SHAPE(1), ZT_ONES(), 0);
    zt_model_config_int(m, "n_layer", 3);
    zt_model_config_float(m, "rope.base", 1);
    zt_model_config_string(m, "types.0", "");
    zt_model_config_must(m, "tied", "[true, 1]");
    zt_model_config_end(m, ignored);
}

static void test_members_of_config_json_that_nobody_knows_are_refused(void **state)
{
    const char *path = write_config(
        "{\"n_layer\": 2, \"rope\": {\"base\": 2, \"x\": null}, \"types\": [\"a\"],"
        "\"summary_type\": 1, \"dtype\": \"float32\", \"foo\": null, \"tied\": 1}");

    (void)state;
    zt_model_close(open_scene(know_some, path));
    write_config(
        "{\"n_layer\": 2, \"n_layers\": 3, \"rope\": {\"base\": 2, \"top\": 1}}");
    expect_refusal(know_some, path, ZT_E_CONFIG,
                   "does not know \"n_layers\", \"rope.top\"");
    write_config("{\"tied\": false}");
    expect_refusal(know_some, path, ZT_E_CONFIG,
                   "\"tied\" is false, which is not built: only [true, 1] is");
    write_config("{\"is_encoder_decoder\": true}");
    expect_refusal(know_some, path, ZT_E_CONFIG, "\"is_encoder_decoder\" is true");
    unlink(path);
}

static void test_ranges_of_options_hold_for_config_json(void **state)
{
    static const struct zt_option options[] = {
        {.name = "n_layer", .kind = ZT_OPT_INT, .min = 1, .max = 1000, .help = "layers"},
        {.name = NULL}};
    struct zt_fault fault = {ZT_OK, ""};
    struct zt_model_config cfg = {
        .config_json =
            write_config("{\"n_layer\": 1000000000, \"rope\": {\"base\": 2}}")};
    struct zt_model *m = NULL;
    zt_args *args = NULL;

    (void)state;
    assert_int_equal(zt_args_open(options, &args, &fault), ZT_OK);
    cfg.args = args;
    scene = know_some;
    assert_int_equal(zt_model_open(&plugin, &cfg, &m, &fault), ZT_E_CONFIG);
    assert_non_null(strstr(fault.text, "n_layer is 1000000000; it must be between 1 and "
                                       "1000"));
    zt_args_close(args);
    unlink(cfg.config_json);
}

static void write_exports(zt_model *m)
{
    zt_block_param(zt_model_block(m, "a"), "w", ZT_SHAPE(1), ZT_ONES(), 0);
    assert_false(zt_model_has_config(m));
    zt_model_export(m, "n_layer", "%d", 4);
    zt_model_export(m, "eps", "%.9g", 1e-5);
    zt_model_export(m, "na\"me", "[\"%s\"]", "GPT2");
    zt_model_export(m, "n_layer", "%d", 12); /* the last one counts */
}

static void test_exports_are_json_in_the_order_they_came(void **state)
{
    struct zt_model *m = open_scene(write_exports, NULL);
    char *text = zt_model_config_text(m);

    (void)state;
    assert_non_null(text);
    assert_string_equal(text, "{\n  \"n_layer\": 12,\n  \"eps\": 1e-05,\n"
                              "  \"na\\\"me\": [\"GPT2\"]\n}\n");
    free(text);
    zt_model_close(m);
}

static void pass_on(zt_model *m)
{
    zt_block_param(zt_model_block(m, "a"), "w", ZT_SHAPE(1), ZT_ONES(), 0);
    zt_model_export(m, "eos", "%d", 2);
    zt_model_export(m, "bos", "%d", 1);
    zt_model_export_imported(m, "eos");
    zt_model_export_imported(m, "bos"); /* null there */
    zt_model_export_imported(m, "nobody");
}

static void test_imported_members_go_out_as_they_came(void **state)
{
    const char *path = write_config("{\"eos\": [7, 8], \"bos\": null}");
    struct zt_model *m = open_scene(pass_on, path);
    char *text = zt_model_config_text(m);

    (void)state;
    unlink(path);
    assert_non_null(text);
    assert_string_equal(text, "{\n  \"eos\": [7, 8],\n  \"bos\": 1\n}\n");
    free(text);
    zt_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout_places_every_element_once_at_any_world_size),
        cmocka_unit_test(test_tables_hold_what_was_declared),
        cmocka_unit_test(test_an_option_that_the_plugin_has_not_fails_its_build),
        cmocka_unit_test(test_bad_declarations_are_refused_by_name),
        cmocka_unit_test(test_what_is_declared_or_refused_behind_build_is_a_failure),
        cmocka_unit_test(test_config_json_is_read_with_its_types),
        cmocka_unit_test(test_members_of_config_json_that_nobody_knows_are_refused),
        cmocka_unit_test(test_ranges_of_options_hold_for_config_json),
        cmocka_unit_test(test_exports_are_json_in_the_order_they_came),
        cmocka_unit_test(test_imported_members_go_out_as_they_came),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
