/* The config as text: the same for runs that mean the same, and only for those. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/config/canonical_text.h"
#include "test/unit/config/run_helper.h"

/* The caller frees. */
static char *text_of(struct run_trial t)
{
    char *text = NULL;

    if (!t.run)
        print_error("%s\n", t.fault.text);
    assert_non_null(t.run);
    assert_int_equal(zt_run_config_text(t.run, &text, NULL), ZT_OK);
    zt_run_close(t.run);
    return text;
}

static bool has_line(const char *text, const char *line)
{
    size_t n = strlen(line);

    for (const char *p = text; *p; p += strcspn(p, "\n") + 1)
        if (strncmp(p, line, n) == 0 && p[n] == '\n')
            return true;
    return false;
}

static void same(char *a, char *b)
{
    assert_string_equal(a, b);
    free(a);
    free(b);
}

static void differ(char *a, char *b)
{
    assert_string_not_equal(a, b);
    free(a);
    free(b);
}

static void test_lines_are_paths_and_values_in_order(void **state)
{
    char *text = text_of(try_it(2,
                                "{\"zero_optimization\": {\"stage\": 0}, \"bf16\": "
                                "{\"enabled\": true}}",
                                "--n_layer", "3"));
    const char *last = "";

    (void)state;
    assert_true(has_line(text, "zero_optimization.stage: 0"));
    assert_true(has_line(text, "bf16.enabled: true"));
    assert_true(has_line(text, "optimizer.params.betas[1]: 0.999"));
    assert_true(has_line(text, "zlaunch.seed: 42"));
    assert_true(has_line(text, "zlaunch.model.n_layer: 3"));
    assert_null(strstr(text, "//"));
    assert_int_equal(text[strlen(text) - 1], '\n');
    for (char *p = text, *end; *p; p = end + 1) {
        end = strchr(p, '\n');
        *end = 0;
        assert_true(strcmp(last, p) < 0);
        last = p;
    }
    free(text);
}

static void test_order_spelling_and_origin_do_not_matter(void **state)
{
    (void)state;
    same(text_of(try_it(
             2, "{\"bf16\": {\"enabled\": true}, \"seed\": 1, \"x-ignore\": [\"seed\"],"
                "\"gradient_clipping\": 2.0}")),
         text_of(try_it(
             2, "{\"x-ignore\": [\"seed\"], \"seed\": 1, \"gradient_clipping\": 2, "
                "\"bf16\": {\"enabled\": true}}")));
    same(text_of(try_it(2, "{\"zlaunch\": {\"seed\": 7}}")),
         text_of(try_it(2, "{}", "--seed=7")));
}

static void test_places_and_threads_may_differ(void **state)
{
    char *a = strdup("/tmp/a_XXXXXX"), *dir = mkdtemp(a);
    char option[64];

    (void)state;
    assert_non_null(dir);
    snprintf(option, sizeof(option), "--output_dir=%s", dir);
    same(text_of(try_it(2, NULL)), text_of(try_it(2, NULL, option, "--threads=3")));
    rmdir(dir);
    free(a);
}

static char *paths_of(struct run_trial t)
{
    char *text = NULL;

    assert_non_null(t.run);
    assert_int_equal(zt_run_paths_text(t.run, &text, NULL), ZT_OK);
    zt_run_close(t.run);
    return text;
}

/* Paths may differ between ranks; whether there is one decides what ranks do together. */
static void test_whether_a_path_is_given_shows(void **state)
{
    char a[] = "/tmp/a_XXXXXX", b[] = "/tmp/b_XXXXXX", in_a[32], in_b[32];
    char *text;

    (void)state;
    assert_non_null(mkdtemp(a));
    assert_non_null(mkdtemp(b));
    snprintf(in_a, sizeof(in_a), "--output_dir=%s", a);
    snprintf(in_b, sizeof(in_b), "--output_dir=%s", b);
    same(paths_of(try_it(2, NULL, in_a)), paths_of(try_it(2, NULL, in_b)));
    differ(paths_of(try_it(2, NULL)), paths_of(try_it(2, NULL, in_a)));
    text = paths_of(try_it(2, NULL, in_a));
    assert_true(has_line(text, "--output_dir given"));
    assert_true(has_line(text, "--eval_file not given"));
    assert_null(strstr(text, "--threads"));
    free(text);
    rmdir(a);
    rmdir(b);
}

static void test_what_changes_the_numbers_shows(void **state)
{
    (void)state;
    differ(text_of(try_it(2, NULL)), text_of(try_it(2, NULL, "--seed=43")));
    differ(text_of(try_it(2, NULL)), text_of(try_it(2, NULL, "--dropout=0.5")));
    differ(text_of(try_it(2, NULL)), text_of(try_it(2, NULL, "--bf16")));
    differ(text_of(try_it(2, NULL)), text_of(try_it(4, NULL)));
    differ(text_of(try_it(2, NULL)), text_of(try_it(2, NULL, "--prompt=one\ntwo")));
}

static void test_asking_changes_nothing(void **state)
{
    struct run_trial t = try_it(2, "{\"zero_optimization\": {\"stage\": 0}}");
    char *first = NULL, *before, *after;

    (void)state;
    assert_non_null(t.run);
    before = without_comments(resolved_text(t.run));
    assert_int_equal(zt_run_config_text(t.run, &first, NULL), ZT_OK);
    after = without_comments(resolved_text(t.run));
    same(before, after);
    same(first, text_of(t));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_are_paths_and_values_in_order),
        cmocka_unit_test(test_order_spelling_and_origin_do_not_matter),
        cmocka_unit_test(test_places_and_threads_may_differ),
        cmocka_unit_test(test_whether_a_path_is_given_shows),
        cmocka_unit_test(test_what_changes_the_numbers_shows),
        cmocka_unit_test(test_asking_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
