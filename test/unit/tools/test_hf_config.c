/* config.json: values, defaults, and wrong types named by key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "test/unit/data/files.h"
#include "worker/tools/hf_config.h"

static struct zt_fault fault;

static const char text[] =
    "{\"n_layer\": 12, \"eps\": 1e-05, \"two\": 2, \"tied\": true,\n"
    " \"none\": null, \"type\": \"gpt2\", \"list\": [1],\n"
    " \"rope\": {\"factor\": 8.0, \"deep\": {\"n\": 3}}}";

static struct zt_hf_config *opened(const char *path)
{
    struct zt_hf_config *c = NULL;

    if (zt_hf_config_open(path, &c, &fault))
        fail_msg("%s", fault.text);
    return c;
}

static void test_values_come_by_key_and_nested_key(void **state)
{
    struct zt_hf_config *c;
    const char *s = NULL;
    int64_t i = 0;
    double d = 0;
    bool b = false;

    (void)state;
    put_file("config.json", text, strlen(text));
    c = opened(scratch_dir); /* the folder is enough */
    assert_int_equal(zt_hf_config_int(c, "n_layer", 0, &i, &fault), ZT_OK);
    assert_int_equal(i, 12);
    assert_int_equal(zt_hf_config_int(c, "rope.deep.n", 0, &i, &fault), ZT_OK);
    assert_int_equal(i, 3);
    assert_int_equal(zt_hf_config_float(c, "eps", 0, &d, &fault), ZT_OK);
    assert_true(d == 1e-5);
    assert_int_equal(zt_hf_config_float(c, "two", 0, &d, &fault), ZT_OK);
    assert_true(d == 2);
    assert_int_equal(zt_hf_config_float(c, "rope.factor", 0, &d, &fault), ZT_OK);
    assert_true(d == 8);
    assert_int_equal(zt_hf_config_bool(c, "tied", false, &b, &fault), ZT_OK);
    assert_true(b);
    assert_int_equal(zt_hf_config_string(c, "type", "", &s, &fault), ZT_OK);
    assert_string_equal(s, "gpt2");
    zt_hf_config_close(c);
}

static void test_missing_and_null_give_the_default(void **state)
{
    struct zt_hf_config *c = opened(put_file("d.json", text, strlen(text)));
    static const char *const keys[] = {"none", "absent", "n_layer.x", "rope.absent",
                                       "absent.x"};
    const char *s;
    int64_t i;
    double d;
    bool b;

    (void)state;
    for (size_t k = 0; k < sizeof(keys) / sizeof(*keys); k++) {
        assert_int_equal(zt_hf_config_int(c, keys[k], 7, &i, &fault), ZT_OK);
        assert_int_equal(i, 7);
        assert_int_equal(zt_hf_config_float(c, keys[k], 0.5, &d, &fault), ZT_OK);
        assert_true(d == 0.5);
        assert_int_equal(zt_hf_config_bool(c, keys[k], true, &b, &fault), ZT_OK);
        assert_true(b);
        assert_int_equal(zt_hf_config_string(c, keys[k], "x", &s, &fault), ZT_OK);
        assert_string_equal(s, "x");
        assert_false(zt_hf_config_has(c, keys[k]));
    }
    zt_hf_config_close(c);
}

static void test_a_wrong_type_names_file_and_key_and_writes_nothing(void **state)
{
    struct zt_hf_config *c = opened(put_file("t.json", text, strlen(text)));
    const char *s = "was";
    int64_t i = 99;
    double d = 99;
    bool b = true;

    (void)state;
    assert_int_equal(zt_hf_config_int(c, "eps", 0, &i, &fault), ZT_E_FORMAT);
    assert_non_null(strstr(fault.text, "t.json: \"eps\" is a fraction; an integer"));
    assert_int_equal(zt_hf_config_int(c, "list", 0, &i, &fault), ZT_E_FORMAT);
    assert_int_equal(zt_hf_config_float(c, "type", 0, &d, &fault), ZT_E_FORMAT);
    assert_int_equal(zt_hf_config_bool(c, "n_layer", false, &b, &fault), ZT_E_FORMAT);
    assert_int_equal(zt_hf_config_string(c, "rope", "", &s, &fault), ZT_E_FORMAT);
    assert_true(i == 99 && d == 99 && b);
    assert_string_equal(s, "was");
    zt_hf_config_close(c);
}

static void test_what_is_no_config_is_refused(void **state)
{
    struct zt_hf_config *c = NULL;

    (void)state;
    assert_int_equal(zt_hf_config_open(in_scratch("absent.json"), &c, &fault),
                     ZT_E_NOINPUT);
    assert_int_equal(zt_hf_config_open(put_file("b.json", "{\n\"a\":}", 7), &c, &fault),
                     ZT_E_FORMAT);
    assert_non_null(strstr(fault.text, "b.json:2:"));
    assert_int_equal(zt_hf_config_open(put_file("b.json", "[]", 2), &c, &fault),
                     ZT_E_FORMAT);
    assert_null(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_come_by_key_and_nested_key),
        cmocka_unit_test(test_missing_and_null_give_the_default),
        cmocka_unit_test(test_a_wrong_type_names_file_and_key_and_writes_nothing),
        cmocka_unit_test(test_what_is_no_config_is_refused),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
